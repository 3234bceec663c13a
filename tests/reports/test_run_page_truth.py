"""What the page of a run says is true, for some twenty runs made without training."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fixtures.run_folders import GRADES, SIZES, make_run
from reports.page_text import all_sections, facts_of, idle_sentences
from srjt.reports.page import Page
from srjt.reports.pages.run import (
    RunPageFacts,
    notes_of,
    read_record,
    run_page,
    run_page_facts,
    verdict_of,
    warnings_of,
)

pytestmark = pytest.mark.usefixtures("undrawn")  # the text is tested

MATRIX = tuple(tuple(0.7 if i == j else 0.1 for j in range(4)) for i in range(4))
LABEL_MATRIX = [list(row) for row in MATRIX]

# settings, the estimated rate
METHODS: list[tuple[dict[str, Any], float | None]] = [
    ({"method": "standard"}, None),
    ({"method": "standard", "noise_rate": 0.3}, None),
    ({"method": "sord", "transition": MATRIX}, None),
    ({"method": "co-teaching+ours", "noise_rate": 0.25}, None),
    ({"method": "jocor", "noise_rate": 0.25, "convention": "published-code"}, None),
    ({"method": "co-teaching", "noise_rate": 0.25}, 0.25),
    ({"method": "jocor+ours", "noise_rate": 0.3}, 0.02),
    ({"method": "garg", "transition": MATRIX}, None),
    ({"method": "srjt", "transition": MATRIX, "noise_rate": 0.25}, 0.25),
    ({"method": "sord", "soft_labels": "estimated", "noise_rate": 0.25,
      "method_options": {"label_matrix": LABEL_MATRIX}}, 0.25),
]  # fmt: skip
NETWORKS: list[dict[str, Any]] = [
    {"network": "tiny"},
    {"network": "resnet18"},
    {"network": "resnet18", "pretrained": False},
    {"features": True},
    {"own_network": True},
]
SIDES = [("train", "validation", "test"), ("train",), ("train", "validation"), ("train", "test")]
LENGTHS = [{}, {"epochs": 1}, {"finished": False}, {"epochs": 4}, {"finished": False, "epochs": 1}]
OF_IMAGES = {"image size", "crop", "resize", "flip"}

# truth × method gives 20 combinations; the others vary along with them, each at its own pace
COMBINATIONS = [
    (
        METHODS[n % 10],
        NETWORKS[(n // 2) % 5],
        SIDES[(n + n // 10) % 4],
        LENGTHS[(n // 3) % 5],
        n % 20 < 10,
    )
    for n in range(24)
]


def scores(
    folder: Path, *, side: str, reached: int, pooled: bool, finished: bool
) -> tuple[float, float]:
    """Computed anew from the run's files: the mean absolute error, and that of the median training
    label."""
    metrics = pd.read_csv(folder / "metrics.csv", dtype={"network": str})
    recent = metrics[
        (metrics["split"] == side)
        & (metrics["epoch"] > reached - 10)
        & (metrics["metric"] == "mae")
    ]
    networks = ["pooled"] if pooled and "pooled" in set(recent["network"]) else ["1", "2"]
    score = recent.loc[recent["network"].isin(networks), "value"].mean()
    if not finished:
        return score, math.nan
    training = np.repeat(
        np.arange(4), json.loads((folder / "run.json").read_text())["data"]["class_counts"]
    )
    counts = json.loads((folder / "summary.json").read_text())["confusion"][side][0]
    truth = np.repeat(np.arange(4), np.sum(counts, axis=1))
    return score, np.abs(truth - np.sort(training)[(len(training) - 1) // 2]).mean()


def check_sentences(page: Page, facts: RunPageFacts) -> None:
    """Lead and notes are what the rules say of these facts."""
    assert (page.title, page.lead) == verdict_of(facts)
    assert page.warnings == list(warnings_of(facts))
    assert page.remarks == list(notes_of(facts))


@pytest.mark.parametrize("number", range(len(COMBINATIONS)))
def test_the_page_of_a_run_is_true(number: int, tmp_path: Path) -> None:
    (settings, estimated), network, sides, length, truth = COMBINATIONS[number]
    chosen = {**settings, **network, **length}
    folder = make_run(tmp_path / "run", sides=sides, truth=truth, estimated=estimated, **chosen)
    finished, epochs = length.get("finished", True), length.get("epochs", 12)
    reached = epochs if finished else epochs // 2
    evaluated = len(sides) > 1 and reached > 0
    side = ("test" if "test" in sides else "validation") if evaluated else ""
    pooled = settings.get("convention") == "published-code"
    facts = run_page_facts(read_record(folder))
    assert facts.state == ("finished" if finished else "unfinished")
    assert (facts.reached, facts.planned, facts.training, facts.sides) == (
        reached,
        epochs,
        40,
        set(sides),
    )
    assert (facts.side, facts.kept, facts.averaged) == (
        side,
        0,
        min(10, reached) if evaluated else 0,
    )
    assert (facts.answers, facts.truth, facts.starved) == (False, truth and reached > 0, "")
    np.testing.assert_equal(facts.wrong, 0.25 if truth and finished else math.nan)
    if evaluated:
        expected = scores(folder, side=side, reached=reached, pooled=pooled, finished=finished)
        np.testing.assert_allclose((facts.score, facts.naive), expected)
        known = (
            "unknown" if math.isnan(expected[1]) else "unclear"
        )  # without answers nothing is shown to be better
        assert facts.verdict == ("not better" if expected[0] >= expected[1] else known)
    page = run_page(folder)
    check_sentences(page, facts)
    numbers = {number.label: number for number in page.key_numbers}
    assert (f"mean absolute error ↓, {side}" in numbers) == evaluated
    assert bool({"wrong labels, estimated", "wrong labels"} & numbers.keys()) == (
        estimated is not None
    )
    name = "your own network" if network.get("own_network") else network.get("network", "mlp")
    assert numbers["training samples"].compared.endswith(f" on {name}")

    shown = facts_of(page)
    assert {side: shown.get(f"{side} samples") for side in SIZES} == {
        side: str(SIZES[side]) if side in sides else None for side in SIZES
    }
    assert shown.get("wrong labels") == (
        "25.0% of the training side" if truth and finished else None
    )
    assert shown.get("noise rate") == (
        str(settings["noise_rate"]) if "noise_rate" in settings else None
    )
    pretrained = (
        None if network.get("network") != "resnet18" else "no" if "pretrained" in network else "yes"
    )
    assert shown.get("pretrained") == pretrained
    assert shown["network"] == ("your own" if network.get("own_network") else name)
    assert OF_IMAGES & shown.keys() == (set() if network.get("features") else OF_IMAGES)
    assert not any(
        "patient" in text or "fold" in text for text in shown.values()
    )  # a run does not know them
    data = next(section for section in all_sections(page) if section.slug == "data")
    [table] = data.tables
    grades, counts, _ = zip(*([cell.text for cell in row.cells] for row in table.rows), strict=True)
    assert sum(map(int, counts)) == SIZES["train"]
    assert grades == tuple(GRADES)


PLAIN = RunPageFacts(
    state="finished",
    reached=12,
    planned=12,
    left="",
    problem="",
    by_size=0,
    training=40,
    kept=0,
    sides=frozenset({"train", "validation", "test"}),
    averaged=10,
    answers=False,
    side="test",
    metric="MAE",
    scores={},
    score=0.5,
    baseline=None,
    naive=0.8,
    verdict="better",
    chance="",
    samples="it",
    truth=True,
    wrong=0.25,
    shared="",
    starved="",
    starved_advice=" Try it.",
    test_score=0.3,
    validation_score=0.6,
    why_apart="Why.",
    head="",
    weights_missing=False,
    frozen=[],
)


RULES: list[
    tuple[dict[str, Any], str | None]
] = [  # what differs from PLAIN, and what is said then only
    ({"verdict": "not better", "naive": 0.5}, "No better than one grade for all"),
    (
        {"state": "training", "verdict": "not better", "naive": 0.5},
        "No better than one grade for all so far",
    ),
    ({"head": "Of two heads the better one."}, "Of two heads the better one."),
    ({"apart": "better"}, "much better than the validation side: MAE 0.300 and 0.600. Why."),
    ({"sides": {"train", "validation"}}, "There is no test side"),
    ({"state": "training", "sides": {"train"}}, "There is no validation side"),
    (
        {"state": "training", "reached": 3, "left": "About 9 min to go."},
        "Epoch 3 of 12 is done. About 9 min",
    ),
    ({"state": "training", "reached": 0}, "The first of 12 epochs has begun"),
    (
        {"state": "stopped", "reached": 3, "problem": "boom."},
        "Stopped after epoch 3 of 12. boom. Run the same",
    ),
    ({"state": "unfinished", "reached": 3}, "Not finished: 3 of 12 epochs"),
    ({"starved": "2"}, "The selection hardly keeps grade 2: the networks unlearn it. Try it."),
    ({"shared": "A patient is shared."}, "A patient is shared."),
    ({"kept": 7}, "those of epoch 7"),
    ({"by_size": 600}, "12 epochs are the choice of srjt for 600 images"),
    ({"weights_missing": True}, "srjt weights fetch"),
    ({"frozen": ["one", "two", "A head on features."]}, "A head on features."),
    ({"answers": True}, None),
    ({"truth": False}, None),
    (
        {"verdict": "unknown"},
        "The MAE is 0.500 on it. The score of one grade for all is not known.",
    ),
    ({"side": ""}, "All 40 samples were used for training"),
    ({"verdict": "unclear"}, "Not clearly better"),
    (
        {"verdict": "unclear", "chance": "Few."},
        "Not clearly better than one grade for all, by MAE. It is 0.500 on it, and 0.800 for one grade for all. Few.",
    ),
]


def test_each_rule_speaks_when_it_should_and_none_is_idle() -> None:
    """Each can hold, and each but the last verdict can fail."""
    cases, plain = [PLAIN], all_said(PLAIN)
    for changes, said in RULES:
        cases.append(replace(PLAIN, **changes))
        words = all_said(cases[-1])
        assert len(words) < len(plain) if said is None else said in words and said not in plain, (
            changes
        )
    for function in (verdict_of, warnings_of, notes_of):
        assert idle_sentences(function, cases) == []


def all_said(facts: RunPageFacts) -> str:
    return " ".join([". ".join(verdict_of(facts)), *warnings_of(facts), *notes_of(facts)])


def test_a_finished_run_without_its_weights_is_still_finished(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", network="tiny", method="standard")
    (folder / "weights.safetensors").unlink()  # to save space
    assert run_page_facts(read_record(folder)).state == "finished"
