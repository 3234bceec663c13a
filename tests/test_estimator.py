"""The scikit-learn estimator: scikit-learn's own checks, its tools, and the attributes after
fit."""

import pickle
import signal
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss, mean_absolute_error, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from fixtures.noisy_features import counted
from refusals import refuses
from srjt import OrdinalNoiseClassifier, estimator as classifier, noise
from srjt.data.grades import grade_codes
from srjt.data.synthetic import generate
from srjt.training.noise_rate import usable_matrix

pytestmark = pytest.mark.filterwarnings("ignore:The data do not settle the noise rate")
few_rows = pytest.mark.filterwarnings("ignore:.*too few to estimate")


@pytest.mark.slow
@parametrize_with_checks(
    [OrdinalNoiseClassifier(target_metric="accuracy", grades="sorted")],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "batches are drawn, not the same for both"
    },
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learn_finds_nothing_to_object_to(estimator, check):  # type: ignore[no-untyped-def]
    """With the defaults, ``predict`` is the median, and ``check_classifiers_train`` requires the
    most likely grade; the order of names is never guessed, and ``check_classifiers_classes``
    requires the alphabetical one."""
    check(estimator)


class Rows(NamedTuple):
    X: np.ndarray  # (N, 6)
    y: np.ndarray  # (N,) 0 … 3, some of them wrong
    true: np.ndarray
    groups: np.ndarray  # patients of four rows each


