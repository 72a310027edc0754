//! Trees, archives of them by GNU tar, layers, and a way to compare two trees.
#![allow(dead_code)]

use mklayer::error::Failure;
use mklayer::limits::Limits;
use mklayer::{build, Built, Job, Whiteouts};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed with all that is mounted below it.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "mklayer-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        // Not /tmp, which may be in memory: the kernel mounts no layer whose file is there.
        let dir = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
        let path = Path::new(&dir).join(name);
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn sh(dir: &Path, script: &str) -> Vec<u8> {
    let out = Command::new("bash")
        .args(["-euc", script])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{script}\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    out.stdout
}

pub fn tar(tree: &Path, options: &str) -> Vec<u8> {
    // GNU's own formats have no place for attributes.
    let attributes = if options.contains("gnu") {
        ""
    } else {
        "--xattrs --xattrs-include='*' --acls"
    };
    let options = format!("tar {attributes} --numeric-owner {options} -c .");
    sh(tree, &options)
}

pub fn mklayer_in(
    dir: &Path,
    inputs: Vec<Vec<u8>>,
    whiteouts: Whiteouts,
    limits: Limits,
) -> Result<Built, Failure> {
    let open = |name: &str| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(dir.join(name))
            .unwrap()
    };
    let job = Job {
        inputs: inputs
            .into_iter()
            .map(|bytes| Box::new(std::io::Cursor::new(bytes)) as _)
            .collect(),
        meta: open("meta.erofs"),
        data: open("data"),
        whiteouts,
        limits,
        collapse_bytes: u64::MAX,
        sync: false,
    };
    build(job, &mut |_, _| {})
}

/// A mounted layer.
pub struct Mounted(pub PathBuf);

impl Mounted {
    pub fn new(layer: &Path, at: PathBuf) -> Self {
        fs::create_dir_all(&at).unwrap();
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap();
        let (meta, data, target) = (
            text(&layer.join("meta.erofs")),
            text(&layer.join("data")),
            text(&at),
        );
        let with_data = fs::metadata(layer.join("data")).unwrap().len() > 0;
        // SAFETY: every pointer is a NUL-terminated string that lives over its call.
        unsafe {
            let fs = check(libc::syscall(libc::SYS_fsopen, c"erofs".as_ptr(), 0));
            let set = |key: &std::ffi::CStr, value: &CString| {
                check(libc::syscall(
                    libc::SYS_fsconfig,
                    fs,
                    1,
                    key.as_ptr(),
                    value.as_ptr(),
                    0,
                ));
            };
            set(c"source", &meta);
            if with_data {
                set(c"device", &data);
            }
            check(libc::syscall(libc::SYS_fsconfig, fs, 6, 0, 0, 0));
            let mount = check(libc::syscall(libc::SYS_fsmount, fs, 0, 0));
            check(libc::syscall(
                libc::SYS_move_mount,
                mount,
                c"".as_ptr(),
                libc::AT_FDCWD,
                target.as_ptr(),
                4,
            ));
            libc::close(fs as i32);
            libc::close(mount as i32);
        }
        Mounted(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let target = CString::new(self.0.as_os_str().as_bytes()).unwrap();
        // SAFETY: `target` is a NUL-terminated string.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}

fn check(result: libc::c_long) -> libc::c_long {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    result
}

/// What GNU tar sees of a tree: names, types, modes, owners, times, devices, links, contents.
fn seen_by_tar(tree: &Path) -> Vec<u8> {
    sh(
        tree,
        "tar --numeric-owner --sort=name --format=pax --pax-option=delete=atime,delete=ctime -c .",
    )
}

/// The extended attributes, ACLs and capabilities too, of every name.
fn attributes(tree: &Path) -> BTreeMap<PathBuf, BTreeMap<Vec<u8>, Option<Vec<u8>>>> {
    let mut all = BTreeMap::new();
    let mut todo = vec![tree.to_path_buf()];
    while let Some(path) = todo.pop() {
        let text = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut names = vec![0u8; 65_536];
        // SAFETY: path and buffer live over the call, with the buffer's length.
        let size =
            unsafe { libc::llistxattr(text.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
        names.truncate(check(size as libc::c_long) as usize);
        let names = names.split(|b| *b == 0).filter(|name| !name.is_empty());
        let values = names.map(|name| {
            (
                name.to_vec(),
                get_xattr(&path, std::str::from_utf8(name).unwrap()),
            )
        });
        all.insert(
            path.strip_prefix(tree).unwrap().to_owned(),
            values.collect(),
        );
        if path.symlink_metadata().unwrap().is_dir() {
            todo.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    all
}

pub fn assert_same(wanted: &Path, got: &Path) {
    assert_eq!(attributes(wanted), attributes(got));
    if seen_by_tar(wanted) == seen_by_tar(got) {
        return;
    }
    let list = |tree: &Path| {
        sh(
            tree,
            "tar --numeric-owner --sort=name -c . | tar --full-time -tvv",
        )
    };
    let scratch = Scratch::new();
    fs::write(scratch.0.join("wanted"), list(wanted)).unwrap();
    fs::write(scratch.0.join("got"), list(got)).unwrap();
    let diff = sh(&scratch.0, "diff wanted got | head -60 || true");
    panic!("the trees differ:\n{}", String::from_utf8_lossy(&diff));
}

pub fn fsck(layer: &Path) {
    let has_data = fs::metadata(layer.join("data")).unwrap().len() > 0;
    let device = if has_data { "--device=data" } else { "" };
    sh(layer, &format!("fsck.erofs {device} meta.erofs"));
}

pub fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    let (path, name) = (
        CString::new(path.as_os_str().as_bytes()).unwrap(),
        CString::new(name).unwrap(),
    );
    // SAFETY: strings and value live over the call, with the value's length.
    let done = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    assert_eq!(done, 0, "{name:?}: {}", std::io::Error::last_os_error());
}

pub fn get_xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let (path, name) = (
        CString::new(path.as_os_str().as_bytes()).unwrap(),
        CString::new(name).unwrap(),
    );
    let mut value = vec![0u8; 65_536];
    // SAFETY: strings and buffer live over the call, with the buffer's length.
    let size = unsafe {
        libc::lgetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    (size >= 0).then(|| value[..size as usize].to_vec())
}

/// The attribute of an ACL of (tag, permissions, id).
pub fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(permissions.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

pub fn root() -> bool {
    // SAFETY: has no arguments and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("not tried: mounting needs root");
    }
    root
}

/// xorshift64*, so that a seed names a tree.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

pub fn seed() -> u64 {
    let seed = std::env::var("DSEC_TEST_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(20_261_129);
    eprintln!("DSEC_TEST_SEED={seed}");
    seed
}

pub fn write_file(path: &Path) -> File {
    File::create(path).unwrap()
}
