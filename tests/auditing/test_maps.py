"""Where the networks of an audit look, on demand."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import srjt
from review.test_server import running
from srjt.auditing.folder import read_audit
from srjt.auditing.maps import look_maps, map_problem
from srjt.errors import SrjtError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = srjt.data.synthetic.generate(images=40, patients=10, size=32)
    out = tmp_path_factory.mktemp("maps") / "audit"
    srjt.audit(
        data,
        out=out,
        folds=2,
        network="tiny",
        image_size=32,
        crop=28,
        epochs=1,
        noise_rate=0.2,
        tune_cpu=False,
    )
    return out


def test_every_line_has_a_map_per_network_of_its_own_fold(folder: Path) -> None:
    audit = read_audit(folder)
    assert audit.folds is not None
    assert set(audit.folds.tolist()) == {0, 1}
    assert map_problem(audit) is None
    pictures = look_maps(audit, 0)
    assert len(pictures) == len(audit.network_grades)
    assert all(picture.size == (320, 320) for picture in pictures)
    held_out_by = int(audit.folds[0])
    run = srjt.load_run(folder / "fits" / f"fold{held_out_by}")
    assert audit.ids[0] not in run.training_ids
    other = look_maps(audit, int(np.flatnonzero(audit.folds != audit.folds[0])[0]))
    assert np.asarray(other[0]).tobytes() != np.asarray(pictures[0]).tobytes()


def test_the_report_shows_them_on_demand(folder: Path, tmp_path: Path) -> None:
    (page,) = srjt.report(folder, out=tmp_path / "a.html", maps=True)
    text = page.read_text()
    assert text.count("<summary>where they look</summary>") == 40
    (page,) = srjt.report(folder, out=tmp_path / "b.html")
    assert "where they look" not in page.read_text()


def test_the_review_serves_them(folder: Path, tmp_path: Path) -> None:
    with running(read_audit(folder), tmp_path / "d.sqlite") as client:
        status, headers, content = client.ask("/map/3")
    assert (status, headers["content-type"]) == (200, "image/jpeg")
    assert content.startswith(b"\xff\xd8\xff")


def test_without_the_networks_one_sentence_says_why(folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare)
    shutil.rmtree(bare / "fits")
    with pytest.raises(SrjtError, match="no longer in its folder: run srjt audit again"):
        srjt.report(bare, out=tmp_path / "c.html", maps=True)
    with running(read_audit(bare), tmp_path / "d.sqlite") as client:
        status, _, content = client.ask("/map/0")
    assert status == 404
    assert b"no longer in its folder" in content


def test_maps_of_a_run_are_another_command(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="use srjt explain for a run"):
        srjt.report(folder / "fits" / "fold0", out=tmp_path / "d.html", maps=True)
