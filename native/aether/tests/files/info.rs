use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, PermissionsExt};

use wire::aether_request::Call;
use wire::{FileType, ListDirectoryRequest, StatRequest};

use crate::support::Root;

#[test]
fn stat_describes_each_kind() {
    let root = Root::new();
    let file = root.file("d/f", b"12345");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6751)).unwrap();
    symlink("d/f", root.at("l")).unwrap();
    let info = root.stat(b"/d/f", false);
    assert_eq!(
        (info.name.as_slice(), info.size_bytes, info.mode),
        (&b"/d/f"[..], 5, 0o6751)
    );
    assert_eq!(info.r#type(), FileType::File);
    assert!(info.modified_at_ms > 1_600_000_000_000);
    assert_eq!(root.stat(b"/d/", false).r#type(), FileType::Directory);
    assert_eq!(root.stat(b"/", false).r#type(), FileType::Directory);
    assert_eq!(root.stat(b"d/..", false).r#type(), FileType::Directory);
    let link = root.stat(b"/l", false);
    assert_eq!(
        (link.r#type(), link.link_target.as_slice()),
        (FileType::Symlink, &b"d/f"[..])
    );
    let target = root.stat(b"/l", true);
    assert_eq!((target.r#type(), target.size_bytes), (FileType::File, 5));
}

#[test]
fn bad_paths_have_their_reasons() {
    let root = Root::new();
    root.file("f", b"");
    symlink("loop", root.at("loop")).unwrap();
    symlink("/../../../../etc/passwd", root.at("out")).unwrap();
    let reason = |path: &[u8], follow| {
        let ask = StatRequest {
            path: path.to_vec(),
            follow,
            ..StatRequest::default()
        };
        root.call(Call::Stat(ask)).reason()
    };
    assert_eq!(reason(b"", false), "INVALID_PATH");
    assert_eq!(reason(b"/a\0b", false), "INVALID_PATH");
    assert_eq!(reason(&[b'a'; 256], false), "INVALID_PATH");
    assert_eq!(reason(&b"/a".repeat(2049), false), "INVALID_PATH");
    assert_eq!(reason(b"/nothing", false), "FILE_NOT_FOUND");
    assert_eq!(reason(b"/f/below", false), "NOT_A_DIRECTORY");
    assert_eq!(reason(b"/../etc/passwd", false), "PATH_LEAVES_ROOT");
    assert_eq!(reason(b"a/../../etc", false), "PATH_LEAVES_ROOT");
    assert_eq!(reason(b"/loop", true), "FILE_FAILED");
    // A link is resolved inside the root, where there is no such file.
    assert_eq!(reason(b"/out", true), "FILE_NOT_FOUND");
}

#[test]
fn an_error_names_the_path_escaped() {
    let root = Root::new();
    let ask = StatRequest {
        path: b"/a\n\"\xff".to_vec(),
        ..StatRequest::default()
    };
    let error = root.call(Call::Stat(ask)).error();
    assert_eq!(
        error.message,
        r#"stat "/a\n\"\xff": there is no such file or directory"#
    );
}

#[test]
fn a_list_is_sorted_and_comes_in_pages() {
    let root = Root::new();
    fs::create_dir(root.at("d")).unwrap();
    let mut names: Vec<Vec<u8>> = (0..25).map(|i| format!("n{i}").into_bytes()).collect();
    names.extend([
        b"\xff\xfe".to_vec(),
        b"new\nline".to_vec(),
        b"\"q".to_vec(),
        vec![b'x'; 255],
    ]);
    for name in &names {
        fs::write(root.at("d").join(std::ffi::OsStr::from_bytes(name)), b"").unwrap();
    }
    names.sort();
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let page = root.list(b"/d", 4, &token);
        assert!(page.entries.len() <= 4);
        found.extend(page.entries.into_iter().map(|entry| entry.name));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(found, names);
    assert_eq!(root.list(b"/d", 0, "").entries.len(), names.len());
}

#[test]
fn a_page_of_long_names_fits_one_frame() {
    let root = Root::new();
    fs::create_dir(root.at("d")).unwrap();
    for i in 0..5000 {
        fs::write(root.at("d").join(format!("{i:0>255}")), b"").unwrap();
    }
    let mut count = 0;
    let mut token = String::new();
    loop {
        let page = root.list(b"/d", 10_000, &token);
        count += page.entries.len();
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(count, 5000);
}

#[test]
fn a_list_of_what_is_none_fails() {
    let root = Root::new();
    root.file("f", b"");
    let reason = |path: &[u8], token: &str| {
        let ask = ListDirectoryRequest {
            path: path.to_vec(),
            page_token: token.into(),
            ..ListDirectoryRequest::default()
        };
        root.call(Call::ListDirectory(ask)).reason()
    };
    assert_eq!(reason(b"/f", ""), "NOT_A_DIRECTORY");
    assert_eq!(reason(b"/x", ""), "FILE_NOT_FOUND");
    assert_eq!(reason(b"/", "xyz"), "INVALID_ARGUMENT");
}
