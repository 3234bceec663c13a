"""What the start of Garg's biases is worth: simulated rows, the published start and ours.

    python benchmarks/garg_start.py [--out FILE]       # about two minutes on one core

Grades lie along a curve in three of sixteen features, blurred a little or a lot. A small network learns from noisy
labels for 20 epochs with Adam at 1e-4, the default. The seeds are not those on which the start was chosen.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from srjt import methods, noise

SEEDS = range(100, 105)
WIDTH = 512
# name → share of each grade, noise, ρ
SETTINGS = {
    "5 grades": ((0.4, 0.2, 0.2, 0.12, 0.08), "quasi", 0.1),
    "5 grades, truncated": ((0.4, 0.2, 0.2, 0.12, 0.08), "truncated", 0.2),
    "5 grades, 73 % of one": ((0.73, 0.07, 0.15, 0.03, 0.02), "quasi", 0.1),
    "4 grades": ((0.4, 0.3, 0.2, 0.1), "quasi", 0.1),
    "10 grades": ((0.1,) * 10, "quasi", 0.05),
}


def rows(
    count: int, shares: tuple[float, ...], spread: float, random: np.random.Generator
) -> tuple[torch.Tensor, np.ndarray]:
    """(N, 16) features, (N,) true grades."""
    true = random.choice(len(shares), count, p=shares)
    angle = 2.8 * true / (len(shares) - 1)
    shown = np.stack([4.0 * true / (len(shares) - 1), 2 * np.cos(angle), 2 * np.sin(angle)], axis=1)
    x = np.concatenate([shown + spread * random.normal(size=(count, 3)), random.normal(size=(count, 13))], axis=1)
    return torch.tensor(x, dtype=torch.float32), true


def errors(
    method: methods.Method, shares: tuple[float, ...], matrix: np.ndarray, spread: float, seed: int
) -> tuple[float, float]:
    """The MAE of the method's grades on 2,000 other rows, and how far a bias moved."""
    random = np.random.default_rng(seed)
    x, true = rows(2000, shares, spread, random)
    unseen, truth = rows(2000, shares, spread, random)
    labels = torch.from_numpy(noise.corrupt(true, matrix, seed=seed))
    torch.manual_seed(seed)
    head = method.head(WIDTH, len(shares))
    network = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, WIDTH), nn.ReLU(), head)
    start = head.bias.detach().clone()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)
    for _ in range(20):
        for batch in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            method.loss(network(x[batch])[None], labels[batch]).total.backward()
            optimiser.step()
    with torch.no_grad():
        grades = method.grades(network(unseen)[None])[0].numpy()
        return float(np.abs(grades - truth).mean()), float((head.bias - start).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a CSV file with a row for each training")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of an ill-conditioned matrix, which is one of the settings
    torch.set_num_threads(1)
    print(f"{'':24}{'spread':>7}{'published start':>17}{'our start':>11}   MAE, mean of {len(SEEDS)} seeds")
    trainings: list[dict[str, object]] = []
    for name, (shares, kind, rho) in SETTINGS.items():
        matrix = noise.transition_matrix(kind, num_classes=len(shares), rho=rho)
        for spread in (0.3, 0.8):
            found = {}
            for convention in ("published-code", "paper"):
                method = methods.create("garg", num_classes=len(shares), transition=matrix, convention=convention)
                found[convention] = np.array([errors(method, shares, matrix, spread, seed) for seed in SEEDS])
            trainings += [
                {"grades": name, "spread": spread, "seed": seed, "start": convention, "MAE": round(mae, 5)}
                for convention, values in found.items()
                for seed, mae in zip(SEEDS, values[:, 0], strict=True)
            ]
            (old, old_moved), (new, new_moved) = (found[c].mean(axis=0) for c in found)
            better = int((found["paper"][:, 0] < found["published-code"][:, 0]).sum())
            print(
                f"{name:24}{spread:7}{old:17.3f}{new:11.3f}   lower in {better} of {len(SEEDS)}; "
                f"biases moved by {old_moved:.3f} and {new_moved:.3f}",
                flush=True,
            )
    if given.out:
        pd.DataFrame(trainings).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
