"""What a network learns from an ordinal label: hard and soft labels, and the losses of all
methods.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from srjt.errors import SrjtError

# From grades to target distributions: hard, smoothed and soft labels.


def soft_label_matrix(
    num_classes: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """The soft labels of all grades: row ỹ is exp(−|c − ỹ|) / Σ_c' exp(−|c' − ỹ|) (Eq. 3).

    It is computed on the device, without a transfer, so that it can be called inside a captured
    CUDA graph.

    Parameters
    ----------
    num_classes : int
        C, the number of grades.
    dtype, device
        Of the result (C, C), whose rows sum to 1.

    Examples
    --------
    >>> soft_label_matrix(2).round(decimals=3)
    tensor([[0.7310, 0.2690],
            [0.2690, 0.7310]])
    """
    if num_classes < 2:
        raise SrjtError(
            f"Ordinal labels need at least two grades, not {num_classes}.",
            code="too_few",
            option="num_classes",
        )
    grade = torch.arange(num_classes, dtype=dtype, device=device)
    return torch.softmax(-(grade[:, None] - grade[None, :]).abs(), dim=1)


def soft_labels(
    labels: Any,
    num_classes: int,
    *,
    matrix: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Soft labels of grades: exp(−|c − ỹ|) / Σ_c' exp(−|c' − ỹ|) for each grade c (Eq. 3).

    Parameters
    ----------
    labels : Tensor or array-like of int, any shape
        Grades 0 … C − 1.
    num_classes : int
        C, the number of grades.
    matrix : Tensor, shape (C, C), optional
        Soft labels of your own instead of Eq. 3: row ỹ is the soft label of grade ỹ.
    dtype : torch.dtype
        Of the result (..., C), where ``matrix`` is not given.

    Examples
    --------
    >>> soft_labels([0], 3).round(decimals=3)
    tensor([[0.6650, 0.2450, 0.0900]])
    """
    grades = _grades(labels, num_classes)
    if matrix is not None:
        return matrix.to(grades.device)[grades]
    return soft_label_matrix(num_classes, dtype=dtype, device=grades.device)[grades]


