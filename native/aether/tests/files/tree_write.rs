use std::fs;
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::process::Command;

use wire::aether_reply::Result as Reply;

use crate::support::{make_device, make_fifo, write_tree_call, Root};

/// A plain ustar header; `kind` as in tar.
pub fn header(name: &[u8], kind: u8, size: u64, link: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len().min(100)].copy_from_slice(&name[..name.len().min(100)]);
    block[100..107].copy_from_slice(b"0000644");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[136..147].copy_from_slice(format!("{:011o}", 1_700_000_000).as_bytes());
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link);
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

pub fn file(name: &[u8], contents: &[u8]) -> Vec<u8> {
    let mut entry = header(name, b'0', contents.len() as u64, b"");
    entry.extend_from_slice(contents);
    entry.resize(entry.len().div_ceil(512) * 512, 0);
    entry
}

pub fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

fn reason(root: &Root, entries: &[Vec<u8>]) -> String {
    root.write_tree(b"/out", &archive(entries))
        .unwrap_err()
        .reason
}

/// What GNU tar makes of a directory, with these options.
fn tar(root: &Root, options: &[&str]) -> Vec<u8> {
    let made = Command::new("tar")
        .arg("-c")
        .args(options)
        .args(["-C", "t", "."])
        .current_dir(&root.path)
        .output();
    made.unwrap().stdout
}

