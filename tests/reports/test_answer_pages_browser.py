"""The pages of predictions, of an evaluation and of a training in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import srjt
from browser import Browser, Tab, needs_browser
from reports.test_browser import CONTRAST
from srjt.reports.page import write_page
from srjt.reports.pages.run import live_page

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
    finished = live_page(run_with_images, state="finished", messages=["a message"], link="predictions.html")
    write_page(finished, folder / "live.html")
    return {path.stem: path for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["predictions", "evaluation", "live"])
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


def test_the_link_of_a_finished_training_works(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["live"])
    assert tab.js("document.querySelector('header a').href") == pages["predictions"].as_uri()
