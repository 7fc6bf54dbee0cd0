"""Compile, run and serve from Python: encrypted predictions for held-out digits.

    python examples/infer_python.py

First both parties in this process, then a server and a client that meet at a URL. With trust ``client-aided`` the
server learns nothing but shapes, and the client sees every layer's outputs, from which weights can be solved for: the
plan says so.
"""

from __future__ import annotations

from pathlib import Path

import hushnet
import numpy as np
from hushnet import data

MODEL = Path(__file__).parent / "models" / "cryptonets-relu.onnx"


def main() -> None:
    """One network, both ways."""
    train_x, _, test_x, test_y = data.digits()

    plan = hushnet.compile(MODEL, batch=2048, calibration=train_x[:256])
    result = hushnet.run(plan, test_x)
    accuracy = (result.output.argmax(axis=1) == test_y).mean()
    print(f"both parties here: {len(test_x)} digits, accuracy {accuracy:.2%}")

    server = hushnet.serve(plan)
    try:
        with hushnet.connect(f"ws://127.0.0.1:{server.port}/ws") as connection:
            remote = connection.infer(test_x)
    finally:
        server.stop()
    sent = remote.trace["bytes_up"] + remote.trace["bytes_down"]
    same = np.array_equal(remote.output, result.output)
    print(f"over a WebSocket: {sent / len(test_x) / 1e6:.3f} MB a digit, the same outputs: {same}")


if __name__ == "__main__":
    main()
