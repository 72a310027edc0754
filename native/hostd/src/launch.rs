//! The child of hostd that starts one sandbox as root and then becomes its aether.

use crate::cgroup::Limits;
use crate::config::IDS_PER_SLOT;
use crate::fault::{Fault, Outcome, Step};
use crate::guest::close_all_but;
use crate::node::Node;
use crate::state::{Phase, State};
use crate::{native, overlay, runc, seccomp, sys};
use aether::AetherSetup;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// One start, checked by hostd.
pub struct Order {
    pub slot: u32,
    pub sandbox_id: String,
    pub hostname: String,
    pub layers: Vec<String>,
    pub limits: Limits,
    /// The slot's limits as they are, where known.
    pub old_limits: Option<Limits>,
    pub disk_bytes: u64,
    pub nested_user_namespaces: bool,
    pub no_new_privs: bool,
    /// By runc, not by hostd itself.
    pub runc: bool,
    /// Bound and listening.
    pub listener: OwnedFd,
    /// RUN/<slot>.
    pub run_slot: OwnedFd,
}

/// Report of a started sandbox on the status socket: "ok AETHER_PID INIT_PID" and init's pidfd. Anything else is a fault.
pub fn run(node: &Node, order: Order, status: OwnedFd) -> ! {
    let started = start(node, &order);
    let fail = |fault: Fault| -> ! {
        let _ = sys::send_fd(&status, fault.to_line().as_bytes(), None);
        // SAFETY: ends the process without running what the zygote registered; init sees its channel end.
        unsafe { libc::_exit(1) }
    };
    let started = match started {
        Ok(started) => started,
        Err(fault) => fail(fault),
    };
    let kept = [
        order.listener.as_raw_fd(),
        status.as_raw_fd(),
        started.link.as_raw_fd(),
        started.init_pidfd.as_raw_fd(),
        started.records.as_raw_fd(),
        started.shell.as_raw_fd(),
        started.commands.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        started
            .memory_events
            .as_ref()
            .map_or(-1, AsRawFd::as_raw_fd),
        started.pids_events.as_ref().map_or(-1, AsRawFd::as_raw_fd),
    ];
    close_all_but(&kept);
    let report = format!("ok {} {}", std::process::id(), started.init_pid);
    if let Err(fault) = become_aether(node.config.aether_id(order.slot)) {
        let _ = sys::pidfd_kill(&started.init_pidfd);
        fail(fault);
    }
    // A hostd that is gone cannot have answered: the sandbox is in its state file, and the next one adopts it.
    let _ = sys::send_fd(&status, report.as_bytes(), Some(started.init_pidfd.as_fd()));
    drop(status);
    aether::run_aether(AetherSetup {
        sandbox_id: order.sandbox_id,
        listener: order.listener,
        init_link: started.link,
        init_pidfd: started.init_pidfd,
        init_pid: started.init_pid,
        records: started.records,
        commands_cgroup: started.commands,
        memory_events: started.memory_events,
        pids_events: started.pids_events,
        edge_uid: node.config.edge_uid,
        shell: started.shell,
    })
}

/// What a start has ready for the sandbox's processes, whoever makes them.
pub struct Ready<'a> {
    pub node: &'a Node,
    pub order: &'a Order,
    pub disk: &'a OwnedFd,
    /// The slot's cgroup2, and the v1 `tasks` files: for init to be in.
    pub commands: Option<&'a OwnedFd>,
    pub tasks: Vec<OwnedFd>,
}

/// Pid 1 of the sandbox, which is aether's init.
pub struct Booted {
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub link: OwnedFd,
}

struct Started {
    init_pid: i32,
    init_pidfd: OwnedFd,
    link: OwnedFd,
    records: OwnedFd,
    shell: OwnedFd,
    commands: Option<OwnedFd>,
    memory_events: Option<OwnedFd>,
    pids_events: Option<OwnedFd>,
}

