"""Keep what the tables of a study need, small enough for a repository.

    python benchmarks/evidence/pack.py results/deepdrid.tar.xz deepdrid ablation

packs studies without weights, checkpoints and the history of single samples; the numbers of
metrics.csv are rounded to six digits. ``srjt report`` makes the same tables and figures from the
unpacked folders.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from pathlib import Path

import pandas as pd

WANTED = ("study.json", "splits.csv", "noise/*.json", "runs/*/*.json", "runs/*/metrics.csv")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archive", type=Path)
    parser.add_argument("studies", type=Path, nargs="+")
    given = parser.parse_args()
    with tarfile.open(given.archive, "w:xz", preset=9) as archive:
        for study in given.studies:
            for file in sorted(path for pattern in WANTED for path in study.glob(pattern)):
                content = _rounded(file) if file.name == "metrics.csv" else file.read_bytes()
                entry = tarfile.TarInfo(str(Path(study.name) / file.relative_to(study)))
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    print(f"{given.archive}: {given.archive.stat().st_size / 1024:.0f} KiB")


def _rounded(file: Path) -> bytes:
    table = pd.read_csv(
        file, dtype=str, keep_default_na=False
    )  # an empty network stays empty, nan stays nan
    table["value"] = [f"{float(value):.6g}" for value in table["value"]]
    return table.to_csv(index=False).encode()


if __name__ == "__main__":
    main()
