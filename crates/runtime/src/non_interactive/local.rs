//! Both parties in this process, over the real protocol.

use super::client::{NonInteractiveClient, NonInteractiveOptions};
use super::server::NonInteractiveModel;
use super::trace::{NonInteractiveServerTrace, NonInteractiveTrace};
use crate::channel::{pipe, Channel};
use crate::client_aided::client::OnProgress;
use crate::client_aided::{Input, Output};
use crate::error::Error;
use crate::trace::ServerTrace;
use crate::transport::{connect, ConnectOptions, Server, ServerOptions};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::sync::Arc;
use std::time::Duration;

type Answer = (Vec<Output>, NonInteractiveTrace);

/// Runs images with the server on another thread, over an in-process pipe.
///
/// # Errors
/// The client's [`Error`]; the server's where it is the cause.
pub fn run_pipe(
    model: &NonInteractiveModel,
    inputs: &[Input<'_>],
    options: NonInteractiveOptions,
    progress: &mut OnProgress<'_>,
) -> Result<Answer, Error> {
    let (near, far) = pipe();
    std::thread::scope(|scope| {
        let served = std::thread::Builder::new().name("hushnet-server".into()).spawn_scoped(scope, || {
            let mut far = far;
            model.serve(&mut far, &mut |_| {})
        });
        let served = served.map_err(|e| Error::Internal(e.to_string()))?;
        let result = infer(Box::new(near), inputs, options, progress);
        let served = served.join().map_err(|_| Error::Internal("the server thread failed".into()))?;
        match (result, served) {
            (Ok((outputs, mut trace)), Ok(server)) => {
                trace.add_server(&server, &model.plan().steps());
                Ok((outputs, trace))
            }
            (Ok(_), Err(e)) => Err(e),
            // A server that failed inside is the cause of what the client saw.
            (Err(_), Err(e @ Error::Internal(_))) => Err(e),
            (Err(e), _) => Err(e),
        }
    })
}

/// Runs images over a WebSocket on the loopback interface.
///
/// # Errors
/// As [`run_pipe`]; [`Error::Transport`] when no port can be opened.
pub fn run_loopback(
    model: NonInteractiveModel,
    inputs: &[Input<'_>],
    options: NonInteractiveOptions,
    progress: &mut OnProgress<'_>,
    cancel: Arc<AtomicBool>,
) -> Result<Answer, Error> {
    let (sender, measured) = sync_channel(1);
    // Nobody receives any more when the client has failed.
    let on_session = move |t: &ServerTrace| drop(sender.try_send(t.clone()));
    let server_options = ServerOptions { on_session: Some(Arc::new(on_session)), ..ServerOptions::default() };
    let (counted, steps) = (model.plan().counted(), model.plan().steps());
    let server = Server::start(model, &server_options)?;
    let connect_options = ConnectOptions { cancel, ..ConnectOptions::default() };
    let connection = connect(&format!("ws://{}", server.address()), &connect_options)?;
    let (outputs, mut trace) = infer(Box::new(connection), inputs, options, progress)?;
    // The client has said End; the server's session ends at once, or its part of the trace stays out.
    if let Ok(measured) = measured.recv_timeout(Duration::from_secs(5)) {
        let server = NonInteractiveServerTrace {
            blocks: measured.blocks,
            images: measured.images,
            stage_seconds: measured.linear_seconds,
            seconds: measured.setup_seconds,
            counted: counted.times(measured.blocks),
            bytes_up: measured.bytes_up,
            bytes_down: measured.bytes_down,
        };
        trace.add_server(&server, &steps);
    }
    server.stop();
    server.join()?;
    Ok((outputs, trace))
}

fn infer(
    channel: Box<dyn Channel>,
    inputs: &[Input<'_>],
    options: NonInteractiveOptions,
    progress: &mut OnProgress<'_>,
) -> Result<Answer, Error> {
    let mut client = NonInteractiveClient::open(channel, options)?;
    let result = client.infer(inputs, progress)?;
    client.close()?;
    Ok(result)
}
