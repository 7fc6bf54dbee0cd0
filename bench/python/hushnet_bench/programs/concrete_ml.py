"""Concrete ML on fitted models: ``concrete_ml.py FOLDER...``, JSON objects on standard output.

The first says that it is ready. Those of a folder, up to one with ``done``, are its row in parts, so that a run that is
stopped has told what it knew.

A folder has ``case.json`` (``case``, ``kind``: logistic, linear-svm or mlp, ``activation``, ``execute``: rows that are
run encrypted, ``why`` where there are none) and ``arrays.npz``
(weights ``w0``, ``b0`` ..., ``calibration``, ``x``, ``y``, ``classes``). All rows are judged by Concrete ML's own
simulation, which computes what the
encrypted run does; ``execute`` rows are run encrypted and timed. Runs in an environment of its own: ``make peers``.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

import numpy as np

# Concrete ML's own default for linear models, and what its guide takes for networks
LINEAR_BITS, NETWORK_BITS = 8, 6


def linear(given, arrays):
    """A linear classifier; its keys are small, so that rows can be run encrypted."""
    from concrete.ml import sklearn as theirs
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    vectors = given["kind"] == "linear-svm"
    kind, model = (theirs.LinearSVC, LinearSVC()) if vectors else (theirs.LogisticRegression, LogisticRegression())
    model.classes_, model.n_iter_ = arrays["classes"], 1 if vectors else np.array([1])
    model.coef_, model.intercept_ = arrays["w0"], arrays["b0"]
    model.n_features_in_ = arrays["w0"].shape[1]
    made = kind.from_sklearn_model(model, arrays["calibration"], n_bits=LINEAR_BITS)
    made.compile(arrays["calibration"])
    return made.fhe_circuit, lambda x, how: made.predict(x, fhe=how)


def network(given, arrays):
    """A multi-layer perceptron, quantised after training."""
    import torch
    from concrete.ml.torch.compile import compile_torch_model

    activation = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "logistic": torch.nn.Sigmoid}[given["activation"]]
    layers = []
    while f"w{len(layers) // 2}" in arrays:
        index = len(layers) // 2
        weight, bias = arrays[f"w{index}"], arrays[f"b{index}"]
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data, layer.bias.data = torch.tensor(weight).float(), torch.tensor(bias).float()
        layers += [layer, activation()]
    samples = arrays["calibration"].astype(np.float32)
    made = compile_torch_model(
        torch.nn.Sequential(*layers[:-1]), samples, n_bits=NETWORK_BITS, rounding_threshold_bits=NETWORK_BITS
    )

    def predict(x, how):
        scores = made.forward(x.astype(np.float32), fhe=how)
        return arrays["classes"][scores.argmax(1)]

    return made.fhe_circuit, predict


def measured(folder):
    """The row of a folder, part by part: what is known already, then what it is doing."""
    given = json.loads((folder / "case.json").read_text())
    arrays = dict(np.load(folder / "arrays.npz"))
    yield {"peer": "Concrete ML", "doing": "compiled its circuit"}
    start = time.perf_counter()
    circuit, predict = (network if given["kind"] == "mlp" else linear)(given, arrays)
    yield {"compile_seconds": time.perf_counter() - start, "doing": "simulated the rows"}
    yield {"accuracy": float((predict(arrays["x"], "simulate") == arrays["y"]).mean())}
    yield {"key_bytes": circuit.size_of_bootstrap_keys + circuit.size_of_keyswitch_keys}
    count = given["execute"]
    if not count:
        yield {"not_encrypted": given["why"]}
        return
    yield {"doing": "made its keys"}
    start = time.perf_counter()
    circuit.keygen()
    yield {"setup_seconds": time.perf_counter() - start, "doing": "computed on encrypted rows"}
    start = time.perf_counter()
    found = predict(arrays["x"][:count], "execute")
    yield {"seconds_per_row": (time.perf_counter() - start) / count}
    yield {"rows": count, "accuracy_encrypted": float((found == arrays["y"][:count]).mean())}
    yield {"bytes_per_row": circuit.size_of_inputs + circuit.size_of_outputs}


def main():
    """All folders, each in its turn."""
    import concrete.ml.sklearn
    import concrete.ml.torch.compile  # noqa: F401

    print(json.dumps({"ready": True}), flush=True)
    for name in sys.argv[1:]:
        try:
            for part in measured(Path(name)):
                print(json.dumps(part), flush=True)
        except Exception as error:
            said = (str(error).strip() or traceback.format_exc()).splitlines()[0][:300]
            print(json.dumps({"error": f"{type(error).__name__}: {said}"}), flush=True)
        print(json.dumps({"done": True}), flush=True)


if __name__ == "__main__":
    main()
