"""The run time in Rust: plans, both parties of the protocol, server and client.

Long calls release the interpreter lock and end on Ctrl-C. A ``progress`` callback gets ``(stage name, tiles done, tiles)``, on a
thread of the run time; what it raises ends the call and is raised by it. Traces are JSON (``docs/plan-format.md`` names the stages).
Records of the run time go to :mod:`logging`, under ``hushnet_runtime``.
"""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from .errors import HushnetError as HushnetError
from .errors import InputError as InputError
from .errors import PlanError as PlanError
from .errors import ProtocolError as ProtocolError
from .errors import RangeError as RangeError
from .errors import TransportError as TransportError

__version__: str

Path = str | PathLike[str]
Inputs = Mapping[str, NDArray[np.float32] | NDArray[np.float64]]
Outputs = dict[str, NDArray[np.float64]]
Progress = Callable[[str, int, int], Any]

def tally() -> dict[str, int]:
    """What plans have cost this process so far: how often one was ``read`` (its digest compared), ``written`` (its digest computed), ``checked``
    and ``prepared`` (weights brought into the form of the kernels)."""

def release_buffers() -> int:
    """Gives back buffers of polynomials that nobody has needed since the last call; their bytes. A server does so every few seconds."""

@final
class Plan:
    """A checked, immutable plan of any trust model. Its weights are prepared when they are first needed, and kept."""

    @staticmethod
    def load(source: Path | bytes, allow_insecure: bool = False, memory_limit: int | None = None) -> Plan:
        """Reads a plan file or its bytes, complete or public part.

        Args:
            allow_insecure: accept a plan that is marked as below 128-bit security.
            memory_limit: bytes that the client's tensors of one block may take (default 32 GiB).

        Raises:
            PlanError: for every way in which the file can be wrong.
        """
    def allowed(self, insecure: bool = False) -> None:
        """PlanError where the plan is below 128 bits and that is not allowed."""
    def json(self) -> str:
        """The plan's JSON, byte for byte as in the file."""
    def facts(self, images: int = 1) -> str:
        """What follows exactly from the plan, as JSON.

        ``cost``: of a session that runs so many images, ``setup``, ``stages``, ``stage_setups`` and ``total``, each with ``bytes_up``, ``bytes_down``
        and ``rounds``. ``two_party``, of one group of images: ``setup``, ``stages``, ``ahead`` (what of every stage is OTs
        that it ensures for later ones), ``total``, ``he_bytes``, ``ot_bytes``, ``extensions`` (work of the OT extensions, stage by stage), ``gates``, ``extension``, ``peak_elements``, and ``work`` by stage for one image (bits ``compared``, values
        ``selected`` and ``truncated``). ``non_interactive``, of a block: ``traffic``, ``counted``, ``peak_bytes``, ``images``, and with weights
        ``tracks`` of errors or ``packed``, the report of a circuit.
        """
    @property
    def trust(self) -> str:
        """``client-aided``, ``two-party`` or ``non-interactive``."""
    def identity(self) -> str:
        """SHA-256 of what every server of this plan tells its clients: of a plan and of its public part the same."""
    def public_part(self) -> bytes:
        """What clients receive: a plan file without weights."""
    @property
    def has_weights(self) -> bool: ...
    @property
    def name(self) -> str: ...
    @property
    def insecure(self) -> bool: ...
    @property
    def ring_degree(self) -> int: ...
    @property
    def inputs(self) -> list[tuple[str, list[int]]]:
        """Names and shapes per image."""
    @property
    def outputs(self) -> list[tuple[str, list[int]]]:
        """Names and shapes per image."""
    @property
    def client_tensor_bytes(self) -> int | None:
        """Bytes of tensors that a client holds at once for a full block of a client-aided plan; None for other plans."""

