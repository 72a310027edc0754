//! One sandbox without hostd, for tests and measurements: namespaces, a root made of the host's /usr, cgroups, an
//! init inside, and this process as its aether. Root only. It ends with its parent.
//!
//!     sandbox NAME RUN_DIR [memory=BYTES] [pids=N] [noleaf]
//!
//! RUN_DIR gets aether.sock and records/.
// Plain system calls of a test's own, on values it has just made.
#![allow(clippy::undocumented_unsafe_blocks)]

use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use aether::{run_aether, run_init, AetherSetup, InitSetup};

const FIRST_UID: u32 = 900_000_000;
const AETHER_UID: u32 = 900_100_000;
const DOCKER_CAPS: u64 = 0xa804_25fb;

fn check(result: i64, what: &str) -> i64 {
    if result < 0 {
        panic!("{what}: {}", std::io::Error::last_os_error());
    }
    result
}

fn mount(source: &str, target: &Path, kind: &str, flags: libc::c_ulong, data: &str) {
    let c = |text: &str| CString::new(text).unwrap();
    let target_c = CString::new(target.to_str().unwrap()).unwrap();
    let result = unsafe {
        libc::mount(
            c(source).as_ptr(),
            target_c.as_ptr(),
            c(kind).as_ptr(),
            flags,
            c(data).as_ptr().cast(),
        )
    };
    check(
        i64::from(result),
        &format!("mount {kind} {}", target.display()),
    );
}

fn chown(path: &Path, uid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
}

/// A mount namespace of this process alone, whose root is this process's root: from a chroot, as hostd does it.
fn own_mounts() {
    const COPY_ALL: i32 = 1 | libc::O_CLOEXEC | libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    let dot = c".".as_ptr();
    let plain = |result: libc::c_int, what: &str| check(i64::from(result), what);
    plain(unsafe { libc::unshare(libc::CLONE_NEWNS) }, "unshare");
    let (work, here) = (fs::File::open(".").unwrap(), fs::File::open("/").unwrap());
    let namespace = fs::File::open("/proc/self/ns/mnt").unwrap();
    unsafe {
        let entered = libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS);
        plain(entered, "setns");
    }
    let private = libc::MS_REC | libc::MS_PRIVATE;
    mount("none", Path::new("/"), "none", private, "");
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    if same(fs::metadata("/").unwrap(), here.metadata().unwrap()) {
        plain(unsafe { libc::fchdir(work.as_raw_fd()) }, "fchdir");
        return;
    }
    unsafe {
        let (root, nothing) = (here.as_raw_fd(), c"".as_ptr());
        let copy = libc::syscall(libc::SYS_open_tree, root, nothing, COPY_ALL);
        let copy = OwnedFd::from_raw_fd(check(copy, "open_tree") as i32);
        plain(libc::fchdir(root), "fchdir");
        let attached = libc::syscall(
            libc::SYS_move_mount,
            copy.as_raw_fd(),
            nothing,
            libc::AT_FDCWD,
            dot,
            4, // MOVE_MOUNT_F_EMPTY_PATH
        );
        check(attached, "move_mount");
        plain(libc::fchdir(copy.as_raw_fd()), "fchdir");
        check(libc::syscall(libc::SYS_pivot_root, dot, dot), "pivot_root");
        plain(libc::umount2(dot, libc::MNT_DETACH), "umount");
    }
    std::env::set_current_dir("/").unwrap();
}

