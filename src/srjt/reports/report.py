"""``srjt.report``: a study, a run, an audit, several readers, predictions or an evaluation as one HTML page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from srjt.auditing.folder import begun_audit
from srjt.data.grade_names import check_grade_names, display_grade
from srjt.data.manifest import Manifest
from srjt.data.readers_folder import read_reader_facts
from srjt.errors import SrjtError, suggest
from srjt.files import write_atomically
from srjt.inference.evaluation import Evaluation
from srjt.inference.predict import RunLike, open_run
from srjt.ordinal.metrics import METRICS
from srjt.reports.figures.canvas import save_figure
from srjt.reports.pages.audit_page import audit_page
from srjt.reports.pages.evaluation_page import evaluation_page
from srjt.reports.pages.html import Page, page_figures, write_page
from srjt.reports.pages.predictions_page import predictions_page
from srjt.reports.pages.readers_page import readers_page
from srjt.reports.pages.run_page import run_page
from srjt.reports.pages.study_page import read_size_ratio, study_page
from srjt.reports.reader_findings import findings
from srjt.reports.tables.naive import with_naive_rows
from srjt.reports.tables.statistics import PAPER_METRICS
from srjt.reports.tables.study_tables import study_tables
from srjt.studies.results import StudyResults, collect_results

__all__ = ["report"]


def report(
    folder: str | Path | pd.DataFrame | Evaluation,
    *,
    run: RunLike | None = None,
    data: Manifest | None = None,
    out: str | Path | None = None,
    figures: str | Path | None = None,
    tables: str | Path | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    maps: bool = False,
    grade_names: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write a study, a run, an audit, several readers, predictions or an evaluation as one self-contained HTML page.

    The page needs no network and opens from disk. It lists failed and unfinished runs at its top.

    Parameters
    ----------
    folder : path, DataFrame or Evaluation
        Folder of a study, of a run (finished or not), of an audit or of readers; or what ``srjt.predict`` or
        ``srjt.evaluate`` has returned.
    run : Trained or path, optional
        The run that has predicted; needed for predictions and evaluations.
    data : Manifest, optional
        The predicted or evaluated samples, for their pictures. Default: the paths in the predictions.
    out : path, optional
        The HTML file. Default: ``report.html`` in ``folder``; predictions and evaluations need a name.
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

    Returns
    -------
    list of Path
        The files written: the page, then figures, then tables.

    Examples
    --------
    >>> import srjt
    >>> srjt.report("study", figures="figures")  # doctest: +SKIP
    >>> srjt.report(srjt.predict("runs/mine", "new"), run="runs/mine", out="new.html")  # doctest: +SKIP
    """
    if isinstance(folder, (pd.DataFrame, Evaluation)):
        if tables is not None or maps:
            raise SrjtError(
                "Predictions and evaluations have neither tables as files nor maps: leave them out."
            )
        return _report_answers(folder, run=run, data=data, out=out, figures=figures, grade_names=grade_names)
    if run is not None or data is not None:
        raise SrjtError("run and data belong to predictions and evaluations: leave them out for a folder.")
    folder = Path(folder)
    for name in metrics:
        if name not in METRICS:
            raise suggest("metric", name, METRICS)
    page, results = _read_page(folder, tuple(metrics), maps=maps, grade_names=grade_names)
    if tables is not None and results is None:
        raise SrjtError(f"Tables compare methods: {folder} is not the folder of a study.")
    path = Path(out) if out is not None else folder / "report.html"
    # The folder may come from somebody else, with a report.html that links to a file of the user.
    write_page(page, path, follow_links=path.parent.resolve() != folder.resolve())
    files = [path, *_write_figures(page, figures)]
    if tables is not None and results is not None:
        files += _write_tables(results, tuple(metrics), Path(tables))
    return files


