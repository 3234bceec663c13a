"""Which readings to buy next: by their gain for a statement, by entropy, or at random.

    python benchmarks/next_readings.py DATA/acne160 --audits FOLDER --out benchmarks/evidence/results/next_readings.csv

A pilot of 200 images of ACNE04 has all its readings (two or three, by six doctors), and every other
image has one, drawn at random. The others are bought in rounds; the readers' model is fitted again
after each round.

- gain: as ``srjt readers --next`` chooses them, among the readings that there are
- entropy: of the images whose true grade is least certain, by the doctor who is named first
- random

A statement is as certain as the doubt about it is small: the expected absolute error of the
consensus, the sum of the variances of the readers' error rates, and the standard deviation of a
model's mean absolute error (the networks of the audits of ``active_verification.py``). Printed is
after which share of the readings a statement has 90 % of the certainty that all readings give it:
where its doubt has fallen by 90 % of what it falls in all. ``half``: how wrong it really is, by the
published grades, when half of the readings are bought: the mean absolute error of the consensus,
and the absolute error of the readers' rates (mean) and of the model's mean absolute error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.readers import Consensus, Readings, consensus
from srjt.readers.next_readings import _rate_information, _take, _take_in_turn, expected_gain

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
GOALS = ("consensus", "readers", "model")
WAYS = ("gain", "entropy", "random")
ENOUGH = 0.9
PILOT = 200  # images with all their readings


def choose(
    found: Consensus, have: Readings, left: pd.DataFrame, goal: str, way: str, *, answers: Ints
) -> tuple[Ints, Floats | None]:
    """The places in ``left`` of the readings to buy, best first; each image once."""
    item = left["item"].to_numpy()
    reader = left["reader"].to_numpy()
    if way == "random":
        return np.arange(len(left)), None
    if way == "entropy":
        posterior = np.maximum(found.posterior, 1e-12)
        return np.argsort((posterior * np.log(posterior)).sum(axis=1)[item], kind="stable"), None
    given = {"answers": answers} if goal == "model" else {}
    every = expected_gain(found, np.arange(len(have.items)), goal=goal, **given)
    return np.arange(len(left)), every[item, reader]


def buy(
    found: Consensus,
    have: Readings,
    left: pd.DataFrame,
    goal: str,
    way: str,
    *,
    count: int,
    answers: Ints,
) -> list[int]:
    order, gain = choose(found, have, left, goal, way, answers=answers)
    if gain is None:
        first = left.iloc[order].drop_duplicates("item").index[:count]
        return left.index.get_indexer(first).tolist()
    item = left["item"].to_numpy()
    reader = left["reader"].to_numpy()
    if goal == "readers":
        known = _rate_information(found, have, new_reader=False)
        return _take_in_turn(item, reader, gain, known, count=count, limit=count)[0]
    alone = np.zeros(len(item), dtype=bool)
    return _take(item, reader, gain, count=count, limit=count, together=alone)


def doubts(found: Consensus, have: Readings, answers: Ints) -> dict[str, float]:
    """What is not known of each statement."""
    grade = np.arange(len(found.grades))
    error = np.abs(grade - answers[:, None])
    mean = (found.posterior * error).sum(axis=1)
    variance = (found.posterior * error**2).sum(axis=1) - mean**2
    return {
        "consensus": float(found.risk.mean()),
        "readers": float((1.0 / _rate_information(found, have, new_reader=False)).sum()),
        "model": float(np.sqrt(variance.sum()) / len(answers)),
    }


def errors(found: Consensus, true: Ints, answers: Ints, rates: Floats) -> dict[str, float]:
    """How wrong each statement really is. rates: (R,) how often readers differ from the truth."""
    expected = (found.posterior * np.abs(np.arange(len(found.grades)) - answers[:, None])).sum()
    return {
        "consensus": float(np.abs(found.grade - true).mean()),
        "readers": float(np.abs(found.noise_rate - rates).mean()),
        "model": float(abs(expected / len(true) - np.abs(answers - true).mean())),
    }


def runs(
    table: pd.DataFrame, true: Ints, answers: Ints, *, seed: int, rounds: int
) -> list[dict[str, object]]:
    """The doubt after each round, for each goal and way."""
    mixed = table.sample(frac=1, random_state=seed).reset_index(drop=True)
    pilot = np.random.default_rng(seed).permutation(len(true))[:PILOT]
    first = ~mixed.duplicated("item") | mixed["item"].isin(pilot)
    wrong = table["grade"].to_numpy() != true[table["item"]]
    rates = table.assign(wrong=wrong).groupby("reader")["wrong"].mean().to_numpy()
    count = -(-int((~first).sum()) // rounds)
    rows: list[dict[str, object]] = []
    fits: dict[bytes, tuple[Consensus, Readings]] = {}

    def fitted(bought: npt.NDArray[np.bool_]) -> tuple[Consensus, Readings]:
        """Beginning and end are the same for all ways."""
        if bought.tobytes() not in fits:
            part = mixed[bought]
            have = Readings(
                items=[str(item) for item in range(len(true))],
                readers=[str(reader) for reader in range(int(table["reader"].max()) + 1)],
                grades=tuple(str(grade) for grade in range(int(table["grade"].max()) + 1)),
                item=part["item"].to_numpy(),
                reader=part["reader"].to_numpy(),
                grade=part["grade"].to_numpy(),
            )
            fits[bought.tobytes()] = consensus(have), have
        return fits[bought.tobytes()]

    for way in WAYS:
        # without a gain the goal changes nothing
        for goal in GOALS if way == "gain" else GOALS[:1]:
            bought = first.to_numpy().copy()
            while True:
                found, have = fitted(bought)
                share = float((bought & ~first).sum() / (~first).sum())
                error = errors(found, true, answers, rates)
                for name, doubt in doubts(found, have, answers).items():
                    if way != "gain" or name == goal:
                        about = {"seed": seed, "goal": name, "way": way, "share": share}
                        rows.append(about | {"doubt": doubt, "error": error[name]})
                left = mixed[~bought]
                if left.empty:
                    break
                places = buy(found, have, left, goal, way, count=count, answers=answers)
                bought[left.index[places]] = True
    return rows


def shares_needed(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each goal and way the share of the readings after which 90 % of the certainty is
    reached."""
    needed = []
    for (seed, goal, way), part in rows.groupby(["seed", "goal", "way"], sort=False):
        start, end = part["doubt"].iloc[0], part["doubt"].iloc[-1]
        fallen = ((start - part["doubt"]) / (start - end)).to_numpy()
        share = part["share"].to_numpy()
        after = int(np.argmax(fallen >= ENOUGH))
        between = np.interp(ENOUGH, fallen[after - 1 : after + 1], share[after - 1 : after + 1])
        about = {"seed": seed, "goal": goal, "way": way, "share": float(between)}
        needed.append(about | {"half": float(np.interp(0.5, share, part["error"]))})
    return pd.DataFrame(needed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--audits", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    known = pd.read_csv(args.data / "labels.csv")
    place = {image: row for row, image in enumerate(known["image"])}
    readings = pd.read_csv(args.data / "readings.csv")
    table = pd.DataFrame(
        {
            "item": readings["image"].map(place),
            "reader": pd.factorize(readings["reader"])[0],
            "grade": readings["grade"],
        }
    )
    rows: list[dict[str, object]] = []
    for seed in range(args.seeds):
        with np.load(args.audits / f"acne_features_seed{seed}.npz") as stored:
            answers = stored["probabilities"].argmax(axis=1)
        true = known["published_grade"].to_numpy()
        rows += runs(table, true, answers, seed=seed, rounds=args.rounds)
        needed = shares_needed(pd.DataFrame(rows))
        print(needed.round(3).to_string(index=False), flush=True)
    if args.out is not None:
        pd.DataFrame(rows).to_csv(args.out, index=False, float_format="%.5g", lineterminator="\n")


if __name__ == "__main__":
    main()
