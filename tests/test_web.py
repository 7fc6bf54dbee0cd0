"""The browser's client (web/, crates/wasm) in Node, against real servers: its answers are Python's."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest

from tests.networks import Net
from tests.wheels.probe import drawn, exact, network

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
# The first of these tests builds the package.
pytestmark = pytest.mark.timeout(1900)
# Most bytes of all that a page downloads, compressed.
LIMIT = 1_500_000


def lacking() -> str:
    """What this machine has not that the package is built and run with; "": nothing."""
    for tool in ("node", "npm", "cargo", "rustup"):
        if shutil.which(tool) is None:
            return f"{tool} is not on PATH"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if not (found := re.match(r"v(\d+)", version)) or int(found[1]) < 20:
        return f"node 20 is needed, here is {version.strip()}"
    targets = subprocess.run(["rustup", "target", "list", "--installed"], capture_output=True, text=True, cwd=ROOT)
    if "wasm32-unknown-unknown" not in targets.stdout:
        return "rustup target add wasm32-unknown-unknown: Rust's library for WebAssembly is not installed"
    return ""


@pytest.fixture(scope="module")
def built() -> Path:
    """The package, built where a source is newer; as it is where HUSHNET_WEB says so."""
    if os.environ.get("HUSHNET_WEB") == "built":
        return WEB / "dist"
    if why := lacking():
        pytest.skip(why)
    # One process of the tests at a time; the others find it built.
    (ROOT / "target").mkdir(exist_ok=True)
    with open(ROOT / "target/web.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(["make", "web"], cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
    return WEB / "dist"


# Relaxed SIMD, which Node 20 has behind a flag, and later ones without it: there, nothing takes it away.
RELAXED = "--experimental-wasm-relaxed-simd"


def has_flag() -> bool:
    """Whether Node has relaxed SIMD behind the flag only."""
    known = subprocess.run(["node", "--v8-options"], capture_output=True, text=True, timeout=60, check=True)
    return RELAXED in known.stdout


def ask(url: str, *runs: dict[str, np.ndarray], flags: Sequence[str] = (), **options: Any) -> dict[str, Any]:
    """What the package answers in Node."""
    kind = "f64" if any(x.dtype == np.float64 for run in runs for x in run.values()) else "f32"
    given = [{k: {"shape": x.shape, "data": x.ravel().tolist()} for k, x in run.items()} for run in runs]
    done = subprocess.run(
        ["node", "--experimental-websocket", "--no-warnings", *flags, WEB / "test/infer.mjs"],
        input=json.dumps({"url": url, "runs": given, "options": options, "kind": kind}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def values(answer: dict[str, Any], name: str | None = None) -> np.ndarray:
    output = answer["outputs"][name or next(iter(answer["outputs"]))]
    return np.array(output["data"]).reshape(output["shape"])


def compiled(trust: str, **options: Any) -> hushnet.Model:
    activation = "square" if trust == "non-interactive" else "relu"
    return hushnet.compile(network(activation), trust=trust, calibration=drawn((64, 1, 6, 6), 5, 1.0), **options)


def test_all_that_a_page_downloads_is_small(built: Path) -> None:
    sizes = {p.name: len(gzip.compress(p.read_bytes(), 9)) for p in built.rglob("*") if p.suffix in (".js", ".wasm")}
    assert {"index.js", "worker.js", "hushnet_wasm_bg.wasm"} <= set(sizes)
    assert sum(sizes.values()) <= LIMIT, sizes


@pytest.mark.parametrize("options", [{}, {"batch": 1}, {"batch": 2048}])
def test_client_aided_answers_are_those_of_python(built: Path, options: dict) -> None:
    model, x = compiled("client-aided", **options), drawn((5, 1, 6, 6), 6, 0.9)
    with hushnet.serve(model) as server:
        url = f"ws://127.0.0.1:{server.port}"
        told = ask(url, {"x": x}, {"x": x[:1]})
        with hushnet.connect(url) as connection:
            expected = connection.infer(x).output
    assert told["errors"] == [] and told["trust"] == "client-aided" and not told["open"]
    assert np.array_equal(values(told["answers"][0]), expected)
    assert np.array_equal(values(told["answers"][1]), expected[:1])
    assert told["progress"] > 0 and told["traffic"]["sent"] > x.nbytes


def test_large_messages_in_buffers_that_are_used_again_are_those_that_were_meant(built: Path) -> None:
    """Both layers' messages have more than 1 MB; those of later runs go out of the buffers of the first."""
    net = Net((3, 16, 16), seed=9)
    net.conv(3, 8, (3, 3), strides=[2, 2])
    net.op("Relu")
    net.conv(8, 4, (3, 3))
    x = drawn((4, 3, 16, 16), 7, 0.9)
    model = hushnet.compile(net.model(), trust="client-aided", batch=2048, calibration=x)
    runs = [x, x[:2], x[::-1].copy(), x[1:]]
    with hushnet.serve(model) as server:
        url = f"ws://127.0.0.1:{server.port}"
        told = ask(url, *({"x": run} for run in runs))
        with hushnet.connect(url) as connection:
            expected = [connection.infer(run).output for run in runs]
    assert told["errors"] == [] and len(told["answers"]) == len(runs)
    assert all(np.array_equal(values(a), e) for a, e in zip(told["answers"], expected, strict=True))
    stages = told["answers"][0]["trace"]["stages"]
    assert sum(s["bytes_up"] > 1 << 20 for s in stages) == 2, stages


