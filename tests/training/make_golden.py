"""Write golden.json again: the losses of the first epoch of a small training, for several methods.

Run it only when a value is *meant* to change, and say in the change why:

    python tests/training/make_golden.py
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import srjt
from srjt import noise
from srjt.data import folds
from srjt.data.splits import corrupt_sides
from srjt.data.synthetic import generate

FILE = Path(__file__).with_name("golden.json")
SINGLE = ("standard", "sord", "f-correction", "mixup", "cdr", "garg")
METHODS = (*SINGLE, "co-teaching", "jocor+ours", "co-teaching+ours")


def network() -> nn.Module:
    """Written here, so that the values stay when the built-in small network is improved."""
    first = nn.Conv2d(3, 16, 5, stride=4), nn.BatchNorm2d(16), nn.ReLU()
    return nn.Sequential(*first, nn.Conv2d(16, 32, 3), nn.Flatten())


@cache
def noisy_data() -> tuple[Any, Any, Any]:
    """The images with noisy labels, the split, and the matrix of the noise."""
    clean = generate(images=130, patients=20, size=32)
    split = folds(clean, folds=5, by="stratified")[0]
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.2)
    return corrupt_sides(clean, split, matrix, seed=0)[0], split, matrix


def first_epoch(method: str) -> dict[str, list[float]]:
    """Each network's mean loss over the first epoch, and how clean its selection was."""
    data, split, matrix = noisy_data()
    settings = {"image_size": 32, "crop": 28, "epochs": 1, "batch_size": 16, "learning_rate": 1e-3}
    known = {"split": split, "noise_rate": 0.4, "transition": matrix, "device": "cpu"}
    run = srjt.train(data, method=method, network=network, **known, **settings)
    train = run.metrics[run.metrics["split"] == "train"].groupby("metric")["value"]
    return {name: train.get_group(name).tolist() for name in ("loss", "label_precision")}


if __name__ == "__main__":
    torch.set_num_threads(1)
    FILE.write_text(
        json.dumps({method: first_epoch(method) for method in METHODS}, indent=1) + "\n"
    )
