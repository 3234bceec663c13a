"""``noise_rate="auto"``: estimated once, from the training side alone, and only where it is
needed."""

import json
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srjt
from refusals import refuses
from srjt.data import Manifest, Split, folds
from srjt.noise.basis import Basis, Undetermined
from srjt.training import noise_rate as auto
from srjt.training.config import TrainConfig
from srjt.training.folder import read_noise_estimate
from srjt.training.noise_rate import resolve_noise_rate, warm_up
from srjt.training.reporters import BarReporter
from srjt.training.single_run import single_run
from srjt.training.trained import Setup

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def split(noisy: Manifest) -> Split:
    return folds(noisy, folds=4)[0]


class Stop(BarReporter):
    """Interrupts after an epoch of the warm-up, or of the training."""

    def __init__(self, epoch: int, *, warm_up: bool = False) -> None:
        super().__init__()
        self.when = epoch, warm_up

    def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
        if (epoch, self.title == "warm-up") == self.when:
            raise KeyboardInterrupt


@pytest.fixture
def asked(fits: TrainConfig) -> TrainConfig:
    return fits.replace(method="co-teaching+ours", noise_rate="auto")


def resolve(noisy: Manifest, config: TrainConfig, out: Path | None = None, **setup: Any) -> Any:
    """The configuration with a rate, and the estimate."""
    return resolve_noise_rate(noisy, config=config, out=out, setup=Setup(device="cpu", **setup))


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **how: Any) -> None:
        raise AssertionError("nothing was to be trained for an estimate")

    monkeypatch.setattr(auto, "cross_fit", refuse)


@pytest.mark.slow
def test_the_run_uses_the_estimate(
    noisy: Manifest, split: Split, asked: TrainConfig, tmp_path: Path
) -> None:
    watching, asked = BarReporter(), asked.replace(epochs=9)
    run = srjt.train(
        noisy, split=split, config=asked, out=tmp_path / "run", device="cpu", reporter=watching
    )
    estimate = read_noise_estimate(tmp_path / "run")
    assert run.config.noise_rate == estimate.rate
    assert run.config.transition is None  # co-teaching does not ask for it
    assert (
        json.loads((tmp_path / "run" / "run.json").read_text())["config"]["noise_rate"]
        == estimate.rate
    )
    low, high = estimate.rate_interval
    rate = f"noise rate {estimate.rate:.2f} (95 % {low:.2f} to {high:.2f})"
    expected = f"Estimated {rate} from {len(split.train)} training labels."
    assert expected in watching.notes
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["noise"]
    used = {"estimated": estimate.rate, "used": estimate.rate}
    assert recorded == {"requested": "auto", "why": expected, **used}
    assert not (tmp_path / "run" / "warmup").exists()
    assert estimate.samples == len(split.train)


@pytest.mark.slow
def test_a_resumed_run_reuses_the_estimate(
    noisy: Manifest, split: Split, asked: TrainConfig, tmp_path: Path, monkeypatch: Any
) -> None:
    given: dict[str, Any] = {
        "split": split, "out": tmp_path / "run", "device": "cpu", "config": asked.replace(checkpoint_seconds=0)
    }  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        srjt.train(noisy, reporter=Stop(2), **given)
    monkeypatch.setattr(auto, "cross_fit", None)  # a call would fail
    run = srjt.train(noisy, **given)
    assert run.metrics["epoch"].max() == 3
    assert run.config.noise_rate == read_noise_estimate(tmp_path / "run").rate  # type: ignore[union-attr]
    assert srjt.train(noisy, **given).config == run.config  # and of a finished one, too
    other = noisy.with_noisy_labels((noisy.labels + 1) % 4)
    with refuses("settings_changed", "out", says="verified grades"):
        srjt.train(other, **given)
    with refuses("settings_changed", "out", says="epochs was 3 and is now 9"):
        srjt.train(noisy, epochs=9, **given)  # long enough for other short trainings


@pytest.mark.slow
def test_a_warm_up_is_resumed(
    noisy: Manifest, split: Split, asked: TrainConfig, tmp_path: Path
) -> None:
    class Rest(BarReporter):
        first = 99

        def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
            self.first = min(self.first, epoch)

    config, rest = asked.replace(checkpoint_seconds=0, epochs=9), Rest()
    with pytest.raises(KeyboardInterrupt):
        resolve(noisy, config, tmp_path / "run", split=split, reporter=Stop(5, warm_up=True))
    assert (tmp_path / "run" / "warmup" / "fold0").is_dir()
    _, estimate = resolve(noisy, config, tmp_path / "run", split=split, reporter=rest)
    assert rest.first > 3
    assert estimate.rate == resolve(noisy, config, split=split)[1].rate


