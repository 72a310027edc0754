//! The system calls that neither std nor libc wraps, each as one function that returns io::Result.

use std::ffi::CString;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub const AT_EMPTY_PATH: i32 = libc::AT_EMPTY_PATH;

/// Of struct clone_args, as of Linux 5.7.
#[repr(C)]
#[derive(Default)]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

/// Of struct mount_attr.
#[repr(C)]
#[derive(Default)]
pub struct MountAttr {
    pub attr_set: u64,
    pub attr_clr: u64,
    pub propagation: u64,
    pub userns_fd: u64,
}

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

pub fn check(result: i64) -> Result<i64> {
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn owned(result: i64) -> Result<OwnedFd> {
    let fd = check(result)? as RawFd;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A path without NUL; paths here are ours, so one with NUL is a fault of the program's input check.
pub fn cstr(path: &str) -> Result<CString> {
    CString::new(path).map_err(|_| Error::from_raw_os_error(libc::EINVAL))
}

/// Forks without glibc's handlers being needed: this program has one thread. 0 in the child.
pub fn fork() -> Result<i32> {
    // SAFETY: one thread, so no lock can be held by another.
    Ok(check(unsafe { libc::fork() } as i64)? as i32)
}

/// The child's pid, or 0 in the child. After it glibc's cached thread ID is stale: no pthreads in the child.
pub fn clone3(args: &CloneArgs) -> Result<i32> {
    let size = std::mem::size_of::<CloneArgs>();
    // SAFETY: args outlives the call; without CLONE_VM the child has its own copy of this stack.
    Ok(check(unsafe { libc::syscall(libc::SYS_clone3, args, size) })? as i32)
}

pub fn pidfd_open(pid: i32) -> Result<OwnedFd> {
    // SAFETY: plain numbers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

pub fn pidfd_kill(pidfd: &OwnedFd) -> Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null siginfo means kill(2)'s.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            libc::SIGKILL,
            none,
            0,
        )
    };
    check(result).map(drop)
}

/// Takes the dead child's status so that it is no zombie; ECHILD where it is not our child.
pub fn reap(pidfd: &OwnedFd) -> Result<()> {
    // SAFETY: siginfo_t is plain data, written by the kernel.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let id = pidfd.as_raw_fd() as libc::id_t;
    // SAFETY: info outlives the call.
    check(
        unsafe { libc::waitid(libc::P_PIDFD, id, &mut info, libc::WEXITED | libc::WNOHANG) } as i64,
    )
    .map(drop)
}

pub fn open_at(dir: RawFd, path: &str, flags: i32, mode: u32) -> Result<OwnedFd> {
    let path = cstr(path)?;
    // SAFETY: path is NUL-terminated and outlives the call.
    owned(unsafe { libc::openat(dir, path.as_ptr(), flags | libc::O_CLOEXEC, mode) } as i64)
}

/// Opens below `dir` without following any link.
pub fn open_beneath(dir: RawFd, path: &str, flags: i32) -> Result<OwnedFd> {
    const RESOLVE_NO_SYMLINKS: u64 = 0x04;
    const RESOLVE_BENEATH: u64 = 0x08;
    let how = OpenHow {
        flags: (flags | libc::O_CLOEXEC) as u64,
        mode: 0,
        resolve: RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH,
    };
    let path = cstr(path)?;
    let size = std::mem::size_of::<OpenHow>();
    // SAFETY: path and how outlive the call.
    owned(unsafe { libc::syscall(libc::SYS_openat2, dir, path.as_ptr(), &how, size) })
}

pub fn open_dir(dir: RawFd, path: &str) -> Result<OwnedFd> {
    open_at(
        dir,
        path,
        libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW,
        0,
    )
}

pub fn mkdir_at(dir: RawFd, path: &str, mode: u32) -> Result<()> {
    let path = cstr(path)?;
    // SAFETY: path outlives the call.
    check(unsafe { libc::mkdirat(dir, path.as_ptr(), mode) } as i64).map(drop)
}

/// mkdir that takes an existing one for success.
pub fn ensure_dir_at(dir: RawFd, path: &str, mode: u32) -> Result<()> {
    match mkdir_at(dir, path, mode) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other,
    }
}

/// `flags`: 0 or AT_REMOVEDIR.
pub fn unlink_at(dir: RawFd, path: &str, flags: i32) -> Result<()> {
    let path = cstr(path)?;
    // SAFETY: path outlives the call.
    check(unsafe { libc::unlinkat(dir, path.as_ptr(), flags) } as i64).map(drop)
}

pub fn rename_at(dir: RawFd, from: &str, to: &str) -> Result<()> {
    let (from, to) = (cstr(from)?, cstr(to)?);
    // SAFETY: both outlive the call.
    check(unsafe { libc::renameat(dir, from.as_ptr(), dir, to.as_ptr()) } as i64).map(drop)
}

