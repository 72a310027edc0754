//! What a session's shell is told: text of calls goes in by one pipe, their status comes back by another.

use super::command::Exit;
use super::session::Session;
use super::{key, Purpose, Supervisor};
use crate::sys;

/// A word that bash takes as it is.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Takes away functions that a call named like the builtins used here. In POSIX mode `unset` is found before functions;
/// what that mode changes is put back. No alias is looked up for a word with a backslash.
const CLEAR: &str = concat!(
    "__dsec_o=$BASHOPTS; POSIXLY_CORRECT=1; \\unset -f builtin unset eval exec printf shopt; \\unset POSIXLY_CORRECT; ",
    "if [[ :$__dsec_o: == *:expand_aliases:* ]]; then \\builtin shopt -s expand_aliases; fi; ",
    "if [[ :$__dsec_o: != *:inherit_errexit:* ]]; then \\builtin shopt -u inherit_errexit; fi; ",
);

/// Lines for the shell that run one call: 59 is /dev/null, 61 the status pipe, 62 the directory of the call's pipes.
pub fn script(text: &str, call: u64, with_input: bool) -> String {
    let (open, input, close) = if with_input {
        let open = format!(
            "\\exec 60</proc/self/fd/62/i{call}\n\\builtin printf '%s opened\\n' {call} >&61\n"
        );
        (open, "<&60 60<&-", "\\exec 60<&-; ")
    } else {
        (String::new(), "<&59", "")
    };
    format!(
        "{CLEAR}\\builtin unset __dsec_o __dsec_s\n{open}\
         \\builtin eval {} {input} >|/proc/self/fd/62/o{call} 2>|/proc/self/fd/62/e{call} 59<&- 61>&- 62<&-\n\
         __dsec_s=$?; {CLEAR}{close}\\builtin printf '%s %s\\n' {call} \"$__dsec_s\" >&61\n",
        quote(text)
    )
}

impl Supervisor {
    fn session_of(&mut self, token: u64) -> Option<&mut Session> {
        let Some(Purpose::Shell(name)) = self.purposes.get(&token) else {
            return None;
        };
        self.sessions
            .get_mut(name)
            .filter(|session| session.shell_token() == Some(token))
    }

    /// Writes to the shell what its pipe takes.
    pub(super) fn session_control(&mut self, token: u64) {
        let Some(shell) = self
            .session_of(token)
            .and_then(|session| session.shell.as_mut())
        else {
            return;
        };
        let mut sent = 0;
        while sent < shell.out.len() {
            match sys::write(&shell.control, &shell.out[sent..]) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                // The shell has ended; init says how.
                Err(_) => sent = shell.out.len(),
            }
        }
        shell.out.drain(..sent);
        let waiting = !shell.out.is_empty();
        if !waiting {
            shell.out = Vec::new();
        }
        if waiting != shell.watched {
            shell.watched = waiting;
            let Some(Purpose::Shell(name)) = self.purposes.get(&token) else {
                return;
            };
            let Some(shell) = self
                .sessions
                .get(name)
                .and_then(|session| session.shell.as_ref())
            else {
                return;
            };
            if waiting {
                let _ = self
                    .epoll
                    .add(&shell.control, libc::EPOLLOUT, key::CONTROL | token);
            } else {
                self.epoll.remove(&shell.control);
            }
        }
    }

    pub(super) fn session_status(&mut self, token: u64) {
        let Some(session) = self.session_of(token) else {
            return;
        };
        let call = session.call;
        let Some(shell) = &mut session.shell else {
            return;
        };
        let mut chunk = [0; 256];
        let mut closed = false;
        loop {
            match sys::read(&shell.status, &mut chunk) {
                Ok(0) => closed = true,
                Ok(n) if shell.heard.len() < 4096 => {
                    shell.heard.extend_from_slice(&chunk[..n]);
                    continue;
                }
                Ok(_) => continue,
                Err(_) => {}
            }
            break;
        }
        let (mut codes, mut opened) = (Vec::new(), None);
        while let Some(end) = shell.heard.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = shell.heard.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let mut parts = line
                .split_ascii_whitespace()
                .map(|part| part.parse::<u64>());
            match (parts.next(), parts.next()) {
                (Some(Ok(call)), Some(Ok(code))) => codes.push((call, (code & 0xff) as i32)),
                (Some(Ok(call)), Some(Err(_))) => opened = Some(call),
                _ => {}
            }
        }
        if closed {
            // Nobody holds it any more; epoll would say so for ever.
            if let Ok(copy) = sys::duplicate(&shell.status) {
                let old = std::mem::replace(&mut shell.status, copy);
                self.epoll.remove(&old);
            }
        }
        let Some(number) = call else { return };
        let Some(expected) = self.commands.get(&number).map(|command| command.token) else {
            return;
        };
        if opened == Some(expected) {
            if let Some(input) = self
                .commands
                .get_mut(&number)
                .and_then(|command| command.input.as_mut())
            {
                input.read_end = None;
            }
            self.feed_input(number);
        }
        for (call, code) in codes {
            if call == expected {
                self.command_exited(
                    number,
                    Exit {
                        code: Some(code),
                        ..Exit::default()
                    },
                );
            }
        }
    }
}
