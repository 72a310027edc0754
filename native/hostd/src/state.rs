//! What is known of a slot across a restart of hostd: RUN/<slot>/state while it is not clean, and for kept ones the
//! same in DATA/edges/<edge>/kept/<slot>, which outlasts a reboot.

use crate::cgroup::Baseline;
use crate::sys;
use prost::Message;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};

#[derive(Clone, PartialEq, Message)]
pub struct State {
    #[prost(string, tag = "1")]
    pub boot_id: String,
    #[prost(string, tag = "2")]
    pub sandbox_id: String,
    #[prost(enumeration = "Phase", tag = "3")]
    pub phase: i32,
    #[prost(int32, tag = "4")]
    pub aether_pid: i32,
    #[prost(uint64, tag = "5")]
    pub aether_start: u64,
    #[prost(int32, tag = "6")]
    pub init_pid: i32,
    #[prost(uint64, tag = "7")]
    pub init_start: u64,
    #[prost(string, repeated, tag = "8")]
    pub layers: Vec<String>,
    #[prost(uint64, tag = "9")]
    pub cpu_ns: u64,
    #[prost(uint64, tag = "10")]
    pub oom_kills: u64,
    #[prost(uint64, tag = "11")]
    pub pids_hits: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Phase {
    Starting = 0,
    Running = 1,
    Ending = 2,
    Kept = 3,
}

impl State {
    pub fn baseline(&self) -> Baseline {
        Baseline { cpu_ns: self.cpu_ns, oom_kills: self.oom_kills, pids_hits: self.pids_hits }
    }

    /// Renamed into place, so a reader sees a whole one.
    pub fn write(&self, dir: &OwnedFd, name: &str) -> Result<()> {
        let part = format!("{name}.part");
        sys::create_at(dir.as_raw_fd(), &part, 0o600, &self.encode_to_vec())?;
        sys::rename_at(dir.as_raw_fd(), &part, name)
    }

    pub fn read(dir: &OwnedFd, name: &str) -> Result<Self> {
        let file = sys::open_at(dir.as_raw_fd(), name, libc::O_RDONLY | libc::O_NOFOLLOW, 0)?;
        let bytes = sys::read_fd(file.as_raw_fd(), 1 << 20)?;
        Self::decode(bytes.as_slice()).map_err(|_| Error::from_raw_os_error(libc::EBADMSG))
    }
}

/// Random, made at boot of the node.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}
