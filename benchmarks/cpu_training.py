"""What the trainer costs on a CPU over a bare PyTorch loop of the same step, and what the choice of
kernels and layout gains.

    python benchmarks/cpu_training.py             # both parts, about two minutes on two cores

Part 1 alternates the two programs and compares medians, so that a busy machine slows both alike.
Part 2 times the layouts, with oneDNN in both passes, in neither, and in the forward pass only: what
``srjt.training.devices`` fixes per processor.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch.nn import functional as F

import srjt
from srjt import networks
from srjt.data import Manifest
from srjt.data.images.feed import crop_and_flip, normalise
from srjt.data.synthetic import generate
from srjt.training.batches import draw_plan
from srjt.training.devices import backward_kernels, channels_last

SIZE, CROP, BATCH, EPOCHS, NOISE_RATE = 64, 56, 64, 2, 0.2


def bare(data: Manifest) -> float:
    """co-teaching+ours as one would write it by hand, with nothing recorded; images/s."""
    torch.manual_seed(0)
    pixels, labels = torch.from_numpy(data.arrays), torch.from_numpy(data.labels)
    nets = [
        channels_last(
            networks.build(
                "tiny", head=lambda f: torch.nn.Linear(f, 4), in_shape=(3, CROP, CROP), seed=k
            )
        )
        for k in (0, 1)
    ]
    optimiser = torch.optim.Adam(
        [p for net in nets for p in net.parameters()], lr=1e-4, weight_decay=1e-4, fused=True
    )
    soft = torch.softmax(-(torch.arange(4.0)[:, None] - torch.arange(4.0)).abs(), dim=1)
    seen, began = 0, time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        plan = draw_plan(len(labels), batch_size=BATCH, epoch=epoch, seed=0, margin=SIZE - CROP)
        keep = -int(-BATCH * (1 - NOISE_RATE * min(epoch / 5, 1)) // 1)
        for rows, offsets, flips in zip(plan.rows, plan.offsets, plan.flips, strict=True):
            x = normalise(crop_and_flip(pixels[rows], offsets, flips, size=CROP))
            y = labels[rows]
            outputs = [net(x) for net in nets]
            chosen = [
                F.cross_entropy(o.detach() / 0.1, y, reduction="none").argsort()[:keep]
                for o in outputs
            ]
            loss = sum(
                -(soft[y[other]] * F.log_softmax(output[other], dim=1)).sum(dim=1).mean()
                for output, other in zip(outputs, reversed(chosen), strict=True)
            )
            optimiser.zero_grad()
            with backward_kernels(nets[0], x.device):
                loss.backward()
            optimiser.step()
            seen += BATCH
    return seen / (time.perf_counter() - began)


def ours(data: Manifest) -> float:
    run = srjt.train(
        data, network="tiny", noise_rate=NOISE_RATE, image_size=SIZE, crop=CROP, batch_size=BATCH, epochs=EPOCHS,
        device="cpu",
    )  # fmt: skip
    rates = run.metrics.loc[run.metrics["metric"] == "images_per_second", "value"]
    return len(rates) / sum(1 / r for r in rates)


def overhead(repeats: int) -> None:
    data = generate(images=1920, patients=100, size=SIZE)
    bare(data), ours(data)  # warm
    pairs = [(bare(data), ours(data)) for _ in range(repeats)]
    ratios = [b / o for b, o in pairs]
    theirs, own = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    print(f"bare loop {theirs:.0f} img/s, trainer {own:.0f}")
    print(
        f"time of the trainer / time of the bare loop: median {statistics.median(ratios):.3f} of {repeats}, "
        f"from {min(ratios):.3f} to {max(ratios):.3f}"
    )


def seconds_per_step(
    network: torch.nn.Module, x: torch.Tensor, *, forward: bool, backward: bool
) -> float:
    """CPU seconds of the fastest of three steps; forward, backward: whether the pass uses
    oneDNN."""
    mkldnn, best = torch.backends.mkldnn, float("inf")
    for _ in range(3):
        start = time.process_time()
        mkldnn.enabled = forward
        loss = network(x).square().mean()
        mkldnn.enabled = backward
        loss.backward()
        mkldnn.enabled = True
        best = min(best, time.process_time() - start)
    return best


def kernels() -> None:
    for name in ("tiny", "resnet18", "efficientnet-b0"):
        times = {}
        for layout in ("contiguous", "channels last"):
            network = networks.build(
                name, head=lambda f: torch.nn.Linear(f, 4), in_shape=(3, CROP, CROP)
            )
            x = torch.zeros(8, 3, CROP, CROP)
            if layout == "channels last":
                network, x = channels_last(network), x.contiguous(memory_format=torch.channels_last)
            for passes, (forward, backward) in {
                "both": (True, True), "neither": (False, False), "forward": (True, False)
            }.items():  # fmt: skip
                times[layout, passes] = seconds_per_step(
                    network, x, forward=forward, backward=backward
                )
        base = times["contiguous", "both"]
        for (layout, passes), seconds in times.items():
            print(
                f"{name:16}{layout:15}oneDNN in {passes:8}{base / seconds:6.2f} of torch's default"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parsed = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    overhead(parsed.repeats)
    kernels()
