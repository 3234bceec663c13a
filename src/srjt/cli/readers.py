"""``srjt readers``: how well several readers agree, what the true grades probably are, and what to
read next.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from srjt.cli import (
    options,
    print_line,
    show,
)
from srjt.cli.options import Fields, argument, option
from srjt.data.options import OF_READINGS, READING
from srjt.errors import SrjtError, count_of
from srjt.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

# others are taken, too, so that one set of options serves all commands
TABLES = (*OF_READINGS, "images")


def readers(
    table: Path = argument(
        ...,
        "A CSV, TSV, Excel or Parquet table with one row per reading or one column per reader.",
        metavar="TABLE",
    ),
    out: Path | None = option(
        None, "Folder for the page, the consensus and the tables.", metavar="DIR"
    ),
    next_: int | None = option(
        None,
        "List the N readings (image and reader) that would help most.",
        "--next",
        metavar="N",
        min=1,
    ),
    next_for: Literal["consensus", "readers", "model"] = option(
        "consensus",
        "With --next: prefer readings that tell most about the true grades (consensus), the error"
        " rates of the readers, or the error of the network of --probabilities (model).",
    ),
    per_reader: int | None = option(
        None,
        "With --next: at most N readings per reader. [default: no limit]",
        metavar="N",
        min=1,
    ),
    probabilities: Path | None = option(
        None,
        "Predictions (srjt predict) of a network that was not trained on these images. The"
        " consensus uses them as further evidence.",
    ),
    answers: Path | None = option(
        None,
        "Answers of a language model or another program (image, answer and, if known, probability),"
        " as one more reader.",
    ),
    date_column: str | None = option(
        None,
        "Column of the date of each reading. [default: found by its name]",
        metavar="NAME",
        panel=READING,
    ),
    grade_names: options.GradeNames = None,
    force: options.Force = False,
    *,
    data: Annotated[
        options.Source, Fields(options.Source, without=("source", "skipped"), shown=TABLES)
    ],
) -> None:
    """Compare several readers, and combine their grades into one.

    The table has one row per reading (image, reader, grade) or one column per
    reader (grade_anna, grade_bo). Readings may be missing. The consensus takes into
    account which grades each reader confuses, and has a probability. With --out, a
    folder is written with the page (report.html), the consensus as a table for srjt
    train, and all readings with the probability that each one is right.
    """
    from srjt.data.grades import Grades
    from srjt.data.sources import readers_folder
    from srjt.data.sources.answers_file import with_answers
    from srjt.data.sources.readings import combine, read_readings
    from srjt.readers.agreement import agreement
    from srjt.reports.page import write_page
    from srjt.reports.pages.readers import readers_page

    if next_ is None and (per_reader is not None or next_for != "consensus"):
        given = "next_for" if per_reader is None else "per_reader"
        raise SrjtError(
            f"--{given.replace('_', '-')} needs --next, the number of readings, as in --next 50.",
            code="missing_option",
            option=given,
        )
    if next_for == "model" and probabilities is None:
        raise SrjtError(
            "--next-for model is about a network: add its --probabilities.",
            code="missing_option",
            option="next_for",
        )
    data = replace(data, source=table).with_reading_file()
    reading = {name: value for name, value in data.reading_options.items() if name in TABLES}
    images = reading.pop("images", None)
    loaded = read_readings(table, date_column=date_column, **reading)
    if answers is not None:
        loaded = with_answers(loaded, answers)
    readings = loaded.readings
    grades = Grades(readings.grades, grade_names)
    witness = None
    if probabilities is not None:
        witness = readers_folder.read_probabilities(probabilities, readings)
    agreed = combine(readings, probabilities=witness)
    results = (loaded, agreement(readings), agreed)
    worklist = None
    if next_ is not None:
        worklist = readers_folder.worklist_table(
            loaded, agreed, next_, per_reader=per_reader, goal=next_for, probabilities=witness
        )
    located = None
    if out is not None:
        located = readers_folder.located_images(loaded, images or table.parent)
        about: dict[str, Any] = {"source": table.name, "images": located, "worklist": worklist}
        readers_folder.write_readers_folder(
            out, *results, **about, probabilities=probabilities, overwrite=force
        )
    page = readers_page(
        *results, source=table.name, grades=grades, images=located, worklist=worklist
    )
    if out is not None:  # before it is shown: whoever reads the output may stop reading
        write_page(page, out / "report.html", write=write_atomically)
    show(page)
    if out is None:
        print_line(
            "To write the page, the consensus and all readings to a folder, use --out DIR. To list"
            " what to read next, add --next N."
        )
        return
    print_line(f"Page: {out / 'report.html'}; the consensus: {out / 'consensus.csv'}")
    if worklist is not None and len(worklist):
        _tell_worklist(out, worklist, located or ())


def _tell_worklist(out: Path, worklist: pd.DataFrame, images: Iterable[str]) -> None:
    """Where the worklist is, and the command that reads its images."""
    file = out / "worklist.csv"
    print_line(f"Worklist: {file} ({count_of(len(worklist), 'reading')})")
    if any(Path(image).is_file() for image in images):  # a review shows images
        words = ["srjt", "review", str(out), "--worklist", str(file)]
        words += ["--reviewer", str(worklist["reader"].iloc[0])]
        print_line(f"Next: {shlex.join(words)}")
