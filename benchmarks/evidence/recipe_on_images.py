"""The recipe against the other methods on images, from end to end: seven cases, EfficientNet-Lite0,
20 epochs.

    python benchmarks/evidence/recipe_on_images.py pack DATA --out small
    python benchmarks/evidence/recipe_on_images.py run small --weights lite0.safetensors --minutes 10 --out recipe.csv
    python benchmarks/evidence/recipe_on_images.py table recipe.csv
    python benchmarks/evidence/recipe_on_images.py settings small PROBABILITIES --case acne:doctor --out acne_srjt.npz

``pack`` reads DATA/deepdrid256, eyepacs256, appareal144, acne160 and knee160 (labels.csv, images;
votes.csv or readings.csv) and writes their images of 128 × 128 pixels as one file per set.
``lite0_weights.py`` makes the weights. ``run`` appends one row per training; after so many minutes
it ends, and the same command continues. The six methods that matter most come first, in all cases
of fold 0, then of fold 1, and so on. ``table`` prints means over folds and seeds.

``settings`` collects what ``run --probabilities FOLDER`` kept of the validation sides (noisy
labels) of ``srjt``, for ``noise_estimation.py``, ``label_errors.py`` and ``ranges.py``.

One such network does not fill a large GPU: add --processes 12 there (and start NVIDIA's MPS). For
another machine copy the folder ``small`` (40 MiB with the weights in it).

To try it on a CPU: --network tiny --limit 200 --epochs 2 --folds 0.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.append(str(Path(__file__).parents[1]))
import recipe_cases
import recipe_table

SIDE, CROP = 128, 112
SETS = {
    "deepdrid": "deepdrid256",
    "eyepacs": "eyepacs256",
    "appareal": "appareal144",
    "acne": "acne160",
    "knee": "knee160",
}


def pack(data: Path, out: Path) -> None:
    from PIL import Image

    out.mkdir(parents=True, exist_ok=True)
    for name, folder in SETS.items():
        table = pd.read_csv(data / folder / "labels.csv")
        content = []
        for image in table["image"]:
            small = (
                Image.open(data / folder / image)
                .convert("RGB")
                .resize((SIDE, SIDE), Image.Resampling.BOX)
            )
            buffer = io.BytesIO()
            small.save(buffer, "WEBP", quality=65)
            content.append(np.frombuffer(buffer.getvalue(), np.uint8))
        columns = {"x": np.concatenate(content), "ends": np.cumsum([len(one) for one in content])}
        np.savez(out / f"{name}.npz", **columns, **labels(data / folder))  # type: ignore[arg-type]
        print(
            f"{name}: {len(table):,} images, {(out / f'{name}.npz').stat().st_size / 2**20:.0f} MiB",
            flush=True,
        )


def labels(folder: Path) -> dict[str, np.ndarray]:
    """Grades, patients and votes of a data set; identical images are one patient's."""
    table = pd.read_csv(folder / "labels.csv")
    grade = next(name for name in ("grade", "true_grade", "published_grade") if name in table)
    columns = {"grade": table[grade].to_numpy()}
    if "patient" in table:
        columns["patient"] = table["patient"].to_numpy().astype(str)
    elif grade == "published_grade":
        digests = [
            hashlib.sha256((folder / image).read_bytes()).hexdigest() for image in table["image"]
        ]
        columns["patient"] = np.array(digests)
    if found := [
        folder / name for name in ("votes.csv", "readings.csv") if (folder / name).exists()
    ]:
        votes = pd.read_csv(found[0]).dropna(subset=["grade"])
        place = (
            votes["image"].map({image: row for row, image in enumerate(table["image"])}).to_numpy()
        )
        number = votes.groupby("image").cumcount().to_numpy()
        columns["votes"] = np.full((len(table), number.max() + 1), -1, np.int8)
        columns["votes"][place, number] = votes["grade"].to_numpy(np.int8)
    return columns


def settings(small: Path, kept: Path, *, case: str, out: Path) -> None:
    """Every sample once, as its fold's networks, which have not seen it, predict it."""
    name, kind = case.split(":")
    data = recipe_cases.open_set(small / f"{name}.npz")
    columns: dict[str, list[np.ndarray]] = {
        "labels": [],
        "true": [],
        "probabilities": [],
        "groups": [],
    }
    for fold, split in enumerate(data.splits):
        with np.load(kept / f"{name}-{kind}-{fold}-0-srjt.npz") as sides:
            p = sides["validation"].astype(np.float64).mean(axis=0)
            rows = (
                sides["noisy"],
                data.clean.labels[split.validation],
                p / p.sum(axis=1, keepdims=True),
            )
        for column, values in zip(columns.values(), (*rows, split.validation), strict=True):
            column.append(values)
    arrays = {column: np.concatenate(values) for column, values in columns.items()}
    matrix = np.zeros((data.clean.num_classes,) * 2)
    np.add.at(matrix, (arrays["true"], arrays["labels"]), 1.0)
    rate = float((arrays["labels"] != arrays["true"]).mean())
    np.savez(out, **arrays, matrix=matrix / matrix.sum(axis=1, keepdims=True), kind=name, rate=rate)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("data", type=Path)
    packing.add_argument("--out", type=Path, default=Path("small"))
    running = commands.add_parser("run")
    running.add_argument("sets", type=Path)
    running.add_argument("--weights")
    running.add_argument("--network", default="timm:tf_efficientnet_lite0")
    running.add_argument("--epochs", type=int, default=20)
    running.add_argument("--learning-rate", type=float)
    running.add_argument("--limit", type=int, help="so many images of each set only, to try it out")
    recipe_cases.add_arguments(running)
    collecting = commands.add_parser("settings")
    collecting.add_argument("sets", type=Path)
    collecting.add_argument("kept", type=Path)
    collecting.add_argument("--case", default="acne:doctor")
    collecting.add_argument("--out", type=Path, required=True)
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path, nargs="+")
    args = parser.parse_args()
    if args.command == "pack":
        pack(args.data, args.out)
    elif args.command == "settings":
        settings(args.sets, args.kept, case=args.case, out=args.out)
    elif args.command == "table":
        recipe_table.show(args.results)
    else:
        recipe_cases.run_all(
            args,
            network=args.network,
            weights=args.weights,
            pretrained=args.weights is not None,
            image_size=SIDE,
            crop=CROP,
            epochs=args.epochs,
            learning_rate=args.learning_rate,
        )


if __name__ == "__main__":
    main()
