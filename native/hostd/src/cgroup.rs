//! Cgroups of the slots: made once, used again. v1 controllers, a cgroup2 beside them, or cgroup2 alone.
//!
//! Init and the leaves of commands are both in the slot's cgroup2 directory: no controller is enabled below it, so the
//! rule against processes in inner nodes does not apply. aether owns that directory and its cgroup.procs, since the
//! kernel lets init fork into a leaf only if it may write cgroup.procs of the nearest common ancestor too.

use crate::fault::{Fault, Outcome, Step};
use crate::sys;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use wire::Usage;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Limits {
    pub memory_bytes: u64,
    pub pids: u32,
    /// 1 to 10000, as in cgroup v2.
    pub cpu_weight: u32,
    /// Cores; 0: no quota.
    pub cpu_cores: f64,
}

/// Counters that the kernel never resets, as they were when the slot was given out.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Baseline {
    pub cpu_ns: u64,
    pub oom_kills: u64,
    pub pids_hits: u64,
}

struct Hierarchy {
    controllers: Vec<&'static str>,
    dir: OwnedFd,
}

pub struct Cgroups {
    /// "v1", "hybrid" or "v2".
    pub mode: &'static str,
    v1: Vec<Hierarchy>,
    unified: Option<OwnedFd>,
}

const V1: [&str; 5] = ["memory", "cpu", "cpuacct", "pids", "freezer"];
const PERIOD_US: f64 = 100_000.0;

