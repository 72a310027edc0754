//! Moving by copying, where the kernel does not rename: to another file system, or a directory of a read-only layer.
//! The copy is made under a hidden name beside its place and takes it at once; then the old one is removed.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use super::entries::remove_place;
use super::failure::{errno, quoted, Failure, Outcome};
use super::path::Place;
use super::walk::{self, Descent};
use super::{sys, xattr};

pub fn move_by_copy(
    from: &Place,
    to: &Place,
    overwrite: bool,
    from_path: &[u8],
    to_path: &[u8],
) -> Outcome<()> {
    let asked = format!("move {} to", quoted(from_path));
    let told = |e: io::Error| match errno(&e) {
        libc::EINVAL => {
            let wrong = "a directory cannot be moved into itself";
            Failure::of("FILE_FAILED", &asked, to_path, wrong)
        }
        _ => Failure::os(&asked, to_path, &e),
    };
    if !overwrite && sys::stat_entry(to.at(), &to.name).is_ok() {
        return Err(told(io::Error::from_raw_os_error(libc::EEXIST)));
    }
    let hidden = Place {
        parent: to.parent.try_clone().map_err(told)?,
        name: sys::hidden_name(),
    };
    let flags = if overwrite { 0 } else { libc::RENAME_NOREPLACE };
    let result = Copier::default()
        .copy(from, &hidden)
        .and_then(|()| sys::rename(hidden.at(), &hidden.name, to.at(), &to.name, flags));
    if let Err(e) = result {
        let _ = remove_place(&hidden, true);
        return Err(told(e));
    }
    remove_place(from, true).map_err(|(e, _)| {
        let asked = format!("moved to {}; remove the old", quoted(to_path));
        Failure::os(&asked, from_path, &e)
    })
}

#[derive(Default)]
struct Copier {
    /// Files with several names: device and inode → the copy's path below the top of the copy.
    first_names: HashMap<(u64, u64), Vec<u8>>,
    /// The copy's own top, which the walk must not meet.
    copy_top: Option<(u64, u64)>,
}

struct Level {
    names: Vec<CString>,
    stat: libc::stat,
    path: Vec<u8>,
}

impl Copier {
    fn copy(&mut self, from: &Place, to: &Place) -> io::Result<()> {
        let stat = sys::stat_entry(from.at(), &from.name)?;
        if !sys::is_type(&stat, libc::S_IFDIR) {
            return self.copy_entry(from.at(), &from.name, to.at(), &to.name, &stat);
        }
        let source = walk::open_directory(from.at(), &from.name)?;
        sys::make_directory(to.at(), &to.name, 0o700)?;
        let copy = walk::open_directory(to.at(), &to.name)?;
        let made = sys::stat_fd(&copy)?;
        self.copy_top = Some((made.st_dev, made.st_ino));
        let top = copy.try_clone()?;
        let mut levels = vec![Level {
            names: names_of(&source)?,
            stat,
            path: Vec::new(),
        }];
        let mut from = Descent::new(source)?;
        let mut to = Descent::new(copy)?;
        while let Some(level) = levels.last_mut() {
            let (at, new_at) = (from.here().as_raw_fd(), to.here().as_raw_fd());
            let Some(name) = level.names.pop() else {
                keep(&from.here(), &to.here(), &level.stat)?;
                levels.pop();
                from.leave()?;
                to.leave()?;
                continue;
            };
            let stat = match sys::stat_entry(at, &name) {
                Err(e) if errno(&e) == libc::ENOENT => continue,
                result => result?,
            };
            let path = [&level.path, name.as_bytes()].concat();
            if sys::is_type(&stat, libc::S_IFDIR) {
                let child = walk::open_directory(at, &name)?;
                let stat = sys::stat_fd(&child)?;
                if self.copy_top == Some((stat.st_dev, stat.st_ino)) {
                    return Err(io::Error::from_raw_os_error(libc::EINVAL));
                }
                sys::make_directory(new_at, &name, 0o700)?;
                let copy = walk::open_directory(new_at, &name)?;
                levels.push(Level {
                    names: names_of(&child)?,
                    stat,
                    path: [&path, b"/".as_slice()].concat(),
                });
                from.enter(child, &stat);
                let made = sys::stat_fd(&copy)?;
                to.enter(copy, &made);
                continue;
            }
            if stat.st_nlink > 1 {
                let inode = (stat.st_dev, stat.st_ino);
                if let Some(first) = self.first_names.get(&inode) {
                    let first = sys::c_string(first)?;
                    sys::link(top.as_raw_fd(), &first, new_at, &name, 0)?;
                    continue;
                }
                // A path that is too long for one call is copied again instead of linked.
                if path.len() < 4096 {
                    self.first_names.insert(inode, path);
                }
            }
            self.copy_entry(at, &name, new_at, &name, &stat)?;
        }
        Ok(())
    }

    fn copy_entry(
        &self,
        at: RawFd,
        name: &CStr,
        new_at: RawFd,
        new: &CStr,
        stat: &libc::stat,
    ) -> io::Result<()> {
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => {
                let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
                let mut old = File::from(sys::open_entry(at, name, flags, 0)?);
                let stat = sys::stat_fd(&old)?;
                if !sys::is_type(&stat, libc::S_IFREG) {
                    return Err(io::Error::from_raw_os_error(libc::ESTALE));
                }
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
                let mut copy = File::from(sys::open_entry(new_at, new, flags, 0o600)?);
                io::copy(&mut old, &mut copy)?;
                return keep(&old, &copy, &stat);
            }
            libc::S_IFLNK => {
                let target = sys::c_string(&sys::read_link(at, name)?)?;
                sys::symlink(&target, new_at, new)?;
            }
            kind => {
                // SAFETY: the name ends with NUL.
                sys::check(unsafe {
                    libc::mknodat(new_at, new.as_ptr(), kind | 0o600, stat.st_rdev)
                })?;
                // SAFETY: the name ends with NUL.
                sys::check(unsafe {
                    libc::fchmodat(new_at, new.as_ptr(), stat.st_mode & 0o7777, 0)
                })?;
            }
        }
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        // Only root gives files away; another user's copy is the user's own, as with mv.
        // SAFETY: the name ends with NUL.
        unsafe { libc::fchownat(new_at, new.as_ptr(), stat.st_uid, stat.st_gid, flags) };
        sys::set_modified(new_at, Some(new), (stat.st_mtime, stat.st_mtime_nsec))
    }
}

/// Owner where this user may give it, mode, attributes and time.
fn keep(old: &impl AsRawFd, copy: &impl AsRawFd, stat: &libc::stat) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    let given = unsafe { libc::fchown(copy.as_raw_fd(), stat.st_uid, stat.st_gid) } == 0;
    // Bits of set-user-ID go with their owner alone.
    let mask = if given { 0o7777 } else { 0o1777 };
    sys::change_mode(copy, stat.st_mode & mask)?;
    xattr::write(copy, &xattr::read(old))?;
    sys::set_modified(copy.as_raw_fd(), None, (stat.st_mtime, stat.st_mtime_nsec))
}

fn names_of(directory: &impl AsRawFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    sys::each_entry(directory, |name, _| {
        names.push(sys::c_string(name)?);
        Ok(())
    })?;
    Ok(names)
}
