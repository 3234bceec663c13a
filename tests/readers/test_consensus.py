"""The consensus of several readers, and how sure it is."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import srjt
from fixtures.reader_tables import readings_of
from srjt.errors import SrjtError
from srjt.noise.matrices import SHARED_ERRORS
from srjt.readers import Readings, consensus, intervals, model, variants
from srjt.readers.basis import Undetermined
from srjt.readers.consensus import _errors, with_shared_errors
from srjt.readers.intervals import _Resampled, design_effect
from srjt.readers.model import item_states
from srjt.readers.readings import evidence_of

alone = partial(consensus, shared_errors=0.0)  # readers who err independently

of = partial(readings_of, classes=3)


def make(
    seed: int = 0,
    *,
    items: int = 300,
    readers=4,
    count=3,
    classes=4,
    spread: float = 0.5,
    bias: float = 0.0,
) -> tuple[Readings, np.ndarray]:
    """Readers with normal noise, of which ``count`` read each item; reader 0 has the bias."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, classes, size=items)
    item = np.repeat(np.arange(items), count)
    reader = np.argsort(rng.random((items, readers)), axis=1)[:, :count].ravel()
    seen = true[item] + bias * (reader == 0) + spread * rng.normal(size=len(item))
    grade = np.rint(seen).astype(int).clip(0, classes - 1)
    return of(item, reader, grade, classes=classes), true


def median_vote(readings: Readings) -> np.ndarray:
    return np.array(
        [np.median(readings.grade[readings.item == i]) for i in range(len(readings.items))]
    )


def check(found) -> None:
    """What holds for every result."""
    assert found.posterior.sum(axis=1) == pytest.approx(np.ones(len(found.items)))
    assert found.matrices.sum(axis=2) == pytest.approx(np.ones(found.matrices.shape[:2]))
    assert found.mean_matrix.sum(axis=1) == pytest.approx(np.ones(len(found.grades)))
    for name in ("matrices", "noise_rate"):
        low, high = getattr(found, f"{name}_interval")
        assert (low <= getattr(found, name)).all()
        assert (getattr(found, name) <= high).all()
    assert (found.undetermined is None) == found.determined
    assert bool(found.reason) != found.determined
    json.dumps(found.to_dict(), allow_nan=False)  # no nan anywhere


@pytest.mark.slow
def test_it_beats_the_median_vote_and_is_calibrated() -> None:
    readings, true = make(items=1500, bias=0.8)
    found = alone(readings)
    check(found)
    assert found.determined
    assert np.abs(found.grade - true).mean() < 0.9 * np.abs(median_vote(readings) - true).mean()
    assert (found.grade == true).mean() == pytest.approx(found.certainty.mean(), abs=0.05)
    assert np.abs(found.grade - true).mean() == pytest.approx(found.risk.mean(), abs=0.05)


@pytest.mark.slow
def test_the_reader_who_reads_higher_is_found() -> None:
    found = consensus(make(items=600, bias=0.8)[0])
    assert found.bias.argmax() == 0
    assert found.bias_interval[0, 0] > 0.2
    assert (found.bias_interval[0] <= found.bias).all()
    assert (found.bias <= found.bias_interval[1]).all()
    assert found.noise_rate.argmax() == 0


@pytest.mark.slow
def test_a_matrix_outside_the_family_is_learnt() -> None:
    """Reader 0 calls every 0 a 3; with many readings the row is that of Dawid and Skene."""
    readings, true = make(items=2000, readers=4, count=4, spread=0.3)
    grade = np.where((readings.reader == 0) & (true[readings.item] == 0), 3, readings.grade)
    found = alone(replace(readings, grade=grade))
    assert found.matrices[0, 0, 3] > 0.9
    assert found.matrices[1, 0, 3] < 0.05
    assert (found.grade == true).mean() > 0.97


@pytest.mark.slow
def test_the_reference_is_certain() -> None:
    readings, true = make(items=100)
    reference = np.where(np.arange(100) < 30, (true + 1) % 4, -1)  # it contradicts the readings
    found = consensus(replace(readings, reference=reference))
    check(found)
    assert found.grade[:30].tolist() == reference[:30].tolist()
    assert found.certainty[:30] == pytest.approx(np.ones(30))


