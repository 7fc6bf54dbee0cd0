//! The client's end of a two-party session in frames.

use super::{channel_over, LARGEST_FRAME};
use crate::channel::Channel as Frames;
use crate::error::Error;
use crate::session::client::receive_plan;
use crate::two_party::client::{TwoPartyClient, TwoPartyOptions};
use crate::two_party::plan::TwoPartyPlan;
use std::sync::{Arc, Mutex};

/// Opens a session over a framed connection: greeting, plan, set-up.
///
/// # Errors
/// [`Error`]: transport, protocol, or a plan that this client refuses.
pub fn connect(mut frames: Box<dyn Frames>, options: TwoPartyOptions) -> Result<TwoPartyClient, Error> {
    let plan = receive_plan(frames.as_mut(), &options.plan, TwoPartyPlan::from_bytes)?;
    with_plan(frames, plan, options)
}

/// Opens a session with a server that has sent its plan.
pub(crate) fn with_plan(
    mut frames: Box<dyn Frames>,
    plan: TwoPartyPlan,
    options: TwoPartyOptions,
) -> Result<TwoPartyClient, Error> {
    frames.set_limit(LARGEST_FRAME);
    let shared = Arc::new(Mutex::new(frames));
    TwoPartyClient::with_plan(Box::new(channel_over(shared)), plan, options)
}
