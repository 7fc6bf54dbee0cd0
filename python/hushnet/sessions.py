"""A network's runs: both parties here, or a client's session with a server."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hushnet import _native, marks, planner
from hushnet.arrays import named_inputs
from hushnet.errors import InputError, RangeError, TransportError, asked
from hushnet.model import Model, loaded
from hushnet.options import Inputs
from hushnet.plan import Plan
from hushnet.reference.non_interactive import run as reference_run
from hushnet.result import Result

Progress = Callable[[str, int, int], None]


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
    model = loaded(model, allow_insecure)
    plan, inputs = model.native(allow_insecure=allow_insecure), model.named_inputs(x)
    if check and plan.trust != "non-interactive":
        raise InputError(f"check is for non-interactive plans; this one is {plan.trust}, and run it without check")
    if network is not None and plan.trust != "two-party":
        raise InputError(f"network is for two-party plans; this one is {plan.trust}")
    if plan.trust == "two-party":
        transport = "pipe"
    found: list[RangeError] = []
    with asked():
        outputs, client, server = _native.run(
            plan, inputs, threads=threads, progress=progress, transport=transport, network=_link(network), marks=found
        )
    trace = json.loads(client)
    if server is not None:
        trace |= {"client": dict(trace), "server": json.loads(server)}
    if check:
        trace["polynomials"] = _reaches(model.plan, inputs)
        trace["out_of_range"] = [p for p in trace["polynomials"] if p["outside"]]
    if found and plan.trust != "client-aided":
        # as the client has it: names of public parts are neutral
        marks.explain(found[0], model.plan.public_part().document, inputs)
    elif found:
        marks.explain(found[0], model.plan.document, inputs)
    return _result(model.plan.document, outputs, trace, found)


def _result(
    document: Mapping[str, Any], outputs: dict[str, np.ndarray], trace: dict[str, Any], found: list[RangeError]
) -> Result:
    """A result with what the run has marked."""
    mark = found[0] if found else None
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


def _classes(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What outputs say of classes; those that a plan opens as an index have no names where the model gives none."""
    opened = document["params"].get("two_party", {}).get("reveal") == "argmax"
    return {
        port["name"]: port.get("classes") or {"of": "index", "names": []}
        for port in document["outputs"]
        if port.get("classes") or opened
    }


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

        Two-party: the trace is this party's own. With a folder of prepared inferences every image spends one, and the
        trace has under ``prepared`` what these cost before: seconds and bytes that are no part of its own.
        """
        named = named_inputs(self.plan, x)
        found: list[RangeError] = []
        outputs, text = self._client.infer(named, progress=progress, marks=found)
        if found:
            marks.explain(found[0], self.plan, named)
        return _result(self.plan, outputs, json.loads(text), found)

    def prepare(self, count: int, *, progress: Progress | None = None) -> dict[str, Any]:
        """Prepares ``count`` inferences before their inputs are known; this client's half of them is kept in a folder.

        The folder is that of ``connect(prepared=...)``; the server keeps the other half. With it, every image of
        ``infer`` spends one. Two-party plans only (docs/two-party.md, "Prepared inferences").

        Returns:
            the trace: ``units``, ``seconds``, ``bytes_up`` and ``bytes_down`` of all of them.

        Raises:
            PreparedError: no folder was given, no layer can be prepared, or the server keeps none or has no room.
        """
        if count < 1:
            raise InputError(f"count is {count}: prepare one inference or more.")
        trace: dict[str, Any] = json.loads(self._client.prepare(count, progress))
        return trace

    @property
    def prepared(self) -> int | None:
        """Prepared inferences that the folder holds for this server and plan; None without a folder."""
        return self._client.units()

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
    prepared: str | Path | None = None,
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
        prepared: folder of prepared inferences (two-party): ``Connection.prepare`` adds to it, and ``infer`` spends one
            for every image, or raises ``PreparedError``. Never put a copy of it back.
        plan: the plan that the server must serve, with or without its weights; the client refuses any other before it
            sends anything of its own.
    """
    folder = Path(setups) if setups is not None else None
    try:
        with asked():
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
                    units=Path(prepared) if prepared is not None else None,
                )
            )
    except TransportError as error:
        if "cannot connect to" not in str(error):
            raise
        raise TransportError(
            f"{error}. Is a server running there (hushnet serve), and may you reach its port?"
        ) from None
