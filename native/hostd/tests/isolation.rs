//! What a sandbox must not see or do.

mod common;
use common::{start_order, Rig};

#[test]
fn nothing_of_the_host_is_seen() {
    let mut rig = Rig::new(4);
    let slot = rig.start("one").slot;
    let ran = rig.sh("one", slot, "ls -d /proc/[0-9]* | wc -l; cat /proc/1/mountinfo; readlink /proc/self/ns/cgroup >/dev/null; cat /proc/self/cgroup");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(
        lines[0].trim().parse::<u32>().expect("a number") < 10,
        "only its own processes: {}",
        lines[0]
    );
    assert!(
        !ran.stdout.contains("/var/tmp") && !ran.stdout.contains("/dev/vda"),
        "no host mount: {}",
        ran.stdout
    );
    assert!(
        !ran.stdout.contains("dsec"),
        "no host cgroup path: {}",
        ran.stdout
    );
}

#[test]
fn pid_one_gives_nothing_away() {
    let mut rig = Rig::new(4);
    let slot = rig.start("one").slot;
    for name in ["exe", "root", "cwd"] {
        let ran = rig.sh("one", slot, &format!("readlink /proc/1/{name}"));
        assert_ne!(ran.code, Some(0), "/proc/1/{name}: {ran:?}");
    }
    for name in ["maps", "mem", "environ", "auxv", "stack", "syscall"] {
        let ran = rig.sh("one", slot, &format!("head -c 10 /proc/1/{name}"));
        assert_eq!(ran.stdout, "", "/proc/1/{name}: {ran:?}");
    }
    let ran = rig.sh("one", slot, "ls /proc/1/fd");
    assert_eq!(ran.stdout, "", "{ran:?}");
    let ran = rig.sh(
        "one",
        slot,
        "kill -9 -1; kill -9 1; kill -STOP 1; echo alive",
    );
    assert!(ran.code.is_none() || ran.stdout == "alive\n", "{ran:?}");
    assert_eq!(
        rig.sh("one", slot, "echo alive").stdout,
        "alive\n",
        "init outlives what its children send"
    );
}

#[test]
fn pid_one_shows_no_command_line_of_the_host() {
    let mut rig = Rig::new(4);
    let slot = rig.start("one").slot;
    let ran = rig.sh("one", slot, "cat /proc/1/cmdline | od -c; cat /proc/1/comm");
    assert_eq!(
        ran.stdout, "0000000   i   n   i   t  \\0\n0000005\ninit\n",
        "{ran:?}"
    );
    let data = rig.data.display().to_string();
    let ran = rig.sh("one", slot, "ps; cat /proc/[0-9]*/cmdline");
    assert!(
        ran.stdout.contains(" init\n") && !ran.stdout.contains("--edge"),
        "{ran:?}"
    );
    assert!(!ran.stdout.contains(&data), "{ran:?}");
}

#[test]
fn masked_paths_are_empty() {
    let mut rig = Rig::new(4);
    let slot = rig.start("one").slot;
    let text = "for f in kcore keys key-users kmsg kpagecgroup kpagecount kpageflags latency_stats sched_debug \
                sysrq-trigger timer_list timer_stats slabinfo vmallocinfo interrupts; do \
                head -c 10 /proc/$f 2>/dev/null; done; ls /proc/acpi /proc/scsi /sys/firmware 2>/dev/null | grep -v :";
    assert_eq!(rig.sh("one", slot, text).stdout.trim(), "");
    let text = "echo x > /proc/sys/kernel/hostname; echo x > /proc/sys/net/ipv4/ip_forward; echo b > /proc/sysrq-trigger; \
                echo 1 > /sys/kernel/mm/ksm/run; mkdir /sys/fs/cgroup/x; mount -t tmpfs x /tmp; mknod /m b 8 0 && cat /m; \
                echo done";
    let ran = rig.sh("one", slot, text);
    assert_eq!(ran.stdout, "done\n", "{ran:?}");
    assert!(ran.stderr.lines().count() >= 6, "each is refused: {ran:?}");
}

#[test]
fn devices_and_mounts_are_there() {
    let mut rig = Rig::new(4);
    let slot = rig.start("one").slot;
    let text = "for d in null zero full random urandom tty ptmx; do test -c /dev/$d || echo no $d; done; \
                head -c 4 /dev/zero | wc -c; echo x > /dev/null; df -k /dev/shm | tail -1 | tr -s ' ' | cut -d' ' -f2; \
                stat -c %a /tmp; test -d /dev/mqueue; ping -c1 -W1 127.0.0.1 >/dev/null && echo up; cat /etc/hostname";
    let ran = rig.sh("one", slot, text);
    assert_eq!(ran.stdout, "4\n65536\n1777\nup\nbox\n", "{ran:?}");
}

#[test]
fn setuid_works_unless_it_is_turned_off() {
    let mut rig = Rig::new(4);
    let order = common::HostOrder {
        no_new_privs: true,
        ..start_order("strict", &rig.layer)
    };
    let strict = rig.start_with(order).expect("a sandbox").slot;
    let plain = rig.start("plain").slot;
    // A shell that user 1000 runs with the suid bit of root's.
    let text = "mkdir /tmp/s; cp /bin/bash /tmp/s/id; chmod 4755 /tmp/s/id; \
                su user -s /bin/sh -c '/tmp/s/id -p -c \"echo \\$EUID\"'";
    assert_eq!(
        rig.sh("plain", plain, text).stdout,
        "0\n",
        "suid gives root of the sandbox"
    );
    assert_eq!(rig.sh("strict", strict, text).stdout, "1000\n");
}

#[test]
fn capabilities_are_dockers() {
    let mut rig = Rig::new(4);
    let slot = rig.start("one").slot;
    let ran = rig.sh(
        "one",
        slot,
        "grep -E 'CapBnd|CapEff|Seccomp:' /proc/self/status | tr -d '\\t'",
    );
    assert_eq!(
        ran.stdout, "CapEff:00000000a80425fb\nCapBnd:00000000a80425fb\nSeccomp:2\n",
        "{ran:?}"
    );
}

#[test]
fn nested_namespaces_only_where_asked_for() {
    let mut rig = Rig::new(4);
    let order = common::HostOrder {
        nested_user_namespaces: true,
        ..start_order("nested", &rig.layer)
    };
    let nested = rig.start_with(order).expect("a sandbox").slot;
    let plain = rig.start("plain").slot;
    let text = "unshare -U true && echo yes || echo no";
    assert_eq!(rig.sh("nested", nested, text).stdout, "yes\n");
    assert_eq!(rig.sh("plain", plain, text).stdout, "no\n");
}

#[test]
fn limits_hold() {
    let mut rig = Rig::new(4);
    let slot = rig.start("one").slot;
    let ran = rig.sh(
        "one",
        slot,
        "dd if=/dev/zero of=/big bs=1M count=200; ls -l /big | tr -s ' ' | cut -d' ' -f5",
    );
    assert!(
        ran.stderr.contains("quota exceeded") || ran.stderr.contains("No space"),
        "{ran:?}"
    );
    let ran = rig.sh(
        "one",
        slot,
        "rm /big; for i in $(seq 300); do sleep 5 & done 2>&1 | head -1; kill %1 2>/dev/null; true",
    );
    assert!(
        ran.stdout.contains("fork") || ran.stderr.contains("fork"),
        "{ran:?}"
    );
}
