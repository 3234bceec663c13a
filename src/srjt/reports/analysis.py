"""``srjt analyse``: from a table of labels to one page. It inspects, splits, trains, evaluates and
audits, by the same functions as the commands of these names, and every part can be continued, or
repeated, by its own command.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from srjt.auditing.audit import Audit, LabelFile, audit
from srjt.auditing.verification import with_verified_sample
from srjt.data.duplicates import group_duplicates
from srjt.data.images.decode import OnBadImage
from srjt.data.inspection import Inspection
from srjt.data.manifest import Manifest
from srjt.data.splits import Split, folds, official_split, write_splits
from srjt.errors import Message, Option, SrjtError, count_of
from srjt.files import as_json, explain_write_errors, is_foreign, write_atomically
from srjt.inference.compare import Comparison, compare
from srjt.inference.evaluate import Evaluation, evaluate_sides
from srjt.progress import Reporter
from srjt.reports.page import write_page
from srjt.reports.pages.audit import audit_page
from srjt.reports.pages.evaluation import comparison_page, evaluation_page
from srjt.reports.pages.inspection import inspection_page, perhaps_patients
from srjt.reports.report import write_report
from srjt.training.config import TrainConfig
from srjt.training.train import train_from_config
from srjt.training.trained import Setup, Trained

RECORD = "analysis.json"
PLAIN = "standard"  # the method that plain training is
FOLDS = 5
STEPS = ("inspect", "split", "train", "plain", "evaluate", "audit")
# folders
MODEL = "model"
WITHOUT = "plain"
AUDIT = "audit"
# files
INDEX = "index.html"
INSPECTION = "inspection.html"
EVALUATION = "evaluation.html"
COMPARISON = "comparison.html"
SPLITS = "splits.csv"


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """What the parts have found.

    inspection: what the data are. run: the model. plain: a model of the same network by plain
    training; None if the model is that. evaluation: the model on its test side. comparison: with
    plain training. audited: the labels.
    """

    folder: Path
    inspection: Inspection
    run: Trained
    plain: Trained | None
    evaluation: Evaluation
    comparison: Comparison | None
    audited: Audit


@dataclass(frozen=True, kw_only=True)
class Watching:
    """How the parts are followed. tell: a sentence at the beginning of each part. open: the
    reporter of a training."""

    tell: Callable[[str], None]
    open: Callable[[], AbstractContextManager[Reporter]]


def analyse(
    inspection: Inspection,
    *,
    out: Path,
    config: TrainConfig,
    audit_config: TrainConfig,
    watching: Watching,
    on_bad_image: OnBadImage = "error",
    device: str | None = None,
    labels: LabelFile | None = None,
    command: str | None = None,
) -> Analysis:
    """Do what is not done yet in the folder, write its pages, and return what they are made of.

    inspection: the inspected source. config: of the model; audit_config: of the audit's trainings.
    labels: what ``srjt.audit`` should know of the table, for ``srjt review export``.
    """
    begin_folder(out, inspection)
    write_page(inspection_page(inspection), out / INSPECTION, write=write_atomically)
    refuse_unusable(inspection, out, on_bad_image=on_bad_image)
    steps = [step for step in STEPS if step != "plain" or config.method != PLAIN]

    def tell(step: str, text: str) -> None:
        watching.tell(f"{steps.index(step) + 1} of {len(steps)}: {text}")

    data = group_duplicates(inspection.manifest)
    tell("inspect", f"{data.describe()}. Details: {out / INSPECTION}")
    parts = _write_sides(inspection, data, out)
    tell("split", f"{_sides(data, parts)}: {out / SPLITS}. {perhaps_patients(inspection)}".rstrip())
    setup = partial(Setup, split=_sides_of, device=device, on_bad_image=on_bad_image)
    training = partial(train_from_config, data, command=command)
    samples = count_of(len(parts.train), "sample")
    tell("train", f"training {config.method} on {samples}: {out / MODEL}")
    with watching.open() as reporter:
        run = training(config, setup=setup(reporter=reporter), out=out / MODEL)
    plain = None
    if config.method != PLAIN:
        tell("plain", f"plain training of the same network, to compare with: {out / WITHOUT}")
        with watching.open() as reporter:
            plain_config = plain_training(config, network=run.config.network)
            plain = training(plain_config, setup=setup(reporter=reporter), out=out / WITHOUT)
    tell("evaluate", f"both on the test side: {out / EVALUATION}")
    evaluation, comparison = _judged(run, plain, out)
    tell("audit", f"which labels are probably wrong, by {FOLDS} trainings: {out / AUDIT}")
    with watching.open() as reporter:
        audited = audit(
            with_verified_sample(data, out / AUDIT),
            out=out / AUDIT,
            folds=FOLDS,
            config=audit_config,
            device=device,
            reporter=reporter,
            jobs="auto",
            on_bad_image=on_bad_image,
            readings=inspection.manifest.report.readings,
            labels=labels or LabelFile(source=str(inspection.source)),
        )
    write_page(audit_page(out / AUDIT), out / AUDIT / "audit.html", write=write_atomically)
    return Analysis(
        folder=out,
        inspection=inspection,
        run=run,
        plain=plain,
        evaluation=evaluation,
        comparison=comparison,
        audited=audited,
    )


def _judged(run: Trained, plain: Trained | None, out: Path) -> tuple[Evaluation, Comparison | None]:
    """The model on its test side, and beside plain training; their pages are written."""
    sides = evaluate_sides(run)
    if "test" not in sides:
        raise SrjtError(
            "The split has no test side, so the model cannot be evaluated.", code="no_split"
        )
    evaluation = sides["test"]
    write_page(evaluation_page(evaluation, run=run), out / EVALUATION, write=write_atomically)
    comparison = None
    if plain is not None:
        comparison = compare(plain, run)
        write_page(comparison_page(comparison), out / COMPARISON, write=write_atomically)
    write_report(out / MODEL)
    return evaluation, comparison


def begin_folder(out: Path, inspection: Inspection) -> None:
    """Make the folder; one that holds other files, or the analysis of another source, is an
    error."""
    made_of = {"source": str(inspection.source.absolute())}
    record = out / RECORD
    if record.is_file():
        if record.read_bytes() != as_json(made_of):
            raise SrjtError(
                f"{out} holds the analysis of another source: choose another ",
                Option("out"),
                ".",
                code="folder_in_use",
            )
        return
    if out.is_dir() and any(is_foreign(path) for path in out.iterdir()):
        raise SrjtError(
            f"{out} contains other files: choose another ", Option("out"), ".", code="folder_in_use"
        )
    with explain_write_errors(f"The analysis cannot be written to {out}"):
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(record, as_json(made_of))


def refuse_unusable(inspection: Inspection, out: Path, *, on_bad_image: OnBadImage) -> None:
    """An error if the grades are not known, or if rows cannot be used and nobody has said to leave
    them out."""
    page = f"{out / INSPECTION} shows everything that was found"
    if inspection.unresolved:
        raise SrjtError(Message.joined(inspection.unresolved), f" {page}.", code="ambiguous")
    if inspection.unusable and on_bad_image == "error":
        first = inspection.unusable[0]
        raise SrjtError(
            f"{count_of(len(inspection.unusable), 'row or image', 'rows or images')} cannot be used"
            f" (the first: {first.where}: {first.detail}). Correct the source, or leave them out"
            " with ",
            Option("on_bad_image", "skip"),
            f". {page}.",
            code="unusable_samples",
        )


def plain_training(config: TrainConfig, *, network: str | None) -> TrainConfig:
    """The same network, images and length, learnt from the labels as they are. network: of the
    model, which may have chosen its head by held-out labels."""
    return config.replace(
        method=PLAIN, network=network, method_options={}, noise_rate=None, transition=None
    )


def audit_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model that the trainings of an audit share."""
    without = ("method", "method_options", "noise_rate", "transition", "keep")
    return {name: value for name, value in settings.items() if name not in without}


