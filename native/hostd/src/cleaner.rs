//! What is done to slots that nobody uses, by a child, off the way of starts and stops: those that ended are made as new,
//! and while nothing else happens new ones are made ready.

use crate::server::{Server, CLEANER};
use crate::sys;
use std::os::fd::AsRawFd;

const CLEAN_BATCH: usize = 32;
/// A start that comes meanwhile waits for none of them; a burst shares the CPUs with one batch.
const READY_BATCH: u32 = 8;

impl Server {
    pub fn clean_some(&mut self) {
        if self.cleaner.is_some() || self.slots.dirty.is_empty() {
            return;
        }
        let count = self.slots.dirty.len().min(CLEAN_BATCH);
        let batch = self.slots.dirty.drain(..count).collect();
        self.hand_to_child(batch, |server, slot, id| server.node.clean(slot, id));
    }

    /// Fewer slots than wanted were ever made.
    pub fn wants_ready_slots(&self) -> bool {
        self.slots.made() < self.node.config.ready_slots.min(self.slots.count)
    }

    pub fn make_slots_ready(&mut self) {
        if self.cleaner.is_some() || !self.wants_ready_slots() || !self.is_quiet() {
            return;
        }
        let batch = self.slots.take_new(READY_BATCH);
        let batch = batch.into_iter().map(|slot| (slot, String::new()));
        self.hand_to_child(batch.collect(), |server, slot, _| {
            // SAFETY: plain numbers; whoever asks for something comes first.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
            server.node.prepare(slot)
        });
    }

    fn hand_to_child(
        &mut self,
        batch: Vec<(u32, String)>,
        work: fn(&Self, u32, &str) -> std::io::Result<()>,
    ) {
        let Ok((ours, theirs)) = sys::socket_pair(libc::SOCK_SEQPACKET) else {
            self.stuck.extend(batch);
            return;
        };
        match sys::fork() {
            Ok(0) => {
                let _ = sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64);
                for (slot, id) in &batch {
                    let word = match work(self, *slot, id) {
                        Ok(()) => 1u8,
                        Err(error) => {
                            if error.raw_os_error() != Some(libc::EBUSY) {
                                eprintln!("hostd: clean slot {slot}: {error}");
                            }
                            0
                        }
                    };
                    let mut message = slot.to_ne_bytes().to_vec();
                    message.push(word);
                    let _ = sys::send_fd(&theirs, &message, None);
                }
                // SAFETY: ends the child without running what the zygote registered.
                unsafe { libc::_exit(0) }
            }
            Ok(_)
                if self
                    .watch(ours.as_raw_fd(), CLEANER, 0, libc::EPOLLIN)
                    .is_ok() =>
            {
                self.slots.cleaning.extend(batch);
                self.cleaner = Some(ours);
            }
            _ => self.stuck.extend(batch),
        }
    }

    pub fn cleaner_reported(&mut self) {
        let Some(cleaner) = &self.cleaner else { return };
        match sys::receive_fd(cleaner) {
            Ok((message, _)) if message.len() == 5 => {
                let slot = u32::from_ne_bytes([message[0], message[1], message[2], message[3]]);
                let Some(id) = self.slots.cleaning.remove(&slot) else {
                    return;
                };
                if message[4] == 1 {
                    self.slots.give_back(slot);
                } else {
                    self.stuck.push((slot, id));
                }
            }
            _ => {
                self.unwatch(cleaner);
                self.cleaner = None;
                self.reap_strays();
                self.stuck.extend(std::mem::take(&mut self.slots.cleaning));
            }
        }
    }
}
