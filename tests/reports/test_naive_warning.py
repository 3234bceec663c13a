"""Whether a run beats one grade for all samples: every place says the same, of the answers of srjt predict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import srjt
from srjt.inference.evaluate import best_side, evaluate_sides
from srjt.inference.options import Answering
from srjt.ordinal import PURPOSES
from srjt.reports.model_card import model_card
from srjt.reports.pages.answers import predictions_page
from srjt.reports.pages.evaluation import evaluation_facts, judgement
from srjt.reports.pages.run import run_page

pytestmark = pytest.mark.usefixtures("undrawn")  # the text is tested


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_every_place_judges_the_answers_of_predict(run_with_images: Path, tmp_path: Path, right: bool) -> None:
    """The predictions that the run keeps are made right, or all of the severest grade; metrics.csv stays as it is."""
    folder = shutil.copytree(run_with_images, tmp_path / "run")
    kept = pd.read_csv(folder / "held_out.csv")
    answer = kept["grade"].to_numpy() if right else np.full(len(kept), 3)
    for c in range(4):
        kept[f"p1_{c}"] = (answer == c).astype(float)
    kept.to_csv(folder / "held_out.csv", index=False)
    summary = json.loads((folder / "summary.json").read_text())
    # else: not what the run has written
    (folder / "summary.json").write_text(json.dumps({**summary, "files": {}}))
    (folder / "checksums.json").unlink()
    run = srjt.load_run(folder, device="cpu")
    sides = evaluate_sides(run)
    table = srjt.predict(run, [run_with_images.parent / "set" / "labels.csv"])
    assert all(evaluation_facts(found).beaten == right for found in sides.values())
    best = best_side(run, resamples=0)
    assert best is not None
    assert evaluation_facts(best).beaten == right
    said = ". ".join(judgement(sides["test"]))
    assert run_page(folder).verdict == run.summary().verdict == said
    assert ("No better than one grade" in said) != right
    assert predictions_page(table).warnings == ([] if right else [said])
    assert said in model_card(folder)
    if not right:
        error = (3 - kept.loc[kept["side"] == "test", "grade"]).mean()
        assert sides["test"].score == pytest.approx(error)
    for purpose in PURPOSES:  # grades may be for another metric than those of the training
        judged = evaluate_sides(run, Answering(optimise=purpose), resamples=0)["test"]
        assert evaluation_facts(judged).beaten == right
