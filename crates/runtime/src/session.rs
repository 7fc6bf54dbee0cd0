//! A client's session with whatever a server serves: the greeting is the same, the plan that comes back says what follows.

use crate::channel::{send_failure, Channel};
use crate::client_aided::{Client, ClientOptions};
use crate::error::{check_environment, Error};
use crate::non_interactive::{NonInteractiveClient, NonInteractiveOptions};
use crate::plan::{self, Limits, PlanError, Trust};
use crate::two_party::{frames, TwoPartyClient, TwoPartyOptions};
use crate::wire::{Frame, FrameBuilder, Hello, Kind, PROTOCOL};

/// An open session, by the trust model of the server's plan.
pub enum AnyClient {
    /// The client computes the non-linear layers.
    ClientAided(Box<Client>),
    /// Both parties compute on shares.
    TwoParty(Box<TwoPartyClient>),
    /// The server computes everything, under encryption.
    NonInteractive(Box<NonInteractiveClient>),
}

/// Greets the server and receives the public part of its plan, unread.
pub(crate) fn greet(channel: &mut dyn Channel, limits: &Limits) -> Result<Frame, Error> {
    check_environment()?;
    let longest = limits.file_bytes.min(2 * limits.json_bytes + (1 << 20));
    channel.set_limit(usize::try_from(longest).unwrap_or(usize::MAX));
    let producer = concat!("hushnet ", env!("CARGO_PKG_VERSION")).to_owned();
    channel.send(FrameBuilder::message(Kind::Hello, &Hello { protocol: PROTOCOL, producer })?)?;
    let frame = channel.recv()?;
    frame.expect(Kind::Plan, 0, 0)?;
    Ok(frame)
}

/// The only field that is read before the reader is chosen.
#[derive(serde::Deserialize)]
struct Which {
    trust: Trust,
}

/// The trust model of a plan file; nothing else of it is checked but its digest.
///
/// # Errors
/// [`PlanError`] when it is no plan.
pub fn trust(file: &[u8], limits: &Limits) -> Result<Trust, PlanError> {
    plan::open(file, limits, |json, _| {
        let which: Which = serde_json::from_str(json).map_err(|e| PlanError::Json(e.to_string()))?;
        Ok(which.trust)
    })
}

/// Opens a session of whichever trust model the server's plan has. `batch` and `two_party` say how each is worked.
///
/// # Errors
/// [`Error`]: transport, protocol, or a plan that this client refuses; the server has been told.
pub fn open(
    mut channel: Box<dyn Channel>,
    batch: ClientOptions,
    two_party: TwoPartyOptions,
) -> Result<AnyClient, Error> {
    let greeted = greet(channel.as_mut(), &batch.plan.limits)
        .and_then(|frame| Ok((trust(frame.payload(), &batch.plan.limits)?, frame)));
    let (trust, frame) = match greeted {
        Ok(known) => known,
        Err(e) => {
            send_failure(channel.as_mut(), &e);
            return Err(e);
        }
    };
    Ok(match trust {
        Trust::TwoParty => AnyClient::TwoParty(Box::new(frames::greeted(channel, &frame, two_party)?)),
        Trust::ClientAided => AnyClient::ClientAided(Box::new(Client::greeted(channel, &frame, batch)?)),
        Trust::NonInteractive => {
            let options = NonInteractiveOptions { plan: batch.plan, compute: batch.compute };
            AnyClient::NonInteractive(Box::new(NonInteractiveClient::greeted(channel, &frame, options)?))
        }
    })
}