@pytest.mark.parametrize("trust", ["two-party", "non-interactive"])
def test_other_trust_models_answer_within_their_error(built: Path, trust: str) -> None:
    model, x = compiled(trust), drawn((3, 1, 6, 6), 6, 0.9)
    with hushnet.serve(model) as server:
        told = ask(f"ws://127.0.0.1:{server.port}", {"x": x})
    assert told["errors"] == [] and told["trust"] == trust
    assert (
        np.abs(values(told["answers"][0]) - exact(x, "square" if trust == "non-interactive" else "relu")).max() < 0.05
    )


@pytest.mark.parametrize(("images", "ot"), [(1, "softspoken"), (1 << 20, "silent-tiny")])
def test_oblivious_transfers_are_made_for_so_many_images(built: Path, images: int, ot: str) -> None:
    """SoftSpoken sends least in short sessions, and hashes 32 blocks a transfer: slow without instructions for AES."""
    model, x = compiled("two-party"), drawn((1, 1, 6, 6), 6, 0.9)
    with hushnet.serve(model) as server:
        [answer] = ask(f"ws://127.0.0.1:{server.port}", {"x": x}, images=images)["answers"]
    assert answer["trace"]["ot"] == ot
    assert np.abs(values(answer) - exact(x, "relu")).max() < 0.05


@pytest.mark.parametrize("flags", [(), (RELAXED,)])
@pytest.mark.parametrize("trust", ["client-aided", "non-interactive"])
def test_platforms_with_and_without_relaxed_simd_compute_alike(built: Path, trust: str, flags: tuple[str, ...]) -> None:
    """Without it, another instruction stands in its places (web/src/thread.ts), and other kernels run."""
    if flags and not has_flag():
        pytest.skip("this Node has relaxed SIMD without a flag, so the other test runs with it")
    model, x = compiled(trust), drawn((3, 1, 6, 6), 6, 0.9)
    with hushnet.serve(model) as server:
        url = f"ws://127.0.0.1:{server.port}"
        [answer] = ask(url, {"x": x}, flags=flags)["answers"]
        with hushnet.connect(url) as connection:
            expected = connection.infer(x).output
    assert answer["trace"]["simd"] == ("relaxed" if flags or not has_flag() else "portable")
    assert np.abs(values(answer) - expected).max() <= (0 if trust == "client-aided" else 0.05)


def test_several_layers_and_numbers_of_64_bits(built: Path) -> None:
    net = Net((2, 8, 8), seed=4)
    net.conv(2, 4, (3, 3), strides=[2, 2])
    net.op("Sigmoid")
    net.op("GlobalAveragePool")
    net.op("Flatten")
    net.op("Gemm", net.last, net.weight(3, 4), transB=1)
    net.op("Softmax", axis=1)
    x = np.random.default_rng(8).uniform(-1, 1, (6, 2, 8, 8))
    model = hushnet.compile(net.model(), calibration=x.astype(np.float32))
    with hushnet.serve(model) as server, hushnet.connect(f"ws://127.0.0.1:{server.port}") as connection:
        [answer] = ask(f"hush://127.0.0.1:{server.port}", {"x": x})["answers"]
        assert np.array_equal(values(answer), connection.infer(x).output)


