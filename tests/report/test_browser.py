"""The report in a real browser, driven over a pipe by the DevTools protocol: no driver, no port, no network."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srjt.report.html import write_page
from srjt.report.study_page import study_page

BROWSER = next(
    filter(
        None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))
    ),
    None,
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome on the PATH"),
]
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",  # commands on descriptor 3, answers on 4
)
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
HOSTILE = "<img src=x onerror=alert(1)>.png"
PATIENCE = 60.0  # seconds until a silent browser counts as hung


class Browser:
    """One tab. Messages are JSON ended by a zero byte; answers carry the id of their question."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        theirs, self._to = os.pipe()
        self._from, answers = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs, answers)]  # neither may be 3 or 4
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, ends), BROWSER, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=ends,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs, answers, *ends):
            os.close(end)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            received = os.read(self._from, 1 << 16)
            assert received, "the browser has ended"
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path) -> None:
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def js(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """With the mouse, where the element is on the screen."""
        x, y = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: int) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._to)
        os.close(self._from)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def report(study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All methods of the paper; one of them has failed everywhere."""
    failed = {f"mixup quasi:0.2 {fold}": "failed" for fold in range(2)}
    made = study(folds=2, epochs=6, noises=("quasi:0.2",), source=HOSTILE, statuses=failed, patients=None)
    path = tmp_path_factory.mktemp("report") / "report <b>&.html"
    write_page(study_page(made), path)
    return path


@pytest.fixture
def tab(browser: Browser, report: Path) -> Iterator[Browser]:
    browser.open(report)
    yield browser
    browser.call("Emulation.clearDeviceMetricsOverride")
    browser.call("Emulation.setEmulatedMedia", media="", features=[])


def complaints(browser: Browser) -> list[Any]:
    wanted = {
        "Runtime.consoleAPICalled",
        "Runtime.exceptionThrown",
        "Log.entryAdded",
        "Page.javascriptDialogOpening",
    }
    return [event for event in browser.events if event.get("method") in wanted]


def test_it_opens_without_a_complaint_and_asks_for_nothing_else(tab: Browser, report: Path) -> None:
    assert tab.js("document.querySelector('h1').textContent") == "colitis"
    assert complaints(tab) == []
    asked = [
        e["params"]["request"]["url"] for e in tab.events if e.get("method") == "Network.requestWillBeSent"
    ]
    assert asked == [report.as_uri()]


TABLE = "document.querySelector('#tables table')"


def column(tab: Browser, number: int) -> list[str]:
    return tab.js(f"[...{TABLE}.tBodies[0].rows].map((row) => row.cells[{number}].textContent)")


def state(tab: Browser, number: int) -> str:
    return tab.js(f"{TABLE}.querySelectorAll('thead tr:last-child th')[{number}].getAttribute('aria-sort')")


def heading(number: int) -> str:
    return f"#tables table thead tr:last-child th:nth-child({number + 1}) button"


def test_a_click_sorts_best_first_then_worst_first_then_as_before(tab: Browser) -> None:
    before = column(tab, 0)
    assert before[0] == "Standard"
    seen = []
    for direction in ("descending", "ascending"):
        tab.click(heading(1))
        assert state(tab, 1) == direction
        *values, missing = column(tab, 1)
        assert missing == "–"  # the failed method stays last
        assert column(tab, 0)[-1] == "Mixup"
        seen.append([float(value.split()[0]) for value in values])
    assert len(seen[0]) == 13
    assert seen == [sorted(seen[0], reverse=True), sorted(seen[0])]
    tab.click(heading(1))
    assert state(tab, 1) == "none"
    assert column(tab, 0) == before


def test_lower_is_better_sorts_the_other_way_and_one_column_at_a_time(tab: Browser) -> None:
    tab.click(heading(1))
    tab.click(heading(2))  # MAE
    assert (state(tab, 1), state(tab, 2)) == ("none", "ascending")
    values = [float(value.split()[0]) for value in column(tab, 2)[:-1]]
    assert values == sorted(values)


def test_the_keyboard_sorts_too(tab: Browser) -> None:
    tab.js(f"{TABLE}.parentElement.focus()")
    tab.press("Tab", 9)
    assert tab.js(f"document.activeElement === document.querySelector({json.dumps(heading(0))})")
    tab.press("Enter", 13)
    assert state(tab, 0) == "ascending"
    names = column(tab, 0)
    assert names == sorted(names, key=str.lower)
    assert tab.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"  # the focus is seen


def test_a_hostile_file_name_stays_text(tab: Browser) -> None:
    assert HOSTILE in tab.js("[...document.querySelectorAll('#data dd')].map((e) => e.textContent)")
    assert tab.js("document.images.length") == 0
    tab.js("document.querySelector('.notes summary').click()")
    assert "<b>boom</b>" in tab.js("document.querySelector('.notes pre').textContent")
    assert complaints(tab) == []


def test_a_script_that_got_into_the_page_would_not_run(tab: Browser) -> None:
    tab.js(
        "{ const s = document.createElement('script'); s.textContent = 'window.evil = 1'; document.body.append(s); }"
    )
    assert tab.js("window.evil === undefined")
    tab.js("document.body.insertAdjacentHTML('beforeend', '<b id=b onclick=\"window.evil = 1\">x</b>')")
    tab.click("#b")
    assert tab.js("window.evil === undefined")


def test_a_telephone_is_wide_enough(tab: Browser) -> None:
    tab.call("Emulation.setDeviceMetricsOverride", width=375, height=800, deviceScaleFactor=1, mobile=True)
    assert tab.js("innerWidth") == 375
    assert tab.js("document.documentElement.scrollWidth") == 375
    overflowing = (
        "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth).length"
    )
    assert tab.js(overflowing) > 0  # tables scroll inside their frames
    sizes = "[...document.querySelectorAll('figure text')].map((e) => e.getBoundingClientRect().height)"
    assert min(tab.js(sizes)) > 7  # pixels


CONTRAST = """(() => {
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).map((c) => linear(Number(c) / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = light(getComputedStyle(document.documentElement).backgroundColor);
  const ratio = (colour) => (Math.max(page, light(colour)) + 0.05) / (Math.min(page, light(colour)) + 0.05);
  const style = (selector, name) => [...document.querySelectorAll(selector)].map((e) => getComputedStyle(e)[name]);
  const words = style('p, dt, dd, td, th, figcaption, summary, a', 'color');
  const labels = style('figure.usual text', 'fill');
  return [page, Math.min(...words.map(ratio)), Math.min(...labels.map(ratio)), labels.length];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_figures_are_legible_by_day_and_by_night(tab: Browser, scheme: str) -> None:
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page, words, labels, count = tab.js(CONTRAST)
    assert (page > 0.8) == (scheme == "light")
    assert words >= 4.5  # WCAG AA
    assert labels >= 4.5
    assert count > 30


def test_it_prints_on_white_with_everything_open(tab: Browser) -> None:
    tab.call("Emulation.setEmulatedMedia", media="print",
             features=[{"name": "prefers-color-scheme", "value": "dark"}])  # fmt: skip
    assert tab.js("getComputedStyle(document.documentElement).color") == "rgb(28, 27, 26)"
    pdf = base64.b64decode(tab.call("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert tab.js("document.querySelector('#runs details').open")
    assert not tab.js("document.querySelector('.notes details').open")  # tracebacks are not for paper
