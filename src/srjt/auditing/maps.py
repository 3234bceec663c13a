"""Where the networks of an audit look, on demand: those of the fold in which the sample was held out."""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path

from PIL import Image

from srjt.auditing.folder import AuditFolder, image_file
from srjt.data.images.decode import read_image
from srjt.errors import SrjtError
from srjt.inference.explain import network_maps, shown_crop
from srjt.inference.overlay import overlay
from srjt.training.trained import Trained, load_run

__all__ = ["look_maps", "map_problem"]

_LOCK = threading.Lock()  # one map at a time: each uses all cores


def map_problem(audit: AuditFolder) -> str | None:
    """Why there can be no maps, in one sentence; None if there can."""
    if audit.features:
        return "Features were audited: without images there are no places to show."
    if audit.folds is None or not _fold_folder(audit, 0).is_dir():
        return "The networks of this audit are no longer in its folder: run srjt audit again to see where they look."
    return None


def look_maps(audit: AuditFolder, line: int) -> list[Image.Image]:
    """The image of a sample with the map of each network that was not trained on it."""
    if (problem := map_problem(audit)) is not None:
        raise SrjtError(problem)
    assert audit.folds is not None
    path = image_file(audit.folder, audit.images[line])
    with _LOCK:
        run = _open_run(_fold_folder(audit, int(audit.folds[line])))
        pixels = read_image(path, size=run.config.image_size, resize=run.config.resize)[None]
        maps = network_maps(run, pixels)[:, 0]
    shown = shown_crop(run, pixels)[0]
    return [overlay(shown, heat) for heat in maps]


def _fold_folder(audit: AuditFolder, fold: int) -> Path:
    return audit.folder / "fits" / f"fold{fold}"


@lru_cache(maxsize=5)
def _open_run(folder: Path) -> Trained:
    return load_run(folder, device="cpu")
