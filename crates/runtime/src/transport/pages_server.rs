//! What the server answers over HTTP: `/ws`, health, metrics, and what is told of models (Open Inference Protocol v2, metadata and health).

use super::greeting::Caller;
use super::metrics;
use super::models::{About, Model};
use super::shared::Shared;
use super::websocket::NO_MODEL;
use super::websocket_server;
use crate::error::{Error, ProtocolError, TransportError};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{header, HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde::Serialize;
use serde_json::{json, Value};
use std::net::SocketAddr;
use std::sync::Arc;

/// The pages of operators, on a listener of their own: nobody else reaches it, and no token is asked for.
#[derive(Clone, Copy)]
struct Operators;

/// Pages on the port of clients: `/ws` and `/livez`, and with `all` those that operators read.
pub(super) fn of_clients(shared: Arc<Shared>, all: bool) -> Router {
    let own = Router::new().route("/ws", get(upgrade)).route("/ws/{model}", get(upgrade_named));
    let own =
        if all { own.merge(told()).route("/metrics", get(counters)) } else { own.route("/livez", get(live)) };
    own.layer(axum::middleware::map_response(single)).with_state(shared)
}

/// Pages on the listener of operators.
pub(super) fn of_operators(shared: Arc<Shared>) -> Router {
    let pages = told().route("/metrics", get(all_counters)).layer(Extension(Operators));
    let pages = pages.layer(axum::middleware::from_fn(no_rebinding));
    pages.layer(axum::middleware::map_response(single)).with_state(shared)
}

/// Refuses requests from this very machine under a name that is not its own. The owner of a name may have it resolve to 127.0.0.1, so that a page of
/// that name in a browser here could read what is for operators alone.
async fn no_rebinding(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    // Browsers always name the host.
    let host = request.headers().get(header::HOST);
    let own = host.is_none_or(|host| host.to_str().is_ok_and(is_own_name));
    if peer.ip().to_canonical().is_loopback() && !own {
        let why = "from this machine these pages are read under an address, or as localhost\n";
        return (StatusCode::MISDIRECTED_REQUEST, why).into_response();
    }
    next.run(request).await
}

/// Whether a host, with or without a port, is an address or `localhost`: what no owner of a name can have resolve to somewhere else.
fn is_own_name(host: &str) -> bool {
    let address = |text: &str| text.parse::<std::net::IpAddr>().is_ok();
    let bare = host.strip_prefix('[').and_then(|h| h.split_once(']')).map(|(h, _)| h);
    let name = bare.unwrap_or_else(|| host.rsplit_once(':').map_or(host, |(name, _)| name));
    let name = name.to_ascii_lowercase();
    address(&name) || name == "localhost" || name.ends_with(".localhost")
}

/// Health, and what is told of models.
fn told() -> Router<Arc<Shared>> {
    Router::new()
        .route("/livez", get(live))
        .route("/healthz", get(health))
        .route("/readyz", get(readyz))
        .route("/openapi.json", get(|| async { json_answer(StatusCode::OK, &openapi()) }))
        .route("/v2", get(about_server))
        .route("/v2/health/live", get(|| async { json_answer(StatusCode::OK, &json!({"live": true})) }))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/{model}", get(about_model))
        .route("/v2/models/{model}/ready", get(model_ready))
}

/// Closes a connection behind its answer, unless it becomes a WebSocket.
async fn single(mut answer: Response) -> Response {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// Only tells that the process answers.
async fn live() -> &'static str {
    "ok\n"
}

const TEXT: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];

async fn counters(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    (TEXT, shared.metrics.text(&shared.slots.count()))
}

async fn all_counters(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let more = metrics::details(&shared.reception.models.all(), &shared.slots);
    (TEXT, shared.metrics.text(&shared.slots.count()) + &more)
}

/// Why a client that comes now would not be taken in at once.
fn closed(shared: &Shared) -> Option<&'static str> {
    match () {
        () if shared.slots.closed() => Some("stopping"),
        () if shared.slots.full() => Some("full"),
        () => None,
    }
}

/// Why a client of a model that comes now would not be served at once; of any model, where none is named.
fn unready(shared: &Shared, model: Option<&Model>) -> Option<&'static str> {
    let done = |model: &Model| model.served.preparation().done();
    let done = model.map_or_else(|| shared.reception.models.all().values().all(|m| done(m)), done);
    if done {
        closed(shared)
    } else {
        Some("preparing")
    }
}

/// Whether a client that comes now is taken in at once.
async fn health(State(shared): State<Arc<Shared>>) -> Response {
    plain(closed(&shared))
}

/// Whether a client that comes now is served at once.
async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    plain(unready(&shared, None))
}

