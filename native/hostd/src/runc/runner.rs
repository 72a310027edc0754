//! Runs runc, in a process and a mount namespace that end with it.

use super::program::Runc;
use super::wait_at_most;
use crate::fault::{Fault, Outcome, Step};
use crate::guest::close_all_but;
use crate::sys;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Where runc's files are in that namespace; the directory is one of every Debian.
const PLACE: &str = "/run";
pub const ROOT: &str = "/run/root";

/// Pid and pidfd of the started sandbox's pid 1, which gets `given` as descriptors from 3 on.
pub fn run(
    runc: &Runc,
    root: &OwnedFd,
    config: &str,
    given: &[&OwnedFd],
) -> Outcome<(i32, OwnedFd)> {
    let (ours, mut theirs) =
        sys::socket_pair(libc::SOCK_SEQPACKET).step("make the runner's channel")?;
    let runner = sys::fork().step("fork the runner")?;
    if runner == 0 {
        let (word, init) = match inside(runc, root, config, given, &mut theirs) {
            Ok((pid, init)) => (format!("ok {pid}"), Some(init)),
            Err(fault) => (fault.to_line(), None),
        };
        let init = init.as_ref().map(AsFd::as_fd);
        let _ = sys::send_fd(&theirs, word.as_bytes(), init);
        // SAFETY: ends the process without running what the zygote registered.
        unsafe { libc::_exit(0) }
    }
    drop(theirs);
    wait_at_most(&ours, super::PATIENCE_S).step("set a time-out")?;
    let (word, init) = sys::receive_fd(&ours).step("wait for runc")?;
    // SAFETY: a child of this process, which has said its last word; no status is asked for.
    unsafe { libc::waitpid(runner, std::ptr::null_mut(), 0) };
    let word = String::from_utf8_lossy(&word).into_owned();
    match (word.strip_prefix("ok ").map(str::parse), init) {
        (Some(Ok(pid)), Some(init)) => Ok((pid, init)),
        _ if word.is_empty() => Err(Fault::new("LAUNCH_FAILED", "runc's parent ended")),
        _ => Err(Fault::from_line(&word)),
    }
}

fn inside(
    runc: &Runc,
    root: &OwnedFd,
    config: &str,
    given: &[&OwnedFd],
    channel: &mut OwnedFd,
) -> Outcome<(i32, OwnedFd)> {
    die_with_parent().step("set the death signal")?;
    sys::unshare(libc::CLONE_NEWNS).step("unshare the mount namespace")?;
    mounts(root, config)?;
    place(given, channel).step("place descriptors")?;
    let mut command = Command::new(&runc.path);
    // The cgroup file system is read-only here, and "rootless" means for runc that it may be.
    command
        .args(["--rootless=true", "--root", "/run/state"])
        .args(["--log", "/run/log", "--log-format", "json"])
        .args(["run", "--detach", "--no-new-keyring"])
        .args(["--bundle", PLACE, "--pid-file", "/run/pid"])
        .arg(format!("--preserve-fds={}", given.len()))
        .arg("sandbox")
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: one system call, in a child of one thread.
    unsafe { command.pre_exec(die_with_parent) };
    let status = command.status().step("run runc")?;
    if !status.success() {
        return Err(Fault::new(
            "LAUNCH_FAILED",
            format!("runc: {}", last_word(&status.to_string())),
        ));
    }
    let pid = std::fs::read_to_string("/run/pid").step("read runc's pid file")?;
    let pid: i32 = pid
        .trim()
        .parse()
        .map_err(|_| Fault::new("LAUNCH_FAILED", "runc's pid file has no pid"))?;
    // A child of the process above, which reaps nothing yet: the pid is its own.
    Ok((pid, sys::pidfd_open(pid).step("open init's pidfd")?))
}

fn die_with_parent() -> std::io::Result<()> {
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64)
}

fn mounts(root: &OwnedFd, config: &str) -> Outcome<()> {
    const RO_NOSUID_NODEV_NOEXEC: u64 = 1 | 2 | 4 | 8;
    let cgroup2 = sys::fsopen("cgroup2").step("fsopen cgroup2")?;
    let cgroup2 = sys::fsconfig_mount(&cgroup2, RO_NOSUID_NODEV_NOEXEC).step("mount a cgroup2")?;
    sys::move_mount(&cgroup2, "/sys/fs/cgroup").step("attach the cgroup2")?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let options = "mode=0711,size=4m,nr_inodes=256";
    sys::mount("tmpfs", PLACE, "tmpfs", flags, options).step("mount runc's tmpfs")?;
    sys::mkdir_at(libc::AT_FDCWD, ROOT, 0o711).step("make the root's place")?;
    sys::move_mount(root, ROOT).step("attach the root")?;
    sys::create_at(libc::AT_FDCWD, "/run/config.json", 0o600, config.as_bytes())
        .step("write config.json")
        .map(drop)
}

/// Puts what is given at 3 and the numbers after it, open across exec, and closes all else but the channel. What this
/// process had at these numbers is gone, so it must end without dropping anything.
fn place(given: &[&OwnedFd], channel: &mut OwnedFd) -> std::io::Result<()> {
    // Above all numbers wanted, so that none is overwritten before it is placed.
    let above = |fd: &OwnedFd| {
        // SAFETY: plain numbers.
        let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100) };
        sys::check(i64::from(copy)).map(|copy| copy as i32)
    };
    // SAFETY: just made.
    *channel = unsafe { OwnedFd::from_raw_fd(above(channel)?) };
    let copies: Vec<i32> = given.iter().map(|fd| above(fd)).collect::<Result<_, _>>()?;
    let mut kept = vec![channel.as_raw_fd()];
    for (copy, number) in copies.into_iter().zip(3..) {
        // SAFETY: plain numbers.
        sys::check(i64::from(unsafe { libc::dup2(copy, number) }))?;
        kept.push(number);
    }
    close_all_but(&kept);
    Ok(())
}

/// What runc logged last, else how it ended.
fn last_word(status: &str) -> String {
    let log = std::fs::read_to_string("/run/log").unwrap_or_default();
    let message = log.lines().last().and_then(|line| {
        let (_, rest) = line.split_once("\"msg\":\"")?;
        Some(rest.split("\",\"").next()?.trim_end_matches("\"}"))
    });
    let text = message.unwrap_or(status).replace("\\\"", "\"");
    text.chars().take(1000).collect()
}
