"""How many labels must be verified to know how many are wrong, and how good a model is: at random,
at random with a model, and by doubt.

    python benchmarks/active_verification.py audits acne DATA/acne160 --features acne.npy --readings 1 --out FOLDER
    python benchmarks/active_verification.py audits votes DATA/appareal144 --features votes.npy --readings 3 --out FOLDER
    python benchmarks/active_verification.py real FOLDER --out benchmarks/evidence/results/active_verification.csv
    python benchmarks/active_verification.py simulated     # on which the constants were chosen; a minute

**Audits.** The label of an image is one of its readings, drawn at random, or the consensus of three:
of doctors (ACNE04; the truth is the published grade), or of people who guess an age group
(APPA-REAL; the truth is the age group). ``srjt.audit`` judges the labels by the 64 first principal
components of features (N, F) of a network that knows none of these images, with the network
``odds``, and by the readings if there are three. Doubt, truth and the networks' held-out
probabilities are stored.

**Real.** 50, 100 and 200 labels are drawn again and again (the only chance: labels and truth stay)
and looked up.

- random: the exact interval of the share of wrong labels in a simple random sample
- model: the same sample, corrected by the doubt of all labels (prediction-powered inference)
- doubt: labels drawn by doubt with known probabilities, as ``srjt review --sample`` does, corrected
  likewise

Of the accuracy, the mean absolute error and κ of the networks' grades against the truth the
intervals are those of ``srjt evaluate``; their truth is that of all samples, and these are not
drawn anew, so that they hold more often than promised. ``ranked``: how often the doubt of a wrong
label is above that of a right one. ``at best``: the share of labels that would be needed if the
doubt had been learnt from the truth of nine in ten labels; for a score, if somebody knew how far to
trust the labels, and the readings or the networks. ``planned``: the number of labels that the
audit's page names for an interval of ± 0.1; ``reached``: half the mean width after that number.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import roc_auc_score

from srjt.inference.answers import Answers
from srjt.inference.true_scores import _guesses, true_scores
from srjt.noise.drawing import Drawing, draw_by_doubt, labels_needed
from srjt.noise.verified import Verified, verified_share
from srjt.ordinal.intervals import slopes
from srjt.ordinal.metrics import METRICS
from srjt.readers import Readings, consensus

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SIZES = (50, 100, 200)
COMPONENTS = 64
WAYS = ("random", "model", "doubt")
SCORES = ("accuracy", "mae", "qwk")


def audits(args: argparse.Namespace) -> None:
    """Doubt the labels of one reader each, or of three, and store the doubt beside the truth."""
    args.out.mkdir(parents=True, exist_ok=True)
    truth, file = (
        ("published_grade", "readings.csv") if args.set == "acne" else ("true_grade", "votes.csv")
    )
    known = pd.read_csv(args.data / "labels.csv")
    readings = pd.read_csv(args.data / file).dropna(subset=["grade"]).astype({"grade": int})
    if "reader" not in readings:
        readings["reader"] = "crowd"
    place = {image: row for row, image in enumerate(known["image"])}
    readings["row"] = readings["image"].map(place)
    name = "features" if args.readings == 1 else "readings"
    for seed in range(args.seeds):
        mixed = readings.sample(frac=1, random_state=seed)
        stored = audited(mixed, np.load(args.features), readings=args.readings, seed=seed)
        stored["true"] = known[truth].to_numpy()[stored["rows"]]
        np.savez_compressed(args.out / f"{args.set}_{name}_seed{seed}.npz", **stored)
        wrong = float((stored["labels"] != stored["true"]).mean())
        print(f"{args.set}, {name}: {wrong:.3f} of {len(stored['rows']):,} wrong", flush=True)


def audited(
    mixed: pd.DataFrame, features: Floats, *, readings: int, seed: int
) -> dict[str, np.ndarray]:
    """The images with this many readings: their labels, and what the audit finds."""
    from sklearn.decomposition import PCA

    from srjt.auditing.audit import audit
    from srjt.data.sources.assemble import from_arrays

    first = mixed.groupby("row").head(readings).sort_values("row", kind="stable")
    counts = first.groupby("row").size()
    rows = counts.index[counts == readings].to_numpy()
    first = first[first["row"].isin(rows)]
    given = first["grade"].to_numpy().reshape(-1, readings)
    reader = pd.factorize(first["reader"])[0].reshape(-1, readings)
    several = None
    labels = given[:, 0]
    if readings > 1:
        several = readings_of(given, reader)
        labels = consensus(several, repeats="independent").grade
    reduced = PCA(COMPONENTS, random_state=0).fit_transform(features[rows])
    reduced = (reduced / reduced.std(axis=0)).astype(np.float32)
    names = [str(row) for row in range(len(rows))]
    manifest = from_arrays(reduced, labels, ids=names)
    found = audit(
        manifest, method="standard", network="odds", seed=seed, readings=several, progress=False
    )
    quality = found.scores.set_index("id").loc[names, "quality"].to_numpy(float)
    assert list(found.fitted.manifest.ids) == names
    return {
        "rows": rows,
        "labels": labels,
        "doubt": 1.0 - quality,
        "probabilities": found.fitted.probabilities,
        "given": given,
        "reader": reader,
    }


def readings_of(given: Ints, reader: Ints) -> Readings:
    """given, reader: (N, R) the grade of each reading, and who gave it."""
    samples, each = given.shape
    return Readings(
        items=[str(row) for row in range(samples)],
        readers=[str(one) for one in range(int(reader.max()) + 1)],
        grades=tuple(str(grade) for grade in range(int(given.max()) + 1)),
        item=np.repeat(np.arange(samples), each),
        reader=reader.ravel(),
        grade=given.ravel(),
    )


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


def scores(case: Case, size: int, way: str, seed: int) -> dict[str, tuple[float, float, float]]:
    """Scores against the truth by ``size`` verified labels, with intervals; "random": by these
    labels alone."""
    drawing = drawn(case.doubt, way, seed)
    rows = drawing.order[:size]
    if way == "random":
        alone = Answers(
            probabilities=case.answers.probabilities[rows],
            grades=case.answers.grades[rows],
            labels=case.answers.labels[rows],
            groups=None,
        )
        found = true_scores(alone, verified=case.true[rows])
    else:
        verified = np.full(len(case.true), -1)
        verified[rows] = case.true[rows]
        found = true_scores(
            case.answers,
            verified=verified,
            verified_probability=drawing.probability(size),
            readings=case.readings,
        )
    assert found is not None
    return {name: found.scores[name] for name in SCORES}


@dataclass(frozen=True, eq=False)
class Case:
    """N labels, the truth about them, and what is known without it."""

    answers: Answers
    true: Ints
    doubt: Floats
    readings: Readings | None


def read_case(file: Path) -> Case:
    with np.load(file) as stored:
        given = stored["given"]
        probabilities = stored["probabilities"]
        return Case(
            answers=Answers(
                probabilities=probabilities,
                grades=probabilities.argmax(axis=1),
                labels=stored["labels"],
                groups=None,
            ),
            true=stored["true"],
            doubt=stored["doubt"],
            readings=readings_of(given, stored["reader"]) if given.shape[1] > 1 else None,
        )


def real(args: argparse.Namespace) -> None:
    rows = []
    for file in sorted(args.folder.glob("*.npz")):
        case = read_case(file)
        wrong = (case.answers.labels != case.true).astype(float)
        # the consensus is the same in every draw
        agreed = None if case.readings is None else consensus(case.readings)
        known = _true_scores(case)
        best = at_best_scores(case) | {"noise rate": at_best(wrong, case)}
        doubted = {"ranked": float(roc_auc_score(wrong, case.doubt))}
        doubted |= planned(wrong, case.doubt, draws=args.draws // 5)
        for size in SIZES:
            for way in WAYS:
                found = {
                    "noise rate": [
                        rate(wrong, case.doubt, size, way, seed) for seed in range(args.draws)
                    ]
                }
                with patch("srjt.inference.true_scores.consensus", return_value=agreed):
                    each = [scores(case, size, way, seed) for seed in range(args.draws // 5)]
                found |= {name: [one[name] for one in each] for name in SCORES}
                truth = {"noise rate": wrong.mean(), **known}
                of = {"set": file.stem, "labels": len(wrong), "verified": size, "drawn": way}
                for name, values in found.items():
                    summary = _summary(np.array(values), truth[name])
                    rows.append(
                        of | {"statistic": name} | summary | doubted | {"at best": best[name]}
                    )
        shown = pd.DataFrame(rows[-len(SIZES) * len(WAYS) * 4 :])
        print(shown.round(3).to_string(index=False), flush=True)
    table = pd.DataFrame(rows)
    if args.out is not None:
        table.to_csv(args.out, index=False, float_format="%.5g", lineterminator="\n")


def planned(wrong: Floats, doubt: Floats, *, draws: int, within: float = 0.1) -> dict[str, float]:
    """The number of labels that a page names, and the half-width that it leads to."""
    size = labels_needed(doubt, within=within, rate=float(wrong.mean()))
    ends = np.array([rate(wrong, doubt, size, "doubt", seed)[1:] for seed in range(draws)])
    return {"planned": size, "reached": float(np.diff(ends).mean() / 2.0)}


def at_best_scores(case: Case) -> dict[str, float]:
    """Of each score the share of its variance that the labels, and the readings or the networks, do
    not explain."""
    answers = case.answers
    rows = np.arange(len(case.true))
    every = Verified(rows=rows, true=case.true, probability=np.ones(len(rows)))
    guesses = _guesses(answers, every, case.readings)
    counts = np.zeros((answers.classes, answers.classes))
    np.add.at(counts, (case.true, answers.grades), 1.0 / len(rows))
    shares = {}
    for name in SCORES:
        slope = slopes(METRICS[name].function, counts)
        adds = slope[case.true, answers.grades]
        guessed = np.einsum("jnc,cn->nj", guesses, slope[:, answers.grades])
        known = np.column_stack([guessed, np.ones(len(rows))])
        factors, *_ = np.linalg.lstsq(known, adds)
        shares[name] = float(((adds - known @ factors) ** 2).mean() / adds.var())
    return shares


def at_best(wrong: Floats, case: Case) -> float:
    """The share of labels that is needed if the doubt is learnt from the truth of nine in ten
    labels.

    With r = Pr(wrong | what is known) no draw needs less than (E √(r (1 − r)))² / (p (1 − p)). Of
    two normal distributions that is exp(−z² / 2), where Φ(z) is how often wrong labels rank above
    right ones: 30 % are saved at 80 %.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    answers = case.answers
    label = np.eye(answers.classes)[answers.labels]
    log = np.log(answers.probabilities + 1e-3)
    by_label = (label[:, :, None] * log[:, None, :]).reshape(len(wrong), -1)
    off = (answers.probabilities @ np.arange(answers.classes)) - answers.labels
    known = [
        np.log((case.doubt + 1e-3) / (1.001 - case.doubt)),
        label,
        log,
        by_label,
        off,
        abs(off),
    ]
    if case.readings is not None:
        given = case.readings.grade.reshape(len(wrong), -1)
        known += [np.eye(answers.classes)[given].sum(axis=1), given.std(axis=1)]
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500))
    parts = KFold(10, shuffle=True, random_state=0)
    r = cross_val_predict(model, np.column_stack(known), wrong, cv=parts, method="predict_proba")[
        :, 1
    ]
    return drawn_by(r, wrong)


def drawn_by(r: Floats, wrong: Floats) -> float:
    """The share of labels that is needed with probabilities r of wrong labels: the variance of what
    they leave, by a draw in proportion to √(r (1 − r)), relative to that at random."""
    size = np.sqrt(r * (1.0 - r))
    return float(((wrong - r) ** 2 / size).mean() * size.mean() / wrong.var())


def _true_scores(case: Case) -> dict[str, float]:
    counts = np.zeros((case.answers.classes, case.answers.classes))
    np.add.at(counts, (case.true, case.answers.grades), 1.0)
    return {name: float(METRICS[name].function(counts)) for name in SCORES}


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
    one.add_argument("--features", type=Path, required=True)
    one.add_argument("--readings", type=int, choices=(1, 3), default=1)
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
