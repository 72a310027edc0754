//! chronus: a shell that stays, so that directory, variables and functions last from call to call.
//!
//! The shell is the platform's static bash reading its commands from a pipe. A call is one `eval` whose descriptors are
//! pipes of its own; its status comes over a third pipe that evaluated code does not inherit. If the shell ends, whatever
//! ended it, the call gets its status and the next one a fresh shell.

use std::os::fd::OwnedFd;

use wire::aether_reply::Result as Reply;
use wire::command_spec::What;
use wire::{AetherOpenSession, CommandSpec, SessionInfo};

use super::command::Phase;
use super::driver::script;
use super::environment::{check_env, check_id, Env};
use super::input::Input;
use super::leaf::Leaf;
use super::{key, startup_file, Purpose, Supervisor};
use crate::errors::{failure, Failure};
use crate::link::{target, what, Order, Report};
use crate::sys;

pub struct Session {
    pub info: SessionInfo,
    cwd: String,
    env: Env,
    secret_env: Env,
    pub shell: Option<Shell>,
    /// Command that runs in it now.
    pub call: Option<u64>,
    /// Its text, until its pipes are there.
    text: String,
    pub leaf: Option<Leaf>,
    opening: Vec<(u32, u32)>,
    closing: Vec<(u32, u32)>,
}

pub struct Shell {
    pub token: u64,
    pub control: OwnedFd,
    pub status: OwnedFd,
    pub out: Vec<u8>,
    pub watched: bool,
    pub heard: Vec<u8>,
}

impl Session {
    pub fn shell_token(&self) -> Option<u64> {
        self.shell.as_ref().map(|shell| shell.token)
    }
}

impl Supervisor {
    pub(super) fn open_session(
        &mut self,
        id: u32,
        request: u32,
        call: AetherOpenSession,
    ) -> Result<(), Failure> {
        check_id("session_id", &call.session_id)?;
        check_env(&call.env)?;
        check_env(&call.secret_env)?;
        if let Some(session) = self.sessions.get_mut(&call.session_id) {
            if session.opening.is_empty() {
                let info = session.info.clone();
                self.reply(id, request, Reply::Session(info));
            } else {
                session.opening.push((id, request));
                self.await_answer(id);
            }
            return Ok(());
        }
        let user = if call.user.is_empty() {
            self.base.user.clone()
        } else {
            call.user
        };
        let session = Session {
            info: SessionInfo {
                session_id: call.session_id.clone(),
                user,
                opened_at_ms: sys::unix_ms(),
                ..Default::default()
            },
            cwd: call.cwd,
            env: call.env,
            secret_env: call.secret_env,
            shell: None,
            call: None,
            text: String::new(),
            leaf: self.leaves.take(),
            opening: vec![(id, request)],
            closing: Vec::new(),
        };
        self.sessions.insert(call.session_id.clone(), session);
        if let Err(failed) = self.spawn_shell(&call.session_id) {
            self.sessions.remove(&call.session_id);
            return Err(failed);
        }
        self.await_answer(id);
        Ok(())
    }

