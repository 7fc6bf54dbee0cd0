"""The options of every trust model: names, types, ranges, units, defaults and texts.

Each field is annotated with an :class:`.Option`. Two trust models that have an option of one name mean the same by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from hushnet import _native

from .option import Option

Trust = Literal["client-aided", "two-party", "non-interactive"]
Inputs = np.ndarray | Mapping[str, np.ndarray]
Shapes = Mapping[str, Sequence[int]]
Names = str | Sequence[str]
# numbers, or arrays with a number for every feature
Interval = tuple[float | np.ndarray, float | np.ndarray]

GIB = 1 << 30
# bits of precision where none are asked for
DEFAULT_BITS = 7.0
_GIB = ("GiB", GIB)
_ENGINE = Option(
    "'batch' has one feature of many images in a ciphertext. 'packed' has many features of one image in it, "
    "for few images (client-aided plans: method `coefficients`). 'auto' takes what the planner expects to be "
    "cheaper for the batch (non-interactive plans: 'packed' for a batch of 1, where a network is deeper than "
    "levels are, and where up to 128 images of a network of dense layers fit side by side and that is cheaper; not "
    "with hidden weights, on which prices depend).",
    flag="--engine",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every trust model takes."""

    usual_batch: ClassVar[int]

    shapes: Annotated[
        Shapes | None,
        Option(
            "Full shapes of inputs, the batch first, where the model leaves axes open. Axes that are not given are "
            "taken from the calibration data. A first axis of 1 says that one image is run at a time, where the model "
            "does not treat it as a batch.",
            without="the model's own",
            flag="--shape",
        ),
    ] = None
    until: Annotated[
        Names | None,
        Option(
            "Names of tensors or nodes at which the encrypted network ends. The client computes the rest as it likes.",
            without="the model's outputs",
            flag="--until",
        ),
    ] = None
    outputs: Annotated[
        Names | None,
        Option(
            "Names of the model's outputs that stay.",
            without="all, except labels that follow from the scores of another output",
            flag="--outputs",
        ),
    ] = None
    example: Annotated[Any, Option("Inputs of a torch.nn.Module, which its exporter needs.", without="none")] = None
    batch: Annotated[
        int | None,
        Option(
            "Images that will usually be sent at once. Cost is predicted for them, and what is cheapest for them is "
            "chosen. Any number of images can be run.",
            unit="images",
            least=1,
            flag="--batch",
        ),
    ] = None
    calibration: Annotated[
        Inputs | None,
        Option(
            "Sample inputs of shape (images, ...), by input name where there are several. Some hundred are enough. "
            "The ranges of all tensors are taken from them.",
            without="ranges follow from interval arithmetic, which is safe but wide",
            flag="--calibration",
        ),
    ] = None
    input_range: Annotated[
        Interval | Mapping[str, Interval] | None,
        Option(
            "Least and largest input value, for all inputs or by name. With calibration data it replaces the margin "
            "at the inputs. Values outside are clamped, and their rows are named. Arrays with a number for every "
            "feature give features of different size scales of their own.",
            without="0 to 1, or what the calibration data shows",
            flag="--input-range",
        ),
    ] = None
    precision: Annotated[
        float | None,
        Option(
            "999 rows of 1000 have errors below 2^-precision of the output's range, against the original network. The "
            "cheapest plan that reaches it on the calibration data is taken. A plan that does not reach it says so.",
            unit="bits",
            above=0,
            most=40,
            without=f"{DEFAULT_BITS:g}",
            flag="--precision",
        ),
    ] = None
    labels: Annotated[
        Any,
        Option(
            "The right answer of every calibration row, as whole numbers or names of classes. The plan then says the "
            "accuracy of the original network and its own.",
            without="no accuracy is said",
            flag="--labels",
        ),
    ] = None
    margin: Annotated[
        float,
        Option(
            "Planned range over the largest value of the calibration data, as a factor.",
            least=1,
            most=1e6,
            flag="--margin",
        ),
    ] = 1.25
    max_memory: Annotated[
        int,
        Option(
            "Memory that client and server together may use.", unit="bytes", least=1, flag="--max-memory", there=_GIB
        ),
    ] = 8 * GIB
    name: Annotated[str | None, Option("The model's name in the plan.", without="the graph's")] = None
    input_scales: Annotated[bool, Option("Features of inputs get scales of their own where they differ in size.")] = (
        True
    )
    producer: Annotated[str, Option("What the plan says that it was made by.")] = "hushnet 0.1.0"

    @property
    def images(self) -> int:
        """The batch that was given, or the usual one of the trust model."""
        return self.usual_batch if self.batch is None else self.batch

    @property
    def precision_bits(self) -> float:
        """The precision that was asked for, or the usual one."""
        return DEFAULT_BITS if self.precision is None else float(self.precision)


