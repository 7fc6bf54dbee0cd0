"""Protocols and layers measured between two processes, and rivals beside them."""

from __future__ import annotations

import json

import pytest
from hushnet_bench import matrix_products, peers
from hushnet_bench.protocol_processes import measure


@pytest.mark.parametrize(
    "options",
    [
        {"values": 500, "ring_bits": 21},
        {"values": 300, "ring_bits": 37, "drop_bits": 12},
        {"pool": [2, 9, 7, 3, 2], "ring_bits": 30},
    ],
)
def test_relu_between_two_processes(options: dict) -> None:
    first, second = measure("measure_relu", repeat=2, **options)
    assert first["correct"] and first["bytes_as_predicted"] and len(first["runs"]) == len(second["runs"]) == 2


@pytest.mark.parametrize("function", ["sigmoid", "product"])
def test_functions_between_two_processes(function: str) -> None:
    first, second = measure("measure_smooth", function=function, values=300, repeat=2)
    assert first["correct"] and first["bytes_as_predicted"] and len(first["runs"]) == len(second["runs"]) == 2


def test_products_of_matrices_between_two_processes() -> None:
    (row,) = matrix_products.rows(quick=True, threads=1, progress=None)
    assert row["bytes_as_predicted"] and row["off_by_stated_errors"] <= 1
    # a request and an answer of each party
    assert min(row["bytes_up"], row["bytes_down"]) > 100_000


def test_layers_between_two_processes() -> None:
    for geometry in (
        {"type": "dense", "inputs": 30, "outputs": 7},
        {
            "type": "conv2d",
            "input": [4, 7, 6],
            "output": [6, 3, 3],
            "kernel": [3, 2],
            "stride": [2, 2],
            "pads": [0, 0, 0, 0],
            "dilation": [1, 1],
            "groups": 2,
        },
    ):
        server, client = measure("measure_layer", geometry=json.dumps(geometry), ring_bits=24, repeat=2)
        assert server["correct"] and client["bytes_as_predicted"]


def test_an_absent_rival_is_said(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HUSHNET_PEERS", str(tmp_path))
    rows = peers.measure("spu", "spu_cheetah.py", ["relu-2^12"])
    ours = {"seconds": 1.0, "best_seconds": 1.0, "processor_seconds": 1.0}
    assert "make peers" in peers.beside(rows, "relu-2^12", ours)["peer"]
