"""Whether a run beats one grade for all samples: every place says the same, of the answers of srjt predict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import srjt
from srjt.inference.evaluate import naive_warning
from srjt.inference.options import Answering
from srjt.ordinal import PURPOSES
from srjt.reports.model_card import model_card
from srjt.reports.page import Page
from srjt.reports.pages.answers import predictions_page
from srjt.reports.pages.run import live_page, run_page
from srjt.reports.run_summary import judge_sides
from srjt.training.folder import compare_with_naive


@pytest.mark.parametrize("right", [True, False])
def test_every_place_judges_the_answers_of_predict(
    run_with_images: Path, tmp_path: Path, right: bool
) -> None:
    """The predictions that the run keeps are made right, or all of the severest grade; metrics.csv stays as it is."""
    folder = shutil.copytree(run_with_images, tmp_path / "run")
    kept = pd.read_csv(folder / "held_out.csv")
    answer = kept["grade"].to_numpy() if right else np.full(len(kept), 3)
    for c in range(4):
        kept[f"p1_{c}"] = (answer == c).astype(float)
    kept.to_csv(folder / "held_out.csv", index=False)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(
        json.dumps({**summary, "files": {}})
    )  # else: not what the run has written
    run = srjt.load_run(folder, device="cpu")
    warnings = {name: side.naive_warning for name, side in judge_sides(run).items()}
    table = srjt.predict(run, [run_with_images.parent / "set" / "labels.csv"])

    def warned(page: Page) -> list[str]:
        return [note.text for note in page.notes if "naive" in note.text]

    assert all(bool(warning) != right for warning in warnings.values())
    test, validation = ([warnings[side]] if not right else [] for side in ("test", "validation"))
    assert warned(run_page(folder)) == warned(predictions_page(run, table)) == test
    assert [naive_warning(run)] == (test or [""])
    assert warned(live_page(folder, state="finished")) == validation  # nothing of the test side
    assert set(warned(live_page(folder, state="finished", show_test=True))) == {*test, *validation}
    assert [note for note in run.summary().notes if note.startswith("This run does not")] == [
        warnings[side] for side in run.held_out if not right
    ]
    assert (f"- {warnings['test']}\n" in model_card(folder)) == (not right)
    if not right:
        error = (3 - kept.loc[kept["side"] == "test", "grade"]).mean()
        assert f"on the test side: MAE {error:.3f}, and " in warnings["test"]
    for purpose in PURPOSES:  # grades may be for another metric than those of the training
        judged = judge_sides(run, Answering(optimise=purpose))["test"].naive_warning
        assert bool(judged) != right
        assert ("MAE" in judged) == (purpose == "mae" and not right)


def test_perfect_answers_pass_where_all_samples_have_the_usual_grade() -> None:
    assert compare_with_naive("this sample", score=0.0, naive=0.0, purpose="mae") == ""
    assert compare_with_naive("this sample", score=1.0, naive=1.0, purpose="accuracy") == ""
    assert "does not beat" in compare_with_naive("this sample", score=1.0, naive=0.0, purpose="mae")
