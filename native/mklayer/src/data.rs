//! The data file: file contents one after the other, each at a 4 KiB boundary, equal ones once.
use crate::error::{Failure, Result};
use crate::limits::Budget;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

pub const BLOCK: u64 = 4096;
const BUFFER: usize = 1 << 20;

/// Chunks of a sparse file; `None` is a hole. Block numbers count from the content's first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkMap {
    /// log2 of the chunk's size in bytes.
    pub bits: u32,
    pub chunks: Vec<Option<u32>>,
}

/// Where the bytes of a file are.
#[derive(Debug)]
pub struct Content {
    /// First block in the data file.
    pub base: u64,
    pub blocks: u64,
    /// `None`: all of it in one piece.
    pub map: Option<ChunkMap>,
}

pub type ContentId = u32;

#[derive(Clone)]
struct Mark {
    position: u64,
    hash: Sha256,
}

/// Appends contents to `file` and knows its SHA-256.
pub struct DataWriter {
    file: File,
    budget: Budget,
    buffer: Vec<u8>,
    /// Offset of `buffer[0]` in the file.
    base: u64,
    hash: Sha256,
    pub contents: Vec<Content>,
    by_digest: HashMap<[u8; 32], ContentId>,
    open: Option<(Mark, Sha256)>,
}

impl DataWriter {
    pub fn new(file: File, budget: Budget) -> Self {
        DataWriter {
            file,
            budget,
            buffer: Vec::with_capacity(BUFFER + BLOCK as usize),
            base: 0,
            hash: Sha256::new(),
            contents: Vec::new(),
            by_digest: HashMap::new(),
            open: None,
        }
    }

    pub fn position(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Starts a content at the current, aligned end.
    pub fn begin(&mut self) {
        let mark = Mark {
            position: self.position(),
            hash: self.hash.clone(),
        };
        self.open = Some((mark, Sha256::new()));
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some((_, hash)) = &mut self.open {
            hash.update(bytes);
        }
        self.put(bytes)
    }

    pub fn append_zeros(&mut self, mut count: u64) -> Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        self.budget
            .check_bytes("the layer's data", self.position().saturating_add(count))?;
        while count > 0 {
            let n = count.min(ZEROS.len() as u64);
            self.append(&ZEROS[..n as usize])?;
            count -= n;
        }
        Ok(())
    }

    /// Ends the content that `begin` started. One that is there already is taken instead and the bytes dropped.
    pub fn finish(&mut self, size: u64, map: Option<ChunkMap>) -> Result<ContentId> {
        let Some((mark, mut hash)) = self.open.take() else {
            return Err(Failure::internal("no content is open"));
        };
        hash.update(size.to_le_bytes());
        if let Some(map) = &map {
            hash.update(map.bits.to_le_bytes());
            for chunk in &map.chunks {
                hash.update(chunk.map_or(u32::MAX, |c| c).to_le_bytes());
            }
        }
        let digest: [u8; 32] = hash.finalize().into();
        if let Some(&id) = self.by_digest.get(&digest) {
            self.rewind(mark);
            return Ok(id);
        }
        let pad = self.position().next_multiple_of(BLOCK) - self.position();
        self.put(&[0u8; BLOCK as usize][..pad as usize])?;
        let id = u32::try_from(self.contents.len())
            .map_err(|_| Failure::limit("too many file contents"))?;
        let base = mark.position / BLOCK;
        let blocks = self.position() / BLOCK - base;
        self.contents.push(Content { base, blocks, map });
        self.by_digest.insert(digest, id);
        Ok(id)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.budget
            .check_bytes("the layer's data", self.position())?;
        self.file
            .write_all_at(&self.buffer, self.base)
            .map_err(|e| Failure::output("data", &e))?;
        self.base += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn rewind(&mut self, mark: Mark) {
        if mark.position >= self.base {
            self.buffer.truncate((mark.position - self.base) as usize);
        } else {
            self.base = mark.position;
            self.buffer.clear();
        }
        self.hash = mark.hash;
    }

    /// Drops the contents that `live` does not name, by moving the others down, and gives size and SHA-256.
    pub fn close(&mut self, live: &[bool]) -> Result<(u64, [u8; 32])> {
        self.flush()?;
        if live.iter().any(|used| !used) {
            self.compact(live)?;
        }
        let size = self.position();
        self.file
            .set_len(size)
            .map_err(|e| Failure::output("data", &e))?;
        Ok((size, self.hash.clone().finalize().into()))
    }

    fn compact(&mut self, live: &[bool]) -> Result<()> {
        self.hash = Sha256::new();
        let mut buffer = vec![0u8; BUFFER];
        let mut to = 0u64;
        for (content, _) in self
            .contents
            .iter_mut()
            .zip(live)
            .filter(|(_, used)| **used)
        {
            let (mut from, end) = (
                content.base * BLOCK,
                (content.base + content.blocks) * BLOCK,
            );
            content.base = to / BLOCK;
            while from < end {
                self.budget.check_time()?;
                let part = &mut buffer[..(end - from).min(BUFFER as u64) as usize];
                self.file
                    .read_exact_at(part, from)
                    .map_err(|e| Failure::internal(format!("reading data: {e}")))?;
                if from != to {
                    self.file
                        .write_all_at(part, to)
                        .map_err(|e| Failure::output("data", &e))?;
                }
                self.hash.update(&*part);
                from += part.len() as u64;
                to += part.len() as u64;
            }
        }
        self.base = to;
        Ok(())
    }

    pub fn sync(&self) -> Result<()> {
        self.file
            .sync_all()
            .map_err(|e| Failure::output("data", &e))
    }
}
