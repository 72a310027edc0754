//! Filters of system calls, as classic BPF. What a sandbox's command may call is Docker's default profile with its
//! default capabilities, less AF_ALG, AF_VSOCK and io_uring; tests/seccomp.rs compares the two call by call.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use libc::sock_filter;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = ERRNO | libc::EPERM as u32;
const ENOSYS: u32 = ERRNO | libc::ENOSYS as u32;

/// Namespace flags of clone(2) and unshare(2).
const NEW_NAMESPACES: u32 = 0x7e02_0000;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// Not in the libc crate.
#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: i64 = 333;
#[cfg(target_arch = "aarch64")]
const IO_PGETEVENTS: i64 = 292;

macro_rules! calls { ($($name:ident)*) => { &[$(libc::$name),*] } }

/// Allowed whatever the arguments, on every architecture.
const COMMON: &[i64] = calls!(
    SYS_accept SYS_accept4 SYS_adjtimex SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_chroot SYS_clock_adjtime
    SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect SYS_copy_file_range
    SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_execve
    SYS_execveat SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fanotify_mark
    SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr
    SYS_flock SYS_fremovexattr SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_futex_waitv
    SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups SYS_getitimer
    SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid SYS_getresuid
    SYS_get_robust_list SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday
    SYS_getuid SYS_getxattr SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch SYS_io_cancel SYS_ioctl
    SYS_io_destroy SYS_io_getevents  SYS_ioprio_get SYS_ioprio_set SYS_io_setup SYS_io_submit
    SYS_kill SYS_landlock_add_rule SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_lgetxattr SYS_linkat
    SYS_listen SYS_listxattr SYS_llistxattr SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_madvise SYS_membarrier
    SYS_memfd_create SYS_memfd_secret SYS_mincore SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap
    SYS_mprotect SYS_mq_getsetattr SYS_mq_notify SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink
    SYS_mremap SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd SYS_msync SYS_munlock SYS_munlockall SYS_munmap
    SYS_name_to_handle_at SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2 SYS_pidfd_open SYS_pidfd_send_signal
    SYS_pipe2 SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2
    SYS_prlimit64 SYS_process_mrelease SYS_process_vm_readv SYS_process_vm_writev SYS_pselect6 SYS_ptrace
    SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmmsg
    SYS_recvmsg SYS_remap_file_pages SYS_removexattr SYS_renameat SYS_renameat2 SYS_restart_syscall SYS_rseq
    SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend
    SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam
    SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_getscheduler SYS_sched_rr_get_interval
    SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam SYS_sched_setscheduler SYS_sched_yield SYS_seccomp
    SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_setfsgid
    SYS_setfsuid SYS_setgid SYS_setgroups SYS_setitimer SYS_setpgid SYS_setpriority SYS_setregid SYS_setresgid
    SYS_setresuid SYS_setreuid SYS_setrlimit SYS_getrlimit SYS_set_robust_list SYS_setsid SYS_setsockopt
    SYS_set_tid_address SYS_setuid SYS_setxattr SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget SYS_shutdown
    SYS_sigaltstack SYS_signalfd4 SYS_socketpair SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sync
    SYS_sync_file_range SYS_syncfs SYS_sysinfo SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete
    SYS_timer_getoverrun SYS_timer_gettime SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime
    SYS_timerfd_settime SYS_times SYS_tkill SYS_truncate SYS_umask SYS_uname SYS_unlinkat SYS_utimensat SYS_vmsplice
    SYS_wait4 SYS_waitid SYS_write SYS_writev
);

#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = calls!(
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_ctl_old
    SYS_epoll_wait SYS_epoll_wait_old SYS_eventfd SYS_fork SYS_futimesat SYS_getdents SYS_getpgrp
    SYS_get_thread_area SYS_inotify_init SYS_lchown SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_modify_ldt SYS_open
    SYS_pause SYS_pipe SYS_poll SYS_readlink SYS_rename SYS_rmdir SYS_select SYS_set_thread_area SYS_signalfd
    SYS_stat SYS_symlink SYS_time SYS_unlink SYS_utime SYS_utimes SYS_vfork
);
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[];

/// What a nested user namespace needs besides: its maker still has no capability outside of it.
const NESTED: &[i64] = calls!(
    SYS_clone SYS_clone3 SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_sethostname
    SYS_setdomainname SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_move_mount SYS_open_tree SYS_mount_setattr
);

/// What aether never does and a hijacked one could use.
const NOT_AETHER: &[i64] = calls!(
    SYS_execve SYS_execveat SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_chroot SYS_mknodat
    SYS_name_to_handle_at SYS_memfd_secret SYS_shmget SYS_msgget SYS_semget SYS_mq_open SYS_io_setup
    SYS_fanotify_mark SYS_seccomp
);

