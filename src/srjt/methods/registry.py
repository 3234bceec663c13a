"""Methods by name: registering, listing, creating."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from srjt.errors import SrjtError, suggest
from srjt.methods.base import Method
from srjt.ordinal.selection import Convention

__all__ = ["Recipe", "RegisteredMethod", "create", "lookup", "names", "options", "plain_names", "register"]

M = TypeVar("M", bound=type[Method])

_COMMON = {"num_classes", "noise_rate", "transition", "convention"}  # create()'s own arguments
_REGISTRY: dict[str, RegisteredMethod] = {}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a method wants to be trained where nobody says otherwise; by default as the paper trains all of them."""

    noise_rate: Literal["auto"] | None = None  # auto: estimated, so that nobody has to know it
    least_rate: float = 0.0  # for lower estimates where no image shows a grade clearly
    balance: float = 0.0  # grade c is drawn ∝ n_c^(1 − balance)
    ramp_share: float | None = None  # of the epochs, until only 1 − ε is kept; None: the paper's 5 epochs

    def ramp_epochs(self, epochs: int) -> int | None:
        """T' of a training of so many epochs; None: the method's own."""
        return None if self.ramp_share is None else max(1, round(self.ramp_share * epochs))


@dataclass(frozen=True, kw_only=True)
class RegisteredMethod:
    """A row of the table that ``srjt methods`` prints."""

    name: str
    method: type[Method]
    scores: str  # how it judges samples
    updates: str  # what it learns from
    paper: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)

    @property
    def is_recipe(self) -> bool:
        """Whether it is trained in its own way: then it is no part of a comparison under equal conditions."""
        return self.recipe != Recipe()


def register(
    name: str, *, scores: str, updates: str, paper: str, recipe: Recipe | None = None, **defaults: Any
) -> Callable[[M], M]:
    """Class decorator that gives a method its name. ``defaults`` preset options of a variant:
    "+ours" is its host registered once more with ``update="soft"``. ``recipe``: how it is trained
    where nobody says otherwise."""

    def enter(method: M) -> M:
        known = _REGISTRY.get(name)  # the same class once more is a notebook cell run again
        if known and _where(known.method) != _where(method):
            raise SrjtError(f"A method named {name!r} exists already; choose another name.")
        _REGISTRY[name] = RegisteredMethod(
            name=name,
            method=method,
            scores=scores,
            updates=updates,
            paper=paper,
            defaults=MappingProxyType(defaults),
            recipe=recipe or Recipe(),
        )
        return method

    return enter


def _where(method: type[Method]) -> tuple[str, str]:
    return method.__module__, method.__qualname__


def names() -> tuple[str, ...]:
    """All methods, in the paper's order, then our recipe; your own come last."""
    return tuple(_REGISTRY)


def plain_names() -> tuple[str, ...]:
    """All but the recipes: the paper's fourteen, and your own. What ``all`` means in a study."""
    return tuple(name for name, known in _REGISTRY.items() if not known.is_recipe)


def lookup(name: str) -> RegisteredMethod:
    """What is known of a method; a misspelt name is an error that suggests the nearest."""
    if name not in _REGISTRY:
        raise suggest("method", name, _REGISTRY)
    return _REGISTRY[name]


def options(name: str) -> tuple[str, ...]:
    """The options that ``create(name, …)`` takes beyond the common ones."""
    return tuple(f.name for f in fields(lookup(name).method) if f.init and f.name not in _COMMON)


def create(
    name: str,
    *,
    num_classes: int,
    noise_rate: float | None = None,
    transition: Any = None,
    convention: Convention = "paper",
    **chosen: Any,
) -> Method:
    """Make a method.

    noise_rate: ε, the share of wrong labels, for methods that select or prune by it. transition: (C, C)
    matrix P[i, j] = Pr(label = j | true = i), for methods that correct by it. Both are accepted, and
    ignored, by methods that need neither, so that a comparison can pass them to all.
    """
    found = lookup(name)
    for option in chosen:
        if option not in options(name):
            raise suggest(f"option of {name}", option, options(name))
    given = {"noise_rate": noise_rate, "transition": transition}
    for need in found.method.needs:
        if given[need] is None:
            raise SrjtError(f"{name} needs {_WHAT[need]}")
    return found.method(
        num_classes=num_classes, **given, convention=convention, **{**found.defaults, **chosen}
    )


_WHAT = {
    "noise_rate": "the share of wrong labels: pass noise_rate=… (0.2 if a fifth of the labels is wrong).",
    "transition": "the matrix of label errors: pass transition=…, for example "
    'srjt.noise.transition_matrix("quasi", num_classes=4, rho=0.1).',
}
