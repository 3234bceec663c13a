"""The network ``odds``: a run like any other that is fitted at once, and the choice between it and
an mlp."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srjt
from refusals import refuses
from srjt.data.manifest import Manifest
from srjt.inference.predict import predict
from srjt.methods.single import ProportionalOdds
from srjt.noise.basis import Undetermined
from srjt.noise.estimate import NoiseEstimate
from srjt.ordinal import losses
from srjt.reports.checklist import run_facts
from srjt.run import Run
from srjt.training import choose_head as heads, fit_odds as odds, noise_rate
from srjt.training.batches import NO_READERS, ReaderTargets
from srjt.training.config import TrainConfig
from srjt.training.reporters import BarReporter
from srjt.training.trained import Setup

MATRIX = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.05, 0.25, 0.7]])
GIVEN: dict[str, Any] = {"device": "cpu", "progress": False}


def made(samples: int = 90, *, bent: bool = False, seed: int = 0) -> Manifest:
    """Two samples a patient. bent: the grade depends on the distance from 0, which no severity w·x
    can express."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 3)).astype(np.float32)
    place = 2.0 * np.abs(x[:, 0]) - 1.5 if bent else 1.5 * x[:, 0]
    grades = np.digitize(place + 0.3 * rng.normal(size=samples), [-0.8, 0.8])
    patients = [f"p{row // 2}" for row in range(samples)]
    return srjt.data.from_arrays(x, grades, patients=patients)


@pytest.fixture(scope="module")
def data() -> Manifest:
    return made()


