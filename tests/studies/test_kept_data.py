"""A worker opens the data once, and again where a file has changed; it copies images to a GPU once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srjt.data.images import feed
from srjt.data.images.feed import FeedCache, ResidentFeed
from srjt.data.synthetic import generate, write
from srjt.studies.config import StudyConfig
from srjt.studies.kept_data import open_kept_data


def touch(path: Path) -> None:
    """Another time of modification, whatever the clock's resolution."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def test_data_are_opened_again_only_where_a_file_has_changed(
    small: Callable[..., StudyConfig], tmp_path: Path
) -> None:
    labels = write(generate(images=40, patients=10, size=32), tmp_path / "set")
    config = small(source=str(labels), reading={})
    first = open_kept_data(config)
    assert open_kept_data(config) is first
    touch(first.manifest.paths[3])
    second = open_kept_data(config)
    assert second is not first
    assert open_kept_data(config) is second
    labels.write_text(labels.read_text().replace(",3,", ",2,", 1))
    touch(labels)
    third = open_kept_data(config)
    assert third is not second
    assert third.manifest.class_counts.tolist() != second.manifest.class_counts.tolist()
    assert open_kept_data(small(source=str(labels), reading={}, folds=4)) is not third


def test_images_in_memory_are_resized_once_for_all_runs(small: Callable[..., StudyConfig]) -> None:
    data = open_kept_data(small())
    config = next(iter(data.planned_runs())).config.replace(image_size=48, crop=40)
    pixels = data.resized_images(config)
    assert pixels.shape == (120, 48, 48, 3)
    assert data.resized_images(config) is pixels


def test_images_are_copied_to_a_gpu_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copied: list[Any] = []

    def copy(pixels: Any, *, device: torch.device, share: float) -> ResidentFeed:
        copied.append(device)
        return ResidentFeed(torch.from_numpy(np.array(pixels)))

    monkeypatch.setattr(feed, "open_feed", copy)
    np.save(tmp_path / "store.npy", np.zeros((6, 8, 8, 3), dtype=np.uint8))
    np.save(tmp_path / "other.npy", np.zeros((6, 8, 8, 3), dtype=np.uint8))

    def pixels(name: str = "store.npy") -> Any:
        return np.load(tmp_path / name, mmap_mode="r")

    freed: list[int] = []
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: freed.append(len(copied)))
    cache = FeedCache()
    first = cache.open(pixels(), device="cuda:0")
    assert cache.open(pixels(), device="cuda:0") is first  # another memory map of the same file
    assert len(copied) == 1
    assert cache.open(pixels("other.npy"), device="cuda:0") is not first
    cache.open(pixels("other.npy"), device="cuda:1")
    assert len(copied) == 3
    assert freed == [1, 2]  # before the next images are copied
    whole = pixels()
    parts = [cache.open(whole[rows], device="cuda:0") for rows in (slice(0, 3), slice(3, 6))]
    assert parts[0] is not parts[1]
    in_memory = np.ones((6, 8, 8, 3), dtype=np.uint8)
    kept = cache.open(in_memory, device="cuda:0")
    assert cache.open(in_memory, device="cuda:0") is kept
    assert cache.open(in_memory.copy(), device="cuda:0") is not kept