def test_only_the_training_side_is_used(noisy: Manifest, split: Split, asked: TrainConfig) -> None:
    _, estimate = resolve(noisy, asked, split=split)
    elsewhere = np.concatenate([split.validation, split.test])
    arrays, table = noisy.arrays.copy(), noisy.table.copy()
    arrays[elsewhere] = 1e3
    table.loc[elsewhere, "grade"] = 3 - table.loc[elsewhere, "grade"]
    table["true_grade"] = 0
    _, again = resolve(replace(noisy, arrays=arrays, table=table), asked, split=split)
    assert estimate.to_dict() == again.to_dict()


@pytest.mark.usefixtures("forbidden")
def test_what_is_not_needed_is_not_estimated(
    noisy: Manifest, fits: TrainConfig, tmp_path: Path
) -> None:
    asked = fits.replace(method="standard", noise_rate="auto")
    config, estimate = resolve_noise_rate(noisy, config=asked, out=tmp_path)
    assert (config.noise_rate, estimate) == (None, None)
    assert list(tmp_path.iterdir()) == []
    given = fits.replace(method="co-teaching", noise_rate=0.2)
    assert resolve_noise_rate(noisy, config=given, out=tmp_path) == (given, None)
    matrix = np.eye(4).tolist()  # both are known to f-correction: the matrix is all it needs
    known = fits.replace(method="f-correction", noise_rate="auto", transition=matrix)
    assert resolve_noise_rate(noisy, config=known)[1] is None


def test_soft_labels_may_follow_the_estimate(noisy: Manifest, asked: TrainConfig) -> None:
    config, estimate = resolve(noisy, asked.replace(soft_labels="estimated"))
    joint = estimate.prior[:, None] * estimate.transition  # Bayes: p(true | label)
    np.testing.assert_allclose(config.method_options["label_matrix"], (joint / joint.sum(axis=0)).T)
    single_run(noisy, config=config.replace(epochs=1), setup=Setup(device="cpu"))
    same = resolve(noisy, asked.replace(method="sord", soft_labels="estimated"))[0]
    assert same.method_options["label_matrix"] == config.method_options["label_matrix"]


@pytest.mark.usefixtures("forbidden")
def test_soft_labels_that_cannot_be_are_one_sentence(noisy: Manifest, asked: TrainConfig) -> None:
    with refuses("unsupported", "soft_labels", says="standard"):
        resolve_noise_rate(noisy, config=asked.replace(method="standard", soft_labels="estimated"))
    with refuses("missing_option", "soft_labels"):
        asked.replace(noise_rate=0.2, soft_labels="estimated")
    own = asked.replace(soft_labels="estimated", method_options={"label_matrix": np.eye(4)})
    with refuses("conflict", "soft_labels"):
        resolve_noise_rate(noisy, config=own)


def test_the_training_itself_refuses_an_unresolved_noise_rate(
    noisy: Manifest, asked: TrainConfig
) -> None:
    with refuses("missing_option", "noise_rate", says="'auto'"):
        single_run(noisy, config=asked, setup=Setup(device="cpu"))


@pytest.mark.parametrize("method", ["co-teaching+ours", "f-correction"])
def test_an_unknown_rate_warns(
    noisy: Manifest, fits: TrainConfig, monkeypatch: Any, method: str
) -> None:
    real = auto.estimate_noise

    def pretend(*given: Any, **how: Any) -> Any:
        found = real(*given, **how, identifiable=False)
        return replace(
            found,
            rate=0.03,
            rate_interval=(0.0, 0.35),
            undetermined=Undetermined(kind="stored", text="the networks know nothing."),
            basis=Basis(kind="stored", text="The rate assumes luck."),
        )

    monkeypatch.setattr(auto, "estimate_noise", pretend)
    expected = (
        r"Estimated noise rate between 0\.00 and 0\.35 \(95 %\) from 240 training labels; they do not determine it, "
        r"and 0\.03 is used\. The "
        r"networks know nothing\. The rate assumes luck\. Verified grades of a random sample \(column verified_grade\) "
        r"or a rate that you know"
    )
    with pytest.warns(UserWarning, match=expected) as raised:
        config, estimate = resolve_noise_rate(
            noisy, config=fits.replace(method=method, noise_rate="auto"), setup=Setup(device="cpu")
        )
    assert len(raised) == 1
    assert raised[0].filename == __file__  # Python shows a line of the caller's code, not of ours
    assert config.noise_rate == estimate.rate == 0.03
    if method == "f-correction":
        np.testing.assert_array_equal(config.transition, estimate.transition)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the recipe discards nothing: a note is enough
        resolve(noisy, fits.replace(method="srjt"))


