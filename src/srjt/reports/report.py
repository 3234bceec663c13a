"""``srjt.report``: a study, a run, an audit, several readers, predictions, an evaluation or a comparison as one
HTML page; and the page that follows a training while it runs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import singledispatch
from pathlib import Path
from typing import Any

from srjt.auditing.audit import Audit
from srjt.auditing.folder import begun_audit
from srjt.data.grades import Grades
from srjt.data.sources.readers_folder import read_reader_facts
from srjt.errors import SrjtError, unknown_name
from srjt.files import as_json, explain_write_errors, write_atomically, write_output
from srjt.inference.compare import Comparison
from srjt.inference.evaluate import Evaluation
from srjt.inference.explain import Explanation
from srjt.inference.predict import Predictions
from srjt.inference.sample_size import SamplePlan
from srjt.ordinal.metrics import METRICS
from srjt.progress import Forwarding, Reporter
from srjt.readers.agreement import Agreement
from srjt.readers.consensus import Consensus
from srjt.reports.checklist import checklist_page, write_checklist
from srjt.reports.figures.canvas import figure_bytes
from srjt.reports.figures.results import forest_figure
from srjt.reports.page import Page, save_figures, write_page
from srjt.reports.pages.answers import explain_page, predictions_page
from srjt.reports.pages.audit import audit_page, audited_page
from srjt.reports.pages.evaluation import comparison_page, evaluation_page
from srjt.reports.pages.readers import agreement_page, consensus_page, readers_page
from srjt.reports.pages.run import run_page, trained_page, waiting_page
from srjt.reports.pages.sample_size import plan_page
from srjt.reports.pages.study import study_page
from srjt.reports.study_tables import PAPER_METRICS, study_tables
from srjt.studies.results import StudyResults, collect_results
from srjt.training.checkpoint import MetricRow
from srjt.training.folder import has_summary
from srjt.training.trained import Trained

# A comparison of runs as a file: a page, a figure, or its numbers.

SUFFIXES = (".html", ".svg", ".png", ".json")


def check_suffix(path: Path) -> None:
    """Raise an error for a file of another kind, before anything is computed."""
    if path.suffix.lower() not in SUFFIXES:
        raise SrjtError(f"{path} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write a page, a figure or the numbers, by the end of the file's name."""
    check_suffix(path)
    suffix = path.suffix.lower()
    if suffix == ".html":
        write_page(comparison_page(comparison), path)
    elif suffix == ".json":
        write_output(path, as_json(comparison.to_dict()))
    else:
        write_output(path, figure_bytes(forest_figure(comparison), suffix[1:]))


# ``result.report()``: a new kind of result is one line here.


@singledispatch
def page_of(result: object) -> Page:
    """The page of a result."""
    raise SrjtError(f"There is no page for a {type(result).__name__}.")


page_of.register(Agreement, agreement_page)
page_of.register(Audit, audited_page)
page_of.register(Consensus, consensus_page)
page_of.register(Comparison, comparison_page)
page_of.register(Evaluation, evaluation_page)
page_of.register(Explanation, explain_page)
page_of.register(SamplePlan, plan_page)
page_of.register(Predictions, lambda answers: predictions_page(answers.run, answers))
page_of.register(StudyResults, lambda results: study_page(_with_names(results, None)))
page_of.register(Trained, trained_page)


# ``srjt.report``: the folder of a study, a run, an audit or several readers as one HTML page.


