"""A real browser, driven over a pipe by the DevTools protocol: no driver, no port, no network."""

import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="needs chromium or google-chrome on the PATH"
)
OFF = ("gpu", "quic", "background-networking", "component-update", "sync", "dev-shm-usage")
FLAGS = ("--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in OFF))
FLAGS += ("--remote-debugging-pipe",)  # commands on descriptor 3, answers on 4
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE = 60.0  # seconds until a silent browser counts as hung
COMPLAINTS = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
COMPLAINTS |= {"Page.javascriptDialogOpening"}
CODES = {
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
    "ArrowLeft": 37,
    "ArrowRight": 39,
}  # of keys without a letter


class NavigatedError(AssertionError):
    """The page went elsewhere while it was asked."""


class Browser:
    """One browser. Messages are JSON ended by a zero byte; answers carry the id of their
    question."""

    def __init__(self, profile: Path) -> None:
        theirs, self._to = os.pipe()
        self._from, answers = os.pipe()
        ends = [
            fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs, answers)
        ]  # neither may be 3 or 4
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                LAUNCH,
                *map(str, ends),
                BROWSER,
                *FLAGS,
                f"--user-data-dir={profile}",
            ],
            pass_fds=ends,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs, answers, *ends):
            os.close(end)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._tabs: dict[str, Tab] = {}

    def tab(self) -> "Tab":
        target = self.call(None, "Target.createTarget", url="about:blank")["targetId"]
        session = self.call(None, "Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        self._tabs[session] = opened = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            opened.call(f"{domain}.enable")
        return opened

    def call(self, session: str | None, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self.receive(until)
            if answer.get("id") == number:
                if "navigated or closed" in answer.get("error", {}).get("message", ""):
                    raise NavigatedError(answer)
                assert "error" not in answer, answer
                return answer["result"]

    def receive(self, until: float) -> dict[str, Any]:
        """The next message; an event is also noted with its tab."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            received = os.read(self._from, 1 << 16)
            assert received, "the browser has ended"
            self._buffer += received
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "id" not in message and message.get("sessionId") in self._tabs:
            self._tabs[message["sessionId"]].events.append(message)
        return message

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._to)
        os.close(self._from)


class Tab:
    """What a person does in one tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(self._session, method, **params)

    def open(self, where: Path | str) -> None:
        self.events.clear()
        self.call("Page.navigate", url=where.as_uri() if isinstance(where, Path) else where)
        until = time.monotonic() + PATIENCE
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self._browser.receive(until)

    def js(self, expression: str) -> Any:
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true; the page may be loading meanwhile."""
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(NavigatedError):
                answer = self.call(
                    "Runtime.evaluate", expression=f"Boolean({condition})", returnByValue=True
                )
                if answer["result"].get("value") is True:
                    return
            assert time.monotonic() < until, f"never true: {condition}"
            time.sleep(0.01)

    def click(self, selector: str, *, times: int = 1) -> None:
        """With the mouse, where the element is on the screen."""
        x, y = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call(
                    "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count
                )

    def press(self, key: str) -> None:
        code = CODES.get(key) or (ord(key.upper()) if key.isalnum() else 0)
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else None)
        typed = {} if text is None else {"text": text}
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **typed
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def complaints(self) -> list[Any]:
        """Whatever the console or the browser had to say about the page."""
        return [event for event in self.events if event.get("method") in COMPLAINTS]

    def asked(self) -> list[str]:
        """The addresses that the page wanted something from."""
        asked = (e for e in self.events if e.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in asked]

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **size)


# how light the page is, and every visible text with its contrast to what is behind it; in figures
# that of labels
CONTRAST = """(() => {
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return light(colour);
    }
  };
  const texts = [];
  for (const e of document.body.querySelectorAll('*')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const left = e.closest(':disabled, #zoom-tools, #toast, script, style, figure:not(.usual) svg');
    if (!own || left || !e.checkVisibility()) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(parse(e.closest('svg') ? style.fill : style.color)), ground(e)];
    texts.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent]);
  }
  return [ground(document.documentElement), texts];
})()"""
