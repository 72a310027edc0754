//! Several inputs are one tree, as OCI layers applied one after the other are.
mod common;

use common::*;
use mklayer::limits::Limits;
use mklayer::Whiteouts;
use std::fs;
use std::path::Path;

/// Applies a layer to `merged` as GNU tar would, after the whiteouts' removals.
fn apply_by_hand(merged: &Path, layer: &Path) {
    let script = r#"
        cd "$MERGED"
        tar -tf "$LAYER" | while read -r name; do
            base=$(basename "$name"); dir=$(dirname "$name")
            case "$base" in
                .wh..wh..opq) [ -d "$dir" ] && find "$dir" -mindepth 1 -delete;;
                .wh.*) rm -rf "$dir/${base#.wh.}";;
                *) case "$name" in */) ;; *) if [ -d "$name" ]; then rm -rf "$name"; fi;; esac;;
            esac
        done
        tar --xattrs --xattrs-include='*' --acls -p --numeric-owner --exclude='.wh.*' -xf "$LAYER"
    "#;
    let script = script
        .replace("$MERGED", merged.to_str().unwrap())
        .replace("$LAYER", layer.to_str().unwrap());
    sh(merged, &script);
}

fn layer(scratch: &Scratch, number: usize, script: &str) -> Vec<u8> {
    let tree = scratch.dir(&format!("layer-{number}"));
    sh(&tree, script);
    sh(&tree, "find . -depth -exec touch -h -d @1700000000 {} +");
    tar(&tree, "--format=pax --sort=name")
}

/// Builds the layers both ways and compares.
fn same_as_by_hand(scripts: &[&str]) {
    let scratch = Scratch::new();
    let archives: Vec<Vec<u8>> = scripts
        .iter()
        .enumerate()
        .map(|(i, s)| layer(&scratch, i, s))
        .collect();
    let merged = scratch.dir("merged");
    for (i, archive) in archives.iter().enumerate() {
        let file = scratch.0.join(format!("{i}.tar"));
        fs::write(&file, archive).unwrap();
        apply_by_hand(&merged, &file);
    }
    let out = scratch.dir("out");
    mklayer_in(&out, archives, Whiteouts::Bottom, Limits::default()).unwrap();
    fsck(&out);
    let mounted = Mounted::new(&out, scratch.0.join("mnt"));
    assert_same(&merged, &mounted.0);
}

#[test]
fn whiteouts_opaque_directories_and_replacements() {
    if !root() {
        return;
    }
    same_as_by_hand(&[
        r#"
        mkdir -p etc opt/old/deep usr/bin var/lib srv
        echo one > etc/one; echo two > etc/two; ln etc/two etc/two-again; echo x > opt/old/deep/x
        echo tool > usr/bin/tool; ln -s usr/bin bin; echo d > var/lib/data; echo f > srv/f; mkdir kept; echo k > kept/k
        "#,
        r#"
        mkdir -p etc opt/old var srv
        : > etc/.wh.one; : > opt/old/.wh..wh..opq; echo new > opt/old/new; echo changed > etc/two
        echo now-a-file > var/lib; : > srv/.wh.f; mkdir srv/f; echo in > srv/f/in
        "#,
        r#"
        mkdir -p etc opt; : > .wh.kept; echo again > etc/one; chmod 700 opt; : > etc/.wh.not-there; mkdir kept2
        "#,
    ]);
}

#[test]
fn hard_links_to_lower_layers_and_entries_below_links() {
    if !root() {
        return;
    }
    let scratch = Scratch::new();
    let first = layer(&scratch, 0, "mkdir -p usr/lib; echo a > usr/lib/a; ln -s usr/lib lib; ln -s /usr/lib abs; ln -s ../../.. usr/up");
    // The second names a file of the first as a hard link's target, and files behind its links.
    let second = sh(
        &scratch.dir("second"),
        r#"
        mkdir -p usr/lib lib abs usr/up; echo old > usr/lib/a; ln usr/lib/a linked
        echo b > lib/b; echo c > abs/c; echo top > usr/up/top
        tar --format=pax -cf all.tar usr/lib/a linked lib/b abs/c usr/up/top
        tar --delete -f all.tar usr/lib/a; cat all.tar
        "#,
    );
    let out = scratch.dir("out");
    mklayer_in(
        &out,
        vec![first, second],
        Whiteouts::Bottom,
        Limits::default(),
    )
    .unwrap();
    fsck(&out);
    let mounted = Mounted::new(&out, scratch.0.join("mnt"));
    let seen = sh(
        &mounted.0,
        "cat linked usr/lib/b usr/lib/c top; stat -c %h linked usr/lib/a; readlink lib abs",
    );
    assert_eq!(
        String::from_utf8(seen).unwrap(),
        "a\nb\nc\ntop\n2\n2\nusr/lib\n/usr/lib\n"
    );
}

