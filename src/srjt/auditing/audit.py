"""``srjt.audit``: cross-fit, estimate the noise, score every label, and write the folder of the
audit; where the networks of an audit look, on demand.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image

from srjt import files, methods
from srjt._version import __version__
from srjt.auditing import scores as scoring
from srjt.auditing.folder import FORMAT, TRAININGS, AuditFolder, image_file
from srjt.auditing.verification import drawn_by
from srjt.data.grades import Grades
from srjt.data.images.decode import OnBadImage, read_image
from srjt.data.manifest import Manifest, warn_about_formulas
from srjt.data.sources import LabelledData, labelled_samples
from srjt.data.sources.readings import select_readings
from srjt.errors import Option, SrjtError, count_of, unknown_name
from srjt.inference.explain import network_maps, overlay, resized_square, shown_crop
from srjt.noise.estimate import NoiseEstimate, estimate_noise, rate_text
from srjt.notebook import HasPage
from srjt.progress import Reporter
from srjt.readers.readings import Readings
from srjt.training.choose_head import choose_head
from srjt.training.config import CHOOSE_HEAD, TrainConfig
from srjt.training.crossfit import CrossFit, Jobs, cross_fit
from srjt.training.frozen import resolve_backbone
from srjt.training.keywords import AuditSettings
from srjt.training.noise_rate import resolve_noise_rate
from srjt.training.reporters import reporter_in_python
from srjt.training.trained import Setup, Trained, load_run
from srjt.training.workers import check_not_starting

if TYPE_CHECKING:  # Python 3.10 has no Unpack
    from typing_extensions import Unpack

# Where the networks of an audit look, on demand: those of the fold in which the sample was held
# out.

_LOCK = threading.Lock()  # one map at a time: each uses all cores


def _refuse_without_maps(audit: AuditFolder) -> None:
    """Raise an error if there can be no maps."""
    if audit.facts.features:
        raise SrjtError(
            "This audit has no images to explain, because it was made with features.",
            code="unsupported",
        )
    if not _fold_folder(audit, 0).is_dir():
        raise SrjtError(
            "The networks of this audit are no longer in its folder. Run srjt audit again to"
            " explain images.",
            code="missing_file",
        )


def look_maps(audit: AuditFolder, line: int) -> tuple[Image.Image, list[Image.Image]]:
    """The image of a sample, and the same with the map of each network that was not trained on
    it."""
    _refuse_without_maps(audit)
    path = image_file(audit.folder, audit.images[line])
    with _LOCK:
        run = _open_run(_fold_folder(audit, int(audit.folds[line])))
        pixels = read_image(path, size=run.config.image_size, resize=run.config.resize)[None]
        maps = network_maps(run, pixels)[:, 0]
    shown = shown_crop(run, pixels)[0]
    drawn = [overlay(shown, heat) for heat in maps]
    return resized_square(shown, drawn[0].width), drawn


def _fold_folder(audit: AuditFolder, fold: int) -> Path:
    return audit.folder / "fits" / f"fold{fold}"


def _open_run(folder: Path) -> Trained:
    return _loaded_run(folder, files.modified(folder / "weights.safetensors"))


@lru_cache(maxsize=5)
def _loaded_run(folder: Path, modified: int) -> Trained:
    """modified: when its weights were; the folder may hold another audit than the last time."""
    return load_run(folder, device="cpu")


@dataclass(frozen=True, kw_only=True)
class DoubtfulLabels(HasPage):
    """Labels that are probably wrong, the most doubtful first; ``audit.worst(20)`` returns them.

    Attributes
    ----------
    table : DataFrame
        Rows of ``Audit.scores``.
    samples : Manifest
        The audited samples, which the pictures are taken from.
    caveat : str
        What to know first about the networks; "" if they have learnt the grades.
    judged : bool
        Whether grades are suggested: not by networks that have learnt nothing.
    determined : bool
        Whether it is known how many labels are wrong: without that, no probability is shown.
    quality : Series
        The probability that each label is right; not a number where none is known.
    """

    table: pd.DataFrame
    samples: Manifest
    caveat: str = ""
    judged: bool = True
    determined: bool = True

    def __len__(self) -> int:
        return len(self.table)

    @property
    def quality(self) -> pd.Series:
        """The probability that each label is right; not a number where none is known."""
        unknown = np.full(len(self.table), not (self.judged and self.determined))
        if "caveat" in self.table:
            unknown |= (self.table["caveat"] != "").to_numpy()
        return self.table["quality"].mask(unknown)

    def __repr__(self) -> str:
        columns = ["id", "grade"]
        if self.judged:
            columns.append("suggested")
        if self.judged and self.determined:
            columns.append("quality")
        table = self.table.assign(quality=self.quality)
        shown = table[columns].to_string(index=False, na_rep="")
        if self.caveat:
            return f"{self.caveat}\n{shown}"
        return shown


# ``srjt.audit``: cross-fit, estimate the noise, score every label, and write the folder of the
# audit.

# SORD needs no noise rate; 30 epochs are enough to learn the grades, too few to memorise wrong
# labels.
DEFAULTS: dict[str, Any] = {"method": "sord", "epochs": 30}
VERIFIED = ["verified_grade", "verified_probability"]
NEIGHBOURS = 4  # similar samples of each grade


@dataclass(frozen=True, kw_only=True)
class Audit(HasPage):
    """The result of ``srjt.audit``.

    Attributes
    ----------
    scores : DataFrame
        One row per label, the most doubtful first, with the columns of ``audit.csv``: ``id``,
        ``grade`` (as given), ``suggested`` (the most probable grade), ``quality`` (the probability
        that the label is right), ``p_0`` … (the probability of each true grade) and others. Where
        these numbers only order the labels, ``caveat`` says why.
    estimate : NoiseEstimate
        The noise rate and the transition matrix, with intervals, and whether the data determine
        them.
    summary : dict
        The contents of ``summary.json``: the share of wrong labels (unless it is ``identifiable``,
        only its interval is known), and rates by grade, patient and reader.
    fitted : CrossFit
        The held-out probabilities that the scores come from.
    facts : dict
        The contents of ``audit.json``: what was audited, and how.
    folder : Path or None
        Where the audit was written.
    readings : DataFrame or None
        One row per reading, the most doubtful first, if several readers graded the samples.
    """

    scores: pd.DataFrame
    estimate: NoiseEstimate
    summary: dict[str, Any]
    fitted: CrossFit
    facts: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    readings: pd.DataFrame | None = None

    def worst(self, count: int = 20) -> DoubtfulLabels:
        """The labels that are most likely wrong.

        Parameters
        ----------
        count : int
            How many.

        Returns
        -------
        DoubtfulLabels
            A notebook shows them with their images; ``table`` has them as rows of ``scores``.
        """
        if count < 1:
            raise SrjtError(
                f"The number of labels must be at least 1; got {count}.", code="out_of_bounds"
            )
        return DoubtfulLabels(
            table=self.scores.head(count),
            samples=self.fitted.manifest,
            caveat=self.summary.get("caveat", ""),
            judged=scoring.judges_labels(self.summary),
            determined=self.summary["identifiable"],
        )

    def __repr__(self) -> str:
        where = "" if self.folder is None else f", {self.folder}"
        noun = "label" if self.readings is None else "consensus grade"
        known = self.summary["rate"] if self.summary["identifiable"] else None
        share = rate_text(known, self.summary["rate_interval"], ".1%")
        return f"<Audit: {count_of(len(self.scores), noun)}, wrong: {share}{where}>"


@dataclass(frozen=True, kw_only=True)
class LabelFile:
    """Where the labels of an audit come from, for its report and ``srjt review export``.

    Parameters
    ----------
    source : str
        What was audited, for the report.
    table : Path, optional
        The table of labels that ``srjt review export`` corrects a copy of. Default: the export
        makes a table of its own.
    column : str
        The column of ``table`` that holds the labels.
    read_options : tuple of str
        The command-line options with which ``table`` was read, for the command that ``srjt review
        export`` prints.
    command : str, optional
        The command that audits, which ``srjt review`` prints as the next step.
    """

    source: str = ""
    table: Path | None = None
    column: str = "grade"
    read_options: tuple[str, ...] = ()
    command: str | None = None


def with_noise_rate(config: TrainConfig) -> TrainConfig:
    """``config`` with ``noise_rate="auto"`` if its method needs a noise rate or a matrix that is
    not given."""
    if any(getattr(config, need) is None for need in methods.lookup(config.method).method.needs):
        return config.replace(noise_rate="auto")
    return config


def audit(
    manifest: LabelledData,
    *,
    out: str | Path | None = None,
    folds: int = 5,
    reader: str | None = None,
    readings: Readings | None = None,
    config: TrainConfig | None = None,
    device: str | None = None,
    progress: bool = True,
    reporter: Reporter | None = None,
    cache: str | Path | None = None,
    jobs: Jobs = 1,
    on_bad_image: OnBadImage = "error",
    labels: LabelFile | None = None,
    grade_names: Mapping[str, str] | None = None,
    **settings: Unpack[AuditSettings],
) -> Audit:
    """Estimate how many labels are wrong, and rank all labels by how likely each one is wrong.

    The samples are divided into ``folds`` parts by patient. For each part, networks are trained on
    all other parts and predict this one, so that no label is judged by a network that was trained
    on it. No label is changed.

    Parameters
    ----------
    manifest : Manifest, path, DataFrame, pair of arrays, or torch dataset
        The samples, as for ``srjt.train``. All of them are audited. Verified grades
        (``verified_grade`` in its table), the true grades of a random sample of the labels, make
        the noise rate unbiased if they are 17 or more; the quality of these labels is 1 or 0.
    out : path, optional
        Folder of the audit, for ``srjt review`` and ``srjt.report``. Finished trainings in it are
        not repeated. Without it nothing is written.
    folds : int
        Number of parts, and of trainings. Default: 5.
    reader : str, optional
        Column of ``manifest.table`` that names the reader of each label, for error rates by reader.
    readings : Readings, optional
        Every single reading, from ``report.readings`` of
        ``srjt.data.read(path, several_readings="consensus")``: the quality of a label then follows
        from all readings of its image and from the networks, and ``Audit.readings`` says which
        reading is doubtful.
    config : TrainConfig, optional
        Settings of the trainings. Default: the method ``sord``, 30 epochs; of features also the
        network ``odds`` with the method ``standard``, if it makes held-out labels likelier than
        ``mlp``.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. Default: a GPU if there is one.
    progress : bool
        Show a bar: on standard error if it is a terminal, or below the cell of a notebook.
    reporter : Reporter, optional
        Receives the progress instead.
    cache : path, optional
        Folder for decoded images. Default: ``$SRJT_CACHE``, or the user's cache folder.
    jobs : int or "auto"
        Trainings at the same time, in processes of their own; needs ``out``. ``"auto"``: one per
        GPU or CPU core, as far as memory allows and if they are long enough; in a script, call it
        under ``if __name__ == "__main__":``, because the processes import the script. With the same
        number of threads per training the result is the same for any number.
    on_bad_image : {"error", "skip"}
        Stop at an unreadable image, or leave it out and list it in ``Audit.fitted.skipped``.
    labels : LabelFile, optional
        Where the labels come from, for the report and ``srjt review export``.
    grade_names : mapping of str to str, optional
        Grade → its name, for the report and the review.
    **settings
        Any field of ``TrainConfig``; these override ``config``. A method that needs the noise rate
        is trained with the estimate of a first, short cross-fit.

    Returns
    -------
    Audit
        The ranked labels, the noise estimate, and error rates by grade, patient and reader.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=200)
    >>> small = {"network": "tiny", "image_size": 64, "crop": 56}
    >>> done = srjt.audit(data, out="audit", **small)  # doctest: +SKIP
    >>> done.scores[["id", "grade", "suggested", "quality"]].head(20)  # doctest: +SKIP
    >>> srjt.write_report("audit")  # doctest: +SKIP
    """
    check_not_starting("srjt.audit")
    samples = labelled_samples(manifest, on_bad_image=on_bad_image, progress=progress)
    if reader is not None and reader not in samples.table:
        raise unknown_name("column (for the reader)", reader, map(str, samples.table.columns))
    names = Grades(samples.grades, grade_names).names
    config = with_noise_rate((config or TrainConfig(**DEFAULTS)).replace(**settings))
    folder = None
    if out is not None:
        folder = Path(out)
        prepare_folder(folder)
    with files.lock_folder(folder), reporter_in_python(reporter, progress=progress) as watching:
        setup = Setup(device=device, cache=cache, on_bad_image=on_bad_image, reporter=watching)
        config, fitted = _fit(samples, config, folder=folder, folds=folds, jobs=jobs, setup=setup)
        watching.note("Estimating the noise and scoring every label.")
        done = _score(fitted, seed=config.seed, folder=folder, reader=reader, readings=readings)
        facts = _facts(done, config, folds=folds, names=names, labels=labels or LabelFile())
        done = replace(done, facts=facts)
        if folder is not None:
            write_audit(folder, done)
    return done


def _facts(
    done: Audit, config: TrainConfig, *, folds: int, names: dict[str, str], labels: LabelFile
) -> dict[str, Any]:
    """The contents of ``audit.json``. names: of the grades, if they have some."""
    samples = done.fitted.manifest
    total = len(samples) + len(done.fitted.skipped)
    used = config.for_data(features=samples.are_features, samples=total)
    return {
        "version": __version__,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "source": labels.source,
        "grades": list(samples.grades),
        **({"grade_names": names} if names else {}),
        "samples": len(samples),
        "method": config.method,
        "network": used.network_name,
        "epochs": used.epochs,
        "folds": folds,
        "seed": config.seed,
        "estimate": done.estimate.to_dict(),
        "notice": scoring.review_notice(done.summary),
        "judged": scoring.judges_labels(done.summary),
        "trusted": not done.summary["caveat"],
        "determined": done.summary["identifiable"],
        "unrecognised": done.summary["unrecognised"],
        "label_column": labels.column,
        "read_with": list(labels.read_options),
        "features": samples.are_features,
        "table": labels.table and str(Path(labels.table).absolute()),
        "command": labels.command,
        "directory": labels.command and os.getcwd(),
    }


def _fit(
    samples: Manifest,
    config: TrainConfig,
    *,
    folder: Path | None,
    folds: int,
    jobs: Jobs,
    setup: Setup,
) -> tuple[TrainConfig, CrossFit]:
    """The settings with everything that is chosen by the data, and the cross-fit."""
    warm_up = fits = None
    if folder is not None:
        warm_up = folder / "warmup"
        fits = folder / "fits"
    # without verified grades: with more of them the finished trainings are still valid
    unverified = replace(samples, table=samples.table.drop(columns=VERIFIED, errors="ignore"))
    config = resolve_backbone(config, features=samples.are_features, note=setup.reporter.note)
    on_rows = samples.are_features or config.backbone is not None
    if on_rows and config.network is None and config.method == DEFAULTS["method"]:
        config = config.replace(network=CHOOSE_HEAD)
    head = choose_head(unverified, config=config, setup=setup, out=warm_up)
    config, _ = resolve_noise_rate(
        unverified, config=head.config, setup=setup, out=warm_up, fitted=head.fitted
    )
    fitted = cross_fit(
        samples,
        config=config,
        folds=folds,
        out=fits,
        setup=setup,
        jobs=jobs,
        neighbours=NEIGHBOURS,
    )
    return config, fitted


def _score(
    fitted: CrossFit,
    *,
    seed: int,
    folder: Path | None,
    reader: str | None,
    readings: Readings | None,
) -> Audit:
    """The noise estimate, and the score of every label and reading."""
    samples = fitted.manifest
    doubt = None
    if folder is not None:
        doubt = drawn_by(samples, folder)
    estimate = estimate_noise(
        samples.labels,
        fitted.probabilities,
        groups=samples.groups,
        verified=samples.verified_labels,
        verified_probability=samples.verified_probability,
        verified_doubt=doubt,
        seed=seed,
    )
    agreed = posterior = reading_scores = None
    if readings is not None:
        of_samples = select_readings(readings, samples.ids)
        agreed = scoring.combined_readings(of_samples, fitted)
        posterior = agreed.posterior
        reading_scores = scoring.score_readings(of_samples, posterior)
    images = image_names(samples, folder)
    scores = scoring.score(fitted, estimate, images=images, reader=reader, posterior=posterior)
    summary = scoring.summarise(scores, estimate, grades=samples.grades, agreed=agreed)
    said = scoring.caveats(scores, summary)
    if (said != "").any():
        scores["caveat"] = said
    if reading_scores is not None and not summary["identifiable"]:
        reading_scores["caveat"] = scoring.RATE_UNKNOWN
    return Audit(
        scores=scores.reset_index(drop=True),
        estimate=estimate,
        summary=summary,
        fitted=fitted,
        folder=folder,
        readings=reading_scores,
    )


def prepare_folder(folder: Path) -> None:
    """Create the folder of an audit. A folder with other files is refused; one of an audit is
    resumed."""
    ours = any((folder / name).exists() for name in (*TRAININGS, "audit.json"))
    if folder.is_dir() and not ours and files.visible_names(folder):
        raise SrjtError(
            f"{folder} contains other files: choose another ",
            Option("out"),
            ".",
            code="folder_in_use",
        )
    with files.explain_write_errors(f"The audit cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def image_names(samples: Manifest, folder: Path | None) -> list[str]:
    """The ``image`` column: a file of the user's, or the one that ``write_audit`` writes; "" if
    there is none."""
    if samples.arrays is not None and not samples.are_features:
        if folder is None:
            return [""] * len(samples)
        return list(map("images/{:06d}.png".format, range(len(samples))))
    names = []
    for path in samples.paths:
        exists = samples.arrays is None or os.path.isfile(path)
        names.append(str(path.absolute()) if exists else "")
    return names


def write_audit(folder: Path, made: Audit) -> None:
    """Write all files but the report; ``audit.json`` last, so that its presence means that the
    audit is complete."""
    samples = made.fitted.manifest
    neighbours = made.fitted.neighbours
    assert neighbours is not None  # (N, C, count) rows of the samples, -1: none
    order = pd.Index(samples.ids).get_indexer(pd.Index(made.scores["id"]))
    # row -1, "none", becomes line -1
    line_of_row = np.append(np.argsort(order), -1).astype(np.int32)
    advice = "Free some space and run the same command again: the trainings are kept."
    with files.explain_write_errors(f"The audit could not be written to {folder}", advice):
        if samples.arrays is not None and not samples.are_features:
            _write_images(folder / "images", samples.arrays)
        warn_about_formulas(made.scores, folder / "audit.csv")
        for name, table in (("audit.csv", made.scores), ("readings.csv", made.readings)):
            if table is not None:
                files.write_atomically(folder / name, files.as_csv(table))
        files.save_arrays(folder / "neighbours.npz", {"rows": line_of_row[neighbours[order]]})
        files.write_json(folder / "summary.json", made.summary)
        facts = files.as_json({"format": FORMAT, **made.facts})
        names = ("audit.csv", "readings.csv", "neighbours.npz", "summary.json")
        files.write_checksums(folder, names, coming={"audit.json": facts})
        files.write_atomically(folder / "audit.json", facts)


def _write_images(folder: Path, arrays: npt.NDArray[np.generic]) -> None:
    """Write (N, H, W, 3) uint8 as PNG files, once: the file ``written`` holds the digest of the
    arrays."""
    if not files.is_inside(folder, folder.parent):
        raise SrjtError(
            f"{folder} is a link to another folder: remove the link, or choose another ",
            Option("out"),
            ".",
            code="unsafe_file",
        )
    digest = hashlib.blake2b(repr(arrays.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(arrays).data)
    written = folder / "written"
    if written.exists() and written.read_text() == digest.hexdigest():
        return
    folder.mkdir(mode=0o700, exist_ok=True)  # images of patients

    def save(row: int) -> None:
        path = folder / f"{row:06d}.png"
        path.unlink(missing_ok=True)  # Pillow would write through a link
        Image.fromarray(np.asarray(arrays[row], dtype=np.uint8)).save(path, compress_level=1)

    with ThreadPoolExecutor() as pool:
        list(pool.map(save, range(len(arrays))))
    files.write_atomically(written, digest.hexdigest().encode())
