"""Labels, losses, selection, decoding, metrics, intervals and calibration for ordered grades.

Pure functions of tensors and arrays; nothing here knows of images, files or training. Names are imported on
first use: the command line does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from srjt.errors import lazy_names, unknown_name

if TYPE_CHECKING:
    from srjt.ordinal.decoding import decode, expected_grade, median_grade
    from srjt.ordinal.losses import (
        keep_count,
        keep_rate,
        one_hot,
        select_smallest,
        smooth_labels,
        soft_label_matrix,
        soft_labels,
    )

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

# What predicted grades are for. Without torch, because the command line's help lists the choices.

Purpose = Literal["mae", "accuracy", "qwk", "macro_f1"]  # names of ordinal.metrics.METRICS

PURPOSES: dict[Purpose, str] = {
    "mae": "the least absolute error",
    "accuracy": "accuracy",
    "qwk": "quadratic κ",
    "macro_f1": "macro-F1",
}


def check_purpose(purpose: str) -> None:
    """Raise an error for an unknown purpose."""
    if purpose not in get_args(Purpose):
        raise unknown_name("metric to optimise", purpose, get_args(Purpose))


__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("decode", "expected_grade", "median_grade"), "srjt.ordinal.decoding"),
        **dict.fromkeys(
            (
                "one_hot",
                "smooth_labels",
                "soft_label_matrix",
                "soft_labels",
                "keep_count",
                "keep_rate",
                "select_smallest",
            ),
            "srjt.ordinal.losses",
        ),
    },
)
