"""Labels drawn by doubt: known probabilities, fixed sizes, unbiased shares, and intervals that hold
and are shorter."""

import itertools

import numpy as np
import pytest
from scipy.special import stdtrit

from srjt.errors import SrjtError
from srjt.noise import verified as checks
from srjt.noise.basis import Basis
from srjt.noise.drawing import (
    Drawing,
    draw_by_doubt,
    draw_sizes,
    expected_probability,
    labels_needed,
)
from srjt.noise.estimate import estimate_noise
from srjt.noise.verified import (
    Verified,
    exact_interval,
    read_verified,
    use_verified,
    verified_share,
    wilson_interval,
)


def test_a_larger_sample_begins_with_the_smaller_one_and_every_label_has_its_turn() -> None:
    drawing = draw_by_doubt(np.linspace(0, 1, 40))
    assert sorted(drawing.order) == list(range(40))
    assert (np.diff(drawing.place[drawing.order]) >= 0).all()
    for drawn in (0, 1, 17, 39):
        chances = drawing.probability(drawn)
        assert ((chances > 0) & (chances <= 1)).all()
    assert (drawing.probability(40) == 1).all()
    with pytest.raises(SrjtError, match="Of 40 labels 41 cannot be drawn"):
        drawing.probability(41)


def test_sizes_are_roots_of_what_a_label_leaves_to_learn_and_no_weight_explodes() -> None:
    doubt = np.array([0.0, 0.1, 0.9, 0.2])
    believed = (doubt + 0.3) / 2
    expected = np.sqrt(believed * (1 - believed))
    np.testing.assert_allclose(draw_sizes(doubt), expected / expected.mean())
    for hard in (
        np.array([0.0] * 999 + [1.0]),
        np.array([0.0] * 500 + [0.5] * 500),
        np.full(10, 0.3),
    ):
        assert draw_sizes(hard).min() >= np.sqrt(0.5) - 1e-12
        assert draw_sizes(hard).mean() == pytest.approx(1.0)
    assert (draw_sizes(np.zeros(5)) == 1).all()
    assert (
        np.ptp(draw_by_doubt(np.full(30, 0.2)).probability(10)) == 0
    )  # then it is a simple random sample


def test_the_draw_does_not_depend_on_noise_with_the_same_seed() -> None:
    """The numbers are others than those of ``default_rng(seed)``, by which labels may have been
    made wrong."""
    place = draw_by_doubt(np.full(1000, 0.3), seed=0).place
    for numbers in (
        np.random.default_rng(0).random(1000),
        np.random.default_rng(0).normal(size=1000),
    ):
        assert abs(np.corrcoef(place, numbers)[0, 1]) < 0.1


@pytest.mark.parametrize("doubt", [[], [0.5, 1.2], [0.5, np.nan], [[0.5]]])
def test_a_doubt_is_a_probability(doubt: list[float]) -> None:
    with pytest.raises(SrjtError, match="one number between 0 and 1"):
        draw_by_doubt(doubt)


def test_a_sum_divided_by_the_probabilities_is_unbiased() -> None:
    """Exactly, whatever the values are: over 10,000 draws of 5 of 12 labels, within four standard
    errors."""
    rng = np.random.default_rng(0)
    values, doubt = 1.0 + rng.random(12), rng.random(12)
    size = draw_sizes(doubt)
    sums = []
    for _ in range(10_000):
        place = rng.random(12) / size
        drawing = Drawing(order=np.argsort(place), size=size, place=place)
        rows = drawing.order[:5]
        sums.append((values[rows] / drawing.probability(5)[rows]).sum())
    assert abs(np.mean(sums) - values.sum()) < 4 * np.std(sums) / np.sqrt(len(sums))


def test_a_plan_knows_the_probabilities_before_the_draw() -> None:
    """Their sum is the size of the sample, and draws have them on average, certain labels too."""
    size = draw_sizes(np.array([0.02] * 40 + [0.9] * 20))
    size[:2] = 12.0
    for drawn in (5, 20, 59):
        expected = expected_probability(size, drawn)
        assert expected.sum() == pytest.approx(drawn)
        assert expected.max() <= 1.0
    rng = np.random.default_rng(0)
    often = np.zeros(60)
    for _ in range(4000):
        often[np.argsort(rng.random(60) / size)[:20]] += 1 / 4000
    assert often == pytest.approx(expected_probability(size, 20), abs=0.04)


