"""``srjt readers``: how well several readers agree, what the true grades probably are, and what to
read next.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from srjt.cli import (
    options,
    print_line,
    show,
)
from srjt.cli.options import Fields, argument, option
from srjt.data.options import OF_READINGS, READING
from srjt.errors import SrjtError, count_of, few
from srjt.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from srjt.auditing.blind_readings import Study
    from srjt.data.grades import Grades
    from srjt.data.sources.readings import ReadingsTable
    from srjt.readers.agreement import Agreement
    from srjt.readers.consensus import Consensus
    from srjt.readers.readings import Floats
    from srjt.reports.page import Page

# others are taken, too, so that one set of options serves all commands
TABLES = (*OF_READINGS, "images")


def readers(
    table: Path = argument(
        ...,
        "A CSV, TSV, Excel or Parquet table with one row per reading or one column per reader; the"
        " folder of a study that has begun; or, with --ask, a folder or a table of images.",
        metavar="TABLE",
    ),
    out: Path | None = option(
        None,
        "Folder for the page, the consensus and the tables. [default: that of the study]",
        metavar="DIR",
    ),
    ask: str | None = option(
        None,
        "Begin a study: its readers, such as anna,bo,carl. The same --next N images, drawn at"
        " random, are for every reader. With the folder of a study: add these readers.",
        metavar="NAMES",
    ),
    next_: int | None = option(
        None,
        "List the N readings (image and reader) that would help most. In a study whose images have"
        " several readers, new images are for all of them.",
        "--next",
        metavar="N",
        min=1,
    ),
    again: int | None = option(
        None,
        "List N images for a second reading by each reader, drawn from those that the reader has"
        " read once.",
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
    train, and all readings with the probability that each one is right. Given such a
    folder, the command adds what was read on the page of srjt review since then.
    """
    from srjt.data.grades import Grades
    from srjt.data.sources.answers_file import with_answers
    from srjt.data.sources.readers_folder import read_probabilities
    from srjt.data.sources.readings import combine
    from srjt.readers.agreement import agreement

    asked = _Asked(
        ask=ask, next=next_, again=again, per_reader=per_reader, goal=next_for, witness=None
    )
    begins = ask is not None and not (table / "readers.json").is_file()
    asked.check(with_probabilities=probabilities is not None, begins=begins)
    if ask is not None and begins:
        _begin(table, ask, count=next_, out=out, data=data)
        return
    data = replace(data, source=table)
    if not table.is_dir():
        data = data.with_reading_file()
    loaded, study = _load(data, date_column=date_column, restore=force)
    if study is not None and out is None:
        out = table
    if answers is not None:
        loaded = with_answers(loaded, answers)
    readings = loaded.readings
    if probabilities is not None:
        asked = replace(asked, witness=read_probabilities(probabilities, readings))
    agreed = combine(readings, probabilities=asked.witness)
    unread = [] if study is None else study.unread["id"].tolist()
    found = _Found(
        loaded=loaded,
        study=study,
        agreement=agreement(readings),
        agreed=agreed,
        source=table.name if study is None else study.source,
        grades=Grades(readings.grades, grade_names),
        worklist=asked.worklist(loaded, agreed, unread=unread),
    )
    fewer = asked.fewer(found.worklist)
    if out is None:
        show(found.page())
        _tell_options(fewer, listed=found.worklist is not None)
        return
    continues = study is not None and out == table
    replaced = 0
    if study is not None and continues and found.worklist is not None:
        if ask is None:
            replaced = len(study.left)
        else:
            found = found.with_worklist_after(study.left)
    folder = data.reading_options.get("images") or table.parent
    located = found.images(folder)
    found.write(out, located, probabilities=probabilities, overwrite=force or continues)
    print_line(f"Page: {out / 'report.html'}; the consensus: {out / 'consensus.csv'}")
    if fewer:
        print_line(fewer)
    if found.worklist is not None and len(found.worklist):
        if study is not None:
            located = [*located, *study.unread["image"]]
        _tell_worklist(out, found.worklist, located, replaced)
    elif study is not None:
        _tell_study(out, study, continues=continues, shared=found.agreement.shared_items)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The worklist that the options ask for. witness: the probabilities of a network."""

    ask: str | None
    next: int | None
    again: int | None
    per_reader: int | None
    goal: Literal["consensus", "readers", "model"]
    witness: Floats | None

    def check(self, *, with_probabilities: bool, begins: bool) -> None:
        """Refuse options that have no effect, or two kinds of worklists."""
        if self.next is not None and self.again is not None:
            raise SrjtError(
                "--next and --again write two worklists: give one of them.",
                code="conflict",
                option="again",
            )
        if self.ask is not None and self.again is not None:
            raise SrjtError(
                "--again is for readers who have read images, and --ask names new ones.",
                code="conflict",
                option="ask",
            )
        given = "next_for" if self.per_reader is None else "per_reader"
        flag = f"--{given.replace('_', '-')}"
        chosen = self.per_reader is not None or self.goal != "consensus"
        if self.ask is not None and chosen:
            raise SrjtError(
                f"{flag} has no effect with --ask: all get --next N images.",
                code="option_without_effect",
                option=given,
            )
        if self.next is None and chosen:
            raise SrjtError(
                f"{flag} needs --next, the number of readings, as in --next 50.",
                code="missing_option",
                option=given,
            )
        if self.ask is not None and self.next is None and not begins:
            raise SrjtError(
                "--ask needs --next, the number of images for each reader, as in --next 60.",
                code="missing_option",
                option="ask",
            )
        if self.goal == "model" and not with_probabilities:
            raise SrjtError(
                "--next-for model is about a network: add its --probabilities.",
                code="missing_option",
                option="next_for",
            )

    def worklist(
        self, loaded: ReadingsTable, agreed: Consensus, *, unread: Sequence[str]
    ) -> pd.DataFrame | None:
        """What is to be read; None if no worklist was asked for."""
        from srjt.data.sources import readers_folder

        if self.again is not None:
            return readers_folder.again_worklist(loaded, self.again)
        if self.next is None:
            return None
        if self.ask is not None:
            names = readers_folder.reader_names(self.ask)
            return readers_folder.worklist_of_new_readers(loaded, names, self.next, unread=unread)
        return readers_folder.worklist_table(
            loaded,
            agreed,
            self.next,
            per_reader=self.per_reader,
            goal=self.goal,
            probabilities=self.witness,
            unread=unread,
        )

    def fewer(self, worklist: pd.DataFrame | None) -> str:
        """That a worklist is shorter than was asked; "" if it is not."""
        asked = self.next or self.again
        if worklist is None or worklist.empty or asked is None:
            return ""
        if self.next is None or self.ask is not None:  # asked of each reader
            least = int(worklist["reader"].value_counts().min())
            return f"Only {count_of(least, 'image')} of a reader are left." if least < asked else ""
        left = len(worklist)
        return f"Only {count_of(left, 'reading')} could be listed." if left < asked else ""


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What readings say, and what is to be read next."""

    loaded: ReadingsTable
    study: Study | None
    agreement: Agreement
    agreed: Consensus
    source: str
    grades: Grades
    worklist: pd.DataFrame | None

    def with_worklist_after(self, before: pd.DataFrame) -> _Found:
        """With what is left of the worklist before, and then this one."""
        from srjt.data.sources.readers_folder import joined_worklists

        assert self.worklist is not None
        return replace(self, worklist=joined_worklists(before, self.worklist))

    def images(self, folder: str | Path) -> list[str]:
        """The image of each item; of a table they are looked for in the folder."""
        from srjt.data.sources.readers_folder import located_images

        if self.study is None:
            return located_images(self.loaded, Path(folder))
        known = self.study.images
        return [known.get(name) or name for name in self.loaded.readings.items]

    def page(self, images: list[str] | None = None) -> Page:
        from srjt.reports.pages.readers import readers_page

        return readers_page(
            self.loaded,
            self.agreement,
            self.agreed,
            source=self.source,
            grades=self.grades,
            worklist=self.worklist,
            images=images,
            study=self.study is not None,
        )

    def write(
        self, out: Path, images: list[str], *, probabilities: Path | None, overwrite: bool
    ) -> None:
        """Write the folder and its page, and show the page."""
        from srjt.data.sources.readers_folder import write_readers_folder
        from srjt.reports.page import write_page

        write_readers_folder(
            out,
            self.loaded,
            self.agreement,
            self.agreed,
            source=self.source,
            images=images,
            worklist=self.worklist,
            probabilities=probabilities,
            unread=None if self.study is None else self.study.unread,
            overwrite=overwrite,
        )
        page = self.page(images)
        # before it is shown: whoever reads the output may stop reading
        write_page(page, out / "report.html", write=write_atomically)
        show(page)


