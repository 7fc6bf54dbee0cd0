//! TCP with a writer thread, so that sending never waits for the peer to receive.

use super::buffered::{Buffered, Link, Writer};
use crate::error::Result;
use std::io::{BufReader, Read};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// One end of a TCP connection.
pub type TcpChannel = Buffered<TcpLink>;

/// A connected stream, read here and written by a thread.
pub struct TcpLink {
    reader: BufReader<TcpStream>,
    writer: Writer,
}

impl TcpChannel {
    /// Wraps a connected stream (sets TCP_NODELAY).
    ///
    /// # Errors
    /// When the socket's options cannot be set.
    pub fn from_stream(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        let writer = Writer::to(stream.try_clone()?);
        Ok(Self::over(TcpLink { reader: BufReader::with_capacity(TcpLink::MESSAGE, stream), writer }))
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
        Ok(self.link().reader.get_ref().set_read_timeout(limit)?)
    }
}

impl Link for TcpLink {
    const MESSAGE: usize = 1 << 16;

    fn put(&mut self, message: Vec<u8>) -> Result<()> {
        self.writer.put(message)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        Ok(self.reader.read_exact(buf)?)
    }
}
