"""The page of ``srjt analyse``: what all patients show that the test side alone does not."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from srjt.data.grades import Grades
from srjt.data.splits import Split
from srjt.data.synthetic import generate
from srjt.ordinal.baseline import gain_over_one_grade
from srjt.reports.analysis import _sides, plain_training
from srjt.reports.pages import analysis
from srjt.reports.pages.analysis import across_folds, verdict_of
from srjt.training.config import TrainConfig

DATA = generate(images=100, patients=50, size=32)


def analysed(right: float, *, purpose: str = "mae") -> Any:
    """An analysis whose trainings give that share of the samples their label, the others 0."""
    rng = np.random.default_rng(0)
    labels = DATA.labels
    grades = np.where(rng.random(len(labels)) < right, labels, 0)
    fitted = SimpleNamespace(
        manifest=DATA, probabilities=np.eye(DATA.num_classes)[grades], fold=np.arange(100) % 5
    )
    return SimpleNamespace(
        evaluation=SimpleNamespace(purpose=purpose),
        audited=SimpleNamespace(fitted=fitted, facts={"method": "sord"}),
        grades=grades,
    )


def test_all_patients_are_judged_by_the_one_rule() -> None:
    done = analysed(0.8)
    found = across_folds(done)
    assert found is not None
    assert found.gain == gain_over_one_grade(
        DATA.labels,
        done.grades,
        training_counts=np.bincount(DATA.labels),
        metric="mae",
        groups=DATA.patients,
    )
    assert found.gain.score == np.abs(done.grades - DATA.labels).mean()
    assert found.sentence() == (
        "The 5 trainings of the audit (method sord), each judged on the part that it was not trained"
        f" on, have a mean absolute error of {found.gain.score:.3f} on 100 images of 50 patients; one grade"
        f" for all has {found.gain.naive:.3f}."
    )
    assert across_folds(analysed(0.8, purpose="qwk")) is None


@pytest.mark.parametrize(
    ("test_side", "right", "expected"),
    [
        ("unclear", 0.8, "better"),
        ("unclear", 0.0, "unclear"),
        ("not better", 0.8, "not better"),
        ("better", 0.0, "better"),
    ],
)
def test_they_decide_only_where_the_test_side_is_too_small(
    test_side: str, right: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = SimpleNamespace(verdict=test_side)
    monkeypatch.setattr(analysis, "evaluation_facts", lambda _: facts)
    monkeypatch.setattr(analysis, "judgement", lambda _: ("Title", "Lead."))
    done = analysed(right)
    across = across_folds(done)
    assert across is not None
    verdict, title, lead = verdict_of(done, across)
    assert verdict == expected
    decided = test_side != expected
    assert (title != "Title") == decided
    assert lead == (
        f"{across.sentence()} The test side alone is too small. Lead." if decided else "Lead."
    )


def test_plain_training_has_the_head_that_the_model_chose() -> None:
    asked = TrainConfig().replace(preset="cpu", noise_rate=0.2)
    plain = plain_training(asked, network="odds")
    assert (plain.method, plain.network, plain.noise_rate) == ("standard", "odds", None)
    assert plain.backbone == asked.backbone == "auto"


def test_the_sides_tell_which_grade_cannot_be_learnt() -> None:
    rows = np.arange(len(DATA))
    known = DATA.labels < DATA.num_classes - 1
    split = Split(train=rows[known], validation=rows[~known], test=rows[:0])
    worst = DATA.grades[-1]
    assert f"no sample of grade {worst} is on the train side" in _sides(DATA, split)
    assert "no sample" not in _sides(DATA, Split(train=rows, validation=rows[:0], test=rows[:0]))


def test_models_with_the_same_answers_are_not_called_a_small_test_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p = np.full((1, 4, 3), 1.0 / 3.0)
    unclear = SimpleNamespace(better=False, worse=False)
    monkeypatch.setattr(analysis, "comparison_facts", lambda _: unclear)
    monkeypatch.setattr(analysis, "never_predicted", lambda _: [0])
    monkeypatch.setattr(analysis, "perhaps_patients", lambda _: "")
    audited = SimpleNamespace(
        facts={"judged": False}, summary={"verify_more": 20, "verified": {"labels": 40}}
    )

    def run(probabilities: Any) -> Any:
        return SimpleNamespace(
            held_out={"test": SimpleNamespace(probabilities=probabilities)},
            config=SimpleNamespace(
                network_name="odds", network="odds", image_size=224, backbone="auto"
            ),
            facts=SimpleNamespace(data=SimpleNamespace(class_counts=(90, 20, 60))),
        )

    def analysis_of(plain: Any) -> Any:
        return SimpleNamespace(
            run=run(p),
            plain=run(plain),
            audited=audited,
            comparison=unclear,
            evaluation=SimpleNamespace(grades=Grades(["0", "1", "2"])),
            inspection=SimpleNamespace(
                manifest=SimpleNamespace(patients=(), are_features=False), source=Path("labels.csv")
            ),
            folder=Path("out"),
        )

    same = analysis.analysis_facts(analysis_of(p.copy()), "unclear")
    assert "the same answers as plain training" in analysis.against_plain(same)
    other = analysis.analysis_facts(analysis_of(p + 0.01), "unclear")
    assert "too small to show a difference" in analysis.against_plain(other)
    # the most frequent grade is missed, not a rare one
    helps = " ".join(analysis.what_would_help(same))
    assert "More images. Grade 0 is never predicted on the test side." in helps
    # a sample counts what is verified already
    monkeypatch.setattr(analysis, "evaluation_facts", lambda _: SimpleNamespace(verdict="unclear"))
    commands = analysis.next_commands(analysis_of(p))
    assert commands["To learn how many labels are wrong"].endswith("--sample 60")
