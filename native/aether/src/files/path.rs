//! From the bytes of a path to open descriptors. The worker's root is the sandbox's, so no link leads out of it; the
//! last part of a path is acted on by name below its open parent, so that nobody can swap what lies above it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::failure::{Failure, Outcome};
use super::sys;

pub const MAX_PATH_BYTES: usize = 4096;
/// Links like /proc/self/fd/1 lead to what has no path; nothing that the API offers needs them.
pub const RESOLVE: u64 = libc::RESOLVE_NO_MAGICLINKS;

/// A name in an open directory. The name is no `.`, no `..` and has no slash.
pub struct Place {
    pub parent: OwnedFd,
    pub name: CString,
}

impl Place {
    pub fn at(&self) -> RawFd {
        self.parent.as_raw_fd()
    }
}

/// Refuses a path that is empty, too long, holds NUL, or climbs above the root by its own `..`.
pub fn validate(asked: &str, path: &[u8]) -> Outcome<()> {
    let invalid = |wrong| Err(Failure::of("INVALID_PATH", asked, path, wrong));
    if path.is_empty() {
        return invalid("the path is empty");
    }
    if path.len() > MAX_PATH_BYTES {
        return invalid("the path is longer than 4096 bytes");
    }
    if path.contains(&0) {
        return invalid("the path holds a NUL byte");
    }
    let mut depth = if path[0] == b'/' { 0 } else { depth_of_cwd() };
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." if depth == 0 => {
                return Err(Failure::of(
                    "PATH_LEAVES_ROOT",
                    asked,
                    path,
                    "its `..` lead above the root",
                ))
            }
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    Ok(())
}

fn depth_of_cwd() -> usize {
    use std::os::unix::ffi::OsStrExt;
    let cwd = std::env::current_dir().unwrap_or_default();
    let parts = cwd.as_os_str().as_bytes().split(|&b| b == b'/');
    parts.filter(|part| !part.is_empty()).count()
}

/// Opens what a path leads to, through links, also one in its last part.
pub fn open(path: &[u8], flags: i32) -> io::Result<OwnedFd> {
    open_at(None, path, flags)
}

/// A relative path begins at `base`, or at the current directory.
fn open_at(base: Option<&OwnedFd>, path: &[u8], flags: i32) -> io::Result<OwnedFd> {
    let path_c = sys::c_string(path)?;
    if path.first() == Some(&b'/') {
        let root = sys::openat2(sys::CWD, c"/", libc::O_PATH | libc::O_DIRECTORY, 0, 0)?;
        return sys::openat2(
            root.as_raw_fd(),
            &path_c,
            flags,
            0,
            RESOLVE | libc::RESOLVE_IN_ROOT,
        );
    }
    // IN_ROOT would take the base for the root; the process's own root is the sandbox's.
    let base = base.map_or(sys::CWD, AsRawFd::as_raw_fd);
    sys::openat2(base, &path_c, flags, 0, RESOLVE)
}

/// The open parent and the name of a path's last part; None where there is no such name (`/`, `.`, `..`).
pub fn place(path: &[u8]) -> io::Result<Option<Place>> {
    place_at(None, path)
}

pub fn place_at(base: Option<&OwnedFd>, path: &[u8]) -> io::Result<Option<Place>> {
    let (above, name) = split(path);
    if matches!(name, b"" | b"." | b"..") {
        return Ok(None);
    }
    let parent = open_at(base, above, libc::O_PATH | libc::O_DIRECTORY)?;
    Ok(Some(Place {
        parent,
        name: sys::c_string(name)?,
    }))
}

/// The path above (never empty) and the last part, without slashes at its end.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
    let trimmed = &path[..end];
    match trimmed.iter().rposition(|&b| b == b'/') {
        Some(slash) => (&trimmed[..=slash], &trimmed[slash + 1..]),
        None if path.first() == Some(&b'/') => (b"/", trimmed),
        None => (b".", trimmed),
    }
}

/// Makes every directory of the path that is missing, following links as the kernel does. Mode 0755.
pub fn make_parents(path: &[u8]) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = path;
    // Upwards to the first that is there, then downwards again.
    let mut here = loop {
        let (above, name) = split(at);
        if name.is_empty() {
            break open(b"/", libc::O_PATH | libc::O_DIRECTORY)?;
        }
        match open(at, libc::O_PATH | libc::O_DIRECTORY) {
            Ok(fd) => break fd,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) && !matches!(name, b"." | b"..") => {
                missing.push(sys::c_string(name)?);
                at = above;
            }
            Err(e) => return Err(e),
        }
    };
    for name in missing.iter().rev() {
        match sys::make_directory(here.as_raw_fd(), name, 0o755) {
            Err(e) if e.raw_os_error() != Some(libc::EEXIST) => return Err(e),
            _ => {}
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        here = sys::openat2(here.as_raw_fd(), name, flags, 0, RESOLVE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_before_its_last_part() {
        let cases: [(&str, (&str, &str)); 8] = [
            ("/", ("/", "")),
            ("//", ("/", "")),
            ("a", (".", "a")),
            ("a/", (".", "a")),
            ("/a", ("/", "a")),
            ("/a/b//", ("/a/", "b")),
            ("a//b", ("a//", "b")),
            ("..", (".", "..")),
        ];
        for (path, (above, name)) in cases {
            assert_eq!(
                split(path.as_bytes()),
                (above.as_bytes(), name.as_bytes()),
                "{path}"
            );
        }
    }
}
