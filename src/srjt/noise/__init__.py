"""Label noise: matrices and injection, the noise estimate, and the quality of each label.

Needs numpy and scipy alone: nothing here knows of images, files or training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srjt.lazy import lazy_names

if TYPE_CHECKING:
    from srjt.noise.estimate import NoiseEstimate as NoiseEstimate, estimate_noise as estimate_noise
    from srjt.noise.matrices import (
        FAMILIES as FAMILIES,
        NoiseReport as NoiseReport,
        check_matrix as check_matrix,
        corrupt as corrupt,
        expected_rate as expected_rate,
        largest_rho as largest_rho,
        noise_from_posterior as noise_from_posterior,
        report as report,
        rho_for_rate as rho_for_rate,
        transition_matrix as transition_matrix,
    )
    from srjt.noise.quality import (
        label_quality as label_quality,
        true_grade_posterior as true_grade_posterior,
    )
    from srjt.noise.verified import (
        exact_interval as exact_interval,
        labels_to_verify as labels_to_verify,
    )

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "srjt.noise.estimate": ("NoiseEstimate", "estimate_noise"),
        "srjt.noise.matrices": (
            "FAMILIES",
            "NoiseReport",
            "check_matrix",
            "corrupt",
            "expected_rate",
            "largest_rho",
            "noise_from_posterior",
            "report",
            "rho_for_rate",
            "transition_matrix",
        ),
        "srjt.noise.quality": ("label_quality", "true_grade_posterior"),
        "srjt.noise.verified": ("exact_interval", "labels_to_verify"),
    },
)
