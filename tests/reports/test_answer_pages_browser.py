"""The pages of predictions, of an evaluation and of a training in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import srjt
from browser import Browser, Tab, needs_browser
from reports.test_browser import CONTRAST
from srjt.reports.page import write_page
from srjt.reports.pages.run import run_page

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser.tab()
    browser.close()


@pytest.fixture(scope="module")
def pages(run_with_images: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, new = tmp_path_factory.mktemp("pages"), run_with_images.parent / "set"
    run = srjt.load_run(run_with_images, device="cpu")
    table = srjt.predict(run, new, coverage=0.9, refer_from=2)
    found = srjt.evaluate(run, new / "labels.csv", resamples=20, coverage=0.9, refer_from=2, abstain=0.2)
    srjt.report(table, run=run, out=folder / "predictions.html")
    srjt.report(found, run=run, out=folder / "evaluation.html")
    write_page(run_page(run_with_images), folder / "run.html")
    write_page(run_page(run_with_images, live="training", messages=["a message"]), folder / "live.html")
    srjt.compare(run, run, resamples=20).report().save(folder / "comparison.html")
    srjt.explain(run, new).report().save(folder / "explanation.html")
    return {path.stem: path for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["predictions", "evaluation", "run", "live", "comparison", "explanation"])
def test_it_opens_alone_is_legible_and_fits_a_telephone(tab: Tab, pages: dict[str, Path], name: str) -> None:
    for scheme in ("light", "dark"):
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.open(pages[name])
        assert tab.complaints() == []
        asked = [address for address in tab.asked() if not address.startswith("data:")]  # its pictures
        assert asked == [pages[name].as_uri()]
        page, words, *_ = tab.js(CONTRAST)
        assert (page > 0.8) == (scheme == "light")
        assert words >= 4.5  # WCAG AA
    tab.resize(375, 800, mobile=True)
    assert tab.js("document.documentElement.scrollWidth") == 375
    tab.call("Emulation.clearDeviceMetricsOverride")


ACCESSIBLE = """
(() => {
  const levels = [...document.querySelectorAll("h1, h2, h3")].map((h) => Number(h.tagName[1]));
  const jumps = levels.filter((level, k) => k && level > levels[k - 1] + 1);
  const pictures = [...document.querySelectorAll("img")].filter((i) => !i.alt && !i.closest("[aria-hidden]"));
  const drawings = [...document.querySelectorAll("svg[role=img]")].filter((s) => !s.getAttribute("aria-label"));
  const scrolled = [...document.querySelectorAll(".scroll")].filter((s) => s.tabIndex < 0 || !s.ariaLabel);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  const repeated = ids.filter((id, k) => ids.indexOf(id) !== k);
  const dead = [...document.querySelectorAll("nav a")].filter((a) => !document.querySelector(a.getAttribute("href")));
  return { first: levels[0], once: levels.filter((l) => l === 1).length, jumps: jumps.length, pictures: pictures.length,
           drawings: drawings.length, scrolled: scrolled.length, repeated, dead: dead.length };
})()
"""


@pytest.mark.parametrize("name", ["predictions", "evaluation", "run", "live", "comparison", "explanation"])
def test_headings_texts_for_pictures_and_keyboard(tab: Tab, pages: dict[str, Path], name: str) -> None:
    tab.open(pages[name])
    assert tab.js(ACCESSIBLE) == {
        "first": 1, "once": 1, "jumps": 0, "pictures": 0, "drawings": 0, "scrolled": 0, "repeated": [], "dead": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (400, 800)])
@pytest.mark.parametrize("name", ["evaluation", "run", "comparison"])
def test_verdict_key_numbers_and_figure_are_on_the_first_screen(
    tab: Tab, pages: dict[str, Path], name: str, width: int, height: int
) -> None:
    tab.resize(width, height, mobile=width < 500)
    tab.open(pages[name])
    tops = [
        tab.js(f"document.querySelector('{selector}').getBoundingClientRect().top")
        for selector in (".lead", ".key-numbers", ".first figure")
    ]
    tab.call("Emulation.clearDeviceMetricsOverride")
    assert max(tops) < height
