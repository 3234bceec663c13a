"""How many labels must be verified to know how many are wrong: at random, at random with a model,
and by doubt.

    python benchmarks/active_verification.py audits acne DATA/acne160 --features acne.npy --seeds 3 --out FOLDER
    python benchmarks/active_verification.py audits votes DATA/appareal144 --features votes.npy --seeds 3 --out FOLDER
    python benchmarks/active_verification.py audits votes DATA/appareal144 --out FOLDER   # by readings
    python benchmarks/active_verification.py real FOLDER --out benchmarks/evidence/results/active_verification.csv
    python benchmarks/active_verification.py simulated     # on which the constants were chosen; a minute

**Audits.** The label of an image is one of its readings, drawn at random: of a doctor (ACNE04; the
truth is the published grade), or of somebody who guesses an age group (APPA-REAL; the truth is the
age group). With features (N, F) of a network that knows none of these images, ``srjt.audit`` judges
the labels by their 64 first principal components, with the network ``odds``. Without, the labels
are the consensus of three readings of each image, and the doubt is 1 − its certainty. Doubt, truth
and the networks' grades (else those of a fourth reading) are stored.

**Real.** 50, 100 and 200 labels are drawn again and again (the only chance: labels and truth stay)
and looked up.

- random: the exact interval of the share of wrong labels in a simple random sample
- model: the same sample, corrected by the doubt of all labels (prediction-powered inference)
- doubt: labels drawn by doubt with known probabilities, as ``srjt review --sample`` does, corrected
  likewise

Of the accuracy, the mean absolute error and κ of the networks' grades against the truth the
intervals are those of ``srjt evaluate``; their truth is that of all samples, and these are not
drawn anew, so that they hold more often than promised. ``ranked``: how often the doubt of a wrong
label is above that of a right one. ``at best``: the share of labels that would be needed if
somebody knew how often labels of each fifth by doubt are wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import roc_auc_score

from srjt.inference.answers import Answers
from srjt.inference.true_scores import true_scores
from srjt.noise.drawing import Drawing, draw_by_doubt
from srjt.noise.verified import Verified, verified_share

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SIZES = (50, 100, 200)
COMPONENTS = 64
WAYS = ("random", "model", "doubt")
SCORES = ("accuracy", "mae", "qwk")


def audits(args: argparse.Namespace) -> None:
    """Doubt labels of one reader each, or of three, and store the doubt beside the truth."""
    args.out.mkdir(parents=True, exist_ok=True)
    truth, file = (
        ("published_grade", "readings.csv") if args.set == "acne" else ("true_grade", "votes.csv")
    )
    known = pd.read_csv(args.data / "labels.csv")
    readings = pd.read_csv(args.data / file).dropna(subset=["grade"]).astype({"grade": int})
    if "reader" not in readings:
        readings["reader"] = "crowd"
    for seed in range(args.seeds):
        mixed = readings[["image", "reader", "grade"]].sample(frac=1, random_state=seed)
        if args.features is None:
            name, found = "readings", by_readings(known["image"].tolist(), mixed)
        else:
            name, found = (
                "features",
                by_features(known["image"], mixed, np.load(args.features), seed=seed),
            )
        rows, labels, doubt, predicted = found
        true = known[truth].to_numpy()[rows]
        stored = {"labels": labels, "true": true, "doubt": doubt, "predicted": predicted}
        np.savez_compressed(args.out / f"{args.set}_{name}_seed{seed}.npz", **stored)
        print(
            f"{args.set}, {name}: {(labels != true).mean():.3f} of {len(rows):,} labels wrong",
            flush=True,
        )


Found = tuple[Ints, Ints, Floats, Ints]  # rows, and of each its label, the doubt, another grade


def by_features(images: pd.Series, mixed: pd.DataFrame, features: Floats, *, seed: int) -> Found:
    from sklearn.decomposition import PCA

    from srjt.auditing.audit import audit
    from srjt.data.sources.assemble import from_arrays

    labels = images.map(mixed.drop_duplicates("image").set_index("image")["grade"])
    rows = np.flatnonzero(labels.notna())
    grades = labels.to_numpy()[rows].astype(int)
    reduced = PCA(COMPONENTS, random_state=0).fit_transform(features[rows])
    reduced = (reduced / reduced.std(axis=0)).astype(np.float32)
    names = [str(row) for row in rows]
    manifest = from_arrays(reduced, grades, ids=names)
    found = audit(manifest, method="standard", network="odds", seed=seed, progress=False)
    scores = found.scores.set_index("id").loc[names]
    return rows, grades, 1.0 - scores["quality"].to_numpy(float), scores["network_1"].to_numpy(int)


def by_readings(images: list[str], mixed: pd.DataFrame) -> Found:
    from srjt.readers import Readings, consensus

    place = {image: row for row, image in enumerate(images)}
    classes = int(mixed["grade"].max()) + 1
    three, others = mixed.groupby("image").head(3), mixed.groupby("image").nth(3)
    reader, readers = pd.factorize(three["reader"])
    found = consensus(
        Readings(
            items=images,
            readers=[str(name) for name in readers],
            grades=tuple(str(grade) for grade in range(classes)),
            item=three["image"].map(place).to_numpy(),
            reader=reader,
            grade=three["grade"].to_numpy(),
        ),
        repeats="independent",
    )
    rows = np.flatnonzero(np.bincount(three["image"].map(place), minlength=len(images)) == 3)
    fourth = found.grade.copy()  # a judge of its own only where there is a fourth reading
    fourth[[place[image] for image in others["image"]]] = others["grade"].to_numpy()
    return rows, found.grade[rows], 1.0 - found.certainty[rows], fourth[rows]


def drawn(doubt: Floats, way: str, seed: int) -> Drawing:
    return draw_by_doubt(doubt if way == "doubt" else np.full(len(doubt), 0.5), seed=seed)


def rate(
    wrong: Floats, doubt: Floats, size: int, way: str, seed: int
) -> tuple[float, float, float]:
    """The share of wrong labels by ``size`` verified ones, and its interval."""
    drawing = drawn(doubt, way, seed)
    rows = drawing.order[:size]
    known = Verified(
        rows=rows, true=np.zeros(size, dtype=np.int64), probability=drawing.probability(size)[rows]
    )
    helps = np.zeros(len(doubt)) if way == "random" else doubt
    share = verified_share(
        wrong[rows],
        helps[rows],
        known,
        mean_doubt=float(helps.mean()),
        samples=len(wrong),
        owner=np.arange(len(wrong)),
    )
    return share.rate, *share.interval


def answers_of(predicted: Ints, labels: Ints, classes: int) -> Answers:
    return Answers(
        probabilities=np.eye(classes)[predicted], grades=predicted, labels=labels, groups=None
    )


def scores(
    answers: Answers, true: Ints, doubt: Floats, size: int, way: str, seed: int
) -> dict[str, tuple[float, float, float]]:
    """Scores against the truth by ``size`` verified labels, with intervals; "random": by these
    labels alone."""
    drawing = drawn(doubt, way, seed)
    rows = drawing.order[:size]
    if way == "random":
        alone = answers_of(answers.grades[rows], answers.labels[rows], answers.classes)
        found = true_scores(alone, verified=true[rows])
    else:
        verified = np.full(len(true), -1)
        verified[rows] = true[rows]
        found = true_scores(
            answers, verified=verified, verified_probability=drawing.probability(size)
        )
    assert found is not None
    return {name: found.scores[name] for name in SCORES}


def real(args: argparse.Namespace) -> None:
    rows = []
    for file in sorted(args.folder.glob("*.npz")):
        with np.load(file) as stored:
            labels, true, doubt, predicted = (
                stored[name] for name in ("labels", "true", "doubt", "predicted")
            )
        wrong = (labels != true).astype(float)
        classes = int(max(labels.max(), true.max(), predicted.max())) + 1
        answers = answers_of(predicted, labels, classes)
        known = _true_scores(predicted, true, classes)
        doubted = {"ranked": float(roc_auc_score(wrong, doubt)), "at best": at_best(wrong, doubt)}
        for size in SIZES:
            for way in WAYS:
                found = {
                    "noise rate": [
                        rate(wrong, doubt, size, way, seed) for seed in range(args.draws)
                    ]
                }
                each = [
                    scores(answers, true, doubt, size, way, seed) for seed in range(args.draws // 5)
                ]
                found |= {name: [one[name] for one in each] for name in SCORES}
                truth = {"noise rate": wrong.mean(), **known}
                rows += [
                    {
                        "set": file.stem,
                        "labels": len(labels),
                        "verified": size,
                        "drawn": way,
                        "statistic": name,
                    }
                    | _summary(np.array(values), truth[name])
                    | doubted
                    for name, values in found.items()
                ]
        print(
            pd.DataFrame(rows[-len(SIZES) * len(WAYS) * 4 :]).round(3).to_string(index=False),
            flush=True,
        )
    table = pd.DataFrame(rows)
    if args.out is not None:
        table.to_csv(args.out, index=False, float_format="%.5g", lineterminator="\n")


def at_best(wrong: Floats, doubt: Floats, *, parts: int = 5) -> float:
    """The share of labels that is needed if it is known how often labels of each fifth by doubt are
    wrong."""
    part = np.argsort(np.argsort(doubt, kind="stable")) * parts // len(doubt)
    rates = np.array([wrong[part == one].mean() for one in range(parts)])
    mean = wrong.mean()
    return float(np.sqrt(rates * (1.0 - rates)).mean() ** 2 / (mean * (1.0 - mean)))


def _true_scores(predicted: Ints, true: Ints, classes: int) -> dict[str, float]:
    from srjt.ordinal.metrics import METRICS

    confusion = np.zeros((classes, classes))
    np.add.at(confusion, (true, predicted), 1.0)
    return {name: float(METRICS[name].function(confusion)) for name in SCORES}


def _summary(values: Floats, truth: float) -> dict[str, float]:
    """values: (T, 3) the estimate, and the ends of its interval."""
    estimate, low, high = values.T
    held = (low <= truth) & (truth <= high)
    return {
        "truth": truth,
        "bias": float((estimate - truth).mean()),
        "width": float((high - low).mean()),
        "covered": float(held.mean()),
        "trials": len(values),
    }


# Simulated labels: how the doubt may be wrong. Here BELIEVED was chosen, and what is added to the
# variance.

Chance = Callable[[Floats], Floats]
CASES: dict[
    str, tuple[tuple[float, float], Chance]
] = {  # the doubt is beta distributed; p(wrong | doubt)
    "right": ((0.15, 0.5), lambda q: q),
    "miscalibrated": ((0.6, 2.2), lambda q: np.clip(1.1 * q**1.15, 0.0, 1.0)),
    "always the same": ((20.0, 80.0), lambda q: np.full(q.shape, 0.2)),
    "of no use": ((0.6, 2.2), lambda q: np.full(q.shape, 0.2)),
    "the wrong way round": ((0.6, 2.2), lambda q: np.clip(0.4 - q, 0.02, 1.0)),
    "errors that it misses": ((0.05, 0.3), lambda q: np.maximum(0.9 * q, 0.05)),
    "rare errors": ((0.2, 6.0), lambda q: np.clip(0.7 * q, 0.0, 1.0)),
    "rare errors that it misses": ((0.2, 6.0), lambda q: np.full(q.shape, 0.03)),
}


def simulated(args: argparse.Namespace) -> None:
    table = pd.DataFrame(_simulated(args.draws))
    print(
        table.pivot(index=["doubt", "verified"], columns="drawn", values=["width", "covered"])
        .round(3)
        .to_string()
    )
    if args.out is not None:
        table.to_csv(args.out, index=False, float_format="%.5g", lineterminator="\n")


def _simulated(trials: int, *, labels: int = 1500) -> Iterator[dict[str, object]]:
    for number, (case, ((a, b), chance)) in enumerate(CASES.items()):
        for size in SIZES:
            rng = np.random.default_rng([number, size])
            found: dict[str, list[tuple[float, ...]]] = {way: [] for way in WAYS}
            for seed in range(trials):
                doubt = rng.beta(a, b, labels)
                wrong = (rng.random(labels) < chance(doubt)).astype(float)
                for way in WAYS:
                    one = rate(wrong, doubt, size, way, seed)
                    found[way].append(tuple(value - wrong.mean() for value in one))
            for way in WAYS:
                yield {"doubt": case, "verified": size, "drawn": way} | _summary(
                    np.array(found[way]), 0.0
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("audits")
    one.add_argument("set", choices=("acne", "votes"))
    one.add_argument("data", type=Path)
    one.add_argument("--features", type=Path)
    one.add_argument("--seeds", type=int, default=3)
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(run=audits)
    two = commands.add_parser("real")
    two.add_argument("folder", type=Path)
    two.set_defaults(run=real)
    three = commands.add_parser("simulated")
    three.set_defaults(run=simulated)
    for command, draws in ((two, 1000), (three, 400)):
        command.add_argument("--draws", type=int, default=draws)
        command.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
