"""What predicted grades are for. Without torch, because the command line's help lists the choices."""

from __future__ import annotations

from typing import Literal, get_args

from srjt.errors import suggest

__all__ = ["PURPOSES", "Purpose", "check_purpose"]

Purpose = Literal["mae", "accuracy", "qwk", "macro_f1"]  # names of ordinal.metrics.METRICS

PURPOSES: dict[Purpose, str] = {
    "mae": "the least absolute error",
    "accuracy": "accuracy",
    "qwk": "quadratic weighted kappa",
    "macro_f1": "macro-F1",
}


def check_purpose(purpose: str) -> None:
    """Raise an error for an unknown purpose."""
    if purpose not in get_args(Purpose):
        raise suggest("metric to optimise", purpose, get_args(Purpose))
