"""What a run returns: outputs, labels, accuracy, and rows that left a planned range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hushnet import planner
from hushnet.errors import InputError, RangeError


@dataclass(frozen=True)
class Result:
    """What a run returns.

    Attributes:
        outputs: output name -> float64 array ``[images, ...]``.
        trace: per-stage seconds, bytes each way, rounds, noise margin and largest value, as JSON-able data.
        classes: of classifiers, by output: how its values speak of classes (``of``), and what these are called
            (``names``).
        out_of_range: rows (images) of which a value left the range that the plan was made for, in rising order. The
            value was clamped to its range, and the answer may be wrong. The other rows stand. Which values the client
            can see depends on the trust model (docs/wire-protocol.md, "What errors tell").
        labelled: the output is the index of the largest score (two-party plans that reveal "argmax").
        range_error: the first such value, with tensor, stage, image, element, value and bound; None where there is
            none. It is not raised.
    """

    outputs: dict[str, np.ndarray]
    trace: dict[str, Any]
    classes: dict[str, dict[str, Any]] = field(default_factory=dict)
    out_of_range: tuple[int, ...] = ()
    range_error: RangeError | None = None
    labelled: bool = False

    def accuracy(self, labels: np.ndarray) -> float:
        """Share of rows whose label is the given one.

        The label is the first output's largest element, or of a single element its sign (for probabilities: above
        one half).
        """
        value = next(iter(self.outputs.values()))
        if self.labels and any(entry["names"] for entry in self.classes.values()):
            # brings the reader of models along, which other results need not
            from hushnet.frontend.labels import plain_name

            given = planner.quality.one_a_row(labels)
            if len(given) != len(value):
                raise InputError(f"{len(given)} labels are given for {len(value)} rows; give one for each row.")
            found = [str(name) for name in next(iter(self.labels.values())).tolist()]
            return float(np.mean([a == str(plain_name(b)) for a, b in zip(found, given.tolist())]))
        # the output of a plan that opens nothing but the label is the label
        whole = value.reshape(len(value), -1)
        right = planner.quality.check_labels(labels, len(value), None if self.labelled else max(whole.shape[1], 2))
        label = whole[:, 0].astype(np.int64) if self.labelled else planner.quality.label_of(whole, whole)
        return float((label == right).mean())

    def strict(self) -> dict[str, np.ndarray]:
        """The outputs with NaN in every row that is out of range."""
        rows = list(self.out_of_range)
        strict = {name: value.copy() for name, value in self.outputs.items()}
        for value in strict.values():
            value[rows] = np.nan
        return strict

    @property
    def output(self) -> np.ndarray:
        """The only output of a network that has one."""
        if len(self.outputs) != 1:
            raise InputError(
                f"the network has {len(self.outputs)} outputs ({', '.join(self.outputs)}): use .outputs[name]"
            )
        return next(iter(self.outputs.values()))

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """Of classifiers: by output the class of every image, ``[images]``, where the output tells it."""
        found = {}
        for name, classes in self.classes.items():
            value = self.outputs[name].reshape(len(self.outputs[name]), -1)
            names = np.asarray(classes["names"])
            if classes["of"] == "columns":
                found[name] = names[value.argmax(axis=1)]
            elif classes["of"] == "sign":
                found[name] = names[(value[:, 0] > 0).astype(int)]
            elif classes["of"] == "index":
                places = np.rint(value[:, 0]).astype(int)
                found[name] = names[np.clip(places, 0, len(names) - 1)] if len(names) else places
        return found

    @property
    def label(self) -> np.ndarray:
        """The class of every image, ``[images]``, of a classifier that has one label."""
        if len(self.labels) != 1:
            told = " or ".join(f".labels[{name!r}]" for name in self.labels) or ".outputs[name]"
            raise InputError(
                f"the network has {len(self.labels)} outputs that tell a class; its outputs are "
                f"{', '.join(self.outputs)}: use {told}."
            )
        return next(iter(self.labels.values()))

    def by_class(self, output: str | None = None) -> dict[Any, np.ndarray]:
        """Scores or probabilities by the name of the class, each ``[images]``, as ONNX's ``ZipMap`` names them.

        Args:
            output: name of the output; the only one with a value for each class by default.
        """
        known = [n for n, c in self.classes.items() if c["of"] in ("columns", "values")]
        name = output if output is not None else (known[0] if len(known) == 1 else "")
        if name not in known:
            raise InputError(
                f"outputs with a value for each class are {known or 'none'}; {name or 'no name'} was given."
            )
        value = self.outputs[name].reshape(len(self.outputs[name]), -1)
        return {cls: value[:, place] for place, cls in enumerate(self.classes[name]["names"])}

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in self.outputs.items())
        return f"Result({shapes}; {self.trace.get('seconds', 0.0):.3g} s)"
