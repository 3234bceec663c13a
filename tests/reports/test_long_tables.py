"""Long tables in a real browser: rows by a text or a grade, columns behind a switch, and a cue that
there are more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd
import pytest

from browser import Browser, Tab, needs_browser
from srjt.reports.page import Page, Section, Tile, write_page
from srjt.reports.table import data_table

pytestmark = [pytest.mark.slow, needs_browser]
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def _tiles() -> list[Tile]:
    tiles = []
    for row in range(24):
        keys = {"label": str(row % 3), "patient": f"p{row // 2}"}
        tiles.append(Tile(picture=PIXEL, title=f"label {row % 3}", text=f"{row}.png", keys=keys))
    return tiles


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    rows = {
        "image": [f"a-rather-long-name-{row:02d}.png" for row in range(30)],
        "grade": pd.Categorical([str(row % 3) for row in range(30)], ordered=True),
        "patient": [f"patient {row // 2}" for row in range(30)],
        "entropy": [row / 30 for row in range(30)],
    }
    table = data_table(pd.DataFrame(rows), title="Answers", extra=["entropy"])
    first, *others = table.rows
    cells = (replace(first.cells[0], picture=PIXEL), *first.cells[1:])
    table = replace(table, rows=(replace(first, cells=cells), *others))
    short = data_table(pd.DataFrame({"grade": ["0", "1"], "images": [3, 4]}), title="Short")
    tile = Tile(picture=PIXEL, title="wide")
    sections = [
        Section(
            "answers",
            "Answers",
            tables=[table],
            tiles=[tile],
            links=[("Beside it", "other/page.html")],
        ),
        Section("short", "Short", tables=[short]),
        Section("gallery", "Gallery", tiles=_tiles()),
    ]
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_page(Page(kind="Test", title="A page", lead="", sections=sections), path)
    browser = Browser(tmp_path_factory.mktemp("profile"))
    page = browser.tab()
    page.open(path)
    yield page
    browser.close()


def shown(tab: Tab) -> int:
    return int(
        tab.js(
            "[...document.querySelectorAll('#answers tbody tr')].filter((row) => !row.hidden).length"
        )
    )


def choose(tab: Tab, tag: str, value: str, event: str, *, where: str = "#answers") -> None:
    """As a person types or chooses it."""
    field = f"const field = document.querySelector('{where} .filter {tag}');"
    tab.js(
        f"(() => {{ {field} field.value = '{value}'; field.dispatchEvent(new Event('{event}')); }})()"
    )


def test_rows_are_found_by_a_text_and_by_a_grade(tab: Tab) -> None:
    assert shown(tab) == 30
    choose(tab, "select", "1", "change")
    assert shown(tab) == 10
    assert tab.js("document.querySelector('#answers .filter span').textContent") == "10 of 30 rows"
    choose(tab, "input", "PATIENT 5", "input")
    assert shown(tab) == 1  # patient 5 has the rows 10 and 11, of grades 1 and 2
    choose(tab, "input", "", "input")
    choose(tab, "select", "", "change")
    assert shown(tab) == 30


def test_further_columns_are_behind_a_switch(tab: Tab) -> None:
    visible = "getComputedStyle(document.querySelector('#answers td.extra')).display"
    assert tab.js(visible) == "none"
    tab.click("#answers .filter button")
    assert tab.js(visible) == "table-cell"
    tab.click("#answers .filter button")
    assert tab.js(visible) == "none"


def test_a_short_table_has_no_filter(tab: Tab) -> None:
    assert tab.js("document.querySelectorAll('.filter').length") == 2  # the others have one


def gallery(tab: Tab) -> list[str]:
    tiles = "[...document.querySelectorAll('#gallery .tiles li')].filter((tile) => !tile.hidden)"
    found: list[str] = tab.js(f"{tiles}.map((tile) => tile.querySelector('.who').textContent)")
    return found


def test_a_gallery_is_filtered_by_label_and_patient_and_sorted(tab: Tab) -> None:
    where = "#gallery"
    listed = [f"{row}.png" for row in range(24)]
    assert gallery(tab) == listed
    choose(tab, "select", "2", "change", where=where)
    assert gallery(tab) == listed[2::3]
    assert tab.js("document.querySelector('#gallery .filter span').textContent") == "8 of 24 images"
    choose(tab, "input", "p10", "input", where=where)  # of the rows 20 and 21
    assert gallery(tab) == ["20.png"]
    choose(tab, "input", "", "input", where=where)
    choose(tab, "select", "", "change", where=where)
    choose(tab, "select:last-of-type", "label", "change", where=where)
    assert gallery(tab) == listed[0::3] + listed[1::3] + listed[2::3]
    choose(tab, "select:last-of-type", "", "change", where=where)
    assert gallery(tab) == listed


def test_a_telephone_says_that_there_are_more_columns(tab: Tab) -> None:
    cut = "document.querySelector('#answers .scroll').classList.contains('cut')"
    said = "getComputedStyle(document.querySelector('#answers .caption'), '::before').content"
    assert not tab.js(cut)
    tab.resize(220, 800)
    tab.wait(cut)
    assert "scroll sideways" in tab.js(said)
    tab.call("Emulation.clearDeviceMetricsOverride")


def test_pictures_have_no_bars_and_links_lead_to_pages_beside(tab: Tab) -> None:
    assert (
        tab.js("getComputedStyle(document.querySelector('.picture')).backgroundColor")
        == "rgba(0, 0, 0, 0)"
    )
    assert tab.js("getComputedStyle(document.querySelector('.picture img')).objectFit") == "contain"
    assert tab.js("document.querySelector('.links a').getAttribute('href')") == "other/page.html"
    assert tab.js("document.querySelectorAll('#answers tbody img').length") == 1
    assert tab.complaints() == []
