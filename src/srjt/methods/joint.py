"""Methods with two networks: the framework of joint training, its three hosts with and without
"+ours", and our recipe.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.methods.base import Keep, Loss, Memory, Method, remembered
from srjt.ordinal import losses
from srjt.ordinal.selection import keep_count, keep_rate, select_smallest
from srjt.settings import setting

# Joint training: two networks select clean samples for each other. One framework, three switches.
#
#     exchange   peer: each network learns from the other's selection; common: both from one
#     select     the loss that ranks samples: hard (with temperature τ) or soft
#     update     the loss to learn from: hard or soft
#
# A host (Co-teaching, JoCoR, CoDis) defines how a sample is scored, or which samples are selected.
# ``select="hard", update="hard"`` is the host as the paper describes it, ``"hard", "soft"`` is the
# paper's "+Ours" (Algorithms 1–3); the other combinations complete its ablation. With
# ``convention="original"`` a host follows its own publication, which differs from the paper's
# description.

LabelKind = Literal["hard", "soft"]
SHARPENED = 0.1  # the paper's τ for "+Ours"


@dataclass(frozen=True, kw_only=True)
class JointTraining(Method):
    """Two networks and a selection. A subclass is called a host.

    A host that keeps the R(T)·|B| samples of smallest score defines ``score``. A host that selects
    in another way, by a threshold of the loss for example, defines ``selection`` instead. If the
    networks do not exchange their selections, it defines ``combine``, too.

    Parameters
    ----------
    select, update : {"hard", "soft"}
        The label whose loss ranks the samples, and the label to learn from.
    temperature : float, optional
        τ of a hard selection. Default: 0.1 if the update is soft, else 1.
    co_lambda : float
        λ, the weight of the divergence D between the networks; hosts without D ignore it.
    per_class : bool
        Keep the same share within each grade. No option of a host that defines ``selection``.
    ramp_epochs : int, optional
        T' of the keep rate R(T): epochs until only 1 − ε is kept. Default: 5 (paper) or 10
        (published code, original). No option of a host that does not need the noise rate: it may
        select any sample.
    label_matrix : array-like, optional
        Soft labels by given grade, shape (C, C), instead of those of Eq. 3.
    """

    networks: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("noise_rate",)

    select: LabelKind = "hard"
    update: LabelKind = "hard"
    temperature: float | None = setting(None, gt=0)
    co_lambda: float = setting(0.1, ge=0)
    per_class: bool = False
    ramp_epochs: int | None = setting(None, gt=0)
    label_matrix: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if callable(vars(cls).get("select")):
            raise TypeError(
                f"{cls.__name__}: 'select' is an option; the method to define is 'selection'."
            )

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self).score is JointTraining.score and not self._has_own_selection():
            raise TypeError(
                f"{type(self).__name__} is no host: it defines neither 'score' nor 'selection'."
            )
        if self.per_class and self._has_own_selection():
            raise SrjtError(
                f"per_class ranks samples within each grade, but {type(self).__name__} does not"
                " rank them.",
                code="option_without_effect",
                option="per_class",
            )
        if self.temperature is not None and self.select == "soft":
            raise SrjtError(
                "temperature sharpens a hard selection only; with select='soft' it does nothing.",
                code="option_without_effect",
                option="temperature",
            )
        if self.label_matrix is not None and "soft" not in (self.select, self.update):
            raise SrjtError(
                "label_matrix replaces soft labels, but here both select and update are 'hard'.",
                code="option_without_effect",
                option="label_matrix",
            )

    @property
    def tau(self) -> float:
        """The temperature of everything inside the selection score."""
        if self.temperature is not None:  # of a hard selection
            return self.temperature
        if self.select == "hard" and self.update == "soft":
            return SHARPENED
        return 1.0

    @property
    def takes_probabilities(self) -> bool:
        return self.update == "soft"

    @classmethod
    def _has_own_selection(cls) -> bool:
        return cls.selection is not JointTraining.selection

    @classmethod
    def unused_options(cls) -> frozenset[str]:
        ranking = {"per_class"} if cls._has_own_selection() else set()
        keep_rate = set() if "noise_rate" in cls.needs else {"ramp_epochs"}
        return frozenset(ranking | keep_rate)

    def check_options(self) -> None:
        """An error for ``select="soft"`` if the selection does not depend on the loss: the row of
        an ablation that this option would make repeats the row of ``select="hard"``."""
        if self.select == "soft" and not _select_matters(self):
            raise SrjtError(
                f"{type(self).__name__} selects the same samples with select='soft' as with 'hard':"
                " its selection does not use the losses that it is given. Leave out this option.",
                code="option_without_effect",
                option="select",
            )

    def keep(self, epoch: int, batch_size: int) -> int:
        if "noise_rate" not in self.needs:
            return batch_size
        if self.noise_rate is None:
            raise SrjtError(
                "The number of samples to keep follows from the noise rate, which is not given.",
                code="missing_option",
                option="noise_rate",
            )
        rate = keep_rate(
            epoch,
            noise_rate=self.noise_rate,
            ramp_epochs=self.ramp_epochs,
            convention=self.convention,
        )
        return keep_count(batch_size, rate, convention=self.convention)

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        keep: Keep = None,
        memory: Memory = None,
        rows: Tensor | None = None,
    ) -> Loss:
        self.check_shapes(logits, targets)
        if targets.ndim != 1 and not self.takes_probabilities:
            raise SrjtError(
                f"A hard update takes grades (B,), not targets of shape {tuple(targets.shape)}.",
                code="wrong_shape",
                option="targets",
            )
        labels = targets if targets.ndim == 1 else targets.argmax(dim=-1)
        keep = len(targets) if keep is None else keep
        # never an empty selection
        keep = keep.clamp(min=1) if isinstance(keep, Tensor) else max(1, keep)
        with torch.no_grad():  # a rank has no gradient
            ranking = self._losses(logits, labels, targets, self.select, self.tau)
            if self.per_class:
                scores = self.score(ranking, logits)
                selected = select_smallest(scores, keep=keep, labels=labels)
            else:
                mask = self.selection(ranking, logits, keep, **remembered(memory, rows))
                selected = self._checked_mask(mask, ranking)
        learnt = self._losses(logits, labels, targets, self.update, 1.0)
        return self.combine(learnt, logits, selected)

    def _losses(
        self, logits: Tensor, labels: Tensor, targets: Tensor, kind: LabelKind, tau: float
    ) -> Tensor:
        """(2, B) each network's loss on each sample. Probabilities (B, C) as targets replace the
        soft labels."""
        if kind == "hard":
            return losses.hard_cross_entropy(
                logits, labels.expand(len(logits), -1), temperature=tau
            )
        if targets.ndim == 1:
            targets = losses.soft_labels(labels, self.num_classes, matrix=self.label_matrix)
        return losses.soft_cross_entropy(logits, targets)

    def learnt_soft_labels(self) -> Tensor | None:
        from_eq_3 = self.update == "soft" and self.label_matrix is None
        if from_eq_3:
            return losses.soft_label_matrix(self.num_classes)
        return None

    def _checked_mask(self, mask: Tensor, ranking: Tensor) -> Tensor:
        """(2, B) or (B,), of bool → (2, B)."""
        if mask.dtype != torch.bool or mask.shape not in (ranking.shape, ranking.shape[1:]):
            raise SrjtError(
                f"selection of {type(self).__name__} returns a mask of bool, of shape"
                f" {tuple(ranking.shape)} or {tuple(ranking.shape[1:])}; got {mask.dtype} of shape"
                f" {tuple(mask.shape)}.",
                code="wrong_shape",
                option="selection",
            )
        return mask.expand_as(ranking)

    # *given: for type checkers, to which a host that takes (losses, logits, keep) alone is
    # compatible with it
    def selection(
        self, losses_KB: Tensor, logits: Tensor, keep: int | Tensor, *given: Any, **memory: Any
    ) -> Tensor:
        """Which samples each network selects. Define it in a host that does not keep a fixed number
        of samples.

        Parameters
        ----------
        losses_KB : Tensor, shape (2, B)
            Each network's loss on each sample, hard or soft as ``select`` says, at the selection's
            temperature.
        logits : Tensor, shape (2, B, C)
        keep : int or 0-d Tensor on the device
            R(T)·|B|; the size of the batch if the host does not need the noise rate.
        **memory
            ``memory`` and ``rows`` of a host that remembers (see ``Method.memory``); else nothing.

        Returns
        -------
        Tensor of bool, shape (2, B) or (B,)
            The samples that network k selects, or those that both select. A network whose peer
            selects nothing learns nothing from the batch.
        """
        return select_smallest(self.score(losses_KB, logits), keep=keep)

    def score(self, losses_KB: Tensor, logits: Tensor) -> Tensor:
        """(2, B) losses at the selection's τ, (2, B, C) logits → (2, B) scores, small = clean."""
        raise NotImplementedError

    def combine(self, losses_KB: Tensor, logits: Tensor, selected: Tensor) -> Loss:
        """(2, B) update losses and selections → the loss. Here each network learns from the
        *other's* selection (Eq. 5)."""
        per_network = masked_mean(losses_KB, selected.flip(0))
        return Loss(per_network.sum(), per_network.detach(), selected)


