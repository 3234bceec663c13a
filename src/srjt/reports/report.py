"""``srjt.report``: a result as a page; ``srjt.write_report``: the folder of a study, a run or an
audit as one HTML file; and the page that follows a training while it runs."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import pandas as pd

from srjt.auditing.folder import begun_audit
from srjt.errors import Option, SrjtError, unknown_name, warn
from srjt.files import explain_write_errors, write_atomically, write_output
from srjt.inference.predict import Predictions
from srjt.notebook import HasPage
from srjt.ordinal.metrics import METRICS
from srjt.progress import Forwarding, Reporter
from srjt.reports.checklist import checklist_page, write_checklist
from srjt.reports.flags import as_typed
from srjt.reports.page import (
    NAMING,
    Page,
    leave_out_ids,
    page_of,
    save_figures,
    write_page,
)
from srjt.reports.pages import (
    answers,
    audit,
    data,
    evaluation,
    inspection,
    reader_plan,
    readers,
    run,
    study,
)
from srjt.reports.study_tables import PAPER_METRICS, study_tables
from srjt.studies.results import StudyResults, collect_results
from srjt.training.checkpoint import MetricRow
from srjt.training.folder import has_summary
from srjt.training.trained import Trained

# Each registers its pages.
PAGES = (answers, audit, data, evaluation, inspection, reader_plan, readers, run, study)

# ``srjt.report``: a result, or the folder of one.


@overload
def report(result: HasPage | Trained | Predictions) -> Page: ...


@overload
def report(result: str | Path, **options: Any) -> list[Path]: ...


def report(result: Any, **options: Any) -> Page | list[Path]:
    """Make the page of a result.

    Parameters
    ----------
    result : result of srjt
        What ``srjt.train``, ``evaluate``, ``predict``, ``audit`` or another function returned. For
        the folder of a study, a run or an audit, use ``srjt.write_report``.

    Returns
    -------
    srjt.reports.page.Page
        The page: print it, let a notebook show it, or ``save`` it as an HTML file.

    Examples
    --------
    >>> import srjt
    >>> page = srjt.report(srjt.plan(metric="sensitivity", value=0.9, half_width=0.05))
    >>> page.save("plan.html")  # doctest: +SKIP
    """
    if isinstance(result, (str, os.PathLike)):
        warn(
            "srjt.report(folder) will be removed in the next release: use"
            " srjt.write_report(folder) instead.",
            FutureWarning,
        )
        return write_report(Path(result), **options)
    for name in options:
        raise SrjtError(
            Option(name),
            " is for folders. To write the page of a result, use"
            ' srjt.report(result).save("page.html").',
            code="conflict",
        )
    return page_of(result)


def write_report(
    folder: str | Path,
    *,
    out: str | Path | None = None,
    figures: str | Path | None = None,
    tables: str | Path | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    checklist: str | None = None,
    also: Sequence[str | Path] = (),
    without_ids: bool = False,
) -> list[Path]:
    """Write the folder of a study, a run or an audit as one self-contained HTML file.

    The file needs no network and opens from disk. It lists failed and unfinished runs at its top.

    Parameters
    ----------
    folder : path
        The folder of a study, of a run (finished or not) or of an audit.
    out : path, optional
        The HTML file. Default: ``report.html`` in the folder.
    figures : path, optional
        Folder for every figure as SVG and PNG.
    tables : path, optional
        Folder for the tables of a study as Markdown, CSV and LaTeX.
    metrics : sequence of str
        Metrics of the tables, for example ``("accuracy", "mae", "qwk")``. Default: the paper's
        three.
    checklist : {"tripod-ai", "claim", "stard-ai"}, optional
        Write the items of this checklist of reporting instead, with what the files of a finished
        run know, as HTML for a word processor and as Markdown. Each answer names its file.
    also : sequence of path
        For a checklist: folders of an audit and of readers, and files of ``srjt evaluate --out``.
    without_ids : bool
        Leave out ids, patients and paths, before the page is sent. Pictures stay.

    Returns
    -------
    list of Path
        The files written: the page, then figures, then tables.

    Examples
    --------
    >>> import srjt
    >>> srjt.write_report("study", figures="figures")  # doctest: +SKIP
    """
    folder = Path(folder)
    path = folder / f"{checklist or 'report'}.html" if out is None else Path(out)
    # The folder may come from somebody else, with a report.html that links to a file of the user.
    write = write_atomically if path.parent.resolve() == folder.resolve() else write_output
    if checklist is not None:
        if figures is not None or tables is not None:
            raise SrjtError(
                Option("checklist"),
                " cannot be combined with ",
                Option("figures"),
                " or ",
                Option("tables"),
                ".",
                code="conflict",
            )
        page = checklist_page(folder, checklist, also=[Path(path) for path in also])
        page = leave_out_ids(page, _names_in(folder)) if without_ids else page
        return write_checklist(page, path, write=write)
    if also:
        raise SrjtError(Option("also"), " needs ", Option("checklist"), ".", code="missing_option")
    for name in metrics:
        if name not in METRICS:
            raise unknown_name("metric", name, METRICS)
    page, results = _read_page(folder, tuple(metrics))
    page = leave_out_ids(page, _names_in(folder)) if without_ids else page
    if tables is not None and results is None:
        raise SrjtError(
            Option("tables"),
            f" needs the folder of a study, and {folder} is not one.",
            code="wrong_file",
        )
    write_page(page, path, write=write)
    files = [path, *save_figures(page, figures)]
    if tables is not None and results is not None:
        files += _write_tables(results, tuple(metrics), Path(tables))
    return files


def _read_page(folder: Path, metrics: tuple[str, ...]) -> tuple[Page, StudyResults | None]:
    """The page of a folder, and the results if it is the folder of a study."""
    try:
        if (folder / "study.json").exists():
            results = collect_results(folder)
            return study.study_page(results, metrics=metrics), results
        if (folder / "run.json").exists():
            return run.run_page(folder), None
        if (folder / "audit.json").exists() or begun_audit(folder):
            return audit.audit_page(folder), None
        if (folder / "readers.json").exists():
            again = f"srjt readers {folder}"
            raise SrjtError(
                f"{folder} was written by srjt readers, which writes its page itself: {again}.",
                code="wrong_file",
            )
    except SrjtError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as problem:
        reason = f"{type(problem).__name__}: {problem}"
        raise SrjtError(
            f"The files in {folder} are damaged or not from srjt ({reason}).", code="damaged_file"
        ) from problem
    raise SrjtError(
        f"{folder} is the folder of neither a study, a run nor an audit: it contains no study.json,"
        " run.json or audit.json.",
        code="wrong_file",
    )


def _names_in(folder: Path) -> set[str]:
    """The names of samples, patients and readers in the tables of a folder."""
    names: set[str] = set()
    for file in ("history.csv", "held_out.csv", "audit.csv", "readings.csv"):
        with contextlib.suppress(OSError, ValueError):
            table = pd.read_csv(
                folder / file, dtype=str, keep_default_na=False, usecols=lambda name: name in NAMING
            )
            names.update(*(table[column] for column in table))
    return names


def _write_tables(results: StudyResults, metrics: tuple[str, ...], folder: Path) -> list[Path]:
    """Write each table as Markdown, CSV and LaTeX; return the files."""
    written = []
    with explain_write_errors(f"The tables cannot be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(study_tables(results, metrics=metrics), start=1):
            name = re.sub(r"[^a-z0-9]+", "-", table.title.lower()).strip("-")
            for suffix, text in (
                (".md", table.markdown()),
                (".csv", table.csv()),
                (".tex", table.latex()),
            ):
                written.append(folder / f"{number}-{name}{suffix}")
                write_atomically(written[-1], text.encode())
    return written


# ``srjt train --log html``: a page in the run's folder that shows the training while it runs.

FILE = "live.html"
PAUSE = 10.0  # seconds between two drawings, each of which takes a part of one


class LiveReporter(Forwarding):
    """Writes the page of the run, too: a context manager around a training.

    The page is there at once, and at the end it is the report of the run, which does not reload
    itself.
    """

    def __init__(self, inner: Reporter, folder: Path) -> None:
        super().__init__(inner)
        self.folder = folder
        self._recording = False  # between the first step of the run itself and its end
        self._broken = False
        self._next = 0.0  # the earliest time of the next drawing

    def __enter__(self) -> LiveReporter:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if not (self.folder / "run.json").exists():
            return
        if (
            problem is not None and self._next > 0.0
        ):  # an error before: the folder may be that of another run
            message = problem.message if isinstance(problem, SrjtError) else str(problem)
            reason = " ".join(as_typed(message).split())
            self._write(live="stopped", problem=f"{reason.rstrip('.')}." if reason else "")
        elif problem is None and has_summary(self.folder):
            self._write()
            if not self._broken:
                write_report(self.folder)

    def begin(self, title: str, *, epochs: int, folds: int = 1) -> None:
        self.inner.begin(title, epochs=epochs, folds=folds)
        self._recording = folds == 1  # the noise estimate's cross-fit is not part of the run
        self._next = 0.0
        if (
            not self._recording and not (self.folder / "run.json").exists()
        ):  # or the run is somebody's
            self._write(live="training")

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self.inner.stepped(epoch, step, steps)
        if self._next == 0.0:
            self._draw()  # the page is there before the first epoch ends

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        self.inner.finished_epoch(epoch, rows)
        self._draw()

    def _draw(self) -> None:
        if self._recording and time.monotonic() >= self._next:
            self._write(live="training")
            self._next = time.monotonic() + PAUSE

    def _write(self, **state: Any) -> None:
        if self._broken:
            return
        try:
            page = run.run_page(self.folder, **state)
            write_page(page, self.folder / FILE, write=write_atomically)
        except Exception as trouble:  # a page that cannot be drawn must not end a training
            self._broken = True
            reason = " ".join(str(trouble).split())[:200] or type(trouble).__name__
            self.inner.note(f"The live page has stopped ({reason}). The training is not affected.")
