"""Methods with one network: the paper's baselines, and six further ones."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from srjt.errors import SrjtError, warn
from srjt.methods.base import Memory, SingleNetwork
from srjt.noise.matrices import ILL_CONDITIONED
from srjt.ordinal import losses
from srjt.ordinal.decoding import median_grade
from srjt.settings import setting


class Standard(SingleNetwork):
    """The baseline: one network that learns from the label as given."""

    takes: ClassVar[tuple[str, ...]] = ("probabilities",)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        if targets.ndim == 2:  # probabilities, as Mixup makes them
            return losses.soft_cross_entropy(logits, targets)
        return losses.hard_cross_entropy(logits, targets)


@dataclass(frozen=True, kw_only=True)
class Sord(SingleNetwork):
    """SORD (Díaz and Marathe, CVPR 2019): one network that learns from soft labels.

    Parameters
    ----------
    label_matrix : array-like, optional
        Soft labels by given grade, shape (C, C), instead of those of Eq. 3.
    """

    takes: ClassVar[tuple[str, ...]] = ("probabilities",)

    label_matrix: Any = None

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        if targets.ndim == 1:  # else probabilities of several readers, in place of the soft labels
            targets = losses.soft_labels(targets, self.num_classes, matrix=self.label_matrix)
        return losses.soft_cross_entropy(logits, targets)

    def learnt_soft_labels(self) -> Tensor | None:
        if self.label_matrix is None:
            return losses.soft_label_matrix(self.num_classes)
        return None


@dataclass(frozen=True, kw_only=True)
class LabelSmooth(SingleNetwork):
    """Label smoothing (Szegedy et al., CVPR 2016): a little probability for every grade, whatever
    its distance.

    Parameters
    ----------
    smoothing : float
        The probability that is spread uniformly over all C grades.
    """

    smoothing: float = setting(0.1, ge=0, le=1)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        smooth = losses.smooth_labels(targets, self.num_classes, smoothing=self.smoothing)
        return losses.soft_cross_entropy(logits, smooth)


class ForwardCorrection(SingleNetwork):
    """F-correction (Patrini et al., CVPR 2017): the loss of Pᵀp, the label that the predicted grade
    would get.
    """

    needs: ClassVar[tuple[str, ...]] = ("transition",)
    takes: ClassVar[tuple[str, ...]] = ("likelihoods",)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        if targets.ndim == 3:
            return losses.readings_likelihood(logits, targets)
        return losses.forward_corrected(logits, targets, transition=self.transition)


class Reweight(SingleNetwork):
    """Reweight (Liu and Tao, TPAMI 2016): each sample is weighted by how likely its label is
    right.
    """

    needs: ClassVar[tuple[str, ...]] = ("transition",)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return losses.reweighted(logits, targets, transition=self.transition)


@dataclass(frozen=True, kw_only=True)
class Mixup(Standard):
    """Mixup (Zhang et al., ICLR 2018): learn from blends of two samples and of their labels.

    Parameters
    ----------
    alpha : float
        α of Beta(α, α), from which the shares of the two samples are drawn.
    """

    alpha: float = setting(0.5, gt=0)

    def prepare(
        self, x: Tensor, y: Tensor, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """One Beta(α, α) draw and one permutation per batch. The generator is on the CPU: the draw
        is then the same on every device, and the GPU is not waited for."""
        seed = int(torch.randint(2**62, (), generator=generator))
        share = float(np.random.default_rng(seed).beta(self.alpha, self.alpha))
        partner = torch.randperm(len(y), generator=generator).to(x.device, non_blocking=True)
        targets = y if y.ndim == 2 else losses.one_hot(y, self.num_classes)
        return torch.lerp(x[partner], x, share), torch.lerp(targets[partner], targets, share)


class Cdr(Standard):
    """CDR (Xia et al., ICLR 2021): only the weights that matter most are updated; the others
    decay.
    """

    needs: ClassVar[tuple[str, ...]] = ("noise_rate",)

    @torch.no_grad()
    def adjust(self, parameters: Iterable[nn.Parameter]) -> None:
        """Over all convolution and linear weights together, the (1 − ε) share with the largest
        |w·g| keeps its gradient, times (1 − ε); the other gradients become 0. Weight decay still
        acts on all.
        """
        if self.noise_rate is None:
            raise SrjtError(
                "cdr needs the noise rate: it determines how many weights are updated.",
                code="missing_option",
                option="noise_rate",
            )
        weights = [(p, p.grad) for p in parameters if p.ndim >= 2 and p.grad is not None]
        if not weights:
            return
        clean = 1.0 - self.noise_rate
        importance = torch.cat([(p * gradient).abs().flatten() for p, gradient in weights])
        critical = max(1, round(clean * importance.numel()))
        place = importance.numel() - critical
        if importance.is_cuda:  # where kthvalue, one block of threads per row, is far slower
            threshold = importance.sort().values[place]
        else:
            threshold = importance.kthvalue(place + 1).values
        for parameter, gradient in weights:
            gradient.mul_(((parameter * gradient).abs() >= threshold) * clean)


class Thresholds(SingleNetwork):
    """C − 1 logits, of whether the grade is above k. The predicted grade is the number of k where
    that is likely."""

    @property
    def outputs(self) -> int:
        return self.num_classes - 1

    def grades_of(self, probabilities: Tensor) -> Tensor:
        """The number of k with Pr(grade > k) above ½, which is the lower median."""
        return median_grade(probabilities)


# The distance between neighbouring thresholds at the start. A middle grade is most likely halfway
# between its two thresholds, where its probability is σ(d/2) − σ(−d/2) = tanh(d/4).
SPACING = 4.0  # of proportional odds: 0.76, three times as likely as all other grades together
GARG_SPACING = 2.0
# Biases are single numbers, which Adam moves by at most its learning rate in a step: 0.5 in 5,000
# steps at 1e-4, where the distance that fits is several units. Garg's are learnt as multiples of
# this number, and so as many times as fast. benchmarks/garg_start.py compares starts, and says how
# these two numbers were chosen.
BIAS_SPEED = 100.0


class OrdinalHead(nn.Module):
    """One weight vector shared by all thresholds, and C − 1 biases: (B, F) → (B, C − 1).

    The biases start equally spaced around 0, descending: Pr(above a higher grade) is smaller, so
    differences are probabilities.
    """

    def __init__(self, features: int, classes: int, *, spacing: float) -> None:
        super().__init__()
        self.weight = nn.Linear(features, 1, bias=False)
        self.bias = nn.Parameter(spacing * ((classes - 2) / 2 - torch.arange(classes - 1)))

    def forward(self, features: Tensor) -> Tensor:
        projected: Tensor = self.weight(features)
        return projected + self.bias


class FastOrdinalHead(nn.Module):
    """As ``OrdinalHead``, but with biases that the optimizer moves ``BIAS_SPEED`` times as far in a
    step."""

    def __init__(self, features: int, classes: int, *, spacing: float) -> None:
        super().__init__()
        self.weight = nn.Linear(features, 1, bias=False)
        start = spacing * ((classes - 2) / 2 - torch.arange(classes - 1))
        self.scaled_bias = nn.Parameter(start / BIAS_SPEED)

    @property
    def bias(self) -> Tensor:
        """(C − 1,) the biases of the thresholds."""
        return BIAS_SPEED * self.scaled_bias

    def forward(self, features: Tensor) -> Tensor:
        projected: Tensor = self.weight(features)
        return projected + self.bias


@dataclass(frozen=True, kw_only=True)
class Garg(Thresholds):
    """Garg and Manwani (ACML 2020): ordinal regression whose loss is unbiased under known label
    noise.
    """

    needs: ClassVar[tuple[str, ...]] = ("transition",)
    inverse: Tensor = field(init=False, repr=False)  # P⁻¹

    def __post_init__(self) -> None:
        super().__post_init__()
        matrix = self.transition.cpu().numpy()
        condition = float(np.linalg.cond(matrix))
        if condition > 1e12:
            raise SrjtError(
                "garg inverts the transition matrix, and this one is singular: use less noise.",
                code="unsupported",
                option="noise_rate",
            )
        if condition > ILL_CONDITIONED:
            warn(
                "garg inverts the transition matrix, which is nearly singular here (condition"
                f" number {condition:.0f}, inverse entries up to"
                f" {np.abs(np.linalg.inv(matrix)).max():.0f}): its loss amplifies sampling noise"
                " that much, so expect unstable results."
            )
        object.__setattr__(self, "inverse", torch.from_numpy(np.linalg.inv(matrix)))

    def head(self, features: int, classes: int) -> nn.Module:
        """The published code starts all biases at 0, where no middle grade has any probability, and
        has no faster learning rate for them."""
        if self.convention == "published-code":
            return OrdinalHead(features, classes, spacing=0.0)
        return FastOrdinalHead(features, classes, spacing=GARG_SPACING)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return losses.garg(logits, targets, inverse=self.inverse)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Differences of Pr(grade > k), clamped at 0 (thresholds can cross) and renormalised."""
        above = torch.sigmoid(logits if logits.dtype == torch.float64 else logits.float())
        ones = torch.ones_like(above[..., :1])
        zeros = torch.zeros_like(above[..., :1])
        at_least = torch.cat([ones, above], dim=-1)
        differences = (at_least - torch.cat([above, zeros], dim=-1)).clamp(min=0)
        return differences / differences.sum(dim=-1, keepdim=True)

    def grades(self, logits: Tensor) -> Tensor:
        """The number of sigmoids above ½."""
        return (logits > 0).sum(dim=-1)


