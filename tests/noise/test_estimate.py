"""The noise estimate: closed forms, recovery of what was put in, invariances, and honesty about
ignorance."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr, softmax
from scipy.stats import beta

from fixtures.noisy_features import counted
from srjt import noise
from srjt.errors import SrjtError
from srjt.noise import estimate, model
from srjt.noise.basis import Basis, Undetermined
from srjt.noise.estimate import NoiseEstimate, estimate_noise
from srjt.noise.explain import Explanations, explain
from srjt.noise.model import SYMMETRIC, family, fit_model, pool, rank_images
from srjt.noise.verified import read_verified

BLIND = Undetermined(kind="uninformed")
SHARES = np.array([0.4, 0.25, 0.2, 0.15])
UNVERIFIED = read_verified(None, samples=0, classes=4)


def graded(samples: int, *, blur: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """True grades, and the probabilities of an observer who sees the severity through noise of size
    ``blur``.

    Severities are even within each grade; by Bayes' rule on a fine grid the observer knows all that
    can be known.
    """
    rng = np.random.default_rng(seed)
    grade = rng.choice(4, size=samples, p=SHARES)
    seen = grade + rng.random(samples) + blur * rng.normal(size=samples)
    grid = (np.arange(400) + 0.5) / 100
    weight = SHARES[grid.astype(int)] * np.exp(-0.5 * ((seen[:, None] - grid) / blur) ** 2)
    p = weight.reshape(samples, 4, 100).sum(axis=2)
    return grade, p / p.sum(axis=1, keepdims=True)


def noisy(
    grade: np.ndarray, kind: str, rate: float, *, seed: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    counts = np.bincount(grade, minlength=4)
    rho = noise.rho_for_rate(kind, rate=rate, class_counts=counts)
    matrix = noise.transition_matrix(kind, num_classes=4, rho=rho)
    return noise.corrupt(grade, matrix, seed=seed), matrix


@pytest.fixture(scope="module")
def quasi() -> tuple[np.ndarray, np.ndarray]:
    grade, p = graded(1200, blur=0.3)
    return noisy(grade, "quasi", 0.3)[0], p


@pytest.mark.slow
def test_who_knows_the_true_grade_finds_the_empirical_confusion() -> None:
    """Four kinds of rows cannot show how clear the images are: a label one grade off may be the
    image's doubt.

    So the rate rests on the labels that are two or more grades off: its relative standard error is
    one divided by the root of their number. That is 0.017 here, three of them 0.05.
    """
    errors = []
    for seed in range(3):
        grade, _ = graded(3000, blur=0.3, seed=seed)
        label, _ = noisy(grade, "quasi", 0.3, seed=seed + 1)
        found = estimate_noise(label, np.eye(4)[grade], bootstrap=40)
        rate, far = (label != grade).mean(), (np.abs(label - grade) > 1).sum()
        assert found.rate_interval[0] <= rate <= found.rate_interval[1]
        assert found.rate == pytest.approx(rate, abs=3 * rate / far**0.5)
        np.testing.assert_allclose(found.prior, np.bincount(grade) / len(grade), atol=0.02)
        errors.append(found.rate - rate)
    assert np.mean(errors) == pytest.approx(0.0, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rate"), [("quasi", 0.3), ("truncated", 0.1)])
def test_what_was_put_in_is_found(kind: str, rate: float) -> None:
    grade, p = graded(3000, blur=0.3)
    label, matrix = noisy(grade, kind, rate)
    found = estimate_noise(label, p, bootstrap=0)
    assert found.form == kind
    assert found.rate == pytest.approx((label != grade).mean(), abs=0.05)
    np.testing.assert_allclose(found.transition, matrix, atol=0.06)
    # a tenth of errors by one grade might be the doubt of images, as far as the model can be
    # trusted
    assert found.identifiable == (kind == "quasi"), found.reason


@pytest.mark.slow
def test_the_networks_ignorance_is_not_taken_for_noise() -> None:
    grade, p = graded(2000, blur=0.5)
    assert (p.argmax(axis=1) != grade).mean() > 0.25
    found = estimate_noise(grade, p, bootstrap=40)
    # The same labels could come from readers who err at boundaries: the interval must hold both.
    assert found.rate_interval[0] < 0.01
    assert found.lower_bound < 0.01
    assert not found.identifiable
    assert found.rate < 0.7 * (p.argmax(axis=1) != grade).mean()


@pytest.mark.slow
def test_it_does_not_matter_whether_the_network_learnt_the_noisy_grades_or_is_badly_calibrated() -> (
    None
):
    grade, p = graded(1500, blur=0.3)
    label, matrix = noisy(grade, "quasi", 0.3)
    rough = (p + 1e-4) ** 3
    for said in (p @ matrix, rough / rough.sum(axis=1, keepdims=True)):
        assert estimate_noise(label, said, bootstrap=0).rate == pytest.approx(0.3, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "side"), [(0.55, "lowered"), (0.65, "raised")])
def test_most_labels_may_be_wrong_to_one_side_where_clear_images_show_it(
    rate: float, side: str
) -> None:
    grade, p = graded(1500, blur=0.1)
    matrix = (1 - rate) * np.eye(4) + rate * np.eye(4, k=-1)
    matrix[0] = [1, 0, 0, 0]
    if side == "raised":
        grade, p, matrix = 3 - grade, p[:, ::-1], matrix[::-1, ::-1]
    label = noise.corrupt(grade, matrix, seed=3)
    found = estimate_noise(label, p @ matrix, bootstrap=40)  # a network that has learnt the noise
    wrong = (label != grade).mean()
    assert found.form == side
    assert found.rate_interval[0] <= wrong <= found.rate_interval[1]
    assert found.rate == pytest.approx(wrong, abs=0.05)
    np.testing.assert_allclose(found.transition, matrix, atol=0.15)
    assert found.basis == Basis(kind="labels", form=side)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [150, 500])
def test_a_form_without_limit_must_gain_ten_units_of_held_out_likelihood(samples: int) -> None:
    grade, p = graded(samples, blur=0.1)
    label = np.maximum(grade - (np.random.default_rng(9).random(samples) < 0.6), 0)
    found = explain(label, p, np.arange(samples), UNVERIFIED)
    part = np.arange(samples) % 5
    likelihood = {}
    for form in (*SYMMETRIC, "banded", "boundary", "lowered"):
        fit = fit_model(found.cells, family(form, num_classes=4))
        likelihood[form] = model.held_out_likelihood(fit, label, part, averaged=False).sum()
    gain = likelihood.pop("lowered") - max(likelihood.values())
    assert gain > 1
    assert ("lowered" in found.held_out) == (gain > 10) == (samples == 500)
    assert "raised" not in found.held_out


@pytest.mark.slow
def test_readers_who_err_at_boundaries_look_like_unclear_images() -> None:
    """The rate is not determined, and the interval reaches from no errors to every label that is
    not the likeliest."""
    rng = np.random.default_rng(0)
    severity = 4 * rng.random(1500)
    grade = severity.astype(int)
    label = np.clip(severity + 0.2 * rng.normal(size=1500), 0, 3.999).astype(int)
    seen = severity + 0.15 * rng.normal(size=1500)
    p = np.exp(-2.0 * (seen[:, None] - np.arange(4) - 0.5) ** 2)
    found = estimate_noise(label, p / p.sum(axis=1, keepdims=True), bootstrap=60)
    assert found.form == "boundary"
    assert not found.identifiable
    assert found.undetermined == Undetermined(kind="boundaries")
    low, high = found.rate_interval
    assert low == found.lower_bound == 0.0
    assert (label != grade).mean() < high < 0.5
    assert found.rate == pytest.approx((label != grade).mean(), abs=0.1)


@pytest.mark.slow
def test_neither_the_order_of_samples_nor_the_direction_of_the_grades_matters(quasi) -> None:
    label, p = quasi
    groups = np.arange(len(label)) // 4
    found = estimate_noise(label, p, groups=groups, bootstrap=0)
    order = np.random.default_rng(0).permutation(len(label))
    shuffled = estimate_noise(label[order], p[order], groups=groups[order], bootstrap=0)
    turned = estimate_noise(3 - label, p[:, ::-1], groups=groups, bootstrap=0)
    np.testing.assert_allclose(shuffled.transition, found.transition, atol=1e-4)
    np.testing.assert_allclose(turned.transition[::-1, ::-1], found.transition, atol=1e-3)
    np.testing.assert_allclose(turned.prior[::-1], found.prior, atol=1e-3)


@pytest.mark.slow
def test_intervals_hold_the_estimate_and_widen_when_patients_are_resampled_as_a_whole(
    quasi,
) -> None:
    label, p = quasi
    alone = estimate_noise(label, p, bootstrap=40)
    low, high = alone.rate_interval
    assert low <= alone.rate <= high
    # Six copies of each sample, told to be one patient, hold no more information than one.
    copies = np.repeat(np.arange(250), 6)
    together = estimate_noise(label[copies], p[copies], groups=copies, bootstrap=40)
    apart = estimate_noise(label[copies], p[copies], bootstrap=40)
    assert np.diff(together.rate_interval) > 1.3 * np.diff(apart.rate_interval)
    assert (alone.transition_interval[0] <= alone.transition_interval[1]).all()


@pytest.mark.slow
def test_twelve_hundred_labels_give_the_rate_within_a_tenth(quasi) -> None:
    low, high = estimate_noise(*quasi, bootstrap=40).rate_interval
    assert high - low < 0.2


@pytest.mark.slow
def test_it_says_when_probabilities_are_no_help_or_a_grade_is_missing(quasi) -> None:
    label, p = quasi
    guess = np.random.default_rng(0).dirichlet(np.ones(4), size=len(label))
    blind = estimate_noise(label, guess, bootstrap=5)
    assert not blind.identifiable
    assert not blind.informed
    assert blind.rate_interval[0] == blind.lower_bound == 0.0
    plain = estimate_noise(label, p, bootstrap=0)
    assert plain.informed
    assert plain.rate_interval == (plain.rate, plain.rate)
    assert blind.undetermined == BLIND
    kept = label != 3
    rest = np.vstack([p[kept] * [1, 1, 1, 1e-9] + [0, 0, 1e-9, 0], [0, 0, 0, 1]])
    rare = estimate_noise(
        np.r_[label[kept], 3], rest / rest.sum(axis=1, keepdims=True), bootstrap=0
    )
    assert not rare.identifiable
    # labels, as everywhere
    assert rare.undetermined == Undetermined(kind="few_labels", grade=3, labels=1)


@pytest.mark.slow
def test_the_interval_begins_at_a_tail_and_the_one_sided_limit_at_twice_it(
    quasi, monkeypatch
) -> None:
    drawn = np.linspace(0.0, 0.1, 1001)
    monkeypatch.setattr(
        estimate, "_draws", lambda found, draws, *, seed: (found.joint[None], drawn)
    )
    found = estimate_noise(*quasi)
    assert found.rate_interval[0] == pytest.approx(0.1 * 0.025)
    assert found.lower_bound == pytest.approx(0.1 * 0.05)


@pytest.mark.slow
def test_intervals_hold_the_truth_for_every_kind_of_reader() -> None:
    held = []
    for kind in ("quasi", "truncated", "one-sided", "by class", "boundary", "uniform"):
        for seed, blur in enumerate((0.2, 0.5)):
            grade, p = graded(300, blur=blur, seed=seed)
            label, true = reader(kind, grade, seed=seed)
            found = estimate_noise(label, p, bootstrap=40)
            low, high = found.rate_interval
            held.append(low <= (label != true).mean() <= high)
            assert found.lower_bound <= found.rate <= high
    assert np.mean(held) >= 0.9


def reader(kind: str, grade: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels with about a fifth of errors, and the true grades."""
    rng = np.random.default_rng(100 + seed)
    if kind in ("quasi", "truncated"):
        return noisy(grade, kind, 0.2, seed=100 + seed)[0], grade
    if kind == "uniform":
        other = (grade + rng.integers(1, 4, len(grade))) % 4
        return np.where(rng.random(len(grade)) < 0.2, other, grade), grade
    if (
        kind == "boundary"
    ):  # the boundary within the grade is not known here: half of the samples are near it
        near = rng.random(len(grade)) < 0.5
        step = rng.choice([-1, 1], len(grade))
        return np.clip(
            np.where(near & (rng.random(len(grade)) < 0.4), grade + step, grade), 0, 3
        ), grade
    rate = np.full(4, 0.3) if kind == "one-sided" else np.array([0.05, 0.4, 0.1, 0.3])
    up = np.ones(4) if kind == "one-sided" else np.array([1.0, 0.9, 0.1, 0.0])
    step = np.where(rng.random(len(grade)) < up[grade], 1, -1)
    return np.clip(np.where(rng.random(len(grade)) < rate[grade], grade + step, grade), 0, 3), grade


