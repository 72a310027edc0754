//! Stat and ListDirectory.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use prost::Message;
use wire::aether_reply::Result as Reply;
use wire::{
    FileInfo, FileType, ListDirectoryRequest, ListDirectoryResponse, StatRequest, StatResponse,
};

use super::connection::Connection;
use super::failure::{errno, Failure, Outcome};
use super::{path, sys};

const MAX_PAGE: usize = 10_000;
const DEFAULT_PAGE: usize = 1_000;
/// A page is one frame; long names and targets make it shorter than was asked.
const MAX_PAGE_BYTES: usize = 900 << 10;

pub fn stat(connection: &mut Connection, ask: &StatRequest) -> Outcome<()> {
    const ASKED: &str = "stat";
    path::validate(ASKED, &ask.path)?;
    let told = |e: io::Error| Failure::os(ASKED, &ask.path, &e);
    // A slash at the end asks for what a link leads to, as in the kernel.
    let place = match ask.follow || ask.path.ends_with(b"/") {
        true => None,
        false => path::place(&ask.path).map_err(told)?,
    };
    let file = match place {
        Some(place) => {
            let stat = sys::stat_entry(place.at(), &place.name).map_err(told)?;
            describe(place.at(), &place.name, &stat, &ask.path)
        }
        None => {
            let fd = path::open(&ask.path, libc::O_PATH).map_err(told)?;
            let stat = sys::stat_fd(&fd).map_err(told)?;
            describe(fd.as_raw_fd(), c"", &stat, &ask.path)
        }
    };
    connection.reply(Reply::Stat(StatResponse { file: Some(file) }))
}

/// A FileInfo; the target of a link is read, and stays empty where that is refused.
pub fn describe(at: RawFd, name: &CStr, stat: &libc::stat, shown: &[u8]) -> FileInfo {
    let kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => FileType::File,
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        _ => FileType::Other,
    };
    FileInfo {
        name: shown.to_vec(),
        r#type: kind as i32,
        size_bytes: stat.st_size.max(0) as u64,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_at_ms: stat
            .st_mtime
            .saturating_mul(1000)
            .saturating_add(stat.st_mtime_nsec / 1_000_000),
        link_target: match kind {
            FileType::Symlink => sys::read_link(at, name).unwrap_or_default(),
            _ => Vec::new(),
        },
    }
}

pub fn list_directory(connection: &mut Connection, ask: &ListDirectoryRequest) -> Outcome<()> {
    const ASKED: &str = "list";
    path::validate(ASKED, &ask.path)?;
    let told = |e: io::Error| Failure::os(ASKED, &ask.path, &e);
    let after = from_token(&ask.page_token).ok_or_else(|| {
        let wrong = "page_token is none that a list of this directory gave";
        Failure::of("INVALID_ARGUMENT", ASKED, &ask.path, wrong)
    })?;
    let directory = path::open(&ask.path, libc::O_RDONLY | libc::O_DIRECTORY).map_err(told)?;
    let mut names: Vec<Box<[u8]>> = Vec::new();
    sys::each_entry(&directory, |name, _| {
        if after.is_empty() || name > after.as_slice() {
            names.push(name.into());
        }
        Ok(())
    })
    .map_err(told)?;

    let page = match ask.page_size as usize {
        0 => DEFAULT_PAGE,
        size => size.min(MAX_PAGE),
    };
    let more = names.len() > page;
    if more {
        names.select_nth_unstable(page);
        names.truncate(page);
    }
    names.sort_unstable();
    let mut reply = ListDirectoryResponse::default();
    let mut bytes = 0;
    let mut cut = more;
    let mut last: &[u8] = &[];
    for name in &names {
        let c_name = sys::c_string(name).map_err(told)?;
        match sys::stat_entry(directory.as_raw_fd(), &c_name) {
            Ok(stat) => {
                let entry = describe(directory.as_raw_fd(), &c_name, &stat, name);
                bytes += entry.encoded_len() + 8;
                if bytes > MAX_PAGE_BYTES {
                    cut = true;
                    break;
                }
                reply.entries.push(entry);
            }
            // Removed since it was listed.
            Err(e) if errno(&e) == libc::ENOENT => {}
            Err(e) => return Err(told(e)),
        }
        last = name;
    }
    if cut {
        reply.next_page_token = to_token(last);
    }
    connection.reply(Reply::Directory(reply))
}

/// A token is the last name of the page, in hexadecimal digits: a list stays right while others change the directory.
fn to_token(name: &[u8]) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_token(token: &str) -> Option<Vec<u8>> {
    let digits = token.as_bytes();
    if digits.len() % 2 != 0 || digits.len() > 2 * 255 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8);
    digits.chunks(2).map(pair).collect()
}
