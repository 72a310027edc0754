//! A tree packed by GNU tar, made a layer and mounted by the kernel is the same tree.
mod common;

use common::*;
use mklayer::limits::Limits;
use mklayer::Whiteouts;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NO_ID: u32 = u32::MAX;

/// One of everything.
fn plenty(tree: &Path) {
    sh(
        tree,
        r#"
        mkdir -p a/b/c bin empty many sticky
        echo hello > a/hello; ln a/hello a/again; ln a/hello bin/third
        ln -s ../a/hello bin/link; ln -s /absolute/../x bin/outside; ln -s "$(printf 'x%.0s' $(seq 1 4000))" longlink
        mknod a/null c 1 3; mknod a/wide b 300 70000; mkfifo a/fifo
        head -c 3000000 /dev/urandom > a/big; cp a/big a/copy; : > a/nothing
        head -c 4096 /dev/urandom > one-block; head -c 4097 /dev/urandom > one-more
        cp /bin/true bin/caps; chmod 4755 bin/caps; chmod 1777 sticky; chmod 2070 a/b
        chown 100000:70000 a/hello; chown -h 4294967294:4294967294 bin/link
        for i in $(seq 1 2000); do echo $i > many/file-$i; done
        touch "$(printf 'new\nline')" 'quo"te' $'not\xffutf8' "$(printf 'n%.0s' $(seq 1 255))" '!first' ' ' ./-dash
        touch -d '1960-01-01 00:00:00.123456789 UTC' a/nothing; touch -d '2400-01-01 00:00:00.5 UTC' a/b
        "#,
    );
    set_xattr(&tree.join("a/hello"), "user.name", b"a value\0with=all\n");
    set_xattr(&tree.join("a/hello"), "user.empty", b"");
    // ext4 keeps one block of attributes an inode.
    set_xattr(&tree.join("a/big"), "user.large", &[7u8; 3000]);
    set_xattr(&tree.join("a/b"), "trusted.thing", b"x");
    let capability = [
        1u8, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    set_xattr(&tree.join("bin/caps"), "security.capability", &capability);
    let access = acl(&[
        (1, 6, NO_ID),
        (2, 6, 1234),
        (4, 4, NO_ID),
        (16, 6, NO_ID),
        (32, 4, NO_ID),
    ]);
    set_xattr(&tree.join("a/hello"), "system.posix_acl_access", &access);
    let default = acl(&[
        (1, 7, NO_ID),
        (4, 5, NO_ID),
        (8, 5, 77),
        (16, 5, NO_ID),
        (32, 5, NO_ID),
    ]);
    set_xattr(&tree.join("a/b"), "system.posix_acl_default", &default);
}

fn round_trip(tree: &Path, options: &str) {
    let scratch = Scratch::new();
    mklayer_in(
        &scratch.0,
        vec![tar(tree, options)],
        Whiteouts::Plain,
        Limits::default(),
    )
    .unwrap();
    fsck(&scratch.0);
    let mounted = Mounted::new(&scratch.0, scratch.0.join("mnt"));
    assert_same(tree, &mounted.0);
}

#[test]
fn one_of_everything() {
    if !root() {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    plenty(&tree);
    round_trip(&tree, "--format=pax");
}

#[test]
fn the_gnu_format() {
    if !root() {
        return;
    }
    // Without attributes and fractions of a second, which it cannot say.
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    sh(
        &tree,
        r#"
        mkdir -p "$(printf 'd%.0s' $(seq 1 200))/$(printf 'e%.0s' $(seq 1 200))"
        cd d*/e*; echo x > file; cd ../..; ln d*/e*/file hard; ln -s "$(printf 't%.0s' $(seq 1 300))" soft
        chown 3000000000:4000000000 hard; find . -exec touch -h -d @100000000000 {} +
        "#,
    );
    round_trip(&tree, "--format=gnu");
    round_trip(&tree, "--format=oldgnu");
}

#[test]
fn sparse_files_of_every_form() {
    if !root() {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    sh(
        &tree,
        r#"
        truncate -s 5G large; echo mid | dd of=large bs=1 seek=3000000000 conv=notrunc status=none
        truncate -s 3M hole; truncate -s 100k tail; echo start | dd of=tail conv=notrunc status=none
        truncate -s 40M holes; for i in $(seq 0 3 38); do echo $i | dd of=holes bs=1M seek=$i conv=notrunc status=none; done
        cp --sparse=always holes copy; find . -exec touch -d @1000 {} +
        "#,
    );
    for format in [
        "gnu",
        "pax --sparse-version=0.0",
        "pax --sparse-version=0.1",
        "pax --sparse-version=1.0",
    ] {
        let out = Scratch::new();
        let built = mklayer_in(
            &out.0,
            vec![tar(&tree, &format!("-S --format={format}"))],
            Whiteouts::Plain,
            Limits::default(),
        );
        let built = built.unwrap_or_else(|f| panic!("{format}: {f:?}"));
        assert!(
            built.data_bytes < 4 << 20,
            "{format}: {} bytes of data",
            built.data_bytes
        );
        fsck(&out.0);
        let mounted = Mounted::new(&out.0, out.0.join("mnt"));
        for name in ["hole", "tail", "holes", "copy"] {
            let cmp = format!(
                "cmp {} {}",
                tree.join(name).display(),
                mounted.0.join(name).display()
            );
            sh(&out.0, &cmp);
        }
        // Of five gigabytes, the end and what lies around the data.
        let part = "tail -c +2999990001 large | head -c 20000 | sha256sum; tail -c 5000 large | sha256sum; stat -c %s large";
        assert_eq!(sh(&tree, part), sh(&mounted.0, part), "{format}");
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    sh(
        &tree,
        "mkdir d; for i in 1 2 3 4; do seq $i 20000 > d/$i; done; cp d/1 again",
    );
    let archive = tar(&tree, "--format=pax");
    let (one, two) = (scratch.dir("one"), scratch.dir("two"));
    let first = mklayer_in(
        &one,
        vec![archive.clone()],
        Whiteouts::Plain,
        Limits::default(),
    )
    .unwrap();
    let second = mklayer_in(&two, vec![archive], Whiteouts::Plain, Limits::default()).unwrap();
    assert_eq!(first.digest(), second.digest());
    for name in ["meta.erofs", "data"] {
        assert_eq!(
            fs::read(one.join(name)).unwrap(),
            fs::read(two.join(name)).unwrap()
        );
    }
    // Equal contents are there once.
    let sizes: u64 = (1..=4)
        .map(|i| {
            fs::metadata(tree.join(format!("d/{i}")))
                .unwrap()
                .len()
                .next_multiple_of(4096)
        })
        .sum();
    assert_eq!(first.data_bytes, sizes);
}

#[test]
fn a_tree_without_bytes_has_no_device() {
    if !root() {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    sh(&tree, "mkdir a; : > a/empty; truncate -s 1M hole");
    let archive = tar(&tree, "-S --format=pax");
    let built = mklayer_in(
        &scratch.0,
        vec![archive],
        Whiteouts::Plain,
        Limits::default(),
    )
    .unwrap();
    assert_eq!(built.data_bytes, 0);
    let mounted = Mounted::new(&scratch.0, scratch.0.join("mnt"));
    assert_same(&tree, &mounted.0);
}

#[test]
fn compressed_streams() {
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    sh(
        &tree,
        "seq 1 300000 > numbers; head -c 1000000 /dev/urandom > noise",
    );
    let plain = tar(&tree, "--format=pax");
    fs::write(scratch.0.join("t"), &plain).unwrap();
    let wanted = mklayer_in(&scratch.0, vec![plain], Whiteouts::Plain, Limits::default())
        .unwrap()
        .digest();
    let mut programs = vec![
        "gzip -c t",
        "head -c 700000 t | gzip -c; tail -c +700001 t | gzip -9 -c",
    ];
    if Path::new("/usr/bin/zstd").exists() {
        programs.extend([
            "zstd -qc t",
            "zstd -q --check -19 -c t",
            "head -c 9 t | zstd -qc; tail -c +10 t | zstd -qc",
        ]);
    }
    for program in programs {
        let packed = sh(&scratch.0, program);
        let built = mklayer_in(
            &scratch.0,
            vec![packed.clone()],
            Whiteouts::Plain,
            Limits::default(),
        );
        assert_eq!(
            built
                .unwrap_or_else(|f| panic!("{program}: {f:?}"))
                .digest(),
            wanted,
            "{program}"
        );
        let cut = packed[..packed.len() - 100].to_vec();
        let failure = mklayer_in(&scratch.0, vec![cut], Whiteouts::Plain, Limits::default())
            .err()
            .unwrap();
        assert_eq!(failure.reason, "ARCHIVE_INVALID", "{program}");
        let mut flipped = packed;
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x10;
        let failure = mklayer_in(
            &scratch.0,
            vec![flipped],
            Whiteouts::Plain,
            Limits::default(),
        )
        .err();
        // zstd's program writes no checksum when told so; all of these have one.
        assert_eq!(
            failure.map(|f| f.reason),
            Some("ARCHIVE_INVALID"),
            "{program}"
        );
    }
}

#[test]
fn random_trees() {
    if !root() {
        return;
    }
    let rounds = std::env::var("DSEC_TEST_ROUNDS")
        .ok()
        .and_then(|r| r.parse().ok())
        .unwrap_or(2);
    let mut random = Random(seed());
    for _ in 0..rounds {
        let scratch = Scratch::new();
        let tree = scratch.dir("tree");
        random_tree(&tree, &mut random);
        round_trip(
            &tree,
            if random.below(2) == 0 {
                "--format=pax"
            } else {
                "--format=pax -S"
            },
        );
    }
}

fn random_tree(tree: &Path, random: &mut Random) {
    let mut dirs = vec![tree.to_path_buf()];
    let mut files: Vec<PathBuf> = Vec::new();
    let mut contents: Vec<Vec<u8>> = Vec::new();
    for _ in 0..200 + random.below(300) {
        let dir = dirs[random.below(dirs.len() as u64) as usize].clone();
        let length = if random.below(5) == 0 {
            200 + random.below(55)
        } else {
            1 + random.below(12)
        };
        let name: Vec<u8> = random
            .bytes(length as usize)
            .iter()
            .map(|b| if *b == 0 || *b == b'/' { b'_' } else { *b })
            .collect();
        if name == b"." || name == b".." {
            continue;
        }
        let path = dir.join(std::ffi::OsStr::from_bytes(&name));
        if path.symlink_metadata().is_ok() || path.as_os_str().len() > 3500 {
            continue;
        }
        match random.below(10) {
            0 | 1 => {
                fs::create_dir(&path).unwrap();
                dirs.push(path.clone());
            }
            2 if !files.is_empty() => {
                fs::hard_link(&files[random.below(files.len() as u64) as usize], &path).unwrap()
            }
            3 => {
                let most = if random.below(4) == 0 { 4000 } else { 60 };
                let length = 1 + random.below(most);
                let target: Vec<u8> = random
                    .bytes(length as usize)
                    .iter()
                    .map(|b| (*b).max(1))
                    .collect();
                std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&target), &path).unwrap();
            }
            _ => {
                let size = match random.below(8) {
                    0 => 0,
                    1 => 100_000 + random.below(2_000_000),
                    _ => random.below(9000),
                };
                let content = match random.below(4) {
                    0 if !contents.is_empty() => {
                        contents[random.below(contents.len() as u64) as usize].clone()
                    }
                    1 => vec![0; size as usize],
                    _ => random.bytes(size as usize),
                };
                fs::write(&path, &content).unwrap();
                contents.push(content);
                files.push(path.clone());
            }
        }
        let owner = (
            Some(random.below(1 << 32) as u32 / 2),
            Some(random.below(100_000) as u32),
        );
        std::os::unix::fs::lchown(&path, owner.0, owner.1).unwrap();
        if !path.symlink_metadata().unwrap().is_symlink() {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(random.below(0o10000) as u32);
            fs::set_permissions(&path, mode).unwrap();
            for i in 0..random.below(4) {
                let size = random.below(600) as usize;
                set_xattr(&path, &format!("user.a{i}"), &random.bytes(size));
            }
        }
    }
}
