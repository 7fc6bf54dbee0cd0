//! What a session's thread writes to its connection itself.
//!
//! A session that shares its core with the network's thread would else leave its peer waiting until the scheduler takes the core from it, some milliseconds a message.

use super::socket::Line;
use crate::wire::Pool;
use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// A connection on which frames are the bytes that travel, and what the network's thread has still to write to it.
pub(super) struct Direct {
    line: Line,
    pool: Pool,
    left: Arc<AtomicUsize>,
}

/// Messages that wait for the network's thread.
#[derive(Clone, Default)]
pub(super) struct Left(Arc<AtomicUsize>);

impl Left {
    /// One more was written.
    pub(super) fn written(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Direct {
    pub(super) fn new(line: Line, pool: Pool) -> Self {
        Self { line, pool, left: Arc::default() }
    }

    /// What the network's thread tells when it has written a message.
    pub(super) fn left(&self) -> Left {
        Left(self.left.clone())
    }

    /// Writes what there is room for, unless earlier messages still wait. What remains is for the network's thread, and counts as waiting.
    pub(super) fn send(&self, mut bytes: Bytes) -> Option<Bytes> {
        if self.left.load(Ordering::Acquire) == 0 {
            let written = self.line.write(&bytes);
            if written == bytes.len() {
                self.pool.put(bytes);
                return None;
            }
            bytes = bytes.slice(written..);
        }
        self.left.fetch_add(1, Ordering::Relaxed);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::socket::Socket;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    /// What there is room for travels without the network's thread. Behind a message that waits, all wait, also when there is room again.
    #[tokio::test]
    async fn messages_keep_their_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let near = Socket::new(listener.accept().await.unwrap().0);
        let direct = Direct::new(near.line(), Pool::default());
        let left = direct.left();
        let small = || Bytes::from_static(b"small");
        let mut got = [0; 5];
        near.writable().await;
        assert!(direct.send(small()).is_none());
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"small");
        let large = Bytes::from(vec![7; 64 << 20]);
        let rest = direct.send(large.clone()).expect("more than a socket holds");
        assert!(!rest.is_empty() && rest.len() < large.len());
        assert_eq!(direct.send(small()).as_deref(), Some(&b"small"[..]));
        let mut sent = vec![0; large.len() - rest.len()];
        far.read_exact(&mut sent).await.unwrap();
        assert!(sent.iter().all(|&b| b == 7));
        // Both are still to be written by the network's thread.
        left.written();
        assert!(direct.send(small()).is_some());
    }
}
