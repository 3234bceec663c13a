"""The training as a scikit-learn estimator, ``OrdinalNoiseClassifier``, for pipelines and
searches."""

from __future__ import annotations

import copy
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import nn

from srjt import networks as backbones
from srjt.data.grades import grade_codes, ordered_categories, verified_codes
from srjt.data.images.store import open_store
from srjt.data.manifest import Manifest, as_features
from srjt.data.sources import unlabelled_samples
from srjt.data.sources.assemble import as_colour
from srjt.errors import Interrupted, SrjtError, warn
from srjt.methods.joint import JointTraining
from srjt.networks import registry
from srjt.noise.estimate import NoiseEstimate
from srjt.ordinal import Purpose
from srjt.ordinal.decoding import grade_rule_for
from srjt.settings import with_former_names
from srjt.training.config import ResolvedConfig, TrainConfig
from srjt.training.devices import amp_dtype
from srjt.training.noise_rate import WARM_UP_FOLDS, needs_estimate
from srjt.training.reporters import reporter_for
from srjt.training.train import train
from srjt.training.trained import Trained

# The settings of the training, from the parameters of the estimator: defaults depend on the data.

ROWS_PER_GRADE = 50  # on average; with fewer the noise is not estimated
SMALL_IMAGE = 64  # pixels a side: a small network up to this size, the paper's above it
FEW_STEPS = 500  # of a training on rows: with fewer, the default learning rate is too small
SMALL_RATE = 1e-3  # learning rate of a small network
SIZES = (32, 256)  # images are resized to a square with a side in this range

# parameters of the estimator that are settings of the same name
SAME = (
    "method",
    "noise_rate",
    "transition",
    "soft_labels",
    "epochs",
    "batch_size",
    "target_metric",
)


