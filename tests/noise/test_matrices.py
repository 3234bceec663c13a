"""Noise matrices in closed form, draws against their matrix, draws keyed by sample, and the
report."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy.stats import chi2

from srjt import noise
from srjt.errors import SrjtError

LIMUC = [6105, 3052, 1254, 865]
kinds = st.sampled_from(["quasi", "truncated"])


def test_families_by_hand() -> None:
    """Truncated: with ρ, and not 1 − ρ, beside the diagonal."""
    far = 0.1 / 3
    upper = [[1 - 0.1 - 0.05 - far, 0.1, 0.05, far], [0.1, 0.75, 0.1, 0.05]]
    quasi = np.vstack([upper, np.flip(upper)])
    truncated = [[0.9, 0.1, 0, 0], [0.1, 0.8, 0.1, 0], [0, 0.1, 0.8, 0.1], [0, 0, 0.1, 0.9]]
    for kind, expected in (("quasi", quasi), ("truncated", truncated)):
        found = noise.transition_matrix(kind, num_classes=4, rho=0.1)
        np.testing.assert_allclose(found, expected, atol=1e-15)


@pytest.mark.parametrize(
    ("kind", "rho", "rate"),
    [
        # (6970 · 11/6 + 4306 · 5/2) / 11276 = 2.087915 wrong labels per unit of ρ
        ("quasi", 0.1, 0.2087915),
        ("quasi", 0.2, 0.4175831),
        # (6970 · 1 + 4306 · 2) / 11276 = 1.381873
        ("truncated", 0.15, 0.2072810),
        ("truncated", 0.3, 0.4145619),
    ],
)
def test_the_papers_rho_gives_about_its_rate_on_limuc(kind: str, rho: float, rate: float) -> None:
    matrix = noise.transition_matrix(kind, num_classes=4, rho=rho)
    assert noise.expected_rate(matrix, class_counts=LIMUC) == pytest.approx(rate, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "num_classes", "largest"),
    [
        ("quasi", 2, 1.0),
        ("quasi", 3, 0.5),
        ("quasi", 4, 0.4),
        ("truncated", 2, 1.0),
        ("truncated", 5, 0.5),
    ],
)
def test_largest_rho_by_hand_and_in_the_error(kind: str, num_classes: int, largest: float) -> None:
    assert noise.largest_rho(kind, num_classes=num_classes) == pytest.approx(largest)
    edge = noise.transition_matrix(kind, num_classes=num_classes, rho=largest)
    assert np.diag(edge).min() == pytest.approx(0.0, abs=1e-15)
    with pytest.raises(SrjtError, match=f"between 0 and {largest:g}"):
        noise.transition_matrix(kind, num_classes=num_classes, rho=largest + 0.01)


@given(kinds, st.integers(2, 12), st.floats(0, 1))
def test_matrices_are_row_stochastic_and_symmetric_under_reversal(
    kind: str, c: int, part: float
) -> None:
    matrix = noise.transition_matrix(
        kind, num_classes=c, rho=part * noise.largest_rho(kind, num_classes=c)
    )
    assert (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(matrix, matrix[::-1, ::-1], atol=1e-12)


@given(kinds, st.lists(st.integers(0, 5000), min_size=2, max_size=7), st.floats(0, 1))
def test_rho_for_rate_solves_the_rate_on_the_class_mix(
    kind: str, counts: list[int], part: float
) -> None:
    assume(sum(counts) > 0)
    c = len(counts)

    def rate_at(rho: float) -> float:  # written out, cell by cell
        wrong = 0.0
        for i, j in itertools.permutations(range(c), 2):
            wrong += counts[i] * (rho / abs(i - j) if kind == "quasi" else rho * (abs(i - j) == 1))
        return wrong / sum(counts)

    rate = part * rate_at(noise.largest_rho(kind, num_classes=c))
    rho = noise.rho_for_rate(kind, rate=rate, class_counts=counts)
    assert rate_at(rho) == pytest.approx(rate, abs=1e-12)
    noise.transition_matrix(kind, num_classes=c, rho=rho)  # is possible


def chi_square(true: np.ndarray, noisy: np.ndarray, matrix: np.ndarray) -> tuple[float, int]:
    """Pearson's statistic over all possible cells, and its degrees of freedom."""
    statistic, freedom = 0.0, 0
    for grade, row in enumerate(matrix):
        drawn = np.bincount(noisy[true == grade], minlength=len(row))
        possible = row > 0
        assert drawn[~possible].sum() == 0
        expected = drawn.sum() * row[possible]
        statistic += float(((drawn[possible] - expected) ** 2 / expected).sum())
        freedom += int(possible.sum()) - 1
    return statistic, freedom


@pytest.mark.parametrize(("kind", "rho"), [("quasi", 0.1), ("quasi", 0.2), ("truncated", 0.3)])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_the_empirical_matrix_is_the_nominal_one(
    kind: str, rho: float, keyed: bool, seed: int
) -> None:
    true = np.repeat([0, 1, 2, 3], [4000, 2000, 1200, 800])
    matrix = noise.transition_matrix(kind, num_classes=4, rho=rho)
    ids = [f"image-{i}.png" for i in range(len(true))] if keyed else None
    noisy = noise.corrupt(true, matrix, seed=seed, ids=ids)
    statistic, freedom = chi_square(true, noisy, matrix)
    assert statistic < chi2.ppf(1 - 1e-4, freedom)
    # and the bound has teeth: two hundredths of ρ more would be noticed
    other = noise.transition_matrix(kind, num_classes=4, rho=rho + 0.02)
    assert chi_square(true, noisy, other)[0] > chi2.ppf(1 - 1e-4, freedom)


