"""The same training three ways in one run: the published repository's manner, a plain PyTorch loop,
ours.

    python benchmarks/side_by_side.py                                                      # GPU, ResNet-18, 224 px
    python benchmarks/side_by_side.py --device cpu --size 72 --crop 64 --samples 640       # two CPU cores

published  written by us from the description of the published code: one BMP file per image, opened,
resized,
           cropped and flipped by loader workers at every epoch; two optimisers; the losses go to
           the host, which ranks them; the two networks one after the other
plain      what a careful person writes: images decoded once and held on the device, cropped there; one optimiser;
           ranking on the device; eager, TF32 where the GPU has it
ours       srjt.train as it comes

All learn co-teaching+ours from random images with the same shapes. Images count once although two
networks learn from them. The first epoch of each is left out; a fold is worked out for 150 epochs
of LIMUC's 6,766 training images.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import srjt
from srjt import networks
from srjt.data import Manifest
from srjt.data.images.feed import crop_and_flip, normalise
from srjt.training.batches import draw_plan

BATCH, CLASSES, NOISE_RATE, TAU = 64, 4, 0.2, 0.1
FOLD = 150 * 6766  # images that a fold of the paper's protocol learns from
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
SOFT = torch.softmax(-(torch.arange(CLASSES)[:, None] - torch.arange(CLASSES)).abs().float(), dim=1)


class Files(Dataset[tuple[Tensor, int]]):
    """Image files, prepared anew at each access."""

    def __init__(self, paths: list[Path], labels: np.ndarray, *, size: int, crop: int) -> None:
        self.paths, self.labels, self.size, self.crop = paths, labels, size, crop

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        with Image.open(self.paths[row]) as file:
            picture = file.convert("RGB").resize((self.size, self.size))
        left, top = np.random.randint(0, self.size - self.crop + 1, 2)
        picture = picture.crop((left, top, left + self.crop, top + self.crop))
        if np.random.rand() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        values = (np.asarray(picture, np.float32) / 255 - MEAN) / STD
        return torch.from_numpy(values).permute(2, 0, 1), int(self.labels[row])


def pair_of_networks(args: argparse.Namespace) -> list[nn.Module]:
    return [
        networks.build(
            args.network,
            head=lambda f: nn.Linear(f, CLASSES),
            in_shape=(3, args.crop, args.crop),
            seed=k,
        ).to(args.device)
        for k in (0, 1)
    ]


def keep_at(epoch: int) -> int:
    return int(np.ceil(BATCH * srjt.ordinal.keep_rate(epoch, noise_rate=NOISE_RATE)))


def soft_loss(output: Tensor, labels: Tensor) -> Tensor:
    return -(SOFT.to(output.device)[labels] * F.log_softmax(output, dim=1)).sum(dim=1).mean()


def published(args: argparse.Namespace, pixels: np.ndarray, labels: np.ndarray) -> Iterator[float]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{row}.bmp" for row in range(len(pixels))]
        for path, picture in zip(paths, pixels, strict=True):
            Image.fromarray(picture).save(path)
        loader = DataLoader(
            Files(paths, labels, size=args.size, crop=args.crop),
            batch_size=BATCH,
            shuffle=True,
            drop_last=True,
            num_workers=args.workers,
            pin_memory=args.device == "cuda",
        )
        nets = pair_of_networks(args)
        optimisers = [
            torch.optim.Adam(net.parameters(), lr=1e-4, weight_decay=1e-4) for net in nets
        ]
        for epoch in range(1, args.epochs + 1):
            began, running = time.perf_counter(), 0.0
            for x, y in loader:
                x, y = x.to(args.device), y.to(args.device)
                outputs = [net(x) for net in nets]
                chosen = [
                    np.argsort(
                        F.cross_entropy(o / TAU, y, reduction="none").detach().cpu().numpy()
                    )[: keep_at(epoch)]
                    for o in outputs
                ]
                for output, other, optimiser in zip(
                    outputs, reversed(chosen), optimisers, strict=True
                ):
                    rows = torch.from_numpy(other.copy()).to(args.device)
                    loss = soft_loss(output[rows], y[rows])
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                    running += loss.item()
            yield len(loader) * BATCH / (time.perf_counter() - began)


def plain(args: argparse.Namespace, pixels: np.ndarray, labels: np.ndarray) -> Iterator[float]:
    store, truth = (
        torch.from_numpy(pixels).to(args.device),
        torch.from_numpy(labels).to(args.device),
    )
    nets = pair_of_networks(args)
    optimiser = torch.optim.Adam(
        [p for net in nets for p in net.parameters()], lr=1e-4, weight_decay=1e-4
    )
    torch.set_float32_matmul_precision("high")
    for epoch in range(1, args.epochs + 1):
        plan = draw_plan(
            len(labels), batch_size=BATCH, epoch=epoch, seed=0, margin=args.size - args.crop
        )
        began = time.perf_counter()
        for rows, offsets, flips in zip(plan.rows, plan.offsets, plan.flips, strict=True):
            rows, offsets, flips = (t.to(args.device) for t in (rows, offsets, flips))
            x, y = (
                normalise(crop_and_flip(store[rows], offsets, flips, size=args.crop)),
                truth[rows],
            )
            outputs = [net(x) for net in nets]
            with torch.no_grad():
                chosen = [
                    F.cross_entropy(o / TAU, y, reduction="none").argsort()[: keep_at(epoch)]
                    for o in outputs
                ]
            loss = sum(
                soft_loss(o[c], y[c]) for o, c in zip(outputs, reversed(chosen), strict=True)
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if args.device == "cuda":
            torch.cuda.synchronize()
        yield len(plan) * BATCH / (time.perf_counter() - began)


def ours(args: argparse.Namespace, pixels: np.ndarray, labels: np.ndarray) -> Iterator[float]:
    names = [str(row) for row in range(len(labels))]
    table = pd.DataFrame({"id": names, "image": names, "grade": labels})
    run = srjt.train(
        Manifest(table=table, grades=("0", "1", "2", "3"), arrays=pixels),
        network=args.network, pretrained=False, noise_rate=NOISE_RATE, device=args.device, epochs=args.epochs,
        image_size=args.size, crop=args.crop, step="compiled" if args.device == "cuda" else "eager",
    )  # fmt: skip
    yield from run.metrics.loc[run.metrics["metric"] == "images_per_second", "value"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--samples", type=int, default=6766)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--only", choices=("published", "plain", "ours"))
    args = parser.parse_args()
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (args.samples, args.size, args.size, 3), dtype=np.uint8)
    labels = random.integers(0, CLASSES, args.samples)
    print(
        f"torch {torch.__version__}, {args.device}, {args.network}, {args.crop} px, batch {BATCH}"
    )
    print(f"{'':12}{'img/s':>9}{'of plain':>10}{'fold, min':>11}{'GPU memory, GB':>16}")
    rates = {}
    for way in (plain, published, ours):
        if args.only and way.__name__ != args.only:
            continue
        if args.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        rate = float(np.median(list(way(args, pixels, labels))[1:]))
        rates[way.__name__] = rate
        memory = (
            f"{torch.cuda.max_memory_reserved() / 2**30:16.1f}"
            if args.device == "cuda"
            else f"{'–':>16}"
        )
        ratio = f"{rate / rates['plain']:10.2f}" if "plain" in rates else f"{'':10}"
        print(f"{way.__name__:12}{rate:9.0f}{ratio}{FOLD / rate / 60:11.1f}{memory}", flush=True)


if __name__ == "__main__":
    main()
