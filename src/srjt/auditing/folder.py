"""The folder of an audit, as ``srjt review`` and the report read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import AfterValidator, AliasChoices, BaseModel, Field, NonNegativeInt, PositiveInt

from srjt.data.grades import Grades, distinct, positions
from srjt.data.images.decode import BadImageError
from srjt.errors import SrjtError
from srjt.files import check_checksums, check_regular_file, is_inside, read_json
from srjt.ordinal.metrics import Floats, Ints

# The folder of an audit: ``srjt audit`` writes it, ``srjt review`` and the report read it.
#
#     audit.json       what was audited and how, and the noise estimate
#     audit.csv        every label, the most doubtful first
#     readings.csv     every reading, the most doubtful first, if several readers graded the samples
#     summary.json     noise rate and matrix; error rates by grade, patient and reader
#     neighbours.npz   for each line of audit.csv the lines of similar samples of each grade
#     images/          the images, if the source has them in memory only
#     audit.html       the report of the command ``srjt audit``
#     report.html      the report of ``srjt.write_report(folder)``
#     fits/            the cross-fitted runs
#     warmup/          the noise estimate that the method was trained with, if it needs one

FORMAT = 2
TRAININGS = ("fits", "warmup")

File = TypeVar("File", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class AuditFolder:
    """N samples, the most doubtful label first. A sample's *line* is its position here, from 0."""

    folder: Path
    grades: Grades
    ids: list[str]
    images: list[str]  # (N,) absolute, or relative to the folder; "" if there is none
    labels: Ints  # (N,) the given grades
    suggested: Ints  # (N,) the most probable grade; -1: none is suggested
    quality: Floats  # (N,) p(label correct | image, label)
    probabilities: Floats  # (N, C) p(true grade | image, label)
    network_grades: tuple[Ints, ...]  # one or two of (N,): each network's own grade
    selected: Floats  # (N,) how often training selected the sample, 0 to 1; NaN: unknown
    patients: list[str] | None
    readers: list[str] | None
    # (N, C, 4) lines of similar samples of each grade, -1: none
    neighbours: npt.NDArray[np.int32] | None
    twins: Ints | None  # (N,) equal numbers: identical images with different labels; 0: none
    verified: Ints  # (N,) the true grade where somebody has verified it; -1: nobody has
    folds: Ints  # (N,) the fold in which each sample was held out
    facts: AuditFile  # ``audit.json``: what was audited, and how

    @cached_property
    def line_of(self) -> dict[str, int]:
        return positions(self.ids)

    @property
    def table(self) -> Path | None:
        """The audited table of labels."""
        if self.facts.table is None:
            return None
        return Path(self.facts.table)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def determined(self) -> bool:
        """Whether it is known how many labels are wrong: without that, a quality orders labels, and
        says no more."""
        return self.facts.determined

    @property
    def unrecognised(self) -> list[int]:
        """The grades that the networks do not recognise: of their labels no probability is
        shown."""
        return list(map(self.grades.index, self.facts.unrecognised))

    @property
    def expected_wrong(self) -> int:
        """How many labels are expected to be wrong: Σ (1 − quality) of those that nobody has
        verified, at least one.

        At least as many as contradict a twin, which come first: a pair is not cut in half. All
        labels, if the networks have learnt nothing: then any may be wrong.
        """
        if not self.facts.judged:
            return len(self)
        twins = 0 if self.twins is None else int(np.count_nonzero(self.twins))
        doubt = float((1 - self.quality)[self.verified < 0].sum())
        return min(len(self), max(1, twins, round(doubt)))


def read_audit(folder: Path) -> AuditFolder:
    """Read and check the folder that ``srjt audit … --out folder`` has written."""
    facts = read_audit_file(folder)
    scores = read_scores(folder, samples=facts.samples)
    try:
        return _open_audit(folder, facts, scores)
    except (ValueError, KeyError) as problem:  # a column, or a grade, that is not there
        path = folder / "audit.csv"
        raise SrjtError(
            f"{path} is damaged or not from srjt ({problem}): run srjt audit again.",
            code="damaged_file",
        ) from None


