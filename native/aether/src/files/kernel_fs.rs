//! File systems of the kernel's own: a tree holds their mount points, not their contents, and the sizes of their files
//! say nothing.

use std::os::fd::AsRawFd;

/// Magic numbers, as statfs gives them.
const MAGIC: [i64; 14] = [
    0x9fa0,     // proc
    0x62656572, // sysfs
    0x27e0eb,   // cgroup
    0x63677270, // cgroup2
    0x1cd1,     // devpts
    0x19800202, // mqueue
    0x64626720, // debugfs
    0x74726163, // tracefs
    0x73636673, // securityfs
    0xcafe4a11, // bpf
    0x6165676c, // pstore
    0x62656570, // configfs
    0x65735546, // fuse, whose files may wait for ever
    0x6e736673, // nsfs
];

/// Whether an open file or directory is on one of them.
pub fn holds(file: &impl AsRawFd) -> bool {
    // SAFETY: statfs is plain numbers, and has room for the answer.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &mut about) };
    result == 0 && MAGIC.contains(&(about.f_type as i64))
}
