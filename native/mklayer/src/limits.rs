//! What an archive may cost.
use crate::error::{Failure, Result};
use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes out of the decoder, and bytes written, each.
    pub max_bytes: u64,
    pub max_entries: u64,
    /// Decoded bytes for one byte of input, looked at beyond `RATIO_GRACE`.
    pub max_ratio: u64,
    /// Directories above a name.
    pub max_depth: u16,
    pub max_seconds: u64,
    /// Names, link targets, attributes and maps held in memory.
    pub max_heap: u64,
}

/// Small archives may be as compressible as they like.
pub const RATIO_GRACE: u64 = 64 << 20;
/// A pax header, a GNU long name.
pub const MAX_EXTENDED_HEADER: u64 = 1 << 20;
pub const MAX_PATH: usize = 4095;
/// Logical size of one file.
pub const MAX_FILE: u64 = 1 << 43;

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_bytes: 64 << 30,
            max_entries: 4_000_000,
            max_ratio: 250,
            max_depth: 256,
            max_seconds: 3600,
            max_heap: 1 << 30,
        }
    }
}

/// Limits with the clock started.
#[derive(Debug, Clone)]
pub struct Budget {
    pub limits: Limits,
    deadline: Instant,
}

impl Budget {
    pub fn start(limits: Limits) -> Self {
        let deadline = Instant::now() + Duration::from_secs(limits.max_seconds.min(10_000_000));
        Budget { limits, deadline }
    }

    pub fn check_time(&self) -> Result<()> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        Err(Failure::limit(format!(
            "reading took longer than {} s",
            self.limits.max_seconds
        )))
    }

    pub fn check_bytes(&self, what: &str, bytes: u64) -> Result<()> {
        if bytes <= self.limits.max_bytes {
            return Ok(());
        }
        Err(Failure::limit(format!(
            "{what} is more than {} bytes",
            self.limits.max_bytes
        )))
    }

    pub fn check_heap(&self, bytes: u64) -> Result<()> {
        if bytes <= self.limits.max_heap {
            return Ok(());
        }
        Err(Failure::limit(format!(
            "names and attributes take more than {} bytes",
            self.limits.max_heap
        )))
    }
}
