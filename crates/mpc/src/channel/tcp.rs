//! TCP with a writer thread, so that sending never waits for the peer to receive.

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Channel, Counter, Stats};
use crate::error::{MpcError, Result};

const CHUNK: usize = 1 << 16;

/// One end of a TCP connection.
pub struct TcpChannel {
    reader: BufReader<TcpStream>,
    queue: Option<mpsc::Sender<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
    pending: Vec<u8>,
    counter: Counter,
}

impl TcpChannel {
    /// Wraps a connected stream (sets TCP_NODELAY).
    ///
    /// # Errors
    /// When the socket's options cannot be set.
    pub fn from_stream(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        let mut out = stream.try_clone()?;
        let (queue, jobs) = mpsc::channel::<Vec<u8>>();
        let writer = std::thread::spawn(move || {
            for data in jobs {
                if out.write_all(&data).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            reader: BufReader::with_capacity(CHUNK, stream),
            queue: Some(queue),
            writer: Some(writer),
            pending: Vec::with_capacity(CHUNK),
            counter: Counter::default(),
        })
    }

    /// Connects, trying again until `patience` has passed.
    ///
    /// # Errors
    /// When nobody listens at the address in time.
    pub fn connect(addr: impl ToSocketAddrs, patience: Duration) -> Result<Self> {
        let until = std::time::Instant::now() + patience;
        loop {
            match TcpStream::connect(&addr) {
                Ok(s) => return Self::from_stream(s),
                Err(e) if std::time::Instant::now() >= until => return Err(e.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Accepts one connection.
    ///
    /// # Errors
    /// When accepting fails.
    pub fn accept(listener: &TcpListener) -> Result<Self> {
        Self::from_stream(listener.accept()?.0)
    }

    /// A receive that waits longer than this fails; `None` waits for ever.
    ///
    /// # Errors
    /// When the socket refuses the option.
    pub fn set_timeout(&mut self, limit: Option<Duration>) -> Result<()> {
        Ok(self.reader.get_ref().set_read_timeout(limit)?)
    }
}

impl Channel for TcpChannel {
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
        Ok(self.reader.read_exact(buf)?)
    }

    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let data = std::mem::replace(&mut self.pending, Vec::with_capacity(CHUNK));
        self.queue.as_ref().ok_or(MpcError::Closed)?.send(data).map_err(|_| MpcError::Closed)
    }

    fn stats(&self) -> Stats {
        self.counter.stats()
    }
}

impl Drop for TcpChannel {
    fn drop(&mut self) {
        // An error here means that the peer is gone; nothing is left to deliver to it.
        let _ = self.flush();
        self.queue = None;
        if let Some(w) = self.writer.take() {
            let _ = w.join();
        }
    }
}
