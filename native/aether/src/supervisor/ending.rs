//! How commands end: by themselves, by time, by a signal, or because they could not be forked.

use std::os::fd::OwnedFd;

use wire::{AetherSignal, CommandOutcome, CommandState, LimitHit};

use super::command::{Counters, Exit, Phase};
use super::Supervisor;
use crate::errors::{failure, Failure};
use crate::link::{target, what, Order, Report};
use crate::sys;

/// For a terminal nothing says how much is left in it; more than this it never holds.
const TERMINAL_REST: u64 = 256 * 1024;

impl Supervisor {
    /// Milliseconds until something is to be done; -1: nothing.
    pub(super) fn timeout_ms(&self) -> i32 {
        if !self.ready.is_empty() {
            return 0;
        }
        let now = sys::now_ns();
        let next = self
            .deadlines
            .first()
            .map(|(at, _)| at.saturating_sub(now).div_ceil(1_000_000).min(1 << 30) as i32);
        match (next, self.any_stalled()) {
            (Some(next), true) => next.min(1000),
            (Some(next), false) => next,
            (None, true) => 1000,
            (None, false) => -1,
        }
    }

    pub(super) fn keep_time(&mut self) {
        let needed = !self.deadlines.is_empty() || self.any_stalled();
        if !needed {
            return;
        }
        let now = sys::now_ns();
        while let Some(&(at, number)) = self.deadlines.first() {
            if at > now {
                break;
            }
            self.deadlines.remove(&(at, number));
            if let Some(command) = self.commands.get_mut(&number) {
                command.timed_out = true;
                command.deadline = None;
                self.kill_tree(number);
            }
        }
        self.cut_slow(now);
    }

    /// Ends every process that the command started; of a session's call, the session's.
    pub(super) fn kill_tree(&mut self, number: u64) {
        let Some(command) = self.commands.get(&number) else {
            return;
        };
        let token = command.token;
        if let Some(session) = self.sessions.get(&command.info.session_id) {
            return self.kill_session_tree(&session.info.session_id.clone());
        }
        if !command.leaf.as_ref().is_some_and(|leaf| leaf.kill()) {
            self.signal_token(token, libc::SIGKILL, target::TREE, None);
        }
    }

    pub(super) fn signal_token(
        &mut self,
        token: u64,
        signal: i32,
        target: u32,
        procs: Option<OwnedFd>,
    ) {
        let order = Order {
            what: what::SIGNAL,
            token,
            signal,
            target,
            ..Default::default()
        };
        self.order(order, procs.into_iter().collect());
    }

    pub(super) fn signal(&mut self, call: AetherSignal) -> Result<(), Failure> {
        if !(1..=64).contains(&call.signal) {
            return Err(failure(
                "INVALID_ARGUMENT",
                format!("signal {} is none", call.signal),
            ));
        }
        let live = self.live(&call.command_id)?;
        let Some(number) = live else {
            // It ended, but something that it left may live.
            if let (true, Some(number)) = (call.whole_tree, self.ended_number(&call.command_id)) {
                self.signal_lingering(number, call.signal);
            }
            return Ok(());
        };
        let Some(command) = self.commands.get(&number) else {
            return Ok(());
        };
        let (token, over) = (command.token, command.is_over());
        if over {
            if call.whole_tree {
                self.signal_lingering(number, call.signal);
            }
            return Ok(());
        }
        if call.whole_tree && call.signal == libc::SIGKILL {
            self.kill_tree(number);
        } else if let Some(session) = self.sessions.get(&command.info.session_id) {
            let procs = session
                .leaf
                .as_ref()
                .filter(|_| call.whole_tree)
                .and_then(|leaf| leaf.procs());
            let target = if call.whole_tree {
                target::TREE
            } else {
                target::CHILDREN
            };
            if let Some(token) = session.shell_token() {
                self.signal_token(token, call.signal, target, procs);
            }
        } else {
            let procs = command
                .leaf
                .as_ref()
                .filter(|_| call.whole_tree)
                .and_then(|leaf| leaf.procs());
            let target = if call.whole_tree {
                target::TREE
            } else {
                target::PROCESS
            };
            self.signal_token(token, call.signal, target, procs);
        }
        Ok(())
    }

    fn ended_number(&self, id: &str) -> Option<u64> {
        let is_it = |number: &u64| {
            self.history
                .read(*number)
                .is_some_and(|archived| archived.info.command_id == id)
        };
        self.history.candidates(id).into_iter().find(is_it)
    }

    fn signal_lingering(&mut self, number: u64, signal: i32) {
        let Some(leaf) = self.leaves.of(number) else {
            return;
        };
        if signal == libc::SIGKILL {
            leaf.kill();
        } else if let Some(procs) = leaf.procs() {
            self.signal_token(0, signal, target::TREE, Some(procs));
        }
    }

    pub(super) fn command_reaped(&mut self, number: u64, report: &Report) {
        let signal = report.status & 0x7f;
        let exit = Exit {
            code: (signal == 0).then_some(report.status >> 8 & 0xff),
            signal,
            cpu_us: Some(report.cpu_us),
            peak_bytes: Some(report.peak_bytes),
        };
        self.command_exited(number, exit);
    }

