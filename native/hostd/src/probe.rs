//! `hostd --probe`: tries what a node needs, leaves nothing behind, and says it as JSON.

use crate::config::forced;
use crate::scratch::Scratch;
use crate::sys;
use std::fs;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tries one thing in a scratch directory; gives what was found.
type Try = fn(&Path) -> Result<String>;

/// An array of {"name","ok","detail"}.
pub fn run() -> String {
    let dir = PathBuf::from(format!("/tmp/dsec-probe-{}", std::process::id()));
    let _ = fs::create_dir_all(&dir);
    // As hostd does, so that a chroot is no hindrance; what this lacks is said by the tries below.
    let _ = crate::root::own_mounts();
    let tries: [(&str, Try); 8] = [
        ("namespaces", namespaces),
        ("mounts", mounts),
        ("erofs", erofs),
        ("overlay", overlay),
        ("loop", loop_devices),
        ("btrfs", btrfs),
        ("cgroups", cgroups),
        ("pre-content events", pre_content),
    ];
    let lines: Vec<String> = tries
        .iter()
        .map(|(name, attempt)| {
            let (ok, detail) = match attempt(&dir) {
                Ok(detail) => (true, detail),
                Err(error) => (false, error.to_string()),
            };
            format!(
                "{{\"name\":{name:?},\"ok\":{ok},\"detail\":\"{}\"}}",
                escape(&detail)
            )
        })
        .collect();
    let _ = fs::remove_dir_all(&dir);
    format!("[{}]", lines.join(","))
}

fn escape(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .chars()
        .map(plain)
        .collect()
}

fn namespaces(_: &Path) -> Result<String> {
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWCGROUP;
    let args = sys::CloneArgs {
        flags: flags as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..Default::default()
    };
    let pid = sys::clone3(&args)?;
    if pid == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) }
    }
    // SAFETY: our child.
    sys::check(i64::from(unsafe {
        libc::waitpid(pid, std::ptr::null_mut(), 0)
    }))?;
    Ok("user, pid, mount, ipc, uts, network and cgroup".into())
}

fn mounts(_: &Path) -> Result<String> {
    let root = tmpfs()?;
    sys::clone_mount(&root)?;
    Ok("fsopen, fsmount, open_tree".into())
}

fn tmpfs() -> Result<OwnedFd> {
    sys::fsconfig_mount(&sys::fsopen("tmpfs")?, 0)
}

