"""``srjt demo``: labels that are partly wrong, what plain training and ``srjt`` make of them, which
ones the audit finds, and a range for an image. The same functions and pages as for your own data,
on synthetic images.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from srjt.auditing.audit import Audit, LabelFile, audit
from srjt.auditing.scores import suggestions
from srjt.data.images.store import open_store
from srjt.data.manifest import Manifest
from srjt.data.sources import read
from srjt.data.splits import corrupt
from srjt.data.synthetic import generate, write
from srjt.errors import SrjtError
from srjt.files import write_atomically, write_json
from srjt.inference.evaluate import evaluate
from srjt.inference.predict import predict
from srjt.reports.page import KeyNumber, Page, Section, write_page
from srjt.reports.pages.answers import predictions_page
from srjt.reports.report import report
from srjt.studies.folder import run_folder
from srjt.studies.results import StudyResults
from srjt.studies.study import study
from srjt.training.checkpoint import LAST
from srjt.training.config import load_preset
from srjt.training.trained import Trained, load_run

IMAGES = 1000
EPOCHS = 30  # of the preset
RATE = 0.4
SEED = 0
VERIFIED = 100  # labels
FIRST = 100  # of the most doubtful ones
AUDIT_FOLDS = 3
COVERAGE = 0.9
PAGES = ("index.html", "study/report.html", "audit/audit.html", "patients.html")
NAMES = {"standard": "Plain training", "srjt": "srjt"}


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What a method made of the wrong labels, over the last ten epochs."""

    method: str
    repeated: float  # share of the wrong labels it learnt from that it gives, too
    errors: list[float]  # mean absolute error on true grades of other patients, by fold

    @property
    def error(self) -> float:
        """Over the folds."""
        return float(np.mean(self.errors))

    def sentence(self, plain: Learnt) -> str:
        """The same in words, beside plain training."""
        folds = ", ".join(f"{error:.3f}" for error in self.errors)
        change = self.error / plain.error - 1.0
        compared = ""
        if abs(change) >= 0.005:
            direction = "lower" if change < 0 else "higher"
            compared = f": {abs(change):.0%} {direction}"
        return (
            f"{NAMES[self.method]} repeats {self.repeated:.0%} of the wrong labels that it learnt"
            " from. Its error on true grades of other patients (MAE, lower is better) is"
            f" {self.error:.3f} (folds: {folds}){compared}."
        )