@pytest.mark.slow
def test_more_samples_settle_the_form_and_narrow_the_interval_around_the_truth() -> None:
    grade, p = graded(20_000, blur=0.3)
    label, matrix = noisy(grade, "truncated", 0.2)
    found = estimate_noise(label, p @ matrix, bootstrap=50)  # a network that has learnt the noise
    low, high = found.rate_interval
    assert low <= (label != grade).mean() <= high
    assert found.rate == pytest.approx((label != grade).mean(), abs=0.02)
    assert found.form_weight > 0.99
    few = estimate_noise(label[:200], p[:200] @ matrix, bootstrap=50).rate_interval
    assert high - low < few[1] - few[0]


@pytest.mark.slow
def test_of_two_grades_there_is_one_form() -> None:
    rng = np.random.default_rng(0)
    grade = rng.integers(0, 2, 1500)
    seen = grade + 0.3 * rng.normal(size=1500)
    p = 1 / (1 + np.exp(-(2 * seen - 1) / (2 * 0.3**2)))
    label = np.where(rng.random(1500) < 0.2, 1 - grade, grade)
    found = estimate_noise(label, np.stack([1 - p, p], axis=1), bootstrap=0)
    assert found.rate == pytest.approx((label != grade).mean(), abs=0.03)
    assert set(found.held_out) == {"quasi", "banded", "boundary"}


