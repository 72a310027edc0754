//! Whole frames out of bytes as they arrive, and into a buffer that is to be sent.

use crate::frame::{FrameError, FrameHeader, HEADER_BYTES, KIND_MESSAGE};
use prost::Message;

/// Header of a frame with a command's output: `length` bytes follow, the first of them at `offset`.
pub fn output_header(
    kind: u8,
    offset: u64,
    dropped: u64,
    length: usize,
) -> [u8; HEADER_BYTES + 16] {
    let mut out = [0; HEADER_BYTES + 16];
    out[..HEADER_BYTES].copy_from_slice(&FrameHeader::new(kind, length + 16).encode());
    out[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&offset.to_be_bytes());
    out[HEADER_BYTES + 8..].copy_from_slice(&dropped.to_be_bytes());
    out
}

/// Appends a whole frame of kind 0.
pub fn push_message(out: &mut Vec<u8>, message: &impl Message) {
    let length = message.encoded_len();
    out.reserve(HEADER_BYTES + length);
    out.extend_from_slice(&FrameHeader::new(KIND_MESSAGE, length).encode());
    message.encode(out).expect("a Vec grows");
}

/// Bytes as they arrive, cut into frames. Grows only with bytes that are there, never with a length that is claimed.
#[derive(Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl FrameBuffer {
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if it is there: kind and payload.
    pub fn next_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, FrameError> {
        let rest = &self.bytes[self.start..];
        let Some(head) = rest.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = FrameHeader::decode(head)?;
        let end = HEADER_BYTES + header.payload_bytes;
        if rest.len() < end {
            return Ok(None);
        }
        let payload = rest[HEADER_BYTES..end].to_vec();
        self.start += end;
        if self.start == self.bytes.len() {
            self.bytes = Vec::new();
            self.start = 0;
        } else if self.start > 1 << 16 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        Ok(Some((header.kind, payload)))
    }

    /// What was read and not yet given out.
    pub fn take_rest(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.drain(..std::mem::take(&mut self.start));
        bytes
    }

    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{KIND_STDOUT, MAX_PAYLOAD_BYTES};

    #[test]
    fn frames_are_found_in_bytes_cut_anywhere() {
        let mut bytes = FrameHeader::new(KIND_STDOUT, 3).encode().to_vec();
        bytes.extend_from_slice(b"abc");
        bytes.extend_from_slice(&FrameHeader::new(KIND_MESSAGE, 0).encode());
        let mut buffer = FrameBuffer::default();
        let mut seen = Vec::new();
        for byte in bytes {
            buffer.extend(&[byte]);
            while let Some(frame) = buffer.next_frame().unwrap() {
                seen.push(frame);
            }
        }
        assert_eq!(
            seen,
            [(KIND_STDOUT, b"abc".to_vec()), (KIND_MESSAGE, vec![])]
        );
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_its_bytes_come() {
        let mut buffer = FrameBuffer::default();
        let length = MAX_PAYLOAD_BYTES as u32 + 1;
        buffer.extend(&length.to_be_bytes());
        buffer.extend(&[0; 4]);
        assert_eq!(buffer.next_frame(), Err(FrameError::TooLong(length)));
    }
}
