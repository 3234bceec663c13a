"""How noisy are these labels, and which of them are wrong?

``label_quality``, ``true_grade_posterior`` and ``estimate_noise`` need nothing but labels and out-of-fold
probabilities, of whatever model. ``audit`` makes those itself, by cross-fitting.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srjt.audit.auditing import Audit, audit
    from srjt.audit.auto import settle_noise
    from srjt.audit.crossfit import CrossFit, cross_fit
    from srjt.ordinal.estimation import NoiseEstimate, estimate_noise
    from srjt.ordinal.quality import label_quality, true_grade_posterior

__all__ = [
    "Audit",
    "CrossFit",
    "NoiseEstimate",
    "audit",
    "cross_fit",
    "estimate_noise",
    "label_quality",
    "settle_noise",
    "true_grade_posterior",
]

# Imported on first use: who brings a network of their own needs neither torch nor pandas here.
_WHERE = {
    "Audit": "srjt.audit.auditing",
    "CrossFit": "srjt.audit.crossfit",
    "NoiseEstimate": "srjt.ordinal.estimation",
    "audit": "srjt.audit.auditing",
    "cross_fit": "srjt.audit.crossfit",
    "estimate_noise": "srjt.ordinal.estimation",
    "label_quality": "srjt.ordinal.quality",
    "settle_noise": "srjt.audit.auto",
    "true_grade_posterior": "srjt.ordinal.quality",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'srjt.audit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