def _select_matters(method: JointTraining, *, samples: int = 64, seed: int = 0) -> bool:
    """Whether a hard and a soft selection differ on any of several random batches, at the start and
    later on.

    The temperature is 1 in both, so that only the loss differs; the update does not change a
    selection.
    """
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(method.num_classes, (samples,), generator=random)
    kinds = [
        replace(method, select="hard", update="soft", temperature=1.0),
        replace(method, select="soft", update="soft", temperature=None),
    ]
    memories = [kind.memory(samples) for kind in kinds]
    for progress in (0.0, 0.5, 1.0):
        for scale in (0.3, 1.0, 3.0, 10.0):
            logits = scale * torch.randn(2, samples, method.outputs, generator=random)
            masks = []
            for kind, memory in zip(kinds, memories, strict=True):
                if "progress" in memory:
                    memory["progress"].fill_(progress)
                given = remembered(memory, torch.arange(samples))
                masks.append(kind.loss(logits, labels, keep=samples // 2, **given).selected)
            if not torch.equal(*masks):
                return True
    return False


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """(..., B) → (...,) mean where the mask is true. ``where``, not 0·loss: 0·∞ would be nan."""
    return torch.where(mask, values, 0.0).sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)


class CoTeaching(JointTraining):
    """Co-teaching (Han et al., NeurIPS 2018): each network learns from the samples that the other
    selects. Options as for ``JointTraining``.
    """

    def score(self, losses_KB: Tensor, logits: Tensor) -> Tensor:
        return losses_KB


@dataclass(frozen=True, kw_only=True)
class JoCor(JointTraining):
    """JoCoR (Wei et al., CVPR 2020): one common selection, and a loss that makes networks agree.

    Parameters
    ----------
    agree : {"selected", "all"}
        Samples on which the networks shall agree: the selected ones, or the discarded ones too.
    """

    agree: Literal["selected", "all"] = "selected"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._weighted and self.co_lambda >= 1.0:
            raise SrjtError(
                f"{self.convention!r} weights the labels by 1 − co_lambda, which is below 1; got"
                f" {self.co_lambda:g}.",
                code="out_of_bounds",
                option="co_lambda",
            )

    @property
    def _weighted(self) -> bool:
        """Whether labels count 1 − λ. Only with the agreement of the selected: no publication has
        another."""
        return self.convention != "paper" and self.agree == "selected"

    def score(self, losses_KB: Tensor, logits: Tensor) -> Tensor:
        """ℓ(f₁) + ℓ(f₂) + λD (Eq. 6), the same for both networks. The published code computes D at
        τ = 1."""
        tau = 1.0 if self.convention == "published-code" else self.tau
        return (self._losses_of_both(losses_KB) + self._disagreement(logits, tau)).expand_as(
            losses_KB
        )

    def combine(self, losses_KB: Tensor, logits: Tensor, selected: Tensor) -> Loss:
        """The common loss on the common selection, counted once; D at τ = 1.

        D needs no label: with ``agree="all"`` the discarded samples contribute to it too.
        """
        both = self._losses_of_both(losses_KB)
        divergence = self._disagreement(logits, 1.0)
        if self.agree == "all":
            total = masked_mean(both, selected[0]) + divergence.mean()
        else:
            total = masked_mean(both + divergence, selected[0])
        return Loss(total, masked_mean(losses_KB, selected).detach(), selected)

    def _losses_of_both(self, losses_KB: Tensor) -> Tensor:
        """(2, B) → (B,) ℓ₁ + ℓ₂, weighted by 1 − λ in the published code and in the original."""
        weight = 1.0 - self.co_lambda if self._weighted else 1.0
        return weight * losses_KB.sum(dim=0)

    def _disagreement(self, logits: Tensor, tau: float) -> Tensor:
        """(2, B, C) logits → (B,) λD."""
        return self.co_lambda * losses.jeffreys(logits[0], logits[1], temperature=tau)


class CoDis(JointTraining):
    """CoDis (Xia et al., ICCV 2023): prefer samples on which the two networks disagree. Options as
    for ``JointTraining``.
    """

    def score(self, losses_KB: Tensor, logits: Tensor) -> Tensor:
        """ℓ(f_n) − λD(p₁, p₂) (Eq. 8), with D at the selection's temperature in all conventions."""
        return losses_KB - self.co_lambda * self._divergence(logits[0], logits[1], self.tau)

    def combine(self, losses_KB: Tensor, logits: Tensor, selected: Tensor) -> Loss:
        """Each network learns from the other's selection: from ℓ, and in the original from ℓ − λD
        at τ = 1.

        Each network of the original minimises its own loss, in which the other's prediction is a
        constant.
        """
        if self.convention == "original":
            divergence = self._divergence(logits, logits.flip(0).detach(), 1.0)  # (2, B)
            losses_KB = losses_KB - self.co_lambda * divergence
        return super().combine(losses_KB, logits, selected)

    def _divergence(self, p: Tensor, q: Tensor, tau: float) -> Tensor:
        """(..., C) logits of the two networks → (...,) D."""
        if self.convention == "paper":
            return losses.jeffreys(p, q, temperature=tau)
        return losses.reverse_jensen_shannon(p, q, temperature=tau)


@dataclass(frozen=True, kw_only=True)
class ForwardAgreement(Method):
    """Our recipe: two networks learn from every label through the matrix of label errors, and agree
    on every image.

    The loss is the forward correction of both networks, plus their Jeffreys divergence on all
    samples; none is discarded.

    Two networks memorise different wrong labels. Agreement, which needs no label, undoes both. Its
    weight grows, so that networks that have learnt little yet are not held back.

    Parameters
    ----------
    co_lambda : float
        λ, the weight of the divergence.
    grows_with : {"training", "fit"}
        The weight is λ times the share of the epochs that are done, or λ times the mean probability
        of the given labels. A small set is memorised within a few epochs, before a weight that
        grows with the training counts.
    """

    networks: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("transition",)
    takes: ClassVar[tuple[str, ...]] = ("probabilities", "likelihoods")

    co_lambda: float = setting(10.0, ge=0)
    grows_with: Literal["training", "fit"] = "fit"

    def memory(self, samples: int) -> dict[str, Tensor]:
        if self.grows_with == "training":
            return {"progress": torch.zeros(())}
        return {}

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        keep: Keep = None,
        memory: Memory = None,
        rows: Tensor | None = None,
    ) -> Loss:
        """Without ``memory``, ``grows_with="training"`` is as at the end of the training."""
        self.check_shapes(logits, targets)
        per_network = self._label_losses(logits, targets).mean(dim=-1)  # (2,)
        disagreement = losses.jeffreys(logits[0], logits[1]).mean()
        if self.grows_with == "fit":
            disagreement = disagreement * _fit(logits, targets)
        elif memory is not None:
            disagreement = disagreement * memory["progress"].to(disagreement.dtype)
        everything = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        total = per_network.sum() + self.co_lambda * disagreement
        return Loss(total, per_network.detach(), everything)

    def _label_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(2, B) each network's loss on each sample."""
        if targets.ndim == 2:  # probabilities of the true grades: nothing to correct
            return losses.soft_cross_entropy(logits, targets)
        if targets.ndim == 3:
            return losses.readings_likelihood(logits, targets)
        labels = targets.expand(len(logits), -1)
        return losses.forward_corrected(logits, labels, transition=self.transition)


@torch.no_grad()
def _fit(logits: Tensor, targets: Tensor) -> Tensor:
    """() the mean probability of the labels (B,), of labels with probabilities (B, C), or of
    readings (B, R, C).

    Readings are given up to a factor: each counts in relation to its likeliest grade.
    """
    if targets.ndim == 3:
        scaled = targets / targets.amax(dim=-1, keepdim=True)
        return (-losses.readings_likelihood(logits, scaled) / targets.shape[1]).exp().mean()
    if targets.ndim == 2:
        return (logits.softmax(dim=-1) * targets).sum(dim=-1).mean()
    return (-losses.hard_cross_entropy(logits, targets.expand(len(logits), -1))).exp().mean()
