"""The methods of the paper, further baselines, our recipe, and yours.

``names()`` lists them, ``create(name, …)`` makes one. Here is how a method is registered, looked up
and made, and the plug-ins that add more. Classes are imported on first use, because they load
torch; nothing here does, so ``srjt methods`` answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from srjt.errors import Option, SrjtError, UnknownNameError, unknown_name, warn
from srjt.lazy import former_names, lazy_names
from srjt.methods.table import METHODS, Recipe, RegisteredMethod

if TYPE_CHECKING:
    from srjt.methods.base import Loss as Loss, Method as Method, SingleNetwork as SingleNetwork
    from srjt.methods.joint import JointTraining as JointTraining
    from srjt.ordinal.selection import Convention

# Methods from outside: modules named by ``--import``, and installed packages with an entry point
# ``srjt.methods``.

GROUP = "srjt.methods"


def import_modules(names: Iterable[str]) -> None:
    """Import modules that register methods. Modules in the current folder are found too."""
    for name in names:
        if os.getcwd() not in sys.path:
            # a console script has its own folder there; last, to shadow nothing
            sys.path.append(os.getcwd())
        try:
            importlib.import_module(name)
        except Exception as problem:
            raise SrjtError(
                Option("imports", [name]),
                f": the module cannot be imported ({_reason(problem)}).",
                code="missing_extra",
            ) from problem


@cache
def load_entry_points(group: str = GROUP) -> frozenset[str]:
    """Load the methods of installed packages, once, when methods are first listed or looked up: the
    packages. group: of the entry points; "srjt.aspects" for aspects of answers.

    A broken plug-in is a warning: all others still work.
    """
    # here: it takes a while, and a help page needs none
    from importlib.metadata import entry_points

    plugins = entry_points(group=group)
    for plugin in plugins:
        try:
            plugin.load()
        except Exception as problem:
            package = plugin.dist.name if plugin.dist is not None else plugin.value
            warn(
                f"The plug-in {plugin.name!r} of the package {package} cannot be loaded, so its"
                f" {group.removeprefix('srjt.')} are missing ({_reason(problem)})."
            )
    return frozenset(plugin.module.partition(".")[0] for plugin in plugins)


def _reason(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"


# Methods by name: registering, listing, creating. torch is loaded when a method's class is needed,
# not before.

M = TypeVar("M", bound="type[Method]")

_COMMON = {"num_classes", "noise_rate", "transition", "convention"}  # create()'s own arguments
_REGISTRY: dict[str, RegisteredMethod] = {}


def register_method(
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
    >>> from srjt.methods import CoTeaching, register_method
    >>> row = {"scores": "ℓ_h(τ)", "updates": "soft label", "paper": "mine"}
    >>> _ = register_method("mine", **row, update="soft")(CoTeaching)
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
        _enter(row)
        return method

    return enter


def _enter(row: RegisteredMethod) -> None:
    """The one way into the registry: of our table, and of ``register_method``."""
    known = _REGISTRY.get(row.name)
    # the same class once more is a notebook cell run again
    if known and known.location != row.location:
        raise SrjtError(
            f"A method named {row.name!r} exists already; choose another name.", code="name_in_use"
        )
    _REGISTRY[row.name] = row


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
                f"The method {name!r} is registered by {missing[0]}, which is not imported: add ",
                Option("imports", missing[:1]),
                ", or import it first in Python.",
                code="unknown_name",
            )
        unknown = unknown_name("method", name, _registry())
        raise UnknownNameError(
            unknown,
            " One of your own is known once its module is imported (",
            Option("imports"),
            ").",
            code=unknown.code,
            option="method",
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
            raise SrjtError(f"{name} needs {_WHAT[need]}", code="missing_option", option=need)
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


for _row in METHODS:
    _enter(_row)

_PUBLIC = {
    "srjt.methods.base": ["Loss", "Method", "SingleNetwork"],
    "srjt.methods.joint": ["JointTraining"],
}
for _row in METHODS:
    _module, _, _class = _row.location.partition(":")
    _PUBLIC.setdefault(_module, []).append(_class)

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    _PUBLIC,
    former=former_names(__name__, {"register": "srjt.methods.register_method"}),
)
__all__ += [
    "Recipe",
    "RegisteredMethod",
    "create",
    "lookup",
    "names",
    "options",
    "plain_names",
    "register_method",
]
