//! Headers of tar: ustar with pax records out; ustar, GNU and pax in.

use super::xattr::{self, Attribute};

pub const BLOCK: usize = 512;

pub const FILE: u8 = b'0';
pub const HARD_LINK: u8 = b'1';
pub const SYMLINK: u8 = b'2';
pub const CHARACTER_DEVICE: u8 = b'3';
pub const BLOCK_DEVICE: u8 = b'4';
pub const DIRECTORY: u8 = b'5';
pub const FIFO: u8 = b'6';

/// Bytes that fill the last block of contents of this size.
pub fn padding(size: u64) -> usize {
    ((BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64) as usize
}

/// What goes before the contents of one entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// A directory's ends with a slash.
    pub name: Vec<u8>,
    pub kind: u8,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Seconds and nanoseconds.
    pub modified: (i64, i64),
    pub link: Vec<u8>,
    /// Major and minor number.
    pub device: (u32, u32),
    pub attributes: Vec<Attribute>,
}

impl Entry {
    /// Appends the header's blocks, with a pax header before where ustar has no room for something.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut records = Vec::new();
        let mut binary = false;
        let mut text = |key: &str, value: &[u8]| {
            binary |= std::str::from_utf8(value).is_err();
            record(&mut records, key.as_bytes(), value);
        };
        let split = split_name(&self.name);
        if split.is_none() {
            text("path", &self.name);
        }
        if self.link.len() > 100 {
            text("linkpath", &self.link);
        }
        let (seconds, nanoseconds) = self.modified;
        if nanoseconds != 0 || octal(seconds, 11).is_none() {
            // A time before 1970 counts down from the next second in decimals, but up in a timespec.
            let value = match (seconds < 0, nanoseconds) {
                (_, 0) => format!("{seconds}"),
                (false, n) => format!("{seconds}.{n:09}"),
                (true, n) => match (seconds + 1, 1_000_000_000 - n) {
                    (0, n) => format!("-0.{n:09}"),
                    (s, n) => format!("{s}.{n:09}"),
                },
            };
            text("mtime", value.as_bytes());
        }
        let numbers = [
            ("size", i64::try_from(self.size).unwrap_or(i64::MAX), 11),
            ("uid", i64::from(self.uid), 7),
            ("gid", i64::from(self.gid), 7),
        ];
        for (key, value, digits) in numbers {
            if octal(value, digits).is_none() {
                text(key, value.to_string().as_bytes());
            }
        }
        for (name, value) in &self.attributes {
            record(
                &mut records,
                &[b"SCHILY.xattr.", name.as_slice()].concat(),
                value,
            );
        }
        if binary {
            let mut first = Vec::new();
            record(&mut first, b"hdrcharset", b"BINARY");
            first.append(&mut records);
            records = first;
        }
        if !records.is_empty() {
            let mut header = [0; BLOCK];
            header[..17].copy_from_slice(b"PaxHeaders/header");
            fill(&mut header, b'x', 0o644, 0, 0, records.len() as i64, 0);
            seal(&mut header);
            out.extend_from_slice(&header);
            out.extend_from_slice(&records);
            out.resize(out.len() + padding(records.len() as u64), 0);
        }
        let mut header = [0; BLOCK];
        match split {
            Some((prefix, name)) => {
                header[..name.len()].copy_from_slice(name);
                header[345..345 + prefix.len()].copy_from_slice(prefix);
            }
            None => {
                let cut = &self.name[self.name.len() - 99..];
                header[..cut.len()].copy_from_slice(cut);
            }
        }
        let link = &self.link[..self.link.len().min(100)];
        header[157..157 + link.len()].copy_from_slice(link);
        let size = i64::try_from(self.size).unwrap_or(i64::MAX);
        fill(
            &mut header,
            self.kind,
            self.mode,
            self.uid,
            self.gid,
            size,
            seconds,
        );
        if matches!(self.kind, CHARACTER_DEVICE | BLOCK_DEVICE) {
            put_number(&mut header[329..337], i64::from(self.device.0));
            put_number(&mut header[337..345], i64::from(self.device.1));
        }
        seal(&mut header);
        out.extend_from_slice(&header);
    }
}

fn fill(header: &mut [u8; BLOCK], kind: u8, mode: u32, uid: u32, gid: u32, size: i64, time: i64) {
    put_number(&mut header[100..108], i64::from(mode));
    put_number(&mut header[108..116], i64::from(uid));
    put_number(&mut header[116..124], i64::from(gid));
    put_number(&mut header[124..136], size);
    put_number(&mut header[136..148], time);
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
}

fn seal(header: &mut [u8; BLOCK]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}

/// Zero where it does not fit: then a pax record has it.
fn put_number(field: &mut [u8], value: i64) {
    let digits = field.len() - 1;
    let text = octal(value, digits).unwrap_or_else(|| "0".repeat(digits));
    field[..digits].copy_from_slice(text.as_bytes());
}

fn octal(value: i64, digits: usize) -> Option<String> {
    let text = format!("{:0digits$o}", u64::try_from(value).ok()?);
    (text.len() <= digits).then_some(text)
}

/// Prefix and name of ustar; None where the name fits in neither.
fn split_name(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= 100 {
        return Some((b"", name));
    }
    let first = name.len() - 101;
    let slash = name[first..name.len() - 1]
        .iter()
        .position(|&b| b == b'/')?
        + first;
    (slash > 0 && slash <= 155).then(|| (&name[..slash], &name[slash + 1..]))
}

fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // The length counts its own digits.
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(format!("{length} ").as_bytes());
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// An entry's header as it is in its block; Err says what is wrong with it.
pub fn decode(block: &[u8; BLOCK]) -> Result<Entry, &'static str> {
    let mut sealed = *block;
    sealed[148..156].fill(b' ');
    let sum: i64 = sealed.iter().map(|&b| i64::from(b)).sum();
    let signed: i64 = sealed.iter().map(|&b| i64::from(b as i8)).sum();
    let wanted = number(&block[148..156])?;
    if wanted != sum && wanted != signed {
        return Err("the checksum of its header is wrong");
    }
    let mut name = until_nul(&block[..100]).to_vec();
    // GNU keeps times where ustar has the prefix, and says so by its magic.
    if &block[257..263] == b"ustar\0" && block[345] != 0 {
        name = [until_nul(&block[345..500]), b"/", &name].concat();
    }
    let size = u64::try_from(number(&block[124..136])?).map_err(|_| "its size is negative")?;
    Ok(Entry {
        name,
        kind: block[156],
        mode: (number(&block[100..108])? & 0o7777) as u32,
        size,
        modified: (number(&block[136..148])?, 0),
        link: until_nul(&block[157..257]).to_vec(),
        ..Entry::default()
    })
}

fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    &field[..end]
}

/// Octal digits between spaces and NULs, or GNU's base 256.
fn number(field: &[u8]) -> Result<i64, &'static str> {
    const WRONG: &str = "a number in its header cannot be read";
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let mut value: i128 = if negative { -1 } else { 0 };
        for (i, &byte) in field.iter().enumerate() {
            let byte = match i {
                0 if negative => byte,
                0 => byte & 0x7f,
                _ => byte,
            };
            value = value.checked_mul(256).ok_or(WRONG)? | i128::from(byte);
            if i64::try_from(value).is_err() {
                return Err(WRONG);
            }
        }
        return i64::try_from(value).map_err(|_| WRONG);
    }
    let start = field.iter().position(|&b| b != b' ').unwrap_or(field.len());
    let field = &field[start..];
    let end = field
        .iter()
        .position(|&b| b == 0 || b == b' ')
        .unwrap_or(field.len());
    let digits = std::str::from_utf8(&field[..end]).map_err(|_| WRONG)?;
    if digits.is_empty() {
        return Ok(0);
    }
    i64::from_str_radix(digits, 8).map_err(|_| WRONG)
}

/// What a pax header says of the entries after it.
#[derive(Clone, Debug, Default)]
pub struct Pax {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    modified: Option<(i64, i64)>,
    attributes: Vec<Attribute>,
}

impl Pax {
    pub fn set_path(&mut self, path: Vec<u8>) {
        self.path = Some(path);
    }

    pub fn set_link(&mut self, link: Vec<u8>) {
        self.link = Some(link);
    }

    /// Takes the records of a header; what is not known, and owners, are left alone.
    pub fn read(&mut self, mut records: &[u8]) -> Result<(), &'static str> {
        const WRONG: &str = "its pax header cannot be read";
        while !records.is_empty() && records[0] != 0 {
            let space = records
                .iter()
                .take(12)
                .position(|&b| b == b' ')
                .ok_or(WRONG)?;
            let length = std::str::from_utf8(&records[..space]).map_err(|_| WRONG)?;
            let length: usize = length.parse().map_err(|_| WRONG)?;
            if length < space + 3 || length > records.len() || records[length - 1] != b'\n' {
                return Err(WRONG);
            }
            let record = &records[space + 1..length - 1];
            let equals = record.iter().position(|&b| b == b'=').ok_or(WRONG)?;
            self.take(&record[..equals], &record[equals + 1..])?;
            records = &records[length..];
        }
        Ok(())
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        // An empty value takes back what a global header said.
        let given = (!value.is_empty()).then(|| value.to_vec());
        match key {
            b"path" => self.path = given,
            b"linkpath" => self.link = given,
            b"size" => {
                let text = std::str::from_utf8(value).map_err(|_| "its pax size cannot be read")?;
                self.size = match text {
                    "" => None,
                    text => Some(text.parse().map_err(|_| "its pax size cannot be read")?),
                }
            }
            b"mtime" => {
                self.modified = match value {
                    b"" => None,
                    value => Some(time(value).ok_or("its pax mtime cannot be read")?),
                }
            }
            key if key.starts_with(b"GNU.sparse.") => {
                return Err("it is a GNU sparse entry; make the archive without --sparse")
            }
            key => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    if xattr::travels(name) && !name.contains(&0) {
                        self.attributes.push((name.to_vec(), value.to_vec()));
                    }
                }
            }
        }
        Ok(())
    }

    pub fn apply(self, entry: &mut Entry) {
        if let Some(path) = self.path {
            entry.name = path;
        }
        if let Some(link) = self.link {
            entry.link = link;
        }
        if let Some(size) = self.size {
            entry.size = size;
        }
        if let Some(modified) = self.modified {
            entry.modified = modified;
        }
        entry.attributes = self.attributes;
    }
}

/// Decimal seconds with a fraction.
fn time(value: &[u8]) -> Option<(i64, i64)> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = &fraction[..fraction.len().min(9)];
    let nanoseconds: i64 = format!("{digits:0<9}").parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some((seconds, nanoseconds))
}

#[cfg(test)]
#[path = "tar_tests.rs"]
mod tests;
