"""Packages whose public names are imported on first use: ``import srjt`` answers at once."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from srjt.errors import warn


def lazy_names(
    package: str,
    names: Mapping[str, Iterable[str]],
    *,
    former: Callable[[str], Any] | None = None,
    rooms: Iterable[str] = (),
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package whose names and modules are
    imported on first use.

    names: by the module that they are imported from; of the package itself, its modules. A table
    and not the source of the package, which may be installed as byte code alone. Type checkers
    read the same names from imports under ``TYPE_CHECKING``; a test compares the two.

    former: imports names of an earlier version, as of ``former_names``. rooms: modules of the
    package that ``dir`` lists, and in which a name that it does not have is looked up: the error
    says where it is.
    """
    origins = {name: module for module, listed in names.items() for name in listed}
    public = sorted(origins)

    def import_name(name: str) -> Any:
        whole = f"{package}.{name}"
        if name.startswith("__"):  # asked for by Python itself and by tools
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            origin = origins.get(name, package)
            module = importlib.import_module(whole if origin == package else origin)
        except ModuleNotFoundError as problem:
            if problem.name != whole:
                raise
            if former is None:
                raise unknown_attribute(package, name, public, rooms) from None
            try:
                return former(name)
            except AttributeError:
                raise unknown_attribute(package, name, public, rooms) from None
        value = module if module.__name__ == whole else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return public, import_name, lambda: sorted({*public, *rooms})


def unknown_attribute(
    package: str, name: str, public: Iterable[str], rooms: Iterable[str]
) -> AttributeError:
    """The error for a name that a package does not have: it says where the rooms of the package
    have it, or the public names that are most like it."""
    said = f"module {package!r} has no attribute {name!r}"
    if name.startswith("_"):  # IPython asks for _repr_html_ and the like
        return AttributeError(said)
    known = [f"{package}.{one}" for one in public]
    for room in rooms:
        module = importlib.import_module(f"{package}.{room}")
        known += [f"{package}.{room}.{one}" for one in getattr(module, "__all__", ())]
    likeness = {whole: _likeness(name, whole.rpartition(".")[2]) for whole in known}
    nearest = sorted(likeness, key=likeness.__getitem__, reverse=True)[:3]
    exact = [whole for whole in nearest if likeness[whole] == 1.0]
    near = exact or [whole for whole in nearest if likeness[whole] > 0.6]
    if near:
        said += f": did you mean {' or '.join(near)}?"
    return AttributeError(said)


def _likeness(name: str, other: str) -> float:
    """From 0 to 1 for the same name: of the letters, or how many words of the other it has."""
    if name == other:
        return 1.0
    letters = difflib.SequenceMatcher(None, name.lower(), other.lower()).ratio()
    words, theirs = _words(name), _words(other)
    return max(0.99 * letters, 0.9 * len(words & theirs) / max(len(theirs), 1))


def _words(name: str) -> set[str]:
    """JointLoss and joint_loss → {joint, loss}; a plural counts as its singular."""
    parts = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)
    return {part.lower().removesuffix("s") for part in parts}


def former_names(
    module: str, now: Mapping[str, str], *, instead: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """``__getattr__`` of a module with names that are elsewhere now: they work with a warning.

    now: by former name where it is now, such as ``srjt.ordinal.keep_rate``. instead: by former name
    what to use instead, where that is something else.
    """

    def import_name(name: str) -> Any:
        if name not in now:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        origin, _, current = now[name].rpartition(".")
        better = (instead or {}).get(name, now[name])
        warn(
            f"{module}.{name} will be removed in the next release: use {better} instead.",
            FutureWarning,
        )
        return getattr(importlib.import_module(origin), current)

    return import_name
