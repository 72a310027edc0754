//! A process that holds the sandbox's user namespace until runc has joined it. The namespace belongs to aether's user, as
//! with the native runtime.

use crate::fault::{Fault, Outcome, Step};
use crate::launch::{clone_as, map_ids};
use crate::node::Node;
use crate::{guest, sys};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

pub struct Holder {
    pub pid: i32,
    pidfd: OwnedFd,
    channel: OwnedFd,
    pub user_namespace: OwnedFd,
}

impl Holder {
    pub fn make(node: &Node, slot: u32) -> Outcome<Self> {
        let (channel, theirs) =
            sys::socket_pair(libc::SOCK_SEQPACKET).step("make the holder's channel")?;
        let ours = channel.as_raw_fd();
        let flags = libc::CLONE_NEWUSER as u64;
        let (pid, pidfd) = clone_as(node.config.aether_id(slot), flags, None, || {
            // Or it would wait for its own end.
            // SAFETY: a descriptor of this child's copy, which uses it no more.
            unsafe { libc::close(ours) };
            hold(&theirs)
        })?;
        let user_namespace = map_ids(pid, node.config.root_id(slot))?;
        Ok(Self {
            pid,
            pidfd,
            channel,
            user_namespace,
        })
    }

    /// Makes what a root must have, as the sandbox's root.
    pub fn prepare(&self, root: &OwnedFd) -> Outcome<()> {
        sys::send_fd(&self.channel, b"go", Some(root.as_fd())).step("hand over the root")?;
        let (answer, _) = sys::receive_fd(&self.channel).step("wait for the holder")?;
        match &answer[..] {
            b"ok" => Ok(()),
            b"" => Err(Fault::new("LAUNCH_FAILED", "the holder ended")),
            line => Err(Fault::from_line(&String::from_utf8_lossy(line))),
        }
    }

    pub fn end(self) {
        drop(self.channel);
        let _ = sys::pidfd_kill(&self.pidfd);
        // SAFETY: a child of this process, which is ending; no status is asked for.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

fn hold(channel: &OwnedFd) -> ! {
    let answer = match prepare(channel) {
        Ok(()) => "ok".to_string(),
        Err(fault) => fault.to_line(),
    };
    let _ = sys::send_fd(channel, answer.as_bytes(), None);
    // Until the other end closes.
    let _ = sys::receive_fd(channel);
    // SAFETY: ends the process without running what the zygote registered.
    unsafe { libc::_exit(0) }
}

fn prepare(channel: &OwnedFd) -> Outcome<()> {
    let (_, root) = sys::receive_fd(channel).step("wait for the root")?;
    let root = root.ok_or_else(|| Fault::new("LAUNCH_FAILED", "the parent gave up"))?;
    guest::become_root()?;
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64).step("set the death signal")?;
    // SAFETY: plain numbers.
    unsafe {
        libc::umask(0);
        sys::check(i64::from(libc::fchdir(root.as_raw_fd()))).step("enter the root")?;
    }
    guest::directories()
}
