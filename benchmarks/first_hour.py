"""``srjt analyse`` with its defaults on 600 images, as somebody with a laptop would run it.

    srjt weights fetch efficientnet-lite0
    python benchmarks/first_hour.py run DATA --draws 0 1 2 --out first_hour.csv
    python benchmarks/first_hour.py table first_hour.csv

DATA holds the folders of ``first_model.py``. The images on which the features of the preset were
chosen are left out, and 600 of the others are drawn, whole patients. ACNE04 has the reading of one
random doctor as the label of an image, and is judged by it. Written for each draw: the mean
absolute error on the test side, that of one grade for all, and both on all images, each predicted
by a training of the audit that has not seen its patient; the verdict of the page; and the seconds
of one core. Rows that are in the file already are skipped.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from first_model import open_set

from srjt.auditing.audit import DEFAULTS
from srjt.data.inspection import inspect_source
from srjt.reports.analysis import Watching, analyse, audit_settings
from srjt.reports.pages.analysis import across_folds, verdict_of
from srjt.training.config import TrainConfig
from srjt.training.reporters import reporter_in_python

SETS = ("knee160", "deepdrid256", "acne160")
IMAGES = 600
FIRST_SEED = 900


def draw_table(folder: Path, draw: int) -> pd.DataFrame:
    """600 images with their labels: image, grade and, where it is known, patient."""
    data = open_set(folder)
    owners = np.array(data.patients or data.ids, dtype=object)
    names = np.random.default_rng(FIRST_SEED + draw).permutation(pd.unique(owners))
    place = {name: number for number, name in enumerate(names)}
    rows = np.argsort([place[owner] for owner in owners], kind="stable")[:IMAGES]
    table = pd.DataFrame(
        {"image": data.table["image"].to_numpy()[rows], "grade": data.labels[rows]}
    )
    if data.patients is not None:
        table["patient"] = owners[rows]
    readings = folder / "readings.csv"
    if readings.exists():
        by_doctor = pd.read_csv(readings).sample(frac=1, random_state=draw)
        one = by_doctor.drop_duplicates("image").set_index("image")["grade"]
        table = table[table["image"].isin(one.index)]
        table["grade"] = table["image"].map(one)
    table["image"] = [str(data.root / name) for name in table["image"]]
    return table


def run_one(folder: Path, draw: int, weights: str | None) -> dict[str, Any]:
    """A row of the results."""
    given: dict[str, Any] = {"preset": "cpu"}
    if weights:
        given["weights"] = weights
    with tempfile.TemporaryDirectory() as place:
        labels = Path(place) / "labels.csv"
        draw_table(folder, draw).to_csv(labels, index=False)
        began = sum(os.times()[:4])  # of this process and its children
        done = analyse(
            inspect_source(labels, {}),
            out=Path(place) / "analysis",
            config=TrainConfig().replace(**given),
            audit_config=TrainConfig(**DEFAULTS).replace(**audit_settings(given)),
            watching=Watching(
                tell=lambda text: None, open=lambda: reporter_in_python(None, progress=False)
            ),
        )
        seconds = sum(os.times()[:4]) - began
        across = across_folds(done)
        assert across is not None
        verdict = verdict_of(done, across)[0]
    test = done.evaluation
    return {
        "set": folder.name,
        "draw": draw,
        "mae": test.intervals["mae"].value,
        "one_grade": test.gain.naive,
        "mae_all": across.gain.score,
        "one_grade_all": across.gain.naive,
        "verdict_test": test.gain.verdict,
        "verdict": verdict,
        "seconds": seconds,
    }


def run(args: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    rows = pd.read_csv(args.out).to_dict("records") if args.out.exists() else []
    done = {(row["set"], row["draw"]) for row in rows}
    for draw in args.draws:
        for name in args.sets:
            if (name, draw) not in done:
                rows.append(run_one(args.data / name, draw, args.weights))
                pd.DataFrame(rows).to_csv(args.out, index=False)
                print(rows[-1], flush=True)


def table(args: argparse.Namespace) -> None:
    print(pd.read_csv(args.results).round(3).to_string(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("data", type=Path)
    running.add_argument("--sets", nargs="+", default=list(SETS))
    running.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2])
    running.add_argument("--weights", help="of EfficientNet-Lite0, if they are not in the cache")
    running.add_argument("--out", type=Path, default=Path("first_hour.csv"))
    running.set_defaults(action=run)
    showing = commands.add_parser("table")
    showing.add_argument("results", type=Path)
    showing.set_defaults(action=table)
    args = parser.parse_args()
    args.action(args)


if __name__ == "__main__":
    main()
