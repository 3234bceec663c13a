"""The quality of labels, what can be promised of true grades, and the highest grade of a
patient."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import ndtr
from sklearn.metrics import average_precision_score

from fixtures.noisy_features import counted
from srjt import noise
from srjt.errors import SrjtError
from srjt.noise import quality as judging
from srjt.noise.estimate import estimate_noise
from srjt.noise.matrices import corrupt, transition_matrix, transition_of
from srjt.noise.model import bayes, by_grade, by_severity
from srjt.noise.quality import (
    highest_grade_posterior,
    label_quality,
    suggestion_shares,
    true_grade_posterior,
)

GRADES = 4


@pytest.fixture(scope="module")
def blurred() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True grades, labels of a reader who sees the severity through a blur, and p(label | x)."""
    rng = np.random.default_rng(0)
    grid = (np.arange(400) + 0.5) / 100
    severity = rng.choice(grid, size=4000)
    clear = rng.choice([0.1, 0.6], size=4000)  # half of the images are unclear
    seen, reader = severity + clear * rng.normal(size=4000), 0.3
    given = np.diff(
        ndtr((np.arange(1, 4) - grid[:, None]) / reader), axis=1, prepend=0.0, append=1.0
    )
    reached = given[np.searchsorted(grid, severity)].cumsum(axis=1)[:, :-1]
    labels = (rng.random(4000)[:, None] > reached).sum(axis=1)
    weight = np.exp(-0.5 * ((seen[:, None] - grid) / clear[:, None]) ** 2)
    return severity.astype(int), labels, weight / weight.sum(axis=1, keepdims=True) @ given


def test_of_readers_who_are_unsure_at_boundaries_it_finds_more_errors_than_the_label_alone(
    blurred,
) -> None:
    """The reader's blur is the same for every image: a doubtful label of a clear image is wrong
    more often."""
    true, labels, p = blurred
    wrong = labels != true
    quality = by_severity(labels, p, np.eye(GRADES), [0.5], [1.0])[np.arange(4000), labels]
    plain = p[np.arange(4000), labels]
    ours, theirs = (average_precision_score(wrong, -score) for score in (quality, plain))
    assert ours > theirs + 0.02
    assert quality.mean() == pytest.approx(1 - wrong.mean(), abs=0.05)


def test_a_network_that_has_learnt_the_noise_gives_the_same_answer_as_one_that_knows_the_truth() -> (
    None
):
    _, labels, p, matrix = observed(3000)
    told_truth, told_labels = (by_grade(labels, said, matrix) for said in (p, p @ matrix))
    assert np.abs(told_truth - told_labels).mean() < 0.02
    assert (
        np.abs(bayes(labels, p @ matrix, matrix) - told_truth).mean() > 0.02
    )  # without the deconvolution


