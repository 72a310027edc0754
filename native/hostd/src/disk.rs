//! Writable space: one btrfs file an edge, mounted nowhere (a detached mount), a subvolume and quota group a slot.
//!
//! A hostd that starts again finds the loop device of the file and mounts it again; the kernel gives the same file
//! system as long as a sandbox uses it. The loop device goes by itself with its last user.

use crate::fault::{Outcome, Step};
use crate::scratch::Scratch;
use crate::{loop_device, sys, tree};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;

pub struct Disk {
    /// Keeps the detached mount; closing it would dissolve the mount.
    mount: Option<OwnedFd>,
    root: OwnedFd,
    /// Limits hold; else it is a plain directory.
    pub limited: bool,
}

/// Entries that are removed one by one; a slot with more gets a new subvolume.
const REMOVE_ONE_BY_ONE: usize = 4000;

const IOW: u64 = 1 << 30;
const IOR: u64 = 2 << 30;
const fn btrfs(direction: u64, size: u64, number: u64) -> u64 {
    direction | size << 16 | 0x94 << 8 | number
}
const SUBVOL_CREATE: u64 = btrfs(IOW, 4096, 14);
const SNAP_DESTROY: u64 = btrfs(IOW, 4096, 15);
const TREE_SEARCH: u64 = btrfs(IOR | IOW, 4096, 17);
const INO_LOOKUP: u64 = btrfs(IOR | IOW, 4096, 18);
const QUOTA_CTL: u64 = btrfs(IOR | IOW, 16, 40);
const QGROUP_LIMIT: u64 = btrfs(IOR, 48, 43);
const QGROUP_CREATE: u64 = btrfs(IOW, 16, 42);

fn ioctl<T>(fd: &OwnedFd, request: u64, argument: &mut T) -> Result<()> {
    // SAFETY: each caller passes the structure (by size in the request) that the request is for.
    sys::check(i64::from(unsafe {
        libc::ioctl(fd.as_raw_fd(), request as _, argument as *mut T)
    }))
    .map(drop)
}

/// struct btrfs_ioctl_vol_args: fd, name.
fn volume_args(name: &str) -> [u8; 4096] {
    let mut args = [0u8; 4096];
    args[8..8 + name.len()].copy_from_slice(name.as_bytes());
    args
}

impl Disk {
    /// `dir`: DATA/edges/<edge>, as descriptor and path. `missing` gets what could not be had.
    pub fn open(dir: &OwnedFd, path: &Path, missing: &mut Vec<String>) -> Outcome<Self> {
        match open_btrfs(&path.join("upper.btrfs")) {
            Ok((mount, root)) => Ok(Self {
                mount: Some(mount),
                root,
                limited: true,
            }),
            Err(error) => {
                missing.push(format!("disk limits: {error}"));
                sys::ensure_dir_at(dir.as_raw_fd(), "upper", 0o700)
                    .step("make the upper directory")?;
                let root =
                    sys::open_dir(dir.as_raw_fd(), "upper").step("open the upper directory")?;
                Ok(Self {
                    mount: None,
                    root,
                    limited: false,
                })
            }
        }
    }

    /// A directory beside the slots', where no limit counts. Here and not in DATA, since ext4 takes several times as
    /// long to make a file where many were just removed.
    pub fn records(&self) -> Result<OwnedFd> {
        sys::ensure_dir_at(self.root.as_raw_fd(), "records", 0o711)?;
        sys::open_dir(self.root.as_raw_fd(), "records")
    }

    /// Mounts it in hostd's namespace, for kernels whose overlays ask for that.
    pub fn attach(&self, scratch: &Scratch) -> Result<()> {
        match &self.mount {
            Some(mount) => scratch.attach(mount, "upper"),
            None => Ok(()),
        }
    }

    /// Slots that have a directory.
    pub fn slots(&self) -> Vec<u32> {
        tree::names(&self.root)
            .unwrap_or_default()
            .iter()
            .filter_map(|name| name.strip_prefix('s')?.parse().ok())
            .collect()
    }

