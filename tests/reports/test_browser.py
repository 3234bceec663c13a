"""Every page in a real browser: by eye, by keyboard, on a telephone and on paper."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import srjt
from browser import CONTRAST, Browser, Tab, needs_browser
from srjt.data.grades import Grades
from srjt.data.sources.readings import combine, read_readings
from srjt.inference.sample_size import plan
from srjt.readers import agreement
from srjt.reports.page import write_page
from srjt.reports.pages.readers import readers_page
from srjt.reports.pages.run import run_page
from srjt.reports.pages.study import study_page

pytestmark = [pytest.mark.slow, needs_browser]
HOSTILE = "<img src=x onerror=alert(1)>.png"
SMALL = {"network": "tiny", "image_size": 32, "crop": 28, "batch_size": 16, "device": "cpu"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser.tab()
    browser.close()


@pytest.fixture(scope="module")
def report(study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All methods of the paper; one of them has failed everywhere."""
    failed = {f"mixup quasi:0.2 {fold}": "failed" for fold in range(2)}
    made = study(
        folds=2, epochs=6, noises=("quasi:0.2",), source=HOSTILE, statuses=failed, patients=None
    )
    path = tmp_path_factory.mktemp("report") / "report <b>&.html"
    write_page(study_page(made), path)
    return path


@pytest.fixture
def tab(page: Tab, report: Path) -> Iterator[Tab]:
    page.open(report)
    yield page
    page.call("Emulation.clearDeviceMetricsOverride")
    page.call("Emulation.setEmulatedMedia", media="", features=[])


TABLE = "document.querySelector('#tables table')"


def column(tab: Tab, number: int) -> list[str]:
    return tab.js(f"[...{TABLE}.tBodies[0].rows].map((row) => row.cells[{number}].textContent)")


def state(tab: Tab, number: int) -> str:
    return tab.js(
        f"{TABLE}.querySelectorAll('thead tr:last-child th')[{number}].getAttribute('aria-sort')"
    )


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
    tab.click(heading(1))
    tab.click(heading(2))  # MAE: lower is better, and one column sorts at a time
    assert (state(tab, 1), state(tab, 2)) == ("none", "ascending")
    errors = [float(value.split()[0]) for value in column(tab, 2)[:-1]]
    assert errors == sorted(errors)


def test_the_keyboard_sorts_too(tab: Tab) -> None:
    tab.js(f"{TABLE}.parentElement.focus()")
    tab.press("Tab")
    assert tab.js(f"document.activeElement === document.querySelector({json.dumps(heading(0))})")
    tab.press("Enter")
    assert state(tab, 0) == "ascending"
    names = column(tab, 0)
    assert names == sorted(names, key=str.lower)
    assert (
        tab.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    )  # the focus is seen


def test_a_hostile_file_name_stays_text_and_a_script_would_not_run(tab: Tab) -> None:
    assert HOSTILE in tab.js("[...document.querySelectorAll('#data dd')].map((e) => e.textContent)")
    assert tab.js("document.images.length") == 0
    tab.js("document.querySelector('.notes summary').click()")
    assert "<b>boom</b>" in tab.js("document.querySelector('.notes pre').textContent")
    assert tab.complaints() == []
    tab.js(
        "{ const s = document.createElement('script'); s.textContent = 'window.evil = 1'; document.body.append(s); }"
    )
    tab.js(
        "document.body.insertAdjacentHTML('beforeend', '<b id=b onclick=\"window.evil = 1\">x</b>')"
    )
    tab.click("#b")
    assert tab.js("window.evil === undefined")


def test_a_telephone_is_wide_enough(tab: Tab) -> None:
    tab.resize(375, 800, mobile=True)
    assert tab.js("innerWidth") == 375
    assert tab.js("document.documentElement.scrollWidth") == 375
    overflowing = "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth).length"
    assert tab.js(overflowing) > 0  # tables scroll inside their frames
    sizes = (
        "[...document.querySelectorAll('figure text')].map((e) => e.getBoundingClientRect().height)"
    )
    assert min(tab.js(sizes)) > 7  # pixels


