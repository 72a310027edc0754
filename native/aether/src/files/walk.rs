//! Walking down a tree of any depth with a bounded number of open descriptors. Directories further up are closed
//! and opened again through `..`, after a check that it still is the same directory.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::sys;

const MAX_OPEN: usize = 64;

/// The directories from the top of a walk down to the present one.
pub struct Descent {
    /// Device and inode of every level.
    levels: Vec<(u64, u64)>,
    /// The lowest levels, still open.
    open: VecDeque<OwnedFd>,
}

impl Descent {
    pub fn new(top: OwnedFd) -> io::Result<Self> {
        let stat = sys::stat_fd(&top)?;
        Ok(Self {
            levels: vec![(stat.st_dev, stat.st_ino)],
            open: VecDeque::from([top]),
        })
    }

    pub fn here(&self) -> BorrowedFd<'_> {
        self.open.back().expect("a level is open").as_fd()
    }

    /// Goes into a directory that was opened below the present one.
    pub fn enter(&mut self, child: OwnedFd, stat: &libc::stat) {
        self.levels.push((stat.st_dev, stat.st_ino));
        self.open.push_back(child);
        if self.open.len() > MAX_OPEN {
            self.open.pop_front();
        }
    }

    /// Goes back up; false at the top. ESTALE where the directory was moved away meanwhile.
    pub fn leave(&mut self) -> io::Result<bool> {
        if self.levels.len() == 1 {
            return Ok(false);
        }
        if self.open.len() == 1 {
            let parent = open_directory(self.here().as_raw_fd(), c"..")?;
            let stat = sys::stat_fd(&parent)?;
            if (stat.st_dev, stat.st_ino) != self.levels[self.levels.len() - 2] {
                return Err(io::Error::from_raw_os_error(libc::ESTALE));
            }
            self.open.push_front(parent);
        }
        self.levels.pop();
        self.open.pop_back();
        Ok(true)
    }
}

/// Opens a directory to read its entries; ELOOP or ENOTDIR for a link.
pub fn open_directory(at: i32, name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    sys::open_entry(at, name, libc::O_RDONLY | libc::O_DIRECTORY, 0)
}

/// Removes all that is in a directory. Nothing is followed; entries made meanwhile go too. On an error the name of
/// what could not be removed comes with it.
pub fn remove_contents(top: OwnedFd) -> Result<(), (io::Error, CString)> {
    let plain = |e| (e, CString::default());
    let mut descent = Descent::new(top).map_err(plain)?;
    // The name of each level below the top, in the one above.
    let mut names: Vec<CString> = Vec::new();
    'directory: loop {
        // Read anew each time: a directory is small again after what could go has gone.
        let at = descent.here().as_raw_fd();
        let reading = open_directory(at, c".").map_err(plain)?;
        let mut below = None;
        sys::each_entry(&reading, |name, kind| {
            let name = sys::c_string(name)?;
            if kind != libc::DT_DIR {
                match sys::unlink(at, &name, false) {
                    Ok(()) => return Ok(()),
                    Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
                    Err(e) if e.raw_os_error() != Some(libc::EISDIR) => {
                        below = Some(name);
                        return Err(e);
                    }
                    Err(_) => {}
                }
            }
            // An empty directory goes without a descent.
            match sys::unlink(at, &name, true) {
                Ok(()) => Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                Err(e) => {
                    let full = matches!(e.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST));
                    below = Some(name);
                    // Stops the reading: this one is entered, or cannot go.
                    Err(if full {
                        io::Error::from_raw_os_error(libc::ENOTEMPTY)
                    } else {
                        e
                    })
                }
            }
        })
        .or_else(|e| match e.raw_os_error() {
            Some(libc::ENOTEMPTY) => Ok(()),
            _ => Err((e, below.clone().unwrap_or_default())),
        })?;
        if let Some(name) = below {
            let child = open_directory(at, &name).map_err(|e| (e, name.clone()))?;
            let stat = sys::stat_fd(&child).map_err(plain)?;
            descent.enter(child, &stat);
            names.push(name);
            continue;
        }
        // This level is empty: remove it from the one above, and go on there.
        let Some(name) = names.pop() else {
            return Ok(());
        };
        descent.leave().map_err(|e| (e, name.clone()))?;
        match sys::unlink(descent.here().as_raw_fd(), &name, true) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            // Something was made in it meanwhile: it is met again.
            Err(e) if e.raw_os_error() == Some(libc::ENOTEMPTY) => continue 'directory,
            Err(e) => return Err((e, name)),
        }
    }
}
