"""What the workers share.

Requests as JSON lines on standard input, answers as ``JSON {...}`` lines on standard output.
"""

import json
import os
import resource
import statistics
import sys
import time
import traceback

import numpy as np
from circuit import Circuit


def serve(make, information):
    """Answers requests until the input ends; ``make(request)`` gives a backend."""
    state = {}
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = HANDLERS[request["do"]](state, request, make)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "where": traceback.format_exc()[-2000:]}
        print("JSON " + json.dumps({**information, **answer}), flush=True)


def setup(state, request, make):
    """Parameters, keys, layout."""
    state.clear()
    arrays = dict(np.load(request["arrays"]))
    slots, sample = request["ring_degree"] // 2, request.get("sample")
    circuit = Circuit(request["spec"], arrays, slots, sample)
    whole = circuit if sample is None else Circuit(request["spec"], arrays, slots)
    counts, steps = whole.plan()
    start = time.thread_time()
    backend = make({**request, "depth": circuit.depth(), "steps": steps})
    state.update(circuit=circuit, backend=backend)
    return {"depth": circuit.depth(), "counts": counts, "rotation_keys": len(steps),
    "keygen_seconds": time.thread_time() - start,
            "key_bytes": backend.key_bytes(), **backend.parameters()}  # fmt: skip


def run(state, request, make):
    """Every image: outputs, and processor seconds of each phase (one thread: wall-clock seconds on an idle machine)."""
    circuit, backend = state["circuit"], state["backend"]
    outputs, traces = [], []
    for image in np.load(request["images"]):
        backend.encode_seconds = 0.0
        result = circuit.run(backend, image)
        start = time.thread_time()
        # A sample of channels is no network's value: decoders may refuse it.
        slots = [backend.decrypt(c) for c in result] if circuit.sample is None else []
        decrypt = time.thread_time() - start
        if circuit.sample is None:
            outputs.append(circuit.read(slots))
        merged = {}
        for entry in circuit.times:
            row = merged.setdefault(
                entry["step"], {"step": entry["step"], "seconds": 0.0, "encode_seconds": 0.0, "counts": {}}
            )
            row["seconds"] += entry["seconds"]
            row["encode_seconds"] += entry["encode_seconds"]
            for k, v in entry["counts"].items():
                row["counts"][k] = row["counts"].get(k, 0) + v
        steps = list(merged.values())
        traces.append({"seconds": sum(s["seconds"] for s in steps) + decrypt, "decrypt_seconds": decrypt,
                       "encode_seconds": sum(s["encode_seconds"] for s in steps), "steps": steps})  # fmt: skip
    if outputs:
        np.save(request["outputs"], np.stack(outputs))
    return {
        "traces": traces,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "complete": bool(outputs),
    }


def operations(state, request, make):
    """Single operations on given vectors, decrypted: for comparisons between libraries."""
    data = dict(np.load(request["vectors"]))
    x, y, w = data["x"], data["y"], data["w"]
    steps = request["rotations"]
    b = make({**request, "steps": [s % len(x) for s in steps]})
    top = request["depth"]
    cx, cy = b.encrypt(x), b.encrypt(y)
    weights = list(zip(steps, (w, y)))
    many = b.rotate_many(cx, steps)
    hoisted = [b.multiply_plain(turned, v, top) for turned, (_, v) in zip(many, weights)]
    rotated = [b.rotate(b.multiply_plain(cx, v, top), s) for s, v in weights]
    found = {
        "encrypt": b.decrypt(cx),
        "add": b.decrypt(b.add(cx, cy)),
        "subtract": b.decrypt(b.sub(cx, cy)),
        "add plain": b.decrypt(b.add_plain(cx, w, top)),
        "add scalar": b.decrypt(b.add_plain(cx, request["scalar"], top)),
        "multiply plain": b.decrypt(b.rescale(b.multiply_plain(cx, w, top))),
        "multiply scalar": b.decrypt(b.rescale(b.multiply_plain(cx, request["scalar"], top))),
        "multiply": b.decrypt(b.rescale(b.multiply(cx, cy))),
        "square": b.decrypt(b.rescale(b.square(cx))),
        "lower": b.decrypt(b.lower(cx, top, top - 1)),
        "hoisted sum": b.decrypt(b.rescale(b.add(*hoisted))),
        "rotated sum": b.decrypt(b.rescale(b.add(*rotated))),
    }
    for s, turned in zip(steps, many):
        found[f"rotate {s}"] = b.decrypt(b.rotate(cx, s))
        found[f"hoisted rotate {s}"] = b.decrypt(turned)
    # Complex slots: real and imaginary parts, one after the other. (OpenFHE adds noise to real slots when it decodes,
    # more than a fresh encryption with the secret key has.)
    b = make({**request, "steps": [], "complex": True})
    z, cz = x + 1j * y, b.encrypt_complex(x + 1j * y)
    complexes = {
        "complex, public key": cz,
        "complex, secret key": b.encrypt_complex(z, secret=True),
        "conjugate": b.conjugate(cz),
    }
    for name, c in complexes.items():
        z = b.decrypt_complex(c)
        found[name] = np.concatenate([z.real, z.imag])
    np.savez(request["outputs"], **found)
    return b.parameters()


def primitives(state, request, make):
    """Median microseconds of each primitive, at the top level."""
    slots, top = request["ring_degree"] // 2, request["depth"]
    b = make({**request, "steps": [1]})
    vector = np.random.default_rng(1).standard_normal(slots)
    rows = {name: measured(f, request.get("seconds", 0.5)) for name, f in b.primitives(vector, top).items()}
    return {"us": rows, **b.parameters()}


def measured(f, budget):
    """Median microseconds of processor time after a warm-up, from at least five runs."""
    f()
    times, start = [], time.thread_time()
    while len(times) < 5 or (time.thread_time() - start < budget and len(times) < 500):
        before = time.thread_time()
        f()
        times.append(time.thread_time() - before)
    return round(statistics.median(times) * 1e6, 2)


HANDLERS = {"setup": setup, "run": run, "operations": operations, "primitives": primitives}


def pin():
    """One thread; the core that the host names."""
    core = os.environ.get("HUSHNET_PEER_CORE")
    if core:
        os.sched_setaffinity(0, {int(core)})
