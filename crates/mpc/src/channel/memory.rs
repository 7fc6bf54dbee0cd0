//! Two ends in one process.

use std::sync::mpsc;

use super::{Channel, Counter, Stats};
use crate::error::{MpcError, Result};

const CHUNK: usize = 1 << 16;

/// One end of an in-memory channel. Messages carry a logical clock out of band, so that rounds can be measured.
pub struct MemoryChannel {
    out: mpsc::Sender<(u64, Vec<u8>)>,
    inc: mpsc::Receiver<(u64, Vec<u8>)>,
    pending: Vec<u8>,
    current: Vec<u8>,
    offset: usize,
    counter: Counter,
    clock: u64,
}

impl MemoryChannel {
    /// Messages on the longest chain of dependent messages that ends here.
    pub fn clock(&self) -> u64 {
        self.clock
    }
}

/// A connected pair.
pub fn memory_pair() -> (MemoryChannel, MemoryChannel) {
    let (a_out, b_in) = mpsc::channel();
    let (b_out, a_in) = mpsc::channel();
    let end = |out, inc| MemoryChannel {
        out,
        inc,
        pending: Vec::new(),
        current: Vec::new(),
        offset: 0,
        counter: Counter::default(),
        clock: 0,
    };
    (end(a_out, a_in), end(b_out, b_in))
}

impl Channel for MemoryChannel {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        self.counter.sent(data.len());
        self.pending.extend_from_slice(data);
        if self.pending.len() >= CHUNK {
            self.flush()?;
        }
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        self.flush()?;
        self.counter.received(buf.len());
        let mut done = 0;
        while done < buf.len() {
            if self.offset == self.current.len() {
                let (stamp, data) = self.inc.recv().map_err(|_| MpcError::Closed)?;
                self.clock = self.clock.max(stamp);
                self.current = data;
                self.offset = 0;
            }
            let n = (buf.len() - done).min(self.current.len() - self.offset);
            buf[done..done + n].copy_from_slice(&self.current[self.offset..self.offset + n]);
            self.offset += n;
            done += n;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            let data = std::mem::take(&mut self.pending);
            self.out.send((self.clock + 1, data)).map_err(|_| MpcError::Closed)?;
        }
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.counter.stats()
    }
}
