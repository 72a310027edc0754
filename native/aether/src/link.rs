//! What aether and init say to each other over a SOCK_SEQPACKET pair. Init is the sandbox's own process for all that
//! aether knows, so a report is taken as numbers only.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use prost::Message;

use crate::sys;

/// An order or report longer than this goes in a memfd.
pub const MAX_PACKET: usize = 32 * 1024;

pub mod what {
    pub const SPAWN: u32 = 0;
    pub const PING: u32 = 1;
    pub const WORKER: u32 = 2;
    pub const SIGNAL: u32 = 3;
    pub const SESSION_PIPES: u32 = 4;
}

pub mod target {
    /// The process itself.
    pub const PROCESS: u32 = 0;
    /// Its children, or itself where it has none.
    pub const CHILDREN: u32 = 1;
    /// Every process of its leaf (descriptor of cgroup.procs) or, without one, every descendant that can be found.
    pub const TREE: u32 = 2;
}

/// aether → init.
#[derive(Clone, PartialEq, Message)]
pub struct Order {
    /// One of `what`.
    #[prost(uint32, tag = "1")]
    pub what: u32,
    /// Given back in each report.
    #[prost(uint64, tag = "2")]
    pub token: u64,
    #[prost(string, tag = "3")]
    pub user: String,
    /// As asked; empty: the default.
    #[prost(bytes = "vec", tag = "4")]
    pub cwd: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub default_cwd: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub argv: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "7")]
    pub env: Vec<Vec<u8>>,
    /// Run argv with the platform's bash instead of looking argv[0] up.
    #[prost(bool, tag = "8")]
    pub shell: bool,
    #[prost(uint32, tag = "9")]
    pub pty_rows: u32,
    #[prost(uint32, tag = "10")]
    pub pty_cols: u32,
    /// A session's shell: gets descriptors of its own beside 0, 1, 2.
    #[prost(bool, tag = "11")]
    pub session: bool,
    /// Which descriptors came along, in the order leaf, stdin, stdout, stderr, status.
    #[prost(bool, tag = "12")]
    pub has_leaf: bool,
    #[prost(bool, tag = "13")]
    pub has_stdin: bool,
    /// WORKER: the encoded AetherRequest, and bytes read from the connection beyond it.
    #[prost(bytes = "vec", tag = "14")]
    pub request: Vec<u8>,
    #[prost(bytes = "vec", tag = "15")]
    pub early: Vec<u8>,
    #[prost(int32, tag = "16")]
    pub signal: i32,
    /// One of `target`.
    #[prost(uint32, tag = "17")]
    pub target: u32,
    /// A command's text too long for an argument.
    #[prost(bytes = "vec", tag = "18")]
    pub script: Vec<u8>,
}

pub mod news {
    /// The process is there. With a PTY its master comes along.
    pub const STARTED: u32 = 0;
    /// Nothing was started: `reason` and `message` are an error, or `errno` is why fork failed.
    pub const REFUSED: u32 = 1;
    /// The process was reaped.
    pub const ENDED: u32 = 2;
    /// Read ends of stdout and stderr, then the write and read end of stdin if asked.
    pub const PIPES: u32 = 3;
}

/// init → aether.
#[derive(Clone, PartialEq, Message)]
pub struct Report {
    /// One of `news`.
    #[prost(uint32, tag = "1")]
    pub news: u32,
    #[prost(uint64, tag = "2")]
    pub token: u64,
    #[prost(string, tag = "3")]
    pub reason: String,
    #[prost(string, tag = "4")]
    pub message: String,
    #[prost(int32, tag = "5")]
    pub errno: i32,
    /// As from wait(2).
    #[prost(int32, tag = "6")]
    pub status: i32,
    /// User and system time, microseconds.
    #[prost(uint64, tag = "7")]
    pub cpu_us: u64,
    #[prost(uint64, tag = "8")]
    pub peak_bytes: u64,
    /// What the command got, for the history.
    #[prost(bytes = "vec", tag = "9")]
    pub cwd: Vec<u8>,
    /// It was born in the leaf it was given.
    #[prost(bool, tag = "10")]
    pub in_leaf: bool,
}

/// Bytes of a packet and the memfd that goes first, where the message is long.
pub fn pack(message: &impl Message) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let length = message.encoded_len();
    if length < MAX_PACKET {
        let mut bytes = Vec::with_capacity(length + 1);
        bytes.push(0);
        message.encode(&mut bytes).expect("a Vec grows");
        return Ok((bytes, None));
    }
    Ok((vec![1], Some(sys::memfd(&message.encode_to_vec())?)))
}

pub fn send(socket: &impl AsRawFd, message: &impl Message, fds: &[BorrowedFd]) -> io::Result<()> {
    let (bytes, long) = pack(message)?;
    let mut all = Vec::with_capacity(fds.len() + 1);
    all.extend(long.as_ref().map(|fd| fd.as_fd()));
    all.extend_from_slice(fds);
    loop {
        match sys::send_packet(socket, &bytes, &all) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => return result,
        }
    }
}

/// The next message; None when the other side is gone. `buffer` has MAX_PACKET + 1 bytes.
pub fn receive<M: Message + Default>(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let (n, mut fds) = sys::receive_packet(socket, buffer)?;
    let bad = |_| io::Error::from(io::ErrorKind::InvalidData);
    match buffer[..n].split_first() {
        None => Ok(None),
        Some((0, bytes)) => Ok(Some((M::decode(bytes).map_err(bad)?, fds))),
        Some(_) if fds.is_empty() => Err(io::ErrorKind::InvalidData.into()),
        Some(_) => {
            let mut bytes = Vec::new();
            let mut chunk = [0; 16 * 1024];
            let long = fds.remove(0);
            loop {
                let n = sys::pread(&long, &mut chunk, bytes.len() as u64)?;
                if n == 0 {
                    break;
                }
                bytes.extend_from_slice(&chunk[..n]);
            }
            Ok(Some((M::decode(&bytes[..]).map_err(bad)?, fds)))
        }
    }
}
