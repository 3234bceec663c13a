"""What tests of the image store share."""

from pathlib import Path

import numpy as np
import pandas as pd

from srjt.data.images.decode import read_image
from srjt.data.images.store import ImageStore, open_store
from srjt.data.manifest import Manifest

SIZE = 16


def manifest_of(root: Path, names: list[str]) -> Manifest:
    grades = np.arange(len(names)) % 3
    table = pd.DataFrame({"id": [f"id-{n}" for n in names], "image": names, "grade": grades})
    return Manifest(table=table, grades=("a", "b", "c"), root=root)


def expected_pixels(manifest: Manifest) -> np.ndarray:
    return np.stack([read_image(path, size=SIZE) for path in manifest.paths])


def opened(manifest: Manifest, cache: Path, **options: object) -> ImageStore:
    return open_store(manifest, size=SIZE, cache=cache, **options)  # type: ignore[arg-type]


def the_folder(cache: Path) -> Path:
    (folder,) = (cache / "images").iterdir()
    return folder
