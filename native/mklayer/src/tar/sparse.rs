//! Maps of sparse files: old GNU, and GNU's pax forms 0.0, 0.1 and 1.0.
use super::header::number;
use super::pax::decimal;
use super::TarReader;
use crate::error::{Failure, Result};

/// A run of data in a file; what lies between runs is a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub offset: u64,
    pub length: u64,
}

const MAX_SEGMENTS: usize = 1 << 20;

#[derive(Default, Clone)]
pub struct PaxSparse {
    pub name: Option<Vec<u8>>,
    pub real_size: Option<u64>,
    major: Option<u64>,
    minor: Option<u64>,
    /// Offsets and lengths in turn, of 0.0 and 0.1.
    numbers: Option<Vec<u64>>,
}

impl PaxSparse {
    /// A record `GNU.sparse.KEY`.
    pub fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let number = || decimal(value).ok_or_else(bad);
        match key {
            b"name" if value.contains(&0) => return Err(bad()),
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.real_size = Some(number()?),
            b"major" => self.major = Some(number()?),
            b"minor" => self.minor = Some(number()?),
            b"numblocks" => self.numbers = Some(Vec::new()),
            b"offset" | b"numbytes" => {
                let numbers = self.numbers.get_or_insert_with(Vec::new);
                // They come in pairs, the offset first.
                if (numbers.len() % 2 == 0) != (key == b"offset")
                    || numbers.len() >= 2 * MAX_SEGMENTS
                {
                    return Err(bad());
                }
                numbers.push(number()?);
            }
            b"map" => {
                let parts = value.split(|b| *b == b',').filter(|part| !part.is_empty());
                self.numbers = Some(
                    parts
                        .map(|part| decimal(part).ok_or_else(bad))
                        .collect::<Result<_>>()?,
                );
            }
            _ => {}
        }
        Ok(())
    }

    pub fn is_version_1(&self) -> bool {
        self.major == Some(1) && self.minor == Some(0)
    }

    /// The map of 0.0 and 0.1, or `None` for a file that is not sparse.
    pub fn segments(&self) -> Result<Option<Vec<Segment>>> {
        let Some(numbers) = &self.numbers else {
            return Ok(None);
        };
        if numbers.len() % 2 != 0 {
            return Err(bad());
        }
        Ok(Some(
            numbers
                .chunks(2)
                .map(|p| Segment {
                    offset: p[0],
                    length: p[1],
                })
                .collect(),
        ))
    }
}

/// Reads the 24-byte entries of old GNU headers up to an empty one.
pub fn old_entries(bytes: &[u8], segments: &mut Vec<Segment>) -> Result<()> {
    for entry in bytes.chunks_exact(24) {
        if entry[0] == 0 || entry[12] == 0 {
            break;
        }
        let field = |range: std::ops::Range<usize>| {
            number(&entry[range])
                .ok()
                .and_then(|n| u64::try_from(n).ok())
                .ok_or_else(bad)
        };
        push(segments, field(0..12)?, field(12..24)?)?;
    }
    Ok(())
}

/// An extension block of an old GNU header; true when another follows.
pub fn extension(block: &[u8; 512], segments: &mut Vec<Segment>) -> Result<bool> {
    old_entries(&block[..504], segments)?;
    Ok(block[504] != 0)
}

/// The map that 1.0 puts before the data: decimal lines, padded to 512 bytes.
pub fn map_in_body(reader: &mut TarReader) -> Result<Vec<Segment>> {
    let mut used = 0usize;
    let count = line(reader, &mut used)?;
    if count > MAX_SEGMENTS as u64 {
        return Err(Failure::limit(format!(
            "a sparse file has more than {MAX_SEGMENTS} runs"
        )));
    }
    let mut segments = Vec::new();
    for _ in 0..count {
        let offset = line(reader, &mut used)?;
        let length = line(reader, &mut used)?;
        push(&mut segments, offset, length)?;
    }
    while used % 512 != 0 {
        byte(reader, &mut used)?;
    }
    Ok(segments)
}

fn line(reader: &mut TarReader, used: &mut usize) -> Result<u64> {
    let mut text = Vec::new();
    loop {
        match byte(reader, used)? {
            b'\n' => return decimal(&text).ok_or_else(bad),
            digit if text.len() < 20 => text.push(digit),
            _ => return Err(bad()),
        }
    }
}

fn byte(reader: &mut TarReader, used: &mut usize) -> Result<u8> {
    let byte = *reader.body()?.first().ok_or_else(bad)?;
    reader.consume(1);
    *used += 1;
    Ok(byte)
}

fn push(segments: &mut Vec<Segment>, offset: u64, length: u64) -> Result<()> {
    if segments.len() >= MAX_SEGMENTS {
        return Err(Failure::limit(format!(
            "a sparse file has more than {MAX_SEGMENTS} runs"
        )));
    }
    segments.push(Segment { offset, length });
    Ok(())
}

/// The runs with data, after a look at order, overlap, the file's size and the bytes in the archive.
pub fn checked(mut segments: Vec<Segment>, size: u64, packed: u64) -> Result<Vec<Segment>> {
    let (mut end, mut total) = (0u64, 0u64);
    for segment in &segments {
        let next = segment.offset.checked_add(segment.length).ok_or_else(bad)?;
        if segment.offset < end || next > size {
            return Err(Failure::invalid(
                "a sparse file's map overlaps or leaves the file",
            ));
        }
        end = next;
        total += segment.length;
    }
    if total != packed {
        return Err(Failure::invalid(
            "a sparse file's map does not fit the bytes stored for it",
        ));
    }
    segments.retain(|segment| segment.length > 0);
    Ok(segments)
}

fn bad() -> Failure {
    Failure::invalid("a sparse file's map is damaged")
}
