//! aether: outside the sandbox, it holds the channel to the edge, the pipes and records of all commands, and orders
//! init about. One thread; whatever could block is given to epoll.

mod command;
mod connection;
mod driver;
mod ending;
mod environment;
mod history;
mod input;
mod leaf;
mod output;
mod record;
mod requests;
mod session;
mod start;
mod startup_file;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::errors::failure;
use crate::link::{self, news, Order, Report};
use crate::sys::{self, Epoll};
use crate::AetherSetup;

use command::Command;
use connection::Connection;
use environment::Base;
use history::History;
use leaf::Leaves;
use session::Session;

/// One read of a pipe and one frame of output.
const CHUNK: usize = 256 * 1024;

/// What an epoll event is about: a kind in the top byte, a number below.
mod key {
    pub const LISTENER: u64 = 1 << 56;
    pub const LINK: u64 = 2 << 56;
    pub const INIT: u64 = 3 << 56;
    pub const CONNECTION: u64 = 4 << 56;
    pub const STDOUT: u64 = 5 << 56;
    pub const STDERR: u64 = 6 << 56;
    pub const INPUT: u64 = 7 << 56;
    pub const STATUS: u64 = 8 << 56;
    pub const CONTROL: u64 = 9 << 56;
    pub const RELAY: u64 = 10 << 56;
    pub const KIND: u64 = 0xff << 56;
}

/// What a token that init knows stands for.
enum Purpose {
    Command(u64),
    Ping {
        connection: u32,
        request: u32,
    },
    Shell(String),
    Worker,
    /// Pipes for a session's call.
    Call(u64),
}

struct Supervisor {
    sandbox_id: String,
    listener: OwnedFd,
    link: OwnedFd,
    init_pid: i32,
    memory_events: Option<OwnedFd>,
    pids_events: Option<OwnedFd>,
    edge_uid: u32,
    epoll: Epoll,
    connections: BTreeMap<u32, Connection>,
    last_connection: u32,
    /// Those whose input may hold a request that can now be answered.
    ready: Vec<u32>,
    /// Readers whose socket took all that was kept for it.
    hungry: Vec<u32>,
    base: Base,
    configured: bool,
    /// Commands that run, or whose pipes are still held by something they left.
    commands: BTreeMap<u64, Command>,
    deadlines: BTreeSet<(u64, u64)>,
    sessions: BTreeMap<String, Session>,
    workers: BTreeMap<u64, workers::Worker>,
    history: History,
    leaves: Leaves,
    purposes: BTreeMap<u64, Purpose>,
    last_token: u64,
    /// Orders that did not fit into the link.
    orders: VecDeque<(Order, Vec<OwnedFd>)>,
    buffer: Vec<u8>,
    /// Much of the buffer was written: its memory is given back when nothing runs.
    buffer_used: bool,
    /// Monotonic nanoseconds of the last call into the sandbox or end of a command.
    last_active: u64,
}

/// Never returns; ends when init has ended.
pub fn run_aether(setup: AetherSetup) -> ! {
    // SAFETY: plain calls on this process.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        // Large buffers go back to the kernel when they are freed, also after the first.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 * 1024);
    }
    let Ok(mut supervisor) = Supervisor::new(setup) else {
        // SAFETY: ends the process.
        unsafe { libc::_exit(1) }
    };
    supervisor.run()
}

impl Supervisor {
    fn new(setup: AetherSetup) -> io::Result<Supervisor> {
        let epoll = Epoll::new()?;
        sys::set_nonblocking(&setup.listener, true)?;
        sys::set_nonblocking(&setup.init_link, true)?;
        epoll.add(&setup.listener, libc::EPOLLIN, key::LISTENER)?;
        epoll.add(&setup.init_link, libc::EPOLLIN, key::LINK)?;
        epoll.add(&setup.init_pidfd, libc::EPOLLIN, key::INIT)?;
        // Open for ever: epoll forgets a descriptor that is closed.
        std::mem::forget(setup.init_pidfd);
        Ok(Supervisor {
            sandbox_id: setup.sandbox_id,
            listener: setup.listener,
            link: setup.init_link,
            init_pid: setup.init_pid,
            memory_events: setup.memory_events,
            pids_events: setup.pids_events,
            edge_uid: setup.edge_uid,
            epoll,
            connections: BTreeMap::new(),
            last_connection: 0,
            ready: Vec::new(),
            hungry: Vec::new(),
            base: Base::default(),
            configured: false,
            commands: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            sessions: BTreeMap::new(),
            workers: BTreeMap::new(),
            history: History::new(setup.records),
            leaves: Leaves::new(setup.commands_cgroup),
            purposes: BTreeMap::new(),
            last_token: 0,
            orders: VecDeque::new(),
            buffer: vec![0; CHUNK],
            buffer_used: false,
            last_active: sys::now_ns(),
        })
    }

