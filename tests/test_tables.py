"""Frames of named columns: found by their names, in whatever order they come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet import frontend, tables
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.test_tabular import IRIS_X, NAMES, TRUST

COLUMNS = ("length", "width", "petal length", "petal width")


class Column:
    """A column as pandas has it."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)
        self.dtype = self.values.dtype

    def to_numpy(self, dtype: str, na_value: float) -> np.ndarray:
        return np.asarray([na_value if v is None else v for v in self.values.tolist()], dtype=dtype)


class Frame:
    """As much of a frame as is read: names, a shape, columns by name."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.data = {name: Column(values) for name, values in columns.items()}
        self.columns = list(columns)
        self.shape = (len(next(iter(columns.values()))), len(columns))

    def __getitem__(self, name: str) -> Column:
        return self.data[name]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.column_stack([c.values for c in self.data.values()]).astype(dtype or np.float64)


def frame(order: Sequence[int] = (0, 1, 2, 3), rows: slice = slice(None)) -> Frame:
    return Frame({COLUMNS[k]: IRIS_X[rows, k] for k in order})


def model() -> Any:
    """A classifier as scikit-learn leaves it after a fit on a frame."""
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(IRIS_X[::2], NAMES[::2])
    fitted.steps[0][1].feature_names_in_ = np.asarray(COLUMNS, dtype=object)
    return fitted


@pytest.mark.parametrize("trust", TRUST)
def test_columns_in_another_order_are_the_same_table(trust: str, tmp_path: Path) -> None:
    plan = hushnet.from_sklearn(model(), trust=trust, calibration=frame((2, 0, 3, 1)), batch=8)
    want = model().predict(IRIS_X[::10])
    for order in ((0, 1, 2, 3), (3, 2, 1, 0)):
        np.testing.assert_array_equal(hushnet.run(plan, frame(order, slice(None, None, 10))).label, want)
    # an array has no names: its columns are in the model's order
    np.testing.assert_array_equal(hushnet.run(plan, IRIS_X[::10]).label, want)
    # names are in the file, and clients are told them
    plan.save(tmp_path / "plan.hush")
    np.testing.assert_array_equal(
        hushnet.run(tmp_path / "plan.hush", frame((1, 0, 3, 2), slice(None, None, 10))).label, want
    )
    with hushnet.serve(plan) as server, hushnet.connect(f"hush://127.0.0.1:{server.port}") as client:
        np.testing.assert_array_equal(client.infer(frame((3, 1, 2, 0), slice(0, 8))).label, model().predict(IRIS_X[:8]))


def test_columns_that_are_not_the_models_are_refused_by_name() -> None:
    plan = hushnet.from_sklearn(model(), calibration=IRIS_X, batch=8)
    with pytest.raises(hushnet.InputError, match="lacks 'width', and it has 'widht'.*did you mean 'width'"):
        hushnet.run(plan, Frame({"widht" if n == "width" else n: IRIS_X[:3, k] for k, n in enumerate(COLUMNS)}))
    with pytest.raises(hushnet.InputError, match="the table has 'id', which the model does not know"):
        hushnet.run(plan, Frame({"id": np.arange(3), **{n: IRIS_X[:3, k] for k, n in enumerate(COLUMNS)}}))
    with pytest.raises(hushnet.InputError, match="column 'width' holds values that are no numbers"):
        hushnet.run(plan, Frame({n: NAMES[:3] if n == "width" else IRIS_X[:3, 0] for n in COLUMNS}))
    with pytest.raises(hushnet.InputError, match="column 'width' holds dates or times"):
        hushnet.run(plan, Frame({n: np.zeros(3, "M8[ns]" if n == "width" else float) for n in COLUMNS}))


def test_a_model_without_names_takes_those_of_its_calibration_data() -> None:
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(IRIS_X[::2], NAMES[::2])
    onnx_model = frontend.sklearn_model(plain)
    assert not onnx_model.metadata_props
    plan = hushnet.compile(onnx_model, calibration=frame(), batch=8)
    got = hushnet.run(plan, frame((3, 2, 1, 0), slice(None, None, 10))).label
    np.testing.assert_array_equal(got, plain.predict(IRIS_X[::10]))


def test_what_is_no_frame_of_names_is_left_as_it_is() -> None:
    numbered = Frame({"a": [1.0]})
    numbered.columns = [0]  # type: ignore[list-item]
    for value in (np.zeros((2, 2)), {"a": np.zeros(2)}, numbered, [1.0]):
        assert tables.arranged(value, ("a", "b")) is value and tables.by_input(value, ("a", "b")) is value
    split = tables.by_input(Frame({"b": [1, None], "a": [3, 4]}), ("a", "b"))
    np.testing.assert_array_equal(split["a"], [[3.0], [4.0]])
    np.testing.assert_array_equal(split["b"], [[1.0], [np.nan]])
