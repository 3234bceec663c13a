"""Methods from outside: modules named by ``--import``, and installed packages with an entry point ``srjt.methods``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from functools import cache

from srjt.errors import SrjtError, warn

__all__ = ["GROUP", "entry_point_modules", "import_modules", "load_entry_points"]

GROUP = "srjt.methods"


def import_modules(names: Iterable[str]) -> None:
    """Import modules that register methods. Modules in the current folder are found too."""
    for name in names:
        if os.getcwd() not in sys.path:
            sys.path.append(
                os.getcwd()
            )  # a console script has its own folder there instead; last, to shadow nothing
        try:
            importlib.import_module(name)
        except Exception as problem:
            raise SrjtError(
                f"--import {name}: the module cannot be imported ({_reason(problem)})."
            ) from problem


@cache
def load_entry_points() -> None:
    """Load the methods of installed packages, once, when methods are first listed or looked up.

    A broken plug-in is a warning: all other methods still work.
    """
    from importlib.metadata import entry_points  # here: it takes a while, and a help page needs none

    for plugin in entry_points(group=GROUP):
        try:
            plugin.load()
        except Exception as problem:
            package = plugin.dist.name if plugin.dist is not None else plugin.value
            warn(
                f"The plug-in {plugin.name!r} of the package {package} cannot be loaded, so its methods are missing "
                f"({_reason(problem)})."
            )


@cache
def entry_point_modules() -> tuple[str, ...]:
    """The modules of installed packages that register methods; every process loads them."""
    from importlib.metadata import entry_points

    return tuple(plugin.module for plugin in entry_points(group=GROUP))


def _reason(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"
