"""What a training will cost: its time and memory, from a few steps on zeros."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from srjt.data.manifest import Manifest
from srjt.training.config import TrainConfig
from srjt.training.engine.devices import amp_dtype
from srjt.training.engine.step import make_optimizer
from srjt.training.trained import build_method, build_networks

__all__ = ["Cost", "training_cost"]

STEPS = 3  # timed, after one to warm up
CPU_BATCH = 8  # samples of a trial step on a CPU, where the time of a step grows with its samples
COPIES = 4  # of each weight: itself, its gradient, and Adam's two moments


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a training.

    Attributes
    ----------
    seconds : float
        All training steps, without evaluation, decoding and the noise estimate.
    steps : int
        Number of steps.
    network_bytes : int
        Weights, gradients and the optimiser's state of all networks.
    activation_bytes : int or None
        The most that a step needed beyond them; None where it cannot be measured.
    image_bytes : int
        All samples, decoded.
    """

    seconds: float
    steps: int
    network_bytes: int
    activation_bytes: int | None
    image_bytes: int


def training_cost(data: Manifest, config: TrainConfig, *, training: int, device: torch.device) -> Cost:
    """Time a few steps of a training of ``training`` samples. Nothing is read, written or downloaded.

    The steps run without a compiled or captured step, which are faster on a GPU.
    """
    config = config.for_data(features=data.are_features)
    if config.requested_noise_rate == "auto" or config.transition is None:
        # The noise changes what a step selects, not its time.
        config = config.replace(
            noise_rate=0.2,
            soft_labels="paper",
            transition=config.transition or torch.eye(data.num_classes).tolist(),
        )
    method = build_method(config, num_classes=data.num_classes)
    shape: tuple[int, ...] = (3, config.crop, config.crop)
    per_sample = 3 * config.image_size**2
    if data.are_features:
        assert data.arrays is not None
        shape = data.arrays.shape[1:]
        per_sample = data.arrays.itemsize * shape[0]
    networks = build_networks(config, method, in_shape=shape, with_weights=False).to(device).train()
    weights = sum(p.numel() * p.element_size() for p in networks.parameters())
    batch = min(config.batch_size, training)
    steps = training // batch * config.epochs
    tried = batch if device.type == "cuda" else min(batch, CPU_BATCH)
    x = torch.zeros(tried, *shape, device=device)
    labels = torch.arange(tried, device=device) % data.num_classes
    rate = config.learning_rate_at(1)
    optimizer = make_optimizer(
        networks.parameters(), learning_rate=rate, weight_decay=config.weight_decay, device=device
    )
    method, amp = method.to(device), amp_dtype(config, device)
    seconds = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(1 + STEPS):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, amp or torch.bfloat16, enabled=amp is not None):
            logits = networks(x)
        method.loss(logits.float(), labels, keep=tried).total.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    measured = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return Cost(
        seconds=min(seconds[1:]) * batch / tried * steps,
        steps=steps,
        network_bytes=COPIES * weights,
        activation_bytes=None if measured is None else max(0, measured - COPIES * weights),
        image_bytes=len(data) * per_sample,
    )