class ProportionalOdds(Thresholds):
    """The proportional-odds model: one severity w·x and C − 1 thresholds, Pr(grade > k) =
    σ(w·x − θ_k).

    It is not in the table of methods: it is what ``standard``, ``f-correction`` and ``srjt`` become
    with the network ``odds``. ``srjt.training.fit_odds`` fits its weights at once.
    """

    takes: ClassVar[tuple[str, ...]] = ("probabilities", "likelihoods")

    def head(self, features: int, classes: int) -> nn.Module:
        return OrdinalHead(features, classes, spacing=SPACING)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_p = self.probabilities(logits).clamp(min=torch.finfo(torch.float32).tiny).log()
        if targets.ndim == 3:
            return losses.readings_likelihood(log_p, targets)
        if targets.ndim == 2:
            return losses.soft_cross_entropy(log_p, targets)
        if self.transition is not None:
            return losses.forward_corrected(log_p, targets, transition=self.transition)
        return losses.hard_cross_entropy(log_p, targets)

    def probabilities(self, logits: Tensor) -> Tensor:
        """σ(a) − σ(b) = σ(a) σ(−b) (1 − e^(b − a)): the difference itself would round to 0 where
        both are near 1."""
        z = logits if logits.dtype == torch.float64 else logits.float()
        above = torch.sigmoid(z)
        below = torch.sigmoid(-z)
        ones = torch.ones_like(above[..., :1])
        gaps = 1.0 - torch.exp(z[..., 1:] - z[..., :-1])
        p = torch.cat([ones, above], dim=-1) * torch.cat([below, ones], dim=-1)
        p = p * torch.cat([ones, gaps, ones], dim=-1)
        return p / p.sum(dim=-1, keepdim=True)

    def grades(self, logits: Tensor) -> Tensor:
        """The number of k with Pr(grade > k) above ½."""
        return (logits > 0).sum(dim=-1)


