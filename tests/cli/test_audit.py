"""``srjt audit``, and ``--noise-rate auto``, as a person types them."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from srjt.auditing.blind_readings import draw_sample
from srjt.auditing.folder import read_audit
from srjt.auditing.review_log import Decisions
from srjt.noise.estimate import NoiseEstimate, estimate_noise

from .conftest import Srjt

SMALL = [
    "--device", "cpu", "--network", "tiny", "--image-size", "32", "--crop", "28", "--epochs", "2", "--batch-size",
    "16", "--learning-rate", "1e-3",
]  # fmt: skip


@pytest.fixture
def quick(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few resamples and no figures: neither is tested here."""
    for module in ("training.noise_rate", "auditing.audit"):
        monkeypatch.setattr(f"srjt.{module}.estimate_noise", partial(estimate_noise, bootstrap=3))


def judged_by(learnt: bool) -> Callable[..., NoiseEstimate]:
    """An estimate from networks that have learnt the grades, or have not: two epochs do not decide
    it."""
    return lambda *given, **options: replace(
        estimate_noise(*given, **{**options, "bootstrap": 3}), learnt=learnt
    )


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_summary_says_what_to_know_and_what_to_do(
    command: Srjt, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srjt.auditing.audit.estimate_noise", judged_by(learnt=True))
    table = pd.read_csv(labelled, dtype=str)
    table["reader"] = ["Ann", "Bob", ""] * (len(table) // 3)
    table = table.rename(columns={"grade": "mayo"})
    mine = labelled.parent / "read.csv"
    table.to_csv(mine, index=False)
    code, said, wrong = command("audit", mine, "--out", tmp_path / "audit", "--folds", "2", *SMALL)
    assert (code, wrong) == (0, "")
    lines = [line.split("  ")[0] for line in said.splitlines() if "loss" in line]
    assert lines == [f"fold {fold}/2, epoch {epoch}/2" for fold in (1, 2) for epoch in (1, 2)]
    summary = said.partition("Estimating the noise and scoring every label.")[2]
    assert (
        len([line for text in summary.splitlines() for line in textwrap.wrap(text, 80)]) <= 24
    )  # one screen
    assert "120 labels" in summary
    for number in ("wrong labels", "labels that the networks agree with", "mean distance"):
        assert summary.count(number) >= 1
    assert "always the most frequent: " in summary
    assert "(not given)" in (tmp_path / "audit" / "audit.html").read_text()
    assert f"Next: srjt review {tmp_path / 'audit'}" in said
    facts = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert (facts["label_column"], facts["table"]) == ("mayo", str(mine))
    scores = pd.read_csv(tmp_path / "audit" / "audit.csv", dtype=str, keep_default_na=False)
    assert all(Path(image).is_file() for image in scores["image"])
    assert set(scores["reader"]) == {"Ann", "Bob", ""}
    code, said, _ = command(
        "audit", mine, "--out", tmp_path / "audit", "--folds", "2", *SMALL, "--quiet"
    )
    assert (code, said) == (0, "")
    monkeypatch.setattr("srjt.auditing.audit.estimate_noise", judged_by(learnt=False))
    said = command.prints("audit", mine, "--out", tmp_path / "audit", "--folds", "2", *SMALL)
    first, _, rest = said.partition("scoring every label.\n")[2].partition("\n")
    assert first.startswith(
        "The networks cannot tell which labels are wrong. The networks have not learnt"
    )
    for claim in ("guess", "more probable", "Expected errors"):
        assert claim not in rest
    found = read_audit(tmp_path / "audit")
    assert (found.facts.judged, found.facts.trusted, found.expected_wrong) == (
        False,
        False,
        120,
    )
    assert "have not learnt" in found.facts.notice
    rows = pd.read_csv(tmp_path / "audit" / "audit.csv")
    assert set(rows["caveat"]) == {"the networks have not learnt to tell the grades apart"}
    wrong = command.refuses(
        "audit", mine, "--out", tmp_path / "audit", "--folds", "2", *SMALL, "--seed", "1"
    )
    assert "another configuration (seed was 0 and is now 1" in wrong


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_same_command_uses_what_was_verified(
    command: Srjt, labelled: Path, tmp_path: Path
) -> None:
    order = ["audit", labelled, "--out", tmp_path / "audit", "--folds", "2", *SMALL]
    said = command.prints(*order)
    summary = json.loads((tmp_path / "audit" / "summary.json").read_text())
    sample = f"srjt review {tmp_path / 'audit'} --sample {summary['verify_more']}"
    told = " ".join(said.split())
    assert f"give their grades in a column verified_grade: {sample}." in told
    assert told.endswith(f"Next: {sample}")  # one next step while the rate is not known
    facts = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert shlex.split(facts["command"]) == ["srjt", *map(str, order)]
    assert summary["verify_random"] is None  # networks that have learnt nothing save nothing
    audit, decisions = (
        read_audit(tmp_path / "audit"),
        Decisions(tmp_path / "audit" / "decisions.sqlite"),
    )
    truth = pd.read_csv(labelled, dtype=str).set_index("image")["true_grade"]
    sample = [audit.ids[line] for line in draw_sample(audit, 40)]
    for name in sample:
        decisions.add_answer(name, purpose="verify", reviewer="anna", grade=truth[name])
    last = audit.ids[draw_sample(audit, 41)[-1]]
    decisions.add_answer(last, purpose="verify", reviewer="anna", grade=None)  # cannot be graded
    decisions.close()
    said = command.prints(*order)
    assert "loss" not in said  # nothing is trained again
    scores = pd.read_csv(
        tmp_path / "audit" / "audit.csv", dtype=str, keep_default_na=False
    ).set_index("id")
    known = scores.loc[sample]
    errors = int((known["grade"] != known["true_grade"]).sum())
    told = " ".join(said.split())
    assert f"verified labels 40 wrong: {errors} " in told
    assert (
        known["quality"].astype(float).tolist() == (known["grade"] == known["true_grade"]).tolist()
    )
    assert re.search(r"verify \d+ more labels \(\d+ in all\), or give .*: srjt review", told)


@pytest.mark.parametrize(
    ("options", "about", "says"),
    [
        (["--method", "sordd"], "unknown_name method", "'sord'"),
        (["--network", "resnet19"], "unknown_name", "'resnet18'"),
        (["--reader-column", "who"], "unknown_name", "'who'"),
        (["--folds", "1"], "out_of_bounds folds", ""),
        (["--noise-rate", "lots"], "wrong_type noise_rate", ""),
        (["--set", "epoch=3"], "unknown_name", "'epochs'"),
        (["--jobs", "many"], "wrong_type jobs", ""),
        (["--jobs", "0"], "out_of_bounds jobs", ""),
    ],
)
def test_bad_options_are_one_sentence(
    command: Srjt, labelled: Path, tmp_path: Path, options: list[str], about: str, says: str
) -> None:
    command.fails(about, says, "audit", labelled, "--out", tmp_path / "audit", *options)
    assert not (tmp_path / "audit" / "fits").exists()
