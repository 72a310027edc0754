//! Pid 1 of a sandbox that runc has made: joins the slot's cgroups and becomes init.

use crate::fault::{Fault, Outcome, Step};
use crate::launch::Order;
use crate::{guest, seccomp, sys, title};
use aether::InitSetup;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Descriptors from 3 on: link, channel, shell, the program itself, and one file a cgroup.
const FIRST: i32 = 3;
const GROUPS: usize = 4;

/// What the program is told, its own path first.
pub fn arguments(descriptors: usize, order: &Order) -> Vec<String> {
    vec![
        format!("/proc/self/fd/{}", FIRST + 3),
        descriptors.to_string(),
        order.nested_user_namespaces.to_string(),
        order.no_new_privs.to_string(),
        open_files().rlim_cur.to_string(),
    ]
}

/// Does not return. Runs before anything of the sandbox's own.
pub fn run() -> ! {
    let words: Vec<String> = std::env::args().collect();
    let [_, descriptors, nested, no_new_privs, files] = &words[..] else {
        eprintln!("sandbox-init is started by hostd");
        std::process::exit(2);
    };
    let count: usize = descriptors.parse().unwrap_or(0);
    let mut given: Vec<OwnedFd> = (FIRST..)
        .take(count)
        // SAFETY: hostd says so; a descriptor that is not there fails at its first use.
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
        .collect();
    if given.len() < GROUPS {
        guest::exit();
    }
    let groups = given.split_off(GROUPS);
    given.truncate(GROUPS - 1);
    let [link, channel, shell] = <[OwnedFd; 3]>::try_from(given).unwrap_or_else(|_| guest::exit());
    let (nested, no_new_privs) = (nested == "true", no_new_privs == "true");
    restore_open_files(files.parse().unwrap_or(0));
    let word = match enter(groups) {
        Ok(()) => "ok".to_string(),
        Err(fault) => fault.to_line(),
    };
    // Without a parent that waits there is no sandbox.
    if sys::send_fd(&channel, word.as_bytes(), None).is_err() || word != "ok" {
        guest::exit();
    }
    drop(channel);
    aether::run_init(InitSetup {
        link,
        shell,
        child_filter: seccomp::command_filter(nested).to_vec(),
        child_caps: seccomp::COMMAND_CAPS,
        no_new_privs,
    })
}

fn enter(groups: Vec<OwnedFd>) -> Outcome<()> {
    // SAFETY: plain numbers; every descriptor here is known.
    unsafe {
        let close_on_exec = libc::CLOSE_RANGE_CLOEXEC as i32;
        sys::check(i64::from(libc::close_range(3, u32::MAX, close_on_exec)))
            .step("mark the descriptors")?;
    }
    title::set("init").step("set init's title")?;
    for group in &groups {
        sys::write_fd(group.as_raw_fd(), b"0").step("join a cgroup")?;
    }
    drop(groups);
    sys::unshare(libc::CLONE_NEWCGROUP).step("unshare the cgroup namespace")?;
    // The kernel says 0 or 2 for a program that its own user may not read.
    // SAFETY: plain number.
    match unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) } {
        1 => Err(Fault::new("LAUNCH_FAILED", "init can be read from inside")),
        _ => Ok(()),
    }
}

fn open_files() -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit
}

/// The soft limit as hostd has it: runc, a Go program, raises its own.
fn restore_open_files(soft: u64) {
    let mut limit = open_files();
    limit.rlim_cur = soft.min(limit.rlim_max);
    // SAFETY: the limit outlives the call.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
}
