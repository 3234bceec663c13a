"""Patients to search on and patients to report on, for the former recipe (SEARCH.md).

    python benchmarks/evidence/halves.py EyePACS/labels.csv

writes beside the table

    dev.csv               60 % of the patients, all that a search may look at
    dev_splits.csv        its folds: four fifths to train on, one to judge by
    held_out_splits.csv   of the whole table: train on the 60 %, report on the other 40 %

which ``srjt study run … --splits`` takes. The same table gives the same patients on every machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.data import Manifest, Split, folds, read
from srjt.data.splits import write_splits

NO_ROWS = np.empty(0, dtype=np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    table = parser.parse_args().table
    everyone = read(table)
    fifths = folds(everyone, folds=5, seed=1000, by="stratified")
    reported = np.sort(np.concatenate([fifths[0].test, fifths[1].test]))
    searched = np.setdiff1d(np.arange(len(everyone)), reported)
    write_splits(
        table.parent / "held_out_splits.csv",
        everyone,
        [Split(train=searched, validation=NO_ROWS, test=reported)],
    )
    dev = everyone.select(searched)
    rows = pd.read_csv(table, dtype=str, keep_default_na=False)
    rows.iloc[_lines(rows, dev)].to_csv(table.parent / "dev.csv", index=False)
    write_splits(
        table.parent / "dev_splits.csv",
        dev,
        [
            Split(
                train=np.sort(np.concatenate([fold.train, fold.validation])),
                validation=NO_ROWS,
                test=fold.test,
            )
            for fold in folds(dev, folds=5, seed=7, by="stratified")
        ],
    )
    print(f"{len(searched):,} images to search on, {len(reported):,} to report on")


def _lines(rows: pd.DataFrame, dev: Manifest) -> list[int]:
    wanted = set(dev.ids)
    return [line for line, image in enumerate(rows["image"]) if image in wanted]


if __name__ == "__main__":
    main()
