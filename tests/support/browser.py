"""A headless Chromium over its debugging pipe: one page at a time, at any width, light or dark."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """The path of an installed Chromium."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """The protocol: messages as JSON, a zero byte after each, over two pipes."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._count = 0
        self._read = b""
        self._session: dict[str, str] = {}

    def open_page(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> Any:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params, **self._session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def wait_for(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            chunk = os.read(self._back, 1 << 20)
            assert chunk, "Chromium has gone"
            self._read += chunk
        line, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def show(self, path: Path, width: int, *, is_dark: bool) -> None:
        """Load a file at a width."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=True)
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("Page.loadEventFired")

    def evaluate(self, script: str) -> Any:
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"]["value"]

    def screenshot(self, top: float, height: float, width: int, scale: float = 1.0) -> bytes:
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": scale}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium, and end it and its profile."""
    to_child, to = os.pipe()
    back, from_child = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_child, from_child))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Chromium reads from descriptor 3 and writes to 4.
        start = ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "bash", str(find()), *FLAGS]
        process = subprocess.Popen(
            [*start, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (to_child, from_child, read, write):
            os.close(end)
        try:
            made = Browser(to, back)
            made.open_page()
            yield made
        finally:
            process.kill()
            process.wait()
            os.close(to)
            os.close(back)
