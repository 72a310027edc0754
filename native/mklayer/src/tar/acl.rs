//! POSIX ACLs from their text form to the form of the kernel's attribute.
use crate::error::{shown, Failure, Result};

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

/// `text` is "user::rwx,user:1000:r--,…" with commas or newlines; star adds a fourth field, the number.
pub fn to_xattr(text: &[u8]) -> Result<Vec<u8>> {
    let mut entries = Vec::new();
    for line in text.split(|b| *b == b',' || *b == b'\n') {
        let line = line
            .split(|b| *b == b'#')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        if !line.is_empty() {
            entries.push(entry(line)?);
        }
    }
    // The kernel wants them by tag, then by number.
    entries.sort_unstable();
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(permissions.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    Ok(out)
}

/// Whether an access ACL holds only owner, group and others.
pub fn is_mode(xattr: &[u8]) -> bool {
    xattr.len() <= 4 + 3 * 8
}

fn entry(line: &[u8]) -> Result<(u16, u32, u16)> {
    let bad = || Failure::invalid(format!("the ACL entry {} cannot be read", shown(line)));
    let fields: Vec<&[u8]> = line.split(|b| *b == b':').map(<[u8]>::trim_ascii).collect();
    let [kind, name, permissions, ..] = fields.as_slice() else {
        return Err(bad());
    };
    let mut bits = 0;
    for letter in *permissions {
        bits |= match letter {
            b'r' => 4,
            b'w' => 2,
            b'x' => 1,
            b'-' => 0,
            _ => return Err(bad()),
        };
    }
    let tag = match *kind {
        b"user" | b"u" if name.is_empty() => USER_OBJ,
        b"user" | b"u" => USER,
        b"group" | b"g" if name.is_empty() => GROUP_OBJ,
        b"group" | b"g" => GROUP,
        b"mask" | b"m" => MASK,
        b"other" | b"o" => OTHER,
        _ => return Err(bad()),
    };
    if tag != USER && tag != GROUP {
        return Ok((tag, NO_ID, bits));
    }
    let number = |text: &[u8]| {
        std::str::from_utf8(text)
            .ok()
            .and_then(|t| t.parse::<u32>().ok())
    };
    let id = fields
        .get(3)
        .and_then(|f| number(f))
        .or_else(|| number(name))
        .or((*name == b"root").then_some(0));
    let id = id.ok_or_else(|| {
        Failure::invalid(format!(
            "the ACL entry {} has a name, not a number; pack with --numeric-owner",
            shown(line)
        ))
    })?;
    Ok((tag, id, bits))
}
