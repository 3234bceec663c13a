"""Scores against the true grades, from labels that are partly wrong."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import t as student  # type: ignore[import-untyped]

import srjt
from reports.page_text import all_sections
from srjt.data import Manifest
from srjt.inference import true_scores as estimating
from srjt.inference.answers import Answers
from srjt.inference.aspects.referral import ReferralRule, ThresholdOrigin
from srjt.inference.true_scores import true_scores
from srjt.noise.quality import NoiseBounds, given_noise
from srjt.noise.verified import exact_interval
from srjt.ordinal.metrics import summary
from srjt.readers import Readings
from srjt.reports.aspects.true_scores import basis_of
from srjt.reports.pages.evaluation import evaluation_page
from srjt.training.held_out import HeldOut
from srjt.training.trained import Trained

Ints = npt.NDArray[np.int64]
P = np.array([[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]])
JOINT = np.array([[200, 100, 0], [50, 300, 50], [0, 100, 200]])  # images by true grade and answer


def images() -> tuple[Ints, Ints, Ints]:
    """True grades, labels and answers. Given the true grade, labels have exactly the shares of P
    for every answer."""
    rows = [
        (true, label, answer)
        for true in range(3)
        for answer in range(3)
        for label in range(3)
        for _ in range(round(JOINT[true, answer] * P[true, label]))
    ]
    true, label, answer = np.array(rows).T
    return true, label, answer


def judged(answer: Ints, label: Ints, *, groups: list[str] | None = None, **how: Any) -> Any:
    answers = Answers(probabilities=np.eye(3)[answer], grades=answer, labels=label, groups=groups)
    return true_scores(answers, **how)


def test_a_matrix_undoes_errors_that_depend_on_the_true_grade_alone() -> None:
    _, label, answer = images()
    bounds = given_noise(P, np.bincount(label) / len(label))
    refer = ReferralRule(position=1, threshold=None, origin=ThresholdOrigin(kind="grade"))
    how: dict[str, Any] = {"noise": bounds, "resamples": 100}
    found = judged(answer, label, label_noise="class-conditional", refer=refer, **how)
    truth = summary(JOINT)
    for name in ("mae", "accuracy", "qwk"):
        assert found.scores[name].value == pytest.approx(truth[name])
    assert found.scores["recall_1"].value == pytest.approx(0.75)
    assert found.scores["sensitivity"].value == pytest.approx(650 / 700)
    assert found.scores["specificity"].value == pytest.approx(200 / 300)
    assert found.apart == found.scores
    assert not found.alike
    # Where the network may repeat the labels' errors, it may be as good as p(true grade | label)
    # says.
    both = judged(answer, label, **how)
    posterior = bounds.joint / bounds.joint.sum(axis=0)
    alike = np.mean(posterior[answer, label])
    assert both.alike["accuracy"].value == pytest.approx(alike)
    assert both.scores["accuracy"].low == both.alike["accuracy"].low < found.scores["accuracy"].low
    assert both.scores["accuracy"].high == both.apart["accuracy"].high


def test_without_a_determined_noise_there_are_bounds_of_accuracy_and_error() -> None:
    _, label, answer = images()
    one_off = NoiseBounds(joint=np.diag([0.3, 0.4, 0.3]), rates=(0.0, 0.1), determined=False)
    found = judged(answer, label, noise=one_off, resamples=200)
    exact = judged(answer, label, noise=replace(one_off, rates=(0.0, 0.0)), resamples=200)
    for name in ("accuracy", "mae"):  # errors by one grade: both change by their share at most
        assert found.scores[name].low == pytest.approx(exact.scores[name].low - 0.1)
        assert found.scores[name].high == pytest.approx(exact.scores[name].high + 0.1)
    assert np.isnan(found.scores["qwk"].low)
    assert found.wrong == (0.0, 0.1)
    assert judged(answer, label) is None
    assert judged(answer, label, noise=one_off, label_noise="none") is None


def test_all_but_one_verified_is_a_plain_mean_with_students_interval() -> None:
    """Labels that are no help: the mean of the true errors and Student's interval, with two more
    errors."""
    rng = np.random.default_rng(0)
    true, _, answer = images()
    label = rng.integers(3, size=len(true))
    scores = judged(answer, label, verified=np.append(true[:-1], -1)).scores
    size = len(true)
    error = np.abs(true - answer)
    assert scores["mae"].value == pytest.approx(error.mean(), abs=0.01)
    half = (scores["mae"].high - scores["mae"].low) / 2
    assert half == pytest.approx(
        student.ppf(0.975, size - 1) * error.std() / np.sqrt(size), rel=0.02
    )
    right = float((error == 0).mean())
    assert scores["accuracy"].low == pytest.approx(exact_interval(right, size)[0], abs=0.01)


def test_few_verified_grades_have_students_interval_with_two_more_errors() -> None:
    """One answer and one label for all: labels are no help, and the slope from one true grade to
    the next is 1."""
    true = np.array([1] * 14 + [0, 2] * 3)
    size = len(true)
    error = np.abs(true - 1)
    one_more = np.ones(21, dtype=np.int64)  # which is not verified
    found = judged(one_more, one_more, verified=np.append(true, -1)).scores["mae"]
    half = student.ppf(0.975, size - 1) * np.sqrt(error.var() / (size - 1) + 2 / size**2)
    assert found == pytest.approx(
        (error.mean(), error.mean() - half, error.mean() + half), rel=1e-3
    )


def test_labels_that_are_right_have_no_interval_of_width_0() -> None:
    """Noise 0 and no error: bounds that a bootstrap of the patients alone would make certain."""
    grades = np.arange(30) % 3
    none = NoiseBounds(joint=np.eye(3) / 3, rates=(0.0, 0.0), determined=False)
    scores = judged(grades, grades, noise=none, resamples=300).scores
    assert scores["accuracy"].value == 1.0
    assert 0.7 < scores["accuracy"].low < 0.95
    assert 0.05 < scores["mae"].high < 0.35
    sure = given_noise(np.eye(3), np.full(3, 1 / 3))
    refer = ReferralRule(position=1, threshold=None, origin=ThresholdOrigin(kind="grade"))
    found = judged(grades, grades, noise=sure, refer=refer, resamples=300).scores
    assert all(
        0.3 < found[name].low < 0.99 for name in ("sensitivity", "specificity", "recall_0", "qwk")
    )


@pytest.mark.slow
def test_a_network_that_is_immune_to_shared_errors_is_in_the_bounds() -> None:
    """It may be right where all readers are wrong together: better than either extreme says."""
    _, answer, readings = simulated(60, 3, seed=4, wrong=0.5)
    found = judged(answer, answer, readings=readings, resamples=8)
    assert (
        found.scores["accuracy"].high
        > max(found.apart["accuracy"].high, found.alike["accuracy"].high) + 0.02
    )


def test_labels_of_all_make_the_interval_of_a_few_verified_ones_shorter() -> None:
    rng = np.random.default_rng(1)
    true = rng.integers(3, size=4000)
    answer = np.where(rng.random(4000) < 0.4, rng.integers(3, size=4000), true)
    label = np.where(rng.random(4000) < 0.02, (true + 1) % 3, true)
    verified = np.where(np.arange(4000) < 200, true, -1)
    scores = judged(answer, label, verified=verified).scores
    alone = judged(answer[:200], label[:200], verified=true[:200]).scores
    for name in ("mae", "qwk", "accuracy"):
        assert scores[name].high - scores[name].low < 0.6 * (alone[name].high - alone[name].low)
        assert scores[name].low < summary(_counts(true, answer))[name] < scores[name].high
    few = np.where(np.arange(4000) < 19, true, -1)
    assert judged(answer, label, verified=few) is None


@pytest.mark.slow
def test_readings_of_all_make_it_shorter_than_the_labels_do() -> None:
    true, answer, readings = simulated(1500, 3, seed=5, wrong=0.4)
    label = readings.grade[:1500]  # of the first reader
    verified = np.where(np.arange(1500) < 200, true, -1)
    alone = judged(answer, label, verified=verified).scores
    found = judged(answer, label, verified=verified, readings=readings)
    assert found.basis == "verified grades"
    for name in ("mae", "qwk", "accuracy"):
        assert np.ptp(found.scores[name][1:]) < 0.95 * np.ptp(alone[name][1:])
        assert found.scores[name].low < summary(_counts(true, answer))[name]
        assert found.scores[name].high > summary(_counts(true, answer))[name]


def test_probabilities_of_the_network_make_it_shorter_than_the_labels_do() -> None:
    """A network that knows where it errs: answers that it takes for certain are right."""
    rng = np.random.default_rng(3)
    true = rng.integers(3, size=3000)
    guessed = rng.random(3000) < 0.5
    answer = np.where(guessed, rng.integers(3, size=3000), true)
    off = np.where(true == 1, rng.choice([0, 2], size=3000), 1)
    label = np.where(rng.random(3000) < 0.4, off, true)
    verified = np.where(np.arange(3000) < 200, true, -1)
    certain = np.where(guessed[:, None], 1 / 3, 0.01) + np.eye(3)[answer] * 0.01
    probabilities = np.where(guessed[:, None], certain, certain + np.eye(3)[answer])
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    answers = Answers(probabilities=probabilities, grades=answer, labels=label, groups=None)
    found = true_scores(answers, verified=verified)
    alone = judged(answer, label, verified=verified)  # one-hot probabilities
    assert found is not None
    for name in ("mae", "accuracy"):
        assert np.ptp(found.scores[name][1:]) < 0.9 * np.ptp(alone.scores[name][1:])
        assert found.scores[name].low < summary(_counts(true, answer))[name]
        assert found.scores[name].high > summary(_counts(true, answer))[name]


def _counts(true: Ints, answer: Ints) -> npt.NDArray[np.float64]:
    counts = np.zeros((3, 3))
    np.add.at(counts, (true, answer), 1.0)
    return counts


def test_copies_of_an_image_tell_nothing_new() -> None:
    true, label, answer = images()
    order = np.random.default_rng(0).permutation(len(true))[:300]
    true, label, answer = true[order], label[order], answer[order]
    verified = np.where(np.arange(300) < 100, true, -1)
    once = judged(answer, label, verified=verified).scores
    groups = [str(k) for k in range(300)] * 2
    doubled = (np.tile(given, 2) for given in (answer, label))
    twice = judged(*doubled, verified=np.tile(verified, 2), groups=groups).scores
    for name in ("mae", "qwk", "accuracy", "recall_1"):
        assert twice[name] == pytest.approx(once[name], abs=0.004)


def simulated(
    images: int, readers: int, *, seed: int, copies: bool = False, wrong: float = 0.15
) -> tuple[Ints, Ints, Readings]:
    """True grades, the network's and readings. copies: the network says what the first reader says.
    wrong: how often it is wrong otherwise."""
    rng = np.random.default_rng(seed)
    true = rng.integers(3, size=images)

    def read(share: float, shape: tuple[int, ...]) -> Ints:
        step = np.where(true == 0, 1, np.where(true == 2, -1, rng.choice([-1, 1], size=images)))
        return np.where(rng.random(shape) < share, (true + step), true)

    said = read(0.3, (readers, images))
    answer = said[0] if copies else read(wrong, (images,))
    readings = Readings(
        items=[str(i) for i in range(images)], readers=[f"r{k}" for k in range(readers)], grades=("0", "1", "2"),
        item=np.tile(np.arange(images), readers), reader=np.repeat(np.arange(readers), images), grade=said.ravel(),
    )  # fmt: skip
    return true, answer, readings


@pytest.mark.slow
@pytest.mark.parametrize("copies", [False, True])
def test_readings_bound_the_score_of_a_network(copies: bool) -> None:
    true, answer, readings = simulated(300, 3, seed=2, copies=copies)
    found = judged(answer, answer, readings=readings, resamples=8)
    assert found.basis == "readings"
    truth = summary(_counts(true, answer))
    for name in ("accuracy", "mae", "qwk"):
        low, high = found.scores[name][1:]
        assert low < truth[name] < high
        assert low <= min(
            found.apart[name].low, found.alike[name].low
        )  # by errors that all readers share
        assert high >= max(found.apart[name].high, found.alike[name].high)
    assert found.alike["accuracy"].value < found.apart["accuracy"].value


def test_one_reading_of_each_image_says_nothing() -> None:
    _, answer, readings = simulated(60, 1, seed=0)
    assert judged(answer, answer, readings=readings, resamples=20) is None


def test_samples_that_were_drawn_more_often_count_less() -> None:
    """Answers are right on one half of the samples, of which five times as many are verified."""
    rng = np.random.default_rng(0)
    often = np.arange(4000) < 2000
    chance = np.where(often, 0.5, 0.1)
    true = rng.integers(3, size=4000)
    answer = np.where(often, true, (true + 1) % 3)
    verified = np.where(rng.random(4000) < chance, true, -1)
    labels = np.zeros(4000, dtype=np.int64)  # they say nothing
    plain = judged(answer, labels, verified=verified).scores
    weighted = judged(answer, labels, verified=verified, verified_probability=chance).scores
    assert plain["accuracy"].low > 0.75
    for name, truth in {"accuracy": 0.5, "mae": (1 + 1 + 2) / 6, "recall_1": 0.5}.items():
        assert weighted[name].value == pytest.approx(truth, abs=0.06)
        assert weighted[name].low < truth < weighted[name].high
    alike = judged(
        answer, labels, verified=verified, verified_probability=np.full(4000, 0.3)
    ).scores
    assert alike["accuracy"] == pytest.approx(plain["accuracy"])
    assert np.ptp(weighted["accuracy"]) > np.ptp(
        plain["accuracy"]
    )  # a weighted sample is worth less


@pytest.mark.slow
def test_intervals_from_verified_grades_hold() -> None:
    """95 % within 3 standard errors of 200 trials, with patients of two images."""
    hits = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        true = np.repeat(rng.integers(3, size=200), 2)
        label = np.where(rng.random(400) < 0.2, (true + 1) % 3, true)
        answer = np.where(np.repeat(rng.random(200) < 0.25, 2), (true + 2) % 3, true)
        verified = np.where(np.repeat(rng.random(200) < 0.4, 2), true, -1)
        groups = [str(k // 2) for k in range(400)]
        scores = judged(answer, label, verified=verified, groups=groups).scores
        truth = {"accuracy": 0.75, "mae": 1 / 3, "recall_0": 0.75}
        hits.append(
            [scores[name].low <= value <= scores[name].high for name, value in truth.items()]
        )
    assert (np.mean(hits, axis=0) > 0.9).all()


@pytest.mark.slow
def test_an_evaluation_says_what_is_known_of_the_true_grades(
    features: Manifest, run: Trained
) -> None:
    test = features.select(srjt.data.folds(features)[0].test)
    truth = test.true_labels
    assert srjt.evaluate(run, test, resamples=20).true_scores is None  # these are the true grades
    table = test.table.drop(columns="true_grade")
    by_noise = srjt.evaluate(run, replace(test, table=table), resamples=50, refer_from="2")
    assert by_noise.true_scores.basis in ("noise matrix", "share of wrong labels")
    verified = replace(
        test, table=table.assign(verified_grade=np.where(np.arange(len(test)) % 2, truth, -1))
    )
    by_part = srjt.evaluate(run, verified, resamples=50, refer_from="2")
    for found in (by_noise, by_part):
        assert found.to_dict()["true_scores"] == found.true_scores.to_dict()
        shown = evaluation_page(found)
        section = next(one for one in all_sections(shown) if one.slug == "true-scores")
        assert section.text == [basis_of(found.true_scores)]
        assert f"{found.true_scores.scores['mae'].high:.3f}" in shown.lead
    assert by_part.true_scores.basis == "verified grades"
    assert by_part.true_scores.verified == len(test) // 2
    assert {"sensitivity", "specificity"} < by_part.true_scores.scores.keys()
    assert srjt.evaluate(run, verified, resamples=20, per="patient").true_scores is None


@pytest.mark.slow
def test_verified_grades_of_all_samples_give_plain_scores(features: Manifest, run: Trained) -> None:
    """However few patients there are: the scores and intervals are those of true grades."""
    test = features.select(srjt.data.folds(features)[0].test[:40])
    assert len(set(test.patients or [])) < 20
    expected = srjt.evaluate(run, test, resamples=50, refer_from="2")
    table = test.table.drop(columns="true_grade").assign(verified_grade=test.true_labels)
    found = srjt.evaluate(run, replace(test, table=table), resamples=50, refer_from="2")
    assert (found.true_scores.complete, found.true_scores.verified) == (True, 40)
    for name in ("mae", "accuracy", "qwk"):
        assert found.true_scores.scores[name] == expected.intervals[name]
    for name in ("sensitivity", "specificity"):
        assert found.true_scores.scores[name] == expected.decision.operating_point[name]
    page = srjt.report(found)
    section = next(one for one in all_sections(page) if one.slug == "true-scores")
    assert "not estimates" in section.text[0]
    assert "are not known" not in " ".join(page.remarks)


@pytest.mark.slow
def test_advice_to_verify_names_the_minimum_that_is_missed(
    features: Manifest, run: Trained
) -> None:
    side = run.held_out["validation"]
    part = HeldOut(
        ids=side.ids[:60], labels=side.labels[:60], probabilities=side.probabilities[:, :60]
    )
    small = replace(run, held_out={"validation": part})
    test = features.select(srjt.data.folds(features)[0].test)
    table = test.table.drop(columns="true_grade")

    def remark(rows: int, patients_verified: int) -> str:
        part = table[:rows].reset_index(drop=True)
        patients = part["patient"].unique()[:patients_verified]
        part["verified_grade"] = np.where(part["patient"].isin(patients), part["grade"], -1)
        found = srjt.evaluate(
            small, replace(test, table=part, arrays=test.arrays[:rows]), resamples=5
        )
        assert found.true_scores is None
        assert found.to_dict()["true_scores"] is None
        return next(text for text in srjt.report(found).remarks if "not known" in text)

    bounds = (
        "Bounds without verified grades need 100 labels on the run's validation side, which has 60."
    )
    few = remark(40, 0)  # ten patients: a random part of them never suffices
    assert "Verify all labels here (column verified_grade)" in few
    assert few.endswith(bounds)
    assert "random part" not in few
    some = remark(40, 8)
    assert "8 patients here have verified grades; 20 are needed, or all." in some
    assert "1 patient here has verified grades" in remark(40, 1)
    many = remark(len(test), 15)
    assert "15 patients here have verified grades; 20 are needed" in many
    assert "Verify a random part of the labels, of 20 patients or more" in many


def test_each_estimated_factor_takes_a_degree_of_freedom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses that are all the same, and factors with the same sum: only their number differs, and
    the variance grows by n / (n − J) of n patients."""
    true, label, answer = images()
    some = np.random.default_rng(0).permutation(len(true))[:40]
    verified = np.full(len(true), -1)
    verified[some] = true[some]
    one_hot = np.eye(3)[label]
    monkeypatch.setattr(estimating, "_guesses", lambda *_: np.stack([one_hot] * 3))
    squares = []
    for factors in ([0.6, 0.0, 0.0], [0.3, 0.3, 0.0], [0.2, 0.2, 0.2]):
        monkeypatch.setattr(estimating, "_factors", lambda *_, own=factors: np.array(own))
        _, low, high = judged(answer, label, verified=verified).scores["mae"]
        squares.append(((high - low) / 2) ** 2)
    first, second, third = (40 / (40 - number) for number in (1, 2, 3))
    ratio = (squares[2] - squares[1]) / (squares[1] - squares[0])
    assert ratio == pytest.approx((third - second) / (second - first))