    /// The slot's directory with an empty `upper` (owned by `root_id`) and `work`; made where it is missing.
    pub fn slot(&self, slot: u32, root_id: u32) -> Result<OwnedFd> {
        let name = format!("s{slot}");
        let dir = match sys::open_dir(self.root.as_raw_fd(), &name) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => self.make(&name)?,
            other => other?,
        };
        // As a rule the cleaner left it ready.
        if sys::open_dir(dir.as_raw_fd(), "upper").is_err() {
            fill(&dir, root_id)?;
        }
        Ok(dir)
    }

    fn make(&self, name: &str) -> Result<OwnedFd> {
        if self.limited {
            ioctl(&self.root, SUBVOL_CREATE, &mut volume_args(name))?;
        } else {
            sys::mkdir_at(self.root.as_raw_fd(), name, 0o700)?;
        }
        sys::open_dir(self.root.as_raw_fd(), name)
    }

    pub fn limit(&self, dir: &OwnedFd, bytes: u64) -> Result<()> {
        if !self.limited {
            return Ok(());
        }
        const MAX_RFER: u64 = 1;
        // qgroupid 0 is the descriptor's own subvolume.
        let mut args: [u64; 6] = [0, MAX_RFER, bytes, 0, 0, 0];
        match ioctl(dir, QGROUP_LIMIT, &mut args) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                let mut create: [u64; 2] = [1, subvolume_id(dir)?];
                ioctl(&self.root, QGROUP_CREATE, &mut create)?;
                ioctl(dir, QGROUP_LIMIT, &mut args)
            }
            other => other,
        }
    }

    /// Bytes of the slot as of the file system's last commit; 0 where there are no quotas.
    pub fn usage(&self, slot: u32) -> u64 {
        if !self.limited {
            return 0;
        }
        sys::open_dir(self.root.as_raw_fd(), &format!("s{slot}"))
            .and_then(|dir| self.referenced(&dir))
            .unwrap_or(0)
    }

    /// Whether the slot's space refuses 64 KiB more. The quota's own count lags behind what is reserved, so it is tried.
    pub fn is_full(&self, slot: u32) -> bool {
        const PIECE: libc::off_t = 64 * 1024;
        if !self.limited {
            return false;
        }
        let Ok(dir) = sys::open_dir(self.root.as_raw_fd(), &format!("s{slot}")) else {
            return false;
        };
        // SAFETY: plain calls on a directory that is open; the nameless file goes with its descriptor.
        unsafe {
            let flags = libc::O_TMPFILE | libc::O_WRONLY | libc::O_CLOEXEC;
            let fd = libc::openat(dir.as_raw_fd(), c".".as_ptr(), flags, 0o600);
            let made = fd >= 0 && libc::fallocate(fd, 0, 0, PIECE) == 0;
            let error = std::io::Error::last_os_error().raw_os_error();
            if fd >= 0 {
                libc::close(fd);
            }
            !made && matches!(error, Some(libc::EDQUOT | libc::ENOSPC))
        }
    }

    fn referenced(&self, dir: &OwnedFd) -> Result<u64> {
        const QUOTA_TREE: u64 = 8;
        const QGROUP_INFO: u64 = 242;
        let id = subvolume_id(dir)?;
        // struct btrfs_ioctl_search_args: tree, objectid from and to, offset from and to, transid from and to,
        // type from and to (u32 each), number of items.
        let mut args = [0u64; 512];
        args[..9].copy_from_slice(&[
            QUOTA_TREE,
            0,
            0,
            id,
            id,
            0,
            u64::MAX,
            QGROUP_INFO | QGROUP_INFO << 32,
            1,
        ]);
        ioctl(&self.root, TREE_SEARCH, &mut args)?;
        // After 13 words of key: transid, objectid, offset, type and length, then generation and referenced bytes.
        Ok(if args[8] as u32 == 1 {
            args[13 + 4 + 1]
        } else {
            0
        })
    }

    /// Removes what the last user wrote and leaves the slot ready for the next.
    pub fn clean(&self, slot: u32, root_id: u32) -> Result<()> {
        let name = format!("s{slot}");
        let dir = match sys::open_dir(self.root.as_raw_fd(), &name) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            other => other?,
        };
        let mut budget = if self.limited {
            REMOVE_ONE_BY_ONE
        } else {
            usize::MAX
        };
        if !tree::empty(&dir, &mut budget)? {
            drop(dir);
            if !self.limited {
                return Err(Error::from_raw_os_error(libc::ENOTEMPTY));
            }
            ioctl(&self.root, SNAP_DESTROY, &mut volume_args(&name))?;
            return Ok(());
        }
        fill(&dir, root_id)
    }

    pub fn sync(&self) {
        // SAFETY: plain descriptor.
        unsafe { libc::syncfs(self.root.as_raw_fd()) };
    }
}

