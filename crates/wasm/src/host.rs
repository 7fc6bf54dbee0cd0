//! What the worker lends this module: a connection and somebody to tell of progress (`web/src/worker.ts`).

use hushnet_runtime::channel::{Channel, Introduction, Traffic};
use hushnet_runtime::wire::Frame;
use hushnet_runtime::{Error, Progress, ProtocolError, TransportError};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_namespace = hushnetHost, js_name = send)]
    fn host_send(bytes: &[u8]) -> Result<(), JsValue>;

    /// Waits for a frame; its bytes, or a negative number when the connection is closed.
    #[wasm_bindgen(catch, js_namespace = hushnetHost, js_name = receive)]
    fn host_receive(limit: f64) -> Result<f64, JsValue>;

    /// Writes the frame that came, all of it, where it is read: into this module's memory.
    #[wasm_bindgen(catch, js_namespace = hushnetHost, js_name = take)]
    fn host_take(frame: &mut [u8]) -> Result<(), JsValue>;

    #[wasm_bindgen(catch, js_namespace = hushnetHost, js_name = progress)]
    fn host_progress(stage: &str, index: u32, stages: u32, done: u32, parts: u32) -> Result<(), JsValue>;
}

fn failed(e: &JsValue) -> TransportError {
    let text = e.dyn_ref::<js_sys::Error>().map_or_else(|| format!("{e:?}"), |e| e.message().into());
    TransportError::Io(text)
}

/// Tells the page how far a run is; a page that does not listen stops nothing.
pub(crate) fn tell(p: &Progress<'_>) {
    let _ = host_progress(p.name, p.stage as u32, p.stages as u32, p.tile as u32, p.tiles as u32);
}

/// The worker's connection.
pub(crate) struct HostChannel {
    introduction: Introduction,
    traffic: Traffic,
    limit: usize,
}

impl HostChannel {
    pub(crate) fn new(introduction: Introduction) -> Self {
        Self { introduction, traffic: Traffic::default(), limit: 1 << 20 }
    }
}

impl Channel for HostChannel {
    fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        self.traffic.sent += frame.bytes().len() as u64;
        host_send(frame.bytes()).map_err(|e| failed(&e))
    }

    fn recv(&mut self) -> Result<Frame, Error> {
        let got = host_receive(self.limit as f64).map_err(|e| failed(&e))?;
        if got < 0.0 {
            return Err(TransportError::Closed.into());
        }
        let (got, limit) = (got as u64, self.limit as u64);
        if got > limit {
            return Err(ProtocolError::Oversize { got, limit }.into());
        }
        let mut bytes = vec![0; got as usize];
        host_take(&mut bytes).map_err(|e| failed(&e))?;
        self.traffic.received += got;
        Ok(Frame::parse(bytes.into())?)
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn introduction(&self) -> Introduction {
        self.introduction.clone()
    }

    fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }
}
