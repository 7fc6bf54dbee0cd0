//! A client's greeting: who asks, and for which model. Nothing is done for a client before it has been answered.

use super::bridge::Bridge;
use super::models::{Model, Models};
use super::peers::Peers;
use super::token::Tokens;
use crate::channel::{Channel, Reserve, Traffic};
use crate::error::{Error, ProtocolError, TransportError};
use crate::wire::{Frame, Hello, Kind, GREETING_FRAME, PROTOCOL};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

/// Who may ask, and for what.
pub(super) struct Reception {
    pub models: Models,
    pub peers: Arc<Peers>,
    /// The tokens of clients; `None`: anybody may ask.
    pub tokens: Option<RwLock<Tokens>>,
}

/// What is known of a client before its greeting.
#[derive(Clone)]
pub(super) struct Caller {
    /// Address and port of the peer.
    pub peer: SocketAddr,
    /// The owner of the token in the request's header.
    pub owner: Option<String>,
    /// The model that the path of the request names; empty: none.
    pub model: String,
}

impl Caller {
    pub(super) fn new(peer: SocketAddr) -> Self {
        Self { peer, owner: None, model: String::new() }
    }
}

impl Reception {
    /// The owner of a token; nobody's where none are asked for.
    ///
    /// # Errors
    /// [`ProtocolError::Unauthorized`]; [`TransportError::Limited`] after too many wrong ones.
    pub(super) fn owner(&self, peer: SocketAddr, token: &str) -> Result<Option<String>, Error> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        self.peers.patient(peer)?;
        let found = tokens.read().unwrap_or_else(PoisonError::into_inner).owner(token).map(str::to_owned);
        if found.is_none() {
            self.peers.failed(peer);
            return Err(ProtocolError::Unauthorized.into());
        }
        Ok(found)
    }

    /// Receives a greeting: its frame, the model that it asks for, and the name of the peer.
    ///
    /// # Errors
    /// [`Error`]: transport, protocol, no such model, no such token.
    pub(super) fn greet(
        &self,
        bridge: &mut Bridge,
        caller: &Caller,
    ) -> Result<(Frame, Arc<Model>, String), Error> {
        bridge.set_limit(GREETING_FRAME);
        let frame = bridge.recv()?;
        let hello: Hello = frame.message(Kind::Hello)?;
        if hello.protocol != PROTOCOL {
            return Err(ProtocolError::Version { got: hello.protocol, ours: PROTOCOL }.into());
        }
        let owner = match &caller.owner {
            Some(owner) => Some(owner.clone()),
            None => self.owner(caller.peer, &hello.token)?,
        };
        let asked = match (caller.model.as_str(), hello.model.as_str()) {
            ("", name) | (name, "") => name,
            (path, name) if path == name => name,
            _ => {
                let detail = "it names another model than the path does".to_owned();
                return Err(ProtocolError::Message { kind: "Hello", detail }.into());
            }
        };
        let model = self.models.find(asked)?;
        Ok((frame, model, self.peers.name(caller.peer, owner.as_deref())))
    }

    /// Reads the tokens again.
    ///
    /// # Errors
    /// [`TransportError::Tokens`]: then those that the server has stay.
    pub(super) fn renew(&self, path: &std::path::Path) -> Result<(), TransportError> {
        let read = Tokens::read(path)?;
        if let Some(tokens) = &self.tokens {
            *tokens.write().unwrap_or_else(PoisonError::into_inner) = read;
        }
        Ok(())
    }
}

/// A channel whose first frame has been looked at.
pub(super) struct Greeted<C> {
    first: Option<Frame>,
    inner: C,
}

impl<C> Greeted<C> {
    pub(super) fn new(first: Frame, inner: C) -> Self {
        Self { first: Some(first), inner }
    }
}

impl<C: Channel> Channel for Greeted<C> {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.inner.send(frame)
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        self.first.take().map_or_else(|| self.inner.recv(), Ok)
    }

    fn ready(&mut self) -> bool {
        self.first.is_some() || self.inner.ready()
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }

    fn set_limit(&mut self, bytes: usize) {
        self.inner.set_limit(bytes);
    }

    fn rest(&mut self, resting: bool) {
        self.inner.rest(resting);
    }

    fn reserve(&mut self, what: Reserve) -> Result<(), Error> {
        self.inner.reserve(what)
    }
}
