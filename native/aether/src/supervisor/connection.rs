//! Connections from the edge: requests in, frames out, never more of either in memory than a frame or two.

use std::os::fd::OwnedFd;

use prost::Message;
use wire::aether_reply::Result as Reply;
use wire::buffer::{push_message, FrameBuffer};
use wire::frame::KIND_MESSAGE;
use wire::{AetherDone, AetherReply, AetherRequest};

use super::history::Archived;
use super::{key, Supervisor};
use crate::errors::{failure, Failure};
use crate::sys;

/// A reader that takes nothing for this long is cut.
const SLOW_NS: u64 = 30_000_000_000;
/// Replies waiting to be sent before no further request is taken.
const MAX_OUT: usize = 256 * 1024;

pub enum Source {
    Live(u64),
    Archived(Box<Archived>),
}

/// A connection that receives a command's output.
pub struct Reader {
    pub request: u32,
    pub source: Source,
    /// Next offset of stdout and stderr.
    pub cursor: [u64; 2],
    pub recorded_only: bool,
}

pub struct Connection {
    pub fd: OwnedFd,
    pub input: FrameBuffer,
    out: Vec<u8>,
    sent: usize,
    greeted: bool,
    pub reader: Option<Reader>,
    /// The request whose answer decides what the connection is for next.
    pub held: Option<u32>,
    /// Requests whose answers are still to come; a peer that has shut down its side gets them first.
    pub pending: u32,
    finished: bool,
    cut: bool,
    stalled_since: Option<u64>,
    events: i32,
    enlarged: bool,
}

impl Connection {
    /// The request that streams or waits, if there is one.
    pub fn waiting_request(&self) -> Option<u32> {
        self.reader
            .as_ref()
            .map(|reader| reader.request)
            .or(self.held)
    }

    pub fn is_idle(&self) -> bool {
        self.sent == self.out.len()
    }

