"""A trained model as one self-contained module: samples in, probabilities out."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from srjt.data.images.augment import IMAGENET_MEAN, IMAGENET_STD
from srjt.errors import SrjtError
from srjt.inference.grade_rule import uses_own_rule
from srjt.ordinal.decoding import expected_grade
from srjt.ordinal.grade_rules import GradeRule
from srjt.ordinal.recalibration import FLOOR, Recalibration
from srjt.training.engine.stacked_networks import StackedNetworks
from srjt.training.trained import Trained

__all__ = ["OUTPUTS", "ExportModule", "on_cpu"]

OUTPUTS = ("probabilities", "grade", "severity")


def on_cpu(run: Trained) -> Trained:
    """The same model on the CPU in float32: the reference for an exported file."""
    members = [copy.deepcopy(member).cpu().float() for member in run.networks.members]
    for member in members:
        member.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return replace(
        run,
        networks=StackedNetworks(members).eval(),
        method=run.method.to("cpu"),
        config=run.config.replace(precision="fp32"),
        preprocess=replace(run.preprocess, dtype=torch.float32, channels_last=False),
        device=torch.device("cpu"),
        cpu=None,
    )


class ExportModule(nn.Module):
    """uint8 RGB images (N, H, W, 3) of the stored size, or float32 features (N, F) →

    probabilities (N, C): the mean over the networks of the method's own probabilities, recalibrated if that is given;
    grade (N,) int64: by the rule of the run (``grade_rule``);
    severity (N,): the expected grade.
    """

    def __init__(self, run: Trained, rule: GradeRule, recalibration: Recalibration | None = None) -> None:
        super().__init__()
        if run.preprocess.eval_transform is not None:
            raise SrjtError(
                "Your own eval_transform cannot be exported: export a run without one, and apply the transform "
                "before the exported network."
            )
        self.networks = nn.ModuleList(run.networks.members)
        self.method = run.method
        self.rule = rule
        self.own_rule = uses_own_rule(run, rule, recalibrated=recalibration is not None)
        self.crop = run.config.crop
        self.margin = (run.config.image_size - run.config.crop) // 2
        self.scale: Tensor
        self.shift: Tensor
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
        self.register_buffer("scale", 1 / (255 * std))
        self.register_buffer("shift", -mean / std)
        self.recalibrates = recalibration is not None
        self.slope = 1.0 if recalibration is None else recalibration.slope
        self.offsets: Tensor
        offsets = np.zeros(1) if recalibration is None else recalibration.offsets
        self.register_buffer("offsets", torch.tensor(offsets, dtype=torch.float32))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = samples if samples.ndim == 2 else self.normalise_centre(samples)
        logits = torch.stack([network(x) for network in self.networks])
        probabilities = self.method.probabilities(logits).mean(dim=0)
        if self.recalibrates:
            log_p = probabilities.clamp(min=FLOOR).log()
            probabilities = torch.softmax(self.slope * log_p + self.offsets, dim=-1)
        grade = self.method.grades(logits)[0] if self.own_rule else self.rule.grades(probabilities)
        return probabilities, grade, expected_grade(probabilities)

    def normalise_centre(self, images: Tensor) -> Tensor:
        """(N, H, W, 3) uint8 → (N, 3, crop, crop): the centre crop, as in evaluation."""
        centre = slice(self.margin, self.margin + self.crop)
        return images[:, centre, centre].permute(0, 3, 1, 2).to(torch.float32) * self.scale + self.shift
