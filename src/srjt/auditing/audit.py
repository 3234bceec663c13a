"""The audit of a data set: cross-fit, estimate, score, and write all of it into one folder.

audit.json       what was audited, how, and the estimate
audit.csv        every label, the most doubtful first
summary.json     rate, matrix, error rates by grade, patient and reader
neighbours.npz   for each line of audit.csv the lines of the most similar samples of each grade
images/          the images, where the source lock_folder them in memory
audit.html       the report, written by the command srjt audit; srjt.report(folder) writes it from Python
fits/            the cross-fitted runs
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt import methods
from srjt._version import __version__
from srjt.auditing.scores import score, summarise
from srjt.data import Manifest
from srjt.data.images.store import OnBadImage
from srjt.errors import SrjtError, suggest
from srjt.files import lock_folder, write_atomically, write_json
from srjt.noise.estimate import NoiseEstimate, estimate_noise
from srjt.training.config import TrainConfig
from srjt.training.crossfit import CrossFit, cross_fit
from srjt.training.record.reporters import Reporter, SilentReporter
from srjt.training.resolve_noise import resolve_noise_rate

__all__ = ["DEFAULTS", "Audit", "audit", "with_noise"]

# Needs to be told nothing; long enough to learn the grades, too short to learn wrong labels by heart.
DEFAULTS: dict[str, Any] = {"method": "sord", "epochs": 30}
NEIGHBOURS = 4  # similar samples of each grade


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Every label scored."""

    scores: pd.DataFrame  # as audit.csv: the most doubtful label first
    estimate: NoiseEstimate
    summary: dict[str, Any]
    fitted: CrossFit
    folder: Path | None = None


def with_noise(config: TrainConfig) -> TrainConfig:
    """A method that must be told the noise has it estimated: one that were known would need no audit."""
    given = {"noise_rate": config.noise_rate, "transition": config.transition}
    if any(given[need] is None for need in methods.lookup(config.method).method.needs):
        return config.replace(noise_rate="auto")
    return config


def audit(
    manifest: Manifest,
    *,
    out: str | Path | None = None,
    folds: int = 5,
    reader: str | None = None,
    config: TrainConfig | None = None,
    device: str | None = None,
    reporter: Reporter | None = None,
    cache: str | Path | None = None,
    on_bad_image: OnBadImage = "error",
    source: str = "",
    table: Path | None = None,
    label_column: str = "grade",
    read_with: Sequence[str] = (),
    **settings: Any,
) -> Audit:
    """Which labels are wrong? Trains ``folds`` times, each sample judged where it was not trained on.

    out: the folder; finished fits in it are not repeated. reader: the column of ``manifest.table`` that says
    who gave the label. settings: any field of TrainConfig, over ``config`` or ``DEFAULTS``; a method that
    must be told the noise gets the estimate of a first, short cross-fit. source, table, label_column,
    read_with (options of the command line): where the labels came from, for the corrected table that
    ``srjt review export`` writes.
    """
    if not isinstance(manifest, Manifest):
        raise SrjtError("audit takes a manifest: srjt.auditing.audit(srjt.data.read(path).manifest, …).")
    if reader is not None and reader not in manifest.table:
        raise suggest("column (for the reader)", reader, map(str, manifest.table.columns))
    config = with_noise((config or TrainConfig(**DEFAULTS)).replace(**settings))
    reporter = reporter or SilentReporter()
    folder = None if out is None else Path(out)
    how: dict[str, Any] = {"device": device, "cache": cache, "on_bad_image": on_bad_image}
    if folder is not None:
        _prepare(folder)
    with lock_folder(folder):
        config, _ = resolve_noise_rate(
            manifest,
            config=config,
            out=None if folder is None else folder / "warmup",
            reporter=reporter,
            **how,
        )
        reporter.begin("", epochs=config.epochs, folds=folds)
        fitted = cross_fit(
            manifest,
            config=config,
            folds=folds,
            seed=config.seed,
            out=None if folder is None else folder / "fits",
            neighbours=NEIGHBOURS,
            reporter=reporter,
            **how,
        )
        samples = fitted.manifest
        reporter.note("Estimating the noise and scoring every label.")
        estimate = estimate_noise(
            samples.labels, fitted.probabilities, groups=samples.patients, seed=config.seed
        )
        scores = score(fitted, estimate, images=_images(samples, folder), reader=reader)
        done = Audit(
            scores=scores.reset_index(drop=True),
            estimate=estimate,
            summary=summarise(scores, estimate, grades=samples.grades),
            fitted=fitted,
            folder=folder,
        )
        if folder is not None:
            facts = {
                "format": 1,
                "version": __version__,
                "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "source": source,
                "grades": list(samples.grades),
                "samples": len(samples),
                "method": config.method,
                "network": config.for_data(features=samples.are_features).network,
                "epochs": config.epochs,
                "folds": folds,
                "seed": config.seed,
                "estimate": estimate.to_dict(),
                "columns": {name: name in scores for name in ("patient", "reader", "true_grade")},
                "label_column": label_column,
                "read_with": list(read_with),
                "features": samples.are_features,
                "table": None if table is None else str(Path(table).absolute()),
            }
            _write(folder, done, facts, order=scores.index.to_numpy())
    return done


