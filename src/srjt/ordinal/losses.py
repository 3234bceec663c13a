"""Losses per sample. Logits come first, options by keyword; ``reduction="none"`` is the default.

All losses compute in float32 or better, whatever the logits' type, and in log space, so that logits of ±10⁴ and
probabilities that underflow still give finite losses and gradients. JoCoR, Co-teaching and CoDis combine these losses
in ``srjt.methods``.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from srjt.errors import SrjtError

__all__ = [
    "Reduction",
    "coral",
    "early_learning",
    "expected_absolute_error",
    "forward_corrected",
    "garg",
    "generalised_cross_entropy",
    "hard_cross_entropy",
    "jeffreys",
    "log_probabilities",
    "reverse_jensen_shannon",
    "reweighted",
    "soft_cross_entropy",
]

Reduction = Literal["none", "mean", "sum"]


def log_probabilities(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """log softmax(logits / τ) over the last axis, in at least float32.

    Parameters
    ----------
    logits : Tensor, shape (..., C)
    temperature : float
        τ; below 1 the probabilities are sharper.

    Returns
    -------
    Tensor, shape (..., C)

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import log_probabilities
    >>> log_probabilities(torch.zeros(1, 4)).exp()
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    if not temperature > 0:
        raise SrjtError(f"A softmax temperature is positive, not {temperature:g}.")
    return torch.log_softmax(_at_least_float32(logits) / temperature, dim=-1)


def hard_cross_entropy(
    logits: Tensor, labels: Tensor, *, temperature: float = 1.0, reduction: Reduction = "none"
) -> Tensor:
    """Cross-entropy of the label as given: ℓ_h = −log p^ỹ (Eq. 4).

    Parameters
    ----------
    logits : Tensor, shape (..., C)
    labels : Tensor of int, shape (...,)
    temperature : float
        τ of the softmax.
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import hard_cross_entropy
    >>> hard_cross_entropy(torch.zeros(1, 4), torch.tensor([2]))
    tensor([1.3863])
    """
    return _reduce(-_at_label(log_probabilities(logits, temperature=temperature), labels), reduction)


def soft_cross_entropy(logits: Tensor, targets: Tensor, *, reduction: Reduction = "none") -> Tensor:
    """Cross-entropy of soft labels: ℓ_s = −Σ_c l^c log p^c (Eq. 5).

    Parameters
    ----------
    logits : Tensor, shape (..., C)
    targets : Tensor, shape (..., C)
        Soft labels; each row sums to 1.
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import srjt, torch
    >>> from srjt.ordinal.losses import soft_cross_entropy
    >>> soft_cross_entropy(torch.zeros(1, 4), srjt.soft_labels([2], 4))
    tensor([1.3863])
    """
    log_p = log_probabilities(logits)
    return _reduce(-(targets.to(log_p.dtype) * log_p).sum(dim=-1), reduction)


def jeffreys(
    logits_p: Tensor, logits_q: Tensor, *, temperature: float = 1.0, reduction: Reduction = "none"
) -> Tensor:
    """Jeffreys divergence J(p, q) = KL(p‖q) + KL(q‖p): the paper's D.

    Parameters
    ----------
    logits_p, logits_q : Tensor, shape (..., C)
        Logits of the two networks.
    temperature : float
        τ of the softmax.
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import jeffreys
    >>> jeffreys(torch.zeros(1, 4), torch.zeros(1, 4))
    tensor([0.])
    """
    log_p = log_probabilities(logits_p, temperature=temperature)
    log_q = log_probabilities(logits_q, temperature=temperature)
    return _reduce(((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1), reduction)


def reverse_jensen_shannon(
    logits_p: Tensor, logits_q: Tensor, *, temperature: float = 1.0, reduction: Reduction = "none"
) -> Tensor:
    """½ [KL(m‖p) + KL(m‖q)] with m = (p + q)/2: the D that the published code uses for CoDis.

    The Jensen–Shannon divergence has its arguments in the other order, and is bounded; this one is not.

    Parameters
    ----------
    logits_p, logits_q : Tensor, shape (..., C)
        Logits of the two networks.
    temperature : float
        τ of the softmax.
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import reverse_jensen_shannon
    >>> reverse_jensen_shannon(torch.zeros(1, 4), torch.zeros(1, 4))
    tensor([0.])
    """
    log_p = log_probabilities(logits_p, temperature=temperature)
    log_q = log_probabilities(logits_q, temperature=temperature)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2.0)
    return _reduce((log_m.exp() * (log_m - 0.5 * (log_p + log_q))).sum(dim=-1), reduction)


