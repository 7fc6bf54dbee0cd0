"""Unit costs of two-party plans: their fit, their file, and what the cost model makes of them."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import hushnet
import numpy as np
import pytest
from hushnet import _native, data, zoo
from hushnet.machine import two_party as machine
from hushnet.planner.cost import UnitCosts, of_package
from hushnet.planner.two_party import cost, methods
from hushnet.reference import two_party as reference
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_non_negative_fit_is_the_best_over_all_active_sets(columns: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(columns + more, columns)), rng.normal(size=columns + more)
    got = machine.nonnegative(a, b)
    assert (got >= 0).all()
    best = np.linalg.norm(b)
    for size in range(1, columns + 1):
        for chosen in itertools.combinations(range(columns), size):
            x = np.linalg.lstsq(a[:, chosen], b, rcond=None)[0]
            if (x >= 0).all():
                best = min(best, np.linalg.norm(a[:, chosen] @ x - b))
    assert np.linalg.norm(a @ got - b) == pytest.approx(best, rel=1e-6, abs=1e-9)


def test_fit_finds_the_costs_that_samples_are_made_of() -> None:
    rng = np.random.default_rng(3)
    true = {"a": 3e-9, "b": 2e-4, "c": 0.0}
    rows = [{k: float(rng.integers(1, 10**6)) for k in true} for _ in range(12)]
    found = machine.fit([(r, sum(true[k] * r[k] for k in true)) for r in rows])
    assert (
        found["a"] == pytest.approx(3e-9, rel=1e-6)
        and found["b"] == pytest.approx(2e-4, rel=1e-6)
        and found["c"] < 1e-15
    )


@given(st.floats(1e-4, 1.0), st.floats(1e-4, 1.0), st.integers(1, 40))
@settings(max_examples=80, deadline=None)
def test_tiles_overlap_as_two_machines_one_after_the_other(client: float, server: float, tiles: int) -> None:
    """Against the schedule itself, the client's work at its requests.

    Each tile waits for its request and for the tile before.
    """
    sent = done = 0.0
    for _ in range(tiles):
        sent += client / tiles
        done = max(done, sent) + server / tiles
    assert methods.pipelined(client + server, client, tiles) == pytest.approx(done, rel=1e-9)
    assert machine.server_seconds(done, client, tiles) == pytest.approx(server, rel=1e-6)


def test_every_cost_is_measured_and_the_planner_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {method: layers[:2] for method, layers in machine.LAYERS.items()}
    monkeypatch.setattr(machine, "LAYERS", few)
    monkeypatch.setattr(machine, "MATRICES", machine.MATRICES[:2])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HUSHNET_UNIT_COSTS", raising=False)
    package = cost.unit_costs()
    own_work = ("ot_softspoken", "session_keys", "message", "byte", "input_poly", "output_poly", "client_element")
    # Fits of two layers, ten milliseconds each: beside other work a cost may drown in noise, but not three times.
    for _ in range(3):
        found, path = hushnet.measure_machine(seconds=0.01)
        if all(found[name] > 0 for name in own_work):
            break
    missing = set(package) - set(found) - {"networks", "process_bytes"}
    assert not missing, missing
    assert all(v >= 0 for k, v in found.items() if k != "machine")
    client_aided = UnitCosts.load(path)
    own = {f.name for f in dataclasses.fields(UnitCosts)} - {"machine"}
    assert all(1e-13 < v < 1e-6 for k, v in found.items() if k in own), found
    assert client_aided.word_product == found["word_product"] and client_aided.op_element == found["op_element"]
    assert all(v < 1 for k, v in found.items() if k != "machine"), found
    few_images = zoo.build("mlp-784-128-128-10"), data.synthetic((1, 28, 28), 4, seed=1)
    assert hushnet.compile(few_images[0], calibration=few_images[1], unit_costs=str(path)).plan.predicted["seconds"] > 0
    for name in own_work:
        assert 0 < found[name] < 1, name
    assert cost.unit_costs()["ot_softspoken"] == found["ot_softspoken"]
    path.write_text(json.dumps({"machine": "mine", "message": 0.25, "word_product": 1e-11}))
    assert cost.unit_costs()["message"] == 0.25 and cost.unit_costs()["ot_softspoken"] == package["ot_softspoken"]
    model = hushnet.compile(few_images[0], trust="two-party", calibration=few_images[1])
    slow = model.explain(network="loopback")["totals"]
    assert slow["seconds"] > 0.25 * slow["rounds"]
    for bad in ('{"message": -1}', '{"message": "fast"}', '{"unheard": 1}', "[]", "{"):
        path.write_text(bad)
        with pytest.raises(hushnet.PlanError, match="measure-machine"):
            cost.unit_costs()


@pytest.mark.parametrize(
    ("shape", "outputs", "kernel"), [((64,), 10, None), ((784,), 128, None), ((16, 16, 16), 16, 3)]
)
def test_a_clocked_layer_holds_no_work_of_other_stages(
    shape: tuple[int, ...], outputs: int, kernel: int | None
) -> None:
    """Neither what a party that waits would do ahead, nor the OTs that are extended beside the request.

    With either, the smallest layer takes seven times what it is predicted to take, and the client's part is the whole.
    """
    model, x = machine.plan(shape, outputs, kernel, "cheetah")
    index = next(i for i, s in enumerate(model.plan.stages) if s["kind"] == "linear")
    unit = cost.packaged()
    packing = cost.account(model.plan.document, unit).stages[index].packing
    chain, client = machine.clocked(model, x, 12)[2][index]
    assert client < 0.8 * chain
    assert chain < 4 * methods.packed_seconds(packing, unit)


@pytest.mark.parametrize("simd", ["amx", "vnni", "ifma", "avx512", "avx2", "portable"])
def test_the_package_has_costs_for_every_instruction_set(simd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "simd", lambda: simd)
    found, client_aided = cost.packaged(), UnitCosts(**of_package("hushnet.planner", "unit_costs.json"))
    narrow = simd in ("avx2", "portable")
    assert ("AVX2" in found["machine"]) == ("AVX2" in client_aided.machine) == narrow
    assert {"loopback", "lan", "wan"} <= set(found["networks"])
    assert all(v > 0 for k, v in found.items() if k not in ("machine", "networks"))
    assert all(v > 0 for k, v in vars(client_aided).items() if k != "machine")
    monkeypatch.setattr(_native, "simd", lambda: "amx" if narrow else "avx2")
    assert set(cost.packaged()) == set(found)
    assert (cost.packaged()["input_poly"] < found["input_poly"]) == narrow


def test_labels_may_differ_only_on_near_ties() -> None:
    stated = reference.Stated(np.array([[1.0, 2.0, 1.9], [1.0, 2.0, 3.0]]), np.array([0.1, 0.1]), 0.01)
    assert stated.ties().tolist() == [True, False]
    assert stated.beyond(np.array([[1.0, 2.0, 1.95], [1.0, 2.0, 3.1]])) == pytest.approx(1.0)
