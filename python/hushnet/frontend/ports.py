"""What a model says of its inputs and outputs beside their tensors: classes, and what stands for missing values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Name = int | str
# of a model's metadata: names of the columns of its inputs, as JSON
COLUMNS = "hushnet.columns"


def named_columns(metadata: Iterable[Any]) -> dict[str, tuple[str, ...]]:
    """Names of columns by input, of an ONNX model's ``metadata_props``; of no other form than :data:`COLUMNS` has."""
    text = next((entry.value for entry in metadata if entry.key == COLUMNS), "{}")
    try:
        found = json.loads(text)
        return {str(name): tuple(str(column) for column in names) for name, names in found.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


@dataclass(frozen=True)
class Classes:
    """Classes of a classifier, in the order of its scores.

    Attributes:
        of: "index": the output is the place of a class in the list; "columns": the output has one value for each class,
            the largest for the
            answer; "values": the same, and the largest need not be the answer's; "sign": above zero the answer is the
            second class of two.
        names: what users call them.
    """

    of: str
    names: tuple[Name, ...]

    def entry(self) -> dict[str, Any]:
        """As it stands in a plan."""
        return {"of": self.of, "names": list(self.names)}


@dataclass
class Ports:
    """What is known of ports.

    Attributes:
        classes: by name of an output.
        missing: by name of an input what the client puts in the place of NaN, one number for all elements or for each;
            NaN where it puts none.
        columns: by name of an input that is a row of a table, names of its columns.
    """

    classes: dict[str, Classes] = field(default_factory=dict)
    missing: dict[str, tuple[float, ...]] = field(default_factory=dict)
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def describe(self, document: dict[str, Any]) -> bool:
        """Writes what is known of a plan's ports into its document; whether there was anything to write."""
        changed = False
        for port in document["outputs"]:
            found = self.classes.get(port["name"])
            if found is not None:
                # a plan that opens the index of the largest score opens no columns
                opened = document["params"].get("two_party", {}).get("reveal") == "argmax"
                port["classes"] = (Classes("index", found.names) if opened else found).entry()
                changed = True
        for port in document["inputs"]:
            if port["name"] in self.missing:
                port["missing"] = [None if math.isnan(v) else v for v in self.missing[port["name"]]]
                changed = True
            if port["name"] in self.columns:
                port["columns"] = list(self.columns[port["name"]])
                changed = True
        return changed
