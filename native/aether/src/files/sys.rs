//! The system calls that the standard library does not have: everything relative to a directory's descriptor.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A descriptor to be given as AT_FDCWD where no directory is open.
pub const CWD: RawFd = libc::AT_FDCWD;

pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Bytes as a C string; EINVAL for a NUL byte.
pub fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// openat2; O_CLOEXEC is added. A walk that met a rename under way is tried again, as the kernel asks for.
pub fn openat2(at: RawFd, path: &CStr, flags: i32, mode: u32, resolve: u64) -> io::Result<OwnedFd> {
    // SAFETY: open_how is plain numbers.
    let mut how: libc::open_how = unsafe { MaybeUninit::zeroed().assume_init() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.mode = if flags & (libc::O_CREAT | libc::O_TMPFILE) == 0 {
        0
    } else {
        u64::from(mode)
    };
    how.resolve = resolve;
    let mut tries = 0;
    loop {
        // SAFETY: the path ends with NUL and the size is that of `how`.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                at,
                path.as_ptr(),
                &how,
                size_of::<libc::open_how>(),
            )
        };
        if fd >= 0 {
            // SAFETY: the kernel has just given it to us.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
        }
        let error = io::Error::last_os_error();
        tries += 1;
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) if tries < 1000 && resolve != 0 => {}
            _ => return Err(error),
        }
    }
}

/// openat of one name in an open directory; a link is not followed.
pub fn open_entry(at: RawFd, name: &CStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with NUL.
    let fd = check(unsafe {
        libc::openat(
            at,
            name.as_ptr(),
            flags | libc::O_NOFOLLOW | libc::O_CLOEXEC,
            mode,
        )
    })?;
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// fstatat of a name without following it.
pub fn stat_entry(at: RawFd, name: &CStr) -> io::Result<libc::stat> {
    stat_with(at, name, libc::AT_SYMLINK_NOFOLLOW)
}

pub fn stat_fd(fd: &impl AsRawFd) -> io::Result<libc::stat> {
    stat_with(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn stat_with(at: RawFd, name: &CStr, flags: i32) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the name ends with NUL and `stat` has room for the answer.
    check(unsafe { libc::fstatat(at, name.as_ptr(), stat.as_mut_ptr(), flags) })?;
    // SAFETY: the call succeeded, so the kernel has filled it.
    Ok(unsafe { stat.assume_init() })
}

pub fn is_type(stat: &libc::stat, kind: libc::mode_t) -> bool {
    stat.st_mode & libc::S_IFMT == kind
}

/// The target of a link, as it is written.
pub fn read_link(at: RawFd, name: &CStr) -> io::Result<Vec<u8>> {
    let mut target = vec![0; 4096];
    // SAFETY: the buffer is as long as is said.
    let length =
        unsafe { libc::readlinkat(at, name.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    target.truncate(length as usize);
    Ok(target)
}

pub fn make_directory(at: RawFd, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: the name ends with NUL.
    check(unsafe { libc::mkdirat(at, name.as_ptr(), mode) }).map(drop)
}

pub fn unlink(at: RawFd, name: &CStr, directory: bool) -> io::Result<()> {
    let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: the name ends with NUL.
    check(unsafe { libc::unlinkat(at, name.as_ptr(), flags) }).map(drop)
}

pub fn rename(from: RawFd, name: &CStr, to: RawFd, new: &CStr, flags: u32) -> io::Result<()> {
    // SAFETY: both names end with NUL.
    check(unsafe { libc::renameat2(from, name.as_ptr(), to, new.as_ptr(), flags) }).map(drop)
}

pub fn link(from: RawFd, name: &CStr, to: RawFd, new: &CStr, flags: i32) -> io::Result<()> {
    // SAFETY: both names end with NUL.
    check(unsafe { libc::linkat(from, name.as_ptr(), to, new.as_ptr(), flags) }).map(drop)
}

pub fn symlink(target: &CStr, at: RawFd, name: &CStr) -> io::Result<()> {
    // SAFETY: both strings end with NUL.
    check(unsafe { libc::symlinkat(target.as_ptr(), at, name.as_ptr()) }).map(drop)
}

pub fn make_fifo(at: RawFd, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: the name ends with NUL.
    check(unsafe { libc::mknodat(at, name.as_ptr(), libc::S_IFIFO | mode, 0) }).map(drop)
}

pub fn change_mode(fd: &impl AsRawFd, mode: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    check(unsafe { libc::fchmod(fd.as_raw_fd(), mode) }).map(drop)
}

/// Sets the time of the last change and leaves that of the last access. Seconds and nanoseconds.
pub fn set_modified(at: RawFd, name: Option<&CStr>, modified: (i64, i64)) -> io::Result<()> {
    let times = [
        libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        libc::timespec {
            tv_sec: modified.0,
            tv_nsec: modified.1,
        },
    ];
    let result = match name {
        // SAFETY: two times, and a name that ends with NUL.
        Some(name) => unsafe {
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            libc::utimensat(at, name.as_ptr(), times.as_ptr(), flags)
        },
        // SAFETY: two times.
        None => unsafe { libc::futimens(at, times.as_ptr()) },
    };
    check(result).map(drop)
}

/// Calls `each` with the name and d_type of every entry but `.` and `..`, in the order of the file system.
pub fn each_entry(
    directory: &impl AsRawFd,
    mut each: impl FnMut(&[u8], u8) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0u64; 4096];
    loop {
        // SAFETY: the buffer is as long as is said, and aligned for linux_dirent64.
        let length = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                directory.as_raw_fd(),
                buffer.as_mut_ptr(),
                buffer.len() * 8,
            )
        };
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the kernel has filled so many bytes of the buffer.
        let mut rest =
            unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), length as usize) };
        // linux_dirent64: u64 inode, i64 offset, u16 length of the record, u8 type, name, NUL.
        while rest.len() > 19 {
            let record = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
            if record < 20 || record > rest.len() {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            let name = &rest[19..record];
            let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
            let name = &name[..end];
            if name != b"." && name != b".." {
                each(name, rest[18])?;
            }
            rest = &rest[record..];
        }
    }
}

/// A random name that hides from a plain `ls`.
pub fn hidden_name() -> CString {
    let mut random = [0u8; 12];
    // SAFETY: the buffer is as long as is said; so few bytes are given whole.
    unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    let mut name = String::from(".dsec-");
    for byte in random {
        name.push_str(&format!("{byte:02x}"));
    }
    CString::new(name).expect("hexadecimal digits")
}
