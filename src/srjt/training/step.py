"""One update of all networks, written once: run eagerly, compiled, or captured in a CUDA graph;
with what it records about every sample, and the whole state of the training.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from srjt.errors import SrjtError, warn
from srjt.methods.base import Method, remembered
from srjt.ordinal.metrics import label_precision, label_recall, selection_counts
from srjt.training.adam import Adam
from srjt.training.batches import Batch, Plan, Preprocess, TrainingSet, train_batches
from srjt.training.config import Learning, StepMode
from srjt.training.devices import Process, StackedNetworks, backward_kernels, compile_networks

# Losses and selections of every training sample, kept on the device and transferred once per epoch.

SMOOTHING = 0.9  # weight of the old value in a sample's running loss


class Recorder:
    """Per-sample history over the whole training, and sums over the current epoch.

    All state is in ``tensors`` (name → tensor) and is updated in place, so that it can be captured
    in a CUDA graph, saved and restored.
    """

    def __init__(
        self, labels: Tensor, true: Tensor | None, *, networks: int, num_classes: int, steps: int
    ) -> None:
        device = labels.device
        samples = len(labels)
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
        """One step: rows (B,) positions, total (), per_network (K,), selected (K, B), label_loss
        (K, B)."""
        t = self.tensors
        t["seen"].index_add_(0, rows, torch.ones_like(rows, dtype=torch.int32))
        t["selected"].index_add_(1, rows, selected.int())
        before = t["running_loss"].index_select(1, rows)
        smoothed = torch.where(
            before.isnan(), label_loss, SMOOTHING * before + (1 - SMOOTHING) * label_loss
        )
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
        """The numbers of each network by name, and the step whose loss was not finite. Only here
        the host waits for the device."""
        losses = self.tensors["loss_sum"].cpu()
        counts = self.tensors["counts"].cpu().numpy()
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
                values |= {
                    f"{measure.__name__}[{grade}]": float(value) for grade, value in per_grade
                }
            numbers.append(values)
        bad = int(self.tensors["bad_step"])
        return numbers, None if bad < 0 else bad

    def selected_share(self) -> float:
        """The share of the epoch's samples that were selected, mean over the networks."""
        _, selected, _, total = self.tensors["counts"].cpu().sum(dim=(0, 2)).tolist()
        return float(selected / max(total, 1))

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
    """Parameters and buffers, named ``0.…`` and ``1.…`` by network, and ``trunk.…`` of a frozen one
    below them."""
    parts: dict[str, torch.nn.Module] = {
        str(k): member for k, member in enumerate(networks.members)
    }
    if networks.trunk is not None:
        parts["trunk"] = networks.trunk
    tensors = {}
    for part, module in parts.items():
        for name, tensor in module.state_dict().items():
            tensors[f"{part}.{name}"] = tensor
    return tensors