def test_what_goes_wrong_is_said_as_python_says_it(built: Path, tmp_path: Path) -> None:
    model, x = compiled("client-aided"), drawn((2, 1, 6, 6), 6, 0.9)
    tokens = tmp_path / "tokens"
    tokens.write_text("somebody right-token-of-somebody\n")
    tokens.chmod(0o600)
    with hushnet.serve({"first": model, "second": model}, tokens=tokens) as server:
        url = f"ws://127.0.0.1:{server.port}"
        [refused] = ask(url, {"x": x}, token="wrong-token-of-nobody", model="first")["errors"]
        assert refused["kind"] == "ProtocolError" and "token" in refused["message"]
        [absent] = ask(url, {"x": x}, token="right-token-of-somebody", model="third")["errors"]
        assert absent["kind"] == "ProtocolError" and "no such model" in absent["message"]
        told = ask(url, {"x": x[:, :, 1:]}, {"y": x}, {"x": x}, token="right-token-of-somebody", model="second")
        with hushnet.connect(url, model="second", token="right-token-of-somebody") as connection:
            for error, bad in zip(told["errors"], ({"x": x[:, :, 1:]}, {"y": x})):
                with pytest.raises(hushnet.InputError) as caught:
                    connection.infer(bad)
                assert error == {"kind": "InputError", "message": error["message"], "open": True}
                assert error["message"] in str(caught.value)
            assert np.array_equal(values(told["answers"][0]), connection.infer(x).output)
        wide = ask(url, {"x": 9 * x}, token="right-token-of-somebody", model="first")["answers"][0]
        assert "tensor 'x.q'" in wide["outOfRange"]
    [gone] = ask(url, {"x": x})["errors"]
    assert gone["kind"] == "TransportError" and "no connection" in gone["message"]


def test_a_script_of_the_command_line_may_connect(built: Path) -> None:
    """Workers do not take all flags that such a process has."""
    with hushnet.serve(compiled("client-aided")) as server:
        script = f"""import {{ connect }} from "{(built / "index.js").as_uri()}";
            const session = await connect("ws://127.0.0.1:{server.port}");
            console.log(session.trust); await session.close();"""
        command = ["node", "--experimental-websocket", "--no-warnings", "--input-type=module", "-e", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "client-aided\n", done.stderr


def test_the_script_of_the_document_runs(built: Path) -> None:
    (script,) = re.findall(r"^```js\n(.*?)^```$", (ROOT / "docs/browser.md").read_text(), re.MULTILINE | re.DOTALL)
    local = (
        ('"hushnet"', f'"{(built / "index.js").as_uri()}"'),
        ('"wss://host:8765"', '"ws://127.0.0.1:PORT"'),
        ("[1, 1, 28, 28]", "[1, 1, 6, 6]"),
        ('token: "..."', 'token: "a-token-of-some-letters"'),
    )
    for old, new in local:
        assert old in script
        script = script.replace(old, new)
    # the document leaves open where pixels come from, and what the model calls its output
    script = script.replace("outputs.y.", "Object.values(outputs)[0].")
    script = "const pixels = new Float32Array(36).fill(0.5);\n" + script
    with hushnet.serve(compiled("client-aided")) as server:
        script = script.replace("PORT", str(server.port))
        command = ["node", "--experimental-websocket", "--no-warnings", "--input-type=module", "-e", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Float" in done.stdout and "sent" in done.stdout, done.stderr


# What the module may take from a page: three ways out and one in, randomness, a clock, and what makes an error.
IMPORTS = {"send", "receive", "take", "progress", "getRandomValues", "performance", "now", "instanceof_Error", "new"}
IMPORTS |= {"message", "set_name", *(f"static_accessor_{name}" for name in ("GLOBAL_THIS", "SELF", "GLOBAL", "WINDOW"))}


def test_randomness_comes_from_the_page_and_keys_stay(built: Path) -> None:
    """All that the module takes from outside: no import but these could carry a key out."""
    glue = (built / "wasm/hushnet_wasm.js").read_text()
    assert "getRandomValues" in glue
    called = set(re.findall(r"hushnetHost\.(\w+)\(", glue))
    assert called == {"send", "receive", "take", "progress"}
    names = "new WebAssembly.Module(require('fs').readFileSync(process.argv[1]))"
    script = f"console.log(WebAssembly.Module.imports({names}).map((i) => i.name).join(' '))"
    module = str(built / "wasm/hushnet_wasm_bg.wasm")
    flags = [RELAXED] if has_flag() else []
    command = ["node", *flags, "-e", script, module]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    imports = [re.sub(r"^__wbg_|_[0-9a-f]{16}$", "", name) for name in found.stdout.split()]
    assert {"send", "receive"} <= set(imports)
    assert [name for name in imports if not name.startswith("__wbindgen_") and name not in IMPORTS] == []
    assert not re.search(r"localStorage|indexedDB|document\.cookie|fetch\(", (built / "worker.js").read_text())