@final
class Client:
    """An open session with a server of any trust model; a context manager."""

    def plan_json(self) -> str:
        """JSON of the server's plan, public part."""
    @property
    def plan(self) -> Plan:
        """The server's plan, public part."""
    def plan_digest(self) -> str | None:
        """SHA-256 of a two-party server's public plan in hexadecimal digits: equal for all clients of an honest server. None for other plans."""
    def infer(
        self, inputs: Inputs, progress: Progress | None = None, marks: list[RangeError] | None = None
    ) -> tuple[Outputs, str]:
        """Runs the network on a batch of any size; returns the outputs and the trace.

        InputError leaves the session open, every other error closes it.

        Raises:
            InputError: wrong name, shape, dtype, or values that are not finite.
            RangeError: a value left the planned range; names layer and tensor. Given ``marks``, the error is appended to
                the list and the outputs are returned (but not where the server is faulty).
            ProtocolError, TransportError: the server or the connection failed.
        """
    def prepare(self, count: int, progress: Progress | None = None) -> str:
        """Prepares so many inferences of a two-party plan and keeps them in the folder of ``connect``; returns the trace.

        Raises:
            PreparedError: no folder, no layer that can be prepared, or no room at the server.
        """
    def units(self) -> int | None:
        """Prepared inferences of this server and plan in the folder of ``connect``; None without a folder."""
    def close(self) -> None:
        """Ends the session; again: nothing."""
    def __enter__(self) -> Client: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class ServerHandle:
    """A running server; a context manager. Stops when it is dropped."""

    @property
    def port(self) -> int: ...
    @property
    def address(self) -> str:
        """``host:port`` that the server listens on."""
    @property
    def sessions(self) -> int:
        """Sessions that may be in work at once: ``max_sessions``, or fewer where ``memory_limit`` does not hold so many."""
    @property
    def session_memory(self) -> dict[str, int]:
        """The most bytes that one session of any model may hold: ``session`` from its slot to its end, ``set_up`` from its first work on, ``block`` while the largest block is in work."""
    @property
    def running(self) -> bool: ...
    @property
    def prepared(self) -> bool: ...
    def reload_certificate(self) -> None:
        """Reads the certificate and its key again, for connections from now on.

        Raises:
            TransportError: the files cannot be used; the certificate that the server has stays.
        """
    def reload_tokens(self) -> None:
        """Reads the file of tokens again, for clients from now on.

        Raises:
            TransportError: the file cannot be used; the tokens that the server has stay.
        """
    def set_models(self, plans: dict[str, Plan]) -> None:
        """Serves these plans, by name, from now on; sessions keep the one that they began with.

        Raises:
            TransportError, PlanError: they cannot be served; the models that the server has stay.
        """
    @property
    def models(self) -> dict[str, int]:
        """Bytes that a session of each model may hold, by name."""
    @property
    def admin_address(self) -> str | None:
        """``host:port`` of the listener for health and metrics; None where there is none."""
    def stop(self) -> None:
        """Refuses new sessions, lets blocks in work finish within the grace period; returns at once."""
    def join(self, timeout: float | None = None) -> bool:
        """Waits for the end; False when it has not come in ``timeout`` seconds."""
    def reports(self) -> list[str]:
        """What is told of sessions that ended since the last call, as JSON; at most the last 4096, none without ``reports``."""
    def traces(self) -> list[str]:
        """Traces of two-party sessions that ended well since the last call, as JSON; at most the last 64."""
    def stats(self) -> dict[str, int]:
        """Counters: sessions, active, refused, blocks, images, bytes_received, bytes_sent, protocol_errors, ..."""
    def __enter__(self) -> ServerHandle: ...
    def __exit__(self, *exception: object) -> None: ...

def run(
    plan: Plan,
    inputs: Inputs,
    threads: int | None = None,
    progress: Progress | None = None,
    transport: Literal["pipe", "loopback"] = "pipe",
    network: tuple[float, float] | None = None,
    group: int | None = None,
    weight_memory: int | None = None,
    marks: list[RangeError] | None = None,
) -> tuple[Outputs, str, str | None]:
    """Both parties in this process, over the real protocol: outputs, the client's trace with the server's figures in it, and the server's own trace
    where its trust model has one (two-party).

    Args:
        threads: of both parties together (two-party: of each); None for those of :func:`set_threads`, 0 for one a processor.
        transport: in memory, or a socket on the loopback interface.
        network: two-party, in memory: bits a second and seconds of a round trip throttle the connection.
        group: two-party: images that run through the stages together; None for a number that the memory allows.
        weight_memory: two-party: bytes for the server's weights in evaluation form (default 2 GiB); the rest are transformed as they are used.

    Raises:
        As :meth:`Client.infer`; PlanError when the plan has no weights.
    """

