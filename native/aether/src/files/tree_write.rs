//! WriteTree: a tar is unpacked below a directory. Every parent is resolved by the kernel beneath that directory:
//! links that stay in it are followed, one that leads out is refused, also when it is swapped meanwhile. Owners in the
//! archive are not looked at: what is written belongs to the user who writes.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use wire::AetherWriteTree;

use super::archive::{Archive, ASKED};
use super::connection::Connection;
use super::entries;
use super::failure::{errno, quoted, Failure, Outcome};
use super::path::{self, Place};
use super::tar::{self, Entry};
use super::{sys, xattr};

const MAX_DEPTH: usize = 1_000;
const MAX_NAME_BYTES: usize = 4_095;
const BENEATH: u64 = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;

pub fn write_tree(connection: &mut Connection, ask: &AetherWriteTree) -> Outcome<()> {
    path::validate(ASKED, &ask.path)?;
    let told = |e: io::Error| Failure::os(ASKED, &ask.path, &e);
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let (top, made) = match path::open(&ask.path, flags) {
        Ok(top) => (top, false),
        Err(e) if errno(&e) == libc::ENOENT => {
            path::make_parents(&ask.path).map_err(told)?;
            (path::open(&ask.path, flags).map_err(told)?, true)
        }
        Err(e) => return Err(told(e)),
    };
    let mut unpacker = Unpacker {
        archive: Archive::new(connection, &ask.path),
        asked: &ask.path,
        top,
        top_is_new: made,
        parent: None,
        made: HashSet::new(),
        directories: Vec::new(),
    };
    let result = unpacker.unpack();
    if result.is_err() && made {
        // What this call made goes again; in a directory that was there, what is unpacked stays.
        drop(unpacker);
        if let Ok(Some(place)) = path::place(&ask.path) {
            let _ = entries::remove_place(&place, true);
        }
    }
    result?;
    connection.done()
}

struct Unpacker<'a> {
    archive: Archive<'a>,
    asked: &'a [u8],
    top: OwnedFd,
    top_is_new: bool,
    /// The parent of the last entry, which often is that of the next.
    parent: Option<(Vec<u8>, OwnedFd)>,
    /// Directories that this call made.
    made: HashSet<Vec<u8>>,
    /// Theirs come last: a directory that may not be written is filled first, and filling changes its time.
    directories: Vec<Finish>,
}

struct Finish {
    name: Vec<u8>,
    mode: u32,
    modified: (i64, i64),
    attributes: Vec<xattr::Attribute>,
}

