//! What a start by runc needs of the node: runc, and the program that is pid 1.

use crate::sys;
use std::fs::File;
use std::io::{Error, Read, Result, Seek};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const PLACES: [&str; 4] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];

pub struct Runc {
    pub path: PathBuf,
    /// A sealed copy of sandbox-init that nobody can write and, without the host's root, nobody can read. Since the sandbox's
    /// root may not read it, the kernel keeps the memory of what executes it to the host's user namespace (would_dump): no
    /// tracing, and no /proc/1/exe, as with an init that never ran exec.
    pub init: OwnedFd,
}

impl Runc {
    /// Else why there is none. `hostd`: the program beside which the other is.
    pub fn find(hostd: &Path) -> std::result::Result<Self, String> {
        let path = PLACES
            .iter()
            .map(|dir| Path::new(dir).join("runc"))
            .find(|path| path.is_file())
            .ok_or("no runc is installed")?;
        let program = hostd.with_file_name("sandbox-init");
        let said = |error: Error| format!("{}: {error}", program.display());
        let mut file = File::open(&program).map_err(said)?;
        let mut head = [0; 4096];
        file.read_exact(&mut head).map_err(said)?;
        if !is_static(&head) {
            return Err(format!("{} is not linked statically", program.display()));
        }
        file.rewind().map_err(said)?;
        let init = sealed(&mut file).map_err(|error| format!("a sealed copy of init: {error}"))?;
        Ok(Self { path, init })
    }
}

/// By the head of a file: an ELF program of 64 bits that names no interpreter, which would be a file of the image.
fn is_static(bytes: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let short = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let headers = || {
        let (start, size, count) = (long(32)? as usize, short(54)?, short(56)?);
        (0..usize::from(count))
            .map(|at| {
                let kind = start + at * usize::from(size);
                Some(u32::from_le_bytes(
                    bytes.get(kind..kind + 4)?.try_into().ok()?,
                ))
            })
            .collect::<Option<Vec<u32>>>()
    };
    bytes.starts_with(b"\x7fELF\x02")
        && headers().is_some_and(|kinds| !kinds.contains(&INTERPRETER))
}

/// The kernel copies: hostd's heap stays as small as it is.
fn sealed(program: &mut File) -> Result<OwnedFd> {
    const MFD_EXEC: u32 = 0x10;
    let make = |flags: u32| {
        // SAFETY: the name is a constant.
        let fd = unsafe { libc::memfd_create(c"init".as_ptr(), flags) };
        sys::check(i64::from(fd))
    };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // The flag came with Linux 6.3.
    let fd = make(flags | MFD_EXEC).or_else(|_| make(flags))?;
    // SAFETY: just made.
    let mut file = unsafe { File::from_raw_fd(fd as i32) };
    std::io::copy(program, &mut file)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: plain numbers.
    sys::check(i64::from(unsafe {
        libc::fchmod(file.as_raw_fd(), 0o111)
            | libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals)
    }))?;
    // Not the descriptor that may write, sealed or not.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    sys::open_at(libc::AT_FDCWD, &path, libc::O_RDONLY, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        let read = |path: &str| std::fs::read(path).expect("a program");
        assert!(is_static(&read("/bin/bash-static")));
        assert!(!is_static(&read("/bin/sh")));
        assert!(!is_static(b"#!/bin/sh\n"));
        assert!(!is_static(&read("/bin/bash-static")[..80]));
    }
}
