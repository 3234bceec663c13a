"""CORN (Shi, Cao and Raschka, 2021): is the grade above k, given that it is above k − 1?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from srjt.methods.base import SingleNetwork
from srjt.ordinal.decoding import median_grade


@dataclass(frozen=True, kw_only=True)
class Corn(SingleNetwork):
    """C − 1 logits, each of Pr(grade > k | grade > k − 1); the chain rule makes probabilities of them."""

    @property
    def outputs(self) -> int:
        return self.num_classes - 1

    def head(self, features: int, classes: int) -> nn.Module:
        return nn.Linear(features, classes - 1)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        """A label ỹ answers the questions k = 0, …, ỹ. Their losses sum to −log p^ỹ; their mean is CORN's loss."""
        questions = (targets + 1).clamp(max=self.outputs)
        log_p = _log_probabilities(logits)
        return -log_p.gather(-1, targets[:, None]).squeeze(-1) / questions.to(log_p.dtype).mean()

    def probabilities(self, logits: Tensor) -> Tensor:
        return _log_probabilities(logits).exp()

    def grades(self, logits: Tensor) -> Tensor:
        """The number of k with Pr(grade > k) above ½."""
        return (_log_above(logits)[..., 1:] > math.log(0.5)).sum(dim=-1)

    def grades_of(self, probabilities: Tensor) -> Tensor:
        """The same number, which is the lower median."""
        return median_grade(probabilities)


def _log_above(logits: Tensor) -> Tensor:
    """(..., C − 1) logits → (..., C): log Pr(grade ≥ k), the sum of the conditional ones."""
    conditional = F.logsigmoid(logits if logits.dtype == torch.float64 else logits.float())
    return F.pad(conditional.cumsum(dim=-1), (1, 0))


def _log_probabilities(logits: Tensor) -> Tensor:
    """(..., C − 1) logits → (..., C): log Pr(grade ≥ k) + log Pr(grade ≤ k | grade ≥ k)."""
    above = _log_above(logits)
    return above + F.pad(F.logsigmoid(-logits.to(above.dtype)), (0, 1))
