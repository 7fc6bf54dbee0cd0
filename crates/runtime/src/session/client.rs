//! A client's session with whatever a server serves: the greeting is the same, the plan that comes back says what follows.

use super::AnyPlan;
use crate::channel::{send_failure, Channel, Introduction};
use crate::client_aided::{Client, ClientOptions};
use crate::error::{check_environment, Error, TransportError, UnitError};
use crate::io::{self, Input, Marked, OnProgress, Output, RangeError};
use crate::non_interactive::{KeyFolder, NonInteractiveClient, NonInteractiveOptions};
use crate::plan::{Limits, PlanError, PlanOptions};
use crate::trace::Report;
use crate::two_party::{frames, TwoPartyClient, TwoPartyOptions};
use crate::wire::{Frame, FrameBuilder, Hello, Kind, PROTOCOL};

/// What [`ClientSession`] is made of; each trust model has its own.
pub(crate) mod half {
    use crate::error::Error;
    use crate::io::{Input, Marked, OnProgress};
    use crate::plan::Plan;
    use crate::trace::Report;

    pub trait Half: Send {
        /// What a run measures.
        type Trace: Report + 'static;

        /// The plan as the client's interpreter has it: its inputs are what users give.
        fn interface(&self) -> &Plan;

        /// Runs the network on inputs in the order of the plan; an error has closed the session.
        fn run(
            &mut self,
            inputs: &[&Input<'_>],
            images: usize,
            progress: &mut OnProgress<'_>,
        ) -> Result<Marked<Self::Trace>, Error>;

        /// Says goodbye, unless the session is closed already.
        fn end(&mut self) -> Result<(), Error>;
    }
}

/// An open session with a server, of one trust model.
pub trait ClientSession: half::Half {
    /// Whether the session can serve more images.
    fn is_open(&self) -> bool;

