//! Standard input: bytes at offsets, so that a repeated call does no harm; never more in memory than a call may bring.

use std::os::fd::{AsRawFd, OwnedFd};

use wire::{AetherInput, WriteInputResponse};

use super::{key, Supervisor};
use crate::errors::{failure, Failure};
use crate::sys;

const MAX_BUFFER: usize = 1 << 20;

pub struct Input {
    /// Write end of the pipe, or the terminal's master; None once it is closed.
    pub fd: Option<OwnedFd>,
    pub buffer: Vec<u8>,
    pub sent: usize,
    /// Bytes taken from callers so far.
    pub taken: u64,
    pub end: bool,
    pub open_for_more: bool,
    pub terminal: bool,
    /// Of a session's call, until the shell has opened its own: without a reader a write would fail, and without a
    /// writer the shell would wait for ever.
    pub read_end: Option<OwnedFd>,
    watched: bool,
}

impl Input {
    pub fn new(fd: Option<OwnedFd>, first: Vec<u8>, more: bool, terminal: bool) -> Input {
        Input {
            fd,
            taken: first.len() as u64,
            buffer: first,
            sent: 0,
            end: !more,
            open_for_more: more,
            terminal,
            read_end: None,
            watched: false,
        }
    }
}

impl Supervisor {
    pub(super) fn write_input(&mut self, call: AetherInput) -> Result<WriteInputResponse, Failure> {
        let closed = || {
            failure(
                "STDIN_CLOSED",
                format!("command {:?} takes no input", call.command_id),
            )
        };
        let number = self.live(&call.command_id)?.ok_or_else(closed)?;
        let command = self.commands.get_mut(&number).ok_or_else(closed)?;
        let input = command.input.as_mut().ok_or_else(closed)?;
        if call.offset > input.taken {
            let message = format!(
                "input at offset {} where {} bytes were taken",
                call.offset, input.taken
            );
            return Err(failure("INPUT_GAP", message));
        }
        let end = call.offset + call.data.len() as u64;
        if end <= input.taken && (input.end || !call.end_of_file) {
            // All of it was taken before.
            return Ok(WriteInputResponse {
                accepted_bytes: input.taken,
            });
        }
        if input.end
            || !input.open_for_more
            || (input.fd.is_none() && !matches!(command.phase, super::command::Phase::Starting))
        {
            return Err(closed());
        }
        let fresh = &call.data[((input.taken - call.offset) as usize).min(call.data.len())..];
        input.buffer.drain(..std::mem::take(&mut input.sent));
        let room = MAX_BUFFER.saturating_sub(input.buffer.len());
        let accepted = &fresh[..fresh.len().min(room)];
        input.buffer.extend_from_slice(accepted);
        input.taken += accepted.len() as u64;
        input.end = call.end_of_file && accepted.len() == fresh.len();
        if input.end && input.terminal {
            // What a terminal's user types to end the input.
            input.buffer.push(4);
        }
        let accepted_bytes = input.taken;
        self.feed_input(number);
        Ok(WriteInputResponse { accepted_bytes })
    }

    /// Writes what the pipe takes now.
    pub(super) fn feed_input(&mut self, number: u64) {
        let Some(input) = self
            .commands
            .get_mut(&number)
            .and_then(|command| command.input.as_mut())
        else {
            return;
        };
        let Some(fd) = &input.fd else { return };
        let mut closed = false;
        while input.sent < input.buffer.len() {
            match sys::write(fd, &input.buffer[input.sent..]) {
                Ok(n) => input.sent += n,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => {
                    closed = true;
                    break;
                }
            }
        }
        let waiting = input.sent < input.buffer.len() && !closed;
        if !waiting {
            input.buffer = Vec::new();
            input.sent = 0;
        }
        if closed || (!waiting && input.end && !input.terminal && input.read_end.is_none()) {
            if input.watched {
                self.epoll.remove(fd);
            }
            input.fd = None;
            return;
        }
        if waiting != input.watched {
            input.watched = waiting;
            if waiting {
                let _ = self.epoll.add(fd, libc::EPOLLOUT, key::INPUT | number);
            } else {
                self.epoll.remove(fd);
            }
        }
    }

    /// The main process has ended: nobody reads any more.
    pub(super) fn close_input(&mut self, number: u64) {
        let Some(input) = self
            .commands
            .get_mut(&number)
            .and_then(|command| command.input.as_mut())
        else {
            return;
        };
        if let (Some(fd), true) = (&input.fd, input.watched) {
            self.epoll.remove(fd);
        }
        *input = Input {
            end: true,
            taken: input.taken,
            ..Input::new(None, Vec::new(), false, false)
        };
    }

    pub(super) fn resize(&mut self, call: wire::AetherResize) -> Result<(), Failure> {
        let size = call.size.unwrap_or_default();
        if ![size.rows, size.cols]
            .iter()
            .all(|n| (1..=65535).contains(n))
        {
            return Err(failure("INVALID_ARGUMENT", "rows and cols are 1 to 65535"));
        }
        let Some(number) = self.live(&call.command_id)? else {
            return Ok(());
        };
        let Some(command) = self.commands.get(&number) else {
            return Ok(());
        };
        if !command.info.pty {
            return Err(failure(
                "NOT_A_TERMINAL",
                format!("command {:?} has no terminal", call.command_id),
            ));
        }
        if let Some(terminal) = &command.terminal {
            let size = libc::winsize {
                ws_row: size.rows as u16,
                ws_col: size.cols as u16,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            // SAFETY: the request reads one winsize.
            unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        }
        Ok(())
    }
}
