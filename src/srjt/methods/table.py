"""The methods that come with srjt: a row each, and no code. The paper's fourteen in the order of
its tables, six further baselines, and our recipe.

A row names its class by module, so that ``srjt methods`` and the settings read the table without
loading torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from srjt.methods.base import Method


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a method is trained by default. Without arguments: as the paper trains all methods.

    Parameters
    ----------
    noise_rate : "auto", optional
        ``"auto"``: the noise rate is estimated unless it is given.
    balance : float
        Grade c is drawn with probability ∝ n_c^(1 − balance).
    ramp_share : float, optional
        Share of the epochs until only 1 − ε of a batch is kept. Default: the method's own number of
        epochs.
    for_images : mapping
        Settings of a training on images that are other ones than the paper's, such as
        ``{"optimizer": "adamw"}``.
    length_by_size : bool
        Whether epochs and batch size of a training on images follow from their number; else they
        are the paper's.
    for_features : mapping
        Options of the method that are other ones for features than for images.

    Examples
    --------
    >>> from srjt.methods import Recipe
    >>> Recipe(noise_rate="auto", ramp_share=0.4).ramp_epochs(30)
    12
    """

    noise_rate: Literal["auto"] | None = None
    balance: float = 0.0
    ramp_share: float | None = None
    for_images: Mapping[str, Any] = field(default_factory=dict)
    length_by_size: bool = False
    for_features: Mapping[str, Any] = field(default_factory=dict)

    def ramp_epochs(self, epochs: int) -> int | None:
        """T' of a training of so many epochs; None: the method's own."""
        return None if self.ramp_share is None else max(1, round(self.ramp_share * epochs))


@dataclass(frozen=True, kw_only=True)
class RegisteredMethod:
    """What is known of a method: a row of the table that ``srjt methods`` prints, and its class."""

    name: str
    location: str  # "module:class", which is loaded when it is needed
    updates: str  # what it learns from
    paper: str
    scores: str = "–"  # how it judges samples
    networks: int = 1
    needs: tuple[str, ...] = ()  # of "noise_rate", "transition": what must be known before training
    defaults: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    compared: bool = True  # whether ``all`` in a study contains it, unless it is a recipe
    registered: type[Method] | None = None  # the class of a method from outside

    @property
    def method(self) -> type[Method]:
        """The class; loads torch."""
        module, _, name = self.location.partition(":")
        method: type[Method] = self.registered or getattr(importlib.import_module(module), name)
        return method

    @property
    def is_recipe(self) -> bool:
        """Whether it is trained in its own way: then it is no part of a comparison under equal
        conditions."""
        return self.recipe != Recipe()


# "+ours" is Self-Relaxed Joint Training (Takezaki et al., WACV 2025) on a host, that is, on the
# joint method that it is added to: rank by the hard loss, sharpened by τ = 0.1; learn from the soft
# label (Algorithms 1–3). A host becomes "+ours" by a row with ``update="soft"``.

OURS = "Takezaki et al., WACV 2025"


def _baseline(name: str, location: str, updates: str, paper: str, **more: Any) -> RegisteredMethod:
    where = f"srjt.methods.single:{location}"
    return RegisteredMethod(name=name, location=where, updates=updates, paper=paper, **more)


def _further(name: str, location: str, updates: str, paper: str) -> RegisteredMethod:
    """A baseline that the paper does not compare with; ``all`` in a study leaves it out."""
    return _baseline(name, location, updates, paper, compared=False)


def _host(name: str, location: str, scores: str, updates: str, paper: str) -> RegisteredMethod:
    return RegisteredMethod(
        name=name,
        location=f"srjt.methods.joint:{location}",
        scores=scores,
        updates=updates,
        paper=paper,
        networks=2,
        needs=("noise_rate",),
        defaults={"update": "soft"} if name.endswith("+ours") else {},
    )


