"""Label quality: a posterior by Bayes' rule, in [0, 1], that ranks wrong labels first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from sklearn.metrics import average_precision_score

from srjt import noise
from srjt.errors import SrjtError
from srjt.noise.estimate import estimate_noise
from srjt.noise.label_quality import label_quality, suggestion_shares, true_grade_posterior
from srjt.noise.posterior import bayes, by_grade, by_severity

GRADES = 4


@pytest.fixture(scope="module")
def blurred() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True grades, labels of a reader who sees the severity through a blur, and p(label | x)."""
    rng = np.random.default_rng(0)
    grid = (np.arange(400) + 0.5) / 100
    severity = rng.choice(grid, size=4000)
    clear = rng.choice([0.1, 0.6], size=4000)  # half of the images are unclear
    seen, reader = severity + clear * rng.normal(size=4000), 0.3
    given = np.diff(ndtr((np.arange(1, 4) - grid[:, None]) / reader), axis=1, prepend=0.0, append=1.0)
    labels = (rng.random(4000)[:, None] > given[np.searchsorted(grid, severity)].cumsum(axis=1)[:, :-1]).sum(
        axis=1
    )
    weight = np.exp(-0.5 * ((seen[:, None] - grid) / clear[:, None]) ** 2)
    return severity.astype(int), labels, weight / weight.sum(axis=1, keepdims=True) @ given


def test_of_readers_who_are_unsure_at_boundaries_it_finds_more_errors_than_the_label_alone(blurred) -> None:
    """The reader's blur is the same for every image: a doubtful label of a clear image is wrong more often."""
    true, labels, p = blurred
    wrong = labels != true
    quality = by_severity(labels, p, np.eye(GRADES), [0.5], [1.0])[np.arange(4000), labels]
    plain = p[np.arange(4000), labels]
    ours, theirs = (average_precision_score(wrong, -score) for score in (quality, plain))
    assert ours > theirs + 0.02
    assert quality.mean() == pytest.approx(1 - wrong.mean(), abs=0.05)


def test_a_network_that_has_learnt_the_noise_gives_the_same_answer_as_one_that_knows_the_truth() -> None:
    _, labels, p, matrix = observed(3000)
    told_truth, told_labels = (by_grade(labels, said, matrix) for said in (p, p @ matrix))
    assert np.abs(told_truth - told_labels).mean() < 0.02
    assert np.abs(bayes(labels, p @ matrix, matrix) - told_truth).mean() > 0.02  # without the deconvolution