@dataclass(frozen=True, kw_only=True)
class FixedPoint(Options):
    """What trust models with integer activations take besides."""

    weight_bits: Annotated[
        int | None,
        Option(
            "Bits of weights, sign included.",
            unit="bits",
            least=2,
            most=16,
            without="the fewest that reach the precision (8 without calibration data)",
            flag="--weight-bits",
        ),
    ] = None
    activation_bits: Annotated[
        int | Literal["auto"],
        Option(
            "Bits of what layers read, sign included. With 'auto' every layer has the most of 8 to 12 that keep its "
            "modulus cheap.",
            unit="bits",
            least=2,
            most=16,
            flag="--activation-bits",
        ),
    ] = "auto"
    ring_degree: Annotated[
        Literal[2048, 4096] | None, Option("Degree N of the ring.", without="the smallest that fits")
    ] = None
    unit_costs: Annotated[
        str | Path | None,
        Option("Path of a file that `hushnet measure-machine` wrote.", without="the user's own, or the built-in one"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClientAided(FixedPoint):
    """Options of client-aided plans. The defaults are what users want, and most others are for ablations."""

    usual_batch: ClassVar[int] = 2048

    trust: Literal["client-aided"] = "client-aided"
    engine: Annotated[Literal["auto", "batch", "packed"], _ENGINE] = "auto"
    mask: Annotated[
        Literal["auto", "shared", "fresh", "sent"],
        Option("How masks of layers come about (docs/plan-format.md). Engine 'batch' only."),
    ] = "auto"
    mask_memory: Annotated[
        int, Option("Memory that a client may keep for shared masks. Engine 'batch' only.", unit="bytes", least=0)
    ] = GIB
    drop: Annotated[bool, Option("Low bits of results are dropped before they travel. Engine 'batch' only.")] = True
    tiles: Annotated[Literal["auto", "one"], Option("'one': every layer is one tile. Engine 'batch' only.")] = "auto"
    most_bits: Annotated[
        int,
        Option(
            "The most activation bits that 'auto' takes. Above 12, errors fall and plans of engine 'packed' send a "
            "little more; their weights have up to three bits more than weight_bits where a layer has room.",
            unit="bits",
            least=8,
            most=16,
        ),
    ] = 12
    rounding: Annotated[
        Literal["nearest", "feedback"],
        Option(
            "How weights become integers. With 'feedback' the error of each is taken back by others of its layer, as "
            "the calibration data says that inputs go together. Plans for few images that need it for the precision "
            "take it."
        ),
    ] = "nearest"
    row_scales: Annotated[bool, Option("Output rows of layers get scales of their own.")] = True

    def batch_only(self) -> bool:
        """Whether something is asked for that only the batch engine has."""
        return (self.mask, self.drop, self.tiles) != ("auto", True, "auto")


@dataclass(frozen=True, kw_only=True)
class TwoParty(FixedPoint):
    """Options of two-party plans."""

    usual_batch: ClassVar[int] = 1

    trust: Literal["two-party"]
    reveal: Annotated[
        Literal["output", "argmax"],
        Option(
            "What the client learns. With 'argmax' it learns nothing but the index of the largest score.",
            flag="--reveal",
        ),
    ] = "output"
    network: Annotated[
        str,
        Option(
            "The network that time is predicted for: loopback, lan, wan, or bandwidth and round trip like 200mbit,5ms.",
            flag="--network",
        ),
    ] = "loopback"
    method: Annotated[
        str | None,
        Option(
            "One method for all linear layers.",
            choices=tuple(name for name, _ in _native.linear_methods()),
            without="the cheapest of each",
            flag="--method",
        ),
    ] = None
    nonlinear: Annotated[
        Literal["ot", "ripple-2", "ripple-3", "ripple-4", "garbled"] | None,
        Option(
            "One protocol for all of ReLU, clip, max-pool and argmax: transfers in a tree (ot) or by a carry through "
            "digits of 2 to 4 bits (ripple-N), or garbled circuits.",
            without="the cheapest of each",
            flag="--nonlinear",
        ),
    ] = None
    queries: Annotated[
        int,
        Option(
            "Images that a stored set-up serves. A client keeps set-ups between sessions, and their cost is divided "
            "by this number.",
            unit="images",
            least=1,
            flag="--queries",
        ),
    ] = 1
    most_bits: Annotated[
        int,
        Option(
            "The most activation bits that 'auto' takes where the ring has room. Plans that need more for the "
            "precision may take more.",
            unit="bits",
            least=8,
            most=16,
        ),
    ] = 12
    rounding: Annotated[
        Literal["nearest", "feedback"],
        Option(
            "How weights become integers. With 'feedback' the error of each is taken back by others of its layer, as "
            "the calibration data says that inputs go together. Plans that need it for the precision take it."
        ),
    ] = "nearest"
    sums: Annotated[
        Literal["proven", "calibrated"],
        Option(
            "What bounds the sums of layers: the weights, so that none wraps around for any activations of the planned "
            "ranges, or calibration data (twice the planned range), which leaves some bits more to weights and "
            "activations. Plans that need them for the precision may take them.",
            flag="--sums",
        ),
    ] = "proven"
    ring_bits: Annotated[
        int | None,
        Option("Width of the ring of shares.", unit="bits", least=8, most=40, without="the narrowest that holds"),
    ] = None
    output_bits: Annotated[
        int,
        Option(
            "Bits of opened values, sign included; targets far from zero have more, for what they differ by, and so do "
            "plans that need them for the precision.",
            unit="bits",
            least=2,
            most=16,
        ),
    ] = 16


@dataclass(frozen=True, kw_only=True)
class NonInteractive(Options):
    """Options of non-interactive plans."""

    usual_batch: ClassVar[int] = 4096

    trust: Literal["non-interactive"]
    activation: Annotated[
        str | None,
        Option(
            "What takes the place of activations that are no polynomials: square, swish-rg5-deg2, swish-rg7-deg4, "
            "poly:degree=d,range=r, or minimax:bits=b,range=r, which needs no training (one image at a time where "
            "there are ReLUs).",
            without="they are refused",
            flag="--activation",
        ),
    ] = None
    hide_weights: Annotated[
        bool, Option("Results are re-randomised and flooded, so that clients learn no weights.", flag="--hide-weights")
    ] = False
    weight_bits: Annotated[
        int | None,
        Option(
            "Bits of weights, sign included.",
            unit="bits",
            least=2,
            most=15,
            without="what is cheapest (engine 'packed' takes no other)",
            flag="--weight-bits",
        ),
    ] = None
    engine: Annotated[Literal["auto", "batch", "packed"], _ENGINE] = "auto"
    ring_degree: Annotated[
        Literal[2048, 4096, 8192, 16384, 32768] | None,
        Option("Degree N of the ring.", without="the smallest that fits"),
    ] = None
    lazy: Annotated[
        bool, Option("Rescales before the next product instead of after every layer. Engine 'batch' only.")
    ] = True
    packing: Annotated[
        Literal["auto", "real", "conjugate-invariant"],
        Option(
            "'auto' has two values in a slot where no two ciphertexts are multiplied, else one, in the "
            "conjugate-invariant ring where it holds more of the batch at once. 'real' has one, in the cyclotomic "
            "ring. Engine 'batch' only."
        ),
    ] = "auto"
    merge: Annotated[
        Literal["auto", "always", "never"],
        Option("Which pairs of linear layers become one. Packed plans take 'auto' for 'always'."),
    ] = "auto"
    clamp: Annotated[
        float | None, Option("Threshold to which smaller weights are moved.", least=0, without="none are moved")
    ] = None
    key_bytes: Annotated[
        int | None,
        Option(
            "The largest evaluation keys. Engine 'packed' only.",
            unit="bytes",
            least=1,
            without="150 MB, with bootstraps 2.5 GB",
        ),
    ] = None
    bootstrap: Annotated[
        Literal["auto", "never", "always"],
        Option(
            "Whether the server gives ciphertexts new levels where a network is deeper than levels are: keys of a "
            "gigabyte, seconds for every ciphertext. 'auto' does it where nothing else holds the network. Engine "
            "'packed' only.",
            flag="--bootstrap",
        ),
    ] = "auto"

    def batch_only(self) -> bool:
        """Whether something is asked for that only the batch engine has."""
        return self.weight_bits is not None or not self.lazy or self.packing != "auto"


KINDS: dict[str, type[Options]] = {
    "client-aided": ClientAided,
    "two-party": TwoParty,
    "non-interactive": NonInteractive,
}
# of the front end: a planner that gets a graph does not look at them
READING = ("shapes", "until", "outputs", "example")
