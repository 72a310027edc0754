//! Starting commands. An ID that is known is attached to, never run twice.

use std::os::fd::OwnedFd;

use wire::aether_reply::Result as Reply;
use wire::command_spec::What;
use wire::{AetherAttach, AetherStart, CommandInfo, CommandSpec, CommandState};

use super::command::{Command, Exit, Known, Phase, Stream};
use super::connection::{Reader, Source};
use super::environment::{check_id, check_spec, cut, output_cap, shell_arguments, MAX_TEXT};
use super::input::Input;
use super::record::Record;
use super::{startup_file, Purpose, Supervisor};
use crate::errors::{failure, Failure};
use crate::link::{what, Order, Report};
use crate::sys;

impl Supervisor {
    /// Replies itself, now or when init has answered.
    pub(super) fn start(
        &mut self,
        id: u32,
        request: u32,
        call: AetherStart,
    ) -> Result<(), Failure> {
        check_id("command_id", &call.command_id)?;
        match self.find(&call.command_id) {
            Some(Known::Live(number)) => {
                self.wait_for_start(number, id, request, call.attach);
                return Ok(());
            }
            Some(Known::Archived(archived)) => {
                self.reply(id, request, Reply::Command(archived.info.clone()));
                if call.attach {
                    let source = Source::Archived(archived);
                    self.attach(
                        id,
                        Reader {
                            request,
                            source,
                            cursor: [0, 0],
                            recorded_only: false,
                        },
                    );
                }
                return Ok(());
            }
            None => {}
        }
        let spec = call
            .spec
            .ok_or_else(|| failure("EMPTY_COMMAND", "the command has no spec"))?;
        check_spec(&spec)?;
        let number = if spec.session_id.is_empty() {
            self.start_process(call.command_id, spec)?
        } else {
            self.start_call(call.command_id, spec)?
        };
        self.wait_for_start(number, id, request, call.attach);
        Ok(())
    }

