use std::fs;
use std::os::unix::fs::{symlink, FileExt, PermissionsExt};
use std::os::unix::net::UnixListener;

use wire::aether_reply::Result as Reply;
use wire::aether_request::Call;
use wire::AetherReadFile;

use crate::support::{make_device, make_fifo, read_call, Root};

fn part(root: &Root, path: &[u8], offset: u64, length: u64) -> Vec<u8> {
    let ask = AetherReadFile {
        path: path.to_vec(),
        offset,
        length,
        ..AetherReadFile::default()
    };
    let mut worker = root.call(Call::ReadFile(ask));
    assert!(matches!(worker.reply(), Reply::Stat(_)));
    worker.contents()
}

#[test]
fn contents_come_back_as_they_are() {
    let root = Root::new();
    let bytes: Vec<u8> = (0..3_000_001u32).map(|i| (i * 7 + i / 256) as u8).collect();
    root.file("f", &bytes);
    root.file("empty", b"");
    symlink("f", root.at("l")).unwrap();
    assert!(root.read(b"/f") == bytes);
    assert!(root.read(b"l") == bytes);
    assert_eq!(root.read(b"/empty"), b"");
    assert_eq!(part(&root, b"/f", 1000, 5), &bytes[1000..1005]);
    assert!(part(&root, b"/f", 2_999_990, 0) == bytes[2_999_990..]);
    assert_eq!(part(&root, b"/f", 3_000_000, 9), &bytes[3_000_000..]);
    assert_eq!(part(&root, b"/f", 3_000_001, 0), b"");
    assert_eq!(part(&root, b"/f", u64::MAX, u64::MAX), b"");
}

#[test]
fn what_is_no_file_is_told_and_does_not_wait() {
    let root = Root::new();
    make_fifo(&root.at("fifo"));
    make_device(&root.at("null"));
    fs::create_dir(root.at("d")).unwrap();
    let _listener = UnixListener::bind(root.at("s")).unwrap();
    let reason = |path: &[u8]| root.call(read_call(path)).reason();
    assert_eq!(reason(b"/fifo"), "FILE_FAILED");
    assert_eq!(reason(b"/null"), "FILE_FAILED");
    assert_eq!(reason(b"/s"), "FILE_FAILED");
    assert_eq!(reason(b"/d"), "IS_A_DIRECTORY");
    assert_eq!(reason(b"/x"), "FILE_NOT_FOUND");
}

#[test]
fn another_user_may_not_read() {
    let root = Root::new();
    let secret = root.file("secret", b"s");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        root.call_as(12345, read_call(b"/secret")).reason(),
        "FILE_PERMISSION"
    );
}

#[test]
fn files_of_the_kernel_have_contents() {
    let root = Root::new();
    // Of /proc the size is 0; of /sys it is 4096, whatever is in it.
    for (source, start) in [
        (c"/proc/version", "Linux version"),
        (c"/sys/kernel/fscaps", "1\n"),
    ] {
        root.file("f", b"");
        let target = std::ffi::CString::new(root.at("f").to_str().unwrap()).unwrap();
        let none = std::ptr::null();
        // SAFETY: strings that end with NUL.
        let result = unsafe {
            libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                none,
                libc::MS_BIND,
                none.cast(),
            )
        };
        assert_eq!(result, 0);
        let mut worker = root.call(read_call(b"/f"));
        let stat = worker.reply();
        let contents = worker.contents();
        // SAFETY: a string that ends with NUL.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
        assert!(contents.starts_with(start.as_bytes()), "{source:?}");
        assert!(matches!(stat, Reply::Stat(stat) if stat.file.clone().unwrap().size_bytes == 0));
    }
}

#[test]
fn a_sparse_file_of_5_gib_reads_as_zeros() {
    let root = Root::new();
    let file = fs::File::create(root.at("big")).unwrap();
    file.set_len(5 << 30).unwrap();
    file.write_all_at(b"end", (5 << 30) - 3).unwrap();
    // From beyond 4 GiB on: the rest of the way is the same, only longer.
    let offset = (5 << 30) - (200 << 20);
    let ask = AetherReadFile {
        path: b"/big".to_vec(),
        offset,
        ..AetherReadFile::default()
    };
    let mut worker = root.call(Call::ReadFile(ask));
    let Reply::Stat(stat) = worker.reply() else {
        panic!()
    };
    assert_eq!(stat.file.unwrap().size_bytes, 5 << 30);
    let contents = worker.contents();
    assert_eq!(contents.len(), 200 << 20);
    assert!(contents.ends_with(b"\0end"));
}

#[test]
fn a_file_that_shrinks_or_grows_comes_to_an_end() {
    let root = Root::new();
    let path = root.file("f", &vec![1; 8 << 20]);
    let mut worker = root.call(read_call(b"/f"));
    worker.reply();
    // The socket holds less than the file, so the worker still has to read.
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4 << 20)
        .unwrap();
    let length = worker.contents().len();
    assert!((4 << 20..8 << 20).contains(&length), "{length}");

    let mut worker = root.call(read_call(b"/f"));
    worker.reply();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    assert_eq!(worker.contents().len(), 4 << 20);
}

#[test]
fn a_reader_that_leaves_ends_the_worker() {
    let root = Root::new();
    root.file("f", &vec![1; 8 << 20]);
    let mut worker = root.call(read_call(b"/f"));
    worker.reply();
    worker.stream.shutdown(std::net::Shutdown::Both).unwrap();
    worker.end();
}
