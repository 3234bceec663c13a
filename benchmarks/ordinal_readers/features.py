"""Frozen features of the images of a set, for ``run.py``: features travel where images may not.

    python benchmarks/ordinal_readers/features.py DATA/acne160 --out acne.npz
    python benchmarks/ordinal_readers/features.py DATA/appareal144 --out appareal.npz

FOLDER holds ``labels.csv`` with a column ``image``. The features are the mean of the last map of an
EfficientNet-Lite0 with ImageNet weights, at 144 pixels: 1,280 numbers an image. The file also holds
the fold of each image, 0 to 4, which follows from the bytes of the image file: it is the same for
everybody, and copies of an image are in one fold. About 15 images/s on one core.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image

from srjt import networks

FOLDS = 5
SIZE = 144
BATCH = 16
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def fold_of(file: Path) -> int:
    return int(hashlib.sha256(file.read_bytes()).hexdigest()[:8], 16) % FOLDS


def network() -> torch.nn.Module:
    """Its published weights are downloaded once (``srjt weights fetch efficientnet-lite0``)."""

    def no_head(features: int) -> torch.nn.Module:
        return torch.nn.Identity()

    shape = (3, SIZE, SIZE)
    return networks.build(
        "efficientnet-lite0", head=no_head, in_shape=shape, pretrained=True
    ).eval()


def pixels(file: Path) -> torch.Tensor:
    """(3, SIZE, SIZE) as the network expects them."""
    image = Image.open(file).convert("RGB").resize((SIZE, SIZE))
    values = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255.0
    return (values - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--features", type=Path, help="a .npy file that has them already")
    args = parser.parse_args()
    images = pd.read_csv(args.folder / "labels.csv")["image"].tolist()
    files = [args.folder / image for image in images]
    if args.features is None:
        made = network()
        parts = []
        with torch.inference_mode():
            for start in range(0, len(files), BATCH):
                batch = torch.stack([pixels(file) for file in files[start : start + BATCH]])
                parts.append(made(batch).numpy())
        features = np.concatenate(parts)
    else:
        features = np.load(args.features)
    folds = np.array([fold_of(file) for file in files])
    np.savez_compressed(
        args.out, features=features.astype(np.float32), folds=folds, images=np.array(images)
    )
    print(f"{args.out}: {features.shape[0]} images, folds {np.bincount(folds).tolist()}")


if __name__ == "__main__":
    main()