@pytest.mark.slow
def test_a_common_bias_is_seen_with_a_reference_only() -> None:
    readings, true = make(items=600, readers=3, spread=0.3)
    high = replace(readings, grade=(readings.grade + 1).clip(0, 3))
    blind = consensus(high)
    assert (blind.grade == true).mean() < 0.6
    seen = consensus(replace(high, reference=np.where(np.arange(600) < 150, true, -1)))
    assert (seen.grade == true)[150:].mean() > (blind.grade == true)[150:].mean() + 0.1


@pytest.mark.slow
def test_a_good_network_helps_and_a_useless_one_is_ignored() -> None:
    readings, true = make(items=400, count=2, spread=0.7)
    rng = np.random.default_rng(1)
    good = np.full((400, 4), 0.1)
    good[np.arange(400), true] = 0.7
    useless = rng.dirichlet(np.ones(4), size=400)
    alone, helped, ignored = (consensus(readings, probabilities=p) for p in (None, good, useless))
    assert alone.network_power is None
    assert helped.network_power >= 0.75
    assert ignored.network_power <= 0.1
    assert (helped.grade == true).mean() > (alone.grade == true).mean() + 0.05
    assert (ignored.grade == true).mean() > (alone.grade == true).mean() - 0.03


@pytest.mark.slow
def test_one_reading_of_each_item_is_not_determined() -> None:
    readings, _ = make(count=1)
    found = consensus(readings)
    check(found)
    assert not found.determined
    assert found.undetermined == Undetermined(kind="no_pairs")
    assert consensus(make(readers=1, count=1)[0]).undetermined == Undetermined(kind="one_reader")
    assert "%" not in str(found) + str(
        srjt.report(found)
    )  # a share of wrong readings would come from a default
    low, high = found.overall_noise_rate_interval
    assert high - low > 0.2  # as wide as what is usual
    twice, _ = make(count=3)
    low, high = alone(twice).overall_noise_rate_interval
    assert high - low < 0.15


@pytest.mark.slow
def test_a_constant_reader_and_one_with_a_single_reading() -> None:
    readings, true = make(items=300, readers=4, count=3)
    item = np.concatenate([readings.item, np.arange(300), [0]])
    reader = np.concatenate([readings.reader, np.full(300, 4), [5]])
    grade = np.concatenate([readings.grade, np.ones(300, dtype=int), [0]])
    readers = [*readings.readers, "constant", "once"]
    more = replace(readings, readers=readers, item=item, reader=reader, grade=grade)
    found = consensus(more)
    check(found)
    assert (found.grade == true).mean() > (consensus(readings).grade == true).mean() - 0.02
    width = found.noise_rate_interval[1] - found.noise_rate_interval[0]
    assert width[5] > width[:4].max()


def test_repeats_weigh_as_one_reading_unless_they_are_independent() -> None:
    readings = of([0, 0, 0], [0, 0, 1], [0, 0, 2])
    once = readings.rows(np.array([0, 2]))
    assert consensus(readings).posterior == pytest.approx(consensus(once).posterior)
    independent = consensus(readings, repeats="independent").posterior
    assert independent[0, 0] > consensus(once).posterior[0, 0]


