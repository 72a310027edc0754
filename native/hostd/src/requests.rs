//! The edge's orders, checked and carried out.

use crate::fault::{Fault, Outcome};
use crate::layers::hex_of;
use crate::runc;
use crate::server::Server;
use crate::slots::Asker;
use wire::hostd_reply::Result as Reply;
use wire::hostd_request::Call;
use wire::{
    HostdDone, HostdInfoReply, HostdLayer, HostdLayers, HostdSandbox, HostdSandboxes, HostdStart,
    HostdStop, HostdStopped, Usage,
};

const MIN_MEMORY_BYTES: u64 = 4 << 20;
const MIN_DISK_BYTES: u64 = 1 << 20;
const MAX_LAYERS: usize = 100;

pub fn handle(server: &mut Server, asker: Asker, call: Option<Call>) {
    let result = match call {
        Some(Call::Start(start)) => match check(server, &start) {
            Ok(()) => return server.enqueue(asker, start),
            Err(fault) => Err(fault),
        },
        Some(Call::Stop(stop)) => match begin_stop(server, asker, &stop) {
            Some(reply) => Ok(reply),
            None => return,
        },
        Some(Call::DropKept(order)) => drop_kept(server, &order.sandbox_id),
        Some(Call::Usage(order)) => {
            usage(server, &order.sandbox_id, order.try_disk).map(Reply::Usage)
        }
        Some(Call::Info(_)) => Ok(Reply::Info(info(server))),
        Some(Call::List(_)) => Ok(Reply::Sandboxes(list(server))),
        Some(Call::Subscribe(_)) => {
            server.subscribe(asker);
            Ok(Reply::Done(HostdDone {}))
        }
        Some(Call::ListLayers(_)) => {
            let one = |(digest, users, mounted)| HostdLayer {
                digest,
                users,
                mounted,
            };
            Ok(Reply::Layers(HostdLayers {
                layers: server.node.layers.list().into_iter().map(one).collect(),
            }))
        }
        Some(Call::DropLayer(order)) => server
            .node
            .layers
            .release(&order.digest, server.node.scratch.as_ref())
            .map(|()| Reply::Done(HostdDone {})),
        None => Err(Fault::new(
            "NOT_SUPPORTED",
            "this hostd does not know the order",
        )),
    };
    server.reply(asker, result);
}

fn good_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn check(server: &Server, start: &HostdStart) -> Outcome<()> {
    let bad = |what: String| Err(Fault::invalid(what));
    if !good_id(&start.sandbox_id) {
        return bad(format!(
            "sandbox_id {:?} is not 1 to 64 letters, digits and dashes",
            start.sandbox_id
        ));
    }
    if server.slots.by_id.contains_key(&start.sandbox_id) || server.is_queued(&start.sandbox_id) {
        return bad(format!("sandbox {} is here already", start.sandbox_id));
    }
    if start.layers.is_empty() || start.layers.len() > MAX_LAYERS {
        return bad(format!(
            "{} layers; 1 to {MAX_LAYERS} are allowed",
            start.layers.len()
        ));
    }
    if let Some(layer) = start.layers.iter().find(|layer| hex_of(layer).is_none()) {
        return bad(format!("layer {layer:?} is no sha256 digest"));
    }
    let host = start.hostname.as_bytes();
    let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'.';
    if host.is_empty() || host.len() > 64 || !host.iter().all(word) {
        return bad(format!(
            "hostname {:?} is not 1 to 64 letters, digits, dashes and dots",
            start.hostname
        ));
    }
    let limit = |what: String| Err(Fault::new("INVALID_LIMIT", what));
    if start.memory_limit_bytes < MIN_MEMORY_BYTES {
        return limit(format!(
            "memory_limit_bytes is {}; at least {MIN_MEMORY_BYTES}",
            start.memory_limit_bytes
        ));
    }
    if start.disk_limit_bytes < MIN_DISK_BYTES {
        return limit(format!(
            "disk_limit_bytes is {}; at least {MIN_DISK_BYTES}",
            start.disk_limit_bytes
        ));
    }
    if start.pids_limit < 2 {
        return limit(format!("pids_limit is {}; at least 2", start.pids_limit));
    }
    if !(1..=10000).contains(&start.cpu_weight) {
        return limit(format!("cpu_weight is {}; 1 to 10000", start.cpu_weight));
    }
    if !(0.0..=65536.0).contains(&start.cpu_cores_limit) {
        return limit(format!("cpu_cores_limit is {}", start.cpu_cores_limit));
    }
    match start.runtime.as_str() {
        "" | "native" => Ok(()),
        "runc" => match &server.node.runc {
            Ok(_) => Ok(()),
            Err(why) => Err(runc::not_here(why)),
        },
        other => Err(Fault::new(
            "NOT_SUPPORTED",
            format!("runtime {other:?}: \"native\" and \"runc\" are known"),
        )),
    }
}