/// `upper` alone, with its whiteouts kept, over `lower` in an overlay.
fn overlaid(lower: &[&str], upper: &[&str], whiteouts: Whiteouts, look: &str) -> String {
    let scratch = Scratch::new();
    let mut mounts = Vec::new();
    for (name, scripts, mode) in [
        ("lower", lower, Whiteouts::Bottom),
        ("upper", upper, whiteouts),
    ] {
        let archives = scripts
            .iter()
            .enumerate()
            .map(|(i, s)| layer(&scratch, i + name.len() * mounts.len(), s))
            .collect();
        let out = scratch.dir(name);
        mklayer_in(&out, archives, mode, Limits::default()).unwrap();
        fsck(&out);
        mounts.push(Mounted::new(&out, scratch.0.join(format!("{name}-mnt"))));
    }
    let at = scratch.dir("overlay");
    let options = format!(
        "lowerdir={}:{}",
        mounts[1].0.display(),
        mounts[0].0.display()
    );
    sh(
        &at,
        &format!("mount -t overlay overlay -o {options} {}", at.display()),
    );
    let over = Mounted(at.clone());
    let seen = sh(&at, look);
    drop(over);
    String::from_utf8(seen).unwrap()
}

#[test]
fn a_layer_that_stands_above_others_hides_what_is_below() {
    if !root() {
        return;
    }
    let lower = "mkdir -p a b c/d; echo 1 > a/gone; echo 2 > a/stays; echo 3 > b/hidden; echo 4 > c/d/e; echo 5 > plain";
    let upper = "mkdir -p a b c; : > a/.wh.gone; : > b/.wh..wh..opq; echo n > b/new; : > c/.wh.d; mkdir c/d; echo f > c/d/f; : > .wh.plain";
    let look = "find . -type f | sort";
    for mode in [Whiteouts::Between, Whiteouts::Upper] {
        assert_eq!(
            overlaid(&[lower], &[upper], mode, look),
            "./a/stays\n./b/new\n./c/d/f\n"
        );
    }
    // A whiteout that hides something of its own run must still hide what is below it.
    let both = ["mkdir a; echo mine > a/gone", "mkdir a; : > a/.wh.gone"];
    assert_eq!(
        overlaid(&[lower], &both, Whiteouts::Upper, "find a -type f"),
        "a/stays\n"
    );
}

#[test]
fn plain_archives_have_no_whiteouts_and_bases_keep_none() {
    if !root() {
        return;
    }
    let scratch = Scratch::new();
    let archive = layer(
        &scratch,
        0,
        "mkdir d; echo x > d/.wh.name; : > d/.wh..wh..opq",
    );
    for (mode, wanted) in [
        (Whiteouts::Plain, "d\nd/.wh..wh..opq\nd/.wh.name\n"),
        (Whiteouts::Bottom, "d\n"),
    ] {
        let out = scratch.dir("out");
        mklayer_in(&out, vec![archive.clone()], mode, Limits::default()).unwrap();
        let mounted = Mounted::new(&out, scratch.0.join("mnt"));
        assert_eq!(
            String::from_utf8(sh(&mounted.0, "find * | LC_ALL=C sort")).unwrap(),
            wanted
        );
        assert_eq!(
            get_xattr(&mounted.0.join("d"), "trusted.overlay.opaque"),
            None
        );
    }
}

#[test]
fn attributes_that_steer_overlayfs_are_dropped() {
    if !root() {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    sh(&tree, "mkdir d");
    set_xattr(&tree.join("d"), "trusted.overlay.redirect", b"/etc");
    set_xattr(&tree.join("d"), "trusted.overlay.opaque", b"y");
    set_xattr(&tree.join("d"), "user.overlay.metacopy", b"");
    set_xattr(&tree.join("d"), "user.fine", b"1");
    mklayer_in(
        &scratch.0,
        vec![tar(&tree, "--format=pax")],
        Whiteouts::Plain,
        Limits::default(),
    )
    .unwrap();
    let mounted = Mounted::new(&scratch.0, scratch.0.join("mnt"));
    let dir = mounted.0.join("d");
    assert_eq!(get_xattr(&dir, "trusted.overlay.redirect"), None);
    assert_eq!(get_xattr(&dir, "user.overlay.metacopy"), None);
    assert_eq!(
        get_xattr(&dir, "trusted.overlay.opaque").as_deref(),
        Some(b"y".as_slice())
    );
    assert_eq!(
        get_xattr(&dir, "user.fine").as_deref(),
        Some(b"1".as_slice())
    );
}

#[test]
fn data_of_files_that_are_gone_is_not_kept() {
    let scratch = Scratch::new();
    let first = layer(
        &scratch,
        0,
        "head -c 3000000 /dev/urandom > big; seq 1 9000 > kept; seq 1 9001 > changed",
    );
    let second = layer(&scratch, 1, ": > .wh.big; seq 1 9002 > changed");
    let out = scratch.dir("out");
    let built = mklayer_in(
        &out,
        vec![first, second],
        Whiteouts::Bottom,
        Limits::default(),
    )
    .unwrap();
    assert_eq!(built.data_bytes, 2 * 45_056);
    assert_eq!(
        fs::metadata(out.join("data")).unwrap().len(),
        built.data_bytes
    );
    let sum = String::from_utf8(sh(&out, "sha256sum < data")).unwrap();
    assert!(sum.starts_with(&built.data_sha256));
    if root() {
        let mounted = Mounted::new(&out, scratch.0.join("mnt"));
        let seen = sh(
            &mounted.0,
            "seq 1 9000 | cmp - kept; seq 1 9002 | cmp - changed; ls",
        );
        assert_eq!(seen, b"changed\nkept\n");
    }
}
