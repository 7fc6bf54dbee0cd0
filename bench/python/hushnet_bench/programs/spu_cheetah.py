"""SPU's Cheetah protocol between two processes over loopback: ``spu_cheetah.py CASE... [--runs N] [--cores A,B]``.

One JSON object a case on standard output: wall-clock and processor seconds of each run, bytes that the parties' sockets
carried, and the largest error. Runs in an environment of its own: ``make peers`` (Python 3.11, spu 0.9.5).
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FRACTION_BITS = 18


def cases():
    """Name -> (function, arguments, owner of each argument: a party, or -1 for shares)."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax

    def values(*shape, scale=0.5):
        return (np.random.default_rng(len(shape)).standard_normal(shape) * scale).astype(np.float32)

    def relu(x):
        return jnp.maximum(x, 0.0)

    def conv(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def smooth(f, low=-8.0, high=8.0):
        x = np.random.default_rng(1).uniform(low, high, 1 << 13).astype(np.float32)
        return lambda: (f, [x], [-1])

    def product(x, y):
        return x * y

    def softmax(x):
        return jax.nn.softmax(x, axis=-1)

    def layer_norm(x):
        mean = jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5)

    def matmul(*shape):
        return lambda: (jnp.matmul, [values(*shape[:-1]), values(*shape[:-3], *shape[-2:])], [-1, -1])

    return {
        "sigmoid": smooth(jax.nn.sigmoid),
        "silu": smooth(jax.nn.silu),
        "gelu": smooth(lambda x: jax.nn.gelu(x, approximate=True)),
        "tanh": smooth(jnp.tanh, -4.0, 4.0),
        "exp": smooth(jnp.exp, -8.0, 0.0),
        "reciprocal": smooth(lambda x: 1.0 / x, 1.0, 2.0),
        "inverseroot": smooth(lax.rsqrt, 1.0, 2.0),
        "product": lambda: (product, [values(1 << 13), values(1 << 13)], [-1, -1]),
        "softmax": lambda: (softmax, [values(64, 128, scale=2.0)], [-1]),
        "1 heads, 128x64 times 64x128": matmul(128, 64, 128),
        "12 heads, 128x64 times 64x128": matmul(12, 128, 64, 128),
        "layer-norm": lambda: (layer_norm, [values(128, 768, scale=2.0)], [-1]),
        "relu-2^12": lambda: (relu, [values(1 << 12)], [-1]),
        "relu-2^20": lambda: (relu, [values(1 << 20)], [-1]),
        "16x16@128, 1x1@128": lambda: (conv, [values(1, 16, 16, 128), values(1, 1, 128, 128, scale=0.05)], [0, 1]),
        "16x16@128, 3x3@128": lambda: (conv, [values(1, 16, 16, 128), values(3, 3, 128, 128, scale=0.05)], [0, 1]),
        "56x56@64, 3x3@64": lambda: (conv, [values(1, 56, 56, 64), values(3, 3, 64, 64, scale=0.05)], [0, 1]),
    }


def socket_bytes() -> int:
    """Bytes acknowledged on this process's own TCP connections; -1 without `ss`, which reads the kernel's tcp_info."""
    try:
        listing = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return -1
    total, mine = 0, False
    for line in listing.splitlines():
        if not line.startswith((" ", "\t")):
            mine = f"pid={os.getpid()}," in line
        if mine:
            total += sum(int(f.split(":")[1]) for f in line.split() if f.startswith("bytes_acked:"))
    return total


def wait_for(path: Path) -> bytes:
    while not path.exists():
        time.sleep(0.02)
    return path.read_bytes()


def publish(path: Path, data: object) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(data))
    part.rename(path)


