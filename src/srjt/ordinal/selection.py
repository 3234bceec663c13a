"""The keep rate R(T), the number of samples to keep in a batch, and which samples these are."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from srjt.errors import SrjtError, unknown_name

Convention = Literal["paper", "published-code", "original"]


def check_convention(convention: str) -> None:
    if convention not in get_args(Convention):
        raise unknown_name("convention", convention, get_args(Convention))


def keep_rate(
    epoch: int,
    *,
    noise_rate: float,
    ramp_epochs: int | None = None,
    convention: Convention = "paper",
) -> float:
    """The keep rate R(T): the share of a batch that is kept as clean at epoch T.

    paper: R(T) = 1 − min(T/T'·ε, ε) with T' = 5. original: the same with T' = 10, as Co-teaching,
    JoCoR and CoDis were published. published-code: the discarded share grows in equal steps from 0
    at the first epoch to ε at the tenth.

    Parameters
    ----------
    epoch : int
        T = 1, 2, …
    noise_rate : float
        ε, the share of wrong labels.
    ramp_epochs : int, optional
        T', instead of 5 (paper) or 10 (published code, original).
    convention : {"paper", "published-code", "original"}

    Examples
    --------
    >>> keep_rate(5, noise_rate=0.4)
    0.6
    """
    check_convention(convention)
    if epoch < 1:
        raise SrjtError(
            f"Epochs are counted from 1; got {epoch}.", code="out_of_bounds", option="epoch"
        )
    if not 0.0 <= noise_rate < 1.0:
        raise SrjtError(
            f"A noise rate lies in [0, 1); got {noise_rate:g}.",
            code="out_of_bounds",
            option="noise_rate",
        )
    if ramp_epochs is not None and ramp_epochs < 1:
        raise SrjtError(
            f"The ramp of the keep rate takes at least one epoch; got {ramp_epochs}.",
            code="out_of_bounds",
            option="ramp_epochs",
        )
    if convention != "published-code":
        full = ramp_epochs or (5 if convention == "paper" else 10)
        return 1.0 - noise_rate * min(epoch / full, 1.0)
    steps = max(
        (ramp_epochs or 10) - 1, 1
    )  # a ramp of one epoch discards nothing in it, as linspace would
    return 1.0 - noise_rate * min((epoch - 1) / steps, 1.0)


def keep_count(batch_size: int, rate: float, *, convention: Convention = "paper") -> int:
    """The number of samples of a batch to keep: rounded up in the papers (|B'| ≥ R|B|), down in the
    published code.

    It is at least 1 and at most the batch size. A product that is whole but for floating-point
    rounding (0.6 · 5 = 3.0000000000000004 for R = 1 − 0.4) counts as whole.

    Parameters
    ----------
    batch_size : int
    rate : float
        The keep rate R(T).
    convention : {"paper", "published-code", "original"}

    Examples
    --------
    >>> keep_count(64, 0.9)
    58
    """
    check_convention(convention)
    if batch_size < 1:
        raise SrjtError(
            f"A batch has at least one sample; got {batch_size}.",
            code="out_of_bounds",
            option="batch_size",
        )
    exact = batch_size * rate
    if abs(exact - round(exact)) < 1e-9 * batch_size:
        count = round(exact)
    else:
        count = math.floor(exact) if convention == "published-code" else math.ceil(exact)
    return min(max(count, 1), batch_size)


def select_smallest(scores: Tensor, *, keep: int | Tensor, labels: Tensor | None = None) -> Tensor:
    """Select the ``keep`` smallest scores along the last axis. Ties go to the earlier sample; nan
    ranks last.

    Parameters
    ----------
    scores : Tensor, shape (..., B)
        The result, of bool, has the same shape.
    keep : int or 0-d Tensor on the scores' device
        Number of samples. It is data, not control flow: no shape depends on it, so a captured CUDA
        graph can be replayed while it changes.
    labels : Tensor of int, shape (B,), optional
        Keep the same share within each grade: ceil(keep · n_c / B) of its n_c samples, so that rare
        grades, whose losses are large, are not discarded altogether.

    Examples
    --------
    >>> select_smallest(torch.tensor([0.3, 0.1, 0.2]), keep=2)
    tensor([False,  True,  True])
    """
    size = scores.shape[-1]
    position = torch.arange(size, device=scores.device).expand(scores.shape)
    order = torch.sort(scores, dim=-1, stable=True).indices
    if labels is None:
        return torch.zeros_like(position).scatter(-1, order, position) < keep
    # Sort by (label, score): the rank within a grade is the position minus the position at which
    # the grade starts.
    order = order.gather(-1, torch.sort(labels[order], dim=-1, stable=True).indices)
    same = labels[:, None] == labels[None, :]
    starts = (labels[None, :] < labels[:, None]).sum(dim=-1)  # (B,) samples of lower grades
    rank = torch.zeros_like(position).scatter(-1, order, position) - starts
    quota = (keep * same.sum(dim=-1) + size - 1) // size
    return rank < quota