def _sides_of(manifest: Manifest) -> Split:
    """The split column if it has a test side, else the first of five folds: as ``srjt train --fold
    0``."""
    if "split" in manifest.table and "test" in set(manifest.table["split"]):
        return official_split(manifest)
    return folds(manifest, folds=FOLDS)[0]


def _write_sides(inspection: Inspection, data: Manifest, out: Path) -> Split:
    """Write the sides, for ``--splits``, and return them. Rows of unreadable images are on no
    side. Other sides than those of a model in the folder are an error."""
    usable = replace(inspection, manifest=data).usable
    split = _sides_of(usable)
    with tempfile.TemporaryDirectory() as place:
        new = Path(place) / SPLITS
        write_splits(new, usable, [split])
        written = new.read_bytes()
    if (out / MODEL).exists() and (out / SPLITS).read_bytes() != written:
        raise SrjtError(
            f"{out} holds an analysis of other rows or patients: choose another ",
            Option("out"),
            ".",
            code="folder_in_use",
        )
    write_atomically(out / SPLITS, written)
    return split


def _sides(data: Manifest, split: Split) -> str:
    counts = ", ".join(f"{len(rows):,} {side}" for side, rows in split.sides().items())
    what = "patients apart" if data.patients is not None else "no patient ids"
    trained = np.bincount(data.labels[split.train], minlength=data.num_classes)
    missing = [
        data.grades[grade] for grade in np.flatnonzero((trained == 0) & (data.class_counts > 0))
    ]
    if missing:
        what += f"; no sample of grade {' or '.join(missing)} is on the train side"
    return f"{counts} ({what})"
