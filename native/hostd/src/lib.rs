//! hostd: the zygote of a node. It takes orders over a Unix socket and forks; each child starts one sandbox and
//! becomes its aether. One thread, epoll, a small heap: every start copies its page tables twice.

pub mod cgroup;
pub mod cleaner;
pub mod config;
pub mod disk;
pub mod fault;
pub mod guest;
pub mod launch;
pub mod layers;
pub mod loop_device;
pub mod native;
pub mod node;
pub mod overlay;
pub mod peer;
pub mod probe;
pub mod recover;
pub mod requests;
pub mod root;
pub mod runc;
pub mod scratch;
pub mod seccomp;
pub mod server;
pub mod slots;
pub mod state;
pub mod sys;
pub mod title;
pub mod tree;
