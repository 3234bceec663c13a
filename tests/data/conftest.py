"""What tests of decoding and of the image store share."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.stores import manifest_of
from srjt.data.images import store
from srjt.data.images.decode import read_image
from srjt.data.manifest import Manifest


@pytest.fixture
def colours() -> np.ndarray:
    """(4, 6, 3) uint8 without any symmetry."""
    return np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)


@pytest.fixture
def images(tmp_path: Path) -> Manifest:
    """Forty small PNG files of different sizes."""
    root = tmp_path / "files"
    root.mkdir()
    rng = np.random.default_rng(0)
    names = [f"{i:02d}.png" for i in range(40)]
    for i, name in enumerate(names):
        Image.fromarray(rng.integers(0, 256, (20 + i, 60 - i, 3), dtype=np.uint8)).save(root / name)
    return manifest_of(root, names)


@pytest.fixture
def broken(images: Manifest) -> Manifest:
    """Row 3 is cut short, row 11 empty, row 39 missing."""
    paths = images.paths
    paths[3].write_bytes(paths[3].read_bytes()[:200])
    paths[11].write_bytes(b"")
    paths[39].unlink()
    return images


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that this process decodes."""
    names: list[str] = []

    def counted(path: Path, **options: object) -> np.ndarray:
        names.append(Path(path).name)
        return read_image(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "read_image", counted)
    return names
