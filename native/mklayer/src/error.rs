//! The one error type: a reason from the platform's table and a sentence for people.
use std::fmt::Write as _;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub reason: &'static str,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn invalid(message: impl Into<String>) -> Self {
        Failure {
            reason: "ARCHIVE_INVALID",
            message: message.into(),
        }
    }
    pub fn limit(message: impl Into<String>) -> Self {
        Failure {
            reason: "ARCHIVE_LIMIT",
            message: message.into(),
        }
    }
    pub fn leaves_root(message: impl Into<String>) -> Self {
        Failure {
            reason: "PATH_LEAVES_ROOT",
            message: message.into(),
        }
    }
    pub fn argument(message: impl Into<String>) -> Self {
        Failure {
            reason: "INVALID_ARGUMENT",
            message: message.into(),
        }
    }
    pub fn internal(message: impl Into<String>) -> Self {
        Failure {
            reason: "INTERNAL",
            message: message.into(),
        }
    }
    /// A failed write to our own output.
    pub fn output(what: &str, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Failure {
                reason: "DISK_FULL",
                message: format!("no space left while writing {what}"),
            },
            Some(libc::EFBIG) => Failure::limit(format!("{what} grows beyond the limit on bytes")),
            _ => Failure::internal(format!("writing {what}: {error}")),
        }
    }

    pub fn to_json(&self) -> String {
        format!(
            "{{\"reason\":{},\"message\":{}}}",
            json_string(self.reason),
            json_string(&self.message)
        )
    }
}

/// `text` as a JSON string.
pub fn json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A name from the archive for a message: escaped, at most 100 bytes of it.
pub fn shown(name: &[u8]) -> String {
    let cut = &name[..name.len().min(100)];
    let dots = if cut.len() < name.len() { "…" } else { "" };
    format!("\"{}{dots}\"", cut.escape_ascii())
}
