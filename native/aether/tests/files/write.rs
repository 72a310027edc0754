use std::fs;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};

use wire::aether_reply::Result as Reply;
use wire::aether_request::Call;
use wire::frame::{FrameHeader, KIND_STDOUT};
use wire::AetherWriteFile;

use crate::support::{make_device, make_fifo, write_call, Root};

fn reason_of(root: &Root, user: u32, ask: AetherWriteFile) -> String {
    let mut worker = root.call_as(user, Call::WriteFile(ask));
    worker.send(b"contents");
    worker.finish();
    worker.reason()
}

#[test]
fn what_is_written_is_there() {
    let root = Root::new();
    let bytes = vec![0xc3; 5_242_881];
    let cases: [(&[u8], &[u8]); 5] = [
        (b"/f", &bytes),
        (b"/png", &[0x89, 0x50, 0x4e, 0x47]),
        (b"/empty", b""),
        (b"/new\nline\"\xff", b"odd"),
        (&[&b"/"[..], &[b'n'; 255]].concat(), b"long"),
    ];
    for (path, contents) in cases {
        root.write(path, contents);
        assert!(root.read(path) == contents);
    }
    assert_eq!(root.names("/").len(), 5);
    assert_eq!(fs::metadata(root.at("f")).unwrap().mode() & 0o7777, 0o644);
}

#[test]
fn a_mode_is_given_or_kept() {
    let root = Root::new();
    let mut worker = root.call(Call::WriteFile(AetherWriteFile {
        mode: 0o4711,
        ..write_call(b"/f")
    }));
    worker.finish();
    worker.done();
    let mode = |path| fs::metadata(root.at(path)).unwrap().mode() & 0o7777;
    assert_eq!(mode("f"), 0o4711);
    root.write(b"/f", b"x");
    assert_eq!(mode("f"), 0o4711);
    assert_eq!(
        reason_of(
            &root,
            0,
            AetherWriteFile {
                mode: 0o10000,
                ..write_call(b"/f")
            }
        ),
        "INVALID_ARGUMENT"
    );
}

#[test]
fn parents_are_made_if_asked() {
    let root = Root::new();
    assert_eq!(reason_of(&root, 0, write_call(b"/a/b/f")), "FILE_NOT_FOUND");
    let mut worker = root.call(Call::WriteFile(AetherWriteFile {
        parents: true,
        ..write_call(b"/a/b/f")
    }));
    worker.send(b"x");
    worker.finish();
    worker.done();
    assert_eq!(fs::read(root.at("a/b/f")).unwrap(), b"x");
}

#[test]
fn a_link_leads_to_the_file_that_is_written() {
    let root = Root::new();
    root.file("d/real", b"old");
    symlink("real", root.at("d/second")).unwrap();
    symlink("/d/second", root.at("first")).unwrap();
    symlink("d/not-yet", root.at("dangling")).unwrap();
    symlink("loop", root.at("loop")).unwrap();
    root.write(b"/first", b"new");
    assert_eq!(fs::read(root.at("d/real")).unwrap(), b"new");
    assert!(fs::symlink_metadata(root.at("first")).unwrap().is_symlink());
    root.write(b"dangling", b"made");
    assert_eq!(fs::read(root.at("d/not-yet")).unwrap(), b"made");
    assert_eq!(reason_of(&root, 0, write_call(b"/loop")), "FILE_FAILED");
}

#[test]
fn what_is_no_file_is_not_written() {
    let root = Root::new();
    make_fifo(&root.at("fifo"));
    make_device(&root.at("null"));
    fs::create_dir(root.at("d")).unwrap();
    symlink("/", root.at("l")).unwrap();
    for (path, reason) in [
        ("/fifo", "FILE_FAILED"),
        ("/null", "FILE_FAILED"),
        ("/d", "IS_A_DIRECTORY"),
        ("/d/", "IS_A_DIRECTORY"),
        ("/", "IS_A_DIRECTORY"),
        ("/l", "IS_A_DIRECTORY"),
        ("/null/x", "NOT_A_DIRECTORY"),
        ("/../x", "PATH_LEAVES_ROOT"),
    ] {
        assert_eq!(
            reason_of(&root, 0, write_call(path.as_bytes())),
            reason,
            "{path}"
        );
    }
    assert_eq!(root.names("/"), ["d", "fifo", "l", "null"]);
}

#[test]
fn a_user_writes_only_what_is_the_users() {
    let root = Root::new();
    root.file("f", b"");
    fs::create_dir(root.at("d")).unwrap();
    fs::set_permissions(root.at("d"), fs::Permissions::from_mode(0o777)).unwrap();
    root.file("d/roots", b"old");
    assert_eq!(
        reason_of(&root, 1000, write_call(b"/new")),
        "FILE_PERMISSION"
    );
    // The directory would let it be replaced; open() would not let it be written.
    assert_eq!(
        reason_of(&root, 1000, write_call(b"/d/roots")),
        "FILE_PERMISSION"
    );
    let mut worker = root.call_as(1000, Call::WriteFile(write_call(b"/d/mine")));
    worker.finish();
    worker.done();
    assert_eq!(fs::metadata(root.at("d/mine")).unwrap().uid(), 1000);
    assert_eq!(root.names("d"), ["mine", "roots"]);
}

