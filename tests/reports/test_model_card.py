"""The model card and the sections of a run's page about its answers: what they say is true of the
run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import srjt
from fixtures.run_folders import make_run
from srjt.errors import SrjtError
from srjt.inference.evaluate import evaluate_sides
from srjt.reports.model_card import model_card, write_model_card
from srjt.reports.page import render
from srjt.reports.pages.run import run_page

pytestmark = pytest.mark.usefixtures("undrawn")  # the text is tested

SETTINGS: dict[str, Any] = {
    "method": "standard", "network": "tiny", "image_size": 32, "crop": 28, "epochs": 2,
    "device": "cpu",
}  # fmt: skip


@pytest.fixture
def folder(run_with_images: Path) -> Path:
    return run_with_images


def test_the_card_has_valid_metadata_and_the_scores_of_predict(folder: Path) -> None:
    card = model_card(folder)
    _, metadata, text = card.split("---\n", 2)
    facts = yaml.safe_load(metadata)
    assert facts["library_name"] == "srjt"
    run = srjt.load_run(folder, device="cpu")
    rows = evaluate_sides(run)["test"].answers
    predicted, labels = rows["grade"].astype(int), rows["label"].astype(int)
    (result,) = facts["model-index"][0]["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert values["accuracy"] == pytest.approx(float((predicted == labels).mean()), abs=1e-4)
    assert values["mae"] == pytest.approx(float((predicted - labels).abs().mean()), abs=1e-4)
    assert result["dataset"]["name"] == "labels.csv"
    assert "mi\\|ld" in text
    assert "<b>" not in text.split("## Performance")[1]
    assert "There are no patient ids" not in text
    assert "The method:" not in text  # standard training has no paper of its own


@pytest.mark.parametrize(
    ("method", "cited"),
    [
        ("jocor+ours", "Self-Relaxed Joint Training"),
        ("jocor", "Wei et al., CVPR 2020"),
        ("eae", None),
    ],
)
def test_the_card_cites_the_method_that_was_used(
    tmp_path: Path, method: str, cited: str | None
) -> None:
    card = model_card(make_run(tmp_path / "run", method=method, noise_rate=0.2))
    assert "The software: srjt" in card
    assert ("The method:" in card) == (cited is not None)
    assert cited is None or cited in card.split("## How to cite")[1]


@pytest.mark.slow
def test_the_page_has_scores_examples_and_how_the_run_was_made(folder: Path) -> None:
    sections = {section.slug: section for section in run_page(folder).sections}
    assert {"scores", "examples", "calibration", "reproduce"} <= set(sections)
    assert sections["reproduce"].code == "srjt train x"
    known = dict(sections["reproduce"].facts)
    assert known["labels from"].endswith("labels.csv")
    assert len(known["… SHA-256"]) == 64
    tiles = sections["examples"].tiles
    assert tiles
    assert {tile.number for tile in tiles} <= {"right", "off by one", "off by more"}
    assert all(tile.picture.startswith("data:image/jpeg") for tile in tiles)
    assert "confusion" not in {
        figure.name for section in sections.values() for figure in section.figures
    }
    assert "<b>moderate" not in render(run_page(folder))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("metrics.csv", lambda lines: lines[: len(lines) // 2]),
        ("metrics.csv", lambda lines: lines[:-1]),
        ("weights.safetensors", lambda lines: []),
        ("held_out.csv", lambda lines: [lines[0], *lines[2:]]),
        (
            "held_out.csv",
            lambda lines: [line.replace(b"0.", b"0.0") for line in lines],
        ),  # of another run
    ],
)
def test_a_page_of_files_that_the_run_has_not_written_is_refused(
    folder: Path, tmp_path: Path, name: str, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    lines = (run / name).read_bytes().splitlines(keepends=True)
    (run / name).write_bytes(b"".join(change(lines)))
    with pytest.raises(SrjtError, match=rf"{name} .* restore the file, or delete summary\.json"):
        srjt.write_report(run)
    if name == "held_out.csv":
        with pytest.raises(SrjtError, match=r"held_out\.csv is not the file that srjt has written"):
            srjt.load_run(run)
        with pytest.raises(SrjtError, match=r"held_out\.csv is not the file that srjt has written"):
            srjt.write_report(run, checklist="claim")


@pytest.mark.slow
def test_without_images_weights_or_sides_nothing_untrue_is_said(
    folder: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    table = (moved / "held_out.csv").read_text()
    (moved / "held_out.csv").write_text(table.replace("/set/", "/gone/"))
    summary = json.loads((moved / "summary.json").read_text())
    (moved / "summary.json").write_text(json.dumps({**summary, "files": {}}))
    (moved / "checksums.json").unlink()
    slugs = {section.slug for section in run_page(moved).sections}
    assert "scores" in slugs
    assert "examples" not in slugs
    (moved / "weights.safetensors").unlink()
    assert "scores" not in {section.slug for section in run_page(moved).sections}
    card = model_card(moved)
    assert "model-index" not in card
    assert "The predictions for the held-out samples are not available to this card." in card

    data = srjt.data.synthetic.generate(images=40, patients=10, size=32)
    srjt.train(data, out=tmp_path / "all", **SETTINGS)
    text = write_model_card(tmp_path / "all").read_text()
    assert "All samples were used for training" in text
    assert not {"scores", "examples"} & {
        section.slug for section in run_page(tmp_path / "all").sections
    }


@pytest.mark.slow
def test_a_run_on_features_without_patients(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grades = np.arange(90) % 3
    rows = (rng.normal(size=(90, 4)) + grades[:, None]).astype(np.float32)
    data = srjt.data.from_arrays(rows, grades)
    srjt.train(
        data, out=tmp_path / "run", split=srjt.data.folds(data)[0], method="standard", epochs=2
    )
    card = model_card(tmp_path / "run")
    assert "tabular-classification" in card
    assert "There are no patient ids" in card
    assert "Given grades may be wrong themselves." in card
    assert "resample patients" not in card
    assert "examples" not in {section.slug for section in run_page(tmp_path / "run").sections}


def test_text_from_elsewhere_is_escaped(tmp_path: Path) -> None:
    source = {"path": "/data/`x` [y](http://evil) <img src=x>.csv"}
    folder = make_run(tmp_path / "run_[a](b)", data={"source": source})
    facts = json.loads((folder / "run.json").read_text())
    facts["grade_names"] = {
        grade: f"<b>[x](http://evil)|{n}" for n, grade in enumerate(facts["grades"])
    }
    facts["noise"] = {"estimated": None, "used": None, "why": "[click](http://evil) <script>"}
    (folder / "run.json").write_text(json.dumps(facts))
    card = model_card(folder).split("---", 2)[2]
    assert "](http" not in card.replace("\\](http", "")
    assert "<b>" not in card
    assert "<script" not in card
    assert "<img" not in card
