//! Processes that a start by runc left when it was cut short.

use crate::config::IDS_PER_SLOT;
use crate::sys;
use std::fs;

/// Ends all children of this process, which is their subreaper: none is left when it returns.
pub fn end_children() {
    let list = format!("/proc/self/task/{}/children", std::process::id());
    loop {
        let children = fs::read_to_string(&list).unwrap_or_default();
        for pid in children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
        {
            // SAFETY: a child that nobody has reaped: the pid is its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        // Where the kernel has no such list, nothing is waited for.
        let wait = if children.is_empty() {
            libc::WNOHANG
        } else {
            0
        };
        // SAFETY: no status is asked for.
        let ended = unsafe { libc::waitpid(-1, std::ptr::null_mut(), wait) };
        if ended <= 0 {
            return;
        }
    }
}

/// Kills what runs with an ID of the slot, which is nobody else's: runc's init waits for a parent for ever, before it is in
/// the slot's cgroups. True: there was nothing.
pub fn end_of_slot(root_id: u32) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return true;
    };
    let mut none = true;
    for entry in processes.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(process) = sys::pidfd_open(pid) else {
            continue;
        };
        if user_of(pid).is_some_and(|uid| (root_id..root_id + IDS_PER_SLOT).contains(&uid)) {
            none = false;
            let _ = sys::pidfd_kill(&process);
        }
    }
    none
}

/// The effective user of a process that is no zombie.
fn user_of(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    if field("State:")?.trim().starts_with('Z') {
        return None;
    }
    field("Uid:")?.split_whitespace().nth(1)?.parse().ok()
}
