use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, FileExt, MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use crate::support::{deep_directories, make_device, make_fifo, read_tree_call, Root};

/// What tar makes of an archive, in a directory of its own.
fn untar(archive: &[u8], into: &std::path::Path) {
    fs::create_dir(into).unwrap();
    let mut tar = Command::new("tar")
        .args([
            "-x",
            "-p",
            "--numeric-owner",
            "--xattrs",
            "--xattrs-include=*",
            "-f",
            "-",
        ])
        .current_dir(into)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    tar.stdin.take().unwrap().write_all(archive).unwrap();
    assert!(tar.wait().unwrap().success());
}

fn attribute(path: &std::path::Path, name: &std::ffi::CStr) -> Vec<u8> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut value = vec![0; 1000];
    // SAFETY: strings that end with NUL, and room as is said.
    let size = unsafe {
        libc::getxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(size.try_into().unwrap());
    value
}

fn set_attribute(path: &std::path::Path, name: &std::ffi::CStr, value: &[u8]) {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: strings that end with NUL, and a value as long as is said.
    let result = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn tar_unpacks_what_a_tree_gives() {
    let root = Root::new();
    root.file("t/empty", b"");
    let file = root.file("t/d/file", &vec![5; 70_001]);
    std::os::unix::fs::chown(&file, Some(3_000_000), Some(77)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
    set_attribute(&file, c"user.note", b"\x00binary\xff\n");
    fs::hard_link(&file, root.at("t/hard")).unwrap();
    symlink("/outside/../x", root.at("t/link")).unwrap();
    symlink("x".repeat(300), root.at("t/long-link")).unwrap();
    make_fifo(&root.at("t/fifo"));
    make_device(&root.at("t/null"));
    let odd = [
        b"new\nline".as_slice(),
        b"\"quote",
        b"\xff\xfe",
        &[b'n'; 255],
        b"-dash",
    ];
    for name in odd {
        fs::write(root.at("t").join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let long = format!("t/{}/{}/f", "a".repeat(200), "b".repeat(200));
    root.file(&long, b"long");
    let archive = root.read_tree(b"/t");
    untar(&archive, &root.at("out"));
    let same = Command::new("diff")
        .args(["-r", "--no-dereference", "t", "out"])
        .current_dir(&root.path)
        .output()
        .unwrap();
    // diff says of special files that they are, and of nothing else.
    let said = String::from_utf8_lossy(&same.stdout).into_owned();
    assert!(
        said.lines()
            .all(|line| line.contains("fifo") || line.contains("null")),
        "{said}"
    );
    for name in ["d/file", "hard", "link", "fifo", "null", "d", "."] {
        let a = fs::symlink_metadata(root.at("t").join(name)).unwrap();
        let b = fs::symlink_metadata(root.at("out").join(name)).unwrap();
        assert_eq!(
            (a.mode(), a.uid(), a.gid(), a.rdev()),
            (b.mode(), b.uid(), b.gid(), b.rdev()),
            "{name}"
        );
        assert_eq!(
            (a.mtime(), a.mtime_nsec()),
            (b.mtime(), b.mtime_nsec()),
            "{name}"
        );
    }
    assert_eq!(
        fs::metadata(root.at("out/d/file")).unwrap().ino(),
        fs::metadata(root.at("out/hard")).unwrap().ino()
    );
    assert_eq!(
        attribute(&root.at("out/d/file"), c"user.note"),
        b"\x00binary\xff\n"
    );
    // Two reads of one tree are equal.
    assert!(archive == root.read_tree(b"/t"));
}

#[test]
fn an_empty_directory_is_a_tree_of_one_entry() {
    let root = Root::new();
    fs::create_dir(root.at("t")).unwrap();
    let archive = root.read_tree(b"/t");
    untar(&archive, &root.at("out"));
    assert!(root.names("out").is_empty());
}

#[test]
fn a_tree_of_any_depth_is_read() {
    let root = Root::new();
    deep_directories(&root.at("t"), 300);
    let archive = root.read_tree(b"/t");
    untar(&archive, &root.at("out"));
    let same = Command::new("diff")
        .args(["-r", "t", "out"])
        .current_dir(&root.path)
        .status();
    assert!(same.unwrap().success());
}

#[test]
fn sparse_files_are_right_in_content() {
    let root = Root::new();
    fs::create_dir(root.at("t")).unwrap();
    let file = fs::File::create(root.at("t/sparse")).unwrap();
    file.set_len(50 << 20).unwrap();
    file.write_all_at(b"middle", 20 << 20).unwrap();
    untar(&root.read_tree(b"/t"), &root.at("out"));
    assert!(fs::read(root.at("out/sparse")).unwrap() == fs::read(root.at("t/sparse")).unwrap());
}

#[test]
fn what_may_not_be_read_fails_and_is_named() {
    let root = Root::new();
    let file = root.file("t/secret", b"s");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let error = root.call_as(1000, read_tree_call(b"/t")).error();
    assert_eq!(error.reason, "FILE_PERMISSION");
    assert!(error.message.contains("/t/secret"), "{}", error.message);
    assert_eq!(
        root.call(read_tree_call(b"/t/secret")).reason(),
        "NOT_A_DIRECTORY"
    );
    assert_eq!(
        root.call(read_tree_call(b"/nothing")).reason(),
        "FILE_NOT_FOUND"
    );
}

#[test]
fn a_tree_that_changes_meanwhile_stays_an_archive() {
    let root = Root::new();
    for i in 0..200 {
        root.file(&format!("t/{i}"), &vec![1; 10_000]);
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let path = root.at(&format!("t/{}", i % 200));
                let length = [0, 3, 30_000][i % 3];
                fs::write(&path, vec![2; length]).unwrap();
                fs::remove_file(&path).unwrap();
                fs::write(&path, vec![1; 10_000]).unwrap();
            }
        });
        for round in 0..20 {
            let archive = root.read_tree(b"/t");
            untar(&archive, &root.at(&format!("out{round}")));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
