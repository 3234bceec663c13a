"""What the same reader says to the same item once more, and what a second reading is worth.

    python benchmarks/repeated_readings.py twice DATA/read_twice/readings.csv --out repeated_readings.csv
    python benchmarks/repeated_readings.py platforms DATA/til_readings/readings.csv --out repeated_readings.csv

``twice``: five observers grade 300 photographs twice, a month apart (item, reader, session, grade).
``platforms``: some of 30 readers read a region of a slide on two platforms (item, reader, platform,
grade, time). Of each pair of readings the later one is predicted from the first readings of all
readers: whether the grade is repeated, and which grade it is. ``naive``: with the rate at which two
readers agree. ``model``: the consensus model, in which readings are independent given the item.
``with persistence``: and a share of the readings repeat the first one anyway; the share is learnt on
the other half of the items. The scores are log-losses. ``worth`` is how much of the gain
of a second reader a second reading has.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.readers import Readings, consensus
from srjt.readers.consensus import next_grade, repeated_share
from srjt.readers.readings import two_readings
from srjt.readers.repeats import repeats_of

Floats = npt.NDArray[np.float64]


def load(file: Path, *, session: str) -> Readings:
    """In the order of the sessions."""
    table = pd.read_csv(file).dropna(subset=["grade"])
    if "time" in table and session == "time":
        table["time"] = pd.to_datetime(table["time"])
    table = table.sort_values(session, kind="stable")
    item, items = pd.factorize(table["item"])
    reader, readers = pd.factorize(table["reader"])
    grade, grades = pd.factorize(table["grade"], sort=True)
    return Readings(
        items=list(items),
        readers=list(readers),
        grades=tuple(str(one) for one in grades),
        item=item,
        reader=reader,
        grade=grade,
    )


def predictions(readings: Readings) -> tuple[dict[str, Floats], npt.NDArray[np.int64], Floats]:
    """Of each pair of readings by the same reader: the probabilities (K, C) of the later grade by
    method, the first and the later grade (2, K), and the share that repeats it by half."""
    first = readings.first()
    pairs = two_readings(readings)
    fresh = next_grade(consensus(first).variants, pairs.item, pairs.reader)
    shared = first.pairs()
    agree = float((shared.grade_first == shared.grade_second).mean())
    classes = len(readings.grades)
    said = np.eye(classes)[pairs.first]
    naive = agree * said + (1.0 - agree) / (classes - 1) * (1.0 - said)
    half = np.random.default_rng(0).random(len(readings.items)) < 0.5
    repeated = np.empty_like(fresh)
    shares = []
    for side in (half[pairs.item], ~half[pairs.item]):
        share = repeated_share(pairs.rows(~side), fresh[~side])
        repeated[side] = share * said[side] + (1.0 - share) * fresh[side]
        shares.append(share)
    answers = {"naive": naive, "model": fresh, "with persistence": repeated}
    return answers, np.stack([pairs.first, pairs.second]), np.array(shares)


def scored(
    p: Floats, first: npt.NDArray[np.int64], later: npt.NDArray[np.int64]
) -> dict[str, float]:
    rows = np.arange(len(later))
    repeats = p[rows, first]
    same = first == later
    return {
        "repeats: predicted": float(repeats.mean()),
        "repeats: observed": float(same.mean()),
        "log-loss of repeating": float(-np.log(np.where(same, repeats, 1.0 - repeats)).mean()),
        "log-loss of the grade": float(-np.log(p[rows, later] + 1e-12).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", choices=("twice", "platforms"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, default=Path("repeated_readings.csv"))
    args = parser.parse_args()
    readings = load(args.file, session="session" if args.set == "twice" else "time")
    answers, (first, later), shares = predictions(readings)
    worth = repeats_of(readings)
    assert worth is not None
    facts = {
        "set": args.set,
        "pairs": len(first),
        "exact": worth.exact.value,
        "exact between readers": worth.exact_between.value,
        "noise": worth.noise,
        "own": worth.reader_effect,
        "worth": worth.worth,
        "persistence": float(shares.mean()),
    }
    rows = [{**facts, "method": name, **scored(p, first, later)} for name, p in answers.items()]
    table = pd.DataFrame(rows)
    if args.out.exists():
        before = pd.read_csv(args.out)
        table = pd.concat([before[before["set"] != args.set], table])
    table.round(4).to_csv(args.out, index=False)
    print(table.round(3).T.to_string())
    print(worth.by_reader.round(2).T.to_string())


if __name__ == "__main__":
    main()
