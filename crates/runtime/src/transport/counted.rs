//! Connections that count somewhere as long as they are open, and that nobody keeps open by reading nothing.

use std::future::Future;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Bytes of pages that a peer takes in a second at least, where it takes longer than [`Counted`] grants.
const RATE: u64 = 16 << 10;

/// How an answer begins behind which a connection is a WebSocket. Its session has limits of its own.
const SWITCHES: &[u8] = b"HTTP/1.1 101";

/// How HTTP/2 begins, and no request of HTTP/1.1. The library underneath speaks both, whatever it is told, has no time limit for the first bytes that
/// tell them apart, and keeps a connection of HTTP/2 for as long as it likes.
const HTTP2: &[u8] = b"PRI";

/// A connection that pages are asked for on, and what counts it until it is dropped.
///
/// What begins as HTTP/2, or has not told after `grants` that it does not, is over.
/// The server waits for a peer that does not read its answers for `grants`, and a second more for each [`RATE`] bytes that it takes meanwhile. Then the
/// connection is over. What the system has room for before the server waits says nothing of the peer.
pub(super) struct Counted<S, P> {
    stream: S,
    _permit: P,
    /// How many bytes have come, all of them as of HTTP/2, and until when others are waited for; `None` once there are others.
    begins: Option<(usize, Pin<Box<Sleep>>)>,
    /// Left of what the peer may keep the server waiting; `None` of a WebSocket.
    left: Option<Duration>,
    /// Bytes that were taken beyond whole seconds of [`RATE`]; `None` before the server has waited.
    taken: Option<u64>,
    /// Since when the server waits, and until when.
    waits: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<S: Unpin, P: Unpin> Counted<S, P> {
    /// Within a runtime, which has the time.
    pub(super) fn new(stream: S, permit: P, grants: Duration) -> Self {
        let begins = Some((0, Box::pin(tokio::time::sleep(grants))));
        Self { stream, _permit: permit, begins, left: Some(grants), taken: None, waits: None }
    }

    /// What became of reading the first bytes, where they may be those of HTTP/2.
    fn beginning(
        &mut self,
        context: &mut Context<'_>,
        became: Poll<IoResult<()>>,
        came: &[u8],
    ) -> Poll<IoResult<()>> {
        let Some((seen, until)) = &mut self.begins else { return became };
        match became {
            Poll::Pending if until.as_mut().poll(context).is_ready() => {
                return Poll::Ready(Err(IoError::from(ErrorKind::TimedOut)));
            }
            Poll::Ready(Ok(())) => {
                let due = &HTTP2[*seen..];
                let same = due.iter().zip(came).take_while(|(wanted, byte)| wanted == byte).count();
                *seen += same;
                if *seen == HTTP2.len() {
                    return Poll::Ready(Err(IoError::from(ErrorKind::InvalidData)));
                }
                if same < came.len() {
                    self.begins = None;
                }
            }
            _ => {}
        }
        became
    }

    /// What became of writing, unless the peer has kept the server waiting for too long.
    fn within<T>(&mut self, context: &mut Context<'_>, became: Poll<IoResult<T>>) -> Poll<IoResult<T>> {
        let Some(left) = self.left else { return became };
        if became.is_ready() {
            if let Some((since, _)) = self.waits.take() {
                self.left = Some(left.saturating_sub(since.elapsed()));
            }
            return became;
        }
        self.taken.get_or_insert(0);
        let begin = || (Instant::now(), Box::pin(tokio::time::sleep(left)));
        let (_, until) = self.waits.get_or_insert_with(begin);
        match until.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(IoError::from(ErrorKind::TimedOut))),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The peer may take longer for the next bytes, because it has taken these.
    fn took(&mut self, bytes: usize) {
        if let (Some(taken), Some(left)) = (&mut self.taken, &mut self.left) {
            *taken += bytes as u64;
            *left = left.saturating_add(Duration::from_secs(*taken / RATE));
            *taken %= RATE;
        }
    }
}

impl<S: AsyncRead + Unpin, P: Unpin> AsyncRead for Counted<S, P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<IoResult<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.beginning(context, read, &buffer.filled()[before..])
    }
}