def rows(count: int, *, wrong: float = 0.3, seed: int = 0) -> Rows:
    """Severity along one direction of six; the share ``wrong`` of the labels is off by one."""
    rng = np.random.default_rng(seed)
    severity = rng.uniform(0, 4, size=count)
    true = severity.astype(np.int64)
    X = rng.normal(scale=0.5, size=(count, 6)) + severity[:, None] * np.array([2, -1, 1, 0.5, 0, 0])
    rho = wrong / 1.5  # the ends have one neighbour
    matrix = noise.transition_matrix("truncated", num_classes=4, rho=rho)
    return Rows(X, noise.corrupt(true, matrix, seed=seed), true, np.arange(count) // 4)


def quick(**parameters: object) -> OrdinalNoiseClassifier:
    defaults = {"method": "co-teaching+ours", "noise_rate": 0.3, "epochs": 8, "random_state": 0}
    return OrdinalNoiseClassifier(**{**defaults, **parameters})


@pytest.fixture(scope="module")
def noisy() -> Rows:
    return rows(600)


@pytest.fixture(scope="module")
def fitted(noisy: Rows) -> OrdinalNoiseClassifier:
    """A method that selects: the noise rate is estimated."""
    model = OrdinalNoiseClassifier(method="co-teaching+ours", random_state=0, epochs=30)
    return model.fit(noisy.X, noisy.y, groups=noisy.groups)


def test_it_finds_how_noisy_the_labels_are_and_which_are_wrong(noisy: Rows, fitted: Any) -> None:
    wrong = noisy.y != noisy.true
    assert fitted.noise_rate_ == pytest.approx(wrong.mean(), abs=0.12)
    assert fitted.transition_.shape == (4, 4)
    assert fitted.transition_.sum(axis=1) == pytest.approx(1)
    assert fitted.noise_estimate_.samples == 600
    assert roc_auc_score(~wrong, fitted.selected_) > 0.7
    assert (fitted.selected_.min() >= 0) & (fitted.selected_.max() <= 1)
    severity = fitted.predict_severity(noisy.X)
    assert mean_absolute_error(noisy.true, severity) < 0.6
    assert severity == pytest.approx(fitted.predict_proba(noisy.X) @ [0, 1, 2, 3])


@pytest.mark.parametrize(
    "method", [pytest.param("srjt", marks=pytest.mark.slow), "co-teaching", "garg", "standard"]
)
@few_rows
def test_a_method_works_also_on_rows_too_few_for_an_estimate(method: str) -> None:
    data = rows(40)
    model = quick(method=method, noise_rate="auto", epochs=2).fit(data.X, data.y)
    p = model.predict_proba(data.X)
    assert p.shape == (40, 4)
    assert p.sum(axis=1) == pytest.approx(1, abs=1e-12)
    looked_at = ~np.isnan(model.selected_)  # where rare grades are drawn more often, not all are
    assert (model.selected_[looked_at] == 1).all()  # every label is believed
    assert model.noise_rate_ in (0, None)


def test_too_few_rows_or_groups_warn() -> None:
    data = rows(240)
    with pytest.warns(UserWarning, match="^199 rows are too few to estimate the noise of 4 grades"):
        quick(noise_rate="auto", epochs=1).fit(data.X[:199], data.y[:199])
    with pytest.warns(UserWarning, match="^240 rows of 5 groups are too few"):
        model = quick(noise_rate="auto", epochs=1).fit(data.X, data.y, groups=np.arange(240) % 5)
    assert model.noise_rate_ == 0
    assert (model.transition_ == np.eye(4)).all()


def test_groups_are_patients_for_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    train = classifier.train
    monkeypatch.setattr("srjt.training.noise_rate.estimate_noise", counted)
    seeing = lambda manifest, **how: seen.append(manifest) or train(manifest, **how)  # noqa: E731
    monkeypatch.setattr(classifier, "train", seeing)
    data = rows(240)
    quick(noise_rate="auto", epochs=1).fit(data.X, data.y, groups=pd.Series(data.groups))
    assert seen[0].patients == [str(g) for g in data.groups]


def test_a_given_matrix_is_used() -> None:
    data, matrix = rows(60), noise.transition_matrix("quasi", num_classes=4, rho=0.1)
    model = quick(method="f-correction", noise_rate=None, transition=matrix, epochs=1).fit(
        data.X, data.y
    )
    assert (model.transition_ == matrix).all()
    assert model.noise_rate_ is None


def test_rows_are_left_out_of_an_epoch_only_where_they_do_not_divide() -> None:
    data = rows(101)
    model = quick(epochs=1).fit(data.X, data.y)  # two batches of fifty
    assert np.isnan(model.selected_).sum() == 1


# Invariances.
@pytest.mark.slow
def test_units_do_not_matter() -> None:
    data = rows(80)
    units = 2.0 ** np.array([-8, 0, 3, 10, 1, -1])  # powers of two: nothing is rounded
    plain, scaled = quick().fit(data.X, data.y), quick().fit(data.X * units, data.y)
    assert (plain.predict_proba(data.X) == scaled.predict_proba(data.X * units)).all()


@pytest.mark.slow
def test_names_of_grades_do_not_matter_and_severity_is_on_the_scale_of_numbers() -> None:
    data = rows(80)
    names = np.array(["none", "mild", "moderate", "severe"])
    plain, from_1 = (quick().fit(data.X, y) for y in (data.y, data.y + 1))
    named = quick(grades=names.tolist()).fit(data.X, names[data.y])
    assert (plain.predict_proba(data.X) == named.predict_proba(data.X)).all()
    assert (names[plain.predict(data.X)] == named.predict(data.X)).all()
    assert (plain.predict_severity(data.X) == named.predict_severity(data.X)).all()
    assert from_1.predict_severity(data.X) == pytest.approx(plain.predict_severity(data.X) + 1)


@pytest.mark.slow
def test_the_seed_decides_and_nothing_outside_is_touched() -> None:
    data = rows(80)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    a, b, c = (quick(random_state=s).fit(data.X, data.y).predict_proba(data.X) for s in (0, 0, 1))
    assert (a == b).all()
    assert (a != c).any()
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()


# Labels of all kinds.
@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([10.0, 2.0, 0.0], [0.0, 2.0, 10.0]),
        ([True, False], [False, True]),
        (["Mayo 10", "Mayo 9", "Mayo 0"], ["Mayo 0", "Mayo 9", "Mayo 10"]),
    ],
)
def test_numbers_order_the_grades(labels: list[object], expected: list[object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classes, codes = grade_codes(np.array(labels))
    assert classes.tolist() == expected
    assert classes[codes].tolist() == labels


def test_the_order_of_words_is_never_guessed() -> None:
    """As in every other source; alphabetical order only where the user says so."""
    words = np.array(["severe", "mild", "none"])
    with refuses("grades_without_order", "grades"):
        grade_codes(words)
    with refuses("grades_without_order", "grades"):
        quick().fit(np.zeros((3, 1)), words)
    assert grade_codes(words, grades="sorted")[0].tolist() == ["mild", "none", "severe"]
    classes, codes = grade_codes(words, grades=["none", "mild", "moderate", "severe"])
    assert classes.tolist() == ["none", "mild", "moderate", "severe"]
    assert codes.tolist() == [3, 1, 0]


def test_an_ordered_categorical_brings_its_order_and_its_empty_grades() -> None:
    data = rows(60)
    names = ["none", "mild", "moderate", "severe", "fatal"]
    y = pd.Series(pd.Categorical.from_codes(data.y, names, ordered=True))
    model = quick(epochs=1).fit(pd.DataFrame(data.X, columns=list("abcdef")), y)
    assert model.classes_.tolist() == names
    assert model.feature_names_in_.tolist() == list("abcdef")
    assert model.predict_proba(pd.DataFrame(data.X, columns=list("abcdef"))).shape == (60, 5)


@pytest.mark.parametrize(
    ("parameters", "y", "refused"),
    [
        ({"grades": [0, 1, 2]}, [0, 1, 3], ("unknown_grade", "", "The label 3")),
        (
            {"grades": ["a", "b"]},
            [0, 1, 0],
            ("unknown_grade", "", "cross_val_predict"),
        ),
        ({"grades": ["a", "a"]}, ["a", "b", "a"], ("wrong_values", "grades")),
        ({"method": "co-teeching"}, [0, 1, 0], ("unknown_name", "method", "'co-teaching'")),
        ({"settings": {"wait_decay": 1}}, [0, 1, 0], ("unknown_name", "", "'weight_decay'")),
        (
            {"settings": {"seed": 1}},
            [0, 1, 0],
            ("conflict", "settings", "random_state"),
        ),
        ({"settings": {"epochs": 1}}, [0, 1, 0], ("conflict", "settings", "parameter epochs")),
        ({"epochs": "many"}, [0, 1, 0], ("wrong_type", "epochs", "'many'")),
        ({"noise_rate": 1.5}, [0, 1, 0], ("out_of_bounds", "noise_rate")),
        ({"network": "tiny"}, [0, 1, 0], ("unsupported", "network")),
        ({}, [2, 2, 2], ("too_few",)),
    ],
)
def test_bad_input_gets_one_sentence(
    parameters: dict[str, object], y: list[object], refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        quick(**parameters).fit([[0.0], [1.0], [2.0]], y)


# Scikit-learn's tools around it.
@pytest.mark.slow
def test_a_search_over_rates_and_methods_in_a_pipeline() -> None:
    data = rows(90)
    pipe = make_pipeline(StandardScaler(), quick(epochs=2))
    options = {"noise_rate": [0.1, 0.3], "method": ["sord", "co-teaching"]}
    grid = {f"ordinalnoiseclassifier__{name}": values for name, values in options.items()}
    search = GridSearchCV(pipe, grid, cv=3, error_score="raise").fit(data.X, data.y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(data.X).shape == (90,)
    own = pipe.fit(data.X, data.y, ordinalnoiseclassifier__groups=data.groups)
    assert own.score(data.X, data.y) > 0.25


def test_groups_can_be_routed(monkeypatch: pytest.MonkeyPatch) -> None:
    data, told = rows(60), []
    fit = OrdinalNoiseClassifier.fit

    def listening(
        self: OrdinalNoiseClassifier, X: object, y: object, groups: object = None
    ) -> object:
        told.append(groups)
        return fit(self, X, y, groups=groups)

    monkeypatch.setattr(OrdinalNoiseClassifier, "fit", listening)
    with sklearn.config_context(enable_metadata_routing=True):
        model = quick(epochs=1).set_fit_request(groups=True)
        cv = StratifiedGroupKFold(2)
        cross_val_predict(model, data.X, data.y, cv=cv, params={"groups": data.groups})
    assert len(told) == 2
    assert set(told[0]).isdisjoint(told[1])


def test_a_fitted_model_can_be_recalibrated(noisy: Rows, fitted: OrdinalNoiseClassifier) -> None:
    """By scikit-learn's own tool, on the true grades of rows; the columns keep their order."""
    wrapped = CalibratedClassifierCV(FrozenEstimator(fitted), method="isotonic").fit(
        noisy.X, noisy.true
    )
    assert list(wrapped.classes_) == list(fitted.classes_)
    before, after = (
        log_loss(noisy.true, model.predict_proba(noisy.X)) for model in (fitted, wrapped)
    )
    assert after < before


def test_a_clone_is_unfitted_and_a_pickle_predicts_the_same(noisy: Rows, fitted: Any) -> None:
    again = clone(fitted)
    assert not hasattr(again, "classes_")
    assert again.get_params() == fitted.get_params()
    opened = pickle.loads(pickle.dumps(fitted))
    assert opened.predict_proba(noisy.X[:20]) == pytest.approx(
        fitted.predict_proba(noisy.X[:20]), abs=1e-12
    )


@pytest.mark.slow
def test_images() -> None:
    data = generate(images=48, patients=12, size=48)
    images, y = data.arrays[:, ::2, ::2, :1], data.labels
    model = quick(epochs=3, settings={"flip": False}).fit(images, y, groups=data.patients)
    assert model.trained_.config.network == "tiny"
    assert (model.trained_.config.image_size, model.trained_.config.crop) == (32, 28)
    assert model.n_features_in_ == 24 * 24
    p = model.predict_proba(images)
    assert p.shape == (48, 4)
    assert p.sum(axis=1) == pytest.approx(1)
    assert pickle.loads(pickle.dumps(model)).predict_proba(images) == pytest.approx(p)
    with refuses("wrong_shape", "X"):
        model.predict(np.zeros((2, 5)))


# Good manners.
def test_nothing_is_printed_or_written(tmp_path: Path, capfd: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("srjt.training.noise_rate.estimate_noise", counted)
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    data = generate(images=24, patients=6, size=48)
    quick(epochs=1).fit(data.arrays, data.labels).predict(data.arrays)
    few = rows(240)
    quick(noise_rate="auto", epochs=1).fit(few.X, few.y)
    assert list(tmp_path.iterdir()) == []
    assert "".join(capfd.readouterr()) == ""


def test_verbose_shows_every_epoch(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("srjt.training.noise_rate.estimate_noise", counted)
    data = rows(240)
    quick(noise_rate="auto", epochs=2, verbose=1).fit(data.X, data.y)
    said = capsys.readouterr().out
    assert "Estimating the noise first" in said
    assert [line.split("  ")[0] for line in said.splitlines() if "epoch" in line][-2:] == [
        "co-teaching+ours: epoch 1/2",
        "co-teaching+ours: epoch 2/2",
    ]
    assert said.count("warm-up: fold ") == 3


class Impatient(nn.Module):
    """Presses Ctrl-C in its first training step."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            signal.raise_signal(signal.SIGINT)
        return x


def test_a_network_of_your_own_and_ctrl_c() -> None:
    data = rows(200)
    model = quick(network=nn.Identity, epochs=2).fit(data.X.astype(np.float32), data.y)
    assert model.predict_proba(data.X).sum(axis=1) == pytest.approx(1)
    with pytest.raises(KeyboardInterrupt):
        quick(network=Impatient, batch_size=16).fit(data.X, data.y)


@pytest.mark.slow
def test_the_recipe_is_the_default_and_needs_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srjt.training.noise_rate.estimate_noise", counted)
    data = rows(240)
    model = OrdinalNoiseClassifier(epochs=3, network="linear", random_state=0, device="cpu").fit(
        data.X, data.y
    )
    assert model.trained_.config.method == "srjt"
    estimate = model.noise_estimate_
    assert (model.transition_ == usable_matrix(estimate.rate, estimate.transition)).all()
    own = quick(method="srjt", noise_rate=0.3, epochs=1, settings={"balance": 0.5}).fit(
        data.X, data.y
    )
    assert (own.noise_rate_, own.trained_.config.balance, own.noise_estimate_) == (0.3, 0.5, None)


@pytest.mark.slow
def test_the_recipe_keeps_every_grade_where_hardly_any_label_is_wrong() -> None:
    """Rows that show their grade clearly: the low estimate is used, or half of it. With all
    defaults."""
    data = rows(600, wrong=0.03)
    model = OrdinalNoiseClassifier(random_state=0).fit(data.X, data.y)
    assert model.noise_rate_ <= model.noise_estimate_.rate < 0.15
    unseen = rows(600, seed=1)
    said = model.predict(unseen.X)
    assert min(np.mean(said[unseen.true == grade] == grade) for grade in range(4)) > 0.6


@pytest.mark.slow
def test_verified_grades_reach_the_estimate() -> None:
    rng = np.random.default_rng(0)
    true = np.arange(300) % 3
    y = np.where(rng.random(300) < 0.3, (true + 1) % 3, true)
    X = rng.normal(size=(300, 3), scale=0.4) + true[:, None]
    names = np.array(["g0", "g1", "g2"])
    rows = rng.permutation(300)[:100]
    verified = np.full(300, None, dtype=object)
    verified[rows] = names[true[rows]]
    model = OrdinalNoiseClassifier(epochs=4, random_state=0, device="cpu", network="linear")
    model.fit(X, names[y], verified=verified)
    assert model.noise_estimate_.verified == 100
    assert model.noise_rate_ == model.noise_estimate_.rate
    low, high = model.noise_estimate_.rate_interval
    assert low < (y != true).mean() < high
    with refuses("unknown_grade", says="'g7'"):
        model.fit(X, names[y], verified=np.where(verified == "g1", "g7", verified))


@pytest.mark.slow
@pytest.mark.parametrize("network", ["odds", "mlp"])
def test_rows_of_weight_zero_teach_nothing(network: str) -> None:
    """Half of the labels are turned round: with weight 0 they are as if they were not there."""
    given = rows(300, wrong=0.0)
    turned = np.arange(300) % 2 == 0
    y = np.where(turned, 3 - given.true, given.true)
    settings = {"network": network, "noise_rate": 0.0, "method": "standard", "random_state": 0}
    scores = []
    for weights in (None, np.where(turned, 0.0, 2.0)):
        model = OrdinalNoiseClassifier(**settings).fit(given.X, y, sample_weight=weights)
        scores.append((model.predict(given.X) == given.true).mean())
    assert scores[0] < 0.6
    assert scores[1] > 0.75


@pytest.mark.slow
def test_a_weight_is_about_a_number_of_rows() -> None:
    settings = {"network": "odds", "noise_rate": 0.0, "method": "standard"}
    near, far = [], []
    for seed in range(4):
        given = rows(200, seed=seed)
        times = np.random.default_rng(seed).integers(3, size=200)
        again = np.repeat(np.arange(200), times)

        def probabilities(which: Any, given: Rows = given, **weights: Any) -> np.ndarray:
            model = OrdinalNoiseClassifier(**settings)
            model.fit(given.X[which], given.y[which], given.groups[which], **weights)
            return model.predict_proba(given.X)

        repeated = probabilities(again)
        weighted = probabilities(slice(None), sample_weight=times)
        near.append(np.abs(weighted - repeated).max())
        far.append(np.abs(probabilities(slice(None)) - repeated).max())
    assert np.mean(near) < 0.25 * np.mean(far)  # the ridge strength may be another one


def test_batches_follow_the_weights() -> None:
    given = rows(200)
    weights = np.repeat([0.0, 1.0, 3.0], [50, 100, 50])
    model = OrdinalNoiseClassifier(
        network="mlp", noise_rate=0.0, method="standard", epochs=20, batch_size=50
    ).fit(given.X, given.y, sample_weight=weights)
    seen = model.trained_.history["seen"].to_numpy()
    assert seen[:50].sum() == 0
    assert seen[150:].mean() == pytest.approx(3 * seen[50:150].mean(), rel=0.05)


@pytest.mark.parametrize(
    ("weights", "refused"),
    [
        (np.ones(3), ("wrong_shape", "sample_weight", "40")),
        (np.full(40, -1.0), ("out_of_bounds", "sample_weight")),
        (np.zeros(40), ("wrong_values", "sample_weight")),
        (np.full(40, np.nan), ("out_of_bounds", "sample_weight")),
    ],
)
def test_weights_are_checked(weights: np.ndarray, refused: tuple[str, ...]) -> None:
    given = rows(40)
    with refuses(*refused):
        OrdinalNoiseClassifier(noise_rate=0.0).fit(given.X, given.y, sample_weight=weights)
