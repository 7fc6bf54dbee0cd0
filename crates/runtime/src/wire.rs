//! Frames and control messages of `docs/wire-protocol.md`.

use crate::error::{Error, ProtocolError};
use bytes::Bytes;
use prost::Message;
#[cfg(not(any(target_family = "wasm", fuzzing)))]
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a frame's header.
pub const HEADER: usize = 16;
/// Version of sessions, which the greeting states; peers of another are refused. Since 2 a greeting may name a model and carry a token.
pub const PROTOCOL: u32 = 2;
/// Version of frames, which every header states.
pub(crate) const FRAMES: u8 = 1;
/// Largest frame of a greeting, header included: versions, a name and a token.
#[cfg(not(any(target_family = "wasm", fuzzing)))]
pub(crate) const GREETING_FRAME: usize = 2048;
/// First bytes of every frame; no HTTP method begins with them.
pub(crate) const MAGIC: [u8; 2] = *b"HN";

/// What a frame carries, as its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// [`Hello`].
    Hello = 1,
    /// The public part of the plan.
    Plan = 2,
    /// [`Begin`].
    Begin = 3,
    /// Weighted sums of shared masks.
    SetupMask = 4,
    /// [`Block`].
    Block = 5,
    /// Encrypted features of a tile.
    Request = 6,
    /// Encrypted outputs of a tile.
    Response = 7,
    /// [`End`].
    End = 8,
    /// [`Failure`].
    Error = 9,
    /// Asks for every SetupMask.
    Setup = 10,
    /// A piece of a two-party session's byte stream.
    Bytes = 11,
    /// Whether evaluation keys are known: [`Keys`].
    Keys = 12,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Hello,
        Self::Plan,
        Self::Begin,
        Self::SetupMask,
        Self::Block,
        Self::Request,
        Self::Response,
        Self::End,
        Self::Error,
        Self::Setup,
        Self::Bytes,
        Self::Keys,
    ];

    /// The name of the kind, as messages of errors have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hello => "Hello",
            Self::Plan => "Plan",
            Self::Begin => "Begin",
            Self::SetupMask => "SetupMask",
            Self::Block => "Block",
            Self::Request => "Request",
            Self::Response => "Response",
            Self::End => "End",
            Self::Error => "Error",
            Self::Setup => "Setup",
            Self::Bytes => "Bytes",
            Self::Keys => "Keys",
        }
    }
}

/// A checked frame that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    bytes: Bytes,
    kind: Kind,
}

impl Frame {
    /// Checks a message: magic, version, kind, length.
    ///
    /// # Errors
    /// [`ProtocolError`] naming what is wrong.
    pub fn parse(bytes: Bytes) -> Result<Self, ProtocolError> {
        let Some(header) = bytes.first_chunk() else {
            return Err(ProtocolError::NotAFrame("shorter than a header"));
        };
        let (kind, length) = parse_header(header)?;
        let frame = Self { bytes, kind };
        if length != frame.payload().len() {
            return Err(ProtocolError::NotAFrame("the length field does not match the message"));
        }
        Ok(frame)
    }

    fn word(&self, at: usize) -> u32 {
        let b = &self.bytes[at..at + 4];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }

    /// What the frame carries, by its header.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }
    /// The index of the stage that it belongs to.
    #[must_use]
    pub fn stage(&self) -> u32 {
        self.word(4)
    }
    /// The index of the tile that it belongs to.
    #[must_use]
    pub fn tile(&self) -> u32 {
        self.word(8)
    }
    /// All bytes of the frame that stand behind its header.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }
    /// The whole frame: header and payload.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Decodes a control message of the given kind.
    ///
    /// # Errors
    /// [`Error::Protocol`] for another kind (an Error frame as what the peer says) or an invalid message.
    pub fn message<M: Message + Default>(&self, kind: Kind) -> Result<M, Error> {
        self.expect(kind, 0, 0)?;
        M::decode(self.payload())
            .map_err(|e| ProtocolError::Message { kind: kind.name(), detail: e.to_string() }.into())
    }

