"""Agreement of readers, against scikit-learn, published values and closed forms."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import cohen_kappa_score

from fixtures.reader_tables import readings_of
from srjt.errors import SrjtError
from srjt.readers import Readings, agreement
from srjt.readers.agreement import ends, krippendorff_alpha

# Krippendorff's example of four observers and twelve units ("Computing Krippendorff's
# Alpha-Reliability", 2011).
PUBLISHED = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]


def from_table(table: list[list[int | None]], *, classes: int, **more: object) -> Readings:
    """Readers in rows, items in columns."""
    cells = [(i, r, g) for r, row in enumerate(table) for i, g in enumerate(row) if g is not None]
    return readings_of(*np.array(cells).T, classes=classes, **more)


def random_table(
    seed: int, *, readers: int = 4, items: int = 60, classes: int = 5
) -> list[list[int | None]]:
    rng = np.random.default_rng(seed)
    true = rng.integers(0, classes, size=items)
    table = (true + rng.integers(-1, 2, size=(readers, items))).clip(0, classes - 1)
    return [[int(g) if rng.random() < 0.7 else None for g in row] for row in table]


@pytest.mark.parametrize("seed", range(3))
def test_alpha_equals_the_krippendorff_package(seed: int) -> None:
    krippendorff = pytest.importorskip("krippendorff")
    table = random_table(seed)
    data = np.array([[np.nan if g is None else g for g in row] for row in table])
    expected = krippendorff.alpha(reliability_data=data, level_of_measurement="ordinal")
    assert agreement(from_table(table, classes=5), resamples=0).alpha.value == pytest.approx(
        expected
    )


def test_the_published_example() -> None:
    """Fleiss' κ: 0.76117 in Gwet's own publication of these data; it and AC2 by the package irrCAC
    0.4.4."""
    table = [[None if grade is None else grade - 1 for grade in row] for row in PUBLISHED]
    found = agreement(from_table(table, classes=5), resamples=0)
    assert found.fleiss.value == pytest.approx(0.761169, abs=1e-6)
    assert found.ac2.value == pytest.approx(0.914001, abs=1e-6)
    assert found.alpha.value == pytest.approx(0.815, abs=5e-4)
    # binary: 1 − (n − 1) · o_01 / (n_0 n_1)
    assert krippendorff_alpha([[6, 2], [2, 10]]) == pytest.approx(1 - 19 * 2 / (8 * 12))


# Six items, four readers (Shrout and Fleiss, Psychological Bulletin 1979, table 2), each row a
# reader
SHROUT_FLEISS = [[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7]]


def test_intraclass_correlations_of_the_published_example() -> None:
    """Published as .17, .29 and .71; the digits are those of pingouin."""
    found = agreement(from_table([list(row) for row in SHROUT_FLEISS], classes=11), resamples=0)
    expected = {"icc_one_way": 0.165742, "icc_agreement": 0.289764, "icc_consistency": 0.714841}
    assert {name: getattr(found, name).value for name in expected} == pytest.approx(
        expected, abs=1e-6
    )
    for row in found.pairs.to_dict("records"):  # Bland and Altman's limits
        difference = np.subtract(SHROUT_FLEISS[row["first"]], SHROUT_FLEISS[row["second"]])
        middle, width = difference.mean(), 1.96 * difference.std(ddof=1)
        limits = [row["difference"], row["limit_low"], row["limit_high"]]
        assert limits == pytest.approx([middle, middle - width, middle + width])


def test_intraclass_correlations_with_gaps() -> None:
    """Two-way: of the items that all have read. One-way: the estimate of variances with unequal
    numbers of readings."""
    table = [[*row, extra] for row, extra in zip(SHROUT_FLEISS, (3, 9, None, None), strict=True)]
    found = agreement(from_table(table, classes=11), resamples=0)
    assert found.icc_agreement.value == pytest.approx(0.289764, abs=1e-6)
    columns = zip(*table, strict=True)
    items = [np.array([g for g in column if g is not None], dtype=float) for column in columns]
    sizes, means = np.array([len(one) for one in items]), np.array([one.mean() for one in items])
    within = sum(((one - one.mean()) ** 2).sum() for one in items) / (sizes.sum() - len(items))
    among = (sizes * (means - np.concatenate(items).mean()) ** 2).sum() / (len(items) - 1)
    usual = (sizes.sum() - (sizes**2).sum() / sizes.sum()) / (len(items) - 1)
    variance = (among - within) / usual
    assert found.icc_one_way.value == pytest.approx(variance / (variance + within))
    apart: list[list[int | None]] = [[1, None, 2], [None, 3, 4], [2, 3, None]]
    assert np.isnan(agreement(from_table(apart, classes=5), resamples=0).icc_agreement.value)


def test_intervals_of_two_way_correlations_count_the_patients_that_all_have_read() -> None:
    """A third reader with one patient's items: no draw tells of other patients."""
    draw = np.random.default_rng(0)
    table: list[list[int | None]] = [draw.integers(0, 4, size=24).tolist() for _ in range(3)]
    table[2][6:] = [None] * 18
    readings = replace(from_table(table, classes=4), groups=[f"p{item // 6}" for item in range(24)])
    found = agreement(readings, resamples=50)
    assert np.isfinite([found.icc_agreement.value, found.icc_one_way.low]).all()
    assert np.isnan([*found.icc_agreement[1:], *found.icc_consistency[1:]]).all()


