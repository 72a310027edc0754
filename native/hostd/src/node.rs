//! What a start needs of the node: descriptors of directories and the parts that act on slots.

use crate::cgroup::Cgroups;
use crate::config::Config;
use crate::disk::Disk;
use crate::fault::{Outcome, Step};
use crate::layers::Layers;
use crate::runc::{self, Runc};
use crate::scratch::Scratch;
use crate::state::{Phase, State};
use crate::{state, sys, tree};
use std::os::fd::{AsRawFd, OwnedFd};

pub struct Node {
    pub config: Config,
    pub cgroups: Cgroups,
    pub disk: Disk,
    pub layers: Layers,
    /// Where mounts must be attached to be used.
    pub scratch: Option<Scratch>,
    /// RUN, with a directory a slot.
    pub run: OwnedFd,
    /// DATA/edges/<edge>/kept.
    pub kept: OwnedFd,
    /// In the writable space, a directory a sandbox; only its aether reads and writes it.
    records: OwnedFd,
    pub shell: OwnedFd,
    /// Or why it cannot be used.
    pub runc: Result<Runc, String>,
    pub boot_id: String,
    /// The node was booted since hostd last ran here.
    pub booted: bool,
    /// What this node lacks.
    pub missing: Vec<String>,
}

impl Node {
    pub fn open(config: Config) -> Outcome<Self> {
        crate::seccomp::prepare();
        let mut missing = Vec::new();
        let data = sys::open_at(
            libc::AT_FDCWD,
            text(&config.data_dir)?,
            libc::O_RDONLY | libc::O_DIRECTORY,
            0,
        )
        .step("open the data directory")?;
        let below = |dir: &OwnedFd, name: &str, mode: u32, owner: u32| -> Outcome<OwnedFd> {
            if sys::mkdir_at(dir.as_raw_fd(), name, mode).is_ok() {
                sys::chown_at(dir.as_raw_fd(), name, owner, u32::MAX)
                    .step(&format!("give {name} to its user"))?;
            }
            sys::open_dir(dir.as_raw_fd(), name).step(&format!("open {name}"))
        };
        // The edge writes in those that it shares with hostd, whoever of the two comes first.
        let theirs = config.edge_uid;
        let edges = below(&data, "edges", 0o755, theirs)?;
        let edge = below(&edges, &config.edge, 0o755, theirs)?;
        let kept = below(&edge, "kept", 0o700, 0)?;
        let layers = Layers::new(below(&data, "layers", 0o755, theirs)?);
        if !config.run_dir.exists() {
            std::fs::create_dir_all(&config.run_dir).step("make the run directory")?;
            sys::chown_at(libc::AT_FDCWD, text(&config.run_dir)?, theirs, u32::MAX)
                .step("give away the run directory")?;
        }
        let run = sys::open_at(
            libc::AT_FDCWD,
            text(&config.run_dir)?,
            libc::O_RDONLY | libc::O_DIRECTORY,
            0,
        )
        .step("open the run directory")?;
        let boot_id = state::boot_id();
        let booted = sys::read_at(edge.as_raw_fd(), "boot").unwrap_or_default() != boot_id;
        let path = config.data_dir.join("edges").join(&config.edge);
        let disk = Disk::open(&edge, &path, &mut missing)?;
        let scratch = Scratch::open_if_needed(&kept)?;
        if let Some(scratch) = &scratch {
            disk.attach(scratch).step("attach the writable space")?;
        }
        let records = disk.records().step("open the records directory")?;
        sys::create_at(edge.as_raw_fd(), "boot", 0o600, boot_id.as_bytes())
            .step("write the boot ID")?;
        let shell = sys::open_at(libc::AT_FDCWD, text(&config.bash)?, libc::O_RDONLY, 0)
            .step("open bash")?;
        let cgroups = Cgroups::open(&config.edge)?;
        let runc = Runc::find(&config.program);
        Ok(Self {
            config,
            cgroups,
            disk,
            layers,
            scratch,
            run,
            kept,
            records,
            shell,
            runc,
            boot_id,
            booted,
            missing,
        })
    }

