"""The opened data of a study, kept by a worker process from one run to the next."""

from __future__ import annotations

import json
from pathlib import Path

from srjt.data.images.feed import FeedCache
from srjt.data.images.hashes import file_facts
from srjt.studies.config import StudyConfig
from srjt.studies.grid import StudyData
from srjt.studies.open_data import open_data

__all__ = ["FEEDS", "open_kept_data"]

FEEDS = FeedCache()  # the images that this process has on a GPU

_kept: dict[
    str, tuple[str, StudyData]
] = {}  # settings → facts of the files, data; the last study of this process


def open_kept_data(config: StudyConfig, *, cache: Path | None = None) -> StudyData:
    """As ``open_data``, but only once per process, unless a file has changed since."""
    settings = json.dumps([config.to_dict(), str(cache), str(Path.cwd())], sort_keys=True)
    if settings in _kept:
        facts, data = _kept[settings]
        if facts == _file_facts(data):
            return data
    _kept.clear()
    data = open_data(config, cache=cache, quiet=True)
    _kept[settings] = (_file_facts(data), data)
    return data


def _file_facts(data: StudyData) -> str:
    """Size and time of the images, and of every file or folder that the settings may name."""
    config = data.config
    named = [config.source, config.splits, *config.reading.values()]
    images = data.manifest.paths if data.manifest.arrays is None else []
    return file_facts([*(Path(name) for name in named if isinstance(name, str)), *images])