    pub(super) fn await_answer(&mut self, id: u32) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.pending += 1;
        }
    }

    fn spawn_shell(&mut self, id: &str) -> Result<(), Failure> {
        let no_pipe = |error: std::io::Error| {
            failure("TOO_MANY_REQUESTS", format!("no pipe can be made: {error}"))
        };
        let (control_read, control) = sys::pipe().map_err(no_pipe)?;
        let (status, status_write) = sys::pipe().map_err(no_pipe)?;
        sys::set_nonblocking(&control, true).map_err(no_pipe)?;
        sys::set_nonblocking(&status, true).map_err(no_pipe)?;
        let token = self.token(Purpose::Shell(id.to_string()));
        let _ = self.epoll.add(&status, libc::EPOLLIN, key::STATUS | token);
        let Some(session) = self.sessions.get_mut(id) else {
            return Ok(());
        };
        if session.leaf.as_ref().is_some_and(|leaf| leaf.is_killed()) {
            if let Some(old) = session.leaf.take() {
                self.leaves.release(0, old);
            }
            session.leaf = self.leaves.take();
        }
        let mut fds = vec![control_read, status_write];
        let leaf = session
            .leaf
            .as_ref()
            .and_then(|leaf| sys::duplicate(&leaf.dir).ok());
        let has_leaf = leaf.is_some();
        if let Some(leaf) = leaf {
            fds.insert(0, leaf);
        }
        let mut env = self
            .base
            .environment(&[&session.env, &session.secret_env], false);
        // Waits in the shell's pipe for the first call.
        let first = if startup_file::set_aside(&mut env) {
            format!("{}\n", startup_file::GIVE_BACK)
        } else {
            String::new()
        };
        let order = Order {
            what: what::SPAWN,
            token,
            user: session.info.user.clone(),
            cwd: session.cwd.clone().into_bytes(),
            default_cwd: self.base.cwd.clone().into_bytes(),
            argv: ["bash", "--norc", "--noprofile", "-s"]
                .map(|arg| arg.as_bytes().to_vec())
                .to_vec(),
            env,
            shell: true,
            session: true,
            has_leaf,
            has_stdin: true,
            ..Default::default()
        };
        session.shell = Some(Shell {
            token,
            control,
            status,
            out: first.into_bytes(),
            watched: false,
            heard: Vec::new(),
        });
        self.order(order, fds);
        Ok(())
    }

    pub(super) fn start_call(&mut self, id: String, spec: CommandSpec) -> Result<u64, Failure> {
        let name = spec.session_id.clone();
        let Some(session) = self.sessions.get(&name) else {
            return Err(failure(
                "SESSION_NOT_FOUND",
                format!("no session {name:?} in this sandbox"),
            ));
        };
        if !session.closing.is_empty() {
            return Err(failure(
                "SESSION_NOT_FOUND",
                format!("session {name:?} is being closed"),
            ));
        }
        if session.call.is_some() {
            let message = format!(
                "command {:?} runs in session {name:?}",
                session.info.command_id
            );
            return Err(failure("SESSION_BUSY", message));
        }
        let fresh = session.shell.is_none();
        let user = session.info.user.clone();
        if fresh {
            self.spawn_shell(&name)?;
        }
        let number = self.enter(id.clone(), &spec);
        let token = self.token(Purpose::Call(number));
        let has_stdin = spec.stdin_open || !spec.stdin.is_empty();
        if let Some(command) = self.commands.get_mut(&number) {
            command.token = token;
            command.restarted = fresh;
            command.info.user = user.clone();
            if has_stdin {
                command.input = Some(Input::new(None, spec.stdin, spec.stdin_open, false));
            }
        }
        if let Some(session) = self.sessions.get_mut(&name) {
            session.info.restarts += u32::from(fresh);
            session.call = Some(number);
            session.info.command_id = id;
            session.text = match spec.what {
                Some(What::Shell(text)) => text,
                _ => String::new(),
            };
        }
        self.order(
            Order {
                what: what::SESSION_PIPES,
                token,
                user,
                has_stdin,
                ..Default::default()
            },
            Vec::new(),
        );
        Ok(number)
    }

    /// The call's own pipes are there: now the shell may have its text.
    pub(super) fn call_pipes(&mut self, number: u64, fds: Vec<OwnedFd>) {
        let Some(command) = self.commands.get_mut(&number) else {
            return;
        };
        let name = command.info.session_id.clone();
        let mut fds = fds.into_iter();
        for stream in &mut command.streams {
            stream.fd = fds.next();
        }
        let with_input = command.input.is_some();
        if let Some(input) = &mut command.input {
            input.fd = fds.next();
            input.read_end = fds.next();
        }
        let token = command.token;
        let gone = self
            .sessions
            .get(&name)
            .is_none_or(|session| session.shell.is_none());
        if gone {
            // The shell ended between two calls.
            command.restarted = true;
            if let Err(failed) = self.spawn_shell(&name) {
                return self.forget_command(number, failed);
            }
            if let Some(session) = self.sessions.get_mut(&name) {
                session.info.restarts += 1;
            }
        }
        if let Some(session) = self.sessions.get_mut(&name) {
            let text = std::mem::take(&mut session.text);
            if let Some(shell) = &mut session.shell {
                shell
                    .out
                    .extend_from_slice(script(&text, token, with_input).as_bytes());
                let shell = shell.token;
                self.session_control(shell);
            }
        }
        self.command_started(number, Report::default(), Vec::new());
    }

    pub(super) fn shell_started(&mut self, name: &str, token: u64, in_leaf: bool) {
        let Some(session) = self.sessions.get_mut(name) else {
            return;
        };
        if session.shell_token() != Some(token) {
            return;
        }
        let leaf = if in_leaf { None } else { session.leaf.take() };
        let opening = std::mem::take(&mut session.opening);
        let info = session.info.clone();
        if let Some(leaf) = leaf {
            self.leaves.release(0, leaf);
        }
        for (id, request) in opening {
            self.answered(id);
            self.reply(id, request, Reply::Session(info.clone()));
        }
    }

    pub(super) fn shell_refused(&mut self, name: &str, report: Report) {
        let Some(session) = self.sessions.get_mut(name) else {
            return;
        };
        session.shell = None;
        let call = session.call;
        let opening = std::mem::take(&mut session.opening);
        let failed = if report.errno != 0 {
            let error = std::io::Error::from_raw_os_error(report.errno);
            failure(
                "UNAVAILABLE",
                format!("the session's shell could not be forked: {error}"),
            )
        } else {
            failure(&report.reason, report.message)
        };
        if !opening.is_empty() {
            let leaf = session.leaf.take();
            self.sessions.remove(name);
            if let Some(leaf) = leaf {
                self.leaves.release(0, leaf);
            }
            for (id, request) in opening {
                self.reply_error(id, request, failed.clone());
            }
            return;
        }
        let Some(number) = call else { return };
        if report.errno != 0 {
            self.fork_failed(number, report.errno);
        } else {
            session.call = None;
            session.info.command_id.clear();
            self.forget_command(number, failed);
        }
    }

    pub(super) fn shell_ended(&mut self, name: &str, token: u64, report: &Report) {
        // A status that it wrote before its end counts; so the token must still be known.
        self.purposes
            .insert(token, Purpose::Shell(name.to_string()));
        self.session_status(token);
        self.purposes.remove(&token);
        let Some(session) = self.sessions.get_mut(name) else {
            return;
        };
        if session.shell_token() != Some(token) {
            return;
        }
        if let Some(shell) = session.shell.take() {
            self.epoll.remove(&shell.status);
            if shell.watched {
                self.epoll.remove(&shell.control);
            }
        }
        let (call, closing) = (session.call, !session.closing.is_empty());
        if let Some(number) = call {
            if self
                .commands
                .get(&number)
                .is_some_and(|command| matches!(command.phase, Phase::Running))
            {
                self.command_reaped(number, report);
            }
        }
        if closing {
            self.remove_session(name);
        }
    }

    pub(super) fn close_session(
        &mut self,
        id: u32,
        request: u32,
        name: &str,
    ) -> Result<(), Failure> {
        let Some(session) = self.sessions.get_mut(name) else {
            return Err(failure(
                "SESSION_NOT_FOUND",
                format!("no session {name:?} in this sandbox"),
            ));
        };
        session.closing.push((id, request));
        let alive = session.shell.is_some();
        self.await_answer(id);
        self.kill_session_tree(name);
        if !alive {
            self.remove_session(name);
        }
        Ok(())
    }

    fn remove_session(&mut self, name: &str) {
        let Some(session) = self.sessions.remove(name) else {
            return;
        };
        if let Some(leaf) = session.leaf {
            leaf.kill();
            self.leaves.release(0, leaf);
        }
        for (id, request) in session.closing {
            self.reply_done(id, request);
        }
    }

    pub(super) fn kill_session_tree(&mut self, name: &str) {
        let Some(session) = self.sessions.get(name) else {
            return;
        };
        if session.leaf.as_ref().is_some_and(|leaf| leaf.kill()) {
            return;
        }
        if let Some(token) = session.shell_token() {
            self.signal_token(token, libc::SIGKILL, target::TREE, None);
        }
    }
}
