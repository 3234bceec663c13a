"""Other images under the same names are not the same run, audit or study."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import srjt
from fixtures.small_images import SETTINGS
from srjt.data import Manifest
from srjt.data.synthetic import generate, write
from srjt.errors import Interrupted, SrjtError
from srjt.training.config import TrainConfig
from srjt.training.crossfit import cross_fit
from srjt.training.record.reporters import SilentReporter

from .test_resume import StopAt


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(generate(images=48, patients=8, size=32), tmp_path_factory.mktemp("drawn") / "set")


@pytest.fixture
def files(drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    shutil.copytree(drawn.parent, tmp_path / "set")
    return srjt.data.read(tmp_path / "set" / drawn.name).manifest


@pytest.fixture
def settings(files: Manifest) -> dict[str, Any]:
    """One network, two epochs of several steps."""
    small = {"method": "standard", "epochs": 2, "batch_size": 8, "split": srjt.data.folds(files, folds=4)[0]}
    return {**SETTINGS, **small}


def invert(path: Path) -> None:
    """Another image, in a file of the same size."""
    image = Image.open(path)
    inverted = Image.fromarray(255 - np.asarray(image))
    inverted.save(path)


@pytest.fixture
def stopped(files: Manifest, settings: dict[str, Any], tmp_path: Path) -> Path:
    with pytest.raises(Interrupted):
        srjt.train(files, out=tmp_path / "run", reporter=StopAt(2, 2), **settings)
    return tmp_path / "run"


def test_a_run_is_not_resumed_with_another_image(
    files: Manifest, settings: dict[str, Any], stopped: Path
) -> None:
    row = int(settings["split"].train[3])
    invert(files.paths[row])
    with pytest.raises(SrjtError, match=f"The image {files.ids[row]} has changed since this run began"):
        srjt.train(files, out=stopped, **settings)
    for path in files.paths:
        if path != files.paths[row]:
            invert(path)
    with pytest.raises(SrjtError, match=r"The image \S+ \(and 47 others\) has changed since this run began"):
        srjt.train(files, out=stopped, **settings)
    for path in files.paths:  # twice inverted is as before
        invert(path)
    assert len(srjt.train(files, out=stopped, **settings).metrics)


@pytest.mark.slow
def test_a_finished_run_is_not_opened_with_another_image_on_any_side(
    files: Manifest, settings: dict[str, Any], tmp_path: Path
) -> None:
    srjt.train(files, out=tmp_path / "run", **settings)
    row = int(settings["split"].test[0])
    invert(files.paths[row])
    with pytest.raises(SrjtError, match=f"The image {files.ids[row]} has changed"):
        srjt.train(files, out=tmp_path / "run", **settings)


def test_images_in_memory_count_too(settings: dict[str, Any], tmp_path: Path) -> None:
    drawn = generate(images=48, patients=8, size=32)
    srjt.train(drawn, out=tmp_path / "run", **settings)
    assert drawn.arrays is not None
    other = drawn.arrays.copy()
    row = int(settings["split"].train[0])
    other[row] = 255 - other[row]
    with pytest.raises(SrjtError, match=f"The image {drawn.ids[row]} has changed"):
        srjt.train(replace(drawn, arrays=other), out=tmp_path / "run", **settings)


@pytest.mark.slow
def test_without_the_hashes_of_each_image_a_change_is_still_noticed(
    files: Manifest, settings: dict[str, Any], stopped: Path
) -> None:
    (stopped / "image_hashes.npy").unlink()
    invert(files.paths[0])
    with pytest.raises(SrjtError, match="Some images have changed since this run began"):
        srjt.train(files, out=stopped, **settings)


CONFIG = TrainConfig(
    method="sord", network="tiny", image_size=32, crop=28, epochs=1, batch_size=16, tune_cpu=False
)


class StoppedError(Exception):
    pass


class StopInFold(SilentReporter):
    def stepped(self, epoch: int, step: int, steps: int) -> None:
        raise StoppedError


def test_an_audit_is_not_repeated_with_another_image(files: Manifest, tmp_path: Path) -> None:
    cross_fit(files, config=CONFIG, folds=2, out=tmp_path / "fits", device="cpu")
    invert(files.paths[7])
    with pytest.raises(
        SrjtError, match=f"The image {files.ids[7]} has changed since this audit or estimate began"
    ):
        cross_fit(files, config=CONFIG, folds=2, out=tmp_path / "fits", device="cpu")
