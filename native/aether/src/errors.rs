//! Errors of the table in packages/api/src/errors.ts, as aether replies them.

use wire::ErrorInfo;

pub type Failure = Box<ErrorInfo>;

/// `message`: what was asked and what was wrong.
pub fn failure(reason: &str, message: impl Into<String>) -> Failure {
    let retryable = matches!(
        reason,
        "SESSION_BUSY" | "SLOW_READER" | "FILE_WORKER_ENDED" | "TOO_MANY_REQUESTS"
    );
    Box::new(ErrorInfo {
        reason: reason.into(),
        message: message.into(),
        retryable,
        ..Default::default()
    })
}
