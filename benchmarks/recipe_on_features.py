"""The recipe against every method of the catalogue on frozen features: six cases, small heads, minutes on a CPU.

    python benchmarks/recipe_on_features.py run FEATURES --folds 2 3 4 --out recipe_features.csv
    python benchmarks/recipe_on_features.py table recipe_features.csv

FEATURES is a folder with deepdrid.npz, eyepacs.npz and appareal.npz: ``x`` (N, F) features of a frozen network, and
``grade``, ``patient`` and ``votes`` as ``recipe_cases.py`` says. To make them from the images of
``evidence/recipe_on_images.py pack``, with EfficientNet-Lite0 and its ImageNet weights:

    python benchmarks/recipe_on_features.py make small --weights lite0.safetensors --out FEATURES

The recipe was developed on folds 0 and 1 of DeepDRiD; its other folds and the other sets are what counts.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import recipe_cases
import recipe_table
import torch


def make(sets: Path, out: Path, *, weights: str, limit: int | None) -> None:
    """Features of the centre crop by a frozen network."""
    from srjt import networks
    from srjt.data.images.feed import normalise

    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(sets.glob("*.npz")):
        data = recipe_cases.open_set(file, limit=limit)
        pixels = data.clean.arrays
        assert pixels is not None
        backbone = networks.build(
            "timm:tf_efficientnet_lite0", head=lambda _: torch.nn.Identity(), in_shape=(3, *pixels.shape[1:3]),
            pretrained=weights, seed=0,
        ).eval()  # fmt: skip
        with torch.inference_mode():
            batches = [
                backbone(normalise(torch.from_numpy(part).permute(0, 3, 1, 2)))
                for part in np.array_split(pixels, max(1, len(pixels) // 64))
            ]
        with np.load(file) as saved:
            columns: dict[str, Any] = {name: saved[name][:limit] for name in saved.files if name not in ("x", "ends")}
        np.savez(out / file.name, x=torch.cat(batches).half().numpy(), **columns)
        print(f"{file.stem}: {len(pixels):,} rows", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("sets", type=Path)
    making.add_argument("--weights", required=True)
    making.add_argument("--limit", type=int)
    making.add_argument("--out", type=Path, default=Path("features"))
    running = commands.add_parser("run")
    running.add_argument("sets", type=Path)
    running.add_argument("--epochs", type=int, default=30)
    running.add_argument("--limit", type=int, help="so many rows of each set only, to try it out")
    recipe_cases.add_arguments(running)
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path, nargs="+")
    args = parser.parse_args()
    if args.command == "make":
        make(args.sets, args.out, weights=args.weights, limit=args.limit)
    elif args.command == "table":
        recipe_table.show(args.results)
    else:
        recipe_cases.run_all(args, network="mlp", epochs=args.epochs)


if __name__ == "__main__":
    main()
