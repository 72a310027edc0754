//! The recorded bytes of one stream: head and tail, each half of the cap, the middle counted. Short output stays in
//! memory until the command is archived; longer output is in a file, where the tail is a ring behind the head.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use super::history::History;
use crate::sys;

/// Bytes of a stream that are kept in memory before a file is made.
const INLINE: usize = 2048;
/// What a stream may always keep, even when the sandbox's share is used up.
const FLOOR: u64 = 64 * 1024;

pub struct Record {
    number: u64,
    stream: u32,
    head: u64,
    ring: u64,
    /// Bytes written in all.
    pub total: u64,
    pub inline: Vec<u8>,
    pub file: Option<OwnedFd>,
    /// Length of the file.
    size: u64,
    /// Nothing is kept any more, or the file could not be written.
    gone: bool,
}

/// What is kept in the history to read a record again.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Layout {
    #[prost(uint64, tag = "1")]
    pub head: u64,
    #[prost(uint64, tag = "2")]
    pub ring: u64,
    #[prost(uint64, tag = "3")]
    pub total: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub inline: Vec<u8>,
    #[prost(bool, tag = "5")]
    pub in_file: bool,
    #[prost(bool, tag = "6")]
    pub gone: bool,
}

pub fn file_name(number: u64, stream: u32) -> CString {
    CString::new(format!("{number}.{stream}")).expect("no NUL")
}

impl Record {
    /// `cap` in bytes; `stream`: 0 stdout, 1 stderr.
    pub fn new(number: u64, stream: u32, cap: u64) -> Record {
        Record {
            number,
            stream,
            head: cap / 2,
            ring: cap - cap / 2,
            total: 0,
            inline: Vec::new(),
            file: None,
            size: 0,
            gone: false,
        }
    }

    pub fn layout(&mut self) -> Layout {
        Layout {
            head: self.head,
            ring: self.ring,
            total: self.total,
            inline: std::mem::take(&mut self.inline),
            in_file: self.file.is_some(),
            gone: self.gone,
        }
    }

    pub fn reopen(number: u64, stream: u32, layout: Layout, history: &History) -> Record {
        let file = layout
            .in_file
            .then(|| {
                history
                    .open(&file_name(number, stream), libc::O_RDONLY)
                    .ok()
            })
            .flatten();
        Record {
            gone: layout.gone || (layout.in_file && file.is_none()),
            number,
            stream,
            head: layout.head,
            ring: layout.ring,
            total: layout.total,
            inline: layout.inline,
            file,
            size: 0,
        }
    }

    pub fn forget(&mut self) {
        self.gone = true;
        self.inline = Vec::new();
    }

    /// Bytes kept in a file.
    pub fn file_bytes(&self) -> u64 {
        self.size
    }

    pub fn append(&mut self, data: &[u8], history: &mut History) {
        let offset = self.total;
        self.total += data.len() as u64;
        if self.gone {
            return;
        }
        if self.file.is_none() {
            if self.total <= (INLINE as u64).min(self.head + self.ring) {
                self.inline.extend_from_slice(data);
                return;
            }
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
            match history.open(&file_name(self.number, self.stream), flags) {
                Ok(file) => self.file = Some(file),
                Err(_) => return self.forget(),
            }
            let early = std::mem::take(&mut self.inline);
            self.place(0, &early, history);
        }
        self.place(offset, data, history);
    }

    fn place(&mut self, offset: u64, data: &[u8], history: &mut History) {
        let end = offset + data.len() as u64;
        let wanted = end.min(self.head + self.ring);
        if wanted > self.size {
            if history.reserve(wanted - self.size) || wanted <= FLOOR {
                history.used += wanted - self.size;
                self.size = wanted;
            } else {
                // No room for more: what is there becomes the whole cap. Nothing has wrapped yet, so it stays in place.
                let cap = self.size.max(2);
                self.head = self.head.min(cap / 2);
                self.ring = cap - self.head;
            }
        }
        let Some(file) = &self.file else { return };
        let mut written = Ok(());
        let (mut offset, mut data) = (offset, data);
        if offset < self.head {
            let n = data.len().min((self.head - offset) as usize);
            written = sys::pwrite_all(file, &data[..n], offset);
            offset += n as u64;
            data = &data[n..];
        }
        // Of what is longer than the ring only the last of it stays.
        let skip = data.len().saturating_sub(self.ring as usize);
        offset += skip as u64;
        data = &data[skip..];
        while !data.is_empty() && written.is_ok() {
            let at = (offset - self.head) % self.ring;
            let n = data.len().min((self.ring - at) as usize);
            written = sys::pwrite_all(file, &data[..n], self.head + at);
            offset += n as u64;
            data = &data[n..];
        }
        if written.is_err() {
            self.forget();
        }
    }

    /// Kept bytes from `offset` on: where they begin (later than `offset` if some were dropped) and how many are in
    /// `buffer`; at the end (total, 0).
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> (u64, usize) {
        if self.gone || offset >= self.total {
            return (self.total, 0);
        }
        if self.file.is_none() {
            let rest = &self.inline[offset as usize..];
            let n = rest.len().min(buffer.len());
            buffer[..n].copy_from_slice(&rest[..n]);
            return (offset, n);
        }
        let (start, at, length) = if offset < self.head {
            (offset, offset, self.head.min(self.total) - offset)
        } else {
            let tail = self.total.saturating_sub(self.ring).max(self.head);
            let start = offset.max(tail);
            let place = (start - self.head) % self.ring;
            (
                start,
                self.head + place,
                (self.total - start).min(self.ring - place),
            )
        };
        let n = buffer.len().min(length as usize);
        match self
            .file
            .as_ref()
            .map(|file| sys::pread(file, &mut buffer[..n], at))
        {
            Some(Ok(n)) if n > 0 => (start, n),
            _ => (self.total, 0),
        }
    }
}