def test_the_posterior_is_bayes_rule() -> None:
    found = _estimate(prior=[0.5, 0.5], transition=[[0.8, 0.2], [0.4, 0.6]])
    np.testing.assert_allclose(found.posterior(), [[2 / 3, 1 / 3], [1 / 4, 3 / 4]])
    never = _estimate(prior=[1.0, 0.0], transition=[[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(never.posterior(), np.eye(2))


@pytest.mark.slow
def test_the_parts_of_an_estimate_agree_and_survive_json(quasi) -> None:
    found = estimate_noise(*quasi, bootstrap=5)
    np.testing.assert_allclose(found.transition.sum(axis=1), 1.0)
    assert found.prior.sum() == pytest.approx(1.0)
    assert found.rate == pytest.approx(found.prior @ (1 - np.diag(found.transition)))
    assert found.basis == Basis(kind="labels", form=found.form)
    again = NoiseEstimate.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.to_dict() == found.to_dict()
    assert (again.basis, again.undetermined) == (found.basis, found.undetermined)
    assert isinstance(again.rate_interval, tuple)
    explained = explain(*quasi, np.arange(len(quasi[0])), UNVERIFIED)
    assert sum(explained.form_weights.values()) == pytest.approx(1.0)
    assert explained.form_weights[found.form] == found.form_weight <= 1.0


@pytest.mark.parametrize(
    ("labels", "probabilities", "code"),
    [
        ([0, 1], [[0.5, 0.5]], "wrong_shape"),
        ([0, 2], [[0.5, 0.5], [0.5, 0.5]], "unknown_grade"),
        ([0.0, 1.0], [[0.5, 0.5], [0.5, 0.5]], "unknown_grade"),
        ([0, 1], [[3.0, -1.0], [0.5, 0.5]], "wrong_values"),
        ([0, 1], [[np.nan, 1.0], [0.5, 0.5]], "wrong_values"),
    ],
)
def test_bad_input_gets_a_code(labels, probabilities, code: str) -> None:
    with pytest.raises(SrjtError) as caught:
        estimate_noise(np.array(labels), np.array(probabilities))
    assert caught.value.code == code


@pytest.mark.parametrize(
    "damage",
    [
        {"rate": "much"}, {"rate": 1.5}, {"rate": True}, {"samples": 1.5}, {"identifiable": "no"}, {"undetermined": ""},
        {"undetermined": {"kind": "luck"}}, {"basis": {"kind": "labels", "form": "x"}}, {"basis": ""},
        {"transition": [[1.0]]}, {"prior": [None, 1.0]}, {"prior": 7}, {"rate_interval": [0.1]}, {"held_out": []},
        {"strange": 1},
    ],
)  # fmt: skip
def test_an_estimate_from_a_file_is_checked(damage: dict[str, object]) -> None:
    plain = json.loads(json.dumps(_estimate().to_dict()))
    assert str(NoiseEstimate.from_dict(plain)) == str(_estimate())
    with pytest.raises((ValueError, TypeError)):
        NoiseEstimate.from_dict({**plain, **damage})


@pytest.mark.parametrize("form", model.FORMS)
@pytest.mark.parametrize("grades", [2, 4])
def test_gradients_are_those_of_the_objective_and_rows_are_distributions(form, grades: int) -> None:
    rng = np.random.default_rng(0)
    kin = family(form, num_classes=grades)
    images = rank_images(rng.dirichlet(np.ones(grades), 60))
    problem = model._Problem(
        pool(rng.integers(0, grades, 60), images, classes=grades, repeated=1.5), kin
    )
    theta = problem.start(kin.starts()[-1]) + 0.3 * rng.normal(size=len(problem.prior_mean))
    step = 1e-5 * np.eye(len(theta))
    numeric = [(problem.value(theta + h) - problem.value(theta - h)) / 2e-5 for h in step]
    np.testing.assert_allclose(problem.expand(theta)[1], numeric, rtol=1e-4, atol=1e-4)
    noise.check_matrix(kin.matrix(theta[problem.grades_end :]))


def test_the_readers_share_of_the_blur_leaves_the_labels_as_they_are(quasi) -> None:
    label, p = quasi
    images = rank_images(p)
    cells = pool(label, images, classes=4)
    fit = fit_model(cells, family("boundary", num_classes=4))
    rates = []
    for share in (0.0, 0.3, 0.7):
        joint = fit.joint(cells, reader=share)
        np.testing.assert_allclose(
            joint.sum(axis=1), fit.true_grades(cells) @ fit.transition(), atol=0.03
        )
        rates.append(1 - np.trace(joint, axis1=1, axis2=2).mean())
    assert rates[0] == pytest.approx(0.0, abs=1e-9)
    assert rates[0] < rates[1] < rates[2]


def test_without_labels_no_form_is_likelier_than_another(quasi) -> None:
    """The evidence is the mean of the likelihood over the prior: of labels that weigh nothing it is
    1."""
    label, p = quasi
    cells = pool(label[:200], rank_images(p[:200]), classes=4)
    empty = replace(cells, counts=1e-9 * cells.counts)
    for form in ("quasi", "banded", "boundary"):
        assert fit_model(empty, family(form, num_classes=4)).log_evidence == pytest.approx(
            0.0, abs=0.01
        )


@pytest.mark.slow
def test_copies_that_weigh_half_have_the_likelihood_of_one(quasi) -> None:
    """A part that is held out takes as much weight away as its labels have."""
    label, p = quasi[0][:405], quasi[1][:405]
    likelihoods = []
    for copies in (1, 2):
        rows = np.repeat(np.arange(405), copies)
        cells = pool(label[rows], rank_images(p[rows]), classes=4, repeated=float(copies))
        fit = fit_model(cells, family("quasi", num_classes=4))
        likelihoods.append(model.held_out_likelihood(fit, label[rows], rows % 5)[::copies])
    np.testing.assert_allclose(*likelihoods, atol=1e-3)


@pytest.fixture(scope="module")
def two_grades() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, probabilities and patients of three images each."""
    rng = np.random.default_rng(0)
    grade = np.repeat(rng.integers(0, 2, 60), 3)
    seen = grade + 0.5 * rng.normal(size=180)
    p = 1 / (1 + np.exp(-(2 * seen - 1) / (2 * 0.5**2)))
    label = np.where(np.repeat(rng.random(60) < 0.2, 3), 1 - grade, grade)
    return label, np.stack([1 - p, p], axis=1), np.repeat(np.arange(60), 3)


@pytest.mark.parametrize(("misfit", "ahead"), [(0.0, 4.0), (0.3, 40.0)])
def test_the_weights_of_forms_contain_the_sampling_error_of_patients_and_the_misfit(
    two_grades, monkeypatch: pytest.MonkeyPatch, misfit: float, ahead: float
) -> None:
    label, _, owner = two_grades
    rng = np.random.default_rng(1)
    made: dict[str, np.ndarray] = {}

    def pretend(fit: model.Fit, labels: np.ndarray, part: np.ndarray) -> np.ndarray:
        """Patients differ much; each form is ahead of the one before."""
        assert all(
            len(set(part[owner == patient])) == 1 for patient in range(60)
        )  # no patient is split
        by_patient = rng.normal(size=60)
        by_patient += (ahead * len(made) - by_patient.sum()) / 60
        made[fit.form] = np.repeat(by_patient, 3) / 3
        return made[fit.form]

    monkeypatch.setattr(model, "held_out_likelihood", pretend)
    monkeypatch.setitem(explain.__globals__, "_MISFIT", misfit)
    found = explain(*two_grades, read_verified(None, samples=0, classes=2))
    logs = np.array([np.bincount(owner, one) for one in made.values()])
    off = logs - logs.mean(axis=1, keepdims=True)
    # the misfit of the images' blur is the same for all forms with errors by the grade
    blurred = np.diag([form == "boundary" for form in made])
    size = (misfit * len(label) / found.repeated) ** 2
    covariance = off @ off.T / found.repeated + size * blurred
    drawn = rng.multivariate_normal(logs.sum(axis=1) / found.repeated, covariance, size=20_000)
    expected = (np.exp(drawn) / np.exp(drawn).sum(axis=1, keepdims=True)).mean(axis=0)
    weights = [
        sum(one.doubtful_weight for one in found.all if one.fit.form == form) for form in made
    ]
    np.testing.assert_allclose(weights, expected, atol=0.03)


@pytest.mark.slow
def test_the_model_uses_five_thousand_labels_at_most(
    two_grades, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.tile(np.arange(180), 40)
    data = (two_grades[0][rows], two_grades[1][rows], np.arange(len(rows)))
    monkeypatch.setattr(
        model, "held_out_likelihood", lambda fit, labels, part, **_: np.zeros(len(labels))
    )
    found = explain(*data, read_verified(None, samples=0, classes=2))
    assert found.cells.counts.sum() == pytest.approx(5000)


@pytest.mark.slow
def test_the_upper_end_counts_patients(two_grades) -> None:
    """Three labels of a patient that are wrong together tell as much as one."""
    label, p, owner = two_grades
    found = explain(label, p, owner, read_verified(None, samples=0, classes=2))
    differs = float((found.label_probabilities().argmax(axis=1) != label).mean())
    together = estimate_noise(label, p, groups=owner, bootstrap=3).rate_interval[1]
    assert found.repeated > 1.5
    assert together == pytest.approx(noise.exact_interval(differs, len(label) / found.repeated)[1])
    assert together > noise.exact_interval(differs, len(label))[1] + 0.01


@pytest.mark.parametrize("copies", [1, 4])
def test_networks_that_have_learnt_something_are_two_standard_errors_ahead(copies: int) -> None:
    """Of patients: copies of a label do not make the error smaller."""
    rng = np.random.default_rng(0)
    label = np.repeat(rng.integers(0, 2, 200), copies)
    right = np.repeat(rng.uniform(0.3, 0.9, 200), copies)
    q = np.where(np.arange(2) == label[:, None], right[:, None], 1 - right[:, None])
    shares = np.bincount(label) / len(label)
    gain = (np.log(right) - np.log(shares[label]))[::copies]
    naive = float(np.log(shares[label]).mean())
    for ahead, learnt in ((1.7, False), (2.3, True)):
        likelihood = naive + ahead * gain.std() / 200**0.5
        found = SimpleNamespace(
            joint=np.eye(2), label_probabilities=lambda: q, held_out={"quasi": likelihood}
        )
        owner = np.repeat(np.arange(200), copies)
        assert estimate._informed(label, found, owner) == learnt  # type: ignore[arg-type]


def test_a_rate_that_is_not_determined_is_said_by_its_interval() -> None:
    unknown = _estimate(identifiable=False, undetermined=BLIND, rate=0.2, rate_interval=(0.0, 0.37))
    assert unknown.known_rate is None
    for said in (unknown.rate_text(), str(unknown), repr(unknown)):
        assert "20" not in said.replace("0.370", "")
    assert unknown.rate_text() == "between 0% and 37%"
    assert (
        replace(unknown, identifiable=True).rate_text(".2f", interval="95 %")
        == "0.20 (95 % 0.00 to 0.37)"
    )


def read_twice(seed: int, *, spread: float, samples: int = 300) -> tuple[np.ndarray, ...]:
    """True grades, the labels of two readers who see the severity with an error of this size, and
    probabilities of what they write."""
    rng = np.random.default_rng(seed)
    severity = 3 * rng.random(samples)
    one, two = (
        np.clip(severity + spread * rng.normal(size=samples), 0, 2.999).astype(int)
        for _ in range(2)
    )
    seen = severity + 0.3 * rng.normal(size=samples)
    below = ndtr((np.array([1, 2]) - seen[:, None]) / (spread**2 + 0.3**2) ** 0.5)
    return severity.astype(int), one, two, np.diff(below, axis=1, prepend=0.0, append=1.0)


@pytest.mark.slow
def test_two_readings_tell_how_much_of_the_doubt_is_the_readers() -> None:
    """Alone the rate may be 0; with second labels it is determined, and holds the truth and errors
    that they share."""
    for seed, spread in enumerate((0.15, 0.4)):
        true, label, second, p = read_twice(seed, spread=spread)
        alone = estimate_noise(label, p, bootstrap=20)
        both = estimate_noise(label, p, second=second, bootstrap=20)
        low, high = both.rate_interval
        assert not alone.identifiable
        assert alone.rate_interval[0] == 0.0
        assert both.identifiable
        assert 0.0 < low < (label != true).mean() < high
        assert both.basis == Basis(kind="second_labels", labels=300)
        assert 1 - both.prior @ np.diag(both.transition) == pytest.approx(both.rate)
    true, label, second, p = read_twice(2, spread=1e-9)
    assert (
        estimate_noise(label, p, second=second, bootstrap=20).rate_interval[0] == 0.0
    )  # no label is wrong
    with pytest.raises(SrjtError, match="second holds a grade"):
        estimate_noise(label, p, second=second[:5])


@pytest.mark.slow
def test_second_labels_weigh_as_patients_do(two_grades) -> None:
    """Labels of which two tell as much as one have half the log-likelihood."""
    label, p, owner = two_grades
    second = np.where(np.arange(180) % 7 == 0, 1 - label, label)
    found = explain(label, p, owner, read_verified(None, samples=0, classes=2))
    odds = []
    for repeated in (1.0, 2.0):
        weighted = replace(found, repeated=repeated).given_second(label, second)
        by_share = [one.weight for one in weighted.all if one.fit.form == "boundary"]
        odds.append(np.log(by_share[5] / by_share[15]))
    assert abs(odds[0]) > 0.1
    assert odds[1] == pytest.approx(odds[0] / 2)


@pytest.mark.slow
def test_errors_that_two_readers_share_are_in_the_rate_and_up_to_once_in_its_interval(
    two_grades, monkeypatch: pytest.MonkeyPatch
) -> None:
    label, p, _ = two_grades
    second = np.where(np.arange(180) % 7 == 0, 1 - label, label)
    found = explain(
        label, p, np.arange(180), read_verified(None, samples=0, classes=2)
    ).given_second(label, second)
    own = found.joint / found.joint.sum(axis=1, keepdims=True)
    monkeypatch.setattr(estimate, "_paired_interval", lambda joints, labels, tail: (0.1, 0.3))
    both = estimate_noise(label, p, second=second, bootstrap=3)
    np.testing.assert_allclose(both.transition, (0.5 * np.eye(2) + 0.5 * own) @ own)
    assert both.rate_interval == pytest.approx((0.1, 1 - 0.7**2))


def test_the_probability_of_a_pair_is_that_of_one_label_twice(two_grades) -> None:
    label, p, _ = two_grades
    cells = pool(label, rank_images(p), classes=2)
    fit = fit_model(cells, family("quasi", num_classes=2))
    agree = []
    for share in (0.0, 0.3, 0.7):
        both = fit.pair(cells, reader=share)
        np.testing.assert_allclose(
            both.sum(axis=2), fit.true_grades(cells) @ fit.transition(), atol=0.03
        )
        np.testing.assert_allclose(both, both.transpose(0, 2, 1))
        agree.append(np.trace(both, axis1=1, axis2=2).mean())
    assert agree[0] > agree[1] > agree[2]


def _estimate(**changes: object) -> NoiseEstimate:
    plain = counted([0, 1] * 5, np.eye(2)[[0, 1] * 5])
    arrays = {name: np.asarray(value) for name, value in changes.items() if isinstance(value, list)}
    return replace(plain, **{**changes, **arrays})  # type: ignore[arg-type]


def test_bounds_of_matrix_and_shares_hold_for_every_table_and_are_reached() -> None:
    """Whichever labels are wrong, and as long as no more are than that."""
    rng = np.random.default_rng(0)
    given = np.array([0.5, 0.3, 0.2])
    wrong = 0.15
    (lowest, highest), (least, most) = estimate._bounds(given, wrong, likeliest=False)
    for _ in range(300):
        joint = np.diag(given)
        moved = rng.dirichlet(np.full(6, 0.3)) * wrong * rng.random()
        for amount, (true, label) in zip(
            moved, [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)], strict=True
        ):
            amount = min(amount, joint[label, label])
            joint[label, label] -= amount
            joint[true, label] += amount
        shares = joint.sum(axis=1)
        matrix = joint / shares[:, None]
        assert ((lowest - 1e-12 <= matrix) & (matrix <= highest + 1e-12)).all()
        assert ((least - 1e-12 <= shares) & (shares <= most + 1e-12)).all()
    # all wrong labels belong to grade 0, and are called 1
    assert highest[0, 1] == pytest.approx(0.15 / 0.65)
    assert lowest[0, 0] == pytest.approx(0.5 / 0.65)
    assert most[0] == pytest.approx(0.65)
    assert least[1] == pytest.approx(0.15)


def test_bounds_where_fewer_labels_have_a_grade_than_are_wrong() -> None:
    given = np.array([0.9, 0.1])
    free, _ = estimate._bounds(given, 0.2, likeliest=False)
    assert (free[0, 1, 1], free[1, 1, 0]) == (0.0, 1.0)
    likeliest, _ = estimate._bounds(given, 0.2, likeliest=True)
    assert (likeliest[0, 1, 1], likeliest[1, 1, 0]) == (0.5, 0.5)


@pytest.mark.slow
def test_where_the_rate_is_not_determined_shares_allow_for_all_of_its_interval() -> None:
    """What a label says of the shares is known up to as many labels as may be wrong."""
    rng = np.random.default_rng(1)
    label = rng.integers(0, 3, 200)
    blind = rng.dirichlet(np.ones(3), 200)
    found = noise.estimate_noise(label, blind, bootstrap=20)
    assert not found.identifiable
    given = np.bincount(label) / 200
    assert (found.prior_interval[0] <= np.maximum(given - found.rate_interval[1], 0.0)).all()
    assert (found.prior_interval[1] >= np.minimum(given + found.rate_interval[1], 1.0)).all()
    assert (found.transition_interval[0][~np.eye(3, dtype=bool)] == 0.0).all()
    assert (found.transition_interval[1].diagonal() == 1.0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("form", "seed"), [("boundary", 2), ("banded", 3), ("banded", 2)])
def test_held_out_labels_have_the_mean_probability_over_the_posterior(form: str, seed: int) -> None:
    """Of one part nothing is held out, so the posterior is that of the fit; by many draws."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, 90)
    seen = true + rng.normal(size=90)
    probabilities = np.exp(-((seen[:, None] - np.arange(3)) ** 2))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    cells = pool(true, rank_images(probabilities), classes=3)
    fit = fit_model(cells, family(form, num_classes=3))
    drawn = rng.multivariate_normal(fit.theta, fit.covariance, size=1500)
    labelled = np.array([fit.problem.label_probabilities(theta) for theta in drawn])
    off = drawn - fit.theta
    log_normal = -0.5 * np.einsum("si,ij,sj->s", off, np.linalg.inv(fit.covariance), off)
    log_posterior = np.array([fit.problem.value(theta) for theta in drawn])
    weights = softmax(log_posterior - log_normal)
    chosen = cells.images.cell, true
    expected = np.log(np.tensordot(weights, labelled, axes=1))[chosen].sum()
    found = model.held_out_likelihood(fit, true, np.zeros(90, dtype=np.int64)).sum()
    alone = np.log(fit.problem.label_probabilities(fit.theta))[chosen].sum()
    assert abs(found - expected) < 0.6 * abs(alone - expected)
    if (form, seed) == ("banded", 3):  # its posterior is far from normal
        unweighted = np.log(labelled.mean(axis=0))[chosen].sum()
        assert abs(found - expected) < 1.0 < 3.0 < abs(unweighted - expected)


def test_a_single_draw_does_not_decide() -> None:
    """Of 64 draws it has an eighth of the weight, and its part of the rest."""
    normal = np.zeros((64, 2))
    normal[0] = 9.0  # by far the likeliest under a posterior that is flat
    problem = SimpleNamespace(
        expand=lambda theta: (0.0, theta, np.eye(2)),
        label_probabilities=lambda theta: np.array([[theta[0], 1.0 - theta[0]]]),
        penalised=lambda theta, q: 0.0,
    )
    found = model._predictive(problem, np.zeros(2), normal)
    mean = 9.0 * (1 / 8 + 7 / 8 / 64)
    np.testing.assert_allclose(found, [[mean, 1.0 - mean]])


def test_a_rate_that_is_not_determined_is_weighted_by_how_common_it_is() -> None:
    """By Beta(2, 4) and the weights for the interval, and only where it is not determined."""
    explanations = []
    for rate, weight, doubtful in ((0.2, 1.0, 0.4), (0.7, 0.0, 0.6)):
        joint = np.array([[(1 - rate) / 2, rate / 2], [rate / 2, (1 - rate) / 2]])
        explanations.append(SimpleNamespace(joint=joint, weight=weight, doubtful_weight=doubtful))
    found = Explanations(cells=None, all=tuple(explanations), held_out={}, repeated=1.0)  # type: ignore[arg-type]
    common = beta(2, 4).pdf([0.2, 0.7]) * [0.4, 0.6]
    expected = common @ [0.2, 0.7] / common.sum()
    assert 1.0 - np.trace(found.guessed_joint) == pytest.approx(expected)
    assert 1.0 - np.trace(found.joint) == pytest.approx(0.2)


@pytest.mark.slow
def test_the_guess_is_used_where_the_rate_is_not_determined(
    two_grades, monkeypatch: pytest.MonkeyPatch
) -> None:
    label, p, _ = two_grades
    found = explain(label, p, np.arange(180), read_verified(None, samples=0, classes=2))
    for why, joint in ((BLIND, found.guessed_joint), (None, found.joint)):
        monkeypatch.setattr(estimate, "_why_undetermined", lambda *given, why=why, **options: why)
        rate = estimate_noise(label, p, bootstrap=0).rate
        assert rate == pytest.approx(1.0 - np.trace(joint))
    assert np.trace(found.guessed_joint) != pytest.approx(np.trace(found.joint), abs=0.01)