    fn run(&mut self) -> ! {
        let mut events = Vec::new();
        loop {
            self.epoll.wait(self.timeout_ms(), &mut events);
            for &(key, happened) in &events {
                self.event(key, happened);
            }
            self.keep_time();
            loop {
                if let Some(connection) = self.ready.pop() {
                    self.serve(connection);
                } else if let Some(connection) = self.hungry.pop() {
                    self.pump_connection(connection);
                } else {
                    break;
                }
            }
            if self.buffer_used && self.commands.is_empty() {
                self.buffer_used = false;
                self.buffer = vec![0; CHUNK];
            }
        }
    }

    fn event(&mut self, key: u64, happened: i32) {
        let number = key & !key::KIND;
        match key & key::KIND {
            key::LISTENER => self.accept(),
            key::LINK => self.hear(),
            key::INIT => self.lost(),
            key::CONNECTION => self.connection_event(number as u32, happened),
            key::STDOUT | key::STDERR => self.pump(number),
            key::INPUT => self.feed_input(number),
            key::STATUS => self.session_status(number),
            key::CONTROL => self.session_control(number),
            key::RELAY => self.relay(number),
            _ => {}
        }
    }

    fn token(&mut self, purpose: Purpose) -> u64 {
        self.last_token += 1;
        self.purposes.insert(self.last_token, purpose);
        self.last_token
    }

    /// Sends an order to init, or keeps it until the link takes it. Descriptors are closed here once sent.
    fn order(&mut self, order: Order, fds: Vec<OwnedFd>) {
        self.orders.push_back((order, fds));
        self.send_orders();
    }

    fn send_orders(&mut self) {
        while let Some((order, fds)) = self.orders.front() {
            let borrowed: Vec<BorrowedFd> = fds.iter().map(|fd| fd.as_fd()).collect();
            match link::send(&self.link, order, &borrowed) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ =
                        self.epoll
                            .change(&self.link, libc::EPOLLIN | libc::EPOLLOUT, key::LINK);
                    return;
                }
                // Init is gone: its pidfd says so too.
                Err(_) => return,
                Ok(()) => drop(self.orders.pop_front()),
            }
        }
    }

    fn hear(&mut self) {
        if !self.orders.is_empty() {
            let _ = self.epoll.change(&self.link, libc::EPOLLIN, key::LINK);
            self.send_orders();
        }
        // A report is small: it is never in a memfd.
        let mut buffer = [0; 4096 + 64];
        for _ in 0..64 {
            match link::receive::<Report>(&self.link, &mut buffer) {
                Ok(Some((report, fds))) => self.heard(report, fds),
                Ok(None) => self.lost(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.lost(),
            }
        }
    }

    fn heard(&mut self, report: Report, fds: Vec<OwnedFd>) {
        let token = report.token;
        let last = report.news != news::STARTED;
        let purpose = if last {
            self.purposes.remove(&token)
        } else {
            None
        };
        let purpose = match &purpose {
            Some(purpose) => purpose,
            None => match self.purposes.get(&token) {
                Some(purpose) => purpose,
                None => return,
            },
        };
        match *purpose {
            Purpose::Command(number) => match report.news {
                news::STARTED => self.command_started(number, report, fds),
                news::REFUSED => self.command_refused(number, report),
                _ => self.command_reaped(number, &report),
            },
            Purpose::Call(number) => match report.news {
                news::PIPES => self.call_pipes(number, fds),
                _ => self.command_refused(number, report),
            },
            Purpose::Shell(ref session) => {
                let session = session.clone();
                match report.news {
                    news::STARTED => self.shell_started(&session, token, report.in_leaf),
                    news::REFUSED => self.shell_refused(&session, report),
                    _ => self.shell_ended(&session, token, &report),
                }
            }
            Purpose::Ping {
                connection,
                request,
            } => match report.news {
                news::REFUSED => {
                    let error = io::Error::from_raw_os_error(report.errno);
                    let failed = failure(
                        "UNAVAILABLE",
                        format!("no process could be forked in the sandbox: {error}"),
                    );
                    self.reply_error(connection, request, failed);
                }
                _ => self.reply_done(connection, request),
            },
            Purpose::Worker => match report.news {
                news::STARTED => self.worker_started(token),
                news::REFUSED => self.worker_refused(token, report),
                _ => self.worker_ended(token),
            },
        }
    }

    /// Init has ended, and all processes of the sandbox with it.
    fn lost(&mut self) -> ! {
        let ids: Vec<u32> = self.connections.keys().copied().collect();
        for id in ids {
            if let Some(request) = self
                .connections
                .get(&id)
                .and_then(|connection| connection.waiting_request())
            {
                self.reply_error(
                    id,
                    request,
                    failure("SANDBOX_LOST", "the sandbox's init has ended"),
                );
            }
        }
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) }
    }
}