def observed(
    samples: int = 1500, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
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


@pytest.mark.slow
def test_it_means_what_it_says_and_ranks_wrong_labels_first() -> None:
    true, labels, p, _ = observed(2500)
    posterior = true_grade_posterior(labels, p)
    quality, right = posterior[np.arange(2500), labels], labels == true
    assert quality.mean() == pytest.approx(right.mean(), abs=0.05)
    for low, high in ((0.0, 0.2), (0.4, 0.7), (0.9, 1.0)):
        among = (quality >= low) & (quality <= high)
        assert quality[among].mean() == pytest.approx(right[among].mean(), abs=0.1)
    worst = np.argsort(quality)[: (~right).sum()]
    plain = np.argsort(p[np.arange(len(labels)), labels])[: (~right).sum()]
    assert (~right)[worst].mean() >= (~right)[plain].mean() - 0.02
    assert (posterior.argmax(axis=1) == true).mean() > right.mean()


def test_a_prior_moves_the_posterior_towards_it() -> None:
    _, labels, p, matrix = observed()
    usual = true_grade_posterior(labels, p, transition=matrix)
    severe = true_grade_posterior(labels, p, transition=matrix, prior=[0.1, 0.2, 0.3, 0.4])
    assert severe[:, 3].mean() > usual[:, 3].mean() + 0.05
    with pytest.raises(SrjtError, match="share for each of the 4"):
        true_grade_posterior(labels, p, transition=matrix, prior=[1.0, 0.0])
    with pytest.raises(SrjtError, match="3 grades"):
        label_quality(labels, p, transition=np.eye(3))


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(2, 6), st.booleans())
def test_any_quality_lies_between_0_and_1(
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


@pytest.mark.slow
def test_the_quality_of_a_verified_label_is_known() -> None:
    labels = np.array([0, 0, 1, 1, 1, 0] * 20)
    probabilities = np.array(
        [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.2, 0.8], [0.1, 0.9]] * 20
    )
    verified = np.full(120, -1)
    verified[[0, 5, 6]] = [0, 0, 1]  # right although it is doubtful, and wrong although it is not
    matrix, others = np.array([[0.8, 0.2], [0.2, 0.8]]), verified < 0
    plain = label_quality(labels, probabilities, transition=matrix)
    known = label_quality(labels, probabilities, transition=matrix, verified=verified)
    assert known[[0, 5, 6]].tolist() == [1.0, 1.0, 0.0]
    np.testing.assert_array_equal(known[others], plain[others])
    # without a matrix it is learnt from them, too: the doubtful label was right, so others like it
    # may be
    plain, known = (label_quality(labels, probabilities, verified=v) for v in (None, verified))
    assert known[[0, 5, 6]].tolist() == [1.0, 1.0, 0.0]
    assert known[11] > plain[11]


def test_a_rate_that_is_known_moves_every_quality_and_leaves_their_order() -> None:
    true, labels, p, matrix = observed(600)
    verified = np.where(np.arange(600) % 20 == 0, true, -1)
    others = verified < 0
    plain = label_quality(labels, p, transition=matrix, verified=verified)
    for rate in (0.1, 0.4):
        fitted = true_grade_posterior(labels, p, transition=matrix, verified=verified, rate=rate)
        np.testing.assert_allclose(fitted.sum(axis=1), 1.0)
        quality = fitted[np.arange(600), labels]
        assert (1 - quality).mean() == pytest.approx(rate)
        order = np.argsort(plain[others])
        assert (np.diff(quality[others][order]) > -1e-12).all()
    assert label_quality(labels, p, transition=matrix, rate=0.0).min() >= 0.0
    with pytest.raises(SrjtError, match="between 0 and 1"):
        label_quality(labels, p, transition=matrix, rate=1.5)


@pytest.mark.parametrize("seed", range(2))
def test_of_two_labels_of_one_image_at_most_one_is_probably_right(seed: int) -> None:
    true, labels, probabilities, matrix = observed(400, seed=seed)
    image = np.arange(400)
    image[200:300] = image[:100]  # the same images with labels of their own
    probabilities[200:300] = probabilities[:100]
    labels[200:300] = noise.corrupt(true[:100], matrix, seed=seed + 10)
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
    return replace(counted([0, 1], np.eye(2)), rate_interval=(rate, 0.6), verified=verified)


@pytest.mark.parametrize(
    ("agreement", "rate", "verified"), [(0.8, 0.1, 0), (0.8, 0.3, 0), (0.8, 0.3, 50), (0.6, 0.2, 0)]
)
def test_the_share_of_right_suggestions_in_closed_form(
    agreement: float, rate: float, verified: int
) -> None:
    said = np.tile([0.9, 0.1], (20_000, 1))  # over-confident
    labels = (np.arange(20_000) // 100 % 10 >= 10 * agreement).astype(np.int64)
    share = suggestion_shares(
        labels, said, np.zeros(20_000), estimate=judged(rate, verified=verified)
    )
    # without verified labels readers err no more often than the networks: (1 − e)² agree
    used = rate if verified else min(rate, 1 - agreement**0.5)
    assert share == pytest.approx(
        min(1, agreement * used / ((1 - agreement) * (1 - used))), abs=2e-3
    )


def test_a_patient_does_not_calibrate_itself() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1.0, 1.0], size=100)
    labels = (rng.random(100) < p[:, 1]).astype(np.int64)
    patients = np.arange(100) // 4
    other = labels.copy()
    other[:2] = 1 - other[:2]  # of the first patient
    changed = suggestion_shares(
        other, p, p.argmax(axis=1), estimate=judged(0.1, verified=1), groups=patients
    )
    before = suggestion_shares(
        labels, p, p.argmax(axis=1), estimate=judged(0.1, verified=1), groups=patients
    )
    assert np.array_equal(changed[:4], before[:4])
    assert not np.array_equal(changed[4:], before[4:])
    assert ((before >= 0) & (before <= 1)).all()


