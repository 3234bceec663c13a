"""How clean a selection of samples is: counts are accumulated on the device and transferred once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.ordinal.metric_formulas import divide

__all__ = ["label_precision", "label_recall", "selection_counts"]

Floats = npt.NDArray[np.float64]


def selection_counts(selected: Tensor, labels: Tensor, true: Tensor, *, num_classes: int) -> Tensor:
    """Counts of a selection by *given* grade; add them up over batches.

    Parameters
    ----------
    selected : Tensor of bool, shape (..., B)
    labels, true : Tensor of int, shape (B,)
        Grades as given, and true grades.
    num_classes : int
        C, the number of grades.

    Returns
    -------
    Tensor of int64, shape (..., 4, C)
        Numbers of samples: selected and clean, selected, clean, all.

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.metrics import selection_counts
    >>> selected, labels, true = torch.tensor([True, False]), torch.tensor([0, 1]), torch.tensor([0, 1])
    >>> selection_counts(selected, labels, true, num_classes=2)
    tensor([[1, 0],
            [1, 0],
            [1, 1],
            [1, 1]])
    """
    given = labels[:, None] == torch.arange(num_classes, device=labels.device)  # (B, C)
    clean = (labels == true).expand(selected.shape)
    everything = torch.ones_like(selected)
    kinds = torch.stack([selected & clean, selected, clean, everything], dim=-2)  # (..., 4, B)
    return (kinds[..., None] & given).sum(dim=-2)


def label_precision(counts: npt.ArrayLike, *, per_class: bool = False) -> float | Floats:
    """Share of truly clean samples among the selected.

    Parameters
    ----------
    counts : array-like, shape (4, C)
        From ``selection_counts``.
    per_class : bool
        By given grade instead of overall.

    Returns
    -------
    float, or array of shape (C,) if ``per_class``
        nan where there is no sample to divide by.

    Examples
    --------
    >>> from srjt.ordinal.metrics import label_precision
    >>> label_precision([[1, 0], [1, 0], [1, 1], [1, 1]])
    1.0
    """
    chosen_clean, chosen, _, _ = _selection(counts, per_class=per_class)
    return _ratio(chosen_clean, chosen)


def label_recall(counts: npt.ArrayLike, *, per_class: bool = False) -> float | Floats:
    """Share of selected samples among the truly clean.

    Parameters
    ----------
    counts : array-like, shape (4, C)
        From ``selection_counts``.
    per_class : bool
        By given grade instead of overall.

    Returns
    -------
    float, or array of shape (C,) if ``per_class``
        nan where there is no sample to divide by.

    Examples
    --------
    >>> from srjt.ordinal.metrics import label_recall
    >>> label_recall([[1, 0], [1, 0], [1, 1], [1, 1]])
    0.5
    """
    chosen_clean, _, clean, _ = _selection(counts, per_class=per_class)
    return _ratio(chosen_clean, clean)


def _selection(counts: npt.ArrayLike, *, per_class: bool) -> Floats:
    array = np.asarray(counts, dtype=np.float64)
    if array.ndim != 2 or len(array) != 4:
        raise SrjtError(f"Selection counts have shape (4, C), not {array.shape}.")
    return array if per_class else array.sum(axis=1)


def _ratio(part: Floats, whole: Floats) -> float | Floats:
    share = divide(part, whole, empty=np.nan)
    return float(share) if share.ndim == 0 else share
