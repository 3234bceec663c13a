"""Learn severity from ordinal labels that are partly wrong.

Public names are imported on first use, so that ``import srjt`` and ``srjt --help`` answer at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from srjt._version import __version__

if TYPE_CHECKING:
    from srjt import data, methods, noise, ordinal, readers
    from srjt.auditing.audit import audit
    from srjt.estimator import OrdinalNoiseClassifier
    from srjt.inference.compare import compare
    from srjt.inference.evaluate import evaluate
    from srjt.inference.explain import explain
    from srjt.inference.export import export
    from srjt.inference.predict import predict
    from srjt.ordinal.labels import soft_labels
    from srjt.ordinal.selection import keep_rate
    from srjt.reports.export_folder import export_folder
    from srjt.reports.report import report
    from srjt.run import load_run, train
    from srjt.studies.study import study

__all__ = [
    "OrdinalNoiseClassifier",
    "__version__",
    "audit",
    "compare",
    "data",
    "evaluate",
    "explain",
    "export",
    "export_folder",
    "keep_rate",
    "load_run",
    "methods",
    "noise",
    "ordinal",
    "predict",
    "readers",
    "report",
    "soft_labels",
    "study",
    "train",
]

# name -> module that defines it; a module that is public itself has no attribute
_LAZY: dict[str, tuple[str, str | None]] = {
    "OrdinalNoiseClassifier": ("srjt.estimator", "OrdinalNoiseClassifier"),
    "audit": ("srjt.auditing.audit", "audit"),
    "compare": ("srjt.inference.compare", "compare"),
    "data": ("srjt.data", None),
    "evaluate": ("srjt.inference.evaluate", "evaluate"),
    "explain": ("srjt.inference.explain", "explain"),
    "export": ("srjt.inference.export", "export"),
    "export_folder": ("srjt.reports.export_folder", "export_folder"),
    "keep_rate": ("srjt.ordinal.selection", "keep_rate"),
    "load_run": ("srjt.run", "load_run"),
    "methods": ("srjt.methods", None),
    "noise": ("srjt.noise", None),
    "ordinal": ("srjt.ordinal", None),
    "predict": ("srjt.inference.predict", "predict"),
    "readers": ("srjt.readers", None),
    "report": ("srjt.reports.report", "report"),
    "soft_labels": ("srjt.ordinal.labels", "soft_labels"),
    "study": ("srjt.studies.study", "study"),
    "train": ("srjt.run", "train"),
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