fn sample(root: &Root) {
    let script = root.file("t/bin/script", b"#!/bin/sh\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o4755)).unwrap();
    root.file("t/data", &vec![9; 100_000]);
    root.file("t/empty", b"");
    root.file(
        &format!("t/{}/{}", "d".repeat(150), "n".repeat(200)),
        b"long",
    );
    fs::hard_link(&script, root.at("t/z-hard")).unwrap();
    symlink("../outside", root.at("t/link")).unwrap();
    symlink("x".repeat(200), root.at("t/long-link")).unwrap();
    make_fifo(&root.at("t/fifo"));
    fs::create_dir(root.at("t/closed")).unwrap();
    root.file("t/closed/f", b"in");
    fs::set_permissions(root.at("t/closed"), fs::Permissions::from_mode(0o555)).unwrap();
    std::os::unix::fs::chown(root.at("t/data"), Some(2_500_000_000), Some(5)).unwrap();
}

#[test]
fn archives_of_every_form_are_unpacked() {
    let root = Root::new();
    sample(&root);
    for form in ["gnu", "pax"] {
        let made = tar(&root, &["-f", "-", &format!("--format={form}")]);
        root.write_tree(b"/a/b/out", &made).unwrap();
        for name in [
            "bin/script",
            "data",
            "link",
            "fifo",
            "closed",
            "bin",
            "closed/f",
            ".",
        ] {
            let a = fs::symlink_metadata(root.at("t").join(name)).unwrap();
            let b = fs::symlink_metadata(root.at("a/b/out").join(name)).unwrap();
            assert_eq!(
                (a.mode(), a.mtime()),
                (b.mode(), b.mtime()),
                "{form} {name}"
            );
            assert_eq!((b.uid(), b.gid()), (0, 0), "owners are the writer's");
        }
        let diff = Command::new("diff")
            .args(["-r", "--no-dereference", "t", "a/b/out"])
            .current_dir(&root.path)
            .output();
        let said = String::from_utf8_lossy(&diff.unwrap().stdout).into_owned();
        assert!(said.lines().all(|line| line.contains("fifo")), "{said}");
        let ino = |path| fs::metadata(root.at(path)).unwrap().ino();
        assert_eq!(ino("a/b/out/bin/script"), ino("a/b/out/z-hard"));
        fs::remove_dir_all(root.at("a")).unwrap();
    }
}

#[test]
fn a_tree_goes_round() {
    let root = Root::new();
    sample(&root);
    let first = root.read_tree(b"/t");
    root.write_tree(b"/out", &first).unwrap();
    std::os::unix::fs::chown(root.at("t/data"), Some(0), Some(0)).unwrap();
    assert!(root.read_tree(b"/t") == root.read_tree(b"/out"));
}

#[test]
fn a_user_unpacks_as_that_user() {
    let root = Root::new();
    sample(&root);
    let made = tar(&root, &["-f", "-"]);
    fs::create_dir(root.at("home")).unwrap();
    std::os::unix::fs::chown(root.at("home"), Some(1000), Some(1000)).unwrap();
    let mut worker = root.call_as(1000, write_tree_call(b"/home/out"));
    worker.send(&made);
    worker.finish();
    worker.done();
    let meta = fs::metadata(root.at("home/out/closed/f")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (1000, 1000));
    assert_eq!(
        fs::metadata(root.at("home/out/closed")).unwrap().mode() & 0o7777,
        0o555
    );
}

#[test]
fn what_is_there_is_merged_with() {
    let root = Root::new();
    root.file("out/lib/old", b"old");
    root.file("out/f", b"old");
    symlink("lib", root.at("out/l")).unwrap();
    symlink("/lib", root.at("out/g")).unwrap();
    fs::set_permissions(root.at("out"), fs::Permissions::from_mode(0o1777)).unwrap();
    let entries = [
        header(b"./", b'5', 0, b""),
        header(b"l/", b'5', 0, b""),
        file(b"l/new", b"new"),
        file(b"f", b"new"),
        file(b"g", b"a file in the place of a link"),
    ];
    root.write_tree(b"/out", &archive(&entries)).unwrap();
    assert_eq!(root.names("out"), ["f", "g", "l", "lib"]);
    assert_eq!(root.names("out/lib"), ["new", "old"]);
    assert_eq!(fs::read(root.at("out/f")).unwrap(), b"new");
    assert!(fs::symlink_metadata(root.at("out/l")).unwrap().is_symlink());
    assert!(fs::symlink_metadata(root.at("out/g")).unwrap().is_file());
    assert_eq!(
        fs::metadata(root.at("out")).unwrap().mode() & 0o7777,
        0o1777
    );
}

#[test]
fn names_that_lead_out_are_refused_and_nothing_stays() {
    let root = Root::new();
    root.file("etc/passwd", b"root");
    let good = file(b"good", b"x");
    for bad in [
        vec![file(b"/etc/passwd", b"x")],
        vec![file(b"../etc/passwd", b"x")],
        vec![file(b"a/../../etc/passwd", b"x")],
        vec![header(b"hard", b'1', 0, b"/etc/passwd")],
        vec![header(b"hard", b'1', 0, b"../etc/passwd")],
        vec![header(b"l", b'2', 0, b"/etc"), file(b"l/passwd", b"x")],
        vec![header(b"l", b'2', 0, b"../etc"), file(b"l/passwd", b"x")],
        vec![header(b"l", b'2', 0, b"/etc"), header(b"l/", b'5', 0, b"")],
        vec![
            header(b"l", b'2', 0, b"/etc"),
            header(b"hard", b'1', 0, b"l/passwd"),
        ],
        vec![
            header(b"l", b'2', 0, b".."),
            header(b"m", b'2', 0, b"l/etc"),
            file(b"m/x", b"x"),
        ],
    ] {
        let entries = [vec![good.clone()], bad].concat();
        assert_eq!(reason(&root, &entries), "PATH_LEAVES_ROOT");
        assert_eq!(root.names("/"), ["etc"]);
        assert_eq!(root.names("etc"), ["passwd"]);
        assert_eq!(fs::read(root.at("etc/passwd")).unwrap(), b"root");
    }
}

#[test]
fn a_file_through_a_link_replaces_the_link() {
    let root = Root::new();
    root.file("etc/passwd", b"root");
    let entries = [header(b"l", b'2', 0, b"/etc/passwd"), file(b"l", b"x")];
    root.write_tree(b"/out", &archive(&entries)).unwrap();
    assert_eq!(fs::read(root.at("etc/passwd")).unwrap(), b"root");
    assert_eq!(fs::read(root.at("out/l")).unwrap(), b"x");
}

#[test]
fn a_swapped_link_never_leads_out() {
    let root = Root::new();
    fs::create_dir_all(root.at("outside")).unwrap();
    fs::create_dir_all(root.at("out/real")).unwrap();
    let made = archive(
        &(0..50)
            .map(|i| file(format!("l/f{i}").as_bytes(), b"x"))
            .collect::<Vec<_>>(),
    );
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                symlink(["/outside", "real", "../outside"][i % 3], root.at("next")).unwrap();
                let _ = fs::rename(root.at("next"), root.at("out/l"));
                let _ = fs::remove_file(root.at("next"));
            }
        });
        for _ in 0..100 {
            if let Err(error) = root.write_tree(b"/out", &made) {
                assert!(
                    ["PATH_LEAVES_ROOT", "NOT_A_DIRECTORY"].contains(&&*error.reason),
                    "{error:?}"
                );
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(root.names("outside").is_empty());
}

#[test]
fn what_is_not_unpacked_is_refused_by_name() {
    let root = Root::new();
    make_device(&root.at("null"));
    for (kind, word) in [
        (b'3', "device"),
        (b'4', "device"),
        (b'S', "sparse"),
        (b'M', "type"),
    ] {
        let error = root
            .write_tree(b"/out", &archive(&[header(b"odd", kind, 0, b"")]))
            .unwrap_err();
        assert_eq!(error.reason, "ARCHIVE_INVALID");
        assert!(
            error.message.contains("\"odd\"") && error.message.contains(word),
            "{}",
            error.message
        );
    }
    assert_eq!(
        reason(&root, &[header(b"h", b'1', 0, b"nothing")]),
        "ARCHIVE_INVALID"
    );
    assert_eq!(
        reason(&root, &[header(b"l", b'2', 0, b"")]),
        "ARCHIVE_INVALID"
    );
    assert_eq!(
        reason(
            &root,
            &[
                file(&[b'n'; 100], b""),
                header(b"d", b'5', 0, b""),
                file(b"d", b"")
            ]
        ),
        "IS_A_DIRECTORY"
    );
    assert_eq!(
        reason(&root, &[file(b"f", b""), file(b"f/x", b"")]),
        "NOT_A_DIRECTORY"
    );
    assert_eq!(root.names("/"), ["null"]);
}

#[test]
fn an_archive_cut_short_or_damaged_is_refused_by_entry() {
    let root = Root::new();
    let whole = archive(&[file(b"first", &[1; 3000]), file(b"second", &[2; 3000])]);
    for length in [0, 100, 512, 1000, 3584, 3600, 4096, 5000, 7168] {
        let error = root.write_tree(b"/out", &whole[..length]).unwrap_err();
        assert_eq!(error.reason, "ARCHIVE_INVALID", "{length}");
        assert!(root.names("/").is_empty(), "{length}");
    }
    let error = root.write_tree(b"/out", &whole[..5000]).unwrap_err();
    assert!(error.message.contains("\"second\""), "{}", error.message);
    let mut damaged = whole.clone();
    damaged[3584] ^= 1;
    let error = root.write_tree(b"/out", &damaged).unwrap_err();
    assert!(
        error.message.contains("entry 2 at byte 3584"),
        "{}",
        error.message
    );
    let error = root
        .write_tree(b"/out", &[&b"\x1f\x8b\x08"[..], &[0; 600]].concat())
        .unwrap_err();
    assert!(error.message.contains("gzip"), "{}", error.message);
    // In a directory that was there, half a file does not stay.
    fs::create_dir(root.at("out")).unwrap();
    root.write_tree(b"/out", &whole[..5000]).unwrap_err();
    assert_eq!(root.names("out"), ["first"]);
}

#[test]
fn beyond_a_limit_is_refused() {
    let root = Root::new();
    let long = |bytes: usize, kind| {
        let name = vec![b'n'; bytes];
        let mut entry = header(b"././@LongLink", kind, name.len() as u64, b"");
        entry.extend_from_slice(&name);
        entry.resize(entry.len().div_ceil(512) * 512, 0);
        entry
    };
    assert_eq!(
        reason(&root, &[long(5000, b'L'), file(b"f", b"")]),
        "ARCHIVE_LIMIT"
    );
    assert_eq!(
        reason(&root, &[header(b"x", b'x', 2 << 20, b"")]),
        "ARCHIVE_LIMIT"
    );
    assert_eq!(
        reason(&root, &[long(300, b'L'), file(b"f", b"")]),
        "INVALID_PATH"
    );
    let deep = b"d/".repeat(1500);
    let mut entry = header(b"././@LongLink", b'L', deep.len() as u64, b"");
    entry.extend_from_slice(&deep);
    entry.resize(entry.len().div_ceil(512) * 512, 0);
    assert_eq!(reason(&root, &[entry, file(b"f", b"")]), "ARCHIVE_LIMIT");
    // A size that nobody sends.
    let error = root
        .write_tree(b"/out", &header(b"bomb", b'0', 0o77777777777, b""))
        .unwrap_err();
    assert_eq!(error.reason, "ARCHIVE_INVALID");
    assert!(root.names("/").is_empty());
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let mut root = Root::new();
    root.tmpfs("small", "size=1m");
    let made = archive(&[
        file(b"a", &vec![1; 300_000]),
        file(b"b", &vec![1; 3_000_000]),
    ]);
    let error = root.write_tree(b"/small/out", &made).unwrap_err();
    assert_eq!(error.reason, "DISK_FULL");
    assert!(error.message.contains("\"b\""), "{}", error.message);
    assert!(root.names("small").is_empty());
}

#[test]
fn a_connection_that_breaks_leaves_nothing_of_a_new_tree() {
    let root = Root::new();
    let whole = archive(&[file(b"first", &[1; 3000]), file(b"second", &[2; 3000])]);
    let mut worker = root.call(write_tree_call(b"/out"));
    worker.send(&whole[..5000]);
    worker.stream.shutdown(std::net::Shutdown::Both).unwrap();
    worker.end();
    assert!(root.names("/").is_empty());
    root.file("file", b"");
    let mut worker = root.call(write_tree_call(b"/file"));
    assert!(matches!(worker.reply(), Reply::Error(error) if error.reason == "NOT_A_DIRECTORY"));
}