    /// The sandbox's records directory, empty, its aether's alone: the slot's last one under a new name, which is
    /// cheaper than a new one, else a new one.
    pub fn make_records(&self, id: &str, slot: u32, aether: u32) -> std::io::Result<OwnedFd> {
        let dir = self.records.as_raw_fd();
        if sys::rename_at(dir, &spare(slot), id).is_ok() {
            return sys::open_dir(dir, id);
        }
        sys::mkdir_at(dir, id, 0o700)?;
        let made = sys::open_dir(dir, id)?;
        sys::chown_at(made.as_raw_fd(), "", aether, aether)?;
        Ok(made)
    }

    fn remove_records(&self, id: &str, slot: u32) -> std::io::Result<()> {
        if id.is_empty() {
            return Ok(());
        }
        let Ok(dir) = sys::open_dir(self.records.as_raw_fd(), id) else {
            return Ok(());
        };
        tree::empty(&dir, &mut usize::MAX.clone())?;
        sys::chmod_at(dir.as_raw_fd(), ".", 0o700)?;
        sys::rename_at(self.records.as_raw_fd(), id, &spare(slot))
    }

    /// After a boot: records of sandboxes that nothing else names any more.
    pub fn remove_records_but(&self, kept: impl Fn(&str) -> bool) {
        for name in tree::names(&self.records).unwrap_or_default() {
            let spare = name
                .strip_prefix('.')
                .is_some_and(|slot| slot.parse::<u32>().is_ok());
            if spare || kept(&name) {
                continue;
            }
            if let Ok(dir) = sys::open_dir(self.records.as_raw_fd(), &name) {
                let _ = tree::empty(&dir, &mut usize::MAX.clone());
            }
            let _ = sys::unlink_at(self.records.as_raw_fd(), &name, libc::AT_REMOVEDIR);
        }
    }

    /// RUN/<slot>, root's alone to write.
    pub fn run_slot(&self, slot: u32) -> std::io::Result<OwnedFd> {
        let name = slot.to_string();
        if let Ok(dir) = sys::open_dir(self.run.as_raw_fd(), &name) {
            return Ok(dir);
        }
        sys::mkdir_at(self.run.as_raw_fd(), &name, 0o711)?;
        sys::open_dir(self.run.as_raw_fd(), &name)
    }

    /// Whether runc was at work in the slot when its start ended.
    fn cut_short(&self, slot: u32) -> bool {
        self.run_slot(slot)
            .and_then(|dir| State::read(&dir, "state"))
            .is_ok_and(|state| state.runc && state.phase == Phase::Starting as i32)
    }

    /// Makes what every start in this slot will need.
    pub fn prepare(&self, slot: u32) -> std::io::Result<()> {
        let aether = self.config.aether_id(slot);
        self.cgroups.make_slot(slot, aether)?;
        self.disk.slot(slot, self.config.root_id(slot))?;
        self.run_slot(slot)?;
        let records = self.records.as_raw_fd();
        sys::ensure_dir_at(records, &spare(slot), 0o700)?;
        sys::chown_at(records, &spare(slot), aether, aether)
    }

    /// Makes an ended slot as new: nothing of its last user is left in files, counters and groups. Its state is
    /// cleared last.
    pub fn clean(&self, slot: u32, id: &str) -> std::io::Result<()> {
        if self.cut_short(slot) && !runc::end_of_slot(self.config.root_id(slot)) {
            return Err(std::io::Error::from_raw_os_error(libc::EBUSY));
        }
        if !self.cgroups.is_empty(slot) {
            // Missing ones count as not empty.
            self.cgroups.make_slot(slot, self.config.aether_id(slot))?;
            self.cgroups.kill(slot);
            if !self.cgroups.is_empty(slot) {
                return Err(std::io::Error::from_raw_os_error(libc::EBUSY));
            }
        }
        self.cgroups.clean(slot, self.config.aether_id(slot))?;
        self.disk.clean(slot, self.config.root_id(slot))?;
        self.remove_records(id, slot)?;
        let dir = self.run_slot(slot)?;
        let _ = sys::unlink_at(dir.as_raw_fd(), "aether.sock", 0);
        let _ = sys::unlink_at(self.kept.as_raw_fd(), &slot.to_string(), 0);
        State::clear(&dir, "state")
    }
}

/// Name of a slot's emptied records directory while nobody uses it; no ID has a dot.
fn spare(slot: u32) -> String {
    format!(".{slot}")
}

fn text(path: &std::path::Path) -> Outcome<&str> {
    path.to_str()
        .ok_or_else(|| crate::fault::Fault::invalid("a path is not UTF-8"))
}