def test_the_planned_number_gives_the_width_if_a_quarter_of_the_doubt_is_right() -> None:
    rng = np.random.default_rng(1)
    doubt = rng.beta(0.4, 1.6, 2000)
    planned = labels_needed(doubt, within=0.05)
    widths = []
    for seed in range(30):
        wrong = (rng.random(2000) < (doubt + 3 * doubt.mean()) / 4).astype(float)
        widths.append(np.diff(share_of(wrong, doubt, planned, seed=seed).interval)[0] / 2)
    assert np.mean(widths) == pytest.approx(0.05, abs=0.002)
    assert labels_needed(doubt, within=0.05, rate=0.4) > planned
    # whatever the order of the labels: no plan is made of one draw
    assert labels_needed(doubt[::-1], within=0.05) == planned
    with pytest.raises(SrjtError, match="between 0 and 1"):
        labels_needed(doubt, within=0.0)


def share_of(
    wrong: np.ndarray, doubt: np.ndarray, size: int, *, seed: int, by: np.ndarray | None = None
) -> checks.Share:
    """The share of wrong labels by ``size`` verified ones. by: the doubt that they are drawn by."""
    drawing = draw_by_doubt(doubt if by is None else by, seed=seed)
    rows = drawing.order[:size]
    known = Verified(
        rows=rows, true=np.zeros(size, dtype=np.int64), probability=drawing.probability(size)[rows]
    )
    samples = len(wrong)
    return verified_share(
        wrong[rows],
        doubt[rows],
        known,
        mean_doubt=float(doubt.mean()),
        samples=samples,
        owner=np.arange(samples),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "longest"),
    [("doubt", 0.75), ("too sure", 0.97), ("useless", 1.03), ("misleading", 1.06), ("hidden", 0.9)],
)
def test_the_interval_holds_for_any_doubt_and_is_shorter_for_a_good_one(
    truth: str, longest: float
) -> None:
    """Beside the exact interval of as many labels at random: its width, and 0.95 within three
    standard errors."""
    rng = np.random.default_rng([7, len(truth)])
    held, widths, rates = [], [], []
    for seed in range(250):
        doubt = rng.beta(0.3, 1.2, 1200)
        chance = {
            "doubt": doubt,
            "too sure": 0.15 + 0.5 * doubt,
            "useless": np.full(1200, 0.2),
            "misleading": np.clip(0.3 - 0.5 * doubt, 0.02, 1),
            "hidden": np.maximum(0.9 * doubt, 0.05),
        }[truth]
        wrong = (rng.random(1200) < chance).astype(float)
        found = share_of(wrong, doubt, 100, seed=seed)
        held.append(found.interval[0] <= wrong.mean() <= found.interval[1])
        rates.append(found.rate - wrong.mean())
        alone = share_of(wrong, np.zeros(1200), 100, seed=seed)
        widths.append((np.diff(found.interval)[0], np.diff(alone.interval)[0]))
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 250)
    assert abs(np.mean(rates)) < 4 * np.std(rates) / np.sqrt(250)
    ours, random = np.mean(widths, axis=0)
    assert ours <= longest * random


def test_weights_count_in_every_estimate() -> None:
    """Of labels half are drawn nine times as often: unweighted shares are far off, weighted ones
    are not."""
    rng = np.random.default_rng(3)
    plain, weighted = [], []
    for _ in range(40):
        true = rng.integers(0, 3, 900)
        often = np.arange(900) < 450
        label = np.where(rng.random(900) < np.where(often, 0.6, 0.1), (true + 1) % 3, true)
        chance = np.where(often, 0.45, 0.05)
        verified = np.where(rng.random(900) < chance, true, -1)
        posterior = np.full((900, 3), 1 / 3)
        for probability, rates in ((None, plain), (chance, weighted)):
            known = read_verified(verified, samples=900, classes=3, probability=probability)
            found = use_verified(label, posterior, known, owner=np.arange(900), confidence=0.95)
            by_label = np.array(found.by_label)
            assert ((by_label[:, 1] <= by_label[:, 0]) & (by_label[:, 0] <= by_label[:, 2])).all()
            rates.append(
                [found.rate, *by_label[:, 0], 1 - np.trace(found.joint)] - (label != true).mean()
            )
    assert np.abs(np.mean(weighted, axis=0)).max() < 0.03
    assert np.mean(plain, axis=0).min() > 0.15


