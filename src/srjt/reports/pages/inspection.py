"""The page of ``srjt data inspect``: grades, examples, problems, duplicates, patients, sizes,
readers."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from srjt.data.inspection import Inspection
from srjt.data.manifest import Manifest
from srjt.data.problems import KINDS, examples
from srjt.data.thumbnails import example_rows, thumbnail
from srjt.errors import count_of
from srjt.reports.flags import as_typed
from srjt.reports.page import KeyNumber, Page, Section, Tile, page_of
from srjt.reports.sections import PICTURE, counts_table
from srjt.reports.table import data_table

PER_GRADE = 6  # examples
PAIRS = 24  # of images that are (nearly) the same
ROWS = 200  # problems in the table
SIZES = 8
# ratio of the sides, or its inverse, up to which squashing to a square hardly matters
SQUARE = 1.25
FEW = 20  # images of a grade


@dataclass(frozen=True, kw_only=True)
class InspectionFacts:
    """What the sentences are about; "" where there is nothing to say."""

    graded: bool  # whether the order of the grades is known
    counted: str  # "120 images of 30 patients"
    grades: str
    unresolved: str  # what the user must say
    unusable: int
    rows: int
    warnings: int
    decoded: bool  # whether images were read
    no_patients: bool
    perhaps_patients: str
    squashed: float  # share of the images that a square would change
    rare: str


def verdict_of(f: InspectionFacts) -> tuple[str, str]:
    """Title and lead of the page."""
    if not f.graded:
        return f"{f.counted}; the grades are not known yet", f.unresolved
    if f.unusable:
        title = f"{f.unusable:,} of {count_of(f.rows, 'row')} cannot be used"
        lead = (
            f"{f.counted}, grades {f.grades}. Correct the table, or leave these rows out (srjt"
            " train --on-bad-image skip)."
        )
        return title, lead
    if f.warnings:
        lead = f"{count_of(f.warnings, 'warning')} to look at."
        return f"{f.counted}, grades {f.grades}: all can be used", lead
    lead = "Every image was read." if f.decoded else "Images were not read."
    return f"{f.counted}, grades {f.grades}: no problems found", lead


def warnings_of(f: InspectionFacts) -> Iterator[str]:
    """What may make results worse, or too good."""
    if f.no_patients:
        yield (
            "There are no patient ids: images of one patient may be on both sides of a split, and"
            " results are then too good. A column with the patient, the person or the plant"
            f" prevents it. {f.perhaps_patients}".rstrip()
        )
    if f.squashed:
        yield (
            f"In {f.squashed:.0%} of the images one side is more than a quarter longer than the"
            " other. srjt train --resize squash changes their shape and --resize crop cuts off the"
            " ends."
        )
    if f.rare:
        yield f"Few images of {f.rare}: a network can hardly learn such a grade."


def perhaps_patients(inspection: Inspection) -> str:
    """Which column may be the patients, and the option that says so; "" if none seems to be."""
    if not inspection.perhaps_patients:
        return ""
    first = inspection.perhaps_patients[0]
    return (
        f"The values of column {first!r} repeat: if they are the patients, begin again with srjt"
        f" analyse … --patient-column {shlex.quote(first)}."
    )


def inspection_facts(inspection: Inspection) -> InspectionFacts:
    """What the sentences are about."""
    manifest = inspection.manifest
    rows = len(manifest)
    if manifest.left_out_rows is not None:
        rows += len(manifest.left_out_rows)
    rare = []
    if inspection.graded and not manifest.are_features:
        for name, count in zip(manifest.grades, manifest.class_counts.tolist(), strict=True):
            if count < FEW:
                rare.append(f"grade {name} ({count_of(count, 'image')})")
    return InspectionFacts(
        graded=inspection.graded,
        counted=manifest.describe().partition(", grades ")[0],
        grades=", ".join(manifest.grades),
        unresolved=" ".join(map(as_typed, inspection.unresolved)),
        unusable=len(inspection.unusable),
        rows=rows,
        warnings=sum(problem.severity == "warning" for problem in inspection.problems),
        decoded=inspection.decoded,
        no_patients=manifest.patients is None,
        perhaps_patients=perhaps_patients(inspection),
        squashed=_oblong(inspection),
        rare=" and ".join(rare),
    )


def _oblong(inspection: Inspection) -> float:
    """The share of the images whose sides differ by more than a quarter."""
    oblong = sum(
        count for (w, h), count in inspection.sizes.items() if max(w, h) > SQUARE * min(w, h)
    )
    return oblong / max(sum(inspection.sizes.values()), 1)


@page_of.register(Inspection)
def inspection_page(inspection: Inspection, *, command: str = "", next_command: str = "") -> Page:
    """The page of an inspection. next_command: what to do next."""
    facts = inspection_facts(inspection)
    title, lead = verdict_of(facts)
    return Page(
        kind=f"Inspection of {inspection.source.name or inspection.source.resolve().name}",
        title=title,
        lead=lead,
        warnings=list(warnings_of(facts)),
        key_numbers=_key_numbers(inspection),
        sections=list(_sections(inspection, command, next_command)),
        has_ids_option=False,
    )


def _sections(inspection: Inspection, command: str, next_command: str) -> Iterator[Section]:
    if next_command:
        yield Section("next", "Next", code=next_command)
    yield from _problems(inspection)
    yield from _grades(inspection)
    yield from _duplicates(inspection)
    yield from _patients(inspection.manifest)
    yield from _sizes(inspection)
    if inspection.readers:
        yield Section("readers", "Readers", text=inspection.readers)
    yield _reading(inspection, command)


def _key_numbers(inspection: Inspection) -> list[KeyNumber]:
    manifest = inspection.manifest
    kinds = Counter(problem.kind for problem in inspection.problems)
    noun = "rows of features" if manifest.are_features else "images"
    numbers = [KeyNumber(noun, f"{len(manifest):,}")]
    if (patients := manifest.patients) is not None:
        numbers.append(KeyNumber("patients", f"{len(set(patients)):,}"))
    grades = str(manifest.num_classes) if inspection.graded else "not known"
    numbers.append(KeyNumber("grades", grades))
    numbers.append(KeyNumber("samples that cannot be used", f"{len(inspection.unusable):,}"))
    same = kinds["identical-images"] + kinds["identical-images-other-grade"]
    numbers.append(KeyNumber("groups of identical images", f"{same:,}"))
    return numbers


def _problems(inspection: Inspection) -> list[Section]:
    """Every kind with its meaning, and each problem of the first ones."""
    if not inspection.problems:
        return []
    by_kind = []
    each = []
    for kind, severity, count, some in examples(inspection.problems, count=ROWS):
        by_kind.append((severity, kind, count, as_typed(KINDS[kind][1])))
        for problem in some:
            each.append((problem.kind, problem.where, as_typed(problem.detail)))
    kinds = pd.DataFrame(by_kind, columns=["severity", "problem", "number", "meaning"])
    rows = pd.DataFrame(each[:ROWS], columns=["problem", "where", "what"])
    part = ""
    if len(inspection.problems) > ROWS:
        part = f"The first {ROWS:,} of {len(inspection.problems):,}; all are in problems.csv."
    tables = [
        data_table(kinds, title="By kind", slug="kinds"),
        data_table(rows, title="Each", slug="each", caption=part),
    ]
    return [Section("problems", "Problems", tables=tables)]


def _grades(inspection: Inspection) -> list[Section]:
    """How frequent each grade is, and some images of it, of different patients where there are
    enough."""
    manifest = inspection.manifest
    if not inspection.graded:
        return []
    counted = "rows" if manifest.are_features else "images"
    table = counts_table(manifest.grades, manifest.class_counts.tolist(), counted)
    section = Section("grades", "Grades, with examples", tables=[table])
    if manifest.are_features:
        return [section]
    parts = []
    for grade, name in enumerate(manifest.grades):
        tiles = _tiles(manifest, example_rows(manifest, grade))
        if tiles:
            parts.append(Section(f"grade-{grade}", f"Grade {name}", tiles=tiles))
    return [replace(section, parts=parts)]


def _tiles(manifest: Manifest, rows: Sequence[int]) -> list[Tile]:
    """Pictures of the first rows whose images can be read."""
    tiles: list[Tile] = []
    patients = manifest.patients
    for row in rows:
        if len(tiles) == PER_GRADE:
            break
        if picture := thumbnail(manifest, row, size=PICTURE):
            title = "" if patients is None else f"patient {patients[row]}"
            tiles.append(Tile(picture=picture, title=title, text=manifest.ids[row]))
    return tiles


def _duplicates(inspection: Inspection) -> list[Section]:
    manifest = inspection.manifest
    if manifest.are_features or not len(inspection.pairs):
        return []
    tiles = []
    for one, other in inspection.pairs[:PAIRS].tolist():
        grades = [manifest.grades[manifest.labels[row]] for row in (one, other)]
        title = f"grade {grades[0]}" if inspection.graded else ""
        if inspection.graded and grades[0] != grades[1]:
            title = f"grades {grades[0]} and {grades[1]}"
        tiles.append(
            Tile(
                picture=thumbnail(manifest, one, size=PICTURE),
                title=title,
                text=f"{manifest.ids[one]} and {manifest.ids[other]}",
                beside=[(thumbnail(manifest, other, size=PICTURE), "")],
            )
        )
    text = (
        "Identical images are never on two sides of a split; srjt train --group-near-duplicates"
        " does the same for nearly identical ones. Those with different grades come first: one of"
        " the two must be wrong."
    )
    if len(inspection.pairs) > PAIRS:
        text += f" {len(inspection.pairs) - PAIRS:,} more pairs are in problems.csv."
    heading = "Images that are the same, or nearly"
    return [Section("duplicates", heading, text=[text], tiles=tiles)]


def _patients(manifest: Manifest) -> list[Section]:
    """How many images the patients have."""
    if manifest.patients is None:
        return []
    images = Counter(Counter(manifest.patients).values())
    frame = pd.DataFrame(sorted(images.items()), columns=["images of a patient", "patients"])
    return [Section("patients", "Patients", tables=[data_table(frame, title="Images per patient")])]


def _sizes(inspection: Inspection) -> list[Section]:
    """Width, height and the ratio of the sides."""
    if not inspection.sizes:
        return []
    rows = []
    for (width, height), count in list(inspection.sizes.items())[:SIZES]:
        rows.append((f"{width} × {height}", width / height, count))
    frame = pd.DataFrame(rows, columns=["width × height", "width ÷ height", "images"])
    total = sum(inspection.sizes.values())
    others = len(inspection.sizes) - len(rows)
    caption = f"And {count_of(others, 'other size')}. " if others > 0 else ""
    if total < len(inspection.manifest):
        caption += f"From a sample of {total:,} images."
    table = data_table(
        frame, title="Sizes and shapes", formats={"width ÷ height": ".2f"}, caption=caption
    )
    return [Section("sizes", "Sizes", tables=[table])]


def _reading(inspection: Inspection, command: str) -> Section:
    """Which columns are what, with the reasons."""
    facts = []
    for note in inspection.notes:
        term, colon, value = note.partition(": ")
        facts.append((term, value) if colon else ("", note))
    source = shlex.quote(str(inspection.source))
    return Section(
        "how",
        "How the source was read",
        facts=facts,
        code=command or f"srjt data inspect {source}",
        closed=True,
    )