def test_several_processes_at_once_are_refused_unless_it_is_known(
    noisy: Manifest, asked: TrainConfig, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refuses("unsupported", "noise_rate"):
        resolve(noisy, asked, tmp_path / "run")
    monkeypatch.delenv("WORLD_SIZE")
    config, _ = resolve(noisy, asked, tmp_path / "run")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert resolve(noisy, asked, tmp_path / "run")[0] == config


def test_two_that_need_the_same_estimate_make_it_once(
    noisy: Manifest, asked: TrainConfig, tmp_path: Path, monkeypatch: Any
) -> None:
    made, found, begun = [], [], threading.Barrier(2)
    real = auto.cross_fit

    def counting(*args: Any, **how: Any) -> Any:
        made.append(1)
        return real(*args, **how)

    def settle() -> None:
        begun.wait()
        config, _ = resolve(noisy, asked, tmp_path / "shared")
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


def test_the_warm_up_is_short_and_has_no_noise_rate(asked: TrainConfig) -> None:
    run = asked.replace(epochs=150, milestones=(100,), soft_labels="estimated")
    short = warm_up(run, samples=1_000)
    assert (short.noise_rate, short.transition, short.milestones) == (None, None, None)
    assert short.soft_labels == "paper"
    # three trainings on two thirds of the samples, each by one network: at most a third of the run
    # of two
    assert [
        warm_up(asked.replace(epochs=n), samples=1_000).epochs for n in (1, 2, 20, 30, 150)
    ] == [1, 1, 6, 10, 30]
    assert (short.network, short.learning_rate, short.seed) == (
        run.network,
        run.learning_rate,
        run.seed,
    )


@pytest.mark.slow
def test_a_recipe_needs_no_rate(
    noisy: Manifest, split: Split, fits: TrainConfig, tmp_path: Path
) -> None:
    """``srjt`` as it is asked for: nothing but its name. The estimate is the one that other methods
    get."""
    config = fits.replace(method="srjt", noise_rate=None)
    run = srjt.train(noisy, split=split, config=config, out=tmp_path / "run", device="cpu")
    estimate = read_noise_estimate(tmp_path / "run")
    assert run.config.noise_rate == min(estimate.rate, 0.5)
    other = fits.replace(method="co-teaching", noise_rate="auto")
    chosen = config.for_data(features=True, samples=1_000)
    short = warm_up(chosen, samples=1_000)
    assert short == warm_up(config, samples=1_000) == warm_up(other, samples=1_000)
    _, same = resolve(noisy, other, split=split)
    assert same.rate == estimate.rate
    again = srjt.train(noisy, split=split, config=config, out=tmp_path / "run", device="cpu")
    assert again.config == run.config


@pytest.mark.usefixtures("forbidden")
def test_a_misspelt_option_is_known_before_the_warm_up(noisy: Manifest, fits: TrainConfig) -> None:
    settings = {"method": "jocor+ours", "noise_rate": "auto", "method_options": {"temprature": 1.0}}
    with refuses("unknown_name"):
        srjt.train(noisy, config=fits, device="cpu", **settings)


@pytest.mark.slow
def test_verified_grades_of_the_training_side_are_used(
    noisy: Manifest, split: Split, asked: TrainConfig, tmp_path: Path, monkeypatch: Any
) -> None:
    real, seen = auto.estimate_noise, []

    def watch(*given: Any, **how: Any) -> Any:
        seen.append(how["verified"])
        return real(*given, **how)

    monkeypatch.setattr(auto, "estimate_noise", watch)
    verified = np.where(np.arange(len(noisy)) % 3 == 0, noisy.true_labels, -1)
    checked = replace(noisy, table=noisy.table.assign(verified_grade=verified))
    resolve(checked, asked, tmp_path / "run", split=split)
    np.testing.assert_array_equal(seen[0], verified[split.train])
    resolve(checked, asked, tmp_path / "run", split=split)
    assert len(seen) == 1
    with refuses("settings_changed", "out", says="noise.json"):
        resolve(noisy, asked, tmp_path / "run", split=split)
    resolve(noisy, asked, tmp_path / "without", split=split)
    assert seen[1] is None


@pytest.mark.parametrize(
    ("settings", "used", "why"),
    [
        ({"method": "co-teaching", "noise_rate": 0.2}, 0.2, "The rate was given."),
        ({"method": "sord", "noise_rate": "auto"}, None, "The method needs no noise rate."),
        ({"method": "sord", "noise_rate": 0.2}, None, "The method needs no noise rate."),
        (
            {"method": "f-correction", "transition": np.eye(4).tolist()},
            None,
            "The matrix was given.",
        ),
    ],
)
def test_the_run_records_why_it_used_a_rate(
    noisy: Manifest,
    fits: TrainConfig,
    tmp_path: Path,
    settings: dict[str, Any],
    used: float | None,
    why: str,
) -> None:
    srjt.train(noisy, config=fits.replace(**settings), epochs=1, out=tmp_path / "run", device="cpu")
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["noise"]
    assert recorded == {
        "requested": settings.get("noise_rate"),
        "estimated": None,
        "used": used,
        "why": why,
    }
