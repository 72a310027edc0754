//! Sandboxes that runc starts: as those that hostd starts, and as little is left of them.

mod common;
use common::{start_order, Rig};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use wire::hostd_request::Call;
use wire::HostdStart;

/// Whether they can be started here; builds pid 1 on the way, which plain cargo would link dynamically.
fn ready() -> bool {
    static READY: OnceLock<bool> = OnceLock::new();
    *READY.get_or_init(|| {
        if !Path::new("/usr/sbin/runc").exists() && !Path::new("/usr/bin/runc").exists() {
            println!("skipped: no runc is installed");
            return false;
        }
        let own = std::env::current_exe().expect("an own path");
        let target = own.ancestors().nth(3).expect("target");
        let made = Command::new(env!("CARGO"))
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .args(["rustc", "--quiet", "--locked", "-p", "sandbox-init"])
            .arg("--target-dir")
            .arg(target)
            .args(["--", "-C", "target-feature=+crt-static"])
            .status()
            .expect("cargo runs");
        assert!(made.success());
        true
    })
}

fn rig(slots: u32, force: &'static str) -> Option<Rig> {
    let mut rig = ready().then(|| Rig::forced(slots, force))?;
    rig.runtime = "runc";
    Some(rig)
}

/// Processes with an ID of the rig's slots.
fn processes_of(rig: &Rig) -> Vec<String> {
    let range = rig.uid_start..rig.uid_start + rig.slots * 65536;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:\t"));
        let uid = uid.and_then(|ids| ids.split('\t').nth(1)?.parse::<u32>().ok());
        if uid.is_some_and(|uid| range.contains(&uid)) && !status.contains("State:\tZ") {
            found.push(status.lines().take(7).collect::<Vec<_>>().join(" "));
        }
    }
    found
}

/// Cgroups below those of the edge, whatever made them, and groups that runc would make for itself.
fn cgroups_of(edge: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut stack = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if path.to_string_lossy().contains(edge) || path.ends_with("sandbox") {
                found.insert(path.clone());
            }
            stack.push(path);
        }
    }
    found
}

fn init_of(aether: i32) -> i32 {
    let children = fs::read_to_string(format!("/proc/{aether}/task/{aether}/children"));
    let children = children.expect("aether's children");
    children.trim().parse().expect("one child")
}

