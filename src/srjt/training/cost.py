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
from srjt.data.images.feed import ResidentFeed
from srjt.data.manifest import Manifest
from srjt.methods.base import Method
from srjt.training.batches import Preprocess, TrainingSet, confusion_counts, draw_plan, generator
from srjt.training.config import TrainConfig
from srjt.training.devices import StackedNetworks, amp_dtype, channels_last, torch_flags, uses_channels_last
from srjt.training.step import Recorder, Step, initialise_optimizer, make_epoch_runner, make_optimizer
from srjt.training.trained import build_method, build_networks

STEPS = 3  # timed, after one to warm up
GPU_STEPS = 50  # a step takes milliseconds there
CPU_BATCH = 8  # samples of a trial step on a CPU, where the time of a step grows with its samples
MEMORY = Path("/proc/meminfo")
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
    evaluation_seconds : float
        The evaluations after every epoch.
    network_bytes : int
        Weights, gradients and the optimiser's state of all networks.
    activation_bytes : int or None
        The most that a step needed beyond them; None where it cannot be measured.
    image_bytes : int
        All samples, decoded.
    """

    seconds: float
    steps: int
    evaluation_seconds: float
    network_bytes: int
    activation_bytes: int | None
    image_bytes: int


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

    Nothing is read, written or downloaded. On a GPU the step is captured as in a training, but not compiled, which
    makes a long training faster and takes up to a minute.
    """
    config = config.for_data(features=data.are_features)
    if config.requested_noise_rate == "auto" or config.transition is None:
        # The noise changes what a step selects, not its time.
        config = config.replace(
            noise_rate=0.2,
            soft_labels="paper",
            transition=config.transition or torch.eye(data.num_classes).tolist(),
        )
    if config.step == "compiled":
        config = config.replace(step="graph")
    method = build_method(config, num_classes=data.num_classes)
    shape: tuple[int, ...] = (3, config.crop, config.crop)
    stored: tuple[int, ...] = (config.image_size, config.image_size, 3)
    per_sample = 3 * config.image_size**2
    if data.are_features:
        assert data.arrays is not None
        shape = stored = data.arrays.shape[1:]
        per_sample = data.arrays.itemsize * shape[0]
    trained = build_networks(config, method, in_shape=shape, with_weights=False).to(device).train()
    weights = sum(p.numel() * p.element_size() for p in trained.parameters())
    batch = min(config.batch_size, training)
    steps = training // batch * config.epochs
    tried = batch if device.type == "cuda" else min(batch, cpu_batch)
    if uses_channels_last(trained, device):
        channels_last(trained)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    gpus = [device] if device.type == "cuda" else []
    with torch_flags(config, device), torch.random.fork_rng(devices=gpus):
        seconds, per_evaluated = _time_steps(
            trained, method.to(device), config, samples=tried, stored=stored, device=device
        )
    measured = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return Cost(
        seconds=seconds * batch / tried * steps,
        steps=steps,
        evaluation_seconds=per_evaluated * evaluated * config.epochs,
        network_bytes=COPIES * weights,
        activation_bytes=None if measured is None else max(0, measured - COPIES * weights),
        image_bytes=len(data) * per_sample,
    )


def _time_steps(
    trained: StackedNetworks,
    method: Method,
    config: TrainConfig,
    *,
    samples: int,
    stored: tuple[int, ...],
    device: torch.device,
) -> tuple[float, float]:
    """Seconds of a training step with ``samples``, and of the evaluation of one sample."""
    on_gpu = device.type == "cuda"
    count = samples * (GPU_STEPS if on_gpu else 1 + STEPS)
    kind = torch.float32 if len(stored) == 1 else torch.uint8
    feed = ResidentFeed(torch.zeros(samples, *stored, dtype=kind, device=device))
    labels = torch.arange(count, device=device) % method.num_classes
    rows = torch.arange(count) % samples  # rows of the few samples that are stored
    data = TrainingSet(feed=feed, rows=rows, labels=labels, true=None)
    amp = amp_dtype(config, device)
    last = uses_channels_last(trained, device)
    preprocess = Preprocess(crop=config.crop, dtype=amp or torch.float32, channels_last=last)
    optimizer = make_optimizer(trained.parameters(), config=config, device=device)
    initialise_optimizer(optimizer)
    step = Step(
        networks=trained,
        method=method,
        optimizer=optimizer,
        recorder=Recorder(labels, None, networks=method.networks, num_classes=method.num_classes, steps=1),
        keep=torch.tensor(samples, device=device),
        memory={name: tensor.to(device) for name, tensor in method.memory(count).items()},
        amp=amp,
    )
    plan = draw_plan(
        count, batch_size=samples, epoch=1, seed=0, margin=config.image_size - config.crop, flip=config.flip
    )
    draws = generator(0, "method")
    run_epoch = make_epoch_runner(
        config.step, step, trained, data, preprocess=preprocess, plan=plan, generator=draws
    )
    times = []
    step.recorder.start_epoch()
    _synchronise(device)
    start = time.perf_counter()
    for _ in run_epoch(plan, 0, draws):
        if not on_gpu:
            times.append(time.perf_counter() - start)
            start = time.perf_counter()
    _synchronise(device)
    seconds = min(times[1:]) if times else (time.perf_counter() - start) / len(plan)

    evaluated = torch.arange(config.eval_batch_size if on_gpu else samples) % samples

    def evaluate() -> float:
        start = time.perf_counter()
        confusion_counts(
            trained, method, feed, evaluated, labels[evaluated.to(device)],
            preprocess=preprocess, batch_size=len(evaluated), amp=amp,
        )  # fmt: skip
        _synchronise(device)
        return time.perf_counter() - start

    return seconds, min(evaluate() for _ in range(1 + STEPS)) / len(evaluated)


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
