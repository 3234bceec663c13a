"""A folder that somebody sent: its report neither overwrites files outside of it nor shows them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from fixtures.run_folders import edit_json, make_run, make_study
from reports.test_audit_page import write_folder
from srjt.errors import SrjtError
from srjt.files import is_inside, write_json
from srjt.reports.pages.audit import audit_page
from srjt.reports.report import report

pytestmark = pytest.mark.usefixtures("undrawn")  # the text is tested

SECRET = "my own notes"


@pytest.fixture
def audit(make_audit_folder: Callable[..., Path], tmp_path: Path) -> Path:
    return write_folder(tmp_path / "audit", make_audit_folder)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "private" / "secret.txt"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


@pytest.mark.parametrize("kind", ["run", pytest.param("study", marks=pytest.mark.slow), "audit"])
@pytest.mark.parametrize("given", [False, True])
def test_a_link_named_report_html_is_replaced_not_followed(
    kind: str, given: bool, secret: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / kind
    if kind == "run":
        make_run(folder, network="tiny", method="standard")
    elif kind == "study":
        make_study(folder)
    else:
        request.getfixturevalue("audit")
    name = "audit.html" if given else "report.html"  # srjt audit names its page itself
    (folder / name).symlink_to(secret)
    [written] = report(folder, out=folder / name if given else None)
    assert secret.read_text() == SECRET
    assert not written.is_symlink()
    assert "<html" in written.read_text()


def test_a_link_that_the_user_chose_is_followed(tmp_path: Path) -> None:
    make_run(tmp_path / "run", network="tiny", method="standard")
    (tmp_path / "page.html").write_text("old")
    (tmp_path / "link.html").symlink_to(tmp_path / "page.html")
    report(tmp_path / "run", out=tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert "<html" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_figures_and_tables_do_not_follow_links(secret: Path, tmp_path: Path) -> None:
    make_study(tmp_path / "study")
    first = report(tmp_path / "study", figures=tmp_path / "figures", tables=tmp_path / "tables")
    for path in first[1:]:
        path.unlink()
        path.symlink_to(secret)
    report(tmp_path / "study", figures=tmp_path / "figures", tables=tmp_path / "tables")
    assert secret.read_text() == SECRET
    assert not any(path.is_symlink() for path in first)


def test_a_draft_is_not_written_through_a_link(secret: Path, tmp_path: Path) -> None:
    (tmp_path / f".run.json.{os.getpid()}.tmp").symlink_to(secret)
    (tmp_path / "run.json").symlink_to(secret)
    write_json(tmp_path / "run.json", {})
    assert secret.read_text() == SECRET
    assert (tmp_path / "run.json").read_text() == "{}\n"


def test_what_is_inside_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path)
    assert is_inside(tmp_path / "in" / "file", tmp_path / "in")
    assert is_inside(tmp_path / "in" / ".." / "in" / "file", tmp_path / "in")
    assert not is_inside(tmp_path / "in" / ".." / "inside", tmp_path / "in")
    assert not is_inside(tmp_path / "in" / "link" / "file", tmp_path / "in")


@pytest.mark.parametrize(
    "changed",
    [
        {"key": "../../private/secret"},
        {"key": ".."},
        {"key": ""},
        {"key": ".hidden"},
        {"key": "a\\b"},
        {"key": "a\0b"},
        {"key": "a" * 300},
        {"method": None},
        {"noise": "../secret"},
        {"fold": "0"},
        {"seed": True},
    ],
)
def test_a_study_with_a_strange_run_is_refused(
    changed: dict[str, object], secret: Path, tmp_path: Path
) -> None:
    folder = make_study(tmp_path / "study", statuses={"sord_fold1": "failed"})
    facts = json.loads((folder / "study.json").read_text())
    cells = [
        {**cell, **changed} if cell["key"] == "sord_fold1" else cell for cell in facts["cells"]
    ]
    edit_json(folder / "study.json", cells=cells)
    with pytest.raises(SrjtError, match=r"study\.json is damaged or not from srjt") as refusal:
        report(folder)
    assert len(str(refusal.value)) < 400
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("cells", [{}, ["key"], None, [{}]])
def test_cells_that_are_no_list_of_runs_are_refused(cells: object, tmp_path: Path) -> None:
    folder = make_study(tmp_path / "study")
    edit_json(folder / "study.json", cells=cells)
    with pytest.raises(SrjtError, match="is damaged or not from srjt"):
        report(folder)


@pytest.mark.slow
def test_the_error_of_a_run_is_not_read_from_outside(secret: Path, tmp_path: Path) -> None:
    folder = make_study(tmp_path / "study", statuses={"sord_fold1": "failed"})
    error = folder / "errors" / "sord_fold1.txt"
    [page] = report(folder)
    assert "out of luck" in page.read_text()
    error.unlink()
    error.symlink_to(secret)
    [page] = report(folder)
    assert SECRET not in page.read_text()
    assert "1 of 4 runs failed" in page.read_text()


@pytest.mark.slow
def test_the_metrics_of_a_run_outside_are_not_quoted(secret: Path, tmp_path: Path) -> None:
    folder = make_study(tmp_path / "study")
    metrics = folder / "runs" / "sord_fold1" / "metrics.csv"
    secret.write_text(f"epoch\n{SECRET},,,,\n")
    metrics.unlink()
    metrics.symlink_to(secret)
    [page] = report(folder)
    assert SECRET not in page.read_text()
    assert "leads out of the study" in page.read_text()


def pictures(audit: Path, names: dict[int, str]) -> list[int]:
    """The lines of the page that have one, if these lines of the audit name these images."""
    table = pd.read_csv(audit / "audit.csv", dtype=str, keep_default_na=False)
    for line, name in names.items():
        table.loc[line, "image"] = name
    table.to_csv(audit / "audit.csv", index=False)
    [section] = [part for part in audit_page(audit).sections if part.slug == "audit"]
    return [line for line, tile in enumerate(section.tiles) if tile.picture]


def test_the_page_of_an_audit_shows_no_image_outside_its_folder(
    audit: Path, tmp_path: Path
) -> None:
    Image.new("RGB", (8, 8), "red").save(tmp_path / "private.png")
    (audit / "images" / "link.png").symlink_to(tmp_path / "private.png")
    (audit / "folder").symlink_to(tmp_path)
    outside = [
        "../private.png",
        "images/link.png",
        "images/../../private.png",
        "folder/private.png",
    ]
    assert pictures(audit, dict(enumerate(outside, start=3))) == [0, 1, 2, 7, 8, 9, 10, 11]


def test_an_image_that_cannot_be_opened_leaves_its_tile_empty(audit: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (audit / "images" / "loop.png").symlink_to("loop.png")
    bad = ["a" * 5000, "images/a\0b.png", "images", str(tmp_path / "pipe.png"), "images/loop.png"]
    assert pictures(audit, dict(enumerate(bad))) == [5, 6, 7, 8, 9, 10, 11]


def test_images_inside_and_absolute_ones_are_shown(audit: Path, tmp_path: Path) -> None:
    name = pd.read_csv(audit / "audit.csv")["image"][0]
    shutil.move(audit / name, tmp_path / "elsewhere.png")  # where the auditor's images are
    assert pictures(audit, {0: str(tmp_path / "elsewhere.png")}) == list(range(12))