fn jump(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}
fn load(offset: u32) -> sock_filter {
    jump(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}
fn give(value: u32) -> sock_filter {
    jump(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const ALWAYS: u32 = libc::BPF_JMP | libc::BPF_JA;
const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;

/// From this number on, up to the next segment's, `body` gives the verdict.
struct Segment {
    from: u32,
    body: Vec<sock_filter>,
}

/// A binary search: the kernel tries the whole program on every number there is each time that one is loaded, which
/// with a list of comparisons took longer than the fork.
fn search(segments: &[Segment]) -> Vec<sock_filter> {
    if let [only] = segments {
        return only.body.clone();
    }
    let (low, high) = segments.split_at(segments.len() / 2);
    let low = search(low);
    let mut program = match u8::try_from(low.len()) {
        Ok(far) => vec![jump(AT_LEAST, high[0].from, far, 0)],
        Err(_) => vec![
            jump(AT_LEAST, high[0].from, 0, 1),
            jump(ALWAYS, low.len() as u32, 0, 0),
        ],
    };
    program.extend(low);
    program.extend(search(high));
    program
}

fn build(mut numbers: Vec<i64>, nested: bool) -> Vec<sock_filter> {
    let argument = load(16);
    let one_of = |values: &[u32], yes: u32, no: u32| {
        let mut body = vec![argument];
        for value in values {
            body.extend([jump(EQUAL, *value, 0, 1), give(yes)]);
        }
        body.push(give(no));
        body
    };
    let mut special = vec![
        (
            libc::SYS_socket,
            one_of(&[libc::AF_VSOCK as u32, libc::AF_ALG as u32], EPERM, ALLOW),
        ),
        (
            libc::SYS_personality,
            one_of(&[0, 8, 0x20000, 0x20008, u32::MAX], ALLOW, EPERM),
        ),
    ];
    if nested {
        numbers.extend(NESTED);
    } else {
        let body = vec![
            argument,
            jump(ANY_BIT, NEW_NAMESPACES, 0, 1),
            give(EPERM),
            give(ALLOW),
        ];
        special.push((libc::SYS_clone, body));
        // Its flags are behind a pointer; ENOSYS makes the C library use clone.
        special.push((libc::SYS_clone3, vec![give(ENOSYS)]));
    }
    numbers.push(IO_PGETEVENTS);
    // cachestat, fchmodat2, map_shadow_stack, futex_wake, futex_wait, futex_requeue.
    numbers.extend(451..=456);
    let mut verdicts: BTreeMap<i64, Vec<sock_filter>> =
        numbers.iter().map(|&n| (n, vec![give(ALLOW)])).collect();
    verdicts.extend(special);
    let newest = *numbers.iter().max().expect("there are calls");
    let mut segments: Vec<Segment> = Vec::new();
    for number in 0..=newest {
        let body = verdicts
            .remove(&number)
            .unwrap_or_else(|| vec![give(EPERM)]);
        // Only a verdict of one instruction may stand for several numbers.
        let same =
            |last: &Segment| body.len() == 1 && last.body.len() == 1 && last.body[0].k == body[0].k;
        if !segments.last().is_some_and(same) {
            segments.push(Segment {
                from: number as u32,
                body,
            });
        }
    }
    // Newer than this list, or of the x32 table.
    segments.push(Segment {
        from: newest as u32 + 1,
        body: vec![give(ENOSYS)],
    });
    let mut program = vec![load(4), jump(EQUAL, ARCH, 1, 0), give(ENOSYS), load(0)];
    program.extend(search(&segments));
    program
}

struct Filters {
    command: Vec<sock_filter>,
    nested: Vec<sock_filter>,
    aether: Vec<sock_filter>,
}

/// Built once: every start would pay for it, in pages copied too.
fn filters() -> &'static Filters {
    static BUILT: OnceLock<Filters> = OnceLock::new();
    BUILT.get_or_init(|| {
        let all = [COMMON, OLD].concat();
        let kept = all.iter().filter(|n| !NOT_AETHER.contains(n)).copied();
        Filters {
            command: build(all.clone(), false),
            nested: build(all.clone(), true),
            aether: build(kept.collect(), false),
        }
    })
}

/// In the zygote, so that what it forks finds them made.
pub fn prepare() {
    filters();
}

/// For each command of a sandbox.
pub fn command_filter(nested_user_namespaces: bool) -> &'static [sock_filter] {
    if nested_user_namespaces {
        &filters().nested
    } else {
        &filters().command
    }
}

/// For aether itself.
pub fn aether_filter() -> &'static [sock_filter] {
    &filters().aether
}

/// Docker's fourteen: what root in a sandbox may, in its own user namespace.
pub const COMMAND_CAPS: u64 = {
    // chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot,
    // mknod, audit_write, setfcap
    let bits = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];
    let (mut mask, mut at) = (0u64, 0);
    while at < bits.len() {
        mask |= 1 << bits[at];
        at += 1;
    }
    mask
};

/// Loads a filter for this thread and its children; no_new_privs must be set.
pub fn load_filter(filter: &[sock_filter]) -> std::io::Result<()> {
    const SECCOMP_SET_MODE_FILTER: u32 = 1;
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the program outlives the call.
    crate::sys::check(unsafe {
        libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
    })
    .map(drop)
}
