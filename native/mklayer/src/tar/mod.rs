//! Entries of a tar stream: ustar, pax and GNU. Nothing in it is trusted.
mod acl;
mod header;
mod pax;
mod sparse;

use crate::error::{shown, Failure, Result};
use crate::input::Input;
use crate::limits::{MAX_EXTENDED_HEADER, MAX_FILE};
use header::Header;
use pax::Pax;
pub use sparse::Segment;

pub type Xattrs = Vec<(Box<[u8]>, Box<[u8]>)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Logical size; a sparse file has its data segments, in order.
    File {
        size: u64,
        segments: Option<Vec<Segment>>,
    },
    Hardlink(Vec<u8>),
    Symlink(Vec<u8>),
    Dir,
    Char {
        major: u32,
        minor: u32,
    },
    Block {
        major: u32,
        minor: u32,
    },
    Fifo,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub path: Vec<u8>,
    pub kind: Kind,
    /// Permission bits, with set-id and sticky.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: i64,
    pub mtime_nsec: u32,
    pub xattrs: Xattrs,
}

pub struct TarReader {
    input: Input,
    /// Bytes of the current entry's body not yet read, and its padding.
    body: u64,
    padding: u64,
    global: Pax,
}

impl TarReader {
    pub fn new(input: Input) -> Self {
        TarReader {
            input,
            body: 0,
            padding: 0,
            global: Pax::default(),
        }
    }

