"""The paper's comparison, repeated on knee X-rays: the trainings of ``paper_claims.yaml``, and its
hypotheses.

    python benchmarks/evidence/paper_claims.py pack DATA/knee160 --out knee.npz
    python benchmarks/evidence/paper_claims.py run knee.npz --weights lite0.safetensors --minutes 9 --processes 12
    python benchmarks/evidence/paper_claims.py collect claims
    python benchmarks/evidence/paper_claims.py table

``pack`` writes all images as one file, so that a machine with a GPU gets one file and not 8,260.
``run`` writes a CSV file for each training into the folder ``claims`` (--out), and starts none after
so many minutes. It skips those that are there or in ``results/paper_claims.csv.xz``: the same command
continues, on another day or another machine. ``--results FOLDER`` reads (and ``collect`` writes)
another file of this name: without one, all are trained. ``collect`` adds the folder to the results.
``table`` prints every hypothesis, and so does ``page.py`` on the evidence page: those without
trainings as "not yet run".

A row of the raw results is an epoch of a network: method, noise, fold, epoch, network, the test
accuracy, MAE and macro-F1 of its most likely grades, and its label precision.

To try it on a CPU: run … --network tiny --epochs 8 --limit 300 --fold 0 --stage 0 --processes 1.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

HERE = Path(__file__).parent
sys.path.append(str(HERE))
from recipe_tables import pipes  # noqa: E402

from srjt.data import Manifest, Split, folds, from_arrays  # noqa: E402
from srjt.data.splits import corrupt_sides  # noqa: E402
from srjt.ordinal.intervals import holm  # noqa: E402
from srjt.studies.config import parse_method, parse_noise  # noqa: E402
from srjt.studies.results import PairedTest, corrected_t_test  # noqa: E402

DESIGN = HERE / "paper_claims.yaml"
RESULTS = HERE / "results" / "paper_claims.csv.xz"
SIDE = 146  # pixels of a packed image
LAST = 10  # epochs whose mean is reported
AFTER_RAMP = 6  # after the ramp: from epoch 5 on, only 1 − ε is kept
TEST_TO_TRAIN = 20 / 60
KEY = ["method", "noise", "fold"]
SCORES = ["accuracy", "mae", "macro_f1", "label_precision"]
SHOWN = {
    "accuracy": "accuracy",
    "mae": "MAE",
    "macro_f1": "macro-F1",
    "label_precision": "label precision",
    "precision_change": "label precision, end − epoch 6:",
    "forgotten": "accuracy, peak − end:",
}
COLUMNS = [*KEY, "epoch", "network", *SCORES]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training."""

    method: str  # as ``srjt study --methods`` writes it
    noise: str
    fold: int

    @property
    def file_name(self) -> str:
        parts = (self.method, self.noise, f"fold{self.fold}")
        return "_".join(re.sub(r"[^A-Za-z0-9.+=,-]+", "-", part) for part in parts) + ".csv"


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A score of a claim of the design."""

    about: str
    of: str
    minus: tuple[str, ...]  # of several, the one that is best in the other folds
    noises: tuple[str, ...]
    less: tuple[str, ...] = ()
    score: str

    @property
    def below_zero(self) -> bool:
        """Whether the claim is that the difference is below 0."""
        return self.score == "mae"


def read_design() -> dict[str, Any]:
    design: dict[str, Any] = yaml.safe_load(DESIGN.read_text(encoding="utf-8"))
    return design


def hypotheses(design: dict[str, Any]) -> list[Hypothesis]:
    found = []
    for claim in design["claims"]:
        minus = claim["minus"] if isinstance(claim["minus"], list) else [claim["minus"]]
        for score in claim["scores"]:
            found.append(
                Hypothesis(
                    about=claim["about"],
                    of=claim["of"],
                    minus=tuple(minus),
                    noises=tuple(claim["noises"]),
                    less=tuple(claim.get("less", ())),
                    score=score,
                )
            )
    return found


def planned(design: dict[str, Any], *, stages: Sequence[int] | None = None) -> list[Job]:
    """The trainings in the order of the stages, each once; all folds of a method and a noise one
    after the other."""
    jobs = [
        Job(method=method, noise=noise, fold=fold)
        for number, stage in enumerate(design["stages"])
        if stages is None or number in stages
        for noise in stage["noises"]
        for method in stage["methods"]
        for fold in design["folds"]
    ]
    return list(dict.fromkeys(jobs))


# Training


def pack(data: Path, out: Path) -> None:
    from PIL import Image

    table = pd.read_csv(data / "labels.csv")
    content = []
    for image in table["image"]:
        small = Image.open(data / image).convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
        buffer = io.BytesIO()
        small.save(buffer, "WEBP", quality=70)
        content.append(np.frombuffer(buffer.getvalue(), np.uint8))
    np.savez(
        out,
        x=np.concatenate(content),
        ends=np.cumsum([len(one) for one in content]),
        grade=table["grade"].to_numpy(),
        patient=table["patient"].to_numpy().astype(str),
    )
    print(f"{len(table):,} images, {out.stat().st_size / 2**20:.0f} MiB: {out}")


@cache  # a process keeps them from one training to the next
def open_data(file: Path, limit: int | None) -> tuple[Manifest, list[Split]]:
    """The images with their true grades, and five folds by patient."""
    from PIL import Image

    with np.load(file) as saved:
        ends, grade, patient = (saved[name][:limit] for name in ("ends", "grade", "patient"))
        x = saved["x"]
    begins = np.concatenate([[0], ends[:-1]])
    images = [
        np.asarray(Image.open(io.BytesIO(x[begin:end].tobytes())).convert("RGB"))
        for begin, end in zip(begins, ends, strict=True)
    ]
    clean = from_arrays(np.stack(images), grade, patients=patient, true_grades=grade)
    return clean, folds(clean, folds=5, seed=0, by="random")


def train(job: Job, args: argparse.Namespace) -> pd.DataFrame:
    """Train, and return a row for each epoch and network."""
    import srjt

    design = read_design()
    clean, splits = open_data(args.images, args.limit)
    rate, matrix, _ = parse_noise(job.noise).on(clean.class_counts)
    assert matrix is not None
    # all methods of a fold and a noise get the same labels
    noisy, _ = corrupt_sides(clean, splits[job.fold], matrix, seed=job.fold)
    method = parse_method(job.method)
    needs = srjt.methods.lookup(method.name).needs
    told: dict[str, Any] = {"noise_rate": rate, "transition": matrix.tolist()}
    settings = {**design["training"], **method.settings, **{need: told[need] for need in needs}}
    settings |= {
        name: value for name, value in (("network", args.network), ("epochs", args.epochs)) if value
    }
    run = srjt.train(
        noisy,
        split=splits[job.fold],
        method=method.name,
        method_options=dict(method.options),
        seed=design["seed"],
        weights=args.weights,
        pretrained=args.weights is not None,
        device=args.device,
        progress=False,
        **settings,
    )
    return epoch_rows(run.metrics, job)


def epoch_rows(metrics: pd.DataFrame, job: Job) -> pd.DataFrame:
    """``metrics.csv`` of a run → COLUMNS."""
    test = metrics[(metrics["split"] == "test") & metrics["metric"].isin(SCORES)]
    precision = metrics[(metrics["split"] == "train") & (metrics["metric"] == "label_precision")]
    both = pd.concat([test, precision])
    wide = both.pivot_table(
        index=["epoch", "network"], columns="metric", values="value"
    ).reset_index()
    single = wide[~wide["network"].isin(["ensemble", "pooled"])]
    found = single.assign(method=job.method, noise=job.noise, fold=job.fold)
    return found.reindex(columns=COLUMNS).round(5)


def run(args: argparse.Namespace) -> None:
    begin = time.monotonic()
    design = read_design()
    args.out.mkdir(parents=True, exist_ok=True)
    wanted = [
        job
        for job in planned(design, stages=args.stage)
        if args.fold is None or job.fold in args.fold
    ]
    trying_out = args.network or args.epochs or args.limit
    there = set() if trying_out else set(trained(stored(args.results)))
    waiting = [
        job for job in wanted if job not in there and not (args.out / job.file_name).exists()
    ]
    print(f"{len(wanted) - len(waiting)} of {len(wanted)} trainings are done", flush=True)
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        train_all(waiting, pool, args, until=begin + 60 * args.minutes)
    if waiting:
        print(f"{len(waiting)} trainings are left: run the same command again", flush=True)


def train_all(
    waiting: list[Job], pool: ProcessPoolExecutor, args: argparse.Namespace, *, until: float
) -> None:
    """Train what is ``waiting``, ``args.processes`` at a time, and start none after ``until``."""
    begin = time.monotonic()
    running: dict[Future[pd.DataFrame], Job] = {}
    at_once = args.processes
    while running or (waiting and time.monotonic() < until):
        while waiting and len(running) < at_once and time.monotonic() < until:
            job = waiting.pop(0)
            running[pool.submit(train, job, args)] = job
        for ended in wait(running, return_when=FIRST_COMPLETED)[0]:
            job = running.pop(ended)
            try:
                rows = ended.result()
            except Exception as problem:  # the others go on, and the same command tries it again
                print(f"{job} failed: {repr(problem)[:300]}", flush=True)
                if "memory" in str(problem).lower() and running:
                    at_once = len(running)  # no more of them fit on the GPU
                    waiting.append(job)
                continue
            draft = args.out / f".{job.file_name}.tmp"
            rows.to_csv(draft, index=False)
            draft.replace(args.out / job.file_name)
            last = rows.groupby("epoch")["mae"].mean().tail(LAST).mean()
            seconds = time.monotonic() - begin
            print(f"{job.file_name}: MAE {last:.3f}, {seconds:.0f} s", flush=True)


def collect(folder: Path, results: Path) -> None:
    """Add the trainings of the folder to the stored ones; of one that is in both, the new one."""
    files = sorted(folder.glob("*.csv"))
    new = pd.concat([pd.read_csv(file) for file in files])
    before = stored(results)
    again = before.set_index(KEY).index.isin(new.set_index(KEY).index)
    rows = pd.concat([before[~again], new]) if len(before) else new
    out = results / RESULTS.name
    rows.sort_values(KEY, kind="stable").to_csv(out, index=False, compression="xz")
    print(f"{len(files)} trainings, {len(trained(rows))} with those that were there: {out}")


# The hypotheses


def run_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Raw results → one row per training (index: method, noise, fold) and one column per score."""
    epochs = rows.groupby([*KEY, "epoch"])[SCORES].mean()  # over the networks
    found = []
    for key, own in epochs.groupby(level=KEY):
        own = own.droplevel(KEY)
        last = own.tail(LAST).mean()
        scores = last.to_dict()
        after_ramp = own["label_precision"].get(AFTER_RAMP, np.nan)
        scores["precision_change"] = last["label_precision"] - after_ramp
        scores["forgotten"] = own["accuracy"].max() - last["accuracy"]
        found.append({**dict(zip(KEY, key, strict=True)), **scores})
    return pd.DataFrame(found, columns=[*KEY, *SCORES, "precision_change", "forgotten"]).set_index(
        KEY
    )