def report(
    folder: str | Path,
    *,
    out: str | Path | None = None,
    figures: str | Path | None = None,
    tables: str | Path | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    maps: bool = False,
    grade_names: Mapping[str, str] | None = None,
    checklist: str | None = None,
    also: Sequence[str | Path] = (),
) -> list[Path]:
    """Write the folder of a study, a run, an audit or several readers as one self-contained HTML page.

    The page needs no network and opens from disk. It lists failed and unfinished runs at its top. For a result in
    memory, such as an evaluation, use ``result.report().save("page.html")``.

    Parameters
    ----------
    folder : path
        Folder of a study, of a run (finished or not), of an audit or of readers.
    out : path, optional
        The HTML file. Default: ``report.html`` in ``folder``.
    figures : path, optional
        Folder for every figure as SVG and PNG.
    tables : path, optional
        Folder for the tables of a study as Markdown, CSV and LaTeX.
    metrics : sequence of str
        Metrics of the tables, for example ``("accuracy", "mae", "qwk")``. Default: the paper's three.
    maps : bool
        Show where the networks of an audit look, for its most doubtful labels.
    grade_names : mapping of str to str, optional
        Grade → its name. Default: the names that the folder was made with.
    checklist : {"tripod-ai", "claim", "stard-ai"}, optional
        Write the items of this checklist of reporting instead, with what the files of a finished run know, as HTML for
        a word processor and as Markdown. Each answer names its file.
    also : sequence of path
        For a checklist: folders of an audit and of readers, and files of ``srjt evaluate --out``. Default: those beside
        the run, if they are about the same table or run.

    Returns
    -------
    list of Path
        The files written: the page, then figures, then tables.

    Examples
    --------
    >>> import srjt
    >>> srjt.report("study", figures="figures")  # doctest: +SKIP
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise SrjtError(
            'srjt.report takes a folder. For a result in memory: result.report().save("page.html").'
        )
    folder = Path(folder)
    path = folder / f"{checklist or 'report'}.html" if out is None else Path(out)
    # The folder may come from somebody else, with a report.html that links to a file of the user.
    write = write_atomically if path.parent.resolve() == folder.resolve() else write_output
    if checklist is not None:
        if figures is not None or tables is not None or maps:
            raise SrjtError(
                "A checklist has neither figures nor tables as files, and no maps: leave them out."
            )
        page = checklist_page(folder, checklist, also=[Path(path) for path in also])
        return write_checklist(page, path, write=write)
    if also:
        raise SrjtError("`also` belongs to a checklist: leave it out, or choose one with `checklist`.")
    for name in metrics:
        if name not in METRICS:
            raise unknown_name("metric", name, METRICS)
    page, results = _read_page(folder, tuple(metrics), maps=maps, grade_names=grade_names)
    if tables is not None and results is None:
        raise SrjtError(f"Tables compare methods: {folder} is not the folder of a study.")
    write_page(page, path, write=write)
    files = [path, *save_figures(page, figures)]
    if tables is not None and results is not None:
        files += _write_tables(results, tuple(metrics), Path(tables))
    return files


def _read_page(
    folder: Path, metrics: tuple[str, ...], *, maps: bool, grade_names: Mapping[str, str] | None
) -> tuple[Page, StudyResults | None]:
    """The page of a folder, and the results if it is the folder of a study."""
    is_audit = (folder / "audit.json").exists() or begun_audit(folder)
    if maps and not is_audit:
        raise SrjtError(
            f"Maps are for audits, and {folder} is not the folder of one: use srjt explain for a run."
        )
    try:
        if (folder / "study.json").exists():
            results = _with_names(collect_results(folder), grade_names)
            return study_page(results, metrics=metrics), results
        if (folder / "run.json").exists():
            return run_page(folder, grade_names=grade_names), None
        if is_audit:
            return audit_page(folder, maps=maps, grade_names=grade_names), None
        if (folder / "readers.json").exists():
            facts = read_reader_facts(folder)
            names = facts["grade_names"] if grade_names is None else grade_names
            facts["grade_names"] = Grades(facts["grades"], names).names
            return readers_page(facts, folder), None
    except SrjtError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as problem:
        reason = f"{type(problem).__name__}: {problem}"
        raise SrjtError(f"The files in {folder} are damaged or not from srjt ({reason}).") from problem
    raise SrjtError(
        f"{folder} is the folder of neither a study, a run, an audit nor readers: it contains no study.json, run.json, "
        "audit.json or readers.json."
    )


def _with_names(results: StudyResults, grade_names: Mapping[str, str] | None) -> StudyResults:
    """The results of a study with the grades as people read them."""
    grades = [str(grade) for grade in results.facts["grades"]]
    kept = (results.facts.get("study") or {}).get("grade_names") or {}
    shown = Grades(grades, kept if grade_names is None else grade_names).shown
    return replace(results, facts={**results.facts, "grades": shown})


def _write_tables(results: StudyResults, metrics: tuple[str, ...], folder: Path) -> list[Path]:
    """Write each table as Markdown, CSV and LaTeX; return the files."""
    written = []
    with explain_write_errors(f"The tables cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(study_tables(results, metrics=metrics), start=1):
            name = re.sub(r"[^a-z0-9]+", "-", table.title.split(": ", 1)[-1].lower()).strip("-")
            texts = {".md": table.markdown(), ".csv": table.csv(), ".tex": table.latex()}
            for suffix, text in texts.items():
                path = folder / f"{number}-{name}{suffix}"
                write_atomically(path, text.encode())
                written.append(path)
    return written


# ``srjt train --log html``: a page in the run's folder that shows the training while it runs.

FILE = "live.html"
SHARE = 0.1  # of the time, at most, is spent on drawing
LEAST = 2.0  # seconds between two drawings


class LiveReporter(Forwarding):
    """Writes the page of the run, too: a context manager around a training.

    The page is there at once, and at the end it is the report of the run, which does not reload itself.
    """

    def __init__(self, inner: Reporter, folder: Path, *, show_test: bool = False) -> None:
        super().__init__(inner)
        self.folder, self.show_test = folder, show_test
        self.messages: list[str] = []
        self._recording = False  # between the first step of the run itself and its end
        self._broken = False
        self._next = 0.0  # the earliest time of the next drawing

    def __enter__(self) -> LiveReporter:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if not (self.folder / "run.json").exists():
            return
        if problem is not None and self._next > 0.0:  # an error before: the folder may be that of another run
            reason = " ".join(str(problem).split())
            self._write(live="stopped", problem=f"{reason.rstrip('.')}." if reason else "")
        elif problem is None and has_summary(self.folder):
            self._write(show_test=True)
            if not self._broken:
                report(self.folder)

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        self.inner.begin(title, epochs=epochs, folds=folds)
        self._recording = folds == 1  # the noise estimate's cross-fit is not part of the run
        self._next = 0.0
        if not self._recording and not (self.folder / "run.json").exists():  # or the run is somebody's
            self._write(waiting=True)

    def note(self, text: str) -> None:
        self.inner.note(text)
        self.messages.append(text)

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self.inner.stepped(epoch, step, steps)
        if self._next == 0.0:
            self._draw()  # the page is there before the first epoch ends

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        self.inner.finished_epoch(epoch, rows)
        if time.monotonic() >= self._next:
            self._draw()

    def _draw(self) -> None:
        if not self._recording:
            return
        before = time.monotonic()
        self._write(live="training")
        took = time.monotonic() - before
        self._next = before + took + max(LEAST, took / SHARE)

    def _write(self, *, waiting: bool = False, **state: Any) -> None:
        if self._broken:
            return
        options = {"messages": self.messages, "show_test": self.show_test, **state}
        try:
            page = (
                waiting_page(self.folder, messages=self.messages)
                if waiting
                else run_page(self.folder, **options)
            )
            write_page(page, self.folder / FILE, write=write_atomically)
        except Exception as trouble:  # a page that cannot be drawn must not end a training
            self._broken = True
            reason = " ".join(str(trouble).split())[:200] or type(trouble).__name__
            self.inner.note(f"The live page has stopped ({reason}). The training is not affected.")
