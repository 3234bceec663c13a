"""Worker processes that stay: each imports torch once, and executes one task after another on its device.

A task that raises a ``SrjtError`` leaves its worker as it was. After any other exception the worker ends, because its
process, or its GPU, may no longer work. A worker that ends or dies is replaced when the next task needs one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srjt.errors import warn
from srjt.training.engine.fork_server import start_forkserver
from srjt.training.engine.gpu_sharing import share_gpus
from srjt.training.engine.worker_process import READY, Warned, serve

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

__all__ = ["WITH_MONAI", "Ended", "Task", "WorkerPool"]

WITH_MONAI = (
    "densenet",
    "efficientnet",
)  # names of these networks begin so; importing MONAI takes six seconds
POLL_SECONDS = 0.2
END_SECONDS = (
    30.0  # for a worker that has nothing more to do; a thread of somebody's code may keep its process alive
)
NOT_STARTED = (
    "A worker process failed while it started, see the error above. In a script, put the calls of srjt.audit and "
    'srjt.study under if __name__ == "__main__":, because worker processes import the script.'
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A call that a worker executes: ``function(*arguments, device=…)``."""

    name: str
    function: Callable[..., Any]  # at the top of a module, because the worker imports it
    arguments: tuple[Any, ...]
    folder: Path  # while the task has locked it, the task handles signals itself
    settings: Hashable = None  # of the process: a worker never gets tasks with different ones


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a task ended."""

    name: str
    result: Any = None  # of the function
    error: str = (
        ""  # the sentence of a SrjtError, the traceback of any other exception; that a worker did not start
    )
    expected: bool = True  # whether it was a SrjtError
    exitcode: int | None = None  # of a worker that died, or was stopped, during the task


@dataclass(kw_only=True)
class _Slot:
    device: str | None
    process: BaseProcess | None = None
    connection: Connection[Any, Any] | None = None
    settings: Hashable = None
    task: str | None = None
    ready: bool = False  # whether the process has started


@dataclass(kw_only=True)
class WorkerPool:
    """One worker per entry of ``devices``, started when it is first needed.

    threads: of torch in each worker. networks: names of the networks that the tasks will build, whose library is then
    imported only once. Workers on the same GPU compute at the same time where the GPU allows it.
    """

    devices: Sequence[str | None]
    threads: int | None = None
    networks: Sequence[str] = ()
    _slots: list[_Slot] = field(init=False)
    _context: ForkServerContext | None = field(init=False, default=None)
    _sharing: contextlib.ExitStack = field(init=False, default_factory=contextlib.ExitStack)
    _variables: dict[str, str] = field(init=False, default_factory=dict)  # of the workers' environment

    def __post_init__(self) -> None:
        self._slots = [_Slot(device=device) for device in self.devices]

    @property
    def running(self) -> list[str]:
        """The names of the tasks in progress."""
        return [slot.task for slot in self._slots if slot.task is not None]

    @property
    def has_idle(self) -> bool:
        return any(slot.task is None for slot in self._slots)

    @property
    def shares_gpus(self) -> bool:
        """Whether a worker that crashes its GPU does so for the others on it, too."""
        return bool(self._variables)

    def start(self, task: Task) -> None:
        """Give the task to an idle worker, if possible to one whose process has the task's settings."""
        idle = [slot for slot in self._slots if slot.task is None]
        alive = [slot for slot in idle if slot.process is not None and slot.process.is_alive()]
        fitting = [slot for slot in alive if slot.settings == task.settings]
        slot = (fitting or [slot for slot in idle if slot not in alive] or idle)[0]
        message = (task.function, task.arguments, slot.device, task.folder)
        if not (fitting and _send(slot, message)):  # it may have died while it was idle
            self._start_worker(slot, task.settings)
            _send(slot, message)  # if the worker does not start, ``wait`` says so
        slot.task = task.name

    def wait(self, timeout: float = POLL_SECONDS) -> list[Ended]:
        """The tasks that have ended; an empty list after ``timeout`` seconds."""
        busy = [slot for slot in self._slots if slot.task is not None]
        sources: list[Any] = [slot.connection for slot in busy]
        sources += [slot.process.sentinel for slot in busy if slot.process is not None]
        wait(sources, timeout=timeout)
        return [ended for slot in busy if (ended := _read_report(slot)) is not None]

    def terminate(self) -> None:
        """Ask the running tasks to save their state and end. Repeat it: one that is starting may miss a signal."""
        for slot in self._slots:
            if slot.task is not None and slot.process is not None:
                slot.process.terminate()

    def __enter__(self) -> WorkerPool:
        self._context = start_forkserver(_imports(self.networks))  # it imports while the service starts
        self._variables = self._sharing.enter_context(share_gpus(self.devices))
        return self

    def __exit__(self, *exception: object) -> None:
        """End idle workers; stop those that are still busy because the body raised an exception."""
        with self._sharing:
            while self.running:
                self.terminate()
                self.wait()
            for slot in self._slots:
                _stop(slot)

    def _start_worker(self, slot: _Slot, settings: Hashable) -> None:
        _stop(slot)
        assert self._context is not None, "a pool is used in a with statement"
        slot.connection, remote = self._context.Pipe()
        slot.process = self._context.Process(target=serve, args=(remote, self.threads, self._variables))
        slot.process.start()
        remote.close()
        slot.settings, slot.ready = settings, False


def _send(slot: _Slot, message: Any) -> bool:
    """Whether the worker has got the message; not if it has died."""
    assert slot.connection is not None
    try:
        slot.connection.send(message)
    except OSError:
        return False
    return True


def _read_report(slot: _Slot) -> Ended | None:
    assert slot.task is not None
    assert slot.connection is not None
    assert slot.process is not None
    try:
        alive = slot.process.is_alive()  # before poll: its last report may arrive between the two
        if not slot.connection.poll():
            if alive:
                return None
            raise EOFError
        report = slot.connection.recv()
        if report is READY:
            slot.ready = True
            return None
        if isinstance(report, Warned):
            warn(report.text)
            return None
        result, error, expected = report
        ended = Ended(name=slot.task, result=result, error=error, expected=expected)
        if not expected:
            _stop(slot)
    except (EOFError, OSError):
        _join(slot.process)
        failed = not slot.ready and slot.process.exitcode == 1  # a process that raised an exception
        ended = Ended(name=slot.task, error=NOT_STARTED if failed else "", exitcode=slot.process.exitcode)
    slot.task = None
    return ended


def _stop(slot: _Slot) -> None:
    if slot.connection is not None:
        slot.connection.close()  # an idle worker ends by itself
    if slot.process is not None:
        _join(slot.process)
    slot.connection = slot.process = None


def _join(process: BaseProcess) -> None:
    process.join(END_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


def _imports(networks: Sequence[str]) -> list[str]:
    """The modules that training these networks needs."""
    # torch._dynamo is imported by every optimiser, which takes two seconds
    modules = ["srjt.training.train", "srjt.training.engine.process_state", "torch._dynamo"]
    if any(network.startswith("timm:") for network in networks):
        modules.append("timm")
    if any(network.startswith(WITH_MONAI) for network in networks):
        modules.append("monai.networks.nets")
    return modules