pub fn chown_at(dir: RawFd, path: &str, uid: u32, gid: u32) -> Result<()> {
    let path = cstr(path)?;
    let flags = libc::AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    // SAFETY: path outlives the call.
    check(unsafe { libc::fchownat(dir, path.as_ptr(), uid, gid, flags) } as i64).map(drop)
}

pub fn chmod_at(dir: RawFd, path: &str, mode: u32) -> Result<()> {
    let path = cstr(path)?;
    // SAFETY: path outlives the call.
    check(unsafe { libc::fchmodat(dir, path.as_ptr(), mode, 0) } as i64).map(drop)
}

pub fn symlink(target: &str, path: &str) -> Result<()> {
    let (target, path) = (cstr(target)?, cstr(path)?);
    // SAFETY: both outlive the call.
    check(unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) } as i64).map(drop)
}

pub fn write_fd(fd: RawFd, bytes: &[u8]) -> Result<()> {
    // SAFETY: the slice is valid for its length.
    let written = check(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) } as i64)?;
    if written as usize == bytes.len() {
        Ok(())
    } else {
        Err(Error::from_raw_os_error(libc::EIO))
    }
}

/// Writes an existing small file, as those of cgroups and /proc are.
pub fn write_at(dir: RawFd, path: &str, text: &str) -> Result<()> {
    let file = open_at(dir, path, libc::O_WRONLY, 0)?;
    write_fd(file.as_raw_fd(), text.as_bytes())
}

/// Makes or empties a small file and writes it. Never through a link.
pub fn create_at(dir: RawFd, path: &str, mode: u32, bytes: &[u8]) -> Result<OwnedFd> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_NOFOLLOW;
    let file = open_at(dir, path, flags, mode)?;
    if !bytes.is_empty() {
        write_fd(file.as_raw_fd(), bytes)?;
    }
    Ok(file)
}

/// Reads a small file whole, at most 64 KiB.
pub fn read_at(dir: RawFd, path: &str) -> Result<String> {
    let file = open_at(dir, path, libc::O_RDONLY | libc::O_NOFOLLOW, 0)?;
    let bytes = read_fd(file.as_raw_fd(), 65536)?;
    String::from_utf8(bytes).map_err(|_| Error::from_raw_os_error(libc::EILSEQ))
}

pub fn read_fd(fd: RawFd, limit: usize) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut part = [0u8; 4096];
    while all.len() < limit {
        // SAFETY: the buffer is valid for its length.
        let count =
            check(unsafe { libc::read(fd, part.as_mut_ptr().cast(), part.len()) } as i64)? as usize;
        if count == 0 {
            break;
        }
        all.extend_from_slice(&part[..count]);
    }
    Ok(all)
}

pub fn fsopen(kind: &str) -> Result<OwnedFd> {
    let kind = cstr(kind)?;
    const FSOPEN_CLOEXEC: u32 = 1;
    // SAFETY: kind outlives the call.
    owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })
}

pub fn fsconfig_set(context: &OwnedFd, key: &str, value: &str) -> Result<()> {
    const FSCONFIG_SET_STRING: u32 = 1;
    let (key, value) = (cstr(key)?, cstr(value)?);
    let fd = context.as_raw_fd();
    // SAFETY: key and value outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            fd,
            FSCONFIG_SET_STRING,
            key.as_ptr(),
            value.as_ptr(),
            0,
        )
    })
    .map(drop)
}

pub fn fsconfig_flag(context: &OwnedFd, key: &str) -> Result<()> {
    const FSCONFIG_SET_FLAG: u32 = 0;
    let key = cstr(key)?;
    let none = std::ptr::null::<u8>();
    // SAFETY: key outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_SET_FLAG,
            key.as_ptr(),
            none,
            0,
        )
    })
    .map(drop)
}

/// Makes the file system and returns it as a detached mount. `attributes`: MOUNT_ATTR_*.
pub fn fsconfig_mount(context: &OwnedFd, attributes: u64) -> Result<OwnedFd> {
    const FSCONFIG_CMD_CREATE: u32 = 6;
    const FSMOUNT_CLOEXEC: u32 = 1;
    let none = std::ptr::null::<u8>();
    let fd = context.as_raw_fd();
    // SAFETY: this command takes no key and no value.
    check(unsafe { libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, none, none, 0) })
        .map_err(|error| with_log(context, error))?;
    // SAFETY: plain numbers.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, attributes as u32) })
}

/// The error with what the kernel wrote about it, which says more than its number.
fn with_log(context: &OwnedFd, error: Error) -> Error {
    let mut line = [0u8; 512];
    // SAFETY: the buffer is valid for its length.
    let count = unsafe { libc::read(context.as_raw_fd(), line.as_mut_ptr().cast(), line.len()) };
    if count <= 0 {
        return error;
    }
    let text = String::from_utf8_lossy(&line[..count as usize]);
    Error::new(error.kind(), format!("{error} ({})", text.trim()))
}