fn start(node: &Node, order: &Order) -> Outcome<Started> {
    let slot = order.slot;
    let (root_id, aether_id) = (node.config.root_id(slot), node.config.aether_id(slot));
    // SAFETY: no arguments; a new session, so that no signal to hostd's group reaches aether.
    unsafe { libc::setsid() };
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64).step("set the death signal")?;
    let tasks = match node.cgroups.tasks(slot) {
        Ok(tasks) if node.cgroups.unified_dir(slot).is_ok() => tasks,
        _ => {
            node.cgroups
                .make_slot(slot, aether_id)
                .step("make the cgroups")?;
            node.cgroups.tasks(slot).step("open the cgroups")?
        }
    };
    let commands = node.cgroups.unified_dir(slot).step("open the cgroup2")?;
    node.cgroups
        .set_limits(slot, &order.limits, order.old_limits.as_ref())
        .step("set the limits")?;
    let base = node.cgroups.baseline(slot);
    let disk = node
        .disk
        .slot(slot, root_id)
        .step("make the writable space")?;
    node.disk
        .limit(&disk, order.disk_bytes)
        .step("limit the writable space")?;
    write_names(&disk, &order.hostname, root_id).step("write /etc/hosts")?;
    let records = node
        .make_records(&order.sandbox_id, slot, aether_id)
        .step("make the records directory")?;
    let ready = Ready {
        node,
        order,
        disk: &disk,
        commands: commands.as_ref(),
        tasks,
    };
    let booted = if order.runc {
        runc::boot(ready)?
    } else {
        native::boot(ready)?
    };
    let pid = std::process::id() as i32;
    let state = State {
        boot_id: node.boot_id.clone(),
        sandbox_id: order.sandbox_id.clone(),
        phase: Phase::Running as i32,
        aether_pid: pid,
        aether_start: sys::start_time(pid).step("read aether's start time")?,
        init_pid: booted.pid,
        init_start: sys::start_time(booted.pid).step("read init's start time")?,
        layers: order.layers.clone(),
        cpu_ns: base.cpu_ns,
        oom_kills: base.oom_kills,
        pids_hits: base.pids_hits,
        runc: order.runc,
    };
    state
        .write(&order.run_slot, "state")
        .step("write the slot's state")?;
    sys::prctl(libc::PR_SET_PDEATHSIG, 0).step("clear the death signal")?;
    let (memory_events, pids_events) = node.cgroups.events(slot);
    let shell = node.shell.try_clone().step("duplicate the shell")?;
    Ok(Started {
        init_pid: booted.pid,
        init_pidfd: booted.pidfd,
        link: booted.link,
        records,
        shell,
        commands,
        memory_events,
        pids_events,
    })
}

/// A child that runs `inside` in new namespaces; its user namespace, if it gets one, belongs to aether's user.
pub fn clone_as(
    aether_id: u32,
    namespaces: u64,
    group: Option<&OwnedFd>,
    inside: impl FnOnce(),
) -> Outcome<(i32, OwnedFd)> {
    // The caller of clone3 owns the user namespace. Capabilities stay: the kernel asks them for the cgroup.
    const SECBIT_NO_SETUID_FIXUP: u64 = 4;
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    sys::prctl(libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP).step("set securebits")?;
    sys::set_effective_user(aether_id).step("become aether's user")?;
    let mut pidfd: i32 = -1;
    let mut args = sys::CloneArgs {
        flags: namespaces | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..Default::default()
    };
    if let Some(dir) = group {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = dir.as_raw_fd() as u64;
    }
    let pid = sys::clone3(&args).step("clone3")?;
    if pid == 0 {
        inside();
        crate::guest::exit();
    }
    sys::set_effective_user(0).step("become root again")?;
    // A change of user clears it.
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64).step("set the death signal")?;
    // SAFETY: clone3 wrote a new descriptor there.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Gives a new user namespace the slot's IDs.
