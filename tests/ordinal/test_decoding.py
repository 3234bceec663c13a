"""From probabilities to grades, of an image and of a patient."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from refusals import refuses
from srjt.ordinal import decode, decoding, soft_label_matrix
from srjt.ordinal.decoding import LearnedPooling, expected_grade, fit_thresholds, grade_rule_for
from srjt.ordinal.metrics import METRICS, confusion_matrix

# Sixteenths are exact in floating point, so that ties are real ties.
distributions = st.lists(st.integers(0, 8), min_size=2, max_size=7).filter(any)


def normalised(weights: list[int]) -> torch.Tensor:
    return torch.tensor(weights, dtype=torch.float64) / sum(weights)


def test_by_hand() -> None:
    p = torch.tensor([[0.4, 0.1, 0.2, 0.3], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert expected_grade(p).tolist() == pytest.approx([1.4, 0.5, 3.0])
    assert decoding.median_grade(p).tolist() == [1, 0, 3]
    assert decode(p).tolist() == [0, 0, 3]
    assert decode(p, "median").tolist() == [1, 0, 3]
    assert decode(p, "expected").tolist() == [1, 0, 3]
    for how in ("argmax", "median", "expected"):
        assert decode(p.expand(2, 3, 4), how).shape == (2, 3)
        assert decode(p, how).dtype == torch.int64
    with refuses("unknown_name", says="'median'"):
        decode(p, "medain")
    # grade 0 has most labels; the median of the soft prediction is grade 1
    soft = soft_label_matrix(3, dtype=torch.float64)
    learnt = torch.tensor([[0.55, 0.25, 0.20]], dtype=torch.float64) @ soft
    assert decode(learnt, "median").tolist() == [1]
    assert grade_rule_for("mae", soft_labels=soft).grades(learnt).tolist() == [0]


@given(distributions)
def test_each_rule_is_the_best_for_its_error_and_the_mildest_that_is(weights: list[int]) -> None:
    p = normalised(weights)
    assert int(decode(p)) == weights.index(max(weights))
    squares = [sum(w * (c - g) ** 2 for c, w in enumerate(weights)) for g in range(len(weights))]
    assert squares[int(decode(p, "expected"))] == min(squares)
    assert float(expected_grade(p)) == pytest.approx(
        sum(w * c for c, w in enumerate(weights)) / sum(weights)
    )
    costs = [sum(w * abs(c - g) for c, w in enumerate(weights)) for g in range(len(weights))]
    assert int(decoding.median_grade(p)) == costs.index(min(costs))


# Rules by purpose: the best one for the expected metric, whatever the labels say.
PURPOSES = ("mae", "accuracy", "qwk", "macro_f1")


def drawn(samples: int, classes: int, seed: int, *, sharp: float = 2.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = sharp * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    return logits.softmax(dim=1)


def expected_value(purpose: str, grades: np.ndarray, probabilities: np.ndarray) -> float:
    """The metric of the expected counts, larger is better."""
    counts = probabilities.T @ np.eye(probabilities.shape[1])[grades]
    value = METRICS[purpose](counts)
    return -value if METRICS[purpose].lower_is_better else value


@given(st.integers(0, 10**6), st.integers(1, 30))
def test_for_two_grades_the_threshold_is_the_best_of_all(seed: int, samples: int) -> None:
    p = drawn(samples, 2, seed)
    severity = expected_grade(p).numpy()
    cuts = np.concatenate([[-1.0], np.sort(severity), [2.0]])
    for purpose in PURPOSES:
        (found,) = fit_thresholds(severity, p.numpy(), purpose=purpose)  # type: ignore[arg-type]
        values = [expected_value(purpose, (severity > cut).astype(int), p.numpy()) for cut in cuts]
        mine = expected_value(purpose, (severity > found).astype(int), p.numpy())
        assert mine == pytest.approx(np.nanmax(values))


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(3, 6), st.integers(2, 60))
def test_fitted_thresholds_are_never_worse_than_rounding(
    seed: int, classes: int, samples: int
) -> None:
    p = drawn(samples, classes, seed)
    for purpose in PURPOSES:
        cuts = fit_thresholds(expected_grade(p).numpy(), p.numpy(), purpose=purpose)  # type: ignore[arg-type]
        assert cuts.shape == (classes - 1,)
        assert (np.diff(cuts) >= 0).all()
        fitted = decoding.grade_by_thresholds(p, torch.from_numpy(cuts)).numpy()
        before = expected_value(purpose, decode(p, "expected").numpy(), p.numpy())
        assert not expected_value(purpose, fitted, p.numpy()) < before - 1e-9


def test_the_order_of_the_samples_does_not_matter() -> None:
    p = drawn(80, 4, 3).numpy()
    severity = p @ np.arange(4)
    order = np.random.default_rng(0).permutation(80)
    one = fit_thresholds(severity, p, purpose="macro_f1")
    assert fit_thresholds(severity[order], p[order], purpose="macro_f1") == pytest.approx(one)
    halves, probabilities = torch.arange(3) + 0.5, torch.from_numpy(p)  # they round
    assert torch.equal(
        decoding.grade_by_thresholds(probabilities, halves), decode(probabilities, "expected")
    )


def test_for_kappa_the_thresholds_follow_the_closed_form() -> None:
    """QWK is best where g = m + (mean − m)/κ is rounded: m is the mean grade, κ the value that is
    reached."""
    p = drawn(4000, 5, 1, sharp=1.0)
    severity = expected_grade(p).numpy()
    cuts = fit_thresholds(severity, p.numpy(), purpose="qwk")
    kappa = expected_value(
        "qwk", decoding.grade_by_thresholds(p, torch.from_numpy(cuts)).numpy(), p.numpy()
    )
    mean = float(severity.mean())
    assert cuts == pytest.approx(mean + kappa * (np.arange(4) + 0.5 - mean), abs=0.05)


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(2, 7))
def test_undoing_finds_the_labels_probabilities(seed: int, classes: int) -> None:
    q, soft = drawn(20, classes, seed), soft_label_matrix(classes, dtype=torch.float64)
    found = decoding.undo_soft_labels(q @ soft, soft)
    assert (found >= 0).all()
    assert found.sum(dim=1).numpy() == pytest.approx(1.0)
    closer = (found - q).abs().sum(dim=1) <= (q @ soft - q).abs().sum(dim=1) + 1e-9
    assert closer.all()
    many = decoding.undo_soft_labels(q @ soft, soft, steps=1000)
    assert (many - q).abs().sum() <= (found - q).abs().sum() + 1e-9


def test_closed_forms_by_purpose() -> None:
    p = drawn(decoding.FEWEST - 1, 4, 7)
    expected = {"mae": "median", "accuracy": "argmax", "qwk": "median", "macro_f1": "argmax"}
    for few in (None, p):
        for purpose, how in expected.items():
            rule = grade_rule_for(purpose, validation=few)  # type: ignore[arg-type]
            assert (rule.decoding, rule.purpose) == (how, purpose)
            assert rule.without_fit == (purpose in ("qwk", "macro_f1"))
            assert torch.equal(rule.grades(p), decode(p, how))  # type: ignore[arg-type]


@pytest.mark.parametrize("purpose", ["qwk", "macro_f1"])
def test_enough_samples_fit_thresholds(purpose: str) -> None:
    p = drawn(decoding.FEWEST, 4, 8, sharp=1.0)
    rule = grade_rule_for(purpose, validation=p)  # type: ignore[arg-type]
    assert rule.decoding == "thresholds"
    value = expected_value(purpose, rule.grades(p).numpy(), p.numpy())
    assert value > expected_value(purpose, decode(p, "expected").numpy(), p.numpy())
    assert torch.equal(rule.grades(p.float()), rule.grades(p))


def macro_f1(grades: torch.Tensor, labels: torch.Tensor) -> float:
    return METRICS["macro_f1"](confusion_matrix(labels, grades, num_classes=4).numpy())


@pytest.mark.slow
@given(st.integers(0, 10**6), st.floats(0.2, 5.0))
def test_on_the_validation_side_no_plain_rule_has_a_higher_macro_f1(
    seed: int, power: float
) -> None:
    """The labels follow other probabilities than the predicted ones."""
    p = drawn(decoding.FEWEST, 4, seed)
    labels = torch.multinomial(p**power, 1, generator=torch.Generator().manual_seed(seed))[:, 0]
    rule = grade_rule_for("macro_f1", validation=p, labels=labels)
    fitted = grade_rule_for("macro_f1", validation=p)
    plain = [decode(p, "argmax"), decode(p, "median")]
    best = max(macro_f1(grades, labels) for grades in [fitted.grades(p), *plain])
    assert macro_f1(rule.grades(p), labels) == best
    assert rule.rejected == (macro_f1(fitted.grades(p), labels) < best)
    assert rule.rejected == (rule != fitted)


def test_the_former_name_of_the_decoding_works_with_a_warning() -> None:
    p = torch.tensor([0.4, 0.3, 0.3])
    with pytest.warns(FutureWarning, match="`how` will be removed .* use `decoding`"):
        assert decode(p, how="median") == decode(p, "median") == 1  # type: ignore[call-arg]


# One answer for several images.
HOW = st.sampled_from(["highest", "mean", "learned"])
LEARNED = LearnedPooling(exponent=3.0, weight=1.5)


@st.composite
def images(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 12))
    logits = draw(hnp.arrays(float, (n, 4), elements=st.floats(-20, 20)))
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    units = np.unique(draw(hnp.arrays(int, n, elements=st.integers(0, 4))), return_inverse=True)[1]
    return p / p.sum(axis=1, keepdims=True), units


@given(images=images(), how=HOW)
def test_the_order_and_the_number_of_equal_images_do_not_matter(images: tuple, how: str) -> None:
    p, units = images
    once = decoding.pool_probabilities(p, units, pooling=how, learned=LEARNED)  # type: ignore[arg-type]
    copies = np.repeat(p[::-1], 2, axis=0), np.repeat(units[::-1], 2)
    twice = decoding.pool_probabilities(*copies, pooling=how, learned=LEARNED)  # type: ignore[arg-type]
    assert twice == pytest.approx(once)
    assert once.shape == (units.max() + 1, 4)
    assert (once >= 0).all()
    assert once.sum(axis=1) == pytest.approx(1.0)


@given(images=images())
def test_one_image_stays_as_it_is(images: tuple[np.ndarray, np.ndarray]) -> None:
    p, _ = images
    alone = np.arange(len(p))
    for how in ("highest", "mean", "learned"):
        plain = LearnedPooling(exponent=7.0, weight=1.0)
        assert decoding.pool_probabilities(p, alone, pooling=how, learned=plain) == pytest.approx(
            p, abs=2e-6
        )  # type: ignore[arg-type]


@given(images=images())
def test_the_learned_pooling_lies_between_mean_and_highest(
    images: tuple[np.ndarray, np.ndarray],
) -> None:
    p, units = images

    def reached(exponent: float) -> np.ndarray:
        learned = LearnedPooling(exponent=exponent, weight=1.0)
        return decoding.pool_probabilities(p, units, pooling="learned", learned=learned).cumsum(
            axis=1
        )

    highest = decoding.pool_probabilities(p, units, pooling="highest").cumsum(axis=1)
    assert (reached(2.0) <= reached(1.0) + 1e-9).all()
    assert (highest <= reached(2.0) + 2e-6).all()
    assert reached(4096.0) == pytest.approx(highest, abs=5e-3)


def test_closed_forms() -> None:
    p = [[0.9, 0.1], [0.4, 0.6]]
    # the geometric mean; twice it: independent images, whose highest grade is 0 with probability
    # 0.9 · 0.4
    for weight, mildest in ((1.0, np.sqrt(0.9 * 0.4)), (2.0, 0.9 * 0.4)):
        learned = LearnedPooling(exponent=1.0, weight=weight)
        pooled = decoding.pool_probabilities(p, [0, 0], pooling="learned", learned=learned)
        assert pooled[0, 0] == pytest.approx(mildest)
    assert decoding.highest_per_unit([0, 3, 1, 0], [1, 1, 0, 2]).tolist() == [1, 3, 0]


def draw_patients(
    rng: np.random.Generator, patients: int, *, worst: bool
) -> tuple[np.ndarray, ...]:
    """Patients with 1 to 12 images; if ``worst``, the grade shows in one image only, else in all of
    them."""
    units = np.repeat(np.arange(patients), rng.integers(1, 13, patients))
    grade = rng.integers(0, 3, patients)
    first = np.append(True, units[1:] != units[:-1])
    shown = np.where(first, grade[units], 0) if worst else grade[units]
    logits = 4.0 * (np.arange(3) == shown[:, None]) + rng.normal(0, 1.5, (len(units), 3))
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True), units, grade


@pytest.mark.slow
@pytest.mark.parametrize("worst", [True, False])
def test_the_fit_is_at_least_as_likely_as_the_fixed_rules_on_new_patients(worst: bool) -> None:
    rng = np.random.default_rng(5)
    learned = decoding.fit_pooling(*draw_patients(rng, 150, worst=worst))
    p, units, grade = draw_patients(rng, 400, worst=worst)

    def likelihood(how: str) -> float:
        pooled = decoding.pool_probabilities(p, units, pooling=how, learned=learned)  # type: ignore[arg-type]
        return float(np.log(np.maximum(pooled[np.arange(len(grade)), grade], 1e-6)).mean())

    assert likelihood("learned") > likelihood("highest")
    assert likelihood("learned") > likelihood("mean") - 0.01


@pytest.mark.slow
def test_certain_probabilities_are_labels_and_few_patients_stay_near_the_prior() -> None:
    p, units, grade = draw_patients(np.random.default_rng(2), 40, worst=True)
    by_grade, by_probability = (
        decoding.fit_pooling(p, units, y) for y in (grade, np.eye(3)[grade])
    )
    assert by_probability == pytest.approx(by_grade)
    one = decoding.fit_pooling([[0.5, 0.5]], [0], [1])
    assert 2 < one.exponent < 8
    assert 0.5 < one.weight < 3


def test_a_thousand_images_of_one_patient() -> None:
    p = np.tile([[0.999999, 0.000001, 0.0]], (1000, 1))
    for how in ("highest", "mean", "learned"):
        pooled = decoding.pool_probabilities(p, np.zeros(1000, int), pooling=how, learned=LEARNED)  # type: ignore[arg-type]
        assert pooled[0, 0] > 0.99
        assert np.isfinite(pooled).all()
    extreme = np.tile([[0.0, 0.0, 1.0]], (1000, 1))
    pooled = decoding.pool_probabilities(
        extreme, np.zeros(1000, int), pooling="learned", learned=LEARNED
    )
    assert pooled[0, 2] > 0.999


def test_bad_input() -> None:
    for units, how, refused in (
        ([0, 1], "highest", ("wrong_shape",)),
        ([0], "heighest", ("unknown_name", "", "'highest'")),
        ([0], "learned", ("missing_option", "learned")),
    ):
        with refuses(*refused):
            decoding.pool_probabilities([[0.5, 0.5]], units, pooling=how)  # type: ignore[arg-type]
    with refuses("wrong_shape", says=("1 units", "2 labels")):
        decoding.fit_pooling([[0.5, 0.5]], [0], [0, 1])
