//! A connection of the edge: frames in, frames out, never waiting for it.

use prost::Message;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use wire::frame::{FrameHeader, HEADER_BYTES, KIND_MESSAGE, MAX_PAYLOAD_BYTES};
use wire::{HostdReply, HostdRequest};

pub struct Peer {
    pub socket: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
    pub subscribed: bool,
}

/// Orders are small: names and digests.
const MAX_REQUEST_BYTES: usize = 65536;
/// An edge that takes no replies is cut.
const MAX_OUTPUT_BYTES: usize = 8 * MAX_PAYLOAD_BYTES;

impl Peer {
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            input: Vec::new(),
            output: Vec::new(),
            subscribed: false,
        }
    }

    /// Whole requests that have arrived; an error ends the connection.
    pub fn receive(&mut self) -> Result<Vec<HostdRequest>> {
        let mut part = [0u8; 16384];
        loop {
            // SAFETY: the buffer is valid for its length.
            let count = unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    part.as_mut_ptr().cast(),
                    part.len(),
                    0,
                )
            };
            match count {
                0 => return Err(Error::from_raw_os_error(libc::ECONNRESET)),
                1.. => self.input.extend_from_slice(&part[..count as usize]),
                _ => match Error::last_os_error() {
                    error if error.raw_os_error() == Some(libc::EAGAIN) => break,
                    error => return Err(error),
                },
            }
            if (count as usize) < part.len() {
                break;
            }
        }
        let broken = || Error::from_raw_os_error(libc::EBADMSG);
        let mut requests = Vec::new();
        let mut at = 0;
        while let Some(header) = self.input.get(at..at + HEADER_BYTES) {
            let header = FrameHeader::decode(header.try_into().map_err(|_| broken())?)
                .map_err(|_| broken())?;
            if header.kind != KIND_MESSAGE || header.payload_bytes > MAX_REQUEST_BYTES {
                return Err(broken());
            }
            let start = at + HEADER_BYTES;
            let Some(payload) = self.input.get(start..start + header.payload_bytes) else {
                break;
            };
            requests.push(HostdRequest::decode(payload).map_err(|_| broken())?);
            at = start + header.payload_bytes;
        }
        self.input.drain(..at);
        Ok(requests)
    }

    pub fn send(&mut self, reply: &HostdReply) -> Result<()> {
        let payload = reply.encode_to_vec();
        if payload.len() > MAX_PAYLOAD_BYTES || self.output.len() > MAX_OUTPUT_BYTES {
            return Err(Error::from_raw_os_error(libc::EMSGSIZE));
        }
        self.output
            .extend_from_slice(&FrameHeader::new(KIND_MESSAGE, payload.len()).encode());
        self.output.extend_from_slice(&payload);
        self.flush()
    }

    pub fn flush(&mut self) -> Result<()> {
        while !self.output.is_empty() {
            let fd = self.socket.as_raw_fd();
            // SAFETY: the buffer is valid for its length.
            let count = unsafe {
                libc::send(
                    fd,
                    self.output.as_ptr().cast(),
                    self.output.len(),
                    libc::MSG_NOSIGNAL,
                )
            };
            if count < 0 {
                let error = Error::last_os_error();
                return if error.raw_os_error() == Some(libc::EAGAIN) {
                    Ok(())
                } else {
                    Err(error)
                };
            }
            self.output.drain(..count as usize);
        }
        Ok(())
    }

    pub fn wants_to_write(&self) -> bool {
        !self.output.is_empty()
    }
}
