//! The command line.

use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct Config {
    pub edge: String,
    pub run_dir: PathBuf,
    pub data_dir: PathBuf,
    pub edge_uid: u32,
    /// First of slots · 65536 IDs for sandboxes, then one ID a slot for its aether.
    pub uid_start: u32,
    pub slots: u32,
    /// So many are made ready while nothing else is to do.
    pub ready_slots: u32,
    pub bash: PathBuf,
    /// hostd itself. Asked early: in a chroot its path is another one once hostd has mounts of its own.
    pub program: PathBuf,
}

/// IDs that each sandbox has.
pub const IDS_PER_SLOT: u32 = 65536;

pub const USAGE: &str = "hostd --edge NAME --run-dir DIR --data-dir DIR --edge-uid UID --uid-start N --slots N [--ready-slots N] --bash FILE\nhostd --probe";

impl Config {
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let value = |name: &str| -> Result<&str, String> {
            let at = arguments
                .iter()
                .position(|word| word == name)
                .ok_or(format!("{name} is missing"))?;
            arguments
                .get(at + 1)
                .map(String::as_str)
                .ok_or(format!("{name} has no value"))
        };
        let number = |name: &str| -> Result<u32, String> {
            value(name)?
                .parse()
                .map_err(|_| format!("{name} is no number"))
        };
        let edge = value("--edge")?.to_string();
        let named = edge.len() <= 12
            && edge.starts_with(|c: char| c.is_ascii_lowercase())
            && edge
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !named {
            return Err(format!("--edge {edge}: not [a-z][a-z0-9]{{0,11}}"));
        }
        let config = Self {
            edge,
            run_dir: value("--run-dir")?.into(),
            data_dir: value("--data-dir")?.into(),
            edge_uid: number("--edge-uid")?,
            uid_start: number("--uid-start")?,
            slots: number("--slots")?,
            ready_slots: if value("--ready-slots").is_ok() {
                number("--ready-slots")?
            } else {
                0
            },
            bash: value("--bash")?.into(),
            program: std::env::current_exe().unwrap_or_default(),
        };
        let end =
            u64::from(config.uid_start) + u64::from(config.slots) * u64::from(IDS_PER_SLOT + 1);
        if config.slots == 0 || config.uid_start < 65536 || end > u64::from(u32::MAX) {
            return Err(format!(
                "--slots {} from ID {} do not fit into 65536 to 2^32",
                config.slots, config.uid_start
            ));
        }
        Ok(config)
    }

    /// Host ID of the sandbox's root.
    pub fn root_id(&self, slot: u32) -> u32 {
        self.uid_start + slot * IDS_PER_SLOT
    }

    /// Host user of the sandbox's aether.
    pub fn aether_id(&self, slot: u32) -> u32 {
        self.uid_start + self.slots * IDS_PER_SLOT + slot
    }
}

/// A fallback for older kernels is asked for by name in DSEC_HOSTD_FORCE ("attached-mounts,loop"), to try it on newer ones.
pub fn forced(what: &str) -> bool {
    std::env::var("DSEC_HOSTD_FORCE").is_ok_and(|list| list.split(',').any(|word| word == what))
}
