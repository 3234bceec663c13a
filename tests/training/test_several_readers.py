"""Several readers in training: their noise needs no estimate, and their posterior can be learnt
from."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srjt
from refusals import refuses
from srjt.data import Manifest
from srjt.methods import create
from srjt.noise import noise_from_posterior
from srjt.training.batches import NO_READERS, balancing_weights, draw_grades
from srjt.training.config import TrainConfig
from srjt.training.noise_rate import resolve_noise_rate
from srjt.training.reader_targets import reader_targets, verified_targets
from srjt.training.sides import resolve_split
from srjt.training.single_run import fingerprint
from srjt.training.trained import Setup

SETTINGS: dict[str, Any] = {
    "network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "batch_size": 16, "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def data() -> Manifest:
    """60 images with probabilities of the true grades; the label is the most probable grade."""
    images = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    posterior = np.random.default_rng(0).dirichlet(np.full(4, 0.4), size=60)
    columns = {f"p_true_{grade}": posterior[:, grade] for grade in range(4)}
    return replace(images, table=images.table.assign(grade=posterior.argmax(axis=1), **columns))


def test_the_noise_of_known_probabilities_is_a_sum() -> None:
    posterior = np.array([[0.8, 0.2, 0.0], [0.6, 0.4, 0.0], [0.0, 1.0, 0.0]])
    found = noise_from_posterior([0, 1, 1], posterior)
    assert found.rate == pytest.approx((0.2 + 0.6 + 0.0) / 3)
    assert found.transition[0] == pytest.approx([0.8 / 1.4, 0.6 / 1.4, 0])
    assert found.transition[2] == pytest.approx([0, 0, 1])  # a grade that never occurs
    assert found.posterior[0] == pytest.approx([0.8, 0.2, 0])
    assert found.posterior[1] == pytest.approx([0.3, 0.7, 0])


@pytest.mark.parametrize(("method", "matrix"), [("co-teaching", False), ("f-correction", True)])
def test_the_rate_comes_from_readers_of_the_training_side(
    data: Manifest, method: str, matrix: bool
) -> None:
    split = srjt.data.folds(data)[0]
    asked = TrainConfig(method=method, noise_rate="auto")
    config, estimate = resolve_noise_rate(data, config=asked, setup=Setup(split=split))
    assert estimate is None
    wrong = 1 - data.posterior[split.train, data.labels[split.train]]
    assert config.noise_rate == pytest.approx(float(wrong.mean()))
    assert (config.transition is not None) == matrix


def test_a_run_says_where_its_rate_comes_from(data: Manifest, tmp_path: Path) -> None:
    srjt.train(data, out=tmp_path / "run", method="co-teaching+ours", noise_rate="auto", **SETTINGS)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    noise = facts["noise"]
    assert facts["data"]["several_readings"] == "consensus"
    assert noise["requested"] == "auto"
    assert "from the probabilities that the readers' grades give" in noise["why"]
    assert not (tmp_path / "run" / "noise.json").exists()  # nothing was estimated
    given = srjt.train(data, method="co-teaching+ours", noise_rate=0.1, **SETTINGS)
    assert given.config.noise_rate == 0.1


@pytest.mark.parametrize(
    "name", ["standard", "sord", "co-teaching+ours", "jocor+ours", "codis+ours", "srjt"]
)
def test_certain_probabilities_are_learnt_as_grades(name: str) -> None:
    """The loss of one-hot targets is the cross-entropy with the grade, on the samples that the
    grades select."""
    method = create(
        name, num_classes=4, noise_rate=0.4, transition=np.eye(4) if name == "srjt" else None
    )
    assert method.takes_probabilities
    logits = torch.randn(method.networks, 10, 4, generator=torch.Generator().manual_seed(1))
    grades = torch.arange(10) % 4
    soft = method.loss(logits, torch.nn.functional.one_hot(grades, 4).float(), keep=6)
    hard = method.loss(logits, grades, keep=6)
    assert torch.equal(soft.selected, hard.selected)
    if name in ("standard", "sord"):
        expected = torch.nn.functional.cross_entropy(logits[0], grades)
        torch.testing.assert_close(soft.total, expected)
    if name == "srjt":  # a matrix without errors corrects nothing
        torch.testing.assert_close(soft.total, hard.total)


@pytest.mark.parametrize("name", ["f-correction", "srjt"])
def test_the_likelihood_of_one_reading_is_forward_correction(name: str) -> None:
    """Of a reading with the matrix P; two readings with their own matrices add up."""
    matrix = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    options = (
        {"grows_with": "training"} if name == "srjt" else {}
    )  # the fit is the probability of the true grade
    method = create(name, num_classes=4, transition=matrix, **options)
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(method.networks, 10, 4, dtype=torch.float64, generator=generator)
    grades = torch.arange(10) % 4
    column = torch.from_numpy(matrix).T[grades]  # (10, 4): P_iỹ over i
    hard = method.loss(logits, grades)
    torch.testing.assert_close(method.loss(logits, column[:, None]).total, hard.total)
    twice = method.loss(logits, torch.stack([column, column], dim=1))
    torch.testing.assert_close(twice.per_network, 2 * hard.per_network)


def test_readers_are_learnt_without_their_prior(data: Manifest) -> None:
    method = create("srjt", num_classes=4, transition=np.eye(4))
    rows = np.arange(60)
    targets = reader_targets(data, rows, TrainConfig(reader_targets="readers"), method).targets
    back = targets[:, 0].numpy() * data.posterior.mean(axis=0)
    assert back == pytest.approx(data.posterior)


def test_by_default_probabilities_are_learnt_where_the_method_takes_them(data: Manifest) -> None:
    rows = np.arange(60)
    for name, soft in (("standard", True), ("label-smooth", False)):
        method = create(name, num_classes=4)
        targets = reader_targets(data, rows, TrainConfig(method=name), method).targets
        assert (targets is not None) == soft


@pytest.mark.parametrize(
    ("method", "targets", "refused"),
    [
        ("co-teaching", "posterior", ("unsupported", "reader_targets", "learns from grades,")),
        ("standard", "readers", ("unsupported", "reader_targets", "does not correct")),
        ("f-correction", "resample", ("unsupported", "reader_targets", "corrects the errors")),
    ],
)
def test_targets_that_a_method_does_not_take(
    data: Manifest, method: str, targets: str, refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        srjt.train(data, method=method, noise_rate="auto", reader_targets=targets, **SETTINGS)


@pytest.mark.slow
def test_targets_change_what_is_learnt(data: Manifest) -> None:
    """Each kind of targets leads to other weights; without several readers the setting is an
    error."""
    kinds = ("consensus", "auto", "resample", "certainty")
    runs = [srjt.train(data, method="standard", reader_targets=kind, **SETTINGS) for kind in kinds]
    weights = [next(iter(run.networks.parameters())) for run in runs]
    assert not any(torch.equal(one, other) for one, other in combinations(weights, 2))
    one_reader = replace(data, table=data.table[["id", "image", "grade", "patient"]])
    with refuses("unsupported", "reader_targets", says="several readers"):
        srjt.train(one_reader, method="standard", reader_targets="posterior", **SETTINGS)


def test_drawn_grades_follow_the_probabilities_and_depend_on_the_epoch_alone() -> None:
    probabilities = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64).repeat(20_000, 1)
    drawn = draw_grades(probabilities, epoch=3, seed=1)
    assert torch.bincount(drawn) / 20_000 == pytest.approx(probabilities[0], abs=0.02)
    assert torch.equal(
        drawn, draw_grades(probabilities, epoch=3, seed=1)
    )  # a resumed run draws the same
    assert not torch.equal(drawn, draw_grades(probabilities, epoch=4, seed=1))
    certain = torch.eye(4, dtype=torch.float64)
    assert draw_grades(certain, epoch=1, seed=0).tolist() == [0, 1, 2, 3]


def test_the_certainty_is_the_frequency_of_a_sample(data: Manifest) -> None:
    rows = np.arange(60)
    method = create("standard", num_classes=4)
    config = TrainConfig(reader_targets="certainty", method="standard")
    certainty = reader_targets(data, rows, config, method).certainty
    assert certainty.numpy() == pytest.approx(data.posterior.max(axis=1))
    labels = torch.from_numpy(data.labels)
    weights = balancing_weights(labels, balance=0.5, certainty=certainty)
    assert weights == pytest.approx(balancing_weights(labels, balance=0.5) * certainty)


def test_other_readings_are_other_data(data: Manifest) -> None:
    parts = resolve_split("all", data, skipped=False)
    other = replace(
        data, table=data.table.assign(p_true_0=0.25, p_true_1=0.25, p_true_2=0.25, p_true_3=0.25)
    )
    assert fingerprint(data, parts) != fingerprint(other, parts)


def test_probabilities_that_are_none_are_an_error(data: Manifest) -> None:
    for wrong in ("?", -1.0):
        with refuses("wrong_values"):
            _ = replace(data, table=data.table.assign(p_true_0=wrong)).posterior


def test_verified_grades_are_learnt_without_correction() -> None:
    images = srjt.data.synthetic.generate(images=6, patients=6, size=32)
    table = images.table.assign(grade=[0, 1, 2, 3, 1, 1], verified_grade=[-1, 2, -1, 3, 1, -1])
    checked = replace(images, table=table)
    matrix = np.array([[0.8, 0.2, 0, 0], [0.1, 0.8, 0.1, 0], [0, 0.1, 0.8, 0.1], [0, 0, 0.3, 0.7]])
    method = create("srjt", num_classes=4, transition=matrix)
    targets = verified_targets(checked, np.array([1, 2, 3, 5]), method).targets
    assert targets is not None
    expected = [[0, 0, 1, 0], [0, 0.1, 0.8, 0.3], [0, 0, 0, 1], [0.2, 0.8, 0.1, 0]]
    np.testing.assert_allclose(targets[:, 0], expected)
    # the loss is that of the corrected labels, and of the verified grades as they are
    logits = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0))
    found = method.loss(logits, targets.float()).per_network
    p = logits.softmax(dim=-1).numpy()
    likelihood = (p * np.array(expected)).sum(axis=-1)
    np.testing.assert_allclose(found, -np.log(likelihood).mean(axis=1), rtol=1e-5)


def test_without_verified_grades_or_a_matrix_labels_are_learnt_as_ever(data: Manifest) -> None:
    rows = np.arange(6)
    srjt_method = create("srjt", num_classes=4, transition=np.eye(4))
    assert verified_targets(data, rows, srjt_method) == NO_READERS
    checked = replace(data, table=data.table.assign(verified_grade=data.labels))
    assert verified_targets(checked, rows, create("standard", num_classes=4)) == NO_READERS
    none_here = replace(data, table=data.table.assign(verified_grade=[-1] * 59 + [0]))
    assert verified_targets(none_here, rows, srjt_method) == NO_READERS


def test_the_weight_of_the_agreement_does_not_depend_on_the_factor_of_likelihoods() -> None:
    method = create("srjt", num_classes=4, transition=np.eye(4))
    draws = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 8, 4, generator=draws)
    likelihoods = torch.rand(8, 1, 4, generator=draws) + 0.1
    one = method.loss(logits, likelihoods)
    ten = method.loss(logits, 10 * likelihoods)
    label_part = np.log(10) * 2  # of both networks; a constant
    assert float(one.total - ten.total) == pytest.approx(label_part, rel=1e-5)