def party(rank: int, case: str, runs: int, ports: list[int], folder: Path) -> None:
    """One party.

    Takes its shares from the folder, runs the program ``runs`` times after a warm-up, leaves its output there.
    """
    import numpy as np
    import spu
    import spu.utils.frontend as frontend
    from spu import libspu

    function, arguments, owners = cases()[case]()
    config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.CHEETAH, field=libspu.FieldType.FM64)
    config.fxp_fraction_bits = FRACTION_BITS
    config.max_concurrency = 1
    config.experimental_enable_colocated_optimization = True
    names = [f"in{i}" for i in range(len(arguments))]
    secret = libspu.Visibility.VIS_SECRET
    program, _ = frontend.compile(
        frontend.Kind.JAX,
        function,
        arguments,
        {},
        names,
        [secret] * len(arguments),
        lambda out: [f"out{i}" for i in range(len(out))],
    )
    io = spu.Io(2, config)
    link = libspu.link.Desc()
    for i, port in enumerate(ports):
        link.add_party(f"party{i}", f"127.0.0.1:{port}")
    link.recv_timeout_ms = link.http_timeout_ms = 600_000
    link = libspu.link.create_brpc(link, rank)
    runtime = spu.Runtime(link, config)
    if rank == 0:  # both parties' shares of all inputs come from one process
        shares = [io.make_shares(a, secret, owner) for a, owner in zip(arguments, owners)]
        publish(folder / "shares", [[(s.meta, list(s.share_chunks)) for s in pair] for pair in shares])
    for name, pair in zip(names, pickle.loads(wait_for(folder / "shares"))):
        share = libspu.Share()
        share.meta, share.share_chunks = pair[rank]
        runtime.set_var(name, share)
    times = []
    for _ in range(runs + 1):
        link.barrier()
        sent, processor, start = socket_bytes(), time.process_time(), time.perf_counter()
        runtime.run(program)
        link.barrier()
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
        time.sleep(0.1)
        after = socket_bytes()
        times.append((seconds, processor, after - sent if min(sent, after) >= 0 else None))
    out = runtime.get_var("out0")
    publish(folder / f"out{rank}", (out.meta, list(out.share_chunks), times))
    link.barrier()
    if rank == 0:
        shares, measured = [], []
        for r in (0, 1):
            meta, chunks, t = pickle.loads(wait_for(folder / f"out{r}"))
            share = libspu.Share()
            share.meta, share.share_chunks = meta, chunks
            shares.append(share)
            measured.append(t[1:])
        want = np.asarray(function(*arguments))
        walls = [max(a[0], b[0]) for a, b in zip(*measured)]
        processors = [a[1] + b[1] for a, b in zip(*measured)]
        carried = [a[2] + b[2] for a, b in zip(*measured) if None not in (a[2], b[2])]
        row = {
            "case": case,
            "peer": f"spu {spu.__version__} Cheetah",
            "ring_bits": 64,
            "seconds": statistics.median(walls),
            "runs": walls,
            "processor_seconds": statistics.median(processors),
            "bytes": statistics.median(carried) if carried else None,
            "max_error": float(np.abs(io.reconstruct(shares) - want).max()),
        }
        print(json.dumps(row), flush=True)
    time.sleep(0.2)
    link.stop_link()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cores", help="one core a party, as 0,1")
    parser.add_argument("--party", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.party:
        rank, ports, folder = json.loads(options.party)
        party(rank, options.cases[0], options.runs, ports, Path(folder))
        return
    cores = [int(c) for c in options.cores.split(",")] if options.cores else []
    for case in options.cases:
        with tempfile.TemporaryDirectory() as folder:
            ports = free_ports(2)

            def start(rank: int, case: str = case, ports: list[int] = ports, folder: str = folder) -> subprocess.Popen:
                order = json.dumps([rank, ports, folder])
                pin = (lambda: os.sched_setaffinity(0, {cores[rank % len(cores)]})) if cores else None
                command = [sys.executable, __file__, case, "--runs", str(options.runs), "--party", order]
                return subprocess.Popen(command, preexec_fn=pin, stderr=subprocess.PIPE)

            processes = [start(rank) for rank in (0, 1)]
            errors = [p.communicate()[1] for p in processes]
            if any(p.returncode for p in processes):
                last = errors[0 if processes[0].returncode else 1].decode(errors="replace").strip()[-400:]
                print(json.dumps({"case": case, "error": last or "a party ended with an error"}), flush=True)


if __name__ == "__main__":
    main()
