//! Both parties in this process, each on its own thread.

use super::client::{TwoPartyClient, TwoPartyOptions};
use super::network::{throttled_pair, Network};
use super::server::TwoPartyModel;
use super::trace::TwoPartyTrace;
use crate::client_aided::client::OnProgress;
use crate::client_aided::{Input, Output};
use crate::error::Error;
use hushnet_mpc::{memory_pair, Channel};

/// Runs a network on images: the server on another thread, over memory, or over a throttled connection when `network` is given.
/// Returns the outputs and the traces of client and server.
///
/// # Errors
/// The client's [`Error`]; the server's where it is the cause.
pub fn run_local(
    model: &TwoPartyModel,
    inputs: &[Input<'_>],
    options: TwoPartyOptions,
    network: Option<Network>,
    progress: &mut OnProgress<'_>,
) -> Result<(Vec<Output>, TwoPartyTrace, TwoPartyTrace), Error> {
    let (far, near): (Box<dyn Channel>, Box<dyn Channel>) = match network {
        None => {
            let (a, b) = memory_pair();
            (Box::new(a), Box::new(b))
        }
        Some(network) => {
            let (a, b) = throttled_pair(network)?;
            (Box::new(a), Box::new(b))
        }
    };
    std::thread::scope(|scope| {
        let served = std::thread::Builder::new()
            .name("hushnet-server".into())
            .spawn_scoped(scope, || model.serve_plain(far, &mut |_| {}))
            .map_err(|e| Error::Internal(e.to_string()))?;
        let result = TwoPartyClient::open(near, options).and_then(|mut client| {
            let result = client.infer(inputs, progress)?;
            client.close()?;
            Ok(result)
        });
        let served = served.join().map_err(|_| Error::Internal("the server thread failed".into()))?;
        match (result, served) {
            (Ok((outputs, client)), Ok(server)) => Ok((outputs, client, server)),
            (Ok(_), Err(e)) => Err(e),
            // What the server refused is the cause of what the client saw.
            (Err(Error::Transport(_)), Err(e)) if !matches!(e, Error::Transport(_)) => Err(e),
            (Err(e), _) => Err(e),
        }
    })
}
