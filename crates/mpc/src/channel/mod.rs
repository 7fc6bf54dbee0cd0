//! Byte channels between two parties, with counters.

mod buffered;
mod memory;
mod tcp;

pub use buffered::{Buffered, Inbox, Link, Writer};
pub use memory::{memory_pair, MemoryChannel};
pub use tcp::TcpChannel;

use crate::error::Result;

/// What has passed through one end of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes sent by this end.
    pub bytes_sent: u64,
    /// Bytes received by this end.
    pub bytes_received: u64,
    /// Times this end turned from sending (or from the start) to receiving.
    pub turns: u64,
}

/// A reliable ordered byte stream to the other party.
///
/// Two rules for implementations, on which the protocols rely:
/// * `send` and `flush` never wait for the peer to *receive* (both parties may send large messages at the same
///   time, so an implementation over a socket needs a queue and a writer of its own);
/// * `recv` flushes what this end has sent, then fills the whole buffer or fails.
///
/// Messages carry no lengths: every length follows from the protocol and its public parameters.
pub trait Channel: Send {
    /// Queues `data` for the peer.
    ///
    /// # Errors
    /// When the connection is gone.
    fn send(&mut self, data: &[u8]) -> Result<()>;

    /// Fills `buf` from the peer.
    ///
    /// # Errors
    /// When the connection ends first.
    fn recv(&mut self, buf: &mut [u8]) -> Result<()>;

    /// Hands everything queued to the transport.
    ///
    /// # Errors
    /// When the connection is gone.
    fn flush(&mut self) -> Result<()>;

    /// The counters of bytes and turns since the start.
    fn stats(&self) -> Stats;

    /// Whether `recv` would have something to hand out without waiting, or fail at once, as far as this end knows; so true where it cannot
    /// know. What was sent must have been flushed.
    fn ready(&mut self) -> bool {
        true
    }
}

/// Counters that an implementation of [`Channel`] keeps.
#[derive(Clone, Copy, Default)]
pub struct Counter {
    stats: Stats,
    receiving: bool,
}

impl Counter {
    /// Counts the bytes of a message that was sent.
    pub fn sent(&mut self, bytes: usize) {
        if bytes > 0 {
            self.stats.bytes_sent += bytes as u64;
            self.receiving = false;
        }
    }

    /// Counts the bytes of a message that was received, and a turn after a message that was sent.
    pub fn received(&mut self, bytes: usize) {
        if bytes > 0 {
            self.stats.bytes_received += bytes as u64;
            if !self.receiving {
                self.stats.turns += 1;
                self.receiving = true;
            }
        }
    }

    /// The counters of bytes and turns since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }
}
