"""Make the tables of docs/results.md, and the marks in them, from the stored results.

    python benchmarks/evidence/marks.py        # a minute on one core, no GPU

prints the comparison, the ablation, the paired tests and the pooled ones of the studies, then the differences on the
held-out patients: with one view, with ten, and with the best other method, chosen on other patients.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import compare

from srjt.reports.pages.study_page import read_size_ratio
from srjt.reports.tables.study_tables import study_tables
from srjt.studies.results import collect_results

RESULTS = Path(__file__).parent / "results"
HELD_OUT = (["--views", "1"], ["--views", "10"], ["--views", "1", "--best"], ["--views", "10", "--best"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for archive in ("eyepacs.tar.xz", "deepdrid.tar.xz"):
            with tarfile.open(RESULTS / archive) as file:
                file.extractall(folder, filter="data")
        for study in ("eyepacs", "deepdrid", "ablation"):
            results = collect_results(Path(folder) / study)
            for table in study_tables(results, test_train_ratio=read_size_ratio(results.folder)):
                if study != "ablation" or table.slug.startswith("ablation"):  # its other rows are deepdrid's
                    print(table.markdown())
    for options in HELD_OUT:
        print(f"### Held-out patients, srjt against others, {' '.join(options)}\n")
        compare.main([str(RESULTS / "held_out.csv.xz"), "--of", "srjt", *options])
        print()


if __name__ == "__main__":
    main()