# Weights of the true grades, given labels that may be wrong.
MATRIX = noise.transition_matrix("quasi", num_classes=4, rho=0.1)
PRIOR = np.array([0.4, 0.3, 0.2, 0.1])
JOINT = PRIOR[:, None] * MATRIX


def test_a_given_matrix_and_the_labels_give_the_joint_distribution() -> None:
    found = judging.given_noise(MATRIX, PRIOR @ MATRIX)
    assert found.joint == pytest.approx(JOINT, abs=1e-5)
    assert transition_of(found.joint) == pytest.approx(MATRIX)
    assert found.rates == pytest.approx((1 - np.trace(JOINT),) * 2, abs=1e-5)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.5])
def test_errors_become_more_or_less_frequent(rate: float) -> None:
    scaled = judging.scaled_joint(JOINT, rate=rate)
    assert scaled.sum() == pytest.approx(1.0)
    assert 1 - np.trace(scaled) == pytest.approx(rate)
    clean = judging.scaled_joint(np.diag(PRIOR), rate=rate)  # no error is known: neighbours
    assert 1 - np.trace(clean) == pytest.approx(rate)
    assert clean[0, 2] == clean[3, 1] == 0.0


def test_how_far_labels_are_wrong() -> None:
    known = judging.NoiseBounds(joint=JOINT, rates=(0.1, 0.3), determined=True)
    tails = [known.wrong_by(d) for d in range(5)]
    assert tails[0] == pytest.approx(1.0)
    assert tails[1] == pytest.approx(0.3)
    assert tails == sorted(tails, reverse=True)
    assert tails[4] == 0.0
    assert (1 - np.trace(known.lowest()), 1 - np.trace(known.highest())) == pytest.approx(
        (0.1, 0.3)
    )


def test_posterior_weights_are_bayes_rule() -> None:
    weights = judging.posterior_weights(np.array([0, 3]), JOINT)
    assert weights[0] == pytest.approx(JOINT[:, 0] / JOINT[:, 0].sum())
    assert weights.sum(axis=1) == pytest.approx(1.0)
    never = np.array([[0.5, 0.0], [0.5, 0.0]])  # label 1 does not occur
    assert judging.posterior_weights(np.array([1]), never).tolist() == [[0.0, 1.0]]


def test_inverse_weights_are_unbiased() -> None:
    # Σ_j P[i, j] (P⁻¹)[j, c] is 1 for c = i, else 0: labels of true grade i count as grade i on
    # average
    rows = judging.inverse_weights(np.arange(4), JOINT)
    assert MATRIX @ rows == pytest.approx(np.eye(4), abs=1e-12)
    assert rows.sum(axis=1) == pytest.approx(1.0)
    assert judging.inverse_weights(np.arange(2), np.full((2, 2), 0.25)) is None


@pytest.mark.slow
def test_an_estimate_with_its_interval() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, 400)
    p = np.eye(4)[true] * 0.7 + 0.075
    estimate = estimate_noise(noise.corrupt(true, MATRIX, seed=0), p, bootstrap=20)
    found = judging.estimated_noise(estimate)
    assert found.rates == estimate.rate_interval
    assert found.samples == 400
    assert found.joint.sum() == pytest.approx(1.0)
    given = judging.estimated_noise(estimate, rate=0.25)
    assert (given.rates, given.determined) == ((0.25, 0.25), True)
    assert 1 - np.trace(given.joint) == pytest.approx(0.25)