@pytest.fixture(scope="module")
def run(data: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run") / "run"
    split = srjt.data.folds(data)[0]
    return srjt.train(
        data, split=split, network="odds", transition=MATRIX, out=out, epochs=30, **GIVEN
    )


def test_a_run_is_a_folder_like_others(data: Manifest, run: Run) -> None:
    assert run.folder is not None
    written = json.loads((run.folder / "run.json").read_text())["config"]
    assert (written["network"], written["epochs"]) == ("odds", 1)
    assert [written[name] for name in ("learning_rate", "optimizer", "weight_decay")] == [None] * 3
    assert "fitted at once" in run.describe()
    opened = srjt.load_run(run.folder, device="cpu")
    table, again = (predict(one, data) for one in (run, opened))
    assert table.equals(again)
    assert table.filter(regex="^p_").to_numpy().sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert run.scores.loc[("test", "mae"), "value"] < run.scores.loc[("test", "mae"), "naive"]
    assert (run.history["seen"] == 1).all()
    assert np.isfinite(run.history["loss_1"]).all()
    said = str(run_facts(run.folder, run.facts))
    assert "The model consists of 1 network (odds)" in said
    assert "fitted by L-BFGS" in said
    assert "epoch" not in said


@pytest.mark.slow
def test_a_finished_run_is_opened_and_an_unfinished_one_fitted_again(
    data: Manifest, run: Run
) -> None:
    assert run.folder is not None
    split = srjt.data.folds(data)[0]
    given: dict[str, Any] = {
        "split": split,
        "network": "odds",
        "transition": MATRIX,
        "out": run.folder,
        **GIVEN,
    }
    before = (run.folder / "weights.safetensors").read_bytes()
    assert srjt.train(data, **given).folder == run.folder
    with refuses("settings_changed", "out", says=("'odds'", "'mlp'")):
        srjt.train(data, **{**given, "network": "mlp"})
    (run.folder / "summary.json").unlink()  # as if it had been killed
    srjt.train(data, **given)
    assert (run.folder / "weights.safetensors").read_bytes() == before


def test_it_has_no_seed_and_no_epochs(data: Manifest, run: Run) -> None:
    split = srjt.data.folds(data)[0]
    settings: dict[str, Any] = {"seed": 7, "epochs": 3, "learning_rate": 0.5, "batch_size": 8}
    other = srjt.train(data, split=split, network="odds", transition=MATRIX, **settings, **GIVEN)
    for one, two in zip(run.networks.parameters(), other.networks.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_method_that_maximises_no_likelihood_is_refused(data: Manifest) -> None:
    with refuses("unsupported", "network", says="'mlp'"):
        srjt.train(data, network="odds", method="co-teaching", noise_rate=0.2, **GIVEN)
    with refuses("unsupported", "network", says="reads rows"):
        srjt.train(
            srjt.data.synthetic.generate(images=20, patients=10, size=32),
            network="odds",
            method="standard",
            **GIVEN,
        )


def test_probabilities_and_losses_are_those_of_the_thresholds() -> None:
    method = ProportionalOdds(num_classes=3, transition=MATRIX)
    logits = torch.tensor([[[0.4, -1.2], [40.0, 39.0], [-30.0, -31.0]]], dtype=torch.float64)
    above = torch.sigmoid(logits[0, :1])
    expected = torch.tensor([1 - above[0, 0], above[0, 0] - above[0, 1], above[0, 1]])
    torch.testing.assert_close(method.probabilities(logits)[0, 0], expected.double())
    exact, single = method.probabilities(logits), method.probabilities(logits.float())
    assert (single > 0).all()
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-20)
    assert method.grades(logits).tolist() == [[1, 2, 0]]
    p, labels = exact[0, :1], torch.tensor([2])
    corrected = -((p @ torch.from_numpy(MATRIX))[0, 2]).log()
    torch.testing.assert_close(method.per_sample(logits[0, :1], labels)[0], corrected)
    plain = ProportionalOdds(num_classes=3).per_sample(logits[0, :1], labels)
    torch.testing.assert_close(plain, -p[:, 2].log())
    soft = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(
        method.per_sample(logits[0, :1], soft), losses.soft_cross_entropy(p.log(), soft)
    )


def test_a_verified_grade_is_certain(data: Manifest) -> None:
    verified = np.full(len(data), -1)
    verified[:2] = (data.labels[:2] + 1) % 3
    known = replace(data, table=data.table.assign(verified_grade=verified))
    corrected = ProportionalOdds(num_classes=3, transition=MATRIX)
    targets = odds._targets(known, corrected, NO_READERS, balance=0.0)
    np.testing.assert_array_equal(targets.values[:2], np.eye(3)[verified[:2]])
    np.testing.assert_allclose(targets.values[2:], MATRIX[:, data.labels[2:]].T)
    given = odds._targets(known, ProportionalOdds(num_classes=3), NO_READERS, balance=0.0)
    np.testing.assert_array_equal(
        given.values, np.eye(3)[data.labels]
    )  # standard learns from the labels as given


def test_targets_of_several_readers(data: Manifest) -> None:
    method = ProportionalOdds(num_classes=3, transition=MATRIX)
    posterior = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(3), size=len(data)))
    for readers in (ReaderTargets(targets=posterior), ReaderTargets(draw_from=posterior)):
        targets = odds._targets(data, method, readers, balance=0.0)
        assert targets.kind == "probabilities"
        np.testing.assert_allclose(targets.values, posterior)
    targets = odds._targets(
        data, method, ReaderTargets(targets=posterior.unsqueeze(1)), balance=0.0
    )
    assert targets.kind == "likelihoods"
    np.testing.assert_allclose(targets.values, posterior)
    certainty = torch.linspace(0.1, 1.0, len(data), dtype=torch.float64)
    weights = odds._targets(data, method, ReaderTargets(certainty=certainty), balance=0.0).weights
    np.testing.assert_allclose(weights, certainty / certainty.mean())
    balanced = odds._targets(data, method, NO_READERS, balance=1.0).weights
    sums = np.bincount(data.labels, weights=balanced)
    np.testing.assert_allclose(sums, len(data) / 3)


def test_patients_are_held_out_together(data: Manifest) -> None:
    fold = odds.folds_by_patient(data, folds=5)
    assert (fold[::2] == fold[1::2]).all()
    assert sorted(np.unique(fold)) == [0, 1, 2, 3, 4]
    assert len(np.unique(odds.folds_by_patient(data.select([0, 1, 2, 3]), folds=5))) == 2


# The choice between odds and an mlp.


@pytest.mark.slow
def test_few_rows_of_a_severity_choose_odds_and_the_run_says_so(
    data: Manifest, tmp_path: Path
) -> None:
    reporter = BarReporter()
    settings: dict[str, Any] = {
        "transition": MATRIX,
        "out": tmp_path / "run",
        "device": "cpu",
        "reporter": reporter,
    }
    run = srjt.train(data, split="all", epochs=30, **settings)
    assert run.config.network == "odds"
    assert run.facts.head is not None
    assert run.facts.head["odds"] > run.facts.head["mlp"]
    sentence = heads.head_sentence(run.facts.head)
    assert sentence.startswith(
        "The network is odds: held-out labels have a mean log-likelihood of -"
    )
    assert sentence in reporter.notes
    assert srjt.load_run(tmp_path / "run").facts.head == run.facts.head
    assert sentence in str(srjt.load_run(tmp_path / "run").summary()).replace("\n", " ")


