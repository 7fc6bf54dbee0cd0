//! Both parties in this process, over the real protocol.

use crate::channel::{pipe, Channel};
use crate::client_aided::client::OnProgress;
use crate::client_aided::{Client, ClientOptions, Input, Output, ServerPlan};
use crate::error::Error;
use crate::plan::Plan;
use crate::trace::Trace;

/// Runs a batch with the server on another thread, over an in-process pipe.
///
/// # Errors
/// The client's [`Error`]; the server's where it is the cause.
pub fn run_pipe(
    plan: &Plan,
    inputs: &[Input<'_>],
    options: ClientOptions,
    progress: &mut OnProgress<'_>,
) -> Result<(Vec<Output>, Trace), Error> {
    let server = ServerPlan::new(plan, options.compute.clone())?;
    let (near, far) = pipe();
    std::thread::scope(|scope| {
        let served = std::thread::Builder::new().name("hushnet-server".into()).spawn_scoped(scope, || {
            let mut far = far;
            server.serve(&mut far, &mut |_| {})
        });
        let served = served.map_err(|e| Error::Internal(e.to_string()))?;
        let result = infer(Box::new(near), inputs, options, progress);
        let served = served.join().map_err(|_| Error::Internal("the server thread failed".into()))?;
        match (result, served) {
            (Ok((outputs, mut trace)), Ok(server)) => {
                trace.add_server(&server);
                Ok((outputs, trace))
            }
            (Ok(_), Err(e)) => Err(e),
            // A server that failed inside is the cause of what the client saw.
            (Err(_), Err(e @ Error::Internal(_))) => Err(e),
            (Err(e), _) => Err(e),
        }
    })
}

fn infer(
    channel: Box<dyn Channel>,
    inputs: &[Input<'_>],
    options: ClientOptions,
    progress: &mut OnProgress<'_>,
) -> Result<(Vec<Output>, Trace), Error> {
    let mut client = Client::open(channel, options)?;
    let result = client.infer(inputs, progress)?;
    client.close()?;
    Ok(result)
}
