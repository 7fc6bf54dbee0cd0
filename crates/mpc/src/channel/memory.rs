//! Two ends in one process.

use super::buffered::{Buffered, Inbox, Link};
use crate::error::{MpcError, Result};
use std::sync::mpsc;

/// One end of an in-memory channel. Messages carry a logical clock out of band, so that rounds can be measured.
pub type MemoryChannel = Buffered<MemoryLink>;

/// Messages handed to another thread with the sender's clock.
pub struct MemoryLink {
    out: mpsc::Sender<(u64, Vec<u8>)>,
    inc: mpsc::Receiver<(u64, Vec<u8>)>,
    inbox: Inbox<Vec<u8>>,
    /// A message that was looked for and found.
    found: Option<(u64, Vec<u8>)>,
    clock: u64,
}

impl MemoryChannel {
    /// Messages on the longest chain of dependent messages that ends here.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.link().clock
    }
}

/// Makes two connected ends of a channel in memory.
#[must_use]
pub fn memory_pair() -> (MemoryChannel, MemoryChannel) {
    let (a_out, b_in) = mpsc::channel();
    let (b_out, a_in) = mpsc::channel();
    let end =
        |out, inc| Buffered::over(MemoryLink { out, inc, inbox: Inbox::default(), found: None, clock: 0 });
    (end(a_out, a_in), end(b_out, b_in))
}

impl Link for MemoryLink {
    const MESSAGE: usize = 1 << 16;

    fn put(&mut self, message: Vec<u8>) -> Result<()> {
        self.out.send((self.clock + 1, message)).map_err(|_| MpcError::Closed)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        self.inbox.fill(buf, || {
            let found = self.found.take().map_or_else(|| self.inc.recv(), Ok);
            let (stamp, message) = found.map_err(|_| MpcError::Closed)?;
            self.clock = self.clock.max(stamp);
            Ok(message)
        })
    }

    fn ready(&mut self) -> bool {
        if self.inbox.is_empty() && self.found.is_none() {
            match self.inc.try_recv() {
                Ok(message) => self.found = Some(message),
                Err(mpsc::TryRecvError::Empty) => return false,
                // Receiving says so.
                Err(mpsc::TryRecvError::Disconnected) => {}
            }
        }
        true
    }
}
