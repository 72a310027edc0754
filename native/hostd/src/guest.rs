//! Init's side of a start: from a fresh process in new namespaces to pid 1 of a sandbox.

use crate::fault::{Fault, Outcome, Step};
use crate::{seccomp, sys};
use aether::InitSetup;
use std::os::fd::{AsRawFd, OwnedFd};

pub struct Guest {
    /// Init's end of the channel to the parent during the start: it gets "go" with the overlay, answers "ok" or a fault.
    pub channel: OwnedFd,
    pub link: OwnedFd,
    pub shell: OwnedFd,
    /// v1 `tasks` files to join.
    pub tasks: Vec<OwnedFd>,
    pub hostname: String,
    pub nested_user_namespaces: bool,
    pub no_new_privs: bool,
}

const RO_NOSUID_NODEV_NOEXEC: u64 = libc::MS_RDONLY | NOSUID_NODEV_NOEXEC;
const NOSUID_NODEV_NOEXEC: u64 = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

/// Docker's masked paths and more; those that exist are hidden.
pub const MASKED: [&str; 20] = [
    "proc/acpi",
    "proc/asound",
    "proc/interrupts",
    "proc/kcore",
    "proc/key-users",
    "proc/keys",
    "proc/kmsg",
    "proc/kpagecgroup",
    "proc/kpagecount",
    "proc/kpageflags",
    "proc/latency_stats",
    "proc/sched_debug",
    "proc/scsi",
    "proc/slabinfo",
    "proc/sysrq-trigger",
    "proc/timer_list",
    "proc/timer_stats",
    "proc/vmallocinfo",
    "sys/devices/virtual/powercap",
    "sys/firmware",
];
pub const READ_ONLY: [&str; 4] = ["proc/bus", "proc/fs", "proc/irq", "proc/sys"];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Becomes the sandbox's init; does not return.
pub fn run(guest: Guest) -> ! {
    match enter(&guest) {
        Ok(()) => {
            if sys::send_fd(&guest.channel, b"ok", None).is_err() {
                exit();
            }
            drop(guest.channel);
            aether::run_init(InitSetup {
                link: guest.link,
                shell: guest.shell,
                child_filter: seccomp::command_filter(guest.nested_user_namespaces).to_vec(),
                child_caps: seccomp::COMMAND_CAPS,
                no_new_privs: guest.no_new_privs,
            })
        }
        Err(fault) => {
            let _ = sys::send_fd(&guest.channel, fault.to_line().as_bytes(), None);
            exit()
        }
    }
}

pub fn exit() -> ! {
    // SAFETY: ends the process without running what the zygote registered.
    unsafe { libc::_exit(1) }
}

fn enter(guest: &Guest) -> Outcome<()> {
    // While /proc is the host's and its own: pid 1 and its file workers would show hostd's command line inside.
    crate::title::set("init").step("set init's title")?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0).step("set not dumpable")?;
    for file in &guest.tasks {
        sys::write_fd(file.as_raw_fd(), b"0").step("join a cgroup")?;
    }
    let kept = [
        guest.channel.as_raw_fd(),
        guest.link.as_raw_fd(),
        guest.shell.as_raw_fd(),
    ];
    close_all_but(&kept);
    // SAFETY: no arguments.
    unsafe { libc::setsid() };
    // A session keyring of its own, or the zygote's would be shared by all.
    const KEYCTL_JOIN_SESSION_KEYRING: i64 = 1;
    // SAFETY: a null name makes an anonymous one.
    unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            KEYCTL_JOIN_SESSION_KEYRING,
            std::ptr::null::<u8>(),
        )
    };
    loopback_up()?;
    // "go": the ID maps are written; the message carries the root file system.
    let (word, root) = sys::receive_fd(&guest.channel).step("wait for the root")?;
    let root = match root {
        Some(root) if word == b"go" => root,
        _ => return Err(Fault::new("LAUNCH_FAILED", "the parent gave up")),
    };
    become_root()?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0).step("set not dumpable")?;
    sys::unshare(libc::CLONE_NEWCGROUP).step("unshare the cgroup namespace")?;
    // SAFETY: the pointer and length are of one string.
    sys::check(i64::from(unsafe {
        libc::sethostname(guest.hostname.as_ptr().cast(), guest.hostname.len())
    }))
    .step("set the hostname")?;
    // SAFETY: plain number.
    unsafe { libc::umask(0) };
    mounts(root)?;
    // SAFETY: plain number.
    unsafe { libc::umask(0o022) };
    Ok(())
}

/// The sandbox's root; its IDs are mapped.
pub fn become_root() -> Outcome<()> {
    // SAFETY: plain numbers.
    unsafe {
        sys::check(libc::syscall(
            libc::SYS_setgroups,
            0,
            std::ptr::null::<u32>(),
        ))
        .step("drop groups")?;
        sys::check(libc::syscall(libc::SYS_setresgid, 0, 0, 0)).step("become group 0")?;
        sys::check(libc::syscall(libc::SYS_setresuid, 0, 0, 0))
            .step("become user 0")
            .map(drop)
    }
}