def test_the_size_of_a_weighted_sample_is_kishs() -> None:
    rng = np.random.default_rng(4)
    chance = rng.uniform(0.05, 0.4, 500)
    wrong = rng.random(500) < 0.3
    rows = np.flatnonzero(rng.random(500) < chance)
    known = Verified(rows=rows, true=np.zeros(len(rows), dtype=np.int64), probability=chance[rows])
    weights = 1 / chance[rows]
    shares = weights / weights.sum()
    found = verified_share(
        wrong[rows].astype(float),
        np.zeros(len(rows)),
        known,
        mean_doubt=0.0,
        samples=500,
        owner=np.arange(500),
    )
    assert found.rate == pytest.approx(shares @ wrong[rows])
    rest = (shares**2 * (1 - chance[rows])).sum() / (shares**2).sum()
    size = weights.sum() ** 2 / (weights**2).sum() / rest
    assert found.interval == pytest.approx(exact_interval(found.rate, size))
    assert found.worth == pytest.approx(size)


def test_wilsons_interval_is_where_the_score_test_rejects() -> None:
    for share, size in itertools.product((0.0, 0.1, 0.5, 1.0), (20, 200.5)):
        for end in wilson_interval(share, size):
            if 0 < end < 1:
                assert abs(end - share) / np.sqrt(end * (1 - end) / size) == pytest.approx(1.959964)


@pytest.mark.parametrize("probability", [[0.5, 0.0], [0.5, 1.5], [0.5], [np.nan, 0.5]])
def test_a_verified_label_had_a_chance_to_be_drawn(probability: list[float]) -> None:
    with pytest.raises(SrjtError, match="the probability with which it was drawn"):
        read_verified([0, 1], samples=2, classes=2, probability=probability)
    assert read_verified(
        [0, -1], samples=2, classes=2, probability=[0.5, np.nan]
    ).probability.tolist() == [0.5]


@pytest.mark.slow
def test_the_estimate_says_how_verified_labels_were_drawn() -> None:
    rng = np.random.default_rng(5)
    true = rng.integers(0, 3, 600)
    label = np.where(rng.random(600) < 0.2, np.clip(true + 1, 0, 2), true)
    p = np.exp(-(((true + 0.5 * rng.normal(size=600))[:, None] - np.arange(3)) ** 2) / 0.5)
    p /= p.sum(axis=1, keepdims=True)
    drawing = draw_by_doubt(1 - p[np.arange(600), label])
    verified = np.full(600, -1)
    verified[drawing.order[:80]] = true[drawing.order[:80]]
    found = estimate_noise(
        label, p, verified=verified, verified_probability=drawing.probability(80), bootstrap=40
    )
    assert found.basis == Basis(kind="verified", labels=80, at_random=False)
    assert found.rate_interval[0] <= (label != true).mean() <= found.rate_interval[1]
    assert len(found.verified_shares) == 3
    assert type(found).from_dict(found.to_dict()).verified_shares == found.verified_shares


def test_a_plan_for_few_labels_reckons_with_those_that_are_left() -> None:
    """Sixty labels of equal doubt: by hand, with the variance of a mean without replacement and
    half a rare error of it."""
    labels, doubt = 60, 0.1

    def half_width(drawn: int) -> float:
        left = (1 - drawn / labels) / drawn
        variance = doubt * (1 - doubt) * left + 0.5 * left / drawn
        worth = doubt * (1 - doubt) / variance
        interval = wilson_interval(doubt, worth, quantile=float(stdtrit(drawn, 0.975)))
        return float(interval[1] - interval[0]) / 2

    by_hand = next(drawn for drawn in range(1, labels) if half_width(drawn) <= 0.05)
    assert labels_needed([doubt] * labels, within=0.05) == by_hand
