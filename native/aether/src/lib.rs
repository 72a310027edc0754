//! The supervisor of one sandbox (aether), the sandbox's init, and chronus sessions.
//!
//! hostd forks; one child becomes aether by `run_aether`, outside the sandbox and unprivileged; another, made with
//! clone3 as pid 1 inside, becomes its init by `run_init`. Neither execs. aether asks init to fork commands and file
//! workers, so these are in the sandbox's namespaces and cgroups from birth.

mod errors;
pub mod files;
mod init;
mod link;
mod supervisor;
mod sys;

use std::os::fd::OwnedFd;

pub use init::run_init;
pub use supervisor::run_aether;

/// What aether is given. The caller has already become aether's own user.
pub struct AetherSetup {
    pub sandbox_id: String,
    /// Bound and listening Unix stream socket.
    pub listener: OwnedFd,
    /// One end of a SOCK_SEQPACKET pair; init has the other.
    pub init_link: OwnedFd,
    pub init_pidfd: OwnedFd,
    /// In the host's pid namespace.
    pub init_pid: i32,
    /// Directory for records, owned by aether's user.
    pub records: OwnedFd,
    /// cgroup2 directory, owned (with its cgroup.procs) by aether's user, in which aether makes a leaf per command.
    /// Init must be in this cgroup itself, or below it: the kernel lets it fork into a leaf only if it may also write
    /// cgroup.procs of the nearest common ancestor, which aether sets to 0666 here.
    pub commands_cgroup: Option<OwnedFd>,
    /// v2 memory.events or v1 memory.oom_control.
    pub memory_events: Option<OwnedFd>,
    pub pids_events: Option<OwnedFd>,
    /// Besides root, the only user that may connect.
    pub edge_uid: u32,
    /// Static bash.
    pub shell: OwnedFd,
}

/// What init is given. It is pid 1, root in its user namespace, in all namespaces and cgroups, with /proc and /dev there.
pub struct InitSetup {
    pub link: OwnedFd,
    /// Static bash, readable by everyone.
    pub shell: OwnedFd,
    /// Loaded by each child before it execs.
    pub child_filter: Vec<libc::sock_filter>,
    /// Capabilities (bits) that stay in the bounding set of children.
    pub child_caps: u64,
    pub no_new_privs: bool,
}