def score_by_fold(
    scores: pd.DataFrame, method: str, noises: Sequence[str], name: str
) -> pd.Series[float]:
    """Mean over the noises in each fold that has a training for all of them. Index: fold."""
    wide = scores[name].unstack("fold").reindex([(method, noise) for noise in noises])
    return wide.mean(axis=0, skipna=False).dropna()


def best_elsewhere(scores: pd.DataFrame, one: Hypothesis) -> pd.Series[float]:
    """In each fold the score of the method that is best in the other folds; nothing unless all
    methods have it."""
    values = pd.DataFrame(
        {name: score_by_fold(scores, name, one.noises, one.score) for name in one.minus}
    ).dropna()
    if len(values) < 2:
        return pd.Series(dtype=np.float64)
    chosen = {}
    for fold in values.index:
        others = values.drop(index=fold).mean()
        chosen[fold] = values.loc[fold, others.idxmin() if one.below_zero else others.idxmax()]
    return pd.Series(chosen)


def differences(scores: pd.DataFrame, one: Hypothesis) -> pd.Series[float]:
    """The number of a hypothesis in each fold for which all trainings are there."""
    own = score_by_fold(scores, one.of, one.noises, one.score)
    if len(one.minus) > 1:
        return (own - best_elsewhere(scores, one)).dropna()
    [minus] = one.minus
    found = own - score_by_fold(scores, minus, one.noises, one.score)
    if one.less:
        weaker = score_by_fold(scores, one.of, one.less, one.score) - score_by_fold(
            scores, minus, one.less, one.score
        )
        found = found - weaker
    return found.dropna()