/// A detached private copy of the mount that `dir` is the root of (or of its subtree).
pub fn clone_mount(dir: &OwnedFd) -> Result<OwnedFd> {
    const OPEN_TREE_CLONE: u32 = 1;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | AT_EMPTY_PATH as u32;
    // SAFETY: an empty path with AT_EMPTY_PATH.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), c"".as_ptr(), flags) })
}

pub fn mount_setattr(mount: &OwnedFd, attr: &MountAttr) -> Result<()> {
    let size = std::mem::size_of::<MountAttr>();
    // SAFETY: attr outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            AT_EMPTY_PATH,
            attr,
            size,
        )
    })
    .map(drop)
}

/// Puts a detached mount at a path.
pub fn move_mount(mount: &OwnedFd, path: &str) -> Result<()> {
    const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
    let path = cstr(path)?;
    // SAFETY: path outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
    .map(drop)
}

pub fn mount(source: &str, target: &str, kind: &str, flags: u64, data: &str) -> Result<()> {
    let (source, target, kind, data) = (cstr(source)?, cstr(target)?, cstr(kind)?, cstr(data)?);
    // SAFETY: all strings outlive the call.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    } as i64)
    .map(drop)
}

pub fn unshare(flags: i32) -> Result<()> {
    // SAFETY: plain number.
    check(unsafe { libc::unshare(flags) } as i64).map(drop)
}

pub fn prctl(option: i32, value: u64) -> Result<()> {
    // SAFETY: only used with options that take plain numbers.
    check(unsafe { libc::prctl(option, value, 0, 0, 0) } as i64).map(drop)
}

pub fn close_from(first: u32) {
    // SAFETY: the callers own nothing at or above `first` any more.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}

pub fn socket_pair(kind: i32) -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for two.
    check(unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            kind | libc::SOCK_CLOEXEC,
            0,
            fds.as_mut_ptr(),
        )
    } as i64)?;
    // SAFETY: both are new and ours.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends bytes with one descriptor.
pub fn send_fd(socket: &OwnedFd, bytes: &[u8], fd: Option<BorrowedFd>) -> Result<()> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr() as *mut _,
        iov_len: bytes.len(),
    };
    // SAFETY: msghdr is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    if let Some(fd) = fd {
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: control has room for one descriptor, and the header lies within it.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header)
                .cast::<i32>()
                .write_unaligned(fd.as_raw_fd());
        }
    }
    // SAFETY: message points to live buffers.
    check(unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) } as i64)
        .map(drop)
}

/// Receives one message, at most 4 KiB, with the descriptor that came along. Empty: the other end is closed.
pub fn receive_fd(socket: &OwnedFd) -> Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0u8; 4096];
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: msghdr is plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: message points to live buffers.
    let count =
        check(
            unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) }
                as i64,
        )?;
    bytes.truncate(count as usize);
    // SAFETY: the kernel filled the control buffer; a descriptor in it is new and ours.
    let fd = unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            Some(OwnedFd::from_raw_fd(
                libc::CMSG_DATA(header).cast::<i32>().read_unaligned(),
            ))
        } else {
            None
        }
    };
    Ok((bytes, fd))
}

/// Field 22 of /proc/PID/stat, in clock ticks since boot.
pub fn start_time(pid: i32) -> Result<u64> {
    let stat = read_at(libc::AT_FDCWD, &format!("/proc/{pid}/stat"))?;
    // The name, field 2, may hold anything; after its last bracket comes field 3.
    let rest = stat.rsplit(')').next().unwrap_or("");
    rest.split_whitespace()
        .nth(19)
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| Error::from_raw_os_error(libc::EINVAL))
}

/// All capabilities of this thread but those in `without` (a mask).
pub fn drop_caps(without: u64) -> Result<()> {
    let header = [0x2008_0522u32, 0];
    let mut data = [0u32; 6];
    // SAFETY: version 3 has two triples of u32, which data holds.
    unsafe {
        check(libc::syscall(
            libc::SYS_capget,
            header.as_ptr(),
            data.as_mut_ptr(),
        ))?;
        for (half, mask) in [(0, without as u32), (3, (without >> 32) as u32)] {
            data[half] &= !mask;
            data[half + 1] &= !mask;
            data[half + 2] &= !mask;
        }
        check(libc::syscall(
            libc::SYS_capset,
            header.as_ptr(),
            data.as_ptr(),
        ))
        .map(drop)
    }
}

/// Sets the effective user without touching capabilities (SECBIT_NO_SETUID_FIXUP must be on).
pub fn set_effective_user(uid: u32) -> Result<()> {
    let keep = u32::MAX;
    // SAFETY: plain numbers; the raw call changes this thread alone.
    check(unsafe { libc::syscall(libc::SYS_setresuid, keep, uid, keep) }).map(drop)
}
