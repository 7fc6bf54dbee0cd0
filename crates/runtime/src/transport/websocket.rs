//! A client's WebSocket.

use super::client::{Patience, Stream};
use super::token::AccessToken;
use crate::channel::{check_limit, Channel, Traffic};
use crate::error::{code, Error, ProtocolError, TransportError};
use crate::wire::Frame;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tungstenite::client::IntoClientRequest;
use tungstenite::error::CapacityError;
use tungstenite::http::{HeaderValue, Response};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

/// Frames as binary messages.
pub(super) struct WebSocketConnection {
    socket: WebSocket<Stream>,
    traffic: Traffic,
    limit: usize,
    patience: Patience,
}

/// The header of an answer that says that there is no such model, and not that there is no such page.
pub(super) const NO_MODEL: &str = "x-hushnet-no-model";

/// Seconds after which an answer says that trying again is worth it; 0: it says nothing.
fn retry_after<B>(response: &Response<B>) -> u32 {
    let said = response.headers().get("retry-after").and_then(|v| v.to_str().ok());
    said.and_then(|text| text.parse().ok()).map_or(0, |seconds: u32| seconds.min(3600))
}

fn upgrade_error(address: &str, e: tungstenite::Error) -> Error {
    match e {
        tungstenite::Error::Http(response) if response.status() == 503 => {
            let message = "the server is full or stopping; try again later".to_owned();
            ProtocolError::Peer { code: code::BUSY, message, seconds: retry_after(&response) }.into()
        }
        tungstenite::Error::Http(response) if response.status() == 429 => {
            let message = "too many wrong tokens have come from this address".to_owned();
            ProtocolError::Peer { code: code::BUSY, message, seconds: retry_after(&response) }.into()
        }
        tungstenite::Error::Http(response) if response.status() == 401 => ProtocolError::Unauthorized.into(),
        tungstenite::Error::Http(response)
            if response.status() == 404 && response.headers().contains_key(NO_MODEL) =>
        {
            ProtocolError::NoModel { names: Vec::new() }.into()
        }
        tungstenite::Error::Http(response) => {
            let detail =
                format!("the server answers with HTTP status {}; is it a Hushnet server?", response.status());
            TransportError::Connect { address: address.to_owned(), detail }.into()
        }
        other => TransportError::Connect { address: address.to_owned(), detail: other.to_string() }.into(),
    }
}

impl WebSocketConnection {
    /// Upgrades a connection; `address` names it in errors.
    pub(super) fn open(
        target: &str,
        token: Option<&AccessToken>,
        address: &str,
        stream: Stream,
        patience: Patience,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let limit = 64 << 20;
        let config = WebSocketConfig::default().max_message_size(Some(limit)).max_frame_size(Some(limit));
        let no_url = |e: tungstenite::Error| TransportError::Connect {
            address: address.to_owned(),
            detail: e.to_string(),
        };
        let mut request = target.into_client_request().map_err(no_url)?;
        if let Some(token) = token {
            // A token is visible ASCII.
            if let Ok(mut value) = HeaderValue::try_from(format!("Bearer {}", token.expose())) {
                value.set_sensitive(true);
                request.headers_mut().insert("authorization", value);
            }
        }
        let socket = match tungstenite::client::client_with_config(request, stream, Some(config)) {
            Ok((socket, _)) => socket,
            Err(tungstenite::HandshakeError::Failure(e)) => return Err(upgrade_error(address, e)),
            Err(tungstenite::HandshakeError::Interrupted(_)) => {
                return Err(TransportError::Timeout { seconds: timeout.as_secs() }.into());
            }
        };
        Ok(Self { socket, traffic: Traffic::default(), limit, patience })
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        self.socket.get_ref().tcp()
    }

    fn failure(&self, e: tungstenite::Error) -> Error {
        match e {
            tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
                TransportError::Closed.into()
            }
            tungstenite::Error::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
                ProtocolError::Oversize { got: size as u64, limit: max_size as u64 }.into()
            }
            tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => {
                TransportError::Closed.into()
            }
            tungstenite::Error::Protocol(_) => ProtocolError::NotAFrame("not WebSocket data").into(),
            tungstenite::Error::Io(e) => self.patience.failure(&e).into(),
            other => TransportError::Io(other.to_string()).into(),
        }
    }
}

impl Channel for WebSocketConnection {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.traffic.sent += frame.bytes().len() as u64;
        match self.socket.send(Message::Binary(frame.bytes().clone())) {
            Ok(()) => Ok(()),
            Err(e) => match self.failure(e) {
                Error::Transport(e) => Err(e),
                other => Err(TransportError::Io(other.to_string())),
            },
        }
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        let start = Instant::now();
        loop {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => {
                    self.traffic.received += bytes.len() as u64;
                    check_limit(bytes.len(), self.limit)?;
                    return Ok(Frame::parse(bytes)?);
                }
                Ok(Message::Text(_)) => return Err(ProtocolError::NotAFrame("a text message").into()),
                Ok(Message::Close(_)) => return Err(TransportError::Closed.into()),
                Ok(_) => {}
                Err(tungstenite::Error::Io(e))
                    if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    self.patience.check(start)?;
                }
                Err(e) => return Err(self.failure(e)),
            }
        }
    }

    fn ready(&mut self) -> bool {
        self.socket.get_mut().ready()
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
        self.socket.set_config(|c| {
            c.max_message_size = Some(bytes);
            c.max_frame_size = Some(bytes);
        });
    }
}

impl Drop for WebSocketConnection {
    fn drop(&mut self) {
        // The peer may be gone; there is nobody to tell.
        let _ = self.socket.close(None).and_then(|()| self.socket.flush());
    }
}
