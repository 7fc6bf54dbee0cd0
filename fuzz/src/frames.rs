//! A peer that says what a script makes of a recorded session.

use crate::edits;
use bytes::Bytes;
use hushnet_runtime::channel::{Channel, Traffic};
use hushnet_runtime::error::{Error, ProtocolError, TransportError};
use hushnet_runtime::wire::{Frame, HEADER};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Header bytes that a script may set after lengths were made right.
const LENGTH: std::ops::Range<usize> = 12..16;

/// The frames of a session, changed by a script. Its first byte says whether length fields follow the changes (they do when it is even).
pub fn changed(script: &[u8], frames: &[Bytes]) -> Vec<Bytes> {
    let Some((mode, script)) = script.split_first() else { return frames.to_vec() };
    let mut messages: Vec<Vec<u8>> = frames.iter().map(|f| f.to_vec()).collect();
    edits::apply(script, &mut messages);
    if mode % 2 == 0 {
        for message in messages.iter_mut().filter(|m| m.len() >= HEADER) {
            let length = (message.len() - HEADER) as u32;
            message[LENGTH].copy_from_slice(&length.to_le_bytes());
        }
    }
    messages.into_iter().map(Bytes::from).collect()
}

/// Scripts for a session of so many frames.
pub fn seeds(frames: usize) -> Vec<Vec<u8>> {
    let mut out = vec![Vec::new()];
    out.extend(edits::seeds(frames).into_iter().map(|s| [&[0], s.as_slice()].concat()));
    out.push(vec![1, 1, 0, 0, 12, 11]);
    out
}

/// The channel of a party whose peer is a list of frames.
pub struct Script {
    frames: VecDeque<Bytes>,
    limit: usize,
    traffic: Traffic,
}

impl Script {
    pub fn new(frames: Vec<Bytes>) -> Self {
        Self { frames: frames.into(), limit: usize::MAX, traffic: Traffic::default() }
    }
}

impl Channel for Script {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.traffic.sent += frame.bytes().len() as u64;
        Ok(())
    }
    fn recv(&mut self) -> Result<Frame, Error> {
        let bytes = self.frames.pop_front().ok_or(TransportError::Closed)?;
        self.traffic.received += bytes.len() as u64;
        if bytes.len() > self.limit.max(HEADER) {
            let (got, limit) = (bytes.len() as u64, self.limit as u64);
            return Err(ProtocolError::Oversize { got, limit }.into());
        }
        Ok(Frame::parse(bytes)?)
    }
    fn traffic(&self) -> Traffic {
        self.traffic
    }
    fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }
}

/// What one end of a session has received.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<Bytes>>>);

impl Heard {
    /// Every frame that came so far, in order.
    ///
    /// # Panics
    /// When a thread that recorded panicked.
    pub fn frames(&self) -> Vec<Bytes> {
        self.0.lock().expect("nobody panics while recording").clone()
    }
}

/// An end of a channel whose frames are kept as they come.
pub struct Recorder<C>(pub C, pub Heard);

impl<C: Channel> Channel for Recorder<C> {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.0.send(frame)
    }
    fn recv(&mut self) -> Result<Frame, Error> {
        let frame = self.0.recv()?;
        self.1 .0.lock().expect("nobody panics while recording").push(frame.bytes().clone());
        Ok(frame)
    }
    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }
    fn set_limit(&mut self, bytes: usize) {
        self.0.set_limit(bytes);
    }
}