pub fn map_ids(pid: i32, root_id: u32) -> Outcome<OwnedFd> {
    let map = format!("0 {root_id} {IDS_PER_SLOT}\n");
    let process =
        sys::open_dir(libc::AT_FDCWD, &format!("/proc/{pid}")).step("open init's /proc")?;
    sys::write_at(process.as_raw_fd(), "uid_map", &map).step("write the user map")?;
    sys::write_at(process.as_raw_fd(), "gid_map", &map).step("write the group map")?;
    sys::open_at(process.as_raw_fd(), "ns/user", libc::O_RDONLY, 0).step("open the user namespace")
}

fn write_names(disk: &OwnedFd, hostname: &str, root_id: u32) -> std::io::Result<()> {
    let hosts = format!(
        "127.0.0.1 localhost\n127.0.0.1 {hostname}\n::1 localhost ip6-localhost ip6-loopback\n"
    );
    for (path, text) in [
        ("upper/etc/hosts", hosts),
        ("upper/etc/hostname", format!("{hostname}\n")),
    ] {
        let file = sys::create_at(disk.as_raw_fd(), path, 0o644, text.as_bytes())?;
        sys::chown_at(file.as_raw_fd(), "", root_id, root_id)?;
    }
    Ok(())
}

/// Layers (idmapped copies of their mounts) below the slot's upper directory, as a detached mount.
pub fn root_of(
    node: &Node,
    order: &Order,
    disk: &OwnedFd,
    user_namespace: &OwnedFd,
) -> Outcome<OwnedFd> {
    const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
    // ext4 lets a holder of CAP_SYS_RESOURCE exceed the quota, and an overlay writes with its mounter's rights.
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    sys::drop_caps(CAP_SYS_RESOURCE).step("drop CAP_SYS_RESOURCE")?;
    let mut lowers = Vec::new();
    for digest in order.layers.iter().rev() {
        let layer = node
            .layers
            .get(digest)
            .ok_or_else(|| Fault::new("LAYER_NOT_FOUND", digest.clone()))?;
        let copy = sys::clone_mount(layer).step("copy a layer's mount")?;
        let attr = sys::MountAttr {
            attr_set: MOUNT_ATTR_IDMAP,
            userns_fd: user_namespace.as_raw_fd() as u64,
            ..Default::default()
        };
        sys::mount_setattr(&copy, &attr).step("map a layer's IDs")?;
        lowers.push(copy);
    }
    let upper = sys::open_dir(disk.as_raw_fd(), "upper").step("open upper")?;
    let work = sys::open_dir(disk.as_raw_fd(), "work").step("open work")?;
    match &node.scratch {
        None => overlay::detached(&lowers, &upper, &work),
        Some(scratch) => overlay::attached(scratch, &order.slot.to_string(), lowers, &upper, &work),
    }
    .step("mount the overlay")
}

/// For good: no user, group or capability of root's, no new privileges, a filter, not dumpable.
fn become_aether(id: u32) -> Outcome<()> {
    const ALL: u64 = u64::MAX;
    for capability in 0..64 {
        if sys::prctl(libc::PR_CAPBSET_DROP, capability).is_err() {
            break;
        }
    }
    // SAFETY: plain numbers.
    unsafe {
        sys::check(libc::syscall(
            libc::SYS_setgroups,
            0,
            std::ptr::null::<u32>(),
        ))
        .step("drop groups")?;
        sys::check(libc::syscall(libc::SYS_setresgid, id, id, id)).step("set the group")?;
        sys::check(libc::syscall(libc::SYS_setresuid, id, id, id)).step("set the user")?;
    }
    sys::drop_caps(ALL).step("drop capabilities")?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0).step("set not dumpable")?;
    // SAFETY: plain numbers.
    sys::check(i64::from(unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    }))
    .step("no new privileges")?;
    seccomp::load_filter(seccomp::aether_filter()).step("load aether's filter")
}
