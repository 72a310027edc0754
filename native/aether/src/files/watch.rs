//! Watch: inotify on a directory, or on all below it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use wire::aether_reply::Result as Reply;
use wire::{FileEvent, FileEventType as Event, WatchRequest, WatchResponse};

use super::connection::Connection;
use super::failure::{errno, Failure, Outcome};
use super::{path, sys};

const ASKED: &str = "watch";
const MASK: u32 = libc::IN_CREATE
    | libc::IN_MODIFY
    | libc::IN_DELETE
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_ATTRIB
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF
    | libc::IN_ONLYDIR;
/// Paths in one reply; more go into the next.
const MAX_REPLY_BYTES: usize = 256 << 10;
/// How long the other half of a move may take to come.
const MOVE_WAIT_MS: i32 = 20;

pub fn watch(connection: &mut Connection, ask: &WatchRequest) -> Outcome<()> {
    path::validate(ASKED, &ask.path)?;
    let told = |e: io::Error| Failure::os(ASKED, &ask.path, &e);
    let top = path::open(&ask.path, libc::O_RDONLY | libc::O_DIRECTORY).map_err(told)?;
    let mut watch = Watch::new(&ask.path, &top, ask.recursive).map_err(|e| {
        // ENOSPC and EMFILE are inotify's own limits here.
        match errno(&e) {
            libc::ENOSPC => {
                let wrong = "there are more directories than the kernel watches for one user";
                Failure::of("FILE_FAILED", ASKED, &ask.path, wrong)
            }
            libc::EMFILE => {
                let wrong = "this user has as many watches as the kernel allows";
                Failure::of("FILE_FAILED", ASKED, &ask.path, wrong)
            }
            _ => told(e),
        }
    })?;
    // An open directory would never be told to be deleted.
    drop(top);
    watch.tell(Event::Ready, b"");
    watch.flush(connection)?;
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let settled = watch.moved_from.is_empty() && watch.told_early.is_empty();
        let wait = if settled { -1 } else { MOVE_WAIT_MS };
        match wait_for_news(&watch.inotify, connection, wait)? {
            News::CallerLeft => return Ok(()),
            News::Nothing => {
                watch.forget_moved_away();
                // The queue is empty: what a scan told of has had its IN_CREATE.
                watch.told_early.clear();
            }
            News::Events => {
                let top_is_there = watch.read(&mut buffer).map_err(told)?;
                watch.flush(connection)?;
                if !top_is_there {
                    return connection.done();
                }
            }
        }
    }
}

enum News {
    Events,
    Nothing,
    CallerLeft,
}

fn wait_for_news(inotify: &OwnedFd, connection: &Connection, wait_ms: i32) -> Outcome<News> {
    let mut polls = [inotify.as_raw_fd(), connection.fd().as_raw_fd()].map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    loop {
        // SAFETY: two pollfds, as is said.
        let ready = unsafe { libc::poll(polls.as_mut_ptr(), 2, wait_ms) };
        if ready < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
            continue;
        }
        // The caller has nothing more to say: whatever comes from it is its leaving.
        return Ok(match (ready, polls[1].revents, polls[0].revents) {
            (0, ..) => News::Nothing,
            (_, 0, events) if events & libc::POLLIN != 0 => News::Events,
            _ => News::CallerLeft,
        });
    }
}

struct Watch {
    inotify: OwnedFd,
    /// Absolute path of the watched directory, and its device and inode.
    top: Vec<u8>,
    top_inode: (u64, u64),
    recursive: bool,
    /// Watch descriptor → the directory's path below the top, "" for the top itself.
    directories: HashMap<i32, Vec<u8>>,
    /// Entries that a scan told of, and whose IN_CREATE may still come.
    told_early: HashSet<Vec<u8>>,
    /// Cookie → old path of directories that were moved, to where is not yet known.
    moved_from: HashMap<u32, Vec<u8>>,
    events: Vec<FileEvent>,
}

