//! The root of a sandbox: layers below a writable directory, as a detached mount.

use crate::scratch::Scratch;
use crate::sys;
use std::io::Result;
use std::os::fd::{AsRawFd, OwnedFd};

/// Options of every overlay; both directories are added. Nothing here outlives the node's crash, so an fsync inside need
/// not reach the disk and hold up neighbours (volatile).
const OPTIONS: [(&str, &str); 3] = [
    ("redirect_dir", "off"),
    ("metacopy", "off"),
    ("index", "off"),
];

fn path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// `lowers`: detached mounts, the uppermost first.
pub fn detached(lowers: &[OwnedFd], upper: &OwnedFd, work: &OwnedFd) -> Result<OwnedFd> {
    const NODEV: u64 = 0x4;
    let context = sys::fsopen("overlay")?;
    for lower in lowers {
        sys::fsconfig_set(&context, "lowerdir+", &path(lower))?;
    }
    sys::fsconfig_set(&context, "upperdir", &path(upper))?;
    sys::fsconfig_set(&context, "workdir", &path(work))?;
    for (key, value) in OPTIONS {
        sys::fsconfig_set(&context, key, value)?;
    }
    sys::fsconfig_flag(&context, "volatile")?;
    sys::fsconfig_mount(&context, NODEV)
}

/// The same for kernels before 6.15: the layers are attached below `name` of the scratch while the overlay is mounted,
/// which keeps copies of its own. `upper` and `work` are attached already.
pub fn attached(
    scratch: &Scratch,
    name: &str,
    lowers: Vec<OwnedFd>,
    upper: &OwnedFd,
    work: &OwnedFd,
) -> Result<OwnedFd> {
    scratch.place(name)?;
    let places: Vec<String> = (0..lowers.len()).map(|at| format!("{name}/{at}")).collect();
    let root = format!("{name}/root");
    let made = (|| {
        for (lower, place) in lowers.iter().zip(&places) {
            scratch.attach(lower, place)?;
        }
        scratch.place(&root)?;
        // fsconfig takes strings of 255 bytes, and lowerdir+ came with Linux 6.8: so by mount(2), with a page of options.
        let mut options = format!(
            "lowerdir={},upperdir={},workdir={},volatile",
            lowers.iter().map(path).collect::<Vec<_>>().join(":"),
            path(upper),
            path(work)
        );
        for (key, value) in OPTIONS {
            options += &format!(",{key}={value}");
        }
        let target = scratch.path(&root);
        sys::mount("overlay", &target, "overlay", libc::MS_NODEV, &options)?;
        scratch.take(&root)
    })();
    for place in &places {
        let _ = scratch.detach(place);
    }
    made
}
