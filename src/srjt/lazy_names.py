"""Import the public names of a package on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, origins: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose names are imported on first use, and its modules, too.

    origins: name → the module that defines it, or that it is.
    """

    def import_name(name: str) -> Any:
        own = f"{package}.{name}"
        module = origins.get(name, own)
        unknown = AttributeError(f"module {package!r} has no attribute {name!r}")
        if name.startswith("__"):  # asked for by Python itself and by tools
            raise unknown
        try:
            loaded = importlib.import_module(module)
        except ModuleNotFoundError as problem:
            if problem.name == own:
                raise unknown from None
            raise
        value = loaded if module == own else getattr(loaded, name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name