def expected_absolute_error(logits: Tensor, labels: Tensor, *, reduction: Reduction = "none") -> Tensor:
    """Expected absolute error: E_p |grade − ỹ| = Σ_c p^c |c − ỹ|.

    It is bounded and linear in p. Over noisy labels of one image it is smallest at their median, which is the true
    grade unless half of the labels err to one side.

    Parameters
    ----------
    logits : Tensor, shape (..., C)
    labels : Tensor of int, shape (...,)
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import expected_absolute_error
    >>> expected_absolute_error(torch.zeros(1, 4), torch.tensor([0]))
    tensor([1.5000])
    """
    _check_labels(logits, labels)
    p = log_probabilities(logits).exp()
    distance = (torch.arange(p.shape[-1], device=p.device) - labels[..., None]).abs()
    return _reduce((p * distance).sum(dim=-1), reduction)


def generalised_cross_entropy(
    logits: Tensor, labels: Tensor, *, q: float = 0.7, reduction: Reduction = "none"
) -> Tensor:
    """Generalised cross-entropy: (1 − (p^ỹ)^q) / q, between cross-entropy (q → 0) and 1 − p^ỹ (q = 1).

    Parameters
    ----------
    logits : Tensor, shape (..., C)
    labels : Tensor of int, shape (...,)
    q : float
        In (0, 1]; the larger, the less a confident mistake weighs.
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import generalised_cross_entropy
    >>> generalised_cross_entropy(torch.zeros(1, 4), torch.tensor([2]), q=1.0)
    tensor([0.7500])
    """
    if not 0.0 < q <= 1.0:
        raise SrjtError(f"q of the generalised cross-entropy lies in (0, 1]; got {q:g}.")
    return _reduce(-torch.expm1(q * _at_label(log_probabilities(logits), labels)) / q, reduction)


def early_learning(logits: Tensor, averages: Tensor, *, reduction: Reduction = "none") -> Tensor:
    """Early-learning regularisation: log(1 − ⟨t, p⟩), smallest where p stays with what was learnt early.

    Parameters
    ----------
    logits : Tensor, shape (..., C)
    averages : Tensor, shape (..., C)
        t, the running average of the network's own probabilities for the sample.
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import early_learning
    >>> early_learning(torch.zeros(1, 4), torch.tensor([[0.5, 0.5, 0.0, 0.0]]))
    tensor([-0.2877])
    """
    p = log_probabilities(logits).exp()
    # at ⟨t, p⟩ = 1 the logarithm is −∞: the bound is the one of the authors' code for single probabilities
    return _reduce((1.0 - (averages.to(p.dtype) * p).sum(dim=-1)).clamp(min=1e-4).log(), reduction)


def forward_corrected(
    logits: Tensor, labels: Tensor, *, transition: Tensor, reduction: Reduction = "none"
) -> Tensor:
    """Forward correction: −log (Pᵀp)^ỹ.

    The network predicts the true grade; P turns that into the probability of the label.

    Parameters
    ----------
    logits : Tensor, shape (..., C)
    labels : Tensor of int, shape (...,)
    transition : Tensor, shape (C, C)
        P[i, j] = Pr(label = j | true grade = i).
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import forward_corrected
    >>> forward_corrected(torch.zeros(1, 4), torch.tensor([2]), transition=torch.eye(4))
    tensor([1.3863])
    """
    return _reduce(-_log_label_probability(log_probabilities(logits), labels, transition), reduction)