def test_a_few_draws_have_students_interval_of_their_number() -> None:
    drawn = np.random.default_rng(0).normal(size=40)
    value, low, high = estimating._normal(np.array([0.0, *drawn]), 1000)
    half = student.ppf(0.975, 39) * drawn.std(ddof=1) * (1000 / 999) ** 0.5
    assert (value, low, high) == pytest.approx((0.0, -half, half))
    _, low, _ = estimating._normal(np.array([0.0, *drawn]), 12)
    assert -low == pytest.approx(student.ppf(0.975, 11) * drawn.std(ddof=1) * (12 / 11) ** 0.5)


def test_an_added_answer_weighs_as_many_images_as_a_patient_repeats() -> None:
    _, label, answer = images()
    few = np.random.default_rng(0).permutation(len(label))[:60]
    bounds = given_noise(np.eye(3), np.bincount(label) / len(label))  # labels that are right
    how: dict[str, Any] = {"noise": bounds, "resamples": 50}
    names = np.arange(60).astype(str)
    once = judged(answer[few], label[few], groups=names.tolist(), **how)
    five = np.repeat(few, 5)
    often = judged(answer[five], label[five], groups=np.repeat(names, 5).tolist(), **how)
    for name in ("mae", "accuracy", "recall_0"):
        same = pytest.approx(tuple(once.alike[name]))
        assert tuple(often.alike[name]) == same, name