/// Some: answered at once; None: when nothing runs any more.
fn begin_stop(server: &mut Server, asker: Asker, stop: &HostdStop) -> Option<Reply> {
    let existed = |existed| {
        Some(Reply::Stopped(HostdStopped {
            usage: None,
            existed,
        }))
    };
    if server.dequeue(&stop.sandbox_id) {
        return existed(true);
    }
    let Some(&slot) = server.slots.by_id.get(&stop.sandbox_id) else {
        return existed(false);
    };
    let sandbox = server.slots.taken.get_mut(&slot)?;
    if sandbox.kept {
        if !stop.keep {
            let _ = drop_kept(server, &stop.sandbox_id);
        }
        return existed(true);
    }
    sandbox.stops.push((asker, stop.keep));
    server.kill(slot);
    server.settle(slot);
    None
}

fn drop_kept(server: &mut Server, id: &str) -> Outcome<Reply> {
    if let Some(&slot) = server.slots.by_id.get(id) {
        if !server
            .slots
            .taken
            .get(&slot)
            .is_some_and(|sandbox| sandbox.kept)
        {
            return Err(Fault::invalid(format!(
                "sandbox {id} is not a kept one; stop it"
            )));
        }
        if let Some(sandbox) = server.slots.remove(slot) {
            server.discard(slot, sandbox);
        }
    }
    Ok(Reply::Done(HostdDone {}))
}

fn usage(server: &Server, id: &str, try_disk: bool) -> Outcome<Usage> {
    let found = server
        .slots
        .by_id
        .get(id)
        .and_then(|slot| Some((*slot, server.slots.taken.get(slot)?)));
    let (slot, sandbox) =
        found.ok_or_else(|| Fault::new("SANDBOX_NOT_FOUND", format!("no sandbox {id} here")))?;
    let mut usage = server.node.cgroups.usage(slot, &sandbox.base);
    usage.disk_bytes = server.node.disk.usage(slot);
    usage.disk_full = try_disk && server.node.disk.is_full(slot);
    Ok(usage)
}

fn info(server: &Server) -> HostdInfoReply {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?
            .trim()
            .strip_suffix(" kB")?
            .parse()
            .ok()
    });
    HostdInfoReply {
        version: server.version(),
        slots: server.slots.count,
        slots_used: server.slots_used(),
        cpus: server.cpus() as f64,
        memory_bytes: total.unwrap_or(0u64) * 1024,
        cgroups: server.node.cgroups.mode.into(),
        disk_limit: if server.node.disk.limited {
            "btrfs"
        } else {
            "none"
        }
        .into(),
        missing: server.node.missing.clone(),
        boot_id: server.node.boot_id.clone(),
    }
}

fn list(server: &Server) -> HostdSandboxes {
    let one = |(slot, sandbox): (&u32, &crate::slots::Sandbox)| HostdSandbox {
        sandbox_id: sandbox.id.clone(),
        slot: *slot,
        alive: sandbox.alive(),
        kept: sandbox.kept,
    };
    HostdSandboxes {
        sandboxes: server
            .slots
            .taken
            .iter()
            .filter(|(_, s)| s.starting.is_none())
            .map(one)
            .collect(),
    }
}