@pytest.fixture(scope="module")
def pages(
    run_with_images: Path, report: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Every kind of page, with everything on it."""
    folder, new = tmp_path_factory.mktemp("pages"), run_with_images.parent / "set"
    run = srjt.load_run(run_with_images, device="cpu")
    table = srjt.predict(run, new, coverage=0.9, refer_from=2)
    found = srjt.evaluate(
        run, new / "labels.csv", resamples=20, coverage=0.9, refer_from=2, abstain=0.2
    )
    rows = [
        (f"i{n}", who, str((n + k * (n % 3 == 0)) % 4))
        for n in range(40)
        for k, who in enumerate("abc")
    ]
    pd.DataFrame(rows, columns=["item", "reader", "grade"]).to_csv(
        folder / "readings.csv", index=False
    )
    read = read_readings(folder / "readings.csv")
    agreed, agree = combine(read.readings), agreement(read.readings)
    shown = {
        "run": run_page(run_with_images),
        "predictions": srjt.report(table),
        "evaluation": srjt.report(found),
        "live": run_page(run_with_images, live="training"),
        "comparison": srjt.report(srjt.compare(run, run, resamples=20)),
        "explanation": srjt.report(srjt.explain(run, new)),
        "audit": srjt.report(
            srjt.audit(new / "labels.csv", out=folder / "audit", folds=2, epochs=1, **SMALL)
        ),
        "readers": readers_page(
            read, agree, agreed, source="readings.csv", grades=Grades(read.readings.grades)
        ),
        "agreement": srjt.report(agree),
        "consensus": srjt.report(agreed),
        "plan": srjt.report(plan(metric="sensitivity", value=0.9, half_width=0.05)),
    }
    for name, page in shown.items():
        write_page(page, folder / f"{name}.html")
    return {"study": report, **{path.stem: path for path in folder.glob("*.html")}}


PAGES = (
    "study", "predictions", "evaluation", "run", "live", "comparison", "explanation", "audit", "readers",
    "agreement", "consensus", "plan",
)  # fmt: skip
ACCESSIBLE = """(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const levels = all("h1, h2, h3").map((h) => Number(h.tagName[1]));
  const ids = all("[id]").map((e) => e.id);
  return {
    "one h1, first": levels[0] === 1 && levels.filter((l) => l === 1).length === 1,
    "levels left out": levels.filter((level, k) => k && level > levels[k - 1] + 1).length,
    "without text": all("img").filter((i) => !i.alt).length
      + all("svg[role=img]").filter((s) => !s.getAttribute("aria-label")).length,
    "not for the keyboard": all("a, button, summary, .scroll, pre")
      .filter((e) => e.tabIndex < 0 || (e.matches(".scroll") && !e.ariaLabel)).length,
    "ids twice": ids.filter((id, k) => ids.indexOf(id) !== k),
    "dead links": all("nav a").filter((a) => !document.querySelector(a.getAttribute("href"))).length,
    "without language": document.documentElement.lang !== "en",
  };
})()"""


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_for_everybody(page: Tab, pages: dict[str, Path], name: str) -> None:
    for scheme in ("light", "dark"):
        page.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        page.open(pages[name])
        page.js("document.querySelectorAll('details').forEach((folded) => { folded.open = true; })")
        background, texts = page.js(CONTRAST)
        assert (background > 0.8) == (scheme == "light")
        assert [text for text in texts if text[0] < 4.5] == []  # WCAG AA
    assert page.complaints() == []
    asked = [address for address in page.asked() if not address.startswith("data:")]  # its pictures
    assert asked == [pages[name].as_uri()]
    assert page.js(ACCESSIBLE) == {
        "one h1, first": True, "levels left out": 0, "without text": 0, "not for the keyboard": 0, "ids twice": [],
        "dead links": 0, "without language": False,
    }  # fmt: skip
    page.press("Tab")
    assert (
        page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    )  # the focus is seen
    for width in (1280, 375):
        page.resize(width, 800, mobile=width < 500)
        page.open(pages[name])
        assert page.js("document.documentElement.scrollWidth") <= width
        tops = page.js(
            "['.lead', '.first'].map((s) => document.querySelector(s)?.getBoundingClientRect().top ?? 0)"
        )
        assert max(tops) < 800  # verdict, numbers and figure begin on the first screen
    page.call("Emulation.clearDeviceMetricsOverride")
    page.call("Emulation.setEmulatedMedia", media="", features=[])


def test_a_long_path_is_cut_off_at_its_beginning(page: Tab, pages: dict[str, Path]) -> None:
    page.open(pages["explanation"])
    last_character_is_visible = """(() => {
      const caption = document.querySelector('.tiles .who');
      caption.firstElementChild.textContent = 'a/very/long/path/' + 'x'.repeat(80) + '/image_017.png';
      const text = caption.firstElementChild.firstChild;
      const range = document.createRange();
      range.setStart(text, text.length - 1);
      range.setEnd(text, text.length);
      const [inner, outer] = [range.getBoundingClientRect(), caption.getBoundingClientRect()];
      const inside = inner.width > 0 && inner.left >= outer.left && inner.right <= outer.right + 1;
      return caption.scrollWidth > caption.clientWidth && inside;
    })()"""
    assert page.js(last_character_is_visible)


def test_it_prints_on_white_with_everything_open(tab: Tab) -> None:
    tab.call("Emulation.setEmulatedMedia", media="print",
             features=[{"name": "prefers-color-scheme", "value": "dark"}])  # fmt: skip
    assert tab.js("getComputedStyle(document.documentElement).color") == "rgb(28, 27, 26)"
    pdf = base64.b64decode(tab.call("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert tab.js("document.querySelector('#runs details').open")
    assert not tab.js(
        "document.querySelector('.notes details').open"
    )  # tracebacks are not for paper
    # on the width of A4 without its margins no table is cut
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=673,
        height=1000,
        deviceScaleFactor=1,
        mobile=False,
    )
    right = "[...document.querySelectorAll('table, svg, pre')].map((e) => e.getBoundingClientRect().right)"
    assert max(tab.js(right)) <= tab.js("document.documentElement.clientWidth") + 1
