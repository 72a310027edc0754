//! A directory that is mounted nowhere: only a session's shell has it, by descriptor. In it are the pipes of each call,
//! so that a call has its own stdout and stderr even while a job of an earlier call still writes.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sys;

pub fn directory() -> io::Result<OwnedFd> {
    const CMD_CREATE: u32 = 6;
    const SET_STRING: u32 = 1;
    // SAFETY: all texts end in NUL; each descriptor is fresh.
    unsafe {
        let fs = libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), 1);
        let fs = OwnedFd::from_raw_fd(sys::check(fs as i32)?);
        for (key, value) in [(c"size", c"64k"), (c"mode", c"0711")] {
            let result = libc::syscall(
                libc::SYS_fsconfig,
                fs.as_raw_fd(),
                SET_STRING,
                key.as_ptr(),
                value.as_ptr(),
                0,
            );
            sys::check(result as i32)?;
        }
        let null = std::ptr::null::<libc::c_char>();
        let result = libc::syscall(
            libc::SYS_fsconfig,
            fs.as_raw_fd(),
            CMD_CREATE,
            null,
            null,
            0,
        );
        sys::check(result as i32)?;
        // MOUNT_ATTR_NOSUID | NODEV | NOEXEC
        let mount = libc::syscall(libc::SYS_fsmount, fs.as_raw_fd(), 1, 2 | 4 | 8);
        Ok(OwnedFd::from_raw_fd(sys::check(mount as i32)?))
    }
}

/// Read ends of stdout and stderr, then the write and read end of stdin if asked. The shell finds the other ends under the names
/// o, e and i followed by the number of the call, where they stay until `forget`.
pub fn call_pipes(dir: &OwnedFd, call: u64, uid: u32, stdin: bool) -> io::Result<Vec<OwnedFd>> {
    let mut ends = Vec::new();
    forget(dir);
    for kind in ["o", "e", "i"] {
        if kind == "i" && !stdin {
            break;
        }
        let name = CString::new(format!("{kind}{call}")).expect("no NUL");
        // SAFETY: the name ends in NUL.
        unsafe {
            sys::check(libc::mkfifoat(dir.as_raw_fd(), name.as_ptr(), 0o600))?;
            sys::check(libc::fchownat(
                dir.as_raw_fd(),
                name.as_ptr(),
                uid,
                u32::MAX,
                0,
            ))?;
        }
        let reader = sys::openat(dir, &name, libc::O_RDONLY | libc::O_NONBLOCK, 0)?;
        if kind == "i" {
            ends.push(sys::openat(
                dir,
                &name,
                libc::O_WRONLY | libc::O_NONBLOCK,
                0,
            )?);
            // Without a reader a write fails, and the shell has not come yet.
            ends.push(reader);
        } else {
            ends.push(reader);
        }
    }
    Ok(ends)
}

/// Names of calls that are over. Those of a call that runs are kept by `keep` being newer: one call at a time is
/// made per session, and a shell has opened its pipes long before 64 other calls were made.
fn forget(dir: &OwnedFd) {
    let Ok(copy) = sys::openat(dir, c".", libc::O_RDONLY | libc::O_DIRECTORY, 0) else {
        return;
    };
    let Ok(entries) = std::fs::read_dir(format!("/proc/self/fd/{}", copy.as_raw_fd())) else {
        return;
    };
    let mut names: Vec<(u64, String)> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| Some((name.get(1..)?.parse().ok()?, name)))
        .collect();
    if names.len() <= 128 {
        return;
    }
    names.sort();
    for (_, name) in &names[..names.len() - 96] {
        let name = CString::new(name.as_str()).expect("no NUL");
        // SAFETY: the name ends in NUL.
        unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), 0) };
    }
}