METHODS = (
    # name, class, how a host judges samples, what the method learns from, where it was published
    _baseline("standard", "Standard", "hard label", "baseline"),
    _baseline("sord", "Sord", "soft label", "Díaz & Marathe, CVPR 2019"),
    _baseline("label-smooth", "LabelSmooth", "label smoothed by 0.1", "Szegedy et al., CVPR 2016"),
    _baseline(
        "f-correction",
        "ForwardCorrection",
        "−log (Pᵀp) at the label",
        "Patrini et al., CVPR 2017",
        needs=("transition",),
    ),
    _baseline(
        "reweight",
        "Reweight",
        "weighted hard label",
        "Liu & Tao, TPAMI 2016",
        needs=("transition",),
        scores="p / (Pᵀp), a weight",
    ),
    _baseline("mixup", "Mixup", "blended hard labels", "Zhang et al., ICLR 2018"),
    _baseline(
        "cdr",
        "Cdr",
        "hard label, critical weights",
        "Xia et al., ICLR 2021",
        needs=("noise_rate",),
        scores="|w·g| of each weight",
    ),
    _baseline(
        "garg",
        "Garg",
        "Σ_j (P⁻¹)_ỹj ℓ_coral(j)",
        "Garg & Manwani, ACML 2020",
        needs=("transition",),
    ),
    _host(
        "co-teaching", "CoTeaching", "ℓ_h", "hard label, peer's choice", "Han et al., NeurIPS 2018"
    ),
    _host(
        "jocor",
        "JoCor",
        "ℓ_h1 + ℓ_h2 + λD",
        "hard label + λD, common choice",
        "Wei et al., CVPR 2020",
    ),
    _host("codis", "CoDis", "ℓ_h − λD", "hard label, peer's choice", "Xia et al., ICCV 2023"),
    _host("co-teaching+ours", "CoTeaching", "ℓ_h(τ)", "soft label, peer's choice", OURS),
    _host(
        "jocor+ours", "JoCor", "ℓ_h1(τ) + ℓ_h2(τ) + λD(τ)", "soft label + λD, common choice", OURS
    ),
    _host("codis+ours", "CoDis", "ℓ_h(τ) − λD(τ)", "soft label, peer's choice", OURS),
    _further(
        "eae", "ExpectedAbsoluteError", "E_p |grade − label| after cross-entropy", "this project"
    ),
    _further("gce", "GeneralisedCrossEntropy", "(1 − p^q) / q", "Zhang & Sabuncu, NeurIPS 2018"),
    _further(
        "elr",
        "EarlyLearning",
        "hard label + λ log(1 − ⟨running average, p⟩)",
        "Liu et al., NeurIPS 2020",
    ),
    _further("sce", "SymmetricCrossEntropy", "−α log p − βA (1 − p)", "Wang et al., ICCV 2019"),
    _further("corn", "Corn", "Pr(grade > k | grade ≥ k) for all k ≤ label", "Shi et al., PAA 2023"),
    _further(
        "cdw-ce",
        "ClassDistanceWeighted",
        "−Σ_c |c − label|^α log(1 − p^c)",
        "Polat et al., MIUA 2022",
    ),
    # Our recipe, told nothing: the matrix of label errors is estimated.
    # benchmarks/recipe_on_features.py says what it is worth; this is the only place to change it.
    RegisteredMethod(
        name="srjt",
        location="srjt.methods.joint:ForwardAgreement",
        updates="−log (Pᵀp) at the label, P estimated; λD on all samples",
        paper="this project",
        networks=2,
        needs=("transition",),
        recipe=Recipe(
            noise_rate="auto",
            for_images={
                "optimizer": "adamw",
                "schedule": "cosine",
                "warmup_epochs": 1,
                "learning_rate": 1e-3,
            },
            length_by_size=True,
            for_features={"co_lambda": 4.0},
        ),
        defaults={"co_lambda": 10.0, "grows_with": "fit"},
    ),
)
