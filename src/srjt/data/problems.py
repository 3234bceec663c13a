"""Problems of a dataset: collected, counted and listed in a file; no sample is dropped silently."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from srjt.data.duplicates import LeakageWarning
from srjt.data.manifest import Manifest, neutralise_formula
from srjt.errors import SrjtError, count_of, unknown_name, warn
from srjt.files import text_output

Severity = Literal["error", "warning"]

# An error is a sample that cannot be used, or whose label contradicts itself: a command stops, or leaves the
# sample out with --on-bad-image skip. A warning removes no sample; a repeated row and a file that is not an image
# are left out with a warning.
KINDS: dict[str, tuple[Severity, str]] = {
    "malformed-row": ("error", "more or fewer cells than the header, or a cell with other rows"),
    "missing-image": ("error", "the image file does not exist"),
    "empty-image": ("error", "the file has zero bytes"),
    "unreadable-image": ("error", "damaged, truncated or not an image"),
    "missing-grade": ("error", "no grade"),
    "invalid-grade": ("error", "not one of the grades"),
    "conflicting-rows": (
        "error",
        "one image with several grades or patients: all its rows are left out. If several readers graded it, "
        "`several_readings='consensus'` combines their grades",
    ),
    "duplicate-row": ("warning", "the same image twice with the same grade: the first row is kept"),
    "conflicting-patients": ("warning", "the readings of one image name several patients: the first is used"),
    "conflicting-reference": ("warning", "one image with several trusted grades: none of them is used"),
    "ambiguous-image": ("warning", "several files match the name: the first is used"),
    "ignored-file": ("warning", "not an image, or not in the folder of a grade"),
    "missing-patient": ("warning", "no patient: leakage between the sides of a split cannot be excluded"),
    "identical-images": ("warning", "the same pixels under different names"),
    "identical-images-other-grade": ("warning", "the same pixels with different grades: one must be wrong"),
    "near-duplicates": (
        "warning",
        "nearly the same image (rescaled, recompressed, mirrored or slightly cropped) of two patients: "
        "`group_near_duplicates=True` keeps such images on one side of a split",
    ),
    "few-patients": ("warning", "a grade with fewer patients than folds"),
}


LEFT_OUT = ("duplicate-row", "ignored-file")  # warnings about rows and files that are not used


@dataclass(frozen=True)
class Problem:
    """One problem of a dataset.

    Parameters
    ----------
    kind : str
        One of ``srjt.data.problems.KINDS``, such as ``"missing-image"``.
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


def examples(
    problems: Sequence[Problem], *, count: int = 3
) -> list[tuple[str, Severity, int, list[Problem]]]:
    """For each kind that occurs, errors first: its name, severity, count and first ``count`` problems."""
    tally = Counter(problem.kind for problem in problems)
    return [
        (kind, severity, tally[kind], [problem for problem in problems if problem.kind == kind][:count])
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
    with text_output(Path(path)) as file:
        rows = csv.writer(file)
        rows.writerow(["severity", "kind", "where", "detail"])
        for p in problems:
            rows.writerow([p.severity, p.kind, neutralise_formula(p.where), neutralise_formula(p.detail)])


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
        Their problems, from ``LoadedData.problems`` and ``check``. Repeated rows and files that are not images are
        counted in a warning, and so are samples without a patient (a ``LeakageWarning``).
    on_bad_image : {"error", "skip"}
        Raise an error if there are unusable samples, or leave them out.
    listed_in : Path, optional
        A CSV file for the list of everything that is left out. It is written only if there is something.

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
        raise unknown_name("`on_bad_image`", on_bad_image, ["error", "skip"])
    bad = errors_in(problems)
    left_out = [problem for problem in problems if problem.kind in LEFT_OUT]
    if listed_in is not None and (bad or left_out):
        write_problems([*bad, *left_out], listed_in)
    full_list = f" The full list is in {listed_in}." if listed_in else ""
    if left_out:
        counts = "; ".join(
            f"{count:,} {kind} ({', '.join(p.where for p in first)}{', …' if count > len(first) else ''})"
            for kind, _, count, first in examples(left_out)
        )
        warn(f"Left out: {counts}.{full_list}")
    if unknown := sum(problem.kind == "missing-patient" for problem in problems):
        warn(
            f"Samples without a patient: {unknown:,} of {len(manifest):,}. Each is treated as a separate patient: "
            "images of one patient may be on both sides of a split, which makes results look better than they are.",
            LeakageWarning,
        )
    if not bad:
        return manifest
    if on_bad_image == "error":
        counts = ", ".join(f"{count} {kind}" for kind, _, count, _ in examples(bad))
        raise SrjtError(
            f"{count_of(len(bad), 'unusable sample')} ({counts}; the first: {bad[0].where}: {bad[0].detail}). "
            f"Correct the source, or leave such samples out with `on_bad_image='skip'`.{full_list}"
        )
    unusable = {problem.where for problem in bad}
    usable = manifest.select([row for row, sample in enumerate(manifest.ids) if sample not in unusable])
    if not len(usable):
        raise SrjtError("No sample can be used: all of them have problems.")
    return replace(usable, left_out=left_out_counts(problems))