    /// The next entry, or `None` after the end-of-archive marker. The rest of the last body is skipped.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        self.skip_body()?;
        let mut local = Pax::default();
        let mut long_name = None;
        let mut long_link = None;
        loop {
            let Some(header) = self.read_header()? else {
                self.drain()?;
                return Ok(None);
            };
            match header.typeflag() {
                b'x' | b'X' => {
                    let text = self.extended(&header)?;
                    local.parse(&text)?;
                }
                b'g' => {
                    let text = self.extended(&header)?;
                    self.global.parse(&text)?;
                }
                b'L' => long_name = Some(until_nul(self.extended(&header)?)),
                b'K' => long_link = Some(until_nul(self.extended(&header)?)),
                // A volume's label says nothing about the tree.
                b'V' => {
                    self.set_body(header.size()?)?;
                    self.skip_body()?;
                }
                _ => return self.entry(&header, local, long_name, long_link).map(Some),
            }
        }
    }

    /// The next part of the current body; empty when it is read.
    pub fn body(&mut self) -> Result<&[u8]> {
        if self.body > 0 && self.input.peek(self.body)?.is_empty() {
            return Err(self.cut_short());
        }
        self.input.peek(self.body)
    }

    pub fn consume(&mut self, n: usize) {
        self.input.consume(n);
        self.body -= n as u64;
    }

    /// Decoded bytes so far, of all inputs.
    pub fn total(&self) -> u64 {
        self.input.total()
    }

    fn entry(
        &mut self,
        header: &Header,
        local: Pax,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Entry> {
        let pax = local.over(&self.global);
        let path = match (pax.sparse.name.clone(), pax.path.clone(), long_name) {
            (Some(name), _, _) | (None, Some(name), _) | (None, None, Some(name)) => name,
            (None, None, None) => header.path(),
        };
        let link = match (pax.linkpath.clone(), long_link) {
            (Some(name), _) | (None, Some(name)) => name,
            (None, None) => header.linkname(),
        };
        let size = match pax.size {
            Some(size) => size,
            None => header.size()?,
        };
        let (mtime, mtime_nsec) = match pax.mtime {
            Some(time) => time,
            None => (header.mtime()?, 0),
        };
        let kind = match header.typeflag() {
            // As before ustar: a name that ends with a slash is a directory's.
            b'0' | 0 if path.ends_with(b"/") => {
                self.set_body(size)?;
                Kind::Dir
            }
            b'0' | 0 | b'7' => self.file(size, &pax, None)?,
            b'S' => self.file(size, &pax, Some(header))?,
            b'1' => Kind::Hardlink(link),
            b'2' => Kind::Symlink(link),
            b'3' => Kind::Char {
                major: header.major()?,
                minor: header.minor()?,
            },
            b'4' => Kind::Block {
                major: header.major()?,
                minor: header.minor()?,
            },
            b'5' => Kind::Dir,
            b'6' => Kind::Fifo,
            // GNU's listed directory: the names in its body are for incremental dumps.
            b'D' => {
                self.set_body(size)?;
                Kind::Dir
            }
            other => {
                let flag = other.escape_ascii();
                return Err(Failure::invalid(format!(
                    "{} has the unknown type '{flag}'",
                    shown(&path)
                )));
            }
        };
        let id = |wide: Option<u64>, narrow: Result<u64>| -> Result<u32> {
            u32::try_from(wide.map_or(narrow, Ok)?).map_err(|_| {
                Failure::invalid(format!("{} has an owner beyond 32 bits", shown(&path)))
            })
        };
        Ok(Entry {
            kind,
            mode: (header.mode()? & 0o7777) as u16,
            uid: id(pax.uid, header.uid())?,
            gid: id(pax.gid, header.gid())?,
            mtime,
            mtime_nsec,
            xattrs: pax.xattrs()?,
            path,
        })
    }

    fn file(&mut self, packed: u64, pax: &Pax, old: Option<&Header>) -> Result<Kind> {
        let (real, segments) = if let Some(header) = old {
            let mut segments = header.sparse_segments()?;
            let mut more = header.sparse_extended();
            while more {
                let block = self.read_block()?.ok_or_else(|| self.cut_short())?;
                more = sparse::extension(&block, &mut segments)?;
            }
            self.set_body(packed)?;
            (header.real_size()?, Some(segments))
        } else if pax.sparse.is_version_1() {
            self.set_body(packed)?;
            let segments = sparse::map_in_body(self)?;
            (pax.sparse.real_size.unwrap_or(self.body), Some(segments))
        } else {
            self.set_body(packed)?;
            match pax.sparse.segments()? {
                Some(segments) => (pax.sparse.real_size.unwrap_or(packed), Some(segments)),
                None => (packed, None),
            }
        };
        if real > MAX_FILE {
            return Err(Failure::limit(format!(
                "a file of {real} bytes is larger than {MAX_FILE}"
            )));
        }
        let segments = segments
            .map(|s| sparse::checked(s, real, self.body))
            .transpose()?;
        Ok(Kind::File {
            size: real,
            segments,
        })
    }

    fn set_body(&mut self, size: u64) -> Result<()> {
        self.padding = size
            .checked_next_multiple_of(512)
            .ok_or_else(|| Failure::invalid("a size overflows"))?
            - size;
        self.body = size;
        Ok(())
    }

    fn skip_body(&mut self) -> Result<()> {
        let mut rest = self.body + self.padding;
        while rest > 0 {
            let n = self.input.peek(rest)?.len();
            if n == 0 {
                return Err(self.cut_short());
            }
            self.input.consume(n);
            rest -= n as u64;
        }
        (self.body, self.padding) = (0, 0);
        Ok(())
    }

    fn extended(&mut self, header: &Header) -> Result<Vec<u8>> {
        let size = header.size()?;
        if size > MAX_EXTENDED_HEADER {
            let most = MAX_EXTENDED_HEADER;
            return Err(Failure::limit(format!(
                "an extended header of {size} bytes is larger than {most}"
            )));
        }
        self.set_body(size)?;
        let mut text = vec![0; size as usize];
        if self.input.read_full(&mut text)? < text.len() {
            return Err(self.cut_short());
        }
        self.body = 0;
        self.skip_body()?;
        Ok(text)
    }

    fn read_header(&mut self) -> Result<Option<Header>> {
        let at = self.input.position();
        let Some(block) = self.read_block()? else {
            return Err(Failure::invalid(format!(
                "the archive ends at byte {at} without its end marker"
            )));
        };
        if block.iter().all(|b| *b == 0) {
            return Ok(None);
        }
        Header::parse(block).map(Some).map_err(|f| Failure {
            message: format!("{} (byte {at})", f.message),
            ..f
        })
    }

    fn read_block(&mut self) -> Result<Option<[u8; 512]>> {
        let mut block = [0; 512];
        match self.input.read_full(&mut block)? {
            0 => Ok(None),
            512 => Ok(Some(block)),
            _ => Err(self.cut_short()),
        }
    }

    /// Reads to the end, so that a compressed stream's checksum is looked at.
    fn drain(&mut self) -> Result<()> {
        loop {
            let n = self.input.peek(u64::MAX)?.len();
            if n == 0 {
                return Ok(());
            }
            self.input.consume(n);
        }
    }

    fn cut_short(&self) -> Failure {
        Failure::invalid(format!(
            "the archive is cut short at byte {}",
            self.input.position()
        ))
    }
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    if let Some(end) = text.iter().position(|b| *b == 0) {
        text.truncate(end);
    }
    text
}
