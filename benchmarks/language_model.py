"""A perfect classifier that is judged by the answers of a language model: what it seems to be, and
what is found if the model is one more reader.

    python benchmarks/language_model.py --out benchmarks/evidence/results/language_model.csv

2,000 images, 10 % of them positive. A language model answers all of them with a sensitivity of 0.90
and a specificity of 0.91, so that 53 % of its positives are right. Two people with a sensitivity of
0.95 and a specificity of 0.98 read a random part. The classifier is always right.

- seeming: its sensitivity if the answers of the language model are taken for true
- readings: ``srjt.inference.true_scores`` with the language model as one of three readers, if the
  classifier errs independently of the readers; covered: by the interval that also allows that it
  repeats their errors
- verified: the answers are the labels, and the grades of the random part are verified ones
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.inference.answers import Answers
from srjt.inference.aspects.referral import ReferralRule
from srjt.inference.true_scores import true_scores
from srjt.ordinal.intervals import Interval
from srjt.readers import Readings

IMAGES = 2000
PREVALENCE = 0.1
MODEL = (0.90, 0.911)  # sensitivity, specificity
PERSON = (0.95, 0.98)
SIZES = (200, 400, 800)  # images that people read
REFER = ReferralRule(position=1, threshold=None, origin="")
Ints = npt.NDArray[np.int64]


def read(true: Ints, quality: tuple[float, float], rng: np.random.Generator) -> Ints:
    sensitivity, specificity = quality
    right = rng.random(len(true)) < np.where(true == 1, sensitivity, specificity)
    return np.where(right, true, 1 - true)


def one(size: int, rng: np.random.Generator) -> dict[str, tuple[float, Interval]]:
    """Of each way the sensitivity that it finds, and its interval."""
    true = (np.arange(IMAGES) < PREVALENCE * IMAGES).astype(np.int64)
    model = read(true, MODEL, rng)
    rows = rng.permutation(IMAGES)[:size]
    people = [read(true, PERSON, rng)[rows] for _ in range(2)]
    readings = Readings(
        items=[str(row) for row in range(IMAGES)],
        readers=["one", "two", "language model"],
        grades=("0", "1"),
        item=np.concatenate([rows, rows, np.arange(IMAGES)]),
        reader=np.repeat([0, 1, 2], [size, size, IMAGES]),
        grade=np.concatenate([*people, model]),
    )
    answers = Answers(probabilities=np.eye(2)[true], grades=true, labels=model, groups=None)
    seeming = float(true[model == 1].mean())
    verified = np.full(IMAGES, -1)
    verified[rows] = true[rows]
    by_readings = true_scores(answers, refer=REFER, readings=readings, resamples=20)
    by_verified = true_scores(answers, refer=REFER, verified=verified)
    assert by_readings is not None
    assert by_verified is not None
    found = by_verified.scores["sensitivity"]
    return {
        "seeming": (seeming, Interval(seeming, np.nan, np.nan)),
        "readings": (by_readings.apart["sensitivity"].value, by_readings.scores["sensitivity"]),
        "verified": (found.value, found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for size in SIZES:
        for seed in range(args.draws):
            for way, (value, interval) in one(size, np.random.default_rng([size, seed])).items():
                ends = {"low": interval.low, "high": interval.high}
                rows.append({"read": size, "draw": seed, "way": way, "sensitivity": value} | ends)
    table = pd.DataFrame(rows)
    table["covered"] = table["high"] > 1.0 - 1e-6
    means = table.groupby(["read", "way"])[["sensitivity", "low", "high", "covered"]].mean()
    print(means.round(3).to_string())
    if args.out is not None:
        table.to_csv(args.out, index=False, float_format="%.4f", lineterminator="\n")


if __name__ == "__main__":
    main()
