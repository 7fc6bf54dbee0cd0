"""The page of ``hushnet serve --web`` in a headless Chromium, against real servers of all trust models."""

from __future__ import annotations

import functools
import gzip
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet import data, webpage, zoo
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from tests.chromium import Page, program
from tests.test_web import WEB, built  # noqa: F401

ROOT = Path(__file__).resolve().parent.parent
SHOTS = ROOT / "out/browser"
pytestmark = pytest.mark.timeout(1900)
DIGITS = {
    "title": "Which digit is it?",
    "labels": [str(i) for i in range(10)],
    "scores": "logits",
    "input": {"kind": "drawing", "fill": 1.0},
}
SEVEN = [(0.2, 0.15), (0.5, 0.13), (0.8, 0.15), (0.66, 0.4), (0.52, 0.65), (0.42, 0.92)]


@pytest.fixture(scope="module")
def page_files(built: Path) -> Path:  # noqa: F811
    """Where the page stands; built with the package."""
    assert built == WEB / "dist" and (webpage.FOLDER / "index.html").is_file()
    return webpage.FOLDER


@pytest.fixture(scope="module")
def browser(page_files: Path) -> str:
    if not program():
        pytest.skip("there is no Chromium on PATH (Debian: apt-get install chromium)")
    return program()


@contextmanager
def served(tmp_path: Path, model: hushnet.Model, *extra: str, described: Any = DIGITS) -> Iterator[dict[str, Any]]:
    """What the command says of a server with a page."""
    model.save(tmp_path / "digits.hush")
    (tmp_path / "input.json").write_text(json.dumps(described))
    command = [
        sys.executable,
        "-m",
        "hushnet",
        "serve",
        str(tmp_path / "digits.hush"),
        "--listen",
        "127.0.0.1:0",
        "--json",
    ]
    command += ["--web", "--web-input", str(tmp_path / "input.json"), *extra]
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            yield json.loads(line)
        finally:
            process.kill()
            process.wait()


@functools.cache
def compiled(trust: str) -> tuple[hushnet.Model, np.ndarray]:
    train, _, test, _ = data.digits()
    options: dict[str, Any] = {} if trust == "two-party" else {"batch": 1}
    name = "cryptonets-square" if trust == "non-interactive" else "cryptonets-relu"
    options |= {"trust": trust, "calibration": train[:128], "name": "digits"}
    return hushnet.compile(zoo.trained(name), **options), test


def asked(url: str, path: str, *headers: str) -> tuple[dict[str, str], bytes]:
    """Head and body of an HTTP answer to a path as it is written: no client tidies it."""
    host, port = url.removeprefix("http://").strip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as peer:
        once = [] if any(h.startswith("Connection:") for h in headers) else ["Connection: close"]
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", *once, *headers, "", ""]
        peer.sendall("\r\n".join(lines).encode())
        head, _, body = b"".join(iter(lambda: peer.recv(65536), b"")).partition(b"\r\n\r\n")
    status, *fields = head.decode().split("\r\n")
    return {"status": status.split()[1], **{k.lower(): v for k, v in (f.split(": ", 1) for f in fields)}}, body


