//! Whatever the archive says, the answer is a typed error or a layer, and nothing is left behind.
mod common;

use common::*;
use mklayer::limits::Limits;
use mklayer::Whiteouts;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const TYPED: [&str; 3] = ["ARCHIVE_INVALID", "ARCHIVE_LIMIT", "PATH_LEAVES_ROOT"];

fn sample() -> Vec<u8> {
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    sh(
        &tree,
        r#"
        mkdir -p d/e; echo x > d/x; ln d/x d/y; ln -s x d/z; seq 1 3000 > d/n; touch "$(printf 'n%.0s' $(seq 1 150))"
        truncate -s 1M s; echo y | dd of=s bs=1 seek=300000 conv=notrunc status=none; : > d/.wh.gone; : > d/e/.wh..wh..opq
        "#,
    );
    set_xattr(&tree.join("d/x"), "user.a", b"b");
    tar(&tree, "-S --format=pax")
}

#[test]
fn cut_and_flipped_archives() {
    let archive = sample();
    let scratch = Scratch::new();
    let mut random = Random(seed());
    let rounds = std::env::var("DSEC_TEST_ROUNDS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(1)
        * 400;
    let mut built = 0;
    for round in 0..rounds {
        let mut bytes = archive.clone();
        let at = random.below(bytes.len() as u64) as usize;
        match round % 4 {
            0 => bytes.truncate(at),
            // One bit anywhere; then in a header whose checksum is made right again, so that the fields are reached.
            1 => bytes[at] ^= 1 << random.below(8),
            _ => {
                let header = at / 512 * 512;
                for _ in 0..1 + random.below(3) {
                    bytes[header + random.below(512) as usize] = random.next() as u8;
                }
                mend_checksum(&mut bytes[header..header + 512]);
            }
        }
        let limits = Limits {
            max_bytes: 64 << 20,
            max_entries: 10_000,
            ..Limits::default()
        };
        match mklayer_in(&scratch.0, vec![bytes], Whiteouts::Between, limits) {
            Ok(_) => {
                built += 1;
                fsck(&scratch.0);
            }
            Err(failure) => assert!(
                TYPED.contains(&failure.reason),
                "round {round}: {failure:?}"
            ),
        }
    }
    assert!(built > 0);
}

fn mend_checksum(header: &mut [u8]) {
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// A ustar header.
fn header(name: &str, kind: u8, size: u64, link: &str) -> Vec<u8> {
    let mut block = vec![0u8; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[108..116].copy_from_slice(b"0000000\0");
    block[116..124].copy_from_slice(b"0000000\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..265].copy_from_slice(b"ustar\x0000");
    mend_checksum(&mut block);
    block
}

fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let length = (rest + 1..)
            .find(|n| n - rest == n.to_string().len())
            .unwrap();
        body.extend(format!("{length} {key}=").as_bytes());
        body.extend(*value);
        body.push(b'\n');
    }
    let mut out = header("pax", b'x', body.len() as u64, "");
    body.resize(body.len().next_multiple_of(512), 0);
    out.extend(body);
    out
}

fn reason_of(entries: &[Vec<u8>]) -> &'static str {
    let scratch = Scratch::new();
    let mut bytes = entries.concat();
    bytes.extend([0; 1024]);
    let built = mklayer_in(
        &scratch.0,
        vec![bytes],
        Whiteouts::Between,
        Limits::default(),
    );
    built.map_or_else(|failure| failure.reason, |_| "built")
}

#[test]
fn names_that_lead_out() {
    assert_eq!(
        reason_of(&[header("../x", b'0', 0, "")]),
        "PATH_LEAVES_ROOT"
    );
    assert_eq!(
        reason_of(&[header("a/../../x", b'0', 0, "")]),
        "PATH_LEAVES_ROOT"
    );
    assert_eq!(
        reason_of(&[header("/etc/passwd", b'0', 0, "")]),
        "PATH_LEAVES_ROOT"
    );
    assert_eq!(
        reason_of(&[header("x", b'0', 0, ""), header("h", b'1', 0, "../x")]),
        "PATH_LEAVES_ROOT"
    );
    assert_eq!(
        reason_of(&[pax(&[("path", b"/abs")]), header("x", b'0', 0, "")]),
        "PATH_LEAVES_ROOT"
    );
    // A link's target is only data, and what is put behind it stays inside.
    assert_eq!(
        reason_of(&[header("l", b'2', 0, "../../.."), header("l/x", b'0', 0, "")]),
        "built"
    );
}

#[test]
fn names_and_fields_that_cannot_be() {
    assert_eq!(
        reason_of(&[pax(&[("path", b"a\0b")]), header("x", b'0', 0, "")]),
        "ARCHIVE_INVALID"
    );
    assert_eq!(
        reason_of(&[pax(&[("path", &[b'n'; 256])]), header("x", b'0', 0, "")]),
        "ARCHIVE_INVALID"
    );
    assert_eq!(
        reason_of(&[pax(&[("path", &[b'n'; 255])]), header("x", b'0', 0, "")]),
        "built"
    );
    assert_eq!(
        reason_of(&[pax(&[("uid", b"4294967296")]), header("x", b'0', 0, "")]),
        "ARCHIVE_INVALID"
    );
    assert_eq!(
        reason_of(&[header("x", b'0', 0, ""), header("h", b'1', 0, "none")]),
        "ARCHIVE_INVALID"
    );
    assert_eq!(
        reason_of(&[header("d", b'5', 0, ""), header("h", b'1', 0, "d")]),
        "ARCHIVE_INVALID"
    );
    assert_eq!(
        reason_of(&[
            header("a", b'2', 0, "b"),
            header("b", b'2', 0, "a"),
            header("a/x", b'0', 0, "")
        ]),
        "ARCHIVE_INVALID"
    );
    assert_eq!(reason_of(&[header("x", b'Q', 0, "")]), "ARCHIVE_INVALID");
    assert_eq!(reason_of(&[header(".", b'0', 0, "")]), "ARCHIVE_INVALID");
    assert_eq!(reason_of(&[header("x", b'0', 5000, "")]), "ARCHIVE_INVALID");
    assert_eq!(reason_of(&[]), "built");
    // A directory as it was written before ustar, with things in it.
    assert_eq!(
        reason_of(&[
            header("d/", 0, 0, ""),
            header("d/x", b'0', 0, ""),
            header("h", b'1', 0, "d")
        ]),
        "ARCHIVE_INVALID"
    );
    let map = [
        ("GNU.sparse.size", b"10".as_slice()),
        ("GNU.sparse.map", b"0,5,3,5"),
    ];
    assert_eq!(
        reason_of(&[pax(&map), header("x", b'0', 10, ""), vec![0; 512]]),
        "ARCHIVE_INVALID"
    );
    let huge = [
        ("GNU.sparse.size", b"9223372036854775807".as_slice()),
        ("GNU.sparse.map", b"0,0"),
    ];
    assert_eq!(
        reason_of(&[pax(&huge), header("x", b'0', 0, "")]),
        "ARCHIVE_LIMIT"
    );
}

fn mklayer(out: &Path, options: &str, input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mklayer"))
        .arg("--out")
        .arg(out)
        .args(options.split_whitespace())
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn refused(options: &str, input: &[u8], reason: &str) {
    let scratch = Scratch::new();
    let out = mklayer(&scratch.0, options, input);
    let complaint = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{options}: {complaint}");
    assert!(
        complaint.starts_with(&format!("{{\"reason\":\"{reason}\",\"message\":\"")),
        "{options}: {complaint}"
    );
    assert_eq!(complaint.matches('\n').count(), 1);
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0, "{options}");
}

#[test]
fn limits_leave_nothing_behind() {
    let scratch = Scratch::new();
    let bomb = sh(&scratch.0, "truncate -s 200M z; tar -c z | gzip -9c");
    refused("", &bomb, "ARCHIVE_LIMIT");
    refused(
        "--max-ratio 2000 --max-bytes 100000000",
        &bomb,
        "ARCHIVE_LIMIT",
    );
    let many = sh(
        &scratch.0,
        "mkdir many; cd many; seq 1 500 | xargs touch; tar -c .",
    );
    refused("--max-entries 400", &many, "ARCHIVE_LIMIT");
    let deep = sh(
        &scratch.0,
        "p=deep; for i in $(seq 1 30); do p=$p/d; done; mkdir -p $p; tar -c deep",
    );
    refused("--max-depth 20", &deep, "ARCHIVE_LIMIT");
    refused(
        "",
        b"not a tar at all, but long enough to be looked at"
            .repeat(30)
            .as_slice(),
        "ARCHIVE_INVALID",
    );
    refused("", b"", "ARCHIVE_INVALID");
    refused("", &many[..many.len() / 2], "ARCHIVE_INVALID");
    // Hostile sizes do not become zeros on the disk: one byte in each of many chunks.
    let segments: Vec<String> = (0..2000u64).map(|i| format!("{},1", i << 32)).collect();
    let map = segments.join(",");
    let records = [
        ("GNU.sparse.size", b"8589934592001".as_slice()),
        ("GNU.sparse.map", map.as_bytes()),
    ];
    let mut wide = [pax(&records), header("x", b'0', 2000, ""), vec![1; 2048]].concat();
    wide.extend([0; 1024]);
    refused("--max-bytes 100000000", &wide, "ARCHIVE_LIMIT");
}

#[test]
fn it_can_do_nothing_but_read_and_write() {
    let scratch = Scratch::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mklayer"))
        .args(["--max-seconds", "30", "--out"])
        .arg(&scratch.0)
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&header("x", b'0', 100_000, "")).unwrap();
    let worker = loop {
        let children =
            fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
        if let Some(pid) = children.split_whitespace().next() {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            if status.contains("Seccomp:\t2") {
                break pid.to_owned();
            }
        }
        std::thread::yield_now();
    };
    let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"));
    let limits = fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
    let open_files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    assert_eq!(open_files.split_whitespace().nth(3), Some("0"));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 3);
    // Ended in the middle, it takes its files and its worker along.
    // SAFETY: signals the child started above, which has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut complaint = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut complaint)
        .unwrap();
    assert!(complaint.contains("CANCELLED"), "{complaint}");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
    assert!(!Path::new(&format!("/proc/{worker}")).exists());
}

#[test]
fn a_reader_that_gets_nothing_ends_with_its_time() {
    let scratch = Scratch::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mklayer"))
        .args(["--max-seconds", "1", "--out"])
        .arg(&scratch.0)
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _held = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut complaint = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut complaint)
        .unwrap();
    assert!(complaint.contains("ARCHIVE_LIMIT"), "{complaint}");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn large_images_are_split_where_asked() {
    let scratch = Scratch::new();
    let mut inputs = String::new();
    for i in 0..3 {
        sh(
            &scratch.0,
            &format!("head -c 1000000 /dev/urandom > {i}; tar -cf {i}.tar {i}"),
        );
        inputs += &format!(" {i}.tar");
    }
    let mklayer = env!("CARGO_BIN_EXE_mklayer");
    let said = sh(
        &scratch.0,
        &format!("mkdir out; {mklayer} --out out --collapse-bytes 1500000 {inputs}"),
    );
    assert!(String::from_utf8(said)
        .unwrap()
        .trim_end()
        .ends_with("\"inputs\":2}"));
}