def training_config(parameters: Mapping[str, Any], manifest: Manifest) -> ResolvedConfig:
    """The settings for these samples. parameters: those of ``OrdinalNoiseClassifier``, by name."""
    given = dict(parameters["settings"] or {})
    for name in given:
        if name in (*parameters, "seed"):
            instead = "random_state" if name == "seed" else name
            raise SrjtError(
                f"{name} cannot be among the settings: it is the parameter {instead}.",
                code="conflict",
                option="settings",
            )
    network = parameters["network"]
    rate = parameters["learning_rate"]
    if not manifest.are_features:
        assert manifest.arrays is not None
        size = given.setdefault("image_size", int(np.clip(max(manifest.arrays.shape[1:3]), *SIZES)))
        given.setdefault("crop", size * 7 // 8)  # 224 of 256
        if network is None and size <= SMALL_IMAGE:
            network = registry.small_network()
        row = registry.known(network) if isinstance(network, str) else None
        if rate is None and row is not None and row.small:
            rate = SMALL_RATE
    config = TrainConfig().replace(
        **given,
        **{name: parameters[name] for name in SAME},
        network=network if isinstance(network, str) else None,
        method_options=parameters["method_options"] or {},
        seed=int(check_random_state(parameters["random_state"]).randint(2**31 - 1)),
    )
    # Incomplete batches are dropped: with even batches an epoch leaves out fewer rows.
    steps = -(-len(manifest) // parameters["batch_size"])
    if rate is None and manifest.are_features and parameters["epochs"] * steps < FEW_STEPS:
        rate = SMALL_RATE
    config = config.replace(batch_size=len(manifest) // steps, learning_rate=rate)
    return config.for_data(features=manifest.are_features, samples=len(manifest))


def without_estimate_if_few(config: ResolvedConfig, manifest: Manifest) -> ResolvedConfig:
    """Replace "auto" by noise rate 0 if there are too few rows for an estimate."""
    if not needs_estimate(config):
        return config
    rows = len(manifest)
    grades = manifest.num_classes
    groups = rows if manifest.patients is None else len(set(manifest.patients))
    if rows >= ROWS_PER_GRADE * grades and groups >= 2 * WARM_UP_FOLDS:
        return config
    what = f"{rows} rows"
    if groups < rows:
        what += f" of {groups} groups"
    warn(
        f"{what} are too few to estimate the noise of {grades} grades, so noise_rate 0 is used:"
        " pass it if you know it."
    )
    transition = np.eye(grades).tolist() if config.transition is None else config.transition
    return config.replace(noise_rate=0.0, transition=transition, soft_labels="paper")


# Probabilities of a fitted estimator for arrays: the mean over its networks.

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


@torch.no_grad()
def predict_rows(trained: Trained, X: Array, *, custom_network: bool) -> Floats:
    """(N, C) for rows of features. In float64, so that the result of a row does not depend on the
    others."""
    rows = as_features(X, what="X")
    if custom_network or not backbones.takes_rows(
        str(trained.config.network)
    ):  # it may require float32
        return np.asarray(trained.probabilities(rows)[0].mean(axis=0, dtype=np.float64))
    networks = copy.deepcopy(trained.networks).double().eval()
    parts = []
    for part in gen_batches(len(rows), trained.config.eval_batch_size):
        x = torch.from_numpy(rows[part].astype(np.float64)).to(trained.device)
        parts.append(trained.method.probabilities(networks(x)).mean(dim=0).cpu().numpy())
    return np.concatenate(parts)


def predict_images(trained: Trained, images: Array) -> Floats:
    """(N, C) for uint8 images (N, H, W, 3), which are resized as in training."""
    config = trained.config
    samples = unlabelled_samples(images, features=False, grades=trained.grades)
    with tempfile.TemporaryDirectory(prefix="srjt-") as cache:
        store = open_store(samples, size=config.image_size, resize=config.resize, cache=cache)
        return np.asarray(trained.probabilities(store.pixels)[0].mean(axis=0, dtype=np.float64))


# ``OrdinalNoiseClassifier``, with the interface of scikit-learn.


class OrdinalNoiseClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of ordinal grades for labels that are partly wrong, with the interface of
    scikit-learn.

    Grades may be of any type that can be sorted. Numbers are ordered as numbers, strings that end
    in a number ("Mayo 2") by that number, an ordered pandas categorical by its categories. The
    order of other strings is never guessed: list them with ``grades``.

    Parameters
    ----------
    method : str
        One of ``srjt.methods.names()``.
    noise_rate : float, "auto" or None
        The share of wrong labels. ``"auto"`` estimates it from the training rows with a short
        cross-fitted warm-up, which keeps each of ``groups`` together. With fewer than 50 rows per
        grade, or fewer than 6 groups, nothing can be estimated: then 0 is used, with a warning.
    transition : array of shape (C, C), optional
        P[i, j] = Pr(label j | true grade i), for methods that use it. ``noise_rate="auto"``
        estimates it as well.
    soft_labels : {"paper", "estimated"}
        The paper's soft labels, or p(true grade | label) from the estimated noise.
    network : str or callable, optional
        A name, or a function without arguments that returns a torch module. Default: for rows
        ``mlp``, with srjt ``odds`` or ``mlp``, whichever makes held-out labels likelier; ``tiny``
        for images of at most 64 pixels a side, ``resnet18`` with ImageNet weights for larger ones.
    epochs : int
        Number of epochs.
    batch_size : int
        Largest batch size; all batches get the same size.
    learning_rate : float, optional
        Default: 1e-4 for large networks on images, 1e-3 for ``tiny``; for rows 3e-4, or 1e-3 if
        there are fewer than 500 steps.
    method_options : dict, optional
        Options of the method.
    settings : dict, optional
        Any other field of ``TrainConfig``, such as ``{"weight_decay": 0.01, "crop": 28}``.
    target_metric : {"mae", "accuracy", "qwk", "macro_f1"}
        The metric that ``predict`` is for: the most likely grade for accuracy and macro_f1, the
        median for mae and qwk.
    grades : sequence or "sorted", optional
        All grades from mild to severe, also those without samples. ``"sorted"``: the labels in
        alphabetical order. Default: the order of the labels if it is known (see above), else an
        error.
    random_state : int, RandomState or None
        Seed.
    verbose : int
        1 shows the progress as ``srjt train`` does.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. Default: a GPU if there is one.

    Attributes
    ----------
    classes_ : ndarray, shape (C,)
        The grades from mild to severe.
    n_features_in_ : int
        Number of columns, or of values per image.
    noise_rate_ : float or None
        The noise rate that the method used; None if it needs none.
    transition_ : ndarray, shape (C, C), or None
        The transition matrix that was given or estimated.
    noise_estimate_ : NoiseEstimate or None
        None if nothing was estimated.
    selected_ : ndarray, shape (N,)
        Share of the epochs in which a row was selected as clean; nan if it was in no batch.
    history_ : DataFrame
        Every metric of every epoch.
    n_iter_ : int
        Number of epochs.
    trained_ : Trained
        The networks.

    Examples
    --------
    >>> import numpy as np
    >>> from srjt import OrdinalNoiseClassifier
    >>> y = np.arange(200) % 4
    >>> X = np.random.default_rng(0).normal(size=(200, 5)) + y[:, None]
    >>> model = OrdinalNoiseClassifier(noise_rate=0.2, epochs=2, random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape
    (200, 4)
    """

    classes_: Array
    n_features_in_: int
    noise_rate_: float | None
    transition_: Floats | None
    noise_estimate_: NoiseEstimate | None
    selected_: Floats
    history_: pd.DataFrame
    n_iter_: int
    trained_: Trained

    @with_former_names
    def __init__(
        self,
        *,
        method: str = "srjt",
        noise_rate: float | Literal["auto"] | None = "auto",
        transition: npt.ArrayLike | None = None,
        soft_labels: Literal["paper", "estimated"] = "paper",
        network: str | Callable[[], nn.Module] | None = None,
        epochs: int = 30,
        batch_size: int = 64,
        learning_rate: float | None = None,
        method_options: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        target_metric: Purpose = "mae",
        grades: Sequence[Any] | Literal["sorted"] | None = None,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
    ) -> None:
        self.method = method
        self.noise_rate = noise_rate
        self.transition = transition
        self.soft_labels = soft_labels
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.method_options = method_options
        self.settings = settings
        self.target_metric = target_metric
        self.grades = grades
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def fit(
        self, X: Any, y: Any, groups: Any = None, verified: Any = None, sample_weight: Any = None
    ) -> OrdinalNoiseClassifier:
        """Train. Only temporary files are written.

        Parameters
        ----------
        X : array
            Rows (N, F), or uint8 images (N, H, W, 3) or (N, H, W, 1).
        y : array of shape (N,)
            The grades, some of them wrong.
        groups : array of shape (N,), optional
            Patients, which the warm-up keeps together.
        verified : array of shape (N,), optional
            The true grades of a random sample of the rows, as in ``y``; None or nan for the others.
            With 17 or more the estimate of the noise is unbiased; without ``noise_rate="auto"``
            they are not used.
        sample_weight : array of shape (N,), optional
            How much each row counts, as if it were there so many times: a row is in a batch the
            more often, the larger its weight, and never with weight 0. ``odds`` weights its
            likelihood instead. The estimate of the noise counts all rows alike.

        Returns
        -------
        OrdinalNoiseClassifier
            The fitted classifier.
        """
        grades = self.grades if self.grades is not None else ordered_categories(y)
        if _are_images(X):
            self.n_features_in_ = int(np.prod(X.shape[1:]))
            X = as_colour(np.asarray(X))
            y = column_or_1d(y, warn=True)
        else:
            X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), ensure_min_samples=2)
            X = as_features(X, what="X")
        check_consistent_length(X, y, groups, verified)
        check_classification_targets(y)
        classes, codes = grade_codes(y, grades=grades)
        ids = [str(row) for row in range(len(X))]
        table = pd.DataFrame({"id": ids, "image": ids, "grade": codes})
        if groups is not None:
            table["patient"] = [str(group) for group in column_or_1d(groups)]
        if verified is not None:
            table["verified_grade"] = verified_codes(verified, classes)
        manifest = Manifest(
            table=table,
            grades=tuple(str(name) for name in classes),
            arrays=X,
            weights=_checked_weights(sample_weight, len(X)),
        )
        config = training_config(self.get_params(deep=False), manifest)
        maker = None if isinstance(self.network, str) else self.network

        reporter = reporter_for(quiet=not self.verbose)
        with reporter, tempfile.TemporaryDirectory(prefix="srjt-") as cache:
            options: dict[str, Any] = {"network": maker, "device": self.device, "cache": cache}
            try:
                config = without_estimate_if_few(config, manifest)
                trained = train(manifest, config=config, reporter=reporter, **options)
            except Interrupted as stop:
                if stop.status == 128 + signal.SIGINT:  # as a notebook expects
                    raise KeyboardInterrupt from None
                raise
        # used only for training on a GPU, and they cannot be pickled
        trained.networks.streams = []
        trained.networks.compiled = []

        self.classes_ = classes
        used = trained.config
        self.noise_estimate_ = trained.noise_estimate
        self.noise_rate_ = used.known_noise_rate
        matrix: npt.ArrayLike | None = used.transition
        if (
            matrix is None
            and trained.noise_estimate is not None
            and trained.noise_estimate.informed
        ):
            matrix = trained.noise_estimate.transition
        self.transition_ = None if matrix is None else np.asarray(matrix, dtype=np.float64)
        self.selected_ = _selected(trained)
        self.history_ = trained.metrics
        self.n_iter_ = used.epochs
        self.trained_ = trained
        return self

    def predict(self, X: Any) -> Array:
        """Predict the grades, by the rule that serves ``target_metric``.

        Parameters
        ----------
        X : array
            Rows or images, as for ``fit``.

        Returns
        -------
        ndarray, shape (N,)
        """
        probabilities = torch.from_numpy(self.predict_proba(X))
        # there is no validation side to fit thresholds to
        method = self.trained_.method
        rule = grade_rule_for(self.target_metric, soft_labels=method.learnt_soft_labels())
        # one network's most likely grade is its method's own grade, which differs for Garg and CORN
        if rule.decoding == "argmax" and method.networks == 1:
            grades = method.grades_of(probabilities[None])[0]
        else:
            grades = rule.grades(probabilities)
        return np.asarray(self.classes_[grades.numpy()])

    def predict_proba(self, X: Any) -> Floats:
        """Predict probabilities, the mean of those of the networks.

        Parameters
        ----------
        X : array
            Rows or images, as for ``fit``.

        Returns
        -------
        ndarray, shape (N, C)
            Columns in the order of ``classes_``.
        """
        check_is_fitted(self)
        trained = self.trained_
        if len(trained.in_shape) == 1:
            X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
            probabilities = predict_rows(trained, X, custom_network=callable(self.network))
        else:
            if not _are_images(X):
                raise SrjtError(
                    "The classifier was fitted to images: X is (N, H, W, 3) or (N, H, W, 1).",
                    code="wrong_shape",
                    option="X",
                )
            probabilities = predict_images(trained, as_colour(np.asarray(X)))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities

    def predict_severity(self, X: Any) -> Floats:
        """Predict the expected grade.

        Parameters
        ----------
        X : array
            Rows or images, as for ``fit``.

        Returns
        -------
        ndarray, shape (N,)
            On the scale of ``y`` if the grades are numbers; else on the scale of their positions, 0
            (mildest) … C − 1.
        """
        probabilities = self.predict_proba(X)
        numbers = self.classes_.dtype.kind in "iuf"
        scale = self.classes_.astype(np.float64) if numbers else np.arange(len(self.classes_))
        return np.asarray(probabilities @ scale, dtype=np.float64)

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: the networks are moved to the CPU, so that a machine without a GPU can open
        them."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "trained_" in state:
            state["trained_"] = _move_to_cpu(state["trained_"])
        return state


def _are_images(X: Any) -> bool:
    return getattr(X, "ndim", None) == 4


def _checked_weights(given: Any, rows: int) -> Floats | None:
    """(N,) weights of the rows; None if there are none."""
    if given is None:
        return None
    weights = np.asarray(given, dtype=np.float64)
    if weights.shape != (rows,):
        raise SrjtError(
            f"sample_weight needs one number per row: shape ({rows},), not {weights.shape}.",
            code="wrong_shape",
            option="sample_weight",
        )
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise SrjtError(
            "sample_weight must not be negative or NaN.",
            code="out_of_bounds",
            option="sample_weight",
        )
    if not weights.any():
        raise SrjtError(
            "sample_weight is zero for all rows: there is nothing to learn from.",
            code="wrong_values",
            option="sample_weight",
        )
    return weights


def _selected(trained: Trained) -> Floats:
    """(N,) share of the times a row was selected as clean, mean over the networks."""
    seen = trained.history["seen"].to_numpy(np.float64)
    if not isinstance(trained.method, JointTraining):
        return np.where(seen > 0, 1.0, np.nan)
    names = [f"selected_{k + 1}" for k in range(trained.method.networks)]
    times = trained.history[names].to_numpy(np.float64).mean(axis=1)
    return np.asarray(np.divide(times, seen, out=np.full(len(seen), np.nan), where=seen > 0))


def _move_to_cpu(trained: Trained) -> Trained:
    if trained.device.type == "cpu":
        return trained
    cpu = torch.device("cpu")
    dtype = amp_dtype(trained.config, cpu) or torch.float32
    return replace(
        trained,
        networks=copy.deepcopy(trained.networks).cpu(),
        method=trained.method.to(cpu),
        preprocess=replace(trained.preprocess, dtype=dtype),
        device=cpu,
    )
