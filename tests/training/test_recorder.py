"""What is remembered of each sample, and the watch over grades that are no longer selected."""

from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from srjt import methods
from srjt.training.checkpoint import MetricRow
from srjt.training.rarely_kept import PATIENCE, rarely_kept_advice, rarely_kept_warning
from srjt.training.reporters import BarReporter
from srjt.training.step import SMOOTHING, Recorder


@pytest.mark.slow
def test_selections_add_up_to_what_was_to_be_kept(data: Any, train: Any) -> None:
    run = train(method="co-teaching+ours", epochs=4)
    steps = len(data.split.train) // 16
    keep = [run.method.keep(epoch, 16) for epoch in range(1, 5)]
    assert keep == [15, 14, 13, 11]
    assert run.history["seen"].sum() == 4 * steps * 16
    assert run.history["selected_1"].sum() == run.history["selected_2"].sum() == steps * sum(keep)
    assert (run.history[["selected_1", "selected_2"]].max(axis=1) <= run.history["seen"]).all()
    assert run.history["id"].tolist() == [data.manifest.ids[row] for row in data.split.train]
    assert (run.history["grade"].to_numpy() == data.manifest.labels[data.split.train]).all()
    logged = run.metrics.query("metric == 'kept'")["value"].tolist()
    assert logged == [k / 16 for k in keep]


def test_a_method_that_selects_nothing_takes_everything(train: Any) -> None:
    run = train(method="standard")
    assert (run.history["selected_1"] == run.history["seen"]).all()
    kept = run.metrics[run.metrics["metric"].str.startswith("kept")]
    assert (kept["value"] == 1.0).all()
    recall = run.metrics[run.metrics["metric"] == "label_recall"]
    assert (recall["value"] == 1.0).all()


def test_counts_against_counting_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    labels, true = (torch.randint(3, (20,), generator=generator) for _ in range(2))
    recorder = Recorder(labels, true, networks=2, num_classes=3, steps=2)
    recorder.start_epoch()
    seen: list[tuple[int, int, bool]] = []
    for start in (0, 8):
        rows = torch.arange(start, start + 8)
        selected = torch.rand(2, 8, generator=generator) < 0.5
        loss = torch.rand(2, 8, generator=generator)
        recorder.add(rows, torch.tensor(1.0), torch.tensor([1.0, 3.0]) + start, selected, loss)
        seen += [(k, int(row), bool(selected[k, i])) for k in (0, 1) for i, row in enumerate(rows)]
    numbers, bad_step = recorder.finish_epoch()
    assert [network["loss"] for network in numbers] == [5.0, 7.0]
    assert bad_step is None
    for k in (0, 1):
        mine = [(row, chosen) for network, row, chosen in seen if network == k]
        chosen_rows = [row for row, chosen in mine if chosen]
        clean = [row for row, _ in mine if labels[row] == true[row]]
        both = set(chosen_rows) & set(clean)
        quality = numbers[k]
        assert quality["label_precision"] == pytest.approx(len(both) / len(chosen_rows))
        assert quality["label_recall"] == pytest.approx(len(both) / len(clean))
        for grade in range(3):
            of_grade = [row for row in chosen_rows if labels[row] == grade]
            right = len(set(of_grade) & both)
            assert quality[f"label_precision[{grade}]"] == pytest.approx(right / len(of_grade))
            share = len(of_grade) / len([row for row, _ in mine if labels[row] == grade])
            assert quality[f"kept[{grade}]"] == pytest.approx(share)


def test_the_running_loss_forgets_slowly_and_starts_at_the_first() -> None:
    recorder = Recorder(torch.zeros(3, dtype=torch.int64), None, networks=1, num_classes=2, steps=1)
    rows, every = torch.tensor([0, 2]), torch.ones(1, 2, dtype=torch.bool)
    for losses in ([1.0, 2.0], [3.0, 2.0]):
        recorder.add(rows, torch.tensor(0.0), torch.zeros(1), every, torch.tensor([losses]))
    history, smooth = recorder.history(), SMOOTHING + 3 * (1 - SMOOTHING)
    assert history["loss_1"].to_numpy() == pytest.approx([smooth, np.nan, 2.0], nan_ok=True)
    assert history["seen"].tolist() == [2, 0, 2]


