"""Running an epoch's steps: eagerly, or by replaying one captured CUDA graph. The same step either way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator

import torch

from srjt.methods import Method
from srjt.training.config import StepMode
from srjt.training.engine.batches import Batch, Preprocess, TrainingSet, plan_buffers, train_batches
from srjt.training.engine.plan import Plan
from srjt.training.engine.stacked_networks import StackedNetworks
from srjt.training.engine.state import restore, state_tensors
from srjt.training.engine.step import Step, capture

__all__ = ["EpochRunner", "make_epoch_runner"]

PAYS = 500_000  # images: compiling takes as long as it saves on these (half a minute, measured on an H200)

# (plan, first step, the method's generator) → yields after each step
EpochRunner = Callable[[Plan, int, torch.Generator], Iterator[None]]


def make_epoch_runner(
    mode: StepMode,
    step: Step,
    committee: StackedNetworks,
    data: TrainingSet,
    *,
    preprocess: Preprocess,
    plan: Plan,
    generator: torch.Generator,
    part: slice = slice(None),
    work: int = 0,
) -> EpochRunner:
    """The fastest runner that the mode, the device and the method allow; says so once where it falls back.

    plan: any epoch's, to warm up on; its shape must be that of all epochs. work: images of the whole training,
    by which ``auto`` judges whether compiling pays.
    """
    method, device = step.method, data.labels.device

    def batches(plan: Plan, first: int, generator: torch.Generator) -> Generator[Batch, None, None]:
        return train_batches(
            data, plan, method=method, preprocess=preprocess, generator=generator, first=first, part=part
        )

    def eagerly(plan: Plan, first: int, generator: torch.Generator) -> Iterator[None]:
        for batch in batches(plan, first, generator):
            step(*batch)
            yield

    if device.type != "cuda" or mode == "eager" or step.gather is not None or len(plan) == 0:
        return eagerly
    if mode == "compiled" or (mode == "auto" and work >= PAYS):
        compile_networks(committee)
    if committee.streams == [] and len(committee.members) > 1:
        committee.streams = [torch.cuda.Stream() for _ in committee.members]

    before = {
        name: tensor.clone()
        for name, tensor in state_tensors(committee, step.optimizer, step.recorder).items()
    }

    def undo() -> None:
        restore(state_tensors(committee, step.optimizer, step.recorder), before)

    some = batches(plan, 0, generator)
    first_batch = next(some)
    some.close()  # a streaming feed's threads must not touch the device during capture
    own_inputs = type(method).prepare is not Method.prepare or preprocess.train_transform is not None
    if data.feed.resident and not own_inputs:
        buffers, store_rows = plan_buffers(plan, device), data.rows.to(device)
        counter = step.recorder.tensors["step"]

        def gathered() -> None:
            step(*buffers.batch(data, store_rows, counter, preprocess))

        gather_and_step = _capture(gathered, undo, committee)
        if gather_and_step is None:
            return eagerly

        def replaying(plan: Plan, first: int, generator: torch.Generator) -> Iterator[None]:
            buffers.fill(plan)
            for _ in range(first, len(plan)):
                gather_and_step()
                yield

        return replaying

    static = Batch(*(torch.empty_like(tensor).copy_(tensor) for tensor in first_batch))
    step_on_static = _capture(lambda: step(*static), undo, committee)
    if step_on_static is None:
        return eagerly

    def replaying_copies(plan: Plan, first: int, generator: torch.Generator) -> Iterator[None]:
        for batch in batches(plan, first, generator):
            for fixed, fresh in zip(static, batch, strict=True):
                fixed.copy_(fresh, non_blocking=True)
            step_on_static()
            yield

    return replaying_copies


def compile_networks(committee: StackedNetworks) -> None:
    """Give each network a compiled twin; where the compiler is missing or fails, the network itself runs."""
    try:
        committee.runners = [torch.compile(member) for member in committee.members]  # type: ignore[misc]
    except RuntimeError as problem:
        warnings.warn(
            f"torch.compile is not available ({str(problem).splitlines()[0]}); going on without.",
            stacklevel=2,
        )


def _capture(
    run: Callable[[], None], undo: Callable[[], None], committee: StackedNetworks
) -> Callable[[], None] | None:
    """Capture, first with the compiled networks; if the compiler fails at their first call, without.

    What is returned replays the graph, and holds ``run``: with it every tensor that the graph reads.
    """
    try:
        graph = capture(run, restore=undo)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as problem:
        if not committee.runners:
            raise
        committee.runners = []
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        warnings.warn(f"torch.compile failed on this network ({reason}); going on without it.", stacklevel=2)
        undo()
        graph = capture(run, restore=undo)
    if graph is None:
        return None

    def replay(graph: torch.cuda.CUDAGraph = graph, holds: Callable[[], None] = run) -> None:
        graph.replay()

    return replay