def observed(samples: int = 1500, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """True grades, noisy labels, probabilities of an unsure observer, and the matrix."""
    rng = np.random.default_rng(seed)
    true = rng.choice(GRADES, size=samples, p=[0.4, 0.3, 0.2, 0.1])
    seen = true + rng.normal(scale=0.5, size=samples)
    p = np.array([0.4, 0.3, 0.2, 0.1]) * np.exp(-2 * (seen[:, None] - np.arange(GRADES)) ** 2)
    p /= p.sum(axis=1, keepdims=True)
    matrix = noise.transition_matrix("quasi", num_classes=GRADES, rho=0.15)
    return true, noise.corrupt(true, matrix, seed=seed), p, matrix


def test_with_calibrated_probabilities_and_the_matrix_it_is_bayes_rule() -> None:
    _, labels, p, matrix = observed(4000)
    joint = p * matrix.T[labels]
    exact = joint / joint.sum(axis=1, keepdims=True)
    found = true_grade_posterior(labels, p, transition=matrix)
    assert np.abs(found - exact).mean() < 0.02
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    quality = label_quality(labels, p, transition=matrix)
    np.testing.assert_array_equal(quality, found[np.arange(len(labels)), labels])


def test_it_means_what_it_says_and_ranks_wrong_labels_first() -> None:
    true, labels, p, _ = observed(2500)
    quality = label_quality(labels, p)
    right = labels == true
    assert quality.mean() == pytest.approx(right.mean(), abs=0.05)
    for low, high in ((0.0, 0.2), (0.4, 0.7), (0.9, 1.0)):
        among = (quality >= low) & (quality <= high)
        assert quality[among].mean() == pytest.approx(right[among].mean(), abs=0.1)
    worst = np.argsort(quality)[: (~right).sum()]
    plain = np.argsort(p[np.arange(len(labels)), labels])[: (~right).sum()]
    assert (~right)[worst].mean() >= (~right)[plain].mean() - 0.02
    assert (true_grade_posterior(labels, p).argmax(axis=1) == true).mean() > right.mean()


def test_a_known_matrix_and_an_estimated_one_agree() -> None:
    _, labels, p, _ = observed()
    found = estimate_noise(labels, p, bootstrap=0)
    given_it = label_quality(labels, p, transition=found.transition)
    np.testing.assert_allclose(given_it, label_quality(labels, p), atol=0.02)


def test_without_noise_every_label_is_right_and_the_farther_off_the_worse() -> None:
    _, labels, p, matrix = observed()
    np.testing.assert_allclose(label_quality(labels, p, transition=np.eye(GRADES)), 1.0)
    sure = int(np.abs(p[:, 0] - 0.9).argmin())
    others = np.delete(np.arange(len(labels)), sure)
    worth = [
        label_quality(np.r_[labels[others], label], p[np.r_[others, sure]], transition=matrix)[-1]
        for label in range(GRADES)
    ]
    assert all(np.diff(worth) < 0)


def test_more_probability_on_the_label_is_never_worse() -> None:
    _, labels, p, matrix = observed()
    quality = label_quality(labels, p, transition=matrix)
    same = labels == 1
    between = same & (p[:, 1] + p[:, 2] > 0.999)  # only grades 1 and 2 are at stake
    order = np.argsort(p[between, 1])
    assert (np.diff(quality[between][order]) > -1e-3).all()


def test_a_prior_moves_the_posterior_towards_it() -> None:
    _, labels, p, matrix = observed()
    usual = true_grade_posterior(labels, p, transition=matrix)
    severe = true_grade_posterior(labels, p, transition=matrix, prior=[0.1, 0.2, 0.3, 0.4])
    assert severe[:, 3].mean() > usual[:, 3].mean() + 0.05
    with pytest.raises(SrjtError, match="share for each of the 4"):
        true_grade_posterior(labels, p, transition=matrix, prior=[1.0, 0.0])


def test_reversing_the_grades_reverses_the_answer() -> None:
    _, labels, p, matrix = observed(400)
    found = true_grade_posterior(labels, p, transition=matrix)
    turned = true_grade_posterior(3 - labels, p[:, ::-1], transition=matrix[::-1, ::-1])
    np.testing.assert_allclose(turned[:, ::-1], found, atol=1e-3)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(2, 6), st.booleans())
def test_quality_lies_between_0_and_1_for_anything(
    seed: int, samples: int, grades: int, certain: bool
) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(grades, 0.3), size=samples)
    if certain:
        p = np.eye(grades)[p.argmax(axis=1)]
    labels = rng.integers(0, grades, samples)
    kind = noise.transition_matrix("truncated", num_classes=grades, rho=0.2)
    for transition in (None, kind, np.eye(grades)):
        quality = label_quality(labels, p, transition=transition)
        assert ((quality >= 0) & (quality <= 1 + 1e-12)).all()


def test_a_matrix_that_does_not_fit_is_refused() -> None:
    _, labels, p, matrix = observed(50)
    with pytest.raises(SrjtError, match="3 grades"):
        label_quality(labels, p, transition=np.eye(3))
    with pytest.raises(SrjtError, match="whole grades"):
        label_quality(labels - 1, p, transition=matrix)


def test_the_quality_of_a_verified_label_is_known() -> None:
    labels = np.array([0, 0, 1, 1, 1, 0] * 20)
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.2, 0.8], [0.1, 0.9]] * 20)
    verified = np.full(120, -1)
    verified[[0, 5, 6]] = [0, 0, 1]  # right although it is doubtful, and wrong although it is not
    matrix, others = np.array([[0.8, 0.2], [0.2, 0.8]]), verified < 0
    plain, known = (
        label_quality(labels, probabilities, transition=matrix, verified=v) for v in (None, verified)
    )
    assert known[[0, 5, 6]].tolist() == [1.0, 1.0, 0.0]
    np.testing.assert_array_equal(known[others], plain[others])
    # without a matrix it is learnt from them, too: the doubtful label was right, so others like it may be
    plain, known = (label_quality(labels, probabilities, verified=v) for v in (None, verified))
    assert known[[0, 5, 6]].tolist() == [1.0, 1.0, 0.0]
    assert known[11] > plain[11]