def serve(
    plan: Plan | dict[str, Plan],
    host: str = "127.0.0.1",
    port: int = 0,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    max_sessions: int = 64,
    memory_limit: int = 17_179_869_184,
    idle_timeout: float = 120.0,
    handshake_timeout: float = 10.0,
    grace: float = 10.0,
    threads: int | None = None,
    record: Path | None = None,
    weight_memory: int | None = None,
    max_connections: int = 1024,
    line: float = 10.0,
    patience: float = 1.0,
    session_time: float = 3600.0,
    origins: list[str] | None = None,
    tokens: Path | None = None,
    client_ca: Path | None = None,
    admin: tuple[str, int] | None = None,
    list_models: bool = False,
    connections_per_peer: int | None = None,
    sessions_per_peer: int | None = None,
    hourly_bytes_per_peer: int | None = None,
    hourly_bytes: int | None = None,
    keys: Path | None = None,
    keys_quota: int | None = None,
    keys_age: float | None = None,
    proxies: list[str] | None = None,
    prepare_first: bool = True,
    store: Path | None = None,
    store_age: float | None = None,
    reports: bool = False,
    web: list[tuple[str, str, str, bytes]] | None = None,
    units: Path | None = None,
    units_quota: int | None = None,
    units_client_quota: int | None = None,
    units_age: float | None = None,
) -> ServerHandle:
    """Starts a server (``/ws``, ``/healthz``, ``/metrics``) on threads of its own and returns at once.

    Args:
        plan: one, under the name "model", or plans by the names that clients ask for.
        weight_memory: as in :func:`run`.
        port: 0 for any free one.
        tls_cert: PEM file with the certificate chain; with ``tls_key``.
        memory_limit: bytes of all sessions together. What a session holds between blocks lowers the number of sessions; what a block needs is waited for.
        idle_timeout: seconds to wait for a frame that is due.
        handshake_timeout: seconds for TLS, HTTP and the greeting.
        record: file to which everything that clients encrypt is appended as it came.
        grace: seconds that blocks in work have when the server stops.
        max_sessions: sessions in work at once. A client takes a slot when it sends something to work on, not when it connects.
        max_connections: connections at once; more are closed as they come.
        line: seconds that a client waits for a slot at most.
        patience: seconds that a session may keep a full server waiting while others stand in line, beside ten times what the server worked for it.
        session_time: age in seconds at which a session of a full server gives its slot to the next in line, between two blocks.
        origins: origins (``https://host``) whose web pages may open ``/ws``, beside the server's own.
        tokens: file of the tokens that clients need, lines ``name token`` or ``name sha256:HEX``.
        client_ca: PEM file of authorities; clients need a certificate that one of them has signed.
        admin: host and port for health, metrics and what is told of models; the port of clients then has ``/ws`` and ``/livez``.
        list_models: clients that ask for a model that there is not learn the names of those that there are.
        connections_per_peer, sessions_per_peer: of one peer at once; None for no limit of their own.
        hourly_bytes_per_peer, hourly_bytes: bytes of frames in an hour, of one peer and of all.
        keys: folder that evaluation keys of non-interactive clients are kept in.
        keys_quota: bytes of all keys in the folder (default 16 GiB); those used longest ago make room.
        keys_age: seconds after which keys that no session has used are removed (default 30 days).
        proxies: addresses of proxies whose connections begin with a PROXY header, version 2, that says who the client is.
        web: files of a page for visitors: path, media type, a tag that changes with the bytes, and the bytes as gzip has them.

    Raises:
        PlanError: a plan has no weights, or one session needs more than ``memory_limit``.
        TransportError: the port, the certificate, the tokens or a name cannot be used.
    """

def connect(
    url: str,
    ca: Path | None = None,
    insecure_tls: bool = False,
    allow_insecure: bool = False,
    threads: int | None = None,
    connect_timeout: float = 20.0,
    idle_timeout: float = 600.0,
    memory_limit: int | None = None,
    expected_images: int | None = None,
    setups: Path | None = None,
    setups_quota: int | None = None,
    setups_age: float | None = None,
    plan_digest: str | None = None,
    model: str | None = None,
    token: str | None = None,
    cert: tuple[Path, Path] | None = None,
    keys: Path | None = None,
    expected: str | None = None,
    units: Path | None = None,
) -> Client:
    """Connects to ``hush://host:port``, ``hushs://`` (TLS), ``ws://`` or ``wss://`` and receives the server's plan.

    Args:
        ca: PEM file of the authorities to trust; without it those of the system.
        insecure_tls: accept any certificate.
        allow_insecure: accept a plan that is marked as below 128-bit security.
        idle_timeout: longest wait for an answer, the server's computation included.
        expected_images: of a two-party session, as far as known: what its OT extension is chosen for.
        setups: folder that set-ups of rotation-free layers are kept in between two-party sessions.
        setups_quota: bytes of all set-ups in the folder (default 16 GiB).
        setups_age: seconds after which set-ups that no session has used are removed (default 30 days).
        plan_digest: 64 hexadecimal digits that a two-party plan's digest must be.
        model: the one of several to ask for; ``hush://host/NAME`` says it, too.
        token: what shows that this client may ask; it goes over TLS only, or to this machine.
        keys: folder that the secret of this client's keys is kept in between non-interactive sessions with this server.
        cert: PEM files of certificate and key, for servers that ask clients for them.
        expected: ``Plan.identity`` of the plan that the server must serve.
        units: folder of prepared two-party inferences, of which every image spends one.
    """

