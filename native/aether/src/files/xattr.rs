//! Extended attributes that travel with a file: those of users, and capabilities.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;

use super::sys;

/// Name without NUL, value.
pub type Attribute = (Vec<u8>, Vec<u8>);

pub fn travels(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == b"security.capability"
}

/// Those of an open file, sorted; none where the file system has none or this user may not read them.
pub fn read(file: &impl AsRawFd) -> Vec<Attribute> {
    let fd = file.as_raw_fd();
    // SAFETY: a size of 0 asks for the size alone.
    let size = unsafe { libc::flistxattr(fd, std::ptr::null_mut(), 0) };
    if size <= 0 {
        return Vec::new();
    }
    let mut names = vec![0u8; size as usize];
    // SAFETY: the buffer is as long as is said.
    let size = unsafe { libc::flistxattr(fd, names.as_mut_ptr().cast(), names.len()) };
    if size <= 0 {
        return Vec::new();
    }
    names.truncate(size as usize);
    let mut found = Vec::new();
    for name in names.split_inclusive(|&b| b == 0) {
        let Ok(c_name) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        if travels(c_name.to_bytes()) {
            if let Some(value) = value(fd, c_name) {
                found.push((c_name.to_bytes().to_vec(), value));
            }
        }
    }
    found.sort_unstable();
    found
}

fn value(fd: i32, name: &CStr) -> Option<Vec<u8>> {
    // The kernel's own limit of a value.
    let mut value = vec![0u8; 64 << 10];
    // SAFETY: the name ends with NUL and the buffer is as long as is said.
    let size =
        unsafe { libc::fgetxattr(fd, name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(size).ok()?);
    Some(value)
}

/// Sets what can be set here: a file system without attributes, or a user who may not, leaves them out.
pub fn write(file: &impl AsRawFd, attributes: &[Attribute]) -> io::Result<()> {
    for (name, value) in attributes {
        let name = sys::c_string(name)?;
        // SAFETY: the name ends with NUL and the value is as long as is said.
        let result = unsafe {
            libc::fsetxattr(
                file.as_raw_fd(),
                name.as_ptr(),
                value.as_ptr().cast(),
                value.len(),
                0,
            )
        };
        match sys::check(result) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) => {
                return Err(e)
            }
            _ => {}
        }
    }
    Ok(())
}