def run_demo(
    out: Path, *, images: int = IMAGES, epochs: int = EPOCHS, tell: Callable[[str], None]
) -> list[Path]:
    """Run the demo in a folder and tell its story, a paragraph per finished part; return the pages.

    What is finished is kept: called again, it goes on where it was interrupted.
    """
    story: list[str] = []

    def also(text: str) -> None:
        story.append(text)
        tell(text)

    labels = _labels(out, images=images, epochs=epochs)
    data = read(labels)
    assert data.true_labels is not None
    wrong = data.labels != data.true_labels
    also(
        f"Wrong labels. {len(data):,} synthetic images of {len(set(data.patients or ())):,}"
        f" patients, grades 0 to 3. {int(wrong.sum()):,} of the labels ({wrong.mean():.0%}) are"
        " wrong, by one grade."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pages say how far to trust a number
        # Decoded here, not by the first of two processes while the other one waits.
        open_store(data, size=load_preset("demo")["train"]["image_size"], resize="squash")
        results = study(labels, out=out / "study", preset="demo", noise="none", epochs=epochs)
        if failed := results.runs.query("status != 'done'")["key"].tolist():
            raise SrjtError(
                f"{len(failed)} of {len(results.runs)} trainings failed: see {out / 'study'}.",
                code="training_failed",
            )
        report(out / "study")
        learnt = _learnt(results, epochs=epochs)
        for one in learnt:
            also(one.sentence(learnt[0]))

        alone = _audited(data, out, labels, epochs=epochs)
        worst = alone.scores.head(FIRST)  # the true grades are not used by the audit
        hits = int((worst["grade"] != worst["true_grade"]).sum())
        also(
            f"The audit sorts the labels by doubt. Of the first {len(worst)}, {hits} are wrong;"
            f" drawn at random, {wrong.mean() * len(worst):.0f} would be."
        )
        run, held_out = _run(out, results, data)
        checked = _verified(data, held_out["validation"])
        with_verified = _audited(checked, out, labels, epochs=epochs)  # its trainings are finished
        report(out / "audit", out=out / PAGES[2])
        also(
            "Verified labels. The audit alone puts the share of wrong labels at"
            f" {alone.estimate.rate_text(interval='95 % interval')}. A doctor checks"
            f" {with_verified.estimate.verified} labels of randomly drawn patients:"
            f" {with_verified.estimate.rate_text()}. The truth is {wrong.mean():.0%}."
            f" {_suggested(with_verified)}"
        )
        also(_ranges(out, run, held_out["test"], checked))
    doubtful = KeyNumber(
        "wrong of the most doubtful labels",
        f"{hits} of {len(worst)}",
        compared=f"{wrong.mean() * len(worst):.0f} at random",
    )
    index = _index(learnt, story, wrong=float(wrong.mean()), doubtful=doubtful)
    write_page(index, out / PAGES[0], write=write_atomically)
    return [out / page for page in PAGES]


def _audited(samples: Manifest, out: Path, labels: Path, *, epochs: int) -> Audit:
    return audit(
        samples,
        out=out / "audit",
        folds=AUDIT_FOLDS,
        preset="demo",
        epochs=max(1, epochs // 2),
        labels=LabelFile(source=str(labels), table=labels),
    )


def _labels(out: Path, *, images: int, epochs: int) -> Path:
    """The table with the wrong labels, beside its images; made once."""
    made_with = {"images": images, "epochs": epochs}
    record = out / "demo.json"
    labels = out / "images" / "noisy.csv"
    if record.exists():
        if json.loads(record.read_text(encoding="utf-8")) != made_with:
            raise SrjtError(
                f"{out} holds a demo with other settings: choose another folder.",
                code="settings_changed",
            )
        return labels
    reading = load_preset("demo")["reading"]
    clean = generate(**{**reading, "images": images, "patients": images // 5}, seed=SEED)
    write(clean, labels.parent)
    noisy, _, _ = corrupt(clean, noise="truncated", rate=RATE, seed=SEED)
    table = noisy.table[["image", "true_grade", "patient", "grade"]]
    write_atomically(labels, table.to_csv(index=False).encode())
    write_json(record, made_with)
    return labels


def _learnt(results: StudyResults, *, epochs: int) -> list[Learnt]:
    """What the two methods make of the wrong labels, plain training first."""
    last = results.metrics[results.metrics["epoch"] > epochs - LAST].query("network in ('1', '2')")
    values = last.groupby(["method", "split", "metric", "fold"])["value"].mean()
    return [
        Learnt(
            method=method,
            repeated=float(values[method, "wrong_labels", "accuracy"].mean()),
            errors=values[method, "test", "mae"].tolist(),
        )
        for method in NAMES
    ]


def _index(learnt: list[Learnt], story: list[str], *, wrong: float, doubtful: KeyNumber) -> Page:
    """The story of the terminal as a page, with links to the others. doubtful: how many of the
    first labels are wrong."""
    plain, srjt = learnt
    title = (
        f"Plain training repeats {plain.repeated:.0%} of the wrong labels, srjt {srjt.repeated:.0%}"
    )
    labels, *both, audit, verified, ranges = story
    about_labels, _, labels = labels.partition(". ")
    about_verified, _, verified = verified.partition(". ")
    about_ranges, _, ranges = ranges.partition(". ")
    study, audited, patients = PAGES[1:]
    return Page(
        kind="Demo on synthetic images, whose true grades are known",
        title=title,
        lead=(
            f"{wrong:.0%} of the labels are wrong. The error on true grades of other patients is"
            f" {srjt.error:.3f} with srjt and {plain.error:.3f} with plain training."
        ),
        key_numbers=[
            KeyNumber(
                "wrong labels repeated by srjt",
                f"{srjt.repeated:.0%}",
                compared=f"plain: {plain.repeated:.0%}",
            ),
            KeyNumber(
                "mean absolute error of srjt",
                f"{srjt.error:.3f}",
                compared=f"plain: {plain.error:.3f}",
            ),
            doubtful,
        ],
        warnings=[
            "These images are drawn by a program. What srjt gains on yours is measured by srjt"
            " analyse."
        ],
        sections=[
            Section("labels", about_labels, text=[labels]),
            Section("methods", "Two trainings", text=both, links=[("Every number", study)]),
            Section("audit", "The audit", text=[audit], links=[("The labels", audited)]),
            Section(
                "verified",
                about_verified,
                text=[verified],
                links=[("The audit with verified labels", audited)],
            ),
            Section(
                "ranges",
                about_ranges,
                text=[ranges],
                links=[("Every answer with its range", patients)],
            ),
            Section("next", "With your own images", code="srjt analyse labels.csv"),
        ],
    )


def _run(out: Path, results: StudyResults, data: Manifest) -> tuple[Trained, dict[str, Manifest]]:
    """The run of ``srjt`` on the first fold, and the images of the patients whom it was not trained
    on."""
    key = results.runs.query("method == 'srjt'").sort_values("fold")["key"].iloc[0]
    folder = out / "model"
    shutil.copytree(run_folder(out / "study", key), folder, dirs_exist_ok=True)  # a name for people
    run = load_run(folder, device="cpu")
    row = {name: number for number, name in enumerate(data.ids)}
    held_out = {}
    for side, samples in run.held_out.items():
        held_out[side] = data.select([row[name] for name in samples.ids])
    return run, held_out


def _verified(data: Manifest, drawn_from: Manifest) -> Manifest:
    """The data with the true grades of a hundred of these images. Its patients are a random part of
    all."""
    assert data.true_labels is not None
    chosen = set(np.random.default_rng(SEED).permutation(drawn_from.ids)[:VERIFIED])
    grades = np.where([name in chosen for name in data.ids], data.true_labels, -1)
    return replace(data, table=data.table.assign(verified_grade=grades))


def _suggested(audited: Audit) -> str:
    """How many suggestions are right, of labels that the doctor has not told the true grade of."""
    offered = suggestions(audited.scores)
    if not len(offered):
        return "For the other labels it suggests no grade."
    right = int((offered["suggested"] == offered["true_grade"]).sum())
    return (
        f"For {len(offered)} of the other labels it suggests another grade; {right} of these are"
        " right."
    )


def _ranges(out: Path, run: Trained, test: Manifest, checked: Manifest) -> str:
    """Ranges calibrated on the verified labels, beside those calibrated on all labels as they
    are."""
    assert checked.verified_labels is not None
    verified = checked.select(np.flatnonzero(checked.verified_labels >= 0))
    answers = predict(run, test, calibrate_on=verified, coverage=COVERAGE, progress=False)
    predictions_page(answers, data=test).save(out / PAGES[3])
    options: dict[str, Any] = {"resamples": 2, "coverage": COVERAGE, "progress": False}
    with_them = evaluate(run, test, calibrate_on=verified, **options).ranges
    without = evaluate(run, test, **options).ranges
    assert with_them is not None
    assert without is not None
    first = answers.iloc[0]
    return (
        f"A range for an image. The first one of patient {first['patient']} gets grade"
        f" {first['grade']} and the range {first['grade_low']} to {first['grade_high']}. With the"
        f" verified labels a range holds {with_them.width.value:.1f} of 4 grades on average,"
        f" without them {without.width.value:.1f}. It holds the truth for"
        f" {with_them.coverage.value:.0%} of the images of the {len(set(test.patients or ()))}"
        f" patients not trained on; {COVERAGE:.0%} are promised."
    )
