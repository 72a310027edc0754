//! The commands' filter beside Docker's default profile (moby, profiles/seccomp, without extra capabilities): every
//! call from 0 to 600, interpreted, must be refused by ours where Docker refuses it.
#![cfg(target_arch = "x86_64")]

use hostd::seccomp::{aether_filter, command_filter};
use libc::sock_filter;

const ALLOW: u32 = 0x7fff_0000;

macro_rules! calls { ($($name:ident)*) => { &[$(libc::$name),*] } }

/// Docker allows these whatever their arguments (CAP_SYS_CHROOT, of its default set, adds chroot).
const DOCKER: &[i64] = calls!(
    SYS_accept SYS_accept4 SYS_access SYS_adjtimex SYS_alarm SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir
    SYS_chmod SYS_chown SYS_clock_adjtime SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_close
    SYS_close_range SYS_connect SYS_copy_file_range SYS_creat SYS_dup SYS_dup2 SYS_dup3 SYS_epoll_create
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_ctl_old SYS_epoll_pwait SYS_epoll_pwait2 SYS_epoll_wait
    SYS_epoll_wait_old SYS_eventfd SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_faccessat
    SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fanotify_mark SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchown
    SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock SYS_fork SYS_fremovexattr
    SYS_fsetxattr SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_futex_waitv SYS_futimesat SYS_getcpu
    SYS_getcwd SYS_getdents SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups SYS_getitimer
    SYS_getpeername SYS_getpgid SYS_getpgrp SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid
    SYS_getresuid SYS_getrlimit SYS_get_robust_list SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt
    SYS_get_thread_area SYS_gettid SYS_gettimeofday SYS_getuid SYS_getxattr SYS_inotify_add_watch SYS_inotify_init
    SYS_inotify_init1 SYS_inotify_rm_watch SYS_io_cancel SYS_ioctl SYS_io_destroy SYS_io_getevents SYS_ioprio_get
    SYS_ioprio_set SYS_io_setup SYS_io_submit SYS_kill SYS_landlock_add_rule SYS_landlock_create_ruleset
    SYS_landlock_restrict_self SYS_lchown SYS_lgetxattr SYS_link SYS_linkat SYS_listen SYS_listxattr SYS_llistxattr
    SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_lstat SYS_madvise SYS_membarrier SYS_memfd_create SYS_memfd_secret
    SYS_mincore SYS_mkdir SYS_mkdirat SYS_mknod SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mprotect
    SYS_mq_getsetattr SYS_mq_notify SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink SYS_mremap
    SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd SYS_msync SYS_munlock SYS_munlockall SYS_munmap SYS_name_to_handle_at
    SYS_nanosleep SYS_newfstatat SYS_open SYS_openat SYS_openat2 SYS_pause SYS_pidfd_open SYS_pidfd_send_signal
    SYS_pipe SYS_pipe2 SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_poll SYS_ppoll SYS_prctl SYS_pread64
    SYS_preadv SYS_preadv2 SYS_prlimit64 SYS_process_mrelease SYS_process_vm_readv SYS_process_vm_writev SYS_pselect6
    SYS_ptrace SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlink SYS_readlinkat SYS_readv
    SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages SYS_removexattr SYS_rename SYS_renameat SYS_renameat2
    SYS_restart_syscall SYS_rmdir SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo
    SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_getaffinity
    SYS_sched_getattr SYS_sched_getparam SYS_sched_get_priority_max SYS_sched_get_priority_min
    SYS_sched_getscheduler SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam
    SYS_sched_setscheduler SYS_sched_yield SYS_seccomp SYS_select SYS_semctl SYS_semget SYS_semop SYS_semtimedop
    SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups SYS_setitimer
    SYS_setpgid SYS_setpriority SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit
    SYS_set_robust_list SYS_setsid SYS_setsockopt SYS_set_thread_area SYS_set_tid_address SYS_setuid SYS_setxattr
    SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget SYS_shutdown SYS_sigaltstack SYS_signalfd SYS_signalfd4 SYS_socketpair
    SYS_splice SYS_stat SYS_statfs SYS_statx SYS_symlink SYS_symlinkat SYS_sync SYS_sync_file_range SYS_syncfs
    SYS_sysinfo SYS_tee SYS_tgkill SYS_time SYS_timer_create SYS_timer_delete SYS_timer_getoverrun SYS_timer_gettime
    SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime SYS_times SYS_tkill SYS_truncate
    SYS_umask SYS_uname SYS_unlink SYS_unlinkat SYS_utime SYS_utimensat SYS_utimes SYS_vfork SYS_vmsplice SYS_wait4
    SYS_waitid SYS_write SYS_writev SYS_arch_prctl SYS_modify_ldt SYS_chroot
);
/// io_pgetevents, and calls that newer versions of Docker's profile added: cachestat, fchmodat2, map_shadow_stack,
/// futex_wake, futex_wait, futex_requeue.
const DOCKER_BY_NUMBER: [i64; 7] = [333, 451, 452, 453, 454, 455, 456];