/// By host root, in a mount namespace of this process: a tmpfs whose owner is the sandbox's root.
fn build_root(root: &Path) {
    own_mounts();
    mount("tmpfs", root, "tmpfs", 0, "mode=755,size=256m");
    for dir in [
        "usr", "bin", "etc", "proc", "dev", "tmp", "root", "home", "home/ann", "old", "var",
        "var/tmp",
    ] {
        fs::create_dir(root.join(dir)).unwrap();
        chown(&root.join(dir), FIRST_UID);
    }
    chown(root, FIRST_UID);
    chown(&root.join("home/ann"), FIRST_UID + 1000);
    for dir in ["tmp", "var/tmp"] {
        fs::set_permissions(root.join(dir), fs::Permissions::from_mode(0o1777)).unwrap();
    }
    mount("/usr", &root.join("usr"), "none", libc::MS_BIND, "");
    mount(
        "none",
        &root.join("usr"),
        "none",
        libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY,
        "",
    );
    for entry in fs::read_dir("/usr/bin").unwrap().flatten() {
        symlink(entry.path(), root.join("bin").join(entry.file_name())).unwrap();
        chown(&root.join("bin").join(entry.file_name()), FIRST_UID);
    }
    for dir in ["lib", "lib64"] {
        symlink(format!("usr/{dir}"), root.join(dir)).unwrap();
    }
    let files = [
        (
            "etc/passwd",
            "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/bash\n",
        ),
        ("etc/group", "root:x:0:\nann:x:1000:\ng1:x:1001:ann\n"),
        ("etc/hosts", "127.0.0.1 localhost\n"),
    ];
    for (name, text) in files {
        fs::write(root.join(name), text).unwrap();
        chown(&root.join(name), FIRST_UID);
    }
    let alternatives = root.join("etc/alternatives");
    fs::create_dir(&alternatives).unwrap();
    mount(
        "/etc/alternatives",
        &alternatives,
        "none",
        libc::MS_BIND,
        "",
    );
}

/// By the sandbox's root, inside.
fn enter_root(root: &Path) {
    // What came from outside is locked in place; a bind of it is not.
    mount(
        root.to_str().unwrap(),
        root,
        "none",
        libc::MS_BIND | libc::MS_REC,
        "",
    );
    mount(
        "proc",
        &root.join("proc"),
        "proc",
        libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
        "",
    );
    let dev = root.join("dev");
    mount("tmpfs", &dev, "tmpfs", libc::MS_NOSUID, "mode=755");
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        fs::write(dev.join(name), "").unwrap();
        mount(
            &format!("/dev/{name}"),
            &dev.join(name),
            "none",
            libc::MS_BIND,
            "",
        );
    }
    fs::create_dir(dev.join("pts")).unwrap();
    mount(
        "devpts",
        &dev.join("pts"),
        "devpts",
        0,
        "newinstance,ptmxmode=0666,mode=620",
    );
    symlink("pts/ptmx", dev.join("ptmx")).unwrap();
    symlink("/proc/self/fd", dev.join("fd")).unwrap();
    symlink("/proc/self/fd/1", dev.join("stdout")).unwrap();
    symlink("/proc/self/fd/2", dev.join("stderr")).unwrap();
    std::env::set_current_dir(root).unwrap();
    let result = unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c"old".as_ptr()) };
    check(result, "pivot_root");
    std::env::set_current_dir("/").unwrap();
    check(
        i64::from(unsafe { libc::umount2(c"/old".as_ptr(), libc::MNT_DETACH) }),
        "umount",
    );
    unsafe { libc::sethostname(c"sandbox".as_ptr(), 7) };
}

/// keyctl gives EPERM, all else is allowed: enough to see that a filter is there.
fn filter() -> Vec<libc::sock_filter> {
    let op = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    vec![
        op(0x20, 0, 0, 0),
        op(0x15, 0, 1, libc::SYS_keyctl as u32),
        op(0x06, 0, 0, 0x0005_0001),
        op(0x06, 0, 0, 0x7fff_0000),
    ]
}

