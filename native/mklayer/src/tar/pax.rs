//! Records of pax extended headers.
use super::acl;
use super::sparse::PaxSparse;
use super::Xattrs;
use crate::error::{Failure, Result};

#[derive(Default, Clone)]
pub struct Pax {
    pub path: Option<Vec<u8>>,
    pub linkpath: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    pub mtime: Option<(i64, u32)>,
    pub sparse: PaxSparse,
    /// Attribute name as the kernel knows it, and its value.
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    acl_access: Option<Vec<u8>>,
    acl_default: Option<Vec<u8>>,
}

impl Pax {
    /// Adds the records of `text`: "LENGTH KEY=VALUE\n" each.
    pub fn parse(&mut self, mut text: &[u8]) -> Result<()> {
        while !text.is_empty() {
            let space = text
                .iter()
                .take(21)
                .position(|b| *b == b' ')
                .ok_or_else(bad)?;
            let length = decimal(&text[..space])
                .and_then(|n| usize::try_from(n).ok())
                .ok_or_else(bad)?;
            if length > text.len() || length < space + 3 || text[length - 1] != b'\n' {
                return Err(bad());
            }
            let record = &text[space + 1..length - 1];
            let equals = record.iter().position(|b| *b == b'=').ok_or_else(bad)?;
            self.record(&record[..equals], &record[equals + 1..])?;
            text = &text[length..];
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let number = || decimal(value).ok_or_else(|| named(key));
        match key {
            b"path" => self.path = some_text(value)?,
            b"linkpath" => self.linkpath = some_text(value)?,
            b"size" => self.size = optional(value, number)?,
            b"uid" => self.uid = optional(value, number)?,
            b"gid" => self.gid = optional(value, number)?,
            b"mtime" => self.mtime = optional(value, || time(value).ok_or_else(|| named(key)))?,
            b"SCHILY.acl.access" => self.acl_access = Some(value.to_vec()),
            b"SCHILY.acl.default" => self.acl_default = Some(value.to_vec()),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.attribute(name.to_vec(), value.to_vec());
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    let name = url_decoded(name).ok_or_else(|| named(key))?;
                    let value = base64(value).ok_or_else(|| named(key))?;
                    self.attribute(name, value);
                } else if let Some(name) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.record(name, value)?;
                }
            }
        }
        Ok(())
    }

    fn attribute(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.attributes.retain(|(known, _)| *known != name);
        self.attributes.push((name, value));
    }

    /// This header's records, else those of the archive's global header.
    pub fn over(self, global: &Pax) -> Pax {
        let mut attributes = global.attributes.clone();
        attributes.retain(|(name, _)| self.attributes.iter().all(|(own, _)| own != name));
        attributes.extend(self.attributes);
        Pax {
            path: self.path.or_else(|| global.path.clone()),
            linkpath: self.linkpath.or_else(|| global.linkpath.clone()),
            size: self.size.or(global.size),
            uid: self.uid.or(global.uid),
            gid: self.gid.or(global.gid),
            mtime: self.mtime.or(global.mtime),
            sparse: self.sparse,
            attributes,
            acl_access: self.acl_access.or_else(|| global.acl_access.clone()),
            acl_default: self.acl_default.or_else(|| global.acl_default.clone()),
        }
    }

    /// Attributes with the names that the kernel knows, sorted.
    pub fn xattrs(&self) -> Result<Xattrs> {
        let mut all = self.attributes.clone();
        for (text, name) in [
            (&self.acl_access, b"system.posix_acl_access".as_slice()),
            (&self.acl_default, b"system.posix_acl_default".as_slice()),
        ] {
            if let Some(text) = text.as_ref().filter(|t| !t.is_empty()) {
                all.retain(|(known, _)| known != name);
                all.push((name.to_vec(), acl::to_xattr(text)?));
            }
        }
        // One that says no more than the mode is none, as in the kernel.
        all.retain(|(name, value)| name != b"system.posix_acl_access" || !acl::is_mode(value));
        all.sort();
        Ok(all
            .into_iter()
            .map(|(n, v)| (n.into_boxed_slice(), v.into_boxed_slice()))
            .collect())
    }
}

fn bad() -> Failure {
    Failure::invalid("a pax header is damaged")
}

fn named(key: &[u8]) -> Failure {
    Failure::invalid(format!(
        "the pax record {} has a value that cannot be read",
        crate::error::shown(key)
    ))
}

/// An empty value takes a record back.
fn optional<T>(value: &[u8], parse: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    if value.is_empty() {
        return Ok(None);
    }
    parse().map(Some)
}

fn some_text(value: &[u8]) -> Result<Option<Vec<u8>>> {
    if value.contains(&0) {
        return Err(Failure::invalid("a name holds a NUL byte"));
    }
    Ok((!value.is_empty()).then(|| value.to_vec()))
}

pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds and nanoseconds of "[-]S[.FRACTION]".
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |b| *b == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let mut nanos = 0u32;
    if let Some(fraction) = parts.next() {
        if !fraction.iter().all(u8::is_ascii_digit) {
            return None;
        }
        for i in 0..9 {
            nanos = nanos * 10 + fraction.get(i).map_or(0, |d| u32::from(d - b'0'));
        }
    }
    match (negative, nanos) {
        (false, _) => Some((seconds, nanos)),
        (true, 0) => Some((-seconds, 0)),
        (true, _) => Some((-seconds - 1, 1_000_000_000 - nanos)),
    }
}

fn url_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == b'%' && tail.len() >= 2 {
            out.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).ok()?, 16).ok()?);
            rest = &tail[2..];
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    Some(out)
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.iter().filter(|b| !b.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time(b"12.5"), Some((12, 500_000_000)));
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time(b"7.1234567899"), Some((7, 123_456_789)));
        assert_eq!(time(b"1e9"), None);
    }

    #[test]
    fn encodings() {
        assert_eq!(base64(b"AQIDBA"), Some(vec![1, 2, 3, 4]));
        assert_eq!(url_decoded(b"user.a%3Db"), Some(b"user.a=b".to_vec()));
    }

    #[test]
    fn damaged_records() {
        for text in [
            b"5 a=b\n".as_slice(),
            b"99 a=b\n",
            b"x",
            b"4 \n\n",
            b"6 ab\n ",
            b"18446744073709551616 a=b\n",
        ] {
            assert!(Pax::default().parse(text).is_err(), "{text:?}");
        }
        Pax::default().parse(b"6 a=b\n").unwrap();
    }
}
