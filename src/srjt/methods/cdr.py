"""CDR (Xia et al., ICLR 2021): only the weights that matter most are updated; the others decay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from srjt.errors import SrjtError
from srjt.methods.standard import Standard


@dataclass(frozen=True, kw_only=True)
class Cdr(Standard):
    needs: ClassVar[tuple[str, ...]] = ("noise_rate",)

    @torch.no_grad()
    def adjust(self, parameters: Iterable[nn.Parameter]) -> None:
        """Over all convolution and linear weights together, the (1 − ε) share with the largest |w·g| keeps
        its gradient, times (1 − ε); the other gradients become 0. Weight decay still acts on all."""
        if self.noise_rate is None:
            raise SrjtError("cdr needs the noise rate: it determines how many weights are updated.")
        weights = [(p, p.grad) for p in parameters if p.ndim >= 2 and p.grad is not None]
        if not weights:
            return
        clean = 1.0 - self.noise_rate
        importance = torch.cat([(p * gradient).abs().flatten() for p, gradient in weights])
        critical = max(1, round(clean * importance.numel()))
        place = importance.numel() - critical
        # On a GPU kthvalue is far slower than sorting: one block of threads works on one row.
        found = importance.sort() if importance.is_cuda else importance.kthvalue(place + 1)
        threshold = found.values[place] if importance.is_cuda else found.values
        for parameter, gradient in weights:
            gradient.mul_(((parameter * gradient).abs() >= threshold) * clean)
