//! The edge's connection, as a file worker uses it: frames, one after the other, each call waiting for the peer.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use prost::Message;
use wire::aether_reply::Result as Reply;
use wire::frame::{FrameHeader, HEADER_BYTES, KIND_MESSAGE, KIND_STDOUT};
use wire::{AetherDone, AetherReply};

use super::failure::{Failure, Outcome};

/// Contents of one frame: large enough that a call costs little, small enough to stay in the cache.
pub const CHUNK_BYTES: usize = 512 << 10;
/// A reader that takes nothing for so long is given up.
const SLOW_READER_MS: i32 = 30_000;

pub struct Connection {
    fd: OwnedFd,
    id: u32,
    /// Bytes that were read before, from `early_at` on.
    early: Vec<u8>,
    early_at: usize,
}

impl Connection {
    /// `id` is the request's, given back in each reply; `early` comes before what is still to be read.
    pub fn new(fd: OwnedFd, id: u32, early: Vec<u8>) -> Self {
        Self {
            fd,
            id,
            early,
            early_at: 0,
        }
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub fn reply(&mut self, result: Reply) -> Outcome<()> {
        let reply = AetherReply {
            id: self.id,
            result: Some(result),
        };
        let mut frame = vec![0; HEADER_BYTES];
        reply
            .encode(&mut frame)
            .map_err(|_| Failure::new("FILE_FAILED", "the reply cannot be encoded"))?;
        let header = FrameHeader::new(KIND_MESSAGE, frame.len() - HEADER_BYTES).encode();
        frame[..HEADER_BYTES].copy_from_slice(&header);
        self.send_all(&frame)
    }

    pub fn done(&mut self) -> Outcome<()> {
        self.reply(Reply::Done(AetherDone {}))
    }

    /// Sends `frame[8..]` as contents; the first 8 bytes are room for the header, which saves a copy.
    pub fn send_contents(&mut self, frame: &mut [u8]) -> Outcome<()> {
        let header = FrameHeader::new(KIND_STDOUT, frame.len() - HEADER_BYTES).encode();
        frame[..HEADER_BYTES].copy_from_slice(&header);
        self.send_all(frame)
    }

    /// The next frame of contents in `buffer`; false for the empty one that ends them.
    pub fn receive_contents(&mut self, buffer: &mut Vec<u8>) -> Outcome<bool> {
        let mut header = [0; HEADER_BYTES];
        self.receive_exact(&mut header)?;
        // A peer that breaks the form of the wire is not worth an answer.
        let header = FrameHeader::decode(&header).map_err(|_| Failure::Gone)?;
        if header.kind != KIND_STDOUT {
            return Err(Failure::Gone);
        }
        buffer.resize(header.payload_bytes, 0);
        self.receive_exact(buffer)?;
        Ok(header.payload_bytes > 0)
    }

    /// Tells the failure, then takes what the peer is still sending for a while: closing on unread bytes would
    /// break the peer's writes before it has seen the answer.
    pub fn fail(&mut self, failure: Failure, sends_contents: bool) {
        let Some(info) = failure.into_info() else {
            return;
        };
        if self.reply(Reply::Error(info)).is_err() || !sends_contents {
            return;
        }
        // SAFETY: the descriptor is open.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_WR) };
        let mut waste = vec![0; 64 << 10];
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while std::time::Instant::now() < end && matches!(self.wait(libc::POLLIN, 1000), Ok(true)) {
            if !matches!(self.receive(&mut waste), Ok(n) if n > 0) {
                return;
            }
        }
    }

    fn send_all(&mut self, mut bytes: &[u8]) -> Outcome<()> {
        while !bytes.is_empty() {
            // SAFETY: the buffer is as long as is said.
            let sent = unsafe {
                libc::send(
                    self.fd.as_raw_fd(),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                )
            };
            if sent >= 0 {
                bytes = &bytes[sent as usize..];
                continue;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // Not blocking, so that a reader that takes nothing can be told from a slow one.
                Some(libc::EAGAIN) => {
                    if !self.wait(libc::POLLOUT, SLOW_READER_MS)? {
                        return Err(Failure::Gone);
                    }
                }
                _ => return Err(Failure::Gone),
            }
        }
        Ok(())
    }

    fn receive_exact(&mut self, mut buffer: &mut [u8]) -> Outcome<()> {
        while !buffer.is_empty() {
            let taken = self.receive(buffer)?;
            if taken == 0 {
                return Err(Failure::Gone);
            }
            buffer = &mut buffer[taken..];
        }
        Ok(())
    }

    /// At least one byte; 0 at the end.
    fn receive(&mut self, buffer: &mut [u8]) -> Outcome<usize> {
        let early = &self.early[self.early_at..];
        if !early.is_empty() {
            let taken = early.len().min(buffer.len());
            buffer[..taken].copy_from_slice(&early[..taken]);
            self.early_at += taken;
            if self.early_at == self.early.len() {
                self.early = Vec::new();
                self.early_at = 0;
            }
            return Ok(taken);
        }
        loop {
            // SAFETY: the buffer is as long as is said.
            let taken = unsafe {
                libc::recv(
                    self.fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                )
            };
            if taken >= 0 {
                return Ok(taken as usize);
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => {
                    self.wait(libc::POLLIN, -1)?;
                }
                _ => return Err(Failure::Gone),
            }
        }
    }

    /// False when the time is over first.
    fn wait(&self, events: i16, timeout_ms: i32) -> Outcome<bool> {
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events,
            revents: 0,
        };
        loop {
            // SAFETY: one pollfd, as is said.
            let ready = unsafe { libc::poll(&mut poll, 1, timeout_ms) };
            if ready >= 0 {
                return Ok(ready > 0);
            }
            if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return Err(Failure::Gone);
            }
        }
    }
}
