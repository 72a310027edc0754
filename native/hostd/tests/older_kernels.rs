//! The ways of kernels before 6.15 and 6.12, forced on this one: sandboxes work the same, and nothing is left.

mod common;
use common::{make_layer, start_order, Rig};
use std::path::Path;
use wire::{hostd_reply, hostd_request, HostdDropLayer, HostdUsage};

/// Loop devices whose file lies below the directory.
fn loops(data: &Path) -> Vec<String> {
    let data = data.to_string_lossy().into_owned();
    let devices = std::fs::read_dir("/sys/block").expect("/sys/block");
    devices
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("loop/backing_file")).ok())
        .filter(|file| file.starts_with(&data) && !file.contains("upper.btrfs"))
        .map(|file| file.trim().to_string())
        .collect()
}

/// Mounts that hostd sees in its scratch.
fn attached(rig: &Rig) -> Vec<String> {
    let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", rig.hostd_pid()))
        .expect("hostd's mounts");
    let places = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4)?.split_once("/kept/mounts/"));
    places.map(|(_, place)| place.to_string()).collect()
}

fn a_life(force: &'static str) {
    let mut rig = Rig::forced(4, force);
    let tree = rig.data.join("tree");
    std::fs::create_dir_all(tree.join("etc")).expect("a directory");
    // Larger than a chunk, and of no whole block.
    std::fs::write(tree.join("big"), vec![b'x'; 300_001]).expect("a file");
    std::fs::write(tree.join("etc/group"), "root:x:0:\nabove:x:7:\n").expect("a file");
    let above = make_layer(&rig.data, &tree);
    std::fs::remove_dir_all(&tree).expect("the tree goes");
    let order = |id: &str, rig: &Rig| {
        let mut order = start_order(id, &rig.layer);
        order.layers.push(above.clone());
        order
    };
    let slots: Vec<u32> = ["one", "two"]
        .map(|id| rig.start_with(order(id, &rig)).expect("a start").slot)
        .to_vec();
    let text = "tail -1 /etc/group; wc -c < /big; tail -c 1 /big; echo; stat -c '%u %g' /big /bin/busybox / /etc/hosts; \
                echo mine > /big && echo new > /new && cat /big /new; chown 1000:1000 /new && stat -c %u /new; \
                rm /bin/wc; ls /bin/wc; mount | grep -c -e kept -e scratch -e erofs";
    for (id, slot) in ["one", "two"].iter().zip(&slots) {
        let ran = rig.sh(id, *slot, text);
        assert_eq!(
            ran.stdout, "above:x:7:\n300001\nx\n0 0\n0 0\n0 0\n0 0\nmine\nnew\n1000\n0\n",
            "{ran:?}"
        );
    }
    let full = rig.sh("one", slots[0], "dd if=/dev/zero of=/fill bs=1M count=100");
    assert_eq!(full.code, Some(1), "the disk's limit holds: {full:?}");
    if force.contains("loop") {
        assert_eq!(loops(&rig.data).len(), 4, "{:?}", loops(&rig.data));
    } else {
        assert!(loops(&rig.data).is_empty(), "{:?}", loops(&rig.data));
    }
    if force.contains("attached-mounts") {
        let mut places = attached(&rig);
        places.retain(|place| !place.starts_with("sha256-"));
        assert_eq!(places, ["upper"], "nothing of a start is left");
    } else {
        assert!(attached(&rig).is_empty());
    }
    let usage = HostdUsage {
        sandbox_id: "one".into(),
        try_disk: true,
    };
    assert!(rig.wire.ask(hostd_request::Call::Usage(usage)).is_ok());
    rig.restart();
    assert_eq!(rig.sh("two", slots[1], "cat /new").stdout, "new\n");
    rig.start_with(order("three", &rig))
        .expect("a start after hostd's");
    for id in ["one", "two", "three"] {
        assert!(rig.stop(id, false).existed);
    }
    rig.wait_clean();
    for digest in [above, rig.layer.clone()] {
        let drop = HostdDropLayer { digest };
        let answer = rig.wire.ask(hostd_request::Call::DropLayer(drop));
        assert!(
            matches!(answer, Ok(hostd_reply::Result::Done(_))),
            "{answer:?}"
        );
    }
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !loops(&rig.data).is_empty() {
        assert!(std::time::Instant::now() < end, "{:?}", loops(&rig.data));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn attached_mounts_and_loop_devices() {
    a_life("attached-mounts,loop");
}

#[test]
fn attached_mounts_alone() {
    a_life("attached-mounts");
}

#[test]
fn loop_devices_alone() {
    a_life("loop");
}

#[test]
fn the_probe_finds_what_is_left() {
    let program = std::env::current_exe().expect("an own path");
    let program = program.ancestors().nth(2).expect("target").join("hostd");
    let child = std::process::Command::new(program)
        .arg("--probe")
        .env("DSEC_HOSTD_FORCE", "attached-mounts,loop")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the probe runs");
    let left = format!("/tmp/dsec-probe-{}", child.id());
    let output = child.wait_with_output().expect("the probe ends");
    assert!(!Path::new(&left).exists(), "the probe leaves nothing");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("{\"name\":\"erofs\",\"ok\":true")
            && text.contains("attached in a namespace of hostd's own"),
        "{text}"
    );
}
