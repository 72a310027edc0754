//! Start, run, stop, and a slot used again.

mod common;
use common::Rig;

#[test]
fn a_sandbox_starts_runs_and_stops() {
    let mut rig = Rig::new(4);
    let started = rig.start("one");
    let ran = rig.sh(
        "one",
        started.slot,
        "id -u; hostname; cat /etc/hosts; echo hi > /new; cat /new",
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout
            .starts_with("0\nbox\n127.0.0.1 localhost\n127.0.0.1 box\n"),
        "{ran:?}"
    );
    assert!(ran.stdout.ends_with("hi\n"));
    let stopped = rig.stop("one", false);
    assert!(stopped.existed);
    assert!(stopped.usage.expect("usage").cpu_seconds > 0.0);
    assert!(
        !rig.stop("one", false).existed,
        "a second stop does no harm"
    );
}

#[test]
fn a_slot_used_again_shows_nothing_of_its_last_user() {
    let mut rig = Rig::new(1);
    let first = rig.start("one");
    let dirt = "echo secret > /secret; mkdir -p /a/b/c /tmp/d; echo x > /a/b/c/f; rm -rf /etc/passwd; chmod 700 /; \
                for i in $(seq 50); do mkdir -p /deep/$i/$i; done; head -c 20000000 /dev/urandom > /var/tmp/big; \
                echo s > /dev/shm/s; (setsid sleep 1000 >/dev/null 2>&1 &)";
    assert_eq!(rig.sh("one", first.slot, dirt).code, Some(0));
    rig.stop("one", false);
    rig.wait_clean();
    let second = rig.start("two");
    assert_eq!(second.slot, first.slot);
    let look = "ls /secret /a /deep /var/tmp/big /tmp/d /dev/shm/s 2>/dev/null; stat -c %a / ; head -1 /etc/passwd; \
                ls -A /tmp /dev/shm /dev/mqueue | grep -v : ; ps | grep -c [s]leep; ipcs 2>/dev/null | grep -c 0x; \
                cat /proc/keys 2>/dev/null | wc -l; cut -d' ' -f1 /proc/self/mountinfo | wc -l";
    let seen = rig.sh("two", second.slot, look);
    let lines: Vec<&str> = seen.stdout.split_whitespace().collect();
    assert_eq!(lines[..2], ["755", "root:x:0:0::/root:/bin/sh"], "{seen:?}");
    assert_eq!(lines[2..5], ["0", "0", "0"], "{seen:?}");
    let usage = rig.stop("two", false).usage.expect("usage");
    assert!(
        usage.peak_memory_bytes < 12 << 20,
        "peak is its own: {usage:?}"
    );
    assert!(usage.cpu_seconds < 5.0, "{usage:?}");
}

#[test]
fn sandboxes_outlive_hostd() {
    let mut rig = Rig::new(4);
    let slot = rig.start("one").slot;
    let kept = rig.start("kept").slot;
    rig.sh("one", slot, "echo before > /f");
    rig.sh("kept", kept, "echo kept > /f");
    rig.stop("kept", true);
    rig.restart();
    let mut list = rig.list();
    list.sort_by(|a, b| a.sandbox_id.cmp(&b.sandbox_id));
    let short: Vec<_> = list
        .iter()
        .map(|s| (s.sandbox_id.as_str(), s.slot, s.alive, s.kept))
        .collect();
    assert_eq!(
        short,
        [("kept", kept, false, true), ("one", slot, true, false)]
    );
    assert_eq!(
        rig.sh("one", slot, "cat /f; echo more > /g; cat /g").stdout,
        "before\nmore\n"
    );
    let other = rig.start("two").slot;
    assert!(
        other != slot && other != kept,
        "slots in use are not given out"
    );
    assert!(rig.stop("one", false).existed);
    assert!(rig.stop("kept", false).existed);
    rig.wait_clean();
    assert_eq!(rig.list().len(), 1);
}

#[test]
fn an_aether_that_dies_is_told_and_one_that_died_meanwhile_is_listed() {
    let mut rig = Rig::new(4);
    let started = rig.start("one");
    let subscribe = wire::hostd_request::Call::Subscribe(wire::HostdSubscribe {});
    rig.wire.ask(subscribe).expect("subscribed");
    // SAFETY: the aether of this test's own sandbox.
    unsafe { libc::kill(started.aether_pid, libc::SIGKILL) };
    match rig.wire.answer().result {
        Some(wire::hostd_reply::Result::Died(died)) => {
            assert_eq!(
                (died.sandbox_id.as_str(), died.cause.as_str()),
                ("one", "AETHER_GONE")
            );
        }
        other => panic!("died: {other:?}"),
    }
    assert!(!rig.list()[0].alive);
    rig.stop("one", false);
}

