"""``python -m tests.walk [--json] [--keep FOLDER]``: a stranger's walk, from an own model to a browser's answer.

What docs/getting-started.md shows runs as it is written, in its order and in an empty folder, with the ``hushnet`` that
is given: of a wheel (``--hushnet out/.demo/bin/hushnet``), or that of this environment. Servers run beside the commands
behind them. In the end a headless Chromium opens the page of ``serve --web``, is given the row that ``run`` was given,
and must show the same label. Status 1 where a step fails.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from tests.chromium import Page, program

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/getting-started.md"


def parts(text: str) -> list[tuple[str, str]]:
    """Blocks of the page with their language: "" for commands."""
    return re.findall(r"^```([a-z]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


class Walk:
    """The steps so far, in a folder."""

    def __init__(self, folder: Path, hushnet: Path) -> None:
        self.folder, self.hushnet, self.steps = folder, hushnet, []
        self.python = hushnet.with_name("python")
        self.server: subprocess.Popen[bytes] | None = None

    def step(self, what: str, command: list[str]) -> str:
        """Runs one command, and what it said."""
        start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=900)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        entry: dict[str, Any] = {
            "step": what,
            "seconds": round(time.monotonic() - start, 1),
            "processor_seconds": round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 1),
            "status": done.returncode,
        }
        if done.returncode:
            entry["said"] = (done.stderr or done.stdout)[-1500:]
        self.steps.append(entry)
        return done.stdout

    def serve(self, words: list[str]) -> bool:
        """A server in the place of the one before, once it answers; whether it does."""
        self.stop()
        address = words[words.index("--listen") + 1]
        start = time.monotonic()
        with open(self.folder / "server.log", "ab") as log:
            self.server = subprocess.Popen([str(self.hushnet), *words], cwd=self.folder, stdout=log, stderr=log)
        alive = False
        while not alive and self.server.poll() is None and time.monotonic() < start + 120:
            try:
                with urllib.request.urlopen(f"http://{address}/livez", timeout=2) as answer:
                    alive = answer.status == 200
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        entry = {"step": shlex.join(["hushnet", *words]), "seconds": round(time.monotonic() - start, 1)}
        self.steps.append(entry | {"status": 0 if alive else 1})
        return alive

    def stop(self) -> None:
        """Ends the server, if one runs."""
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=60)
            self.server = None

    def ask(self, address: str, shot: Path) -> None:
        """Gives the page the row that the commands had; its label must be that of ``run``."""
        code = "import hushnet, numpy; print(hushnet.run('private.hush', numpy.load('image.npy')).label[0])"
        wanted = self.step("the label by Python", [str(self.python), "-c", code]).strip()
        row = np.load(self.folder / "image.npy").ravel()
        start = time.monotonic()
        with Page(address) as page:
            page.wait("document.querySelector('[data-way=numbers]')")
            page.value(
                "document.querySelector('[data-way=numbers]').click(); document.querySelector('textarea').focus()"
            )
            page.call("Input.insertText", text=" ".join(map(str, row.tolist())))
            page.value("document.querySelector('#ask').click()")
            page.wait("document.body.dataset.done === '1'", 300)
            shown = page.value("document.querySelector('.big').textContent")
            sent = page.value("document.querySelector('#up').textContent")
            problems = page.problems()
            page.screenshot(shot)
        entry = {"step": "ask from the browser", "seconds": round(time.monotonic() - start, 1), "sent": sent}
        entry |= {"answer": shown, "wanted": wanted, "screenshot": str(shot)}
        self.steps.append(entry | {"status": int(shown != wanted or bool(problems)), "problems": problems})


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def walk(hushnet: Path, folder: Path) -> list[dict[str, Any]]:
    """Everything that the page shows behind the installation, and the browser."""
    text = PAGE.read_text(encoding="utf-8").replace("127.0.0.1:8765", f"127.0.0.1:{(port := free_port())}")
    on = Walk(folder, hushnet)
    try:
        for language, block in parts(text[text.index("## A model and samples") :]):
            if language == "python":
                on.stop()
                on.step("Python: " + block.splitlines()[0], [str(on.python), "-c", block])
                continue
            for line in block.strip().splitlines():
                words = shlex.split(line, comments=True)[1:]
                if words[0] != "serve":
                    on.step(shlex.join(["hushnet", *words]), [str(hushnet), *words])
                    continue
                if on.serve(words) and "--web" in words and program():
                    on.ask(f"http://127.0.0.1:{port}/", folder / "page.png")
    finally:
        on.stop()
    return on.steps


def main(arguments: list[str]) -> int:
    """Walks, prints, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.walk")
    parser.add_argument("--hushnet", type=Path, default=Path(sys.executable).with_name("hushnet"), metavar="PROGRAM")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty folder for the files, which stay")
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="hushnet-walk-") as place:
        folder = given.keep or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        steps = walk(given.hushnet.absolute(), folder)
    whole = {
        "steps": steps,
        "seconds": round(sum(s["seconds"] for s in steps), 1),
        "browser": bool(program()),
        "stuck": [s["step"] for s in steps if s["status"]],
    }
    if given.json:
        sys.stdout.write(json.dumps(whole, indent=2) + "\n")
    else:
        for s in steps:
            sys.stdout.write(f"{'ok' if not s['status'] else 'STUCK'}  {s['seconds']:6.1f} s  {s['step']}\n")
    return bool(whole["stuck"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
