//! An archive as it comes in: entry by entry, with what pax and GNU say of each before it.

use super::body::Body;
use super::connection::Connection;
use super::failure::{quoted, Failure, Outcome};
use super::tar::{self, Entry, Pax, BLOCK};

pub const ASKED: &str = "unpack into";
const MAX_HEADERS: u64 = 4_000_000;
const MAX_PAX_BYTES: u64 = 1 << 20;

pub struct Archive<'a> {
    /// The contents of an entry, and what pads them, are to be taken before the next entry.
    pub body: Body<'a>,
    asked: &'a [u8],
    headers: u64,
    global: Pax,
}

impl<'a> Archive<'a> {
    /// `asked` is the path that failures name.
    pub fn new(connection: &'a mut Connection, asked: &'a [u8]) -> Self {
        Self {
            body: Body::new(connection),
            asked,
            headers: 0,
            global: Pax::default(),
        }
    }

    /// None at the end.
    pub fn next_entry(&mut self) -> Outcome<Option<Entry>> {
        let mut pax = self.global.clone();
        while let Some(mut entry) = self.next_header()? {
            self.headers += 1;
            if self.headers > MAX_HEADERS {
                return Err(self.limit(&entry.name, "it has more than 4000000 entries"));
            }
            match entry.kind {
                b'x' => {
                    let records = self.small_contents(&entry)?;
                    pax.read(&records)
                        .map_err(|wrong| self.invalid(&entry.name, wrong))?;
                }
                b'g' => {
                    let records = self.small_contents(&entry)?;
                    let result = self.global.read(&records);
                    result.map_err(|wrong| self.invalid(&entry.name, wrong))?;
                    pax = self.global.clone();
                }
                // GNU's long names end with a NUL.
                kind @ (b'L' | b'K') => {
                    let mut name = self.small_contents(&entry)?;
                    while name.last() == Some(&0) {
                        name.pop();
                    }
                    if kind == b'L' {
                        pax.set_path(name);
                    } else {
                        pax.set_link(name);
                    }
                }
                _ => {
                    pax.apply(&mut entry);
                    return Ok(Some(entry));
                }
            }
        }
        Ok(None)
    }

    /// What pads the archive to its tape's block; the edge's empty frame ends it.
    pub fn pass_over_rest(&mut self) -> Outcome<()> {
        self.body.skip(u64::MAX).map(drop)
    }

    /// None at the block of zeros that ends an archive.
    fn next_header(&mut self) -> Outcome<Option<Entry>> {
        let mut block = [0; BLOCK];
        let taken = self.body.read(&mut block)?;
        if taken < BLOCK {
            let at = self.body.taken();
            let wrong = match at {
                0 => "the archive is empty; not even its end is there".to_string(),
                at => format!("the archive is cut short after {at} bytes; its end is missing"),
            };
            return Err(Failure::of("ARCHIVE_INVALID", ASKED, self.asked, &wrong));
        }
        if block == [0; BLOCK] {
            return Ok(None);
        }
        if self.body.taken() == BLOCK as u64 {
            if let Some(kind) = compressed(&block) {
                let wrong = format!("the body is {kind}, not a plain tar; decompress it first");
                return Err(Failure::of("ARCHIVE_INVALID", ASKED, self.asked, &wrong));
            }
        }
        tar::decode(&block).map(Some).map_err(|wrong| {
            let at = self.body.taken() - BLOCK as u64;
            let wrong = format!("entry {} at byte {at}: {wrong}", self.headers + 1);
            Failure::of("ARCHIVE_INVALID", ASKED, self.asked, &wrong)
        })
    }

    fn small_contents(&mut self, entry: &Entry) -> Outcome<Vec<u8>> {
        if entry.size > MAX_PAX_BYTES {
            return Err(self.limit(&entry.name, "a pax header or long name is above 1 MiB"));
        }
        let mut contents = vec![0; entry.size as usize + tar::padding(entry.size)];
        if self.body.read(&mut contents)? < contents.len() {
            return Err(self.cut_short(&entry.name));
        }
        contents.truncate(entry.size as usize);
        Ok(contents)
    }

    fn failure(&self, reason: &'static str, entry: &[u8], wrong: &str) -> Failure {
        let wrong = format!("entry {}: {wrong}", quoted(entry));
        Failure::of(reason, ASKED, self.asked, &wrong)
    }

    pub fn invalid(&self, entry: &[u8], wrong: &str) -> Failure {
        self.failure("ARCHIVE_INVALID", entry, wrong)
    }

    pub fn limit(&self, entry: &[u8], wrong: &str) -> Failure {
        self.failure("ARCHIVE_LIMIT", entry, wrong)
    }

    pub fn leaves(&self, entry: &[u8], name: &[u8], wrong: &str) -> Failure {
        let wrong = format!("the name {} {wrong}", quoted(name));
        self.failure("PATH_LEAVES_ROOT", entry, &wrong)
    }

    pub fn cut_short(&self, entry: &[u8]) -> Failure {
        self.invalid(entry, "the archive is cut short in it")
    }
}

fn compressed(block: &[u8; BLOCK]) -> Option<&'static str> {
    match block {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some("xz"),
        [b'B', b'Z', b'h', ..] => Some("bzip2"),
        [b'P', b'K', 3, 4, ..] => Some("a zip file"),
        _ => None,
    }
}