#[test]
fn what_is_wrong_is_said() {
    let mut rig = Rig::new(1);
    let layer = rig.layer.clone();
    let good = || common::start_order("one", &layer);
    let reason = |rig: &mut Rig, order| rig.start_with(order).expect_err("refused").reason;
    let unknown = format!("sha256:{}", "0".repeat(64));
    assert_eq!(
        reason(&mut rig, common::start_order("one", &unknown)),
        "LAYER_NOT_FOUND"
    );
    assert_eq!(
        reason(&mut rig, common::start_order("../x", &layer)),
        "INVALID_ARGUMENT"
    );
    assert_eq!(
        reason(
            &mut rig,
            common::HostOrder {
                pids_limit: 0,
                ..good()
            }
        ),
        "INVALID_LIMIT"
    );
    assert_eq!(
        reason(
            &mut rig,
            common::HostOrder {
                hostname: "a\nb".into(),
                ..good()
            }
        ),
        "INVALID_ARGUMENT"
    );
    assert_eq!(
        reason(
            &mut rig,
            common::HostOrder {
                layers: vec![],
                ..good()
            }
        ),
        "INVALID_ARGUMENT"
    );
    rig.start("one");
    assert_eq!(reason(&mut rig, good()), "INVALID_ARGUMENT");
    assert_eq!(
        reason(&mut rig, common::start_order("two", &layer)),
        "CAPACITY_FULL"
    );
    let meta = rig.data.join("layers").join(&layer[7..]).join("meta.erofs");
    rig.stop("one", false);
    rig.wait_clean();
    let drop_layer = wire::HostdDropLayer {
        digest: layer.clone(),
    };
    rig.wire
        .ask(wire::hostd_request::Call::DropLayer(drop_layer))
        .expect("dropped");
    let mut bytes = std::fs::read(&meta).expect("meta");
    bytes[2000] ^= 1;
    std::fs::write(&meta, bytes).expect("damaged");
    assert_eq!(reason(&mut rig, good()), "ARCHIVE_INVALID");
}

#[test]
fn hostd_killed_while_it_starts_leaves_only_whole_sandboxes() {
    let mut rig = Rig::new(16);
    for round in 0..8u64 {
        let layer = rig.layer.clone();
        for n in 0..8 {
            rig.wire
                .order(wire::hostd_request::Call::Start(common::start_order(
                    &format!("r{round}x{n}"),
                    &layer,
                )));
        }
        // A different step of the starts each time; which one does not matter.
        std::thread::sleep(std::time::Duration::from_millis(round * 7));
        rig.restart();
        for sandbox in rig.list() {
            assert!(sandbox.alive);
            assert_eq!(
                rig.sh(&sandbox.sandbox_id, sandbox.slot, "echo here")
                    .stdout,
                "here\n"
            );
            assert!(rig.stop(&sandbox.sandbox_id, false).existed);
        }
        rig.wait_clean();
        assert_eq!(rig.info().slots_used, 0);
    }
}

#[test]
fn many_files_and_deep_trees_are_removed() {
    let mut rig = Rig::new(1);
    let slot = rig.start("one").slot;
    let text = "mkdir /m; cd /m; for i in $(seq 5000); do : > f$i; done; cd /; \
                p=/; for i in $(seq 200); do p=$p/d; mkdir $p; done; echo ok";
    assert_eq!(rig.sh("one", slot, text).stdout, "ok\n");
    rig.stop("one", false);
    rig.wait_clean();
    let order = common::HostOrder {
        disk_limit_bytes: 16 << 20,
        ..common::start_order("two", &rig.layer)
    };
    let slot = rig
        .start_with(order)
        .expect("a sandbox on the new subvolume")
        .slot;
    let ran = rig.sh(
        "two",
        slot,
        "ls -d /m /d; dd if=/dev/zero of=/big bs=1M count=64 2>/dev/null || echo limited",
    );
    assert_eq!(
        ran.stdout, "limited\n",
        "the new subvolume has its limit too"
    );
}

#[test]
fn after_a_boot_only_what_was_kept_is_left() {
    let mut rig = Rig::new(4);
    let lost = rig.start("lost");
    let kept = rig.start("kept").slot;
    rig.sh("lost", lost.slot, "echo lost > /f");
    rig.stop("kept", true);
    // As a boot does: the processes are gone, RUN is empty, and the boot ID is another.
    rig.stop_hostd();
    // SAFETY: the aether of this test's own sandbox; its init is in the group below.
    unsafe { libc::kill(lost.aether_pid, libc::SIGKILL) };
    let group = format!(
        "/sys/fs/cgroup/unified/dsec/{}/{}/cgroup.procs",
        rig.edge, lost.slot
    );
    for pid in std::fs::read_to_string(group)
        .expect("its processes")
        .lines()
    {
        // SAFETY: in the group of this test's own sandbox.
        unsafe { libc::kill(pid.parse().expect("a pid"), libc::SIGKILL) };
    }
    std::fs::remove_dir_all(&rig.run).expect("an empty run directory");
    std::fs::write(
        rig.data.join("edges").join(&rig.edge).join("boot"),
        "another",
    )
    .expect("another boot");
    rig.restart();
    let list: Vec<_> = rig
        .list()
        .into_iter()
        .map(|s| (s.sandbox_id, s.slot, s.kept))
        .collect();
    assert_eq!(list, [("kept".to_string(), kept, true)]);
    rig.wait_clean();
    let next = rig.start("next").slot;
    assert_ne!(rig.sh("next", next, "cat /f").code, Some(0));
}
