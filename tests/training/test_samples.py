"""Which samples ``srjt.train`` uses, how often each is drawn, what a method remembers of them, and
how many wrong labels the networks repeat.
"""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import srjt
from refusals import refuses
from srjt import methods
from srjt.methods.single import EarlyLearning
from srjt.training.batches import balancing_weights, draw_plan


def test_the_split_column_is_used_unless_all_samples_are_asked_for() -> None:
    features = np.random.default_rng(0).normal(size=(30, 4))
    sides = ["train"] * 20 + ["validation"] * 4 + ["test"] * 6
    data = srjt.data.from_arrays(features, np.arange(30) % 3, split=sides)
    settings: dict[str, Any] = {"method": "standard", "epochs": 1, "device": "cpu"}
    trained_on = [len(srjt.train(data, split=split, **settings).history) for split in (None, "all")]  # type: ignore[arg-type]
    assert trained_on == [20, 30]
    with refuses("wrong_type", "split", says="srjt.data.folds(data)[0]"):
        srjt.train(data, split=0, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "refused"),
    [
        ({"train": 12, "test": 18}, None),
        ({"train": 40, "test": 50}, ("no_match", "split", "row 30")),
        ({"train": 20, "test": 15}, ("not_unique", "split")),
    ],
)
def test_a_split_of_other_data_is_noticed(
    rows: dict[str, int], refused: tuple[str, ...] | None
) -> None:
    """train: rows 0 … ; test: up to this row, from the end of the training side or, if that is
    later, from row 10."""
    data = srjt.data.from_arrays(np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3)
    start = min(rows["train"], rows["test"] - 6)
    train, test = np.arange(rows["train"]), np.arange(start, rows["test"])
    split = srjt.data.Split(train=train, validation=np.empty(0, int), test=test)
    settings: dict[str, Any] = {"method": "standard", "epochs": 1, "device": "cpu"}
    if refused is None:
        with pytest.warns(UserWarning, match="12 samples are on no side of the split"):
            srjt.train(data, split=split, **settings)
    else:
        with refuses(*refused):
            srjt.train(data, split=split, **settings)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("as_function", [False, True])
def test_leaks_of_a_given_split_are_said_once(as_function: bool) -> None:
    features = np.random.default_rng(0).normal(size=(30, 20))
    features[25] = features[3]
    patients = [f"p{row % 7}" for row in range(30)]
    data = srjt.data.from_arrays(features, np.arange(30) % 3, patients=patients)
    sides = np.array_split(np.arange(30), 3)
    split = srjt.data.Split(train=sides[0], validation=sides[1], test=sides[2])
    with pytest.warns(srjt.data.LeakageWarning) as warned:
        srjt.train(
            data,
            split=(lambda _: split) if as_function else split,
            network="linear",
            epochs=3,
            device="cpu",
            noise_rate="auto",
        )
    said = [str(warning.message) for warning in warned if "on two sides" in str(warning.message)]
    assert [text.split(" (")[0] for text in said] == [
        "The split has patients on two sides",
        "The split has identical images on two sides",
    ]


@pytest.mark.usefixtures("quick")
def test_a_split_is_made_once() -> None:
    """A function that counts, or looks at true grades, cannot give the noise estimate other samples
    than the run."""
    data = srjt.data.from_arrays(np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3)
    made: list[int] = []

    def another(manifest: srjt.data.Manifest) -> srjt.data.Split:
        made.append(len(manifest))
        return srjt.data.folds(manifest, seed=len(made))[0]

    settings: dict[str, Any] = {"epochs": 3, "device": "cpu", "noise_rate": "auto"}
    run = srjt.train(data, split=another, method="co-teaching", **settings)
    assert made == [60]
    assert set(run.history["id"]) == {
        data.ids[row] for row in srjt.data.folds(data, seed=1)[0].train
    }


# Balanced sampling: rare grades are drawn more often, and everyone as evenly as can be.
LABELS = torch.tensor([0] * 80 + [1] * 15 + [2] * 5)


def drawn(balance: float, *, epochs: int = 1) -> torch.Tensor:
    """(N,) how often each sample comes, over some epochs."""
    weights = balancing_weights(LABELS, balance=balance)
    draw = partial(draw_plan, 100, batch_size=20, seed=0, margin=4, weights=weights)
    rows = [draw(epoch=epoch).rows.flatten() for epoch in range(1, epochs + 1)]
    return torch.bincount(torch.cat(rows), minlength=100)