# The highest true grade of a patient, from noisy labels.
NOISE = transition_matrix("truncated", num_classes=4, rho=0.13)


@given(images=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=30))
def test_it_is_a_distribution_and_without_noise_the_highest_label(
    images: list[tuple[int, int]],
) -> None:
    labels, units = (np.array(column) for column in zip(*images, strict=True))
    units = np.unique(units, return_inverse=True)[1]
    highest = [labels[units == unit].max() for unit in range(units.max() + 1)]
    assert highest_grade_posterior(labels, units, np.eye(4)) == pytest.approx(np.eye(4)[highest])
    certain = np.ones(len(labels), bool)
    assert highest_grade_posterior(labels, units, NOISE, certain=certain) == pytest.approx(
        np.eye(4)[highest]
    )
    found = highest_grade_posterior(labels, units, NOISE)
    assert (found >= 0).all()
    assert found.sum(axis=1) == pytest.approx(1.0)
    assert highest_grade_posterior(labels[::-1], units[::-1], NOISE) == pytest.approx(found)


@pytest.mark.parametrize("shown", [0.2, 1.0])
def test_it_is_right_more_often_than_the_highest_label(shown: float) -> None:
    rng = np.random.default_rng(11)
    units = np.repeat(np.arange(300), rng.integers(1, 16, 300))
    grade = rng.integers(0, 4, 300)
    shows = rng.random(len(units)) < shown
    shows[np.unique(units, return_index=True)[1]] = True
    true = np.where(shows, grade[units], rng.integers(0, 4, len(units)) % (grade[units] + 1))
    labels = corrupt(true, NOISE, seed=5)
    naive = np.array([labels[units == unit].max() for unit in range(300)])
    found = highest_grade_posterior(labels, units, NOISE)
    assert (naive == grade).mean() < 0.7
    assert (found.argmax(axis=1) == grade).mean() > 0.85
    # what it calls likely happens so often
    assert found.max(axis=1).mean() == pytest.approx(
        (found.argmax(axis=1) == grade).mean(), abs=0.05
    )


@pytest.mark.parametrize("shown", [0.3, 0.8, 1.0])
def test_the_likelihood_is_the_sum_over_all_true_grades_of_which_one_is_the_highest(
    shown: float,
) -> None:
    labels = [2, 0, 1]
    seen = NOISE[:, labels].T
    lower = np.stack([[row[:c].mean() if c else 0.0 for c in range(4)] for row in seen])
    found, scale = judging._likelihood(seen, lower, np.zeros(3, dtype=np.int64), shown=shown)
    for highest in range(4):
        of = np.zeros(4)  # the grades of one image, before one of them must be the highest
        of[highest] = shown if highest else 1.0
        of[:highest] = (1 - shown) / max(highest, 1)
        every = [true for true in product(range(highest + 1), repeat=3) if highest in true]
        chance = [np.prod(of[list(true)]) for true in every]
        given = [
            np.prod([NOISE[t, y] for t, y in zip(true, labels, strict=True)]) for true in every
        ]
        assert found[0, highest] * np.exp(scale) == pytest.approx(
            np.dot(chance, given) / np.sum(chance)
        )


@given(true=st.lists(st.integers(0, 3), min_size=1, max_size=4), certain=st.booleans())
def test_the_mean_of_the_weights_is_the_truth(true: list[int], certain: bool) -> None:
    """Over all labels that the images of one patient may have; the first may be verified."""
    images = len(true)
    right = np.zeros(images, bool)
    right[0] = certain
    matrices = [np.eye(4) if known else NOISE for known in right]
    mean = np.zeros(4)
    for labels in product(range(4), repeat=images):
        chance = np.prod(
            [matrix[t, y] for matrix, t, y in zip(matrices, true, labels, strict=True)]
        )
        if chance > 0:
            weights = judging.highest_grade_weights(labels, [0] * images, NOISE, certain=right)
            mean += chance * weights[0]
    assert mean == pytest.approx(np.eye(4)[max(true)], abs=1e-9)