@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
def test_a_visitor_draws_a_digit_and_gets_its_answer(browser: str, tmp_path: Path, trust: str) -> None:
    model, images = compiled(trust)
    expected = hushnet.run(model, images[:2]).output.argmax(1)
    examples = [{"name": f"example {i + 1}", "values": images[i].ravel().round(6).tolist()} for i in range(2)]
    with (
        served(tmp_path, model, described=DIGITS | {"examples": examples}) as told,
        Page(told["page"], dark=trust == "two-party") as page,
    ):
        page.wait("document.querySelector('#ways button')")
        assert page.value("crossOriginIsolated") and page.value("document.title") == DIGITS["title"]
        page.stroke("#pad", SEVEN)
        page.value("document.querySelector('#ask').click()")
        page.wait("document.body.dataset.done === '1'", 120)
        page.screenshot(SHOTS / f"{trust}.png")
        assert page.value("document.querySelector('.big').textContent") in DIGITS["labels"]
        assert page.value("document.querySelectorAll('.scores li').length") == 5
        # an example's answer is that of Python's client, in the same session
        page.value("document.querySelector('[data-way=examples]').click()")
        for i, label in enumerate(expected):
            page.value(f"document.querySelectorAll('#example-list button')[{i}].click()")
            page.value("document.querySelector('#ask').click()")
            page.wait(f"document.body.dataset.done === '{2 + i}'", 120)
            assert page.value("document.querySelector('.big').textContent") == str(label)
        bytes_up, hexes = page.value(
            "[document.querySelector('#up').textContent, document.querySelector('#up-hex').textContent]"
        )
        assert bytes_up.endswith((" kB", " MB")) and len(hexes.split()) == 25
        layers = page.value("Array.from(document.querySelectorAll('#layers progress'), (p) => p.value)")
        assert len(layers) >= 3 and set(layers) == {1}
        assert page.value("document.querySelectorAll('#learned dd').length") == 3
        # nothing was asked for elsewhere, nothing is kept, and the page broke no rule of its own
        assert all(url.startswith((told["page"], "blob:")) for url in page.requests()), page.requests()
        assert page.value("localStorage.length + sessionStorage.length + document.cookie.length") == 0
        assert page.problems() == []


def test_a_telephone_shows_it_all_and_numbers_are_asked_by_keyboard(browser: str, tmp_path: Path) -> None:
    model, images = compiled("client-aided")
    label = int(hushnet.run(model, images[5:6]).output.argmax())
    tokens = tmp_path / "tokens"
    tokens.write_text("somebody right-token-of-somebody\n")
    tokens.chmod(0o600)
    with served(tmp_path, model, "--tokens", str(tokens)) as told, Page(told["page"], 390, 844) as page:
        page.wait("document.querySelector('#token-row')?.hidden === false")
        assert page.value("document.querySelector('#ask').disabled")
        enter = "document.querySelector('#token').value = '%s'; document.querySelector('#enter').click()"
        page.value(enter % "wrong-token-of-nobody")
        page.wait("document.querySelector('#note').textContent.includes('token')")
        page.value(enter % "right-token-of-somebody")
        page.wait("document.querySelector('#ways button')")
        page.value("document.querySelector('[data-way=numbers]').click(); document.querySelector('textarea').focus()")
        page.call("Input.insertText", text=" ".join(map(str, images[5].ravel().round(6).tolist())))
        page.value("document.querySelector('#ask').focus()")
        for kind in ("keyDown", "keyUp"):
            page.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
            )
        page.wait("document.body.dataset.done === '1'", 120)
        assert page.value("document.querySelector('.big').textContent") == str(label)
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        page.screenshot(SHOTS / "telephone.png")


def test_the_server_gives_these_files_and_no_others(page_files: Path, tmp_path: Path) -> None:
    model, _ = compiled("client-aided")
    with served(tmp_path, model) as told:
        url = told["page"]
        head, _ = asked(url, "/")
        assert (
            head["status"] == "200"
            and head["content-type"].startswith("text/html")
            and head["content-encoding"] == "gzip"
        )
        rules = head["content-security-policy"]
        assert "default-src 'none'" in rules and "unsafe-inline" not in rules and "http" not in rules
        assert (
            head["cross-origin-opener-policy"] == "same-origin"
            and head["cross-origin-embedder-policy"] == "require-corp"
        )
        assert head["x-content-type-options"] == "nosniff" and head["cache-control"] == "no-cache"
        assert asked(url, "/", f"If-None-Match: {head['etag']}")[0]["status"] == "304"
        assert asked(url, "/hushnet/wasm/hushnet_wasm_bg.wasm")[0]["content-type"] == "application/wasm"
        assert asked(url, "/page.js")[0]["content-type"].startswith("text/javascript")
        for path in (
            "/index.html",
            "/../pyproject.toml",
            "/hushnet/../../api.py",
            "/%2e%2e/api.py",
            "//etc/passwd",
            "/hushnet/",
        ):
            assert asked(url, path)[0]["status"] == "404", path
        upgrade = [
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        ]
        assert asked(url, "/ws", *upgrade, "Origin: https://elsewhere.example")[0]["status"] == "403"
    with hushnet.serve(model) as server:
        assert asked(f"http://127.0.0.1:{server.port}", "/")[0]["status"] == "404"