def test_the_first_bad_step_is_remembered_for_its_epoch_only() -> None:
    recorder = Recorder(torch.zeros(2, dtype=torch.int64), None, networks=1, num_classes=2, steps=3)
    arguments = torch.zeros(1), torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2)
    recorder.start_epoch()
    for total in (1.0, float("inf"), float("nan")):
        recorder.add(torch.arange(2), torch.tensor(total), *arguments)
    assert recorder.finish_epoch()[1] == 1
    recorder.start_epoch()
    recorder.add(torch.arange(2), torch.tensor(1.0), *arguments)
    assert recorder.finish_epoch()[1] is None


FED, STARVED, ABSENT = [0.6, 0.6, 0.5], [0.8, 0.7, 0.0], [0.6, 0.6, float("nan")]


def warnings_of(*epochs: list[list[float]]) -> list[str | None]:
    """What is said after each epoch. epochs: the share of each grade that each network has
    selected."""
    rows: list[MetricRow] = []
    said = []
    for epoch, networks in enumerate(epochs, start=1):
        rows.append(MetricRow(epoch, "train", "", "kept", 0.6))
        for k, shares in enumerate(networks):
            for c, share in enumerate(shares):
                rows.append(MetricRow(epoch, "train", str(k + 1), f"kept[{c}]", share))
        advice = rarely_kept_advice(methods.CoTeaching)
        said.append(rarely_kept_warning(rows, ["none", "mild", "severe"], advice=advice))
    return said


def test_one_warning_after_several_epochs() -> None:
    said = warnings_of(*[[FED, STARVED]] * (PATIENCE + 5))
    message = said.pop(PATIENCE - 1)
    assert said == [None] * len(said)
    assert message.startswith(
        f"The selection is starving grade severe: for {PATIENCE} epochs hardly any"
    )
    for advice in ("{'per_class': True}", "{'ramp_epochs': 10}", "`noise_rate`"):
        assert advice in message
    assert "mild" not in message


class Threshold(methods.JointTraining):
    """It keeps no fixed number, and needs no noise rate."""

    needs: ClassVar[tuple[str, ...]] = ()

    def selection(
        self, losses_KB: torch.Tensor, logits: torch.Tensor, keep: Any, **memory: Any
    ) -> torch.Tensor:
        return losses_KB < 1.0


def test_a_warning_names_only_what_the_method_has() -> None:
    rows = [MetricRow(epoch, "train", "", "kept", 0.6) for epoch in (1, 2, 3)]
    rows += [MetricRow(epoch, "train", "1", "kept[1]", 0.0) for epoch in (1, 2, 3)]
    said = [
        str(rarely_kept_warning(rows, ["0", "1"], advice=rarely_kept_advice(method))).partition(
            "unlearning it."
        )[2]
        for method in (methods.CoTeaching, Threshold, methods.Standard, methods.Cdr)
    ]
    assert said == [
        " Try a slower ramp (`method_options={'ramp_epochs': 10}`), `method_options={'per_class': True}` or a smaller "
        "`noise_rate`.",
        "",
        "",
        " Try a smaller `noise_rate`.",
    ]


@pytest.mark.parametrize(
    "epochs", [[[STARVED, FED], [FED, STARVED], [FED, FED]] * 4, [[ABSENT, ABSENT]] * 6]
)
def test_epochs_must_follow_each_other_and_the_grade_be_in_the_data(
    epochs: list[list[list[float]]],
) -> None:
    assert warnings_of(*epochs) == [None] * len(epochs)


@pytest.mark.slow
def test_a_training_that_starves_a_grade_warns(train: Any) -> None:
    """A network that answers the mildest grade to everything, with nine tenths dropped."""

    class Stubborn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ones = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 100 * self.ones * torch.ones(len(x), 1)

    reporter = BarReporter()
    chosen = {"network": Stubborn, "noise_rate": 0.7, "epochs": 8, "learning_rate": 1e-9}
    chosen["method"] = "co-teaching+ours"
    train(reporter=reporter, method_options={"ramp_epochs": 1}, **chosen)
    assert len(reporter.notes) == 2
    assert reporter.notes[1].startswith("The selection is starving grade ")
    reporter = BarReporter()
    options = {"ramp_epochs": 1, "per_class": True}
    train(reporter=reporter, method_options=options, **chosen)
    assert len(reporter.notes) == 1
