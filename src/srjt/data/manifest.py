"""The manifest: one table with the image, the grade and the patient of every sample; rows of
features instead of images; tables that no spreadsheet runs as a formula; and the problems of a
dataset.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import positions
from srjt.data.problems import (
    LEFT_OUT,
    NOT_ROWS,
    OF_IMAGES,
    Problem,
    ReadReport,
    describe_left_out,
    errors_in,
    examples,
    left_out_counts,
)
from srjt.errors import Option, SrjtError, count_of, few, unknown_name, warn
from srjt.files import as_csv, write_output
from srjt.notebook import HasPage

# Features: one row of numbers per sample instead of an image, for example from a frozen network.

Features = npt.NDArray[np.float32]


def as_features(rows: npt.NDArray[np.generic], *, what: str = "The features") -> Features:
    """Convert (N, F) numbers to contiguous float32 and check that all are finite; avoids a copy if
    possible."""
    if rows.ndim != 2 or not rows.shape[1]:
        raise SrjtError(
            f"{what} must be a table of numbers, samples × features, not of shape {rows.shape}.",
            code="wrong_shape",
        )
    if rows.dtype.kind not in "fiub":
        raise SrjtError(f"{what} must be numbers; these are {rows.dtype}.", code="wrong_type")
    # numbers that are too large become infinite and are reported below
    with np.errstate(over="ignore"):
        features = np.ascontiguousarray(rows, dtype=np.float32)
    # A sum needs no mask as large as the features; in float64 the largest float32 do not overflow.
    if not np.isfinite(features.sum(dtype=np.float64)):
        row, column = np.argwhere(~np.isfinite(features))[0].tolist()
        raise SrjtError(
            f"{what} must be finite: row {row}, column {column} (from 0) is {rows[row, column]}.",
            code="wrong_values",
        )
    return features


def match_names(names: Sequence[str], wanted: Sequence[str], *, source: str) -> list[int]:
    """The positions in ``names`` of the ``wanted`` columns of a run, in its order; an error names
    those that lack."""
    place = positions(names)
    if missing := [name for name in wanted if name not in place]:
        raise SrjtError(
            f"{source} lacks {len(missing):,} of {len(wanted):,} feature columns of the run"
            f" ({few(missing)}): add them.",
            code="missing_column",
        )
    return [place[name] for name in wanted]


# Cells that a spreadsheet would run as a formula, such as =HYPERLINK(…).

_STARTS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # full-width ones count, too


def neutralise_formula(text: str) -> str:
    """The text itself, or with an apostrophe in front if a spreadsheet would run it as a
    formula."""
    if _is_formula(text):
        return f"'{text}"
    return text


def warn_about_formulas(table: pd.DataFrame, path: Path) -> None:
    """Warn about formulas in a table that is written to ``path`` unchanged."""
    formulas = []
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            cells = filter(_is_formula, map(str, table[column]))
            formulas += [(str(column), cell) for cell in cells]
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
GRADED = ("grade", "true_grade", "verified_grade")  # columns of grades
POSTERIOR = "p_true_{}"  # columns: the probability of each true grade, from several readers


@dataclass(frozen=True, kw_only=True)
class Manifest(HasPage):
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
    left_out_counts : mapping of str to int, optional
        Kind of problem → how many rows and files of the source were left out for it. None: not
        known.
    left_out_rows : DataFrame, optional
        The rows of the source that were left out: ``id``, ``image``, the other columns as the
        source has them, and ``problem``, ``detail``. Folds count them, so that a missing file moves
        nobody to another side. None: none.
    report : ReadReport
        How the source was read: its kind, its problems, and notes; empty if the samples were made
        in memory.
    weights : (N,) float64, optional
        How much each sample counts in training. None: all the same.

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
    left_out_counts: Mapping[str, int] | None = None
    left_out_rows: pd.DataFrame | None = None
    report: ReadReport = field(default_factory=ReadReport)
    weights: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if missing := {"id", "image", "grade"} - set(self.table.columns):
            raise SrjtError(
                f"A manifest needs the columns id, image and grade; missing: {sorted(missing)}.",
                code="missing_column",
            )
        if self.arrays is not None and len(self.arrays) != len(self.table):
            what = "rows of features" if self.are_features else "images"
            raise SrjtError(
                f"{len(self.arrays)} {what} but {count_of(len(self.table), 'label')}.",
                code="wrong_shape",
            )
        if not self.table["id"].is_unique:
            twice = self.table.loc[self.table["id"].duplicated(), "id"].iloc[0]
            raise SrjtError(
                f"Sample ids must be unique; {twice!r} occurs more than once.", code="not_unique"
            )
        if len(self) and not self.table["grade"].between(0, self.num_classes - 1).all():
            raise SrjtError(f"Grades must lie in 0 … {self.num_classes - 1}.", code="unknown_grade")
        if "verified_grade" in self.table:
            verified = self.table["verified_grade"]
            if (
                verified.dtype.kind not in "iu"
                or not verified.between(-1, self.num_classes - 1).all()
            ):
                raise SrjtError(
                    f"Verified grades lie in 0 … {self.num_classes - 1}, or are −1 (not known).",
                    code="unknown_grade",
                )
        if (drawn := self.verified_probability) is not None:
            known = drawn[self.table["verified_grade"].to_numpy() >= 0]
            if not ((known > 0.0) & (known <= 1.0)).all():
                raise SrjtError(
                    "The column verified_probability holds, of each verified label, the probability"
                    " with which it was drawn: above 0 and at most 1.",
                    code="wrong_values",
                )

    def __repr__(self) -> str:
        shown = self.describe()
        if count := len(self.report.problems):
            shown += f"; {count_of(count, 'problem')}"
        if self.report.kind:
            return f"<Manifest ({self.report.kind}): {shown}>"
        return f"<Manifest: {shown}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """``read(…).manifest``, ``.problems`` and their like: names of earlier versions."""
            if name != "manifest" and name not in ReadReport.__dataclass_fields__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            if name == "manifest":
                advice = "leave out .manifest: srjt.data.read returns the samples"
            else:
                advice = f"write .report.{name}"
            message = f"`.{name}` will be removed in the next release: {advice}."
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            if name == "manifest":
                return replace(self, report=ReadReport())
            return getattr(self.report, name)

    def describe(self) -> str:
        """What it contains, in one line: samples, patients, grades."""
        noun = ("row of features", "rows of features") if self.are_features else ("image", "images")
        counted = count_of(len(self), *noun)
        if self.patients is not None:
            counted += f" of {count_of(len(set(self.patients)), 'patient')}"
        return f"{counted}, grades {', '.join(self.grades)}"

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
        if "true_grade" not in self.table:
            return None
        return self.table["true_grade"].to_numpy(np.int64, copy=True)

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
        columns = list(map(POSTERIOR.format, range(self.num_classes)))
        if not set(columns) <= set(self.table.columns):
            return None
        shares = self.table[columns].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
        sums = shares.sum(axis=1, keepdims=True)
        if not ((shares >= 0).all() and (sums > 0).all()):
            raise SrjtError(
                f"The columns {columns[0]} … {columns[-1]} must hold probabilities in every row.",
                code="wrong_values",
            )
        return np.asarray(shares / sums, dtype=np.float64)

    @property
    def ids(self) -> list[str]:
        """(N,) the name of each sample."""
        return list(map(str, self.table["id"]))

    @property
    def patients(self) -> list[str] | None:
        """(N,) the patient of each sample; None without a patient column."""
        if "patient" not in self.table:
            return None
        return list(map(str, self.table["patient"]))

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
        return list(map(str, pd.Series(owners).groupby(group).transform("min")))

    @property
    def left_out(self) -> pd.DataFrame:
        """What was left out of the source: the rows as it has them, with the columns problem and
        detail.

        Of a row with too many or too few cells, and of a file that is not used, ``id`` is the line
        or the name.
        """
        rows = []
        for problem in self.report.problems:
            if problem.kind in NOT_ROWS:
                rows.append((problem.where, problem.kind, problem.detail))
        others = pd.DataFrame(rows, columns=["id", "problem", "detail"])
        if self.left_out_rows is None:
            return others
        return pd.concat([self.left_out_rows, others], ignore_index=True)

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
        positions = np.asarray(rows)
        if positions.dtype == bool:
            positions = np.flatnonzero(positions)
        positions = positions.astype(np.int64)
        selected: dict[str, Any] = {}
        if not images and not self.are_features:
            selected["arrays"] = None
        for name in ("arrays", "hashes", "thumbnails", "duplicates", "weights"):
            array = getattr(self, name)
            if array is not None and name not in selected:
                selected[name] = array[positions]
        table = self.table.iloc[positions].reset_index(drop=True)
        return replace(self, table=table, left_out_rows=None, report=ReadReport(), **selected)

    def leave_out(self, reasons: Mapping[int, tuple[str, str]]) -> Manifest:
        """The samples without some rows, which stay in ``left_out_rows``: folds are the same as
        with them.

        reasons: row position → (kind of problem, detail).
        """
        if not reasons:
            return self
        rows = self.with_grade_names().iloc[list(reasons)].reset_index(drop=True)
        rows["problem"], rows["detail"] = zip(*reasons.values(), strict=True)
        if self.left_out_rows is not None:
            rows = pd.concat([self.left_out_rows, rows], ignore_index=True)
        kept = self.select([row for row in range(len(self)) if row not in reasons])
        return replace(kept, left_out_rows=rows, report=self.report)

    def with_grade_names(self) -> pd.DataFrame:
        """The table with the names of the grades instead of their numbers, as a source has them."""
        table = self.table.copy()
        names = np.array([*self.grades, ""], dtype=object)  # −1, not known, is the last
        for column in set(GRADED) & set(table):
            table[column] = names[table[column]].tolist()
        return table

    def with_noisy_labels(self, noisy: npt.ArrayLike) -> Manifest:
        """The same samples with the grades ``noisy`` (N,); the present grades become
        ``true_grade``."""
        truth = self.labels if self.true_labels is None else self.true_labels
        return replace(self, table=self.table.assign(true_grade=truth)).with_labels(noisy)

    def with_labels(self, labels: npt.ArrayLike) -> Manifest:
        """The same samples with other grades (N,)."""
        # what readers say about the true grades does not hold for these labels
        posterior = list(map(POSTERIOR.format, range(self.num_classes)))
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


# What is done about problems: they are listed in a file, and no sample is dropped silently.


class LeakageWarning(UserWarning):
    """Images of one patient may be on two sides of a split."""


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
    >>> data = srjt.data.from_arrays([[0.1], [0.2], [0.3]], [0, 1, None])
    >>> srjt.data.write_problems(data.report.problems, Path("problems.csv"))
    """
    rows = []
    for problem in problems:
        safe = map(neutralise_formula, (problem.where, problem.detail))
        rows.append((problem.severity, problem.kind, *safe))
    columns = ["severity", "kind", "where", "detail"]
    # dtype: text of pandas 3 cannot hold a file name that is not UTF-8
    write_output(Path(path), as_csv(pd.DataFrame(rows, columns=columns, dtype=object)))


