"""The proportional-odds model: its likelihood, its gradient, its penalty and the choice of its
strength."""

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from scipy.special import expit

from srjt.ordinal import proportional_odds as odds
from srjt.ordinal.proportional_odds import (
    Targets,
    fit_odds,
    grade_probabilities,
    held_out_probabilities,
    log_likelihood,
)

GRADES = 4
BLURRED = 0.7 * np.eye(GRADES) + 0.3 / GRADES  # a matrix of label errors


def simulated(
    samples: int, columns: int, *, seed: int = 0, signal: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, columns))
    weights = signal * rng.normal(size=columns) / columns**0.5
    severity = 2.0 * x @ weights + rng.logistic(size=samples)
    return x, np.digitize(severity, [-1.5, 0.0, 1.0])


def certain(labels: np.ndarray, matrix: np.ndarray | None = None) -> Targets:
    values = (np.eye(GRADES) if matrix is None else matrix)[:, labels].T
    return Targets(values=values, kind="likelihoods", weights=np.ones(len(labels)))


def test_probabilities_are_differences_of_the_cumulative_ones() -> None:
    severity, thresholds = np.array([-3.0, 0.0, 2.5]), np.array([-1.0, 0.5, 2.0])
    below = np.concatenate(
        [np.zeros((3, 1)), expit(thresholds - severity[:, None]), np.ones((3, 1))], axis=1
    )
    np.testing.assert_allclose(
        grade_probabilities(severity, thresholds), np.diff(below, axis=1), rtol=1e-12
    )


def test_an_unlikely_grade_keeps_a_probability() -> None:
    p = grade_probabilities(
        np.array([-60.0]), np.array([-1.0, 0.5, 2.0])
    )  # differences of numbers that are all 1
    assert (p > 0).all()
    assert p[0, 2] == pytest.approx(np.exp(-60.5) - np.exp(-62.0), rel=1e-9)


@pytest.mark.parametrize("kind", ["likelihoods", "probabilities"])
def test_the_gradient_is_that_of_the_loss(kind: str) -> None:
    rng = np.random.default_rng(1)
    targets = Targets(
        values=rng.dirichlet(np.ones(GRADES), size=20), kind=kind, weights=rng.random(20)
    )  # type: ignore[arg-type]
    at = np.concatenate([3.0 * rng.normal(size=20), [-2.0, -0.5, 1.0]])

    def loss(at: np.ndarray) -> float:
        return odds._loss(at[:20], at[20:], targets)[0]

    def gradient(at: np.ndarray) -> np.ndarray:
        return np.concatenate(odds._loss(at[:20], at[20:], targets)[1:])

    assert check_grad(loss, gradient, at) < 1e-5


def test_a_certain_grade_costs_the_same_as_likelihood_and_as_probability() -> None:
    _, labels = simulated(10, 2)
    p = np.random.default_rng(0).dirichlet(np.ones(GRADES), size=10)
    one = certain(labels)
    other = Targets(values=one.values, kind="probabilities", weights=one.weights)
    expected = np.log(p[np.arange(10), labels])
    np.testing.assert_allclose(log_likelihood(p, one), expected)
    np.testing.assert_allclose(log_likelihood(p, other), expected)


