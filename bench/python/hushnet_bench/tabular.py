"""scikit-learn's bundled tables on held-out rows: accuracy in floats and in every trust model, Concrete ML beside.

Tables come raw, and with a ``StandardScaler`` in the pipeline (rows are sent as they are in the table). Every plan is
compiled from
``hushnet.from_sklearn`` with default options and the training rows as calibration. A row that a trust model refuses
says why.
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
from hushnet import frontend

from hushnet_bench import peers as rivals
from hushnet_bench.registry import Benchmark

RIVAL = "Concrete ML"
TRUST = ("client-aided", "two-party", "non-interactive")
TABLES = ("iris", "wine", "breast-cancer", "digits")
MODELS = ("logistic", "mlp-relu", "mlp-tanh", "mlp-logistic", "linear-svm")
# of calibration: all training rows of these tables
SAMPLES = 2048
MOST_LOSS = 0.005
# rows with values outside of their range are left out, and the others are run again, so often
ATTEMPTS = 8
# rows that Concrete ML runs encrypted: its linear models in milliseconds, its networks in minutes and with gigabytes of
# keys, so of one network alone. All rows are judged by its simulation
LINEAR_ROWS, NETWORK_ROWS, NETWORK = 10, 1, "iris, scaled, mlp-relu"
NOT_ENCRYPTED = "keys of gigabytes and minutes a row: one network is run encrypted, the others are simulated"
# of one case of Concrete ML; then its row says what it had, and what it was at
CASE_SECONDS = 300.0


@dataclass
class Fitted:
    """A fitted model, the table's training rows and the held-out ones."""

    table: str
    features: str
    kind: str
    model: Any
    train: np.ndarray
    x: np.ndarray
    y: np.ndarray

    @property
    def case(self) -> str:
        """Its name in rows."""
        return f"{self.table}, {self.features}, {self.kind}"


def table(name: str) -> tuple[np.ndarray, ...]:
    """Training rows, held-out rows, and their classes: a quarter is held out."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    x, y = getattr(datasets, f"load_{name.replace('-', '_')}")(return_X_y=True)
    return tuple(train_test_split(x, y, test_size=0.25, random_state=0, stratify=y))


def estimator(kind: str) -> Any:
    """An estimator with scikit-learn's defaults, and iterations enough."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import LinearSVC

    if kind == "logistic":
        return LogisticRegression(max_iter=2000)
    if kind == "linear-svm":
        return LinearSVC(random_state=0, max_iter=5000)
    return MLPClassifier(activation=kind.removeprefix("mlp-"), max_iter=400, random_state=0)


