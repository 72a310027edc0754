//! What a hostd before this one left: living sandboxes are adopted, kept ones kept, the rest is swept and cleaned.

use crate::fault::Outcome;
use crate::server::Server;
use crate::slots::Sandbox;
use crate::state::{Phase, State};
use crate::{sys, tree};
use std::os::fd::OwnedFd;

pub fn recover(server: &mut Server) -> Outcome<()> {
    let mut slots: Vec<u32> = tree::names(&server.node.run)
        .unwrap_or_default()
        .into_iter()
        .chain(tree::names(&server.node.kept).unwrap_or_default())
        .filter_map(|name| name.parse().ok())
        .collect();
    if server.node.booted {
        // Nothing tells which writable space is clean.
        slots.extend(server.node.disk.slots());
    }
    slots.retain(|slot| *slot < server.slots.count);
    slots.sort_unstable();
    slots.dedup();
    for slot in slots {
        server.slots.claim(slot);
        recover_slot(server, slot)?;
    }
    if server.node.booted {
        server
            .node
            .remove_records_but(|id| server.slots.by_id.contains_key(id));
    }
    Ok(())
}

fn recover_slot(server: &mut Server, slot: u32) -> Outcome<()> {
    let kept = State::read(&server.node.kept, &slot.to_string()).ok();
    let state = server
        .node
        .run_slot(slot)
        .and_then(|dir| State::read(&dir, "state"));
    let mut sandbox = Sandbox {
        id: String::new(),
        layers: Vec::new(),
        base: Default::default(),
        starting: None,
        aether: None,
        init: None,
        kept: false,
        stops: Vec::new(),
        told: false,
    };
    if let Some(kept) = kept {
        sandbox.id = kept.sandbox_id;
        sandbox.layers = kept.layers;
        sandbox.kept = true;
        server.node.layers.used(&sandbox.layers);
        server.slots.insert(slot, sandbox);
        return Ok(());
    }
    match state {
        Ok(state) => {
            let running =
                state.phase == Phase::Running as i32 && state.boot_id == server.node.boot_id;
            let alive = if running { processes(&state) } else { None };
            sandbox.id = state.sandbox_id.clone();
            sandbox.base = state.baseline();
            if let Some((aether, init)) = alive {
                server.watch_sandbox(slot, &aether, &init)?;
                sandbox.aether = Some(aether);
                sandbox.init = Some(init);
                sandbox.layers = state.layers;
                server.node.layers.used(&sandbox.layers);
                server.slots.insert(slot, sandbox);
            } else {
                sweep(server, slot, &state);
                server.slots.dirty.push((slot, sandbox.id));
            }
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) && !server.node.booted => {
            server.slots.give_back(slot)
        }
        Err(_) => {
            server.node.cgroups.kill(slot);
            server.slots.dirty.push((slot, String::new()));
        }
    }
    Ok(())
}

/// pidfds of both, when they are those of the state.
fn processes(state: &State) -> Option<(OwnedFd, OwnedFd)> {
    Some((
        process(state.aether_pid, state.aether_start)?,
        process(state.init_pid, state.init_start)?,
    ))
}

fn process(pid: i32, start: u64) -> Option<OwnedFd> {
    let pidfd = sys::pidfd_open(pid).ok()?;
    // The pidfd is open, so a pid with that start time now is the process it names.
    let zombie = sys::read_at(libc::AT_FDCWD, &format!("/proc/{pid}/stat"))
        .ok()?
        .contains(") Z ");
    (sys::start_time(pid).ok()? == start && !zombie).then_some(pidfd)
}

/// One of the two lives without the other, or a start was cut short.
fn sweep(server: &Server, slot: u32, state: &State) {
    if state.boot_id == server.node.boot_id {
        for (pid, start) in [
            (state.aether_pid, state.aether_start),
            (state.init_pid, state.init_start),
        ] {
            if let Some(process) = (pid > 0).then(|| process(pid, start)).flatten() {
                let _ = sys::pidfd_kill(&process);
            }
        }
    }
    server.node.cgroups.kill(slot);
}