def _tell_options(fewer: str, *, listed: bool) -> None:
    """What writes a folder and a worklist."""
    hint = "To write the page, the consensus and all readings to a folder, use --out DIR."
    if not listed:
        hint += " To list what to read next, add --next N."
    print_line(f"{fewer} {hint}".strip())


def _tell_study(out: Path, study: Study, *, continues: bool, shared: int) -> None:
    """What is left to read in a study, or what comes next."""
    if not continues or not len(study.left):
        _tell_next(out, study, shared=shared)
        return
    counted = count_of(len(study.left), "reading")
    print_line(f"The worklist still has {counted}: {_shares(study.left)}.")
    _tell_reader(out, study.left)


def _load(
    data: options.Source, *, date_column: str | None, restore: bool
) -> tuple[ReadingsTable, Study | None]:
    """The readings of a table, or of the folder of a study and what was read since then. restore:
    first make the tables of the folder as srjt has written them."""
    from srjt.auditing.blind_readings import continued_study
    from srjt.data.sources.readers_folder import restore_tables
    from srjt.data.sources.readings import read_readings

    if (data.source / "readers.json").is_file():
        for name in restore_tables(data.source) if restore else []:
            print_line(f"{data.source / name} is again as srjt has written it.")
        study = continued_study(data.source, given=data.reading_options)
        return study.loaded, study
    if data.source.is_dir() and not (data.source / "labels.csv").exists():
        raise SrjtError(
            f"{data.source} is not the folder of a study: begin one with --ask, the names of its"
            " readers, or give a table of readings.",
            code="wrong_file",
            option="ask",
        )
    reading = {name: value for name, value in data.reading_options.items() if name in OF_READINGS}
    return read_readings(data.source, date_column=date_column, **reading), None


