//! What every command gets, and checks of what callers ask for.

use std::collections::BTreeMap;

use wire::command_spec::What;
use wire::CommandSpec;

use crate::errors::{failure, Failure};

pub const MAX_TEXT: usize = 4096;
const DEFAULT_CAP: u64 = 16 << 20;
const MAX_CAP: u64 = 64 << 20;
/// Beyond this an argument is refused by the kernel (128 KiB with its NUL).
const MAX_ARGUMENT: usize = 120 * 1024;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub type Env = BTreeMap<String, String>;

/// Given once by Configure. Secret values are in memory alone.
#[derive(Default)]
pub struct Base {
    pub env: Env,
    pub user: String,
    pub cwd: String,
}

impl Base {
    /// "NAME=value" of each variable: defaults, the sandbox's, then `more` in order.
    pub fn environment(&self, more: &[&Env], pty: bool) -> Vec<Vec<u8>> {
        let mut all: BTreeMap<&str, &str> = BTreeMap::from([("PATH", PATH)]);
        if pty {
            all.insert("TERM", "xterm-256color");
        }
        for env in [&self.env].into_iter().chain(more.iter().copied()) {
            all.extend(
                env.iter()
                    .map(|(name, value)| (name.as_str(), value.as_str())),
            );
        }
        if !["LANG", "LC_ALL", "LC_CTYPE"]
            .iter()
            .any(|name| all.contains_key(name))
        {
            all.insert("LANG", "C.UTF-8");
        }
        all.into_iter()
            .map(|(name, value)| format!("{name}={value}").into_bytes())
            .collect()
    }
}

pub fn check_env(env: &Env) -> Result<(), Failure> {
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(failure(
                "INVALID_ARGUMENT",
                format!("env has the name {name:?}: a name is not empty and has no = and no NUL"),
            ));
        }
        if value.contains('\0') {
            return Err(failure(
                "INVALID_ARGUMENT",
                format!("the value of env {name:?} has a NUL byte"),
            ));
        }
    }
    Ok(())
}

pub fn check_id(kind: &str, id: &str) -> Result<(), Failure> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if id.is_empty() || id.len() > 64 || !id.bytes().all(allowed) {
        return Err(failure(
            "INVALID_ARGUMENT",
            format!("{kind} {id:?} is not of the form [A-Za-z0-9_-]{{1,64}}"),
        ));
    }
    Ok(())
}

pub fn check_spec(spec: &CommandSpec) -> Result<(), Failure> {
    match &spec.what {
        Some(What::Argv(argv)) => {
            let blank = |arg: &Vec<u8>| arg.iter().all(|b| b.is_ascii_whitespace());
            if argv.args.first().is_none_or(blank) {
                return Err(failure("EMPTY_COMMAND", "argv has no program"));
            }
            if argv.args.iter().any(|arg| arg.contains(&0)) {
                return Err(failure("INVALID_ARGUMENT", "an argument has a NUL byte"));
            }
            if !spec.session_id.is_empty() {
                return Err(failure(
                    "INVALID_ARGUMENT",
                    "a session runs shell text, not argv",
                ));
            }
        }
        Some(What::Shell(text)) => {
            if text.trim().is_empty() {
                return Err(failure("EMPTY_COMMAND", "the shell text is empty"));
            }
            if text.contains('\0') {
                return Err(failure("INVALID_ARGUMENT", "the shell text has a NUL byte"));
            }
        }
        None => return Err(failure("EMPTY_COMMAND", "neither argv nor shell is given")),
    }
    check_env(&spec.env)?;
    check_env(&spec.secret_env)?;
    if spec.cwd.contains('\0') || spec.user.contains('\0') {
        return Err(failure("INVALID_ARGUMENT", "cwd or user has a NUL byte"));
    }
    if spec.stdin.len() > 1 << 20 {
        return Err(failure(
            "INVALID_ARGUMENT",
            "stdin is longer than 1 MiB: open it and write the rest",
        ));
    }
    if let Some(size) = &spec.pty {
        if ![size.rows, size.cols]
            .iter()
            .all(|n| (1..=65535).contains(n))
        {
            return Err(failure(
                "INVALID_ARGUMENT",
                "rows and cols of pty are 1 to 65535",
            ));
        }
        if !spec.session_id.is_empty() {
            return Err(failure(
                "INVALID_ARGUMENT",
                "a call of a session has no terminal of its own",
            ));
        }
    }
    let asks_for_its_own = !spec.env.is_empty()
        || !spec.secret_env.is_empty()
        || !spec.cwd.is_empty()
        || !spec.user.is_empty();
    if !spec.session_id.is_empty() && asks_for_its_own {
        return Err(failure(
            "INVALID_ARGUMENT",
            "a call of a session has the session's own env, cwd and user",
        ));
    }
    if spec.output_cap_bytes > MAX_CAP {
        return Err(failure(
            "INVALID_LIMIT",
            format!(
                "output_cap_bytes is {}, at most {MAX_CAP}",
                spec.output_cap_bytes
            ),
        ));
    }
    Ok(())
}

pub fn output_cap(spec: &CommandSpec) -> u64 {
    if spec.output_cap_bytes == 0 {
        DEFAULT_CAP
    } else {
        spec.output_cap_bytes
    }
}

/// Arguments of the static bash for this text, and the text itself where it is too long for one.
pub fn shell_arguments(text: &str) -> (Vec<Vec<u8>>, Vec<u8>) {
    let script = ["bash", "-c"].map(|arg| arg.as_bytes().to_vec());
    if text.len() <= MAX_ARGUMENT {
        return (
            [&script[..], &[text.as_bytes().to_vec()]].concat(),
            Vec::new(),
        );
    }
    let read = b"eval \"$(</proc/self/fd/58)\" 58<&-".to_vec();
    ([&script[..], &[read]].concat(), text.as_bytes().to_vec())
}

/// At most MAX_TEXT bytes of it, cut at a character.
pub fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}
