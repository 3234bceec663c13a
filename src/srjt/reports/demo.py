"""``srjt demo``: ``srjt analyse`` on synthetic images, a part of whose labels is wrong. Their true
grades are known, so the demo can tell what no analysis of your own labels can: how many wrong
labels each model repeats, how many of the doubtful labels are wrong, and whether ranges hold.
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
import pandas as pd

from srjt.auditing.audit import DEFAULTS, Audit, LabelFile, audit
from srjt.auditing.scores import suggestions
from srjt.data.images.store import open_store
from srjt.data.inspection import Inspection, inspect_source
from srjt.data.manifest import Manifest
from srjt.data.splits import corrupt
from srjt.data.synthetic import generate, write
from srjt.errors import SrjtError
from srjt.files import write_atomically, write_json
from srjt.inference.compare import Difference
from srjt.inference.evaluate import evaluate
from srjt.inference.predict import predict
from srjt.reports import analysis
from srjt.reports.analysis import Analysis, Watching, analyse
from srjt.reports.figures.canvas import CaptionedFigure, Curve, chart
from srjt.reports.figures.study import describe_ends
from srjt.reports.page import KeyNumber, Page, Section, write_page
from srjt.reports.pages.analysis import analysis_page
from srjt.reports.pages.answers import predictions_page
from srjt.reports.pages.audit import audit_page
from srjt.training.config import TrainConfig, load_preset
from srjt.training.reporters import reporter_in_python
from srjt.training.trained import Trained

IMAGES = 1000
EPOCHS = 30  # of the preset
RATE = 0.4
SEED = 0
VERIFIED = 100  # labels
FIRST = 100  # of the most doubtful ones
COVERAGE = 0.9
# in the folder of the demo
ANALYSIS = "analysis"
WITH_VERIFIED = "verified"
INDEX = "index.html"
ANALYSED = f"{ANALYSIS}/{analysis.INDEX}"
CHECKED = f"{WITH_VERIFIED}/audit.html"
RANGES = "ranges.html"
PAGES = (INDEX, ANALYSED, CHECKED, RANGES)


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What both trainings made of the wrong labels. repeated, repeated_by_plain: share of the wrong
    training labels that the model of srjt, or of plain training, gives after the last epoch.
    errors: on the true grades of other patients."""

    repeated: float
    repeated_by_plain: float
    errors: Difference

    @property
    def title(self) -> str:
        return (
            f"Plain training repeats {self.repeated_by_plain:.0%} of the wrong labels, srjt"
            f" {self.repeated:.0%}"
        )

    @property
    def gap(self) -> str:
        """The difference of the errors, with its interval."""
        value, low, high = self.errors.difference
        return f"{value:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}".replace("-", "−")

    def sentence(self) -> str:
        """Both trainings in words."""
        return (
            "Two trainings. Of the wrong labels that they learnt from, plain training repeats"
            f" {self.repeated_by_plain:.0%} and srjt {self.repeated:.0%}. The mean absolute error"
            f" on the true grades of other patients is {self.errors.first:.3f} after plain training"
            f" and {self.errors.value:.3f} with srjt (difference {self.gap})."
        )