@dataclass(frozen=True, kw_only=True)
class ExpectedAbsoluteError(SingleNetwork):
    """Expected absolute error: a network whose loss is smallest at the median of the noisy labels.

    It begins with cross-entropy, because the bounded loss alone can stall on the middle grade.

    Parameters
    ----------
    move_from, move_to : float
        Shares of the epochs: cross-entropy up to the first, the expected absolute error from the
        second, and a mixture that moves evenly from one to the other between.
    """

    move_from: float = 0.2
    move_to: float = 0.6

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.move_from < self.move_to <= 1.0:
            raise SrjtError(
                f"eae: 0 ≤ move_from < move_to ≤ 1; got {self.move_from:g} and {self.move_to:g}.",
                code="out_of_bounds",
                option="move_from",
            )

    def memory(self, samples: int) -> dict[str, Tensor]:
        return {"progress": torch.zeros(())}

    def per_sample(
        self, logits: Tensor, targets: Tensor, *, memory: Memory = None, rows: Tensor | None = None
    ) -> Tensor:
        """Without ``memory``: the expected absolute error, as after the warm-up."""
        error = losses.expected_absolute_error(logits, targets)
        if memory is None:
            return error
        moved = (memory["progress"] - self.move_from) / (self.move_to - self.move_from)
        share = moved.clamp(0.0, 1.0)
        return torch.lerp(losses.hard_cross_entropy(logits, targets), error, share.to(error.dtype))


@dataclass(frozen=True, kw_only=True)
class GeneralisedCrossEntropy(SingleNetwork):
    """Generalised cross-entropy (Zhang and Sabuncu, NeurIPS 2018): a confident mistake weighs less.

    Parameters
    ----------
    q : float
        Towards 0 the loss is cross-entropy; with 1 it is 1 − p.
    """

    q: float = setting(0.7, gt=0, le=1)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        return losses.generalised_cross_entropy(logits, targets, q=self.q)


