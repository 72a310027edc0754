//! Gives up everything but reading and writing what is open.
use std::io;

/// Address space that a build may take, in bytes.
const MEMORY: u64 = 6 << 30;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

const ALLOWED: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fcntl,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// After this the process can open, start and reach nothing. `file_bytes` bounds what it can write to one file.
pub fn confine(file_bytes: u64, seconds: u64) -> io::Result<()> {
    limit(libc::RLIMIT_NPROC, 0)?;
    limit(libc::RLIMIT_AS, MEMORY)?;
    limit(libc::RLIMIT_FSIZE, file_bytes)?;
    // SAFETY: plain system calls with constant arguments; ignoring SIGXFSZ makes a large write fail with EFBIG.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::alarm(seconds.min(1 << 30) as libc::c_uint + 1);
        check(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0))?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
    }
    landlock()?;
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_NOFILE, 0)?;
    seccomp()
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn limit(what: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let mut now = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `now` is a valid rlimit for both calls.
    unsafe {
        check(libc::getrlimit(what, &mut now))?;
        now.rlim_cur = value.min(now.rlim_max);
        now.rlim_max = now.rlim_cur;
        check(libc::setrlimit(what, &now))
    }
}

/// Handles every file right and grants none. A kernel without Landlock still has the filter below.
fn landlock() -> io::Result<()> {
    #[repr(C)]
    struct Ruleset {
        fs: u64,
    }
    // SAFETY: with size 0 and flag 1 the kernel only answers its version.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, 1u32) };
    if version < 1 {
        return Ok(());
    }
    let rights = match version {
        1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    let ruleset = Ruleset {
        fs: (1 << rights) - 1,
    };
    // SAFETY: `ruleset` lives over the call and its size is given; the descriptor is used once and closed.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &ruleset,
            std::mem::size_of::<Ruleset>(),
            0u32,
        );
        check(fd as libc::c_int)?;
        let done = libc::syscall(libc::SYS_landlock_restrict_self, fd as libc::c_int, 0u32);
        let result = check(done as libc::c_int);
        libc::close(fd as libc::c_int);
        result
    }
}

fn seccomp() -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let allow = op(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);
    let kill = op(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS);
    // Offsets in struct seccomp_data: number 0, architecture 4, low half of the third argument 32.
    let mut program = vec![
        op(LOAD, 0, 0, 4),
        op(EQUAL, 1, 0, ARCH),
        kill,
        op(LOAD, 0, 0, 0),
    ];
    for number in ALLOWED {
        program.extend([op(EQUAL, 0, 1, *number as u32), allow]);
    }
    // Memory, but nothing executable.
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        program.extend([
            op(EQUAL, 0, 4, number as u32),
            op(LOAD, 0, 0, 32),
            op(ANY_BIT, 0, 1, libc::PROT_EXEC as u32),
            kill,
            allow,
        ]);
    }
    program.push(kill);
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `program` points at a filter that lives over the call; the kernel copies it.
    unsafe {
        check(libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &program,
        ))
    }
}
