use std::fs;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};

use wire::aether_reply::Result as Reply;
use wire::aether_request::Call;
use wire::{MakeDirectoryRequest, MoveRequest, RemoveRequest};

use crate::support::{deep_directories, make_fifo, remove_call, Root};

fn make(path: &[u8], parents: bool, mode: u32) -> Call {
    Call::MakeDirectory(MakeDirectoryRequest {
        path: path.to_vec(),
        parents,
        mode,
        ..Default::default()
    })
}

fn mv(from: &[u8], to: &[u8], overwrite: bool) -> Call {
    Call::Move(MoveRequest {
        from_path: from.to_vec(),
        to_path: to.to_vec(),
        overwrite,
        ..Default::default()
    })
}

#[test]
fn directories_are_made() {
    let root = Root::new();
    root.file("f", b"");
    root.call(make(b"/a", false, 0)).done();
    assert_eq!(fs::metadata(root.at("a")).unwrap().mode() & 0o7777, 0o755);
    root.call(make(b"/t", false, 0o3777)).done();
    assert_eq!(fs::metadata(root.at("t")).unwrap().mode() & 0o7777, 0o3777);
    root.call(make(b"/a/b/c/", true, 0o700)).done();
    assert_eq!(fs::metadata(root.at("a/b")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(
        fs::metadata(root.at("a/b/c")).unwrap().mode() & 0o7777,
        0o700
    );
    root.call(make(b"a/b/c", true, 0o755)).done();
    assert_eq!(
        fs::metadata(root.at("a/b/c")).unwrap().mode() & 0o7777,
        0o700
    );
    root.call(make(b"/", true, 0)).done();
    symlink("/a", root.at("l")).unwrap();
    root.call(make(b"/l/x", false, 0)).done();
    root.call(make(b"/l", true, 0)).done();
    assert!(root.at("a/x").is_dir());
    let reason = |call| root.call(call).reason();
    assert_eq!(reason(make(b"/a", false, 0)), "FILE_EXISTS");
    assert_eq!(reason(make(b"/f", true, 0)), "FILE_EXISTS");
    assert_eq!(reason(make(b"/", false, 0)), "FILE_EXISTS");
    assert_eq!(reason(make(b"/f/x", true, 0)), "NOT_A_DIRECTORY");
    assert_eq!(reason(make(b"/x/y", false, 0)), "FILE_NOT_FOUND");
    assert_eq!(reason(make(b"/../y", true, 0)), "PATH_LEAVES_ROOT");
    assert_eq!(reason(make(b"/y", false, 0o10000)), "INVALID_ARGUMENT");
    assert_eq!(
        root.call_as(1000, make(b"/y", false, 0)).reason(),
        "FILE_PERMISSION"
    );
}

#[test]
fn a_move_replaces_only_if_asked() {
    let root = Root::new();
    root.file("a", b"1");
    root.file("b", b"2");
    root.file("d/e", b"3");
    assert_eq!(root.call(mv(b"/a", b"/b", false)).reason(), "FILE_EXISTS");
    root.call(mv(b"/a", b"/b", true)).done();
    assert_eq!(fs::read(root.at("b")).unwrap(), b"1");
    root.call(mv(b"/d", b"/moved/", false)).done();
    assert_eq!(root.read(b"/moved/e"), b"3");
    let reason = |call| root.call(call).reason();
    assert_eq!(reason(mv(b"/a", b"/c", false)), "FILE_NOT_FOUND");
    assert_eq!(reason(mv(b"/b", b"/x/y", false)), "FILE_NOT_FOUND");
    assert_eq!(reason(mv(b"/b", b"/moved", true)), "IS_A_DIRECTORY");
    assert_eq!(reason(mv(b"/moved", b"/b", true)), "NOT_A_DIRECTORY");
    assert_eq!(reason(mv(b"/moved", b"/moved/x", false)), "FILE_FAILED");
    assert_eq!(reason(mv(b"/", b"/x", false)), "INVALID_PATH");
    assert_eq!(reason(mv(b"/b", b"/../b", false)), "PATH_LEAVES_ROOT");
    let error = root.call(mv(b"/a", b"/c", false)).error();
    assert!(error.message.contains("\"/a\""), "{}", error.message);
}

#[test]
fn a_move_to_another_file_system_copies_all() {
    let mut root = Root::new();
    root.tmpfs("other", "size=8m");
    let file = root.file("tree/deep/f", &vec![7; 100_000]);
    std::os::unix::fs::chown(&file, Some(1234), Some(5678)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4750)).unwrap();
    fs::hard_link(&file, root.at("tree/again")).unwrap();
    symlink("/nowhere", root.at("tree/link")).unwrap();
    make_fifo(&root.at("tree/fifo"));
    let before = fs::symlink_metadata(&file).unwrap();
    root.call(mv(b"/tree", b"/other/tree", false)).done();
    assert!(!root.at("tree").exists());
    let after = fs::metadata(root.at("other/tree/deep/f")).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), 1234, 5678)
    );
    assert_eq!(
        (after.mtime(), after.mtime_nsec()),
        (before.mtime(), before.mtime_nsec())
    );
    assert_eq!(
        after.ino(),
        fs::metadata(root.at("other/tree/again")).unwrap().ino()
    );
    assert_eq!(
        fs::read_link(root.at("other/tree/link")).unwrap().to_str(),
        Some("/nowhere")
    );
    assert_eq!(root.names("other"), ["tree"]);

    // What does not fit leaves nothing there and everything here.
    root.file("large/a", &vec![1; 6 << 20]);
    root.file("large/b", &vec![1; 6 << 20]);
    assert_eq!(
        root.call(mv(b"/large", b"/other/large", false)).reason(),
        "DISK_FULL"
    );
    assert_eq!(root.names("other"), ["tree"]);
    assert_eq!(root.names("large"), ["a", "b"]);
    root.file("f", b"");
    assert_eq!(
        root.call(mv(b"/f", b"/other/tree/deep/f", false)).reason(),
        "FILE_EXISTS"
    );
}