    /// Refuses every frame but the one that is due; an Error frame becomes [`ProtocolError::Peer`].
    ///
    /// # Errors
    /// [`ProtocolError::Unexpected`], [`ProtocolError::Peer`].
    pub fn expect(&self, kind: Kind, stage: u32, tile: u32) -> Result<(), ProtocolError> {
        if self.kind == Kind::Error && kind != Kind::Error {
            let failure = Failure::decode(self.payload()).unwrap_or_default();
            // The peer's words are shown to people: one short line of them.
            let message = failure.message.chars().filter(|c| !c.is_control()).take(200).collect();
            let seconds = failure.seconds.min(LONGEST_WAIT);
            return Err(ProtocolError::Peer { code: failure.code, message, seconds });
        }
        if (self.kind, self.stage(), self.tile()) != (kind, stage, tile) {
            return Err(ProtocolError::Unexpected {
                expected: format!("{} (stage {stage}, tile {tile})", kind.name()),
                got: format!("{} (stage {}, tile {})", self.kind.name(), self.stage(), self.tile()),
            });
        }
        Ok(())
    }

    /// [`Self::expect`], and a payload of exactly `length` bytes.
    ///
    /// # Errors
    /// As [`Self::expect`]; [`ProtocolError::Length`].
    pub fn expect_payload(
        &self,
        kind: Kind,
        stage: u32,
        tile: u32,
        length: usize,
    ) -> Result<&[u8], ProtocolError> {
        self.expect(kind, stage, tile)?;
        let got = self.payload().len();
        if got != length {
            return Err(ProtocolError::Length { kind: kind.name(), stage, tile, got, expected: length });
        }
        Ok(self.payload())
    }

    /// Header and payload, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The buffer, for another frame, where nobody else holds it.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes.try_into_mut().map(Vec::from).unwrap_or_default()
    }
}

/// Kind and payload length of a header.
fn parse_header(header: &[u8; HEADER]) -> Result<(Kind, usize), ProtocolError> {
    if header[..2] != MAGIC {
        return Err(ProtocolError::NotAFrame("no magic"));
    }
    if header[2] != FRAMES {
        return Err(ProtocolError::Version { got: u32::from(header[2]), ours: u32::from(FRAMES) });
    }
    let kind = Kind::ALL
        .into_iter()
        .find(|k| *k as u8 == header[3])
        .ok_or(ProtocolError::NotAFrame("unknown kind"))?;
    let length = [header[12], header[13], header[14], header[15]];
    Ok((kind, u32::from_le_bytes(length) as usize))
}

/// Bytes of the frame that a header announces, header included, before anything is allocated for it.
#[cfg(not(any(target_family = "wasm", fuzzing)))]
pub(crate) fn announced(header: &[u8; HEADER], limit: usize) -> Result<usize, ProtocolError> {
    let (_, length) = parse_header(header)?;
    let total = HEADER.saturating_add(length);
    crate::channel::check_limit(total, limit)?;
    Ok(total)
}

/// Buffers of frames that were sent, for frames to come: nothing is allocated or cleared in a steady stream of tiles.
#[cfg(not(any(target_family = "wasm", fuzzing)))]
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

#[cfg(not(any(target_family = "wasm", fuzzing)))]
impl Pool {
    /// Buffers kept.
    const KEPT: usize = 4;
    /// Smaller ones are not worth keeping.
    const LEAST: usize = 1 << 14;

    /// Keeps the buffer of a frame, where nobody else holds it.
    pub(crate) fn put(&self, bytes: Bytes) {
        if bytes.len() < Self::LEAST {
            return;
        }
        if let Ok(buffer) = bytes.try_into_mut() {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < Self::KEPT {
                kept.push(Vec::from(buffer));
            }
        }
    }