impl<S: AsyncWrite + Unpin, P: Unpin> AsyncWrite for Counted<S, P> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<IoResult<usize>> {
        if bytes.starts_with(SWITCHES) {
            (self.left, self.waits) = (None, None);
        }
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        let wrote = self.within(context, wrote);
        if let Poll::Ready(Ok(bytes)) = wrote {
            self.took(bytes);
        }
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.within(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.within(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{duplex, AsyncReadExt, AsyncWriteExt};

    const GRANTS: Duration = Duration::from_secs(10);

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn who_reads_nothing_is_left_and_who_reads_slowly_is_not() {
        run(async {
            let grants = Duration::from_millis(100);
            let (ours, _theirs) = duplex(1024);
            let mut deaf = Counted::new(ours, (), grants);
            let begun = Instant::now();
            let error = deaf.write_all(&[0; 4096]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(begun.elapsed() >= grants && begun.elapsed() < GRANTS);

            let (ours, mut theirs) = duplex(1024);
            let mut slow = Counted::new(ours, (), GRANTS);
            let reader = tokio::spawn(async move {
                let mut all = Vec::new();
                theirs.read_to_end(&mut all).await.unwrap();
                all.len()
            });
            slow.write_all(&[0; 40 << 10]).await.unwrap();
            assert!(slow.left.unwrap() > GRANTS, "each 16 KiB that were taken grant a second");
            drop(slow);
            assert_eq!(reader.await.unwrap(), 40 << 10);

            // A session may wait as long as its own limits say.
            let (ours, _theirs) = duplex(1024);
            let mut socket = Counted::new(ours, (), grants);
            socket.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await.unwrap();
            assert!(tokio::time::timeout(3 * grants, socket.write_all(&[0; 4096])).await.is_err());
        });
    }

    #[test]
    fn http_2_and_what_may_become_it_is_over() {
        run(async {
            let grants = Duration::from_millis(100);
            // All at once, one by one, and a beginning that goes on for too long.
            for (pieces, wanted) in [
                (vec![&b"PRI * HTTP/2.0"[..]], Some(ErrorKind::InvalidData)),
                (vec![b"P", b"R", b"I"], Some(ErrorKind::InvalidData)),
                (vec![b"P"], Some(ErrorKind::TimedOut)),
                (vec![b"PR"], Some(ErrorKind::TimedOut)),
                (vec![], Some(ErrorKind::TimedOut)),
                (vec![b"PROPFIND"], None),
                (vec![b"P", b"OST"], None),
                (vec![b"GET / HTTP/1.1"], None),
            ] {
                let (ours, mut theirs) = duplex(1024);
                let mut counted = Counted::new(ours, (), grants);
                for piece in &pieces {
                    theirs.write_all(piece).await.unwrap();
                }
                let mut all = vec![0; pieces.concat().len() + 1];
                let read = tokio::time::timeout(3 * grants, counted.read_exact(&mut all)).await;
                match wanted {
                    Some(kind) => assert_eq!(read.unwrap().unwrap_err().kind(), kind, "{pieces:?}"),
                    None => assert!(read.is_err(), "what has begun has its own limits: {pieces:?}"),
                }
            }
        });
    }

    #[test]
    fn a_drip_is_no_reading() {
        run(async {
            let (ours, mut theirs) = duplex(64);
            let mut dripped = Counted::new(ours, (), Duration::from_millis(200));
            let reader = tokio::spawn(async move {
                // A byte every 20 ms: each of them is progress, and all of them together are nothing.
                while theirs.read_u8().await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
            let begun = Instant::now();
            assert!(dripped.write_all(&[0; 4096]).await.is_err());
            assert!(begun.elapsed() < GRANTS);
            drop(dripped);
            reader.await.unwrap();
        });
    }
}