impl Unpacker<'_> {
    fn unpack(&mut self) -> Outcome<()> {
        while let Some(entry) = self.archive.next_entry()? {
            self.unpack_entry(&entry)?;
        }
        self.finish_directories()?;
        self.archive.pass_over_rest()
    }

    fn unpack_entry(&mut self, entry: &Entry) -> Outcome<()> {
        let parts = self.parts(&entry.name, &entry.name)?;
        let is_directory = entry.kind == tar::DIRECTORY
            // Before ustar, a slash at the end made a directory.
            || matches!(entry.kind, tar::FILE | 0) && entry.name.ends_with(b"/");
        if is_directory {
            return self.directory(&parts, entry);
        }
        let Some((name, above)) = parts.split_last() else {
            return Err(self
                .archive
                .invalid(&entry.name, "an entry that is no directory has no name"));
        };
        let told = |this: &Self, e: io::Error| this.told(&entry.name, &e);
        let place = self.place(above, name, entry)?;
        match entry.kind {
            tar::FILE | 0 | b'7' => return self.file(&place, entry),
            tar::HARD_LINK => {
                let parts = self.parts(&entry.link, &entry.name)?;
                let Some((name, above)) = parts.split_last() else {
                    return Err(self
                        .archive
                        .invalid(&entry.name, "it is a hard link to no name"));
                };
                let first = self.beneath(&above.join(&b'/')).and_then(|parent| {
                    let name = sys::c_string(name)?;
                    self.over(&place, |at, new| {
                        sys::link(parent.as_raw_fd(), &name, at, new, 0)
                    })
                });
                return first.map_err(|e| match errno(&e) {
                    libc::ENOENT => {
                        let wrong = format!(
                            "it is a hard link to {}, which is not there",
                            quoted(&entry.link)
                        );
                        self.archive.invalid(&entry.name, &wrong)
                    }
                    _ => told(self, e),
                });
            }
            tar::SYMLINK => {
                if entry.link.is_empty() || entry.link.contains(&0) {
                    return Err(self.archive.invalid(&entry.name, "it is a link to no name"));
                }
                let target = sys::c_string(&entry.link).map_err(|e| told(self, e))?;
                self.over(&place, |at, name| sys::symlink(&target, at, name))
            }
            tar::FIFO => self.over(&place, |at, name| {
                sys::make_fifo(at, name, entry.mode & 0o777)
            }),
            tar::CHARACTER_DEVICE | tar::BLOCK_DEVICE => {
                return Err(self.archive.invalid(
                    &entry.name,
                    "it is a device, which is not unpacked; leave it out",
                ));
            }
            b'S' => {
                return Err(self.archive.invalid(
                    &entry.name,
                    "it is a GNU sparse entry; make the archive without --sparse",
                ));
            }
            kind => {
                let wrong = format!("its type is {}, which is not known", quoted(&[kind]));
                return Err(self.archive.invalid(&entry.name, &wrong));
            }
        }
        .map_err(|e| told(self, e))?;
        sys::set_modified(place.at(), Some(&place.name), entry.modified).map_err(|e| told(self, e))
    }

    fn directory(&mut self, parts: &[&[u8]], entry: &Entry) -> Outcome<()> {
        let name = parts.join(&b'/');
        let told = |this: &Self, e: io::Error| this.told(&entry.name, &e);
        let is_ours = match parts.split_last() {
            None => self.top_is_new,
            Some((last, above)) => {
                let place = self.place(above, last, entry)?;
                match sys::make_directory(place.at(), &place.name, entry.mode | 0o700) {
                    Ok(()) => {
                        self.made.insert(name.clone());
                        true
                    }
                    // One that was there stays as it is, also one that a link leads to.
                    Err(e) if errno(&e) == libc::EEXIST => {
                        self.beneath(&name).map_err(|e| told(self, e))?;
                        self.made.contains(&name)
                    }
                    Err(e) => return Err(told(self, e)),
                }
            }
        };
        if is_ours {
            self.directories.push(Finish {
                name,
                mode: entry.mode,
                modified: entry.modified,
                attributes: entry.attributes.clone(),
            });
        }
        Ok(())
    }

    fn file(&mut self, place: &Place, entry: &Entry) -> Outcome<()> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let file = self
            .over(place, |at, name| {
                sys::open_entry(at, name, flags, entry.mode & 0o777)
            })
            .map_err(|e| self.told(&entry.name, &e))?;
        let mut file = File::from(file);
        let result = self.fill(&mut file, entry);
        if result.is_err() {
            // Half a file looks like a whole one.
            let _ = sys::unlink(place.at(), &place.name, false);
        }
        result
    }

    fn fill(&mut self, file: &mut File, entry: &Entry) -> Outcome<()> {
        let mut left = entry.size;
        while left > 0 {
            let here = self.archive.body.peek()?;
            if here.is_empty() {
                return Err(self.archive.cut_short(&entry.name));
            }
            let count = (here.len() as u64).min(left) as usize;
            let result = file.write_all(&here[..count]);
            result.map_err(|e| self.told(&entry.name, &e))?;
            self.archive.body.take(count);
            left -= count as u64;
        }
        if !self.archive.body.skip(tar::padding(entry.size) as u64)? {
            return Err(self.archive.cut_short(&entry.name));
        }
        let told = |e: io::Error| self.told(&entry.name, &e);
        // After the contents: writing takes away these bits, and capabilities.
        if entry.mode & 0o7000 != 0 {
            sys::change_mode(file, entry.mode).map_err(told)?;
        }
        xattr::write(file, &entry.attributes).map_err(told)?;
        sys::set_modified(file.as_raw_fd(), None, entry.modified).map_err(told)
    }

    /// Makes something in a place; what is there and no directory is removed first.
    fn over<T>(
        &self,
        place: &Place,
        make: impl Fn(i32, &CString) -> io::Result<T>,
    ) -> io::Result<T> {
        // A bounded number of tries against one who puts something there again and again.
        for _ in 0..100 {
            match make(place.at(), &place.name) {
                Err(e) if errno(&e) == libc::EEXIST => {}
                result => return result,
            }
            match sys::unlink(place.at(), &place.name, false) {
                Err(e) if errno(&e) != libc::ENOENT => return Err(e),
                _ => {}
            }
        }
        make(place.at(), &place.name)
    }

    /// The parts of a name that stays inside. `entry` is named where it does not.
    fn parts<'n>(&self, name: &'n [u8], entry: &[u8]) -> Outcome<Vec<&'n [u8]>> {
        if name.contains(&0) {
            return Err(self.archive.invalid(entry, "a name holds a NUL byte"));
        }
        if name.starts_with(b"/") {
            return Err(self.archive.leaves(entry, name, "is absolute"));
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(self
                .archive
                .limit(entry, "a name is longer than 4095 bytes"));
        }
        let parts: Vec<&[u8]> = name
            .split(|&b| b == b'/')
            .filter(|part| !matches!(*part, b"" | b"."))
            .collect();
        if parts.contains(&b"..".as_slice()) {
            return Err(self.archive.leaves(entry, name, "holds `..`"));
        }
        if parts.len() > MAX_DEPTH {
            return Err(self.archive.limit(entry, "a name has more than 1000 parts"));
        }
        Ok(parts)
    }

    /// The open parent of an entry, made where it is missing.
    fn place(&mut self, above: &[&[u8]], name: &[u8], entry: &Entry) -> Outcome<Place> {
        let path = above.join(&b'/');
        let known = matches!(&self.parent, Some((known, _)) if *known == path);
        if !known {
            let parent = match self.beneath(&path) {
                Err(e) if errno(&e) == libc::ENOENT => self.make_above(above),
                result => result,
            };
            self.parent = Some((path, parent.map_err(|e| self.told(&entry.name, &e))?));
        }
        let told = |e: io::Error| self.told(&entry.name, &e);
        let (_, parent) = self.parent.as_ref().expect("set above");
        Ok(Place {
            parent: parent.try_clone().map_err(told)?,
            name: sys::c_string(name).map_err(told)?,
        })
    }

    fn make_above(&mut self, above: &[&[u8]]) -> io::Result<OwnedFd> {
        let mut here = self.beneath(b"")?;
        for depth in 1..=above.len() {
            let path = above[..depth].join(&b'/');
            let name = sys::c_string(above[depth - 1])?;
            match sys::make_directory(here.as_raw_fd(), &name, 0o755) {
                Ok(()) => {
                    self.made.insert(path.clone());
                }
                Err(e) if errno(&e) == libc::EEXIST => {}
                Err(e) => return Err(e),
            }
            here = self.beneath(&path)?;
        }
        Ok(here)
    }

    /// Opens a directory beneath the top; EXDEV where a link leads out.
    fn beneath(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let path = sys::c_string(if path.is_empty() { b"." } else { path })?;
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        sys::openat2(self.top.as_raw_fd(), &path, flags, 0, BENEATH)
    }

    /// Modes and times of the directories that were made, the last first.
    fn finish_directories(&mut self) -> Outcome<()> {
        while let Some(finish) = self.directories.pop() {
            let result = (|| {
                let name = sys::c_string(match finish.name.as_slice() {
                    b"" => b".",
                    name => name,
                })?;
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                let resolve = BENEATH | libc::RESOLVE_NO_SYMLINKS;
                let directory = sys::openat2(self.top.as_raw_fd(), &name, flags, 0, resolve)?;
                xattr::write(&directory, &finish.attributes)?;
                sys::change_mode(&directory, finish.mode)?;
                sys::set_modified(directory.as_raw_fd(), None, finish.modified)
            })();
            match result {
                // Removed or replaced by somebody meanwhile.
                Err(e) if matches!(errno(&e), libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => {}
                result => result.map_err(|e| self.told(&finish.name, &e))?,
            }
        }
        Ok(())
    }

    fn told(&self, entry: &[u8], error: &io::Error) -> Failure {
        let asked = format!("unpack entry {} into", quoted(entry));
        Failure::os(&asked, self.asked, error)
    }
}