@pytest.mark.slow
def test_a_thousand_readers_with_three_readings_each() -> None:
    rng = np.random.default_rng(0)
    item = rng.integers(0, 600, size=3000)
    true = rng.integers(0, 3, size=600)
    grade = np.rint(true[item] + 0.5 * rng.normal(size=3000)).astype(int).clip(0, 2)
    found = consensus(of(item, np.repeat(np.arange(1000), 3), grade))
    check(found)
    several = np.bincount(item, minlength=600) > 2
    assert (found.grade == true)[several].mean() > 0.9


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000))
def test_names_and_order_do_not_matter(seed: int) -> None:
    readings, _ = make(seed, items=25, readers=3, count=2, classes=3)
    rng = np.random.default_rng(seed)
    items, readers, rows = rng.permutation(25), rng.permutation(3), rng.permutation(len(readings))
    mixed = replace(
        readings, item=items[readings.item][rows], reader=readers[readings.reader][rows]
    )
    names = {"items": np.array(readings.items)[np.argsort(items)].tolist()}
    names["readers"] = np.array(readings.readers)[np.argsort(readers)].tolist()
    mixed = replace(mixed, grade=readings.grade[rows], **names)
    # which readings are held out depends on their order: compare fits of the same variant
    evidence = (evidence_of(one, repeats="one reading") for one in (readings, mixed))
    one, other = (next(variants._path(given, alike=False, tolerance=1e-4)) for given in evidence)
    assert other.posterior[items] == pytest.approx(one.posterior, abs=1e-8)
    assert other.matrices[readers] == pytest.approx(one.matrices, abs=1e-8)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_any_readings_give_distributions(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    item, reader, grade = (rng.integers(0, most, size=20) for most in (12, 3, classes))
    check(consensus(of(item, reader, grade, classes=classes)))


def test_wrong_input_is_one_sentence() -> None:
    readings, _ = make(items=10)
    for wrong, sentence in (
        ({"probabilities": np.ones((3, 4)) / 4}, "a row for each item"),
        ({"probabilities": np.ones((10, 4))}, "sum to 1"),
        ({"repeats": "twice"}, "Unknown value of repeats"),
        ({"confidence": 1.0}, "confidence"),
        ({"shared_errors": 2.0}, "shared_errors lies between 0 and 1"),
    ):
        with pytest.raises(SrjtError, match=sentence):
            consensus(readings, **wrong)  # type: ignore[arg-type]


def test_the_result_is_the_mean_of_variants_that_left_out_readings_support() -> None:
    found = alone(make(items=60)[0])
    weights, fits = found.variants.weights, found.variants.fits
    assert weights.sum() == pytest.approx(1)
    assert (np.diff(weights) <= 0).all()
    mean = sum(weight * fit.posterior for weight, fit in zip(weights, fits, strict=True))
    assert found.posterior == pytest.approx(mean)


def test_a_variant_counts_by_the_root_of_its_likelihood() -> None:
    """Readings of one item are not independent: twice the log-likelihood is needed for the same
    preference."""
    found = variants._weights({(True, 3.0): -100.0, (False, 3.0): -102.0, (True, 10.0): -130.0})
    near = np.exp(-1.0)
    assert found[True, 3.0] == pytest.approx(1 / (1 + near))
    assert found[False, 3.0] == pytest.approx(near / (1 + near))
    assert set(found) == {(True, 3.0), (False, 3.0)}  # e⁻¹⁵ is left out


def test_the_shares_of_the_grades_are_laplaces() -> None:
    """Where all grades are known: one item more of each grade than were counted, so no share is
    zero."""
    readings, true = make(items=40, classes=4)
    true = np.where(true == 3, 2, true)  # the gravest grade does not occur
    found = consensus(replace(readings, reference=true))
    assert found.prior == pytest.approx((np.bincount(true, minlength=4) + 1) / 44)


def test_a_reader_is_shrunk_to_what_all_readers_do_and_they_to_the_family() -> None:
    """Two readers, one true grade, strength s: rows (s·f + N)/(s + n), first of both readers'
    counts, then of each's.

    So a reader of whom little is known gets the errors that the others make, not those of the
    family.
    """
    family, strength = np.array([0.5, 0.25, 0.25]), 10.0
    counts = np.zeros((2, 3, 3))
    counts[0, 0], counts[1, 0] = [10, 0, 80], [0, 0, 2]
    states = item_states(3, alike=True)
    matrices = model.deviate(np.tile(family, (2, 3, 1)), counts, states, strength=strength)
    shared = (strength * family + [10, 0, 82]) / (strength + 92)
    assert matrices[0, 0] == pytest.approx((strength * shared + [10, 0, 80]) / (strength + 90))
    assert matrices[1, 0] == pytest.approx((strength * shared + [0, 0, 2]) / (strength + 2))
    assert matrices[1, 0, 2] > 0.8  # of its own it has two readings


def test_the_consensus_of_single_readings_is_these_readings() -> None:
    """Nobody has compared the readers, so only the model's defaults could say that a reading is
    wrong: where grades are rare they would, and no image of the rare grade would be left."""
    grade = np.repeat([0, 1, 2, 3], [300, 60, 6, 1])
    for readers, repeats in ((1, "independent"), (1, "one reading"), (3, "one reading")):
        item = np.arange(len(grade))
        found = consensus(of(item, item % readers, grade, classes=4), repeats=repeats)
        assert found.grade.tolist() == grade.tolist()
        assert not found.determined
        chosen = found.posterior[np.arange(len(grade)), grade]
        np.testing.assert_array_equal(found.certainty, chosen)


# Intervals of the readers: patients with several images, and images that a reader has read several
# times.
COPIES = 5


def copied(readings: Readings) -> Readings:
    """Five images of each patient with the same readings."""
    count = len(readings.items)
    return replace(
        readings,
        items=[f"{item}, {copy}" for copy in range(COPIES) for item in readings.items],
        item=np.concatenate([readings.item + copy * count for copy in range(COPIES)]),
        reader=np.tile(readings.reader, COPIES),
        grade=np.tile(readings.grade, COPIES),
        groups=readings.items * COPIES,
    )


def width(readings: Readings) -> tuple[float, float]:
    """Of the interval of all readers' noise rate, and the mean of each reader's."""
    found = alone(readings)
    low, high = found.noise_rate_interval
    return float(np.diff(found.overall_noise_rate_interval)[0]), float((high - low).mean())


@pytest.mark.slow
def test_copies_of_an_image_tell_nothing_new_of_the_readers() -> None:
    readings = make(items=60)[0]
    once, grouped = width(readings), width(copied(readings))
    as_patients = width(replace(copied(readings), groups=None))
    for one, same, narrow in zip(once, grouped, as_patients, strict=True):
        assert 0.85 * one < same < 1.5 * one
        assert narrow < 0.8 * one  # so the test can fail


@pytest.mark.slow
def test_one_image_per_patient_changes_nothing() -> None:
    readings = make(items=20)[0]
    names = [f"patient {i:02d}" for i in range(20)]
    assert width(replace(readings, groups=names)) == pytest.approx(width(readings))


@pytest.mark.slow
def test_the_design_effect_is_the_number_of_copies_and_near_one_for_independent_errors() -> None:
    readings = make(items=100)[0]
    found = consensus(copied(readings))
    effect = design_effect(found.variants.evidence, found.posterior, found.matrices)
    assert effect == pytest.approx(np.full(4, COPIES))
    found = consensus(replace(readings, groups=[str(i // 4) for i in range(100)]))
    effect = design_effect(found.variants.evidence, found.posterior, found.matrices)
    assert (effect >= 1.0).all()
    assert effect.max() < 1.5


def test_the_other_readings_of_an_image_are_those_of_other_readers() -> None:
    """Kim reads an image twice, as 0 and as 2; what Lee says of it is all that is known besides."""
    found = consensus(of([0, 0, 0], [0, 0, 1], [0, 2, 1]))
    fit = found.variants.fits[0]
    prior = fit.population.log_prior(fit.family)
    by_lee = fit.prior * fit.matrices[1, :, 1]
    by_lee /= by_lee.sum()
    likelihood = np.einsum("s,tsj->tj", by_lee, fit.family.matrices)
    kim = np.exp(prior) * np.sqrt(
        likelihood[:, 0] * likelihood[:, 2]
    )  # each of the two weighs a half
    types = intervals._types_given_others(found.variants.evidence, fit, times=np.ones(2))
    assert types[0] == pytest.approx(kim / kim.sum())


def test_independent_repeats_are_other_readings() -> None:
    """A crowd that enters as one reader: each vote is judged by the votes beside it."""
    found = consensus(of([0, 0], [0, 0], [0, 2]), repeats="independent")
    fit = found.variants.fits[0]
    states, crowd = fit.prior, np.exp(fit.log_prior)
    for vote, other in ((0, 2), (2, 0)):
        known = states * fit.matrices[0, :, other]
        crowd = crowd * np.einsum("s,ts->t", known / known.sum(), fit.family.matrices[:, :, vote])
    types = intervals._types_given_others(found.variants.evidence, fit, times=np.ones(1))
    assert types[0] == pytest.approx(crowd / crowd.sum())


@pytest.mark.parametrize("most", [5000, 60], ids=["all items", "some items"])
def test_resampling_gives_the_variance_of_a_share(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Where the truth is known, the share of wrong readings p of n patients has the variance p(1 −
    p)/n, however many images of a patient say the same, and however few are drawn."""
    monkeypatch.setattr(intervals, "_MOST_ITEMS", most)
    rng, readers, patients, wrong = np.random.default_rng(0), 20, 200, 0.2
    true = rng.integers(0, 2, size=patients)
    said = np.where(rng.random((readers, patients)) < wrong, 1 - true, true)
    for copies in (1, 3):
        readings = of(
            np.tile(np.arange(copies * patients), readers),
            np.repeat(np.arange(readers), copies * patients),
            np.concatenate([np.tile(row, copies) for row in said]),
            classes=2,
            reference=np.tile(true, copies),
            groups=[str(patient) for patient in range(patients)] * copies,
        )
        evidence = evidence_of(readings, repeats="one reading")
        start = replace(model.beginning(evidence, alike=True), strength=3.0)
        fit = model.maximise(evidence, start, iterations=30, tolerance=1e-6)
        found = intervals._resampled(evidence, fit, share=np.full(readers, 1 / readers))
        expected = wrong * (1 - wrong) / patients
        assert found.rate.mean() == pytest.approx(expected, rel=0.35)  # of ten draws
        assert expected / 4 < readers * found.overall < 4 * expected


def test_what_resampling_varies_is_added_to_every_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent doubts: variances add, so squared widths grow by (2 · 1.96)² times what is
    added."""
    readings, more = make(items=200)[0], 0.03**2

    def squares(variance: float) -> list[np.ndarray]:
        def drawn(evidence: object, fit: object, *, share: object) -> _Resampled:
            each = np.full(4, variance)
            return _Resampled(np.full((4, 4, 4), variance), each, each, variance)

        monkeypatch.setattr(intervals, "_resampled", drawn)
        found = alone(readings)
        middle = (found.matrices > 0.3) & (
            found.matrices < 0.7
        )  # near 0 and 1 an interval is cut off
        both = [
            found.matrices_interval[:, middle],
            found.bias_interval,
            found.noise_rate_interval,
            np.array(found.overall_noise_rate_interval)[:, None],
        ]
        return [(high - low) ** 2 for low, high in both]

    for without, added in zip(squares(0.0), squares(more), strict=True):
        assert len(added)
        assert added - without == pytest.approx(
            np.full(len(added), (2 * 1.96) ** 2 * more), rel=0.1
        )


# What readings cannot tell: who of two is right, and what misleads every reader of an item.
def off_by_one(true: np.ndarray, wrong: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Grades 0 … 3 that are wrong where said, by one."""
    step = np.where(true == 0, 1, np.where(true == 3, -1, rng.choice([-1, 1], size=len(true))))
    return true + wrong * step


def read(*grades: np.ndarray, pairs: list[tuple[int, int]] | None = None) -> Readings:
    """Readings (I,) of each reader; pairs: of these two readers only, by turns."""
    items, readers = len(grades[0]), len(grades)
    who = (
        [tuple(range(readers))] * items
        if pairs is None
        else [pairs[i % len(pairs)] for i in range(items)]
    )
    item, reader = np.array([(i, r) for i in range(items) for r in who[i]]).T
    names = [f"r{r}" for r in range(readers)]
    return of(item, reader, np.stack(grades)[reader, item], classes=4, readers=names)


@pytest.mark.slow
def test_of_two_readers_either_may_be_the_one_who_is_right() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, size=400)
    grades = [off_by_one(true, rng.random(400) > right, rng) for right in (0.9, 0.6)]
    result = consensus(read(*grades))
    rates = np.array([(one != true).mean() for one in grades])
    low, high = result.noise_rate_interval
    assert (low == 0).all()
    assert (rates <= high).all()
    differ = (grades[0] != grades[1]).mean()
    assert (high > differ).all()  # he may be wrong wherever they differ
    right = np.eye(4, dtype=bool)
    least, most = result.matrices_interval
    assert (least[:, ~right] == 0).all()
    assert (most[:, right] == 1).all()
    assert (
        result.error_interval[0] == 0 <= (result.grade != true).mean() <= result.error_interval[1]
    )
    assert result.basis.kind == "two_readers"
    assert f"A third reader of about {result.basis.items} items" in result.assumption
    check(result)


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ([(0, 1), (1, 2), (0, 2)], [False] * 4),  # reader 3 read nothing
        ([(0, 1, 2), (2, 3)], [True, True, True, False]),
        # 15 of 60 items of reader 0; all of 1 and 2
        ([(0, 1, 2), (0, 3), (0, 3), (0, 3)], [False, True, True, False]),
        ([(0, 1, 2, 3)], [True] * 4),
    ],
)
def test_who_can_be_told_from_the_others(pairs: list, told: list[bool]) -> None:
    grades = [np.arange(60) % 4] * 4
    evidence = evidence_of(read(*grades, pairs=pairs), repeats="one reading")
    assert evidence.told_apart().tolist() == told
    assert replace(evidence, anchored=True).told_apart().all()


def test_a_crowd_that_enters_as_one_reader_is_told_by_its_repeats() -> None:
    votes = of(np.repeat(np.arange(60), 2), [0] * 120, np.repeat(np.arange(60) % 4, 2), classes=4)
    assert evidence_of(votes, repeats="independent").told_apart().all()
    assert not evidence_of(votes, repeats="one reading").told_apart().any()


def test_the_disagreement_is_the_share_of_other_readings_that_differ() -> None:
    readings = read(np.array([0, 1, 2, 3]), np.array([0, 1, 3, 2]), np.array([0, 2, 3, 1]))
    differ, items = evidence_of(readings, repeats="one reading").disagreement()
    assert items == pytest.approx([4, 4, 4])
    # by item: reader 0 differs from 0, 1, 2 and 2 of two others
    assert differ == pytest.approx(
        [(0 + 0.5 + 1 + 1) / 4, (0 + 0.5 + 0.5 + 1) / 4, (0 + 1 + 0.5 + 1) / 4]
    )


@pytest.mark.slow
def test_shared_errors_blur_the_posterior_by_the_mean_matrix_and_move_no_grade() -> None:
    readings = make(items=200)[0]
    none, half, all_of_them = (
        consensus(readings, shared_errors=amount) for amount in (0.0, 0.5, 1.0)
    )
    seen = 0.5 * np.eye(4) + 0.5 * none.mean_matrix
    assert half.posterior == pytest.approx(none.posterior @ (seen / seen.sum(axis=0)).T)
    assert half.matrices[1] == pytest.approx(seen @ none.matrices[1])
    assert (half.grade == none.grade).all()
    assert none.error < half.error < all_of_them.error
    assert none.overall_noise_rate < half.overall_noise_rate < all_of_them.overall_noise_rate
    assert half.noise_rate_interval[0] == pytest.approx(none.noise_rate_interval[0])
    upper = 1 - (1 - none.noise_rate_interval[1]) * (1 - none.overall_noise_rate_interval[1])
    assert half.noise_rate_interval[1] == pytest.approx(upper)
    check(half)


@pytest.mark.slow
def test_a_reference_shows_how_many_errors_readers_share() -> None:
    rng = np.random.default_rng(1)
    true = rng.integers(0, 4, size=600)
    reference = np.where(np.arange(600) < 300, true, -1)
    errors = []
    for together in (0.0, 0.25):
        seen = off_by_one(true, rng.random(600) < together, rng)
        readings = read(*(off_by_one(seen, rng.random(600) < 0.2, rng) for _ in range(5)))
        result = consensus(replace(readings, reference=reference))
        assert (result.posterior[:300].argmax(axis=1) == true[:300]).all()
        assert result.certainty[:300].min() > 0.99
        wrong = (result.grade != true)[300:].mean()
        assert 1 - result.certainty[300:].mean() == pytest.approx(wrong, abs=0.07)
        errors.append(wrong)
    assert errors[1] > errors[0] + 0.15  # so the test can fail


@pytest.mark.slow
def test_shared_errors_widen_the_interval_of_the_consensus_by_their_largest_share() -> None:
    readings = make(items=60)[0]
    none, half = (consensus(readings, shared_errors=amount) for amount in (0.0, 0.5))
    low, high = none.error_interval
    misled = none.overall_noise_rate_interval[1]
    assert half.error_interval == pytest.approx((low, 1 - (1 - high) * (1 - misled)))
    assert half.error_interval[1] > high + 0.05
    default = consensus(readings)  # that the evidence is of
    assert default.posterior == pytest.approx(half.posterior)
    most = consensus(readings, shared_errors=1.0)
    for name in ("noise_rate_interval", "matrices_interval", "error_interval", "bias_interval"):
        assert np.array_equal(getattr(most, name), getattr(half, name))  # no promise depends on it
    assert half.overall_noise_rate_interval == pytest.approx(
        (none.overall_noise_rate_interval[0], 1 - (1 - misled) ** 2)
    )


@pytest.mark.slow
def test_the_errors_of_poor_readers_lie_in_their_intervals() -> None:
    """Where readers are often wrong, errors that they share are, too: on rare grades above all. The
    interval allows for shared errors as frequent as a reader's own, whatever the point assumes."""
    rng = np.random.default_rng(3)
    true = rng.choice(4, size=400, p=[0.1, 0.1, 0.1, 0.7])
    steps = [-2, -1, 0, 1, 2]
    readings = read(*((true + rng.choice(steps, size=400)).clip(0, 3) for _ in range(10)))
    check(consensus(readings))
    for amount in (SHARED_ERRORS, 1.0):
        found = consensus(readings, shared_errors=amount)
        assert found.error_interval[0] <= found.error <= found.error_interval[1]
        assert found.overall_noise_rate <= found.overall_noise_rate_interval[1]


def test_a_hard_item_has_three_times_the_spread() -> None:
    states = model.item_states(3, alike=False)
    assert states.effort.tolist() == np.where(states.kind == 2, 3.0, 1.0).tolist()
    assert (states.kind == 2).sum() == 3
    family = model.reader_family(states, favourites=False)
    usual = (family.bias == 0) & (family.slope == 1) & (family.lapse == 0)
    narrow, wide = (usual & np.isclose(family.spread, spread) for spread in (0.2, 0.65))
    hard, middle = (
        int(np.flatnonzero((states.grade == 1) & (states.kind == kind))[0]) for kind in (2, 0)
    )
    # a spread of 0.2 on a hard item is one of 0.6 on an easy one
    assert family.matrices[narrow, hard, 1][0] == pytest.approx(
        family.matrices[wide, middle, 1][0], abs=0.05
    )


@pytest.mark.slow
def test_the_doubt_of_readers_of_whom_nothing_is_known_is_not_averaged_away() -> None:
    readings = make(items=60, seed=1)[0]
    found = variants.fit_variants(evidence_of(readings, repeats="one reading"))
    share = np.full(len(readings.readers), 1.0 / len(readings.readers))
    known, unknown = (
        intervals.reader_intervals(found, share=share, determined=determined, confidence=0.95)
        for determined in (True, False)
    )
    widths = [np.diff(one.overall_noise_rate_interval)[0] for one in (known, unknown)]
    assert widths[1] > 1.2 * widths[0]


def test_an_unsure_grade_counts_by_its_square() -> None:
    """A reader whose type is certain: the variance is that of a Dirichlet distribution after as
    many readings as the squared probabilities of the true grade sum up to."""
    found = alone(make(items=60)[0])
    evidence = found.variants.evidence
    fit = min(found.variants.fits, key=lambda one: one.strength)  # others hardly deviate
    types = np.zeros((evidence.readers, len(fit.family.bias)))
    types[:, 0] = 1.0
    _, variance, *_ = intervals._moments(evidence, fit, np.ones(evidence.readers), types)
    said = np.asarray(evidence.said.todense()).reshape(-1, evidence.readers, evidence.classes)
    size = np.einsum("irj,ic->rc", said, fit.posterior**2)
    expected = fit.by_grade * (1 - fit.by_grade) * fit.deviation(size)[:, :, None]
    assert variance == pytest.approx(expected)


def test_shared_errors_are_in_the_interval_of_all_readings() -> None:
    """One reader who errs in at most a fifth: what misleads all adds as much, 1 − 0.8²."""
    matrix = np.array([[[0.9, 0.1], [0.1, 0.9]]])
    own = intervals.ReaderIntervals(
        matrices=matrix,
        matrices_interval=np.stack([matrix - 0.05, matrix + 0.05]),
        bias=np.zeros(1),
        bias_interval=np.zeros((2, 1)),
        spread=np.ones(1),
        noise_rate=np.array([0.1]),
        noise_rate_interval=np.array([[0.05], [0.3]]),
        overall_noise_rate=0.1,
        overall_noise_rate_interval=(0.05, 0.2),
    )
    found = with_shared_errors(own, np.array([0.5, 0.5]), share=np.ones(1), amount=1.0)
    assert found.overall_noise_rate_interval == pytest.approx((0.05, 0.36))
    assert found.noise_rate_interval[:, 0] == pytest.approx([0.05, 1 - 0.7 * 0.8])
    assert found.overall_noise_rate == pytest.approx(1 - (0.9 * 0.9 + 0.1 * 0.1))


def test_of_pairs_the_one_who_differs_most_may_be_the_one_who_is_wrong() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, size=300)
    grades = [off_by_one(true, rng.random(300) < wrong, rng) for wrong in (0.02, 0.02, 0.4)]
    readings = read(*grades, pairs=[(0, 1), (0, 1), (0, 1), (1, 2)])
    result = alone(readings)
    differ = result.variants.evidence.disagreement()[0]
    assert differ[2] > 0.3 > differ[:2].max()
    assert _errors(result.variants, result.grade)[1] >= differ[2]
