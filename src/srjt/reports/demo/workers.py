"""Run the seeds of the demo at the same time, each in a process of its own with one thread."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from srjt.errors import Interrupted, SrjtError
from srjt.reports.demo.experiment import DemoSettings, run_seed
from srjt.reports.demo.facts import SeedFacts
from srjt.training.engine.fork_server import SIGNALS, start_forkserver
from srjt.training.engine.stop_signal import StopRequest

__all__ = ["Show", "run_seeds"]

Show = Callable[[int, str, float], None]  # seed, what is done at the moment, share of its work
POLL_SECONDS = 0.2


@dataclass
class _Job:
    seed: int
    process: BaseProcess
    messages: Connection
    problem: str = ""


def run_seeds(
    out: Path, settings: DemoSettings, seeds: Sequence[int], *, jobs: int, show: Show
) -> list[SeedFacts]:
    """The facts of all seeds, in their order.

    Ctrl-C or SIGTERM stops the processes, which save their state, and raises ``Interrupted``.
    """
    import torch

    if "forkserver" in multiprocessing.get_all_start_methods() and min(jobs, len(seeds)) > 1:
        _run_in_processes(out, settings, seeds, jobs=jobs, show=show)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the processes: the number of threads changes the last bits of a result
    try:
        # what the processes have finished is read
        return [
            run_seed(
                out,
                settings,
                seed,
                first=seed == seeds[0],
                tell=lambda what, share, seed=seed: show(seed, what, share),  # type: ignore[misc]
            )
            for seed in seeds
        ]
    finally:
        torch.set_num_threads(threads)


def _run_in_processes(
    out: Path, settings: DemoSettings, seeds: Sequence[int], *, jobs: int, show: Show
) -> None:
    waiting, running, finished = list(seeds), list[_Job](), 0
    with StopRequest() as stop:
        # torch._dynamo is imported by every optimiser, which takes two seconds
        context = start_forkserver([__name__, "torch._dynamo"])
        while running or (waiting and stop.number is None):
            while waiting and len(running) < jobs and stop.number is None:
                seed = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(sender, out, settings, seed, seed == seeds[0]))
                process.start()
                sender.close()
                running.append(_Job(seed, process, receiver))
            if stop.number is not None:
                for job in running:  # repeated: only a training hears it
                    job.process.terminate()
            wait([job.process.sentinel for job in running], timeout=POLL_SECONDS)
            for job in list(running):
                alive = job.process.is_alive()  # asked first: its last words may come in between
                _receive(job, show)
                if alive:
                    continue
                running.remove(job)
                finished += job.process.exitcode == 0
                if job.process.exitcode and stop.number is None:
                    _stop(running, show)
                    raise SrjtError(
                        job.problem
                        or f"The training of seed {job.seed} ended with status {job.process.exitcode}: run the same "
                        "command again to resume."
                    )
        if stop.number is not None:
            raise Interrupted(stop.number, f"The demo stopped with {finished} of {len(seeds)} seeds done.")


def _stop(running: list[_Job], show: Show) -> None:
    """End the other seeds: asked again and again, because only a training hears it, while their messages are read."""
    while any(job.process.is_alive() for job in running):
        for job in running:
            job.process.terminate()
        wait([job.process.sentinel for job in running], timeout=POLL_SECONDS)
        for job in running:
            _receive(job, show)


def _receive(job: _Job, show: Show) -> None:
    while job.messages.poll():
        try:
            what, share = job.messages.recv()
        except EOFError:
            return
        if share is None:
            job.problem = what
        else:
            show(job.seed, what, share)


def _work(messages: Connection, out: Path, settings: DemoSettings, seed: int, first: bool) -> None:
    """One process: train, send the progress; a problem is sent as a sentence."""
    import torch

    torch.set_num_threads(1)
    for number in SIGNALS:
        # A training handles the first one; those that follow must not end the process while it saves its state.
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the server has blocked them
    try:
        run_seed(out, settings, seed, first=first, tell=lambda what, share: messages.send((what, share)))
    except SrjtError as problem:
        messages.send((str(problem), None))
        raise SystemExit(2) from None
    except Interrupted as stopped:
        raise SystemExit(stopped.status) from None
    except BrokenPipeError:  # the demo itself has ended
        raise SystemExit(130) from None