def test_a_rate_that_is_known_moves_every_quality_and_leaves_their_order() -> None:
    true, labels, p, _ = observed(600)
    verified = np.where(np.arange(600) % 20 == 0, true, -1)
    others = verified < 0
    plain = label_quality(labels, p, verified=verified)
    for rate in (0.1, 0.4):
        fitted = true_grade_posterior(labels, p, verified=verified, rate=rate)
        np.testing.assert_allclose(fitted.sum(axis=1), 1.0)
        quality = fitted[np.arange(600), labels]
        assert (1 - quality).mean() == pytest.approx(rate)
        order = np.argsort(plain[others])
        assert (np.diff(quality[others][order]) > -1e-12).all()
    assert label_quality(labels, p, rate=0.0).min() >= 0.0
    with pytest.raises(SrjtError, match="between 0 and 1"):
        label_quality(labels, p, rate=1.5)


@pytest.mark.parametrize("seed", range(5))
def test_of_two_labels_of_one_image_at_most_one_is_probably_right(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, 400)
    probabilities = np.exp(-1.5 * np.abs(np.arange(4) - truth[:, None]) + rng.normal(size=(400, 4)))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = np.clip(truth + (rng.random(400) < 0.3) * rng.choice([-1, 1], 400), 0, 3)
    image = np.arange(400)
    image[200:300] = image[:100]  # the same images with labels of their own
    probabilities[200:300] = probabilities[:100]
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.15)
    posterior = true_grade_posterior(labels, probabilities, transition=matrix, same_image=image)
    quality = posterior[np.arange(400), labels]
    differ = labels[:100] != labels[200:300]
    assert differ.sum() > 20
    assert (quality[:100] + quality[200:300])[differ].max() <= 1 + 1e-9
    np.testing.assert_allclose(posterior[:100][differ], posterior[200:300][differ])
    # each sample on its own: impossible pairs
    alone = label_quality(labels, probabilities, transition=matrix)
    assert (alone[:100] + alone[200:300])[differ].max() > 1
    # equal labels may be copies and count once; other samples are not affected
    same = np.flatnonzero(~differ)
    np.testing.assert_allclose(quality[same], alone[same])
    np.testing.assert_allclose(quality[300:], alone[300:])


def judged(rate: float, *, verified: int = 0) -> noise.NoiseEstimate:
    """An estimate whose interval begins at this rate."""
    one = np.eye(2)
    return noise.NoiseEstimate(
        rate=0.5, rate_interval=(rate, 0.6), transition=one, transition_interval=np.stack([one] * 2),
        prior=one[0], prior_interval=one, form="quasi", held_out={}, samples=100, identifiable=True, reason="",
        verified=verified,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("agreement", "rate", "verified"), [(0.8, 0.1, 0), (0.8, 0.3, 0), (0.8, 0.3, 50), (0.6, 0.2, 0)]
)
def test_the_share_of_right_suggestions_in_closed_form(agreement: float, rate: float, verified: int) -> None:
    said = np.tile([0.9, 0.1], (20_000, 1))  # over-confident
    labels = (np.arange(20_000) // 100 % 10 >= 10 * agreement).astype(np.int64)
    share = suggestion_shares(labels, said, np.zeros(20_000), estimate=judged(rate, verified=verified))
    # without verified labels readers err no more often than the networks: (1 − e)² agree
    used = rate if verified else min(rate, 1 - agreement**0.5)
    assert share == pytest.approx(min(1, agreement * used / ((1 - agreement) * (1 - used))), abs=2e-3)


def test_a_patient_does_not_calibrate_itself() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1.0, 1.0], size=100)
    labels = (rng.random(100) < p[:, 1]).astype(np.int64)
    patients = np.arange(100) // 4
    other = labels.copy()
    other[:2] = 1 - other[:2]  # of the first patient
    changed = suggestion_shares(other, p, p.argmax(axis=1), estimate=judged(0.1, verified=1), groups=patients)
    before = suggestion_shares(labels, p, p.argmax(axis=1), estimate=judged(0.1, verified=1), groups=patients)
    assert np.array_equal(changed[:4], before[:4])
    assert not np.array_equal(changed[4:], before[4:])
    assert ((before >= 0) & (before <= 1)).all()
