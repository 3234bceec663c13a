"""What is wrong with a dataset: found all at once, counted, listed in a file, never silently dropped."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from srjt.data.manifest import Manifest
from srjt.errors import SrjtError, suggest

__all__ = ["KINDS", "Problem", "Severity", "errors_in", "examples", "settle", "write_problems"]

Severity = Literal["error", "warning"]

# An error is a sample that cannot be used, or whose label contradicts itself: a command stops, or leaves the
# sample out when told so. A warning leaves every sample in place; the person should know.
KINDS: dict[str, tuple[Severity, str]] = {
    "malformed-row": ("error", "more or fewer cells than the header"),
    "missing-image": ("error", "the image is not there"),
    "empty-image": ("error", "a file of zero bytes"),
    "unreadable-image": ("error", "damaged, truncated or no image at all"),
    "missing-grade": ("error", "no grade"),
    "invalid-grade": ("error", "not one of the grades"),
    "conflicting-rows": ("error", "one image, several grades or patients: all its rows are left out"),
    "duplicate-row": ("warning", "the same image twice with the same grade: the first row is kept"),
    "ambiguous-image": ("warning", "several files fit the name: the first is taken"),
    "ignored-file": ("warning", "not an image, or in no grade's folder"),
    "missing-patient": ("warning", "no patient: leakage between the sides of a split cannot be excluded"),
    "identical-images": ("warning", "the same pixels under different names"),
    "identical-images-other-grade": ("warning", "the same pixels with different grades: one must be wrong"),
    "few-patients": ("warning", "a grade with fewer patients than folds"),
}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: a ``kind`` of ``KINDS``, ``where`` (a sample's id, a line, a grade), details."""

    kind: str
    where: str
    detail: str = ""

    @property
    def severity(self) -> Severity:
        return KINDS[self.kind][0]


def errors_in(problems: Iterable[Problem]) -> list[Problem]:
    """Those that make a sample unusable."""
    return [problem for problem in problems if problem.severity == "error"]


def examples(
    problems: Sequence[Problem], *, count: int = 3
) -> list[tuple[str, Severity, int, list[Problem]]]:
    """Per kind, errors first: its name, severity, how many there are and the first few."""
    tally = Counter(problem.kind for problem in problems)
    return [
        (kind, severity, tally[kind], [problem for problem in problems if problem.kind == kind][:count])
        for kind, (severity, _) in KINDS.items()
        if tally[kind]
    ]


def write_problems(problems: Iterable[Problem], path: Path) -> None:
    """The full list as a CSV file: severity, kind, where, detail."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["severity", "kind", "where", "detail"])
        rows.writerows([p.severity, p.kind, p.where, p.detail] for p in problems)


def settle(
    manifest: Manifest,
    problems: Sequence[Problem],
    *,
    on_bad_image: str = "error",
    listed_in: Path | None = None,
) -> Manifest:
    """The manifest to go on with: all of it, or without its unusable samples, or an error that counts them.

    ``on_bad_image`` is ``"error"`` or ``"skip"``. ``listed_in`` is a CSV file to write the unusable ones to;
    nothing is written when there are none.
    """
    if on_bad_image not in ("error", "skip"):
        raise suggest("--on-bad-image", on_bad_image, ["error", "skip"])
    bad = errors_in(problems)
    if not bad:
        return manifest
    if listed_in is not None:
        write_problems(bad, listed_in)
    if on_bad_image == "error":
        counts = ", ".join(f"{count} {kind}" for kind, _, count, _ in examples(bad))
        full_list = f" The full list is in {listed_in}." if listed_in else ""
        raise SrjtError(
            f"{len(bad):,} unusable samples ({counts}; the first: {bad[0].where}: {bad[0].detail}). "
            f"Mend them, or leave them out with --on-bad-image skip.{full_list}"
        )
    unusable = {problem.where for problem in bad}
    usable = manifest.select([row for row, sample in enumerate(manifest.ids) if sample not in unusable])
    if not len(usable):
        raise SrjtError("No usable sample is left after leaving out those with problems.")
    return usable
