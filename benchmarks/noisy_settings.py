"""Settings with real networks: noise injected into images, and out-of-fold probabilities.

    python benchmarks/noisy_settings.py --out settings
    python benchmarks/noise_estimation.py --probabilities settings/*.npz
    python benchmarks/label_errors.py --probabilities settings/*.npz

A setting is a kind and a rate of noise that was injected into grades taken as true. Its
probabilities come from networks that were trained on the noisy labels of other patients; they are
kept as .npz files with labels, true (N,), probabilities (N, C), groups (N,), kind, rate, and matrix
(C, C), the one that was injected. Files of your own networks can be given to the two benchmarks
likewise.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from srjt import noise


@dataclass(frozen=True, kw_only=True)
class Setting:
    kind: str
    rate: float
    labels: npt.NDArray[np.int64]
    true: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float64]
    groups: npt.NDArray[np.str_]
    matrix: npt.NDArray[np.float64]

    @property
    def wrong(self) -> npt.NDArray[np.bool_]:
        return self.labels != self.true


KINDS, RATES = ("quasi", "truncated"), (0.1, 0.2, 0.3, 0.4)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "--data", default="synthetic", help="synthetic, or what srjt train reads"
    )
    arguments.add_argument(
        "--seed", type=int, default=0, help="of the synthetic data, noise, folds, networks"
    )
    arguments.add_argument("--method", default="standard")
    arguments.add_argument(
        "--network", help="default: tiny for the synthetic data, else as srjt train"
    )
    arguments.add_argument("--weights", help="a file of pretrained weights")
    arguments.add_argument("--size", type=int, help="pixels that images are reduced to")
    arguments.add_argument("--crop", type=int, help="pixels that the network sees of them")
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--device")
    arguments.add_argument("--out", type=Path, required=True, help="a folder for the settings")
    given = arguments.parse_args()
    for kind, rate in product(KINDS, RATES):
        file = given.out / f"{kind}-{rate:g}.npz"
        if not file.exists():
            write(file, trained(given, kind, rate))


def trained(given: argparse.Namespace, kind: str, rate: float) -> Setting:
    from srjt.data import read as read_data
    from srjt.data.synthetic import generate
    from srjt.training.config import TrainConfig
    from srjt.training.crossfit import cross_fit
    from srjt.training.trained import Setup

    own = {
        "network": given.network,
        "weights": given.weights,
        "image_size": given.size,
        "crop": given.crop,
    }
    own = {name: value for name, value in own.items() if value is not None}
    if given.data == "synthetic":
        clean = generate(images=1500, patients=150, seed=given.seed)
        own = {"network": "tiny", "image_size": 64, "crop": 60, "learning_rate": 2e-3} | own
    else:
        clean = read_data(given.data)
    matrix = np.eye(clean.num_classes)
    if rate:
        rho = noise.rho_for_rate(kind, rate=rate, class_counts=clean.class_counts)
        matrix = noise.transition_matrix(kind, num_classes=clean.num_classes, rho=rho)
    labels = noise.corrupt(clean.labels, matrix, seed=given.seed, ids=clean.ids)
    config = TrainConfig(method=given.method, epochs=given.epochs, seed=given.seed, **own)
    fit = cross_fit(
        clean.with_noisy_labels(labels),
        config=config,
        setup=Setup(device=given.device, on_bad_image="skip"),
    )
    row_of = {sample: row for row, sample in enumerate(clean.ids)}
    rows = [row_of[sample] for sample in fit.manifest.ids]
    return Setting(
        kind=kind,
        rate=rate,
        labels=labels[rows],
        true=clean.labels[rows],
        probabilities=fit.probabilities,
        groups=np.array(fit.manifest.patients or fit.manifest.ids),
        matrix=matrix,
    )


def write(file: Path, setting: Setting) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **vars(setting))


def read(file: Path) -> Setting:
    with np.load(file) as kept:
        arrays = {
            name: kept[name] for name in ("labels", "true", "probabilities", "groups", "matrix")
        }
        return Setting(kind=str(kept["kind"]), rate=float(kept["rate"]), **arrays)


if __name__ == "__main__":
    main()