def drop_unusable(
    manifest: Manifest,
    problems: Sequence[Problem] | None = None,
    *,
    on_bad_image: str = "error",
    listed_in: Path | None = None,
) -> Manifest:
    """Return the samples that can be used, or raise an error that counts the others.

    Parameters
    ----------
    manifest : Manifest
        The samples.
    problems : sequence of Problem, optional
        Their problems, for example from ``check``. Default: those of ``manifest.report``. Repeated
        rows and files that are not images are counted in a warning, and so are samples without a
        patient (a ``LeakageWarning``).
    on_bad_image : {"error", "skip"}
        Raise an error if there are unusable samples, or leave them out.
    listed_in : Path, optional
        A CSV file for the list of everything that is left out. It is written only if there is
        something.

    Returns
    -------
    Manifest
        The usable samples, with no problems in their report.

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
    if problems is None:
        problems = manifest.report.problems
    bad = errors_in(problems)
    left_out = [problem for problem in problems if problem.kind in LEFT_OUT]
    full_list = ""
    if listed_in is not None:
        full_list = f" The full list is in {listed_in}."
        if bad or left_out:
            write_problems([*bad, *left_out], listed_in)
    if on_bad_image == "skip":
        left_out = [*bad, *left_out]
    if left_out:
        warn(f"{describe_left_out(left_out)}{full_list}")
    if unknown := sum(problem.kind == "missing-patient" for problem in problems):
        warn(
            f"Samples without a patient: {unknown:,} of {len(manifest):,}. Each is treated as a"
            " separate patient: images of one patient may be on both sides of a split.",
            LeakageWarning,
        )
    solved = replace(manifest.report, problems=())
    if not bad:
        if not manifest.report.problems:
            return manifest
        return replace(manifest, report=solved)
    if on_bad_image == "error":
        counts = ", ".join(f"{count} {kind}" for kind, _, count, _ in examples(bad))
        raise SrjtError(
            f"{count_of(len(bad), 'row or image', 'rows or images')} cannot be used ({counts}; the"
            f" first: {bad[0].where}: {bad[0].detail}). Correct the source, or leave them out"
            " with ",
            Option("on_bad_image", "skip"),
            f".{full_list}",
            code="unusable_samples",
        )
    reasons = unusable_rows(manifest, problems)
    if len(reasons) == len(manifest):
        raise SrjtError(
            "No sample can be used: all of them have problems.", code="unusable_samples"
        )
    usable = manifest.leave_out(reasons)
    return replace(usable, left_out_counts=left_out_counts(problems), report=solved)


def unusable_rows(manifest: Manifest, problems: Iterable[Problem]) -> dict[int, tuple[str, str]]:
    """Row → (kind of problem, detail), for each sample whose image cannot be used."""
    # Other errors are about rows that the source has left out: another row of the same image may be
    # usable.
    bad = {problem.where: problem for problem in problems if problem.kind in OF_IMAGES}
    reasons = {}
    for row, name in enumerate(manifest.ids):
        if name in bad:
            reasons[row] = (bad[name].kind, bad[name].detail)
    return reasons