@pytest.mark.parametrize("seed", range(3))
def test_kappa_of_each_pair_equals_scikit_learn(seed: int) -> None:
    table = random_table(seed)
    pairs = agreement(from_table(table, classes=5), resamples=0).pairs
    assert len(pairs) == 6
    for row in pairs.to_dict("records"):
        pairs_of_two = zip(table[row["first"]], table[row["second"]], strict=True)
        both = [(a, b) for a, b in pairs_of_two if a is not None and b is not None]
        one, other = zip(*both, strict=True)
        assert row["items"] == len(both)
        for weights in ("quadratic", "linear"):
            expected = cohen_kappa_score(one, other, weights=weights, labels=range(5))
            assert row[weights] == pytest.approx(expected)
        assert row["exact"] == pytest.approx(np.mean([a == b for a, b in both]))
        assert row["within_one"] == pytest.approx(np.mean([abs(a - b) <= 1 for a, b in both]))


def test_intervals_hold_the_value_and_resample_patients() -> None:
    table = random_table(0, items=100)
    alone = agreement(from_table(table, classes=5), resamples=200)
    patients = [str(i // 20) for i in range(100)]
    grouped = agreement(from_table(table, classes=5, groups=patients), resamples=200)
    for found in (alone, grouped):
        assert (found.pairs["low"] <= found.pairs["quadratic"]).all()
        assert (found.pairs["quadratic"] <= found.pairs["high"]).all()
        assert found.alpha.low < found.alpha.value < found.alpha.high
    assert alone.alpha != grouped.alpha
    # one patient: every draw is the same, and tells nothing of others
    one = agreement(from_table(table, classes=5, groups=["p"] * 100), resamples=50)
    assert one.alpha.value == alone.alpha.value
    assert np.isnan([one.alpha[1:], one.quadratic[1:], one.fleiss[1:]]).all()
    assert one.pairs[["low", "high"]].isna().all(axis=None)
    assert one.by_reader[["bias_low", "bias_high"]].isna().all(axis=None)
    # two readers who share the items of one patient only, beside pairs with more
    third = table[2]
    table[2] = [grade if patients[i] == "0" else None for i, grade in enumerate(third)]
    found = agreement(from_table(table, classes=5, groups=patients), resamples=50).pairs
    assert found["low"].isna().tolist() == [
        2 in pair for pair in zip(found["first"], found["second"], strict=True)
    ]


def test_few_patients_make_wider_intervals() -> None:
    """Ends are nearest to the ends of all draws, as far as the number of the column's patients
    says."""
    draws = np.linspace(0, 1, 1001)[:, None].repeat(4, axis=1)
    draws[::2, 3] = np.nan
    low, high = ends(np.vstack([np.full(4, 0.5), draws]), [2, 8, 10**6, 10**6], 0.95)
    assert low == pytest.approx([0.0, 0.0037, 0.025, 0.026], abs=1e-4)
    assert high == pytest.approx(1 - low, abs=1e-9)


def test_one_more_disagreement_has_the_weight_of_a_patient() -> None:
    """Draws that do not vary: the lower end is the quantile of an exponential distribution."""
    low, high = ends(np.full((4001, 1), 0.8), 10**6, 0.95, lower=0.1)
    assert low == pytest.approx(0.8 + 0.1 * np.log(0.025), abs=0.03)
    assert high == pytest.approx(0.8)


def test_readers_who_always_agree_have_an_interval_all_the_same() -> None:
    """20 patients with one pair each: Wilson's interval with the quantile of t, as for few
    patients."""
    found = agreement(from_table([[0, 1] * 10, [0, 1] * 10], classes=2), resamples=50)
    square = scipy.stats.t.ppf(0.975, 19) ** 2
    assert found.exact == pytest.approx((1.0, 20 / (20 + square), 1.0))
    for name in (
        "quadratic",
        "alpha",
        "fleiss",
        "ac2",
        "icc_one_way",
        "icc_agreement",
        "icc_consistency",
    ):
        coefficient = getattr(found, name)
        assert coefficient.value == coefficient.high == pytest.approx(1.0)
        assert 0.3 < coefficient.low < 0.9
    assert (found.pairs["low"] < 0.9).all()
    assert (found.by_reader["bias_low"] < -0.05).all()
    one = agreement(from_table([[0, 1], [0, 0]], classes=2, groups=["p", "p"]), resamples=50)
    assert one.exact == (0.5, 0.0, 1.0)


def test_a_biased_and_drifting_reader() -> None:
    items, seconds = 400, 2 * 365 * 86400
    rng = np.random.default_rng(0)
    true = rng.integers(1, 3, size=items)
    when = np.datetime64("2020-01-01T00:00:00") + rng.integers(0, seconds, items).astype(
        "timedelta64[s]"
    )
    late = when > np.datetime64("2021-01-01")
    read = (
        np.tile(np.arange(items), 3),
        np.repeat([0, 1, 2], items),
        np.hstack([true, true, true + late]),
    )
    names = ["steady", "same", "drifts"]
    readings = readings_of(*read, classes=5, readers=names, times=np.tile(when, 3))
    by_reader = agreement(readings, resamples=100).by_reader.set_index("reader")
    assert by_reader.loc["drifts", "bias"] == pytest.approx(late.mean())
    assert by_reader.loc["steady", "bias"] == pytest.approx(-late.mean() / 2)
    # the slope of a step in the middle of two years is 3/4 per year
    assert by_reader.loc["drifts", "drift"] == pytest.approx(0.75, abs=0.05)
    assert by_reader.loc["drifts", "drift_low"] > 0
    assert by_reader.loc["steady", "drift_high"] < 0


def test_the_same_reader_twice() -> None:
    readings = readings_of([0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 1], [1, 1, 0, 0, 2, 1], classes=3)
    by_reader = agreement(readings, resamples=0).by_reader
    assert by_reader["repeated"].tolist() == [2, 0]
    assert by_reader["repeated_exact"][0] == pytest.approx(2 / 4)  # (1,1); (0,0), (0,2), (0,2)
    assert np.isnan(by_reader["repeated_exact"][1])


def test_one_reader_and_constant_readers_are_undefined_not_wrong() -> None:
    alone = agreement(from_table([[0, 1, 2]], classes=3), resamples=20)
    assert len(alone.pairs) == 0
    assert np.isnan(alone.alpha.value)
    assert alone.shared_items == 0
    constant = agreement(from_table([[1, 1, 1], [1, 1, 1]], classes=3), resamples=20)
    assert np.isnan(constant.pairs["quadratic"][0])
    assert constant.exact.value == 1.0
    assert "NaN" not in json.dumps(constant.to_dict(), default=str, allow_nan=False)
    with pytest.raises(SrjtError, match="resamples counts draws"):
        agreement(from_table([[0, 1]], classes=2), resamples=-1)


def test_five_thousand_readers_share_few_items() -> None:
    rng = np.random.default_rng(0)
    item = rng.integers(0, 4000, size=15_000)
    grade = (item % 5 + rng.integers(-1, 2, size=15_000)).clip(0, 4)
    found = agreement(
        readings_of(item, np.repeat(np.arange(5000), 3), grade, classes=5), resamples=5
    )
    assert 10_000 < len(found.pairs) < 60_000
    assert 0.5 < found.alpha.low <= found.alpha.value <= found.alpha.high < 1.0


def test_the_higher_end_is_as_far_away_as_the_lower_one_but_not_beyond_the_highest_value() -> None:
    """Draws of a coefficient lie below it; ends as of many patients, 2.5 % and 97.5 %."""
    draws = np.linspace(0.4, 0.8, 1001)[:, None]
    values = np.vstack([[[0.7]], draws])
    low, high = ends(values, 10**6, 0.95)[:, 0]
    assert (low, high) == pytest.approx((0.41, 0.99), abs=1e-4)
    assert ends(values, 10**6, 0.95, highest=0.9)[1, 0] == pytest.approx(0.9)


def test_two_readers_have_one_kappa() -> None:
    found = agreement(from_table(random_table(0, items=40)[:2], classes=5), resamples=200)
    pair = found.pairs.iloc[0]
    assert tuple(found.quadratic) == pytest.approx((pair["quadratic"], pair["low"], pair["high"]))


@pytest.mark.parametrize(("readers", "lowest"), [(2, -1.0), (3, -0.5)])
def test_an_interval_ends_where_a_coefficient_does(readers: int, lowest: float) -> None:
    """Of four items on which nobody agrees."""
    table = [[(item + reader) % readers for item in range(4)] for reader in range(readers)]
    found = agreement(from_table(table, classes=3), resamples=200)
    assert found.fleiss.low == pytest.approx(lowest)
    assert min(found.alpha.low, found.quadratic.low, found.pairs["low"].min()) >= -1.0