def run_demo(
    out: Path, *, images: int = IMAGES, epochs: int = EPOCHS, tell: Callable[[str], None]
) -> list[Path]:
    """Run the demo in a folder and tell its story, a paragraph per finished part; return the pages.

    What is finished is kept: called again, it goes on where it was interrupted.
    """
    story: dict[str, str] = {}

    def also(slug: str, text: str, on_page: str | None = None) -> None:
        story[slug] = on_page or text
        tell(text)

    labels = _labels(out, images=images, epochs=epochs)
    inspection = inspect_source(labels, {})
    data = inspection.manifest
    assert data.true_labels is not None
    wrong = data.labels != data.true_labels
    also(
        "labels",
        f"Wrong labels. {len(data):,} synthetic images of {len(set(data.patients or ())):,}"
        f" patients, grades 0 to 3. {int(wrong.sum()):,} of the labels ({wrong.mean():.0%}) are"
        " wrong, by one grade.",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pages say how far to trust a number
        auditing = TrainConfig(**DEFAULTS).replace(preset="demo", epochs=max(1, epochs // 2))
        done = _analyse(out, labels, inspection, epochs=epochs, auditing=auditing)
        learnt = _learnt(done)
        also(
            "methods",
            learnt.sentence(),
            on_page=(
                "Two trainings. Both learn the same labels, and are judged by the true grades of"
                f" other patients. The errors of srjt and of plain training differ by {learnt.gap}."
            ),
        )

        worst = done.audited.scores.head(FIRST)  # the true grades are not used by the audit
        hits = int((worst["grade"] != worst["true_grade"]).sum())
        doubtful = KeyNumber(
            "wrong of the most doubtful labels",
            f"{hits} of {len(worst)}",
            compared=f"{wrong.mean() * len(worst):.0f} at random",
        )
        also(
            "audit",
            f"The audit. It sorts the labels by doubt. Of the first {len(worst)}, {hits} are"
            f" wrong; drawn at random, {wrong.mean() * len(worst):.0f} would be.",
            on_page=(
                "The audit. It sorts the labels by doubt, by trainings that have not seen them and"
                f" without the true grades. The number above counts the first {len(worst)}."
            ),
        )
        held_out = _held_out(done.run, data)
        checked = _verified(data, held_out["validation"])
        also("verified", _with_verified(out, done.audited, checked, auditing, wrong=wrong.mean()))
        also("ranges", _ranges(out, done.run, held_out["test"], checked))
    index = _index(done, learnt, story, doubtful=doubtful)
    write_page(index, out / INDEX, write=write_atomically)
    return [out / page for page in PAGES]


def _analyse(
    out: Path, labels: Path, inspection: Inspection, *, epochs: int, auditing: TrainConfig
) -> Analysis:
    """Both trainings, their evaluation and the audit, with its page."""
    settings = TrainConfig().replace(preset="demo", epochs=epochs)
    # decoded here, not by the first of two processes while the other one waits
    open_store(inspection.manifest, size=settings.image_size, resize=settings.resize)
    done = analyse(
        inspection,
        out=out / ANALYSIS,
        config=settings.replace(method="srjt"),
        audit_config=auditing,
        watching=Watching(
            tell=lambda text: None, open=lambda: reporter_in_python(None, progress=True)
        ),
        labels=LabelFile(source=str(labels), table=labels),
    )
    write_page(analysis_page(done), out / ANALYSED, write=write_atomically)
    return done


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


def _repeated(run: Trained) -> pd.Series:
    """Share of the wrong training labels that the networks give, by epoch."""
    rows = run.metrics.query(
        "split == 'wrong_labels' and metric == 'accuracy' and network in ('1', '2')"
    )
    return rows.groupby("epoch")["value"].mean()


def _learnt(done: Analysis) -> Learnt:
    assert done.plain is not None
    assert done.comparison is not None
    return Learnt(
        repeated=float(_repeated(done.run).iloc[-1]),
        repeated_by_plain=float(_repeated(done.plain).iloc[-1]),
        errors=next(row for row in done.comparison.differences if row.metric == "mae"),
    )


def _held_out(run: Trained, data: Manifest) -> dict[str, Manifest]:
    """The images of the patients whom the run was not trained on, by side."""
    row = {name: number for number, name in enumerate(data.ids)}
    held_out = {}
    for side, samples in run.held_out.items():
        held_out[side] = data.select([row[name] for name in samples.ids])
    return held_out


def _verified(data: Manifest, drawn_from: Manifest) -> Manifest:
    """The data with the true grades of a hundred of these images. Its patients are a random part of
    all."""
    assert data.true_labels is not None
    chosen = set(np.random.default_rng(SEED).permutation(drawn_from.ids)[:VERIFIED])
    grades = np.where([name in chosen for name in data.ids], data.true_labels, -1)
    return replace(data, table=data.table.assign(verified_grade=grades))


def _with_verified(
    out: Path, alone: Audit, checked: Manifest, config: TrainConfig, *, wrong: float
) -> str:
    """Audit again with the verified labels, beside the first audit, whose trainings are used."""
    folder = out / WITH_VERIFIED
    assert alone.folder is not None
    shutil.copytree(alone.folder, folder, dirs_exist_ok=True)
    told = audit(checked, out=folder, folds=analysis.FOLDS, config=config)
    write_page(audit_page(folder), out / CHECKED, write=write_atomically)
    return (
        "Verified labels. The audit alone puts the share of wrong labels at"
        f" {alone.estimate.rate_text(interval='95 % interval')}. A doctor checks"
        f" {told.estimate.verified} labels of randomly drawn patients:"
        f" {told.estimate.rate_text()}. The truth is {wrong:.0%}. {_suggested(told)}"
    )


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
    predictions_page(answers, data=test).save(out / RANGES)
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


# The page.


def _index(done: Analysis, learnt: Learnt, story: dict[str, str], *, doubtful: KeyNumber) -> Page:
    """The story of the terminal as a page, with links to the others; every number stands on it
    once. doubtful: how many of the first labels are wrong."""
    links = {
        "labels": ("The data", f"{ANALYSIS}/{analysis.INSPECTION}"),
        "methods": ("Both models on the test side", f"{ANALYSIS}/{analysis.COMPARISON}"),
        "audit": ("The labels, the most doubtful first", f"{ANALYSIS}/{analysis.AUDIT}/audit.html"),
        "verified": ("The audit with verified labels", CHECKED),
        "ranges": ("Every answer with its range", RANGES),
    }
    sections = []
    for slug, text in story.items():
        heading, _, rest = text.partition(". ")
        sections.append(Section(slug, heading, text=[rest], links=[links[slug]]))
    return Page(
        kind="Demo on synthetic images, whose true grades are known",
        title=learnt.title,
        has_ids_option=False,
        lead=(
            "These images are drawn by a program. What srjt gains on your images is measured by"
            " srjt analyse."
        ),
        key_numbers=[
            KeyNumber(
                "mean absolute error of srjt on true grades",
                f"{learnt.errors.value:.3f}",
                compared=f"plain training: {learnt.errors.first:.3f}",
            ),
            doubtful,
        ],
        figure=_figure(done),
        sections=[
            *sections,
            Section(
                "next",
                "With your own images",
                text=[
                    "One command trains, compares and audits. For these images, it wrote the page"
                    " below."
                ],
                code="srjt analyse labels.csv",
                links=[("What srjt analyse says about these labels", ANALYSED)],
            ),
        ],
    )


def _figure(done: Analysis) -> CaptionedFigure:
    """How many of the wrong labels both trainings repeat, by epoch."""
    assert done.plain is not None
    curves = []
    for name, run in (("plain training", done.plain), ("srjt", done.run)):
        shares = _repeated(run)
        curves.append(
            Curve(name=name, x=shares.index.to_numpy(np.float64), y=shares.to_numpy(), most=1.0)
        )
    return CaptionedFigure(
        name="repeated",
        figure=chart(curves, xlabel="epoch", title="Share of the wrong labels that is repeated"),
        caption=(
            "A wrong label counts as repeated if the network gives the same wrong grade to its"
            " training image."
        ),
        alt=f"Share of wrong training labels repeated, by epoch. {describe_ends(curves)}",
    )
