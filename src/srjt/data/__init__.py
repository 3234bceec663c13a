"""Data: ``read`` a source into a manifest, ``check`` its images, split it by patient (``folds``).

Public names are imported on first use, so that a process which only decodes images starts without
torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srjt.lazy import lazy_names

if TYPE_CHECKING:
    from srjt.data import synthetic as synthetic
    from srjt.data.checks import check as check
    from srjt.data.duplicates import (
        DuplicateImagesWarning as DuplicateImagesWarning,
        group_duplicates as group_duplicates,
    )
    from srjt.data.manifest import (
        LeakageWarning as LeakageWarning,
        Manifest as Manifest,
        drop_unusable as drop_unusable,
        write_problems as write_problems,
    )
    from srjt.data.problems import Problem as Problem, ReadReport as ReadReport
    from srjt.data.sources import LoadedData as LoadedData, from_arrays as from_arrays, read as read
    from srjt.data.sources.readings import (
        ReadingsTable as ReadingsTable,
        read_readings as read_readings,
    )
    from srjt.data.splits import (
        Split as Split,
        corrupt as corrupt,
        folds as folds,
        official_split as official_split,
        read_splits as read_splits,
        write_splits as write_splits,
    )

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "srjt.data": ("synthetic",),
        "srjt.data.checks": ("check",),
        "srjt.data.duplicates": ("DuplicateImagesWarning", "group_duplicates"),
        "srjt.data.manifest": ("LeakageWarning", "Manifest", "drop_unusable", "write_problems"),
        "srjt.data.problems": ("Problem", "ReadReport"),
        "srjt.data.sources": ("LoadedData", "from_arrays", "read"),
        "srjt.data.sources.readings": ("ReadingsTable", "read_readings"),
        "srjt.data.splits": (
            "Split",
            "corrupt",
            "folds",
            "official_split",
            "read_splits",
            "write_splits",
        ),
    },
)