#[test]
fn a_connection_that_breaks_leaves_the_old_file() {
    let root = Root::new();
    root.file("f", b"old");
    for cut_in_frame in [false, true] {
        let mut worker = root.call(Call::WriteFile(write_call(b"/f")));
        worker.send(&vec![1; 3 << 20]);
        if cut_in_frame {
            use std::io::Write;
            worker
                .stream
                .write_all(&FrameHeader::new(KIND_STDOUT, 500).encode())
                .unwrap();
            worker.stream.write_all(b"half").unwrap();
        }
        worker.stream.shutdown(std::net::Shutdown::Both).unwrap();
        worker.end();
        assert_eq!(fs::read(root.at("f")).unwrap(), b"old");
        assert_eq!(root.names("/"), ["f"]);
    }
}

#[test]
fn a_worker_that_is_killed_leaves_the_old_file() {
    let root = Root::new();
    root.file("f", b"old");
    let mut worker = root.call(Call::WriteFile(write_call(b"/f")));
    worker.send(&vec![1; 3 << 20]);
    drop(worker);
    assert_eq!(fs::read(root.at("f")).unwrap(), b"old");
    assert_eq!(root.names("/"), ["f"]);
}

#[test]
fn a_frame_of_another_form_ends_the_call() {
    use std::io::Write;
    let root = Root::new();
    for header in [
        [0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0],
        [0, 0, 0, 1, 9, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
    ] {
        let mut worker = root.call(Call::WriteFile(write_call(b"/f")));
        worker.stream.write_all(&header).unwrap();
        worker.end();
    }
    assert!(root.names("/").is_empty());
}

#[test]
fn early_bytes_come_first() {
    let root = Root::new();
    let mut early = FrameHeader::new(KIND_STDOUT, 10).encode().to_vec();
    early.extend_from_slice(b"01234");
    let mut worker = root.call_with(0, Call::WriteFile(write_call(b"/f")), early);
    use std::io::Write;
    worker.stream.write_all(b"56789").unwrap();
    worker.send(b"abc");
    worker.finish();
    worker.done();
    assert_eq!(fs::read(root.at("f")).unwrap(), b"0123456789abc");
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let mut root = Root::new();
    root.tmpfs("small", "size=1m");
    fs::write(root.at("small/f"), b"old").unwrap();
    let mut worker = root.call(Call::WriteFile(write_call(b"/small/f")));
    // Goes on sending while the answer is on its way, as a client does.
    worker.send(&vec![1; 5 << 20]);
    worker.finish();
    let error = worker.error();
    assert_eq!(error.reason, "DISK_FULL");
    worker.end();
    assert_eq!(fs::read(root.at("small/f")).unwrap(), b"old");
    assert_eq!(root.names("small"), ["f"]);
}

#[test]
fn a_mounted_file_is_written_in_place() {
    let root = Root::new();
    root.file("source", b"old and longer");
    root.file("hosts", b"");
    let to_c = |path: &str| std::ffi::CString::new(root.at(path).to_str().unwrap()).unwrap();
    let (from, target) = (to_c("source"), to_c("hosts"));
    // SAFETY: strings that end with NUL.
    let mounted = unsafe {
        libc::mount(
            from.as_ptr(),
            target.as_ptr(),
            std::ptr::null(),
            libc::MS_BIND,
            std::ptr::null(),
        )
    };
    assert_eq!(mounted, 0);
    root.write(b"/hosts", b"new");
    // SAFETY: a string that ends with NUL.
    unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    assert_eq!(fs::read(root.at("source")).unwrap(), b"new");
    assert_eq!(root.names("/"), ["hosts", "source"]);
}

#[test]
fn writers_at_once_give_one_whole_file() {
    let root = Root::new();
    let mut workers: Vec<_> = (0..8u8)
        .map(|_| root.call(Call::WriteFile(write_call(b"/f"))))
        .collect();
    for round in 0..4 {
        for (i, worker) in workers.iter_mut().enumerate() {
            assert!(worker.send(&vec![i as u8; 50_000]), "{round}");
        }
    }
    for worker in &mut workers {
        worker.finish();
        assert!(matches!(worker.reply(), Reply::Done(_)));
    }
    let contents = fs::read(root.at("f")).unwrap();
    assert_eq!(contents.len(), 200_000);
    assert!(contents.iter().all(|&b| b == contents[0]));
    assert_eq!(root.names("/"), ["f"]);
}

#[test]
fn a_swapped_link_leads_to_one_of_its_targets() {
    let root = Root::new();
    root.file("a/f", b"");
    root.file("b/f", b"");
    symlink("/a", root.at("l")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let target = ["/a", "/b", "../../../../../../b"][i % 3];
                symlink(target, root.at("next")).unwrap();
                fs::rename(root.at("next"), root.at("l")).unwrap();
            }
        });
        for _ in 0..200 {
            root.write(b"/l/f", b"x");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(root.names("a"), ["f"]);
    assert_eq!(root.names("b"), ["f"]);
}