    /// An empty buffer with room for `length` bytes.
    pub(crate) fn take(&self, length: usize) -> Vec<u8> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = kept.iter().position(|b| b.capacity() >= length);
        // One that is too small makes place for one that will be used again.
        let found = fits.map(|i| kept.swap_remove(i)).or_else(|| {
            if length >= Self::LEAST {
                kept.pop();
            }
            None
        });
        drop(kept);
        let mut buffer = found.unwrap_or_else(|| Vec::with_capacity(length));
        buffer.clear();
        buffer
    }
}

/// What stands before a payload of `length` bytes.
fn header(kind: Kind, stage: u32, tile: u32, length: usize) -> Result<[u8; HEADER], ProtocolError> {
    let field = u32::try_from(length)
        .map_err(|_| ProtocolError::Oversize { got: length as u64, limit: u64::from(u32::MAX) })?;
    let mut header = [0; HEADER];
    header[..2].copy_from_slice(&MAGIC);
    header[2] = FRAMES;
    header[3] = kind as u8;
    header[4..8].copy_from_slice(&stage.to_le_bytes());
    header[8..12].copy_from_slice(&tile.to_le_bytes());
    header[12..].copy_from_slice(&field.to_le_bytes());
    Ok(header)
}

/// A frame that is being written.
#[derive(Debug)]
pub struct FrameBuilder {
    bytes: Vec<u8>,
    kind: Kind,
}

impl FrameBuilder {
    /// A frame with a payload of `length` bytes of unspecified content, in a used buffer.
    ///
    /// # Errors
    /// [`ProtocolError::Oversize`] above 4 GiB.
    pub fn reuse(
        mut buffer: Vec<u8>,
        kind: Kind,
        stage: u32,
        tile: u32,
        length: usize,
    ) -> Result<Self, ProtocolError> {
        let header = header(kind, stage, tile, length)?;
        buffer.resize(HEADER + length, 0);
        buffer[..HEADER].copy_from_slice(&header);
        Ok(Self { bytes: buffer, kind })
    }

    /// A frame with a given payload.
    ///
    /// # Errors
    /// [`ProtocolError::Oversize`] above 4 GiB.
    pub fn with_payload(kind: Kind, payload: &[u8]) -> Result<Frame, ProtocolError> {
        let header = header(kind, 0, 0, payload.len())?;
        Ok(Self { bytes: [&header, payload].concat(), kind }.finish())
    }

    /// A control message.
    ///
    /// # Errors
    /// [`ProtocolError::Oversize`] above 4 GiB.
    pub fn message(kind: Kind, message: &impl Message) -> Result<Frame, ProtocolError> {
        Self::with_payload(kind, &message.encode_to_vec())
    }

    /// All bytes of the frame that stand behind its header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[HEADER..]
    }

    /// The finished frame, which can be sent.
    #[must_use]
    pub fn finish(self) -> Frame {
        Frame { bytes: self.bytes.into(), kind: self.kind }
    }
}

/// First message of a client.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Hello {
    /// [`PROTOCOL`].
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// Program and version.
    #[prost(string, tag = "2")]
    pub producer: String,
    /// Name of the model that the client asks for; empty: the only one.
    #[prost(string, tag = "3")]
    pub model: String,
    /// What shows that the client may ask, where the server wants it; empty: nothing.
    #[prost(string, tag = "4")]
    pub token: String,
}

/// Without the token, which no log may hold.
impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Hello");
        shown.field("protocol", &self.protocol).field("producer", &self.producer).field("model", &self.model);
        shown.finish_non_exhaustive()
    }
}

/// The message with which a client opens a session.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Begin {
    /// Seed of the public masks, 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub seed: Vec<u8>,
    /// Images in all blocks together; 0: not known yet.
    #[prost(uint64, tag = "2")]
    pub images: u64,
}