def test_the_page_is_told_public_facts_and_the_operators_words(page_files: Path) -> None:
    model, _ = compiled("two-party")
    image = {"name": "image", "shape": [1, 28, 28]}
    facts = {"name": "digits", "trust": "two-party", "inputs": [image], "classes": {}}
    assert about({"digits": model.plan}, DIGITS) == {**DIGITS, "models": [facts]}
    assert about({"digits": model.plan}, None, hidden=True) == {"title": "Ask a private question", "models": []}


def test_a_page_that_nobody_describes_names_the_classes_of_the_plan(browser: str, tmp_path: Path) -> None:
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    for target, of, wanted in ((names, "columns", names[-1]), (np.where(y == 2, "yes", "no"), None, "yes")):
        fitted = LogisticRegression(max_iter=500).fit(x, target)
        model = hushnet.from_sklearn(fitted, calibration=x, trust="client-aided", batch=1)
        assert hushnet.run(model, x[-1:]).label[0] == wanted
        (told,) = about({"iris": model.plan}, None)["models"]
        (found,) = told["classes"].values()
        assert sorted(found["names"]) == sorted(set(target)) and of in (found["of"], None)
        with served(tmp_path, model, described={}) as server, Page(server["page"]) as page:
            page.wait("document.querySelector('textarea')")
            page.value("document.querySelector('textarea').focus()")
            page.call("Input.insertText", text=" ".join(map(str, x[-1])))
            page.value("document.querySelector('#ask').click()")
            page.wait("document.body.dataset.done === '1'", 120)
            assert page.value("document.querySelector('.big').textContent") == wanted
            assert page.problems() == []


def about(*given: Any, **options: Any) -> Any:
    """What the page is told."""
    (found,) = (held for path, _, _, held in webpage.files(*given, **options) if path == "/about.json")
    return json.loads(gzip.decompress(found))


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ([], "wanted an object"),
        ({"colour": 1}, "no field 'colour'"),
        ({"title": ""}, "title is a short text"),
        ({"labels": []}, "labels is a list"),
        ({"scores": "loud"}, "scores is one of"),
        ({"examples": [{"name": "a"}]}, "examples is a list"),
        ({"input": {"std": [0.5, 0]}}, "input.std is a number"),
        ({"input": {"mean": [True]}}, "input.mean is a number"),
        ({"input": {"layout": "CWH"}}, "input.layout is one of"),
        ({"input": {"size": [0, 4]}}, "input.size is [height, width]"),
        ({"input": {"fill": 2}}, "input.fill is a share"),
        ({"input": {"crop": 2}}, "no field input.crop"),
        (DIGITS, ""),
    ],
)
def test_what_an_operator_writes_is_checked(described: Any, said: str, tmp_path: Path) -> None:
    found = webpage.problem(described)
    assert (said in found) if said else not found
    path = tmp_path / "input.json"
    path.write_text(json.dumps(described))
    if said:
        with pytest.raises(hushnet.InputError, match="--web-input"):
            webpage.read(path)
    else:
        assert webpage.read(path) == described


def test_the_page_has_no_script_and_no_style_in_its_text() -> None:
    """What its security policy would refuse, and third parties."""
    text = (WEB / "page/index.html").read_text()
    assert text.count("<script") == 1 and 'src="page.js"></script>' in text
    assert "style=" not in text and "<style" not in text and "onclick" not in text and "http" not in text
    for name in os.listdir(WEB / "page"):
        assert "https://" not in (WEB / "page" / name).read_text(), name
