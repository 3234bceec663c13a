"""What the networks of a finished study say about its test images, with and without looking at them twice.

    python benchmarks/evidence/predictions.py STUDY --out predictions

writes one .npz per run: true grades (N,), patients (N,), and probabilities (V, K, N, C) of K networks for V views
of each image: the centre crop, its mirror image, and the four crops towards the corners with their mirror images.
Differences between two runs of a fold can then be resampled by patient. A second call makes only what is missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from srjt.data.store import open_store
from srjt.study.folder import cell_status, read_study, run_folder, study_config
from srjt.study.source import open_data
from srjt.training.trained import load_run


def views(pixels: np.ndarray, *, shift: int) -> list[np.ndarray]:
    """(N, H, W, 3) moved, so that the centre crop shows another part; each plain and mirrored."""
    moved = [pixels] + [
        np.roll(pixels, (down, right), axis=(1, 2)) for down in (-shift, shift) for right in (-shift, shift)
    ]
    return [way for one in moved for way in (one, one[:, :, ::-1])]


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
        shift = (run.config.image_size - run.config.crop) // 2
        seen = np.asarray(pixels[rows])
        probabilities = np.stack(
            [run.probabilities(np.ascontiguousarray(view))[0] for view in views(seen, shift=shift)]
        )
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
