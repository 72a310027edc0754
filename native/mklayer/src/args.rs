//! The command line.
use crate::error::{Failure, Result};
use crate::limits::Limits;
use crate::Whiteouts;
use std::path::PathBuf;

pub const USAGE: &str = "usage: mklayer --out DIR [--plain|--bottom|--upper] [--collapse-bytes N] [--max-bytes N] \
[--max-entries N] [--max-ratio N] [--max-depth N] [--max-seconds N] [--progress] [--no-sync] INPUT...
  INPUT is a tar archive (plain, gzip or zstd), or - for stdin; several are OCI layers, lowest first.
  Writes DIR/meta.erofs, DIR/data and DIR/layer.json; prints layer.json's text and the number of inputs taken.
  --plain   names that begin with .wh. are ordinary
  --bottom  nothing stands below: whiteouts that hide nothing among the inputs are dropped
  --upper   all whiteouts are kept for what stands below (else only those that hide nothing among the inputs)";

pub struct Args {
    pub out: PathBuf,
    pub inputs: Vec<PathBuf>,
    pub whiteouts: Whiteouts,
    pub limits: Limits,
    pub collapse_bytes: u64,
    pub progress: bool,
    pub sync: bool,
}

pub fn parse(mut words: impl Iterator<Item = std::ffi::OsString>) -> Result<Args> {
    let mut args = Args {
        out: PathBuf::new(),
        inputs: Vec::new(),
        whiteouts: Whiteouts::Between,
        limits: Limits::default(),
        collapse_bytes: u64::MAX,
        progress: false,
        sync: true,
    };
    while let Some(word) = words.next() {
        let Some(option) = word.to_str().filter(|w| w.starts_with("--")) else {
            args.inputs.push(word.into());
            continue;
        };
        let mut number = || -> Result<u64> {
            let text = words
                .next()
                .and_then(|w| w.into_string().ok())
                .unwrap_or_default();
            text.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
                Failure::argument(format!("{option} takes a number above 0, not \"{text}\""))
            })
        };
        match option {
            "--plain" => args.whiteouts = Whiteouts::Plain,
            "--bottom" => args.whiteouts = Whiteouts::Bottom,
            "--upper" => args.whiteouts = Whiteouts::Upper,
            "--progress" => args.progress = true,
            "--no-sync" => args.sync = false,
            "--max-bytes" => args.limits.max_bytes = number()?,
            "--max-entries" => args.limits.max_entries = number()?,
            "--max-ratio" => args.limits.max_ratio = number()?,
            "--max-depth" => {
                args.limits.max_depth = u16::try_from(number()?).unwrap_or(u16::MAX).min(2048)
            }
            "--max-seconds" => args.limits.max_seconds = number()?,
            "--collapse-bytes" => args.collapse_bytes = number()?,
            "--out" => args.out = words.next().unwrap_or_default().into(),
            _ => {
                return Err(Failure::argument(format!(
                    "unknown option {option}\n{USAGE}"
                )))
            }
        }
    }
    if args.out.as_os_str().is_empty() || args.inputs.is_empty() {
        return Err(Failure::argument(USAGE));
    }
    if args
        .inputs
        .iter()
        .filter(|input| input.as_os_str() == "-")
        .count()
        > 1
    {
        return Err(Failure::argument("stdin can be only one of the inputs"));
    }
    Ok(args)
}