def test_weights_of_single_images_are_rows_of_the_inverse_matrix() -> None:
    found = judging.highest_grade_weights([3, 0, 1], [0, 1, 2], NOISE)
    assert found == pytest.approx(np.linalg.inv(NOISE)[[3, 0, 1]])
    assert judging.highest_grade_weights([0], [0], np.full((4, 4), 0.25)) is None


def test_many_images_of_one_patient_and_bad_input() -> None:
    """Products of so many that they overflow have no weights."""
    labels = np.array([2] * 1000 + [3] * 3)
    assert highest_grade_posterior(labels, np.zeros(1003, int), NOISE)[0].argmax() == 2
    with pytest.raises(SrjtError, match="lists of one length"):
        highest_grade_posterior([0, 1], [0], NOISE)
    with pytest.raises(SrjtError, match="impossible under this transition matrix"):
        highest_grade_posterior([1], [0], [[1.0, 0.0], [1.0, 0.0]])
    many = np.zeros(20_000, dtype=int)
    matrix = np.array([[0.6, 0.4], [0.4, 0.6]])
    assert judging.highest_grade_weights(many, many, matrix) is None


def test_few_agreements_do_not_make_a_suggestion_certain() -> None:
    """A hundred labels that are all as the networks say, for certain: one disagreement more among
    the others is reckoned with."""
    said = np.tile([1.0, 0.0], (100, 1))
    share = suggestion_shares(
        np.zeros(100, int), said, np.zeros(100), estimate=judged(0.001, verified=50)
    )
    others = 100 - 100 / judging._PARTS
    assert share == pytest.approx(np.full(100, others * 0.001 / 0.999), rel=1e-3)


def test_the_labels_of_an_image_each_count_once() -> None:
    """Bayes' rule by hand: p(x) · P[:, first label] · P[:, second label]."""
    matrix = np.array([[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.05, 0.25, 0.7]])
    image = np.array([0.5, 0.3, 0.2])
    pair = [0, 2]
    one_by_one = np.stack([image * matrix[:, label] for label in pair])
    one_by_one /= one_by_one.sum(axis=1, keepdims=True)
    both = image * matrix[:, 0] * matrix[:, 2]
    found = judging._joint(one_by_one, matrix.T[pair])
    assert found == pytest.approx(both / both.sum(), abs=0.02)  # the mean of two that agree
    alone = judging._joint(one_by_one[[0, 0]], np.stack([matrix[:, 2]] * 2))
    assert alone == pytest.approx(both / both.sum())


def test_each_grade_has_its_own_share_of_wrong_labels() -> None:
    """As many labels of a grade are expected to be wrong as is said; their order stays, and what is
    verified is known."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 600)
    labels = np.where(rng.random(600) < 0.3, (true + 1) % 3, true)
    p = np.exp(-((true[:, None] + 0.6 * rng.normal(size=(600, 1)) - np.arange(3)) ** 2))
    p /= p.sum(axis=1, keepdims=True)
    verified = np.where(np.arange(600) < 60, true, -1)
    given = {"transition": np.full((3, 3), 0.2) + 0.4 * np.eye(3)}
    plain = label_quality(labels, p, verified=verified, **given)
    found = label_quality(labels, p, verified=verified, label_rates=[0.1, 0.8, 0.4], **given)
    np.testing.assert_array_equal(found[:60], true[:60] == labels[:60])
    for grade, rate in enumerate([0.1, 0.8, 0.4]):
        rows = labels == grade
        assert 1 - found[rows].mean() == pytest.approx(rate)
        left = np.flatnonzero(rows & (verified < 0))
        assert (np.diff(found[left][plain[left].argsort()]) >= -1e-12).all()
    # as with one rate: else their order could not be seen
    for none_wrong in ({"label_rates": [0.0, 0.0, 0.0]}, {"rate": 0.0}):
        assert (1 - label_quality(labels, p, **none_wrong, **given)).sum() == pytest.approx(0.5)
    for wrong in ([0.1, 0.2], [0.1, 0.2, 1.1]):
        with pytest.raises(SrjtError, match="label_rates"):
            label_quality(labels, p, label_rates=wrong, **given)
