"""``srjt demo`` as small as it can be: every part of it runs, and its page tells what the terminal
tells. tests/cli/test_study.py compares a larger one with its files.
"""

import html
import re
from pathlib import Path

import pytest

from srjt.reports.demo import PAGES, run_demo


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "quick")
def test_every_part_of_the_demo_runs(tmp_path: Path) -> None:
    told: list[str] = []
    pages = run_demo(tmp_path, images=100, epochs=2, tell=told.append)
    assert pages == [tmp_path / page for page in PAGES]
    assert len(told) == 5
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    for paragraph in told:
        assert f">{paragraph.partition('. ')[0]}</h2>" in index
    for number in (0, 3, 4):
        assert html.escape(told[number].partition(". ")[2]) in index
    plain, ours = re.findall(r"repeats (\d+%) and srjt (\d+%)", told[1])[0]
    title = f"Plain training repeats {plain} of the wrong labels, srjt {ours}"
    assert f"<h1>{title}</h1>" in index
    visible = re.sub(r"<[^>]*>", " ", index)
    for error in re.findall(r"(\d\.\d{3}) (?:after plain|with srjt)", told[1]):
        assert visible.count(error) == 1
    for page in pages:  # no link leads nowhere
        text = page.read_text(encoding="utf-8")
        for address in re.findall(r'<a href="([^#"][^"]*)"', text):
            assert (page.parent / address).is_file(), (page, address)
