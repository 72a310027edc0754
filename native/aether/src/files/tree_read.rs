//! ReadTree: a pax tar of all that is below a directory, made while it is sent. In memory are the names of the
//! directories on the way down, and one path for each file that has more than one name.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use wire::frame::HEADER_BYTES;
use wire::AetherReadTree;

use super::connection::{Connection, CHUNK_BYTES};
use super::failure::{errno, Failure, Outcome};
use super::tar::{self, Entry};
use super::walk::{self, Descent};
use super::{kernel_fs, path, sys, xattr};

const ASKED: &str = "read tree";

pub fn read_tree(connection: &mut Connection, ask: &AetherReadTree) -> Outcome<()> {
    path::validate(ASKED, &ask.path)?;
    let told = |e: io::Error| Failure::os(ASKED, &ask.path, &e);
    let top = path::open(&ask.path, libc::O_RDONLY | libc::O_DIRECTORY).map_err(told)?;
    let mut stream = Stream {
        connection,
        frame: vec![0; HEADER_BYTES + CHUNK_BYTES],
        used: HEADER_BYTES,
        scratch: Vec::new(),
    };
    Packer {
        stream: &mut stream,
        asked: &ask.path,
        first_names: HashMap::new(),
    }
    .pack(top)?;
    stream.write(&[0; 2 * tar::BLOCK])?;
    stream.flush()?;
    connection.send_contents(&mut [0; HEADER_BYTES])?;
    connection.done()
}

/// Collects the archive into frames.
struct Stream<'a> {
    connection: &'a mut Connection,
    frame: Vec<u8>,
    used: usize,
    scratch: Vec<u8>,
}

impl Stream<'_> {
    fn flush(&mut self) -> Outcome<()> {
        if self.used > HEADER_BYTES {
            self.connection
                .send_contents(&mut self.frame[..self.used])?;
            self.used = HEADER_BYTES;
        }
        Ok(())
    }

    fn room(&mut self) -> Outcome<&mut [u8]> {
        if self.used == self.frame.len() {
            self.flush()?;
        }
        Ok(&mut self.frame[self.used..])
    }

    fn write(&mut self, mut bytes: &[u8]) -> Outcome<()> {
        while !bytes.is_empty() {
            let room = self.room()?;
            let taken = room.len().min(bytes.len());
            room[..taken].copy_from_slice(&bytes[..taken]);
            self.used += taken;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn zeros(&mut self, mut count: u64) -> Outcome<()> {
        while count > 0 {
            let room = self.room()?;
            let taken = (room.len() as u64).min(count) as usize;
            room[..taken].fill(0);
            self.used += taken;
            count -= taken as u64;
        }
        Ok(())
    }

    fn header(&mut self, entry: &Entry) -> Outcome<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        entry.encode(&mut scratch);
        let result = self.write(&scratch);
        self.scratch = scratch;
        result
    }
}

struct Packer<'a, 'b> {
    stream: &'a mut Stream<'b>,
    asked: &'a [u8],
    /// Device and inode → the name under which a file with several names went out first.
    first_names: HashMap<(u64, u64), Vec<u8>>,
}

impl Packer<'_, '_> {
    fn told(&self, name: &[u8], error: &io::Error) -> Failure {
        Failure::os(ASKED, &[self.asked, b"/", name].concat(), error)
    }

