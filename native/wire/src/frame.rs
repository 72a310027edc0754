//! Frames: u32 big-endian length of the payload, u8 kind, 3 zero bytes, payload.

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 8;
/// The largest payload: 1 MiB of contents and what goes before them.
pub const MAX_PAYLOAD_BYTES: usize = (1 << 20) + 64;

/// An AetherRequest, AetherReply or their like.
pub const KIND_MESSAGE: u8 = 0;
/// Bytes of stdout, of a file or of a tar.
pub const KIND_STDOUT: u8 = 1;
/// Bytes of stderr.
pub const KIND_STDERR: u8 = 2;

/// What a header says. Checked before anything is allocated for the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: u8,
    pub payload_bytes: usize,
}

/// The peer broke the form of the wire; nothing after it can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    TooLong(u32),
    UnknownKind(u8),
    NotZero,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong(bytes) => {
                write!(f, "a frame of {bytes} bytes, above {MAX_PAYLOAD_BYTES}")
            }
            Self::UnknownKind(kind) => write!(f, "a frame of unknown kind {kind}"),
            Self::NotZero => write!(f, "a frame whose reserved bytes are not zero"),
        }
    }
}

impl std::error::Error for FrameError {}

impl FrameHeader {
    /// Panics on a payload that is too long: the sender cuts contents into frames before.
    pub fn new(kind: u8, payload_bytes: usize) -> Self {
        assert!(
            payload_bytes <= MAX_PAYLOAD_BYTES,
            "a frame of {payload_bytes} bytes"
        );
        Self {
            kind,
            payload_bytes,
        }
    }

    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&(self.payload_bytes as u32).to_be_bytes());
        bytes[4] = self.kind;
        bytes
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if length as usize > MAX_PAYLOAD_BYTES {
            return Err(FrameError::TooLong(length));
        }
        if bytes[4] > KIND_STDERR {
            return Err(FrameError::UnknownKind(bytes[4]));
        }
        if bytes[5..] != [0, 0, 0] {
            return Err(FrameError::NotZero);
        }
        Ok(Self {
            kind: bytes[4],
            payload_bytes: length as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_it_was() {
        for kind in [KIND_MESSAGE, KIND_STDOUT, KIND_STDERR] {
            for payload_bytes in [0, 1, 255, 65_536, MAX_PAYLOAD_BYTES] {
                let header = FrameHeader::new(kind, payload_bytes);
                assert_eq!(FrameHeader::decode(&header.encode()), Ok(header));
            }
        }
    }

    #[test]
    fn what_is_not_allowed_is_refused() {
        assert_eq!(
            FrameHeader::decode(&[0, 16, 0, 65, 0, 0, 0, 0]),
            Err(FrameError::TooLong((1 << 20) + 65))
        );
        assert_eq!(
            FrameHeader::decode(&[255, 255, 255, 255, 0, 0, 0, 0]),
            Err(FrameError::TooLong(u32::MAX))
        );
        assert_eq!(
            FrameHeader::decode(&[0, 0, 0, 1, 3, 0, 0, 0]),
            Err(FrameError::UnknownKind(3))
        );
        assert_eq!(
            FrameHeader::decode(&[0, 0, 0, 1, 0, 0, 0, 1]),
            Err(FrameError::NotZero)
        );
    }
}
