"""The methods of the paper, further baselines, our recipe, and yours.

``names()`` lists them, ``create(name, …)`` makes one. Here are the table of those that come with
srjt, how a method is registered, looked up and made, and the plug-ins that add more. Classes are
imported on first use, because they load torch; nothing here does, so ``srjt methods`` answers at
once.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from srjt.errors import Option, SrjtError, UnknownNameError, lazy_names, unknown_name, warn

if TYPE_CHECKING:
    from srjt.methods.base import Loss as Loss, Method as Method, SingleNetwork as SingleNetwork
    from srjt.methods.joint import JointTraining as JointTraining
    from srjt.ordinal.losses import Convention

# Methods from outside: modules named by ``--import``, and installed packages with an entry point
# ``srjt.methods``.

GROUP = "srjt.methods"


def import_modules(names: Iterable[str]) -> None:
    """Import modules that register methods. Modules in the current folder are found too."""
    for name in names:
        if os.getcwd() not in sys.path:
            sys.path.append(
                os.getcwd()
            )  # a console script has its own folder there; last, to shadow nothing
        try:
            importlib.import_module(name)
        except Exception as problem:
            raise SrjtError(
                f"--import {name}: the module cannot be imported ({_reason(problem)})."
            ) from problem


@cache
def load_entry_points() -> frozenset[str]:
    """Load the methods of installed packages, once, when methods are first listed or looked up: the
    packages.

    A broken plug-in is a warning: all other methods still work.
    """
    from importlib.metadata import (
        entry_points,
    )  # here: it takes a while, and a help page needs none

    plugins = entry_points(group=GROUP)
    for plugin in plugins:
        try:
            plugin.load()
        except Exception as problem:
            package = plugin.dist.name if plugin.dist is not None else plugin.value
            warn(
                f"The plug-in {plugin.name!r} of the package {package} cannot be loaded, so its"
                f" methods are missing ({_reason(problem)})."
            )
    return frozenset(plugin.module.partition(".")[0] for plugin in plugins)


def _reason(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"


# Methods by name: registering, listing, creating. torch is loaded when a method's class is needed,
# not before.

M = TypeVar("M", bound="type[Method]")

_COMMON = {"num_classes", "noise_rate", "transition", "convention"}  # create()'s own arguments
_REGISTRY: dict[str, RegisteredMethod] = {}


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


def register(
    name: str,
    *,
    scores: str,
    updates: str,
    paper: str,
    recipe: Recipe | None = None,
    **defaults: Any,
) -> Callable[[M], M]:
    """Give a method its name, as a decorator of its class.

    Parameters
    ----------
    name : str
        The name in ``srjt train --method NAME`` and ``srjt.methods.create``.
    scores, updates, paper : str
        How it judges samples, what it learns from and where it was published: the columns of ``srjt
        methods``.
    recipe : Recipe, optional
        How it is trained by default. Default: as the paper trains all methods.
    **defaults
        Preset options of a variant: "+ours" is its host registered once more with
        ``update="soft"``.

    Examples
    --------
    >>> from srjt.methods import CoTeaching, register
    >>> _ = register("mine", scores="ℓ_h(τ)", updates="soft label", paper="mine", update="soft")(CoTeaching)
    """

    def enter(method: M) -> M:
        row = RegisteredMethod(
            name=name,
            location=f"{method.__module__}:{method.__qualname__}",
            registered=method,
            networks=method.networks,
            needs=method.needs,
            scores=scores,
            updates=updates,
            paper=paper,
            defaults=MappingProxyType(defaults),
            recipe=recipe or Recipe(),
        )
        registered = _REGISTRY.get(name)
        # the same class once more is a notebook cell run again
        if registered and registered.location != row.location:
            raise SrjtError(f"A method named {name!r} exists already; choose another name.")
        _REGISTRY[name] = row
        return method

    return enter


def names() -> tuple[str, ...]:
    """Names of all methods: in the paper's order, then further baselines, our recipe, and your own.

    Examples
    --------
    >>> import srjt
    >>> srjt.methods.names()[:3]
    ('standard', 'sord', 'label-smooth')
    """
    return tuple(_registry())


def plain_names() -> tuple[str, ...]:
    """Names of the paper's fourteen methods and of your own, but for recipes. What ``all`` means in
    a study.

    Examples
    --------
    >>> import srjt
    >>> "srjt" in srjt.methods.plain_names()
    False
    """
    return tuple(name for name, row in _registry().items() if row.compared and not row.is_recipe)


def lookup(name: str, *, registered_by: Sequence[str] = ()) -> RegisteredMethod:
    """What is known of a method: its class, what it needs, what it scores by and learns from.

    Parameters
    ----------
    name : str
        Name of the method. A misspelt name is an error that suggests the nearest.
    registered_by : sequence of str
        Modules that are known to register it; the error names those that are not imported.

    Examples
    --------
    >>> import srjt
    >>> srjt.methods.lookup("jocor").needs
    ('noise_rate',)
    """
    row = _registry().get(name)
    if row is None:
        if missing := [module for module in registered_by if module not in sys.modules]:
            raise SrjtError(
                f"The method {name!r} is registered by {missing[0]}, which is not imported: "
                f"add --import {missing[0]} to the command, or import {missing[0]} first in Python."
            )
        unknown = unknown_name("method", name, _registry())
        raise UnknownNameError(
            unknown,
            " One of your own is known once its module is imported (",
            Option("imports"),
            ").",
            code=unknown.code,
        )
    return row


def is_known_to_workers(name: str, *, registered_by: Sequence[str] = ()) -> bool:
    """Whether a new process knows the method: not if this session alone has registered it.

    registered_by: modules that the process imports.
    """
    method = lookup(name).registered
    return (
        not method
        or bool(registered_by)
        or method.__module__.partition(".")[0] in load_entry_points()
    )


def options(name: str) -> tuple[str, ...]:
    """The options that ``create(name, …)`` takes beyond the common ones.

    Parameters
    ----------
    name : str
        Name of the method; ``names()`` lists them.

    Examples
    --------
    >>> from srjt import methods
    >>> methods.options("label-smooth")
    ('smoothing',)
    """
    method = lookup(name).method
    hidden = _COMMON | method.unused_options()
    return tuple(f.name for f in fields(method) if f.init and f.name not in hidden)


def create(
    name: str,
    *,
    num_classes: int,
    noise_rate: float | None = None,
    transition: Any = None,
    convention: Convention = "paper",
    **chosen: Any,
) -> Method:
    """Make a method: a frozen object that turns logits and labels into a loss and a selection.

    Parameters
    ----------
    name : str
        Name of the method; ``names()`` lists them.
    num_classes, noise_rate, transition, convention
        As for ``Method``. Methods that do not need the rate or the matrix ignore it: a comparison
        can pass it to all.
    **chosen
        Options of the method; ``options(name)`` lists them.

    Examples
    --------
    >>> import srjt
    >>> method = srjt.methods.create("jocor+ours", num_classes=4, noise_rate=0.2)
    >>> method.networks, method.tau
    (2, 0.1)
    """
    row = lookup(name)
    for option in chosen:
        if option not in options(name):
            raise unknown_name(f"option of {name}", option, options(name))
    noise = {"noise_rate": noise_rate, "transition": transition}
    for need in row.needs:
        if noise[need] is None:
            raise SrjtError(f"{name} needs {_WHAT[need]}")
    method = row.method(
        num_classes=num_classes, **noise, convention=convention, **{**row.defaults, **chosen}
    )
    method.check_options()
    return method


def _registry() -> dict[str, RegisteredMethod]:
    """All methods, after those of installed packages have been loaded."""
    load_entry_points()
    return _REGISTRY


_WHAT = {
    "noise_rate": (
        "the share of wrong labels: pass noise_rate=… (0.2 if a fifth of the labels is wrong)."
    ),
    "transition": (
        "the matrix of label errors: pass transition=…, for example "
        'srjt.noise.transition_matrix("quasi", num_classes=4, rho=0.1).'
    ),
}


# The methods that come with srjt: a row each, and no code. The paper's fourteen in the order of its
# tables, six further baselines, and our recipe.
#
# A row names its class by module, so that ``srjt methods`` and the settings read the table without
# loading torch.
#
# "+ours" is Self-Relaxed Joint Training (Takezaki et al., WACV 2025) on a host, that is, on the
# joint method that it is added to: rank by the hard loss, sharpened by τ = 0.1; learn from the soft
# label (Algorithms 1–3). A host becomes "+ours" by a row with ``update="soft"``.

OURS = "Takezaki et al., WACV 2025"


def _one(name: str, where: str, updates: str, paper: str, **about: Any) -> RegisteredMethod:
    return RegisteredMethod(
        name=name, location=f"srjt.methods.{where}", updates=updates, paper=paper, **about
    )


def _two(name: str, where: str, scores: str, updates: str, paper: str) -> RegisteredMethod:
    defaults = {"update": "soft"} if name.endswith("+ours") else {}
    needs = ("noise_rate",)
    return _one(
        name, where, updates, paper, scores=scores, networks=2, needs=needs, defaults=defaults
    )


METHODS = (
    # the name, the class, how it judges samples (of two networks), what it learns from, where it
    # was published
    _one("standard", "single:Standard", "hard label", "baseline"),
    _one("sord", "single:Sord", "soft label", "Díaz & Marathe, CVPR 2019"),
    _one("label-smooth", "single:LabelSmooth", "label smoothed by 0.1", "Szegedy et al., CVPR 2016"),
    _one("f-correction", "single:ForwardCorrection", "−log (Pᵀp) at the label", "Patrini et al., CVPR 2017",
         needs=("transition",)),
    _one("reweight", "single:Reweight", "weighted hard label", "Liu & Tao, TPAMI 2016", needs=("transition",),
         scores="p / (Pᵀp), a weight"),
    _one("mixup", "single:Mixup", "blended hard labels", "Zhang et al., ICLR 2018"),
    _one("cdr", "single:Cdr", "hard label, critical weights", "Xia et al., ICLR 2021", needs=("noise_rate",),
         scores="|w·g| of each weight"),
    _one("garg", "single:Garg", "Σ_j (P⁻¹)_ỹj ℓ_coral(j)", "Garg & Manwani, ACML 2020", needs=("transition",)),
    _two("co-teaching", "joint:CoTeaching", "ℓ_h", "hard label, peer's choice", "Han et al., NeurIPS 2018"),
    _two("jocor", "joint:JoCor", "ℓ_h1 + ℓ_h2 + λD", "hard label + λD, common choice", "Wei et al., CVPR 2020"),
    _two("codis", "joint:CoDis", "ℓ_h − λD", "hard label, peer's choice", "Xia et al., ICCV 2023"),
    _two("co-teaching+ours", "joint:CoTeaching", "ℓ_h(τ)", "soft label, peer's choice", OURS),
    _two("jocor+ours", "joint:JoCor", "ℓ_h1(τ) + ℓ_h2(τ) + λD(τ)", "soft label + λD, common choice", OURS),
    _two("codis+ours", "joint:CoDis", "ℓ_h(τ) − λD(τ)", "soft label, peer's choice", OURS),
    # Baselines that the paper does not compare with; ``all`` in a study leaves them out.
    _one("eae", "single:ExpectedAbsoluteError", "E_p |grade − label| after cross-entropy", "this project",
         compared=False),
    _one("gce", "single:GeneralisedCrossEntropy", "(1 − p^q) / q", "Zhang & Sabuncu, NeurIPS 2018", compared=False),
    _one("elr", "single:EarlyLearning", "hard label + λ log(1 − ⟨running average, p⟩)", "Liu et al., NeurIPS 2020",
         compared=False),
    _one("sce", "single:SymmetricCrossEntropy", "−α log p − βA (1 − p)", "Wang et al., ICCV 2019", compared=False),
    _one("corn", "single:Corn", "Pr(grade > k | grade ≥ k) for all k ≤ label", "Shi et al., PAA 2023",
         compared=False),
    _one("cdw-ce", "single:ClassDistanceWeighted", "−Σ_c |c − label|^α log(1 − p^c)", "Polat et al., MIUA 2022",
         compared=False),
    # Our recipe, told nothing: the matrix of label errors is estimated.
    # benchmarks/recipe_on_features.py says what it is worth; this is the only place to change it.
    _one("srjt", "joint:ForwardAgreement", "−log (Pᵀp) at the label, P estimated; λD on all samples", "this project",
         networks=2, needs=("transition",),
         recipe=Recipe(
             noise_rate="auto",
             for_images={"optimizer": "adamw", "schedule": "cosine", "warmup_epochs": 1, "learning_rate": 1e-3},
             length_by_size=True,
             for_features={"co_lambda": 4.0},
         ),
         defaults={"co_lambda": 10.0, "grows_with": "fit"}),
)  # fmt: skip

_REGISTRY.update((row.name, row) for row in METHODS)

__all__, __getattr__, __dir__ = lazy_names(__name__, [row.location for row in METHODS])
__all__ += [
    "Recipe",
    "RegisteredMethod",
    "create",
    "lookup",
    "names",
    "options",
    "plain_names",
    "register",
]
