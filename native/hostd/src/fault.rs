//! What goes wrong, with its name in the table of packages/api/src/errors.ts.

use std::io;
use wire::ErrorInfo;

/// An answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A key of the error table.
    pub reason: &'static str,
    /// What was asked and what was wrong.
    pub message: String,
}

pub type Outcome<T> = Result<T, Fault>;

impl Fault {
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new("INVALID_ARGUMENT", message)
    }

    pub fn info(&self) -> ErrorInfo {
        ErrorInfo {
            reason: self.reason.into(),
            message: self.message.clone(),
            retryable: matches!(self.reason, "LAUNCH_FAILED" | "CAPACITY_FULL"),
            ..Default::default()
        }
    }

    /// One line that a child sends to hostd: "REASON message".
    pub fn to_line(&self) -> String {
        format!("{} {}", self.reason, self.message)
    }

    pub fn from_line(line: &str) -> Self {
        let (word, message) = line.split_once(' ').unwrap_or(("", line));
        let reason = [
            "CAPACITY_FULL",
            "ARCHIVE_INVALID",
            "LAYER_NOT_FOUND",
            "NOT_SUPPORTED",
            "INVALID_ARGUMENT",
        ]
        .into_iter()
        .find(|known| *known == word)
        .unwrap_or("LAUNCH_FAILED");
        Self::new(reason, message)
    }
}

/// Says which step of a start failed.
pub trait Step<T> {
    fn step(self, what: &str) -> Outcome<T>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, what: &str) -> Outcome<T> {
        self.map_err(|error| Fault::new("LAUNCH_FAILED", format!("{what}: {error}")))
    }
}