fn cgroup(controller: &str, name: &str) -> std::path::PathBuf {
    let path = Path::new("/sys/fs/cgroup").join(controller).join(name);
    fs::create_dir(&path).unwrap();
    path
}

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().expect("NAME");
    let run = std::path::PathBuf::from(args.next().expect("RUN_DIR"));
    let options: Vec<String> = args.collect();
    let option = |key: &str| {
        options
            .iter()
            .find_map(|o| o.strip_prefix(key)?.strip_prefix('=').map(str::to_string))
    };
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setsid();
    }
    let records = run.join("records");
    fs::create_dir(&records).unwrap();
    chown(&records, AETHER_UID);
    let listener = UnixListener::bind(run.join("aether.sock")).unwrap();
    let root = run.join("root");
    fs::create_dir(&root).unwrap();
    build_root(&root);

    let commands = cgroup("unified", &name);
    chown(&commands, AETHER_UID);
    for file in ["cgroup.procs", "cgroup.kill"] {
        chown(&commands.join(file), AETHER_UID);
    }
    let memory = cgroup("memory", &name);
    let pids = cgroup("pids", &name);
    if let Some(bytes) = option("memory") {
        fs::write(memory.join("memory.limit_in_bytes"), &bytes).unwrap();
        let _ = fs::write(memory.join("memory.memsw.limit_in_bytes"), &bytes);
    }
    if let Some(n) = option("pids") {
        fs::write(pids.join("pids.max"), n).unwrap();
    }

    let mut fds = [0; 2];
    check(
        i64::from(unsafe {
            libc::socketpair(
                libc::AF_UNIX,
                libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
                0,
                fds.as_mut_ptr(),
            )
        }),
        "socketpair",
    );
    let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    let (mut go, mut wait) = UnixStream::pair().unwrap();
    let shell: OwnedFd = fs::File::open("/bin/bash-static").unwrap().into();

    let mut pidfd: i32 = -1;
    let mut clone: libc::clone_args = unsafe { std::mem::zeroed() };
    clone.flags = (libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWNET
        | libc::CLONE_PIDFD) as u64;
    clone.exit_signal = libc::SIGCHLD as u64;
    clone.pidfd = &raw mut pidfd as u64;
    let pid = check(
        unsafe {
            libc::syscall(
                libc::SYS_clone3,
                &clone,
                std::mem::size_of::<libc::clone_args>(),
            )
        },
        "clone3",
    );
    if pid == 0 {
        drop((go, ours, listener));
        wait.read_exact(&mut [0]).unwrap();
        drop(wait);
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::setgroups(0, std::ptr::null());
            libc::setresgid(0, 0, 0);
            libc::setresuid(0, 0, 0);
            libc::unshare(libc::CLONE_NEWCGROUP);
        }
        enter_root(&root);
        run_init(InitSetup {
            link: theirs,
            shell,
            child_filter: filter(),
            child_caps: DOCKER_CAPS,
            no_new_privs: false,
        });
    }
    let map = format!("0 {FIRST_UID} 65536");
    fs::write(format!("/proc/{pid}/uid_map"), &map).unwrap();
    fs::write(format!("/proc/{pid}/gid_map"), &map).unwrap();
    for group in [&commands, &memory, &pids] {
        fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
    }
    go.write_all(&[1]).unwrap();
    drop((theirs, go, wait));
    let open = |path: &Path| fs::File::open(path).ok().map(OwnedFd::from);
    let setup = AetherSetup {
        sandbox_id: name.clone(),
        listener: listener.into(),
        init_link: ours,
        init_pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        init_pid: pid as i32,
        records: open(&records).unwrap(),
        commands_cgroup: if options.iter().any(|o| o == "noleaf") {
            None
        } else {
            open(&commands)
        },
        memory_events: open(&memory.join("memory.oom_control")),
        pids_events: open(&pids.join("pids.events")),
        edge_uid: 0,
        shell: fs::File::open("/bin/bash-static").unwrap().into(),
    };
    unsafe {
        libc::setgroups(0, std::ptr::null());
        libc::setresgid(AETHER_UID, AETHER_UID, AETHER_UID);
        check(
            i64::from(libc::setresuid(AETHER_UID, AETHER_UID, AETHER_UID)),
            "setresuid",
        );
        // The change of user has cleared it.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    let _ = setup.listener.as_raw_fd();
    run_aether(setup)
}