def _begin(source: Path, ask: str, *, count: int | None, out: Path | None, data: Any) -> None:
    """Write the folder of a study that begins, and the first worklist."""
    from srjt.data.sources.readers_folder import begin_study, reader_names
    from srjt.readers.readings import ENOUGH

    reading = replace(data, source=source).reading_options
    grades = reading.pop("grades", None)
    if count is None or out is None or grades is None:
        raise SrjtError(
            "A study begins with --next, the number of images for each reader, --out, its folder,"
            " and --grades, all grades from mild to severe, as in: srjt readers images --ask"
            " anna,bo --next 60 --grades 0,1,2,3 --out study.",
            code="missing_option",
            option="ask",
        )
    readers = reader_names(ask)
    known = ("images", "image_column", "patient_column")
    options = {name: reading[name] for name in known if name in reading}
    begun, worklist = begin_study(out, source, readers, count, grades=grades, **options)
    drawn = len(worklist) // len(readers)
    images = f"{drawn:,} of {count_of(begun.unread, 'image')}, drawn at random"
    each = "for 1 reader" if len(readers) == 1 else f"the same for each of {len(readers):,} readers"
    print_line(f"{out}: {images}, {each}.")
    if drawn < ENOUGH:
        print_line(
            f"About {ENOUGH} images are the least that tell how often readers err, and what a plan"
            " needs."
        )
    _tell_worklist(out, worklist, begun.images)


def _tell_worklist(
    out: Path, worklist: pd.DataFrame, images: Iterable[str], replaced: int = 0
) -> None:
    """Where the worklist is, who reads how many, and the command that reads them. replaced: how
    many readings were left of the one before."""
    if replaced:
        print_line(
            f"The worklist before still had {count_of(replaced, 'reading')}; the new one replaces"
            " it."
        )
    readings = count_of(len(worklist), "reading")
    print_line(f"Worklist: {out / 'worklist.csv'} ({readings}: {_shares(worklist)})")
    if any(Path(image).is_file() for image in images):  # a review shows images
        _tell_reader(out, worklist)


def _tell_next(out: Path, study: Study, *, shared: int) -> None:
    """The command that goes on when everything is read. shared: images that two readers have
    read."""
    from srjt.readers.readings import ENOUGH

    readers = len(study.loaded.readings.readers)
    words = ["plan", str(out)]
    if shared < ENOUGH and readers == 1:
        words = ["readers", str(out), "--ask", "NAME", "--next", str(ENOUGH)]
    elif shared < ENOUGH:
        words = ["readers", str(out), "--next", str((ENOUGH - shared) * readers)]
    print_line(f"Next: {shlex.join(['srjt', *words])}")


def _shares(worklist: pd.DataFrame) -> str:
    counts = worklist["reader"].value_counts(sort=False)
    return few([f"{reader} {count:,}" for reader, count in counts.items()], 6)


def _tell_reader(out: Path, worklist: pd.DataFrame) -> None:
    from srjt.readers.next_readings import NEW_READER

    reader = str(worklist["reader"].iloc[0])
    if reader == NEW_READER:
        reader = "NAME"
    print_line(f"Next: {shlex.join(['srjt', 'review', str(out), '--reviewer', reader])}")