/// What calls with these numbers say to a command of a sandbox.
const TRY: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#define SAY(name, call) errno = 0; call; printf("%s %d\n", name, errno)
int main(void) {
  char none[256] = {0};
  SAY("alg", socket(38, SOCK_SEQPACKET, 0));
  SAY("vsock", socket(40, SOCK_STREAM, 0));
  SAY("inet", socket(AF_INET, SOCK_STREAM, 0));
  SAY("packet", socket(AF_PACKET, SOCK_RAW, 0));
  SAY("io_uring", syscall(425, 1, none));
  SAY("bpf", syscall(SYS_bpf, 0, none, sizeof none));
  SAY("keyctl", syscall(SYS_keyctl, 0, -3, 0));
  SAY("add_key", syscall(SYS_add_key, "user", "a", "b", 1, -3));
  SAY("perf", syscall(SYS_perf_event_open, none, 0, -1, -1, 0));
  SAY("userfaultfd", syscall(SYS_userfaultfd, 0));
  SAY("unshare", syscall(SYS_unshare, 0x10000000));
  SAY("mount", syscall(SYS_mount, "x", "/tmp", "tmpfs", 0, 0));
  SAY("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
  SAY("setns", syscall(SYS_setns, 0, 0));
  SAY("open_by_handle", syscall(SYS_open_by_handle_at, 0, none, 0));
  SAY("clone3", syscall(SYS_clone3, none, 0));
  SAY("trace init", ptrace(PTRACE_ATTACH, 1, 0, 0));
  SAY("read init", syscall(SYS_process_vm_readv, 1, none, 0, none, 0, 0));
  SAY("init's fd", syscall(438, syscall(SYS_pidfd_open, 1, 0), 3, 0));
}
"#;

#[test]
fn inside_it_is_as_native() {
    let Some(mut rig) = rig(4, "") else { return };
    let tried = rig.data.join("try");
    fs::write(rig.data.join("try.c"), TRY).expect("a source");
    let made = Command::new("cc")
        .args(["-static", "-o"])
        .arg(&tried)
        .arg(rig.data.join("try.c"))
        .status()
        .expect("cc runs");
    assert!(made.success());
    let probes = [
        "id; hostname; cat /etc/hosts /etc/hostname /etc/resolv.conf; pwd; env | grep -v PWD",
        "cat /proc/self/limits; umask; cat /proc/self/oom_score_adj; cat /proc/self/timerslack_ns",
        "grep -E '^(Cap|NoNewPrivs|Seccomp|Sig|Groups)' /proc/self/status | grep -v SigQ",
        "cat /proc/1/cmdline | od -c; cat /proc/1/comm; ps | grep -v ps; ls /proc/self/fd",
        "for f in maps mem environ auxv stack syscall; do head -c 10 /proc/1/$f; done; ls -l /proc/1/exe /proc/1/root \
         /proc/1/fd /proc/1/map_files; cat /proc/1/fd/3; readlink /proc/1/ns/user; ls -l /proc/1/cwd",
        "for f in acpi asound bus fs irq interrupts kcore keys key-users kmsg kpagecgroup kpagecount kpageflags \
         latency_stats sched_debug scsi slabinfo sysrq-trigger timer_list timer_stats vmallocinfo; do \
         echo $f $(head -c 10 /proc/$f 2>/dev/null | wc -c) $(ls /proc/$f 2>/dev/null | wc -w); done; ls /sys/firmware",
        "cat /proc/self/cgroup | cut -d: -f3- | sort -u; ls /sys/fs/cgroup; readlink /proc/self/ns/cgroup >/dev/null",
        "echo x > /proc/sys/kernel/hostname; echo x > /proc/sys/net/ipv4/ip_forward; echo b > /proc/sysrq-trigger; \
         echo 1 > /sys/kernel/mm/ksm/run; mkdir /sys/fs/cgroup/x; mknod /m b 8 0; chroot / true && echo chroot; \
         hostname other; date -s 2000-01-01; chown 70000 /tmp",
        "cut -d' ' -f5- /proc/self/mountinfo | sed 's/.* - //' | sed 's/self.fd.[0-9]*//g' | grep -v -e devtmpfs -e '^tmpfs tmpfs ro' | sort -u",
        "ip -o addr; ping -c1 -W1 127.0.0.1 >/dev/null && echo up; cat /proc/net/dev | wc -l; ip route",
        "ls -l /dev | sed 's/ [A-Z][a-z][a-z] .* / /' | grep -v mqueue; stat -c '%a %n' / /tmp /dev/shm /dev/mqueue",
        "su user -s /bin/sh -c 'id; echo > /etc/x; echo > /tmp/x && echo tmp'; mkdir /s; cp /bin/bash /s/id; \
         chmod 4755 /s/id; su user -s /bin/sh -c '/s/id -p -c \"echo \\$EUID\"'",
        "kill -9 1; kill -STOP 1; echo alive; /try",
    ];
    let mut seen: Vec<Vec<String>> = Vec::new();
    for runtime in ["native", "runc"] {
        rig.runtime = runtime;
        let started = rig.start(runtime);
        let inside = format!("/proc/{}/root/try", init_of(started.aether_pid));
        fs::copy(&tried, inside).expect("a program inside");
        let root_id = rig.uid_start + started.slot * 65536;
        let one = |text: &&str| {
            let ran = rig.sh(runtime, started.slot, text);
            // Numbers of processes and host users differ between any two sandboxes.
            format!("{}{}{:?}", ran.stdout, ran.stderr, ran.code)
                .replace(&root_id.to_string(), "ROOT")
                .replace(&(root_id + 5).to_string(), "TTY")
        };
        seen.push(probes.iter().map(one).collect());
    }
    for ((probe, native), runc) in probes.iter().zip(&seen[0]).zip(&seen[1]) {
        assert_eq!(runc, native, "{probe}");
    }
    let calls = &seen[1][probes.len() - 1];
    for refused in ["alg 1", "vsock 1", "io_uring 1", "unshare 1", "clone3 38"] {
        assert!(
            calls.contains(&format!("{refused}\n")),
            "{refused}: {calls}"
        );
    }
    assert!(calls.contains("inet 0\n") && calls.contains("trace init 1\n"));
}

#[test]
fn limits_hold_and_are_counted() {
    let Some(mut rig) = rig(4, "") else { return };
    let slot = rig.start("one").slot;
    let ran = rig.sh(
        "one",
        slot,
        "dd if=/dev/zero of=/big bs=1M count=200; rm /big",
    );
    assert!(
        ran.stderr.contains("quota exceeded") || ran.stderr.contains("No space"),
        "{ran:?}"
    );
    let hog = "head -c 600m /dev/zero | tail -c 500m | wc -c; echo ${PIPESTATUS[1]}";
    let ran = rig.sh("one", slot, hog);
    assert!(ran.stdout.ends_with("137\n"), "{ran:?}");
    let ran = rig.sh(
        "one",
        slot,
        "for i in $(seq 300); do sleep 5 & done 2>&1 | head -1; true",
    );
    assert!(
        ran.stdout.contains("fork") || ran.stderr.contains("fork"),
        "{ran:?}"
    );
    let usage = rig.stop("one", false).usage.expect("usage");
    assert!(
        usage.oom_kills > 0 && usage.pids_limit_hits > 0,
        "{usage:?}"
    );
    assert!(usage.cpu_seconds > 0.0, "{usage:?}");
}

#[test]
fn nothing_is_left_of_one_that_ended() {
    let Some(mut rig) = rig(2, "") else { return };
    let look = |rig: &Rig| {
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", rig.hostd_pid()));
        let mut run: Vec<_> = fs::read_dir("/run")
            .expect("/run")
            .flatten()
            .map(|e| e.file_name())
            .collect();
        run.retain(|name| !name.to_string_lossy().starts_with("dsec-test-"));
        run.sort();
        (mounts.expect("hostd's mounts"), run, cgroups_of(&rig.edge))
    };
    // Both slots once, so that their cgroups are there.
    for id in ["a", "b"] {
        rig.runtime = "native";
        rig.start(id);
    }
    for id in ["a", "b"] {
        rig.stop(id, false);
    }
    rig.wait_clean();
    rig.runtime = "runc";
    let before = look(&rig);
    for round in 0..3 {
        let (one, two) = (format!("one{round}"), format!("two{round}"));
        let (first, second) = (rig.start(&one), rig.start(&two));
        rig.sh(
            &one,
            first.slot,
            "echo secret > /secret; (setsid sleep 1000 >/dev/null 2>&1 &)",
        );
        let ran = rig.sh(
            &two,
            second.slot,
            "ls /secret 2>/dev/null; ps | grep -c [s]leep",
        );
        assert_eq!(ran.stdout, "0\n", "of slot {}: {ran:?}", second.slot);
        // Of the two, one by a stop and one by the end of its aether.
        rig.stop(&one, false);
        // SAFETY: the aether of this test's own sandbox.
        unsafe { libc::kill(second.aether_pid, libc::SIGKILL) };
        rig.stop(&two, false);
        rig.wait_clean();
        assert_eq!(processes_of(&rig), Vec::<String>::new());
        let after = look(&rig);
        assert_eq!(after.0, before.0, "mounts");
        assert_eq!(after.1, before.1, "/run");
        assert_eq!(after.2, before.2, "cgroups");
    }
}

#[test]
fn they_outlive_hostd_and_are_kept() {
    let Some(mut rig) = rig(4, "") else { return };
    let slot = rig.start("one").slot;
    let kept = rig.start("kept").slot;
    rig.sh("one", slot, "echo before > /f");
    rig.sh("kept", kept, "echo kept > /f");
    rig.stop("kept", true);
    rig.restart();
    let state = |rig: &mut Rig| {
        let mut list: Vec<_> = rig
            .list()
            .into_iter()
            .map(|s| (s.sandbox_id, s.alive, s.kept))
            .collect();
        list.sort();
        list
    };
    let expected = [
        ("kept".to_string(), false, true),
        ("one".to_string(), true, false),
    ];
    assert_eq!(state(&mut rig), expected);
    assert_eq!(
        rig.sh("one", slot, "cat /f; echo more > /g; cat /g").stdout,
        "before\nmore\n"
    );
    assert!(rig.stop("one", false).existed && rig.stop("kept", false).existed);
    rig.wait_clean();
    assert_eq!(processes_of(&rig), Vec::<String>::new());
}

#[test]
fn a_start_that_is_cut_short_leaves_nothing() {
    let Some(mut rig) = rig(2, "") else { return };
    let before = rig.start("warm").slot;
    rig.stop("warm", false);
    rig.wait_clean();
    let groups = cgroups_of(&rig.edge);
    let mut left = 0;
    for round in 0..16 {
        let id = format!("cut{round}");
        let order = HostdStart {
            runtime: "runc".into(),
            ..start_order(&id, &rig.layer)
        };
        rig.wire.order(Call::Start(order));
        std::thread::sleep(Duration::from_millis(round * 6));
        rig.restart();
        left += rig.list().len();
        rig.stop(&id, false);
        rig.wait_clean();
        assert_eq!(processes_of(&rig), Vec::<String>::new(), "round {round}");
        let own = cgroups_of(&rig.edge);
        assert!(
            own.difference(&groups).all(|path| path.ends_with("1")),
            "{own:?}"
        );
    }
    println!("{left} of 16 had started");
    let again = rig.start("again").slot;
    assert!(again <= 1 && before <= 1);
    assert_eq!(rig.sh("again", again, "echo works").stdout, "works\n");
}

#[test]
fn works_with_attached_mounts_and_loop_devices() {
    let Some(mut rig) = rig(2, "attached-mounts,loop") else {
        return;
    };
    let slot = rig.start("one").slot;
    let ran = rig.sh(
        "one",
        slot,
        "echo hi > /new; cat /new; touch /etc/passwd && echo written",
    );
    assert_eq!(ran.stdout, "hi\nwritten\n", "{ran:?}");
}

#[test]
fn options_are_kept() {
    let Some(mut rig) = rig(2, "") else { return };
    let order = HostdStart {
        runtime: "runc".into(),
        nested_user_namespaces: true,
        no_new_privs: true,
        ..start_order("one", &rig.layer)
    };
    let slot = rig.start_with(order).expect("a sandbox").slot;
    let text = "unshare -U true && echo nested; grep NoNewPrivs /proc/self/status | tr -d '\\t'";
    assert_eq!(rig.sh("one", slot, text).stdout, "nested\nNoNewPrivs:1\n");
}

#[test]
fn what_is_missing_is_said() {
    let mut rig = Rig::new(1);
    // Without the program that is pid 1 beside it.
    let alone = rig.data.join("hostd");
    fs::copy(&rig.program, &alone).expect("a copy of hostd");
    rig.program = alone;
    rig.restart();
    let order = |runtime: &str, rig: &Rig| HostdStart {
        runtime: runtime.into(),
        ..start_order("one", &rig.layer)
    };
    let refused = rig.start_with(order("runc", &rig)).expect_err("refused");
    assert_eq!(refused.reason, "NOT_SUPPORTED", "{refused:?}");
    assert!(refused.message.contains("runc"), "{refused:?}");
    assert!(rig.start_with(order("native", &rig)).is_ok());
}