fn plain(why: Option<&'static str>) -> Response {
    match why {
        None => "ok\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

fn json_answer(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn readiness(shared: &Shared, model: Option<&Model>) -> Response {
    let why = unready(shared, model);
    let status = if why.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_answer(status, &json!({"ready": why.is_none()}))
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    readiness(&shared, None)
}

async fn about_server() -> Response {
    let about = json!({"name": "hushnet", "version": env!("CARGO_PKG_VERSION"), "extensions": []});
    json_answer(StatusCode::OK, &about)
}

/// What an error is over HTTP: a status and a sentence.
fn refuse(error: &Error) -> Response {
    let (status, header) = match error {
        Error::Protocol(ProtocolError::Unauthorized) => {
            (StatusCode::UNAUTHORIZED, Some((header::WWW_AUTHENTICATE, "Bearer".to_owned())))
        }
        Error::Protocol(ProtocolError::NoModel { .. }) => {
            (StatusCode::NOT_FOUND, Some((HeaderName::from_static(NO_MODEL), "1".to_owned())))
        }
        Error::Transport(TransportError::Limited { seconds, .. }) => {
            (StatusCode::TOO_MANY_REQUESTS, Some((header::RETRY_AFTER, seconds.to_string())))
        }
        _ => (StatusCode::BAD_REQUEST, None),
    };
    let mut answer = json_answer(status, &json!({"error": error.for_peer().1}));
    if let Some((name, Ok(value))) = header.map(|(n, v)| (n, HeaderValue::try_from(v))) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// The token in the header of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// What is told of a model: on the port of clients, as a session, it takes a token where there are tokens.
fn find(shared: &Shared, name: &str, asker: Asker, headers: &HeaderMap) -> Result<Arc<Model>, Error> {
    if asker.0.is_none() {
        // A request without an address is nobody's.
        let Some(Extension(ConnectInfo(peer))) = asker.1 else {
            return Err(ProtocolError::Unauthorized.into());
        };
        let peer = shared.reception.peers.client(peer);
        let owner = shared.reception.owner(peer, bearer(headers).unwrap_or_default());
        owner.inspect_err(|e| shared.metrics.count(e))?;
    }
    Ok(shared.reception.models.find(name)?)
}

/// Metadata of a model, in the field names of the Open Inference Protocol.
#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    #[serde(flatten)]
    about: &'a About,
}

/// Who asks: somebody at the listener of operators, or at an address.
type Asker = (Option<Extension<Operators>>, Option<Extension<ConnectInfo<SocketAddr>>>);

async fn about_model(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    operators: Option<Extension<Operators>>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
) -> Response {
    match find(&shared, &name, (operators, peer), &headers) {
        Ok(model) => json_answer(StatusCode::OK, &Metadata { name: &model.name, about: &model.about }),
        Err(e) => refuse(&e),
    }
}

async fn model_ready(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    operators: Option<Extension<Operators>>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
) -> Response {
    match find(&shared, &name, (operators, peer), &headers) {
        Ok(model) => readiness(&shared, Some(&model)),
        Err(e) => refuse(&e),
    }
}

async fn upgrade(
    state: State<Arc<Shared>>,
    peer: ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    socket: WebSocketUpgrade,
) -> Response {
    open(&state.0, String::new(), peer.0, &headers, socket)
}

async fn upgrade_named(
    state: State<Arc<Shared>>,
    Path(model): Path<String>,
    peer: ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    socket: WebSocketUpgrade,
) -> Response {
    open(&state.0, model, peer.0, &headers, socket)
}

/// Makes a WebSocket of a request, for a peer that may have one.
fn open(
    shared: &Arc<Shared>,
    model: String,
    peer: SocketAddr,
    headers: &HeaderMap,
    socket: WebSocketUpgrade,
) -> Response {
    let peer = shared.reception.peers.client(peer);
    if !may_open(headers, &shared.origins) {
        let why = "this server does not take pages of other origins; its operator can name yours\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    // A page of a browser cannot set the header; its greeting has the token.
    let owner = match bearer(headers).map(|token| shared.reception.owner(peer, token)) {
        Some(Err(e)) => {
            shared.metrics.count(&e);
            tracing::warn!(%peer, error = %e, "a client is not let in");
            return refuse(&e);
        }
        Some(Ok(owner)) => owner,
        None => None,
    };
    let models = &shared.reception.models;
    // Who has not shown a token yet learns no name.
    let later = model.is_empty() || (shared.reception.tokens.is_some() && owner.is_none());
    let limit = if later {
        models.largest_frame()
    } else {
        match models.find(&model) {
            Ok(found) => found.served.largest_frame(),
            Err(e) => return refuse(&e.into()),
        }
    };
    let (shared, caller) = (shared.clone(), Caller { peer, owner, model });
    let Some(place) = shared.place(&caller) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    };
    socket.max_message_size(limit).max_frame_size(limit).on_upgrade(move |socket| async move {
        shared.pump(websocket_server::halves(socket), place, caller).await;
    })
}

/// Whether a page of the origin that a browser states may talk to this server: its own, or a named one. Its own is one of TLS, or of an address: any
/// other name may be made to resolve to this server by whoever owns it, and its page would then have the server's own origin.
fn may_open(headers: &HeaderMap, origins: &[String]) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if !headers.contains_key(header::ORIGIN) {
        return true;
    }
    let Some(origin) = text(header::ORIGIN) else { return false };
    let own = origin.split_once("://").filter(|(scheme, host)| *scheme == "https" || is_own_name(host));
    let own = own.map(|(_, host)| host);
    origins.iter().any(|o| o.eq_ignore_ascii_case(origin))
        || own.zip(text(header::HOST)).is_some_and(|(own, host)| own.eq_ignore_ascii_case(host))
}

/// An OpenAPI document of all pages but `/ws`.
fn openapi() -> Value {
    let text = |about: &str| {
        json!({"get": {"summary": about, "responses": {"200": {"description": about,
            "content": {"text/plain": {"schema": {"type": "string"}}}}}}})
    };
    let page = |about: &str, schema: Value, model: bool, busy: bool| {
        let content = json!({"application/json": {"schema": schema}});
        let mut responses = json!({"200": {"description": about, "content": content}});
        let problem = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}});
        if busy {
            responses["503"] = json!({"description": "Preparing, full or stopping.", "content": content});
        }
        let mut get = json!({"summary": about, "responses": responses});
        if model {
            for (status, why) in
                [("401", "No known token."), ("404", "No such model."), ("429", "Too many wrong tokens.")]
            {
                get["responses"][status] = json!({"description": why, "content": problem});
            }
            get["parameters"] =
                json!([{"name": "model", "in": "path", "required": true, "schema": {"type": "string"}}]);
            get["security"] = json!([{}, {"bearer": []}]);
        }
        json!({"get": get})
    };
    let flag =
        |name: &str| json!({"type": "object", "required": [name], "properties": {name: {"type": "boolean"}}});
    let list = |of: Value| json!({"type": "array", "items": of});
    let of = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let (string, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Hushnet", "version": env!("CARGO_PKG_VERSION"),
            "description": "Health, metrics and metadata of models. Inference goes over frames, see docs/wire-protocol.md."},
        "paths": {
            "/livez": text("The process answers."),
            "/healthz": text("A client that comes now is taken in at once; status 503 else."),
            "/readyz": text("A client that comes now is served at once: there is room, and all weights are prepared; status 503 else."),
            "/metrics": text("Counters and histograms for Prometheus."),
            "/v2": page("Name and version of the server.", json!({"type": "object", "required": ["name", "version", "extensions"],
                "properties": {"name": string, "version": string, "extensions": list(string.clone())}}), false, false),
            "/v2/health/live": page("The process answers.", flag("live"), false, false),
            "/v2/health/ready": page("A client that comes now is served at once.", flag("ready"), false, true),
            "/v2/models/{model}": page("Inputs and outputs of a model.", of("Metadata"), true, false),
            "/v2/models/{model}/ready": page("The model is served.", flag("ready"), true, true),
        },
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": {"type": "object", "required": ["error"], "properties": {"error": string}},
                "Tensor": {"type": "object", "required": ["name", "datatype", "shape"],
                    "properties": {"name": string, "datatype": string, "shape": list(number)}},
                "Metadata": {"type": "object", "required": ["name", "platform", "inputs", "outputs"],
                    "properties": {"name": string, "platform": string, "inputs": list(of("Tensor")), "outputs": list(of("Tensor"))}},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_may_resolve_to_anything_are_nobodys_own() {
        for own in
            ["localhost", "LocalHost:9765", "a.localhost", "127.0.0.1", "10.0.0.1:80", "[::1]", "[::1]:9765"]
        {
            assert!(is_own_name(own), "{own}");
        }
        for other in [
            "",
            "rebound.example",
            "rebound.example:9765",
            "127.0.0.1.example",
            "localhost.example",
            "[::1",
            "1",
        ] {
            assert!(!is_own_name(other), "{other}");
        }
        let may = |origin: &str, host: &str| {
            let header = |text: &str| HeaderValue::from_str(text).unwrap();
            let headers = [(header::ORIGIN, header(origin)), (header::HOST, header(host))];
            may_open(&headers.into_iter().collect(), &["http://named.example:8765".to_owned()])
        };
        assert!(may("http://127.0.0.1:8765", "127.0.0.1:8765") && may("http://localhost", "localhost"));
        assert!(
            may("https://served.example", "served.example"),
            "a certificate has shown that it is the server's"
        );
        assert!(may("http://named.example:8765", "named.example:8765"));
        assert!(
            !may("http://rebound.example:8765", "rebound.example:8765"),
            "its owner had it resolve to this server"
        );
        assert!(!may("https://other.example", "served.example") && !may("null", "null"));
    }
}