#[test]
fn a_move_into_a_mount_below_itself_is_refused() {
    let mut root = Root::new();
    root.tmpfs("a/mount", "size=8m");
    root.file("a/f", b"");
    assert_eq!(
        root.call(mv(b"/a", b"/a/mount/x", false)).reason(),
        "FILE_FAILED"
    );
    assert!(root.names("a/mount").is_empty());
    assert!(root.at("a/f").exists());
}

#[test]
fn what_is_removed_is_gone() {
    let root = Root::new();
    root.file("f", b"");
    root.file("keep/f", b"");
    fs::create_dir_all(root.at("d/empty")).unwrap();
    symlink("/keep", root.at("d/link")).unwrap();
    symlink("/keep", root.at("link")).unwrap();
    root.call(remove_call(b"/f", false)).done();
    root.call(remove_call(b"/d/empty", false)).done();
    root.call(remove_call(b"/link", true)).done();
    let reason = |call| root.call(call).reason();
    assert_eq!(reason(remove_call(b"/d", false)), "DIRECTORY_NOT_EMPTY");
    assert_eq!(reason(remove_call(b"/f", false)), "FILE_NOT_FOUND");
    assert_eq!(reason(remove_call(b"/", true)), "INVALID_PATH");
    assert_eq!(reason(remove_call(b"/keep/..", true)), "INVALID_PATH");
    root.call(remove_call(b"/d", true)).done();
    assert_eq!(root.names("/"), ["keep"]);
    assert!(root.at("keep/f").exists());
    let ask = |path: &[u8]| {
        Call::Remove(RemoveRequest {
            path: path.to_vec(),
            missing_ok: true,
            ..RemoveRequest::default()
        })
    };
    root.call(ask(b"/f")).done();
    root.call(ask(b"/x/y")).done();
}

#[test]
fn a_tree_of_any_depth_and_width_is_removed() {
    let root = Root::new();
    root.file("wide/f", b"");
    for i in 0..3000 {
        fs::write(root.at(&format!("wide/{i}")), b"").unwrap();
        fs::create_dir(root.at(&format!("wide/d{i}"))).unwrap();
    }
    root.call(remove_call(b"/wide", true)).done();
    // Far deeper than a path may be long, and than descriptors may be open.
    deep_directories(&root.at("deep"), 1500);
    root.call(remove_call(b"/deep", true)).done();
    assert!(root.names("/").is_empty());
}

#[test]
fn what_cannot_be_removed_is_named() {
    let root = Root::new();
    root.file("d/in/f", b"");
    for path in ["/", "d"] {
        fs::set_permissions(root.at(path), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let error = root.call_as(1000, remove_call(b"/d", true)).error();
    assert_eq!(error.reason, "FILE_PERMISSION");
    assert!(
        error.message.contains("stopped at \"f\""),
        "{}",
        error.message
    );
}

#[test]
fn a_link_swapped_while_it_is_removed_is_not_followed() {
    let root = Root::new();
    root.file("keep/f", b"");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Changes between a directory and a link to what is to be kept.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = fs::create_dir_all(root.at("d/x/y"));
                let _ = fs::remove_dir_all(root.at("d/x"));
                let _ = symlink("/keep", root.at("d/x"));
                let _ = fs::remove_file(root.at("d/x"));
            }
        });
        for _ in 0..200 {
            match root.call(remove_call(b"/d", true)).reply() {
                Reply::Done(_) => {}
                Reply::Error(error) => assert_ne!(error.reason, "INTERNAL", "{error:?}"),
                other => panic!("{other:?}"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(root.at("keep/f").exists());
}

#[test]
fn files_of_a_layer_are_replaced_moved_and_removed() {
    let mut root = Root::new();
    root.file("lower/src/deep/f", b"of the layer");
    root.file("lower/f", b"of the layer");
    root.overlay("o");
    root.write(b"/o/f", b"new");
    root.write(b"/o/src/g", b"new");
    assert_eq!(root.read(b"/o/f"), b"new");
    // The kernel does not rename a directory of a layer without redirects: it is copied.
    root.call(mv(b"/o/src", b"/o/moved", false)).done();
    assert_eq!(root.read(b"/o/moved/deep/f"), b"of the layer");
    assert_eq!(root.names("o"), ["f", "moved"]);
    root.call(remove_call(b"/o/moved", true)).done();
    root.call(remove_call(b"/o/f", false)).done();
    assert!(root.names("o").is_empty());
    assert_eq!(root.names("lower"), ["f", "src"]);
}
