"""Speed and sameness of training on one GPU, on a set of LIMUC's size (random pixels, real shapes).

    python benchmarks/gpu_training.py same      # fast paths against the eager fp32 path: losses, selections, weights
    python benchmarks/gpu_training.py speed     # images/s through both networks: eager, graph, compiled
    python benchmarks/gpu_training.py methods   # images/s of single-network methods beside the dual rate
    python benchmarks/gpu_training.py augment   # images/s with more changes of the images than the paper's
    python benchmarks/gpu_training.py stream    # main memory instead of residence
    python benchmarks/gpu_training.py pair      # two runs at once in two processes
    python benchmarks/gpu_training.py fold      # 150 epochs, validation and test evaluated every epoch

ResNet-18 from scratch, batch 64, 224 px out of 256, co-teaching+ours unless said otherwise. An
image counts once although two networks learn from it. The first epoch of a run is left out of its
rate. ``fold --epochs 3`` shows the set-up of a long training: run it twice with SRJT_CACHE=FOLDER,
first with an empty folder. To try a command on a CPU: --network tiny --scale 0.01.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import srjt
from srjt.data import Manifest, Split
from srjt.training.reporters import BarReporter
from srjt.training.trained import Trained

METHODS = "co-teaching+ours jocor+ours codis+ours standard sord f-correction garg mixup cdr"
SIDES = (6766, 2255, 2255)  # train, validation, test of a LIMUC fold
SETTINGS = {"network": "resnet18", "pretrained": False, "noise_rate": 0.2, "step": "compiled"}
MIX = np.array([6105, 3052, 1254, 865]) / 11276


def limuc_sized(scale: float = 1.0, *, size: int = 256) -> tuple[Manifest, Split]:
    """Random images with LIMUC's class mix, 20 % of the labels wrong, and a fold's three sides."""
    counts = [max(64, int(n * scale)) for n in SIDES]
    random = np.random.default_rng(0)
    total = sum(counts)
    arrays = random.integers(0, 256, (total, size, size, 3), dtype=np.uint8)
    true = random.choice(4, total, p=MIX)
    matrix = srjt.noise.transition_matrix("quasi", num_classes=4, rho=0.1)
    names = [f"{i}.png" for i in range(total)]
    table = pd.DataFrame(
        {"id": names, "image": names, "grade": srjt.noise.corrupt(true, matrix, seed=0)}
    )
    table["true_grade"] = true
    ends = np.cumsum([0, *counts])
    rows = [np.arange(a, b) for a, b in pairwise(ends)]
    manifest = Manifest(table=table, grades=("0", "1", "2", "3"), arrays=arrays)
    return manifest, Split(train=rows[0], validation=rows[1], test=rows[2])


def run(
    data: tuple[Manifest, Split], *, only_train: bool = True, **settings: Any
) -> tuple[Trained, float]:
    """Train and give the run with the seconds it took beyond its epochs (compiling, capturing,
    set-up)."""
    manifest, split = data
    nobody = np.empty(0, dtype=np.int64)
    sides = Split(train=split.train, validation=nobody, test=nobody) if only_train else split
    torch.cuda.empty_cache()
    began = time.perf_counter()
    trained = srjt.train(manifest, split=sides, **{**SETTINGS, **settings})
    took = time.perf_counter() - began
    return trained, took - _metric(trained, "seconds").sum()


def _metric(trained: Trained, name: str) -> np.ndarray:
    table = trained.metrics
    return table.loc[(table["metric"] == name) & (table["split"] == "train"), "value"].to_numpy()


def rate(trained: Trained) -> float:
    values = _metric(trained, "images_per_second")
    return float(np.median(values[1:] if len(values) > 1 else values))


def memory(trained: Trained) -> float:
    return float(_metric(trained, "peak_memory_mb").max()) / 1024


def same(args: argparse.Namespace) -> None:
    """The second eager run is the noise floor: Adam's first steps are signs, so rounding shows at
    once."""
    manifest, split = limuc_sized(0.1 * args.scale)
    print(f"{'':30}{'loss 1':>10}{'loss 2':>10}  selections differing  ‖Δ − Δ_eager‖ / ‖Δ_eager‖")
    for steps in (1, 10):
        data = (
            manifest,
            Split(train=split.train[: 64 * steps], validation=split.validation, test=split.test),
        )
        start = _weights(
            run(data, epochs=1, learning_rate=1e-30, precision="fp32", step="eager")[0]
        )
        reference = None
        for precision, step in (
            ("fp32", "eager"),
            ("fp32", "eager"),
            ("fp32", "graph"),
            ("fp32", "compiled"),
            ("bf16", "compiled"),
        ):
            trained, _ = run(data, epochs=1, precision=precision, step=step)
            update = _weights(trained) - start
            chosen = trained.history[["selected_1", "selected_2"]].to_numpy()
            losses = trained.metrics.loc[trained.metrics["metric"] == "loss", "value"].to_numpy()
            reference = reference or (update, chosen)
            change = float((update - reference[0]).norm() / reference[0].norm())
            print(
                f"{f'{steps} steps, {precision} {step}':30}{losses[0]:10.6f}{losses[1]:10.6f}"
                f"{int((chosen != reference[1]).sum()):10d} of {chosen.size:<6d}   {change:.2e}",
                flush=True,
            )


def _weights(trained: Trained) -> torch.Tensor:
    return torch.cat([p.detach().double().flatten().cpu() for p in trained.networks.parameters()])


def speed(args: argparse.Namespace) -> None:
    data = limuc_sized(args.scale)
    base = None
    print(f"{'mode':28}{'img/s':>8}{'ratio':>8}{'memory GB':>11}{'warm-up s':>11}")
    for precision, step in (
        ("fp32", "eager"),
        ("tf32", "eager"),
        ("tf32", "graph"),
        ("bf16", "graph"),
        ("bf16", "compiled"),
    ):
        trained, apart = run(data, epochs=args.epochs, precision=precision, step=step)
        base = base or (rate(trained) if precision == "tf32" else None)
        ratio = f"{rate(trained) / base:8.2f}" if base else f"{'':8}"
        print(
            f"{f'{precision} {step}':28}{rate(trained):8.0f}{ratio}{memory(trained):11.2f}{apart:11.1f}",
            flush=True,
        )


def methods(args: argparse.Namespace) -> None:
    names = (args.only or METHODS).split()
    data = limuc_sized(args.scale)
    matrix = srjt.noise.transition_matrix("quasi", num_classes=4, rho=0.1)
    dual = None
    print(f"{'method':20}{'img/s':>8}{'of dual':>9}{'memory GB':>11}")
    for name in names:
        trained, _ = run(data, epochs=args.epochs, method=name, transition=matrix)
        dual = dual or rate(trained)
        print(
            f"{name:20}{rate(trained):8.0f}{rate(trained) / dual:9.2f}{memory(trained):11.2f}",
            flush=True,
        )


def augment(args: argparse.Namespace) -> None:
    data = limuc_sized(args.scale)
    paper = None
    for level in ("paper", "light", "strong"):
        trained, _ = run(data, epochs=args.epochs, augment=level)
        paper = paper or rate(trained)
        print(f"{level:8}{rate(trained):8.0f} img/s {rate(trained) / paper:8.1%}", flush=True)


def stream(args: argparse.Namespace) -> None:
    data = limuc_sized(args.scale)
    resident, _ = run(data, epochs=args.epochs)
    streamed, _ = run(data, epochs=args.epochs, memory_share=1e-6)
    print(
        f"resident {rate(resident):.0f} img/s, streamed {rate(streamed):.0f}: {rate(streamed) / rate(resident):.1%}"
    )


def pair(args: argparse.Namespace) -> None:
    """One process alone, then two at once. Two share the GPU better under NVIDIA's multi-process
    service."""
    command = [sys.executable, __file__, "one", *sys.argv[2:]]
    alone = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )
    together = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    both = [json.loads(process.communicate()[0].splitlines()[-1]) for process in together]
    total = sum(both)
    print(
        f"one run {alone:.0f} img/s; two at once {both[0]:.0f} + {both[1]:.0f} = {total:.0f}: {total / alone:.1%}"
    )


def one(args: argparse.Namespace) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        trained, _ = run(limuc_sized(args.scale), epochs=args.epochs)
    print(json.dumps(rate(trained)))


def fold(args: argparse.Namespace) -> None:
    reporter = BarReporter()
    with tempfile.TemporaryDirectory() as folder:
        trained, apart = run(
            limuc_sized(args.scale),
            epochs=args.epochs,
            only_train=False,
            out=Path(folder) / "run",
            reporter=reporter,
        )
    seconds = _metric(trained, "seconds")
    learning = len(trained.history) // 64 * 64 / _metric(trained, "images_per_second")
    print(
        f"{len(seconds)} epochs in {seconds.sum():.1f} s: learning {learning.sum():.1f} s, {rate(trained):.0f} img/s; "
        f"evaluation and writing {seconds.sum() - learning.sum():.1f} s; set-up (compiling, capturing, uploading, "
        f"final writing) {apart:.1f} s; peak memory {memory(trained):.2f} GB"
    )
    print(*(text for text in reporter.notes if text.startswith("Warm-up")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = {f.__name__: f for f in (same, speed, methods, augment, stream, pair, one, fold)}
    parser.add_argument("what", choices=commands)
    parser.add_argument("--epochs", type=int, help="default: 4, for fold 150")
    parser.add_argument("--only", help="methods to time, separated by spaces")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the images of LIMUC")
    parsed = parser.parse_args()
    SETTINGS["network"] = parsed.network
    parsed.epochs = parsed.epochs or (150 if parsed.what == "fold" else 4)
    print(
        f"torch {torch.__version__}, {torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU'}",
        file=sys.stderr,
    )
    commands[parsed.what](parsed)
