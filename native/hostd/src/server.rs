//! The loop: connections of the edge, starts under way, and pidfds of what runs.

use crate::cgroup::Limits;
use crate::config::Config;
use crate::fault::{Fault, Outcome, Step};
use crate::launch::{self, Order};
use crate::node::Node;
use crate::peer::Peer;
use crate::slots::{Asker, Sandbox, Slots};
use crate::state::{Phase, State};
use crate::{recover, requests, sys};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use wire::hostd_reply::Result as Reply;
use wire::{HostdDied, HostdReply, HostdStart, HostdStarted, HostdStopped, Notice};

/// What an epoll event is about: kind in the upper half, number in the lower.
const LISTENER: u64 = 0;
const PEER: u64 = 1;
const STATUS: u64 = 2;
const AETHER: u64 = 3;
const INIT: u64 = 4;
pub const CLEANER: u64 = 5;

/// More at once adds waiting, not rate.
const STARTS_PER_CPU: usize = 3;
/// After so long without an event, slots are made ready.
const IDLE_MILLISECONDS: i32 = 50;
const VERSION: u32 = 1;

pub struct Server {
    pub node: Node,
    pub slots: Slots,
    epoll: OwnedFd,
    listener: OwnedFd,
    peers: BTreeMap<u64, Peer>,
    next_peer: u64,
    queue: VecDeque<(Asker, HostdStart)>,
    starting: usize,
    cpus: usize,
    pub cleaner: Option<OwnedFd>,
    /// Slots whose cleaning failed, until the next second.
    pub stuck: Vec<(u32, String)>,
}

pub fn serve(config: Config) -> Outcome<()> {
    // SAFETY: plain numbers. A forked child inherits the empty mask.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::umask(0o022);
    }
    sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).step("become a subreaper")?;
    // Where nothing propagates, mounts are cheaper to copy.
    crate::root::own_mounts()?;
    // SAFETY: one thread; sandboxes inherit it, and 32768 would be too few.
    let _ = std::fs::write("/proc/sys/kernel/pid_max", "4194304");
    let node = Node::open(config)?;
    let listener =
        listen(&node.run, "hostd.sock", node.config.edge_uid, 64).step("listen on hostd.sock")?;
    // SAFETY: plain number.
    let epoll = sys::check(i64::from(unsafe {
        libc::epoll_create1(libc::EPOLL_CLOEXEC)
    }))
    .step("make an epoll")?;
    let mut server = Server {
        slots: Slots::new(node.config.slots),
        node,
        // SAFETY: just made.
        epoll: unsafe { OwnedFd::from_raw_fd(epoll as RawFd) },
        listener,
        peers: BTreeMap::new(),
        next_peer: 0,
        queue: VecDeque::new(),
        starting: 0,
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        cleaner: None,
        stuck: Vec::new(),
    };
    server.watch(server.listener.as_raw_fd(), LISTENER, 0, libc::EPOLLIN)?;
    recover::recover(&mut server)?;
    println!("{{\"ready\":true,\"version\":{VERSION}}}");
    server.run()
}

/// A listening socket below `dir` that only `uid` (and root) may connect to.
pub fn listen(dir: &OwnedFd, name: &str, uid: u32, backlog: i32) -> std::io::Result<OwnedFd> {
    let _ = sys::unlink_at(dir.as_raw_fd(), name, 0);
    // SAFETY: sockaddr_un is plain data; the path is shorter than its 108 bytes.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket =
            OwnedFd::from_raw_fd(
                sys::check(i64::from(libc::socket(libc::AF_UNIX, kind, 0)))? as i32
            );
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        let path = format!("/proc/self/fd/{}/{name}", dir.as_raw_fd());
        for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
            *to = from as _;
        }
        let size = std::mem::size_of::<libc::sockaddr_un>() as u32;
        // Nobody may connect between bind and chown.
        libc::umask(0o177);
        let bound = libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size);
        libc::umask(0o022);
        sys::check(i64::from(bound))?;
        sys::chown_at(dir.as_raw_fd(), name, uid, u32::MAX)?;
        sys::check(i64::from(libc::listen(socket.as_raw_fd(), backlog)))?;
        Ok(socket)
    }
}