def state_tensors(
    networks: StackedNetworks,
    optimizer: Adam,
    recorder: Recorder,
    memory: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Every tensor that the next step depends on, and the recorder's. The live tensors, not copies.

    memory: what the method remembers.
    """
    state = {f"network.{name}": tensor for name, tensor in weights(networks).items()}
    state.update({f"optimizer.{name}": tensor for name, tensor in optimizer.state().items()})
    state.update({f"recorder.{name}": tensor for name, tensor in recorder.tensors.items()})
    state.update({f"method.{name}": tensor for name, tensor in memory.items()})
    return state


@torch.no_grad()
def restore(live: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy saved values into the live tensors, in place, because captured graphs keep their
    addresses."""
    live_shapes, saved_shapes = (
        {name: tensor.shape for name, tensor in state.items()} for state in (live, saved)
    )
    if live_shapes != saved_shapes:
        name = min(dict(live_shapes.items() ^ saved_shapes.items()))
        raise SrjtError(
            f"The saved state does not belong to this training: {name} is not in both, or not of"
            " the same shape.",
            code="no_match",
        )
    for name, tensor in live.items():
        tensor.copy_(saved[name])


# One update of all networks, written once: run eagerly, compiled, or captured in a CUDA graph.


def make_optimizer(
    parameters: Iterable[nn.Parameter], *, learning: Learning, device: torch.device
) -> Adam:
    """Adam with L2 regularisation, or AdamW."""
    return Adam(
        parameters,
        rate=learning.rate_at(1),
        weight_decay=learning.weight_decay,
        decoupled=learning.optimizer == "adamw",
        device=device,
    )


@dataclass(frozen=True, kw_only=True)
class Step:
    """Forward, select, backward, update, record. No host synchronisation."""

    networks: (
        nn.Module
    )  # (B, …) → (K, B, C); a StackedNetworks, or one wrapped by DistributedDataParallel
    method: Method
    optimizer: Adam
    recorder: Recorder
    keep: Tensor  # () int64 on the device: R(T)·|B|, which changes while a captured graph stays
    memory: dict[str, Tensor] = field(default_factory=dict)  # the method's, on the device
    amp: torch.dtype | None = None
    process: Process = field(default_factory=Process)

    def __call__(self, x: Tensor, targets: Tensor, rows: Tensor) -> None:
        """x: (B, …) images; targets: (B,) or (B, C); rows: (B,) positions of the *global* batch."""
        self.optimizer.zero_grad()
        with torch.autocast(
            x.device.type, self.amp or torch.bfloat16, enabled=self.amp is not None
        ):
            logits = self.networks(x)
        if logits.dtype != torch.float64:
            logits = logits.float()  # losses are computed in full precision
        shared = self.process.world_size
        if shared > 1:
            logits = self.process.gather(logits, dim=1)
            targets = self.process.gather(targets, dim=0)
        loss = self.method.loss(logits, targets, keep=self.keep, **remembered(self.memory, rows))
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


# Run the steps of an epoch: by replaying a captured CUDA graph where possible, else eagerly. The
# step is the same.

# Images of a whole training from which compiling pays: it takes half a minute, measured on an H200.
COMPILING_PAYS = 500_000
WARM_UP_STEPS = (
    3  # before capture, for allocations, cuDNN's choice of kernels and lazy initialisation
)

# (plan, first step, the method's generator) → yields after each step
EpochRunner = Callable[[Plan, int, torch.Generator], Iterator[None]]


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """What the steps of an epoch are made of, run eagerly."""

    step: Step
    networks: StackedNetworks
    data: TrainingSet
    preprocess: Preprocess
    part: slice

    def batches(
        self, plan: Plan, first: int, generator: torch.Generator
    ) -> Generator[Batch, None, None]:
        """The batches of an epoch from its step ``first``."""
        return train_batches(
            self.data,
            plan,
            method=self.step.method,
            preprocess=self.preprocess,
            generator=generator,
            first=first,
            part=self.part,
        )

    def run_eagerly(self, plan: Plan, first: int, generator: torch.Generator) -> Iterator[None]:
        for batch in self.batches(plan, first, generator):
            self.step(*batch)
            yield

    def live(self) -> dict[str, torch.Tensor]:
        """Every tensor that a step changes."""
        step = self.step
        return state_tensors(self.networks, step.optimizer, step.recorder, step.memory)

    @property
    def custom_inputs(self) -> bool:
        """Whether code of a method or of the user makes the inputs, which no graph captures."""
        prepares = type(self.step.method).prepare is not Method.prepare
        return prepares or self.preprocess.train_transform is not None


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
    """The fastest runner that the mode, the device and the method allow; one warning where it falls
    back.

    plan: of any epoch, to warm up on; the plans of all epochs have its shape. images: of the whole
    training, by which ``auto`` decides whether compiling pays.
    """
    device = data.labels.device
    steps = _Steps(step=step, networks=networks, data=data, preprocess=preprocess, part=part)
    if device.type != "cuda" or mode == "eager" or step.process.world_size > 1 or len(plan) == 0:
        return steps.run_eagerly
    if mode == "compiled" or (mode == "auto" and images >= COMPILING_PAYS):
        compile_networks(networks, batch_size=plan.rows.shape[1])
    if networks.streams == [] and len(networks.members) > 1:
        networks.streams = [torch.cuda.Stream() for _ in networks.members]
    before = {name: tensor.clone() for name, tensor in steps.live().items()}

    def undo_warm_up() -> None:
        restore(steps.live(), before)

    warm_up_batches = steps.batches(plan, 0, generator)
    first_batch = next(warm_up_batches)
    warm_up_batches.close()  # a streaming feed's threads must not touch the device during capture
    if data.feed.resident and not steps.custom_inputs:
        captured = _capture_with_gathering(steps, plan, undo_warm_up)
    else:
        captured = _capture_with_copying(steps, first_batch, undo_warm_up)
    return captured or steps.run_eagerly


def _capture_with_gathering(
    steps: _Steps, plan: Plan, undo: Callable[[], None]
) -> EpochRunner | None:
    """A graph that gathers its batch from images on the device; None if it cannot be captured."""
    step = steps.step
    data = steps.data
    device = data.labels.device
    buffers = plan.to(device)
    store_rows = data.rows.to(device)

    def gather_and_step() -> None:
        step(*buffers.batch(data, store_rows, step.recorder.tensors["step"], steps.preprocess))

    replay = _capture_with_fallback(gather_and_step, undo, steps.networks)
    if replay is None:
        return None

    def run_resident(plan: Plan, first: int, generator: torch.Generator) -> Iterator[None]:
        buffers.fill(plan)
        for _ in range(first, len(plan)):
            replay()
            yield

    return run_resident


def _capture_with_copying(
    steps: _Steps, first_batch: Batch, undo: Callable[[], None]
) -> EpochRunner | None:
    """A graph into whose inputs each batch is copied; None if it cannot be captured."""
    static = Batch(*(torch.empty_like(tensor).copy_(tensor) for tensor in first_batch))
    replay = _capture_with_fallback(lambda: steps.step(*static), undo, steps.networks)
    if replay is None:
        return None

    def run_copied(plan: Plan, first: int, generator: torch.Generator) -> Iterator[None]:
        for batch in steps.batches(plan, first, generator):
            for fixed, fresh in zip(static, batch, strict=True):
                fixed.copy_(fresh, non_blocking=True)
            replay()
            yield

    return run_copied


def _capture_with_fallback(
    run: Callable[[], None], undo: Callable[[], None], networks: StackedNetworks
) -> Callable[[], None] | None:
    """Capture with the compiled networks, or without if the compiler fails at their first call.

    The returned function replays the graph. It references ``run``, and so every tensor that the
    graph reads.
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
    """Capture ``run`` in a CUDA graph after a warm-up, then call ``undo`` to revert the warm-up's
    effects.

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
