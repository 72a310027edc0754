//! Makes a layer, `meta.erofs` and `data`, out of tar archives.
pub mod args;
pub mod confine;
mod data;
mod erofs;
pub mod error;
mod input;
pub mod limits;
mod merge;
mod tar;
mod tree;

use data::DataWriter;
use error::Result;
use input::Input;
use limits::{Budget, Limits};
pub use merge::Whiteouts;
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::rc::Rc;
use tar::TarReader;
use tree::{Body, Tree};

pub const BUILDER: &str = concat!("mklayer ", env!("CARGO_PKG_VERSION"));

/// What to build.
pub struct Job {
    /// Lowest first.
    pub inputs: Vec<Box<dyn Read>>,
    pub meta: File,
    pub data: File,
    pub whiteouts: Whiteouts,
    pub limits: Limits,
    /// Stop after the input with which the data reaches this many bytes.
    pub collapse_bytes: u64,
    /// Write both files through to the disk.
    pub sync: bool,
}

pub struct Built {
    pub meta_bytes: u64,
    pub meta_sha256: String,
    pub data_bytes: u64,
    pub data_sha256: String,
    pub entries: u64,
    /// Inputs taken; fewer than given where `collapse_bytes` was reached.
    pub inputs: usize,
}

impl Built {
    /// The layer's name: it covers both files.
    pub fn digest(&self) -> String {
        let Built {
            meta_sha256,
            meta_bytes,
            data_sha256,
            data_bytes,
            ..
        } = self;
        let text =
            format!("dsec-layer-v1\n{meta_sha256} {meta_bytes}\n{data_sha256} {data_bytes}\n");
        format!("sha256:{}", hex(&Sha256::digest(text.as_bytes())))
    }

    /// The text of `layer.json`.
    pub fn to_json(&self) -> String {
        let Built {
            meta_sha256,
            meta_bytes,
            data_sha256,
            data_bytes,
            entries,
            ..
        } = self;
        format!(
            "{{\"version\":1,\"digest\":\"{}\",\"meta\":{{\"sha256\":\"{meta_sha256}\",\"bytes\":{meta_bytes}}},\
             \"data\":{{\"sha256\":\"{data_sha256}\",\"bytes\":{data_bytes}}},\"entries\":{entries},\
             \"builder\":\"{BUILDER}\"}}",
            self.digest()
        )
    }
}

/// Decoded bytes and entries so far.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

pub fn build(job: Job, progress: Progress) -> Result<Built> {
    let budget = Budget::start(job.limits);
    let mut tree = Tree::new(budget.clone());
    let mut data = DataWriter::new(job.data, budget.clone());
    let total = Rc::new(Cell::new(0));
    let (mut entries, mut inputs) = (0u64, 0);
    for (layer, source) in job.inputs.into_iter().enumerate() {
        if inputs > 0 && data.position() >= job.collapse_bytes {
            break;
        }
        let mut reader = TarReader::new(Input::open(source, budget.clone(), total.clone())?);
        merge::apply(
            &mut tree,
            &mut data,
            &mut reader,
            layer as u32,
            job.whiteouts,
            &mut |bytes| {
                entries += 1;
                progress(bytes, entries);
            },
        )?;
        inputs += 1;
    }
    let mut live = vec![false; data.contents.len()];
    for node in tree.nodes.iter().filter(|node| node.links > 0) {
        if let Body::File {
            content: Some(content),
            ..
        } = &node.body
        {
            live[*content as usize] = true;
        }
    }
    let sums = data.close(&live)?;
    let written = erofs::write(&tree, &data.contents, sums, &job.meta)?;
    if job.sync {
        data.sync()?;
        job.meta
            .sync_all()
            .map_err(|e| error::Failure::output("metadata", &e))?;
    }
    progress(total.get(), entries);
    Ok(Built {
        meta_bytes: written.bytes,
        meta_sha256: hex(&written.sha256),
        data_bytes: sums.0,
        data_sha256: hex(&sums.1),
        entries: written.inodes,
        inputs,
    })
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