impl Server {
    pub fn watch(&self, fd: RawFd, kind: u64, number: u64, events: i32) -> Outcome<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: kind << 32 | number,
        };
        // SAFETY: event outlives the call.
        let result =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        sys::check(i64::from(result))
            .step("watch a descriptor")
            .map(drop)
    }

    /// By hand, since a child that was forked meanwhile may hold the same description open.
    pub fn unwatch(&self, fd: &OwnedFd) {
        // SAFETY: plain numbers.
        unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                std::ptr::null_mut(),
            )
        };
    }

    fn hang_up(&mut self, number: u64) {
        if let Some(peer) = self.peers.remove(&number) {
            self.unwatch(&peer.socket);
        }
    }

    pub fn watch_sandbox(&self, slot: u32, aether: &OwnedFd, init: &OwnedFd) -> Outcome<()> {
        self.watch(aether.as_raw_fd(), AETHER, slot.into(), libc::EPOLLIN)?;
        self.watch(init.as_raw_fd(), INIT, slot.into(), libc::EPOLLIN)
    }

    fn run(&mut self) -> Outcome<()> {
        // SAFETY: plain data.
        let mut events: [libc::epoll_event; 64] = unsafe { std::mem::zeroed() };
        let mut last_retry = std::time::Instant::now();
        loop {
            self.start_queued();
            self.clean_some();
            let wait = match (self.stuck.is_empty(), self.wants_ready_slots()) {
                (false, _) => 300,
                (true, true) => IDLE_MILLISECONDS,
                _ => -1,
            };
            // SAFETY: the array is valid for its length.
            let count =
                unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 64, wait) };
            if count < 0 {
                let error = std::io::Error::last_os_error();
                if error.raw_os_error() == Some(libc::EINTR) {
                    continue;
                }
                return Err(error).step("wait for events");
            }
            if count == 0 {
                self.make_slots_ready();
            }
            // By the clock, not by silence: an edge that asks often must not hold this up.
            if !self.stuck.is_empty() && last_retry.elapsed().as_millis() >= 300 {
                last_retry = std::time::Instant::now();
                self.slots.dirty.append(&mut self.stuck);
            }
            for event in &events[..count as usize] {
                let (kind, number, what) = (
                    event.u64 >> 32,
                    event.u64 & 0xffff_ffff,
                    event.events as i32,
                );
                match kind {
                    LISTENER => self.accept(),
                    PEER => self.peer_ready(number, what),
                    STATUS => self.start_reported(number as u32),
                    AETHER | INIT => self.process_ended(number as u32, kind == AETHER),
                    _ => self.cleaner_reported(),
                }
            }
        }
    }

    fn accept(&mut self) {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let none = std::ptr::null_mut();
        // SAFETY: no address is asked for; ucred is plain data.
        unsafe {
            let fd = libc::accept4(self.listener.as_raw_fd(), none, std::ptr::null_mut(), flags);
            if fd < 0 {
                return;
            }
            let socket = OwnedFd::from_raw_fd(fd);
            let mut who: libc::ucred = std::mem::zeroed();
            let mut size = std::mem::size_of::<libc::ucred>() as u32;
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut who).cast(),
                &mut size,
            );
            if who.uid != 0 && who.uid != self.node.config.edge_uid {
                return;
            }
            let number = self.next_peer;
            self.next_peer = (self.next_peer + 1) & 0xffff_ffff;
            if self
                .watch(
                    fd,
                    PEER,
                    number,
                    libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET,
                )
                .is_ok()
            {
                self.peers.insert(number, Peer::new(socket));
                self.peer_ready(number, libc::EPOLLIN);
            }
        }
    }

    fn peer_ready(&mut self, number: u64, events: i32) {
        let Some(peer) = self.peers.get_mut(&number) else {
            return;
        };
        if events & libc::EPOLLOUT != 0 && peer.wants_to_write() && peer.flush().is_err() {
            self.hang_up(number);
            return;
        }
        match peer.receive() {
            Ok(requests) => {
                for request in requests {
                    requests::handle(
                        self,
                        Asker {
                            peer: number,
                            request: request.id,
                        },
                        request.call,
                    );
                }
            }
            Err(_) => self.hang_up(number),
        }
    }

    pub fn reply(&mut self, asker: Asker, result: Outcome<Reply>) {
        let result = result.unwrap_or_else(|fault| Reply::Error(fault.info()));
        let Some(peer) = self.peers.get_mut(&asker.peer) else {
            return;
        };
        if peer
            .send(&HostdReply {
                id: asker.request,
                result: Some(result),
            })
            .is_err()
        {
            self.hang_up(asker.peer);
        }
    }

    pub fn subscribe(&mut self, asker: Asker) {
        if let Some(peer) = self.peers.get_mut(&asker.peer) {
            peer.subscribed = true;
        }
    }

    fn tell_died(&mut self, sandbox_id: String, cause: &str) {
        let died = HostdDied {
            sandbox_id,
            cause: cause.into(),
        };
        let reply = HostdReply {
            id: 0,
            result: Some(Reply::Died(died)),
        };
        let failed = |peer: &mut Peer| peer.subscribed && peer.send(&reply).is_err();
        let gone: Vec<u64> = self
            .peers
            .iter_mut()
            .filter_map(|(number, peer)| failed(peer).then_some(*number))
            .collect();
        gone.into_iter().for_each(|number| self.hang_up(number));
    }

    pub fn enqueue(&mut self, asker: Asker, start: HostdStart) {
        self.queue.push_back((asker, start));
    }

    /// Forgets a start that has not begun. True: there was one.
    pub fn dequeue(&mut self, id: &str) -> bool {
        let Some(at) = self
            .queue
            .iter()
            .position(|(_, start)| start.sandbox_id == id)
        else {
            return false;
        };
        if let Some((asker, _)) = self.queue.remove(at) {
            self.reply(
                asker,
                Err(Fault::new(
                    "LAUNCH_FAILED",
                    format!("{id} was stopped before it started"),
                )),
            );
        }
        true
    }

    /// No start is under way or waits.
    pub fn is_quiet(&self) -> bool {
        self.starting == 0 && self.queue.is_empty()
    }

    pub fn is_queued(&self, id: &str) -> bool {
        self.queue.iter().any(|(_, start)| start.sandbox_id == id)
    }

    fn start_queued(&mut self) {
        while self.starting < self.cpus * STARTS_PER_CPU {
            let Some((asker, start)) = self.queue.pop_front() else {
                return;
            };
            if let Err(fault) = self.start(asker, &start) {
                self.reply(asker, Err(fault));
            }
        }
    }

    fn start(&mut self, asker: Asker, start: &HostdStart) -> Outcome<()> {
        self.node
            .layers
            .mount_all(&start.layers, self.node.scratch.as_ref())?;
        let Some(slot) = self.slots.take() else {
            let what = format!("all {} slots of this node are taken", self.slots.count);
            return Err(Fault::new("CAPACITY_FULL", what));
        };
        match self.fork(slot, asker, start) {
            Ok(sandbox) => {
                self.node.layers.used(&start.layers);
                self.slots.insert(slot, sandbox);
                self.starting += 1;
                Ok(())
            }
            Err(fault) => {
                self.slots.dirty.push((slot, String::new()));
                Err(fault)
            }
        }
    }

    fn fork(&mut self, slot: u32, asker: Asker, start: &HostdStart) -> Outcome<Sandbox> {
        let run_slot = self
            .node
            .run_slot(slot)
            .step("make the slot's run directory")?;
        let (boot, id) = (&self.node.boot_id, &start.sandbox_id);
        let mut state = State::of(boot, id, Phase::Starting, &start.layers);
        state.runc = start.runtime == "runc";
        state
            .write(&run_slot, "state")
            .step("write the slot's state")?;
        let edge = self.node.config.edge_uid;
        let listener = listen(&run_slot, "aether.sock", edge, 128).step("listen on aether.sock")?;
        let (status, status_child) =
            sys::socket_pair(libc::SOCK_SEQPACKET).step("make the status socket")?;
        let limits = Limits {
            memory_bytes: start.memory_limit_bytes,
            pids: start.pids_limit,
            cpu_weight: start.cpu_weight,
            cpu_cores: start.cpu_cores_limit,
        };
        self.watch(status.as_raw_fd(), STATUS, slot.into(), libc::EPOLLIN)?;
        if sys::fork().step("fork")? == 0 {
            let order = Order {
                slot,
                sandbox_id: start.sandbox_id.clone(),
                hostname: start.hostname.clone(),
                layers: start.layers.clone(),
                limits,
                old_limits: self.slots.limits.get(&slot).copied(),
                disk_bytes: start.disk_limit_bytes,
                nested_user_namespaces: start.nested_user_namespaces,
                no_new_privs: start.no_new_privs,
                runc: state.runc,
                listener,
                run_slot,
            };
            launch::run(&self.node, order, status_child);
        }
        self.slots.limits.insert(slot, limits);
        Ok(Sandbox {
            id: start.sandbox_id.clone(),
            layers: start.layers.clone(),
            base: self.node.cgroups.baseline(slot),
            starting: Some((status, asker)),
            aether: None,
            init: None,
            kept: false,
            stops: Vec::new(),
            told: false,
        })
    }

    fn start_reported(&mut self, slot: u32) {
        let Some(sandbox) = self.slots.taken.get_mut(&slot) else {
            return;
        };
        let Some((status, asker)) = sandbox.starting.take() else {
            return;
        };
        self.starting -= 1;
        self.unwatch(&status);
        let started = report(&status).and_then(|(aether, aether_pid, init)| {
            self.watch_sandbox(slot, &aether, &init)?;
            Ok((aether, aether_pid, init))
        });
        let Some(sandbox) = self.slots.taken.get_mut(&slot) else {
            return;
        };
        match started {
            Ok((aether, aether_pid, init)) => {
                sandbox.aether = Some(aether);
                sandbox.init = Some(init);
                let mut notices = Vec::new();
                if !self.node.disk.limited {
                    notices.push(Notice {
                        reason: "NO_DISK_LIMIT".into(),
                        field: "container.disk_limit_mb".into(),
                        message:
                            "This node cannot limit the writable space; `dsec doctor` says why."
                                .into(),
                    });
                }
                if sandbox.stops.is_empty() {
                    self.reply(
                        asker,
                        Ok(Reply::Started(HostdStarted {
                            slot,
                            aether_pid,
                            notices,
                        })),
                    );
                } else {
                    self.kill(slot);
                    self.reply(
                        asker,
                        Err(Fault::new(
                            "LAUNCH_FAILED",
                            "it was stopped while it started",
                        )),
                    );
                }
            }
            Err(fault) => {
                // What the failed start left is ended by the cleaner; its child has ended or does so now.
                self.node.cgroups.kill(slot);
                self.reap_strays();
                self.reply(asker, Err(fault));
                self.settle(slot);
                if let Some(sandbox) = self.slots.remove(slot) {
                    self.discard(slot, sandbox);
                }
            }
        }
    }

    /// Children that failed before they had a pidfd here.
    pub fn reap_strays(&self) {
        // SAFETY: no status is asked for.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
    }

    fn process_ended(&mut self, slot: u32, aether: bool) {
        let Some(sandbox) = self.slots.taken.get_mut(&slot) else {
            return;
        };
        let ended = if aether {
            sandbox.aether.take()
        } else {
            sandbox.init.take()
        };
        let Some(ended) = ended else { return };
        self.unwatch(&ended);
        let _ = sys::reap(&ended);
        let Some(sandbox) = self.slots.taken.get_mut(&slot) else {
            return;
        };
        if aether {
            // Without aether nobody speaks for it.
            if let Some(init) = &sandbox.init {
                let _ = sys::pidfd_kill(init);
            }
        }
        if !sandbox.told && sandbox.stops.is_empty() {
            sandbox.told = true;
            let (id, base) = (sandbox.id.clone(), sandbox.base);
            let oom = self.node.cgroups.baseline(slot).oom_kills > base.oom_kills;
            let cause = match (aether, oom) {
                (true, _) => "AETHER_GONE",
                (false, true) => "OOM",
                (false, false) => "INIT_GONE",
            };
            self.tell_died(id, cause);
        }
        self.settle(slot);
    }

    /// Kills what runs in a slot; `process_ended` goes on from there.
    pub fn kill(&mut self, slot: u32) {
        if let Some(sandbox) = self.slots.taken.get(&slot) {
            for process in [&sandbox.init, &sandbox.aether].into_iter().flatten() {
                let _ = sys::pidfd_kill(process);
            }
        }
    }

    /// Answers the stops of a sandbox of which nothing runs any more.
    pub fn settle(&mut self, slot: u32) {
        let Some(sandbox) = self.slots.taken.get_mut(&slot) else {
            return;
        };
        if !sandbox.gone() || sandbox.stops.is_empty() {
            return;
        }
        let stops = std::mem::take(&mut sandbox.stops);
        let keep = stops.iter().all(|(_, keep)| *keep);
        let mut usage = self.node.cgroups.usage(slot, &sandbox.base);
        usage.disk_bytes = self.node.disk.usage(slot);
        if keep {
            sandbox.kept = true;
            let boot = &self.node.boot_id;
            let state = State::of(boot, &sandbox.id, Phase::Kept, &sandbox.layers);
            self.node.disk.sync();
            let written = state.write(&self.node.kept, &slot.to_string());
            let written = written.and_then(|()| state.write(&self.node.run_slot(slot)?, "state"));
            if let Err(error) = written {
                eprintln!("hostd: keep slot {slot}: {error}");
            }
        } else if let Some(sandbox) = self.slots.remove(slot) {
            self.discard(slot, sandbox);
        }
        for (asker, _) in stops {
            let stopped = HostdStopped {
                usage: Some(usage),
                existed: true,
            };
            self.reply(asker, Ok(Reply::Stopped(stopped)));
        }
    }

    /// A slot that is to be cleaned; its sandbox is out of the table.
    pub fn discard(&mut self, slot: u32, sandbox: Sandbox) {
        self.node.layers.unused(&sandbox.layers);
        self.slots.dirty.push((slot, sandbox.id));
    }

    /// Slots that are not free, those that resist cleaning too.
    pub fn slots_used(&self) -> u32 {
        self.slots.used() + self.stuck.len() as u32
    }

    pub fn version(&self) -> u32 {
        VERSION
    }

    pub fn cpus(&self) -> usize {
        self.cpus
    }
}

/// (aether's pidfd, its pid, init's pidfd) of a start that went well.
fn report(status: &OwnedFd) -> Outcome<(OwnedFd, i32, OwnedFd)> {
    let (bytes, fd) = sys::receive_fd(status).step("read the start's report")?;
    let line = String::from_utf8_lossy(&bytes);
    let words: Vec<&str> = line.split(' ').collect();
    match (words.as_slice(), fd) {
        (["ok", aether, _init], Some(init)) => {
            let pid: i32 = aether
                .parse()
                .map_err(|_| Fault::new("LAUNCH_FAILED", "a report without a pid"))?;
            // A child that nobody has reaped: the pid is its own.
            Ok((sys::pidfd_open(pid).step("open aether's pidfd")?, pid, init))
        }
        _ if bytes.is_empty() => Err(Fault::new(
            "LAUNCH_FAILED",
            "the start ended without a word",
        )),
        _ => Err(Fault::from_line(&line)),
    }
}
