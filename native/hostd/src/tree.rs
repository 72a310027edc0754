//! Directories that a sandbox filled: listed and removed without following a link, without recursion.

use crate::sys;
use std::ffi::CStr;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

/// Names in a directory but . and .., those that are UTF-8 alone (for directories that are ours).
pub fn names(dir: &OwnedFd) -> Result<Vec<String>> {
    let mut found = Vec::new();
    each(dir, |name, _| {
        if let Ok(name) = name.to_str() {
            found.push(name.to_string());
        }
        true
    })?;
    Ok(found)
}

/// Calls `seen(name, is a directory)` until it says false.
fn each(dir: &OwnedFd, mut seen: impl FnMut(&CStr, bool) -> bool) -> Result<()> {
    // An open description of its own, so that reading starts at the beginning.
    let own = sys::open_dir(dir.as_raw_fd(), ".")?;
    // SAFETY: the descriptor is given to the stream, which closes it.
    let stream = unsafe { libc::fdopendir(own.into_raw_fd()) };
    if stream.is_null() {
        return Err(Error::last_os_error());
    }
    loop {
        // SAFETY: the stream is open.
        let entry = unsafe { libc::readdir(stream) };
        if entry.is_null() {
            break;
        }
        // SAFETY: the entry is valid until the next readdir.
        let (name, kind) = unsafe { (CStr::from_ptr((*entry).d_name.as_ptr()), (*entry).d_type) };
        if name != c"." && name != c".." && !seen(name, kind == libc::DT_DIR) {
            break;
        }
    }
    // SAFETY: closed once.
    unsafe { libc::closedir(stream) };
    Ok(())
}

/// Removes what is below `dir`, at most `budget` entries. False: there is more than that.
pub fn empty(dir: &OwnedFd, budget: &mut usize) -> Result<bool> {
    // A stack of open directories, bounded: who nests deeper is removed as a whole subvolume.
    let mut stack = vec![dir.try_clone()?];
    while let Some(top) = stack.last() {
        let mut below = None;
        let mut failed = None;
        let fd = top.as_raw_fd();
        each(top, |name, is_dir| {
            if *budget == 0 {
                return false;
            }
            // SAFETY: name is NUL-terminated.
            let result = unsafe {
                libc::unlinkat(
                    fd,
                    name.as_ptr(),
                    if is_dir { libc::AT_REMOVEDIR } else { 0 },
                )
            };
            let error = Error::last_os_error();
            match (result, error.raw_os_error()) {
                (0, _) => *budget -= 1,
                (_, Some(libc::ENOTEMPTY | libc::EEXIST)) => {
                    below = Some(name.to_owned());
                    return false;
                }
                _ => failed = Some(error),
            }
            failed.is_none()
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if *budget == 0 || stack.len() > 100 {
            return Ok(false);
        }
        match below {
            Some(name) => {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
                // SAFETY: name is NUL-terminated.
                let result = unsafe { libc::openat(fd, name.as_ptr(), flags) };
                let child = sys::check(i64::from(result))? as i32;
                // SAFETY: just opened, ours alone.
                stack.push(unsafe { std::os::fd::FromRawFd::from_raw_fd(child) });
            }
            None => {
                stack.pop();
            }
        }
    }
    Ok(true)
}
