"""The model of a crowd: readers who hardly look, and readers whose matrices no family has."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from scipy.special import softmax

from fixtures.reader_tables import readings_of
from srjt.readers import Readings, consensus, crowd
from srjt.readers.model import item_states
from srjt.readers.readings import Evidence, evidence_of
from srjt.readers.variants import fit_variants, information

of = partial(readings_of, classes=3)


def many(seed: int = 0, *, readers: int = 60, items: int = 500) -> tuple[Readings, np.ndarray]:
    """Five readings of each item, most of them by ten good readers and twenty who nearly always say
    2; the others say 2 at half of the items."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, size=items)
    good = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    fond = np.eye(3)[[2, 2, 2]]
    matrices = np.stack([good, 0.05 * good + 0.95 * fond, 0.5 * good + 0.5 * fond])
    kind = np.repeat([0, 1, 2], [10, 20, readers - 30])
    reader = np.argsort(rng.random((items, readers)), axis=1)[:, :5].ravel()
    item = np.repeat(np.arange(items), 5)
    shares = matrices[kind[reader], true[item]].cumsum(axis=1)
    grade = (shares < rng.random((len(item), 1))).sum(axis=1).clip(0, 2)
    return of(item, reader, grade), true


@cache
def fitted() -> tuple[Evidence, crowd.CrowdFit]:
    """A small crowd."""
    evidence = evidence_of(many(items=200)[0], repeats="one reading")
    return evidence, crowd.fit(evidence, free=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 3, 6])
def test_who_hardly_looks_does_not_decide_in_a_crowd(seed: int) -> None:
    """From the votes alone, the crowds 0 and 6 end where the twenty are believed."""
    readings, true = many(seed)
    found = consensus(readings)
    assert (found.grade == true).mean() > (_votes(readings) == true).mean() + 0.15
    assert found.noise_rate[:10].max() < found.noise_rate[10:30].min()


def believing(fit: crowd.CrowdFit, evidence: Evidence, posterior: np.ndarray) -> crowd.CrowdFit:
    """The same shares with other probabilities of the true grades."""
    said = (evidence.comparable.T @ posterior).reshape(-1, 3, 3).transpose(0, 2, 1)
    return replace(fit, posterior=posterior, readings=said)


def test_the_bound_of_certain_grades_is_their_likelihood_with_the_readings() -> None:
    true = many(items=200)[1]
    evidence, fit = fitted()
    fit = believing(fit, evidence, np.eye(3)[true])
    rows = fit.strengths[:, None, None, None] * (0.999 * fit.family.matrices + 0.001 / 3)
    expected = np.log(fit.grades[true]).sum() + 3.0 * (fit.usual * np.log(fit.shares)).sum()
    for reader in fit.readings:
        each = fit.shares * np.exp(crowd.log_marginal(rows, reader[None])[0])
        expected += np.log(each.sum())
    assert fit.bound(evidence) == pytest.approx(expected)
    known = replace(evidence, log_factor=np.log(0.8 * np.eye(3)[true] + 0.1 * np.ones(3)))
    assert fit.bound(known) == pytest.approx(expected + 200 * np.log(0.9))


def test_the_fit_has_a_higher_bound_than_surer_and_less_sure_grades() -> None:
    evidence, fit = fitted()
    best = believing(fit, evidence, fit.posterior).bound(evidence)
    surer = np.eye(3)[fit.posterior.argmax(axis=1)]
    for other in (surer, np.full_like(surer, 1.0 / 3.0)):
        mixed = 0.8 * fit.posterior + 0.2 * other
        assert believing(fit, evidence, mixed).bound(evidence) < best


def _votes(readings: Readings) -> np.ndarray:
    votes = np.zeros((len(readings.items), 3))
    np.add.at(votes, (readings.item, readings.grade), 1.0)
    return votes.argmax(axis=1)


@pytest.mark.slow
def test_a_crowd_has_one_model_and_fewer_readers_several_variants() -> None:
    evidence = evidence_of(many(items=100)[0], repeats="one reading")
    found = fit_variants(evidence)
    assert evidence.crowd
    assert isinstance(found.fits[0], crowd.CrowdFit)
    assert found.weights.tolist() == [1.0]
    assert not evidence_of(many(readers=50, items=100)[0], repeats="one reading").crowd


