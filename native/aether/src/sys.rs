//! System calls that std does not have, each with errors as `io::Error`.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn check_size(result: isize) -> io::Result<usize> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as usize)
    }
}

pub fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// # Safety
/// `fd` is open and owned by nobody else.
unsafe fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: promised by the caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Read and write end, both close-on-exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: fds has room for two.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both are fresh.
    Ok(unsafe { (own(fds[0]), own(fds[1])) })
}

pub fn socketpair(kind: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: fds has room for two.
    check(unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            kind | libc::SOCK_CLOEXEC,
            0,
            fds.as_mut_ptr(),
        )
    })?;
    // SAFETY: both are fresh.
    Ok(unsafe { (own(fds[0]), own(fds[1])) })
}

pub fn set_nonblocking(fd: &impl AsRawFd, on: bool) -> io::Result<()> {
    // SAFETY: plain fcntl on an open descriptor.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    let flags = if on {
        flags | libc::O_NONBLOCK
    } else {
        flags & !libc::O_NONBLOCK
    };
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) })?;
    Ok(())
}

pub fn read(fd: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is ours and as long as said.
    check_size(unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) })
}

pub fn write(fd: &impl AsRawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are ours.
    check_size(unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) })
}

/// Both slices in one call; gives how many bytes were taken.
pub fn write_two(fd: &impl AsRawFd, first: &[u8], second: &[u8]) -> io::Result<usize> {
    let parts = [
        libc::iovec {
            iov_base: first.as_ptr() as *mut _,
            iov_len: first.len(),
        },
        libc::iovec {
            iov_base: second.as_ptr() as *mut _,
            iov_len: second.len(),
        },
    ];
    // SAFETY: both parts are valid for reading.
    check_size(unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr(), 2) })
}

pub fn pread(fd: &impl AsRawFd, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    // SAFETY: the buffer is ours.
    check_size(unsafe {
        libc::pread(
            fd.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            at as i64,
        )
    })
}

pub fn pwrite_all(fd: &impl AsRawFd, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the bytes are ours.
        let n = check_size(unsafe {
            libc::pwrite(
                fd.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                at as i64,
            )
        })?;
        bytes = &bytes[n..];
        at += n as u64;
    }
    Ok(())
}

pub fn openat(
    dir: &impl AsRawFd,
    name: &CStr,
    flags: libc::c_int,
    mode: libc::mode_t,
) -> io::Result<OwnedFd> {
    // SAFETY: name ends in NUL.
    let fd = check(unsafe {
        libc::openat(
            dir.as_raw_fd(),
            name.as_ptr(),
            flags | libc::O_CLOEXEC,
            mode as libc::c_uint,
        )
    })?;
    // SAFETY: fresh.
    Ok(unsafe { own(fd) })
}

pub fn duplicate(fd: &impl AsRawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain fcntl.
    let fd = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: fresh.
    Ok(unsafe { own(fd) })
}

/// Bytes that can be read now.
pub fn readable_bytes(fd: &impl AsRawFd) -> u64 {
    let mut n: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &mut n) } {
        0 => n as u64,
        _ => 0,
    }
}

/// Whether the last writer of a pipe has gone (and not: none has come yet).
pub fn is_hung_up(fd: &impl AsRawFd) -> bool {
    let mut polled = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut polled, 1, 0) };
    polled.revents & libc::POLLHUP != 0
}

pub fn memfd(bytes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: the name ends in NUL.
    let fd = check(unsafe { libc::memfd_create(c"order".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: fresh.
    let fd = unsafe { own(fd) };
    pwrite_all(&fd, bytes, 0)?;
    Ok(fd)
}

pub const MAX_FDS: usize = 8;

#[repr(C, align(8))]
struct Control([u8; 24 + 4 * MAX_FDS]);

/// One packet with descriptors. Bytes and descriptors go together or not at all.
pub fn send_packet(socket: &impl AsRawFd, bytes: &[u8], fds: &[BorrowedFd]) -> io::Result<()> {
    assert!(fds.len() <= MAX_FDS);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr() as *mut _,
        iov_len: bytes.len(),
    };
    let mut control = Control([0; 24 + 4 * MAX_FDS]);
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: arithmetic only.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(4 * fds.len() as u32) } as _;
        // SAFETY: control is large enough for one header and MAX_FDS descriptors.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4 * fds.len() as u32) as _;
            for (i, fd) in fds.iter().enumerate() {
                libc::CMSG_DATA(header)
                    .cast::<RawFd>()
                    .add(i)
                    .write_unaligned(fd.as_raw_fd());
            }
        }
    }
    // SAFETY: message points to live buffers.
    check_size(unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) })?;
    Ok(())
}

/// One packet into `buffer`; (0, none) at the end.
pub fn receive_packet(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = Control([0; 24 + 4 * MAX_FDS]);
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: message points to live buffers.
    let n = check_size(unsafe {
        libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    // SAFETY: the kernel filled the control buffer; each descriptor in it is fresh.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / 4;
                for i in 0..count {
                    fds.push(own(libc::CMSG_DATA(header)
                        .cast::<RawFd>()
                        .add(i)
                        .read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    Ok((n, fds))
}

pub fn accept(listener: &impl AsRawFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no address is wanted.
    let fd = check(unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            flags,
        )
    })?;
    // SAFETY: fresh.
    Ok(unsafe { own(fd) })
}

/// As far as an unprivileged process may.
pub fn enlarge_send_buffer(socket: &impl AsRawFd) {
    let size: libc::c_int = 1 << 20;
    let length = std::mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: size is as long as said.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const size).cast(),
            length,
        )
    };
}

pub fn peer_uid(socket: &impl AsRawFd) -> io::Result<u32> {
    let mut cred = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: cred is as large as said.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &mut length,
        )
    })?;
    Ok(cred.uid)
}

pub struct Epoll(OwnedFd);

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: plain call.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: fresh.
        Ok(Epoll(unsafe { own(fd) }))
    }

    fn control(&self, op: libc::c_int, fd: &impl AsRawFd, events: i32, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: key,
        };
        // SAFETY: event lives through the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd.as_raw_fd(), &mut event) })?;
        Ok(())
    }

    pub fn add(&self, fd: &impl AsRawFd, events: i32, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, key)
    }

    pub fn change(&self, fd: &impl AsRawFd, events: i32, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, key)
    }

    pub fn remove(&self, fd: &impl AsRawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// Keys and events; `timeout_ms` below 0 waits for ever.
    pub fn wait(&self, timeout_ms: i32, out: &mut Vec<(u64, i32)>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: room for 64 events.
        let n =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 64, timeout_ms) };
        out.clear();
        out.extend(
            events
                .iter()
                .take(n.max(0) as usize)
                .map(|event| (event.u64, event.events as i32)),
        );
    }
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: time is written.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Milliseconds since 1970.
pub fn unix_ms() -> u64 {
    clock(libc::CLOCK_REALTIME) / 1_000_000
}

/// Field 22 of /proc/PID/stat: start in clock ticks since boot; 0 if it cannot be read.
pub fn start_time(pid: i32) -> u64 {
    let text = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = text
        .iter()
        .rposition(|&b| b == b')')
        .map_or(&text[..0], |at| &text[at + 1..]);
    String::from_utf8_lossy(after)
        .split_ascii_whitespace()
        .nth(19)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}
