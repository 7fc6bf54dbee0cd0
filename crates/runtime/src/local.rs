//! Both parties in this process, over the real protocol, in any trust model.

use crate::channel::{pipe, Channel};
use crate::client_aided::{Client, ClientOptions};
use crate::error::Error;
use crate::io::{Input, Marked, OnProgress, Output, RangeError};
use crate::non_interactive::{NonInteractiveClient, NonInteractiveOptions};
use crate::session::{AnyModel, ClientSession, Served};
use crate::trace::{Report, ServerTrace};
use crate::transport::{connect, ConnectOptions, Server, ServerOptions};
use crate::two_party::network::{throttled_pair, Network};
use crate::two_party::{frames, TwoPartyClient, TwoPartyModel, TwoPartyOptions, TwoPartyTrace};
use hushnet_ring::rns::release_buffers;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{sync_channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

/// How the parties are connected.
#[derive(Clone, Debug)]
pub enum Link {
    /// In memory.
    Memory,
    /// By a socket on the loopback interface. The flag, set by another thread, ends the client's waiting.
    Loopback(Arc<AtomicBool>),
    /// In memory, slowed down to a network: two-party plans only.
    Throttled(Network),
}

/// What a run gives: outputs, the client's trace with the server's figures in it, and the server's own.
pub type Both<T> = (Vec<Output>, T, ServerTrace);

/// What a run gives, and what left its range on the way.
pub type MarkedBoth<T> = (Both<T>, Option<RangeError>);

/// A run without marks.
fn raised<T>((result, mark): (T, Option<RangeError>)) -> Result<T, Error> {
    mark.map_or(Ok(result), |e| Err(e.into()))
}

/// How often buffers that nobody has needed are given back, as a server does: what keys were made in, a run has no use for.
const RELEASE: Duration = Duration::from_secs(5);

/// Does something, and gives back meanwhile what nobody needs.
fn releasing<R>((every, release): (Duration, impl Fn() -> usize + Send), f: impl FnOnce() -> R) -> R {
    std::thread::scope(|scope| {
        let (end, ended) = sync_channel::<()>(0);
        let often = move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let bytes = release();
                tracing::debug!(bytes, "buffers that nobody needs are given back");
            }
        };
        // Without the thread, buffers are kept to the end.
        let _ = std::thread::Builder::new().name("hushnet-buffers".into()).spawn_scoped(scope, often);
        let result = f();
        drop(end);
        result
    })
}

/// Runs the parties on a thread each. Where both fail, the error is that of the party that was the cause.
fn both<C, S: Send>(
    serve: impl FnOnce() -> Result<S, Error> + Send,
    infer: impl FnOnce() -> Result<C, Error>,
) -> Result<(C, S), Error> {
    std::thread::scope(|scope| {
        let served = std::thread::Builder::new().name("hushnet-server".into()).spawn_scoped(scope, serve);
        let served = served.map_err(|e| Error::Internal(e.to_string()))?;
        let result = infer();
        let served = served.join().map_err(|_| Error::Internal("the server thread failed".into()))?;
        match (result, served) {
            (Ok(client), Ok(server)) => Ok((client, server)),
            // A server that failed inside is the cause of what the client saw; so is one that refused something, where all that the client
            // saw is that the connection has ended.
            (Ok(_), Err(e)) | (Err(_), Err(e @ Error::Internal(_))) => Err(e),
            (Err(Error::Transport(_)), Err(e)) if !matches!(e, Error::Transport(_)) => Err(e),
            (Err(e), _) => Err(e),
        }
    })
}

