//! The table of slots and what is in them.

use crate::cgroup::{Baseline, Limits};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Who asked: connection and request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Asker {
    pub peer: u64,
    pub request: u32,
}

pub struct Sandbox {
    pub id: String,
    pub layers: Vec<String>,
    pub base: Baseline,
    /// While it is being started: the status socket, and who waits.
    pub starting: Option<(OwnedFd, Asker)>,
    /// None once it is dead.
    pub aether: Option<OwnedFd>,
    pub init: Option<OwnedFd>,
    pub kept: bool,
    /// Stops that wait until nothing runs any more; the flag says keep.
    pub stops: Vec<(Asker, bool)>,
    /// Told to subscribers once.
    pub told: bool,
}

impl Sandbox {
    pub fn alive(&self) -> bool {
        self.aether.is_some() && self.init.is_some()
    }

    pub fn gone(&self) -> bool {
        self.starting.is_none() && self.aether.is_none() && self.init.is_none()
    }
}

#[derive(Default)]
pub struct Slots {
    pub count: u32,
    pub taken: BTreeMap<u32, Sandbox>,
    pub by_id: BTreeMap<String, u32>,
    /// Clean, last used last.
    free: Vec<u32>,
    /// First that was never used.
    next: u32,
    /// Ended, to be cleaned: with the ID of their last user.
    pub dirty: Vec<(u32, String)>,
    /// Being cleaned now.
    pub cleaning: BTreeMap<u32, String>,
    pub limits: BTreeMap<u32, Limits>,
}

impl Slots {
    pub fn new(count: u32) -> Self {
        Self {
            count,
            ..Default::default()
        }
    }

    /// A clean slot: one used before, else a new one.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let slot = self.next;
            (slot < self.count).then(|| {
                self.next += 1;
                slot
            })
        })
    }

    /// Slots from 0 up to this were used or made ready.
    pub fn made(&self) -> u32 {
        self.next
    }

    /// At most `most` that were never used.
    pub fn take_new(&mut self, most: u32) -> Vec<u32> {
        let first = self.next;
        self.next = (first + most).min(self.count);
        (first..self.next).collect()
    }

    pub fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Takes this slot, found in use by a hostd before this one; those below that are not claimed are free.
    pub fn claim(&mut self, slot: u32) {
        while self.next <= slot {
            self.free.push(self.next);
            self.next += 1;
        }
        self.free.retain(|other| *other != slot);
    }

    pub fn used(&self) -> u32 {
        (self.taken.len() + self.dirty.len() + self.cleaning.len()) as u32
    }

    pub fn insert(&mut self, slot: u32, sandbox: Sandbox) {
        self.by_id.insert(sandbox.id.clone(), slot);
        self.taken.insert(slot, sandbox);
    }

    pub fn remove(&mut self, slot: u32) -> Option<Sandbox> {
        let sandbox = self.taken.remove(&slot)?;
        self.by_id.remove(&sandbox.id);
        Some(sandbox)
    }
}
