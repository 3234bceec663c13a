"""Write the tables of the evidence page, the README and the paper from the stored results; all
others as CSV files.

    python benchmarks/evidence/page.py             # a minute or two on one core, no GPU
    python benchmarks/evidence/page.py --check     # writes nothing; status 1 if a table is not that of the results

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; all else on a page is
written by hand. A table that no page shows becomes ``results/tables/NAME.csv``.
``stored_tables.py`` reads the CSV files, this file the studies and the predictions for the held-out
patients.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import re
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compare
import pandas as pd
import stored_tables

from srjt.ordinal.intervals import holm
from srjt.reports.study_tables import study_tables, test_train_ratio
from srjt.studies.results import RUN_COLUMNS, StudyResults, pool_ours
from srjt.training.checkpoint import LAST, last_epochs, read_metrics

ROOT = Path(__file__).parents[2]
PAGES = (
    "docs/evidence.md",
    "docs/evidence-tables.md",
    "docs/paper-and-code.md",
    "docs/promises.md",
    "README.md",
    "paper/paper.md",
)
RESULTS = Path(__file__).parent / "results"
TABLES = "benchmarks/evidence/results/tables"
MARKS = str.maketrans("", "", "*`¹²")  # bold, code, best and second best
PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
# our own archives; Python before 3.10.12 and 3.11.4 has no filters
SAFE: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
HELD_OUT = {
    "held-out": ["--views", "1"],
    "held-out-ten-views": ["--views", "10"],
    "held-out-best": ["--views", "1", "--best"],
    "held-out-best-ten-views": ["--views", "10", "--best"],
}
STUDIES = {
    ("eyepacs", "Comparison, labels as given"): "eyepacs",
    ("deepdrid", "Comparison, Quasi-Gaussian noise"): "deepdrid-quasi",
    ("deepdrid", "Comparison, Truncated-Gaussian noise"): "deepdrid-truncated",
    ("deepdrid", "“+ Ours” against hosts, pooled"): "pooled",
    ("ablation", "Selection and updating, Quasi-Gaussian noise"): "ablation",
}
OURS = "ours-minus-host"


def from_studies() -> dict[str, str]:
    """The tables of ``srjt report``, without titles and captions. ``srjt`` was another method
    then."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for archive in ("eyepacs.tar.xz", "deepdrid.tar.xz"):
            with tarfile.open(RESULTS / archive) as file:
                file.extractall(folder, **SAFE)
        for study in ("eyepacs", "deepdrid", "ablation"):
            results = read_study(Path(folder) / study)
            for table in study_tables(results):
                name = STUDIES.get((study, table.title))
                if name is not None:
                    text = pipe_table(table.markdown()).replace("Labels as given: ", "")
                    found[name] = text.replace("| srjt |", "| former srjt |")
            if study == "deepdrid":
                found[OURS] = ours_minus_host(results, test_train_ratio=test_train_ratio(results))
    return found


def ours_minus_host(results: StudyResults, *, test_train_ratio: float) -> str:
    """ "+ours" minus its host over all hosts, noises and folds: the paper's scores, and its label
    precision."""
    everything = {"all": list(dict.fromkeys(results.runs["noise"]))}
    names = {
        "accuracy": "accuracy",
        "label_precision": "label precision",
        "mae": "MAE",
        "macro_f1": "macro-F1",
    }
    found = [
        pool_ours(
            results.scores,
            everything,
            test_train_ratio=test_train_ratio,
            metrics=[metric],
            split="train" if metric == "label_precision" else "test",
        )
        for metric in names
    ]
    tests = pd.concat(found)
    adjusted = holm(tests["p_value"])
    rows = [
        [
            names[test.metric],
            str(test.pairs * test.n),
            f"{test.difference:+.3f} ({test.low:+.3f} to {test.high:+.3f})".replace("-", "−"),
            f"{test.p_value:.3f}",
            f"{p:.3f}",
        ]
        for test, p in zip(tests.itertuples(), adjusted, strict=True)
    ]
    return stored_tables.pipes(
        ["“+ours” minus host", "pairs", "difference, 95 % interval", "p", "Holm's p"], rows
    )


def read_study(folder: Path) -> StudyResults:
    """What tables need, whichever version wrote the folder: the planned runs and ``metrics.csv`` of
    each."""
    facts = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    runs = pd.DataFrame(facts["cells"])[RUN_COLUMNS].assign(status="done")
    scores = []
    for run in runs[RUN_COLUMNS].to_dict("records"):
        metrics = read_metrics(folder / "runs" / run["key"] / "metrics.csv")
        scores += [
            last_epochs(metrics, pooled=False).assign(**run),
            last_precision(metrics).assign(**run),
        ]
    none = pd.DataFrame()
    return StudyResults(
        folder=folder,
        facts=facts,
        runs=runs,
        scores=pd.concat(scores),
        metrics=none,
        noise=none,
        confusions={},
    )


def last_precision(metrics: pd.DataFrame) -> pd.DataFrame:
    """The label precision of the training side, mean over the last ten epochs and the networks, as
    ``last_epochs``."""
    own = metrics[(metrics["split"] == "train") & (metrics["metric"] == "label_precision")]
    recent = own[own["epoch"] > own["epoch"].max() - LAST]
    value = recent.groupby("epoch")["value"].mean().mean()
    return pd.DataFrame({"split": ["train"], "metric": ["label_precision"], "value": [value]})


def from_predictions(options: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        compare.main([str(RESULTS / "held_out.csv.xz"), "--of", "srjt", *options])
    return pipe_table(printed.getvalue())


def pipe_table(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("|")) + "\n"


def all_tables() -> dict[str, str]:
    made = from_studies()
    made |= {name: from_predictions(options) for name, options in HELD_OUT.items()}
    return made | {name: make(RESULTS) for name, make in stored_tables.TABLES.items()}


def as_csv(table: str) -> str:
    """A pipe table as CSV, without marks: a mean, its deviation and an interval stay one cell."""
    head, _, *rows = table.translate(MARKS).replace("<br>", " / ").splitlines()
    text = io.StringIO()
    cells = ([cell.strip() for cell in row[1:-1].split("|")] for row in (head, *rows))
    csv.writer(text, lineterminator="\n").writerows(cells)
    return text.getvalue()


def filled(text: str, tables: dict[str, str]) -> str:
    """``text`` with every table replaced; a name that does not exist is a KeyError."""
    replace: Callable[[re.Match[str]], str] = lambda m: m[1] + tables[m[2]] + m[3]  # noqa: E731
    return PLACE.sub(replace, text)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(words).check
    old = []
    for name, text in contents(all_tables()).items():
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            old.append(name)
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print(f"{'To be written' if check else 'Written'}: {', '.join(old) or 'nothing'}")
    return int(check and bool(old))


def contents(tables: dict[str, str]) -> dict[str, str]:
    """What each page and each CSV file should hold, by its path in the repository."""
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    shown = {match[2] for text in pages.values() for match in PLACE.finditer(text)}
    files = {
        f"{TABLES}/{name}.csv": as_csv(text) for name, text in tables.items() if name not in shown
    }
    return {name: filled(text, tables) for name, text in pages.items()} | files


if __name__ == "__main__":
    sys.exit(main())
