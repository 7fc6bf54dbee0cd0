"""From a graph to a plan of the two-party engine (``docs/two-party.md``)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import LimitError
from ...graph import Graph, Op
from ...options import TwoParty
from ...plan import Plan, PlanError, RangeError
from ...reference.two_party import rehearse
from ..feedback import Moments
from ..jumps import jumps, sides, watched
from ..logarithms import widest_logarithm
from ..quality import UNBOUNDED, Quality, growing, measure, places, said, sequences, squashed, steep
from ..ranges import MANY_ELEMENTS, Range, Ranges, drawn_rows, hull, input_intervals, typical_outputs
from ..read import validate
from ..tail import stated, tails, watched_heads
from ..unseen import from_samples, sources_of
from . import cost, nonlinear
from .client import Writer
from .errors import Propagation
from .methods import ROWS, Asked, Chooser
from .opened import Tail, carry
from .prepared import Prepared, prepare, rounded_otherwise
from .reach import write_reaches
from .regions import whole_numbers
from .search import Chosen, Search
from .versions import Request
from .weights import Weights

Array = np.ndarray
RANGE_ATTEMPTS = 12
# fewer calibration rows say too little of what units of masking and truncation do
FEW_ROWS = 8
# rows that are drawn from declared ranges to state errors of normalised values
DRAWN_ROWS = 256
# rows of all runs over calibration rows together that show rare units of masking and truncation, and values that these
# runs may compute: a larger network's errors are sums of many units, which few rows show
REDRAWN_ROWS, REDRAWN_VALUES = 1000, 1 << 22
GIB = 1 << 30


def compile_two_party(
    graph: Graph,
    samples: dict[str, Array] | None,
    weight_bits: int,
    activation_bits: int | str,
    settings: TwoParty,
    classes: tuple[str, ...] = (),
    kept: dict[bool, Prepared] | None = None,
) -> Plan:
    """The plan with so many bits; ``samples`` are checked calibration inputs by name.

    Args:
        kept: what does not depend on bits or methods, of earlier plans of this graph and these samples, with moments of
            what layers read and without; what is missing is added.

    Raises:
        PlanError: what cannot be planned, with the layer and what to do.
    """
    kept = {} if kept is None else kept
    fed = settings.rounding == "feedback" and samples is not None
    if fed not in kept:
        moments, other = Moments() if fed else None, kept.get(not fed)
        kept[fed] = (
            prepare(graph, samples, settings, moments, classes)
            if other is None
            else rounded_otherwise(other, samples, settings, moments)
        )
    made = kept[fed]
    graph, ranges = made.graph, made.ranges
    planner = _Planner(made, settings, weight_bits, None if activation_bits == "auto" else int(activation_bits))
    for _ in range(RANGE_ATTEMPTS):
        plan, names = planner.plan(ranges)
        if samples is None:
            if settings.reveal == "output":
                intervals = input_intervals(graph, settings.input_range)
                guessed = typical_outputs(graph, intervals)
                for port, tensor in zip(made.outputs, graph.outputs):
                    if tensor in guessed:
                        plan.predicted["output_errors"][port]["random_output_range"] = guessed[tensor]
                if planner.normalises:
                    planner.drawn(plan, intervals)
            return _finish(plan, None, classes)
        try:
            seen, wider = planner.rehearse(plan, names, samples, ranges, settings.labels)
        except RangeError as error:
            if not error.finite:
                raise PlanError(f"the planned run over the calibration data fails: {error}") from None
            seen, wider = {}, {error.tensor.removesuffix(".q"): 1.2 * _planned(plan, error.tensor)}
        if not wider:
            scores = [ranges.limit[t] / settings.margin for t in steep(graph)]
            if scores and settings.reveal == "output":
                plan.predicted["score_range"] = max(scores)
            logarithm = widest_logarithm(graph, ranges)
            if logarithm is not None:
                plan.predicted["widest_logarithm"] = logarithm
            return _finish(plan, seen, classes)
        ranges = replace(
            ranges, limit={**ranges.limit, **{k: max(v, ranges.limit.get(k, 0.0)) for k, v in wider.items()}}
        )
    raise PlanError(
        "no range holds the values: rounding errors grow from layer to layer; use more weight_bits and activation_bits"
    )


def _table(geometry: dict[str, Any]) -> tuple[int, int]:
    """Rows of a table that a layer looks indices up in, and how many indices there are."""
    if geometry["type"] == "dense":
        return geometry["inputs"], 1
    return geometry["input"][0] // geometry["groups"], math.prod(geometry["input"][1:])


def _planned(plan: Plan, tensor: str) -> float:
    entry = next(t for t in plan.tensors if t["name"] == tensor)
    return entry["bound"] * entry["scale"]


class _Planner:
    def __init__(self, made: Prepared, settings: TwoParty, weight_bits: int, activation_bits: int | None) -> None:
        self.graph, self.regions, self.settings = made.graph, made.regions, settings
        self.name, self.outputs = made.name, made.outputs
        self.weight_bits, self.activation_bits = weight_bits, activation_bits
        self.steps, self.columns, self.far = made.steps, made.columns, made.far
        self.weights = Weights(weight_bits, made.moments, made.rounded)
        self.units: dict[int, float] = {}
        self.opened: dict[str, float] = {}
        unit_costs = None if settings.unit_costs is None else str(settings.unit_costs)
        self.unit = cost.unit_costs(unit_costs)
        entering = {t: self.graph.shapes[t] for t in self.regions.entering}
        asked = (settings.images, settings.network, settings.max_memory, settings.method, settings.queries)
        self.chooser = Chooser(
            settings.images,
            self.steps,
            entering,
            self.unit,
            settings.network,
            settings.max_memory,
            settings.method,
            settings.queries,
            made.picked.setdefault((*asked, unit_costs), {}),
        )

    def plan(self, ranges: Ranges) -> tuple[Plan, dict[str, str]]:
        """A plan for the ranges, and the graph tensor of every shared tensor's name."""
        while True:
            document, chosen = self.document(ranges)
            predicted = document["predicted"]
            over = self.beside_prepared(predicted) - self.settings.max_memory
            if over <= 0 or not self.chooser.give_up(predicted["client_set_up_memory_bytes"], over):
                break
        self.check_memory(document)
        propagation = Propagation(chosen.fixed, chosen.ring_degree, ranges, whole_numbers(self.regions.head))
        doubts = propagation.run()
        if self.settings.reveal == "output":
            errors = Tail(self.graph, self.regions, ranges, chosen.fixed).errors(doubts, self.outputs)
        else:
            errors = carry(doubts, self.outputs)
        document["predicted"]["output_errors"] = errors
        document["predicted"]["layer_errors"] = propagation.layers
        # what a unit is worth: of shared tensors by id, and of those that are opened by name
        reach, held = chosen.fixed.reach, chosen.fixed.names
        self.units = {
            t["id"]: reach[held[t["id"]]] / t["bound"]
            for t in chosen.fixed.tensors
            if held.get(t["id"]) in reach and t["bound"] and t["name"] == f"{held[t['id']]}.s"
        }
        self.opened = {name: version.unit for name, version in chosen.fixed.opened.items()}
        return Plan(document, dict(chosen.fixed.weights)), {
            t["name"]: chosen.fixed.names[t["id"]] for t in chosen.fixed.tensors
        }

    def document(self, ranges: Ranges) -> tuple[dict[str, Any], Chosen]:
        """A plan's document, errors left out, and what it was written from."""
        calibrated = ranges.source == "calibration"
        shapes = {t: self.graph.shapes[t] for t in self.regions.entering}
        # what is zero in all rows of the data says nothing of other rows: its bound follows from what it is made of
        limits = {k: v for k, v in ranges.limit.items() if k not in shapes and v > 0} if calibrated else {}
        request = Request(
            limits=limits,
            inputs={t: (-ranges.limit[t], ranges.limit[t]) for t in shapes},
            opened=self.regions.opened,
            argmax=self.settings.reveal == "argmax",
            weight_bits=self.weight_bits,
            activation_bits=self.activation_bits,
            output_bits=self.settings.output_bits,
            most_bits=self.settings.most_bits,
            least=ranges.least,
            whole=whole_numbers(self.regions.head),
            shown_sums=calibrated and self.settings.sums == "calibrated",
            far=self.far,
        )
        chosen = Search(self.steps, request, shapes, self.weights, self.chooser).run(
            self.settings.ring_bits, self.settings.ring_degree
        )
        draft = Writer(self.graph, self.regions, chosen.fixed, self.settings.reveal, self.outputs).run()
        for port, pair in ranges.declared.items():
            draft.limit(port, *hull(pair))
        ranged = "calibrated" if calibrated else "proven"
        plan = draft.plan(
            "two-party",
            "packed",
            name=self.name,
            producer=self.settings.producer,
            ring_degree=chosen.ring_degree,
            part={
                "ring_bits": chosen.fixed.ring_bits,
                "reveal": self.settings.reveal,
                "ranges": ranged,
                **({"sums": "calibrated"} if request.shown_sums else {}),
            },
            notes=self.notes(ranges) + self.lighter(chosen.fixed.fewer),
        )
        document = plan.document
        write_reaches(document)
        for stage in document["stages"]:
            if stage["kind"] == "linear":
                stage["predicted"] = self.chooser.told(stage["name"], chosen.ring_degree)
        weight_bytes = sum(w.nbytes for w in chosen.fixed.weights.values())
        batched = [s["name"] for s in document["stages"] if s["kind"] == "linear" and s["method"] == "batch"]
        images = self.chooser.images(chosen.ring_degree) if batched else 1
        told, found = nonlinear.choose(document, self.unit, self.settings.network, images, self.settings.nonlinear)
        document["predicted"] = {
            **cost.predicted(document, weight_bytes, self.unit, self.settings.network, images, found),
            "nonlinear": told,
        }
        if batched:
            document["notes"].append(
                f"Layers {', '.join(batched)} work on up to {chosen.ring_degree} images in one ciphertext: figures are "
                f"for {images} images together, "
                "and fewer cost more each."
            )
        document["notes"] += self.lookups(document)
        return document, chosen

    def lookups(self, document: dict[str, Any]) -> list[str]:
        """Says of every look-up in a table of the server's what leaves the client, and what it costs."""
        whole, said = whole_numbers(self.regions.head), []
        hot = {t["id"] for t in document["tensors"] if t["kind"] == "shared" and t["name"].removesuffix(".s") in whole}
        params = document["params"]
        for stage in document["stages"]:
            if stage["kind"] != "linear" or stage["in"] not in hot:
                continue
            asked = Asked(
                stage["geometry"], params["ring_degree"], params["two_party"]["ring_bits"], stage["weight_l2"]
            )
            figures = ROWS[stage["method"]].figures(asked)
            rows, size = _table(stage["geometry"])
            up, down = (figures[k] / 1e6 for k in ("bytes_up", "bytes_down"))
            said.append(
                f"Layer {stage['name']!r} looks {size} indices up in a table of {rows} rows: the client encrypts each "
                f"as {rows} zeros and ones, so the server learns none of them, and rows reach the client as shares "
                f"alone. That takes {up:.3g} MB up and {down:.3g} MB down."
            )
        return said

    def lighter(self, fewer: dict[str, int]) -> list[str]:
        """Says which layers have coarser weights."""
        if not fewer:
            return []
        return [
            f"{len(fewer)} layers have weights of fewer than {self.weight_bits} bits (at least {min(fewer.values())}: "
            f"{min(fewer, key=lambda n: fewer[n])!r}), "
            "so that they fit the ring together with fine activations."
        ]

    @staticmethod
    def beside_prepared(predicted: dict[str, Any]) -> int:
        """Bytes that both parties cannot do without."""
        return int(
            predicted["client_peak_memory_bytes"]
            + predicted["server_peak_memory_bytes"]
            - predicted["server_prepared_weight_bytes"]
        )

    def check_memory(self, document: dict[str, Any]) -> None:
        """Prepared weights beyond the limit are said; what cannot be done without is refused."""
        predicted, most = document["predicted"], self.settings.max_memory
        client, server, ready = (
            predicted[f"{k}_bytes"] for k in ("client_peak_memory", "server_peak_memory", "server_prepared_weight")
        )
        if self.beside_prepared(predicted) > most:
            raise LimitError(
                f"client and server need {client / GIB:.2f} and {(server - ready) / GIB:.2f} GiB beside prepared "
                "weights, max_memory is "
                f"{most / GIB:.2f} GiB; raise max_memory, or use smaller images",
                "memory",
                needed=self.beside_prepared(predicted),
                limit=most,
                unit="bytes",
            )
        if client + server > most:
            document["notes"].append(
                f"The server's prepared weights take {ready / GIB:.1f} GiB: together more than max_memory "
                f"({most / GIB:.1f} GiB)."
            )

    @property
    def normalises(self) -> bool:
        """Whether a value is divided by the root of the mean square of a row that it stands in."""
        return any(isinstance(n, Op) and "most" in n.attrs for n in self.regions.shared)

    def drawn(self, plan: Plan, intervals: Mapping[str, Range]) -> None:
        """States the errors of rows that are drawn from the declared ranges, where propagated ones say too much.

        Propagation takes the reciprocal root where it is steepest, and its argument and the values that it multiplies
        at their largest. A row of small mean square has small values: an error d of a row x changes its normalised
        values by ``r (d - x mean(x d) r^2)``, which is at most ``r |d|`` for the reciprocal root r of x's mean square.
        So errors follow r, which rows tell (docs/two-party.md, Errors).
        """
        from ...reference.float import evaluate

        large = sum(math.prod(s) for s in self.graph.shapes.values()) >= MANY_ELEMENTS
        samples = drawn_rows(self.graph, intervals, FEW_ROWS if large else DRAWN_ROWS)
        floats = dict(zip(self.outputs, evaluate(self.graph, samples).values()))
        kinds = dict(zip(self.outputs, (squashed(self.graph).get(t) for t in self.graph.outputs)))
        grow = self._ports(growing(self.graph))
        try:
            outputs, _ = rehearse(plan, samples, np.random.default_rng(0))
        except RangeError:
            return
        for port, entry in plan.predicted["output_errors"].items():
            quality = measure(outputs[port], floats[port], squash=kinds[port], grows=port in grow)
            if np.isfinite(quality.likely):
                entry["propagated_error"] = entry["max_error"]
                entry["max_error"] = min(entry["max_error"], quality.likely)

    def _ports(self, tensors: Collection[str]) -> set[str]:
        """The outputs of the plan that are some of the graph's."""
        return {port for port, tensor in zip(self.outputs, self.graph.outputs) if tensor in tensors}

    def rehearse(
        self, plan: Plan, names: dict[str, str], samples: dict[str, Array], ranges: Ranges, labels: Any
    ) -> tuple[dict[str, Quality], dict[str, float]]:
        """A run over the calibration data with units drawn: quality of outputs, and ranges that were too narrow."""
        leaps = jumps(plan, self.graph) if self.settings.reveal == "output" else []
        behind = tails(self.graph) if self.settings.reveal == "output" else {}
        by_name = {held: t["id"] for t in plan.tensors if t["id"] in self.units and (held := names[t["name"]])}
        shown = watched_heads(plan, behind, by_name)
        near, told = sources_of(self.graph, self.opened, by_name, plan)
        also = dict.fromkeys((*watched(leaps), *shown.values(), *told.values()))
        values, largest = rehearse(plan, samples, np.random.default_rng(0), list(also))
        called = {t["id"]: t["name"] for t in plan.tensors}
        before = {head: values[called[tensor]] * self.units.get(tensor, 1.0) for head, tensor in shown.items()}
        outputs = {port: values[port] for port in self.outputs}
        wider: dict[str, float] = {}
        for tensor in plan.tensors:
            if tensor["kind"] == "shared" and largest.get(tensor["id"], 0) > tensor["bound"]:
                name = names[tensor["name"]]
                wider[name] = max(
                    wider.get(name, 0.0), 1.05 * ranges.limit.get(name, 0.0) * largest[tensor["id"]] / tensor["bound"]
                )
        floats = dict(zip(self.outputs, (ranges.floats[t] for t in self.graph.outputs)))
        if self.settings.reveal == "argmax":
            # an index in the place of the scores: what is measured is whether it is the right one
            scores = {k: np.eye(floats[k][0].size)[v.reshape(-1).astype(np.int64)] for k, v in outputs.items()}
            return {k: measure(v, floats[k], labels) for k, v in scores.items()}, wider
        kinds = squashed(self.graph)
        squash = {k: kinds.get(t) for k, t in zip(self.outputs, self.graph.outputs)}
        index, grow = self._ports(places(self.graph)), self._ports(growing(self.graph))
        found = sequences(self.graph)
        several = {k: found.get(t) for k, t in zip(self.outputs, self.graph.outputs)}
        off = {
            t: np.abs(outputs[k] - floats[k]).reshape(len(floats[k]), -1).max(axis=1, initial=0.0)
            for k, t in zip(self.outputs, self.graph.outputs)
        }
        found_sides = sides(plan, self.graph, leaps, values, samples, off)
        beside = {k: found_sides.get(t) for k, t in zip(self.outputs, self.graph.outputs)}
        tailed = stated(self.graph, behind, before, ranges.floats, ranges.limit, units=self.opened)
        again = self.redrawn(plan, samples, floats)
        quality = {
            k: measure(
                v,
                floats[k],
                labels,
                squash[k],
                grows=k in grow,
                place=k in index,
                several=several[k],
                columns=self.columns.get(k),
                jumping=own.told if (own := beside[k]) is not None else None,
                redrawn=again.get(k),
            )
            for k, v in outputs.items()
        }
        for k, t in zip(self.outputs, self.graph.outputs):
            quality[k] = replace(quality[k], likely=max(quality[k].likely, tailed.get(t, 0.0)))
        opened = {name: values[called[tensor]] * self.units.get(tensor, 1.0) for name, tensor in told.items()}
        for t, most in from_samples(self.graph, near, opened, samples).items():
            k = dict(zip(self.graph.outputs, self.outputs))[t]
            quality[k] = replace(quality[k], likely=max(quality[k].likely, most))
        return quality, wider

    def redrawn(self, plan: Plan, samples: dict[str, Array], floats: Mapping[str, Array]) -> dict[str, Array]:
        """The largest errors of calibration rows in runs that draw other units, by output: ``[runs, rows]``.

        A value that is a whole multiple of its unit is off in few runs (masking alone moves it), and a row of such
        values is right in most: as many rows as most calibrations have may show no error, and one of ten others has
        one. Empty for large networks.
        """
        rows = len(next(iter(samples.values())))
        values = sum(math.prod(t["shape"]) for t in plan.tensors)
        runs = min(math.ceil(REDRAWN_ROWS / max(rows, 1)), REDRAWN_VALUES // max(values * rows, 1))
        if runs < 1:
            return {}
        several = {name: np.concatenate([x] * runs) for name, x in samples.items()}
        outputs, _ = rehearse(plan, several, np.random.default_rng(1))
        return {
            port: np.abs(outputs[port].reshape(runs, rows, -1) - exact.reshape(rows, -1)).max(axis=2, initial=0.0)
            for port, exact in floats.items()
        }

    def notes(self, ranges: Ranges) -> list[str]:
        """Sentences that a user of the plan must know."""
        said = [
            "Two-party, semi-honest: the server learns shapes only; the client learns what is opened, ring and layer "
            "shapes, protocols and fraction "
            "bits, and of weights norms and bounds of values, rounded up to powers of two."
        ]
        if not self.steps:
            said.append(
                "The network has no layer with weights: the client computes all of it by itself, and the server learns "
                "nothing of its run."
            )
        if self.settings.reveal == "argmax":
            said.append("Only the index of the largest score is opened.")
        else:
            hidden = [t for t in self.regions.opened if t not in self.graph.outputs]
            if hidden:
                ops = sorted({n.op for n in self.regions.tail if isinstance(n, Op)})
                said.append(
                    f"The client computes {', '.join(ops)} at the end by itself, so it learns {', '.join(hidden)}."
                )
        narrow = [n for n in self.regions.shared if isinstance(n, Op) and "narrow" in n.attrs]
        if narrow:
            most = max(n.attrs["narrow"] for n in narrow)
            said.append(
                f"{len(narrow)} softmax take no maximum, because their logits are small: {narrow[0].name!r} and others "
                f"within {most:g} of zero."
                if len(narrow) > 1
                else f"Softmax {narrow[0].name!r} takes no maximum, because its logits are within {most:g} of zero."
            )
        last = [n for n in self.regions.shared if isinstance(n, Op) and n.op == "exponentials"]
        if last:
            others = f" and {len(last) - 1} others" if len(last) > 1 else ""
            said.append(
                f"Softmax {last[0].name!r}{others}: exponentials are multiplied first, and the product's rows are "
                "divided by their sums."
            )
        if ranges.grown is not None:
            said.append(ranges.grown.sentence())
        if ranges.source == "calibration":
            said.append(
                "Ranges come from calibration data times a margin. Nobody can see a value that leaves its range: the "
                "answer to such an "
                "input may be wrong without notice. Without calibration data every range is "
                "proven, and values are coarser."
            )
        else:
            said.append("Every range is proven for all inputs of the declared intervals.")
        return said


def _finish(plan: Plan, seen: dict[str, Quality] | None, classes: tuple[str, ...]) -> Plan:
    errors = plan.predicted["output_errors"]
    for name, entry in errors.items():
        # scores whose index alone is opened have no errors that anyone could see
        if seen and name in seen and plan.part["reveal"] == "output":
            if "max_error" in entry:
                entry["propagated_error"] = entry["max_error"]
            entry |= seen[name].errors(entry.get("worst_error"))
            if seen[name].rows < FEW_ROWS and "propagated_error" in entry:
                # units are drawn anew in every run, and a few rows may have had none
                entry["max_error"] = max(entry["max_error"], entry["propagated_error"])
    if any("worst_error" not in entry for entry in errors.values()) and plan.part["reveal"] == "output":
        plan.document["notes"].append(UNBOUNDED)
    plan.predicted.update(errors[plan.document["outputs"][0]["name"]])
    if seen:
        plan.predicted.update(said(seen, classes))
    validate(plan)
    return plan
