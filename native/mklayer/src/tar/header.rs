//! The 512-byte header.
use super::sparse::Segment;
use super::until_nul;
use crate::error::{Failure, Result};

pub struct Header {
    block: [u8; 512],
}

impl Header {
    pub fn parse(block: [u8; 512]) -> Result<Self> {
        let stored = number(&block[148..156]).map_err(|_| bad("checksum"))?;
        let (mut unsigned, mut signed) = (0i64, 0i64);
        for (i, byte) in block.iter().enumerate() {
            let byte = if (148..156).contains(&i) { b' ' } else { *byte };
            unsigned += i64::from(byte);
            signed += i64::from(byte as i8);
        }
        if stored != unsigned && stored != signed {
            return Err(Failure::invalid(
                "a header's checksum is wrong: damaged, or not a tar archive",
            ));
        }
        Ok(Header { block })
    }

    pub fn typeflag(&self) -> u8 {
        self.block[156]
    }

    pub fn path(&self) -> Vec<u8> {
        let name = until_nul(self.block[..100].to_vec());
        let prefix = until_nul(self.block[345..500].to_vec());
        // GNU's own format has times where ustar has the prefix.
        if &self.block[257..263] != b"ustar\0" || prefix.is_empty() {
            return name;
        }
        [prefix.as_slice(), b"/", name.as_slice()].concat()
    }

    pub fn linkname(&self) -> Vec<u8> {
        until_nul(self.block[157..257].to_vec())
    }

    pub fn size(&self) -> Result<u64> {
        self.unsigned(124..136, "size")
    }

    pub fn mode(&self) -> Result<u64> {
        self.unsigned(100..108, "mode")
    }

    pub fn uid(&self) -> Result<u64> {
        self.unsigned(108..116, "uid")
    }

    pub fn gid(&self) -> Result<u64> {
        self.unsigned(116..124, "gid")
    }

    /// May lie before 1970.
    pub fn mtime(&self) -> Result<i64> {
        number(&self.block[136..148]).map_err(|_| bad("mtime"))
    }

    pub fn major(&self) -> Result<u32> {
        self.device(329..337)
    }

    pub fn minor(&self) -> Result<u32> {
        self.device(337..345)
    }

    /// Segments in the header of an old GNU sparse file.
    pub fn sparse_segments(&self) -> Result<Vec<Segment>> {
        let mut segments = Vec::new();
        super::sparse::old_entries(&self.block[386..482], &mut segments)?;
        Ok(segments)
    }

    pub fn sparse_extended(&self) -> bool {
        self.block[482] != 0
    }

    pub fn real_size(&self) -> Result<u64> {
        self.unsigned(483..495, "real size")
    }

    fn unsigned(&self, range: std::ops::Range<usize>, what: &str) -> Result<u64> {
        number(&self.block[range])
            .ok()
            .and_then(|n| u64::try_from(n).ok())
            .ok_or_else(|| bad(what))
    }

    fn device(&self, range: std::ops::Range<usize>) -> Result<u32> {
        u32::try_from(self.unsigned(range, "device")?).map_err(|_| bad("device"))
    }
}

fn bad(what: &str) -> Failure {
    Failure::invalid(format!("a header's {what} is no number"))
}

/// Octal text, or big-endian two's complement where the top bit is set.
pub fn number(field: &[u8]) -> std::result::Result<i64, ()> {
    let first = *field.first().ok_or(())?;
    if first & 0x80 != 0 {
        let mut value: i128 = if first & 0x40 != 0 { -1 } else { 0 };
        for (i, byte) in field.iter().enumerate() {
            // Bit 6 of the first byte is the sign and stays.
            let byte = if i == 0 {
                first & 0x7f | (first & 0x40) << 1
            } else {
                *byte
            };
            value = if i == 0 {
                i128::from(byte as i8)
            } else {
                value << 8 | i128::from(byte)
            };
        }
        return i64::try_from(value).map_err(|_| ());
    }
    let text = field
        .iter()
        .skip_while(|b| **b == b' ')
        .copied()
        .collect::<Vec<_>>();
    let mut value = 0i64;
    for byte in text {
        match byte {
            b'0'..=b'7' => {
                value = value
                    .checked_mul(8)
                    .and_then(|v| v.checked_add(i64::from(byte - b'0')))
                    .ok_or(())?
            }
            b' ' | 0 => break,
            _ => return Err(()),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers() {
        assert_eq!(number(b"0000644\0"), Ok(0o644));
        assert_eq!(number(b"   644 \0"), Ok(0o644));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Ok(0));
        assert_eq!(number(b"0000648\0"), Err(()));
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]), Ok(258));
        assert_eq!(number(&[0xff; 12]), Ok(-1));
        assert_eq!(
            number(&[0x80, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            Err(())
        );
    }
}
