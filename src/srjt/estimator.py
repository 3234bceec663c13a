"""The scikit-learn face: the same training, as an estimator that fits into pipelines and searches."""

from __future__ import annotations

import copy
import re
import signal
import tempfile
import warnings
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
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import nn

from srjt.data.features import as_features
from srjt.data.images.store import open_store
from srjt.data.manifest import Manifest
from srjt.data.sources.arrays import as_colour
from srjt.errors import Interrupted, SrjtError
from srjt.methods import JointTraining
from srjt.networks import backbones
from srjt.noise.estimate import NoiseEstimate
from srjt.training.config import TrainConfig
from srjt.training.engine.devices import amp_dtype
from srjt.training.record.reporters import reporter_for
from srjt.training.resolve_noise import WARM_UP_FOLDS, needs_estimate
from srjt.training.train import train
from srjt.training.trained import Trained

__all__ = ["OrdinalNoiseClassifier"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

ENOUGH = 50  # labels per grade, on average, below which nothing is said about their noise
SMALL_IMAGE = 64  # pixels a side: up to here the small network, above it the paper's
FEW_STEPS = 500  # of a training on rows: below, the usual learning rate would not get far
SIZES = (32, 256)  # images are brought to a square between these
_NUMBERED = re.compile(r"^(?P<stem>.*?)(?P<number>\d+)$", re.DOTALL)


class OrdinalNoiseClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Severity grades learnt from labels that are partly wrong.

    ``X`` is (N, F) features or tabular rows, or (N, H, W, 3), (N, H, W, 1) uint8 images; ``y`` (N,) holds grades
    of any type that can be sorted. Numbers are ordered as numbers, texts that end in one ("Mayo 2") by it, an
    ordered pandas categorical by its categories, other texts by the alphabet and with a warning.

    - ``method``: one of ``srjt.methods.names()``; ``method_options`` are its own options.
    - ``noise_rate``: the share of wrong labels, or ``"auto"``: estimated from the training rows by a short
      cross-fitted warm-up that keeps each of ``groups`` together. With fewer than 50 rows per grade, or fewer
      than 6 groups, nothing can be estimated; then 0 is used, with a warning.
    - ``transition``: (C, C), P[i, j] = Pr(label j | true grade i), for methods that correct by it; ``"auto"``
      finds it as well. ``soft_labels="estimated"``: p(true | label) instead of the paper's soft labels.
    - ``network``: a name, or a function without arguments that makes a torch module; None: ``mlp`` for rows,
      ``tiny`` for images of up to 64 pixels a side, ``resnet18`` with ImageNet weights for larger ones.
    - ``epochs``, ``batch_size`` (at most; batches are evened out), ``learning_rate`` (None: 1e-4 for large
      networks on images, 1e-3 for ``tiny``; for rows 3e-4, or 1e-3 where there are fewer than 500 steps).
    - ``settings``: any other field of ``TrainConfig``, such as ``{"weight_decay": 0.01, "crop": 28}``.
    - ``grades``: all grades from mild to severe, also those that do not occur.
    - ``random_state``, ``verbose`` (1: progress as of ``srjt train``), ``device`` (None: a GPU if there is one).

    After ``fit``: ``classes_`` (from mild to severe), ``n_features_in_``, ``noise_rate_`` and ``transition_``
    (what the method was told; None if nothing), ``noise_estimate_`` (None if nothing was estimated),
    ``selected_`` (N,): share of the epochs in which a row was taken as clean, nan if it was never looked at,
    ``history_``: every metric of every epoch, ``n_iter_``: epochs, ``trained_``: the networks.
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

    def __init__(
        self,
        *,
        method: str = "co-teaching+ours",
        noise_rate: float | Literal["auto"] | None = "auto",
        transition: npt.ArrayLike | None = None,
        soft_labels: Literal["paper", "estimated"] = "paper",
        network: str | Callable[[], nn.Module] | None = None,
        epochs: int = 30,
        batch_size: int = 64,
        learning_rate: float | None = None,
        method_options: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        grades: Sequence[Any] | None = None,
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
        self.grades = grades
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any, groups: Any = None) -> OrdinalNoiseClassifier:
        """Learn from ``X`` with the labels ``y`` (N,); ``groups`` (N,) are patients, kept together in the warm-up.

        Nothing is written but temporary files.
        """
        grades = self.grades if self.grades is not None else _categories(y)
        if _are_images(X):
            self.n_features_in_ = int(np.prod(X.shape[1:]))
            X = as_colour(np.asarray(X))
            y = column_or_1d(y, warn=True)
        else:
            X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), ensure_min_samples=2)
            X = as_features(X, what="X")
        check_consistent_length(X, y, groups)
        check_classification_targets(y)
        classes, codes = grade_codes(y, grades=grades)
        manifest = _manifest(X, codes, names=[str(name) for name in classes], groups=groups)
        config = self._config(manifest)
        maker = None if isinstance(self.network, str) else self.network

        reporter = reporter_for(quiet=not self.verbose)
        with reporter, tempfile.TemporaryDirectory(prefix="srjt-") as cache:
            where: dict[str, Any] = {"network": maker, "device": self.device, "cache": cache}
            try:
                config = _without_estimate_if_few(manifest, config)
                trained = train(manifest, config=config, reporter=reporter, **where)
            except Interrupted as stop:
                if stop.status == 128 + signal.SIGINT:  # what a notebook expects
                    raise KeyboardInterrupt from None
                raise
        # what only a training on a GPU needs, and no pickle can hold
        trained.networks.streams, trained.networks.compiled = [], []

        self.classes_ = classes
        used = trained.config
        self.noise_estimate_ = trained.noise_estimate
        self.noise_rate_ = used.known_noise_rate
        matrix: npt.ArrayLike | None = used.transition
        if matrix is None and trained.noise_estimate is not None:
            matrix = trained.noise_estimate.transition
        self.transition_ = None if matrix is None else np.asarray(matrix, dtype=np.float64)
        self.selected_ = _selected(trained)
        self.history_ = trained.metrics
        self.n_iter_ = used.epochs
        self.trained_ = trained
        return self

    def predict(self, X: Any) -> Array:
        """(N,) the most probable grades."""
        places = self.predict_proba(X).argmax(axis=1)
        grades: Array = self.classes_[places]
        return grades

    def predict_proba(self, X: Any) -> Floats:
        """(N, C) probabilities, in the order of ``classes_``; of two networks the mean."""
        check_is_fitted(self)
        trained = self.trained_
        if len(trained.in_shape) == 1:
            X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
            probabilities = _of_rows(trained, X, named=not callable(self.network))
        else:
            if not _are_images(X):
                raise SrjtError(
                    "This classifier was fitted to images: X must be (N, H, W, 3) or (N, H, W, 1)."
                )
            probabilities = _of_images(trained, as_colour(np.asarray(X)))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities

    def predict_severity(self, X: Any) -> Floats:
        """(N,) the expected grade: on the scale of ``y`` where the grades are numbers, so that it can be compared
        with them; else on that of their positions, 0 (mildest) … C − 1."""
        probabilities = self.predict_proba(X)
        numbers = self.classes_.dtype.kind in "iuf"
        scale = self.classes_.astype(np.float64) if numbers else np.arange(len(self.classes_))
        severity: Floats = probabilities @ scale
        return severity

    def _config(self, manifest: Manifest) -> TrainConfig:
        """The settings of the training; what was left open is decided by the data."""
        given = dict(self.settings or {})
        for name in given:
            if name in (*self.get_params(deep=False), "seed"):
                instead = "random_state" if name == "seed" else name
                raise SrjtError(f"{name} is not for settings: it is the estimator's own parameter {instead}.")
        network, rate = self.network, self.learning_rate
        if not manifest.are_features:
            assert manifest.arrays is not None
            size = given.setdefault("image_size", int(np.clip(max(manifest.arrays.shape[1:3]), *SIZES)))
            given.setdefault("crop", size * 7 // 8)  # 224 of 256
            if network is None and size <= SMALL_IMAGE:
                network = "tiny"
            if rate is None and network in ("tiny", "tiny-gn"):
                rate = 1e-3
        # A trial of what is fastest would be written to disk, and its outcome changes the last bits.
        config = TrainConfig(tune_cpu=False).replace(
            **given,
            method=self.method,
            noise_rate=self.noise_rate,
            transition=self.transition,
            soft_labels=self.soft_labels,
            network=network if isinstance(network, str) else None,
            epochs=self.epochs,
            batch_size=self.batch_size,
            method_options=self.method_options or {},
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        # Incomplete batches are dropped: even ones leave fewer rows out of an epoch.
        steps = -(-len(manifest) // config.batch_size)
        if rate is None and manifest.are_features and config.epochs * steps < FEW_STEPS:
            rate = 1e-3
        config = config.replace(batch_size=len(manifest) // steps, learning_rate=rate)
        return config.for_data(features=manifest.are_features)

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: the networks on the CPU, so that they can be opened where there is no GPU."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "trained_" in state:
            state["trained_"] = _on_cpu(state["trained_"])
        return state


def grade_codes(y: Array, *, grades: Sequence[Any] | None = None) -> tuple[Array, Ints]:
    """(C,) the grades from mild to severe, and (N,) the place of each label among them."""
    try:
        present = np.unique(y)
    except TypeError:
        raise SrjtError("The labels are of different types, which cannot be sorted: use one type.") from None
    if len(present) < 2:
        raise SrjtError(f"All labels are of one class, {present[0]}: there is nothing to learn.")
    if grades is None:
        classes = _ordered(present)
    else:
        listed = list(grades)
        if len(set(listed)) < max(len(listed), 2):
            raise SrjtError(f"grades must list at least two grades, each once; got {listed}.")
        classes = np.array(listed, dtype=object if y.dtype == object else None)
    code_of = {grade: code for code, grade in enumerate(classes.tolist())}
    unknown = [label for label in present.tolist() if label not in code_of]
    if unknown:
        raise SrjtError(
            f"The label {unknown[0]!r} is not among the grades {classes.tolist()}. (cross_val_predict replaces texts "
            "by numbers in alphabetical order when it is asked for probabilities: use whole numbers as labels there.)"
        )
    return classes, np.array([code_of[label] for label in y.tolist()], dtype=np.int64)


def _ordered(present: Array) -> Array:
    """Sorted values in the order of severity, as far as they show one."""
    if not all(isinstance(value, str) for value in present.tolist()):
        return present
    parsed = [_NUMBERED.match(value) for value in present.tolist()]
    matches = [match for match in parsed if match]
    if len(matches) == len(present) and len({match["stem"].strip(" _-") for match in matches}) == 1:
        by_number: Array = present[np.argsort([int(match["number"]) for match in matches], kind="stable")]
        return by_number
    shown = ", ".join(present.tolist()[:8]) + (", …" if len(present) > 8 else "")
    warnings.warn(
        f"The order of the grades cannot be known from their names, so it is the alphabet's: {shown}. List them from "
        "mild to severe with grades=[…].",
        stacklevel=4,
    )
    return present


def _categories(y: Any) -> list[Any] | None:
    """The order that an ordered categorical brings along."""
    kind = getattr(y, "dtype", None)
    return list(kind.categories) if isinstance(kind, pd.CategoricalDtype) and kind.ordered else None


def _are_images(X: Any) -> bool:
    return getattr(X, "ndim", None) == 4


def _manifest(X: Array, codes: Ints, *, names: Sequence[str], groups: Any = None) -> Manifest:
    ids = [str(row) for row in range(len(X))]
    table = pd.DataFrame({"id": ids, "image": ids, "grade": codes})
    if groups is not None:
        table["patient"] = [str(group) for group in column_or_1d(groups)]
    return Manifest(table=table, grades=tuple(names), arrays=X)


def _without_estimate_if_few(manifest: Manifest, config: TrainConfig) -> TrainConfig:
    """Noise rate 0 in place of "auto" where there are too few rows to estimate it from."""
    if not needs_estimate(config):
        return config
    rows, grades = len(manifest), manifest.num_classes
    groups = rows if manifest.patients is None else len(set(manifest.patients))
    if rows >= ENOUGH * grades and groups >= 2 * WARM_UP_FOLDS:
        return config
    what = f"{rows} rows" + (f" of {groups} groups" if groups < rows else "")
    warnings.warn(
        f"{what} are too few to estimate the noise of {grades} grades, so all labels are taken as correct "
        "(noise_rate 0): pass noise_rate=… if you know it.",
        stacklevel=3,
    )
    transition = np.eye(grades).tolist() if config.transition is None else config.transition
    return config.replace(noise_rate=0.0, transition=transition, soft_labels="paper")


def _selected(trained: Trained) -> Floats:
    """(N,) how often a row was taken as clean when it was looked at, the networks averaged."""
    seen = trained.history["seen"].to_numpy(np.float64)
    if not isinstance(trained.method, JointTraining):
        return np.ones(len(seen))
    names = [f"selected_{k + 1}" for k in range(trained.method.networks)]
    times = trained.history[names].to_numpy(np.float64).mean(axis=1)
    share: Floats = np.divide(times, seen, out=np.full(len(seen), np.nan), where=seen > 0)
    return share


@torch.no_grad()
def _of_rows(trained: Trained, X: Array, *, named: bool) -> Floats:
    """(N, C) from rows of features. In float64, so that a row's answer does not depend on its neighbours."""
    rows = as_features(X, what="X")
    if not (named and backbones.takes_rows(str(trained.config.network))):  # one's own may insist on float32
        return _ensemble(trained.probabilities(rows)[0])
    networks = copy.deepcopy(trained.networks).double().eval()
    parts = []
    for part in gen_batches(len(rows), trained.config.eval_batch_size):
        x = torch.from_numpy(rows[part].astype(np.float64)).to(trained.device)
        parts.append(trained.method.probabilities(networks(x)).mean(dim=0).cpu().numpy())
    answer: Floats = np.concatenate(parts)
    return answer


def _of_images(trained: Trained, images: Array) -> Floats:
    """(N, C) from uint8 images (N, H, W, 3), brought to the size of training."""
    codes = np.zeros(len(images), dtype=np.int64)  # nobody looks at them
    config = trained.config
    with tempfile.TemporaryDirectory(prefix="srjt-") as cache:
        store = open_store(
            _manifest(images, codes, names=trained.grades),
            size=config.image_size,
            resize=config.resize,
            cache=cache,
        )
        return _ensemble(trained.probabilities(store.pixels)[0])


def _ensemble(probabilities: Array) -> Floats:
    """(K, N, C) of each network → (N, C)."""
    mean: Floats = probabilities.mean(axis=0, dtype=np.float64)
    return mean


def _on_cpu(trained: Trained) -> Trained:
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