def one_hot(labels: Any, num_classes: int, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Hard labels (..., C) of grades: 1 at the label, else 0 (Eq. 1).

    Parameters
    ----------
    labels, num_classes, dtype
        As for ``soft_labels``.

    Examples
    --------
    >>> one_hot([1], 3)
    tensor([[0., 1., 0.]])
    """
    grades = _grades(labels, num_classes)
    return (grades[..., None] == torch.arange(num_classes, device=grades.device)).to(dtype)


def smooth_labels(
    labels: Any, num_classes: int, *, smoothing: float = 0.1, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Labels (..., C) smoothed uniformly: ``smoothing`` is spread over *all* C grades, including
    the label.

    Parameters
    ----------
    labels, num_classes, dtype
        As for ``soft_labels``.
    smoothing : float
        Share that is spread, between 0 and 1.

    Examples
    --------
    >>> smooth_labels([0], 4, smoothing=0.4)
    tensor([[0.7000, 0.1000, 0.1000, 0.1000]])
    """
    if not 0.0 <= smoothing <= 1.0:
        raise SrjtError(
            f"Label smoothing lies between 0 and 1, not {smoothing:g}.",
            code="out_of_bounds",
            option="smoothing",
        )
    return (1.0 - smoothing) * one_hot(labels, num_classes, dtype=dtype) + smoothing / num_classes


def _grades(labels: Any, num_classes: int) -> Tensor:
    """Labels as an int64 tensor. The range is checked on the CPU only: a check on a GPU would wait
    for it."""
    grades = torch.as_tensor(labels)
    if grades.dtype.is_floating_point or grades.dtype.is_complex or grades.dtype == torch.bool:
        raise SrjtError(
            f"Labels are whole grades 0 … {num_classes - 1}, not {grades.dtype}.",
            code="wrong_type",
            option="labels",
        )
    grades = grades.long()
    if grades.device.type == "cpu" and grades.numel():
        lowest = int(grades.min())
        highest = int(grades.max())
        if lowest < 0 or highest >= num_classes:
            raise SrjtError(
                f"Labels lie in 0 … {num_classes - 1}; they reach from {lowest} to {highest}.",
                code="unknown_grade",
                option="labels",
            )
    return grades


# Losses per sample. Logits come first, options by keyword.
#
# All losses compute in float32 or better, whatever the logits' type, and in log space, so that
# logits of ±10⁴ and probabilities that underflow still give finite losses and gradients. JoCoR,
# Co-teaching and CoDis combine these losses in ``srjt.methods``.
#
# They share their arguments: logits (..., C), labels (...,) of int, the temperature τ of the
# softmax, and the transition matrix (C, C) with P[i, j] = Pr(label = j | true grade = i). A loss
# has the shape (...,).


def log_probabilities(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """log softmax(logits / τ) over the last axis, in at least float32; a temperature τ below 1
    sharpens the probabilities.

    Examples
    --------
    >>> log_probabilities(torch.zeros(1, 4)).exp()
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    if not temperature > 0:
        raise SrjtError(
            f"A softmax temperature is positive, not {temperature:g}.",
            code="out_of_bounds",
            option="temperature",
        )
    return torch.log_softmax(_at_least_float32(logits) / temperature, dim=-1)


def hard_cross_entropy(logits: Tensor, labels: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Cross-entropy of the label as given: ℓ_h = −log p^ỹ (Eq. 4).

    Examples
    --------
    >>> hard_cross_entropy(torch.zeros(1, 4), torch.tensor([2]))
    tensor([1.3863])
    """
    return -_at_label(log_probabilities(logits, temperature=temperature), labels)


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of soft labels (..., C): ℓ_s = −Σ_c l^c log p^c (Eq. 5).

    Examples
    --------
    >>> soft_cross_entropy(torch.zeros(1, 4), soft_labels([2], 4))
    tensor([1.3863])
    """
    log_p = log_probabilities(logits)
    return -(targets.to(log_p.dtype) * log_p).sum(dim=-1)


def jeffreys(logits_p: Tensor, logits_q: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Jeffreys divergence J(p, q) = KL(p‖q) + KL(q‖p): the paper's D.

    Examples
    --------
    >>> jeffreys(torch.zeros(1, 4), torch.zeros(1, 4))
    tensor([0.])
    """
    log_p = log_probabilities(logits_p, temperature=temperature)
    log_q = log_probabilities(logits_q, temperature=temperature)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1)


def reverse_jensen_shannon(
    logits_p: Tensor, logits_q: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """½ [KL(m‖p) + KL(m‖q)] with m = (p + q)/2: the D that the published code uses for CoDis.

    The Jensen–Shannon divergence has its arguments in the other order, and is bounded; this one is
    not.

    Examples
    --------
    >>> reverse_jensen_shannon(torch.zeros(1, 4), torch.zeros(1, 4))
    tensor([0.])
    """
    log_p = log_probabilities(logits_p, temperature=temperature)
    log_q = log_probabilities(logits_q, temperature=temperature)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2.0)
    return (log_m.exp() * (log_m - 0.5 * (log_p + log_q))).sum(dim=-1)


def expected_absolute_error(logits: Tensor, labels: Tensor) -> Tensor:
    """Expected absolute error: E_p |grade − ỹ| = Σ_c p^c |c − ỹ|.

    It is bounded and linear in p. Over noisy labels of one image it is smallest at their median,
    which is the true grade unless half of the labels err to one side.

    Examples
    --------
    >>> expected_absolute_error(torch.zeros(1, 4), torch.tensor([0]))
    tensor([1.5000])
    """
    _check_labels(logits, labels)
    p = log_probabilities(logits).exp()
    distance = (torch.arange(p.shape[-1], device=p.device) - labels[..., None]).abs()
    return (p * distance).sum(dim=-1)


def generalised_cross_entropy(logits: Tensor, labels: Tensor, *, q: float = 0.7) -> Tensor:
    """Generalised cross-entropy: (1 − (p^ỹ)^q) / q, between cross-entropy (q → 0) and 1 − p^ỹ (q =
    1).

    The larger q, in (0, 1], the less a confident mistake weighs.

    Examples
    --------
    >>> generalised_cross_entropy(torch.zeros(1, 4), torch.tensor([2]), q=1.0)
    tensor([0.7500])
    """
    if not 0.0 < q <= 1.0:
        raise SrjtError(
            f"q of the generalised cross-entropy lies in (0, 1]; got {q:g}.",
            code="out_of_bounds",
            option="q",
        )
    return -torch.expm1(q * _at_label(log_probabilities(logits), labels)) / q


def early_learning(logits: Tensor, averages: Tensor) -> Tensor:
    """Early-learning regularisation: log(1 − ⟨t, p⟩), smallest where p stays with what was learnt
    early.

    averages: (..., C) t, the running average of the network's own probabilities for the sample.

    Examples
    --------
    >>> early_learning(torch.zeros(1, 4), torch.tensor([[0.5, 0.5, 0.0, 0.0]]))
    tensor([-0.2877])
    """
    p = log_probabilities(logits).exp()
    # at ⟨t, p⟩ = 1 the logarithm is −∞: the bound is the one of the authors' code for single
    # probabilities
    return (1.0 - (averages.to(p.dtype) * p).sum(dim=-1)).clamp(min=1e-4).log()


def forward_corrected(logits: Tensor, labels: Tensor, *, transition: Tensor) -> Tensor:
    """Forward correction: −log (Pᵀp)^ỹ.

    The network predicts the true grade; P turns that into the probability of the label. For
    readers, whose matrices differ, see ``readings_likelihood``.

    Examples
    --------
    >>> forward_corrected(torch.zeros(1, 4), torch.tensor([2]), transition=torch.eye(4))
    tensor([1.3863])
    """
    return -_log_label_probability(log_probabilities(logits), labels, transition)


def readings_likelihood(logits: Tensor, likelihoods: Tensor) -> Tensor:
    """−Σ_r log Σ_i p_i L_ri: forward correction where each sample has its own readings.

    One row L_i = ∏_r P_r[i, reading r], such as a posterior divided by its prior, gives the
    marginal likelihood of all readings together: they are readings of one true grade. A row for
    each reading gives the sum of their marginals, −Σ_r log (P_rᵀp)[reading r], as if each had a
    true grade of its own. With one reading both are the same.

    likelihoods: (…, R, C) Pr(reading r | true grade i), or of several readings together; up to a
    factor.

    Examples
    --------
    >>> readings_likelihood(torch.zeros(1, 4), torch.eye(4)[None, 2:3])
    tensor([1.3863])
    """
    log_p = log_probabilities(logits).unsqueeze(-2)
    return -torch.logsumexp(log_p + likelihoods.to(log_p.dtype).log(), dim=-1).sum(dim=-1)


def reweighted(logits: Tensor, labels: Tensor, *, transition: Tensor) -> Tensor:
    """Importance reweighting: β ℓ_h with β = p^ỹ / (Pᵀp)^ỹ, through which no gradient flows.

    Examples
    --------
    >>> reweighted(torch.zeros(1, 4), torch.tensor([2]), transition=torch.eye(4))
    tensor([1.3863])
    """
    log_p = log_probabilities(logits)
    log_p_label = _at_label(log_p, labels)
    with torch.no_grad():
        # β ≤ 1/P_ỹỹ, so for a grade that is never labelled right there is no bound; e⁴⁰ · 0 is 0,
        # but ∞ · 0 is nan
        weight = (
            (log_p_label - _log_label_probability(log_p, labels, transition)).clamp(max=40.0).exp()
        )
    return -weight * log_p_label


def _log_label_probability(log_p: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    """log (Pᵀp)^ỹ = log Σ_i p_i P_iỹ. An impossible transition is log 0 = −∞, which logsumexp
    handles."""
    _check_labels(log_p, labels)
    log_column = (
        transition.to(log_p.device, log_p.dtype).log().T[labels]
    )  # (..., C): log P_iỹ over i
    return torch.logsumexp(log_p + log_column, dim=-1)


def coral(logits: Tensor, labels: Tensor) -> Tensor:
    """CORAL: the sum of C − 1 binary losses, "is the grade above k?", of logits (..., C − 1).

    Examples
    --------
    >>> coral(torch.zeros(1, 3), torch.tensor([2]))
    tensor([2.0794])
    """
    _check_labels(logits, labels)
    z = _at_least_float32(logits)
    above = (labels[..., None] > torch.arange(z.shape[-1], device=z.device)).to(z.dtype)
    return F.binary_cross_entropy_with_logits(z, above, reduction="none").sum(dim=-1)


def garg(logits: Tensor, labels: Tensor, *, inverse: Tensor) -> Tensor:
    """Σ_j (P⁻¹)_ỹj ℓ_coral(·, j): its mean over the noise is the loss on the true label. It can be
    negative.

    logits: (..., C − 1). inverse: (C, C) P⁻¹.

    Examples
    --------
    >>> garg(torch.zeros(1, 3), torch.tensor([2]), inverse=torch.eye(4))
    tensor([2.0794])
    """
    _check_labels(logits, labels)
    z = _at_least_float32(logits)
    every_grade = torch.arange(z.shape[-1] + 1, device=z.device).expand(
        *labels.shape, -1
    )  # (..., C)
    per_grade = coral(z[..., None, :].expand(*every_grade.shape, -1), every_grade)  # (..., C)
    return (inverse.to(z.device, z.dtype)[labels] * per_grade).sum(dim=-1)


def _at_label(log_p: Tensor, labels: Tensor) -> Tensor:
    """log p^ỹ: (..., C), (...,) → (...,)."""
    _check_labels(log_p, labels)
    return log_p.gather(-1, labels[..., None]).squeeze(-1)


def _check_labels(logits: Tensor, labels: Tensor) -> None:
    """An error unless there is one label per sample: ``gather`` accepts fewer, and ignores the
    other samples."""
    if labels.shape != logits.shape[:-1]:
        raise SrjtError(
            f"Logits {tuple(logits.shape)} need one label per sample: {tuple(logits.shape[:-1])}, "
            f"not {tuple(labels.shape)}.",
            code="wrong_shape",
            option="labels",
        )


def _at_least_float32(logits: Tensor) -> Tensor:
    if logits.dtype == torch.float64:
        return logits
    return logits.float()