fn infer<C: ClientSession>(
    mut client: C,
    inputs: &[Input<'_>],
    progress: &mut OnProgress<'_>,
) -> Result<Marked<C::Trace>, Error> {
    let result = client.infer_marked(inputs, progress)?;
    client.close()?;
    Ok(result)
}

/// Runs images with the server on another thread, over an in-process pipe. `open` opens the client's session. Two-party sessions need
/// [`run_shares`]: their parties send at the same time, more than a pipe holds.
///
/// # Errors
/// The client's [`Error`]; the server's where it is the cause.
pub fn run_pipe<C: ClientSession>(
    served: &dyn Served,
    open: impl FnOnce(Box<dyn Channel>) -> Result<C, Error>,
    inputs: &[Input<'_>],
    progress: &mut OnProgress<'_>,
) -> Result<Both<C::Trace>, Error> {
    raised(pipe_marked(served, open, inputs, progress)?)
}

fn pipe_marked<C: ClientSession>(
    served: &dyn Served,
    open: impl FnOnce(Box<dyn Channel>) -> Result<C, Error>,
    inputs: &[Input<'_>],
    progress: &mut OnProgress<'_>,
) -> Result<MarkedBoth<C::Trace>, Error> {
    let (near, far) = pipe();
    let serve = move || served.session(Box::new(far), &mut |_| {}).0;
    let infer = || open(Box::new(near)).and_then(|client| infer(client, inputs, progress));
    let ((outputs, mut trace, mark), server) = releasing((RELEASE, release_buffers), || both(serve, infer))?;
    trace.add_server(&server);
    Ok(((outputs, trace, server), mark))
}

/// Runs images over a socket on the loopback interface. `open` opens the client's session, `cancel` ends its waiting.
///
/// # Errors
/// As [`run_pipe`]; [`Error::Transport`] when no port can be opened.
pub fn run_loopback<C: ClientSession>(
    served: Arc<dyn Served>,
    open: impl FnOnce(Box<dyn Channel>) -> Result<C, Error>,
    inputs: &[Input<'_>],
    progress: &mut OnProgress<'_>,
    cancel: Arc<AtomicBool>,
) -> Result<Both<C::Trace>, Error> {
    raised(loopback_marked(served, open, inputs, progress, cancel)?)
}

fn loopback_marked<C: ClientSession>(
    served: Arc<dyn Served>,
    open: impl FnOnce(Box<dyn Channel>) -> Result<C, Error>,
    inputs: &[Input<'_>],
    progress: &mut OnProgress<'_>,
    cancel: Arc<AtomicBool>,
) -> Result<MarkedBoth<C::Trace>, Error> {
    let (sender, measured) = sync_channel(1);
    // Nobody receives any more when the client has failed.
    let on_session = move |t: &ServerTrace| drop(sender.try_send(t.clone()));
    let options = ServerOptions { on_session: Some(Arc::new(on_session)), ..ServerOptions::default() };
    let server = Server::start_shared(served, &options)?;
    let connect_options = ConnectOptions { cancel, ..ConnectOptions::default() };
    let connection = connect(&format!("hush://{}", server.address()), &connect_options)?;
    let (outputs, mut trace, mark) = infer(open(Box::new(connection))?, inputs, progress)?;
    // The client has said End; the server's session ends at once, or its part of the trace stays out.
    let measured = measured.recv_timeout(Duration::from_secs(5)).ok();
    if let Some(measured) = &measured {
        trace.add_server(measured);
    }
    server.stop();
    server.join()?;
    Ok(((outputs, trace, measured.unwrap_or_default()), mark))
}

/// Runs images of a two-party plan over memory, or over a throttled connection when `network` is given. Returns the outputs and the traces
/// of client and server.
///
/// # Errors
/// As [`run_pipe`].
pub fn run_shares(
    model: &TwoPartyModel,
    inputs: &[Input<'_>],
    options: TwoPartyOptions,
    network: Option<Network>,
    progress: &mut OnProgress<'_>,
) -> Result<(Vec<Output>, TwoPartyTrace, TwoPartyTrace), Error> {
    raised(shares_marked(model, inputs, options, network, progress)?)
}

/// Outputs and traces of both parties, and what left its range.
type MarkedShares = ((Vec<Output>, TwoPartyTrace, TwoPartyTrace), Option<RangeError>);

fn shares_marked(
    model: &TwoPartyModel,
    inputs: &[Input<'_>],
    options: TwoPartyOptions,
    network: Option<Network>,
    progress: &mut OnProgress<'_>,
) -> Result<MarkedShares, Error> {
    let (far, near): (Box<dyn hushnet_mpc::Channel>, Box<dyn hushnet_mpc::Channel>) = match network {
        None => {
            let (a, b) = hushnet_mpc::memory_pair();
            (Box::new(a), Box::new(b))
        }
        Some(network) => {
            let (a, b) = throttled_pair(network)?;
            (Box::new(a), Box::new(b))
        }
    };
    let ((outputs, client, mark), server) = both(
        || model.serve_plain(far, &mut |_| {}),
        || TwoPartyClient::open(near, options).and_then(|client| infer(client, inputs, progress)),
    )?;
    Ok(((outputs, client, server), mark))
}

/// Runs images of a plan of any trust model. `batch` and `two_party` say how a client of each is worked. Values outside of their ranges are
/// told beside the outputs.
///
/// # Errors
/// As [`run_pipe`] and [`run_loopback`]; [`Error::Internal`] for a throttled link and a plan that is not two-party.
pub fn run(
    model: &AnyModel,
    inputs: &[Input<'_>],
    (batch, two_party): (ClientOptions, TwoPartyOptions),
    link: Link,
    progress: &mut OnProgress<'_>,
) -> Result<MarkedBoth<Box<dyn Report>>, Error> {
    match model {
        AnyModel::ClientAided(_) => {
            over(model, |channel| Client::open(channel, batch), inputs, link, progress)
        }
        AnyModel::NonInteractive(_) => {
            let options = NonInteractiveOptions { plan: batch.plan, compute: batch.compute, keys: None };
            over(model, |channel| NonInteractiveClient::open(channel, options), inputs, link, progress)
        }
        AnyModel::TwoParty(shares) => {
            let network = match link {
                Link::Memory => None,
                Link::Throttled(network) => Some(network),
                Link::Loopback(_) => {
                    let open = |channel| frames::connect(channel, two_party);
                    return over(model, open, inputs, link, progress);
                }
            };
            let ((outputs, mut client, server), mark) =
                shares_marked(shares, inputs, two_party, network, progress)?;
            let server = server.summary();
            client.add_server(&server);
            Ok(((outputs, Box::new(client), server), mark))
        }
    }
}

/// A run over frames.
fn over<C: ClientSession>(
    model: &AnyModel,
    open: impl FnOnce(Box<dyn Channel>) -> Result<C, Error>,
    inputs: &[Input<'_>],
    link: Link,
    progress: &mut OnProgress<'_>,
) -> Result<MarkedBoth<Box<dyn Report>>, Error> {
    let ((outputs, trace, server), mark) = match link {
        Link::Memory => pipe_marked(model.served().as_ref(), open, inputs, progress)?,
        Link::Loopback(cancel) => loopback_marked(model.served(), open, inputs, progress, cancel)?,
        Link::Throttled(_) => {
            let detail = "only a two-party run can be slowed down to a network; leave the network out";
            return Err(Error::Internal(detail.into()));
        }
    };
    Ok(((outputs, Box::new(trace), server), mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn buffers_are_given_back_while_a_run_goes_on_and_no_longer() {
        let (called, calls) = channel();
        let release = move || called.send(()).map_or(0, |()| 0);
        let seen = releasing((Duration::from_millis(1), release), || {
            (0..3).flat_map(|_| calls.recv_timeout(Duration::from_secs(30))).count()
        });
        assert_eq!(seen, 3);
        // What called is gone.
        while calls.try_recv().is_ok() {}
        assert_eq!(calls.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
    }
}
