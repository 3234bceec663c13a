"""``srjt demo``: labels that are partly wrong, what plain training and ``srjt`` make of them, which ones the audit
finds, and a range for an image. The same functions and pages as for your own data, on synthetic images.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from srjt.auditing.audit import Audit, audit
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
from srjt.reports.pages.answers import predictions_page
from srjt.reports.report import report
from srjt.studies.folder import run_folder
from srjt.studies.results import StudyResults
from srjt.studies.study import study
from srjt.training.checkpoint import LAST
from srjt.training.config import load_preset
from srjt.training.trained import Trained, load_run

IMAGES, EPOCHS = 1000, 30  # of the preset
RATE, SEED = 0.4, 0
VERIFIED = FIRST = 100
AUDIT_FOLDS = 3
COVERAGE = 0.9
PAGES = ("study/report.html", "audit/audit.html", "patients.html")


def run_demo(out: Path, *, images: int = IMAGES, epochs: int = EPOCHS, tell: Callable[[str], None]) -> list[Path]:
    """Run the demo in a folder and tell its story, a paragraph per finished part; return the pages.

    What is finished is kept: called again, it goes on where it was interrupted.
    """
    labels = _labels(out, images=images, epochs=epochs)
    data = read(labels).manifest
    assert data.true_labels is not None
    wrong = data.labels != data.true_labels
    tell(
        f"Wrong labels. {len(data):,} synthetic images of {len(set(data.patients or ())):,} patients, grades 0 to 3. "
        f"{int(wrong.sum()):,} of the labels ({wrong.mean():.0%}) are wrong, by one grade."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pages say how far to trust a number
        # Decoded here, not by the first of two processes while the other one waits.
        open_store(data, size=load_preset("demo")["train"]["image_size"], resize="squash")
        results = study(labels, out=out / "study", preset="demo", noise="none", epochs=epochs)
        if failed := results.runs.query("status != 'done'")["key"].tolist():
            raise SrjtError(f"{len(failed)} of {len(results.runs)} trainings failed: see {out / 'study'}.")
        report(out / "study")
        for sentence in _comparison(results, epochs=epochs):
            tell(sentence)

        def audited(samples: Manifest) -> Audit:
            return audit(
                samples, out=out / "audit", folds=AUDIT_FOLDS, preset="demo", epochs=max(1, epochs // 2),
                table=labels, source=str(labels),
            )  # fmt: skip

        alone = audited(data)
        worst = alone.scores.head(FIRST)  # the true grades are not used by the audit
        hits = int((worst["grade"] != worst["true_grade"]).sum())
        tell(
            f"The audit sorts the labels by doubt. Of the first {len(worst)}, {hits} are wrong; drawn at random, "
            f"{wrong.mean() * len(worst):.0f} would be."
        )
        run, held_out = _run(out, results, data)
        checked = _verified(data, held_out["validation"])
        with_verified = audited(checked)  # its trainings are finished
        report(out / "audit", out=out / PAGES[1])
        tell(
            "Verified labels. The audit alone puts the share of wrong labels at "
            f"{alone.estimate.rate_text(interval='95 % interval')}. A doctor checks "
            f"{with_verified.estimate.verified} labels of randomly drawn patients: "
            f"{with_verified.estimate.rate_text()}. The truth is {wrong.mean():.0%}. {_suggested(with_verified)}"
        )
        tell(_ranges(out, run, held_out["test"], checked))
    return [out / page for page in PAGES]


def _labels(out: Path, *, images: int, epochs: int) -> Path:
    """The table with the wrong labels, beside its images; made once."""
    made_with, record = {"images": images, "epochs": epochs}, out / "demo.json"
    labels = out / "images" / "noisy.csv"
    if record.exists():
        if json.loads(record.read_text(encoding="utf-8")) != made_with:
            raise SrjtError(f"{out} holds a demo with other settings: choose another folder.")
        return labels
    reading = load_preset("demo")["reading"]
    clean = generate(**{**reading, "images": images, "patients": images // 5}, seed=SEED)
    write(clean, labels.parent)
    noisy, _, _ = corrupt(clean, noise="truncated", rate=RATE, seed=SEED)
    table = noisy.table[["image", "true_grade", "patient", "grade"]]
    write_atomically(labels, table.to_csv(index=False).encode())
    write_json(record, made_with)
    return labels


def _comparison(results: StudyResults, *, epochs: int) -> Iterator[str]:
    """What the two methods make of the wrong labels: their means and every fold, over the last ten epochs."""
    last = results.metrics[results.metrics["epoch"] > epochs - LAST].query("network in ('1', '2')")
    values = last.groupby(["method", "split", "metric", "fold"])["value"].mean()
    for method, name in (("standard", "Plain training"), ("srjt", "srjt")):
        repeated, errors = values[method, "wrong_labels", "accuracy"].mean(), values[method, "test", "mae"]
        folds = ", ".join(f"{error:.3f}" for error in errors)
        change = errors.mean() / values["standard", "test", "mae"].mean() - 1.0
        compared = f": {abs(change):.0%} {'lower' if change < 0 else 'higher'}" if abs(change) >= 0.005 else ""
        yield (
            f"{name} repeats {repeated:.0%} of the wrong labels that it learnt from. Its error on true grades of other "
            f"patients (MAE, lower is better) is {errors.mean():.3f} (folds: {folds}){compared}."
        )


def _run(out: Path, results: StudyResults, data: Manifest) -> tuple[Trained, dict[str, Manifest]]:
    """The run of ``srjt`` on the first fold, and the images of the patients whom it was not trained on."""
    key = results.runs.query("method == 'srjt'").sort_values("fold")["key"].iloc[0]
    folder = out / "model"
    shutil.copytree(run_folder(out / "study", key), folder, dirs_exist_ok=True)  # a name for people
    run = load_run(folder, device="cpu")
    row = {name: number for number, name in enumerate(data.ids)}
    return run, {side: data.select([row[name] for name in held.ids]) for side, held in run.held_out.items()}


def _verified(data: Manifest, drawn_from: Manifest) -> Manifest:
    """The data with the true grades of a hundred of these images. Its patients are a random part of all."""
    assert data.true_labels is not None
    chosen = set(np.random.default_rng(SEED).permutation(drawn_from.ids)[:VERIFIED])
    grades = np.where([name in chosen for name in data.ids], data.true_labels, -1)
    return replace(data, table=data.table.assign(verified_grade=grades))


def _suggested(found: Audit) -> str:
    """How many suggestions are right, of labels that the doctor has not told the true grade of."""
    offered = suggestions(found.scores)
    if not len(offered):
        return "For the other labels it suggests no grade."
    right = int((offered["suggested"] == offered["true_grade"]).sum())
    return f"For {len(offered)} of the other labels it suggests another grade; {right} of these are right."


def _ranges(out: Path, run: Trained, test: Manifest, checked: Manifest) -> str:
    """Ranges calibrated on the verified labels, beside those calibrated on all labels as they are."""
    assert checked.verified_labels is not None
    verified = checked.select(np.flatnonzero(checked.verified_labels >= 0))
    answers = predict(run, test, calibrate_on=verified, coverage=COVERAGE, progress=False)
    predictions_page(answers, data=test).save(out / PAGES[2])
    with_them, without = (
        evaluate(run, test, resamples=2, calibrate_on=labels, coverage=COVERAGE, progress=False).ranges
        for labels in (verified, None)
    )
    assert with_them is not None
    assert without is not None
    first = answers.iloc[0]
    return (
        f"A range for an image. The first one of patient {first['patient']} gets grade {first['grade']} and the range "
        f"{first['grade_low']} to {first['grade_high']}. With the verified labels a range holds "
        f"{with_them.width.value:.1f} of 4 grades on average, without them {without.width.value:.1f}. It holds the "
        f"truth for {with_them.coverage.value:.0%} of the images of the {len(set(test.patients or ()))} patients not "
        f"trained on; {COVERAGE:.0%} are promised."
    )
