//! What happens between fork and exec. The child still has init's memory, so it stays out of everybody's reach: not
//! dumpable, and without a descriptor that is not its own.

use std::os::fd::{AsRawFd, OwnedFd};

use super::users::User;
use crate::sys;
use crate::InitSetup;

/// Descriptors that a session's shell has beside 0, 1 and 2.
pub const SESSION_NULL: i32 = 59;
pub const SESSION_STATUS: i32 = 61;
pub const SESSION_PRIVATE: i32 = 62;
/// The static bash (closed on exec) and a script too long for an argument.
pub const SHELL: i32 = 57;
pub const SCRIPT: i32 = 58;

/// 0 in the child, which is in the leaf from birth; in the parent its pid, or the errno.
pub fn fork(leaf: Option<&OwnedFd>) -> Result<i32, i32> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    // SAFETY: all zeroes is a valid clone_args.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(leaf) = leaf {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = leaf.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM this is fork; init has one thread.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &args,
            std::mem::size_of::<libc::clone_args>(),
        )
    };
    if pid < 0 {
        Err(sys::errno())
    } else {
        Ok(pid as i32)
    }
}

/// A line on stderr as a shell prints it, then the end.
pub fn fail(code: i32, what: &[u8], why: &str) -> ! {
    let mut line = b"bash: ".to_vec();
    line.extend_from_slice(what);
    line.extend_from_slice(b": ");
    line.extend_from_slice(why.as_bytes());
    line.push(b'\n');
    // SAFETY: plain calls.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::_exit(code)
    }
}

pub fn error_text(errno: i32) -> String {
    // SAFETY: strerror gives a NUL-terminated text, and there is one thread.
    unsafe { std::ffi::CStr::from_ptr(libc::strerror(errno)) }
        .to_string_lossy()
        .into_owned()
}

/// Signals as a fresh process has them, and a session of its own.
pub fn reset() {
    // SAFETY: a zeroed set is made empty; plain calls on this process.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::setsid();
    }
}

/// Puts `from[i].0` at number `from[i].1`, the rest of what is open to be closed on exec (or now, where none follows).
pub fn place(wanted: &[(i32, i32)], exec_follows: bool) {
    // Copies above all numbers wanted, so that none is overwritten before it is placed.
    let copies: Vec<(i32, i32)> = wanted
        .iter()
        .map(|&(fd, number)| {
            // SAFETY: plain call.
            let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 64) };
            (copy, number)
        })
        .collect();
    // SAFETY: plain calls on this process's descriptors.
    unsafe {
        for (fd, number) in copies {
            if fd >= 0 {
                libc::dup2(fd, number);
            }
        }
        if exec_follows {
            libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32);
            for &(_, number) in wanted {
                if number != SHELL {
                    libc::fcntl(number, libc::F_SETFD, 0);
                }
            }
        } else {
            let kept = wanted.iter().map(|&(_, number)| number).max().unwrap_or(2);
            libc::close_range(kept as u32 + 1, u32::MAX, 0);
        }
    }
}

/// Filter, groups and user. After this the process may do no more than the sandbox's own.
pub fn become_user(setup: &InitSetup, user: &User) {
    // SAFETY: plain calls; the filter outlives them.
    let done = unsafe {
        if setup.no_new_privs {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        }
        // Before the user changes: loading a filter takes CAP_SYS_ADMIN of the user namespace, which init has.
        let filter = libc::sock_fprog {
            len: setup.child_filter.len() as u16,
            filter: setup.child_filter.as_ptr() as *mut _,
        };
        (setup.child_filter.is_empty()
            || libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &filter,
                0,
                0,
            ) == 0)
            && libc::setgroups(user.groups.len(), user.groups.as_ptr()) == 0
            && libc::setresgid(user.gid, user.gid, user.gid) == 0
            && libc::setresuid(user.uid, user.uid, user.uid) == 0
    };
    if !done {
        fail(126, user.name.as_bytes(), &error_text(sys::errno()));
    }
}

/// For a process that does not exec: exec would have cut root's capabilities to the bounding set.
pub fn cut_capabilities(keep: u64) {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let mut header = Header {
        version: 0x2008_0522,
        pid: 0,
    };
    let mut data = [Data::default(); 2];
    // SAFETY: header and data have the form of version 3.
    unsafe {
        if libc::syscall(libc::SYS_capget, &mut header, data.as_mut_ptr()) != 0 {
            libc::_exit(126);
        }
        for (i, part) in data.iter_mut().enumerate() {
            let bits = (keep >> (32 * i)) as u32;
            *part = Data {
                effective: part.effective & bits,
                permitted: part.permitted & bits,
                inheritable: 0,
            };
        }
        if libc::syscall(libc::SYS_capset, &header, data.as_ptr()) != 0 {
            libc::_exit(126);
        }
    }
}