impl Cgroups {
    /// Finds what is mounted and makes dsec/<edge> in each.
    pub fn open(edge: &str) -> Outcome<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").step("read mountinfo")?;
        let mut v1: Vec<Hierarchy> = Vec::new();
        let mut unified = None;
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let (left, right): (Vec<_>, Vec<_>) =
                (left.split(' ').collect(), right.split(' ').collect());
            if left.len() < 5 || right.len() < 3 {
                continue;
            }
            if right[0] == "cgroup2" && unified.is_none() {
                unified =
                    Some(sys::open_dir(libc::AT_FDCWD, left[4]).step("open the cgroup2 mount")?);
            } else if right[0] == "cgroup" {
                let options: Vec<_> = right[2].split(',').collect();
                let known = |name: &&'static str| {
                    options.contains(name)
                        && !v1.iter().any(|other| other.controllers.contains(name))
                };
                let controllers: Vec<_> = V1.into_iter().filter(|name| known(name)).collect();
                if !controllers.is_empty() {
                    let dir = sys::open_dir(libc::AT_FDCWD, left[4]).step("open a cgroup mount")?;
                    v1.push(Hierarchy { controllers, dir });
                }
            }
        }
        let has = |name| {
            v1.iter()
                .any(|hierarchy| hierarchy.controllers.contains(&name))
        };
        let mode = match (has("memory"), &unified) {
            (true, Some(_)) => "hybrid",
            (true, None) => "v1",
            (false, Some(_)) => "v2",
            (false, None) => {
                return Err(Fault::new("NOT_SUPPORTED", "no memory cgroups are mounted"))
            }
        };
        for hierarchy in &mut v1 {
            hierarchy.dir = make_below(&hierarchy.dir, edge, false)?;
        }
        if let Some(dir) = &mut unified {
            *dir = make_below(dir, edge, mode == "v2")?;
        }
        Ok(Self { mode, v1, unified })
    }

    fn controller(&self, name: &str) -> Option<&OwnedFd> {
        self.v1
            .iter()
            .find(|hierarchy| hierarchy.controllers.contains(&name))
            .map(|hierarchy| &hierarchy.dir)
    }

    fn all(&self) -> impl Iterator<Item = &OwnedFd> {
        self.v1
            .iter()
            .map(|hierarchy| &hierarchy.dir)
            .chain(self.unified.iter())
    }

    pub fn make_slot(&self, slot: u32, aether: u32) -> io::Result<()> {
        let name = slot.to_string();
        for dir in self.all() {
            sys::ensure_dir_at(dir.as_raw_fd(), &name, 0o755)?;
        }
        if let Some(dir) = &self.unified {
            sys::chown_at(dir.as_raw_fd(), &name, aether, aether)?;
            sys::chown_at(
                dir.as_raw_fd(),
                &format!("{name}/cgroup.procs"),
                aether,
                aether,
            )?;
        }
        Ok(())
    }

    /// The `tasks` files of the v1 hierarchies. A task that writes "0" there moves itself, for which the kernel skips
    /// the lock over all forks; opened by root, as v1 looks at who opened it.
    pub fn tasks(&self, slot: u32) -> io::Result<Vec<OwnedFd>> {
        self.v1
            .iter()
            .map(|hierarchy| {
                sys::open_at(
                    hierarchy.dir.as_raw_fd(),
                    &format!("{slot}/tasks"),
                    libc::O_WRONLY,
                    0,
                )
            })
            .collect()
    }

    pub fn unified_dir(&self, slot: u32) -> io::Result<Option<OwnedFd>> {
        self.unified
            .as_ref()
            .map(|dir| sys::open_dir(dir.as_raw_fd(), &slot.to_string()))
            .transpose()
    }

    /// Writes what differs from `old`, which counts for v1 alone: of cgroup2 alone, a slot's group is new each time.
    pub fn set_limits(&self, slot: u32, new: &Limits, old: Option<&Limits>) -> io::Result<()> {
        let old = old.filter(|_| self.mode != "v2");
        let changed = |same: fn(&Limits, &Limits) -> bool| old.is_none_or(|old| !same(old, new));
        let write = |dir: Option<&OwnedFd>, file: &str, text: String| match dir {
            Some(dir) => sys::write_at(dir.as_raw_fd(), &format!("{slot}/{file}"), &text),
            None => Ok(()),
        };
        let v2 = self.mode == "v2";
        let dir = |name| {
            if v2 {
                self.unified.as_ref()
            } else {
                self.controller(name)
            }
        };
        if changed(|a, b| a.memory_bytes == b.memory_bytes) {
            write(
                dir("memory"),
                if v2 {
                    "memory.max"
                } else {
                    "memory.limit_in_bytes"
                },
                new.memory_bytes.to_string(),
            )?;
        }
        if v2 {
            // Or what is above the limit would be swapped out instead. The file is there where swap is accounted for.
            let _ = write(dir("memory"), "memory.swap.max", "0".into());
        }
        if changed(|a, b| a.pids == b.pids) {
            write(dir("pids"), "pids.max", new.pids.to_string())?;
        }
        if changed(|a, b| a.cpu_weight == b.cpu_weight) {
            let shares = (u64::from(new.cpu_weight) * 1024 / 100).max(2);
            let (file, value) = if v2 {
                ("cpu.weight", new.cpu_weight.into())
            } else {
                ("cpu.shares", shares)
            };
            write(dir("cpu"), file, value.to_string())?;
        }
        // A quota costs every start a walk over all groups, so it is touched only when one is or was asked for.
        if new.cpu_cores > 0.0 || old.is_some_and(|old| old.cpu_cores > 0.0) {
            let quota = (new.cpu_cores * PERIOD_US).max(1000.0) as i64;
            if v2 {
                let quota = if new.cpu_cores > 0.0 {
                    quota.to_string()
                } else {
                    "max".into()
                };
                write(dir("cpu"), "cpu.max", format!("{quota} 100000"))?;
            } else {
                let quota = if new.cpu_cores > 0.0 { quota } else { -1 };
                write(dir("cpu"), "cpu.cfs_quota_us", quota.to_string())?;
            }
        }
        Ok(())
    }

    /// (v2 memory.events or v1 memory.oom_control, pids.events), readable.
    pub fn events(&self, slot: u32) -> (Option<OwnedFd>, Option<OwnedFd>) {
        let open = |dir: Option<&OwnedFd>, file: &str| {
            dir.and_then(|dir| {
                sys::open_at(
                    dir.as_raw_fd(),
                    &format!("{slot}/{file}"),
                    libc::O_RDONLY,
                    0,
                )
                .ok()
            })
        };
        if self.mode == "v2" {
            (
                open(self.unified.as_ref(), "memory.events"),
                open(self.unified.as_ref(), "pids.events"),
            )
        } else {
            (
                open(self.controller("memory"), "memory.oom_control"),
                open(self.controller("pids"), "pids.events"),
            )
        }
    }

    fn read(&self, controller: &str, slot: u32, v1: &str, v2: &str) -> String {
        let (dir, file) = if self.mode == "v2" {
            (self.unified.as_ref(), v2)
        } else {
            (self.controller(controller), v1)
        };
        dir.and_then(|dir| sys::read_at(dir.as_raw_fd(), &format!("{slot}/{file}")).ok())
            .unwrap_or_default()
    }

    pub fn baseline(&self, slot: u32) -> Baseline {
        let cpu = self.read("cpuacct", slot, "cpuacct.usage", "cpu.stat");
        let cpu_ns = if self.mode == "v2" {
            field(&cpu, "usage_usec") * 1000
        } else {
            cpu.trim().parse().unwrap_or(0)
        };
        Baseline {
            cpu_ns,
            oom_kills: field(
                &self.read("memory", slot, "memory.oom_control", "memory.events"),
                "oom_kill",
            ),
            pids_hits: field(
                &self.read("pids", slot, "pids.events", "pids.events"),
                "max",
            ),
        }
    }

    /// Use since the baseline; disk_bytes is the caller's.
    pub fn usage(&self, slot: u32, base: &Baseline) -> Usage {
        let number = |text: String| text.trim().parse::<u64>().unwrap_or(0);
        let now = self.baseline(slot);
        Usage {
            cpu_seconds: now.cpu_ns.saturating_sub(base.cpu_ns) as f64 / 1e9,
            memory_bytes: number(self.read(
                "memory",
                slot,
                "memory.usage_in_bytes",
                "memory.current",
            )),
            peak_memory_bytes: number(self.read(
                "memory",
                slot,
                "memory.max_usage_in_bytes",
                "memory.peak",
            )),
            processes: number(self.read("pids", slot, "pids.current", "pids.current")) as u32,
            oom_kills: now.oom_kills.saturating_sub(base.oom_kills),
            pids_limit_hits: now.pids_hits.saturating_sub(base.pids_hits),
            disk_bytes: 0,
            disk_full: false,
        }
    }

    /// Kills whatever is in the slot's groups; it may take a while until they are gone. Init is among them, and with it
    /// goes its whole pid namespace. Not by cgroup.kill: once that was used on a group, the kernel (seen with 6.18)
    /// kills every process that clone3 puts into it, or from it into another.
    pub fn kill(&self, slot: u32) {
        for dir in self.all() {
            if let Ok(dir) = sys::open_dir(dir.as_raw_fd(), &slot.to_string()) {
                kill_below(&dir);
            }
        }
    }

    pub fn is_empty(&self, slot: u32) -> bool {
        let v1 = self.v1.iter().all(|hierarchy| {
            sys::read_at(hierarchy.dir.as_raw_fd(), &format!("{slot}/cgroup.procs"))
                .is_ok_and(|list| list.is_empty())
        });
        let unified = self.unified.as_ref().is_none_or(|dir| {
            sys::read_at(dir.as_raw_fd(), &format!("{slot}/cgroup.events"))
                .is_ok_and(|events| field(&events, "populated") == 0)
        });
        v1 && unified
    }

    /// Leaves gone, counters back at zero. Cached pages of more than 8 MiB are dropped, so that the next user's peak
    /// is its own; less is cheaper to keep than to reclaim.
    /// Of cgroup2 alone the group is made anew: its counters are never reset (memory.peak only for one descriptor, and
    /// since Linux 6.12).
    pub fn clean(&self, slot: u32, aether: u32) -> io::Result<()> {
        if let Some(dir) = &self.unified {
            let dir = sys::open_dir(dir.as_raw_fd(), &slot.to_string())?;
            remove_leaves(&dir)?;
        }
        if let ("v2", Some(dir)) = (self.mode, &self.unified) {
            sys::unlink_at(dir.as_raw_fd(), &slot.to_string(), libc::AT_REMOVEDIR)?;
            return self.make_slot(slot, aether);
        }
        if let Some(dir) = self.controller("memory") {
            let used = self
                .read("memory", slot, "memory.usage_in_bytes", "")
                .trim()
                .parse::<u64>()
                .unwrap_or(0);
            if used > 8 << 20 {
                let _ = sys::write_at(dir.as_raw_fd(), &format!("{slot}/memory.force_empty"), "1");
            }
            sys::write_at(
                dir.as_raw_fd(),
                &format!("{slot}/memory.max_usage_in_bytes"),
                "0",
            )?;
            sys::write_at(dir.as_raw_fd(), &format!("{slot}/memory.failcnt"), "0")?;
        }
        if let Some(dir) = self.controller("cpuacct") {
            sys::write_at(dir.as_raw_fd(), &format!("{slot}/cpuacct.usage"), "0")?;
        }
        Ok(())
    }

    /// Removes the slot's groups and those of the edge where they are empty.
    pub fn remove_slot(&self, slot: u32) {
        for dir in self.all() {
            let _ = sys::unlink_at(dir.as_raw_fd(), &slot.to_string(), libc::AT_REMOVEDIR);
        }
    }
}

