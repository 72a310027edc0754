//! ReadFile.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use wire::aether_reply::Result as Reply;
use wire::frame::HEADER_BYTES;
use wire::{AetherReadFile, StatResponse};

use super::connection::{Connection, CHUNK_BYTES};
use super::failure::{errno, Failure, Outcome};
use super::{info, kernel_fs, path, sys};

const ASKED: &str = "read";

/// A regular file from the offset on: up to its size when it was opened, so that a file that grows comes to an end.
/// One of size 0, and those of /proc and /sys, are read until the kernel says that they end; their size is told as 0.
pub fn read_file(connection: &mut Connection, ask: &AetherReadFile) -> Outcome<()> {
    path::validate(ASKED, &ask.path)?;
    let told = |e: io::Error| Failure::os(ASKED, &ask.path, &e);
    let file = open_regular(ASKED, &ask.path)?;
    let mut stat = sys::stat_fd(&file).map_err(told)?;
    // sysfs says 4096 of a file of two bytes.
    if kernel_fs::holds(&file) {
        stat.st_size = 0;
    }
    let mut offset = ask.offset;
    let size = stat.st_size.max(0) as u64;
    let mut left = match size {
        0 => u64::MAX,
        size => size.saturating_sub(offset),
    };
    if ask.length > 0 {
        left = left.min(ask.length);
    }
    let shown = info::describe(-1, c"", &stat, &ask.path);
    connection.reply(Reply::Stat(StatResponse { file: Some(shown) }))?;

    let file = File::from(file);
    let room = left.clamp(1, CHUNK_BYTES as u64) as usize;
    let mut frame = vec![0; HEADER_BYTES + room];
    // The kernel refuses offsets beyond i64; no file is so long.
    while left > 0 && offset <= i64::MAX as u64 {
        let wanted = left.min(room as u64) as usize;
        let taken = match file.read_at(&mut frame[HEADER_BYTES..HEADER_BYTES + wanted], offset) {
            Ok(0) => break,
            Ok(taken) => taken,
            Err(e) if errno(&e) == libc::EINTR => continue,
            // A file of the kernel that would wait for news: what there is has been read.
            Err(e) if errno(&e) == libc::EAGAIN => break,
            Err(e) => return Err(told(e)),
        };
        connection.send_contents(&mut frame[..HEADER_BYTES + taken])?;
        offset += taken as u64;
        left -= taken as u64;
    }
    connection.done()
}

/// Opens a regular file to be read; what is none is told by its kind, and never waits or is touched.
fn open_regular(asked: &str, path: &[u8]) -> Outcome<std::os::fd::OwnedFd> {
    let told = |e: io::Error| Failure::os(asked, path, &e);
    // Looked at before it is opened: opening a fifo or a device has effects.
    let look = path::open(path, libc::O_PATH).map_err(told)?;
    require_regular(asked, path, &sys::stat_fd(&look).map_err(told)?)?;
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = path::open(path, flags).map_err(told)?;
    // It may be another by now.
    require_regular(asked, path, &sys::stat_fd(&file).map_err(told)?)?;
    Ok(file)
}

/// IS_A_DIRECTORY or FILE_FAILED for what is no regular file.
pub fn require_regular(asked: &str, path: &[u8], stat: &libc::stat) -> Outcome<()> {
    let wrong = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => return Ok(()),
        libc::S_IFDIR => {
            let wrong = "it is a directory";
            return Err(Failure::of("IS_A_DIRECTORY", asked, path, wrong));
        }
        libc::S_IFIFO => "it is a fifo, not a file",
        libc::S_IFSOCK => "it is a socket, not a file",
        libc::S_IFCHR | libc::S_IFBLK => "it is a device, not a file",
        _ => "it is not a file",
    };
    Err(Failure::of("FILE_FAILED", asked, path, wrong))
}
