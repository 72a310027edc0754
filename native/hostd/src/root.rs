//! A mount namespace of hostd's own, whose root is hostd's root.

use crate::fault::{Outcome, Step};
use crate::sys;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Enters a new mount namespace in which nothing propagates. From a chroot, where the kernel makes no user namespaces, the
/// chroot's directory becomes the root of the new namespace, and what lies outside it is let go.
pub fn own_mounts() -> Outcome<()> {
    sys::unshare(libc::CLONE_NEWNS).step("unshare the mount namespace")?;
    // Only now: a directory of the old namespace cannot be mounted here.
    let here = File::open("/").step("open the root")?;
    let namespace = File::open("/proc/self/ns/mnt").step("open the mount namespace")?;
    // SAFETY: an open descriptor and a flag. Entering the namespace that we are in makes its root ours.
    let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS) };
    sys::check(i64::from(entered)).step("take the namespace's root")?;
    sys::mount("", "/", "", libc::MS_REC | libc::MS_PRIVATE, "").step("make mounts private")?;
    let (top, ours) = (
        std::fs::metadata("/").step("look at the namespace's root")?,
        here.metadata().step("look at our root")?,
    );
    if (top.dev(), top.ino()) == (ours.dev(), ours.ino()) {
        return Ok(());
    }
    change_root(&here)
}

/// Makes `root`, a directory, the root of this mount namespace.
fn change_root(root: &File) -> Outcome<()> {
    const CLONE_ALL: u32 =
        1 | libc::O_CLOEXEC as u32 | libc::AT_EMPTY_PATH as u32 | libc::AT_RECURSIVE as u32;
    let dot = c".".as_ptr();
    // SAFETY: constant strings and open descriptors; the descriptor that open_tree makes is ours alone.
    unsafe {
        let copy = libc::syscall(
            libc::SYS_open_tree,
            root.as_raw_fd(),
            c"".as_ptr(),
            CLONE_ALL,
        );
        let copy = OwnedFd::from_raw_fd(sys::check(copy).step("copy the tree")? as i32);
        sys::check(i64::from(libc::fchdir(root.as_raw_fd()))).step("go to our root")?;
        sys::move_mount(&copy, ".").step("mount the copy")?;
        sys::check(i64::from(libc::fchdir(copy.as_raw_fd()))).step("go to the copy")?;
        sys::check(libc::syscall(libc::SYS_pivot_root, dot, dot)).step("pivot_root")?;
        sys::check(i64::from(libc::umount2(dot, libc::MNT_DETACH))).step("let the rest go")?;
        sys::check(i64::from(libc::chdir(c"/".as_ptr()))).step("chdir to /")?;
    }
    Ok(())
}
