"""The same operations and the same circuit, with the same parameters and message, on our CKKS, on SEAL and on OpenFHE.

Each result may be away from the exact one by its library's error. Ours is predicted (``error_bound``, fails with
probability 2^-40). SEAL with the same primes and one digit a prime has the same noise, operation by operation, but for
the mean of its digits (``uncentred``), so the same bound and that hold for it; two results may therefore differ by
twice the bound. OpenFHE chooses primes and digits of its own (larger special primes: less noise), and FIXEDMANUAL takes
every prime for 2^bits: that is wrong by |q / 2^bits - 1| < 2^-12 a rescaling, of the value.
"""

from __future__ import annotations

import numpy as np
import pytest
from hushnet import frontend, passes
from hushnet.planner.non_interactive import Network
from hushnet_bench import _native as measuring
from hushnet_bench.executors import ckks, openfhe, seal
from hushnet_bench.executors.executor import Executor, MemoryLog, Parameters, PeerFailed, PeerMissing, interpreter

from tests.non_interactive.networks import Random

DEGREE, DEPTH, ROTATIONS, SCALAR = 8192, 3, [1, 5, -3, 1024], 0.3711
PARAMETERS = Parameters(ring_degree=DEGREE)
FIXED_SCALE = 2.0**-12


def uncentred(primes: list[int]) -> float:
    """What SEAL's key switching may add to ours in a slot: its digits are residues in [0, q), not centred ones.

    Their mean q/2 on all coefficients is, in the slot nearest to X = 1, (q/2) * 2/|1 - zeta| = q N/pi, times a key
    error (at most 6 * 3.2 * sqrt(N) there) over the special prime, for every digit.
    """
    *digits, special = primes
    key_error = 6 * 3.2 * DEGREE**0.5
    return sum(q * DEGREE / np.pi * key_error / special for q in digits) / 2.0**PARAMETERS.scale_bits


def peer(name: str, parameters: Parameters = PARAMETERS, mode: str = "FIXEDMANUAL") -> Executor:
    try:
        return seal.executor(parameters) if name == "seal" else openfhe.executor(parameters, mode=mode)
    except PeerMissing as missing:
        pytest.skip(str(missing))


