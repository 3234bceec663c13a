"""Look at a source before it is used: what it holds, how it is to be read, and everything that is
wrong with it, in one go; and the table that is left when what cannot be used is left out.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from srjt.data.checks import examine_images, few_patients, image_sizes, shared_patients
from srjt.data.duplicates import Progress
from srjt.data.guesses import Guesses, guess_options
from srjt.data.manifest import Ints, Manifest, unusable_rows
from srjt.data.options import OF_READINGS, ReadOptions, picked
from srjt.data.problems import Problem, errors_in
from srjt.data.sources import read_source
from srjt.data.sources.folders import READ_WITHOUT_GRADES, not_as_published, read_images
from srjt.data.sources.readings import describe_readers, has_grade_column, read_readings
from srjt.data.sources.table import is_table, load_table
from srjt.errors import Message, SrjtError

UNKNOWN_ORDER = "unknown-grades"
NO_PAIRS: Ints = np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What was found in a source.

    Parameters
    ----------
    source : Path
        What was inspected.
    manifest : Manifest
        The samples, also those whose images cannot be read. If the grades are not known, all have
        the mildest one as a placeholder.
    options : dict
        How the source is read, by name: what was given, and what was guessed.
    guessed : tuple of str
        Sentences on what was guessed, and why.
    unresolved : tuple of str
        Sentences on what only a person can say.
    proposed : dict
        Options that would resolve it, if a person agrees.
    perhaps_patients : tuple of str
        Columns that may be the patients, if no column is known to be.
    problems : tuple of Problem
        Everything that is wrong.
    pairs : (M, 2) int64
        Rows with identical or nearly identical images, contradictory ones first.
    sizes : dict of (int, int) to int
        (width, height) → how many images of a sample have it.
    readers : tuple of str
        Sentences on several readers; empty for one.
    as_published : bool or None
        Whether all counts are those of the published data set of this layout; None for other
        layouts.
    decoded : bool
        Whether the images were read.
    """

    source: Path
    manifest: Manifest
    options: dict[str, Any]
    guessed: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    proposed: dict[str, Any] = field(default_factory=dict)
    perhaps_patients: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    pairs: Ints = field(default_factory=NO_PAIRS.copy)
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    readers: tuple[str, ...] = ()
    as_published: bool | None = None
    decoded: bool = True

    @property
    def notes(self) -> list[str]:
        """How the source was understood; what was guessed says why, instead of "as given"."""
        guessed = {note.partition(":")[0] for note in self.guessed}
        notes = self.manifest.report.notes
        return [*(note for note in notes if note.partition(":")[0] not in guessed), *self.guessed]

    @property
    def graded(self) -> bool:
        """Whether the grades and their order are known."""
        return not self.unresolved

    @property
    def unusable(self) -> list[Problem]:
        """The problems that make a sample unusable."""
        return errors_in(self.problems)

    @property
    def usable(self) -> Manifest:
        """The samples whose images can be read."""
        return self.manifest.leave_out(unusable_rows(self.manifest, self.problems))

    def kept(self, on_bad_image: str | None) -> dict[str, Any]:
        """The options that are worth a file: how other commands read the same."""
        if on_bad_image:
            return {**self.options, "on_bad_image": on_bad_image}
        return dict(self.options)


def inspect_source(
    source: Path,
    given: Mapping[str, Any],
    *,
    folds: int = 5,
    decode: bool = True,
    progress: Progress | None = None,
) -> Inspection:
    """Read a source as far as it can be read, and find all of its problems.

    given: options of reading, by name. folds: warn about grades with fewer patients. decode: read
    every image. An error is raised only if nothing can be read: the source is no table, or no
    column holds images.
    """
    readers, options = _readers(source, given)
    guesses = Guesses(options=options)
    if (
        options.get("kind") in (None, "table")
        and is_table(source)
        and not _is_of_features(source, options)
    ):
        guesses = guess_options(load_table(source), ReadOptions.of(options))
    if guesses.unresolved and "image" not in guesses.columns:
        raise SrjtError(Message.joined(guesses.unresolved), code="missing_column")
    if guesses.unresolved:
        manifest = read_images([source], **picked(guesses.options, READ_WITHOUT_GRADES))
    else:
        manifest = read_source(source, use_file=False, **guesses.options)
    problems = []
    for sentence in guesses.unresolved:
        problems.append(Problem(UNKNOWN_ORDER, "all rows", sentence))
    if guesses.unresolved:  # otherwise the reading itself reports typing errors
        for line, (cell, why) in guesses.typos.items():
            problems.append(Problem("invalid-grade", line, f"{cell!r}: {why}"))
    problems += manifest.report.problems
    differences = None
    if not guesses.unresolved:
        differences = not_as_published(manifest)
        problems += differences or []
    pairs = NO_PAIRS
    if decode:
        try:
            of_images, pairs = examine_images(manifest, progress=progress)
        except SrjtError as problem:  # no image exists
            raise SrjtError(
                Message.joined([problem, *guesses.unresolved]), code=problem.code
            ) from None
        problems += of_images
    if not guesses.unresolved:
        problems += few_patients(manifest, folds)
    problems += shared_patients(manifest)
    return Inspection(
        source=source,
        # ``problems`` of the inspection has them all
        manifest=replace(manifest, report=replace(manifest.report, problems=())),
        options=guesses.options,
        guessed=tuple(guesses.notes),
        unresolved=tuple(guesses.unresolved),
        proposed=guesses.proposed,
        perhaps_patients=tuple(guesses.perhaps_patients),
        problems=tuple(problems),
        pairs=pairs,
        sizes=dict(Counter(image_sizes(manifest)).most_common()),
        readers=tuple(readers),
        as_published=None if differences is None else not differences,
        decoded=decode,
    )


def _is_of_features(source: Path, options: Mapping[str, Any]) -> bool:
    from srjt.data.sources.features import is_features

    return "feature_columns" in options or (
        bool(is_features(source)) and "image_column" not in options
    )


def _readers(source: Path, given: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Sentences about a table with several readers, and how to read it: a column for each of them,
    or one that names them, makes a consensus. Without it, images on which they disagree would be
    left out."""
    options = dict(given)
    if options.get("kind") not in (None, "table") or not is_table(source):
        return [], options
    try:
        loaded = read_readings(source, **picked(options, OF_READINGS))
    except SrjtError:  # no table of readings; what is wrong with it is reported when it is read
        return [], options
    if not (described := describe_readers(loaded.readings, loaded.columns)):
        return [], options
    sentences = [described, f"To compare them: srjt readers {shlex.quote(str(source))}"]
    if loaded.columns.reader is None and not loaded.columns.wide:
        sentences.append(
            "No column is known to name the readers. If one does:"
            f" srjt data inspect {shlex.quote(str(source))} --reader-column COLUMN"
        )
    one_column_each = loaded.columns.wide and not has_grade_column(loaded.frame)
    readings_of_each = np.bincount(loaded.readings.item)
    named = loaded.columns.reader is not None and readings_of_each.max() > 1
    if "several_readings" not in options and (one_column_each or named):
        options["several_readings"] = "consensus"
        sentences.append("The grades below are their consensus.")
    elif "several_readings" not in options:
        sentences.append(
            "srjt train --several-readings consensus combines the grades of each image."
        )
    return sentences, options