def test_errors_are_shared_by_those_who_look() -> None:
    guesses = np.full((2, 2), 0.5)
    told = information(np.stack([np.eye(2), guesses]), np.array([0.5, 0.5]))
    assert told == pytest.approx([np.log(2.0), 0.0])


def test_the_marginal_likelihood_is_that_of_an_urn() -> None:
    """A reading adds a ball of its grade to the urn of the true grade: the probability of each next
    reading is the share of its grade."""
    rng = np.random.default_rng(0)
    rows = rng.gamma(2.0, size=(2, 3, 3, 3))
    rows /= rows.sum(axis=3, keepdims=True) / np.array([5.0, 30.0])[:, None, None, None]
    readings = np.array([[[2, 1, 0], [0, 0, 0], [1, 1, 3]]])
    expected = np.zeros((2, 3))
    urns = rows.copy()
    for true, grade in np.argwhere(readings[0]):
        for _ in range(readings[0, true, grade]):
            expected += np.log(urns[:, :, true, grade] / urns[:, :, true].sum(axis=2))
            urns[:, :, true, grade] += 1.0
    assert crowd.log_marginal(rows, readings.astype(float))[0] == pytest.approx(expected)


@pytest.mark.slow
def test_a_reader_is_shrunk_to_the_type_by_the_strength() -> None:
    evidence, fit = fitted()
    shares = np.full_like(fit.shares, 1e-300)
    shares[2, 7] = 1.0
    known = replace(fit, shares=shares).updated(evidence, *fit.expectation(evidence))
    size = known.readings.sum(axis=2, keepdims=True)
    of_type = fit.family.matrices[7]
    assert known.tied.argmax(axis=1).tolist() == [2] * 60
    assert known.matrices == pytest.approx(
        (10.0 * of_type + known.readings) / (10.0 + size), abs=1e-3
    )
    assert known.deviation(size[:, :, 0]) == pytest.approx(1.0 / (11.0 + size[:, :, 0]))


@pytest.mark.slow
def test_the_likelihood_decides_between_types_and_strengths_by_their_shares() -> None:
    evidence, fit = fitted()
    strengths = fit.strengths[:, None, None, None]
    rows = strengths * (0.999 * fit.family.matrices + 0.001 / 3)
    expectation = fit.expectation(evidence)
    both = softmax(crowd.log_marginal(rows, expectation[1]) + np.log(fit.shares), axis=(1, 2))
    after = fit.updated(evidence, *expectation)
    assert after.types == pytest.approx(both.sum(axis=1))
    shares = both.sum(axis=0) + 3.0 * fit.usual
    assert after.shares == pytest.approx(shares / (60 + 3))


def test_names_without_an_order_are_learnt_as_dawid_and_skene_do() -> None:
    """One reader calls the mildest grade the severest and the other way round: no type does."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, size=200)
    reader = np.concatenate([np.zeros(200, dtype=int), rng.integers(1, 60, size=800)])
    item = np.concatenate([np.arange(200), np.tile(np.arange(200), 4)])
    said = np.where(rng.random(1000) < 0.85, true[item], rng.integers(0, 3, size=1000))
    grade = np.where(reader == 0, 2 - said, said)
    evidence = evidence_of(of(item, reader, grade), repeats="one reading")
    found = crowd.fit(evidence, free=True)
    assert found.matrices[0][[0, 1, 2], [2, 1, 0]].min() > 0.75
    assert found.tied[0].argmax() == 3  # the weakest tie
    tied = crowd.fit(evidence, free=False)
    assert tied.tied.shape == (60, 2)
    assert tied.matrices[0, 0, 2] < found.matrices[0, 0, 2]


def test_types_are_distributions_and_have_a_favourite_where_it_shows() -> None:
    states = item_states(4, alike=True)
    family, prior = crowd.family_of(states, favourites=True)
    plain, _ = crowd.family_of(states, favourites=False)
    assert family.matrices.sum(axis=2) == pytest.approx(1.0)
    assert prior.sum() == pytest.approx(1.0)
    assert len(family.matrices) - len(plain.matrices) == 4 * 4 * 2
    fond = family.matrices[-1]  # of the severest grade, almost always
    assert fond[:, 3].min() > 0.97
    assert len(family.bias) == len(family.spread) == len(prior)
