//! A root directory of its own, and calls that a worker in it answers.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{chroot, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use wire::aether_reply::Result as Reply;
use wire::aether_request::Call;
use wire::frame::{FrameHeader, HEADER_BYTES, KIND_MESSAGE, KIND_STDOUT};
use wire::*;

pub struct Root {
    pub path: PathBuf,
    mounts: Vec<PathBuf>,
}

impl Root {
    pub fn new() -> Self {
        let mut template = *b"/tmp/dsec-files-XXXXXX\0";
        // SAFETY: the template ends with NUL and is ours.
        let made = unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) };
        assert!(!made.is_null());
        let text = std::str::from_utf8(&template[..template.len() - 1]).unwrap();
        let path = PathBuf::from(text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            path,
            mounts: Vec::new(),
        }
    }

    /// Where a path of the worker's is for us.
    pub fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    pub fn file(&self, path: &str, contents: &[u8]) -> PathBuf {
        let full = self.at(path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(&full, contents).unwrap();
        full
    }

    /// An overlay as a sandbox has it, on a lower directory `lower` and with its upper on a tmpfs.
    pub fn overlay(&mut self, path: &str) {
        self.tmpfs("writable", "size=32m");
        for name in [path, "lower", "writable/upper", "writable/work"] {
            fs::create_dir_all(self.at(name)).unwrap();
        }
        let full = self.at(path);
        let options = format!(
            "lowerdir={0}/lower,upperdir={0}/writable/upper,workdir={0}/writable/work,redirect_dir=off,metacopy=off,index=off",
            self.path.display()
        );
        let (target, options) = (c_path(&full), std::ffi::CString::new(options).unwrap());
        // SAFETY: strings that end with NUL.
        let result = unsafe {
            let name = c"overlay".as_ptr();
            libc::mount(name, target.as_ptr(), name, 0, options.as_ptr().cast())
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        self.mounts.insert(0, full);
    }

    /// A small tmpfs, unmounted at the end.
    pub fn tmpfs(&mut self, path: &str, options: &str) {
        let full = self.at(path);
        fs::create_dir_all(&full).unwrap();
        let target = c_path(&full);
        let options = std::ffi::CString::new(options).unwrap();
        // SAFETY: strings that end with NUL.
        let result = unsafe {
            let name = c"tmpfs".as_ptr();
            libc::mount(name, target.as_ptr(), name, 0, options.as_ptr().cast())
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        self.mounts.push(full);
    }

    pub fn call(&self, call: Call) -> Worker {
        self.call_as(0, call)
    }

    pub fn call_as(&self, user: u32, call: Call) -> Worker {
        self.call_with(user, call, Vec::new())
    }

    pub fn call_with(&self, user: u32, call: Call, early: Vec<u8>) -> Worker {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let request = AetherRequest {
            id: 7,
            call: Some(call),
        };
        // SAFETY: the child calls only what a child of a program with threads may (glibc's malloc among it), and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                chroot(&self.path).unwrap();
                std::env::set_current_dir("/").unwrap();
                if user != 0 {
                    // SAFETY: numbers alone, in a process of one thread.
                    unsafe {
                        libc::setgroups(0, std::ptr::null());
                        libc::setgid(user);
                        libc::setuid(user);
                    }
                }
                // SAFETY: closes what was ours, so that the peer's end is seen.
                unsafe { libc::close(std::os::fd::AsRawFd::as_raw_fd(&ours)) };
                aether::files::serve(OwnedFd::from(theirs), request, early)
            }));
            drop(ended);
            // SAFETY: ends the child.
            unsafe { libc::_exit(99) }
        }
        assert!(pid > 0);
        Worker {
            stream: ours,
            pid,
            reaped: false,
        }
    }

    /// Names of a directory, sorted, hidden ones too.
    pub fn names(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.at(path))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for mount in &self.mounts {
            // SAFETY: a string that ends with NUL.
            unsafe { libc::umount2(c_path(mount).as_ptr(), libc::MNT_DETACH) };
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn c_path(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap()
}

pub fn make_fifo(path: &Path) {
    // SAFETY: a string that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(c_path(path).as_ptr(), 0o644) }, 0);
}

pub fn make_device(path: &Path) {
    // SAFETY: a string that ends with NUL.
    let result = unsafe {
        libc::mknod(
            c_path(path).as_ptr(),
            libc::S_IFCHR | 0o666,
            libc::makedev(1, 3),
        )
    };
    assert_eq!(result, 0);
}

/// So many directories, one in the other, each with a file.
pub fn deep_directories(top: &Path, depth: usize) {
    fs::create_dir(top).unwrap();
    let mut here = OwnedFd::from(fs::File::open(top).unwrap());
    for _ in 0..depth {
        // SAFETY: strings that end with NUL, descriptors that are open.
        unsafe {
            use std::os::fd::{AsRawFd, FromRawFd};
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
            libc::close(libc::openat(here.as_raw_fd(), c"f".as_ptr(), flags, 0o644));
            assert_eq!(
                libc::mkdirat(here.as_raw_fd(), c"directory".as_ptr(), 0o755),
                0
            );
            here = OwnedFd::from_raw_fd(libc::openat(
                here.as_raw_fd(),
                c"directory".as_ptr(),
                libc::O_CLOEXEC,
            ));
        }
    }
}

pub struct Worker {
    pub stream: UnixStream,
    pub pid: i32,
    reaped: bool,
}

#[derive(Debug)]
// Frames live for a moment, one at a time.
#[allow(clippy::large_enum_variant)]
pub enum Frame {
    Reply(Reply),
    Bytes(Vec<u8>),
}

impl Worker {
    /// None when the worker has closed the connection.
    pub fn frame(&mut self) -> Option<Frame> {
        let mut header = [0; HEADER_BYTES];
        match self.stream.read(&mut header).unwrap() {
            0 => return None,
            taken => self.stream.read_exact(&mut header[taken..]).unwrap(),
        }
        let header = FrameHeader::decode(&header).unwrap();
        let mut payload = vec![0; header.payload_bytes];
        self.stream.read_exact(&mut payload).unwrap();
        Some(match header.kind {
            KIND_MESSAGE => {
                let reply = AetherReply::decode(payload.as_slice()).unwrap();
                assert_eq!(reply.id, 7);
                Frame::Reply(reply.result.unwrap())
            }
            _ => Frame::Bytes(payload),
        })
    }

    pub fn reply(&mut self) -> Reply {
        match self.frame() {
            Some(Frame::Reply(reply)) => reply,
            other => panic!("a reply was wanted, not {other:?}"),
        }
    }

    pub fn error(&mut self) -> ErrorInfo {
        loop {
            match self.frame() {
                Some(Frame::Bytes(_) | Frame::Reply(Reply::Stat(_))) => {}
                Some(Frame::Reply(Reply::Error(error))) => return error,
                other => panic!("an error was wanted, not {other:?}"),
            }
        }
    }

    pub fn reason(&mut self) -> String {
        self.error().reason
    }

    pub fn done(&mut self) {
        match self.reply() {
            Reply::Done(_) => self.end(),
            other => panic!("done was wanted, not {other:?}"),
        }
    }

    /// Sends contents; false when the worker takes no more.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        bytes.chunks(1 << 20).all(|chunk| {
            let frame = [&FrameHeader::new(KIND_STDOUT, chunk.len()).encode(), chunk].concat();
            self.stream.write_all(&frame).is_ok()
        })
    }

    pub fn finish(&mut self) {
        let _ = self
            .stream
            .write_all(&FrameHeader::new(KIND_STDOUT, 0).encode());
    }

    /// Contents up to the end, and the number of frames; then `done`.
    pub fn contents(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match self.frame() {
                Some(Frame::Bytes(bytes)) => all.extend_from_slice(&bytes),
                Some(Frame::Reply(Reply::Done(_))) => return all,
                other => panic!("contents were wanted, not {other:?}"),
            }
        }
    }

    /// Waits for the worker's own end.
    pub fn end(&mut self) {
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(self.pid, &mut status, 0) };
        self.reaped = true;
        assert_eq!(status, 0, "the worker ended with {status:#x}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.reaped {
            // SAFETY: our own child, not yet waited for.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

pub fn write_call(path: &[u8]) -> AetherWriteFile {
    AetherWriteFile {
        path: path.to_vec(),
        ..AetherWriteFile::default()
    }
}

pub fn read_call(path: &[u8]) -> Call {
    Call::ReadFile(AetherReadFile {
        path: path.to_vec(),
        ..AetherReadFile::default()
    })
}

pub fn read_tree_call(path: &[u8]) -> Call {
    Call::ReadTree(AetherReadTree {
        path: path.to_vec(),
        ..AetherReadTree::default()
    })
}

pub fn write_tree_call(path: &[u8]) -> Call {
    Call::WriteTree(AetherWriteTree {
        path: path.to_vec(),
        ..AetherWriteTree::default()
    })
}

pub fn remove_call(path: &[u8], recursive: bool) -> Call {
    Call::Remove(RemoveRequest {
        path: path.to_vec(),
        recursive,
        ..RemoveRequest::default()
    })
}

impl Root {
    pub fn read(&self, path: &[u8]) -> Vec<u8> {
        let mut worker = self.call(read_call(path));
        assert!(matches!(worker.reply(), Reply::Stat(_)));
        worker.contents()
    }

    pub fn write(&self, path: &[u8], contents: &[u8]) {
        let mut worker = self.call(Call::WriteFile(write_call(path)));
        worker.send(contents);
        worker.finish();
        worker.done();
    }

    pub fn stat(&self, path: &[u8], follow: bool) -> FileInfo {
        let ask = StatRequest {
            path: path.to_vec(),
            follow,
            ..StatRequest::default()
        };
        match self.call(Call::Stat(ask)).reply() {
            Reply::Stat(reply) => reply.file.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub fn list(&self, path: &[u8], page_size: u32, token: &str) -> ListDirectoryResponse {
        let ask = ListDirectoryRequest {
            path: path.to_vec(),
            page_size,
            page_token: token.to_string(),
            ..ListDirectoryRequest::default()
        };
        match self.call(Call::ListDirectory(ask)).reply() {
            Reply::Directory(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub fn read_tree(&self, path: &[u8]) -> Vec<u8> {
        self.call(read_tree_call(path)).contents()
    }

    pub fn write_tree(&self, path: &[u8], archive: &[u8]) -> Result<(), ErrorInfo> {
        let mut worker = self.call(write_tree_call(path));
        worker.send(archive);
        worker.finish();
        match worker.reply() {
            Reply::Done(_) => Ok(()),
            Reply::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
}