fn make_below(mount: &OwnedFd, edge: &str, enable: bool) -> Outcome<OwnedFd> {
    let mut dir = mount.try_clone().step("duplicate a descriptor")?;
    for name in ["dsec", edge] {
        if enable {
            enable_controllers(&dir)?;
        }
        sys::ensure_dir_at(dir.as_raw_fd(), name, 0o755).step("make a cgroup")?;
        dir = sys::open_dir(dir.as_raw_fd(), name).step("open a cgroup")?;
    }
    if enable {
        enable_controllers(&dir)?;
    }
    Ok(dir)
}

fn enable_controllers(dir: &OwnedFd) -> Outcome<()> {
    let have =
        sys::read_at(dir.as_raw_fd(), "cgroup.controllers").step("read cgroup.controllers")?;
    for name in ["memory", "cpu", "pids"] {
        if !have.split_whitespace().any(|word| word == name) {
            let what = format!(
                "cgroup v2 has no {name} controller here: the kernel lacks it, or the group above does not hand it down"
            );
            return Err(Fault::new("NOT_SUPPORTED", what));
        }
        // Nothing happens where it is enabled already. EBUSY: processes are in the group itself, as in a container.
        sys::write_at(
            dir.as_raw_fd(),
            "cgroup.subtree_control",
            &format!("+{name}"),
        )
        .step(&format!("enable the {name} controller of cgroup v2"))?;
    }
    Ok(())
}

fn kill_below(dir: &OwnedFd) {
    let list = sys::read_at(dir.as_raw_fd(), "cgroup.procs").unwrap_or_default();
    for pid in list
        .lines()
        .filter_map(|line| line.parse::<i32>().ok())
        .filter(|pid| *pid > 1)
    {
        // SAFETY: plain numbers; the pid was in the slot's group a moment ago.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    for name in crate::tree::names(dir).unwrap_or_default() {
        if let Ok(leaf) = sys::open_dir(dir.as_raw_fd(), &name) {
            kill_below(&leaf);
        }
    }
}

fn remove_leaves(dir: &OwnedFd) -> io::Result<()> {
    for name in crate::tree::names(dir)? {
        if let Ok(leaf) = sys::open_dir(dir.as_raw_fd(), &name) {
            remove_leaves(&leaf)?;
            sys::unlink_at(dir.as_raw_fd(), &name, libc::AT_REMOVEDIR)?;
        }
    }
    Ok(())
}

/// The number after `name` in a file of "name number" lines.
fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(' ')?
                .trim()
                .parse()
                .ok()
        })
        .unwrap_or(0)
}
