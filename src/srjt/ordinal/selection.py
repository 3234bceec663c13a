"""How many samples of a batch to keep at which epoch, and which."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from srjt.errors import SrjtError, suggest

__all__ = ["Convention", "check_convention", "keep_count", "keep_rate", "select_smallest"]

Convention = Literal["paper", "published-code"]


def check_convention(convention: str) -> None:
    if convention not in get_args(Convention):
        raise suggest("convention", convention, get_args(Convention))


def keep_rate(
    epoch: int, *, noise_rate: float, ramp_epochs: int | None = None, convention: Convention = "paper"
) -> float:
    """R(T), the share of a batch taken as clean at epoch T = 1, 2, …

    paper: R(T) = 1 − min(T/T'·ε, ε) with T' = 5. published-code: the forget rate climbs from 0 at the
    first epoch to ε at the tenth in equal steps. ``ramp_epochs`` replaces the 5 or the 10.
    """
    check_convention(convention)
    if epoch < 1:
        raise SrjtError(f"Epochs are counted from 1; got {epoch}.")
    if not 0.0 <= noise_rate < 1.0:
        raise SrjtError(f"A noise rate lies in [0, 1); got {noise_rate:g}.")
    if ramp_epochs is not None and ramp_epochs < 1:
        raise SrjtError(f"The ramp of the keep rate takes at least one epoch; got {ramp_epochs}.")
    if convention == "paper":
        return 1.0 - noise_rate * min(epoch / (ramp_epochs or 5), 1.0)
    steps = max((ramp_epochs or 10) - 1, 1)  # a ramp of one epoch forgets nothing in it, as linspace would
    return 1.0 - noise_rate * min((epoch - 1) / steps, 1.0)


def keep_count(batch_size: int, rate: float, *, convention: Convention = "paper") -> int:
    """How many of a batch to keep: rounded up in the paper (|B'| ≥ R|B|), down in the published code.

    Never 0 and never more than the batch. A product that is whole but for floating-point rounding
    (0.6 · 5 = 3.0000000000000004 when R = 1 − 0.4) counts as whole.
    """
    check_convention(convention)
    if batch_size < 1:
        raise SrjtError(f"A batch has at least one sample; got {batch_size}.")
    exact = batch_size * rate
    if abs(exact - round(exact)) < 1e-9 * batch_size:
        count = round(exact)
    else:
        count = math.ceil(exact) if convention == "paper" else math.floor(exact)
    return min(max(count, 1), batch_size)


def select_smallest(scores: Tensor, *, keep: int | Tensor, labels: Tensor | None = None) -> Tensor:
    """A mask of the ``keep`` smallest scores along the last axis. (..., B) → (..., B) bool.

    ``keep`` is an int or a 0-d tensor on the scores' device: it is data, not control flow, so shapes never
    depend on it and a captured graph can be replayed while it changes. Ties go to the earlier sample;
    a score that is not a number ranks last.

    With ``labels`` (B,) the same share is kept within each grade present: ceil(keep · n_c / B) of its n_c
    samples, so that rare grades, whose losses are large, are not starved.
    """
    size = scores.shape[-1]
    position = torch.arange(size, device=scores.device).expand(scores.shape)
    order = torch.sort(scores, dim=-1, stable=True).indices
    if labels is None:
        return torch.zeros_like(position).scatter(-1, order, position) < keep
    # Sort by (label, score); a sample's rank within its grade is its place less the place its grade starts.
    order = order.gather(-1, torch.sort(labels[order], dim=-1, stable=True).indices)
    same = labels[:, None] == labels[None, :]
    starts = (labels[None, :] < labels[:, None]).sum(dim=-1)  # (B,) samples of lower grades
    rank = torch.zeros_like(position).scatter(-1, order, position) - starts
    quota = (keep * same.sum(dim=-1) + size - 1) // size
    return rank < quota
