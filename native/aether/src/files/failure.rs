//! Why a call on files failed, in the reasons of packages/api/src/errors.ts.

use std::io;

use wire::ErrorInfo;

/// A failed call. `Typed` is told to the caller; `Gone` means that nobody is there to be told.
#[derive(Debug)]
pub enum Failure {
    Typed {
        reason: &'static str,
        message: String,
    },
    Gone,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Typed {
            reason,
            message: message.into(),
        }
    }

    /// `asked` is a verb, such as "read"; the path is escaped.
    pub fn of(reason: &'static str, asked: &str, path: &[u8], wrong: &str) -> Self {
        Self::new(reason, format!("{asked} {}: {wrong}", quoted(path)))
    }

    /// The kernel's refusal, as the reason that fits it.
    pub fn os(asked: &str, path: &[u8], error: &io::Error) -> Self {
        let (reason, wrong) = explain(error);
        Self::of(reason, asked, path, &wrong)
    }

    /// None for a caller that has gone.
    pub fn into_info(self) -> Option<ErrorInfo> {
        match self {
            Self::Typed { reason, message } => Some(ErrorInfo {
                reason: reason.to_string(),
                message,
                ..ErrorInfo::default()
            }),
            Self::Gone => None,
        }
    }
}

fn explain(error: &io::Error) -> (&'static str, String) {
    let known = |reason, wrong: &str| (reason, wrong.to_string());
    match error.raw_os_error().unwrap_or(0) {
        libc::ENOENT => known("FILE_NOT_FOUND", "there is no such file or directory"),
        libc::EEXIST => known("FILE_EXISTS", "something is there already"),
        libc::EACCES | libc::EPERM => known("FILE_PERMISSION", "this user may not do that"),
        libc::EROFS => known("FILE_PERMISSION", "the file system is read-only"),
        libc::ENOTDIR => known("NOT_A_DIRECTORY", "a part of the path is no directory"),
        libc::EISDIR => known("IS_A_DIRECTORY", "it is a directory"),
        libc::ENOTEMPTY => known("DIRECTORY_NOT_EMPTY", "the directory is not empty"),
        libc::ENAMETOOLONG => known("INVALID_PATH", "a name in it is too long"),
        libc::ENOSPC | libc::EDQUOT => known("DISK_FULL", "no space is left"),
        libc::ELOOP => known("FILE_FAILED", "too many links, or one of the kernel's own"),
        libc::EXDEV => known("PATH_LEAVES_ROOT", "it leads out of the directory"),
        _ => ("FILE_FAILED", format!("the kernel says \"{error}\"")),
    }
}

/// The errno of a failed call of the standard library.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// A path between quotes, escaped, cut at 256 bytes: it comes from inside a sandbox.
pub fn quoted(path: &[u8]) -> String {
    const SHOWN: usize = 256;
    let shown = &path[..path.len().min(SHOWN)];
    let more = if path.len() > SHOWN { "…" } else { "" };
    let mut text = String::with_capacity(shown.len() + 2);
    for chunk in shown.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '"' || c == '\\' || c.is_control() || is_format(c) {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    format!("\"{text}{more}\"")
}

/// Characters that reorder or hide the text around them.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        assert_eq!(quoted(b"/a b"), "\"/a b\"");
        assert_eq!(quoted(b"x\n\"\\\x1b[1m"), r#""x\n\"\\\u{1b}[1m""#);
        assert_eq!(quoted(&[b'a', 0xff, 0xc3]), r#""a\xff\xc3""#);
        assert_eq!(quoted("ü\u{202e}".as_bytes()), "\"ü\\u{202e}\"");
        assert!(quoted(&[b'a'; 5000]).len() < 300);
    }
}
