//! Frames and control messages.

use crate::Target;
use hushnet_runtime::wire::{Begin, Block, End, Failure, Frame, FrameBuilder, Hello, Kind};

/// Frames and control messages of `docs/wire-protocol.md`.
pub const FRAME: Target = Target { seeds, run, memory: 1 << 20 };

fn seeds() -> Vec<(String, Vec<u8>)> {
    let hello = FrameBuilder::message(
        Kind::Hello,
        &Hello {
            protocol: 2,
            producer: "hushnet 0.1.0".into(),
            model: "digits".into(),
            token: "0123456789abcdef".into(),
        },
    );
    let begin = FrameBuilder::message(Kind::Begin, &Begin { seed: vec![7; 32], images: 5 });
    let block = FrameBuilder::message(Kind::Block, &Block { index: 3, images: 64 });
    let end = FrameBuilder::message(Kind::End, &End {});
    let failure = FrameBuilder::message(Kind::Error, &Failure { code: 3, message: "no\nluck".into(), seconds: 7 });
    let mut out: Vec<(String, Vec<u8>)> =
        [("hello", hello), ("begin", begin), ("block", block), ("end", end), ("error", failure)]
            .into_iter()
            .map(|(name, frame)| (name.to_owned(), frame.expect("a short frame").bytes().to_vec()))
            .collect();
    for kind in [Kind::Plan, Kind::SetupMask, Kind::Request, Kind::Response, Kind::Setup, Kind::Bytes] {
        let mut frame = FrameBuilder::reuse(Vec::new(), kind, 2, 1, 9).expect("a short frame");
        frame.payload_mut().copy_from_slice(b"ciphertxt");
        out.push((kind.name().to_lowercase(), frame.finish().bytes().to_vec()));
    }
    out
}

fn run(data: &[u8]) {
    let Ok(frame) = Frame::parse(bytes::Bytes::copy_from_slice(data)) else { return };
    let messages = [
        frame.message::<Hello>(Kind::Hello).is_ok(),
        frame.message::<Begin>(Kind::Begin).is_ok(),
        frame.message::<Block>(Kind::Block).is_ok(),
        frame.message::<End>(Kind::End).is_ok(),
        frame.message::<Failure>(Kind::Error).is_ok(),
    ];
    assert!(messages.iter().filter(|m| **m).count() <= 1, "a frame is of one kind");
    let _ = frame.expect(Kind::Plan, 0, 0);
    let payload = frame.payload().len();
    assert!(
        frame.kind() == Kind::Error
            || frame.expect_payload(frame.kind(), frame.stage(), frame.tile(), payload).is_ok()
    );
    assert!(frame.expect_payload(Kind::Request, frame.stage(), frame.tile(), payload + 1).is_err());
    assert_eq!(frame.bytes().as_ref(), data);
}
