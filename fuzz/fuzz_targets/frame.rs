#![no_main]
//! Frames and control messages.

use hushnet_runtime::wire::{Begin, Block, End, Failure, Frame, Hello, Kind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(frame) = Frame::parse(bytes::Bytes::copy_from_slice(data)) else { return };
    let _ = frame.message::<Hello>(Kind::Hello);
    let _ = frame.message::<Begin>(Kind::Begin);
    let _ = frame.message::<Block>(Kind::Block);
    let _ = frame.message::<End>(Kind::End);
    let _ = frame.message::<Failure>(Kind::Error);
    let _ = frame.expect(Kind::Plan, 0, 0);
    assert_eq!(frame.bytes().as_ref(), data);
});
