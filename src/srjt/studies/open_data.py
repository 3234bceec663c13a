"""Open a study's data: the same way in the process that plans it and in every process that trains a run."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srjt._version import __version__
from srjt.data import LeakageWarning, Manifest, drop_unusable, folds, group_duplicates, read, read_splits
from srjt.data.synthetic import generate
from srjt.errors import SrjtError, suggest
from srjt.files import cache_folder, write_atomically
from srjt.studies.config import StudyConfig
from srjt.studies.grid import StudyData

__all__ = ["open_data"]


def open_data(
    config: StudyConfig,
    *,
    cache: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    quiet: bool = False,
) -> StudyData:
    """Read the source, find identical images, and make the folds.

    cache: folder for the hashes of the images. progress: called with (images hashed, images in all). quiet: show no
    bar while the headers of DICOM files are read.
    """
    if not config.source:
        raise SrjtError("A study needs data: give a source, or 'synthetic' for the synthetic dataset.")
    options = dict(config.reading)
    known = set(inspect.signature(generate if config.source == "synthetic" else read).parameters)
    for name in options:
        if name not in known - {"source", "progress"}:
            raise suggest(f"reading option of {config.source}", str(name), known - {"source", "progress"})
    if config.source == "synthetic":
        manifest = _synthetic(options)
    else:
        reading = read(config.source, **options, progress=not quiet)
        manifest = drop_unusable(reading.manifest, reading.problems)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakageWarning)  # shown once by the command, and in the report
        manifest = group_duplicates(
            manifest, near=config.group_near_duplicates, cache=cache, progress=progress
        )
        if config.splits is not None:
            splits = read_splits(Path(config.splits), manifest)
        else:
            splits = folds(manifest, folds=config.folds, seed=config.split_seed, by=config.split_by)
    return StudyData(config, manifest, splits)


def _synthetic(options: dict[str, Any]) -> Manifest:
    """The synthetic dataset, generated once and cached: it takes seconds, and every process of a study needs it."""
    text = json.dumps([__version__, options], sort_keys=True)
    name = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    file = cache_folder() / "synthetic" / f"{name}.npz"
    damaged = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
    with contextlib.suppress(*damaged), np.load(file, allow_pickle=False) as cached:
        table = pd.read_json(io.StringIO(str(cached["table"])), orient="split", dtype=False)
        table["patient"] = table["patient"].astype(str)
        return Manifest(table=table, grades=tuple(map(str, cached["grades"])), arrays=cached["pixels"])
    try:
        manifest = generate(**options)
    except TypeError as problem:
        raise SrjtError(f"The options of the synthetic dataset are whole numbers: {problem}.") from None
    assert manifest.arrays is not None
    buffer = io.BytesIO()
    table_text = manifest.table.to_json(orient="split", double_precision=15)
    np.savez(buffer, pixels=manifest.arrays, grades=np.array(manifest.grades), table=np.array(table_text))
    with contextlib.suppress(OSError):  # without a writable cache the study still runs
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, buffer.getvalue())
    return manifest