def test_without_balance_every_sample_comes_once_with_it_every_grade_as_often() -> None:
    assert balancing_weights(LABELS, balance=0.0) is None
    assert drawn(0.0).tolist() == [1] * 100
    counts = torch.stack([drawn(1.0, epochs=30)[grade == LABELS].sum() for grade in range(3)])
    assert (counts - 1000).abs().max() <= 30  # one comb per epoch: never more than one off


@given(balance=st.floats(0.05, 1.0), epoch=st.integers(1, 50))
def test_each_comes_as_often_as_expected_rounded_up_or_down(balance: float, epoch: int) -> None:
    weights = balancing_weights(LABELS, balance=balance)
    expected = 100 * weights / weights.sum()
    plan = draw_plan(100, batch_size=10, epoch=epoch, seed=3, margin=4, weights=weights)
    counts = torch.bincount(plan.rows.flatten(), minlength=100)
    assert (counts >= expected.floor()).all()
    assert (counts <= expected.ceil() + 1e-9).all()


@pytest.mark.slow
def test_a_balanced_training_sees_rare_grades_more_often(train: Any) -> None:
    run = train(balance=1.0, epochs=2, noise_rate=0.2)
    seen = run.history.groupby("grade")["seen"].agg(["sum", "size"])
    assert seen["sum"].max() - seen["sum"].min() <= 2 * 16 + 8  # but for the dropped last batches
    assert seen["size"].max() > 1.5 * seen["size"].min()  # else this means nothing


# What a method remembers of its samples is part of the training: saved, restored, and undone after
# a warm-up.
@pytest.mark.slow
def test_the_loop_says_how_far_the_training_is(data: Any, train: Any, monkeypatch: Any) -> None:
    seen: list[tuple[float, int]] = []

    @dataclass(frozen=True, kw_only=True)
    class Watching(EarlyLearning):
        def memory(self, samples: int) -> dict[str, Tensor]:
            return {"progress": torch.zeros(()), "averages": torch.zeros(samples, self.num_classes)}

        def loss(
            self, logits: Tensor, targets: Tensor, *, memory=None, rows=None, **more: Any
        ) -> Any:
            seen.append((float(memory["progress"]), len(memory["averages"])))
            return super().loss(logits, targets, memory=memory, rows=rows)

    monkeypatch.setattr(methods, "_REGISTRY", dict(methods._REGISTRY))
    srjt.methods.register_method("watching", scores="s", updates="u", paper="p")(Watching)
    train(method="watching", epochs=4)
    assert sorted({progress for progress, _ in seen}) == [0.0, 0.25, 0.5, 0.75]
    assert {samples for _, samples in seen} == {len(data.split.train)}


# How many of the wrong training labels the networks repeat, epoch by epoch.
@pytest.mark.slow
def test_the_last_epoch_is_what_the_networks_say(data: Any, train: Any, tmp_path: Path) -> None:
    common = {"method": "co-teaching", "epochs": 2, "learning_rate": 3e-3}
    run = train(out=tmp_path / "run", track_wrong_labels=True, **common)
    given, true = data.manifest.labels, data.manifest.true_labels
    wrong = data.split.train[given[data.split.train] != true[data.split.train]]
    _, answers = run.probabilities(data.manifest.arrays[wrong])
    tracked = run.metrics[
        (run.metrics["split"] == "wrong_labels") & (run.metrics["metric"] == "accuracy")
    ]
    assert set(tracked["epoch"]) == {1, 2}
    for network in (1, 2):
        last = tracked[(tracked["epoch"] == 2) & (tracked["network"] == str(network))][
            "value"
        ].item()
        assert last == pytest.approx(np.mean(answers[network - 1] == given[wrong]))
    # nothing else of the run changes
    plain = train(**common)
    others = run.metrics[run.metrics["split"] != "wrong_labels"].reset_index(drop=True)
    timed = ["images_per_second", "seconds", "peak_memory_mb"]
    pd.testing.assert_frame_equal(
        *(one[~one["metric"].isin(timed)] for one in (others, plain.metrics))
    )
    assert set(run.held_out) == set(plain.held_out) == {"validation", "test"}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert set(summary["confusion"]) == {"validation", "test"}
    # the same folder is not resumed with other rows in its metrics
    with refuses("settings_changed", "out", says="track_wrong_labels"):
        train(out=tmp_path / "run", **common)