impl Watch {
    fn new(path: &[u8], top: &OwnedFd, recursive: bool) -> io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        let stat = sys::stat_fd(top)?;
        // SAFETY: takes flags alone.
        let inotify =
            sys::check(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        let mut watch = Self {
            // SAFETY: the kernel has just given it to us.
            inotify: unsafe { OwnedFd::from_raw_fd(inotify) },
            top: match path {
                [b'/', ..] => path.to_vec(),
                path => join(std::env::current_dir()?.as_os_str().as_bytes(), path),
            },
            top_inode: (stat.st_dev, stat.st_ino),
            recursive,
            directories: HashMap::new(),
            told_early: HashSet::new(),
            moved_from: HashMap::new(),
            events: Vec::new(),
        };
        watch.add(b"")?;
        if recursive {
            watch.add_below(b"", false)?;
        }
        Ok(watch)
    }

    /// Watches one directory. inotify takes only paths: the worker goes there, so that no link on the way counts.
    fn add(&mut self, below: &[u8]) -> io::Result<OwnedFd> {
        let directory = self.open(below)?;
        // SAFETY: the descriptor is open.
        sys::check(unsafe { libc::fchdir(directory.as_raw_fd()) })?;
        // SAFETY: the path ends with NUL.
        let watch = sys::check(unsafe {
            libc::inotify_add_watch(self.inotify.as_raw_fd(), c".".as_ptr(), MASK)
        });
        // To stay there would keep the directory from being deleted for good.
        // SAFETY: the path ends with NUL.
        unsafe { libc::chdir(c"/".as_ptr()) };
        let watch = watch?;
        self.directories.insert(watch, below.to_vec());
        Ok(directory)
    }

