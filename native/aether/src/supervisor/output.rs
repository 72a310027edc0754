//! Output: pipe → record and attached readers. With no reader the writer never waits; an attached reader that is behind
//! slows it, since the pipe is read only when all readers have everything.

use std::os::fd::AsRawFd;

use wire::aether_reply::Result as Reply;
use wire::buffer::output_header;
use wire::frame::{KIND_STDERR, KIND_STDOUT};
use wire::AetherDone;

use super::command::{Command, Phase};
use super::connection::{Connection, Reader, Source};
use super::record::Record;
use super::{key, Supervisor};
use crate::sys;

const KINDS: [u8; 2] = [KIND_STDOUT, KIND_STDERR];
/// Bytes of one command before others get their turn.
const TURN: usize = 2 << 20;

impl Supervisor {
    /// Sends what readers lack, reads what is there, ends what has ended.
    pub(super) fn pump(&mut self, number: u64) {
        let mut budget = TURN;
        loop {
            self.feed_readers(number);
            let Some(command) = self.commands.get(&number) else {
                return;
            };
            let readers = command.readers.clone();
            for id in readers {
                // Whoever's socket is full wakes us when it is not; nobody else may be left waiting.
                self.settle(id);
            }
            let Some(command) = self.commands.get(&number) else {
                return;
            };
            if command.readers.iter().any(|id| self.is_full(*id)) {
                break;
            }
            if command
                .readers
                .iter()
                .any(|id| self.holds_back(*id, command))
            {
                continue;
            }
            // Only here, where no reader is left with something half sent.
            if budget == 0 {
                break;
            }
            let n = self.read_streams(number);
            budget = budget.saturating_sub(n);
            if n == 0 {
                break;
            }
        }
        self.end_if_complete(number);
        self.watch_streams(number);
        self.archive_if_done(number);
    }

    fn is_full(&self, id: u32) -> bool {
        self.connections.get(&id).is_some_and(|connection| {
            !connection.is_idle()
                && connection
                    .reader
                    .as_ref()
                    .is_some_and(|reader| !reader.recorded_only)
        })
    }

    /// Whether the reader is behind, and the command must wait for it.
    fn holds_back(&self, id: u32, command: &Command) -> bool {
        let Some(connection) = self.connections.get(&id) else {
            return false;
        };
        let Some(reader) = &connection.reader else {
            return false;
        };
        let behind = (0..2).any(|s| reader.cursor[s] < command.streams[s].record.total);
        !reader.recorded_only && (behind || !connection.is_idle())
    }

