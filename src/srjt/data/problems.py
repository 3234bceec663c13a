"""The problems of a dataset, collected and counted, and the report of how a source was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from srjt.errors import Message, Option, few
from srjt.notebook import HasPage
from srjt.text import count_of

if TYPE_CHECKING:
    from srjt.readers.readings import Readings

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
        Message(
            "one image with several grades or patients: all its rows are left out. If several"
            " readers graded it, ",
            Option("several_readings", "consensus"),
            " combines their grades",
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
        Message(
            "nearly the same image (rescaled, recompressed, mirrored or slightly cropped) of two"
            " patients: ",
            Option("group_near_duplicates", True),
            " keeps such images on one side of a split",
        ),
    ),
    "few-patients": ("warning", "a grade with fewer patients than folds"),
    "patient-on-two-sides": (
        "warning",
        "a patient on two sides of the split column: scores are too optimistic. Folds keep each"
        " patient on one side",
    ),
}


# Warnings about rows and files that are not used.
LEFT_OUT = ("duplicate-row", "ignored-file")
# Errors about the image of a sample.
OF_IMAGES = ("missing-image", "empty-image", "unreadable-image")
# Problems of what is not a row of the source.
NOT_ROWS = ("malformed-row", "ignored-file")


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


def left_out_problems(problems: Iterable[Problem]) -> list[Problem]:
    """The problems for which a row or a file is not used."""
    return [p for p in problems if p.severity == "error" or p.kind in LEFT_OUT]


def left_out_counts(problems: Iterable[Problem]) -> dict[str, int]:
    """Kind → number of rows and files that are not used because of it."""
    return dict(Counter(problem.kind for problem in left_out_problems(problems)))


def describe_left_out(problems: Sequence[Problem]) -> str:
    """One sentence: how many rows and files were left out, by kind, with some of their names."""
    parts = []
    for kind, _, count, first in examples(problems, count=4):
        parts.append(f"{count:,} {kind} ({few(problem.where for problem in first)})")
    return f"Left out: {'; '.join(parts)}."


def examples(
    problems: Sequence[Problem], *, count: int = 3
) -> list[tuple[str, Severity, int, list[Problem]]]:
    """For each kind that occurs, errors first: its name, severity, count and first ``count``
    problems."""
    by_kind: dict[str, list[Problem]] = {}
    for problem in problems:
        by_kind.setdefault(problem.kind, []).append(problem)
    rows = []
    for kind, (severity, _) in KINDS.items():
        if kind in by_kind:
            rows.append((kind, severity, len(by_kind[kind]), by_kind[kind][:count]))
    return rows


@dataclass(frozen=True, kw_only=True)
class ReadReport(HasPage):
    """How a source was read: ``report`` of the manifest that ``srjt.data.read`` returns.

    Parameters
    ----------
    kind : str
        The kind of source, such as ``"table"``; empty if the samples were made in memory.
    problems : tuple of Problem
        Rows that were left out, and warnings. ``srjt.train`` and its like stop at them, or leave
        such rows out, and ``drop_unusable`` does; what it returns has none.
    notes : tuple of str
        How the source was understood, for people.
    readings : Readings or None
        Every single reading, if the grades are the consensus of several readers. Its items are ids
        of samples.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.from_arrays([[0.1], [0.2], [0.3]], [0, 1, None])
    >>> data.report.kind, len(data), data.report.problems[0].kind
    ('arrays', 2, 'missing-grade')
    >>> data.report
    <ReadReport: arrays, 1 problem>
    """

    kind: str = ""
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    readings: Readings | None = None

    def __repr__(self) -> str:
        source = self.kind or "samples in memory"
        problems = count_of(len(self.problems), "problem") if self.problems else "no problems"
        return f"<ReadReport: {source}, {problems}>"
