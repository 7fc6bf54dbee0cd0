"""The plan (``.hush``): the one file between compile time and run time. Format: ``docs/plan-format.md``."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native
from .errors import PlanError, RangeError

if TYPE_CHECKING:
    from . import _native

__all__ = ["Plan", "PlanError", "RangeError"]

FORMAT = "hushnet-plan"
VERSION = _native.PLAN_VERSION
MAX_HEADER_BYTES = 100 << 20
# what names a linear stage's arrays
WEIGHTS = ("weights", "bias", "function", "coefficients", "orders")
_DTYPES: dict[str, np.dtype[Any]] = {
    "I8": np.dtype("<i1"),
    "I16": np.dtype("<i2"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}
_NAMES = {v.newbyteorder("="): k for k, v in _DTYPES.items()}


@dataclass
class Plan:
    """A plan: the JSON document and, on the server's side, integer weights and biases by name.

    What the run time holds of it (:meth:`handle`) is made once: change a copy (``copy.deepcopy``), not a plan that has
    run.
    """

    document: dict[str, Any]
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    _handle: _native.Plan | None = field(default=None, init=False, repr=False, compare=False)
    # of the file that the plan was read from, which the run time has compared
    _digest: str | None = field(default=None, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """A copy is a plan of its own, for others to change."""
        return {"document": self.document, "weights": self.weights, "_handle": None, "_digest": None}

    def __repr__(self) -> str:
        kind = "public part" if self.is_public else "plan"
        return (
            f"Plan({self.name}: {self.document['trust']} {kind}, {len(self.stages)} stages, {len(self.weights)} arrays)"
        )

    def handle(self) -> _native.Plan:
        """The plan as the run time holds it: checked, with its weights prepared when they are first needed, both once.

        Raises:
            PlanError: the run time refuses the plan.
        """
        if self._handle is None:
            from . import _native

            self._handle = _native.Plan.load(self.to_bytes(), allow_insecure=True)
        return self._handle

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.document["name"]

    @property
    def ring_degree(self) -> int:
        """N, the images in a block."""
        return self.document["params"]["ring_degree"]

    @property
    def part(self) -> dict[str, Any]:
        """The trust model's own part of the parameters; nothing for client-aided plans."""
        return self.document["params"].get(self.document["trust"].replace("-", "_"), {})

    @property
    def tensors(self) -> list[dict[str, Any]]:
        """Tensor descriptions, by id."""
        return self.document["tensors"]

    @property
    def stages(self) -> list[dict[str, Any]]:
        """Stages in the order in which they run."""
        return self.document["stages"]

    @property
    def predicted(self) -> dict[str, Any]:
        """Predicted cost and error of the whole run."""
        return self.document["predicted"]

    @property
    def is_public(self) -> bool:
        """Whether this is the client's half: no weights."""
        arrays = any(key in stage for stage in self.stages for key in (*WEIGHTS, "factors", "network"))
        return not arrays and not any(t["kind"] == "shared" and "bound" in t for t in self.tensors)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over the plan JSON and every tensor."""
        return self._digest or _digest(_encode(self.document), self.weights)

    def linear_stages(self) -> list[tuple[int, dict[str, Any]]]:
        """``(stage index, stage)`` of the linear stages."""
        return [(i, s) for i, s in enumerate(self.stages) if s["kind"] == "linear"]

    def public_part(self) -> Plan:
        """What a client receives: what the run time's list for the trust model names, and nothing else."""
        return Plan.parse(self.public_bytes())

    def public_bytes(self) -> bytes:
        """The file of :meth:`public_part`, byte for byte as the run time sends it.

        Raises:
            PlanError: the run time refuses the plan.
        """
        return self.handle().public_part()

    def to_bytes(self) -> bytes:
        """The safetensors file."""
        text = _encode(self.document)
        header: dict[str, Any] = {
            "__metadata__": {
                "format": FORMAT,
                "version": str(VERSION),
                "plan": text.decode("utf-8"),
                "digest": _digest(text, self.weights),
            }
        }
        blobs, offset = [], 0
        # wide elements first, so that every tensor is aligned to its element size
        for name in sorted(self.weights, key=lambda n: (-self.weights[n].itemsize, n)):
            dtype, blob = _raw(name, self.weights[name])
            header[name] = {
                "dtype": dtype,
                "shape": list(self.weights[name].shape),
                "data_offsets": [offset, offset + len(blob)],
            }
            blobs.append(blob)
            offset += len(blob)
        head = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
        head += b" " * (-len(head) % 8)
        return len(head).to_bytes(8, "little") + head + b"".join(blobs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file; an existing one is replaced in one step."""
        target = Path(path)
        scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            scratch.write_bytes(self.to_bytes())
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, allow_insecure: bool = False) -> Plan:
        """Reads a file once and has the run time compare its digest and check it, once each.

        Weights are views of the bytes that were read.

        Raises:
            PlanError: for every way in which the file can be wrong, and below 128 bits without ``allow_insecure``.
                OSError: the file cannot be read.
        """
        from . import _native

        data = Path(path).read_bytes()
        try:
            handle = _native.Plan.load(data, allow_insecure=allow_insecure)
        except PlanError as error:
            raise PlanError(f"{path}: {_is_onnx(data) or error}") from None
        plan, _, plan_digest = cls._open(data)
        plan._handle, plan._digest = handle, plan_digest
        return plan

    @classmethod
    def parse(cls, data: bytes) -> Plan:
        """Reads a file's bytes: format, version, digest, tensors.

        Nothing in the document is checked: :func:`hushnet.planner.read` does that too.

        Raises:
            PlanError: not a plan, another version, truncated, or changed after it was written.
        """
        plan, text, stated = cls._open(data)
        if _digest(text.encode("utf-8"), plan.weights) != stated:
            raise PlanError(
                "the plan's digest does not match its contents: the file was damaged or "
                "edited; copy or compile it again"
            )
        return plan

    @classmethod
    def _open(cls, data: bytes) -> tuple[Plan, str, Any]:
        """A file's plan, the text of its document, and the digest that it states, not compared."""
        head, body = _split(data)
        metadata = head.pop("__metadata__", None)
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            raise PlanError("not a hushnet plan (metadata 'format' is missing or different); compile the model again")
        if metadata.get("version") != str(VERSION):
            raise PlanError(_other_version(str(metadata.get("version"))))
        text = metadata.get("plan")
        if not isinstance(text, str):
            raise PlanError("the plan file has no 'plan' in its metadata; compile the model again")
        weights = {name: _tensor(name, entry, body) for name, entry in head.items()}
        if sum(w.nbytes for w in weights.values()) != len(body):
            raise PlanError(
                f"the plan's tensors do not account for its {len(body)} data bytes; copy or compile it again"
            )
        try:
            document = json.loads(text, parse_constant=_no_constant)
        except ValueError as error:
            raise PlanError(f"the plan's JSON cannot be read ({error}); compile the model again") from None
        return cls(document, weights), text, metadata.get("digest")


def _is_onnx(data: bytes) -> str:
    """What to say of bytes that are an ONNX model; "" of others. A model's first field is its version."""
    if data[:1] != b"\x08":
        return ""
    import onnx

    try:
        model = onnx.ModelProto.FromString(data)
    except Exception:
        return ""
    if not model.HasField("graph"):
        return ""
    return "this is an ONNX model, not a plan. Compile it first: hushnet compile MODEL.onnx -o PLAN.hush."


def _other_version(found: str) -> str:
    age = "another" if not found.isdecimal() else "an older" if int(found) < VERSION else "a newer"
    return (
        f"the plan was compiled by {age} version of this program (plan format {found}, this one reads {VERSION}); "
        "compile the model again"
    )


def _encode(document: dict[str, Any]) -> bytes:
    try:
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError as error:
        raise PlanError(f"the plan holds a number that is not finite ({error}); give calibration data") from None


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number of a plan")


def _raw(name: str, array: np.ndarray) -> tuple[str, bytes]:
    dtype = _NAMES.get(array.dtype.newbyteorder("="))
    if dtype is None:
        raise PlanError(f"tensor {name!r} has dtype {array.dtype}; a plan holds I8, I16 and I64 only")
    return dtype, np.ascontiguousarray(array).astype(_DTYPES[dtype], copy=False).tobytes()


def _digest(text: bytes, weights: dict[str, np.ndarray]) -> str:
    h = hashlib.sha256(text)
    for name in sorted(weights):
        dtype, blob = _raw(name, weights[name])
        shape = ",".join(str(n) for n in weights[name].shape)
        h.update(name.encode("utf-8") + b"\0" + dtype.encode() + b"\0" + shape.encode() + b"\0")
        h.update(blob)
    return h.hexdigest()


def _split(data: bytes) -> tuple[dict[str, Any], memoryview]:
    if len(data) < 8:
        raise PlanError(f"the plan file is truncated: {len(data)} bytes; copy it again")
    size = int.from_bytes(data[:8], "little")
    if size > MAX_HEADER_BYTES or size > len(data) - 8:
        raise PlanError(
            f"the plan file is truncated or not a plan: header of {size} bytes in a file of {len(data)}; copy it again"
        )
    try:
        head = json.loads(data[8 : 8 + size])
    except ValueError:
        raise PlanError("the plan file's header is not JSON: damaged, or not a plan; copy it again") from None
    if not isinstance(head, dict):
        raise PlanError("the plan file's header is not a JSON object; copy it again")
    return head, memoryview(data)[8 + size :]


def _tensor(name: str, entry: Any, body: memoryview) -> np.ndarray:
    try:
        dtype = _DTYPES[entry["dtype"]]
        shape = [int(n) for n in entry["shape"]]
        begin, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise PlanError(f"tensor {name!r} of the plan file is described wrongly; compile the model again") from None
    count = 1
    for n in shape:
        count *= n
    if min(shape, default=1) < 0 or not 0 <= begin <= end <= len(body) or end - begin != count * dtype.itemsize:
        raise PlanError(f"tensor {name!r} of the plan file does not fit its data: truncated or damaged; copy it again")
    return np.frombuffer(body[begin:end], dtype=dtype).reshape(shape)
