"""What ``run.summary()`` says: the data, the method, the noise, and the scores beside naive ones; and the run
judged on its own held-out sides, which its page and its model card show too.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from srjt.errors import count_of
from srjt.inference.options import Answering
from srjt.inference.prepare import Prepared, prepare
from srjt.ordinal import Purpose
from srjt.ordinal.intervals import Interval, bootstrap_metrics
from srjt.ordinal.metrics import METRICS, NaiveBaseline, confusion_matrix
from srjt.progress import html_block, html_facts, html_table, html_text
from srjt.training.folder import NAIVE, HeldOut, baseline_from, compare_with_naive
from srjt.training.trained import Trained, load_run

# A run judged on its own held-out sides, as ``srjt predict`` would answer: for its page and its model card.

RESAMPLES = 1000
Ints = npt.NDArray[np.int64]
GradeScores = tuple[int, float, float, float]


@dataclass(frozen=True, kw_only=True)
class JudgedSide:
    """The answers of a run for the N samples of one side, and what they are worth."""

    name: str  # "validation" or "test"
    samples: HeldOut
    labels: Ints  # (N,) what the answers are judged by
    true: bool  # whether these are the true grades
    predicted: Ints  # (N,)
    severity: npt.NDArray[np.float64]  # (N,) expected grades
    grade_rule: str  # what a grade is: the end of a sentence
    intervals: dict[str, Interval]
    confusion: Ints  # (C, C), each sample once
    naive: NaiveBaseline | None
    purpose: Purpose  # the metric that the grades are for

    @property
    def naive_warning(self) -> str:
        """A sentence if one grade for all samples scores as well as these answers; else ""."""
        if self.naive is None:
            return ""
        return compare_with_naive(
            f"the {self.name} side",
            score=self.intervals[self.purpose].value,
            naive=getattr(self.naive, self.purpose),
            purpose=self.purpose,
        )

    def by_grade(self) -> list[GradeScores]:
        return scores_by_grade(self.confusion)


def scores_by_grade(counts: Ints) -> list[GradeScores]:
    """(C, C) → per grade: samples, share predicted right, share of its predictions that are right, MAE; nan if none."""
    found = []
    distance = np.abs(np.arange(len(counts))[:, None] - np.arange(len(counts)))
    for grade in range(len(counts)):
        samples, answers = counts[grade].sum(), counts[:, grade].sum()
        right = counts[grade, grade]
        found.append((
            int(samples),
            right / samples if samples else np.nan,
            right / answers if answers else np.nan,
            (counts[grade] * distance[grade]).sum() / samples if samples else np.nan,
        ))  # fmt: skip
    return found


def judged_run(folder: Path) -> tuple[Trained, dict[str, JudgedSide]] | None:
    """A finished run with each of its held-out sides; None if its weights have been deleted."""
    if not (folder / "weights.safetensors").exists():
        return None
    run = load_run(folder, device="cpu")
    return run, judge_sides(run)


def judge_sides(run: Trained, options: Answering | None = None) -> dict[str, JudgedSide]:
    """Each held-out side of a run, answered as ``srjt predict`` answers with these options."""
    prepared = prepare(run, options)
    return {name: judge_side(prepared, name) for name in run.held_out}


def judge_side(prepared: Prepared, name: str) -> JudgedSide:
    """The test side is judged by its true grades where they are known, the validation side by its labels as given."""
    run = prepared.run
    side = run.held_out[name]
    true = name == "test" and side.true_labels is not None
    labels = side.true_labels if name == "test" and side.true_labels is not None else side.labels
    table = prepared.predict_side(side)
    place = {grade: c for c, grade in enumerate(run.grades)}
    predicted = np.array([place[grade] for grade in table["grade"]], dtype=np.int64)
    classes = len(run.grades)
    counts = confusion_matrix(
        torch.from_numpy(labels), torch.from_numpy(predicted), num_classes=classes
    ).numpy()
    return JudgedSide(
        name=name,
        samples=side,
        labels=labels,
        true=true,
        predicted=predicted,
        severity=table["expected_grade"].to_numpy(np.float64),
        grade_rule=table.attrs["grade_rule"],
        intervals=bootstrap_metrics(
            labels, predicted, num_classes=classes, groups=side.groups, resamples=RESAMPLES
        ),
        confusion=counts,
        naive=None if run.facts is None else baseline_from(run.facts, counts.sum(axis=1)),
        purpose=prepared.options.optimise or run.config.optimise,
    )


# What ``run.summary()`` says: the data, the method, the noise, and the scores beside naive ones.

METRICS_SHOWN = ("accuracy", "mae", "macro_f1", "qwk")
SIDES = ("test", "validation")
WIDTH = 80  # columns of the printed summary


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The result of ``run.summary()``: print it, or let a notebook show it.

    Attributes
    ----------
    title : str
        Method, network, number of epochs, folder.
    facts : tuple of (str, str)
        What the run was trained on, and what is known about wrong labels.
    scores : DataFrame
        As ``run.scores``.
    notes : tuple of str
        What the scores are compared with, and warnings.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    scores: pd.DataFrame
    notes: tuple[str, ...]

    def __str__(self) -> str:
        wide = max((len(term) for term, _ in self.facts), default=0)
        lines = [self.title, *(_wrapped(f"  {term:{wide}}  ", value) for term, value in self.facts)]
        if len(self.scores):
            shown = pd.DataFrame(
                [row[2:] for row in self._rows()],
                columns=list(HEADER[2:]),
                index=[f"  {side:10}  {metric}" for side, metric, *_ in self._rows()],
            )
            lines += ["", shown.to_string()]
        return "\n".join([*lines, "", *(_wrapped("", note) for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = html_table(HEADER, self._rows(), text_columns=2) if len(self.scores) else ""
        return html_block(self.title, html_facts(self.facts), table, *map(html_text, self.notes))

    def _rows(self) -> list[tuple[str, ...]]:
        """The scores as text; the side is written once."""
        rows: list[tuple[str, ...]] = []
        for side, metric in self.scores.index:
            value, low, high, naive = self.scores.loc[(side, metric)]
            rows.append((
                side if metric == METRICS_SHOWN[0] else "",
                METRICS[metric].long_name,
                f"{value:.3f}",
                f"{low:.3f} – {high:.3f}" if math.isfinite(low) else "–",
                f"{naive:.3f}" if math.isfinite(naive) else "",
            ))  # fmt: skip
        return rows


def _wrapped(start: str, text: str) -> str:
    """A paragraph after its name, in 80 columns, broken at spaces only: a path stays in one piece."""
    return textwrap.fill(
        text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


HEADER = ("side", "metric", "value", "95 % interval", "naive")


def score_table(sides: Mapping[str, JudgedSide]) -> pd.DataFrame:
    """value, low, high (95 % interval) and naive for each (side, metric); nan where there is none."""
    found = {}
    for side in (name for name in SIDES if name in sides):
        judged = sides[side]
        for metric in METRICS_SHOWN:
            naive = math.nan if judged.naive is None else getattr(judged.naive, metric, math.nan)
            found[side, metric] = (*judged.intervals[metric], naive)
    index = pd.MultiIndex.from_tuples(list(found), names=["side", "metric"]) if found else None
    return pd.DataFrame(list(found.values()), index=index, columns=["value", "low", "high", "naive"])


def summarise_run(run: Trained, sides: Mapping[str, JudgedSide]) -> RunSummary:
    """The summary of a run. sides: its held-out sides, judged."""
    return RunSummary(
        title=run.describe(),
        facts=tuple((term, value) for term, value in _facts(run) if value),
        scores=score_table(sides),
        notes=tuple(_notes(run, sides)),
    )


def _facts(run: Trained) -> list[tuple[str, str]]:
    data = {} if run.facts is None else run.facts.data
    noise = (None if run.facts is None else run.facts.noise) or {}
    what = "rows of features" if len(run.in_shape) == 1 else "images"
    sizes = [f"{n:,} {side}" for side, n in data.get("samples", {}).items() if n]
    patients = data.get("patients")
    known = f"; {count_of(patients, 'patient')}" if isinstance(patients, int) else ""
    used = noise.get("used")
    # the sentence about an estimate contains the rate
    rate = f"rate {used:.2f}: " if isinstance(used, float) and noise.get("requested") != "auto" else ""
    return [
        (what, f"{', '.join(sizes)}{known}" if sizes else ""),
        ("grades", ", ".join(run.grades.shown)),
        ("noise", f"{rate}{noise.get('why') or ''}".removesuffix(": ")),
        ("skipped", count_of(len(run.skipped), "unreadable image") if run.skipped else ""),
    ]


def _notes(run: Trained, sides: Mapping[str, JudgedSide]) -> list[str]:
    if not sides:
        return ["The run has no held-out side: nothing is known about new samples. Use run.evaluate(data)."]
    notes = []
    for side in (name for name in SIDES if name in sides):
        judged = sides[side]
        what = "true grades" if judged.true else "labels as given, which may be wrong"
        notes.append(
            f"{side.capitalize()}: {count_of(len(judged.labels), 'sample')}, compared with their {what}."
        )
    judged = next(iter(sides.values()))
    units = "patients" if judged.samples.patients is not None else "samples"
    notes.append(f"The intervals resample {units}. A grade is {judged.grade_rule}.")
    if any(side.naive is not None for side in sides.values()):
        notes.append(f"{NAIVE[0].upper()}{NAIVE[1:]}.")
    notes += [judged.naive_warning for judged in sides.values()]
    return [note for note in notes if note]