/// What the kernel would make of a call: nr at 0, arch at 4, low half of the first argument at 16.
fn verdict(filter: &[sock_filter], arch: u32, number: u32, argument: u32) -> u32 {
    let (mut accumulator, mut at) = (0u32, 0usize);
    loop {
        let step = filter[at];
        at += 1;
        let taken = match u32::from(step.code) {
            0x20 => {
                accumulator = [(0, number), (4, arch), (16, argument)]
                    .into_iter()
                    .find(|(offset, _)| *offset == step.k)
                    .expect("a known offset")
                    .1;
                continue;
            }
            0x06 => return step.k,
            0x15 => accumulator == step.k,
            0x25 => accumulator > step.k,
            0x35 => accumulator >= step.k,
            0x45 => accumulator & step.k != 0,
            other => panic!("instruction {other:#x}"),
        };
        at += usize::from(if taken { step.jt } else { step.jf });
    }
}

const X86_64: u32 = 0xc000_003e;

#[test]
fn no_call_is_allowed_that_docker_refuses_and_none_is_missing() {
    let filter = command_filter(false);
    for number in 0..600i64 {
        if [libc::SYS_clone, libc::SYS_socket, libc::SYS_personality].contains(&number) {
            continue;
        }
        let docker = DOCKER.contains(&number) || DOCKER_BY_NUMBER.contains(&number);
        let ours = verdict(filter, X86_64, number as u32, 0) == ALLOW;
        assert_eq!(
            ours, docker,
            "call {number}: ours {ours}, Docker's {docker}"
        );
    }
}

#[test]
fn arguments_are_looked_at_as_docker_does() {
    let filter = command_filter(false);
    let allowed =
        |number: i64, argument: u32| verdict(filter, X86_64, number as u32, argument) == ALLOW;
    for family in 0..64 {
        let refused = [libc::AF_VSOCK, libc::AF_ALG].contains(&family);
        assert_eq!(
            allowed(libc::SYS_socket, family as u32),
            !refused,
            "family {family}"
        );
    }
    for bit in 0..32 {
        assert_eq!(
            allowed(libc::SYS_clone, 1 << bit),
            0x7e02_0000u32 & 1 << bit == 0,
            "clone flag {bit}"
        );
    }
    for persona in [0u32, 8, 0x20000, 0x20008, u32::MAX] {
        assert!(allowed(libc::SYS_personality, persona));
    }
    for persona in [0x0040_0000, 1, 0x0400_0000] {
        assert!(
            !allowed(libc::SYS_personality, persona),
            "such as no address randomisation"
        );
    }
    assert_eq!(
        verdict(filter, X86_64, libc::SYS_clone3 as u32, 0),
        0x0005_0000 | libc::ENOSYS as u32
    );
}

#[test]
fn other_tables_of_calls_are_refused() {
    let filter = command_filter(false);
    assert_ne!(verdict(filter, 0x4000_0003, 11, 0), ALLOW, "i386");
    assert_ne!(verdict(filter, X86_64, 0x4000_0000, 0), ALLOW, "x32");
    for number in 425..=427 {
        assert_ne!(verdict(filter, X86_64, number, 0), ALLOW, "io_uring");
    }
}

#[test]
fn aether_may_not_exec_or_trace() {
    let filter = aether_filter();
    for number in [
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_mount,
        libc::SYS_setns,
    ] {
        assert_ne!(verdict(filter, X86_64, number as u32, 0), ALLOW);
    }
}
