"""Packages whose public names are imported on first use: ``import srjt`` answers at once."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from srjt.errors import warn


def lazy_names(
    package: str,
    names: Mapping[str, Iterable[str]],
    *,
    former: Callable[[str], Any] | None = None,
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package whose names and modules are
    imported on first use.

    names: by the module that they are imported from; of the package itself, its modules. A table
    and not the source of the package, which may be installed as byte code alone. Type checkers
    read the same names from imports under ``TYPE_CHECKING``; a test compares the two.

    former: imports names of an earlier version, as of ``former_names``.
    """
    origins = {name: module for module, listed in names.items() for name in listed}

    def import_name(name: str) -> Any:
        whole = f"{package}.{name}"
        unknown = AttributeError(f"module {package!r} has no attribute {name!r}")
        if name.startswith("__"):  # asked for by Python itself and by tools
            raise unknown
        try:
            origin = origins.get(name, package)
            module = importlib.import_module(whole if origin == package else origin)
        except ModuleNotFoundError as problem:
            if problem.name != whole:
                raise
            if former is None:
                raise unknown from None
            return former(name)
        value = module if module.__name__ == whole else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    public = sorted(origins)
    return public, import_name, lambda: list(public)


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
