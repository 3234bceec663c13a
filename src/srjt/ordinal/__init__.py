"""Labels, losses, selection, decoding, metrics, intervals and calibration for ordered grades.

Pure functions of tensors and arrays; nothing here knows of images, files or training. Names are imported on
first use: the command line does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srjt.ordinal.decoding import decode, expected_grade, median_grade
    from srjt.ordinal.labels import one_hot, smooth_labels, soft_label_matrix, soft_labels
    from srjt.ordinal.selection import keep_count, keep_rate, select_smallest

__all__ = [
    "decode",
    "expected_grade",
    "keep_count",
    "keep_rate",
    "median_grade",
    "one_hot",
    "select_smallest",
    "smooth_labels",
    "soft_label_matrix",
    "soft_labels",
]

_MODULES = (
    "labels",
    "selection",
    "decoding",
    "losses",
    "metrics",
    "intervals",
    "differences",
    "calibration",
    "recalibration",
    "ranges",
    "decisions",
    "decision_curves",
    "pooling",
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"srjt.ordinal.{name}")
    if name in __all__:
        for part in ("labels", "selection", "decoding"):
            module = importlib.import_module(f"srjt.ordinal.{part}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module 'srjt.ordinal' has no attribute {name!r}")