def fitted(cases: Sequence[str] | None, *, quick: bool) -> Iterator[Fitted]:
    """All models, or those whose case has one of the given words."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    for name in TABLES[:1] if quick else TABLES:
        train, x, train_y, y = table(name)
        for features in ("scaled",) if quick else ("raw", "scaled"):
            for kind in MODELS[:2] if quick else MODELS:
                found = Fitted(name, features, kind, None, train, x, y)
                if cases and not any(word in found.case for word in cases):
                    continue
                model = estimator(kind)
                found.model = model if features == "raw" else make_pipeline(StandardScaler(), model)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found.model.fit(train, train_y)
                yield found


def rows(
    *,
    quick: bool,
    threads: int,
    progress: Any,
    batch: int | None = None,
    cases: Sequence[str] | None = None,
    peers: Sequence[str] | None = None,
    keep: Path | None = None,
    seconds: float = CASE_SECONDS,
) -> list[dict[str, Any]]:
    """A row for each model and trust model, and one for each model of Concrete ML.

    Args:
        batch: held-out rows; all by default.
        cases: words of cases (``iris``, ``raw``, ``mlp-relu``).
        peers: ``concrete-ml``, or nothing for ours alone.
        keep: a file to which every row is written once it is measured; rows that it has are not measured again.
        seconds: of one case of Concrete ML; then it is stopped, and its row says so.
    """
    wanted = list(fitted(cases, quick=quick))
    if not wanted:
        raise hushnet.InputError(
            f"no case has {' or '.join(cases or [])} in its name: give {', '.join((*TABLES, *MODELS))}, raw or scaled."
        )
    known = kept_rows(keep)

    def measured(one: Fitted, method: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        row = known.get((one.case, method))
        if row is None:
            row = make()
            if keep is not None:
                with keep.open("a") as file:
                    file.write("\n" + json.dumps(row))
        return row

    found = []
    for index, one in enumerate(wanted):
        for trust in TRUST:
            if progress:
                progress(f"{one.case}, {trust}", index, len(wanted))
            count = batch or (20 if quick else None)
            found.append(measured(one, f"hushnet {trust}", partial(ours, one, trust, count, threads)))
    if peers is None or "concrete-ml" in peers:
        # behind all of ours: its process does not wait between two rows
        beside = concrete([one for one in wanted if (one.case, RIVAL) not in known], quick=quick, seconds=seconds)
        for index, one in enumerate(wanted):
            if progress:
                progress(f"{one.case}, {RIVAL}", index, len(wanted))
            found.append(measured(one, RIVAL, partial(next, beside)))
    return found


def ours(one: Fitted, trust: str, count: int | None, threads: int) -> dict[str, Any]:
    """The row of one model in one trust model."""
    x, y = one.x[:count], one.y[:count]
    row: dict[str, Any] = {"case": one.case, "method": f"hushnet {trust}", "trust": trust, "rows": len(x)}
    row["accuracy_float"] = float((one.model.predict(x) == y).mean())
    start = time.perf_counter()
    try:
        options: dict[str, Any] = {"trust": trust, "calibration": one.train[:SAMPLES]}
        compiled = hushnet.compile(frontend.sklearn_model(one.model), **options)
    except hushnet.HushnetError as error:
        return row | {"refused": said(error)}
    row["compile_seconds"] = time.perf_counter() - start
    row["predicted_error"] = compiled.plan.predicted.get("max_error")
    try:
        result, kept, ended = answered(compiled, x, threads)
    except hushnet.HushnetError as error:
        return row | {"failed": said(error)}
    label = np.full(len(x), -1)
    label[kept] = result.label
    row |= {
        "accuracy": (accuracy := float((label == y).mean())),
        "loss_percent": 100 * (row["accuracy_float"] - accuracy),
        "within_half_percent": row["accuracy_float"] - accuracy <= MOST_LOSS,
        "same_label_as_float": float((label == one.model.predict(x)).mean()),
        # rows without an answer; and rows with one of which a value left its range and was clamped
        "rows_lost": len(x) - len(kept),
        "rows_out_of_range": len(result.out_of_range),
        "runs_that_ended_in_a_range_error": ended,
        "seconds": result.trace["seconds"],
        "seconds_per_row": result.trace["seconds"] / len(kept),
        "bytes_per_row": (result.trace["bytes_up"] + result.trace["bytes_down"]) / len(kept),
    }
    return row


def said(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split())[:300]


def answered(model: hushnet.Model, x: np.ndarray, threads: int) -> tuple[hushnet.Result, np.ndarray, int]:
    """The result of all rows that keep to their ranges, their places, and how many runs ended because of the others.

    Raises:
        RangeError: no rows are left, or it is not told which are outside.
    """
    kept = np.arange(len(x))
    for ended in range(ATTEMPTS):
        try:
            return hushnet.run(model, x[kept], threads=threads), kept, ended
        except hushnet.RangeError as error:
            outside = error.affected or ([] if error.image is None else [error.image])
            left = np.delete(kept, outside)
            if len(left) in (0, len(kept)) or ended + 1 == ATTEMPTS:
                raise
            kept = left
    raise hushnet.InputError("no attempt was made")


def parameters(model: Any) -> dict[str, Any]:
    """Weights of a fitted model by name, behind its scaler: what other libraries are given."""
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    network = hasattr(last, "coefs_")
    weights = [w.T for w in last.coefs_] if network else [last.coef_]
    biases = list(last.intercepts_) if network else [last.intercept_]
    if network and len(weights[-1]) == 1:
        # one column a class, of which the largest is taken
        weights[-1] = np.concatenate([-weights[-1], weights[-1]])
        biases[-1] = np.concatenate([-biases[-1], biases[-1]])
    return {f"w{i}": w for i, w in enumerate(weights)} | {f"b{i}": b for i, b in enumerate(biases)}


def scaled(model: Any, rows: np.ndarray) -> np.ndarray:
    """What a fitted model reads behind its scaler, which users of other libraries apply in the clear."""
    return model.steps[0][1].transform(rows) if hasattr(model, "steps") else rows


def concrete(wanted: Sequence[Fitted], *, quick: bool, seconds: float) -> Iterator[dict[str, Any]]:
    """Rows of Concrete ML on the same models, each as soon as it is measured."""
    with tempfile.TemporaryDirectory() as folder:
        places = [_given(Path(folder) / str(index), one, quick=quick) for index, one in enumerate(wanted)]
        found = rivals.each("concrete-ml", "concrete_ml.py", places, seconds)
        for one, row in zip(wanted, found, strict=True):
            floats = float((one.model.predict(one.x) == one.y).mean())
            if "accuracy" in row:
                row["loss_percent"] = 100 * (floats - row["accuracy"])
            yield {"case": one.case, "method": RIVAL, "accuracy_float": floats} | row


def _given(place: Path, one: Fitted, *, quick: bool) -> str:
    """A folder with what Concrete ML's program reads."""
    place.mkdir()
    network = one.kind.startswith("mlp")
    execute = LINEAR_ROWS if not network else NETWORK_ROWS if one.case == NETWORK and not quick else 0
    about = {"kind": "mlp" if network else one.kind, "activation": one.kind.removeprefix("mlp-"), "execute": execute}
    (place / "case.json").write_text(json.dumps(about | {"why": NOT_ENCRYPTED}))
    np.savez(
        place / "arrays.npz",
        **parameters(one.model),
        calibration=scaled(one.model, one.train[:SAMPLES]),
        x=scaled(one.model, one.x),
        y=one.y,
        classes=one.model.classes_,
    )
    return str(place)


def kept_rows(keep: Path | None) -> dict[tuple[str, str], dict[str, Any]]:
    """Rows of an interrupted run, by case and method; a line that was cut is none."""
    found = {}
    for line in keep.read_text().splitlines() if keep is not None and keep.exists() else ():
        with suppress(json.JSONDecodeError):
            row = json.loads(line)
            found[row["case"], row["method"]] = row | {"kept": True}
    return found


BENCHMARK = Benchmark(
    name="tabular",
    about="scikit-learn's tables and models in every trust model: accuracy beside floats, seconds and bytes a row",
    source="scikit-learn's iris, wine, breast cancer and digits; Concrete ML in the same run (make peers)",
    run=rows,
)