def vectors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    x, y, w = (rng.uniform(-1, 1, DEGREE // 2) for _ in range(3))
    x[:4], y[:4], w[:4] = (1, -1, 0, 1), (1, 1, 0, -1), (-1, 1, 1, 0)
    return {"x": x, "y": y, "w": w}


def parts(z: np.ndarray) -> np.ndarray:
    return np.concatenate([z.real, z.imag])


def exact(v: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    x, y, w = v["x"], v["y"], v["w"]
    s, t = ROTATIONS[:2]
    rotated = {f"rotate {r}": np.roll(x, -r) for r in ROTATIONS}
    return {
        "encrypt": x,
        "add": x + y,
        "subtract": x - y,
        "add plain": x + w,
        "add scalar": x + SCALAR,
        "multiply plain": x * w,
        "multiply scalar": x * SCALAR,
        "multiply": x * y,
        "square": x * x,
        "lower": x,
        "hoisted sum": np.roll(x, -s) * w + np.roll(x, -t) * y,
        "rotated sum": np.roll(x * w, -s) + np.roll(x * y, -t),
        "complex, public key": parts(x + 1j * y),
        "complex, secret key": parts(x + 1j * y),
        "conjugate": parts(x - 1j * y),
        **rotated,
        **{f"hoisted {name}": values for name, values in rotated.items()},
    }


def own(v: dict[str, np.ndarray], primes: list[int]) -> dict[str, tuple[np.ndarray, float]]:
    """Our results and their bounds; sums of rotations by their own operations, with one division for all."""
    b = ckks.Own(DEGREE, primes[:-1], primes[-1:], PARAMETERS.scale_bits, ROTATIONS, conjugation=True)
    z = v["x"] + 1j * v["y"]
    cx, cy, cz = b.encrypt(v["x"]), b.encrypt(v["y"]), b.encrypt_complex(z)
    weight_scale = b.scales[DEPTH - 1] * b.primes[DEPTH] / b.scales[DEPTH]
    terms = list(zip(ROTATIONS, (v["w"], v["y"])))
    found = {
        "encrypt": cx,
        "add": b.add(cx, cy),
        "subtract": b.sub(cx, cy),
        "add plain": b.add_plain(cx, v["w"], DEPTH),
        "add scalar": b.ckks.add_scalar(cx, SCALAR),
        "multiply plain": b.rescale(b.multiply_plain(cx, v["w"], DEPTH)),
        "multiply scalar": b.rescale(b.ckks.multiply_scalar(cx, SCALAR, weight_scale)),
        "multiply": b.rescale(b.multiply(cx, cy)),
        "square": b.rescale(b.square(cx)),
        "lower": b.lower(cx, DEPTH, DEPTH - 1),
        "hoisted sum": b.rescale(b.ckks.hoisted_sum(cx, terms, weight_scale)),
        "rotated sum": b.ckks.rotate_sum_rescale(cx, terms, weight_scale, 2.0),
        **{f"rotate {s}": b.rotate(cx, s) for s in ROTATIONS},
        **{f"hoisted rotate {s}": c for s, c in zip(ROTATIONS, b.ckks.rotate_many(cx, ROTATIONS))},
    }
    shown = {name: (b.decrypt(c), c.error_bound) for name, c in found.items()}
    complexes = {
        "complex, public key": cz,
        "complex, secret key": b.encrypt_complex(z, secret=True),
        "conjugate": b.ckks.conjugate(cz),
    }
    for name, c in complexes.items():
        shown[name] = parts(b.decrypt_complex(c)), c.error_bound
    return shown


# Key switchings whose errors add up in a slot, each at most once the error of a rotation.
SWITCHED = {"multiply": 1, "square": 1, "conjugate": 1, "hoisted sum": 2, "rotated sum": 2} | {
    f"{kind}rotate {s}": 1 for kind in ("", "hoisted ") for s in ROTATIONS
}
# Largest value that is rescaled.
RESCALED = {
    "multiply plain": 1,
    "multiply scalar": 1,
    "multiply": 1,
    "square": 1,
    "lower": 1,
    "hoisted sum": 2,
    "rotated sum": 2,
}


def test_operations_agree_with_seal() -> None:
    v = vectors()
    with peer("seal") as worker:
        theirs, parameters = worker.operations(v, DEPTH, ROTATIONS, SCALAR)
    ours, right = own(v, parameters["primes"]), exact(v)
    assert theirs.keys() == ours.keys() == right.keys()
    for name, (values, bound) in ours.items():
        assert bound < 2.0**-8, name
        assert np.abs(values - right[name]).max() <= bound, name
        slack = SWITCHED.get(name, 0) * uncentred(parameters["primes"])
        assert np.abs(theirs[name] - right[name]).max() <= bound + slack, name
        assert np.abs(theirs[name] - values).max() <= 2 * bound + slack, name
        # not only small: it is noise of the same size, within 6 bits of the bound
        assert np.abs(values - right[name]).max() > bound / 64, name


@pytest.mark.parametrize("mode", openfhe.MODES)
def test_operations_agree_with_openfhe(mode: str) -> None:
    v = vectors()
    with peer("openfhe", mode=mode) as worker:
        theirs, _ = worker.operations(v, DEPTH, ROTATIONS, SCALAR)
    ours, right = own(v, [45, 30, 30, 30, 45]), exact(v)
    assert theirs.keys() == ours.keys() == right.keys()
    for name, (values, bound) in ours.items():
        slack = RESCALED.get(name, 0) * FIXED_SCALE
        assert np.abs(theirs[name] - right[name]).max() <= bound + slack, name
        assert np.abs(theirs[name] - values).max() <= 2 * bound + slack, name


def small() -> tuple[Network, np.ndarray]:
    """Conv, square, FC, square, FC."""
    net = Random((1, 8, 8), 2)
    net.conv(2, (3, 3), (2, 2), (0, 0, 1, 1), 1)
    net.activation("square")
    net.dense(6)
    net.activation("square")
    net.dense(3)
    graph = passes.default(frontend.load(net.model()))
    x = np.random.default_rng(0).uniform(0, 1, (8, 1, 8, 8))
    return Network.from_graph(graph, calibration=x), x


@pytest.mark.parametrize(
    ("name", "mode"), [("seal", "FIXEDMANUAL"), ("openfhe", "FIXEDMANUAL"), ("openfhe", "FLEXIBLEAUTO")]
)
def test_a_whole_network_agrees(name: str, mode: str) -> None:
    network, x = small()
    parameters = Parameters(ring_degree=16384)
    with peer(name, parameters, mode) as worker:
        prepared = worker.setup(network.spec())
        theirs, answer = worker.run(network.encrypted_input(x[:1]))
    primes = prepared.get("primes", [45, *[30] * network.depth, 45])
    right = network.run(x[:1]).output
    largest = max(t.bound for t in network.tensors)
    slack = 0.0 if name == "seal" else 2 * network.depth * FIXED_SCALE * largest
    for image, other, want in zip(network.encrypted_input(x[:1]), theirs, right):
        ours, bound, circuit = ckks.run(network.spec(), image, primes, ring_degree=16384, scale_bits=30)
        assert bound < 0.5
        assert np.abs(ours - want).max() <= bound
        assert np.abs(other - want).max() <= bound + slack
        assert np.abs(other - ours).max() <= 2 * bound + slack
    # the same circuit: the same number of each operation that both count
    counts: dict[str, int] = {}
    for entry in circuit.times:
        for k, n in entry["counts"].items():
            counts[k] = counts.get(k, 0) + n
    told: dict[str, int] = {}
    for step in answer["traces"][-1]["steps"]:
        for k, n in step["counts"].items():
            told[k] = told.get(k, 0) + n
    for key in ("rotate", "multiply_plain", "relinearise", "add"):
        assert counts[key] == told[key] == prepared["counts"][key]


def test_our_library_on_the_circuit_is_within_its_bound() -> None:
    """Without any other library: encrypted = float within the predicted error."""
    network, x = small()
    y, bound, _ = ckks.run(
        network.spec(),
        network.encrypted_input(x[:1])[0],
        [45, *[30] * network.depth, 45],
        ring_degree=16384,
        scale_bits=30,
    )
    error = np.abs(y - network.run(x[:1]).output[0]).max()
    assert 0 < error <= bound < 0.5


def test_a_peer_reports_errors_and_memory() -> None:
    with peer("seal", Parameters(ring_degree=4096)) as worker, MemoryLog(worker.pid, 0.01) as memory:
        with pytest.raises(PeerFailed, match="refuses .* at N = 4096 for 128 bits"):
            worker.operations(vectors(), DEPTH, ROTATIONS, SCALAR)
        with pytest.raises(PeerFailed, match="KeyError"):
            worker._ask({"do": "nothing"})  # it lives on
    assert memory.peak > 1 << 20


def test_missing_peers_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("HUSHNET_PEERS", str(tmp_path))
    with pytest.raises(PeerMissing, match="make peers"):
        interpreter("seal")
    with pytest.raises(ValueError, match="choose one of"):
        openfhe.executor(mode="AUTO")


def test_ckks_binding_refuses_what_the_library_refuses() -> None:
    with pytest.raises(ValueError, match="128"):
        measuring.Ckks(4096, [45, 45, 45], [45], 40, [])
    c = measuring.Ckks(4096, [36, 30], [36], 30, [1])
    plain = c.encode(np.zeros(2048), 1.0)
    ciphertext = c.encrypt(plain, symmetric=True)
    with pytest.raises(ValueError):  # noqa: PT011
        c.rotate(ciphertext, 2)
    with pytest.raises(ValueError):  # noqa: PT011
        c.drop_to(ciphertext, 3)
    with pytest.raises(ValueError):  # noqa: PT011
        c.encode(np.full(2048, 2.0), 1.0)
    assert "Ckks" in repr(c) and not hasattr(c, "secret")
