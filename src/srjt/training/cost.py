"""What a training will cost: its time and memory, from a few steps on zeros."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from srjt import methods, networks
from srjt.data.manifest import Manifest
from srjt.training.config import TrainConfig
from srjt.training.engine.devices import amp_dtype
from srjt.training.engine.step import make_optimizer
from srjt.training.trained import build_method, build_networks

__all__ = ["Cost", "available_memory", "step_memory", "training_cost"]

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


def step_memory(config: TrainConfig, *, batch: int) -> int:
    """Bytes that a training on images needs beyond them, computed from shapes alone: nothing is allocated.

    The weights, their gradients and moments, and the activations of a step, with their gradients.
    """
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        return tensor

    shape = (3, config.crop, config.crop)
    network = networks.build(
        str(config.network), head=lambda features: nn.Linear(features, 2), in_shape=shape
    )
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    network = network.to("meta").train()
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        output = network(torch.empty(batch, *shape, device="meta"))
    del output
    count = methods.lookup(config.method, registered_by=config.imports).networks
    return count * (COPIES * weights + 2 * sum(kept.values()))


def available_memory() -> int | None:
    """Bytes that new processes may use: of the machine, or of the container if that is less; None if not known."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    with contextlib.suppress(OSError, ValueError):  # "max" is no limit
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        found.append(max(0, limit - used))
    return min(found, default=None)
