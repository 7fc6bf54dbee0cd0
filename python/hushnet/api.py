"""The Python API: ``compile``, ``check``, ``run``, ``serve``, ``connect`` and the ``Model`` they work on."""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from hushnet import _native, frontend, passes, planner, report
from hushnet.errors import InputError, RangeError
from hushnet.frontend.labels import plain_name
from hushnet.graph import Graph
from hushnet.options import (
    READING,
    ClientAided,
    Inputs,
    NonInteractive,
    Options,
    Shapes,
    TwoParty,
    help_text,
    made,
    signature,
    taking,
    taking_example,
)
from hushnet.plan import Plan
from hushnet.reference.non_interactive import run as reference_run
from hushnet.result import Result

Progress = Callable[[str, int, int], None]


def _classes(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What outputs say of classes; those that a plan opens as an index have no names where the model gives none."""
    opened = document["params"].get("two_party", {}).get("reveal") == "argmax"
    return {
        port["name"]: port.get("classes") or {"of": "index", "names": []}
        for port in document["outputs"]
        if port.get("classes") or opened
    }


def _named_inputs(document: Mapping[str, Any], x: Inputs) -> dict[str, np.ndarray]:
    """An array for the only input, or a mapping from names to arrays, as arrays ``[images, ...]`` of float by name."""
    shapes = {i["name"]: document["tensors"][i["tensor"]]["shape"] for i in document["inputs"]}
    if not isinstance(x, Mapping):
        if len(shapes) != 1:
            raise InputError(f"the network has inputs {', '.join(shapes)}: pass a dict with one array each")
        x = {next(iter(shapes)): x}
    missing = {i["name"]: i["missing"] for i in document["inputs"] if i.get("missing")}
    stacked = {name: _stacked(_array(value), shapes.get(name, ())) for name, value in x.items()}
    return {name: _filled(value, missing.get(name)) for name, value in stacked.items()}


def _array(value: Any) -> np.ndarray:
    """An array of numbers: of a sparse matrix, too, and of a table whose columns have several types."""
    x = np.asarray(value.toarray() if hasattr(value, "toarray") else value)
    if x.dtype != object:
        return x
    try:
        return x.astype(np.float64)
    except (TypeError, ValueError):
        # text: what reads the array says so
        return x


def _filled(x: np.ndarray, missing: Sequence[float] | None) -> np.ndarray:
    """Images with what the model puts in the place of NaN."""
    if missing is None or x.dtype.kind != "f" or not np.isnan(x).any():
        return x
    values = np.asarray(missing, dtype=x.dtype)
    if values.size > 1 and values.size != math.prod(x.shape[1:]):
        return x
    return np.where(np.isnan(x), values if values.size == 1 else values.reshape(x.shape[1:]), x)


class Model:
    """A compiled network: a checked plan with its weights (server) or its public part (client).

    A plan's file is read, hashed and checked once; ``run``, ``serve``, ``explain`` and ``public_part`` share what the
    run time then holds, and ``run`` and ``serve`` the prepared weights (kept as long as the model is, for the threads
    and memory of the last call).
    """

    def __init__(self, plan: Plan):
        self.plan = plan

    @classmethod
    def load(cls, path: str | Path, *, allow_insecure: bool = False) -> Model:
        """Reads a ``.hush`` file; PlanError when it is damaged, of another version, or below 128 bits."""
        return cls(Plan.load(path, allow_insecure=allow_insecure))

    def save(self, path: str | Path) -> None:
        """Writes the ``.hush`` file (with weights: keep it on the server)."""
        self.plan.save(path)

    def public_part(self) -> bytes:
        """The bytes that a client receives: shapes, parameters, protocol steps, no weights."""
        return self.plan.public_bytes()

    def explain(self, trace: dict[str, Any] | None = None, *, network: str | None = None) -> report.Explanation:
        """Who learns what, parameters, and the predicted cost of every stage (beside the measured, given a trace).

        It is a dict; ``print`` shows it as tables.

        Args:
            network: two-party: "loopback", "lan", "wan", or bandwidth and round trip like "200mbit,5ms".
        """
        return report.Explanation(report.explain(self.plan, trace=trace, network=network))

    def __repr__(self) -> str:
        images = self.plan.predicted.get("batch")
        inputs = ", ".join(self.input_names)
        return f"Model({self.plan.name}: {self.plan.document['trust']}, inputs {inputs}, for {images} images)"

    @property
    def shortfalls(self) -> list[str]:
        """What the plan does not reach, a sentence each: the precision asked for, the original network's accuracy."""
        return planner.precision.shortfalls(self.plan.document["predicted"])

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs, in order."""
        return [i["name"] for i in self.plan.document["inputs"]]

    def named_inputs(self, x: Inputs) -> dict[str, np.ndarray]:
        """An array for the only input, or a mapping from names to arrays, as a mapping."""
        return _named_inputs(self.plan.document, x)

    def native(self, *, allow_insecure: bool = False) -> _native.Plan:
        """The plan as the run time holds it, the same object for all calls.

        PlanError below 128 bits, unless that is allowed.
        """
        handle = self.plan.handle()
        handle.allowed(allow_insecure)
        return handle


def check(
    model: Any, *, shapes: Shapes | None = None, until: str | Sequence[str] | None = None, example: Any = None
) -> list[frontend.Issue]:
    """All nodes of an ONNX model that the front end cannot read, each with what to do about it.

    Empty when it reads the whole model.

    Args:
        model: a path, the bytes of a file, a ``ModelProto``, or a ``torch.nn.Module``.
        shapes: full shapes of inputs, the batch first, where the model leaves axes open.
        until: tensors or nodes at which the network ends.
        example: inputs of a ``torch.nn.Module`` (see :func:`from_torch`).
    """
    return frontend.check(read(model, example), shapes, until=_names(until))


def read(model: Any, example: Any = None) -> Any:
    """What the front end reads.

    Modules of PyTorch and estimators of scikit-learn become a ``ModelProto``, all else stays.

    Raises:
        ModelError: PyTorch is not installed or refuses the module; an example without a module.
    """
    if frontend.is_module(model):
        return frontend.export(model, example)
    if example is not None:
        raise frontend.ModelError(
            f"example is for a torch.nn.Module, and the model is of type {type(model).__name__}. Leave example out."
        )
    return frontend.sklearn_model(model) if frontend.is_estimator(model) else model


def _names(until: str | Sequence[str] | None) -> Sequence[str]:
    return until.split(",") if isinstance(until, str) else until or ()


@overload
@taking(ClientAided)
def compile(model: Any, **options: Any) -> Model: ...
@overload
@taking(TwoParty)
def compile(model: Any, **options: Any) -> Model: ...
@overload
@taking(NonInteractive)
def compile(model: Any, **options: Any) -> Model: ...
def compile(model: Any, *, trust: str = "client-aided", **options: Any) -> Model:
    """Turns a trained model into a plan: path or bytes of ONNX, ``ModelProto``, PyTorch module, scikit-learn estimator.

    Args:
        model: the trained model.
        trust: ``client-aided``, ``two-party`` or ``non-interactive`` (who learns what: ``Model.explain``).
        options: keyword arguments of the trust model: the fields of :class:`hushnet.options.ClientAided`,
            :class:`hushnet.options.TwoParty` or :class:`hushnet.options.NonInteractive`, listed below and in
            docs/options.md.

    Raises:
        ModelError: no readable ONNX model.
        UnsupportedModel: nodes that the front end cannot read, each with what to do about it.
        PlanError: an option that the trust model does not have, with the nearest one; a network or option that cannot
            be planned, with the layer and what to do.
    """
    asked = made(trust, options)
    graph, ports = lowered(
        read(model, asked.example),
        calibration=asked.calibration,
        shapes=asked.shapes,
        until=_names(asked.until),
        outputs=_names(asked.outputs),
    )
    return planned(graph, ports, asked)


@overload
@taking_example(ClientAided)
def from_torch(module: Any, example: Any, **options: Any) -> Model: ...
@overload
@taking_example(TwoParty)
def from_torch(module: Any, example: Any, **options: Any) -> Model: ...
@overload
@taking_example(NonInteractive)
def from_torch(module: Any, example: Any, **options: Any) -> Model: ...
def from_torch(module: Any, example: Any, **options: Any) -> Model:  # type: ignore[misc]  # one example, not two
    """Turns a ``torch.nn.Module`` into a plan: PyTorch's exporter, then :func:`compile`.

    Args:
        module: the trained module.
        example: inputs that the module takes: a tensor or array, several in a tuple, or a mapping from names of
            ``forward``. Their first axis is the batch where they share it; any number of images can be run.
        options: see :func:`compile`.

    Raises:
        ModelError: PyTorch is not installed, or its exporter refuses the module.
    """
    if not frontend.is_module(module):
        raise frontend.ModelError(
            f"from_torch takes a torch.nn.Module, and this is of type {type(module).__name__}. "
            "Give ONNX models to hushnet.compile."
        )
    return compile(module, example=example, **options)


@overload
@taking(ClientAided)
def from_sklearn(estimator: Any, **options: Any) -> Model: ...
@overload
@taking(TwoParty)
def from_sklearn(estimator: Any, **options: Any) -> Model: ...
@overload
@taking(NonInteractive)
def from_sklearn(estimator: Any, **options: Any) -> Model: ...
def from_sklearn(estimator: Any, **options: Any) -> Model:
    """Turns a fitted scikit-learn estimator or pipeline into a plan: its ONNX model, then :func:`compile`.

    No other package is needed. ``hushnet.frontend.sklearn_model`` gives the ONNX model itself.

    Args:
        estimator: scalers, imputation, PCA and column selection in front of linear models, linear support vectors or
            multi-layer perceptrons (docs/models.md has the list).
        options: see :func:`compile`; give training rows as ``calibration``.

    Raises:
        UnsupportedModel: an estimator that cannot be evaluated, with what does.
    """
    return compile(frontend.sklearn_model(estimator), **options)


# what `help` and notebooks show
compile.__doc__ = f"{compile.__doc__}\n{help_text()}"
compile.__signature__ = signature(compile)  # type: ignore[attr-defined]
from_torch.__signature__ = signature(from_torch)  # type: ignore[attr-defined]
from_sklearn.__signature__ = signature(from_sklearn)  # type: ignore[attr-defined]


def lowered(
    model: Any, *, calibration: Inputs | None, shapes: Shapes | None, until: Sequence[str], outputs: Sequence[str] = ()
) -> tuple[Graph, frontend.Ports]:
    """The graph that :func:`compile` plans, and what is known of its ports.

    The arguments are those of :func:`compile`.
    """
    samples = sample_shapes(model, calibration)
    graph, ports = frontend.read(model, shapes, samples=samples, until=until, outputs=outputs)
    return passes.default(graph), ports


def planned(graph: Graph, ports: frontend.Ports, asked: Options) -> Model:
    """The plan of a graph that was read already."""
    calibration, labels = asked.calibration, asked.labels
    if calibration is not None:
        given = calibration if isinstance(calibration, Mapping) else {graph.inputs[0]: calibration}
        stacked = {name: _stacked(_array(value), graph.shapes.get(name, ())) for name, value in given.items()}
        calibration = {name: _filled(value, ports.missing.get(name)) for name, value in stacked.items()}
    if labels is not None:
        labels = _places(labels, ports.classes.get(graph.outputs[0]))
    # the model was read by the other options
    changes: dict[str, Any] = {"calibration": calibration, "labels": labels, **dict.fromkeys(READING)}
    # the largest of "values" need not be the answer
    classes = tuple(name for name, found in ports.classes.items() if found.of != "values")
    plan = planner.plan(graph, replace(asked, **changes), classes)
    if ports.describe(plan.document):
        # what was checked and hashed is the plan without them
        plan = Plan(plan.document, plan.weights)
        planner.validate(plan)
    return Model(plan)


def _places(labels: Any, classes: frontend.Classes | None) -> Any:
    """Names of classes as their places, where the model names them."""
    if classes is None:
        return labels
    places = {str(name): place for place, name in enumerate(classes.names)}
    given = [str(plain_name(v)) for v in np.asarray(labels).reshape(-1).tolist()]
    unknown = [v for v in given if v not in places]
    if unknown:
        raise InputError(f"the label {unknown[0]!r} is no class of the model; its classes are {', '.join(places)}.")
    return np.asarray([places[v] for v in given], np.int64)


def sample_shapes(model: Any, calibration: Inputs | None) -> dict[str, tuple[int, ...]]:
    """Shapes of the calibration data by input."""
    if calibration is None:
        return {}
    if isinstance(calibration, Mapping):
        return {name: np.shape(value) for name, value in calibration.items()}
    names = frontend.input_names(model)
    return {names[0]: np.shape(calibration)} if len(names) == 1 else {}


def _stacked(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Images of a shape: one alone gets the axis in front, and numbers of other types than float become float."""
    if x.shape == tuple(shape):
        x = x[None]
    if x.dtype.kind in "iub" or x.dtype == np.float16:
        # binary32 holds integers of 16 bits, binary64 those below 2^53
        x = x.astype(np.float32 if x.dtype.itemsize <= 2 else np.float64)
    return x


def _loaded(model: Model | str | Path, allow_insecure: bool) -> Model:
    if isinstance(model, Model):
        return model
    if isinstance(model, (str, Path)):
        return Model.load(model, allow_insecure=allow_insecure)
    raise InputError(
        f"a {type(model).__name__} is no compiled network; give a Model (hushnet.compile) or the path of a .hush file."
    )


def run(
    model: Model | str | Path,
    x: Inputs,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    transport: Literal["pipe", "loopback"] = "loopback",
    network: str | None = None,
    check: bool = False,
    allow_insecure: bool = False,
) -> Result:
    """Both parties on this machine, the real protocol over a loopback socket (``transport="pipe"``: in memory).

    Two-party plans run over memory, one thread pool a party; ``network`` ("lan", "wan", or bandwidth and round trip
    like "200mbit,5ms") slows the connection down to that.

    Args:
        model: a compiled network, or the path of its ``.hush`` file.
        check: non-interactive: runs the network in NumPy as well and adds to the trace how far the operand of every
            polynomial went
            (``polynomials``), and which left the range that the polynomial is planned for (``out_of_range``).

    A value outside of its planned range is clamped, and ``Result.out_of_range`` names its row.

    Raises:
        RangeError: the server's answer decrypts to what no weights of the plan give: the server is faulty.
    """
    model = _loaded(model, allow_insecure)
    plan, inputs = model.native(allow_insecure=allow_insecure), model.named_inputs(x)
    if check and plan.trust != "non-interactive":
        raise InputError(f"check is for non-interactive plans; this one is {plan.trust}, and run it without check")
    if network is not None and plan.trust != "two-party":
        raise InputError(f"network is for two-party plans; this one is {plan.trust}")
    if plan.trust == "two-party":
        transport = "pipe"
    marks: list[RangeError] = []
    outputs, client, server = _native.run(
        plan, inputs, threads=threads, progress=progress, transport=transport, network=_link(network), marks=marks
    )
    trace = json.loads(client)
    if server is not None:
        trace |= {"client": dict(trace), "server": json.loads(server)}
    if check:
        trace["polynomials"] = _reaches(model.plan, inputs)
        trace["out_of_range"] = [p for p in trace["polynomials"] if p["outside"]]
    return _result(model.plan.document, outputs, trace, marks)


def _result(
    document: Mapping[str, Any], outputs: dict[str, np.ndarray], trace: dict[str, Any], marks: list[RangeError]
) -> Result:
    """A result with what the run has marked."""
    mark = marks[0] if marks else None
    labelled = document["params"].get("two_party", {}).get("reveal") == "argmax"
    affected = tuple(mark.affected) if mark is not None else ()
    return Result(outputs, trace, _classes(document), affected, mark, labelled)


def _link(network: str | None) -> tuple[float, float] | None:
    """Bits a second and seconds of a round trip; None: nothing slows the connection down."""
    if network in (None, "loopback"):
        return None
    found = planner.two_party.cost.link(network)
    return (found["bits_per_second"] or math.inf, found["round_trip_seconds"])


def _reaches(plan: Plan, inputs: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """How far the operand of every polynomial goes in the clear.

    This machine has weights and inputs, so it can look where no party can.
    """
    tensors = {t["id"]: t for t in plan.tensors}
    plain = reference_run(plan, inputs)
    return [
        {"tensor": tensors[t]["name"], "largest": plain.largest[t], "range": tensors[t]["range"], "outside": count}
        for t, count in plain.outside.items()
    ] + plain.reaches


def _served(
    model: Model | str | Path | Mapping[str, Model | str | Path], allow_insecure: bool
) -> _native.Plan | dict[str, _native.Plan]:
    """What a server takes: one plan, or plans by name."""
    if not isinstance(model, Mapping):
        return _loaded(model, allow_insecure).native(allow_insecure=allow_insecure)
    return {name: _loaded(one, allow_insecure).native(allow_insecure=allow_insecure) for name, one in model.items()}


def serve(
    model: Model | str | Path | Mapping[str, Model | str | Path],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    max_sessions: int = 64,
    memory_limit: int = 16 << 30,
    idle_timeout: float = 120.0,
    handshake_timeout: float = 10.0,
    grace: float = 10.0,
    threads: int | None = None,
    record: str | Path | None = None,
    weight_memory: int | None = None,
    max_connections: int = 1024,
    line: float = 10.0,
    patience: float = 1.0,
    session_time: float = 3600.0,
    origins: Sequence[str] | None = None,
    tokens: str | Path | None = None,
    client_ca: str | Path | None = None,
    admin: tuple[str, int] | None = None,
    list_models: bool = False,
    connections_per_peer: int | None = None,
    sessions_per_peer: int | None = None,
    hourly_bytes_per_peer: int | None = None,
    hourly_bytes: int | None = None,
    keys: str | Path | None = None,
    keys_quota: int | None = None,
    keys_days: float | None = None,
    proxies: Sequence[str] | None = None,
    prepare_first: bool = True,
    store: str | Path | None = None,
    store_days: float | None = None,
    reports: bool = False,
    allow_insecure: bool = False,
) -> _native.ServerHandle:
    """Starts a server in the background; ``handle.port`` tells the port, ``handle.stop()`` ends it.

    Traces of two-party sessions: ``handle.traces()``. Other models from now on: ``handle.set_models({name: plan})``.

    Args:
        model: a compiled network, the path of its ``.hush`` file, or several by the names that clients ask for.
        port: 0 for any free one.
        tls_cert: PEM file with the certificate chain; with ``tls_key``.
        max_sessions: in work at once. A client takes a slot when it sends something to work on, not when it connects.
        memory_limit: bytes of all sessions together. What a session holds between blocks lowers the number of sessions;
            what a block needs is waited for.
        idle_timeout: seconds to wait for a frame that is due.
        handshake_timeout: seconds for TLS, HTTP and the greeting.
        grace: seconds that blocks in work have when the server stops.
        threads: None for all cores.
        record: file to which everything that clients encrypt is appended as it came.
        weight_memory: two-party: bytes for weights in evaluation form; None for 2 GiB.
        max_connections: at once; more are closed as they come.
        line: seconds that a client waits for a slot of a full server at most.
        patience: seconds that a session may keep a full server waiting while others stand in line, beside ten times
            what the server worked for it.
        session_time: age in seconds at which a session of a full server gives its slot to the next in line, between
            two blocks.
        origins: origins (``https://host``) whose web pages may open ``/ws``, beside the server's own.
        tokens: file of the tokens that clients need, lines ``name token`` or ``name sha256:HEX`` (docs/serving.md).
        client_ca: PEM file of authorities; clients need a certificate that one of them has signed.
        admin: host and port for health, metrics and what is told of models; the port of clients then has ``/ws`` and
            ``/livez`` alone.
        list_models: clients that ask for a model that there is not learn the names of those that there are.
        connections_per_peer: at once, of one address; None for no limit of its own, as in what follows.
        sessions_per_peer: in work at once, of one peer: the owner of a token, a certificate, or an address.
        hourly_bytes_per_peer: bytes of frames in an hour, both ways together, of one peer.
        hourly_bytes: bytes of frames in an hour of all peers.
        keys: non-interactive: folder that clients' evaluation keys are kept in, so that a client that comes again sends
            none, also after a restart.
        keys_quota: bytes of all keys in the folder (default 16 GiB); those used longest ago make room.
        keys_days: keys that no session has used for so many days are removed (default 30).
        proxies: IP addresses of proxies whose connections begin with a PROXY header (version 2) that says who the
            client is. Without them a proxy is one peer with all its clients.
        prepare_first: prepare all weights before the server listens. Without it the server listens at once, sessions
            wait where they need weights, and a plan whose weights cannot be prepared ends the server: ``handle.join()``
            raises then.
        store: two-party: folder that the preparation of each model is kept in, so that a server that is started anew
            goes on with the set-ups that its clients have. What is in it is as secret as the weights.
        store_days: preparations that no server was started with for so many days are removed (default 30).
        reports: keep what is told of sessions that ended for ``handle.reports()``: times and counts, as JSON.
        allow_insecure: serve plans below 128 bits.

    Raises:
        PlanError: a plan has no weights, or one session needs more than ``memory_limit``.
        TransportError: the port, the certificate, the tokens or a name cannot be used.
    """
    return _native.serve(
        _served(model, allow_insecure),
        host,
        port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        max_sessions=max_sessions,
        memory_limit=memory_limit,
        idle_timeout=idle_timeout,
        handshake_timeout=handshake_timeout,
        grace=grace,
        threads=threads,
        record=record,
        weight_memory=weight_memory,
        max_connections=max_connections,
        line=line,
        patience=patience,
        session_time=session_time,
        origins=None if origins is None else list(origins),
        tokens=tokens,
        client_ca=client_ca,
        admin=admin,
        list_models=list_models,
        connections_per_peer=connections_per_peer,
        sessions_per_peer=sessions_per_peer,
        hourly_bytes_per_peer=hourly_bytes_per_peer,
        hourly_bytes=hourly_bytes,
        keys=None if keys is None else Path(keys),
        keys_quota=keys_quota,
        keys_age=None if keys_days is None else keys_days * 86400,
        proxies=None if proxies is None else [_ip(text) for text in proxies],
        prepare_first=prepare_first,
        store=None if store is None else Path(store),
        store_age=None if store_days is None else store_days * 86400,
        reports=reports,
    )


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise InputError(
            f"proxies: {text!r} is no IP address. Give addresses like 10.0.0.5, no names and no networks."
        ) from None


class Connection:
    """A client's session with a server; also a context manager."""

    def __init__(self, client: _native.Client):
        self._client = client
        self.plan = json.loads(client.plan_json())
        # two-party: SHA-256 of the public plan, equal for all clients of an honest server
        self.plan_digest: str | None = client.plan_digest()

    def public_part(self) -> Plan:
        """The server's plan without weights, as this client has received and checked it."""
        return Plan.parse(self._client.plan.public_part())

    def infer(self, x: Inputs, *, progress: Progress | None = None) -> Result:
        """Encrypts, computes with the server, decrypts; arrays ``[images, ...]``.

        Two-party: the trace is this party's own.
        """
        named = _named_inputs(self.plan, x)
        marks: list[RangeError] = []
        outputs, text = self._client.infer(named, progress=progress, marks=marks)
        return _result(self.plan, outputs, json.loads(text), marks)

    def __repr__(self) -> str:
        inputs = ", ".join(port["name"] for port in self.plan["inputs"])
        return f"Connection({self.plan['name']}: {self.plan['trust']}, inputs {inputs})"

    def close(self) -> None:
        """Ends the session; its keys are gone."""
        self._client.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _identity(plan: Model | str | Path) -> str:
    """What names a plan, whoever serves it."""
    native = plan.native(allow_insecure=True) if isinstance(plan, Model) else _native.Plan.load(Path(plan), True)
    return native.identity()


def connect(
    url: str,
    *,
    ca: str | None = None,
    insecure_tls: bool = False,
    threads: int | None = None,
    images: int | None = None,
    setups: str | Path | None = None,
    setups_quota: int | None = None,
    setups_days: float | None = None,
    max_memory: int | None = None,
    plan_digest: str | None = None,
    model: str | None = None,
    token: str | None = None,
    cert: tuple[str | Path, str | Path] | None = None,
    keys: str | Path | None = None,
    plan: Model | str | Path | None = None,
) -> Connection:
    """Connects to ``hush://host:port`` (``hushs://`` with TLS.

    ``ws://`` and ``wss://`` through proxies) and receives the public part of the plan.

    Args:
        images: how many will be sent, as far as known (two-party: the OT extension is chosen for it).
        setups: folder that set-ups of rotation-free layers are kept in, so that the next session with this server needs
            none (two-party).
        setups_quota: bytes of all set-ups in the folder (default 16 GiB); a plan that needs more is refused.
        setups_days: set-ups that no session has used for so many days are removed (default 30).
        max_memory: bytes that the client may take for the server's plan (default 32 GiB); a plan that needs more is
            refused.
        plan_digest: what `Connection.plan_digest` must be (two-party): learnt elsewhere, it shows that the plan is not
            made for this client alone.
        model: the one of several to ask for; ``hush://host/NAME`` and ``ws://host/ws/NAME`` say it, too.
        token: what shows that this client may ask. It goes over TLS with a verified certificate, or to this machine.
        cert: PEM files of certificate and key, for servers that ask clients for them.
        keys: folder that the secret of this client's keys is kept in, so that the next session with this server sends
            none where the server keeps them, too (non-interactive). The server learns that the same client comes again.
        plan: the plan that the server must serve, with or without its weights; the client refuses any other before it
            sends anything of its own.
    """
    folder = Path(setups) if setups is not None else None
    return Connection(
        _native.connect(
            url,
            ca=ca,
            insecure_tls=insecure_tls,
            threads=threads,
            memory_limit=max_memory,
            expected_images=images,
            setups=folder,
            setups_quota=setups_quota,
            setups_age=None if setups_days is None else setups_days * 86400,
            plan_digest=plan_digest,
            model=model,
            token=token,
            cert=None if cert is None else (Path(cert[0]), Path(cert[1])),
            keys=Path(keys) if keys is not None else None,
            expected=None if plan is None else _identity(plan),
        )
    )
