"""Data: ``read`` a source into a manifest, ``check`` its images, split it by patient (``folds``).

Public names are imported on first use, so that a process which only decodes images starts without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srjt.errors import lazy_names

if TYPE_CHECKING:
    from srjt.data import synthetic
    from srjt.data.checks import check
    from srjt.data.duplicates import DuplicateImagesWarning, LeakageWarning, group_duplicates
    from srjt.data.manifest import Manifest
    from srjt.data.problems import Problem, drop_unusable, write_problems
    from srjt.data.sources import LoadedData, from_arrays, read
    from srjt.data.sources.readings import ReadingsTable, read_readings
    from srjt.data.splits import Split, folds, official_split, read_splits, write_splits

__all__ = [
    "DuplicateImagesWarning",
    "LeakageWarning",
    "LoadedData",
    "Manifest",
    "Problem",
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

__getattr__ = lazy_names(
    __name__,
    {
        "DuplicateImagesWarning": "srjt.data.duplicates",
        "LeakageWarning": "srjt.data.duplicates",
        "Manifest": "srjt.data.manifest",
        "Problem": "srjt.data.problems",
        "LoadedData": "srjt.data.sources",
        "ReadingsTable": "srjt.data.sources.readings",
        "Split": "srjt.data.splits",
        "check": "srjt.data.checks",
        "drop_unusable": "srjt.data.problems",
        "folds": "srjt.data.splits",
        "from_arrays": "srjt.data.sources",
        "group_duplicates": "srjt.data.duplicates",
        "official_split": "srjt.data.splits",
        "read": "srjt.data.sources",
        "read_readings": "srjt.data.sources.readings",
        "read_splits": "srjt.data.splits",
        "synthetic": "srjt.data.synthetic",
        "write_problems": "srjt.data.problems",
        "write_splits": "srjt.data.splits",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
