"""The report in a real browser."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser, Tab, needs_browser
from srjt.reports.page import write_page
from srjt.reports.pages.study import study_page

pytestmark = [pytest.mark.slow, needs_browser]
HOSTILE = "<img src=x onerror=alert(1)>.png"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser.tab()
    browser.close()


@pytest.fixture(scope="module")
def report(study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All methods of the paper; one of them has failed everywhere."""
    failed = {f"mixup quasi:0.2 {fold}": "failed" for fold in range(2)}
    made = study(folds=2, epochs=6, noises=("quasi:0.2",), source=HOSTILE, statuses=failed, patients=None)
    path = tmp_path_factory.mktemp("report") / "report <b>&.html"
    write_page(study_page(made), path)
    return path


@pytest.fixture
def tab(page: Tab, report: Path) -> Iterator[Tab]:
    page.open(report)
    yield page
    page.call("Emulation.clearDeviceMetricsOverride")
    page.call("Emulation.setEmulatedMedia", media="", features=[])


def test_it_opens_without_a_complaint_and_asks_for_nothing_else(tab: Tab, report: Path) -> None:
    assert "colitis" in tab.js("document.querySelector('.kind').textContent")
    assert tab.complaints() == []
    assert tab.asked() == [report.as_uri()]


TABLE = "document.querySelector('#tables table')"


def column(tab: Tab, number: int) -> list[str]:
    return tab.js(f"[...{TABLE}.tBodies[0].rows].map((row) => row.cells[{number}].textContent)")


def state(tab: Tab, number: int) -> str:
    return tab.js(f"{TABLE}.querySelectorAll('thead tr:last-child th')[{number}].getAttribute('aria-sort')")


def heading(number: int) -> str:
    return f"#tables table thead tr:last-child th:nth-child({number + 1}) button"


def test_a_click_sorts_best_first_then_worst_first_then_as_before(tab: Tab) -> None:
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


def test_lower_is_better_sorts_the_other_way_and_one_column_at_a_time(tab: Tab) -> None:
    tab.click(heading(1))
    tab.click(heading(2))  # MAE
    assert (state(tab, 1), state(tab, 2)) == ("none", "ascending")
    values = [float(value.split()[0]) for value in column(tab, 2)[:-1]]
    assert values == sorted(values)


def test_the_keyboard_sorts_too(tab: Tab) -> None:
    tab.js(f"{TABLE}.parentElement.focus()")
    tab.press("Tab")
    assert tab.js(f"document.activeElement === document.querySelector({json.dumps(heading(0))})")
    tab.press("Enter")
    assert state(tab, 0) == "ascending"
    names = column(tab, 0)
    assert names == sorted(names, key=str.lower)
    assert tab.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"  # the focus is seen


def test_a_hostile_file_name_stays_text(tab: Tab) -> None:
    assert HOSTILE in tab.js("[...document.querySelectorAll('#data dd')].map((e) => e.textContent)")
    assert tab.js("document.images.length") == 0
    tab.js("document.querySelector('.notes summary').click()")
    assert "<b>boom</b>" in tab.js("document.querySelector('.notes pre').textContent")
    assert tab.complaints() == []


def test_a_script_that_got_into_the_page_would_not_run(tab: Tab) -> None:
    tab.js(
        "{ const s = document.createElement('script'); s.textContent = 'window.evil = 1'; document.body.append(s); }"
    )
    assert tab.js("window.evil === undefined")
    tab.js("document.body.insertAdjacentHTML('beforeend', '<b id=b onclick=\"window.evil = 1\">x</b>')")
    tab.click("#b")
    assert tab.js("window.evil === undefined")


def test_a_telephone_is_wide_enough(tab: Tab) -> None:
    tab.resize(375, 800, mobile=True)
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
def test_text_and_figures_are_legible_by_day_and_by_night(tab: Tab, scheme: str) -> None:
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page, words, labels, count = tab.js(CONTRAST)
    assert (page > 0.8) == (scheme == "light")
    assert words >= 4.5  # WCAG AA
    assert labels >= 4.5
    assert count > 30


def test_it_prints_on_white_with_everything_open(tab: Tab) -> None:
    tab.call("Emulation.setEmulatedMedia", media="print",
             features=[{"name": "prefers-color-scheme", "value": "dark"}])  # fmt: skip
    assert tab.js("getComputedStyle(document.documentElement).color") == "rgb(28, 27, 26)"
    pdf = base64.b64decode(tab.call("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert tab.js("document.querySelector('#runs details').open")
    assert not tab.js("document.querySelector('.notes details').open")  # tracebacks are not for paper
    # on the width of A4 without its margins no table is cut
    tab.call("Emulation.setDeviceMetricsOverride", width=673, height=1000, deviceScaleFactor=1, mobile=False)
    right = "[...document.querySelectorAll('table, svg, pre')].map((e) => e.getBoundingClientRect().right)"
    assert max(tab.js(right)) <= tab.js("document.documentElement.clientWidth") + 1
