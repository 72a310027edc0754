//! The contents that the edge sends, as one stream of bytes.

use super::connection::Connection;
use super::failure::Outcome;

pub struct Body<'a> {
    connection: &'a mut Connection,
    frame: Vec<u8>,
    at: usize,
    ended: bool,
    taken: u64,
}

impl<'a> Body<'a> {
    pub fn new(connection: &'a mut Connection) -> Self {
        Self {
            connection,
            frame: Vec::new(),
            at: 0,
            ended: false,
            taken: 0,
        }
    }

    /// Bytes that were taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// What is here already, at least one byte; empty at the end.
    pub fn peek(&mut self) -> Outcome<&[u8]> {
        if self.at == self.frame.len() && !self.ended {
            self.ended = !self.connection.receive_contents(&mut self.frame)?;
            self.at = 0;
        }
        Ok(&self.frame[self.at..])
    }

    pub fn take(&mut self, count: usize) {
        self.at += count;
        self.taken += count as u64;
    }

    /// Fills the buffer; the count is smaller only at the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Outcome<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let here = self.peek()?;
            if here.is_empty() {
                break;
            }
            let count = here.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&here[..count]);
            self.take(count);
            filled += count;
        }
        Ok(filled)
    }

    /// Passes over bytes; false when they end before.
    pub fn skip(&mut self, mut count: u64) -> Outcome<bool> {
        while count > 0 {
            let here = self.peek()?.len();
            if here == 0 {
                return Ok(false);
            }
            let taken = (here as u64).min(count) as usize;
            self.take(taken);
            count -= taken as u64;
        }
        Ok(true)
    }
}