    /// Bytes read.
    fn read_streams(&mut self, number: u64) -> usize {
        let Some(command) = self.commands.get_mut(&number) else {
            return 0;
        };
        let session = !command.info.session_id.is_empty();
        let mut all = 0;
        for (s, stream) in command.streams.iter_mut().enumerate() {
            let Some(fd) = &stream.fd else { continue };
            let mut wanted = self.buffer.len();
            if let Some(until) = stream.until {
                if !stream.complete {
                    wanted = wanted.min((until - stream.record.total) as usize);
                }
            }
            let n = match sys::read(fd, &mut self.buffer[..wanted]) {
                Ok(n) => n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    stream.complete |= stream.until.is_some();
                    continue;
                }
                // A terminal whose last user is gone gives EIO.
                Err(_) => 0,
            };
            if n == 0 && matches!(command.phase, Phase::Running) && session && !sys::is_hung_up(fd)
            {
                // A session's shell has not opened it yet.
                continue;
            }
            if n == 0 {
                if stream.watched {
                    self.epoll.remove(fd);
                }
                stream.fd = None;
                stream.complete = true;
                continue;
            }
            if n >= 64 * 1024 && !stream.grown {
                stream.grown = true;
                // SAFETY: plain call; where the user's share of pipe memory is used up it changes nothing.
                unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
            }
            let offset = stream.record.total;
            let data = &self.buffer[..n];
            stream.record.append(data, &mut self.history);
            if stream
                .until
                .is_some_and(|until| stream.record.total >= until)
            {
                stream.complete = true;
            }
            let head = output_header(KINDS[s], offset, 0, n);
            for id in &command.readers {
                let Some(connection) = self.connections.get_mut(id) else {
                    continue;
                };
                if connection
                    .reader
                    .as_ref()
                    .is_some_and(|reader| reader.cursor[s] == offset)
                {
                    connection.send_two(&head, data);
                    if let Some(reader) = &mut connection.reader {
                        reader.cursor[s] += n as u64;
                    }
                }
            }
            all += n;
            self.buffer_used |= n > 16 * 1024;
        }
        all
    }

    /// Puts pipes into epoll, or takes them out while a reader holds the command back: a closed one would wake us
    /// again and again.
    fn watch_streams(&mut self, number: u64) {
        let Some(command) = self.commands.get(&number) else {
            return;
        };
        let wanted = !command
            .readers
            .iter()
            .any(|id| self.holds_back(*id, command));
        let Some(command) = self.commands.get_mut(&number) else {
            return;
        };
        for (s, kind) in [key::STDOUT, key::STDERR].into_iter().enumerate() {
            let stream = &mut command.streams[s];
            let Some(fd) = &stream.fd else { continue };
            if wanted != stream.watched {
                stream.watched = wanted;
                if wanted {
                    let _ = self.epoll.add(fd, libc::EPOLLIN, kind | number);
                } else {
                    self.epoll.remove(fd);
                }
            }
        }
    }

    fn feed_readers(&mut self, number: u64) {
        let Some(command) = self.commands.get_mut(&number) else {
            return;
        };
        let over = command.is_over();
        let mut left = Vec::new();
        for &id in &command.readers {
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            let records = [&command.streams[0].record, &command.streams[1].record];
            let current = feed(connection, records, &mut self.buffer);
            if let (true, Some(reader)) = (current, &connection.reader) {
                if over || reader.recorded_only {
                    left.push((id, reader.request));
                }
            }
        }
        command
            .readers
            .retain(|id| !left.iter().any(|(gone, _)| gone == id));
        let outcome = command.info.outcome.clone();
        for (id, request) in left {
            let last = match &outcome {
                Some(outcome) => Reply::Ended(outcome.clone()),
                None => Reply::Done(AetherDone {}),
            };
            self.finish_reading(id, request, last);
        }
    }

    pub(super) fn pump_ended(&mut self, number: u64) {
        self.feed_readers(number);
    }

    fn finish_reading(&mut self, id: u32, request: u32, last: Reply) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.reader = None;
        }
        self.reply(id, request, last);
    }

    /// A connection can take more.
    pub(super) fn pump_connection(&mut self, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let Some(mut reader) = connection.reader.take() else {
            return;
        };
        match reader.source {
            Source::Live(number) => {
                connection.reader = Some(reader);
                self.pump(number);
            }
            Source::Archived(archived) => {
                let request = reader.request;
                reader.source = Source::Live(0);
                connection.reader = Some(reader);
                loop {
                    self.settle(id);
                    let Some(connection) = self.connections.get_mut(&id) else {
                        return;
                    };
                    if !connection.is_idle() {
                        if let Some(reader) = &mut connection.reader {
                            reader.source = Source::Archived(archived);
                        }
                        return;
                    }
                    if feed(
                        connection,
                        [&archived.records[0], &archived.records[1]],
                        &mut self.buffer,
                    ) {
                        let outcome = archived.info.outcome.unwrap_or_default();
                        return self.finish_reading(id, request, Reply::Ended(outcome));
                    }
                }
            }
        }
    }

    pub(super) fn attach(&mut self, id: u32, reader: Reader) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.held = None;
        let live = match reader.source {
            Source::Live(number) => Some(number),
            Source::Archived(_) => None,
        };
        connection.reader = Some(reader);
        if let Some(command) = live.and_then(|number| self.commands.get_mut(&number)) {
            command.readers.push(id);
        }
        self.pump_connection(id);
    }

    /// The reader is gone: the command waits for it no longer.
    pub(super) fn detach(&mut self, number: u64, id: u32) {
        if let Some(command) = self.commands.get_mut(&number) {
            command.readers.retain(|reader| *reader != id);
            self.pump(number);
        }
    }

    /// Nothing writes into it any more, and nobody reads it from memory.
    pub(super) fn archive_if_done(&mut self, number: u64) {
        let Some(command) = self.commands.get(&number) else {
            return;
        };
        let open = command.streams.iter().any(|stream| stream.fd.is_some());
        if !matches!(command.phase, Phase::Ended) || open || !command.readers.is_empty() {
            return;
        }
        let Some(command) = self.commands.remove(&number) else {
            return;
        };
        let [out, err] = command.streams;
        self.history
            .archive(number, command.info, [out.record, err.record]);
    }
}

/// Sends recorded bytes until the socket is full. True: the reader has everything that is there.
fn feed(connection: &mut Connection, records: [&Record; 2], buffer: &mut [u8]) -> bool {
    for s in 0..2 {
        loop {
            let Some(cursor) = connection.reader.as_ref().map(|reader| reader.cursor[s]) else {
                return false;
            };
            if cursor >= records[s].total {
                break;
            }
            if !connection.is_idle() {
                return false;
            }
            let (start, n) = records[s].read(cursor, buffer);
            let head = output_header(KINDS[s], start, start - cursor, n);
            connection.send_two(&head, &buffer[..n]);
            if let Some(reader) = &mut connection.reader {
                reader.cursor[s] = start + n as u64;
            }
        }
    }
    true
}