/// Asks whether the server has the evaluation keys of a client from an earlier session, and answers that.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Keys {
    /// From the client: the hash of its keys, 32 bytes; nothing when they are new.
    #[prost(bytes = "vec", tag = "1")]
    pub hash: Vec<u8>,
    /// From the server: whether it has them, so that none are sent.
    #[prost(bool, tag = "2")]
    pub known: bool,
}

/// Announces a block of images.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Block {
    /// Index, counted from 0 within the session.
    #[prost(uint32, tag = "1")]
    pub index: u32,
    /// Images in it, 1 to N.
    #[prost(uint32, tag = "2")]
    pub images: u32,
}

/// The message with which a client closes a session.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct End {}

/// The message in which a party says why it stops.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Failure {
    /// One of [`crate::error::code`].
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// A sentence without secrets.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Seconds after which it is worth trying again; 0: nothing is known of it.
    #[prost(uint32, tag = "3")]
    pub seconds: u32,
}

/// Longest wait that a peer's word can ask for, in seconds.
const LONGEST_WAIT: u32 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_bytes_are_pinned() {
        let mut builder = FrameBuilder::reuse(vec![9; 3], Kind::Request, 0x0102, 3, 2).unwrap();
        builder.payload_mut().copy_from_slice(&[7, 8]);
        let frame = builder.finish();
        assert_eq!(frame.bytes().as_ref(), [b'H', b'N', 1, 6, 2, 1, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 7, 8]);
        let parsed = Frame::parse(frame.bytes().clone()).unwrap();
        assert_eq!(parsed, frame);
        assert_eq!(parsed.expect_payload(Kind::Request, 0x0102, 3, 2), Ok(&[7, 8][..]));
        assert!(matches!(
            parsed.expect_payload(Kind::Request, 0x0102, 3, 4),
            Err(ProtocolError::Length { got: 2, expected: 4, .. })
        ));
        assert!(matches!(parsed.expect(Kind::Response, 0x0102, 3), Err(ProtocolError::Unexpected { .. })));
        let begin = Begin { seed: vec![1; 2], images: 5 };
        let frame = FrameBuilder::message(Kind::Begin, &begin).unwrap();
        assert_eq!(frame.payload(), [10, 2, 1, 1, 16, 5]);
        assert_eq!(frame.message::<Begin>(Kind::Begin).unwrap(), begin);
    }

    #[test]
    fn wrong_frames_are_typed_errors() {
        let good =
            FrameBuilder::message(Kind::Block, &Block { index: 1, images: 2 }).unwrap().bytes().to_vec();
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Frame::parse(bytes.into())
        };
        assert!(matches!(with(0, b'X'), Err(ProtocolError::NotAFrame("no magic"))));
        assert!(matches!(with(2, 2), Err(ProtocolError::Version { got: 2, .. })));
        assert!(matches!(with(3, 0), Err(ProtocolError::NotAFrame("unknown kind"))));
        assert!(matches!(with(3, 13), Err(ProtocolError::NotAFrame("unknown kind"))));
        assert!(matches!(with(12, 200), Err(ProtocolError::NotAFrame(_))));
        for length in 0..good.len() {
            assert!(Frame::parse(good[..length].to_vec().into()).is_err());
        }
        let failure = Failure { code: 3, message: "no\nluck".into(), seconds: u32::MAX };
        let frame = FrameBuilder::message(Kind::Error, &failure).unwrap();
        assert_eq!(
            frame.expect(Kind::Plan, 0, 0),
            Err(ProtocolError::Peer { code: 3, message: "noluck".into(), seconds: 3600 })
        );
    }

    #[test]
    fn a_greeting_is_printed_without_its_token() {
        let hello =
            Hello { protocol: 2, producer: "p".into(), model: "digits".into(), token: "hush-hush".into() };
        let shown = format!("{hello:?}");
        assert!(shown.contains("digits") && !shown.contains("hush-hush"), "{shown}");
        assert_eq!(Hello { protocol: 1, ..Hello::default() }.encode_to_vec(), [8, 1]);
    }
}