def _report_answers(
    found: pd.DataFrame | Evaluation,
    *,
    run: RunLike | None,
    data: Manifest | None,
    out: str | Path | None,
    figures: str | Path | None,
    grade_names: Mapping[str, str] | None,
) -> list[Path]:
    if run is None or out is None:
        raise SrjtError("The page of predictions or of an evaluation needs run=… and out=….")
    opened = open_run(run)
    if grade_names is not None:
        opened = replace(opened, grade_names=check_grade_names(grade_names, opened.grades))
    sources = [data.source] if data is not None and data.source else []
    if isinstance(found, Evaluation):
        page = evaluation_page(opened, found, data=data, sources=sources)
    elif not {"grade", "entropy"} <= set(found.columns) or "grade_rule" not in found.attrs:
        raise SrjtError("These are not predictions of srjt.predict: pass its result unchanged.")
    else:
        page = predictions_page(opened, found, data=data, sources=sources)
    write_page(page, Path(out))
    return [Path(out), *_write_figures(page, figures)]


def _write_figures(page: Page, folder: str | Path | None) -> list[Path]:
    if folder is None:
        return []
    return [file for figure in page_figures(page) for file in save_figure(figure, Path(folder))]


def _read_page(
    folder: Path, metrics: tuple[str, ...], *, maps: bool, grade_names: Mapping[str, str] | None
) -> tuple[Page, StudyResults | None]:
    """The page of a folder, and the results if it is the folder of a study."""
    if maps and not (folder / "audit.json").exists() and not begun_audit(folder):
        raise SrjtError(
            f"Maps are for audits, and {folder} is not the folder of one: use srjt explain for a run."
        )
    try:
        if (folder / "study.json").exists():
            results = _with_names(collect_results(folder), grade_names)
            return study_page(results, metrics=metrics), results
        if (folder / "run.json").exists():
            return run_page(folder, grade_names=grade_names), None
        if (folder / "audit.json").exists() or begun_audit(folder):
            return audit_page(folder, maps=maps, grade_names=grade_names), None
        if (folder / "readers.json").exists():
            return _readers_page(folder, grade_names), None
    except SrjtError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as problem:
        raise SrjtError(
            f"The files in {folder} are damaged or not from srjt ({type(problem).__name__}: {problem})."
        ) from problem
    raise SrjtError(
        f"{folder} is the folder of neither a study, a run, an audit nor readers: it contains no study.json, run.json, "
        "audit.json or readers.json."
    )


def _readers_page(folder: Path, grade_names: Mapping[str, str] | None) -> Page:
    facts = read_reader_facts(folder)
    if grade_names is not None:
        facts["grade_names"] = check_grade_names(grade_names, facts["grades"])
        facts["findings"] = findings(facts)
    return readers_page(facts)


def _with_names(results: StudyResults, grade_names: Mapping[str, str] | None) -> StudyResults:
    """The results of a study with the grades as people read them."""
    grades = [str(grade) for grade in results.facts["grades"]]
    kept = (results.facts.get("study") or {}).get("grade_names") or {}
    checked = check_grade_names(kept if grade_names is None else grade_names, grades)
    shown = [display_grade(grade, checked) for grade in grades]
    return replace(results, facts={**results.facts, "grades": shown})


def _write_tables(results: StudyResults, metrics: tuple[str, ...], folder: Path) -> list[Path]:
    """Write each table as Markdown, CSV and LaTeX; return the files."""
    written = []
    ratio = read_size_ratio(results.folder)
    made = with_naive_rows(study_tables(results, metrics=metrics, test_train_ratio=ratio), results.naive)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(made, start=1):
            name = re.sub(r"[^a-z0-9]+", "-", table.title.split(": ", 1)[-1].lower()).strip("-")
            texts = {".md": table.markdown(), ".csv": table.csv(), ".tex": table.latex()}
            for suffix, text in texts.items():
                path = folder / f"{number}-{name}{suffix}"
                write_atomically(path, text.encode(), follow_links=False)
                written.append(path)
    except OSError as problem:
        raise SrjtError(f"The tables cannot be written to {folder}: {problem.strerror}.") from None
    return written
