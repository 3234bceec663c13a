"""The audit's page in a real browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from browser import Browser, Tab, needs_browser
from srjt import audit, noise, report
from srjt.data.synthetic import generate
from srjt.reports.page import write_page
from srjt.reports.pages.audit import audit_page

pytestmark = [pytest.mark.slow, needs_browser]
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    clean = generate(images=80, patients=12, size=32)
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.1)
    made = clean.with_noisy_labels(noise.corrupt(clean.labels, matrix, seed=0, ids=clean.ids))
    made.table["reader"] = np.where(
        np.arange(80) % 2 == 0, HOSTILE, "a reader with a name that does not end " * 3
    )
    out = tmp_path_factory.mktemp("audit <b>&") / "audit"
    audit(
        made, out=out, folds=2, epochs=1, reader="reader", network="tiny", image_size=32, crop=28, batch_size=16,
        device="cpu", source=HOSTILE,
    )  # fmt: skip
    summary = json.loads((out / "summary.json").read_text())
    summary["learnt"] = True  # which one epoch does not ensure: the page with everything on it
    (out / "summary.json").write_text(json.dumps(summary))
    return report(out, out=out / "audit.html")[0]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser.tab()
    browser.close()


def test_empty_names_are_shown_as_not_given(tab: Tab, page: Path, tmp_path: Path) -> None:
    shutil.copytree(page.parent, tmp_path / "audit")
    facts = tmp_path / "audit" / "summary.json"
    summary = json.loads(facts.read_text())
    summary["readers"][0]["reader"], summary["patients"][0]["patient"] = "", "  "
    facts.write_text(json.dumps(summary))
    write_page(audit_page(tmp_path / "audit"), tmp_path / "audit" / "audit.html")
    tab.open(tmp_path / "audit" / "audit.html")
    tables = "[...document.querySelectorAll('#rates table')]"
    first = f"{tables}.map((t) => t.querySelector('tbody tr').cells[0].textContent.trim())"
    assert tab.js(first)[1:] == ["(not given)", "(not given)"]


def test_it_opens_without_errors_and_loads_nothing_else(tab: Tab, page: Path) -> None:
    tab.open(page)
    assert tab.complaints() == []
    assert [address for address in tab.asked() if not address.startswith("data:")] == [page.as_uri()]
    assert tab.js("document.querySelectorAll('.tiles li').length") == 60
    tab.js("document.querySelectorAll('.tiles img').forEach((i) => (i.loading = 'eager'))")
    tab.wait("[...document.querySelectorAll('.tiles img')].every((i) => i.complete && i.naturalWidth > 0)")
    assert tab.js("document.querySelector('h1').textContent") == HOSTILE
    assert HOSTILE in tab.js("document.querySelector('#rates').textContent")


def test_a_long_path_is_cut_off_at_its_beginning(tab: Tab, page: Path) -> None:
    tab.open(page)
    last_character_is_visible = """(() => {
      const caption = document.querySelector('.tiles .who');
      caption.firstElementChild.textContent = 'a/very/long/path/that/does/not/fit/' + 'x'.repeat(40) + '/image_017.png';
      const text = caption.firstElementChild.firstChild;
      const range = document.createRange();
      range.setStart(text, text.length - 1);
      range.setEnd(text, text.length);
      const [inner, outer] = [range.getBoundingClientRect(), caption.getBoundingClientRect()];
      const inside = inner.width > 0 && inner.left >= outer.left && inner.right <= outer.right + 1;
      return caption.scrollWidth > caption.clientWidth && inside;
    })()"""
    assert tab.js(last_character_is_visible)


@pytest.mark.parametrize("width", [1280, 380])
def test_it_fits_the_width_of_the_screen(tab: Tab, page: Path, width: int) -> None:
    tab.resize(width, 800, mobile=width < 500)
    tab.open(page)
    assert tab.js("document.documentElement.scrollWidth") <= width
