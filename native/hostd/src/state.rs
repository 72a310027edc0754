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
    #[prost(bool, tag = "12")]
    pub runc: bool,
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
    pub fn of(boot_id: &str, sandbox_id: &str, phase: Phase, layers: &[String]) -> Self {
        Self {
            boot_id: boot_id.into(),
            sandbox_id: sandbox_id.into(),
            phase: phase as i32,
            layers: layers.to_vec(),
            ..Default::default()
        }
    }

    pub fn baseline(&self) -> Baseline {
        Baseline {
            cpu_ns: self.cpu_ns,
            oom_kills: self.oom_kills,
            pids_hits: self.pids_hits,
        }
    }

    /// Over what is there, in one write, which a kill does not cut: length, then the message. No new file each time,
    /// since ext4 takes long to find an inode where many were just removed.
    pub fn write(&self, dir: &OwnedFd, name: &str) -> Result<()> {
        let mut bytes = vec![0; 4];
        self.encode(&mut bytes)
            .map_err(|_| Error::from_raw_os_error(libc::EINVAL))?;
        let length = bytes.len() as u32 - 4;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        put(dir, name, &bytes)
    }

    /// ENOENT: the slot is clean.
    pub fn read(dir: &OwnedFd, name: &str) -> Result<Self> {
        let file = sys::open_at(dir.as_raw_fd(), name, libc::O_RDONLY | libc::O_NOFOLLOW, 0)?;
        let bytes = sys::read_fd(file.as_raw_fd(), 1 << 20)?;
        let broken = || Error::from_raw_os_error(libc::EBADMSG);
        let (head, rest) = bytes.split_first_chunk::<4>().ok_or_else(broken)?;
        match u32::from_ne_bytes(*head) as usize {
            0 => Err(Error::from_raw_os_error(libc::ENOENT)),
            length => Self::decode(rest.get(..length).ok_or_else(broken)?).map_err(|_| broken()),
        }
    }

    /// The slot is clean.
    pub fn clear(dir: &OwnedFd, name: &str) -> Result<()> {
        put(dir, name, &[0; 4])
    }
}

fn put(dir: &OwnedFd, name: &str, bytes: &[u8]) -> Result<()> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_NOFOLLOW;
    let file = sys::open_at(dir.as_raw_fd(), name, flags, 0o600)?;
    sys::write_fd(file.as_raw_fd(), bytes)
}

/// Random, made at boot of the node.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_string()
}
