"""A plan is taken with one thread of BLAS, and the process has its own number again behind it."""

from __future__ import annotations

import importlib
import threading

import hushnet
import numpy as np
import pytest
from hushnet import zoo
from hushnet.reference.threads import one_thread
from threadpoolctl import threadpool_info, threadpool_limits


def blas() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def _two():
    with threadpool_limits(limits=2, user_api="blas"):
        if blas() != {2}:
            pytest.skip("NumPy's BLAS here has no number of threads that can be set")
        yield


@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
def test_planning_has_one_thread_of_blas_also_where_it_fails(monkeypatch, trust):
    module = importlib.import_module("hushnet.planner.compile")
    seen, check_graph = [], module.check_graph

    def watched(graph):
        seen.append(blas())
        return check_graph(graph)

    monkeypatch.setattr(module, "check_graph", watched)
    model = zoo.build("mnist-cnn", activation="square" if trust == "non-interactive" else "relu")
    hushnet.compile(model, trust=trust, calibration=np.zeros((2, 1, 28, 28)) + 0.5)
    assert seen
    assert all(number == {1} for number in seen)
    assert blas() == {2}
    with pytest.raises(hushnet.PlanError):
        hushnet.compile(model, trust=trust, calibration=np.full((2, 1, 28, 28), np.nan))
    assert blas() == {2}


def test_of_several_inside_the_first_one_sets_the_number_and_sets_it_back():
    entered, leave = threading.Event(), threading.Event()

    def inside():
        with one_thread():
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=inside)
    with one_thread():
        other.start()
        assert entered.wait(10)
        with one_thread():
            assert blas() == {1}
        assert blas() == {1}
    assert blas() == {2}
    leave.set()
    other.join()
    assert blas() == {2}