def reweighted(
    logits: Tensor, labels: Tensor, *, transition: Tensor, reduction: Reduction = "none"
) -> Tensor:
    """Importance reweighting: β ℓ_h with β = p^ỹ / (Pᵀp)^ỹ, through which no gradient flows.

    Parameters
    ----------
    logits : Tensor, shape (..., C)
    labels : Tensor of int, shape (...,)
    transition : Tensor, shape (C, C)
        P[i, j] = Pr(label = j | true grade = i).
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import reweighted
    >>> reweighted(torch.zeros(1, 4), torch.tensor([2]), transition=torch.eye(4))
    tensor([1.3863])
    """
    log_p = log_probabilities(logits)
    log_p_label = _at_label(log_p, labels)
    with torch.no_grad():
        # β ≤ 1/P_ỹỹ, so for a grade that is never labelled right there is no bound; e⁴⁰ · 0 is 0, but ∞ · 0 is nan
        weight = (log_p_label - _log_label_probability(log_p, labels, transition)).clamp(max=40.0).exp()
    return _reduce(-weight * log_p_label, reduction)


def _log_label_probability(log_p: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """log (Pᵀp)^ỹ = log Σ_i p_i P_iỹ. An impossible transition is log 0 = −∞, which logsumexp handles."""
    _check_labels(log_p, labels)
    log_column = transition.to(log_p.device, log_p.dtype).log().T[labels]  # (..., C): log P_iỹ over i
    return torch.logsumexp(log_p + log_column, dim=-1)


def coral(logits: Tensor, labels: Tensor, *, reduction: Reduction = "none") -> Tensor:
    """CORAL: the sum of C − 1 binary losses, "is the grade above k?".

    Parameters
    ----------
    logits : Tensor, shape (..., C − 1)
    labels : Tensor of int, shape (...,)
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import coral
    >>> coral(torch.zeros(1, 3), torch.tensor([2]))
    tensor([2.0794])
    """
    _check_labels(logits, labels)
    z = _at_least_float32(logits)
    above = (labels[..., None] > torch.arange(z.shape[-1], device=z.device)).to(z.dtype)
    return _reduce(F.binary_cross_entropy_with_logits(z, above, reduction="none").sum(dim=-1), reduction)


def garg(logits: Tensor, labels: Tensor, *, inverse: Tensor, reduction: Reduction = "none") -> Tensor:
    """Σ_j (P⁻¹)_ỹj ℓ_coral(·, j): its mean over the noise is the loss on the true label. It can be negative.

    Parameters
    ----------
    logits : Tensor, shape (..., C − 1)
    labels : Tensor of int, shape (...,)
    inverse : Tensor, shape (C, C)
        P⁻¹.
    reduction : {"none", "mean", "sum"}
        Over the samples.

    Returns
    -------
    Tensor, shape (...,) for ``reduction="none"``, else ()

    Examples
    --------
    >>> import torch
    >>> from srjt.ordinal.losses import garg
    >>> garg(torch.zeros(1, 3), torch.tensor([2]), inverse=torch.eye(4))
    tensor([2.0794])
    """
    _check_labels(logits, labels)
    z = _at_least_float32(logits)
    every_grade = torch.arange(z.shape[-1] + 1, device=z.device).expand(*labels.shape, -1)  # (..., C)
    per_grade = coral(z[..., None, :].expand(*every_grade.shape, -1), every_grade)  # (..., C)
    return _reduce((inverse.to(z.device, z.dtype)[labels] * per_grade).sum(dim=-1), reduction)


def _at_label(log_p: Tensor, labels: Tensor) -> Tensor:
    """log p^ỹ: (..., C), (...,) → (...,)."""
    _check_labels(log_p, labels)
    return log_p.gather(-1, labels[..., None]).squeeze(-1)


def _check_labels(logits: Tensor, labels: Tensor) -> None:
    """An error unless there is one label per sample: ``gather`` accepts fewer, and ignores the other samples."""
    if labels.shape != logits.shape[:-1]:
        raise SrjtError(
            f"Logits {tuple(logits.shape)} need one label per sample: {tuple(logits.shape[:-1])}, "
            f"not {tuple(labels.shape)}."
        )


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _reduce(per_sample: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "none":
        return per_sample
    if reduction == "mean":
        return per_sample.mean()
    if reduction == "sum":
        return per_sample.sum()
    raise SrjtError(f"reduction is 'none', 'mean' or 'sum', not {reduction!r}.")