@pytest.mark.parametrize(
    ("samples", "columns"), [(60, 3), (30, 80)]
)  # rotated to the columns, and to the rows
def test_the_fit_minimises_the_penalised_loss(samples: int, columns: int) -> None:
    """Against an optimiser that knows nothing of rotations, scales and gaps."""
    x, labels = simulated(samples, columns)
    targets, strength = certain(labels, BLURRED), 5.0
    model = fit_odds(x, targets, strengths=[strength])
    # half a sample of each grade, of average severity
    x, targets = (
        np.concatenate([x, np.zeros((GRADES, columns))]),
        certain(np.append(labels, range(GRADES)), BLURRED),
    )
    targets.values[samples:], targets.weights[samples:] = np.eye(GRADES), 0.5

    def objective(at: np.ndarray) -> tuple[float, np.ndarray]:
        w, thresholds = at[:columns], at[columns:]
        loss, by_severity, by_threshold = odds._loss(x @ w, thresholds, targets)
        return loss + 0.5 * strength * w @ w, np.concatenate(
            [x.T @ by_severity + strength * w, by_threshold]
        )

    own = np.concatenate([model.weights, model.thresholds])
    plain = minimize(
        objective, own + 0.05, jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9}
    ).x
    assert objective(own)[0] == pytest.approx(objective(plain)[0], abs=1e-5)
    np.testing.assert_allclose(own, plain, atol=5e-3)


def test_a_larger_strength_makes_smaller_weights() -> None:
    x, labels = simulated(80, 5)
    sizes = [
        np.linalg.norm(fit_odds(x, certain(labels), strengths=[one]).weights)
        for one in (1.0, 10.0, 100.0)
    ]
    assert sizes[0] > 2 * sizes[2]
    assert sizes == sorted(sizes, reverse=True)


def test_the_strength_is_the_one_under_which_held_out_labels_are_likeliest() -> None:
    x, labels = simulated(120, 10)
    fold = np.arange(120) % 4
    model = fit_odds(x, certain(labels), fold=fold)
    for strength, value in list(model.held_out.items())[::4]:
        p = held_out_probabilities(x, certain(labels), fold=fold, strength=strength)
        assert log_likelihood(p, certain(labels)).mean() == pytest.approx(value, abs=2e-4)
    assert model.strength == max(model.held_out, key=lambda one: model.held_out[one])


def test_noise_alone_is_shrunk_to_one_answer_for_all() -> None:
    """Forty columns that say nothing about sixty labels: hardly any probability depends on them."""
    x = np.random.default_rng(5).normal(size=(60, 40))
    labels = np.random.default_rng(6).integers(0, GRADES, size=60)
    p = fit_odds(x, certain(labels), fold=np.arange(60) % 5).probabilities(x)
    assert p.std(axis=0).max() < 0.02


def test_errors_are_corrected_through_their_matrix() -> None:
    """Labels with errors: the corrected model finds the probabilities of the true grades, the other
    those of labels."""
    x, true = simulated(2000, 3, signal=2.0)
    rng = np.random.default_rng(2)
    labels = np.array([rng.choice(GRADES, p=BLURRED[grade]) for grade in true])
    reference = fit_odds(x, certain(true), strengths=[1.0]).probabilities(x)
    errors = []
    for matrix in (BLURRED, np.eye(GRADES)):
        p = fit_odds(x, certain(labels, matrix), strengths=[1.0]).probabilities(x)
        errors.append(np.abs(p - reference).mean())
    assert 3 * errors[0] < errors[1]


def test_weights_count_samples() -> None:
    x, labels = simulated(50, 3)
    twice = np.repeat(np.arange(50), 2)
    heavy = Targets(values=np.eye(GRADES)[labels], kind="likelihoods", weights=np.full(50, 2.0))
    one = fit_odds(x, heavy, strengths=[4.0])
    other = fit_odds(x[twice], certain(labels[twice]), strengths=[4.0])
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-3)
    np.testing.assert_allclose(one.thresholds, other.thresholds, atol=1e-3)


def test_a_grade_without_labels_and_constant_columns_are_no_problem() -> None:
    labels = np.array([0, 1, 3] * 10)  # nobody has the grade 2
    model = fit_odds(np.zeros((30, 4)), certain(labels), strengths=[1.0])
    p = model.probabilities(np.zeros((1, 4)))[0]
    assert (np.diff(model.thresholds) > 0).all()
    assert 0 < p[2] < 0.05
    np.testing.assert_allclose(p[[0, 1, 3]], 1 / 3, atol=0.02)
    assert not model.weights.any()