def is_model_name(name: str) -> bool:
    """Whether a server's model may be called so: letters, digits, ``.``, ``_`` and ``-``, no ``..``."""

PLAN_VERSION: int
"""Version of the plan format that this build reads and writes."""
ERROR_TAIL: float
"""Standard deviations that a sub-Gaussian error exceeds with probability below 2^-41."""
ERROR_VARIANCE: float
"""Variance of an error coefficient."""
STATISTICAL_BITS: float
"""Bits by which a flood exceeds what it hides."""

def check_plan(plan: bytes, allow_insecure: bool = False) -> None:
    """Checks a plan file of any trust model: the only check that there is.

    Raises:
        PlanError: for every way in which the file can be wrong.
    """

def single_part_bits(ring_degree: int) -> int:
    """Bits of the widest modulus whose products with the secret are one; wider ones take two. ValueError where there is no such ring."""

def batch_stage_noise(ring_degree: int, weight_l2: float, dropped: tuple[int, int], shared_mask: bool) -> float:
    """Noise of a batch layer's result after dropping bits of c0 and c1, exceeded with probability below 2^-40."""

def fit_function(
    values: Callable[[bytes], bytes], interval: tuple[int, int, int], ring_bits: int, fraction: int, error: float
) -> tuple[str, list[int], bytes, float]:
    """``(form_json, orders, coefficients, error)`` of the cheapest piecewise polynomial of a function.

    Args:
        values: arguments to values, both as bytes of float64 numbers.
        interval: least and greatest argument in units of ``2^-scale``, and ``scale``.
        ring_bits: of the shares.
        fraction, error: fractional bits of the result, and what it may be off by.

    Raises:
        ValueError: no form reaches the error.
    """

def fit_exponential(
    of: tuple[float, float, float], interval: tuple[int, int, int], ring_bits: int, fraction: int, error: float
) -> tuple[str, list[int], bytes, float]:
    """As ``fit_function``, of ``factor * e^(rate * x)``: one coefficient a segment, for about half of the bytes.

    Args:
        of: factor, rate and limit, three positive numbers; arguments whose value is above the limit give anything.
        interval, ring_bits, fraction, error: as of ``fit_function``.

    Raises:
        ValueError: no form reaches the error, or a number is not positive.
    """

def reach_bits(bound: int) -> int:
    """The least k such that values up to ``bound``, units of errors included, are below ``2^k``."""

def simd() -> str:
    """The instruction set in use; HushnetError when ``HUSHNET_SIMD`` cannot be obeyed."""

def set_threads(threads: int) -> None:
    """Threads of all later calls that do not name a number themselves; 0 for one a processor."""

def max_modulus_bits(ring_degree: int) -> int | None:
    """Largest log2 q at 128-bit security, or None."""

def batch_stage_parameters(
    ring_degree: int, weight_l2: float, output_bound: int, shared_mask: bool
) -> tuple[int, int, int, int, float]:
    """``(modulus_bits, delta_bits, drop_bits, mask_drop_bits, noise_bits)`` of a batch linear stage; ValueError when none is secure."""

def linear_methods() -> list[tuple[str, bool]]:
    """The linear methods of two-party plans: names, and whether results are exact because shares go through a prime."""

def linear_parameters(
    method_name: str, ring_degree: int, ring_bits: int, weight_l2: float
) -> tuple[int, int, float, float]:
    """``(modulus_bits, response_bits, noise_bits, off_by_one_fraction)`` of a stage of a method; ValueError when there are no parameters."""

def linear_norm(method_name: str, geometry_json: str, ring_degree: int, weights: NDArray[np.int16]) -> float:
    """Norm of the weights that a method's noise rests on; ``weights`` are flat, in the plan's order."""

def packed_layer_cost(geometry_json: str, ring_degree: int, ring_bits: int, weight_l2: float) -> dict[str, int]:
    """``tiles``, ``input_polys``, ``output_polys``, ``products``, ``weight_polys``, ``prepared_bytes``, ``outputs``, ``bytes_up`` and ``bytes_down``
    of a packed layer for one image; ValueError when it does not fit."""

def matrix_product_cost(sizes: tuple[int, int, int, int], reaches: tuple[int, int]) -> tuple[dict[str, int], float]:
    """Of a product of shared matrices (heads, rows, inner axis, columns), operands below ``2^reach``: ``ring_bits``, ``requests``,
    ``products``, ``plain``, ``merges``, ``answers`` and ``working_bytes`` of each party, ``bytes_up`` and ``bytes_down`` for one image, and the fraction of
    results that is a unit or two off before they are divided; ValueError when there are no parameters."""