def _prepare(folder: Path) -> None:
    """Make the folder; one that holds something else is refused."""
    known = ("fits", "warmup", "audit.json")
    if folder.is_dir() and not any((folder / name).exists() for name in known):
        foreign = [path for path in folder.iterdir() if not path.name.startswith(".")]
        if foreign:
            raise SrjtError(f"{folder} holds something else already: choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SrjtError(f"The audit cannot be written to {folder}: {problem.strerror}.") from None


def _write(folder: Path, done: Audit, facts: dict[str, Any], *, order: npt.NDArray[np.int64]) -> None:
    """order (N,): the sample's row for each line of the table."""
    line = np.empty(len(order) + 1, dtype=np.int32)
    line[order], line[-1] = np.arange(len(order), dtype=np.int32), -1  # "none" stays none
    assert done.fitted.neighbours is not None
    buffer = io.BytesIO()
    np.savez_compressed(buffer, rows=line[done.fitted.neighbours[order]])
    try:
        if done.fitted.manifest.arrays is not None and not done.fitted.manifest.are_features:
            _write_images(folder / "images", done.fitted.manifest.arrays)
        table = done.scores.to_csv(index=False)
        write_atomically(folder / "audit.csv", table.encode("utf-8", "surrogateescape"))
        write_atomically(folder / "neighbours.npz", buffer.getvalue())
        write_json(folder / "summary.json", done.summary)
        write_json(folder / "audit.json", facts)
    except OSError as problem:
        raise SrjtError(
            f"The audit could not be written to {folder} ({problem.strerror}): make room and run the same command "
            "again; the trainings are kept."
        ) from problem


def _images(samples: Manifest, folder: Path | None) -> list[str]:
    """Where each sample's image is found: a file of the user's, or one that we write beside the table."""
    if samples.arrays is None:
        return [str(path.absolute()) for path in samples.paths]
    if samples.are_features:
        return [str(path.absolute()) if path.is_file() else "" for path in samples.paths]
    return ["" if folder is None else f"images/{row:06d}.png" for row in range(len(samples))]


def _write_images(folder: Path, arrays: npt.NDArray[np.generic]) -> None:
    """(N, H, W, 3) uint8 as PNG files, once: the file ``written`` knows which arrays they are of."""
    from PIL import Image

    digest = hashlib.blake2b(repr(arrays.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(arrays).data)
    written = folder / "written"
    if written.exists() and written.read_text() == digest.hexdigest():
        return
    folder.mkdir(exist_ok=True)

    def save(row: int) -> None:
        Image.fromarray(np.asarray(arrays[row], dtype=np.uint8)).save(
            folder / f"{row:06d}.png", compress_level=1
        )

    with ThreadPoolExecutor() as pool:
        list(pool.map(save, range(len(arrays))))
    write_atomically(written, digest.hexdigest().encode())
