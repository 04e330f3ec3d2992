"""A headless Chromium, driven by chromedriver's own protocol (W3C WebDriver) on loopback."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One page of a browser."""

    def __init__(self, session_url: str) -> None:
        self._url = session_url

    def open(self, page: Path) -> None:
        _ask("POST", f"{self._url}/url", {"url": page.absolute().as_uri()})

    def click(self, selector: str) -> None:
        """Click the first element that a CSS selector finds."""
        found = _ask("POST", f"{self._url}/element", {"using": "css selector", "value": selector})
        _ask("POST", f"{self._url}/element/{found[_ELEMENT]}/click", {})

    def run(self, script: str) -> Any:
        """Return what the body of a JavaScript function returns."""
        return _ask("POST", f"{self._url}/execute/sync", {"script": script, "args": []})


@contextmanager
def browsing(directory: Path) -> Iterator[Browser]:
    """Start a browser whose profile is in *directory*, and end it; skip the test without one."""
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
    if driver is None or chromium is None:
        pytest.skip("needs chromium and chromedriver on the PATH")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        root = f"http://127.0.0.1:{port}"
        while not _is_ready(root):
            assert process.poll() is None, "chromedriver ended"
            time.sleep(0.05)
        chrome = {"binary": chromium, "args": [*_OPTIONS, f"--user-data-dir={directory / 'profile'}"]}
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": chrome}}}
        session = f"{root}/session/{_ask('POST', f'{root}/session', wanted)['sessionId']}"
        yield Browser(session)
        _ask("DELETE", session, None)
    finally:
        process.terminate()
        process.wait()


def _is_ready(root: str) -> bool:
    try:
        return bool(_ask("GET", f"{root}/status", None)["ready"])
    except OSError:
        return False


def _ask(method: str, url: str, body: object) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - as above
        return json.load(response)["value"]
