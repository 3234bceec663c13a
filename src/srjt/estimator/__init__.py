"""The training as a scikit-learn estimator, for pipelines and searches."""

from __future__ import annotations

from srjt.estimator.classifier import OrdinalNoiseClassifier

__all__ = ["OrdinalNoiseClassifier"]
