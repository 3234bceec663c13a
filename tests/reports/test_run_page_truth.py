"""Every sentence and every fact on the page of a run is true, for some forty runs made without training."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fixtures.run_folders import GRADES, SIZES, make_run
from reports.page_text import Rule, all_sections, check, facts_of
from srjt.reports.figures import results as run_figures
from srjt.reports.pages.run import run_page
from srjt.studies.results import display_name

MATRIX = tuple(tuple(0.7 if i == j else 0.1 for j in range(4)) for i in range(4))
LABEL_MATRIX = [list(row) for row in MATRIX]

# settings, the estimated rate, number of networks, what the page says of the noise, which settings of noise count
METHODS: list[tuple[dict[str, Any], float | None, int, str, set[str]]] = [
    ({"method": "standard"}, None, 1, "", set()),
    ({"method": "standard", "noise_rate": 0.3}, None, 1, "", set()),  # given, but not used
    ({"method": "sord", "transition": MATRIX}, None, 1, "", set()),
    ({"method": "co-teaching+ours", "noise_rate": 0.25}, None, 2, "given noise rate 0.25", {"noise rate"}),
    ({"method": "jocor", "noise_rate": 0.25, "convention": "published-code"}, None, 2, "given noise rate 0.25",
     {"noise rate"}),
    ({"method": "co-teaching", "noise_rate": 0.25}, 0.25, 2, "noise rate 0.25, estimated from the training labels",
     {"noise rate"}),
    ({"method": "jocor+ours", "noise_rate": 0.3}, 0.02, 2,
     "noise rate 0.30 used, 0.02 estimated from the training labels", {"noise rate"}),
    ({"method": "garg", "transition": MATRIX}, None, 1, "given transition matrix", {"transition"}),
    ({"method": "srjt", "transition": MATRIX, "noise_rate": 0.25}, 0.25, 2,
     "transition matrix estimated from the training labels", {"transition"}),
    ({"method": "sord", "soft_labels": "estimated", "noise_rate": 0.25,
      "method_options": {"label_matrix": LABEL_MATRIX}}, 0.25, 1,
     "soft labels from the noise estimated from the training labels", set()),
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

# truth × method gives 20 combinations; the others vary along with them, each at its own pace
COMBINATIONS = [
    (METHODS[n % 10], NETWORKS[(n // 2) % 5], SIDES[(n + n // 10) % 4], LENGTHS[(n // 3) % 5], n % 20 < 10)
    for n in range(44)
]


def over(facts: Any, said: str | None) -> bool:
    if facts["networks"] == 1:
        return not said
    return "pooled" in (said or "") if facts["pooled"] else "the networks" in (said or "")


def naive_is_true(facts: Any, said: re.Match[str]) -> bool:
    """Computed anew from the run's files: the scores, and those of one grade for all samples of the same side."""
    side, folder = said["side"], facts["folder"]
    training = np.repeat(np.arange(4), json.loads((folder / "run.json").read_text())["data"]["class_counts"])
    counts = json.loads((folder / "summary.json").read_text())["confusion"][side][0]
    truth = np.repeat(np.arange(4), np.sum(counts, axis=1))
    metrics = pd.read_csv(folder / "metrics.csv", dtype={"network": str})
    recent = metrics[(metrics["split"] == side) & (metrics["epoch"] > facts["reached"] - 10)]
    judged = ["pooled"] if facts["pooled"] and facts["networks"] == 2 else ["1", "2"]
    means = recent[recent["network"].isin(judged)].groupby("metric")["value"].mean()
    mae = np.abs(truth - np.sort(training)[(len(training) - 1) // 2]).mean()
    always = "always predicting the median training label"
    return means["mae"] >= mae and said["scores"] == f"MAE {means['mae']:.3f}, and {mae:.3f} by {always}"


SCORED = "(?:Test scores|Scores) compare predictions with "
WRONG = r"(?P<wrong>; 25\.0% of the training labels are wrong)?\."
RULES: dict[str, Rule] = {
    r"(?P<method>.+) on (?P<network>[^,]+), (?P<epochs>\d+ epochs?|\d+ of \d+ epochs? so far)(?:; (?P<noise>.+))?\.": (
        lambda f, m: (m["method"], m["network"], m["epochs"], m["noise"] or "")
        == (f["method"], f["network"], f["epochs"], f["noise"])
    ),
    r"The run has not finished: run the same command again to resume it\.": lambda f, m: not f["finished"],
    r"All samples were used for training: there is no test of the run\.": lambda f, m: f["sides"] == {"train"},
    r"There is no test side: all scores are those of the validation side\.": (
        lambda f, m: f["sides"] == {"train", "validation"}
    ),
    r"The networks' own grades do not beat a naive prediction on the (?P<side>test|validation) side: "
    r"(?P<scores>.+)\.": naive_is_true,
    r"Training samples by label:": lambda f, m: True,
    r"Mean over the last (?P<n>\d+ epochs?)(?P<over> and the networks|, networks pooled)?": (
        lambda f, m: m["n"] == ("1 epoch" if f["reached"] == 1 else f"{min(10, f['reached'])} epochs")
        and over(f, m["over"])
    ),
    r"± is the standard deviation over those epochs, not over other data\.": lambda f, m: f["reached"] > 1,
    SCORED + r"the given labels; how many of them are wrong is not known\.": lambda f, m: not f["truth"],
    SCORED + "the true grades, validation scores with the given labels" + WRONG: (
        lambda f, m: f["truth"] and {"validation", "test"} <= f["sides"] and bool(m["wrong"]) == f["finished"]
    ),
    "Scores compare predictions with the true grades" + WRONG: (
        lambda f, m: f["truth"] and "validation" not in f["sides"] and bool(m["wrong"]) == f["finished"]
    ),
    "Scores compare predictions with the given labels" + WRONG: (
        lambda f, m: f["truth"] and "test" not in f["sides"] and bool(m["wrong"]) == f["finished"]
    ),
    r"(Accuracy|MAE) after each epoch(?P<over>, mean over the networks|, networks pooled)?\.": (
        lambda f, m: len(f["sides"]) > 1 and over(f, m["over"])
    ),
    r"Lower is better\.": lambda f, m: True,
    r"Confusion matrix on the test side after the last epoch(?P<pooled>, networks pooled)?\.": (
        lambda f, m: f["finished"] and "test" in f["sides"] and bool(m["pooled"]) == (f["networks"] == 2)
    ),
    r"Colour and percentage: share of the row; below it the count\.": lambda f, m: True,
    r"Training labels \(columns\) by true grade \(rows\), as shares of each row\.": (
        lambda f, m: f["truth"] and f["finished"]
    ),
    r"Label precision: .+|Selection recall per grade: .+": lambda f, m: f["truth"] and f["networks"] == 2,
}  # fmt: skip

OF_IMAGES = {"image size", "crop", "resize", "flip"}


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captions are checked, not drawings."""
    for name in ("chart", "confusion_figure", "transition_figure"):
        monkeypatch.setattr(run_figures, name, lambda *args, **kwargs: None)


@pytest.mark.parametrize("number", range(len(COMBINATIONS)))
def test_the_page_of_a_run_is_true(number: int, tmp_path: Path) -> None:
    (settings, estimated, networks, noise, noise_settings), network, sides, length, truth = COMBINATIONS[
        number
    ]
    chosen = {**settings, **network, **length}
    folder = make_run(tmp_path / "run", sides=sides, truth=truth, estimated=estimated, **chosen)
    finished, epochs = length.get("finished", True), length.get("epochs", 12)
    reached = epochs if finished else epochs // 2
    name = "your own network" if network.get("own_network") else network.get("network", "mlp")
    epochs_text = f"{epochs} epoch{'s' * (epochs != 1)}"
    facts = {
        "method": display_name(settings["method"]),
        "network": name,
        "epochs": epochs_text if finished else f"{reached} of {epochs_text} so far",
        "noise": noise,
        "networks": networks,
        "pooled": settings.get("convention") == "published-code",
        "sides": set(sides),
        "truth": truth,
        "finished": finished,
        "reached": reached,
        "folder": folder,
    }
    page = run_page(folder)
    used = check(page, RULES, facts)

    shown = facts_of(page)
    assert {side: shown.get(f"{side} samples") for side in SIZES} == {
        side: str(SIZES[side]) if side in sides else None for side in SIZES
    }
    assert shown.get("wrong labels") == ("25.0% of the training side" if truth and finished else None)
    assert {"noise rate", "transition"} & shown.keys() == noise_settings
    pretrained = None if network.get("network") != "resnet18" else "no" if "pretrained" in network else "yes"
    assert shown.get("pretrained") == pretrained
    assert shown["network"] == ("your own" if network.get("own_network") else name)
    assert OF_IMAGES & shown.keys() == (set() if network.get("features") else OF_IMAGES)
    assert ("soft labels" in shown) == (settings["method"] in ("sord", "co-teaching+ours", "jocor+ours"))
    assert not any("patient" in text or "fold" in text for text in shown.values())  # a run does not know them
    data = next(section for section in all_sections(page) if section.slug == "data")
    assert sum(count for _, count in data.counts) == SIZES["train"]
    assert [grade for grade, _ in data.counts] == list(GRADES)
    results = [section for section in all_sections(page) if section.slug == "results"]
    evaluated = len(sides) > 1 and reached > 0
    assert bool(results) == evaluated
    for table in itertools.chain.from_iterable(section.tables for section in results):
        assert {column.name for column in table.columns} == {"metric", *sides} - {"train"}
        assert ("±" in table.rows[0].cells[1].text) == (reached > 1)
    assert any(re.match("The run has not", rule) for rule in used) == (not finished)
    assert any(re.match("All samples were used", rule) for rule in used) == (len(sides) == 1)


def test_the_combinations_differ_and_cover_every_choice() -> None:
    assert len({repr(combination) for combination in COMBINATIONS}) == len(COMBINATIONS) > 40
    for place, choices in enumerate((METHODS, NETWORKS, SIDES, LENGTHS, [True, False])):
        assert all(any(combination[place] == choice for combination in COMBINATIONS) for choice in choices)


def test_a_finished_run_without_its_weights_is_still_finished(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", network="tiny", method="standard")
    (folder / "weights.safetensors").unlink()  # to save space
    assert run_page(folder).notes == []


def test_a_run_before_its_first_epoch_is_not_said_to_have_no_test(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", network="tiny", method="standard", finished=False, epochs=1)
    assert [note.text for note in run_page(folder).notes] == [
        "The run has not finished: run the same command again to resume it."
    ]
