"""The table of architectures: a name, what it is, and a function of layer calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from hushnet.errors import ZooError, choose
from hushnet.zoo.builder import Net, Tensor


@dataclass(frozen=True)
class Architecture:
    """A row of the table; ``write(net, **options)`` makes the layer calls and returns the output."""

    name: str
    about: str
    write: Callable[..., Tensor]

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of the options."""
        return {p.name: p.default for p in list(inspect.signature(self.write).parameters.values())[1:]}


ARCHITECTURES: dict[str, Architecture] = {}


def architecture(name: str, about: str, **fixed: Any) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Enters a function into the table.

    ``fixed`` arguments make a variant of it (several rows may share a function).
    """

    def enter(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def write(net: Net, **options: Any) -> Tensor:
            return function(net, **fixed, **options)

        parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in fixed]
        write.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        ARCHITECTURES[name] = Architecture(name, about, write)
        return function

    return enter


def names() -> tuple[str, ...]:
    """All architectures, sorted."""
    return tuple(sorted(ARCHITECTURES))


def get(name: str) -> Architecture:
    """A row of the table.

    Raises:
        ZooError: no such name.
    """
    if name not in ARCHITECTURES:
        raise ZooError(f"no architecture {name!r}: {choose(name, names())}.")
    return ARCHITECTURES[name]


def build(
    name: str, seed: int = 0, *, weights: Mapping[str, np.ndarray] | None = None, **options: Any
) -> onnx.ModelProto:
    """Writes an architecture as ONNX (opset 17).

    Input ``image`` ``[N, ...]``, output ``logits`` ``[N, classes]``, float32.

    Args:
        name: one of :func:`names`.
        seed: 0 or more; a seed gives the same bytes on every machine (``swish``: wherever ``exp`` rounds alike).
        weights: trained parameters by name instead of seeded ones: all that the architecture has, and no others.
        options: see ``get(name).options``; for example ``size`` and ``width`` of ``mobilenetv2``.

    Raises:
        ZooError: an unknown name or option, a size that the layers do not fit, weights that do not match.
    """
    row = get(name)
    unknown = set(options) - set(row.options)
    if unknown:
        known = ", ".join(f"{k}={v!r}" for k, v in row.options.items()) or "none"
        raise ZooError(f"{name} has no option {', '.join(sorted(unknown))}: its options are {known}")
    net = Net(seed, weights)
    return net.finish(name, row.write(net, **options))
