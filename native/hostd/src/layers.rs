//! Layers of this node: DATA/layers/<64 hex>/{meta.erofs,data,layer.json}, each mounted once, at its first use, as a
//! detached mount that only this process holds.

use crate::config::forced;
use crate::fault::{Fault, Outcome, Step};
use crate::scratch::Scratch;
use crate::{loop_device, sys};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};

pub struct Layers {
    dir: OwnedFd,
    mounted: BTreeMap<String, OwnedFd>,
    /// Sandboxes, running or kept.
    users: BTreeMap<String, u32>,
}

impl Layers {
    pub fn new(dir: OwnedFd) -> Self {
        Self {
            dir,
            mounted: BTreeMap::new(),
            users: BTreeMap::new(),
        }
    }

    /// Mounts what is not mounted yet.
    pub fn mount_all(&mut self, digests: &[String], scratch: Option<&Scratch>) -> Outcome<()> {
        for digest in digests {
            if !self.mounted.contains_key(digest) {
                let mount = self.mount(digest)?;
                if let Some(scratch) = scratch {
                    scratch
                        .attach(&mount, &place(digest))
                        .step("attach a layer")?;
                }
                self.mounted.insert(digest.clone(), mount);
            }
        }
        Ok(())
    }

    pub fn get(&self, digest: &str) -> Option<&OwnedFd> {
        self.mounted.get(digest)
    }

    pub fn used(&mut self, digests: &[String]) {
        for digest in digests {
            *self.users.entry(digest.clone()).or_default() += 1;
        }
    }

    pub fn unused(&mut self, digests: &[String]) {
        for digest in digests {
            if let Some(count) = self.users.get_mut(digest) {
                *count -= 1;
                if *count == 0 {
                    self.users.remove(digest);
                }
            }
        }
    }

    /// Those mounted or in use: (digest, users, mounted).
    pub fn list(&self) -> Vec<(String, u32, bool)> {
        let mut all: Vec<&String> = self.mounted.keys().chain(self.users.keys()).collect();
        all.sort();
        all.dedup();
        all.into_iter()
            .map(|digest| {
                (
                    digest.clone(),
                    self.users.get(digest).copied().unwrap_or(0),
                    self.mounted.contains_key(digest),
                )
            })
            .collect()
    }

    pub fn release(&mut self, digest: &str, scratch: Option<&Scratch>) -> Outcome<()> {
        if let Some(users) = self.users.get(digest) {
            return Err(Fault::new(
                "LAYER_IN_USE",
                format!("{digest} is used by {users} sandboxes of this edge"),
            ));
        }
        if self.mounted.remove(digest).is_some() {
            if let Some(scratch) = scratch {
                scratch.detach(&place(digest)).step("detach a layer")?;
            }
        }
        Ok(())
    }

    fn mount(&self, digest: &str) -> Outcome<OwnedFd> {
        let hex = hex_of(digest)
            .ok_or_else(|| Fault::invalid(format!("layer {digest:?} is no sha256 digest")))?;
        let missing = |_| {
            Fault::new(
                "LAYER_NOT_FOUND",
                format!("layer {digest} is not on this node"),
            )
        };
        let broken = |what: String| {
            Fault::new(
                "ARCHIVE_INVALID",
                format!("layer {digest} is damaged: {what}"),
            )
        };
        let dir = sys::open_dir(self.dir.as_raw_fd(), hex).map_err(missing)?;
        let text = sys::read_at(dir.as_raw_fd(), "layer.json")
            .map_err(|e| broken(format!("layer.json: {e}")))?;
        let manifest =
            Manifest::parse(&text).ok_or_else(|| broken("layer.json is incomplete".into()))?;
        if manifest.digest() != hex {
            return Err(broken("layer.json is of another layer".into()));
        }
        let open = |name: &str| {
            sys::open_at(dir.as_raw_fd(), name, libc::O_RDONLY | libc::O_NOFOLLOW, 0)
                .map_err(|e| broken(format!("{name}: {e}")))
        };
        let (meta, data) = (open("meta.erofs")?, open("data")?);
        if size(&data) != manifest.data_bytes {
            return Err(broken(format!(
                "data has {} bytes instead of {}",
                size(&data),
                manifest.data_bytes
            )));
        }
        if hash(&meta).map_err(|e| broken(format!("meta.erofs: {e}")))? != manifest.meta_sha256 {
            return Err(broken("meta.erofs does not have its checksum".into()));
        }
        let device = (manifest.data_bytes > 0).then_some(&data);
        mount_erofs(&meta, device)
            .map_err(|e| broken(format!("the kernel refuses to mount it: {e}")))
    }
}

