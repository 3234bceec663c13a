"""Run the steps of an epoch: by replaying a captured CUDA graph where possible, else eagerly. The step is the same."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import torch

from srjt.errors import warn
from srjt.methods import Method
from srjt.training.config import StepMode
from srjt.training.engine.batches import Batch, Preprocess, TrainingSet, plan_buffers, train_batches
from srjt.training.engine.compiling import compile_networks
from srjt.training.engine.plan import Plan
from srjt.training.engine.stacked_networks import StackedNetworks
from srjt.training.engine.state import restore, state_tensors
from srjt.training.engine.step import Step

__all__ = ["EpochRunner", "capture", "make_epoch_runner"]

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

    if device.type != "cuda" or mode == "eager" or step.gather is not None or len(plan) == 0:
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
        buffers, store_rows = plan_buffers(plan, device), data.rows.to(device)
        counter = step.recorder.tensors["step"]

        def gather_and_step() -> None:
            step(*buffers.batch(data, store_rows, counter, preprocess))

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
