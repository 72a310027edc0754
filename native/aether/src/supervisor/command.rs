//! A command from its start until nothing holds its pipes any more.

use std::os::fd::OwnedFd;

use wire::{CommandInfo, CommandState};

use super::history::Archived;
use super::input::Input;
use super::leaf::Leaf;
use super::record::Record;
use super::Supervisor;
use crate::errors::{failure, Failure};

/// The read end of stdout, stderr or a terminal's master.
pub struct Stream {
    pub fd: Option<OwnedFd>,
    /// In epoll now.
    pub watched: bool,
    /// The main process has ended: up to this offset its output belongs to the result.
    pub until: Option<u64>,
    /// All of the result's output is in the record.
    pub complete: bool,
    /// The pipe was made large.
    pub grown: bool,
    pub record: Record,
}

pub enum Phase {
    /// Init was asked to start it.
    Starting,
    Running,
    /// The main process has ended; its last output is being read.
    Exited,
    /// The outcome is known. Something it left may hold its pipes.
    Ended,
}

#[derive(Clone, Copy, Default)]
pub struct Counters {
    pub oom_kills: u64,
    pub memory: u64,
    pub pids: u64,
}

/// How the main process ended.
#[derive(Clone, Copy, Default)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: i32,
    pub cpu_us: Option<u64>,
    pub peak_bytes: Option<u64>,
}

pub struct Command {
    /// What init knows it by.
    pub token: u64,
    pub info: CommandInfo,
    pub phase: Phase,
    pub streams: [Stream; 2],
    pub input: Option<Input>,
    /// The terminal's master, for input and its size.
    pub terminal: Option<OwnedFd>,
    pub leaf: Option<Leaf>,
    /// Monotonic nanoseconds.
    pub started: u64,
    pub ended: u64,
    pub deadline: Option<u64>,
    pub timed_out: bool,
    pub restarted: bool,
    pub before: Counters,
    pub exit: Exit,
    /// Fork failed: which limit is to blame.
    pub limits: Vec<i32>,
    /// Connections and requests that wait for the start, and whether they attach.
    pub waiting: Vec<(u32, u32, bool)>,
    pub readers: Vec<u32>,
}

impl Command {
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }
}

/// A command that is known, wherever it is kept.
pub enum Known {
    Live(u64),
    Archived(Box<Archived>),
}

impl Supervisor {
    pub(super) fn find(&self, id: &str) -> Option<Known> {
        for number in self.history.candidates(id) {
            match self.commands.get(&number) {
                Some(command) if command.info.command_id == id => return Some(Known::Live(number)),
                Some(_) => {}
                None => match self.history.read(number) {
                    Some(archived) if archived.info.command_id == id => {
                        return Some(Known::Archived(Box::new(archived)));
                    }
                    _ => {}
                },
            }
        }
        None
    }

    /// Its number, if it is still in memory.
    pub(super) fn live(&self, id: &str) -> Result<Option<u64>, Failure> {
        match self.find(id) {
            Some(Known::Live(number)) => Ok(Some(number)),
            Some(Known::Archived(_)) => Ok(None),
            None => Err(failure(
                "COMMAND_NOT_FOUND",
                format!("no command {id:?} in this sandbox"),
            )),
        }
    }

    pub(super) fn running(&self) -> u32 {
        let open = |command: &&Command| !command.is_over();
        self.commands.values().filter(open).count() as u32
    }

    pub(super) fn info_of(&self, number: u64) -> Option<CommandInfo> {
        match self.commands.get(&number) {
            Some(command) => Some(command.info.clone()),
            None => self.history.read(number).map(|archived| archived.info),
        }
    }

    pub(super) fn is_running(&self, number: u64) -> bool {
        self.commands
            .get(&number)
            .is_some_and(|command| command.info.state == CommandState::Running as i32)
    }
}
