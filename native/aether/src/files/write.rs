//! WriteFile: the whole body goes into a file without a name, which takes the place of the old one at once.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;

use wire::AetherWriteFile;

use super::connection::{Connection, CHUNK_BYTES};
use super::failure::{errno, Failure, Outcome};
use super::path::{self, Place};
use super::read::require_regular;
use super::sys;

const ASKED: &str = "write";
const MAX_LINKS: usize = 40;

pub fn write_file(connection: &mut Connection, ask: &AetherWriteFile) -> Outcome<()> {
    path::validate(ASKED, &ask.path)?;
    let told = |e: io::Error| Failure::os(ASKED, &ask.path, &e);
    if ask.mode > 0o7777 {
        let wrong = "the mode is above 07777";
        return Err(Failure::of("INVALID_ARGUMENT", ASKED, &ask.path, wrong));
    }
    if ask.path.ends_with(b"/") {
        let wrong = "a path that ends in a slash names a directory";
        return Err(Failure::of("IS_A_DIRECTORY", ASKED, &ask.path, wrong));
    }
    if ask.parents {
        path::make_parents(path::split(&ask.path).0).map_err(told)?;
    }
    let (place, old) = find_target(&ask.path)?;
    if let Some(old) = &old {
        require_regular(ASKED, &ask.path, old)?;
        require_writable(&place).map_err(told)?;
    }
    let mut new = NewFile::make(&place).map_err(told)?;
    let mut buffer = Vec::with_capacity(CHUNK_BYTES);
    while connection.receive_contents(&mut buffer)? {
        new.file.write_all(&buffer).map_err(told)?;
    }
    let mode = match (ask.mode, &old) {
        (0, Some(old)) => kept_mode(old),
        (0, None) => 0o644,
        (mode, _) => mode,
    };
    // After the contents: writing takes away the bits of set-user-ID.
    sys::change_mode(&new.file, mode).map_err(told)?;
    new.put_in_place(old.is_some()).map_err(told)?;
    connection.done()
}

/// The mode of the file that is replaced. The bits of set-user-ID stay with the user that they name.
fn kept_mode(old: &libc::stat) -> u32 {
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    let mask = if old.st_uid == user { 0o7777 } else { 0o777 };
    old.st_mode & mask
}

/// Where the file is that the path leads to, through links; what is there now.
fn find_target(path: &[u8]) -> Outcome<(Place, Option<libc::stat>)> {
    let told = |e: io::Error| Failure::os(ASKED, path, &e);
    // The kernel's own walk first: it knows which links it lets this user follow.
    if let Err(e) = path::open(path, libc::O_PATH) {
        if errno(&e) != libc::ENOENT {
            return Err(told(e));
        }
    }
    let mut place = path::place(path).map_err(told)?;
    for _ in 0..MAX_LINKS {
        let Some(here) = place else {
            let wrong = "it is a directory";
            return Err(Failure::of("IS_A_DIRECTORY", ASKED, path, wrong));
        };
        let stat = match sys::stat_entry(here.at(), &here.name) {
            Ok(stat) => stat,
            Err(e) if errno(&e) == libc::ENOENT => return Ok((here, None)),
            Err(e) => return Err(told(e)),
        };
        if !sys::is_type(&stat, libc::S_IFLNK) {
            return Ok((here, Some(stat)));
        }
        let target = sys::read_link(here.at(), &here.name).map_err(told)?;
        place = path::place_at(Some(&here.parent), &target).map_err(told)?;
    }
    Err(told(io::Error::from_raw_os_error(libc::ELOOP)))
}

/// Replacing needs only the directory; like open(), this asks the file too.
fn require_writable(place: &Place) -> io::Result<()> {
    let flags = libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name ends with NUL.
    let result = unsafe { libc::faccessat(place.at(), place.name.as_ptr(), libc::W_OK, flags) };
    sys::check(result).map(drop)
}

/// A file that is being written, beside the place it is for. Dropped before it is in place, it leaves nothing.
struct NewFile<'a> {
    file: File,
    place: &'a Place,
    /// Its name for now; None while it has none, so that even `kill -9` leaves nothing.
    name: Option<CString>,
}

impl<'a> NewFile<'a> {
    fn make(place: &'a Place) -> io::Result<Self> {
        let flags = libc::O_TMPFILE | libc::O_RDWR;
        match sys::openat2(place.at(), c".", flags, 0o600, 0) {
            Ok(fd) => Ok(Self {
                file: File::from(fd),
                place,
                name: None,
            }),
            // Not every file system has files without a name.
            Err(e) if matches!(errno(&e), libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL) => {
                Self::make_named(place)
            }
            Err(e) => Err(e),
        }
    }

    fn make_named(place: &'a Place) -> io::Result<Self> {
        let name = sys::hidden_name();
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let file = File::from(sys::open_entry(place.at(), &name, flags, 0o600)?);
        Ok(Self {
            file,
            place,
            name: Some(name),
        })
    }

    fn put_in_place(mut self, replaces: bool) -> io::Result<()> {
        if self.name.is_none() {
            // Nothing there: the name it is meant for is its first.
            if !replaces {
                match self.link(&self.place.name) {
                    Ok(()) => return Ok(()),
                    Err(e) if errno(&e) == libc::EEXIST => {}
                    Err(e) if is_full(&e) => return Err(e),
                    Err(_) => return self.through_a_named_copy(),
                }
            }
            let name = sys::hidden_name();
            match self.link(&name) {
                Ok(()) => self.name = Some(name),
                Err(e) if is_full(&e) => return Err(e),
                Err(_) => return self.through_a_named_copy(),
            }
        }
        let name = self.name.as_deref().expect("it has one by now");
        let at = self.place.at();
        match sys::rename(at, name, at, &self.place.name, 0) {
            Ok(()) => self.name = None,
            // A file that is mounted, such as /etc/hosts, cannot be replaced, only written.
            Err(e) if errno(&e) == libc::EBUSY => {
                let flags = libc::O_WRONLY | libc::O_NONBLOCK;
                let old = sys::open_entry(at, &self.place.name, flags, 0)?;
                let mut old = File::from(old);
                old.set_len(0)?;
                self.file.rewind()?;
                io::copy(&mut self.file, &mut old)?;
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn link(&self, name: &CStr) -> io::Result<()> {
        let (at, fd) = (self.place.at(), self.file.as_raw_fd());
        // Kernels before 6.10 allow it to the node's root alone; then /proc, which may not be there.
        sys::link(fd, c"", at, name, libc::AT_EMPTY_PATH).or_else(|e| {
            if errno(&e) == libc::EEXIST || is_full(&e) {
                return Err(e);
            }
            let own = sys::c_string(format!("/proc/self/fd/{fd}").as_bytes())?;
            sys::link(sys::CWD, &own, at, name, libc::AT_SYMLINK_FOLLOW)
        })
    }

    /// Where a file without a name cannot be given one.
    fn through_a_named_copy(&mut self) -> io::Result<()> {
        let mut named = Self::make_named(self.place)?;
        self.file.rewind()?;
        io::copy(&mut self.file, &mut named.file)?;
        sys::change_mode(&named.file, sys::stat_fd(&self.file)?.st_mode & 0o7777)?;
        named.put_in_place(true)
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = sys::unlink(self.place.at(), name, false);
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(errno(error), libc::ENOSPC | libc::EDQUOT)
}
