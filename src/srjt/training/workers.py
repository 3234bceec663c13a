"""Worker processes that stay: each imports torch once, and executes one task after another on its device. They
are forked from one server, may share a GPU, and stop after the current step on Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from srjt.errors import Interrupted, SrjtError, warn
from srjt.files import is_locked

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

# Stop on request: Ctrl-C and SIGTERM end the training after the current step, with its state saved.


class StopRequest:
    """A context in which the first signal sets ``number``; a second one has its usual, immediate effect.

    ``stopping``: whether the last one in this process has received a signal and is saving its state, or has done so
    and the process is ending.
    """

    stopping: ClassVar[bool] = False

    def __init__(self) -> None:
        self.number: int | None = None
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        StopRequest.stopping = False
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous_handlers[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        StopRequest.stopping = True
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}

    def __exit__(self, kind: object, exception: object, trace: object) -> None:
        StopRequest.stopping = isinstance(
            exception, Interrupted
        )  # not if it had finished before it could stop
        self._restore_handlers()


# The fork server: a process that imports torch once, and from which worker processes are forked.

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAFE_PATH = "PYTHONSAFEPATH"


def check_not_starting(call: str) -> None:
    """An error if this is a worker process that imports the script of its parent, which has made the call."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SrjtError(
            f'A worker process imports your script, which calls {call} again: put the call under if __name__ == "'
            '__main__":.'
        )


@contextlib.contextmanager
def _without_current_folder() -> Iterator[None]:
    """Python processes that start meanwhile import nothing from the current folder, where python -c looks first.

    A folder that one was sent may contain a random.py. Python 3.10 cannot be told so: its process starts in the folder
    of the standard library, and a worker returns to its own (multiprocessing does that).
    """
    if sys.version_info < (3, 11):
        before = os.getcwd()
        os.chdir(os.path.dirname(os.__file__))
        try:
            yield
        finally:
            os.chdir(before)
        return
    given = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH)
        if given is not None:
            os.environ[SAFE_PATH] = given


def start_forkserver(preload: Sequence[str]) -> ForkServerContext:
    """The process that imports the modules ``preload`` once, forks the workers and ends with the last of them.

    Signals are blocked in it, and in a worker until the worker unblocks them: Ctrl-C and job schedulers signal all
    processes of a job, and without the server nobody would learn how the workers ended. A signal that arrives here in
    the meantime is handled afterwards.
    """
    from multiprocessing import forkserver, resource_tracker

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    with _without_current_folder():
        resource_tracker.ensure_running()  # first, because it unblocks the signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


# What a worker process of the pool executes: one task after another, until it is told to stop or has no
# parent.

READY = None  # the first message of a worker


class Warned(NamedTuple):
    """A message of a worker: a warning, for the process that may show a progress bar on the same terminal."""

    text: str


def serve(connection: Connection[Any, Any], threads: int | None) -> None:
    """The main function of a worker: execute tasks until the connection is closed."""
    current: list[Path] = []
    handle_signals(stop_unless_locked(current))
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the server has blocked them
        connection.send(READY)
        import torch

        from srjt.training.devices import preserve_process_state, release_memory

        gc.freeze()  # what the imports made lives for ever; else every collection would search it for garbage
        warnings.showwarning = _send_warnings(connection)
        if threads is not None:
            torch.set_num_threads(threads)
        while True:
            function, arguments, device, folder = connection.recv()
            current[:] = [folder]
            result, error, expected = None, "", True
            with preserve_process_state():
                try:
                    result = function(*arguments, device=device)
                except SrjtError as problem:
                    error = str(problem)
                except Exception as problem:
                    error, expected = "".join(traceback.format_exception(problem)), False
            current.clear()
            release_memory()
            connection.send((result, error, expected))
            if not expected:
                break
    except Interrupted as stopped:
        handle_signals(signal.SIG_IGN)
        sys.exit(stopped.status)
    except (EOFError, OSError):  # no more tasks, or nobody is left to report to
        pass


def stop_unless_locked(current: list[Path]) -> Callable[[int, FrameType | None], None]:
    """A handler that ends the process at once, except during a training, whose saving it must not disturb.

    Training handles the first signal itself and saves its state. More signals follow: the pool repeats its request,
    and Ctrl-C and job schedulers signal all processes of a job. The trainings of a noise estimate are in another folder
    than the task's.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if not (StopRequest.stopping or (current and is_locked(current[0]))):
            handle_signals(signal.SIG_IGN)
            raise Interrupted(number, "Stopped before training began.")

    return handle


def handle_signals(handler: Any) -> None:
    for number in SIGNALS:
        signal.signal(number, handler)


def _send_warnings(connection: Connection[Any, Any]) -> Callable[..., None]:
    """Warnings as sentences, without the lines of code that they came from."""

    def send(message: Warning | str, *where: Any, **more: Any) -> None:
        if (
            threading.current_thread() is threading.main_thread()
        ):  # two threads must not send at the same time
            with contextlib.suppress(OSError):  # nobody is left to warn
                connection.send(Warned(str(message)))
        else:
            print(f"Warning: {message}", file=sys.stderr)

    return send


def _stop_with_parent() -> None:
    """Stop this process if its parent was killed: a killed process cannot stop its workers."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    while True:
        with contextlib.suppress(OSError):
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)


# Worker processes that stay: each imports torch once, and executes one task after another on its device.
#
# A task that raises a ``SrjtError`` leaves its worker as it was. After any other exception the worker ends,
# because its process, or its GPU, may no longer work. A worker that ends or dies is replaced when the next
# task needs one.

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
    imported only once.
    """

    devices: Sequence[str | None]
    threads: int | None = None
    networks: Sequence[str] = ()
    _slots: list[_Slot] = field(init=False)
    _context: ForkServerContext | None = field(init=False, default=None)

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
        """Whether several workers use one GPU: one that crashes it, or fills its memory, may do so for the others."""
        gpus = [device for device in self.devices if device is not None and device.startswith("cuda")]
        return len(set(gpus)) < len(gpus)

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
        self._context = start_forkserver(_imports(self.networks))
        return self

    def __exit__(self, *exception: object) -> None:
        """End idle workers; stop those that are still busy because the body raised an exception."""
        while self.running:
            self.terminate()
            self.wait()
        for slot in self._slots:
            _stop(slot)

    def _start_worker(self, slot: _Slot, settings: Hashable) -> None:
        _stop(slot)
        assert self._context is not None, "a pool is used in a with statement"
        slot.connection, remote = self._context.Pipe()
        slot.process = self._context.Process(target=serve, args=(remote, self.threads))
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
    modules = ["srjt.training.train", "srjt.training.devices", "torch._dynamo"]
    if any(network.startswith("timm:") for network in networks):
        modules.append("timm")
    if any(network.startswith(WITH_MONAI) for network in networks):
        modules.append("monai.networks.nets")
    return modules