@dataclass(frozen=True, kw_only=True)
class EarlyLearning(SingleNetwork):
    """Early-learning regularisation (Liu et al., NeurIPS 2020): stay with what was learnt before
    labels are memorised.

    Parameters
    ----------
    weight : float
        λ of the regularisation, as the authors set it for ten classes.
    momentum : float
        β, the share of the old value in a sample's running average.
    """

    weight: float = setting(3.0, ge=0)
    momentum: float = setting(0.7, ge=0, lt=1)

    def memory(self, samples: int) -> dict[str, Tensor]:
        return {"averages": torch.zeros(samples, self.num_classes)}

    def per_sample(
        self, logits: Tensor, targets: Tensor, *, memory: Memory = None, rows: Tensor | None = None
    ) -> Tensor:
        """Without ``memory``: as at a sample's first step, when its running average is 0."""
        with torch.no_grad():
            averages = (1.0 - self.momentum) * self.probabilities(logits)
            if memory is not None and rows is not None:
                averages += self.momentum * memory["averages"].index_select(0, rows)
                memory["averages"].index_copy_(0, rows, averages.float())
        regularisation = losses.early_learning(logits, averages)
        return losses.hard_cross_entropy(logits, targets) + self.weight * regularisation


@dataclass(frozen=True, kw_only=True)
class SymmetricCrossEntropy(SingleNetwork):
    """Symmetric cross-entropy (Wang et al., ICCV 2019): cross-entropy, plus that of the label under
    the prediction. The defaults are the authors' for ten classes (CIFAR-10).

    Parameters
    ----------
    alpha, beta : float
        Weights of cross-entropy and of reverse cross-entropy.
    log_zero : float
        A, what log 0 of the grades that are not the label counts as.
    """

    alpha: float = setting(0.1, ge=0)
    beta: float = setting(1.0, ge=0)
    log_zero: float = -4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.log_zero < 0.0:
            raise SrjtError(
                f"log_zero of sce, a logarithm, is negative; got {self.log_zero:g}.",
                code="out_of_bounds",
                option="log_zero",
            )

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        loss = losses.hard_cross_entropy(logits, targets)
        # −Σ_c p^c log l^c = −A (1 − p^ỹ) for a hard label l
        reverse = self.log_zero * (-loss).expm1()
        return self.alpha * loss + self.beta * reverse


@dataclass(frozen=True, kw_only=True)
class ClassDistanceWeighted(SingleNetwork):
    """Class distance weighted cross-entropy (Polat et al., MIUA 2022): a far grade costs more than
    a near one.

    The loss −Σ_c |c − ỹ|^α log(1 − p^c) pushes other grades down, and does not ask for the label
    itself. It is no proper score: its probabilities order the grades, and are not those of the
    labels.

    Parameters
    ----------
    alpha : float
        The power of the distance. 5 is common for LIMUC's four grades; the authors choose it for
        each network.
    """

    alpha: float = setting(5.0, gt=0)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_p = losses.log_probabilities(logits)
        grade = torch.arange(self.num_classes, device=log_p.device)
        # log(1 − p^c) by the sum of the other probabilities is finite where p^c rounds to 1
        others = log_p[:, None, :].masked_fill(grade == grade[:, None], -math.inf)  # (B, C, C)
        weight = (grade - targets[:, None]).abs().to(log_p.dtype) ** self.alpha  # (B, C)
        return -(weight * others.logsumexp(dim=-1)).sum(dim=-1)


class Corn(Thresholds):
    """CORN (Shi, Cao and Raschka, 2021): is the grade above k, given that it is above k − 1?

    There are C − 1 logits, each of Pr(grade > k | grade > k − 1); the chain rule makes
    probabilities of them.
    """

    def head(self, features: int, classes: int) -> nn.Module:
        return nn.Linear(features, classes - 1)

    def per_sample(self, logits: Tensor, targets: Tensor) -> Tensor:
        """A label ỹ answers the questions k = 0, …, ỹ. Their losses sum to −log p^ỹ; their mean is
        CORN's loss."""
        questions = (targets + 1).clamp(max=self.outputs)
        log_p = _log_probabilities(logits)
        return -log_p.gather(-1, targets[:, None]).squeeze(-1) / questions.to(log_p.dtype).mean()

    def probabilities(self, logits: Tensor) -> Tensor:
        return _log_probabilities(logits).exp()

    def grades(self, logits: Tensor) -> Tensor:
        """The number of k with Pr(grade > k) above ½."""
        return (_log_above(logits)[..., 1:] > math.log(0.5)).sum(dim=-1)


def _log_above(logits: Tensor) -> Tensor:
    """(..., C − 1) logits → (..., C): log Pr(grade ≥ k), the sum of the conditional ones."""
    conditional = F.logsigmoid(logits if logits.dtype == torch.float64 else logits.float())
    return F.pad(conditional.cumsum(dim=-1), (1, 0))


def _log_probabilities(logits: Tensor) -> Tensor:
    """(..., C − 1) logits → (..., C): log Pr(grade ≥ k) + log Pr(grade ≤ k | grade ≥ k)."""
    above = _log_above(logits)
    return above + F.pad(F.logsigmoid(-logits.to(above.dtype)), (0, 1))