    fn wait_for_start(&mut self, number: u64, id: u32, request: u32, attach: bool) {
        let Some(command) = self.commands.get_mut(&number) else {
            return;
        };
        if matches!(command.phase, Phase::Starting) {
            command.waiting.push((id, request, attach));
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.pending += 1;
                if attach {
                    connection.held = Some(request);
                }
            }
        } else {
            self.tell_started(number, id, request, attach);
        }
    }

    fn tell_started(&mut self, number: u64, id: u32, request: u32, attach: bool) {
        let Some(command) = self.commands.get(&number) else {
            return;
        };
        self.reply(id, request, Reply::Command(command.info.clone()));
        if attach {
            let source = Source::Live(number);
            self.attach(
                id,
                Reader {
                    request,
                    source,
                    cursor: [0, 0],
                    recorded_only: false,
                },
            );
        }
    }

    /// A fresh command in memory and in the history; its number.
    pub(super) fn enter(&mut self, id: String, spec: &CommandSpec) -> u64 {
        let number = self.history.begin(&id);
        let (mut argv, mut shell, mut room) = (Vec::new(), String::new(), MAX_TEXT);
        match &spec.what {
            Some(What::Argv(vector)) => {
                for arg in &vector.args {
                    let n = arg.len().min(room);
                    argv.push(arg[..n].to_vec());
                    room -= n;
                    if room == 0 {
                        break;
                    }
                }
            }
            Some(What::Shell(text)) => shell = cut(text),
            None => {}
        }
        let mut names = MAX_TEXT;
        let env_names = spec
            .env
            .keys()
            .chain(spec.secret_env.keys())
            .take_while(|name| {
                names = names.saturating_sub(name.len() + 1);
                names > 0
            })
            .cloned()
            .collect();
        let info = CommandInfo {
            command_id: id,
            state: CommandState::Running as i32,
            started_at_ms: sys::unix_ms(),
            argv,
            shell,
            cwd: cut(&spec.cwd),
            user: cut(if spec.user.is_empty() {
                &self.base.user
            } else {
                &spec.user
            }),
            env_names,
            session_id: spec.session_id.clone(),
            pty: spec.pty.is_some(),
            ..Default::default()
        };
        let cap = output_cap(spec);
        let stream = |s| Stream {
            fd: None,
            watched: false,
            until: None,
            complete: false,
            grown: false,
            record: Record::new(number, s, cap),
        };
        let started = sys::now_ns();
        let deadline = (spec.timeout_ms > 0)
            .then(|| started.saturating_add(spec.timeout_ms.saturating_mul(1_000_000)));
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, number));
        }
        let command = Command {
            token: 0,
            info,
            phase: Phase::Starting,
            streams: [stream(0), stream(1)],
            input: None,
            terminal: None,
            leaf: None,
            started,
            ended: 0,
            deadline,
            timed_out: false,
            restarted: false,
            before: self.counters(),
            exit: Exit::default(),
            limits: Vec::new(),
            waiting: Vec::new(),
            readers: Vec::new(),
        };
        self.commands.insert(number, command);
        number
    }

    fn start_process(&mut self, id: String, spec: CommandSpec) -> Result<u64, Failure> {
        let no_pipe = |error: std::io::Error| {
            failure("TOO_MANY_REQUESTS", format!("no pipe can be made: {error}"))
        };
        let mut fds: Vec<OwnedFd> = Vec::new();
        let mut ours: Vec<OwnedFd> = Vec::new();
        let mut stdin = None;
        let with_input = spec.stdin_open || !spec.stdin.is_empty();
        if spec.pty.is_none() {
            if with_input {
                let (read, write) = sys::pipe().map_err(no_pipe)?;
                sys::set_nonblocking(&write, true).map_err(no_pipe)?;
                fds.push(read);
                stdin = Some(write);
            }
            for _ in 0..2 {
                let (read, write) = sys::pipe().map_err(no_pipe)?;
                sys::set_nonblocking(&read, true).map_err(no_pipe)?;
                fds.push(write);
                ours.push(read);
            }
        }
        let number = self.enter(id, &spec);
        let token = self.token(Purpose::Command(number));
        let leaf = self.leaves.take();
        if let Some(copy) = leaf
            .as_ref()
            .and_then(|leaf| sys::duplicate(&leaf.dir).ok())
        {
            fds.insert(0, copy);
        }
        let pty = spec.pty;
        let has_stdin = stdin.is_some();
        let mut env = self
            .base
            .environment(&[&spec.env, &spec.secret_env], pty.is_some());
        let (shell, argv, script) = match spec.what {
            Some(What::Shell(mut text)) => {
                if startup_file::set_aside(&mut env) {
                    text.insert_str(0, startup_file::GIVE_BACK);
                }
                let (argv, script) = shell_arguments(&text);
                (true, argv, script)
            }
            Some(What::Argv(vector)) => (false, vector.args, Vec::new()),
            None => (false, Vec::new(), Vec::new()),
        };
        let order = Order {
            what: what::SPAWN,
            token,
            user: if spec.user.is_empty() {
                self.base.user.clone()
            } else {
                spec.user
            },
            cwd: spec.cwd.into_bytes(),
            default_cwd: self.base.cwd.clone().into_bytes(),
            argv,
            env,
            shell,
            pty_rows: pty.map_or(0, |size| size.rows),
            pty_cols: pty.map_or(0, |size| size.cols),
            has_leaf: leaf.is_some() && fds.len() > ours.len() + usize::from(has_stdin),
            has_stdin,
            script,
            ..Default::default()
        };
        if let Some(command) = self.commands.get_mut(&number) {
            command.token = token;
            command.leaf = leaf;
            if with_input || pty.is_some() {
                let more = spec.stdin_open || (pty.is_some() && spec.stdin.is_empty());
                command.input = Some(Input::new(stdin, spec.stdin, more, pty.is_some()));
            }
            for (stream, fd) in command.streams.iter_mut().zip(ours) {
                stream.fd = Some(fd);
            }
        }
        self.order(order, fds);
        Ok(number)
    }

    pub(super) fn command_started(&mut self, number: u64, report: Report, fds: Vec<OwnedFd>) {
        let Some(command) = self.commands.get_mut(&number) else {
            return;
        };
        command.phase = Phase::Running;
        let unused = if report.in_leaf {
            None
        } else {
            command.leaf.take()
        };
        if command.info.session_id.is_empty() {
            command.info.cwd = cut(&String::from_utf8_lossy(&report.cwd));
        }
        if let (true, Some(master)) = (command.info.pty, fds.into_iter().next()) {
            let _ = sys::set_nonblocking(&master, true);
            if let Some(input) = &mut command.input {
                input.fd = sys::duplicate(&master).ok();
            }
            command.terminal = sys::duplicate(&master).ok();
            command.streams[0].fd = Some(master);
        }
        for (id, request, attach) in std::mem::take(&mut command.waiting) {
            self.answered(id);
            self.tell_started(number, id, request, attach);
        }
        if let Some(leaf) = unused {
            self.leaves.release(number, leaf);
        }
        self.feed_input(number);
        self.pump(number);
    }

    /// Nothing was started: an error, or, where the sandbox's own limits are to blame, a result as a shell gives it.
    pub(super) fn command_refused(&mut self, number: u64, report: Report) {
        if report.errno != 0 {
            return self.fork_failed(number, report.errno);
        }
        self.forget_command(number, failure(&report.reason, report.message));
    }

    /// Takes it out as if it had never been asked for.
    pub(super) fn forget_command(&mut self, number: u64, failed: Failure) {
        let Some(command) = self.commands.remove(&number) else {
            return;
        };
        self.history.abandon(number);
        if let Some(deadline) = command.deadline {
            self.deadlines.remove(&(deadline, number));
        }
        if let Some(leaf) = command.leaf {
            self.leaves.release(number, leaf);
        }
        for (id, request, _) in command.waiting {
            self.reply_error(id, request, failed.clone());
        }
    }

    pub(super) fn attach_known(
        &mut self,
        id: u32,
        request: u32,
        call: AetherAttach,
    ) -> Result<(), Failure> {
        let source = match self.find(&call.command_id) {
            Some(Known::Live(number)) => Source::Live(number),
            Some(Known::Archived(archived)) => Source::Archived(archived),
            None => {
                return Err(failure(
                    "COMMAND_NOT_FOUND",
                    format!("no command {:?} in this sandbox", call.command_id),
                ))
            }
        };
        let cursor = [call.stdout_offset, call.stderr_offset];
        self.attach(
            id,
            Reader {
                request,
                source,
                cursor,
                recorded_only: call.recorded_only,
            },
        );
        Ok(())
    }
}
