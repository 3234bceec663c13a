"""Rates of readers, grades and patients: closed forms, and intervals that hold what they
promise."""

import numpy as np
import pytest

from srjt.errors import SrjtError
from srjt.noise.group_rates import group_rates
from srjt.noise.verified import quality_with_rate


def told(wrong: np.ndarray, rate: float, *, clear: float, rng: np.random.Generator) -> np.ndarray:
    """(N,) the quality by Bayes' rule of an observer who sees 1 for a wrong label, 0 for a right
    one, with an error."""
    seen = wrong + rng.normal(size=wrong.shape) / clear
    log_odds = np.log(rate / (1 - rate)) + clear**2 * (seen - 0.5)
    return 1 / (1 + np.exp(log_odds))


def readers(seed: int, *, rate: float, spread: float, clear: float = 2.0) -> tuple[np.ndarray, ...]:
    """Six readers of 30 to 80 labels, whose odds of an error differ: groups, whether each label is
    wrong, qualities."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(6), [30, 40, 50, 60, 70, 80])
    odds = rate / (1 - rate) * np.exp(spread * rng.normal(size=6))
    wrong = (
        rng.random(len(group)) < (odds / (1 + odds))[group]
        if rate
        else np.zeros(len(group), dtype=bool)
    )
    mean = max(float(wrong.mean()), 0.02)
    return group, wrong, told(wrong, mean, clear=clear, rng=rng)


def held(
    rate: float, *, spread: float, trials: int = 40, clear: float = 2.0
) -> tuple[float, float]:
    """The share of readers whose interval holds the share of their wrong labels, and the mean
    width."""
    hits, widths = [], []
    for seed in range(trials):
        group, wrong, quality = readers(seed, rate=rate, spread=spread, clear=clear)
        truth = np.bincount(group, wrong) / np.bincount(group)
        mean = float(wrong.mean())
        for one, share in zip(
            group_rates(quality, group, rates=(mean, mean, mean)), truth, strict=True
        ):
            hits.append(one.interval[0] - 1e-9 <= share <= one.interval[1] + 1e-9)
            widths.append(one.interval[1] - one.interval[0])
    return float(np.mean(hits)), float(np.mean(widths))


@pytest.mark.parametrize(("rate", "spread"), [(0.2, 0.0), (0.3, 0.7), (0.4, 1.0)])
def test_intervals_of_readers_hold_whether_they_differ_or_not(rate: float, spread: float) -> None:
    share, width = held(rate, spread=spread)
    assert share >= 0.93
    assert width < 0.3  # they say something


@pytest.mark.parametrize("clear", [1.0, 3.0])
def test_where_no_label_is_wrong_no_interval_excludes_that(clear: float) -> None:
    excluded = []
    for seed in range(40):
        group, _, quality = readers(seed, rate=0.0, spread=0.0, clear=clear)
        rates = group_rates(quality, group, rates=(0.0, 0.02, 0.1))
        excluded += [one.interval[0] > 0 for one in rates]
    assert np.mean(excluded) == 0.0


def test_the_interval_is_the_hull_over_the_rates_of_all_labels() -> None:
    group, _, quality = readers(0, rate=0.3, spread=0.5)
    ends = [group_rates(quality, group, rates=(rate, rate, rate)) for rate in (0.1, 0.3, 0.5)]
    hull = group_rates(quality, group, rates=(0.1, 0.3, 0.5))
    for place, one in enumerate(hull):
        assert one.rate == ends[1][place].rate
        assert one.interval[0] == min(of[place].interval[0] for of in ends)
        assert one.interval[1] == max(of[place].interval[1] for of in ends)
        assert one.interval[0] == ends[0][place].interval[0] < ends[2][place].interval[0]


def test_a_reader_who_errs_more_is_not_drawn_to_the_others() -> None:
    """Two hundred labels each, of which 10 % and 40 % are wrong: the mean doubt lies between, the
    rates do not."""
    rng = np.random.default_rng(1)
    group = np.repeat([0, 1], 400)
    wrong = rng.random(800) < np.array([0.1, 0.4])[group]
    quality = told(wrong, float(wrong.mean()), clear=1.2, rng=rng)
    share, mean = np.bincount(group, wrong) / 400, float(wrong.mean())
    doubt = np.bincount(group, 1 - quality) / 400
    rates = [one.rate for one in group_rates(quality, group, rates=(mean, mean, mean))]
    assert np.abs(rates - share).max() < 0.04 < np.abs(doubt - share).max()
    by_label = group_rates(quality, group, rates=(mean, mean, mean), by_label=True)
    fitted = (
        np.bincount(group, 1 - quality_with_rate(quality, mean, np.zeros(800, dtype=bool))) / 400
    )
    assert [one.rate for one in by_label] == pytest.approx(fitted, abs=0.01)  # as the model has it


def test_each_doubtful_label_may_be_wrong_or_right() -> None:
    """Clear labels tell the rate of the group; of 40 that are as likely wrong as right, 20 ± 6
    are."""
    quality = np.array([0.5] * 40 + [0.001] * 200 + [0.999] * 200)
    [one] = group_rates(quality, np.zeros(440, dtype=int), rates=(0.5, 0.5, 0.5))
    assert one.rate == pytest.approx(0.5)
    deviation = np.sqrt(
        40 / 4 + (40 / 4) ** 2 / (400 / 4)
    )  # of the labels, and of the factor that clear ones tell
    assert 440 * np.diff(one.interval)[0] == pytest.approx(
        2 * 1.96 * deviation, abs=2.1
    )  # whole labels


def test_labels_that_tell_nothing_leave_the_rate_of_the_group_open() -> None:
    """All are as likely wrong as right, so the factor of the odds is as before the data: normal,
    deviation 1."""
    [one] = group_rates(np.full(400, 0.5), np.zeros(400, dtype=int), rates=(0.5, 0.5, 0.5))
    assert one.rate == pytest.approx(0.5)
    assert one.interval == pytest.approx([1 / (1 + np.e**1.96), 1 / (1 + np.e**-1.96)], abs=0.02)


def test_verified_labels_are_counted_and_not_moved() -> None:
    quality = np.array([0.0, 1.0] * 30 + [0.8] * 60)
    known = np.arange(120) < 60
    [checked, other] = group_rates(
        quality, np.arange(120) // 60, rates=(0.3, 0.35, 0.4), verified=known
    )
    assert checked.rate == pytest.approx(0.5)
    assert checked.interval == (0.5, 0.5)
    assert other.interval[0] < other.rate < other.interval[1]


def test_repeated_labels_make_an_interval_as_wide_as_fewer_labels() -> None:
    quality = np.tile([0.5, 0.9, 0.9, 0.9], 50)
    one = np.zeros(200, dtype=int)
    mean = float((1 - quality).mean())
    [whole], [few] = (
        group_rates(quality[:size], one[:size], rates=(mean, mean, mean), by_label=True)
        for size in (200, 50)
    )
    [repeated] = group_rates(quality, one, rates=(mean, mean, mean), by_label=True, repeated=4.0)
    assert repeated.interval == pytest.approx(few.interval, abs=0.03)
    assert np.diff(repeated.interval) > 1.5 * np.diff(whole.interval)


def test_a_rate_is_reached_by_one_factor_and_the_order_stays() -> None:
    quality = np.array([0.2, 0.5, 0.9, 0.99, 0.0, 1.0])
    known = np.array([False] * 4 + [True] * 2)
    moved = quality_with_rate(quality, 0.4, known)
    assert (1 - moved).mean() == pytest.approx(0.4)
    assert moved[4:].tolist() == [0.0, 1.0]
    odds = moved[:4] / (1 - moved[:4]) / (quality[:4] / (1 - quality[:4]))
    assert odds == pytest.approx(np.full(4, odds[0]))


def test_bad_input_gets_one_sentence() -> None:
    with pytest.raises(SrjtError, match="two lists of one length"):
        group_rates([0.5, 0.5], [0], rates=(0.1, 0.2, 0.3))