    /// Runs the network on any number of images. Outputs come in the order of the plan.
    ///
    /// # Errors
    /// [`Error::Input`] and [`Error::Range`] leave the session open, every other error closes it. A value outside of its range, inputs
    /// among them, is told when the run is over.
    fn infer(
        &mut self,
        inputs: &[Input<'_>],
        progress: &mut OnProgress<'_>,
    ) -> Result<(Vec<Output>, Self::Trace), Error> {
        raised(self.infer_marked(inputs, progress)?)
    }

    /// [`Self::infer`], but values outside of their ranges are no error: they are clamped to the range (what is no number becomes
    /// 0), and the first of them comes beside the outputs. Outputs of images that it does not name as affected are right (two-party: are
    /// what the protocol gives; shared values between are nobody's to see, and one that leaves its range leaves no mark), as long as
    /// ciphertexts did not wrap.
    ///
    /// The messages of a run do not depend on values: lengths and order follow from the plan and the number of images, and what
    /// is in them is a share, masked or encrypted.
    ///
    /// # Errors
    /// As [`Self::infer`], but never [`Error::Range`].
    fn infer_marked(
        &mut self,
        inputs: &[Input<'_>],
        progress: &mut OnProgress<'_>,
    ) -> Result<Marked<Self::Trace>, Error> {
        if !self.is_open() {
            return Err(TransportError::Closed.into());
        }
        let (inputs, images) = io::admit(self.interface(), inputs)?;
        let limited = io::Limited::of(self.interface(), &inputs, images);
        let clamped = limited.inputs(&inputs);
        let (outputs, trace, mark) = self.run(&clamped.iter().collect::<Vec<_>>(), images, progress)?;
        Ok((outputs, trace, RangeError::join(limited.mark(), mark)))
    }

    /// Closes the session.
    ///
    /// # Errors
    /// [`Error::Transport`] when the server is gone already.
    fn close(mut self) -> Result<(), Error>
    where
        Self: Sized,
    {
        self.end()
    }
}

/// Outputs and trace of a run without marks.
///
/// # Errors
/// [`Error::Range`] for the first mark.
pub(crate) fn raised<T>((outputs, trace, mark): Marked<T>) -> Result<(Vec<Output>, T), Error> {
    mark.map_or(Ok((outputs, trace)), |e| Err(e.into()))
}

/// An open session, by the trust model of the server's plan.
pub enum AnyClient {
    /// The client computes the non-linear layers.
    ClientAided(Box<Client>),
    /// Both parties compute on shares.
    TwoParty(Box<TwoPartyClient>),
    /// The server computes everything, under encryption.
    NonInteractive(Box<NonInteractiveClient>),
}

/// The same words for the session of each trust model.
macro_rules! each {
    ($client:expr, $c:ident => $what:expr) => {
        match $client {
            Self::ClientAided($c) => $what,
            Self::TwoParty($c) => $what,
            Self::NonInteractive($c) => $what,
        }
    };
}

impl AnyClient {
    /// The checked plan that the server of this session sent.
    #[must_use]
    pub fn plan(&self) -> AnyPlan {
        match self {
            Self::ClientAided(c) => AnyPlan::ClientAided(c.plan().clone()),
            Self::TwoParty(c) => AnyPlan::TwoParty(c.plan().clone()),
            Self::NonInteractive(c) => AnyPlan::NonInteractive(c.plan().clone()),
        }
    }

    /// Whether the session can serve more images.
    #[must_use]
    pub fn is_open(&self) -> bool {
        each!(self, c => c.is_open())
    }

    /// Runs the network on any number of images: outputs and the client's trace.
    ///
    /// # Errors
    /// As [`ClientSession::infer`].
    pub fn infer(
        &mut self,
        inputs: &[Input<'_>],
        progress: &mut OnProgress<'_>,
    ) -> Result<(Vec<Output>, Box<dyn Report>), Error> {
        raised(self.infer_marked(inputs, progress)?)
    }

    /// Prepares so many inferences ahead ([`TwoPartyClient::prepare`]).
    ///
    /// # Errors
    /// [`UnitError::NoLayers`] for plans that are not two-party; otherwise as there.
    pub fn prepare(&mut self, count: usize, progress: &mut OnProgress<'_>) -> Result<Box<dyn Report>, Error> {
        match self {
            Self::TwoParty(c) => Ok(Box::new(c.prepare(count, progress)?)),
            Self::ClientAided(_) | Self::NonInteractive(_) => Err(UnitError::NoLayers.into()),
        }
    }

    /// Inferences that the client's folder has prepared for this server and plan; `None` without a folder.
    ///
    /// # Errors
    /// [`UnitError::Folder`] when the file system refuses.
    pub fn units(&self) -> Result<Option<usize>, Error> {
        match self {
            Self::TwoParty(c) => c.units(),
            Self::ClientAided(_) | Self::NonInteractive(_) => Ok(None),
        }
    }

    /// [`Self::infer`] with values outside of their ranges beside the outputs.
    ///
    /// # Errors
    /// As [`ClientSession::infer_marked`].
    pub fn infer_marked(
        &mut self,
        inputs: &[Input<'_>],
        progress: &mut OnProgress<'_>,
    ) -> Result<Marked<Box<dyn Report>>, Error> {
        each!(self, c => {
            let (outputs, trace, mark) = c.infer_marked(inputs, progress)?;
            Ok((outputs, Box::new(trace) as _, mark))
        })
    }
}

/// Greets the server and receives the public part of its plan, unread.
fn greet(channel: &mut dyn Channel, limits: &Limits) -> Result<Frame, Error> {
    check_environment()?;
    let longest = limits.file_bytes.min(2 * limits.json_bytes + (1 << 20));
    channel.set_limit(usize::try_from(longest).unwrap_or(usize::MAX));
    let producer = concat!("hushnet ", env!("CARGO_PKG_VERSION")).to_owned();
    let Introduction { model, token } = channel.introduction();
    let hello = Hello { protocol: PROTOCOL, producer, model, token };
    channel.send(FrameBuilder::message(Kind::Hello, &hello)?)?;
    let frame = channel.recv()?;
    frame.expect(Kind::Plan, 0, 0)?;
    Ok(frame)
}

/// Greets the server and reads its plan with `read`. An error has been told to the server.
///
/// # Errors
/// [`Error`]: transport, protocol, or a plan that `read` refuses.
pub(crate) fn receive_plan<P>(
    channel: &mut dyn Channel,
    options: &PlanOptions,
    read: impl FnOnce(&[u8], &PlanOptions) -> Result<P, PlanError>,
) -> Result<P, Error> {
    greet(channel, &options.limits)
        .and_then(|frame| Ok(read(frame.payload(), options)?))
        .inspect_err(|e| send_failure(channel, e))
}

/// That a server's plan is the one that the caller has named.
fn expected(plan: &AnyPlan, identity: Option<[u8; 32]>) -> Result<(), Error> {
    match identity {
        Some(named) if plan.identity()? != named => Err(PlanError::Another.into()),
        _ => Ok(()),
    }
}

/// Opens a session of whichever trust model the server's plan has. `batch` and `two_party` say how each is worked; plans are read as
/// `batch` says.
///
/// # Errors
/// [`Error`]: transport, protocol, or a plan that this client refuses; the server has been told.
pub fn open(
    channel: Box<dyn Channel>,
    batch: ClientOptions,
    two_party: TwoPartyOptions,
) -> Result<AnyClient, Error> {
    open_keeping(channel, batch, two_party, None)
}

/// [`open`], with a folder for the keys of non-interactive plans, so that the next session with the server sends none.
///
/// # Errors
/// As [`open`]; [`Error::Store`] when the folder cannot be used.
pub fn open_keeping(
    mut channel: Box<dyn Channel>,
    batch: ClientOptions,
    two_party: TwoPartyOptions,
    keys: Option<KeyFolder>,
) -> Result<AnyClient, Error> {
    let plan = receive_plan(channel.as_mut(), &batch.plan, AnyPlan::from_bytes)?;
    if let Err(e) = expected(&plan, batch.expected) {
        send_failure(channel.as_mut(), &e);
        return Err(e);
    }
    if two_party.units.is_some() && !matches!(plan, AnyPlan::TwoParty(_)) {
        let e = Error::from(UnitError::NoLayers);
        send_failure(channel.as_mut(), &e);
        return Err(e);
    }
    Ok(match plan {
        AnyPlan::TwoParty(plan) => {
            AnyClient::TwoParty(Box::new(frames::with_plan(channel, plan, two_party)?))
        }
        AnyPlan::ClientAided(plan) => {
            AnyClient::ClientAided(Box::new(Client::with_plan(channel, plan, batch)?))
        }
        AnyPlan::NonInteractive(plan) => {
            let options = NonInteractiveOptions { plan: batch.plan, compute: batch.compute, keys };
            AnyClient::NonInteractive(Box::new(NonInteractiveClient::with_plan(channel, plan, options)?))
        }
    })
}
