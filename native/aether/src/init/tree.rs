//! Signals to more than one process.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use crate::sys;

/// Every process of a leaf, as its cgroup.procs lists them for the reader's pid namespace; again, while there are new.
pub fn signal_leaf(procs: &OwnedFd, signal: i32) {
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let mut text = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(n) = sys::pread(procs, &mut chunk, text.len() as u64) {
            if n == 0 {
                break;
            }
            text.extend_from_slice(&chunk[..n]);
        }
        let pids = String::from_utf8_lossy(&text);
        let fresh: Vec<i32> = pids
            .lines()
            .filter_map(|line| line.parse().ok())
            .filter(|&pid| pid > 1 && seen.insert(pid))
            .collect();
        if fresh.is_empty() {
            return;
        }
        for pid in fresh {
            // SAFETY: plain call.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

/// Process, parent and session of each process in /proc but init.
fn processes() -> Vec<(i32, i32, i32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| pid > 1)
        .filter_map(|pid| {
            let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
            let after = &text[text.iter().rposition(|&b| b == b')')? + 1..];
            let after = String::from_utf8_lossy(after);
            let mut fields = after.split_ascii_whitespace();
            // A zombie is no process that could still do something.
            if fields.next()? == "Z" {
                return None;
            }
            let parent = fields.next()?.parse().ok()?;
            let session = fields.nth(1)?.parse().ok()?;
            Some((pid, parent, session))
        })
        .collect()
}

/// Whether there was a child.
pub fn signal_children(parent: i32, signal: i32) -> bool {
    let children: Vec<i32> = processes()
        .iter()
        .filter(|p| p.1 == parent)
        .map(|p| p.0)
        .collect();
    for &pid in &children {
        // SAFETY: plain call.
        unsafe { libc::kill(pid, signal) };
    }
    !children.is_empty()
}

/// Where there are no leaves: what descends from the process or shares a session with what does. One that leaves
/// both its session and its parent in time gets away, which is why leaves are wanted.
pub fn signal_descendants(root: i32, signal: i32) {
    let mut pids = BTreeSet::from([root]);
    let mut sessions = BTreeSet::from([root]);
    for _ in 0..100 {
        let before = pids.len();
        let all = processes();
        for _ in 0..all.len() {
            let known = pids.len();
            for &(pid, parent, session) in &all {
                if pids.contains(&parent) || sessions.contains(&session) {
                    pids.insert(pid);
                    sessions.insert(session);
                }
            }
            if pids.len() == known {
                break;
            }
        }
        let kill = signal == libc::SIGKILL;
        for &(pid, ..) in all.iter().filter(|p| pids.contains(&p.0)) {
            // Stopped first, so that none forks while the others are looked for.
            // SAFETY: plain call.
            unsafe { libc::kill(pid, if kill { libc::SIGSTOP } else { signal }) };
        }
        if pids.len() == before {
            break;
        }
    }
    if signal == libc::SIGKILL {
        for pid in pids {
            // SAFETY: plain call.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}
