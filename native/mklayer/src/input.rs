//! One archive as a stream of plain tar bytes: plain, gzip or zstd, told apart by their first bytes.
use crate::error::{Failure, Result};
use crate::limits::{Budget, RATIO_GRACE};
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::FrameDecoder;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

const BUFFER: usize = 1 << 20;

pub struct Input {
    decoder: Box<dyn Read>,
    packed: Rc<Cell<u64>>,
    compressed: bool,
    budget: Budget,
    /// Decoded bytes so far, of all inputs.
    total: Rc<Cell<u64>>,
    decoded: u64,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// `total` is shared by the inputs of one build.
    pub fn open(
        mut source: impl Read + 'static,
        budget: Budget,
        total: Rc<Cell<u64>>,
    ) -> Result<Self> {
        let mut magic = Vec::with_capacity(6);
        (&mut source)
            .take(6)
            .read_to_end(&mut magic)
            .map_err(|e| read_failure(&e))?;
        let packed = Rc::new(Cell::new(0));
        let kind = magic.clone();
        let counted = Counted {
            inner: Cursor::new(magic).chain(source),
            count: packed.clone(),
        };
        let (decoder, compressed): (Box<dyn Read>, bool) = match kind.as_slice() {
            [0x1f, 0x8b, ..] => (
                Box::new(MultiGzDecoder::new(BufReader::with_capacity(
                    256 << 10,
                    counted,
                ))),
                true,
            ),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => (
                Box::new(ZstdFrames::new(BufReader::with_capacity(
                    256 << 10,
                    counted,
                ))),
                true,
            ),
            [b'B', b'Z', b'h', ..] => {
                return Err(Failure::invalid("bzip2 is not supported; use gzip or zstd"))
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0] => {
                return Err(Failure::invalid("xz is not supported; use gzip or zstd"));
            }
            [] => return Err(Failure::invalid("the archive is empty")),
            _ => (Box::new(counted), false),
        };
        Ok(Input {
            decoder,
            packed,
            compressed,
            budget,
            total,
            decoded: 0,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
        })
    }

    /// Decoded bytes handed out; for messages.
    pub fn position(&self) -> u64 {
        self.decoded - (self.end - self.start) as u64
    }

    pub fn total(&self) -> u64 {
        self.total.get()
    }

    /// The next bytes, at most `most`; empty at the end.
    pub fn peek(&mut self, most: u64) -> Result<&[u8]> {
        if self.start == self.end {
            self.refill()?;
        }
        let n = ((self.end - self.start) as u64).min(most) as usize;
        Ok(&self.buffer[self.start..self.start + n])
    }

    pub fn consume(&mut self, n: usize) {
        self.start += n;
    }

    /// Fills `out`; the number of bytes is smaller only at the end.
    pub fn read_full(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < out.len() {
            let part = self.peek((out.len() - done) as u64)?;
            let n = part.len();
            if n == 0 {
                break;
            }
            out[done..done + n].copy_from_slice(part);
            self.consume(n);
            done += n;
        }
        Ok(done)
    }

    fn refill(&mut self) -> Result<()> {
        self.budget.check_time()?;
        let n = loop {
            match self.decoder.read(&mut self.buffer) {
                Ok(n) => break n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(read_failure(&e)),
            }
        };
        (self.start, self.end) = (0, n);
        self.decoded += n as u64;
        self.total.set(self.total.get() + n as u64);
        self.budget
            .check_bytes("the unpacked archive", self.total.get())?;
        let ratio = self.budget.limits.max_ratio;
        if self.compressed
            && self.decoded > RATIO_GRACE
            && self.decoded / ratio.max(1) > self.packed.get()
        {
            return Err(Failure::limit(format!(
                "the archive unpacks to more than {ratio} times its size"
            )));
        }
        Ok(())
    }
}

fn read_failure(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(_) => Failure::internal(format!("reading the archive: {error}")),
        None => Failure::invalid(format!(
            "the compressed stream is damaged or cut short: {error}"
        )),
    }
}

struct Counted<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count.set(self.count.get() + n as u64);
        Ok(n)
    }
}

/// A stream of zstd frames, with skippable ones between them; checksums are checked.
struct ZstdFrames<R: BufRead> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        ZstdFrames {
            source,
            decoder: FrameDecoder::new(),
            in_frame: false,
        }
    }

    /// False at the end of the stream.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = io::copy(
                        &mut (&mut self.source).take(u64::from(length)),
                        &mut io::sink(),
                    )?;
                    if skipped != u64::from(length) {
                        return Err(io::Error::other("a zstd frame is cut short"));
                    }
                }
                Err(e) => return Err(io::Error::other(e.to_string())),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        use ruzstd::decoding::BlockDecodingStrategy::UptoBytes;
        loop {
            if !self.in_frame {
                if !self.begin_frame()? {
                    return Ok(0);
                }
                self.in_frame = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, UptoBytes(buf.len()))
                    .map_err(|e| io::Error::other(e.to_string()))?;
            }
            let n = self.decoder.read(buf)?;
            if n > 0 {
                return Ok(n);
            }
            if let Some(wanted) = self.decoder.get_checksum_from_data() {
                if self.decoder.get_calculated_checksum() != Some(wanted) {
                    return Err(io::Error::other("a zstd frame's checksum is wrong"));
                }
            }
            self.in_frame = false;
        }
    }
}
