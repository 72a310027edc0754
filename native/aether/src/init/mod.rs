//! Pid 1 of the sandbox: forks what aether orders, reaps everything, reports how its own children ended.
//!
//! It never execs, so its memory belongs to the host's user namespace and nobody inside can trace it; and the kernel
//! keeps signals of the inside from it. It must outlive whatever happens to the sandbox.

mod child;
mod exec;
mod private;
mod spawn;
mod tree;
mod users;

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::link::{self, news, target, what, Order, Report};
use crate::sys;
use crate::InitSetup;

struct Init {
    setup: InitSetup,
    /// /dev/null and the private directory, opened before anything of the sandbox ran.
    null: Option<OwnedFd>,
    private: Option<OwnedFd>,
    oom_score: Option<OwnedFd>,
    users: users::Users,
    /// Tokens of running children by pid, and back.
    children: BTreeMap<i32, u64>,
    pids: BTreeMap<u64, i32>,
}

/// Never returns; ends only when aether is gone, and the sandbox with it.
pub fn run_init(setup: InitSetup) -> ! {
    quiet_signals();
    let oom_score = open_own_oom_score();
    // SAFETY: plain system calls on this process.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::umask(0o022);
        // Keys of the host's session stay outside.
        libc::syscall(libc::SYS_keyctl, 1, std::ptr::null::<libc::c_char>());
        for capability in 0..64 {
            if setup.child_caps >> capability & 1 == 0
                && libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0
            {
                break;
            }
        }
    }
    let signals = signal_descriptor();
    let mut init = Init {
        null: open_path(c"/dev/null", libc::O_RDWR).ok(),
        private: private::directory().ok(),
        oom_score,
        users: users::Users::default(),
        children: BTreeMap::new(),
        pids: BTreeMap::new(),
        setup,
    };
    let mut buffer = vec![0; link::MAX_PACKET + 1];
    loop {
        let mut polled = [
            libc::pollfd {
                fd: init.setup.link.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            },
            libc::pollfd {
                fd: signals.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            },
        ];
        // SAFETY: two valid entries.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
        if polled[1].revents != 0 {
            let _ = sys::read(&signals, &mut [0; 128]);
            init.reap();
        }
        if polled[0].revents != 0 {
            match link::receive::<Order>(&init.setup.link, &mut buffer) {
                Ok(Some((order, fds))) => init.obey(order, fds),
                Ok(None) => end(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {}
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {}
                Err(_) => end(),
            }
        }
    }
}

/// Pid 1's end is the end of all that is in its pid namespace.
fn end() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// What the caller left ignored or handled would go on into every command.
fn quiet_signals() {
    for signal in 1..=64 {
        // By the system call, since the library keeps two numbers to itself. All zeroes: the default action.
        let default = [0u64; 4];
        // SAFETY: the kernel's sigaction has 32 bytes, its mask 8.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0, 8) };
    }
    // SAFETY: init itself must not end by a closed socket.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

fn signal_descriptor() -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: a zeroed set is made empty first; the descriptor is fresh.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            end();
        }
        OwnedFd::from_raw_fd(fd)
    }
}

fn open_path(path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    struct Here;
    impl AsRawFd for Here {
        fn as_raw_fd(&self) -> i32 {
            libc::AT_FDCWD
        }
    }
    sys::openat(&Here, path, flags, 0)
}

/// A descriptor through which init sets its own score around each fork: a child starts with the raised one, so that it
/// and not init is what the kernel ends when memory is short. The file belongs to init only while it is dumpable, and
/// nobody else is inside yet.
fn open_own_oom_score() -> Option<OwnedFd> {
    // SAFETY: plain call.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    open_path(c"/proc/self/oom_score_adj", libc::O_WRONLY).ok()
}

impl Init {
    fn report(&self, report: &Report, fds: &[BorrowedFd]) {
        if link::send(&self.setup.link, report, fds).is_err() {
            // aether is gone, or memory is: without a supervisor there is no sandbox.
            end();
        }
    }

    fn refuse(&self, token: u64, errno: i32, reason: &str, message: String) {
        let report = Report {
            news: news::REFUSED,
            token,
            errno,
            reason: reason.into(),
            message,
            ..Default::default()
        };
        self.report(&report, &[]);
    }

    fn obey(&mut self, order: Order, fds: Vec<OwnedFd>) {
        match order.what {
            what::SPAWN => self.spawn(order, fds),
            what::PING => self.ping(order.token),
            what::WORKER => self.worker(order, fds),
            what::SIGNAL => self.signal(order, fds),
            what::SESSION_PIPES => self.session_pipes(order),
            _ => {}
        }
    }

    fn reap(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: usage is written by the kernel.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: both places are ours.
            let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage) };
            if pid <= 0 {
                return;
            }
            let Some(token) = self.children.remove(&pid) else {
                continue;
            };
            self.pids.remove(&token);
            let time = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
            let report = Report {
                news: news::ENDED,
                token,
                status,
                cpu_us: time(usage.ru_utime) + time(usage.ru_stime),
                peak_bytes: usage.ru_maxrss as u64 * 1024,
                ..Default::default()
            };
            self.report(&report, &[]);
        }
    }

    fn ping(&mut self, token: u64) {
        match self.fork(None) {
            // SAFETY: the child ends at once.
            Ok(0) => unsafe { libc::_exit(0) },
            Ok(pid) => self.remember(pid, token),
            Err(errno) => self.refuse(token, errno, "", String::new()),
        }
    }

    fn remember(&mut self, pid: i32, token: u64) {
        self.children.insert(pid, token);
        self.pids.insert(token, pid);
    }

    fn signal(&mut self, order: Order, fds: Vec<OwnedFd>) {
        if order.target == target::TREE {
            match fds.first() {
                Some(procs) => tree::signal_leaf(procs, order.signal),
                None => {
                    if let Some(&pid) = self.pids.get(&order.token) {
                        tree::signal_descendants(pid, order.signal);
                    }
                }
            }
            return;
        }
        // A pid stands for the same process until it is reaped, and only this thread reaps.
        let Some(&pid) = self.pids.get(&order.token) else {
            return;
        };
        if order.target == target::CHILDREN && tree::signal_children(pid, order.signal) {
            return;
        }
        // SAFETY: plain call.
        unsafe { libc::kill(pid, order.signal) };
    }

    /// 0 in the child; in the parent its pid, or the errno.
    fn fork(&self, leaf: Option<&OwnedFd>) -> Result<i32, i32> {
        self.set_oom_score(b"500");
        let result = child::fork(leaf);
        if result != Ok(0) {
            self.set_oom_score(b"0");
        }
        result
    }

    fn set_oom_score(&self, score: &[u8]) {
        if let Some(file) = &self.oom_score {
            let _ = sys::pwrite_all(file, score, 0);
        }
    }

    fn session_pipes(&mut self, order: Order) {
        let made = self
            .private
            .as_ref()
            .ok_or_else(|| "the sandbox has no private directory".to_string())
            .and_then(|dir| {
                let user = self.users.resolve(&order.user)?;
                private::call_pipes(dir, order.token, user.uid, order.has_stdin)
                    .map_err(|e| e.to_string())
            });
        match made {
            Ok(pipes) => {
                let fds: Vec<BorrowedFd> = pipes.iter().map(|fd| fd.as_fd()).collect();
                let report = Report {
                    news: news::PIPES,
                    token: order.token,
                    ..Default::default()
                };
                self.report(&report, &fds);
            }
            Err(message) => self.refuse(order.token, 0, "INTERNAL", message),
        }
    }
}
