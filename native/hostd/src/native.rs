//! The first way to start a sandbox: clone3 makes init in all its namespaces and its cgroup, and init makes its mounts.

use crate::fault::{Fault, Outcome, Step};
use crate::guest::{self, Guest};
use crate::launch::{clone_as, map_ids, root_of, Booted, Ready};
use crate::sys;
use std::os::fd::AsFd;

pub fn boot(ready: Ready) -> Outcome<Booted> {
    let (node, order) = (ready.node, ready.order);
    let (link, init_link) = sys::socket_pair(libc::SOCK_SEQPACKET).step("make the link")?;
    let (channel, init_channel) =
        sys::socket_pair(libc::SOCK_SEQPACKET).step("make the channel")?;
    let shell = node.shell.try_clone().step("duplicate the shell")?;
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWNET;
    let init = Guest {
        channel: init_channel,
        link: init_link,
        shell,
        tasks: ready.tasks,
        hostname: order.hostname.clone(),
        nested_user_namespaces: order.nested_user_namespaces,
        no_new_privs: order.no_new_privs,
    };
    let aether_id = node.config.aether_id(order.slot);
    // In the parent the closure, and with it init's descriptors, is dropped.
    let (pid, pidfd) = clone_as(aether_id, namespaces as u64, ready.commands, move || {
        guest::run(init)
    })?;
    let user_namespace = map_ids(pid, node.config.root_id(order.slot))?;
    let root = root_of(node, order, ready.disk, &user_namespace)?;
    sys::send_fd(&channel, b"go", Some(root.as_fd())).step("hand over the root")?;
    drop(root);
    let (answer, _) = sys::receive_fd(&channel).step("wait for init")?;
    if answer != b"ok" {
        let line = String::from_utf8_lossy(&answer).into_owned();
        return Err(Fault::from_line(if line.is_empty() {
            "LAUNCH_FAILED init ended"
        } else {
            &line
        }));
    }
    Ok(Booted { pid, pidfd, link })
}
