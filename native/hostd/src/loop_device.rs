//! Loop devices, which go by themselves with their last user.

use crate::sys;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};

/// The loop device of the file: the one it has, or a new one, read-only where the file was opened so. Keep the descriptor
/// until the file system is mounted.
pub fn attach(file: &OwnedFd, direct_io: bool) -> Result<(String, OwnedFd)> {
    const LOOP_CTL_GET_FREE: u64 = 0x4c82;
    const LOOP_CONFIGURE: u64 = 0x4c0a;
    if let Some(found) = attached(file)? {
        return Ok(found);
    }
    let control = sys::open_at(libc::AT_FDCWD, "/dev/loop-control", libc::O_RDWR, 0)?;
    for _ in 0..64 {
        // SAFETY: this request takes no argument.
        let number = sys::check(i64::from(unsafe {
            libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _)
        }))?;
        let path = format!("/dev/loop{number}");
        let device = sys::open_at(libc::AT_FDCWD, &path, libc::O_RDWR, 0)?;
        // struct loop_config: fd, block size, struct loop_info64 (flags at its byte 52), reserved.
        let mut config = [0u8; 304];
        config[..4].copy_from_slice(&file.as_raw_fd().to_ne_bytes());
        config[4..8].copy_from_slice(&4096u32.to_ne_bytes());
        const AUTOCLEAR: u32 = 4;
        const DIRECT_IO: u32 = 16;
        let flags = AUTOCLEAR | if direct_io { DIRECT_IO } else { 0 };
        config[60..64].copy_from_slice(&flags.to_ne_bytes());
        match ioctl(&device, LOOP_CONFIGURE, config.as_mut_ptr().cast()) {
            Ok(()) => return Ok((path, device)),
            // Somebody else took it in between.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => continue,
            Err(error) => return Err(error),
        }
    }
    Err(Error::from_raw_os_error(libc::EBUSY))
}

fn attached(file: &OwnedFd) -> Result<Option<(String, OwnedFd)>> {
    const LOOP_GET_STATUS64: u64 = 0x4c05;
    // SAFETY: stat is plain data.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: outlives the call.
    sys::check(i64::from(unsafe {
        libc::fstat(file.as_raw_fd(), &mut stat)
    }))?;
    for entry in std::fs::read_dir("/sys/block")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("loop") || !entry.path().join("loop").exists() {
            continue;
        }
        let path = format!("/dev/{name}");
        // A read-only one cannot be opened for writing.
        let Ok(device) = sys::open_at(libc::AT_FDCWD, &path, libc::O_RDONLY, 0) else {
            continue;
        };
        // struct loop_info64: device and inode first.
        let mut info = [0u64; 29];
        if ioctl(&device, LOOP_GET_STATUS64, info.as_mut_ptr().cast()).is_ok()
            && info[0] == stat.st_dev
            && info[1] == stat.st_ino
        {
            return Ok(Some((path, device)));
        }
    }
    Ok(None)
}

fn ioctl(fd: &OwnedFd, request: u64, argument: *mut libc::c_void) -> Result<()> {
    // SAFETY: both callers pass the structure that the request is for.
    sys::check(i64::from(unsafe {
        libc::ioctl(fd.as_raw_fd(), request as _, argument)
    }))
    .map(drop)
}
