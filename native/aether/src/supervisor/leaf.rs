//! Cgroup leaves: one a command or session, so that its whole tree can be ended. Empty ones are used again.

use std::cell::Cell;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::sys;

const MAX_FREE: usize = 8;

pub struct Leaf {
    name: u32,
    pub dir: OwnedFd,
    /// Once killed, a leaf is never used again: Linux 6.18 kills whatever is born by clone3 in a cgroup whose
    /// cgroup.kill was written more often than that of the parent's.
    killed: Cell<bool>,
}

pub struct Leaves {
    root: Option<OwnedFd>,
    free: Vec<Leaf>,
    /// Leaves of commands that ended while something they started goes on.
    lingering: Vec<(u64, Leaf)>,
    next: u32,
}

impl Leaf {
    pub fn is_killed(&self) -> bool {
        self.killed.get()
    }

    pub fn kill(&self) -> bool {
        self.killed.set(true);
        sys::openat(&self.dir, c"cgroup.kill", libc::O_WRONLY, 0)
            .and_then(|file| sys::write(&file, b"1"))
            .is_ok()
    }

    pub fn procs(&self) -> Option<OwnedFd> {
        sys::openat(&self.dir, c"cgroup.procs", libc::O_RDONLY, 0).ok()
    }

    fn is_empty(&self) -> bool {
        let mut text = [0; 64];
        sys::openat(&self.dir, c"cgroup.events", libc::O_RDONLY, 0)
            .and_then(|file| sys::read(&file, &mut text))
            .is_ok_and(|n| text[..n].starts_with(b"populated 0"))
    }
}

impl Leaves {
    pub fn new(root: Option<OwnedFd>) -> Leaves {
        if let Some(root) = &root {
            make_enterable(root);
        }
        Leaves {
            root,
            free: Vec::new(),
            lingering: Vec::new(),
            next: 1,
        }
    }

    pub fn take(&mut self) -> Option<Leaf> {
        if let Some(leaf) = self.free.pop() {
            return Some(leaf);
        }
        // All that were released are looked at again, so none stays behind for long.
        self.sweep();
        if let Some(leaf) = self.free.pop() {
            return Some(leaf);
        }
        let root = self.root.as_ref()?;
        let name = CString::new(format!("c{}", self.next)).expect("no NUL");
        // SAFETY: the name ends in NUL.
        let made = unsafe { libc::mkdirat(root.as_raw_fd(), name.as_ptr(), 0o755) };
        if made != 0 {
            return None;
        }
        let dir = sys::openat(root, &name, libc::O_RDONLY | libc::O_DIRECTORY, 0).ok()?;
        make_enterable(&dir);
        self.next += 1;
        Some(Leaf {
            name: self.next - 1,
            dir,
            killed: Cell::new(false),
        })
    }

    /// Takes back the leaf of command `number`, which has ended.
    pub fn release(&mut self, number: u64, leaf: Leaf) {
        if leaf.is_empty() {
            self.put(leaf);
        } else {
            self.lingering.push((number, leaf));
        }
    }

    /// The leaf of an ended command, while something in it lives.
    pub fn of(&self, number: u64) -> Option<&Leaf> {
        self.lingering
            .iter()
            .find(|(owner, _)| *owner == number)
            .map(|(_, leaf)| leaf)
    }

    fn sweep(&mut self) {
        let mut kept = Vec::new();
        for (number, leaf) in std::mem::take(&mut self.lingering) {
            if leaf.is_empty() {
                self.put(leaf);
            } else {
                kept.push((number, leaf));
            }
        }
        self.lingering = kept;
    }

    fn put(&mut self, leaf: Leaf) {
        if self.free.len() < MAX_FREE && !leaf.is_killed() {
            return self.free.push(leaf);
        }
        let Some(root) = &self.root else { return };
        let name = CString::new(format!("c{}", leaf.name)).expect("no NUL");
        // SAFETY: the name ends in NUL.
        unsafe { libc::unlinkat(root.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) };
    }
}

/// Init, another user, forks into the leaf. Nobody else can reach the file: the sandbox does not see this hierarchy.
fn make_enterable(dir: &OwnedFd) {
    // SAFETY: the name ends in NUL.
    unsafe { libc::fchmodat(dir.as_raw_fd(), c"cgroup.procs".as_ptr(), 0o666, 0) };
}