    fn open(&self, below: &[u8]) -> io::Result<OwnedFd> {
        let top = path::open(&self.top, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let stat = sys::stat_fd(&top)?;
        if (stat.st_dev, stat.st_ino) != self.top_inode {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        if below.is_empty() {
            return Ok(top);
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS;
        sys::openat2(top.as_raw_fd(), &sys::c_string(below)?, flags, 0, resolve)
    }

    /// Watches every directory below one, and tells of all that is there where it is new. What appears between a
    /// directory's making and its watch is found by the scan, which comes after the watch.
    fn add_below(&mut self, below: &[u8], is_new: bool) -> io::Result<()> {
        let mut waiting = vec![below.to_vec()];
        while let Some(here) = waiting.pop() {
            let directory = match if here == below {
                self.open(&here)
            } else {
                self.add(&here)
            } {
                Ok(directory) => directory,
                // Gone again, or not for this user: there is nothing to tell.
                Err(e) if is_gone(&e) || errno(&e) == libc::EACCES => continue,
                Err(e) => return Err(e),
            };
            let mut found = Vec::new();
            sys::each_entry(&directory, |name, kind| {
                found.push((name.to_vec(), kind));
                Ok(())
            })
            .or_else(|e| if is_gone(&e) { Ok(()) } else { Err(e) })?;
            for (name, kind) in found {
                let full = join(&here, &name);
                if is_new && self.told_early.insert(full.clone()) {
                    self.tell(Event::Created, &full);
                }
                if kind == libc::DT_DIR || kind == libc::DT_UNKNOWN && self.open(&full).is_ok() {
                    waiting.push(full);
                }
            }
        }
        Ok(())
    }

    /// Reads what inotify has; false when the watched directory itself is gone.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        const HEAD: usize = size_of::<libc::inotify_event>();
        // SAFETY: the buffer is as long as is said.
        let length = unsafe {
            libc::read(
                self.inotify.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        };
        if length < 0 {
            let error = io::Error::last_os_error();
            return match errno(&error) {
                libc::EAGAIN | libc::EINTR => Ok(true),
                _ => Err(error),
            };
        }
        let mut rest = &buffer[..length as usize];
        while rest.len() >= HEAD {
            let number =
                |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
            let (watch, mask, cookie, room) =
                (number(0) as i32, number(4), number(8), number(12) as usize);
            let name = &rest[HEAD..HEAD + room];
            let end = name.iter().position(|&b| b == 0).unwrap_or(room);
            if !self.take(watch, mask, cookie, &name[..end])? {
                return Ok(false);
            }
            rest = &rest[HEAD + room..];
        }
        Ok(true)
    }

    fn take(&mut self, watch: i32, mask: u32, cookie: u32, name: &[u8]) -> io::Result<bool> {
        if mask & libc::IN_Q_OVERFLOW != 0 {
            self.tell(Event::Overflow, b"");
            self.told_early.clear();
            self.moved_from.clear();
            if self.recursive {
                self.add_below(b"", false)?;
            }
            return Ok(true);
        }
        let Some(directory) = self.directories.get(&watch) else {
            return Ok(true);
        };
        if name.is_empty() {
            let is_top = directory.is_empty();
            if mask & libc::IN_IGNORED != 0 {
                self.directories.remove(&watch);
            }
            let gone = libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_UNMOUNT;
            if is_top && mask & gone != 0 {
                self.tell(Event::Removed, b"");
                return Ok(false);
            }
            // A directory below tells of itself in the one above.
            if is_top && mask & libc::IN_ATTRIB != 0 {
                self.tell(Event::Attributes, b"");
            }
            return Ok(true);
        }
        let full = join(directory, name);
        let is_directory = mask & libc::IN_ISDIR != 0;
        if mask & libc::IN_CREATE != 0 {
            if !self.told_early.remove(&full) {
                self.tell(Event::Created, &full);
            }
            if is_directory {
                self.follow_into(&full, true)?;
            }
        } else if mask & libc::IN_MOVED_TO != 0 {
            self.tell(Event::MovedTo, &full);
            if is_directory {
                if let Some(old) = self.moved_from.remove(&cookie) {
                    self.rename_below(&old, &full);
                }
                self.follow_into(&full, false)?;
            }
        } else if mask & libc::IN_MOVED_FROM != 0 {
            self.told_early.remove(&full);
            self.tell(Event::MovedFrom, &full);
            if is_directory && self.recursive {
                self.moved_from.insert(cookie, full);
            }
        } else if mask & libc::IN_DELETE != 0 {
            self.told_early.remove(&full);
            self.tell(Event::Removed, &full);
        } else if mask & libc::IN_MODIFY != 0 {
            self.tell(Event::Modified, &full);
        } else if mask & libc::IN_ATTRIB != 0 {
            self.tell(Event::Attributes, &full);
        }
        Ok(true)
    }

    /// Watches a directory that has appeared, and all below it.
    fn follow_into(&mut self, full: &[u8], is_new: bool) -> io::Result<()> {
        if !self.recursive {
            return Ok(());
        }
        match self.add(full) {
            Ok(_) => {}
            Err(e) if is_gone(&e) || errno(&e) == libc::EACCES => return Ok(()),
            // More directories than the kernel watches: what happens in this one is not seen.
            Err(e) if errno(&e) == libc::ENOSPC => {
                self.tell(Event::Overflow, full);
                return Ok(());
            }
            Err(e) => return Err(e),
        }
        match self.add_below(full, is_new) {
            Err(e) if errno(&e) == libc::ENOSPC => self.tell(Event::Overflow, full),
            result => result?,
        }
        Ok(())
    }

    fn rename_below(&mut self, old: &[u8], new: &[u8]) {
        for path in self.directories.values_mut() {
            if let Some(rest) = path.strip_prefix(old) {
                if rest.is_empty() || rest[0] == b'/' {
                    *path = [new, rest].concat();
                }
            }
        }
    }

    /// Directories that were moved out of the tree are none of its own any more.
    fn forget_moved_away(&mut self) {
        for (_, old) in self.moved_from.drain() {
            let inotify = self.inotify.as_raw_fd();
            self.directories.retain(|&watch, path| {
                let rest = path.strip_prefix(old.as_slice());
                let away = rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
                if away {
                    // SAFETY: takes numbers alone.
                    unsafe { libc::inotify_rm_watch(inotify, watch) };
                }
                !away
            });
        }
    }

    /// Notes an event; one that repeats the last is left out.
    fn tell(&mut self, kind: Event, path: &[u8]) {
        if let Some(last) = self.events.last() {
            if last.r#type == kind as i32 && last.path == path {
                return;
            }
        }
        self.events.push(FileEvent {
            r#type: kind as i32,
            path: path.to_vec(),
        });
    }

    fn flush(&mut self, connection: &mut Connection) -> Outcome<()> {
        let mut bytes = 0;
        let mut events = Vec::new();
        for event in self.events.drain(..) {
            bytes += event.path.len() + 16;
            events.push(event);
            if bytes > MAX_REPLY_BYTES {
                bytes = 0;
                let events = std::mem::take(&mut events);
                connection.reply(Reply::Watch(WatchResponse { events }))?;
            }
        }
        if !events.is_empty() {
            connection.reply(Reply::Watch(WatchResponse { events }))?;
        }
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(errno(error), libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        _ => [directory, b"/", name].concat(),
    }
}
