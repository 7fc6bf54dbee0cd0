"""The networks, and rows to run them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from hushnet import frontend, passes, zoo
from hushnet.graph import Graph
from hushnet.zoo.trained import trained, trained_digits, trained_names

from tests import networks
from tests.architectures import ARCHITECTURES
from tests.non_interactive import networks as polynomial
from tests.random_networks.generate import network as random_network

Rows = dict[str, np.ndarray]
KINDS = ("operators", "random", "drawn", "architectures", "polynomial", "zoo", "trained")
TRUST = ("client-aided", "two-party", "non-interactive")
RANDOM, DRAWN = 40, 60
# of the zoo what takes hours a row in full size
MODERN = ("convnext-tiny", "efficientnet-b0", "mobilenetv3-small", "vit-tiny", "yolo-nano")
SMALLER: dict[str, dict[str, Any]] = {
    "mobilenetv2": {"size": 96, "width": 0.25},
    **{name: {"size": 64, "width": 0.25, "depth": 2} for name in MODERN},
}


@dataclass(frozen=True)
class Source:
    """A network and how its rows are drawn.

    Attributes:
        low: least value of inputs that are real numbers; the largest is 1.
        trusts: trust models that it is for.
        draw: rows of its only input, where uniform numbers are nothing like its inputs.
    """

    kind: str
    name: str
    model: Callable[[], onnx.ModelProto]
    low: float = -1.0
    trusts: tuple[str, ...] = TRUST
    draw: Callable[[np.random.Generator, int], np.ndarray] | None = None

    def graph(self) -> tuple[Graph, set[str]]:
        """The network as planners take it, and its inputs that hold whole numbers."""
        model = self.model()
        whole = {
            p.name
            for p in model.graph.input
            if p.type.tensor_type.elem_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
        }
        return passes.default(frontend.load(model)), whole

    def rows(self, graph: Graph, whole: set[str], rng: np.random.Generator, count: int) -> Rows:
        """Rows of independent numbers, whole ones 0 or 1, others uniform; or what :attr:`draw` gives."""
        if self.draw is not None:
            return {graph.inputs[0]: self.draw(rng, count)}
        return {
            name: (
                rng.integers(0, 2, (count, *graph.shapes[name])).astype(np.float64)
                if name in whole
                else rng.uniform(self.low, 1, (count, *graph.shapes[name]))
            )
            for name in graph.inputs
        }


def sources(kinds: tuple[str, ...] = KINDS) -> Iterator[Source]:
    """All networks of the given kinds."""
    if "operators" in kinds:
        for name, model in networks.single_operators().items():
            yield Source("operators", name, lambda m=model: m)
    if "random" in kinds:
        for seed in range(RANDOM):
            yield Source("random", str(seed), lambda s=seed: networks.random_network(s)[0])
    if "drawn" in kinds:
        for trust in TRUST:
            for index in range(DRAWN // len(TRUST)):
                yield Source(
                    "drawn", f"{trust} {index}", lambda t=trust, i=index: random_network(t, 5, i), trusts=(trust,)
                )
    if "architectures" in kinds:
        for name, row in ARCHITECTURES.items():
            yield Source("architectures", name, row.small, low=0.0)
    if "polynomial" in kinds:
        for build in (polynomial.residual, polynomial.pooled, polynomial.strided):
            for activation in ("square", "deg4"):
                yield Source("polynomial", f"{build.__name__}-{activation}", lambda b=build, a=activation: b(a).model())
    if "zoo" in kinds:
        for name in zoo.names():
            yield Source("zoo", name, lambda n=name: zoo.build(n, **SMALLER.get(n, {})), low=0.0)
    if "trained" in kinds:
        for name in trained_names():
            draw = partial(_digits, name)
            yield Source("trained", name, lambda n=name: trained(n), low=0.0, draw=draw)


def _digits(name: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """Digits of scikit-learn in other light, with noise, for a trained network."""
    images = trained_digits(trained(name))[0]
    taken = images[rng.integers(0, len(images), count)].astype(np.float64)
    return np.clip(taken * rng.uniform(0.7, 1.0, (count, 1, 1, 1)) + rng.normal(0, 0.03, taken.shape), 0, 1)
