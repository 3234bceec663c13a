"""The manifest: one table with the image, the grade and the patient of every sample; rows of
features instead of images; tables that no spreadsheet runs as a formula; and the problems of a
dataset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import Message, Option, SrjtError, count_of, few, unknown_name, warn
from srjt.files import as_csv, write_output
from srjt.progress import html_block, html_table

# Features: one row of numbers per sample instead of an image, for example from a frozen network.

Features = npt.NDArray[np.float32]


def as_features(rows: npt.NDArray[np.generic], *, what: str = "The features") -> Features:
    """Convert (N, F) numbers to contiguous float32 and check that all are finite; avoids a copy if
    possible."""
    if rows.ndim != 2 or not rows.shape[1]:
        raise SrjtError(
            f"{what} must be a table of numbers, samples × features, not of shape {rows.shape}."
        )
    if rows.dtype.kind not in "fiub":
        raise SrjtError(f"{what} must be numbers; these are {rows.dtype}.")
    with np.errstate(
        over="ignore"
    ):  # numbers that are too large become infinite and are reported below
        features = np.ascontiguousarray(rows, dtype=np.float32)
    # A sum needs no mask as large as the features; in float64 the largest float32 do not overflow.
    if not np.isfinite(features.sum(dtype=np.float64)):
        row, column = np.argwhere(~np.isfinite(features))[0].tolist()
        raise SrjtError(
            f"{what} must be finite: row {row}, column {column} (from 0) is {rows[row, column]}."
        )
    return features


def match_names(names: Sequence[str], wanted: Sequence[str], *, source: str) -> list[int]:
    """The positions in ``names`` of the ``wanted`` columns of a run, in its order; an error names
    those that lack."""
    place = {name: position for position, name in enumerate(names)}
    if missing := [name for name in wanted if name not in place]:
        raise SrjtError(
            f"{source} lacks {len(missing):,} of {len(wanted):,} feature columns of the run"
            f" ({few(missing)}): add them."
        )
    return [place[name] for name in wanted]


# Cells that a spreadsheet would run as a formula, such as =HYPERLINK(…).

_STARTS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # full-width ones count, too


def neutralise_formula(text: str) -> str:
    """The text itself, or with an apostrophe in front if a spreadsheet would run it as a
    formula."""
    return f"'{text}" if _is_formula(text) else text


def warn_about_formulas(table: pd.DataFrame, path: Path) -> None:
    """Warn about formulas in a table that is written to ``path`` unchanged."""
    formulas = [
        (str(column), str(cell))
        for column in table.columns
        if not pd.api.types.is_numeric_dtype(table[column])
        for cell in table[column]
        if _is_formula(str(cell))
    ]
    if formulas:
        column, cell = formulas[0]
        warn(
            f"{path} has cells that a spreadsheet may run as formulas ({len(formulas):,}; the first"
            f" is {cell[:60]!r} in the column {column!r}). They come from the source and are"
            " unchanged."
        )


def _is_formula(text: str) -> bool:
    if len(text) > 1 and text.startswith(_STARTS):
        try:
            float(text)
        except ValueError:
            return True
    return False


# The manifest: one table with the image, the grade and the patient of every sample.

Ints = npt.NDArray[np.int64]
POSTERIOR = "p_true_{}"  # columns: the probability of each true grade, from several readers


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """N samples with ordinal grades 0 … C−1. Immutable: every change returns a new manifest.

    Parameters
    ----------
    table : DataFrame
        One row per sample, index 0 … N−1, with the columns

        - ``id`` (str, unique): the permanent name of the sample; noise and training history are
          keyed by it
        - ``image`` (str): path of the image below ``root``, or an absolute path. With ``arrays``, a
          name or the path of the image that the features were computed from
        - ``grade`` (int64): the given label, possibly wrong
        - ``patient`` (str, optional): samples of one patient are never split
        - ``true_grade`` (int64, optional): known if the noise was injected
        - ``verified_grade`` (int64, optional): the true grades of a random sample of the labels, −1
          for the others
        - ``verified_probability`` (float64, optional): with which each label was drawn for
          verification, if not all were drawn alike; of labels that are not verified any number
        - ``split`` (str, optional): train, validation or test, as published with the data
        - ``p_true_0`` … (optional): the probability of each true grade, if several readers graded
          the samples

        and any other columns of the source (reader, eye, …), unchanged.
    grades : tuple of str
        Names of the grades, mildest first. A grade is an index into them.
    root : Path
        The folder that image paths are relative to.
    arrays : (N, H, W, 3) uint8 or (N, F) float32, optional
        Images or features in memory.
    feature_names : tuple of str
        The names of the F features; empty if they have none, as in a file of arrays.
    made : str
        How the features were computed, as JSON, if known.
    source : str
        The file or folder that the samples were read from; empty if they were made in memory.
    labels_source : str
        The file that their labels were read from, if it is another one.
    hashes : (N, 2) uint64, optional
        A hash of the pixels of each image. None: not computed.
    thumbnails : (N, 7, 16, 16) uint8, optional
        Small grey pictures of each image, whole and slightly cropped, that nearly identical images
        share. None: not computed.
    duplicates : (N,) int64, optional
        Samples with the same number show the same image; see ``srjt.data.group_duplicates``. None:
        not known.
    left_out : mapping of str to int, optional
        Kind of problem → how many rows and files of the source were left out for it. None: not
        known.
    left_out_rows : DataFrame, optional
        The rows of the source that were left out: ``id``, ``image``, the other columns as the
        source has them, and ``problem``, ``detail``. Folds count them, so that a missing file moves
        nobody to another side. None: none.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32)
    >>> len(data), data.num_classes
    (100, 4)
    >>> mild = data.select(data.labels == 0)
    """

    table: pd.DataFrame
    grades: tuple[str, ...]
    root: Path = field(default_factory=Path)
    arrays: npt.NDArray[np.generic] | None = None
    feature_names: tuple[str, ...] = ()
    made: str = ""
    source: str = ""
    labels_source: str = ""
    hashes: npt.NDArray[np.uint64] | None = None
    thumbnails: npt.NDArray[np.uint8] | None = None
    duplicates: Ints | None = None
    left_out: Mapping[str, int] | None = None
    left_out_rows: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        if missing := {"id", "image", "grade"} - set(self.table.columns):
            raise SrjtError(
                f"A manifest needs the columns id, image and grade; missing: {sorted(missing)}."
            )
        if self.arrays is not None and len(self.arrays) != len(self.table):
            what = "rows of features" if self.are_features else "images"
            raise SrjtError(f"{len(self.arrays)} {what} but {count_of(len(self.table), 'label')}.")
        if not self.table["id"].is_unique:
            twice = self.table.loc[self.table["id"].duplicated(), "id"].iloc[0]
            raise SrjtError(f"Sample ids must be unique; {twice!r} occurs more than once.")
        if len(self) and not self.table["grade"].between(0, self.num_classes - 1).all():
            raise SrjtError(f"Grades must lie in 0 … {self.num_classes - 1}.")
        if "verified_grade" in self.table:
            verified = self.table["verified_grade"]
            if (
                verified.dtype.kind not in "iu"
                or not verified.between(-1, self.num_classes - 1).all()
            ):
                raise SrjtError(
                    f"Verified grades lie in 0 … {self.num_classes - 1}, or are −1 (not known)."
                )
        if (drawn := self.verified_probability) is not None:
            known = drawn[self.table["verified_grade"].to_numpy() >= 0]
            if not ((known > 0.0) & (known <= 1.0)).all():
                raise SrjtError(
                    "The column verified_probability holds, of each verified label, the probability"
                    " with which it was drawn: above 0 and at most 1."
                )

    def __repr__(self) -> str:
        return f"<Manifest: {self.describe()}>"

    def _repr_html_(self) -> str:
        counts = [
            (name, f"{count:,}") for name, count in zip(self.grades, self.class_counts, strict=True)
        ]
        return html_block(self.describe(), html_table(("grade", "samples"), counts))

    def describe(self) -> str:
        """What it contains, in one line: samples, patients, grades."""
        noun = ("row of features", "rows of features") if self.are_features else ("image", "images")
        patients = (
            "" if self.patients is None else f" of {count_of(len(set(self.patients)), 'patient')}"
        )
        return f"{count_of(len(self), *noun)}{patients}, grades {', '.join(self.grades)}"

    def __len__(self) -> int:
        return len(self.table)

    @property
    def num_classes(self) -> int:
        """C, the number of grades."""
        return len(self.grades)

    @property
    def are_features(self) -> bool:
        """Whether the samples are rows of features (``arrays`` is (N, F)) rather than images."""
        return self.arrays is not None and self.arrays.ndim == 2

    @property
    def labels(self) -> Ints:
        """(N,) given grades, as a copy."""
        return self.table["grade"].to_numpy(np.int64, copy=True)

    @property
    def true_labels(self) -> Ints | None:
        """(N,) true grades, as a copy; None if they are unknown."""
        known = "true_grade" in self.table
        return self.table["true_grade"].to_numpy(np.int64, copy=True) if known else None

    @property
    def verified_labels(self) -> Ints | None:
        """(N,) verified grades, as a copy, −1 where they are unknown; None if all are."""
        if "verified_grade" not in self.table:
            return None
        verified = self.table["verified_grade"].to_numpy(np.int64, copy=True)
        return verified if (verified >= 0).any() else None

    @property
    def verified_probability(self) -> npt.NDArray[np.float64] | None:
        """(N,) with which each verified label was drawn, 0 for the others; None if all were drawn
        alike, or none."""
        verified = self.verified_labels
        if "verified_probability" not in self.table or verified is None:
            return None
        drawn = pd.to_numeric(self.table["verified_probability"], errors="coerce").to_numpy(
            np.float64
        )
        return np.where(verified >= 0, drawn, 0.0)

    @property
    def posterior(self) -> npt.NDArray[np.float64] | None:
        """(N, C) probability of each true grade given all readings of a sample; None without
        several readers."""
        columns = [POSTERIOR.format(grade) for grade in range(self.num_classes)]
        if not set(columns) <= set(self.table.columns):
            return None
        shares = self.table[columns].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
        sums = shares.sum(axis=1, keepdims=True)
        if not ((shares >= 0).all() and (sums > 0).all()):
            raise SrjtError(
                f"The columns {columns[0]} … {columns[-1]} must hold probabilities in every row."
            )
        return np.asarray(shares / sums, dtype=np.float64)

    @property
    def ids(self) -> list[str]:
        """(N,) the name of each sample."""
        return [str(i) for i in self.table["id"]]

    @property
    def patients(self) -> list[str] | None:
        """(N,) the patient of each sample; None without a patient column."""
        return [str(p) for p in self.table["patient"]] if "patient" in self.table else None

    @property
    def groups(self) -> list[str] | None:
        """(N,) the group of each sample, which is never split: its patient, or patients who share
        an image.

        None if there are neither patients nor samples that share an image.
        """
        if self.duplicates is None or len(set(self.duplicates.tolist())) == len(self):
            return self.patients
        owners = np.array(self.patients or self.ids, dtype=object)
        group = connected(
            np.unique(owners, return_inverse=True)[1].astype(np.int64), self.duplicates
        )
        # Named after one of its patients, so that a group of one patient has the patient's name.
        return [str(name) for name in pd.Series(owners).groupby(group).transform("min")]

    @property
    def paths(self) -> list[Path]:
        """(N,) the image file of each sample."""
        return [self.root / str(image) for image in self.table["image"]]

    @property
    def class_counts(self) -> Ints:
        """(C,) number of samples of each given grade."""
        return np.bincount(self.labels, minlength=self.num_classes).astype(np.int64)

    def select(
        self, rows: Sequence[int] | npt.NDArray[np.generic], *, images: bool = True
    ) -> Manifest:
        """The samples at these positions, in this order, or those where a boolean mask is true.

        ``images=False`` leaves out images in memory, which would be copied. The selected samples
        are a data set of their own, which knows nothing of rows that were left out before; see
        ``leave_out``.
        """
        chosen = np.asarray(rows)
        positions = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        arrays = self.arrays if images or self.are_features else None
        return replace(
            self,
            table=self.table.iloc[positions].reset_index(drop=True),
            arrays=None if arrays is None else arrays[positions],
            hashes=None if self.hashes is None else self.hashes[positions],
            thumbnails=None if self.thumbnails is None else self.thumbnails[positions],
            duplicates=None if self.duplicates is None else self.duplicates[positions],
            left_out_rows=None,
        )

    def leave_out(self, reasons: Mapping[int, tuple[str, str]]) -> Manifest:
        """The samples without some rows, which stay in ``left_out_rows``: folds are the same as
        with them.

        reasons: row position → (kind of problem, detail).
        """
        if not reasons:
            return self
        rows = self.table.iloc[list(reasons)].reset_index(drop=True)
        for column in {"grade", "true_grade", "verified_grade"} & set(rows):
            rows[column] = [self.grades[grade] if grade >= 0 else "" for grade in rows[column]]
        rows["problem"], rows["detail"] = zip(*reasons.values(), strict=True)
        known = [] if self.left_out_rows is None else [self.left_out_rows]
        kept = self.select([row for row in range(len(self)) if row not in reasons])
        return replace(kept, left_out_rows=pd.concat([*known, rows], ignore_index=True))

    def with_noisy_labels(self, noisy: npt.ArrayLike) -> Manifest:
        """The same samples with the grades ``noisy`` (N,); the present grades become
        ``true_grade``."""
        truth = self.labels if self.true_labels is None else self.true_labels
        return replace(self, table=self.table.assign(true_grade=truth)).with_labels(noisy)

    def with_labels(self, labels: npt.ArrayLike) -> Manifest:
        """The same samples with other grades (N,)."""
        # what readers say about the true grades does not hold for these labels
        posterior = [POSTERIOR.format(grade) for grade in range(self.num_classes)]
        table = self.table.drop(columns=posterior, errors="ignore")
        return replace(self, table=table.assign(grade=np.asarray(labels, dtype=np.int64)))


def components(count: int, pairs: Ints) -> Ints:
    """(M, 2) pairs of ``count`` samples → (count,) numbers: equal for samples that a chain of pairs
    connects."""
    from scipy.sparse import coo_array  # type: ignore[import-untyped]
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

    first, second = pairs.astype(np.int32).T  # SciPy 1.11 joins everything if the indices are wider
    edges = coo_array((np.ones(len(pairs), np.bool_), (first, second)), shape=(count, count))
    return np.asarray(connected_components(edges, directed=False)[1], dtype=np.int64)


def connected(*codes: Ints) -> Ints:
    """Several (N,) numberings of the same samples → one: samples that share a number in any of them
    are joined."""
    samples = np.arange(len(codes[0]))
    edges = []
    for code in codes:
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        edges.append(np.stack([samples, first[inverse.reshape(-1)]], axis=1))
    return components(len(samples), np.concatenate(edges))


# Problems of a dataset: collected, counted and listed in a file; no sample is dropped silently.


class LeakageWarning(UserWarning):
    """Images of one patient may be on two sides of a split."""


Severity = Literal["error", "warning"]

# An error is a sample that cannot be used, or whose label contradicts itself: a command stops, or
# leaves the sample out with --on-bad-image skip. A warning removes no sample; a repeated row and a
# file that is not an image are left out with a warning.
KINDS: dict[str, tuple[Severity, str]] = {
    "malformed-row": ("error", "more or fewer cells than the header, or a cell with other rows"),
    "missing-image": ("error", "the image file does not exist"),
    "empty-image": ("error", "the file has zero bytes"),
    "unreadable-image": ("error", "damaged, truncated or not an image"),
    "unknown-grades": ("error", "which grades there are, or their order, is for you to say"),
    "missing-grade": ("error", "no grade"),
    "invalid-grade": ("error", "not one of the grades"),
    "conflicting-rows": (
        "error",
        (
            Message(
                "one image with several grades or patients: all its rows are left out. If several"
                " readers graded it, ",
                Option("several_readings", "consensus"),
                " combines their grades",
            )
        ),
    ),
    "not-as-published": (
        "warning",
        "counts that are not those of the published data set of this layout",
    ),
    "duplicate-row": ("warning", "the same image twice with the same grade: the first row is kept"),
    "conflicting-patients": (
        "warning",
        "the readings of one image name several patients: the first is used",
    ),
    "conflicting-reference": (
        "warning",
        "one image with several trusted grades: none of them is used",
    ),
    "ambiguous-image": ("warning", "several files match the name: the first is used"),
    "ignored-file": ("warning", "not an image, or not in the folder of a grade"),
    "missing-patient": (
        "warning",
        "no patient: leakage between the sides of a split cannot be excluded",
    ),
    "identical-images": ("warning", "the same pixels under different names"),
    "identical-images-other-grade": (
        "warning",
        "the same pixels with different grades: one must be wrong",
    ),
    "near-duplicates": (
        "warning",
        (
            Message(
                "nearly the same image (rescaled, recompressed, mirrored or slightly cropped) of two"
                " patients: ",
                Option("group_near_duplicates", True),
                " keeps such images on one side of a split",
            )
        ),
    ),
    "few-patients": ("warning", "a grade with fewer patients than folds"),
}


LEFT_OUT = ("duplicate-row", "ignored-file")  # warnings about rows and files that are not used
OF_IMAGES = (
    "missing-image",
    "empty-image",
    "unreadable-image",
)  # errors about the image of a sample


@dataclass(frozen=True)
class Problem:
    """One problem of a dataset.

    Parameters
    ----------
    kind : str
        One of ``srjt.data.manifest.KINDS``, such as ``"missing-image"``.
    where : str
        A sample's id, a line of a table, or a grade.
    detail : str
        A description for people.

    Examples
    --------
    >>> from srjt.data import Problem
    >>> Problem("missing-grade", "a.png", "line 3: no grade").severity
    'error'
    """

    kind: str
    where: str
    detail: str = ""

    @property
    def severity(self) -> Severity:
        """``"error"`` if the sample cannot be used, else ``"warning"``."""
        return KINDS[self.kind][0]


def errors_in(problems: Iterable[Problem]) -> list[Problem]:
    """The problems that make a sample unusable."""
    return [problem for problem in problems if problem.severity == "error"]


def left_out_counts(problems: Iterable[Problem]) -> dict[str, int]:
    """Kind → number of rows and files that are not used because of it."""
    return dict(Counter(p.kind for p in problems if p.severity == "error" or p.kind in LEFT_OUT))


def describe_left_out(problems: Sequence[Problem]) -> str:
    """One sentence: how many rows and files were left out, by kind, with some of their names."""
    counts = "; ".join(
        f"{count:,} {kind} ({few(problem.where for problem in first)})"
        for kind, _, count, first in examples(problems, count=4)
    )
    return f"Left out: {counts}."


def examples(
    problems: Sequence[Problem], *, count: int = 3
) -> list[tuple[str, Severity, int, list[Problem]]]:
    """For each kind that occurs, errors first: its name, severity, count and first ``count``
    problems."""
    tally = Counter(problem.kind for problem in problems)
    return [
        (
            kind,
            severity,
            tally[kind],
            [problem for problem in problems if problem.kind == kind][:count],
        )
        for kind, (severity, _) in KINDS.items()
        if tally[kind]
    ]


def write_problems(problems: Iterable[Problem], path: Path) -> None:
    """Write problems as a CSV file with the columns severity, kind, where and detail.

    Parameters
    ----------
    problems : iterable of Problem
        The problems, in the order in which they are written.
    path : Path
        The file to write.

    Examples
    --------
    >>> import srjt
    >>> from pathlib import Path
    >>> reading = srjt.data.from_arrays([[0.1], [0.2], [0.3]], [0, 1, None])
    >>> srjt.data.write_problems(reading.problems, Path("problems.csv"))
    """
    rows = [
        (p.severity, p.kind, neutralise_formula(p.where), neutralise_formula(p.detail))
        for p in problems
    ]
    columns = ["severity", "kind", "where", "detail"]
    # dtype: text of pandas 3 cannot hold a file name that is not UTF-8
    write_output(Path(path), as_csv(pd.DataFrame(rows, columns=columns, dtype=object)))


def drop_unusable(
    manifest: Manifest,
    problems: Sequence[Problem],
    *,
    on_bad_image: str = "error",
    listed_in: Path | None = None,
) -> Manifest:
    """Return the samples that can be used, or raise an error that counts the others.

    Parameters
    ----------
    manifest : Manifest
        The samples.
    problems : sequence of Problem
        Their problems, from ``LoadedData.problems`` and ``check``. Repeated rows and files that are
        not images are counted in a warning, and so are samples without a patient (a
        ``LeakageWarning``).
    on_bad_image : {"error", "skip"}
        Raise an error if there are unusable samples, or leave them out.
    listed_in : Path, optional
        A CSV file for the list of everything that is left out. It is written only if there is
        something.

    Returns
    -------
    Manifest
        ``manifest`` itself if every sample can be used, else the usable samples.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=20, patients=5, size=32)
    >>> problems = [srjt.data.Problem("unreadable-image", data.ids[0], "it is cut short")]
    >>> len(srjt.data.drop_unusable(data, problems, on_bad_image="skip"))
    19
    """
    if on_bad_image not in ("error", "skip"):
        raise unknown_name(Option("on_bad_image"), on_bad_image, ["error", "skip"])
    bad = errors_in(problems)
    left_out = [problem for problem in problems if problem.kind in LEFT_OUT]
    if listed_in is not None and (bad or left_out):
        write_problems([*bad, *left_out], listed_in)
    full_list = f" The full list is in {listed_in}." if listed_in else ""
    said = left_out if on_bad_image == "error" else [*bad, *left_out]
    if said:
        warn(f"{describe_left_out(said)}{full_list}")
    if unknown := sum(problem.kind == "missing-patient" for problem in problems):
        warn(
            f"Samples without a patient: {unknown:,} of {len(manifest):,}. Each is treated as a"
            " separate patient: images of one patient may be on both sides of a split.",
            LeakageWarning,
        )
    if not bad:
        return manifest
    if on_bad_image == "error":
        counts = ", ".join(f"{count} {kind}" for kind, _, count, _ in examples(bad))
        raise SrjtError(
            f"{count_of(len(bad), 'unusable sample')} ({counts}; the first: {bad[0].where}:"
            f" {bad[0].detail}). Correct the source, or leave such samples out with ",
            Option("on_bad_image", "skip"),
            f".{full_list}",
            code="unusable_samples",
        )
    # Other errors are about rows that the source has left out: another row of the same image may be
    # usable.
    unusable = {problem.where: problem for problem in bad if problem.kind in OF_IMAGES}
    reasons = {
        row: (unusable[sample].kind, unusable[sample].detail)
        for row, sample in enumerate(manifest.ids)
        if sample in unusable
    }
    if len(reasons) == len(manifest):
        raise SrjtError("No sample can be used: all of them have problems.")
    usable = manifest.leave_out(reasons)
    return replace(usable, left_out=left_out_counts(problems))
