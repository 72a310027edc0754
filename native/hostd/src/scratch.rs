//! Places for mounts in hostd's own mount namespace, for kernels before 6.15: there an overlay takes only layers that are
//! mounted somewhere in its mounter's namespace, and only such mounts can be copied.

use crate::config::forced;
use crate::fault::{Outcome, Step};
use crate::sys;
use std::io::Result;
use std::os::fd::{AsRawFd, OwnedFd};

pub struct Scratch {
    /// Root of a tmpfs that nobody but hostd and its forks see.
    root: OwnedFd,
}

impl Scratch {
    /// None where the kernel takes detached mounts, which cost less: tried once. `dir` is root's own.
    pub fn open_if_needed(dir: &OwnedFd) -> Outcome<Option<Self>> {
        if !forced("attached-mounts") && crate::probe::detached_overlay().is_ok() {
            return Ok(None);
        }
        Self::open(dir).map(Some)
    }

    pub fn open(dir: &OwnedFd) -> Outcome<Self> {
        const NOSUID_NODEV_NOEXEC: u64 = 0x2 | 0x4 | 0x8;
        sys::ensure_dir_at(dir.as_raw_fd(), "mounts", 0o700).step("make a place for mounts")?;
        let place = sys::open_dir(dir.as_raw_fd(), "mounts").step("open the place for mounts")?;
        let mount = sys::fsconfig_mount(
            &sys::fsopen("tmpfs").step("fsopen tmpfs")?,
            NOSUID_NODEV_NOEXEC,
        )
        .step("mount a tmpfs")?;
        sys::move_mount(&mount, &format!("/proc/self/fd/{}/.", place.as_raw_fd()))
            .step("attach the tmpfs")?;
        let root = sys::open_dir(mount.as_raw_fd(), ".").step("open the tmpfs")?;
        Ok(Self { root })
    }

    /// Lets go of it and of all that is attached in it.
    pub fn close(self) -> Result<()> {
        self.detach(".")
    }

    /// A place by its path, which may be used while this lives.
    pub fn path(&self, name: &str) -> String {
        format!("/proc/self/fd/{}/{name}", self.root.as_raw_fd())
    }

    /// Makes a directory, or takes one that is left; nothing is mounted on it after.
    pub fn place(&self, name: &str) -> Result<()> {
        if sys::mkdir_at(self.root.as_raw_fd(), name, 0o700).is_err() {
            while self.detach(name).is_ok() {}
        }
        Ok(())
    }

    /// Attaches a detached mount.
    pub fn attach(&self, mount: &OwnedFd, name: &str) -> Result<()> {
        self.place(name)?;
        sys::move_mount(mount, &self.path(name))
    }

    pub fn detach(&self, name: &str) -> Result<()> {
        let path = sys::cstr(&self.path(name))?;
        // SAFETY: the path outlives the call.
        sys::check(i64::from(unsafe {
            libc::umount2(path.as_ptr(), libc::MNT_DETACH)
        }))
        .map(drop)
    }

    /// A detached copy of what is mounted there, which is then detached itself.
    pub fn take(&self, name: &str) -> Result<OwnedFd> {
        let attached = sys::open_dir(self.root.as_raw_fd(), name)?;
        let copy = sys::clone_mount(&attached);
        self.detach(name)?;
        copy
    }
}