def test_the_same_draws_on_every_platform() -> None:
    upwards = np.array(
        [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    )  # by rows, not by columns
    assert noise.corrupt([0, 1, 2, 0], upwards, seed=3).tolist() == [1, 2, 2, 1]
    assert noise.corrupt([], np.eye(4), seed=0).shape == (0,)
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.2)
    labels = np.arange(24) % 4
    positional = noise.corrupt(labels, matrix, seed=7)
    keyed = noise.corrupt(labels, matrix, seed=7, ids=[f"s{i}" for i in range(24)])
    assert "".join(map(str, positional)) == "212301130233022301230121"
    assert "".join(map(str, keyed)) == "023312030131112201331322"
    assert positional.dtype == keyed.dtype == np.int64


@given(st.permutations(range(30)), st.integers(1, 30), st.integers(0, 1000))
def test_keyed_draws_stay_when_rows_come_go_or_move(order: list[int], size: int, seed: int) -> None:
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.3)
    labels = np.arange(30) % 4
    alone = noise.corrupt(labels, matrix, seed=seed, ids=range(30))
    subset = order[:size]
    assert (
        noise.corrupt(labels[subset], matrix, seed=seed, ids=subset).tolist()
        == alone[subset].tolist()
    )


def test_the_seed_matters_and_so_does_the_id() -> None:
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.3)
    labels = np.zeros(200, dtype=int)
    cases = ((0, None), (1, None), (0, range(200)), (1, range(200)), (0, range(200, 400)))
    draws = [noise.corrupt(labels, matrix, seed=seed, ids=ids) for seed, ids in cases]
    assert len({tuple(d) for d in draws}) == 5


def test_the_report_by_hand() -> None:
    matrix = noise.transition_matrix(
        "truncated", num_classes=3, rho=0.25
    )  # diagonal 0.75, 0.5, 0.75
    summary = noise.report([0, 0, 0, 0, 1, 1], [0, 1, 0, 0, 2, 1], matrix)
    assert summary.nominal_rate == pytest.approx((4 * 0.25 + 2 * 0.5) / 6)
    assert summary.realised_rate == pytest.approx(2 / 6)
    assert summary.per_class_nominal == pytest.approx((0.25, 0.5, 0.25))
    assert summary.per_class_realised[:2] == pytest.approx((0.25, 0.5))
    assert math.isnan(summary.per_class_realised[2])  # no sample of grade 2
    assert summary.class_counts == (4, 2, 0)
    assert summary.realised_matrix[:2] == ((0.75, 0.25, 0.0), (0.0, 0.5, 0.5))
    # eigenvalues of this symmetric matrix: 1, 0.75 and 0.25
    assert summary.condition_number == pytest.approx(4.0)
    assert not summary.ill_conditioned
    assert "nominal 0.3333, realised 0.3333" in str(summary)
    singular = noise.report(
        [0, 1], [0, 1], noise.transition_matrix("truncated", num_classes=4, rho=0.3)
    )
    assert singular.ill_conditioned
    assert "condition number 41" in str(singular)
    with pytest.raises(SrjtError, match="2 true grades and 1 labels"):
        noise.report([0, 1], [0], matrix)


EYE = np.eye(4)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: noise.corrupt([0, 4], EYE, seed=0), r"0 … 3; they reach from 0 to 4"),
        (lambda: noise.corrupt([0.5], EYE, seed=0), r"whole grades; got float64"),
        (lambda: noise.corrupt([[0]], EYE, seed=0), "one-dimensional"),
        (lambda: noise.corrupt([0, 1], EYE, seed=0, ids=["a"]), "1 ids for 2 labels"),
        (lambda: noise.corrupt([0, 1], EYE, seed=0, ids=["a", "a"]), "at least one occurs twice"),
        (lambda: noise.corrupt([0], EYE, seed=None), "whole number from 0 up, not None"),
        (lambda: noise.corrupt([0], EYE, seed=-1), "not -1"),
        (
            lambda: noise.check_matrix(np.ones((2, 3))),
            r"square \(C, C\); this one has shape \(2, 3\)",
        ),
        (lambda: noise.check_matrix([[1.2, -0.2], [0, 1]]), "an entry is negative"),
        (lambda: noise.check_matrix([[0.9, 0.2], [0, 1]]), r"row 0 sums to 1\.1\."),
        (lambda: noise.check_matrix(np.eye(3), num_classes=4), "for 3 grades, but there are 4"),
        (
            lambda: noise.transition_matrix("truncted", num_classes=4, rho=0.1),
            "did you mean 'truncated'",
        ),
        (lambda: noise.transition_matrix("quasi", num_classes=1, rho=0.1), "at least two grades"),
        (lambda: noise.rho_for_rate("quasi", rate=0.1, class_counts=[0, 0]), "not all zero"),
        (lambda: noise.rho_for_rate("quasi", rate=math.nan, class_counts=[1, 1]), "not possible"),
        # truncated, C = 4, even mix: 1.5 · 0.5
        (
            lambda: noise.rho_for_rate("truncated", rate=0.8, class_counts=[1] * 4),
            r"largest is 0\.75 \(at rho = ",
        ),
        (lambda: noise.expected_rate(np.eye(3), class_counts=[1, 2]), "one number per grade"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(call, sentence: str) -> None:
    with pytest.raises(SrjtError, match=sentence):
        call()