def tests(rows: pd.DataFrame, design: dict[str, Any]) -> list[tuple[Hypothesis, PairedTest, float]]:
    """Hypothesis, its corrected t-test over folds, and Holm's p over all hypotheses, tested yet or
    not.

    A hypothesis that is not tested yet counts with p = 1.
    """
    scores, every = run_scores(rows), hypotheses(design)
    found = [
        corrected_t_test(differences(scores, one).to_numpy(), test_train_ratio=TEST_TO_TRAIN)
        for one in every
    ]
    adjusted = holm([1.0 if test.p_value is None else test.p_value for test in found])
    return list(zip(every, found, adjusted, strict=True))


def verdict(one: Hypothesis, test: PairedTest, adjusted: float, *, folds: int) -> str:
    """What the trainings say about the claim, in words."""
    if test.n < folds:
        return f"{test.n} of {folds} folds so far"
    as_claimed = ((test.difference or 0.0) < 0) == one.below_zero
    if test.p_value is not None and adjusted < 0.05:
        return "shown" if as_claimed else "the opposite is shown"
    return "not shown" if as_claimed else "not shown; the sign is the other one"


def p_text(p: float | None) -> str:
    if p is None:
        return "–"
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def hypotheses_table(rows: pd.DataFrame) -> str:
    """Every hypothesis, whatever it says; those of a claim without any training in one row."""
    design = read_design()
    lines: list[list[str]] = []
    for about, of_claim in groupby(tests(rows, design), key=lambda one: one[0].about):
        waiting = []
        for one, test, adjusted in of_claim:
            implied = f"{SHOWN[one.score]} {'<' if one.below_zero else '>'} 0"
            if test.difference is None:
                waiting.append(implied)
                continue
            found, p, corrected = f"{test.difference:+.3f}", "–", "–"
            if test.low is not None and test.high is not None:
                found += f" ({test.low:+.3f} to {test.high:+.3f})"
                p, corrected = p_text(test.p_value), p_text(adjusted)
            said = verdict(one, test, adjusted, folds=len(design["folds"]))
            lines.append([about, implied, found.replace("-", "−"), p, corrected, said])
        if waiting:
            lines.append([about, ", ".join(waiting), "–", "–", "–", "not yet run"])
    return pipes(
        ["claim", "difference that it implies", "found, 95 % interval", "p", "Holm's p", "result"],
        lines,
    )


