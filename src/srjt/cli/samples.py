"""What commands do with samples and settings: the table of grades, problems, images that cannot be used, the
split, and the settings of a training from a file, from options and from ``--set``.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from srjt.cli.output import say, writing
from srjt.errors import SrjtError, printable, unknown_name, warn
from srjt.files import read_limited

if TYPE_CHECKING:
    from srjt.data.manifest import Manifest, Problem
    from srjt.data.sources.assemble import LoadedData
    from srjt.data.splits import Split
    from srjt.training.config import TrainConfig

# ``--fold``, ``--folds``, ``--split-seed``, ``--splits`` and ``--official-split`` as a function of the data.

SEEDS_TRIED = 50  # for one whose sides have all grades


def chosen_split(
    *,
    fold: int | None,
    folds: int,
    seed: int,
    file: Path | None,
    official: bool | None,
    skipping: bool,
    hold_out: str | None = None,
) -> Callable[[Manifest], Split] | None:
    """How to split the samples that remain after bad images are skipped; None: train on all of them."""
    from srjt.data.duplicates import group_duplicates
    from srjt.data.splits import folds as make_folds
    from srjt.data.splits import official_split, read_splits

    if hold_out is not None and file is not None:
        raise SrjtError("--splits has its folds already: leave out --hold-out.")
    if official and (fold is not None or file is not None or hold_out is not None):
        raise SrjtError(
            "--official-split uses the data's own split: it cannot be combined with --fold, --splits or --hold-out."
        )
    if official:
        return official_split
    if fold is None and file is None and hold_out is None:
        from srjt.training.single_run import own_split

        return None if official is False else partial(own_split, all_samples="--no-official-split")
    wanted = fold or 0

    def choose(manifest: Manifest) -> Split:
        if file:
            found = read_splits(file, manifest, allow_missing=skipping)
            check_fold(wanted, len(found))
            return found[wanted]
        if hold_out is not None:
            column, _, value = hold_out.partition("=")
            sites = make_folds(manifest, folds=folds, seed=seed, hold_out=column)
            if not value and fold is None:
                names = ", ".join(split.held_out for split in sites)
                raise SrjtError(f"Say which {column} to hold out, as in --hold-out {column}=VALUE: {names}.")
            if value:
                by_name = {split.held_out: split for split in sites}
                if value not in by_name:
                    raise unknown_name(column, value, by_name)
                return by_name[value]
            check_fold(wanted, len(sites))
            return sites[wanted]
        check_fold(wanted, folds)
        manifest = group_duplicates(manifest) if manifest.duplicates is None else manifest
        chosen = make_folds(manifest, folds=folds, seed=seed)[wanted]
        if absent := _absent_grade(manifest, chosen):
            others = range(seed + 1, seed + 1 + SEEDS_TRIED)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # shown for the fold that is used
                made = ((other, make_folds(manifest, folds=folds, seed=other)[wanted]) for other in others)
                better = next((other for other, split in made if not _absent_grade(manifest, split)), None)
            advice = "" if better is None else f" --split-seed {better} has every grade on every side."
            warn(f"{absent} of fold {wanted}: folds do not depend on labels.{advice}")
        return chosen

    return choose


def _absent_grade(manifest: Manifest, split: Split) -> str:
    """The first grade that a side lacks, as the beginning of a sentence; "" if all sides have all that there are."""
    for side, rows in split.sides().items():
        counts = manifest.select(rows, images=False).class_counts
        for grade, count, whole in zip(manifest.grades, counts, manifest.class_counts, strict=True):
            if whole and not count:
                return f"No sample of grade {grade} is on the {side} side"
    return ""


def check_fold(fold: int | None, folds: int) -> None:
    """Raise an error if there is no such fold, or if ``--folds`` was typed for ``--fold``."""
    if fold is None and folds < 3:
        raise SrjtError(
            f"--folds is the number of folds, at least 3, not {folds}: --fold {max(folds, 0)} chooses one of five."
        )
    if fold is not None and not 0 <= fold < folds:
        raise SrjtError(f"There is no fold {fold}: folds are numbered 0 … {folds - 1}.")


# The settings of a training, from a file, from options and from ``--set``; checked before data are read.

LARGEST_MATRIX = 2**20  # bytes


def layered_settings(
    file: Path | None,
    assignments: Sequence[str] | None,
    *,
    given: Mapping[str, Any],
    method_options: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> TrainConfig:
    """The defaults, then the file, then the options, then ``--set``."""
    from srjt.settings import load_config, parse_overrides
    from srjt.training.config import TrainConfig

    options = {name: value for name, value in given.items() if value is not None}
    if isinstance(options.get("transition"), Path):
        options["transition"] = read_matrix(options["transition"])
    for_method = {name: value for name, value in (method_options or {}).items() if value is not None}
    settings = merged(
        load_config(file) if file else {},
        options,
        {"method_options": for_method} if for_method else {},
        parse_overrides(assignments or []),
    )
    return TrainConfig.from_dict(defaults or {}).replace(**settings)  # a preset lies over the defaults


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """One layer over the other; settings inside a setting, such as method_options, are merged too."""
    whole: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            below = whole.get(name)
            both = isinstance(below, dict) and isinstance(value, dict)
            whole[name] = {**below, **value} if both else value  # type: ignore[dict-item]
    return whole


def check_settings(settings: TrainConfig, *, fold: int | None = None, folds: int | None = None) -> None:
    """Report what is wrong before an hour is spent on reading images, in terms of the options."""
    from srjt import networks
    from srjt.methods import lookup
    from srjt.training.train import needs_estimate

    known = lookup(settings.method, registered_by=settings.imports)
    needs = (
        () if known.is_recipe and settings.noise_rate is not None else known.needs
    )  # a rate suffices for a recipe
    if "noise_rate" in needs and settings.noise_rate is None:
        raise SrjtError(
            f"{settings.method} needs the share of wrong labels: --noise-rate 0.2 if a fifth of them is wrong, "
            "--noise-rate auto to estimate it, or --method srjt, which needs none."
        )
    if "transition" in needs and settings.transition is None and settings.noise_rate != "auto":
        raise SrjtError(
            f"{settings.method} needs the matrix of label errors: --transition FILE, with a row of numbers "
            "separated by commas for each true grade, or --noise-rate auto to estimate it."
        )
    needs_estimate(settings)  # an error if the soft labels cannot follow the estimate
    name = settings.network
    if name is not None and name not in networks.names() and not name.startswith("timm:"):
        raise unknown_name("network", name, (*networks.names(), "timm:NAME"))
    if folds is not None:
        check_fold(fold, folds)


def read_matrix(path: Path) -> tuple[tuple[float, ...], ...]:
    """The transition matrix in a CSV file."""
    import numpy as np

    from srjt.noise.matrices import check_matrix

    content = read_limited(path, limit=LARGEST_MATRIX)
    try:
        matrix = np.loadtxt(io.StringIO(content.decode()), delimiter=",", ndmin=2)
    except ValueError as problem:
        raise SrjtError(
            f"{path} cannot be read as a matrix of numbers separated by commas: {str(problem).rstrip('.')}."
        ) from None
    return tuple(tuple(float(p) for p in row) for row in check_matrix(matrix))


# What commands show and do about samples: the table of grades, problems, images that cannot be used.


def grouped(manifest: Manifest, *, near: bool) -> Manifest:
    """The samples with groups of identical or, if wanted, nearly identical images; a warning counts them."""
    from srjt.cli.output import decoding_bar
    from srjt.data.duplicates import group_duplicates

    with decoding_bar() as progress:
        return group_duplicates(manifest, near=near, progress=progress)


def usable(reading: LoadedData, *, on_bad_image: str, skipped: Path) -> Manifest:
    """The samples that can be used; the others are an error, or are listed in ``skipped``."""
    from srjt.data.manifest import drop_unusable

    with writing(skipped):
        return drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image, listed_in=skipped)


# options about columns that a source and --calibrate-on have in common; the other options are about one of them
SHARED = (
    "image_column",
    "grade_column",
    "map_grades",
    "patient_column",
    "verified_grade_column",
    "feature_columns",
    "several_readings",
    "reader_column",
    "reference_column",
)


def calibration_samples(
    source: Path | None,
    assignments: Sequence[str] | None,
    *,
    how: Mapping[str, Any],
    grades: Sequence[str],
    on_bad_image: str,
) -> Manifest | None:
    """The samples of ``--calibrate-on``: its columns are named as those of the source, or by ``--calibrate-set``."""
    from srjt.data.manifest import drop_unusable
    from srjt.data.options import ReadOptions
    from srjt.data.sources import read

    if source is None:
        if assignments:
            raise SrjtError("--calibrate-set says how --calibrate-on is read: give --calibrate-on, too.")
        return None
    options = {name: how[name] for name in SHARED if name in how}
    own = {}
    known = set(vars(ReadOptions())) - {"grades"}  # those of the run
    for assignment in assignments or ():
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals:
            raise SrjtError(
                f"--calibrate-set takes name=value, for example grade_column=severity; got {assignment!r}."
            )
        if name not in known:
            raise unknown_name("option of --calibrate-set", name, known)
        own[name] = value or None  # nothing: found by its name
    try:
        reading = read(source, grades=list(grades), **{**options, **own})
    except SrjtError as problem:
        common = ", ".join(f"`{name}`" for name in options if name not in own)
        hint = f" --calibrate-on is read with the same {common}: --calibrate-set NAME=VALUE gives it others."
        raise SrjtError(f"{problem}{hint if common else ''}") from None
    return drop_unusable(reading.manifest, reading.problems, on_bad_image=on_bad_image)


def list_unreadable(
    unreadable: Sequence[tuple[str, str]], skipped: Path, *, problems: Sequence[Problem] = ()
) -> None:
    """Add images that could not be read, as (id, reason), to the list of unusable samples."""
    from srjt.data.checks import image_problem
    from srjt.data.manifest import write_problems

    if unreadable:
        with writing(skipped):
            found = [image_problem(sample, reason) for sample, reason in unreadable]
            write_problems([*problems, *found], skipped)


def print_grades(manifest: Manifest) -> None:
    """Images and patients per grade, with a bar."""
    import pandas as pd

    from srjt.cli.output import print_table

    counts, patients = manifest.class_counts.tolist(), manifest.patients
    bars = ["█" * round(24 * count / max(counts)) or "▏" * bool(count) for count in counts]
    frame = pd.DataFrame(
        {
            "grade": [*manifest.grades, "all"],
            "rows" if manifest.are_features else "images": [*counts, len(manifest)],
            "share": [count / len(manifest) for count in (*counts, len(manifest))],
            "": [*bars, ""],
        }
    )
    if patients is not None:
        owners = pd.Series(patients).groupby(manifest.labels).nunique().reindex(range(len(counts)))
        frame["patients"] = [*owners.fillna(0).astype(int), len(set(patients))]
    print_table(frame, formats={"share": ".1%"}, rule_before=[len(counts)])


def print_problems(problems: list[Problem]) -> None:
    """Every kind with its number, what it means and the first few examples."""
    from srjt.data.manifest import KINDS, examples

    for kind, severity, count, first in examples(problems):
        colour = "red" if severity == "error" else "yellow"
        say(f"{severity}: {count:,} {kind}: {KINDS[kind][1]}", fg=colour)
        for problem in first:
            detail = f": {problem.detail}" if problem.detail else ""
            typer.echo(printable(f"    {problem.where}{detail}"))
        if count > len(first):
            typer.echo(f"    … and {count - len(first):,} more")