    /// What is in its pipes now is still its output; what is written later is recorded, but not waited for.
    pub(super) fn command_exited(&mut self, number: u64, exit: Exit) {
        let Some(command) = self.commands.get_mut(&number) else {
            return;
        };
        if !matches!(command.phase, Phase::Running) {
            return;
        }
        command.phase = Phase::Exited;
        command.exit = exit;
        command.ended = sys::now_ns();
        command.info.ended_at_ms = sys::unix_ms();
        if let Some(deadline) = command.deadline.take() {
            self.deadlines.remove(&(deadline, number));
        }
        for stream in &mut command.streams {
            let rest = match &stream.fd {
                None => 0,
                Some(_) if command.info.pty => TERMINAL_REST,
                Some(fd) => sys::readable_bytes(fd),
            };
            stream.until = Some(stream.record.total + rest);
            stream.complete = rest == 0;
            // An empty pipe may still be closed by now: then it need not be kept.
        }
        self.last_active = sys::now_ns();
        self.close_input(number);
        self.pump(number);
    }

    pub(super) fn end_if_complete(&mut self, number: u64) {
        let Some(command) = self.commands.get_mut(&number) else {
            return;
        };
        if !matches!(command.phase, Phase::Exited)
            || !command.streams.iter().all(|stream| stream.complete)
        {
            return;
        }
        command.phase = Phase::Ended;
        command.terminal = None;
        let after = self.counters();
        let Some(command) = self.commands.get_mut(&number) else {
            return;
        };
        let exit = command.exit;
        let mut limits = std::mem::take(&mut command.limits);
        if after.oom_kills > command.before.oom_kills || after.memory > command.before.memory {
            limits.push(LimitHit::Memory as i32);
        }
        if after.pids > command.before.pids {
            limits.push(LimitHit::Pids as i32);
        }
        limits.dedup();
        command.info.state = CommandState::Ended as i32;
        command.info.outcome = Some(CommandOutcome {
            exit_code: exit.code,
            signal: if exit.code.is_none() {
                signal_name(exit.signal)
            } else {
                String::new()
            },
            timed_out: command.timed_out,
            oom_killed: exit.signal == libc::SIGKILL
                && !command.timed_out
                && after.oom_kills > command.before.oom_kills,
            limit_hit: limits,
            duration_ms: command.ended.saturating_sub(command.started) as f64 / 1e6,
            peak_memory_bytes: exit.peak_bytes,
            cpu_time_ms: exit.cpu_us.map(|us| us as f64 / 1e3),
            session_restarted: command.restarted,
            stdout_bytes: command.streams[0].record.total,
            stderr_bytes: command.streams[1].record.total,
        });
        if let Some(leaf) = command.leaf.take() {
            self.leaves.release(number, leaf);
        }
        let session = command.info.session_id.clone();
        if let Some(session) = self.sessions.get_mut(&session) {
            if session.call == Some(number) {
                session.call = None;
                session.info.command_id.clear();
            }
        }
        // Readers that have everything hear of the end; those that lack something hear of it when they are fed.
        self.pump_ended(number);
    }

    /// As bash says it when its own fork fails.
    pub(super) fn fork_failed(&mut self, number: u64, errno: i32) {
        let Some(command) = self.commands.get_mut(&number) else {
            return;
        };
        let error = std::io::Error::from_raw_os_error(errno);
        let text = error.to_string();
        let line = format!(
            "bash: fork: {}\n",
            text.split(" (os error").next().unwrap_or_default()
        );
        command.streams[1]
            .record
            .append(line.as_bytes(), &mut self.history);
        let limit = if errno == libc::EAGAIN {
            LimitHit::Pids
        } else {
            LimitHit::Memory
        };
        command.limits.push(limit as i32);
        command
            .streams
            .iter_mut()
            .for_each(|stream| stream.fd = None);
        self.command_started(number, Report::default(), Vec::new());
        self.command_exited(
            number,
            Exit {
                code: Some(126),
                ..Exit::default()
            },
        );
    }

    /// Times that a limit was hit, of the whole sandbox.
    pub(super) fn counters(&self) -> Counters {
        let read = |file: &Option<OwnedFd>| {
            let mut text = [0; 512];
            let n = file
                .as_ref()
                .and_then(|file| sys::pread(file, &mut text, 0).ok())
                .unwrap_or(0);
            String::from_utf8_lossy(&text[..n]).into_owned()
        };
        let field = |text: &str, name: &str| {
            let of = |line: &str| {
                line.strip_prefix(name)?
                    .strip_prefix(' ')?
                    .trim()
                    .parse()
                    .ok()
            };
            text.lines().find_map(of).unwrap_or(0)
        };
        let (memory, pids) = (read(&self.memory_events), read(&self.pids_events));
        Counters {
            oom_kills: field(&memory, "oom_kill"),
            memory: field(&memory, "oom"),
            pids: field(&pids, "max"),
        }
    }
}

/// "SIGKILL" for 9.
fn signal_name(number: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match NAMES.get((number - 1) as usize) {
        Some(name) => format!("SIG{name}"),
        None => format!("SIGRTMIN+{}", number - 34),
    }
}