fn tool(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| Error::new(error.kind(), format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::other(format!(
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

fn erofs(dir: &Path) -> Result<String> {
    let (tree, image) = (dir.join("tree"), dir.join("image"));
    fs::create_dir_all(&tree)?;
    fs::write(tree.join("file"), "text")?;
    tool(
        "mkfs.erofs",
        &["--quiet", &image.to_string_lossy(), &tree.to_string_lossy()],
    )?;
    let file = sys::open_at(libc::AT_FDCWD, &image.to_string_lossy(), libc::O_RDONLY, 0)?;
    let mount = crate::layers::mount_erofs(&file, None)?;
    let text = sys::read_at(mount.as_raw_fd(), "file")?;
    if text == "text" {
        Ok("mounted".into())
    } else {
        Err(Error::other("the file read back differs"))
    }
}

fn overlay(dir: &Path) -> Result<String> {
    if !forced("attached-mounts") && detached_overlay().is_ok() {
        return Ok("on detached mounts".into());
    }
    let fault = |fault: crate::fault::Fault| Error::other(fault.message);
    crate::root::own_mounts().map_err(fault)?;
    let here = sys::open_dir(libc::AT_FDCWD, &dir.to_string_lossy())?;
    let scratch = Scratch::open(&here).map_err(fault)?;
    let root = tmpfs()?;
    let made = attached_overlay(&scratch, &root);
    scratch.close()?;
    made.map(|()| "on mounts attached in a namespace of hostd's own".into())
}

fn attached_overlay(scratch: &Scratch, root: &OwnedFd) -> Result<()> {
    scratch.attach(root, "layers")?;
    for name in ["lower", "upper", "work"] {
        sys::mkdir_at(root.as_raw_fd(), name, 0o755)?;
    }
    let lower = sys::clone_mount(&sys::open_dir(root.as_raw_fd(), "lower")?)?;
    let [upper, work] = ["upper", "work"].map(|name| sys::open_dir(root.as_raw_fd(), name));
    crate::overlay::attached(scratch, "probe", vec![lower], &upper?, &work?).map(drop)
}

/// Whether overlays take layers that are mounted nowhere (Linux 6.15).
pub fn detached_overlay() -> Result<()> {
    let root = tmpfs()?;
    for name in ["lower", "upper", "work"] {
        sys::mkdir_at(root.as_raw_fd(), name, 0o755)?;
    }
    let copy = sys::clone_mount(&root)?;
    let open = |name| sys::open_dir(root.as_raw_fd(), name);
    let lower = sys::open_dir(copy.as_raw_fd(), "lower")?;
    crate::overlay::detached(&[lower], &open("upper")?, &open("work")?).map(drop)
}

fn loop_devices(_: &Path) -> Result<String> {
    sys::open_at(libc::AT_FDCWD, "/dev/loop-control", libc::O_RDWR, 0)?;
    Ok("/dev/loop-control".into())
}

fn btrfs(dir: &Path) -> Result<String> {
    let parent = dir.join("btrfs");
    fs::create_dir_all(&parent)?;
    let fd = sys::open_at(
        libc::AT_FDCWD,
        &parent.to_string_lossy(),
        libc::O_RDONLY | libc::O_DIRECTORY,
        0,
    )?;
    let mut missing = Vec::new();
    let disk = crate::disk::Disk::open(&fd, &parent, &mut missing)
        .map_err(|fault| Error::other(fault.message))?;
    if !disk.limited {
        return Err(Error::other(missing.join("; ")));
    }
    let slot = disk.slot(0, 0)?;
    disk.limit(&slot, 1 << 20)?;
    let file = sys::open_at(
        slot.as_raw_fd(),
        "upper/big",
        libc::O_WRONLY | libc::O_CREAT,
        0o600,
    )?;
    let part = vec![1u8; 1 << 20];
    for _ in 0..4 {
        if let Err(error) = sys::write_fd(file.as_raw_fd(), &part) {
            return match error.raw_os_error() {
                Some(libc::EDQUOT | libc::EIO) => Ok("a subvolume's limit holds".into()),
                _ => Err(error),
            };
        }
    }
    Err(Error::other("4 MiB were written above a limit of 1 MiB"))
}

fn cgroups(_: &Path) -> Result<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let has = |kind: &str| mounts.lines().any(|line| line.contains(kind));
    match (has(" - cgroup cgroup rw,memory"), has(" - cgroup2 ")) {
        (true, true) => Ok("hybrid".into()),
        (true, false) => Ok("v1".into()),
        (false, true) => Ok("v2".into()),
        _ => Err(Error::other("no memory cgroups are mounted")),
    }
}

fn pre_content(dir: &Path) -> Result<String> {
    const FAN_CLASS_PRE_CONTENT: u32 = 8;
    const FAN_PRE_ACCESS: u64 = 0x0010_0000;
    let path = dir.join("lazy");
    fs::write(&path, "x")?;
    let path = sys::cstr(&path.to_string_lossy())?;
    // SAFETY: plain numbers, and a path that outlives the call.
    unsafe {
        let group = sys::check(i64::from(libc::fanotify_init(
            FAN_CLASS_PRE_CONTENT,
            libc::O_RDONLY as u32,
        )))?;
        let group = OwnedFd::from_raw_fd(group as i32);
        let mark = libc::FAN_MARK_ADD;
        let result = libc::fanotify_mark(
            group.as_raw_fd(),
            mark,
            FAN_PRE_ACCESS,
            libc::AT_FDCWD,
            path.as_ptr(),
        );
        sys::check(i64::from(result))?;
    }
    Ok("FAN_PRE_ACCESS".into())
}
