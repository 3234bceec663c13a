"""Label noise: matrices and injection, the noise estimate, and the quality of each label.

Needs numpy and scipy alone: nothing here knows of images, files or training.
"""

from __future__ import annotations

from srjt.noise.estimate import NoiseEstimate, estimate_noise
from srjt.noise.matrices import (
    FAMILIES,
    NoiseReport,
    check_matrix,
    corrupt,
    expected_rate,
    largest_rho,
    noise_from_posterior,
    report,
    rho_for_rate,
    transition_matrix,
)
from srjt.noise.quality import label_quality, true_grade_posterior
from srjt.noise.verified import exact_interval, labels_to_verify

__all__ = [
    "FAMILIES",
    "NoiseEstimate",
    "NoiseReport",
    "check_matrix",
    "corrupt",
    "estimate_noise",
    "exact_interval",
    "expected_rate",
    "label_quality",
    "labels_to_verify",
    "largest_rho",
    "noise_from_posterior",
    "report",
    "rho_for_rate",
    "transition_matrix",
    "true_grade_posterior",
]
