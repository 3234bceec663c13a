"""Data: ``read`` a source into a manifest, ``check`` its images, split it by patient (``folds``)."""

from __future__ import annotations

from srjt.data import synthetic
from srjt.data.checks import check
from srjt.data.groups import DuplicateImagesWarning, LeakageWarning, group_duplicates
from srjt.data.manifest import Manifest
from srjt.data.problems import Problem, drop_unusable, write_problems
from srjt.data.sources import Reading, from_arrays, read
from srjt.data.sources.several_readers import ReadingsTable, read_readings
from srjt.data.splits import Split, folds, official_split, read_splits, write_splits

__all__ = [
    "DuplicateImagesWarning",
    "LeakageWarning",
    "Manifest",
    "Problem",
    "Reading",
    "ReadingsTable",
    "Split",
    "check",
    "drop_unusable",
    "folds",
    "from_arrays",
    "group_duplicates",
    "official_split",
    "read",
    "read_readings",
    "read_splits",
    "synthetic",
    "write_problems",
    "write_splits",
]
