"""``noise_rate="auto"``: estimated once, from the training side alone, and only where it is needed."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srjt
from srjt.data import Manifest, Split, folds
from srjt.errors import SrjtError
from srjt.training import resolve_noise as auto
from srjt.training.config import TrainConfig
from srjt.training.record.reporters import SilentReporter
from srjt.training.record.run_folder import read_noise_estimate
from srjt.training.resolve_noise import resolve_noise_rate, warm_up
from srjt.training.single_run import single_run

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def split(noisy: Manifest) -> Split:
    return folds(noisy, folds=4)[0]


@pytest.fixture
def asked(fits: TrainConfig) -> TrainConfig:
    return fits.replace(method="co-teaching+ours", noise_rate="auto")


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **how: Any) -> None:
        raise AssertionError("nothing was to be trained for an estimate")

    monkeypatch.setattr(auto, "cross_fit", refuse)


def test_the_run_uses_the_estimate_and_logs_it(
    noisy: Manifest, split: Split, asked: TrainConfig, tmp_path: Path
) -> None:
    watching = SilentReporter()
    run = srjt.train(noisy, split=split, config=asked, out=tmp_path / "run", device="cpu", reporter=watching)
    estimate = read_noise_estimate(tmp_path / "run")
    assert estimate is not None
    assert run.config.noise_rate == estimate.rate
    assert run.config.transition is None  # co-teaching does not ask for it
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["noise_rate"] == estimate.rate
    low, high = estimate.rate_interval
    expected = f"Estimated noise rate {estimate.rate:.2f} (95 %: {low:.2f}–{high:.2f}), banded form, from"
    assert any(note.startswith(expected) for note in watching.notes)
    assert not (tmp_path / "run" / "warmup").exists()
    assert estimate.samples == len(split.train)


def test_a_resumed_run_reuses_the_estimate(
    noisy: Manifest, split: Split, asked: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(SilentReporter):
        def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
            if epoch == 2 and self.title != "warm-up":
                raise KeyboardInterrupt

    given: dict[str, Any] = {
        "split": split, "out": tmp_path / "run", "device": "cpu", "config": asked.replace(checkpoint_seconds=0)
    }  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        srjt.train(noisy, reporter=Stop(), **given)
    monkeypatch.setattr(auto, "cross_fit", None)  # a call would fail
    run = srjt.train(noisy, **given)
    assert run.metrics["epoch"].max() == 3
    assert run.config.noise_rate == read_noise_estimate(tmp_path / "run").rate  # type: ignore[union-attr]
    assert srjt.train(noisy, **given).config == run.config  # and of a finished one, too
    other = noisy.with_noisy_labels((noisy.labels + 1) % 4)
    with pytest.raises(SrjtError, match=r"noise\.json was estimated from other images, labels or settings"):
        srjt.train(other, **given)


def test_an_interrupted_warm_up_is_resumed(
    noisy: Manifest, split: Split, asked: TrainConfig, tmp_path: Path
) -> None:
    class Stop(SilentReporter):
        def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
            if epoch == 5:
                raise KeyboardInterrupt

    class Rest(SilentReporter):
        def __init__(self) -> None:
            super().__init__()
            self.first = 99

        def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
            self.first = min(self.first, epoch)

    config, rest = asked.replace(checkpoint_seconds=0), Rest()
    given: dict[str, Any] = {"config": config, "split": split, "out": tmp_path / "run", "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        resolve_noise_rate(noisy, reporter=Stop(), **given)
    assert (tmp_path / "run" / "warmup" / "fold0").is_dir()
    _, estimate = resolve_noise_rate(noisy, reporter=rest, **given)
    assert rest.first > 3
    whole = resolve_noise_rate(noisy, config=config, split=split, device="cpu")[1]
    assert estimate is not None
    assert whole is not None
    assert estimate.rate == whole.rate


def test_only_the_training_side_is_used(noisy: Manifest, split: Split, asked: TrainConfig) -> None:
    _, estimate = resolve_noise_rate(noisy, config=asked, split=split, device="cpu")
    elsewhere = np.concatenate([split.validation, split.test])
    assert noisy.arrays is not None
    arrays, table = noisy.arrays.copy(), noisy.table.copy()
    arrays[elsewhere] = 1e3
    table.loc[elsewhere, "grade"] = 3 - table.loc[elsewhere, "grade"]
    table["true_grade"] = 0
    _, again = resolve_noise_rate(
        replace(noisy, arrays=arrays, table=table), config=asked, split=split, device="cpu"
    )
    assert estimate is not None
    assert again is not None
    assert estimate.to_dict() == again.to_dict()


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize("method", ["standard", "sord", "mixup"])
def test_what_a_method_does_not_need_is_not_estimated(
    noisy: Manifest, fits: TrainConfig, method: str, tmp_path: Path
) -> None:
    config, estimate = resolve_noise_rate(
        noisy, config=fits.replace(method=method, noise_rate="auto"), out=tmp_path
    )
    assert estimate is None
    assert config.noise_rate is None
    assert list(tmp_path.iterdir()) == []
    given = fits.replace(method="co-teaching", noise_rate=0.2)
    assert resolve_noise_rate(noisy, config=given, out=tmp_path) == (given, None)
    matrix = np.eye(4).tolist()  # both are known to f-correction: the matrix is all it needs
    known = fits.replace(method="f-correction", noise_rate="auto", transition=matrix)
    assert resolve_noise_rate(noisy, config=known)[1] is None


def test_methods_that_need_a_matrix_get_the_estimated_one(noisy: Manifest, fits: TrainConfig) -> None:
    config, estimate = resolve_noise_rate(
        noisy, config=fits.replace(method="f-correction", noise_rate="auto"), device="cpu"
    )
    assert estimate is not None
    np.testing.assert_array_equal(config.transition, estimate.transition)


def test_soft_labels_may_follow_the_estimate(noisy: Manifest, asked: TrainConfig) -> None:
    config, estimate = resolve_noise_rate(noisy, config=asked.replace(soft_labels="estimated"), device="cpu")
    assert estimate is not None
    joint = estimate.prior[:, None] * estimate.transition  # Bayes: p(true | label)
    np.testing.assert_allclose(config.method_options["label_matrix"], (joint / joint.sum(axis=0)).T)
    single_run(noisy, config=config.replace(epochs=1), device="cpu")
    same = resolve_noise_rate(
        noisy, config=asked.replace(method="sord", soft_labels="estimated"), device="cpu"
    )[0]
    assert same.method_options["label_matrix"] == config.method_options["label_matrix"]


@pytest.mark.usefixtures("forbidden")
def test_soft_labels_that_cannot_be_are_one_sentence(noisy: Manifest, asked: TrainConfig) -> None:
    with pytest.raises(SrjtError, match="standard does not learn from soft labels"):
        resolve_noise_rate(noisy, config=asked.replace(method="standard", soft_labels="estimated"))
    with pytest.raises(SrjtError, match="soft_labels 'estimated' needs noise_rate 'auto'"):
        asked.replace(noise_rate=0.2, soft_labels="estimated")
    own = asked.replace(soft_labels="estimated", method_options={"label_matrix": np.eye(4)})
    with pytest.raises(SrjtError, match="do not pass both"):
        resolve_noise_rate(noisy, config=own)
    with pytest.raises(SrjtError, match="Unknown soft_labels 'estimate': did you mean 'estimated'"):
        asked.replace(soft_labels="estimate")
    with pytest.raises(SrjtError, match=r"noise_rate takes a number such as 0\.2, or auto; got 'automatic'"):
        asked.replace(noise_rate="automatic")


def test_the_training_itself_refuses_an_unresolved_noise_rate(noisy: Manifest, asked: TrainConfig) -> None:
    with pytest.raises(SrjtError, match="noise_rate 'auto' has not been resolved"):
        single_run(noisy, config=asked, device="cpu")


def test_an_undetermined_rate_warns_and_is_clipped(
    noisy: Manifest, asked: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from functools import partial

    monkeypatch.setattr(auto, "estimate_noise", partial(auto.estimate_noise, identifiable=False))
    monkeypatch.setattr(auto, "PLAUSIBLE", (0.01, 0.02))
    with pytest.warns(
        UserWarning, match=r"do not determine the noise rate \(the networks know nothing\); 0\.02 is used"
    ):
        config, _ = resolve_noise_rate(noisy, config=asked, device="cpu")
    assert config.noise_rate == 0.02
    with pytest.warns(UserWarning, match=r"0\.02 is used"):
        config, estimate = resolve_noise_rate(
            noisy, config=asked.replace(method="f-correction"), device="cpu"
        )
    assert estimate is not None
    used = np.asarray(config.transition)  # not the matrix of an unreliable estimate
    assert float(estimate.prior @ (1 - np.diag(used))) == pytest.approx(0.02)
    np.testing.assert_allclose(used.sum(axis=1), 1.0)


def test_several_processes_at_once_are_refused_unless_it_is_known(
    noisy: Manifest, asked: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SrjtError, match="does not work with several processes"):
        resolve_noise_rate(noisy, config=asked, out=tmp_path / "run", device="cpu")
    monkeypatch.delenv("WORLD_SIZE")
    config, _ = resolve_noise_rate(noisy, config=asked, out=tmp_path / "run", device="cpu")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert resolve_noise_rate(noisy, config=asked, out=tmp_path / "run", device="cpu")[0] == config


def test_two_that_need_the_same_estimate_make_it_once(
    noisy: Manifest, asked: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, found, begun = [], [], threading.Barrier(2)
    real = auto.cross_fit

    def counting(*args: Any, **how: Any) -> Any:
        made.append(1)
        return real(*args, **how)

    def settle() -> None:
        begun.wait()
        config, _ = resolve_noise_rate(noisy, config=asked, out=tmp_path / "shared", device="cpu")
        found.append(config.noise_rate)

    monkeypatch.setattr(auto, "cross_fit", counting)
    threads = [threading.Thread(target=settle) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(found) == 2
    assert found[0] == found[1]


def test_a_damaged_estimate_is_one_sentence(noisy: Manifest, asked: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "noise.json").write_text('{"estimate": {"rate": 0.2}}')
    with pytest.raises(SrjtError, match=r"noise\.json is damaged or not from srjt"):
        resolve_noise_rate(noisy, config=asked, out=tmp_path, device="cpu")


def test_the_warm_up_is_short_and_has_no_noise_rate(asked: TrainConfig) -> None:
    run = asked.replace(epochs=150, milestones=(100,), soft_labels="estimated")
    short = warm_up(run)
    assert (short.noise_rate, short.transition, short.soft_labels, short.milestones) == (
        None,
        None,
        "paper",
        None,
    )
    assert short.epochs < run.epochs
    assert warm_up(asked.replace(epochs=2)).epochs == 2
    assert (short.network, short.learning_rate, short.seed) == (run.network, run.learning_rate, run.seed)


def test_a_recipe_needs_no_rate(noisy: Manifest, split: Split, fits: TrainConfig, tmp_path: Path) -> None:
    """``srjt`` as it is asked for: nothing but its name. The estimate is the one that other methods get."""
    config = fits.replace(method="srjt", noise_rate=None)
    run = srjt.train(noisy, split=split, config=config, out=tmp_path / "run", device="cpu")
    estimate = read_noise_estimate(tmp_path / "run")
    assert estimate is not None
    recipe = srjt.methods.lookup("srjt").recipe
    assert estimate.rate > recipe.least_rate
    assert (run.config.noise_rate, run.config.balance) == (estimate.rate, recipe.balance)
    assert run.config.method_options["ramp_epochs"] == recipe.ramp_epochs(config.epochs)
    other = fits.replace(method="co-teaching", noise_rate="auto")
    assert warm_up(config) == warm_up(config.for_data(features=True)) == warm_up(other)
    _, same = resolve_noise_rate(noisy, config=other, split=split, device="cpu")
    assert same is not None
    assert same.rate == estimate.rate
    again = srjt.train(noisy, split=split, config=config, out=tmp_path / "run", device="cpu")
    assert again.config == run.config


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize("options", [{"agree": "al"}, {"temprature": 1.0}])
def test_a_misspelt_option_is_known_before_the_warm_up(
    noisy: Manifest, fits: TrainConfig, options: dict[str, Any]
) -> None:
    with pytest.raises(SrjtError, match="did you mean"):
        srjt.train(noisy, config=fits, method="srjt", method_options=options, device="cpu")


@pytest.mark.usefixtures("forbidden")
def test_a_rate_that_is_given_to_a_recipe_is_used(noisy: Manifest, split: Split, fits: TrainConfig) -> None:
    run = srjt.train(noisy, split=split, config=fits, method="srjt", noise_rate=0.1, device="cpu")
    assert run.config.noise_rate == 0.1


UNCLEAR = "no image shows grade 1 clearly"


@pytest.mark.parametrize(
    ("found", "method", "used"),
    [
        ({"rate": 0.03, "caution": UNCLEAR}, "srjt", 0.3),
        ({"rate": 0.37, "caution": UNCLEAR}, "srjt", 0.37),
        ({"rate": 0.03, "caution": ""}, "srjt", 0.03),
        ({"rate": 0.03, "caution": UNCLEAR}, "jocor+ours", 0.03),
    ],
)
def test_a_low_estimate_is_raised_where_images_are_unclear(
    noisy: Manifest,
    split: Split,
    fits: TrainConfig,
    monkeypatch: pytest.MonkeyPatch,
    found: dict[str, Any],
    method: str,
    used: float,
) -> None:
    """Where no image shows a grade clearly, an estimate is too low. The recipe takes it for more; it stays as it is."""
    real = auto.estimate_noise

    def pretend(*given: Any, **how: Any) -> Any:
        return replace(real(*given, **how), identifiable=True, reason="", **found)

    monkeypatch.setattr(auto, "estimate_noise", pretend)
    watching = SilentReporter()
    config = fits.replace(method=method, noise_rate="auto")
    config_used, estimate = resolve_noise_rate(
        noisy, config=config, split=split, device="cpu", reporter=watching
    )
    assert estimate is not None
    assert (config_used.noise_rate, estimate.rate) == (used, found["rate"])
    assert any(note.startswith("srjt uses 0.30 instead") for note in watching.notes) == (used == 0.3)


def test_a_recipe_that_cannot_rely_on_the_estimate_drops_no_less(
    noisy: Manifest, fits: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from functools import partial

    monkeypatch.setattr(auto, "estimate_noise", partial(auto.estimate_noise, identifiable=False))
    monkeypatch.setattr(auto, "PLAUSIBLE", (0.01, 0.02))
    with pytest.warns(UserWarning, match=r"0\.30 is used"):
        config_used, _ = resolve_noise_rate(noisy, config=fits.replace(method="srjt"), device="cpu")
    assert config_used.noise_rate == 0.3
