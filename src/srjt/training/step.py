"""The batches of an epoch, and one update of all networks on each, written once: run eagerly, compiled, or captured
in a CUDA graph; with what it records about every sample, and the whole state of the training.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from srjt.data.images import feed as image_feed
from srjt.data.images.feed import Crops, Feed
from srjt.errors import SrjtError, warn
from srjt.methods.base import Method
from srjt.ordinal.metrics import label_precision, label_recall, selection_counts
from srjt.training.config import StepMode, TrainConfig
from srjt.training.devices import Process, StackedNetworks, backward_kernels, compile_networks

# The plan of an epoch: which samples make each batch, and how each sample is cropped and flipped.
#
# All randomness is a function of (seed, purpose, epoch): the batches of epoch 80 can be drawn without
# drawing those before it, so that a resumed run needs no history.


def subseed(seed: int, *purpose: object) -> int:
    """A different 63-bit seed for each purpose."""
    text = "\0".join(["srjt", str(int(seed)), *map(str, purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A CPU generator: the draws do not depend on the device that trains."""
    return torch.Generator().manual_seed(subseed(seed, *purpose))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One epoch: which samples make each batch, and how each is cropped and flipped.

    On the CPU; a copy at fixed addresses on the device is what a captured graph reads at its step counter.
    """

    rows: Tensor  # (steps, B) int64 positions in the training set
    offsets: Tensor  # (steps, B, 2) int64
    flips: Tensor  # (steps, B) bool

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device) -> Plan:
        return Plan(**{name: tensor.to(device) for name, tensor in vars(self).items()})

    def fill(self, other: Plan) -> None:
        for name, tensor in vars(self).items():
            tensor.copy_(getattr(other, name), non_blocking=True)

    def batch(self, data: TrainingSet, store_rows: Tensor, step: Tensor, preprocess: Preprocess) -> Batch:
        """Batch number ``step`` (a 0-d tensor), gathered from a store on the GPU."""
        number = step.view(1) % len(self.rows)  # a warm-up may be longer than a short epoch
        rows, offsets, flips = (tensor.index_select(0, number)[0] for tensor in vars(self).values())
        pixels, places = data.feed.pixels, store_rows[rows]
        assert pixels is not None
        if pixels.ndim == 2:
            return Batch(pixels.index_select(0, places), data.targets[rows], rows)
        images = image_feed.gather_crops(pixels, places, offsets, flips, size=preprocess.crop)
        return Batch(image_feed.normalise(images, dtype=preprocess.dtype), data.targets[rows], rows)


def draw_plan(
    samples: int,
    *,
    batch_size: int,
    epoch: int,
    seed: int,
    margin: int,
    augment: bool = True,
    flip: bool = True,
    weights: Tensor | None = None,
) -> Plan:
    """Shuffle, cut into whole batches (a smaller last one is dropped), draw a crop and a flip for each sample.

    weights: (samples,) relative frequency of each sample; None: each sample once.
    """
    draws = generator(seed, "plan", epoch)
    steps = samples // batch_size
    rows = torch.randperm(samples, generator=draws)
    if weights is not None:
        rows = rows[_resample(weights[rows], generator=draws)]
        rows = rows[torch.randperm(samples, generator=draws)]
    rows = rows[: steps * batch_size].reshape(steps, batch_size)
    if augment:
        crops = image_feed.draw_crops((steps, batch_size), margin=margin, generator=draws)
    else:
        crops = image_feed.centre_crops(steps * batch_size, margin=margin)
    flips = crops.flips if flip else torch.zeros_like(crops.flips)
    return Plan(rows=rows, offsets=crops.offsets.view(*rows.shape, 2), flips=flips.view(rows.shape))


def balancing_weights(labels: Tensor, *, balance: float, certainty: Tensor | None = None) -> Tensor | None:
    """(N,) grades → (N,) weights n_c^(−balance), on the CPU, that raise the frequency of rare grades.

    certainty: (N,) factors of the weights. None if all samples weigh the same.
    """
    if balance == 0.0:
        return certainty
    grades = labels.cpu()
    weights = torch.bincount(grades).double().clamp(min=1).pow(-balance)[grades]
    return weights if certainty is None else weights * certainty


def draw_grades(probabilities: Tensor, *, epoch: int, seed: int) -> Tensor:
    """(N, C) probabilities → (N,) a grade of each sample, drawn for this epoch, on the CPU."""
    draws = generator(seed, "readers", epoch)
    points = torch.rand(len(probabilities), 1, generator=draws, dtype=torch.float64)
    return (probabilities.cumsum(1)[:, :-1] <= points).sum(1)


def _resample(weights: Tensor, *, generator: torch.Generator) -> Tensor:
    """Systematic resampling: N positions in proportion to ``weights`` (N,), each as often as expected, rounded up or
    down.

    With N independent draws an epoch would miss a third of the samples even where all weights are equal.
    """
    edges = weights.cumsum(0) / weights.sum() * len(weights)
    points = torch.arange(len(weights)) + torch.rand((), generator=generator, dtype=torch.float64)
    return torch.searchsorted(edges, points, right=True).clamp(max=len(weights) - 1)


# Batches: augmented ones for one epoch of training, crops for evaluation.

Transform = Callable[[Tensor], Tensor]
Views: TypeAlias = Sequence[Crops | None]  # of each image, from view_crops; None: the usual evaluation crop
CENTRE: Views = (None,)
CPU_PIXELS = 32 * 224**2  # of an evaluation batch on a CPU: larger ones are slower, and take gigabytes
BATCH_MULTIPLE = 64  # of evaluation batches, so that data sets of similar size share a batch shape


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """uint8 pixels (B, H, W, 3) → the input of a network.

    Features (B, F) are not changed and stay in float32 even with bf16: rounding them before they are standardised
    could remove their differences.
    """

    crop: int
    dtype: torch.dtype = torch.float32
    channels_last: bool = False  # memory layout of the images
    train_transform: Transform | None = None  # yours: uint8 (B, 3, H, W) → float, instead of crop and flip
    eval_transform: Transform | None = None

    def train(self, pixels: Tensor, offsets: Tensor, flips: Tensor) -> Tensor:
        if pixels.ndim == 2:
            return pixels
        if self.train_transform is not None:
            return self.train_transform(pixels.permute(0, 3, 1, 2))
        return self._normalised(image_feed.crop_and_flip(pixels, offsets, flips, size=self.crop))

    def evaluate(self, pixels: Tensor, view: Crops | None = None) -> Tensor:
        """view: one of ``view_crops``, the same for all images; None: the centre crop, or ``eval_transform``."""
        if pixels.ndim == 2:
            return pixels
        if view is None and self.eval_transform is not None:
            return self.eval_transform(pixels.permute(0, 3, 1, 2))
        crop = view or image_feed.centre_crops(1, margin=pixels.shape[1] - self.crop)
        return self._normalised(image_feed.crop_alike(pixels, crop, size=self.crop))

    def _normalised(self, images: Tensor) -> Tensor:
        """images: (B, 3, H, W) in channels-last order, as they are stored."""
        return image_feed.normalise(images if self.channels_last else images.contiguous(), dtype=self.dtype)


@dataclass(frozen=True, kw_only=True)
class ReaderTargets:
    """How the N training samples differ from samples with one certain label each; on the CPU, in float64."""

    targets: Tensor | None = None  # (N, C) or (N, R, C) what is learnt from in place of the labels
    draw_from: Tensor | None = None  # (N, C) from which the grades to learn from are drawn each epoch
    certainty: Tensor | None = None  # (N,) relative frequency of the samples


NO_READERS = ReaderTargets()


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """The N training samples: their pixels, given labels and, where known, true grades."""

    feed: Feed
    rows: Tensor  # (N,) int64 on the CPU: their rows in the store
    labels: Tensor  # (N,) int64 on the device
    true: Tensor | None  # (N,) true grades where they are known, on the device
    readers: ReaderTargets = NO_READERS

    @cached_property
    def targets(self) -> Tensor:
        """(N,), (N, C) or (N, R, C) what is learnt from; at a fixed address, which a captured graph reads."""
        if self.readers.targets is not None:
            return self.readers.targets.float().to(self.labels.device)
        return self.labels if self.readers.draw_from is None else self.labels.clone()

    def start_epoch(self, epoch: int, *, seed: int) -> None:
        """Draw the grades to learn from, if they are drawn anew each epoch."""
        if self.readers.draw_from is not None:
            self.targets.copy_(draw_grades(self.readers.draw_from, epoch=epoch, seed=seed))


class Batch(NamedTuple):
    x: Tensor  # (B, …) float
    targets: Tensor  # (B,), (B, C) or (B, R, C)
    rows: Tensor  # (B,) positions in the training set, on the device


def train_batches(
    data: TrainingSet,
    plan: Plan,
    *,
    method: Method,
    preprocess: Preprocess,
    generator: torch.Generator,
    first: int = 0,
    part: slice = slice(None),
) -> Generator[Batch, None, None]:
    """The batches of an epoch from step ``first`` on, augmented and prepared by the method.

    part: the columns of each batch that this process works on, when several processes share it. ``Batch.rows``
    always has the rows of the whole batch.
    """
    device = data.labels.device
    plan_rows = plan.rows[first:].to(device, non_blocking=True)
    offsets = plan.offsets[first:, part].to(device, non_blocking=True)
    flips = plan.flips[first:, part].to(device, non_blocking=True)
    for step, pixels in enumerate(data.feed.batches(data.rows[plan.rows[first:, part]])):
        x = preprocess.train(pixels, offsets[step], flips[step])
        x, targets = method.prepare(x, data.targets[plan_rows[step][part]], generator=generator)
        yield Batch(x, targets, plan_rows[step])


def evaluation_batch_size(feed: Feed, *, crop: int, largest: int) -> int:
    """Samples of an evaluation step: ``largest``, but of images on a CPU what its caches and memory bear."""
    pixels = feed.pixels
    images_on_cpu = pixels is not None and pixels.ndim == 4 and pixels.device.type == "cpu"
    return min(largest, max(1, CPU_PIXELS // crop**2)) if images_on_cpu else largest


def even_batch_size(samples: int, *, largest: int) -> int:
    """A size of at most ``largest`` whose last batch is nearly full, too."""
    if samples < BATCH_MULTIPLE:
        return min(samples, largest)
    even = -(-samples // -(-samples // largest))
    return min(largest, -(-even // BATCH_MULTIPLE) * BATCH_MULTIPLE)


def view_batches(
    feed: Feed,
    rows: Tensor,
    *,
    preprocess: Preprocess,
    batch_size: int,
    exact: bool = False,
    views: Views = CENTRE,
    done: int = 0,
) -> Iterator[tuple[Iterator[Tensor], slice]]:
    """Evaluation batches over store rows (N,): an iterator over the views of the images, and the slice of ``rows`` that
    they belong to. Views are computed one at a time, so that ten need no more memory than one.

    The batches of the first ``done`` rows are skipped; the others are the same as without it. All batches have the same
    size. The last one is padded with copies of the last row, which the caller cuts off; the
    size is chosen to need few of them, unless it has to be ``exact``.
    """
    samples = len(rows)
    if samples == 0:  # a process's part of a small side
        return
    size = batch_size if exact else even_batch_size(samples, largest=batch_size)
    steps = -(-samples // size)
    padded = torch.cat([rows, rows[-1:].expand(max(steps * size - samples, 0))])
    first = done // size
    for step, pixels in enumerate(feed.batches(padded.view(steps, size)[first:]), start=first):
        images = map(partial(preprocess.evaluate, pixels), views)
        yield images, slice(step * size, min((step + 1) * size, samples))


# Losses and selections of every training sample, kept on the device and transferred once per epoch.

SMOOTHING = 0.9  # weight of the old value in a sample's running loss


class Recorder:
    """Per-sample history over the whole training, and sums over the current epoch.

    All state is in ``tensors`` (name → tensor) and is updated in place, so that it can be captured in a CUDA graph,
    saved and restored.
    """

    def __init__(
        self, labels: Tensor, true: Tensor | None, *, networks: int, num_classes: int, steps: int
    ) -> None:
        device, samples = labels.device, len(labels)
        self.labels = labels  # (N,) given grades of the training samples, on the device
        self.true = labels if true is None else true
        self.knows_truth = true is not None
        self.num_classes = num_classes
        self.steps = steps
        self.tensors: dict[str, Tensor] = {
            "seen": torch.zeros(samples, dtype=torch.int32, device=device),
            "selected": torch.zeros(networks, samples, dtype=torch.int32, device=device),
            "running_loss": torch.full((networks, samples), torch.nan, device=device),
            "loss_sum": torch.zeros(networks, dtype=torch.float64, device=device),
            "counts": torch.zeros(networks, 4, num_classes, dtype=torch.int64, device=device),
            "bad_step": torch.full((), -1, dtype=torch.int64, device=device),
            "step": torch.zeros((), dtype=torch.int64, device=device),
        }

    @torch.no_grad()
    def add(
        self, rows: Tensor, total: Tensor, per_network: Tensor, selected: Tensor, label_loss: Tensor
    ) -> None:
        """One step: rows (B,) positions, total (), per_network (K,), selected (K, B), label_loss (K, B)."""
        t = self.tensors
        t["seen"].index_add_(0, rows, torch.ones_like(rows, dtype=torch.int32))
        t["selected"].index_add_(1, rows, selected.int())
        before = t["running_loss"].index_select(1, rows)
        smoothed = torch.where(before.isnan(), label_loss, SMOOTHING * before + (1 - SMOOTHING) * label_loss)
        t["running_loss"].index_copy_(1, rows, smoothed.float())
        t["loss_sum"] += per_network
        t["counts"] += selection_counts(
            selected, self.labels[rows], self.true[rows], num_classes=self.num_classes
        )
        bad = ~torch.isfinite(total) & (t["bad_step"] < 0)
        t["bad_step"].copy_(torch.where(bad, t["step"], t["bad_step"]))
        t["step"] += 1

    def start_epoch(self) -> None:
        for name in ("loss_sum", "counts", "step"):
            self.tensors[name].zero_()
        self.tensors["bad_step"].fill_(-1)

    def finish_epoch(self) -> tuple[list[dict[str, float]], int | None]:
        """The numbers of each network by name, and the step whose loss was not finite. Only here the host waits for
        the device."""
        losses, counts = self.tensors["loss_sum"].cpu(), self.tensors["counts"].cpu().numpy()
        measures = (label_precision, label_recall) if self.knows_truth else ()
        numbers = []
        for k, network in enumerate(counts):  # (4, C), see ordinal.metrics.selection_counts
            _, selected, _, total = network
            kept = np.divide(selected, total, out=np.full(len(total), np.nan), where=total > 0)
            values = {"loss": float(losses[k]) / max(self.steps, 1)}
            values |= {f"kept[{grade}]": float(share) for grade, share in enumerate(kept)}
            for measure in measures:
                values[measure.__name__] = float(measure(network))
                per_grade = enumerate(np.asarray(measure(network, per_class=True)))
                values |= {f"{measure.__name__}[{grade}]": float(value) for grade, value in per_grade}
            numbers.append(values)
        bad = int(self.tensors["bad_step"])
        return numbers, None if bad < 0 else bad

    def history(self) -> pd.DataFrame:
        """One row per training sample: times seen; per network, times selected and running loss."""
        host = {name: tensor.cpu().numpy() for name, tensor in self.tensors.items()}
        # the data types with which a CSV file is read back
        columns: dict[str, np.ndarray] = {"seen": host["seen"].astype(np.int64)}
        for k in range(len(host["selected"])):
            columns[f"selected_{k + 1}"] = host["selected"][k].astype(np.int64)
            columns[f"loss_{k + 1}"] = host["running_loss"][k].astype(np.float64)
        return pd.DataFrame(columns)


# The whole state of a training as named tensors: to save it, to restore it, to undo a warm-up.


def weights(networks: StackedNetworks) -> dict[str, Tensor]:
    """Parameters and buffers, named ``0.…`` and ``1.…`` by network."""
    return {
        f"{k}.{name}": tensor
        for k, member in enumerate(networks.members)
        for name, tensor in member.state_dict().items()
    }


def state_tensors(
    networks: StackedNetworks,
    optimizer: torch.optim.Optimizer,
    recorder: Recorder,
    memory: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Every tensor that the next step depends on, and the recorder's. The live tensors, not copies.

    memory: what the method remembers.
    """
    state = {f"network.{name}": tensor for name, tensor in weights(networks).items()}
    for position, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        for name, tensor in optimizer.state[parameter].items():
            state[f"optimizer.{position}.{name}"] = tensor
    state.update({f"recorder.{name}": tensor for name, tensor in recorder.tensors.items()})
    state.update({f"method.{name}": tensor for name, tensor in memory.items()})
    return state


