"""What the networks of a finished study say about its test images, with and without looking at them
twice.

    python benchmarks/evidence/predictions.py STUDY --out predictions

writes one table per run, a line per test image: its patient, its true grade, and the grades by each
network and by both (the mean of their probabilities), from one view of the image, from two and from
ten (``srjt predict --views``). Differences between two runs of a fold can then be resampled by
patient. A second call makes only what is missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.data.images.store import open_store
from srjt.errors import SrjtError
from srjt.files import write_atomically
from srjt.studies.folder import read_study, run_folder, run_status
from srjt.studies.plan import open_data
from srjt.training.trained import Trained, load_run


def answers(run: Trained, pixels: np.ndarray) -> dict[str, np.ndarray]:
    """(N, H, W, 3) images → grades (N,) by how many views and whose they are."""
    found: dict[str, np.ndarray] = {}
    for views in (1, 2, 10):
        probabilities, grades = run.probabilities(pixels, views=views)  # by network
        found |= {f"views {views}, network {k + 1}": one for k, one in enumerate(grades)}
        both = probabilities.mean(axis=0).argmax(axis=-1)
        found[f"views {views}, both"] = (
            both if len(grades) > 1 else grades[0]
        )  # one decides by its own rule
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    study = read_study(given.study)
    data = open_data(study.study.config())
    for known in study.cells:
        file = given.out / f"{known.key}.csv"
        if file.exists() or run_status(given.study, known.key) != "done":
            continue
        run = load_run(run_folder(given.study, known.key))
        rows = data.splits[int(known.fold)].test
        pixels = open_store(
            data.manifest, size=run.config.image_size, resize=run.config.resize
        ).pixels
        truth = (
            data.manifest.labels if data.manifest.true_labels is None else data.manifest.true_labels
        )
        owners = np.array(data.manifest.patients or data.manifest.ids)
        of_run = known.model_dump(exclude={"key"})
        of_image = {"patient": owners[rows], "true": truth[rows]}
        table = pd.DataFrame({**of_image, **answers(run, np.asarray(pixels[rows]))}).assign(
            **of_run
        )
        write_atomically(
            file, table.to_csv(index=False).encode()
        )  # half a table would count as made
        print(known.key, flush=True)


if __name__ == "__main__":
    try:
        main()
    except SrjtError as problem:
        raise SystemExit(str(problem)) from None
