//! A yardstick for `dsec bench create`: what the kernel alone can do.
//!
//! `bare DIR MILLISECONDS`: two workers, each in turn clones into new mount, pid, ipc, uts and network namespaces with a
//! fresh overlay, /proc, pivot_root and memory, cpu and pids cgroups, runs a program that exits, and cleans up.
//! Prints {"rate": N}, rounds a second.

use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const WORKERS: usize = 2;

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(millis)) = (args.next(), args.next().and_then(|n| n.parse().ok())) else {
        eprintln!("usage: bare DIR MILLISECONDS");
        std::process::exit(2);
    };
    let dir = PathBuf::from(dir).join("bare");
    prepare_lower(&dir.join("lower"));
    let window = Duration::from_millis(millis);
    let start = Instant::now();
    let workers: Vec<_> = (0..WORKERS)
        .map(|index| {
            let (reader, mut writer) = UnixStream::pair().expect("a pair of sockets");
            // SAFETY: the program has one thread.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let rounds = work(&dir, index, window);
                let _ = writer.write_all(&rounds.to_ne_bytes());
                std::process::exit(0);
            }
            (pid, reader)
        })
        .collect();
    let mut rounds = 0u64;
    for (pid, reader) in workers {
        // SAFETY: pid is our own child.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        let mut count = [0; 8];
        (&reader).read_exact(&mut count).expect("a worker's count");
        rounds += u64::from_ne_bytes(count);
    }
    let rate = rounds as f64 / start.elapsed().as_secs_f64();
    let _ = fs::remove_dir_all(&dir);
    println!("{{\"rate\": {rate:.1}}}");
}

/// The smallest root: a static program that exits, which is this one with another name.
fn prepare_lower(lower: &Path) {
    for name in ["proc", "old", "bin"] {
        fs::create_dir_all(lower.join(name)).expect("lower directory");
    }
    fs::copy("/bin/bash-static", lower.join("bin/sh")).expect("bash-static is installed");
}

fn work(dir: &Path, index: usize, window: Duration) -> u64 {
    let groups = cgroups(index);
    let until = Instant::now() + window;
    let mut rounds = 0;
    while Instant::now() < until {
        let place = dir.join(format!("{index}-{rounds}"));
        for name in ["upper", "work", "root"] {
            fs::create_dir_all(place.join(name)).expect("upper directory");
        }
        one_round(dir, &place, &groups);
        let _ = fs::remove_dir_all(&place);
        rounds += 1;
    }
    for group in groups {
        let _ = fs::remove_dir(group);
    }
    rounds
}

fn cgroups(index: usize) -> Vec<PathBuf> {
    let base = Path::new("/sys/fs/cgroup");
    let names: Vec<PathBuf> = if base.join("cgroup.controllers").exists() {
        vec![base.join(format!("dsec-bare-{}-{index}", std::process::id()))]
    } else {
        ["memory", "cpu", "pids"]
            .iter()
            .map(|c| {
                base.join(c)
                    .join(format!("dsec-bare-{}-{index}", std::process::id()))
            })
            .collect()
    };
    for name in &names {
        fs::create_dir_all(name).expect("cgroup");
    }
    names
}

fn one_round(dir: &Path, place: &Path, groups: &[PathBuf]) {
    let flags = libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWNET;
    // SAFETY: a plain clone without a stack is a fork; the child only makes system calls and execs.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            (flags | libc::SIGCHLD) as usize,
            0,
            0,
            0,
            0,
        )
    } as i32;
    assert!(pid >= 0, "clone: {}", std::io::Error::last_os_error());
    if pid == 0 {
        enter(dir, place, groups);
        // SAFETY: the exec failed; leave without running the parent's destructors.
        unsafe { libc::_exit(127) };
    }
    let mut status = 0;
    // SAFETY: pid is our own child.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0, "the program of a round ended badly");
}

fn enter(dir: &Path, place: &Path, groups: &[PathBuf]) {
    for group in groups {
        fs::write(group.join("cgroup.procs"), "0").expect("attach");
    }
    let root = place.join("root");
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        dir.join("lower").display(),
        place.join("upper").display(),
        place.join("work").display()
    );
    mount(
        "none",
        Path::new("/"),
        "",
        libc::MS_REC | libc::MS_PRIVATE,
        "",
    );
    mount("overlay", &root, "overlay", 0, &layers);
    mount("proc", &root.join("proc"), "proc", 0, "");
    let (new, old) = (
        c(&root.display().to_string()),
        c(&root.join("old").display().to_string()),
    );
    let (shell, exit) = (c("/bin/sh"), [c("sh"), c("-c"), c("exit 0")]);
    let argv = [
        exit[0].as_ptr(),
        exit[1].as_ptr(),
        exit[2].as_ptr(),
        std::ptr::null(),
    ];
    // SAFETY: all pointers are to live, NUL-terminated strings.
    unsafe {
        libc::syscall(libc::SYS_pivot_root, new.as_ptr(), old.as_ptr());
        libc::chdir(c"/".as_ptr());
        libc::umount2(c"/old".as_ptr(), libc::MNT_DETACH);
        libc::execv(shell.as_ptr(), argv.as_ptr());
    }
}

fn mount(source: &str, target: &Path, kind: &str, flags: libc::c_ulong, data: &str) {
    let (source, target, kind, data) = (
        c(source),
        c(&target.display().to_string()),
        c(kind),
        c(data),
    );
    // SAFETY: all pointers are to live, NUL-terminated strings.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    };
    assert_eq!(result, 0, "mount: {}", std::io::Error::last_os_error());
}

fn c(text: &str) -> CString {
    CString::new(text).expect("no NUL in a path of ours")
}