@torch.no_grad()
def restore(live: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy saved values into the live tensors, in place, because captured graphs keep their addresses."""
    own, other = ({name: tensor.shape for name, tensor in state.items()} for state in (live, saved))
    if own != other:
        name = min(dict(own.items() ^ other.items()))
        raise SrjtError(
            f"The saved state does not belong to this training: {name} is not in both, or not of the same shape."
        )
    for name, tensor in live.items():
        tensor.copy_(saved[name])


# One update of all networks, written once: run eagerly, compiled, or captured in a CUDA graph.


def make_optimizer(parameters: Any, *, config: TrainConfig, device: torch.device) -> torch.optim.Adam:
    """Adam with L2 regularisation, or AdamW. On a GPU its step count and learning rate are tensors on the device."""
    assert config.weight_decay is not None, "for_data chooses it"
    on_gpu = device.type == "cuda"
    rate = config.learning_rate_at(1)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    if not on_gpu:
        _mark_uncompiled()
    optimizer = kind(
        parameters,
        lr=torch.tensor(rate, device=device) if on_gpu else rate,
        weight_decay=config.weight_decay,
        fused=True,
        capturable=on_gpu,
    )
    if not on_gpu:
        step = torch.no_grad()(inspect.unwrap(kind.step))
        optimizer.step = partial(step, optimizer)  # type: ignore[method-assign]
    # Adam's (zero) moments now instead of at its first step, so that the state always has the same names
    for parameter in optimizer.param_groups[0]["params"]:
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        }
    return optimizer


def _mark_uncompiled() -> None:
    """Keep optimisers from importing torch's compiler, which takes longer than all other imports.

    They import it to mark what must not be compiled, in these methods and in ``step``; on a CPU nothing is compiled.
    """
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        method = inspect.unwrap(getattr(torch.optim.Optimizer, name))
        method.__dict__.setdefault("__dynamo_disable", method)  # where torch looks for the marked one


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@dataclass(frozen=True, kw_only=True)
class Step:
    """Forward, select, backward, update, record. No host synchronisation."""

    networks: nn.Module  # (B, …) → (K, B, C); a StackedNetworks, or one wrapped by DistributedDataParallel
    method: Method
    optimizer: torch.optim.Optimizer
    recorder: Recorder
    keep: Tensor  # () int64 on the device: R(T)·|B|, which changes while a captured graph stays
    memory: dict[str, Tensor] = field(default_factory=dict)  # the method's, on the device
    amp: torch.dtype | None = None
    process: Process = field(default_factory=Process)

    def __call__(self, x: Tensor, targets: Tensor, rows: Tensor) -> None:
        """x: (B, …) images; targets: (B,) or (B, C); rows: (B,) positions of the *global* batch."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, self.amp or torch.bfloat16, enabled=self.amp is not None):
            logits = self.networks(x)
        if logits.dtype != torch.float64:
            logits = logits.float()  # losses are computed in full precision
        shared = self.process.world_size
        if shared > 1:
            logits, targets = self.process.gather(logits, dim=1), self.process.gather(targets, dim=0)
        remembered: dict[str, Any] = {"memory": self.memory, "rows": rows} if self.memory else {}
        loss = self.method.loss(logits, targets, keep=self.keep, **remembered)
        with backward_kernels(self.networks, x.device):
            # the loss is of the global batch: undo the averaging of gradients over the processes
            (loss.total * shared if shared > 1 else loss.total).backward()
        self.method.adjust(self.networks.parameters())
        self.optimizer.step()
        label_loss = self._label_loss(logits, rows)
        self.recorder.add(rows, loss.total.detach(), loss.per_network, loss.selected, label_loss)

    @torch.no_grad()
    def _label_loss(self, logits: Tensor, rows: Tensor) -> Tensor:
        """(K, B) −log p of the given label, the same measure for every method."""
        probabilities = self.method.probabilities(logits)
        labels = self.recorder.labels[rows].expand(len(probabilities), -1)
        return -probabilities.gather(-1, labels[..., None]).squeeze(-1).clamp(min=1e-30).log()


# Run the steps of an epoch: by replaying a captured CUDA graph where possible, else eagerly. The step is the same.

# Images of a whole training from which compiling pays: it takes half a minute, measured on an H200.
COMPILING_PAYS = 500_000
WARM_UP_STEPS = 3  # before capture, for allocations, cuDNN's choice of kernels and lazy initialisation

# (plan, first step, the method's generator) → yields after each step
EpochRunner = Callable[[Plan, int, torch.Generator], Iterator[None]]


def make_epoch_runner(
    mode: StepMode,
    step: Step,
    networks: StackedNetworks,
    data: TrainingSet,
    *,
    preprocess: Preprocess,
    plan: Plan,
    generator: torch.Generator,
    part: slice = slice(None),
    images: int = 0,
) -> EpochRunner:
    """The fastest runner that the mode, the device and the method allow; one warning where it falls back.

    plan: of any epoch, to warm up on; the plans of all epochs have its shape. images: of the whole training, by which
    ``auto`` decides whether compiling pays.
    """
    method, device = step.method, data.labels.device

    def batches(plan: Plan, first: int, generator: torch.Generator) -> Generator[Batch, None, None]:
        return train_batches(
            data, plan, method=method, preprocess=preprocess, generator=generator, first=first, part=part
        )

    def run_eagerly(plan: Plan, first: int, generator: torch.Generator) -> Iterator[None]:
        for batch in batches(plan, first, generator):
            step(*batch)
            yield

    if device.type != "cuda" or mode == "eager" or step.process.world_size > 1 or len(plan) == 0:
        return run_eagerly
    if mode == "compiled" or (mode == "auto" and images >= COMPILING_PAYS):
        compile_networks(networks, batch_size=plan.rows.shape[1])
    if networks.streams == [] and len(networks.members) > 1:
        networks.streams = [torch.cuda.Stream() for _ in networks.members]

    def live() -> dict[str, torch.Tensor]:
        return state_tensors(networks, step.optimizer, step.recorder, step.memory)

    before = {name: tensor.clone() for name, tensor in live().items()}

    def undo_warm_up() -> None:
        restore(live(), before)

    warm_up_batches = batches(plan, 0, generator)
    first_batch = next(warm_up_batches)
    warm_up_batches.close()  # a streaming feed's threads must not touch the device during capture
    custom_inputs = type(method).prepare is not Method.prepare or preprocess.train_transform is not None
    if data.feed.resident and not custom_inputs:
        buffers, store_rows = plan.to(device), data.rows.to(device)

        def gather_and_step() -> None:
            step(*buffers.batch(data, store_rows, step.recorder.tensors["step"], preprocess))

        replay = _capture_with_fallback(gather_and_step, undo_warm_up, networks)
        if replay is None:
            return run_eagerly

        def run_resident(plan: Plan, first: int, generator: torch.Generator) -> Iterator[None]:
            buffers.fill(plan)
            for _ in range(first, len(plan)):
                replay()
                yield

        return run_resident

    static = Batch(*(torch.empty_like(tensor).copy_(tensor) for tensor in first_batch))
    replay_static = _capture_with_fallback(lambda: step(*static), undo_warm_up, networks)
    if replay_static is None:
        return run_eagerly

    def run_copied(plan: Plan, first: int, generator: torch.Generator) -> Iterator[None]:
        for batch in batches(plan, first, generator):
            for fixed, fresh in zip(static, batch, strict=True):
                fixed.copy_(fresh, non_blocking=True)
            replay_static()
            yield

    return run_copied


def _capture_with_fallback(
    run: Callable[[], None], undo: Callable[[], None], networks: StackedNetworks
) -> Callable[[], None] | None:
    """Capture with the compiled networks, or without if the compiler fails at their first call.

    The returned function replays the graph. It references ``run``, and so every tensor that the graph reads.
    """
    try:
        graph = capture(run, undo=undo)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as problem:
        if not networks.compiled:
            raise
        networks.compiled = []
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        warn(f"torch.compile failed on this network ({reason}); training without it.")
        undo()
        graph = capture(run, undo=undo)
    if graph is None:
        return None

    def replay(graph: torch.cuda.CUDAGraph = graph, keep_alive: Callable[[], None] = run) -> None:
        graph.replay()

    return replay


def capture(run: Callable[[], None], *, undo: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
    """Capture ``run`` in a CUDA graph after a warm-up, then call ``undo`` to revert the warm-up's effects.

    None, with a warning, where capture is impossible: the caller then runs eagerly.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_STEPS):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph: torch.cuda.CUDAGraph | None = None
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            run()
    except RuntimeError as problem:
        torch.cuda.synchronize()
        reason = str(problem).splitlines()[0]
        warn(f"This network or method cannot run as a CUDA graph ({reason}); training eagerly.")
        graph = None
    undo()
    return graph
