//! The second way to start a sandbox: runc makes it from a bundle, instead of hostd's own clone3 (native.rs). Slot, cgroups,
//! writable space, overlay and aether are the same, so all that works in a sandbox works alike.
//!
//! runc runs in a mount namespace of its own, where it keeps its state on a tmpfs: with its end nothing of it is left. It
//! cannot make the user namespace, since the overlay's layers are mapped with it before; and it is kept off the cgroups,
//! since a slot's are used again. Pid 1 is `sandbox-init`, which joins them itself.

mod bundle;
mod holder;
mod inside;
mod leftovers;
mod program;
mod runner;

pub use inside::run as run_inside;
pub use leftovers::end_of_slot;
pub use program::Runc;

use crate::fault::{Fault, Outcome, Step};
use crate::launch::{root_of, Booted, Ready};
use crate::sys;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Longer than any start that goes well, also under load.
const PATIENCE_S: i64 = 60;

pub fn boot(ready: Ready) -> Outcome<Booted> {
    // What runc leaves when it ends becomes a child of this process: first of all pid 1 of the sandbox.
    sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).step("become a subreaper")?;
    let booted = make(ready);
    if booted.is_err() {
        leftovers::end_children();
    }
    sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 0).step("be no subreaper")?;
    booted
}

fn make(ready: Ready) -> Outcome<Booted> {
    let (node, order) = (ready.node, ready.order);
    let runc = node.runc.as_ref().map_err(|why| not_here(why))?;
    let (link, init_link) = sys::socket_pair(libc::SOCK_SEQPACKET).step("make the link")?;
    let (channel, init_channel) =
        sys::socket_pair(libc::SOCK_SEQPACKET).step("make the channel")?;
    let holder = holder::Holder::make(node, order.slot)?;
    let root = root_of(node, order, ready.disk, &holder.user_namespace)?;
    holder.prepare(&root)?;
    let mut groups = ready.tasks;
    if let Some(dir) = ready.commands {
        let procs = sys::open_at(dir.as_raw_fd(), "cgroup.procs", libc::O_WRONLY, 0);
        groups.push(procs.step("open the cgroup2")?);
    }
    let mut given = vec![&init_link, &init_channel, &node.shell, &runc.init];
    given.extend(&groups);
    let config = bundle::Bundle {
        root_id: node.config.root_id(order.slot),
        user_namespace: format!("/proc/{}/ns/user", holder.pid),
        hostname: &order.hostname,
        arguments: inside::arguments(given.len(), order),
    };
    let (pid, pidfd) = runner::run(runc, &root, &config.to_json(), &given)?;
    drop((root, init_link, init_channel));
    holder.end();
    wait_at_most(&channel, PATIENCE_S).step("set a time-out")?;
    let (answer, _) = sys::receive_fd(&channel).step("wait for init")?;
    match &answer[..] {
        b"ok" => Ok(Booted { pid, pidfd, link }),
        b"" => Err(Fault::new("LAUNCH_FAILED", "init ended")),
        line => Err(Fault::from_line(&String::from_utf8_lossy(line))),
    }
}

pub fn not_here(why: &str) -> Fault {
    let what = format!("runtime \"runc\": {why}; this node has \"native\"");
    Fault::new("NOT_SUPPORTED", what)
}

fn wait_at_most(socket: &OwnedFd, seconds: i64) -> std::io::Result<()> {
    let time = libc::timeval {
        tv_sec: seconds,
        tv_usec: 0,
    };
    let size = std::mem::size_of::<libc::timeval>() as u32;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the value outlives the call.
    sys::check(i64::from(unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const time).cast(),
            size,
        )
    }))
    .map(drop)
}
