//! File workers: processes of the sandbox that answer one call on files each. A unary call's reply is passed on; any
//! other call's connection becomes the worker's own.

use std::os::fd::OwnedFd;

use wire::buffer::FrameBuffer;
use wire::frame::KIND_MESSAGE;

use super::{key, Purpose, Supervisor};
use crate::errors::{failure, Failure};
use crate::link::{what, Order, Report};
use crate::sys;

pub struct Worker {
    connection: u32,
    request: u32,
    /// Our end, where the reply is passed on.
    relay: Option<OwnedFd>,
    reply: FrameBuffer,
}

impl Supervisor {
    /// `encoded` is the whole AetherRequest; `streams`: the connection is handed over.
    pub(super) fn start_worker(
        &mut self,
        id: u32,
        request: u32,
        encoded: Vec<u8>,
        user: String,
        streams: bool,
    ) -> Result<(), Failure> {
        let no_socket = |error: std::io::Error| {
            failure(
                "TOO_MANY_REQUESTS",
                format!("no socket can be made: {error}"),
            )
        };
        let mut early = Vec::new();
        let (relay, theirs) = if streams {
            let Some(connection) = self.connections.get_mut(&id) else {
                return Ok(());
            };
            if !connection.is_idle() {
                self.after(id);
            }
            let Some(connection) = self.connections.get_mut(&id) else {
                return Ok(());
            };
            let copy = sys::duplicate(&connection.fd).map_err(no_socket)?;
            early = connection.input.take_rest();
            connection.held = Some(request);
            (None, copy)
        } else {
            let (ours, theirs) = sys::socketpair(libc::SOCK_STREAM).map_err(no_socket)?;
            sys::set_nonblocking(&ours, true).map_err(no_socket)?;
            (Some(ours), theirs)
        };
        let token = self.token(Purpose::Worker);
        if let Some(ours) = &relay {
            let _ = self.epoll.add(ours, libc::EPOLLIN, key::RELAY | token);
        }
        self.await_answer(id);
        self.workers.insert(
            token,
            Worker {
                connection: id,
                request,
                relay,
                reply: FrameBuffer::default(),
            },
        );
        let order = Order {
            what: what::WORKER,
            token,
            user: if user.is_empty() {
                self.base.user.clone()
            } else {
                user
            },
            default_cwd: self.base.cwd.clone().into_bytes(),
            request: encoded,
            early,
            ..Default::default()
        };
        self.order(order, vec![theirs]);
        Ok(())
    }

    pub(super) fn worker_started(&mut self, token: u64) {
        let Some(worker) = self.workers.get(&token) else {
            return;
        };
        if worker.relay.is_none() {
            let id = worker.connection;
            self.workers.remove(&token);
            if let Some(connection) = self.connections.get(&id) {
                // The worker reads and writes as a plain program does; the flag is shared by both descriptors.
                let _ = sys::set_nonblocking(&connection.fd, false);
            }
            self.give_away(id);
        }
    }

    pub(super) fn worker_refused(&mut self, token: u64, report: Report) {
        let Some(worker) = self.workers.remove(&token) else {
            return;
        };
        let failed = if report.errno != 0 {
            let error = std::io::Error::from_raw_os_error(report.errno);
            failure(
                "FILE_WORKER_ENDED",
                format!("no process could be forked in the sandbox: {error}"),
            )
        } else {
            failure(&report.reason, report.message)
        };
        if let Some(relay) = &worker.relay {
            self.epoll.remove(relay);
        }
        self.reply_error(worker.connection, worker.request, failed);
    }

    pub(super) fn worker_ended(&mut self, token: u64) {
        if self.workers.contains_key(&token) {
            self.relay(token);
            self.finish_relay(token);
        }
    }

    /// Reads the worker's reply. It runs inside: its bytes are checked as a frame, and nothing more is taken from it.
    pub(super) fn relay(&mut self, token: u64) {
        let Some(worker) = self.workers.get_mut(&token) else {
            return;
        };
        let Some(relay) = &worker.relay else { return };
        loop {
            match sys::read(relay, &mut self.buffer[..64 * 1024]) {
                Ok(0) => break,
                Ok(n) => worker.reply.extend(&self.buffer[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return self.relay_frame(token)
                }
                Err(_) => break,
            }
            if worker.reply.len() > wire::frame::MAX_PAYLOAD_BYTES + 64 {
                break;
            }
        }
        self.relay_frame(token);
        self.finish_relay(token);
    }

    fn relay_frame(&mut self, token: u64) {
        let Some(worker) = self.workers.get_mut(&token) else {
            return;
        };
        let (id, request) = (worker.connection, worker.request);
        match worker.reply.next_frame() {
            Ok(Some((KIND_MESSAGE, payload))) => {
                let reply = <wire::AetherReply as prost::Message>::decode(&payload[..]);
                match reply
                    .ok()
                    .filter(|reply| reply.id == request && reply.result.is_some())
                {
                    Some(reply) => {
                        let mut frame = Vec::new();
                        wire::buffer::push_message(&mut frame, &reply);
                        self.drop_worker(token);
                        self.answered(id);
                        self.push_bytes(id, &frame);
                    }
                    None => self.finish_relay(token),
                }
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => self.finish_relay(token),
        }
    }

    fn drop_worker(&mut self, token: u64) {
        if let Some(Worker {
            relay: Some(relay), ..
        }) = self.workers.remove(&token)
        {
            self.epoll.remove(&relay);
        }
    }

    /// Without a reply.
    fn finish_relay(&mut self, token: u64) {
        let Some(worker) = self.workers.get(&token) else {
            return;
        };
        let (id, request) = (worker.connection, worker.request);
        self.drop_worker(token);
        self.reply_error(
            id,
            request,
            failure(
                "FILE_WORKER_ENDED",
                "the process that served the files ended without an answer",
            ),
        );
    }
}