def _open_audit(folder: Path, facts: AuditFile, scores: pd.DataFrame) -> AuditFolder:
    """Raises ``ValueError`` or ``KeyError`` where the table does not fit."""
    grades = Grades(facts.grades, facts.grade_names)
    if (repeated := scores["id"].duplicated()).any():
        raise ValueError(f"the id {scores['id'][repeated].iloc[0]!r} twice")

    def codes(column: str, **none: int) -> Ints:
        """Positions of the grades."""
        place = positions(grades) | none
        return np.array([place[name] for name in scores[column]], dtype=np.int64)

    def numbers(columns: str | list[str]) -> Floats:
        return scores[columns].replace("", "nan").to_numpy(dtype=np.float64)

    def whole(column: str) -> Ints:
        return np.nan_to_num(numbers(column)).astype(np.int64)

    def cells(column: str) -> list[str] | None:
        return scores[column].tolist() if column in scores else None

    def shares(columns: str | list[str], *, optional: bool = False) -> Floats:
        values = numbers(columns)
        valid = (values >= 0) & (values <= 1 + 1e-9)  # sums of probabilities are rounded
        if not (valid | (optional & np.isnan(values))).all():
            raise ValueError(f"a value of {columns} is not between 0 and 1")
        return values

    twins = whole("twins") if "twins" in scores else None
    verified = np.full(len(scores), -1)
    if "verified_grade" in scores:
        verified = codes("verified_grade", **{"": -1})
    return AuditFolder(
        folder=folder,
        grades=grades,
        ids=scores["id"].tolist(),
        images=scores["image"].tolist(),
        labels=codes("grade"),
        suggested=codes("suggested", **{"": -1}),
        quality=shares("quality"),
        probabilities=shares([f"p_{grade}" for grade in range(len(grades))]),
        network_grades=tuple(codes(name) for name in ("network_1", "network_2") if name in scores),
        selected=shares("selected", optional=True),
        patients=cells("patient"),
        readers=cells("reader"),
        neighbours=_read_neighbours(folder / "neighbours.npz", (len(scores), len(grades))),
        twins=twins,
        verified=verified,
        folds=whole("fold"),
        facts=facts,
    )


def image_file(folder: Path, name: str) -> Path:
    """The image file of a sample. Raises ``BadImageError`` if there is none that may be shown.

    name: the sample's cell in the column ``image``. An absolute path was given by the person who
    ran the audit. A relative one belongs to the audit folder, and a folder from somebody else must
    not reach files outside, neither by ".." nor through a link.
    """
    path = folder / name
    try:
        outside = not Path(name).is_absolute() and not is_inside(path, folder)
        regular = path.is_file() or not path.exists()  # reading a pipe or a device would never end
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as problem:  # too long, a NUL character, links in a circle
        raise BadImageError(path, f"its name is not usable ({problem})") from None
    if not name:
        raise BadImageError(path, "there is no image of this sample")
    if outside:
        raise BadImageError(path, "it is outside the audit folder")
    if not regular:
        raise BadImageError(path, "it is not a regular file")
    return path


class AuditFile(BaseModel, extra="allow"):
    """``audit.json``."""

    format: Literal[2]
    version: str
    created: str
    source: str
    grades: Annotated[list[str], Field(min_length=2), AfterValidator(distinct)]
    grade_names: dict[str, str] = {}
    samples: PositiveInt
    method: str
    network: str | None
    epochs: PositiveInt
    folds: PositiveInt
    seed: NonNegativeInt
    estimate: dict[str, Any]
    notice: str
    judged: bool
    trusted: bool
    determined: bool = True
    unrecognised: list[str] = []
    label_column: str
    read_with: list[str]
    features: bool
    table: str | None
    command: str | None = None  # that audits, as it was typed
    directory: str | None = None  # where it was typed


class _Rate(BaseModel, extra="allow"):
    """A grade, a patient or a reader."""

    samples: NonNegativeInt
    expected_errors: float | None  # these three: None where the rate is not determined
    rate: float | None
    interval: tuple[float, float] | None


class _VerifiedGrade(BaseModel, extra="forbid"):
    grade: str
    labels: PositiveInt
    wrong: NonNegativeInt
    rate: float
    interval: tuple[float, float]