fn mounts(root: OwnedFd) -> Outcome<()> {
    sys::move_mount(&root, "/").step("attach the root")?;
    // SAFETY: plain descriptor.
    sys::check(i64::from(unsafe { libc::fchdir(root.as_raw_fd()) })).step("enter the root")?;
    drop(root);
    directories()?;
    // The kernel lets a user namespace mount proc and sysfs only while it sees a whole one: before the pivot.
    sys::mount("proc", "proc", "proc", NOSUID_NODEV_NOEXEC, "").step("mount /proc")?;
    sys::mount("sysfs", "sys", "sysfs", RO_NOSUID_NODEV_NOEXEC, "").step("mount /sys")?;
    let dev = libc::MS_NOSUID | libc::MS_NOEXEC;
    sys::mount(
        "tmpfs",
        "dev",
        "tmpfs",
        dev,
        "mode=755,size=64k,nr_inodes=256",
    )
    .step("mount /dev")?;
    for device in DEVICES {
        let path = format!("dev/{device}");
        sys::create_at(libc::AT_FDCWD, &path, 0o666, b"").step("make a device's place")?;
        sys::mount(&format!("/dev/{device}"), &path, "", libc::MS_BIND, "")
            .step("bind a device")?;
    }
    for (name, kind, flags, options) in [
        (
            "pts",
            "devpts",
            libc::MS_NOSUID | libc::MS_NOEXEC,
            "newinstance,ptmxmode=0666,mode=0620,gid=5",
        ),
        ("shm", "tmpfs", NOSUID_NODEV_NOEXEC, "mode=1777,size=64m"),
        ("mqueue", "mqueue", NOSUID_NODEV_NOEXEC, ""),
    ] {
        let path = format!("dev/{name}");
        sys::mkdir_at(libc::AT_FDCWD, &path, 0o755).step("make a mount point in /dev")?;
        sys::mount(kind, &path, kind, flags, options).step(&format!("mount /{path}"))?;
    }
    for (target, name) in [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ] {
        sys::symlink(target, &format!("dev/{name}")).step("link in /dev")?;
    }
    mask()?;
    let here = c".".as_ptr();
    // SAFETY: constant strings.
    unsafe {
        sys::check(libc::syscall(libc::SYS_pivot_root, here, here)).step("pivot_root")?;
        sys::check(i64::from(libc::umount2(here, libc::MNT_DETACH)))
            .step("detach the host's root")?;
        sys::check(i64::from(libc::chdir(c"/".as_ptr()))).step("chdir to /")?;
    }
    Ok(())
}

fn mask() -> Outcome<()> {
    // One empty directory for all: each file system of its own costs a start some 50 µs.
    let mut empty: Option<&str> = None;
    for path in MASKED {
        let Some(mode) = mode_of(path) else { continue };
        if mode & libc::S_IFMT == libc::S_IFDIR {
            let masked = match empty {
                Some(first) => sys::mount(first, path, "", libc::MS_BIND, ""),
                None => sys::mount(
                    "tmpfs",
                    path,
                    "tmpfs",
                    RO_NOSUID_NODEV_NOEXEC,
                    "mode=755,size=4k,nr_inodes=1",
                ),
            };
            masked.step(&format!("mask /{path}"))?;
            empty = empty.or(Some(path));
        } else {
            sys::mount("/dev/null", path, "", libc::MS_BIND, "").step(&format!("mask /{path}"))?;
        }
    }
    for path in READ_ONLY {
        if mode_of(path).is_some() {
            let what = format!("make /{path} read-only");
            sys::mount(path, path, "", libc::MS_BIND | libc::MS_REC, "").step(&what)?;
            sys::mount(
                "",
                path,
                "",
                libc::MS_BIND | libc::MS_REMOUNT | RO_NOSUID_NODEV_NOEXEC,
                "",
            )
            .step(&what)?;
        }
    }
    Ok(())
}

fn mode_of(path: &str) -> Option<u32> {
    let path = sys::cstr(path).ok()?;
    // SAFETY: stat is plain data, both outlive the call.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let result = libc::fstatat(
            libc::AT_FDCWD,
            path.as_ptr(),
            &mut stat,
            libc::AT_SYMLINK_NOFOLLOW,
        );
        (result == 0).then_some(stat.st_mode)
    }
}

/// What must be there, in the working directory.
pub fn directories() -> Outcome<()> {
    for (name, mode) in [
        ("proc", 0o555),
        ("sys", 0o555),
        ("dev", 0o755),
        ("tmp", 0o1777),
    ] {
        directory(name, mode)?;
    }
    Ok(())
}

/// A real directory of that name in the root: an image may have a link or a file there, which goes.
fn directory(name: &str, mode: u32) -> Outcome<()> {
    match mode_of(name) {
        Some(found) if found & libc::S_IFMT == libc::S_IFDIR => return Ok(()),
        Some(_) => sys::unlink_at(libc::AT_FDCWD, name, 0).step("remove what is no directory")?,
        None => {}
    }
    sys::mkdir_at(libc::AT_FDCWD, name, mode).step(&format!("make /{name}"))
}

fn loopback_up() -> Outcome<()> {
    // SAFETY: ifreq is plain data; all pointers outlive the calls.
    unsafe {
        let socket = sys::check(i64::from(libc::socket(
            libc::AF_INET,
            libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
            0,
        )))
        .step("open a socket")? as i32;
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as _;
        request.ifr_name[1] = b'o' as _;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        let result = sys::check(i64::from(libc::ioctl(
            socket,
            libc::SIOCSIFFLAGS as _,
            &request,
        )));
        libc::close(socket);
        result.step("bring up loopback").map(drop)
    }
}

/// Closes every descriptor but those.
pub fn close_all_but(kept: &[i32]) {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    kept.dedup();
    let mut from = 3u32;
    for fd in kept.into_iter().filter(|fd| *fd >= 3) {
        if fd as u32 > from {
            // SAFETY: nothing in between is used any more.
            unsafe { libc::syscall(libc::SYS_close_range, from, fd as u32 - 1, 0) };
        }
        from = fd as u32 + 1;
    }
    sys::close_from(from);
}