/// Makes `upper` with what every sandbox has in it, whole or not at all. An upper directory that exists in a layer too is
/// merged with it.
fn fill(dir: &OwnedFd, root_id: u32) -> Result<()> {
    let dir = dir.as_raw_fd();
    for (path, mode) in [("work", 0o755), ("fresh", 0o755), ("fresh/etc", 0o755)] {
        sys::ensure_dir_at(dir, path, mode)?;
    }
    let resolv = b"# Only loopback here.\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n";
    sys::create_at(dir, "fresh/etc/resolv.conf", 0o644, resolv)?;
    for path in ["fresh", "fresh/etc", "fresh/etc/resolv.conf"] {
        sys::chown_at(dir, path, root_id, root_id)?;
    }
    sys::rename_at(dir, "fresh", "upper")
}

fn subvolume_id(dir: &OwnedFd) -> Result<u64> {
    const FIRST_FREE_OBJECTID: u64 = 256;
    let mut args = [0u64; 512];
    args[1] = FIRST_FREE_OBJECTID;
    ioctl(dir, INO_LOOKUP, &mut args)?;
    Ok(args[0])
}

/// The mount, and its root directory opened for use (a mount's own descriptor is O_PATH).
fn open_btrfs(file: &Path) -> std::result::Result<(OwnedFd, OwnedFd), String> {
    let said = |what: &str, error: Error| format!("{what}: {error}");
    let path = file.to_str().ok_or("the data directory is not UTF-8")?;
    if !file.exists() {
        make_file(path)?;
    }
    let backing = sys::open_at(libc::AT_FDCWD, path, libc::O_RDWR | libc::O_NOFOLLOW, 0)
        .map_err(|e| said("open the file", e))?;
    let (device, _loop) =
        loop_device::attach(&backing, true).map_err(|e| said("attach a loop device", e))?;
    let context = sys::fsopen("btrfs").map_err(|e| said("fsopen btrfs", e))?;
    sys::fsconfig_set(&context, "source", &device).map_err(|e| said("source", e))?;
    // What is freed is punched out of the sparse file.
    sys::fsconfig_set(&context, "discard", "async").map_err(|e| said("discard", e))?;
    const NOSUID_NODEV_NOATIME: u64 = 0x2 | 0x4 | 0x10;
    let mount =
        sys::fsconfig_mount(&context, NOSUID_NODEV_NOATIME).map_err(|e| said("mount btrfs", e))?;
    let root = sys::open_dir(mount.as_raw_fd(), ".").map_err(|e| said("open the btrfs", e))?;
    // Simple quotas (Linux 6.7) cost less; without them the full ones. On already is fine.
    const ENABLE: u64 = 1;
    const ENABLE_SIMPLE: u64 = 4;
    if ioctl(&root, QUOTA_CTL, &mut [ENABLE_SIMPLE, 0u64]).is_err() {
        match ioctl(&root, QUOTA_CTL, &mut [ENABLE, 0u64]) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                return Err(said("enable quotas", error))
            }
            _ => {}
        }
    }
    Ok((mount, root))
}

/// A sparse file of three quarters of what is free, with an empty btrfs.
fn make_file(path: &str) -> std::result::Result<(), String> {
    let parent = sys::cstr(
        Path::new(path)
            .parent()
            .and_then(Path::to_str)
            .unwrap_or("/"),
    )
    .map_err(|e| e.to_string())?;
    // SAFETY: statfs is plain data.
    let mut free: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: both outlive the call.
    sys::check(i64::from(unsafe {
        libc::statfs(parent.as_ptr(), &mut free)
    }))
    .map_err(|e| e.to_string())?;
    let bytes = (free.f_bavail as u64).saturating_mul(free.f_bsize as u64) / 4 * 3;
    if bytes < 256 << 20 {
        return Err(format!("only {} MiB are free", bytes >> 20));
    }
    let part = format!("{path}.part");
    let file = std::fs::File::create(&part).map_err(|e| e.to_string())?;
    file.set_len(bytes & !0xfff).map_err(|e| e.to_string())?;
    let made = Command::new("mkfs.btrfs")
        .args(["-q", "-f", "-m", "single", &part])
        .output();
    let made = made.map_err(|e| format!("mkfs.btrfs (package btrfs-progs): {e}"))?;
    if !made.status.success() {
        let _ = std::fs::remove_file(&part);
        return Err(format!(
            "mkfs.btrfs: {}",
            String::from_utf8_lossy(&made.stderr).trim()
        ));
    }
    std::fs::rename(&part, path).map_err(|e| e.to_string())
}
