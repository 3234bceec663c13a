"""What a training will cost: its time, from a few steps on noise, and its memory, from shapes alone."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from srjt import methods, networks
from srjt.data.manifest import Manifest
from srjt.data.splits import Split
from srjt.training.checkpoint import MetricRow
from srjt.training.config import TrainConfig
from srjt.training.reporters import BarReporter
from srjt.training.single_run import single_run
from srjt.training.trained import Setup

STEPS, GPU_STEPS = 2, 30  # of an epoch; a step takes milliseconds on a GPU
CPU_BATCH = 8  # samples of a trial step on a CPU, where the time of a step grows with its samples
MEMORY = Path("/proc/meminfo")
COPIES = 4  # of each weight: itself, its gradient, and Adam's two moments


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The time of a training, without decoding and the noise estimate."""

    steps: int
    seconds: float  # of all training steps
    evaluation_seconds: float  # of the evaluations after every epoch


class _LastEpoch(BarReporter):
    """Keeps the numbers of the last epoch."""

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        self.numbers = {row.metric: row.value for row in rows if row.split == "train"}


def training_cost(
    data: Manifest,
    config: TrainConfig,
    *,
    training: int,
    evaluated: int = 0,
    device: torch.device,
    cpu_batch: int = CPU_BATCH,
) -> Cost:
    """Time a few steps of a training of ``training`` samples, with ``evaluated`` others evaluated after every epoch.

    The second epoch of a short training on noise is timed; nothing is read, written or downloaded. On a GPU the step
    is captured as in a training, but not compiled, which makes a long training faster and takes up to a minute.
    """
    config = config.for_data(features=data.are_features)
    batch = min(config.batch_size, training)
    on_gpu = device.type == "cuda"
    tried = batch if on_gpu else min(batch, cpu_batch)
    trial = config.replace(
        epochs=2,
        batch_size=tried,
        pretrained=False,
        weights=None,
        keep="last",
        step="graph" if config.step == "compiled" else config.step,
        # the noise changes what a step selects, not its time
        noise_rate=0.2,
        soft_labels="paper",
        transition=config.transition or torch.eye(data.num_classes).tolist(),
    )
    count = tried * (GPU_STEPS if on_gpu else STEPS)
    split = Split(train=np.arange(count), validation=np.arange(count, 2 * count), test=np.arange(0))
    last = _LastEpoch()
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        single_run(
            _noise(data, 2 * count, size=config.image_size),
            config=trial,
            setup=Setup(split=split, device=str(device), reporter=last),
        )
    steps = training // batch * config.epochs
    per_sample = 1 / last.numbers["images_per_second"]
    per_evaluated = last.numbers["seconds"] / count - per_sample
    return Cost(
        steps=steps,
        seconds=per_sample * batch * steps,
        evaluation_seconds=per_evaluated * evaluated * config.epochs,
    )


def _noise(data: Manifest, count: int, *, size: int) -> Manifest:
    """``count`` samples of the same shape and grades as those of ``data``."""
    draws = np.random.default_rng(0)
    arrays: npt.NDArray[np.float32] | npt.NDArray[np.uint8]
    if data.are_features:
        assert data.arrays is not None
        arrays = draws.normal(size=(count, *data.arrays.shape[1:])).astype(np.float32)
    else:
        arrays = draws.integers(0, 256, size=(count, size, size, 3), dtype=np.uint8)
    names = [str(row) for row in range(count)]
    table = pd.DataFrame({"id": names, "image": names, "grade": np.arange(count) % data.num_classes})
    return Manifest(table=table, grades=data.grades, arrays=arrays)


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
    """Bytes of the machine that new processes may use; None where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in MEMORY.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