    /// Sends both parts, or keeps what the socket does not take now.
    pub fn send_two(&mut self, first: &[u8], second: &[u8]) {
        let mut taken = 0;
        if self.is_idle() {
            match sys::write_two(&self.fd, first, second) {
                Ok(n) => taken = n,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // The peer is gone: its end shows up as an event.
                Err(_) => return,
            }
        }
        let (mut first, mut second) = (first, second);
        if taken >= first.len() {
            second = &second[taken - first.len()..];
            first = &[];
        } else {
            first = &first[taken..];
        }
        if first.is_empty() && second.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.enlarged, true) {
            sys::enlarge_send_buffer(&self.fd);
        }
        if self.is_idle() || taken > 0 {
            self.stalled_since = Some(sys::now_ns());
        }
        self.out.extend_from_slice(first);
        self.out.extend_from_slice(second);
    }

    /// False: the peer is gone.
    fn flush(&mut self) -> bool {
        while self.sent < self.out.len() {
            match sys::write(&self.fd, &self.out[self.sent..]) {
                Ok(n) => {
                    self.sent += n;
                    self.stalled_since = Some(sys::now_ns());
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.sent = 0;
        self.stalled_since = None;
        // While output flows the room is needed again at once.
        if self.out.capacity() > 16 * 1024 && self.reader.is_none() {
            self.out = Vec::new();
        } else {
            self.out.clear();
        }
        true
    }

    fn takes_requests(&self) -> bool {
        self.reader.is_none()
            && self.held.is_none()
            && !self.cut
            && self.out.len() - self.sent < MAX_OUT
    }
}

impl Supervisor {
    pub(super) fn accept(&mut self) {
        for _ in 0..16 {
            let Ok(fd) = sys::accept(&self.listener) else {
                return;
            };
            if !sys::peer_uid(&fd).is_ok_and(|uid| uid == self.edge_uid || uid == 0) {
                continue;
            }
            self.last_connection = self.last_connection.wrapping_add(1);
            let id = self.last_connection;
            let events = libc::EPOLLIN;
            if self
                .epoll
                .add(&fd, events, key::CONNECTION | u64::from(id))
                .is_err()
            {
                continue;
            }
            let connection = Connection {
                fd,
                enlarged: false,
                input: FrameBuffer::default(),
                out: Vec::new(),
                sent: 0,
                greeted: false,
                reader: None,
                held: None,
                pending: 0,
                finished: false,
                cut: false,
                stalled_since: None,
                events,
            };
            self.connections.insert(id, connection);
        }
    }

    pub(super) fn connection_event(&mut self, id: u32, happened: i32) {
        if happened & (libc::EPOLLHUP | libc::EPOLLERR) != 0 && happened & libc::EPOLLIN == 0 {
            return self.close(id);
        }
        if happened & libc::EPOLLOUT != 0 {
            let Some(connection) = self.connections.get_mut(&id) else {
                return;
            };
            if !connection.flush() {
                return self.close(id);
            }
            self.pump_connection(id);
        }
        self.serve(id);
    }

    /// Reads and answers requests while the connection takes any.
    pub(super) fn serve(&mut self, id: u32) {
        loop {
            let Some(connection) = self.connections.get_mut(&id) else {
                return;
            };
            if !connection.takes_requests() {
                break;
            }
            match connection.input.next_frame() {
                Ok(Some((KIND_MESSAGE, payload))) => match AetherRequest::decode(&payload[..]) {
                    Ok(request) => self.request(id, request, payload),
                    Err(_) => return self.close(id),
                },
                // Contents belong to calls that a worker answers; here they mean nothing.
                Ok(Some(_)) | Err(_) => return self.close(id),
                Ok(None) => {
                    if connection.finished {
                        if connection.pending == 0 && connection.is_idle() {
                            return self.close(id);
                        }
                        break;
                    }
                    match sys::read(&connection.fd, &mut self.buffer[..64 * 1024]) {
                        Ok(0) => connection.finished = true,
                        Ok(n) => connection.input.extend(&self.buffer[..n]),
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(_) => return self.close(id),
                    }
                }
            }
        }
        self.after(id);
    }

    /// Sends what can be sent; a reader whose socket took it all gets more.
    pub(super) fn after(&mut self, id: u32) {
        let full = |connection: &Connection| !connection.is_idle() && connection.reader.is_some();
        let was_full = self.connections.get(&id).is_some_and(full);
        self.settle(id);
        if was_full && self.connections.get(&id).is_some_and(Connection::is_idle) {
            self.hungry.push(id);
        }
    }

    /// Sends what can be sent, and asks epoll for what is wanted next.
    pub(super) fn settle(&mut self, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if !connection.flush() || (connection.cut && connection.is_idle()) {
            return self.close(id);
        }
        if connection.finished
            && connection.pending == 0
            && connection.is_idle()
            && connection.waiting_request().is_none()
            && connection.input.is_empty()
        {
            return self.close(id);
        }
        let mut events = 0;
        if connection.takes_requests() && !connection.finished {
            events |= libc::EPOLLIN;
        }
        if !connection.is_idle() {
            events |= libc::EPOLLOUT;
        }
        if events != connection.events {
            connection.events = events;
            let _ = self
                .epoll
                .change(&connection.fd, events, key::CONNECTION | u64::from(id));
        }
    }

    pub(super) fn close(&mut self, id: u32) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        self.epoll.remove(&connection.fd);
        if let Some(Reader {
            source: Source::Live(number),
            ..
        }) = connection.reader
        {
            drop(connection.fd);
            self.detach(number, id);
        }
    }

    pub(super) fn reply(&mut self, id: u32, request: u32, reply: Reply) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.is_idle() {
            connection.stalled_since = Some(sys::now_ns());
        }
        push_message(
            &mut connection.out,
            &AetherReply {
                id: request,
                result: Some(reply),
            },
        );
        self.ready.push(id);
    }

    pub(super) fn reply_done(&mut self, id: u32, request: u32) {
        self.answered(id);
        self.reply(id, request, Reply::Done(AetherDone {}));
    }

    // Failures are boxed where they are made, so that results stay small.
    #[allow(clippy::boxed_local)]
    pub(super) fn reply_error(&mut self, id: u32, request: u32, failed: Failure) {
        self.answered(id);
        self.reply(id, request, Reply::Error(*failed));
        if let Some(connection) = self.connections.get_mut(&id) {
            if connection.held == Some(request) {
                connection.held = None;
            }
        }
        self.after(id);
    }

    /// One of the answers that were to come later is here.
    pub(super) fn answered(&mut self, id: u32) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.pending = connection.pending.saturating_sub(1);
        }
    }

    /// Frames as they are, from a worker.
    pub(super) fn push_bytes(&mut self, id: u32, bytes: &[u8]) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.out.extend_from_slice(bytes);
            self.ready.push(id);
        }
    }

    pub(super) fn greet(&mut self, id: u32) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.greeted = true;
        }
    }

    pub(super) fn is_greeted(&self, id: u32) -> bool {
        self.connections
            .get(&id)
            .is_some_and(|connection| connection.greeted)
    }

    /// The connection is another process's from here on.
    pub(super) fn give_away(&mut self, id: u32) {
        if let Some(connection) = self.connections.remove(&id) {
            self.epoll.remove(&connection.fd);
        }
    }

    /// Cuts readers that have taken nothing for too long.
    pub(super) fn cut_slow(&mut self, now: u64) {
        let slow: Vec<u32> = self
            .connections
            .iter()
            .filter(|(_, c)| {
                !c.is_idle() && c.stalled_since.is_some_and(|since| now >= since + SLOW_NS)
            })
            .map(|(&id, _)| id)
            .collect();
        for id in slow {
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            match connection.reader.take() {
                Some(reader) if !connection.cut => {
                    // What is under way is finished first, or the frame would be torn; a second delay ends it all.
                    connection.cut = true;
                    connection.stalled_since = Some(now);
                    let failed = failure(
                        "SLOW_READER",
                        "the reader took nothing for 30 s; attach again with its offsets",
                    );
                    push_message(
                        &mut connection.out,
                        &AetherReply {
                            id: reader.request,
                            result: Some(Reply::Error(*failed)),
                        },
                    );
                    if let Source::Live(number) = reader.source {
                        self.detach(number, id);
                    }
                }
                _ => self.close(id),
            }
        }
    }

    pub(super) fn any_stalled(&self) -> bool {
        self.connections
            .values()
            .any(|connection| !connection.is_idle())
    }
}
