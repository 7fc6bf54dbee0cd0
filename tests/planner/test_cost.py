"""Tiles, bytes, work, memory and parameters."""

import io
import json
import math

import numpy as np
import pytest
from hushnet import _native
from hushnet.plan import PlanError
from hushnet.planner import UnitCosts, compile, cost, memory
from hushnet.planner.tiles import (
    LARGEST_MESSAGE_BYTES,
    first_needed,
    layout,
    plan_tiles,
    resident_rows,
    rows_needed,
    split,
)
from hushnet.report import explain, render, trust_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_graphs import Builder, graphs

MIB = 1 << 20


@st.composite
def convolutions(draw):
    c, h, w = draw(st.integers(1, 4)), draw(st.integers(1, 40)), draw(st.integers(1, 9))
    kernel = [draw(st.integers(1, 4)), draw(st.integers(1, 3))]
    stride, dilation = [draw(st.integers(1, 3)) for _ in range(2)], [draw(st.integers(1, 3)) for _ in range(2)]
    pads = [draw(st.integers(0, 3)) for _ in range(4)]
    size = []
    for a in range(2):
        extent = (kernel[a] - 1) * dilation[a] + 1
        short = max(0, extent - ((h, w)[a] + pads[a] + pads[2 + a]))
        pads[2 + a] += short
        size.append(((h, w)[a] + pads[a] + pads[2 + a] - extent) // stride[a] + 1)
    return {
        "type": "conv2d",
        "input": [c, h, w],
        "output": [draw(st.integers(1, 5)), *size],
        "kernel": kernel,
        "stride": stride,
        "pads": pads,
        "dilation": dilation,
        "groups": 1,
    }


def taps(geometry, axis, out):
    """Input positions that an output position reads."""
    for t in range(geometry["kernel"][axis]):
        p = out * geometry["stride"][axis] + t * geometry["dilation"][axis] - geometry["pads"][axis]
        if 0 <= p < geometry["input"][1 + axis]:
            yield p


@settings(max_examples=200, deadline=None)
@given(geometry=convolutions(), band=st.integers(1, 50))
def test_tiles_cover_everything_and_carry_what_they_need(geometry, band):
    tiles = split(geometry, band)
    rows = layout(geometry)
    assert [i for t in tiles for i in range(*t["inputs"])] == list(range(rows.in_rows))
    assert [i for t in tiles for i in range(*t["outputs"])] == list(range(rows.out_rows))
    held, most = set(), 0
    for index, tile in enumerate(tiles):
        held |= set(range(*tile["inputs"]))
        for out in range(*tile["outputs"]):
            read = set(taps(geometry, 0, out))
            assert read <= held
            assert max(read, default=-1) < rows_needed(geometry, out)
            assert min(read, default=10**9) >= first_needed(geometry, out)
        most = max(most, len(held))
        if index + 1 < len(tiles):
            held -= set(range(first_needed(geometry, tiles[index + 1]["outputs"][0])))
    assert most <= resident_rows(geometry, tiles)


@settings(max_examples=60, deadline=None)
@given(geometry=convolutions(), up=st.integers(1, 64), down=st.integers(1, 64))
def test_messages_stay_within_their_limit_unless_one_row_does_not(geometry, up, down):
    sizes = (up * 40_000, down * 20_000)
    tiles = plan_tiles("layer", geometry, sizes, True)
    rows = layout(geometry)
    for tile in tiles:
        if tile["outputs"][1] - tile["outputs"][0] > 1:
            assert (tile["outputs"][1] - tile["outputs"][0]) * rows.out_row * sizes[1] <= LARGEST_MESSAGE_BYTES
            assert (tile["inputs"][1] - tile["inputs"][0]) * rows.in_row * sizes[0] <= LARGEST_MESSAGE_BYTES
    assert plan_tiles("layer", geometry, sizes, False) == split(geometry, rows.out_rows)


@pytest.mark.parametrize(("inputs", "outputs"), [(10, 3), (9000, 10), (50, 30000), (7001, 9001)])
def test_dense_layers_upload_and_return_in_pieces(inputs, outputs):
    geometry = {"type": "dense", "inputs": inputs, "outputs": outputs}
    tiles = plan_tiles("layer", geometry, (10240, 5120), True)
    assert [i for t in tiles for i in range(*t["inputs"])] == list(range(inputs))
    assert [i for t in tiles for i in range(*t["outputs"])] == list(range(outputs))
    for t in tiles:
        assert t["outputs"][1] == t["outputs"][0] or t["inputs"][1] == inputs
        assert (t["inputs"][1] - t["inputs"][0]) * 10240 <= LARGEST_MESSAGE_BYTES
        assert (t["outputs"][1] - t["outputs"][0]) * 5120 <= LARGEST_MESSAGE_BYTES
        assert t["inputs"][0] < t["inputs"][1] or t["outputs"][0] < t["outputs"][1]


def test_a_row_that_fits_no_frame_is_refused():
    geometry = {
        "type": "conv2d",
        "input": [512, 4, 400],
        "output": [1, 4, 400],
        "kernel": [1, 1],
        "stride": [1, 1],
        "pads": [0] * 4,
        "dilation": [1, 1],
        "groups": 1,
    }
    with pytest.raises(PlanError, match="'wide'.*MiB"):
        plan_tiles("wide", geometry, (10240, 5120), True)


@settings(max_examples=100, deadline=None)
@given(geometry=convolutions())
def test_word_products_count_every_tap_inside_the_input(geometry):
    expected = sum(
        geometry["output"][0] * geometry["input"][0]
        for i in range(geometry["output"][1])
        for _ in taps(geometry, 0, i)
        for j in range(geometry["output"][2])
        for _ in taps(geometry, 1, j)
    )
    assert cost.products_per_word(geometry) == expected


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    graph=graphs(),
    mask=st.sampled_from(["auto", "shared", "fresh", "sent"]),
    drop=st.booleans(),
    batch=st.sampled_from([1, 2048, 2049, 700_000]),
)
def test_predicted_bytes_are_those_of_the_wire_format(graph, mask, drop, batch):
    plan = compile(graph, input_range=(-1, 1), mask=mask, drop=drop, batch=batch, engine="batch")
    n, blocks = plan.ring_degree, math.ceil(batch / plan.ring_degree)
    up = down = setup = 0
    for _, stage in plan.linear_stages():
        sizes = [0, 0, 0]
        rows = layout(stage["geometry"])
        k, u = stage["modulus_bits"], stage["drop_bits"]
        v = stage.get("mask_drop_bits", u)
        assert ("mask_drop_bits" in stage) == (stage["mask"] != "shared")
        for tile in stage["tiles"]:
            new = (tile["inputs"][1] - tile["inputs"][0]) * rows.in_row
            out = (tile["outputs"][1] - tile["outputs"][0]) * rows.out_row
            sizes[0] += 16 + new * (n * k // 8) * (2 if stage["mask"] == "sent" else 1)
            sizes[1] += 16 + out * (n * (k - u) // 8 + (0 if stage["mask"] == "shared" else n * (k - v) // 8))
            sizes[2] += 16 + out * (n * k // 8) if stage["mask"] == "shared" else 0
        assert stage["predicted"]["bytes_up"] == sizes[0] * blocks
        assert stage["predicted"]["bytes_down"] == sizes[1] * blocks
        assert stage["predicted"]["setup_bytes_down"] == sizes[2]
        assert (u == 0) or drop
        up, down, setup = up + sizes[0] * blocks, down + sizes[1] * blocks, setup + sizes[2]
    announced = sum(16 + len(_block_message(i, min(n, batch - i * n))) for i in range(blocks))
    assert plan.predicted["bytes_up"] == up + announced
    assert plan.predicted["bytes_down"] == down and plan.predicted["setup_bytes_down"] == setup
    assert plan.predicted["rounds"] == len(plan.linear_stages()) * blocks


def _varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def _block_message(index, images):
    return (b"\x08" + _varint(index) if index else b"") + b"\x10" + _varint(images)


def crypto_nets(seed=0):
    b = Builder((1, 28, 28), seed=seed, name="cryptonets")
    return b.conv(5, (5, 5), (2, 2), (1, 1, 0, 0)).op("relu").dense(100).op("relu").dense(10).done()


def test_parameters_are_the_natives_and_noise_has_a_margin():
    plan = compile(crypto_nets())
    report = explain(plan)
    for index, stage in plan.linear_stages():
        weight = plan.weights[stage["weights"]].reshape(plan.weights[stage["weights"]].shape[0], -1).astype(float)
        l2 = np.sqrt((weight**2).sum(axis=1)).max()
        k, d, u, v, noise = _native.batch_stage_parameters(
            2048, l2, plan.tensors[stage["out"]]["bound"], stage["mask"] == "shared"
        )
        assert (k, d, u) == (stage["modulus_bits"], stage["delta_bits"], stage["drop_bits"])
        assert stage["predicted"]["noise_bits"] == noise
        layer = report["layers"][index]
        assert layer["noise_bits"] == pytest.approx(
            math.log2(_native.batch_stage_noise(2048, l2, (u, v), stage["mask"] == "shared"))
        )
        assert layer["noise_margin_bits"] > 0


def test_forced_choices():
    graph = crypto_nets()
    base = compile(graph, row_scales=False)
    wide = compile(graph, ring_degree=4096, row_scales=False)
    assert wide.ring_degree == 4096 and all(s["modulus_bits"] <= 41 for _, s in wide.linear_stages())
    fresh, whole = compile(graph, mask="fresh"), compile(graph, drop=False)
    assert {s["mask"] for _, s in fresh.linear_stages()} == {"fresh"} and fresh.predicted["setup_bytes_down"] == 0
    assert {s["drop_bits"] for _, s in whole.linear_stages()} == {0}
    assert whole.predicted["bytes_down"] > base.predicted["bytes_down"]
    assert fresh.predicted["seconds"] > base.predicted["seconds"]
    words = {i: s["predicted"]["word_products"] for i, s in base.linear_stages()}
    assert {i: s["predicted"]["word_products"] for i, s in fresh.linear_stages()} == {
        i: 2 * w for i, w in words.items()
    }


def test_a_wide_layer_moves_the_whole_plan_to_the_next_ring_degree():
    graph = Builder((800,), seed=1).dense(4, gain=1).op("relu").dense(3).done()
    graph.nodes[0].weight = np.sign(graph.nodes[0].weight)
    small, large = compile(graph, activation_bits=8), compile(graph, activation_bits=16, weight_bits=12)
    assert small.ring_degree == 2048 and large.ring_degree == 4096
    with pytest.raises(PlanError, match=r"'dense1' needs a \d+-bit modulus at N=2048, but at most 53"):
        compile(graph, activation_bits=16, weight_bits=12, ring_degree=2048)


def test_a_layer_that_fits_nowhere_is_named_with_what_to_do():
    b = Builder((60000,), seed=1).dense(2)
    graph = b.done()
    graph.nodes[0].weight = np.sign(graph.nodes[0].weight)
    with pytest.raises(
        PlanError, match=r"'dense1' needs a \d+-bit modulus at N=4096.*; use fewer weight or activation bits"
    ):
        compile(graph, activation_bits=16, weight_bits=16)


def test_masks_are_kept_by_benefit_within_the_budget():
    b = Builder((8, 12, 12), seed=1)
    graph = b.conv(8).op("relu").conv(8, (1, 1), pads=(0, 0, 0, 0)).op("relu").dense(10).done()
    everything = compile(graph)
    assert {s["mask"] for _, s in everything.linear_stages()} == {"shared"}
    budget = 20 * MIB
    some = compile(graph, mask_memory=budget)
    kept = [s for _, s in some.linear_stages() if s["mask"] == "shared"]
    assert 0 < len(kept) < 3
    assert sum(memory.kept(s, 2048, 1) for s in kept) <= budget
    assert {s["mask"] for _, s in compile(graph, mask_memory=0).linear_stages()} == {"fresh"}


def test_memory_is_kept_by_narrower_tiles():
    graph = Builder((2, 400, 12), seed=1).conv(2).op("relu").pool("max_pool", (4, 4), (4, 4)).conv(2).done()
    options = {"mask": "fresh"}
    free, tight = compile(graph, **options), compile(graph, max_memory=150 * MIB, **options)

    def total(p):
        return p.predicted["client_peak_memory_bytes"] + p.predicted["server_peak_memory_bytes"]

    assert total(tight) <= 150 * MIB < total(free)
    assert sum(len(s["tiles"]) for _, s in tight.linear_stages()) > sum(
        len(s["tiles"]) for _, s in free.linear_stages()
    )
    with pytest.raises(PlanError, match="raise max_memory"):
        compile(graph, max_memory=80 * MIB, **options)
    assert len(compile(graph, tiles="one", **options).stages[1]["tiles"]) == 1


def test_masks_give_way_before_the_memory_limit_is_too_small():
    graph = Builder((1, 120, 20), seed=1).conv(8).op("relu").dense(10).done()
    free = compile(graph)
    masks = explain(free)["totals"]["kept_masks_bytes"]
    peak = free.predicted["client_peak_memory_bytes"] + free.predicted["server_peak_memory_bytes"]
    tight = compile(graph, max_memory=peak - masks // 2)
    assert {s["mask"] for _, s in free.linear_stages()} == {"shared"}
    assert "fresh" in {s["mask"] for _, s in tight.linear_stages()}


def test_stored_tensors_follow_the_executors():
    """Fused results are not stored whole; what crosses stages is, at its width."""
    graph = Builder((2, 6, 6), seed=1).conv(4).op("relu").pool("max_pool", (2, 2), (2, 2)).dense(3).done()
    plan = compile(graph)
    held = memory.stored_bytes(plan.document, 100)
    image, features, pooled = 2 * 36 * 2, 4 * 36 * 2, 4 * 9 * 2
    assert [s["kind"] for s in plan.stages] == ["client", "linear", "client", "client", "linear", "client"]
    assert held[0] == image * 100
    assert held[1] == (image + features) * 100
    assert held[3] == (features + pooled) * 100
    assert held[4] == (pooled + 3 * 8) * 100


def test_unit_costs_can_be_replaced(tmp_path):
    values = json.loads(json.dumps(UnitCosts.load().__dict__))
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({**values, "word_product": 1.0, "machine": "slow"}))
    slow = compile(crypto_nets(), unit_costs=str(path), engine="batch")
    words = sum(s["predicted"]["word_products"] for _, s in slow.linear_stages())
    assert slow.predicted["seconds"] == pytest.approx(words, rel=1e-3)
    for text in ("{}", "[1]", json.dumps({**values, "byte": -1.0}), "not json"):
        path.write_text(text)
        with pytest.raises(PlanError, match="measure-machine"):
            compile(crypto_nets(), unit_costs=str(path))
    with pytest.raises(PlanError, match="measure-machine"):
        compile(crypto_nets(), unit_costs=str(tmp_path / "none"))


def test_explanation_says_everything_and_renders():
    from rich.console import Console

    plan = compile(crypto_nets(), row_scales=False)
    names = {s["name"]: i for i, s in enumerate(plan.stages)}
    trace = {
        "threads": 1,
        "seconds": 0.2,
        "stages": [
            {
                "name": "conv1",
                "kind": "linear",
                "bytes_up": 5,
                "bytes_down": 6,
                "setup_bytes_down": 7,
                "noise_bits": 11.5,
                "noise_margin_bits": 2.5,
                "seconds": {"encrypt": 0.1, "send": 0.01, "wait": 0.5, "linear": 0.25, "decrypt": 0.2, "program": 0.0},
                "ranges": [{"tensor": "conv1_out.acc", "largest": 10, "bound": plan.tensors[2]["bound"]}],
            },
            {"name": plan.stages[2]["name"], "kind": "client", "seconds": {"program": 0.125}, "ranges": []},
        ],
    }
    report = explain(plan, trace)
    assert json.loads(json.dumps(report)) == report
    layer = report["layers"][names["conv1"]]
    assert layer["measured"]["seconds_client"] == pytest.approx(0.31) and layer["measured"]["seconds_server"] == 0.25
    assert layer["measured"]["ranges"]["conv1_out.acc"]["largest"] == 10 * plan.tensors[2]["scale"]
    assert report["layers"][names["conv1"] + 1]["measured"]["seconds_client"] == 0.125
    assert report["measured"] == {"threads": 1, "seconds": 0.2}
    assert report["totals"]["bytes_up"] >= sum(
        layer["bytes_up"] for layer in report["layers"] if layer["kind"] == "linear"
    )
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(report))
    text = console.export_text()
    for needle in (
        "client-aided",
        "The server learns",
        "weights",
        "2048",
        "128",
        "conv1",
        "Predicted / measured",
        "Answers",
        "310.00 ms",
    ):
        assert needle in text
    assert "The client learns" in trust_text(plan).plain and "weights" in trust_text(plan.public_part()).plain
    public = explain(plan.public_part())
    assert public["public_part"] and [r.get("noise_margin_bits") for r in public["layers"]] == [
        r.get("noise_margin_bits") for r in report["layers"]
    ]


def test_public_slopes_are_noted():
    plan = compile(Builder((2, 4, 4)).conv(2).op("prelu", slope=[0.1, 0.2]).dense(2).done())
    assert any("PRelu slopes are public" in note for note in explain(plan)["notes"])
