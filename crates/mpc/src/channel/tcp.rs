//! TCP. Sending never waits for the peer to receive: what the socket has no room for goes to a writer thread.
//!
//! The thread is the second choice because it shares the party's core. The scheduler may leave it waiting for milliseconds behind the party's own
//! computation, and the peer with it.

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

    fn put(&mut self, mut message: Vec<u8>) -> Result<()> {
        if self.writer.idle() {
            message.drain(..now::send(self.reader.get_ref(), &message)?);
        }
        if message.is_empty() {
            return Ok(());
        }
        self.writer.put(message)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        Ok(self.reader.read_exact(buf)?)
    }

    fn ready(&mut self) -> bool {
        !self.reader.buffer().is_empty() || now::readable(self.reader.get_ref())
    }
}

/// What a socket does without waiting.
#[cfg(target_os = "linux")]
mod now {
    use rustix::io::Errno;
    use rustix::net::{recv, send as send_some, RecvFlags, SendFlags};
    use std::io::Result;
    use std::net::TcpStream;

    /// Sends as much as there is room for; how many bytes that were.
    pub(super) fn send(stream: &TcpStream, message: &[u8]) -> Result<usize> {
        let mut sent = 0;
        while sent < message.len() {
            match send_some(stream, &message[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => sent += n,
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(sent)
    }

    /// Whether reading would begin at once, or fail.
    pub(super) fn readable(stream: &TcpStream) -> bool {
        let mut byte = [0u8];
        !matches!(recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN))
    }
}

/// Other systems leave all to the thread.
#[cfg(not(target_os = "linux"))]
mod now {
    use std::io::Result;
    use std::net::TcpStream;

    /// Nothing is sent.
    #[allow(clippy::unnecessary_wraps)]
    pub(super) fn send(_: &TcpStream, _: &[u8]) -> Result<usize> {
        Ok(0)
    }

    /// Not known.
    pub(super) fn readable(_: &TcpStream) -> bool {
        true
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::channel::Channel;
    use std::io::Write;

    /// A sink that must not be written to.
    struct Unused;

    impl Write for Unused {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::Unsupported.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// A thread on the party's core would leave the peer waiting until the scheduler lets it run.
    #[test]
    fn what_the_socket_has_room_for_needs_no_thread() {
        let (near, mut far) = pair();
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut link = TcpLink { reader: BufReader::new(near), writer: Writer::to(Unused) };
        let mut got = [0; 5];
        for i in 0..3u8 {
            link.put(vec![i; 5]).unwrap();
            far.read_exact(&mut got).unwrap();
            assert_eq!(got, [i; 5]);
        }
        assert!(!link.ready());
        far.write_all(&[9]).unwrap();
        link.fill(&mut got[..1]).unwrap();
        far.write_all(&[8]).unwrap();
        while !link.ready() {}
    }

    /// What follows a message that waits does not pass it.
    #[test]
    fn a_full_socket_keeps_the_order() {
        let (near, mut far) = pair();
        let mut ch = TcpChannel::from_stream(near).unwrap();
        let word = |i: u32| i.to_le_bytes().repeat(1 << 14);
        let mut sent = 0;
        while ch.link().writer.idle() {
            ch.send(&word(sent)).unwrap();
            sent += 1;
        }
        // Messages smaller than what is gathered, some of them while the thread still writes.
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all
        });
        for i in 0..1000 {
            ch.send(&(sent + i).to_le_bytes()).unwrap();
            ch.flush().unwrap();
        }
        drop(ch);
        let mut expected: Vec<u8> = (0..sent).flat_map(word).collect();
        expected.extend((sent..sent + 1000).flat_map(u32::to_le_bytes));
        assert!(reader.join().unwrap() == expected);
    }
}