    fn pack(&mut self, top: OwnedFd) -> Outcome<()> {
        let stat = sys::stat_fd(&top).map_err(|e| self.told(b"", &e))?;
        self.stream.header(&Entry {
            attributes: xattr::read(&top),
            ..header_of(b"./".to_vec(), tar::DIRECTORY, &stat)
        })?;
        let names = names_of(&top).map_err(|e| self.told(b"", &e))?;
        let mut descent = Descent::new(top).map_err(|e| self.told(b"", &e))?;
        // For each level: what is left of its names, and the length of its path.
        let mut levels = vec![(names, 0)];
        let mut name = Vec::new();
        while let Some((names, length)) = levels.last_mut() {
            name.truncate(*length);
            let Some(entry) = names.pop() else {
                levels.pop();
                if !levels.is_empty() {
                    descent.leave().map_err(|e| self.told(&name, &e))?;
                }
                continue;
            };
            name.extend_from_slice(entry.as_bytes());
            let at = descent.here().as_raw_fd();
            match self.pack_entry(at, &entry, &name) {
                Ok(None) => {}
                Ok(Some((directory, stat, names))) => {
                    name.push(b'/');
                    levels.push((names, name.len()));
                    descent.enter(directory, &stat);
                }
                // Gone since its directory was read, or another kind of thing by now.
                Err(Problem::Os(e)) if matches!(errno(&e), libc::ENOENT | libc::ELOOP) => {}
                Err(Problem::Os(e)) => return Err(self.told(&name, &e)),
                Err(Problem::Failed(failure)) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Sends one entry; a directory to go into comes back.
    fn pack_entry(
        &mut self,
        at: RawFd,
        entry: &CString,
        name: &[u8],
    ) -> Result<Option<(OwnedFd, libc::stat, Vec<CString>)>, Problem> {
        let stat = sys::stat_entry(at, entry)?;
        if sys::is_type(&stat, libc::S_IFDIR) {
            return self.pack_directory(at, entry, name).map(Some);
        }
        if stat.st_nlink > 1 {
            let inode = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.first_names.get(&inode) {
                let link = first.clone();
                self.stream.header(&Entry {
                    link,
                    size: 0,
                    ..header_of(name.to_vec(), tar::HARD_LINK, &stat)
                })?;
                return Ok(None);
            }
        }
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => self.pack_file(at, entry, name)?,
            libc::S_IFLNK => {
                let link = sys::read_link(at, entry)?;
                let header = header_of(name.to_vec(), tar::SYMLINK, &stat);
                self.stream.header(&Entry { link, ..header })?;
            }
            libc::S_IFIFO => self
                .stream
                .header(&header_of(name.to_vec(), tar::FIFO, &stat))?,
            kind @ (libc::S_IFCHR | libc::S_IFBLK) => {
                let block = kind == libc::S_IFBLK;
                let kind = if block {
                    tar::BLOCK_DEVICE
                } else {
                    tar::CHARACTER_DEVICE
                };
                let device = (libc::major(stat.st_rdev), libc::minor(stat.st_rdev));
                let header = header_of(name.to_vec(), kind, &stat);
                self.stream.header(&Entry { device, ..header })?;
            }
            // tar has no sockets, and one without its listener is of no use.
            _ => return Ok(None),
        }
        if stat.st_nlink > 1 {
            self.first_names
                .insert((stat.st_dev, stat.st_ino), name.to_vec());
        }
        Ok(None)
    }

    fn pack_directory(
        &mut self,
        at: RawFd,
        entry: &CString,
        name: &[u8],
    ) -> Result<(OwnedFd, libc::stat, Vec<CString>), Problem> {
        let directory = walk::open_directory(at, entry)?;
        let stat = sys::stat_fd(&directory)?;
        let names = if kernel_fs::holds(&directory) {
            Vec::new()
        } else {
            names_of(&directory)?
        };
        self.stream.header(&Entry {
            attributes: xattr::read(&directory),
            ..header_of([name, b"/"].concat(), tar::DIRECTORY, &stat)
        })?;
        Ok((directory, stat, names))
    }

    fn pack_file(&mut self, at: RawFd, entry: &CString, name: &[u8]) -> Result<(), Problem> {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::from(sys::open_entry(at, entry, flags, 0)?);
        let stat = sys::stat_fd(&file)?;
        if !sys::is_type(&stat, libc::S_IFREG) {
            return Ok(());
        }
        let size = stat.st_size.max(0) as u64;
        self.stream.header(&Entry {
            size,
            attributes: xattr::read(&file),
            ..header_of(name.to_vec(), tar::FILE, &stat)
        })?;
        // The header has promised this size: what grows meanwhile is cut, what shrinks is filled with zeros.
        let mut offset = 0;
        while offset < size {
            let room = self.stream.room()?;
            let wanted = (room.len() as u64).min(size - offset) as usize;
            match file.read_at(&mut room[..wanted], offset) {
                Ok(0) => break,
                Ok(taken) => {
                    self.stream.used += taken;
                    offset += taken as u64;
                }
                Err(e) if errno(&e) == libc::EINTR => {}
                // Not as a problem of the entry: its header is out.
                Err(e) => return Err(Problem::Failed(self.told(name, &e))),
            }
        }
        self.stream.zeros(size - offset)?;
        self.stream.zeros(tar::padding(size) as u64)?;
        Ok(())
    }
}

enum Problem {
    Os(io::Error),
    Failed(Failure),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Os(error)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn header_of(name: Vec<u8>, kind: u8, stat: &libc::stat) -> Entry {
    Entry {
        name,
        kind,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified: (stat.st_mtime, stat.st_mtime_nsec),
        ..Entry::default()
    }
}

/// Sorted so that the first is popped first: two reads of the same tree give the same archive.
fn names_of(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    sys::each_entry(directory, |name, _| {
        names.push(sys::c_string(name)?);
        Ok(())
    })?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}
