//! All commands of the sandbox's life, in order of their start. Memory holds an index of 24 bytes a command; what is
//! known of one that ended is in the file `history`, its longer output in files of its own.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use prost::Message;
use wire::CommandInfo;

use super::record::{file_name, Layout, Record};
use crate::sys;

/// Bytes of recorded output a sandbox may keep in files.
const MAX_OUTPUT: u64 = 64 << 20;
const MAX_ENDED: usize = 10_000;
const KEPT_SECONDS: u64 = 3600;

const RUNNING: u64 = u64::MAX;
const NEVER_RAN: u64 = u64::MAX - 1;

struct Entry {
    hash: u64,
    /// Where in the file, or RUNNING or NEVER_RAN.
    position: u64,
    ended_s: u32,
    outputs_gone: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(message, optional, tag = "1")]
    info: Option<CommandInfo>,
    #[prost(message, repeated, tag = "2")]
    streams: Vec<Layout>,
}

/// A command that ended, with its output.
pub struct Archived {
    pub info: CommandInfo,
    pub records: [Record; 2],
}

pub struct History {
    dir: OwnedFd,
    log: Option<OwnedFd>,
    log_end: u64,
    /// Number of the first entry.
    first: u64,
    entries: VecDeque<Entry>,
    /// Bytes of output in files.
    pub used: u64,
    /// Ended commands with output, oldest first, and their bytes.
    outputs: VecDeque<(u64, u32)>,
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

impl History {
    pub fn new(dir: OwnedFd) -> History {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
        let log = sys::openat(&dir, c"history", flags, 0o600).ok();
        History {
            dir,
            log,
            log_end: 0,
            first: 1,
            entries: VecDeque::new(),
            used: 0,
            outputs: VecDeque::new(),
        }
    }

    pub fn open(&self, name: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
        sys::openat(&self.dir, name, flags | libc::O_NOFOLLOW, 0o600)
    }

    /// Number of the new command.
    pub fn begin(&mut self, id: &str) -> u64 {
        let now = sys::unix_ms() / 1000;
        while self.entries.len() >= MAX_ENDED {
            let oldest = &self.entries[0];
            let young =
                oldest.position != NEVER_RAN && now < u64::from(oldest.ended_s) + KEPT_SECONDS;
            if oldest.position == RUNNING || young {
                break;
            }
            let position = oldest.position;
            self.entries.pop_front();
            self.first += 1;
            self.erase(position);
        }
        self.entries.push_back(Entry {
            hash: hash(id),
            position: RUNNING,
            ended_s: 0,
            outputs_gone: false,
        });
        self.first + self.entries.len() as u64 - 1
    }

    /// The command was not started: its ID is free again.
    pub fn abandon(&mut self, number: u64) {
        if let Some(entry) = self.entry_mut(number) {
            entry.position = NEVER_RAN;
            entry.hash = 0;
        }
    }

    fn entry(&self, number: u64) -> Option<&Entry> {
        self.entries.get(number.checked_sub(self.first)? as usize)
    }

    fn entry_mut(&mut self, number: u64) -> Option<&mut Entry> {
        self.entries
            .get_mut(number.checked_sub(self.first)? as usize)
    }

    /// Numbers of commands that may have this ID, newest first; the caller compares.
    pub fn candidates(&self, id: &str) -> Vec<u64> {
        let wanted = hash(id);
        let indexes = self.entries.iter().enumerate().rev();
        indexes
            .filter(|(_, entry)| entry.hash == wanted && entry.position != NEVER_RAN)
            .map(|(index, _)| self.first + index as u64)
            .collect()
    }

    /// Numbers from `from` on, those that never ran left out.
    pub fn numbers(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        let skip = from.saturating_sub(self.first) as usize;
        self.entries
            .iter()
            .enumerate()
            .skip(skip)
            .filter(|(_, entry)| entry.position != NEVER_RAN)
            .map(|(index, _)| self.first + index as u64)
    }

    pub fn archive(&mut self, number: u64, info: CommandInfo, mut records: [Record; 2]) {
        let files: u64 = records.iter().map(|record| record.file_bytes()).sum();
        let ended_s = (info.ended_at_ms / 1000) as u32;
        let streams = records.iter_mut().map(|record| record.layout()).collect();
        let stored = Stored {
            info: Some(info),
            streams,
        }
        .encode_to_vec();
        let mut bytes = (stored.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(&stored);
        let position = self.log_end;
        let written = self
            .log
            .as_ref()
            .is_some_and(|log| sys::pwrite_all(log, &bytes, position).is_ok());
        if written {
            self.log_end += bytes.len() as u64;
        }
        if files > 0 {
            self.outputs.push_back((number, files as u32));
        }
        if let Some(entry) = self.entry_mut(number) {
            // Where the host's disk is full the command is known, but no more than that.
            entry.position = position;
            entry.ended_s = ended_s;
        }
    }

    pub fn read(&self, number: u64) -> Option<Archived> {
        let entry = self.entry(number)?;
        if entry.position >= NEVER_RAN {
            return None;
        }
        let log = self.log.as_ref()?;
        let mut length = [0; 4];
        sys::pread(log, &mut length, entry.position)
            .ok()
            .filter(|&n| n == 4)?;
        let mut bytes = vec![0; (u32::from_be_bytes(length) as usize).min(1 << 20)];
        sys::pread(log, &mut bytes, entry.position + 4)
            .ok()
            .filter(|&n| n == bytes.len())?;
        let mut stored = Stored::decode(&bytes[..]).ok()?;
        let err = Record::reopen(number, 1, stored.streams.pop()?, self);
        let out = Record::reopen(number, 0, stored.streams.pop()?, self);
        let mut records = [out, err];
        if entry.outputs_gone {
            records.iter_mut().for_each(Record::forget);
        }
        Some(Archived {
            info: stored.info?,
            records,
        })
    }

    /// Makes room for `bytes` more in files by dropping the oldest outputs of ended commands. False: there is none.
    pub fn reserve(&mut self, bytes: u64) -> bool {
        while self.used + bytes > MAX_OUTPUT {
            let Some((number, freed)) = self.outputs.pop_front() else {
                return false;
            };
            self.used -= u64::from(freed);
            for stream in 0..2 {
                let name = file_name(number, stream);
                // SAFETY: the name ends in NUL.
                unsafe { libc::unlinkat(self.dir.as_raw_fd(), name.as_ptr(), 0) };
            }
            if let Some(entry) = self.entry_mut(number) {
                entry.outputs_gone = true;
            }
        }
        true
    }

    /// Gives the blocks of a record that is not reachable any more back to the file system.
    fn erase(&self, position: u64) {
        let Some(log) = &self.log else { return };
        let mut length = [0; 4];
        if position >= NEVER_RAN || sys::pread(log, &mut length, position).ok() != Some(4) {
            return;
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let bytes = i64::from(u32::from_be_bytes(length)) + 4;
        // SAFETY: plain call.
        unsafe { libc::fallocate(log.as_raw_fd(), mode, position as i64, bytes) };
    }
}