def batch_share_layer_cost(
    geometry_json: str, ring_degree: int, ring_bits: int, weight_l2: float, images: int
) -> dict[str, int]:
    """``tiles``, ``inputs``, ``outputs``, ``word_products``, ``bytes_up``, ``bytes_down`` and ``window_bytes`` of a batch layer for a block
    of images; ValueError when there are no parameters."""

def two_party_group(ring_degree: int, peak_elements: int) -> int:
    """Images that a session runs together by default when the plan has batch layers."""

def slot_plain(reach_bits: int) -> tuple[int, int]:
    """``(bits, largest)`` of the prime that shares of slot-packed results below ``2^reach_bits`` are modulo in two-party plans: its bits, and the
    largest absolute value that it converts; ValueError when none is wide enough."""

def slot_layer_cost(geometry_json: str, method_name: str, plain_bits: int = 20) -> str:
    """The planner's row of a method at the cheapest 128-bit parameters that hold its noise, as JSON: ``parameters``, ``counts``, bytes,
    ``rounds``, ``keys``, memory, ``noise_bits``, ``noise_limit_bits``, ``feasible``; ValueError when there are none."""

def cost_units() -> list[tuple[str, str]]:
    """Name and meaning of every unit cost that :func:`measure_unit` measures."""

def measure_unit(name: str, seconds: float) -> float:
    """Seconds of one thread for one unit of work, measured for about ``seconds``; ValueError for an unknown name."""

def measure_protocols(extension: str, seconds: float) -> str:
    """Samples of protocols on shares with an OT extension ("softspoken", "silent-small", "silent-medium"): JSON with ``setup`` and
    ``samples``."""

def measure_message(seconds: float) -> float:
    """Seconds from one party to the other for a small message over a loopback socket."""

def clocked_two_party(
    plan: bytes, inputs: Inputs, network: tuple[float, float] | None = None, runs: int = 1, idle: bool = False
) -> str:
    """A plan's runs in one session by clocks of processor time: JSON with ``setup`` and ``runs``, of every stage the seconds on the
    longest chain of both parties' work and transfers, and of the client's work. With ``idle`` a stage's seconds are its own: a party that
    waits does nothing, and OTs are silent ones, of which many inferences' are made at once; without, it expands OTs of later stages, as in
    sessions over a network, of the extension that sends least."""

def coefficient_layer_cost(method: str, geometry_json: str, ring_bits: int, weight_l2: float) -> dict[str, int]:
    """As :func:`packed_layer_cost` for method rotation-free or convfhe, with ``ring_degree``, ``spacing``, ``rotations``, ``bytes_setup``, ``key_bytes`` (of a public key of its own), and ``answers``: ciphertexts
    that are opened and sent, once merged."""

class PackedCircuit:
    """A polynomial network for one image under CKKS with rotations (docs/packed.md)."""

    def __init__(self, spec_json: str, tensors: dict[str, NDArray[np.float64]], options_json: str = "{}") -> None:
        """Chooses ring degree, primes, layouts and methods.

        Options: ``method`` "auto" | "channel-wise", ``security`` 128 | 0 (insecure), ``precision_bits``, ``hide_weights``,
        ``ring_degree`` (0: chosen), ``key_bytes``, ``memory_bytes``.

        Raises:
            ValueError: for a network that is not well formed, or deeper than secure parameters hold (naming the layers).
        """

    def plan(self) -> tuple[str, list[NDArray[np.int64]], NDArray[np.int64]]:
        """What a plan says of the circuit: ``(JSON, slots of every upload, places of the outputs)``; slots are ``[ciphertexts, N/2]`` input elements
        (-1: none), places ``[outputs, 2]``: ciphertext and slot."""

IMAGES_TOGETHER: int
"""Images of a client-aided plan for few images that run through the stages together."""
DEFAULT_WEIGHT_BYTES: int
"""Bytes for weights in evaluation form that a server of such a plan keeps unless told otherwise."""
PACKED_PRIME_BITS: int
"""Bits of the prime of coefficient-packed ciphertexts."""

def few_images_layer(geometry: str, ring_degree: int, weights: NDArray[np.int16], output_bound: int) -> dict[str, Any]:
    """The parameters with the fewest bytes, sizes and work of a coefficient-packed layer of one image; ``weights`` are (O, C/groups, kh, kw) or (M, K), flat.

    Raises:
        ValueError: there are no secure and correct parameters, or the layer does not fit a polynomial.
    """
