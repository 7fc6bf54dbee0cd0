//! A client's connection without WebSocket: frames one after another (`docs/wire-protocol.md`).

use super::client::{Patience, Stream};
use crate::channel::{Channel, Traffic};
use crate::error::{Error, TransportError};
use crate::wire::{announced, Frame, Pool, HEADER};
use std::io::{ErrorKind, Write};
use std::time::Instant;

/// Bare frames.
pub(super) struct RawConnection {
    stream: Stream,
    traffic: Traffic,
    limit: usize,
    patience: Patience,
    pool: Pool,
}

impl RawConnection {
    pub(super) fn new(stream: Stream, patience: Patience) -> Self {
        Self { stream, traffic: Traffic::default(), limit: 64 << 20, patience, pool: Pool::default() }
    }

    /// Appends bytes to `buffer` until it holds `length`.
    fn fill(&mut self, buffer: &mut Vec<u8>, length: usize, start: Instant) -> Result<(), Error> {
        while buffer.len() < length {
            let missing = (length - buffer.len()) as u64;
            // Stops at an error, with what came before it in the buffer.
            match self.stream.append(buffer, missing) {
                Ok(_) if buffer.len() < length => return Err(TransportError::Closed.into()),
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    self.patience.check(start)?;
                }
                Err(e) => return Err(self.patience.failure(&e).into()),
            }
        }
        Ok(())
    }
}

impl Channel for RawConnection {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        let bytes = frame.into_bytes();
        self.traffic.sent += bytes.len() as u64;
        let sent = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
        sent.map_err(|e| self.patience.failure(&e))?;
        self.pool.put(bytes);
        Ok(())
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        let start = Instant::now();
        let mut header = Vec::with_capacity(HEADER);
        self.fill(&mut header, HEADER, start)?;
        let total = match header.first_chunk() {
            Some(header) => announced(header, self.limit)?,
            None => return Err(TransportError::Closed.into()),
        };
        let mut buffer = self.pool.take(total);
        buffer.extend_from_slice(&header);
        self.fill(&mut buffer, total, start)?;
        self.traffic.received += total as u64;
        Ok(Frame::parse(buffer.into())?)
    }

    fn ready(&mut self) -> bool {
        self.stream.ready()
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        // The peer may be gone; there is nobody to tell.
        if let Stream::Tls(s) = &mut self.stream {
            s.conn.send_close_notify();
            let _ = s.flush();
        }
    }
}
