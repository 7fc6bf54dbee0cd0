"""Transformers as exporters write them: answers under masks, look-ups, and what the benchmark's figures say."""

from __future__ import annotations

import json
from dataclasses import replace

import hushnet
import numpy as np
import pytest
from hushnet import _native
from hushnet.reference import two_party as reference
from hushnet_bench import transformers as bench
from hushnet_bench.transformer_models import Shape, inputs, write

SMALL = Shape(layers=1, width=16, heads=2, inner=32, tokens=6, words=30)
FINE = {"weight_bits": 14, "most_bits": 14, "sums": "calibrated"}


def compiled(shape: Shape, calibration: bench.Arrays, **options: object) -> hushnet.Model:
    return hushnet.compile(
        write(shape),
        trust="two-party",
        calibration=calibration,
        shapes=dict.fromkeys(calibration, (1, shape.tokens)),
        **options,
    )


@pytest.fixture(scope="module")
def encoder() -> hushnet.Model:
    return compiled(SMALL, inputs(SMALL, 16, 1), **FINE)


def lengths(count: int, seed: int) -> bench.Arrays:
    """Sentences of 2, 3, ... tokens, the rest cut off by the mask."""
    x = inputs(SMALL, count, seed)
    ends = 2 + np.arange(count) % (SMALL.tokens - 1)
    return {**x, "attention_mask": (np.arange(SMALL.tokens) < ends[:, None]).astype(np.int64)}


def test_shorter_sentences_have_onnx_runtimes_answer(encoder: hushnet.Model) -> None:
    x = lengths(5, 3)
    got = hushnet.run(encoder, x, threads=1).output.reshape(5, SMALL.tokens, -1)
    exact = bench._plain(write(SMALL), x)
    mask = x["attention_mask"]
    assert bench.agreement(bench.vectors(got, mask), bench.vectors(exact, mask))["cosine_least"] > 0.999
    # what the mask cuts off changes nothing of the rest; without the mask it does
    other = {**x, "input_ids": np.where(mask == 1, x["input_ids"], (x["input_ids"] + 7) % SMALL.words)}
    again = hushnet.run(encoder, other, threads=1).output.reshape(got.shape)
    assert np.abs(again - got)[mask == 1].max() < 0.05
    open_ = {**other, "attention_mask": np.ones_like(mask)}
    assert np.abs(bench._plain(write(SMALL), open_).reshape(got.shape) - got)[mask == 1].max() > 0.2


def test_a_causal_decoder_has_onnx_runtimes_logits() -> None:
    shape = replace(SMALL, causal=True)
    model = compiled(shape, inputs(shape, 16, 1), **FINE)
    x = inputs(shape, 4, 2)
    exact = bench._plain(write(shape), x)
    got = reference.run(model.plan, x, units=np.random.default_rng(0))["logits"]
    ones = np.ones((4, 1))
    assert bench.agreement(bench.vectors(got, ones), bench.vectors(exact, ones))["cosine_least"] > 0.999


def test_one_hot_vectors_travel_without_bits_behind_the_point(encoder: hushnet.Model) -> None:
    plan = encoder.plan
    hot = [s for _, s in plan.linear_stages() if plan.tensors[s["in"]]["bound"] == 1]
    assert sorted(s["geometry"]["input"][0] for s in hot) == [2, SMALL.words]
    assert all(plan.tensors[s["in"]]["frac_bits"] == 0 for s in hot)
    trace = hushnet.run(encoder, inputs(SMALL, 1, 5), threads=1).trace
    ahead = json.loads(_native.Plan.load(plan.to_bytes()).facts())["two_party"]["ahead"]
    ensured = 0
    for stage in hot:
        rows = stage["geometry"]["input"][0]
        (told,) = [n for n in plan.document["notes"] if f"looks 6 indices up in a table of {rows} rows" in n]
        at = [s["name"] for s in plan.stages].index(stage["name"])
        for way in ("up", "down"):
            # OTs that later stages draw are ensured with the ciphertexts of a layer in front of another one
            own = trace["stages"][at][f"bytes_{way}"] - ahead[at][f"bytes_{way}"]
            assert f"{own / 1e6:.3g} MB {way}" in told
            ensured += ahead[at][f"bytes_{way}"]
    assert ensured > 0


def test_sums_by_calibration_take_narrower_shares_and_are_a_choice(encoder: hushnet.Model) -> None:
    proven = compiled(SMALL, inputs(SMALL, 16, 1), **{**FINE, "sums": "proven"}).plan
    plan = encoder.plan

    def spare(plan: hushnet.Plan) -> list[int]:
        """Units by which the bounds of sums are below what weights and activations allow."""
        found = []
        for _, stage in plan.linear_stages():
            found.append(reference.reach_of_linear(plan, stage) - plan.tensors[stage["out"]]["bound"])
        return found

    assert max(spare(proven)) <= 0 < max(spare(plan))

    def bits(plan: hushnet.Plan) -> int:
        """Bits of activations and weights of all layers."""
        return sum(
            plan.tensors[s["in"]]["frac_bits"] + int(np.abs(plan.weights[s["weights"]]).max()).bit_length()
            for _, s in plan.linear_stages()
        )

    # in the same ring
    assert plan.part["ring_bits"] <= proven.part["ring_bits"] and bits(plan) > bits(proven)


def test_scales_a_feature_have_more_bits_than_other_weights() -> None:
    plan = compiled(SMALL, inputs(SMALL, 8, 1), weight_bits=8).plan
    weights = [plan.weights[s["weights"]] for _, s in plan.linear_stages()]
    most = {alone: sorted(int(np.abs(w).max()) for w in weights if (w.size == len(w)) == alone) for alone in (0, 1)}
    # gains of three normalisations, and the positions, whose factor is 1
    assert most[0][-1] < 1 << 7 and len(most[1]) == 4
    assert most[1][0] == 64 and most[1][1] >= 1 << 10


def test_figures_of_agreement_fall_when_answers_are_wrong() -> None:
    rng = np.random.default_rng(0)
    unit = rng.standard_normal((12, 40))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    assert bench.agreement(unit, unit) == pytest.approx(
        {"cosine_least": 1.0, "cosine_mean": 1.0, "nearest_kept": 1.0, "nearest_or_tied_kept": 1.0, "order_kept": 1.0}
    )
    wrong = unit.copy()
    wrong[3] = unit[4]
    found = bench.agreement(wrong, unit)
    assert (
        found["cosine_least"] < 0.6
        and found["nearest_kept"] < 1
        and found["nearest_or_tied_kept"] < 1
        and found["order_kept"] < 1
    )
