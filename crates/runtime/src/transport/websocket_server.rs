//! The server's end of a WebSocket.

use super::bridge::{Arrival, Sink, Source};
use crate::error::{Error, ProtocolError, TransportError};
use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};

/// Both halves of a WebSocket.
pub(super) fn halves(socket: WebSocket) -> (Receiver, Sender) {
    let (sink, stream) = socket.split();
    (Receiver(stream), Sender(sink))
}

/// The receiving half.
pub(super) struct Receiver(SplitStream<WebSocket>);

/// The sending half.
pub(super) struct Sender(SplitSink<WebSocket, Message>);

impl Source for Receiver {
    /// The limit is the socket's own, which knows the models and not which one is asked for.
    async fn next(&mut self, _limit: usize) -> Option<Arrival> {
        loop {
            return match self.0.next().await? {
                Ok(Message::Binary(bytes)) => Some(Arrival::Frame(bytes)),
                Ok(Message::Text(_)) => {
                    Some(Arrival::Failed(ProtocolError::NotAFrame("a text message").into()))
                }
                Ok(Message::Close(_)) => None,
                Ok(Message::Ping(_) | Message::Pong(_)) => continue,
                Err(e) => Some(Arrival::Failed(failure(e))),
            };
        }
    }

    /// The closing handshake has said all.
    async fn discard(&mut self) {}
}

impl Sink for Sender {
    async fn send(&mut self, bytes: Bytes) -> bool {
        self.0.send(Message::Binary(bytes)).await.is_ok()
    }

    async fn close(&mut self) {
        // The peer may be gone; there is nobody to tell.
        let _ = self.0.close().await;
    }
}

fn failure(e: axum::Error) -> Error {
    let inner = e.into_inner();
    match inner.downcast_ref::<tungstenite::Error>() {
        Some(tungstenite::Error::Capacity(tungstenite::error::CapacityError::MessageTooLong {
            size,
            max_size,
        })) => ProtocolError::Oversize { got: *size as u64, limit: *max_size as u64 }.into(),
        Some(
            tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)
            | tungstenite::Error::Io(_)
            | tungstenite::Error::ConnectionClosed,
        ) => TransportError::Closed.into(),
        Some(tungstenite::Error::Protocol(_) | tungstenite::Error::Utf8(_)) => {
            ProtocolError::NotAFrame("not WebSocket data").into()
        }
        _ => TransportError::Io(inner.to_string()).into(),
    }
}
