"""What the networks of a finished study say about its test images, with and without looking at them twice.

    python benchmarks/evidence/predictions.py STUDY --out predictions

writes one .npz per run: true grades (N,), patients (N,), and probabilities (V, K, N, C) of K networks for V views
of each image: the centre crop, its mirror image, and the four crops at the corners with their mirror images.
Differences between two runs of a fold can then be resampled by patient. A second call makes only what is missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from srjt.data.augment import view_crops
from srjt.data.store import open_store
from srjt.study.folder import cell_status, read_study, run_folder, study_config
from srjt.study.source import open_data
from srjt.training.trained import load_run


def views(pixels: np.ndarray, *, crop: int) -> Iterator[np.ndarray]:
    """(N, H, W, 3) → the ten views of each, (N, crop, crop, 3), of which the network's centre crop is all."""
    for view in view_crops(10, margin=pixels.shape[1] - crop):
        (down, right), mirrored = view.offsets[0].tolist(), bool(view.flips)
        cut = pixels[:, down : down + crop, right : right + crop]
        yield np.ascontiguousarray(cut[:, :, ::-1] if mirrored else cut)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    facts = read_study(given.study)
    data = open_data(study_config(facts))
    for known in facts["cells"]:
        file = given.out / f"{known['key']}.npz"
        if file.exists() or cell_status(given.study, known["key"]) != "done":
            continue
        run = load_run(run_folder(given.study, known["key"]))
        rows = data.splits[int(known["fold"])].test
        pixels = open_store(data.manifest, size=run.config.image_size, resize=run.config.resize).pixels
        seen = np.asarray(pixels[rows])
        probabilities = np.stack([run.probabilities(view)[0] for view in views(seen, crop=run.config.crop)])
        truth = data.manifest.labels if data.manifest.true_labels is None else data.manifest.true_labels
        owners = np.array(data.manifest.patients or data.manifest.ids)
        np.savez_compressed(
            file,
            true=truth[rows],
            patients=owners[rows],
            probabilities=probabilities.astype(np.float16),
            **{name: known[name] for name in ("method", "variant", "noise", "fold", "seed")},
        )
        print(known["key"], flush=True)


if __name__ == "__main__":
    main()
