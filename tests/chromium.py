"""A headless Chromium over its debugging pipe (Chrome DevTools Protocol): no package beside the browser itself."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str:
    """Where a Chromium is; "": there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), "")


class Page:
    """A page of a browser of its own, which ends with the block."""

    def __init__(self, url: str, width: int = 1180, height: int = 960, dark: bool = False) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="hushnet-chromium-", ignore_cleanup_errors=True)
        (self.read, theirs_out), (theirs_in, self.write) = os.pipe(), os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        shell = f'exec 3<&{theirs_in} 4>&{theirs_out} && exec "$@"'
        command = [
            "bash", "-c", shell, "bash", program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-pipe",
            "--hide-scrollbars", f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}",
            "about:blank",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.pending, self.number, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        scheme = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=url)

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.read)
        os.close(self.write)
        self.profile.cleanup()

    def _message(self, until: float) -> dict[str, Any]:
        while b"\0" not in self.pending:
            assert time.monotonic() < until, "the browser is silent"
            piece = os.read(self.read, 1 << 16)
            assert piece, "the browser ended"
            self.pending += piece
        text, _, self.pending = self.pending.partition(b"\0")
        return dict(json.loads(text))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command; what the browser tells meanwhile is kept in ``events``."""
        self.number += 1
        command: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.write, json.dumps(command).encode() + b"\0")
        until = time.monotonic() + 120
        while (told := self._message(until)).get("id") != self.number:
            self.events.append(told)
        assert "error" not in told, (method, told["error"])
        return dict(told["result"])

    def value(self, expression: str) -> Any:
        """What a piece of JavaScript gives; promises are waited for."""
        told = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, expression: str, seconds: float = 60) -> None:
        """Waits until a piece of JavaScript gives something that is true."""
        until = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < until, (expression, self.value("document.body.innerText"), self.problems())
            time.sleep(0.05)

    def problems(self) -> list[str]:
        """Errors that the page had, and what its security policy refused."""
        texts = [
            json.dumps(e["params"])
            for e in self.events
            if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded") and "favicon" not in json.dumps(e)
        ]
        return [t for t in texts if not re.search(r'"level": "(info|verbose|warning)"', t)]

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def _of_browser(self, method: str) -> dict[str, Any]:
        """The answer to a command that no page takes."""
        page, self.session = self.session, ""
        try:
            return self.call(method)
        finally:
            self.session = page

    def processor(self) -> float:
        """Processor seconds of all renderers so far; a page's workers are in them."""
        found = self._of_browser("SystemInfo.getProcessInfo")["processInfo"]
        return sum(float(p["cpuTime"]) for p in found if p["type"] == "renderer")

    def workers(self) -> float:
        """Processor seconds of the threads of pages' workers so far, where the system tells of threads (Linux)."""
        found = self._of_browser("SystemInfo.getProcessInfo")["processInfo"]
        ticks = 0
        for process in (p["id"] for p in found if p["type"] == "renderer"):
            for thread in Path(f"/proc/{process}/task").glob("*/stat"):
                name, _, rest = thread.read_text().rpartition(")")
                if "DedicatedWorker" in name:
                    ticks += sum(map(int, rest.split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def version(self) -> str:
        """Name and version of the browser."""
        return str(self._of_browser("Browser.getVersion")["product"])

    def stroke(self, selector: str, points: list[tuple[float, float]]) -> None:
        """Draws along points, shares of an element's box, with the pointer."""
        box = self.value(
            "(({x, y, width, height}) => [x, y, width, height])"
            f"(document.querySelector({selector!r}).getBoundingClientRect())"
        )
        places = [{"x": box[0] + u * box[2], "y": box[1] + v * box[3]} for u, v in points]
        for kind, place in [
            ("mousePressed", places[0]),
            *(("mouseMoved", p) for p in places),
            ("mouseReleased", places[-1]),
        ]:
            self.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **place)

    def screenshot(self, path: Path) -> None:
        """Writes a picture of what is seen of the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))
