"""How many images, and how much better labels would help: real photographs, EfficientNet-Lite0,
judged by true grades.

    python benchmarks/evidence/how_many.py run small --weights lite0.safetensors --processes 12 --out how_many.csv
    python benchmarks/evidence/how_many.py table how_many.csv

``small`` is the folder of ``recipe_on_images.py pack``. Of so many labelled images a fifth is for
validation; smaller samples are parts of the larger ones, by patient. The test side of a fold is
always the same, and judged by the true grade (EyePACS: by its own labels). "clean labels" trains on
the true grades of the same images. Every training takes as many steps as 20 epochs of 2,000 images,
and no fewer than 20 epochs.

To try it on a CPU: --network tiny --epochs 2 --folds 0 --cases acne:doctor.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.append(str(Path(__file__).parents[1]))
import recipe_cases
from recipe_on_images import CROP, SIDE

SIZES = {
    "eyepacs:as_it_is": (300, 1000, 5000),
    "appareal:vote": (300, 1000, 3000),
    "deepdrid:truncated": (300, 1000, 1600),
    "acne:doctor": (300, 1000),
}
METHODS = ("standard", "srjt", "clean labels")
STEPS_OF = 2000  # images

opened = cache(recipe_cases.open_set)


def job(args: argparse.Namespace, case: str, size: int, fold: int, method: str) -> dict[str, Any]:
    name, kind = case.split(":")
    data = opened(args.sets / f"{name}.npz")
    splits = {fold: recipe_cases.part(data, fold, size)}
    epochs = max(args.epochs, round(args.epochs * STEPS_OF / size))
    row = recipe_cases.one_run(
        replace(data, splits=splits),  # type: ignore[arg-type]
        kind,
        fold=fold,
        seed=0,
        method=method,
        device=args.device,
        network=args.network,
        weights=args.weights,
        pretrained=args.weights is not None,
        image_size=SIDE,
        crop=CROP,
        epochs=epochs,
    )
    scores = {score: float(row[f"{score} predict ensemble"]) for score in recipe_cases.NAMES}
    return {
        "case": case,
        "images": size,
        "fold": fold,
        "method": method,
        **scores,
        "seconds": float(row["seconds"]),
    }


def run(args: argparse.Namespace) -> None:
    jobs = [
        (case, size, fold, method)
        for fold in args.folds
        for case in args.cases
        for size in reversed(SIZES[case])
        for method in METHODS
        if not (
            case == "eyepacs:as_it_is" and method == "clean labels"
        )  # its true grades are not known
    ]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(job, args, *one) for one in jobs]):
            rows.append(done.result())
            print(rows[-1], flush=True)
            frame = pd.DataFrame(rows).sort_values(["case", "images", "fold", "method"])
            frame.round(4).to_csv(args.out, index=False)


def table(file: Path) -> None:
    rows = pd.read_csv(file)
    for score in ("mae", "qwk"):
        means = rows.pivot_table(score, ["case", "images"], "method", aggfunc=["mean", "std"])
        print(
            f"\n{score}: mean over the folds, and their standard deviation\n{means.round(3).to_string()}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("sets", type=Path)
    running.add_argument("--weights")
    running.add_argument("--network", default="timm:tf_efficientnet_lite0")
    running.add_argument("--epochs", type=int, default=20)
    running.add_argument("--cases", nargs="+", default=list(SIZES), choices=SIZES)
    running.add_argument("--folds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    running.add_argument("--processes", type=int, default=1)
    running.add_argument("--device")
    running.add_argument("--out", type=Path, required=True)
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path)
    args = parser.parse_args()
    if args.command == "run":
        run(args)
    else:
        table(args.results)


if __name__ == "__main__":
    main()
