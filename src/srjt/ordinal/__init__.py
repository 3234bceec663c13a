"""Labels, losses, selection, decoding, metrics, intervals and calibration for ordered grades.

Pure functions of tensors and arrays; nothing here knows of images, files or training. Names are
imported on first use: the command line does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from srjt.errors import SrjtError, unknown_name
from srjt.lazy import lazy_names

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from srjt.ordinal.decoding import (
        decode as decode,
        expected_grade as expected_grade,
        median_grade as median_grade,
    )
    from srjt.ordinal.losses import (
        one_hot as one_hot,
        smooth_labels as smooth_labels,
        soft_label_matrix as soft_label_matrix,
        soft_labels as soft_labels,
    )
    from srjt.ordinal.selection import (
        keep_count as keep_count,
        keep_rate as keep_rate,
        select_smallest as select_smallest,
    )

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "srjt.ordinal.decoding": ("decode", "expected_grade", "median_grade"),
        "srjt.ordinal.losses": ("one_hot", "smooth_labels", "soft_label_matrix", "soft_labels"),
        "srjt.ordinal.selection": ("keep_count", "keep_rate", "select_smallest"),
    },
)

# What predicted grades are for. Without torch, because the command line's help lists the choices.

Purpose = Literal["mae", "accuracy", "qwk", "macro_f1"]  # names of ordinal.metrics.METRICS


def check_purpose(purpose: str) -> None:
    """Raise an error for an unknown purpose."""
    if purpose not in get_args(Purpose):
        raise unknown_name("metric to optimise", purpose, get_args(Purpose))


def patient_codes(groups: Any, samples: int) -> npt.NDArray[np.int64]:
    """(N,) the number of each sample's patient, from 0, of a sequence; without groups every sample
    is its own."""
    import numpy as np

    if groups is None:
        return np.arange(samples)
    if len(groups) != samples:
        raise SrjtError(
            f"{len(groups)} groups for {samples} samples: they must be as many.",
            code="wrong_shape",
            option="groups",
        )
    return np.unique(np.asarray([str(group) for group in groups]), return_inverse=True)[1].astype(
        np.int64
    )
