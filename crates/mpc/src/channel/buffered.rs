//! What all channels share: small sends gathered into messages, received bytes handed out piece by piece, counters.

use super::{Channel, Counter, Stats};
use crate::error::{MpcError, Result};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;

/// The transport under a [`Buffered`] channel.
pub trait Link: Send {
    /// Bytes that are gathered before they are handed over.
    const MESSAGE: usize;

    /// Hands bytes to the transport, all that was sent since the last time; never waits for the peer to receive.
    ///
    /// # Errors
    /// When the connection is gone.
    fn put(&mut self, message: Vec<u8>) -> Result<()>;

    /// Fills `buf` with what comes next from the peer.
    ///
    /// # Errors
    /// When the connection ends first.
    fn fill(&mut self, buf: &mut [u8]) -> Result<()>;

    /// Whether [`Self::fill`] would begin without waiting; true where that is not known.
    fn ready(&mut self) -> bool {
        true
    }
}

/// A [`Channel`] over any [`Link`]. What was not flushed is delivered when it is dropped, as far as the link still stands.
pub struct Buffered<L: Link> {
    link: L,
    pending: Vec<u8>,
    counter: Counter,
}

impl<L: Link> Buffered<L> {
    /// A channel that has carried nothing yet.
    pub fn over(link: L) -> Self {
        Self { link, pending: Vec::new(), counter: Counter::default() }
    }

    pub(super) fn link(&self) -> &L {
        &self.link
    }
}

impl<L: Link> Channel for Buffered<L> {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        self.counter.sent(data.len());
        self.pending.extend_from_slice(data);
        if self.pending.len() >= L::MESSAGE {
            self.flush()?;
        }
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8]) -> Result<()> {
        self.flush()?;
        self.counter.received(buf.len());
        self.link.fill(buf)
    }

    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        // Room for as much as went now: a buffer that grows is copied again and again.
        let next = Vec::with_capacity(self.pending.len().min(L::MESSAGE));
        self.link.put(std::mem::replace(&mut self.pending, next))
    }

    fn stats(&self) -> Stats {
        self.counter.stats()
    }

    fn ready(&mut self) -> bool {
        self.link.ready()
    }
}

impl<L: Link> Drop for Buffered<L> {
    fn drop(&mut self) {
        // An error here means that the peer is gone; nothing is left to deliver to it.
        let _ = self.flush();
    }
}

/// A received message of which a part was handed out.
#[derive(Default)]
pub struct Inbox<M> {
    message: M,
    offset: usize,
}

impl<M: AsRef<[u8]>> Inbox<M> {
    /// Whether nothing is left of the last message.
    pub fn is_empty(&self) -> bool {
        self.message.as_ref().len() <= self.offset
    }

    /// Fills `buf`, asking `next` for a message whenever the last one is used up.
    ///
    /// # Errors
    /// Those of `next`.
    pub fn fill(&mut self, buf: &mut [u8], mut next: impl FnMut() -> Result<M>) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let rest = &self.message.as_ref()[self.offset..];
            if rest.is_empty() {
                (self.message, self.offset) = (next()?, 0);
                continue;
            }
            let n = (buf.len() - done).min(rest.len());
            buf[done..done + n].copy_from_slice(&rest[..n]);
            self.offset += n;
            done += n;
        }
        Ok(())
    }
}

/// Messages on their way to a thread that writes them, so that sending never waits. Dropping it waits until all are written.
pub struct Writer {
    queue: Option<mpsc::Sender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
    /// Messages that [`Self::to`] has still to write.
    left: Arc<AtomicUsize>,
}

impl Writer {
    /// Writes messages in order to `sink`.
    pub fn to(mut sink: impl Write + Send + 'static) -> Self {
        let left = Arc::new(AtomicUsize::new(0));
        let written = left.clone();
        let mut writer = Self::with(move |messages| {
            for message in messages {
                if sink.write_all(&message).and_then(|()| sink.flush()).is_err() {
                    return;
                }
                written.fetch_sub(1, Ordering::Release);
            }
        });
        writer.left = left;
        writer
    }

    /// Gives messages to `write`, which runs on a thread of its own until there are no more.
    pub fn with(write: impl FnOnce(mpsc::Receiver<Vec<u8>>) + Send + 'static) -> Self {
        let (queue, messages) = mpsc::channel();
        let thread = std::thread::spawn(move || write(messages));
        Self { queue: Some(queue), thread: Some(thread), left: Arc::default() }
    }

    /// Whether [`Self::to`] has written all messages, so that their owner may write to the sink itself.
    pub(super) fn idle(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Queues a message.
    ///
    /// # Errors
    /// [`MpcError::Closed`] when writing has ended.
    pub fn put(&mut self, message: Vec<u8>) -> Result<()> {
        self.left.fetch_add(1, Ordering::Relaxed);
        self.queue.as_ref().ok_or(MpcError::Closed)?.send(message).map_err(|_| MpcError::Closed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the writing thread is reported by itself.
            let _ = thread.join();
        }
    }
}
