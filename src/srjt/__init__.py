"""Learn severity from ordinal labels that are partly wrong.

Public names are imported on first use, so that ``import srjt`` and ``srjt --help`` answer at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from srjt._version import __version__

if TYPE_CHECKING:
    from srjt import audit, data, methods, ordinal
    from srjt.audit.auto import train
    from srjt.estimator import OrdinalNoiseClassifier
    from srjt.ordinal import noise
    from srjt.ordinal.labels import soft_labels
    from srjt.ordinal.selection import keep_rate
    from srjt.training.export import export
    from srjt.training.trained import load_run

__all__ = [
    "OrdinalNoiseClassifier",
    "__version__",
    "audit",
    "data",
    "export",
    "keep_rate",
    "load_run",
    "methods",
    "noise",
    "ordinal",
    "soft_labels",
    "train",
]

# name -> (module, attribute); no attribute means the module itself
_LAZY: dict[str, tuple[str, str | None]] = {
    "OrdinalNoiseClassifier": ("srjt.estimator", "OrdinalNoiseClassifier"),
    "audit": ("srjt.audit", None),
    "data": ("srjt.data", None),
    "export": ("srjt.training.export", "export"),
    "keep_rate": ("srjt.ordinal.selection", "keep_rate"),
    "load_run": ("srjt.training.trained", "load_run"),
    "methods": ("srjt.methods", None),
    "noise": ("srjt.ordinal.noise", None),
    "ordinal": ("srjt.ordinal", None),
    "soft_labels": ("srjt.ordinal.labels", "soft_labels"),
    "train": ("srjt.audit.auto", "train"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'srjt' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    loaded = importlib.import_module(module)
    value = loaded if attribute is None else getattr(loaded, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