/// Name of a layer's place in the scratch.
fn place(digest: &str) -> String {
    digest.replace(':', "-")
}

/// A detached mount of an EROFS straight from its files, nosuid and nodev; through loop devices where the kernel wants
/// block devices (before 6.12).
pub fn mount_erofs(meta: &OwnedFd, data: Option<&OwnedFd>) -> Result<OwnedFd> {
    let path = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let direct = if forced("loop") {
        Err(ErrorKind::Unsupported.into())
    } else {
        mount_from(&path(meta), data.map(path).as_deref())
    };
    direct.or_else(|first| {
        mount_looped(meta, data)
            .map_err(|second| Error::other(format!("{first}; through loop devices: {second}")))
    })
}

fn mount_looped(meta: &OwnedFd, data: Option<&OwnedFd>) -> Result<OwnedFd> {
    let meta = loop_device::attach(meta, false)?;
    let data = data
        .map(|data| loop_device::attach(data, false))
        .transpose()?;
    mount_from(&meta.0, data.as_ref().map(|(path, _)| path.as_str()))
}

fn mount_from(meta: &str, data: Option<&str>) -> Result<OwnedFd> {
    const RDONLY_NOSUID_NODEV: u64 = 0x1 | 0x2 | 0x4;
    let context = sys::fsopen("erofs")?;
    sys::fsconfig_flag(&context, "ro")?;
    sys::fsconfig_set(&context, "source", meta)?;
    if let Some(data) = data {
        sys::fsconfig_set(&context, "device", data)?;
    }
    sys::fsconfig_mount(&context, RDONLY_NOSUID_NODEV)
}

/// The 64 hex digits of "sha256:…".
pub fn hex_of(digest: &str) -> Option<&str> {
    let hex = digest.strip_prefix("sha256:")?;
    let good = hex.len() == 64
        && hex
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    good.then_some(hex)
}

/// What layer.json says, as far as hostd looks at it.
pub struct Manifest {
    pub meta_sha256: String,
    pub meta_bytes: u64,
    pub data_sha256: String,
    pub data_bytes: u64,
}

impl Manifest {
    pub fn parse(text: &str) -> Option<Self> {
        let part = |name: &str| {
            let start = text.find(&format!("\"{name}\""))?;
            let rest = &text[start + name.len() + 2..];
            let open = rest.find('{')?;
            rest[open..]
                .find('}')
                .map(|close| &rest[open..open + close])
        };
        let value = |object: &str, key: &str| {
            let at = object.find(&format!("\"{key}\""))? + key.len() + 2;
            let rest = object[at..].trim_start().strip_prefix(':')?.trim_start();
            let end = rest.find([',', '\n', '}']).unwrap_or(rest.len());
            Some(rest[..end].trim().trim_matches('"').to_string())
        };
        let (meta, data) = (part("meta")?, part("data")?);
        Some(Self {
            meta_sha256: value(meta, "sha256")?,
            meta_bytes: value(meta, "bytes")?.parse().ok()?,
            data_sha256: value(data, "sha256")?,
            data_bytes: value(data, "bytes")?.parse().ok()?,
        })
    }

    /// The layer's ID, as hex.
    pub fn digest(&self) -> String {
        let text = format!(
            "dsec-layer-v1\n{} {}\n{} {}\n",
            self.meta_sha256, self.meta_bytes, self.data_sha256, self.data_bytes
        );
        hex(&Sha256::digest(text.as_bytes()))
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash(file: &OwnedFd) -> Result<String> {
    let mut sum = Sha256::new();
    let mut part = vec![0u8; 1 << 16];
    let mut offset = 0;
    loop {
        // SAFETY: the buffer is valid for its length.
        let count = unsafe {
            libc::pread(
                file.as_raw_fd(),
                part.as_mut_ptr().cast(),
                part.len(),
                offset,
            )
        };
        let count = sys::check(count as i64)?;
        if count == 0 {
            return Ok(hex(&sum.finalize()));
        }
        sum.update(&part[..count as usize]);
        offset += count;
    }
}

fn size(file: &OwnedFd) -> u64 {
    // SAFETY: stat is plain data.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: outlives the call.
    unsafe { libc::fstat(file.as_raw_fd(), &mut stat) };
    stat.st_size as u64
}