def stored(folder: Path) -> pd.DataFrame:
    """The raw results; none if nothing has been run."""
    file = folder / RESULTS.name
    return pd.read_csv(file) if file.exists() else pd.DataFrame(columns=COLUMNS)


def trained(rows: pd.DataFrame) -> list[Job]:
    """The trainings of raw results."""
    every = rows[KEY].drop_duplicates().itertuples(index=False, name=None)
    return [Job(method=method, noise=noise, fold=int(fold)) for method, noise, fold in every]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("data", type=Path)
    packing.add_argument("--out", type=Path, default=Path("knee.npz"))
    running = commands.add_parser("run")
    running.add_argument("images", type=Path, help="what pack has written")
    running.add_argument(
        "--weights", help="of the network, by lite0_weights.py; without them it begins at random"
    )
    running.add_argument("--network", help="another one than the design's, to try it out")
    running.add_argument("--epochs", type=int, help="other ones than the design's, to try it out")
    running.add_argument("--limit", type=int, help="so many images only, to try it out")
    running.add_argument("--stage", type=int, action="append", help="only this stage; repeatable")
    running.add_argument("--fold", type=int, action="append", help="only this fold; repeatable")
    running.add_argument("--minutes", type=float, default=1e6, help="start no training later")
    running.add_argument(
        "--processes", type=int, default=1, help="so many trainings at the same time"
    )
    running.add_argument("--device")
    running.add_argument(
        "--out", type=Path, default=Path("claims"), help="a folder for the raw results"
    )
    collecting = commands.add_parser("collect")
    collecting.add_argument("folder", type=Path)
    showing = commands.add_parser("table")
    for command in (running, collecting, showing):
        command.add_argument("--results", type=Path, default=RESULTS.parent, help="a folder")
    args = parser.parse_args(words)
    if args.command == "pack":
        pack(args.data, args.out)
    elif args.command == "run":
        run(args)
    elif args.command == "collect":
        collect(args.folder, args.results)
    else:
        print(hypotheses_table(stored(args.results)))


if __name__ == "__main__":
    main()
