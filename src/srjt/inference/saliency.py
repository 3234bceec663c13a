"""Where a network looks: which places of an image raise or lower its expected grade.

The expected grade s = Σ_c c · p^c is the ordinal output: a map of one grade's probability would not tell whether a
place speaks for a milder or for a severer grade. With A the last feature map of the network, the value at a place is
Σ_channels A · ∂s/∂A: the part of the expected grade that the place contributes, to first order. The product is taken
before any average over places, so that a place at which the network's output does not depend on A gets 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from srjt.errors import SrjtError

__all__ = ["contributions", "rank_correlation"]

Floats = npt.NDArray[np.float32]


def contributions(network: nn.Module, x: Tensor, severity: Callable[[Tensor], Tensor]) -> Tensor:
    """(B, 3, H, W) inputs → (B, h, w): how much each place of the last feature map raises (> 0) the severity.

    network : module from (B, 3, H, W) to logits (B, C). Its weights and mode are not changed.
    severity : logits (B, C) → (B,), differentiable.

    The last feature map is the last output of a part of the network that has places and on which the severity depends.
    In a network with a class token the patches of the last block do not count: nothing reads them.
    """
    found: list[tuple[Tensor, Callable[[Tensor], Tensor]]] = []

    def record(module: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad and (layout := _layout(network, output)):
            found.append((output, layout))

    hooks = [module.register_forward_hook(record) for module in network.modules()]
    try:
        with torch.enable_grad():
            total = severity(network(x.detach().requires_grad_())).sum()
    finally:
        for hook in hooks:
            hook.remove()
    for output, layout in reversed(found):
        (gradient,) = torch.autograd.grad(total, output, retain_graph=True, allow_unused=True)
        if gradient is not None and bool((places := layout(output * gradient)).any()):
            return places.detach().float()
    raise SrjtError("This network has no feature map with places, so there is nothing to show on an image.")


def _layout(network: nn.Module, output: Tensor) -> Callable[[Tensor], Tensor] | None:
    """How to sum an output over its channels to (B, h, w); None if it has no places."""
    if output.ndim == 4:
        channels_last = output.shape[1] == output.shape[2] != output.shape[3]
        places = output.shape[1:3] if channels_last else output.shape[2:]
        axis = 3 if channels_last else 1
        return (lambda product: product.sum(dim=axis)) if min(places) > 1 else None
    if output.ndim != 3:
        return None
    prefix = _prefix_tokens(network)
    side = math.isqrt(max(output.shape[1] - prefix, 0))
    if side < 2 or side * side != output.shape[1] - prefix:
        return None
    return lambda product: product[:, prefix:].sum(dim=2).view(-1, side, side)


def _prefix_tokens(network: nn.Module) -> int:
    """The number of tokens before the patches: the class token and registers of a vision transformer."""
    counts = (getattr(module, "num_prefix_tokens", None) for module in network.modules())
    return next((count for count in counts if isinstance(count, int)), 0)


def rank_correlation(a: Floats, b: Floats) -> Floats:
    """(N, h, w) maps twice → (N,) Spearman's correlation of each pair; nan where a map is constant."""
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    ranks = [rankdata(maps.reshape(len(maps), -1), axis=1) for maps in (a, b)]
    centred = [r - r.mean(axis=1, keepdims=True) for r in ranks]
    scale = np.sqrt((centred[0] ** 2).sum(axis=1) * (centred[1] ** 2).sum(axis=1))
    with np.errstate(invalid="ignore"):
        return np.asarray((centred[0] * centred[1]).sum(axis=1) / scale, dtype=np.float32)
