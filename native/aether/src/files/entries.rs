//! MakeDirectory, Move and Remove.

use std::io;
use std::os::fd::AsRawFd;

use wire::{MakeDirectoryRequest, MoveRequest, RemoveRequest};

use super::connection::Connection;
use super::failure::{errno, quoted, Failure, Outcome};
use super::path::{self, Place};
use super::{copy, sys, walk};

pub fn make_directory(connection: &mut Connection, ask: &MakeDirectoryRequest) -> Outcome<()> {
    const ASKED: &str = "make directory";
    path::validate(ASKED, &ask.path)?;
    let told = |e: io::Error| Failure::os(ASKED, &ask.path, &e);
    let mode = match ask.mode {
        0 => 0o755,
        mode if mode <= 0o7777 => mode,
        _ => {
            let wrong = "the mode is above 07777";
            return Err(Failure::of("INVALID_ARGUMENT", ASKED, &ask.path, wrong));
        }
    };
    let (above, _) = path::split(&ask.path);
    if ask.parents {
        path::make_parents(above).map_err(told)?;
    }
    let Some(place) = path::place(&ask.path).map_err(told)? else {
        // `/`, `.` and `..` are directories that are there.
        if ask.parents {
            return connection.done();
        }
        let wrong = "something is there already";
        return Err(Failure::of("FILE_EXISTS", ASKED, &ask.path, wrong));
    };
    match sys::make_directory(place.at(), &place.name, mode) {
        Ok(()) => {
            // mkdir leaves out the bits of set-user-ID and set-group-ID.
            if mode & 0o6000 != 0 {
                let made = walk::open_directory(place.at(), &place.name).map_err(told)?;
                sys::change_mode(&made, mode).map_err(told)?;
            }
        }
        Err(e) if errno(&e) == libc::EEXIST && ask.parents => {
            // There already, perhaps through a link; its mode stays.
            path::open(&ask.path, libc::O_PATH | libc::O_DIRECTORY).map_err(|e| {
                if errno(&e) == libc::ENOENT || errno(&e) == libc::ENOTDIR {
                    let wrong = "something that is no directory is there already";
                    return Failure::of("FILE_EXISTS", ASKED, &ask.path, wrong);
                }
                told(e)
            })?;
        }
        Err(e) => return Err(told(e)),
    }
    connection.done()
}

pub fn move_entry(connection: &mut Connection, ask: &MoveRequest) -> Outcome<()> {
    const ASKED: &str = "move";
    let from = find(ASKED, &ask.from_path)?;
    let to = find("move to", &ask.to_path)?;
    // An error names both, since the kernel does not say which it meant.
    let told = |e: io::Error| {
        let missing = errno(&e) == libc::ENOENT;
        let asked = format!("move {} to", quoted(&ask.from_path));
        if missing || errno(&e) == libc::ENOTDIR && from_is_missing(&from) {
            return Failure::os(ASKED, &ask.from_path, &e);
        }
        if errno(&e) == libc::EINVAL {
            let wrong = "a directory cannot be moved into itself";
            return Failure::of("FILE_FAILED", &asked, &ask.to_path, wrong);
        }
        Failure::os(&asked, &ask.to_path, &e)
    };
    let flags = if ask.overwrite {
        0
    } else {
        libc::RENAME_NOREPLACE
    };
    match sys::rename(from.at(), &from.name, to.at(), &to.name, flags) {
        Ok(()) => {}
        // Another file system, or a directory of a read-only layer, which overlayfs does not rename.
        Err(e) if errno(&e) == libc::EXDEV => {
            copy::move_by_copy(&from, &to, ask.overwrite, &ask.from_path, &ask.to_path)?;
        }
        Err(e) => return Err(told(e)),
    }
    connection.done()
}

fn from_is_missing(from: &Place) -> bool {
    sys::stat_entry(from.at(), &from.name).is_err()
}

pub fn remove(connection: &mut Connection, ask: &RemoveRequest) -> Outcome<()> {
    const ASKED: &str = "remove";
    let told = |e: io::Error| Failure::os(ASKED, &ask.path, &e);
    let missing_is_fine = |e: &io::Error| ask.missing_ok && errno(e) == libc::ENOENT;
    let place = match find(ASKED, &ask.path) {
        Ok(place) => place,
        Err(Failure::Typed { reason, .. }) if ask.missing_ok && reason == "FILE_NOT_FOUND" => {
            return connection.done();
        }
        Err(failure) => return Err(failure),
    };
    match remove_place(&place, ask.recursive) {
        Ok(()) => {}
        Err((e, _)) if missing_is_fine(&e) => {}
        Err((e, inner)) if !inner.is_empty() => {
            let inner = quoted(&inner);
            let failure = Failure::os(ASKED, &ask.path, &e);
            return Err(match failure {
                Failure::Typed { reason, message } => {
                    Failure::new(reason, format!("{message}; stopped at {inner} in it"))
                }
                gone => gone,
            });
        }
        Err((e, _)) => return Err(told(e)),
    }
    connection.done()
}

/// Removes what is at a place, links as links. An error has the name of the entry inside that could not go, or "".
pub fn remove_place(place: &Place, recursive: bool) -> Result<(), (io::Error, Vec<u8>)> {
    let plain = |e| (e, Vec::new());
    match sys::unlink(place.at(), &place.name, false) {
        Ok(()) => return Ok(()),
        // EPERM is what POSIX says for a directory; a real one shows again below.
        Err(e) if !matches!(errno(&e), libc::EISDIR | libc::EPERM) => return Err(plain(e)),
        Err(e) => {
            let stat = sys::stat_entry(place.at(), &place.name).map_err(plain)?;
            if !sys::is_type(&stat, libc::S_IFDIR) {
                return Err(plain(e));
            }
        }
    }
    loop {
        match sys::unlink(place.at(), &place.name, true) {
            Ok(()) => return Ok(()),
            Err(e) if !recursive || !matches!(errno(&e), libc::ENOTEMPTY | libc::EEXIST) => {
                // One errno for both: the caller's advice is the same.
                let code = match errno(&e) {
                    libc::EEXIST => libc::ENOTEMPTY,
                    code => code,
                };
                return Err(plain(io::Error::from_raw_os_error(code)));
            }
            Err(_) => {}
        }
        let top = walk::open_directory(place.parent.as_raw_fd(), &place.name).map_err(plain)?;
        walk::remove_contents(top).map_err(|(e, name)| (e, name.into_bytes()))?;
    }
}

fn find(asked: &str, path: &[u8]) -> Outcome<Place> {
    path::validate(asked, path)?;
    let place = path::place(path).map_err(|e| Failure::os(asked, path, &e))?;
    place.ok_or_else(|| {
        let wrong = "it ends in no name; give the path with its last name";
        Failure::of("INVALID_PATH", asked, path, wrong)
    })
}
