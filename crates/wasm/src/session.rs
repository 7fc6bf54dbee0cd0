//! An open session, and what goes in and out of it.

use crate::host::{tell, HostChannel};
use hushnet_runtime::channel::Introduction;
use hushnet_runtime::plan::{Limits, PlanOptions, Trust};
use hushnet_runtime::two_party::TwoPartyOptions;
use hushnet_runtime::{session, AnyClient, ClientOptions, Compute, Error, Input, InputData, Output};
use std::ops::ControlFlow;
use wasm_bindgen::prelude::*;

/// An error as JavaScript has it: its name is that of Python's exception.
fn thrown(e: &Error) -> JsValue {
    let name = match e {
        Error::Plan(_) => "PlanError",
        Error::Range(_) => "RangeError",
        Error::Input(_) => "InputError",
        Error::Protocol(_) => "ProtocolError",
        Error::Transport(_) => "TransportError",
        _ => "HushnetError",
    };
    let error = js_sys::Error::new(&e.to_string());
    error.set_name(name);
    error.into()
}

/// Named inputs of one run, copied into this module.
#[wasm_bindgen]
#[derive(Default)]
pub struct Inputs(Vec<Given>);

struct Given {
    name: String,
    shape: Vec<usize>,
    numbers: Numbers,
}

enum Numbers {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Given {
    fn input(&self) -> Input<'_> {
        let data = match &self.numbers {
            Numbers::F32(v) => InputData::F32(v),
            Numbers::F64(v) => InputData::F64(v),
        };
        Input { name: &self.name, shape: self.shape.clone(), data }
    }
}

#[wasm_bindgen]
impl Inputs {
    /// No inputs yet; add each of the network's.
    #[wasm_bindgen(constructor)]
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an input of 32-bit numbers, images along the first axis.
    pub fn add32(&mut self, name: String, shape: &[u32], numbers: Vec<f32>) {
        self.add(name, shape, Numbers::F32(numbers));
    }

    /// Adds an input of 64-bit numbers, images along the first axis.
    pub fn add64(&mut self, name: String, shape: &[u32], numbers: Vec<f64>) {
        self.add(name, shape, Numbers::F64(numbers));
    }

    fn add(&mut self, name: String, shape: &[u32], numbers: Numbers) {
        let shape = shape.iter().map(|s| *s as usize).collect();
        self.0.push(Given { name, shape, numbers });
    }
}

/// What a run gives: outputs, what left its range, measurements.
#[wasm_bindgen]
pub struct Answer {
    outputs: Vec<Output>,
    mark: Option<String>,
    trace: String,
}

#[wasm_bindgen]
impl Answer {
    /// The number of outputs.
    #[must_use]
    pub fn count(&self) -> usize {
        self.outputs.len()
    }

    /// Name of an output; empty where there is no such output.
    #[must_use]
    pub fn name(&self, i: usize) -> String {
        self.outputs.get(i).map(|o| o.name.clone()).unwrap_or_default()
    }

    /// Shape of an output, images along the first axis.
    #[must_use]
    pub fn shape(&self, i: usize) -> Vec<u32> {
        self.outputs.get(i).map(|o| o.shape.iter().map(|s| *s as u32).collect()).unwrap_or_default()
    }

    /// Numbers of an output, row by row.
    #[must_use]
    pub fn data(&self, i: usize) -> Vec<f64> {
        self.outputs.get(i).map(|o| o.data.clone()).unwrap_or_default()
    }

    /// The first value that left its planned range, in words.
    #[must_use]
    pub fn out_of_range(&self) -> Option<String> {
        self.mark.clone()
    }

    /// What the run measured, as JSON.
    #[must_use]
    pub fn trace(&self) -> String {
        self.trace.clone()
    }
}

/// An open session with a server, of whichever trust model its plan has.
#[wasm_bindgen]
pub struct Session {
    client: Option<AnyClient>,
}

#[wasm_bindgen]
impl Session {
    /// Greets the server at the other end of the worker's connection, checks its plan and opens a session. `memory`: most bytes to hold;
    /// `images`: how many will come, about.
    ///
    /// # Errors
    /// Transport, protocol, or a plan that this client refuses.
    pub fn open(
        model: String,
        token: String,
        allow_insecure: bool,
        memory: f64,
        images: u32,
    ) -> Result<Session, JsValue> {
        let memory_bytes = (memory.max(0.0) as u64).min(u64::from(u32::MAX));
        let limits = Limits { memory_bytes, ..Limits::default() };
        let plan = PlanOptions { limits, allow_insecure };
        let channel = HostChannel::new(Introduction { model, token });
        let mask_cache_bytes = memory_bytes / 4;
        let batch = ClientOptions { plan, mask_cache_bytes, compute: Compute::default(), expected: None };
        let expected_images = Some(images as usize);
        let two_party = TwoPartyOptions { plan, expected_images, ..TwoPartyOptions::default() };
        let client = session::open(Box::new(channel), batch, two_party).map_err(|e| thrown(&e))?;
        Ok(Self { client: Some(client) })
    }

    /// JSON of the server's plan, public part; empty when the session is closed.
    #[must_use]
    pub fn plan(&self) -> String {
        self.client.as_ref().map(|c| c.plan().json().to_owned()).unwrap_or_default()
    }

    /// The trust model of the plan, by its name on the command line.
    #[must_use]
    pub fn trust(&self) -> String {
        let trust = self.client.as_ref().map(|c| c.plan().trust());
        match trust {
            Some(Trust::ClientAided) => "client-aided",
            Some(Trust::TwoParty) => "two-party",
            Some(Trust::NonInteractive) => "non-interactive",
            None => "",
        }
        .to_owned()
    }

    /// Whether the session can serve more inputs.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.client.as_ref().is_some_and(AnyClient::is_open)
    }

    /// Runs the network. Values outside of their ranges are clamped, and the first of them is told beside the outputs.
    ///
    /// # Errors
    /// An answer that no honest server gives, a closed session, inputs that do not fit the network, transport and protocol.
    pub fn infer(&mut self, inputs: &Inputs) -> Result<Answer, JsValue> {
        let client =
            self.client.as_mut().ok_or_else(|| thrown(&hushnet_runtime::TransportError::Closed.into()))?;
        let given: Vec<Input<'_>> = inputs.0.iter().map(Given::input).collect();
        let mut told = |p: &hushnet_runtime::Progress<'_>| {
            tell(p);
            ControlFlow::Continue(())
        };
        let (outputs, trace, mark) = client.infer_marked(&given, &mut told).map_err(|e| thrown(&e))?;
        match mark {
            // No honest server gives such an answer: it is an error wherever marks are asked for.
            Some(m) if m.answer => return Err(thrown(&m.into())),
            _ => {}
        }
        Ok(Answer { outputs, mark: mark.map(|m| m.to_string()), trace: trace.to_json() })
    }

    /// Ends the session and wipes its keys; again: nothing.
    pub fn close(&mut self) {
        self.client = None;
    }
}
