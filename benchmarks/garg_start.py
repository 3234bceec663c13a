"""What the start of Garg's biases is worth, at several lengths: simulated rows, four starts.

    python benchmarks/garg_start.py --out FILE        # some minutes on one core; --help names its parts

Grades lie along a curve in three of sixteen features. A small network learns from labels with quasi
noise, as the paper trains: Adam at 1e-4 with L2 regularisation, batches of 64, the rate × 0.1 at
60, 80 and 93 % of the epochs. The starts:

    zeros      all biases at 0: the authors' training script, `--convention published-code`
    1 to -1    equally spaced from 1 to −1, which no publication has
    spaced 4   a distance of 4 between neighbours, as srjt had it before
    ours       a distance of 2, and biases that learn 100 times as fast

Ours was chosen on the seeds 0 and 1, with 400, 1,500 and 2,000 rows of four and five grades, among
distances of 0, 1, 2, 3 and 4, the log-odds of the labels' frequencies, and speeds of 1, 30, 100 and
300; the seeds here are others.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from srjt import methods, noise
from srjt.methods.single import OrdinalHead
from srjt.ordinal.metrics import METRICS, confusion_matrix

SEEDS = (100, 101, 102)
WIDTH = 512
LENGTHS = (20, 60, 150)
ROWS = (400,)
# name → share of each grade, ρ of the quasi noise
SETTINGS = {
    "4 grades": ((0.54, 0.27, 0.11, 0.08), 0.2),
    "5 grades": ((0.4, 0.2, 0.2, 0.12, 0.08), 0.1),
}
STARTS = ("zeros", "1 to -1", "spaced 4", "ours")


def rows(
    count: int, shares: tuple[float, ...], spread: float, random: np.random.Generator
) -> tuple[torch.Tensor, np.ndarray]:
    """(N, 16) features, (N,) true grades."""
    true = random.choice(len(shares), count, p=shares)
    angle = 2.8 * true / (len(shares) - 1)
    shown = np.stack([4.0 * true / (len(shares) - 1), 2 * np.cos(angle), 2 * np.sin(angle)], axis=1)
    x = np.concatenate(
        [shown + spread * random.normal(size=(count, 3)), random.normal(size=(count, 13))], axis=1
    )
    return torch.tensor(x, dtype=torch.float32), true


def head_of(start: str, method: methods.Method, classes: int) -> nn.Module:
    """The last layer with this start."""
    if start == "1 to -1":
        return OrdinalHead(WIDTH, classes, spacing=2.0 / (classes - 2))
    if start == "spaced 4":
        return OrdinalHead(WIDTH, classes, spacing=4.0)
    return method.head(WIDTH, classes)  # the convention decides


def train(start: str, setting: str, *, count: int, epochs: int, seed: int) -> dict[str, object]:
    """One training; its scores on 2,000 other rows with their true grades."""
    shares, rho = SETTINGS[setting]
    classes = len(shares)
    matrix = noise.transition_matrix("quasi", num_classes=classes, rho=rho)
    convention = "published-code" if start == "zeros" else "paper"
    method = methods.create("garg", num_classes=classes, transition=matrix, convention=convention)
    random = np.random.default_rng(seed)
    x, true = rows(count, shares, 0.5, random)
    unseen, truth = rows(2000, shares, 0.5, random)
    labels = torch.from_numpy(noise.corrupt(true, matrix, seed=seed))
    torch.manual_seed(seed)
    head = head_of(start, method, classes)
    network = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, WIDTH), nn.ReLU(), head)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4, weight_decay=1e-4, fused=True)
    milestones = [round(epochs * milestone / 150) for milestone in (90, 120, 140)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, gamma=0.1)
    for _ in range(epochs):
        for batch in torch.randperm(count)[: count // 64 * 64].split(64):
            optimiser.zero_grad()
            method.loss(network(x[batch])[None], labels[batch]).total.backward()
            optimiser.step()
        schedule.step()
    with torch.no_grad():
        grades = method.grades(network(unseen)[None])[0].numpy()
    counts = confusion_matrix(truth, grades, num_classes=classes)
    return {
        "grades": setting,
        "rows": count,
        "epochs": epochs,
        "seed": seed,
        "start": start,
        "accuracy": round(METRICS["accuracy"](counts), 5),
        "MAE": round(METRICS["mae"](counts), 5),
        "macro_f1": round(METRICS["macro_f1"](counts), 5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seed", type=int, action="append", help="repeatable; default: 100, 101 and 102"
    )
    parser.add_argument("--rows", type=int, action="append", help="repeatable; default: 400")
    parser.add_argument(
        "--setting", action="append", choices=SETTINGS, help="repeatable; default: all"
    )
    parser.add_argument(
        "--out", type=Path, help="a CSV file with a row for each training; more rows are appended"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of an ill-conditioned matrix
    torch.set_num_threads(1)
    found = pd.read_csv(given.out) if given.out and given.out.exists() else pd.DataFrame()
    cells = itertools.product(
        given.rows or ROWS, given.seed or SEEDS, given.setting or SETTINGS, LENGTHS
    )
    for count, seed, setting, epochs in cells:
        made = [train(start, setting, count=count, epochs=epochs, seed=seed) for start in STARTS]
        shown = ", ".join(f"{row['start']} {row['MAE']:.3f}" for row in made)
        print(f"{setting}, {count} rows, {epochs} epochs, seed {seed}: {shown}", flush=True)
        found = pd.concat([found, pd.DataFrame(made)])
        if given.out:
            found.to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