class _Verified(BaseModel, extra="forbid"):
    labels: PositiveInt
    wrong: NonNegativeInt
    # of the sample by itself; earlier versions wrote rate and interval
    rate_without_model: Annotated[
        float, Field(validation_alias=AliasChoices("rate_without_model", "rate"))
    ]
    interval_without_model: Annotated[
        tuple[float, float],
        Field(validation_alias=AliasChoices("interval_without_model", "interval")),
    ]
    by_doubt: bool = False  # whether doubtful labels were drawn more often
    grades: list[_VerifiedGrade] = []  # by the given grade


class SummaryFile(BaseModel, extra="allow"):
    """``summary.json`` of an audit."""

    samples: PositiveInt
    caveat: str
    learnt: bool
    # what the order of the labels rests on; unless ``identifiable``, only the interval is known
    rate: float
    rate_interval: tuple[float, float]
    identifiable: bool
    reason: str
    assumption: str
    form: str
    form_weight: float
    matrix: list[list[float]]
    expected_errors: float | None
    another_likelier: NonNegativeInt
    verify_more: NonNegativeInt
    verify_random: NonNegativeInt | None = (
        None  # at random it would be so many; None: nothing is saved
    )
    grades: list[_Rate]
    patients: list[_Rate] | None
    readers: list[_Rate] | None
    readings: PositiveInt = 1
    verified: _Verified | None = None
    twins: dict[str, int] | None = None
    known: dict[str, float | None] | None = None  # a share of nothing is none


def read_audit_file(folder: Path) -> AuditFile:
    """``audit.json``."""
    facts = _read(folder, "audit.json", AuditFile)
    Grades(facts.grades, facts.grade_names)  # an error if the names do not fit
    return facts


def read_facts(folder: Path) -> dict[str, Any]:
    """The contents of ``audit.json``, as ``Audit.facts`` has them."""
    return read_audit_file(folder).model_dump(exclude_unset=True)


def read_summary(folder: Path) -> dict[str, Any]:
    """The contents of ``summary.json``."""
    return _read(folder, "summary.json", SummaryFile).model_dump(exclude_unset=True)


def _read(folder: Path, name: str, model: type[File]) -> File:
    if begun_audit(folder):
        # srjt train begins with a folder warmup, too
        raise SrjtError(
            f"The command that writes {folder} has not finished. Run it again.", code="not_finished"
        )
    if not (folder / name).exists():
        raise SrjtError(
            f"{folder} is not the folder of an audit (it contains no {name}): create one with "
            "srjt audit labels.csv --out audit.",
            code="wrong_file",
        )
    content = read_json(folder / name, model, advice="run srjt audit again")
    check_checksums(folder, advice="restore it, or run srjt audit again.")
    return content


def begun_audit(folder: Path) -> bool:
    """Whether srjt audit has begun in this folder and not finished: ``audit.json`` is written
    last."""
    return not (folder / "audit.json").exists() and any(
        (folder / name).is_dir() for name in TRAININGS
    )


def read_scores(folder: Path, *, samples: int, encoding_errors: str = "strict") -> pd.DataFrame:
    """The rows of ``audit.csv``, all cells as text: a grade may be named "NA". samples: how many
    there are."""
    path = folder / "audit.csv"
    check_regular_file(path)
    try:
        scores = pd.read_csv(
            path, dtype=str, keep_default_na=False, encoding_errors=encoding_errors
        )
    except (OSError, ValueError) as problem:
        raise SrjtError(f"{path} cannot be read: {problem}.", code="unreadable_file") from None
    if len(scores) != samples:
        raise SrjtError(
            f"{path} has {len(scores):,} lines, but the audit has {samples:,} samples: the"
            " file is incomplete; run srjt audit again.",
            code="damaged_file",
        )
    return scores


def _read_neighbours(path: Path, shape: tuple[int, int]) -> npt.NDArray[np.int32] | None:
    """None if there is no file: the review then only lacks the similar images. A wrong file is an
    error."""
    if not path.exists():
        return None
    check_regular_file(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            lines = np.asarray(file["rows"])
        belongs = lines.ndim == 3 and lines.shape[:2] == shape and lines.dtype.kind == "i"
        if belongs and (not lines.size or (lines.min() >= -1 and lines.max() < shape[0])):
            return lines.astype(np.int32)
    except Exception:  # a damaged archive makes the readers raise almost any exception
        pass
    raise SrjtError(
        f"{path} is damaged or does not belong to audit.csv: run srjt audit again, or delete the"
        " file to review without similar images.",
        code="damaged_file",
    )