@pytest.mark.slow
def test_the_choice_is_made_once(
    data: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, setup = TrainConfig(epochs=30, transition=MATRIX.tolist()), Setup(device="cpu")
    first = heads.choose_head(data, config=config, setup=setup, out=tmp_path)
    assert first.fitted is not None

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(noise_rate, "cross_fit", refuse)
    again = heads.choose_head(data, config=config, setup=setup, out=tmp_path)
    assert (again.config, again.held_out) == (first.config, first.held_out)
    with refuses("settings_changed", "out", says="other features"):
        heads.choose_head(made(seed=1), config=config, setup=setup, out=tmp_path)


@pytest.mark.slow
def test_grades_that_no_severity_expresses_choose_the_mlp() -> None:
    config = TrainConfig(epochs=150, transition=MATRIX.tolist(), learning_rate=3e-3, batch_size=16)
    chosen = heads.choose_head(made(400, bent=True), config=config, setup=Setup(device="cpu"))
    assert chosen.held_out is not None
    assert chosen.held_out["mlp"] > chosen.held_out["odds"] + 0.1
    assert (chosen.config.network, chosen.config.epochs) == ("mlp", 40)


def test_too_few_patients_to_compare_choose_odds(data: Manifest) -> None:
    few = data.select(np.arange(10))  # five patients
    chosen = heads.choose_head(few, config=TrainConfig(), setup=Setup(device="cpu"))
    assert (chosen.config.network, chosen.held_out) == ("odds", {})
    assert "too few" in heads.head_sentence({})


def test_only_the_recipe_on_features_chooses(data: Manifest) -> None:
    for config in (TrainConfig(method="standard"), TrainConfig(network="linear")):
        assert heads.choose_head(data, config=config).config == config
    assert TrainConfig(method="standard").for_data(features=True, samples=100).network == "mlp"
    assert TrainConfig().for_data(features=False, samples=100).network == "resnet18"
    images = srjt.data.synthetic.generate(images=20, patients=10, size=32)
    with refuses("unsupported", "network", says="are images"):
        heads.choose_head(images, config=TrainConfig(network="auto"))


def test_a_network_of_your_own_is_no_choice(data: Manifest) -> None:
    own = srjt.train(
        data,
        split="all",
        network=lambda: torch.nn.Linear(3, 5),
        transition=MATRIX,
        epochs=1,
        batch_size=32,
        **GIVEN,
    )
    assert own.facts.head is None
    assert own.config.learning_rate == 3e-4


def test_the_likelihood_is_that_at_the_best_slope() -> None:
    p = np.array([[0.6, 0.4], [0.6, 0.4], [0.4, 0.6], [0.6, 0.4]])
    labels = np.array([0, 0, 1, 1])  # three of four right: the best probabilities are 0.75
    assert heads.likelihood_at_best_slope(p, labels) == pytest.approx(
        0.75 * np.log(0.75) + 0.25 * np.log(0.25), abs=2e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize(("identifiable", "share"), [(False, 0.5), (True, 1.0)])
def test_half_of_an_undetermined_matrix_is_corrected(
    data: Manifest, monkeypatch: pytest.MonkeyPatch, identifiable: bool, share: float
) -> None:
    estimate = NoiseEstimate(
        rate=0.2, rate_interval=(0.1, 0.3), transition=MATRIX, transition_interval=np.stack([MATRIX] * 2),
        prior=np.full(3, 1 / 3), prior_interval=np.full((2, 3), 1 / 3), form="uniform", held_out={}, samples=90,
        identifiable=identifiable, undetermined=None if identifiable else Undetermined(kind="boundaries"),
    )  # fmt: skip
    monkeypatch.setattr(noise_rate, "estimate_noise", lambda *args, **options: estimate)
    run = srjt.train(data, split="all", network="odds", **GIVEN)
    used = share * MATRIX + (1 - share) * np.eye(3)
    np.testing.assert_allclose(run.config.transition, used)
    assert run.config.noise_rate == pytest.approx(share * 0.2)
    assert run.facts.noise is not None
    assert ("of which half is corrected" in run.facts.noise["why"]) == (not identifiable)


@pytest.mark.slow
def test_an_audit_of_features_uses_the_same_rule(data: Manifest, tmp_path: Path) -> None:
    found = srjt.audit(data, out=tmp_path / "audit", folds=3, **GIVEN)
    assert (found.facts["network"], found.facts["method"]) == ("odds", "standard")
    assert srjt.load_run(tmp_path / "audit" / "fits" / "fold0").config.network == "odds"
