"""Worker processes that stay: each imports torch once, and executes one task after another on its
device. They are forked from one server, may share a GPU, and stop after the current step on Ctrl-C
or SIGTERM.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar

from srjt.errors import Interrupted, SrjtError, text_of, warn
from srjt.networks import registry
from srjt.process import STOP_SECONDS, exit_after

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

SIGNALS = (signal.SIGINT, signal.SIGTERM)

# Stop on request: Ctrl-C and SIGTERM end the training after the current step, with its state saved.


class StopRequest:
    """A context in which the first signal sets ``number``; a second one has its usual, immediate
    effect.

    After Ctrl-C the work must begin to save its state soon (``begin_saving``): else the process
    ends without, and what it has saved before counts. A step may take minutes, or never end.

    ``stopping``: whether the last one in this process has received a signal, so that its state is
    being saved. ``mark``: a file that a worker process makes when it begins to save, so that its
    parent waits for it.
    """

    stopping: ClassVar[bool] = False
    mark: ClassVar[Path | None] = None

    def __init__(self, *, patient: bool = False) -> None:
        self.number: int | None = None
        self._patient = patient  # several processes stop together, after the epoch
        self._deadline: threading.Timer | None = None
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        StopRequest.stopping = False
        if (
            threading.current_thread() is threading.main_thread()
        ):  # Python allows handlers nowhere else
            for number in SIGNALS:
                self._previous_handlers[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        StopRequest.stopping = True
        self._restore_handlers()
        if (
            number == signal.SIGINT and not self._patient
        ):  # a scheduler, which sends SIGTERM, waits longer
            self._deadline = exit_after(STOP_SECONDS, LATE, status=128 + number)

    def begin_saving(self) -> None:
        """The work has noticed the signal, and saves its state: it may take its time."""
        if self._deadline is not None:
            self._deadline.cancel()
        if StopRequest.mark is not None:
            with contextlib.suppress(OSError):
                StopRequest.mark.touch()

    def __exit__(self, *exception: object) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}


LATE = "Stopped; what was saved last counts. Run the same command again to resume."


# The fork server: a process that imports torch once, and from which worker processes are forked.


def check_not_starting(call: str) -> None:
    """An error if this is a worker process that imports the script of its parent, which has made
    the call."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SrjtError(
            f"A worker process imports your script, which calls {call} again: put the call under if"
            ' __name__ == "__main__":.',
            code="unsupported",
        )


def has_forkserver() -> bool:
    """Whether the system has a fork server; Windows has none."""
    return "forkserver" in multiprocessing.get_all_start_methods()


def start_forkserver(preload: Sequence[str]) -> ForkServerContext | SpawnContext:
    """The process that imports the modules ``preload`` once, forks the workers and ends with the
    last of them.

    Signals are blocked in it, and in a worker until the worker unblocks them: Ctrl-C and job
    schedulers signal all processes of a job, and without the server nobody would learn how the
    workers ended. A signal that arrives here in the meantime is handled afterwards.

    Where there is no fork server, each worker is a new process, which imports everything itself.
    """
    if not has_forkserver():
        return multiprocessing.get_context("spawn")
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


@contextlib.contextmanager
def _without_current_folder() -> Iterator[None]:
    """Python processes that start meanwhile import nothing from the current folder, where python -c
    looks first.

    A folder that one was sent may contain a random.py. The server starts in the folder of the
    standard library, and a worker returns to its own (multiprocessing does that).
    """
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted, and contains no modules
        yield
        return
    os.chdir(os.path.dirname(os.__file__))
    try:
        yield
    finally:
        os.chdir(folder)


# What a worker process executes.


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a task ended."""

    name: str = ""
    result: Any = None  # of the function
    # the sentence of a SrjtError, the traceback of any other exception; why no worker started
    error: str = ""
    code: str = ""  # of the SrjtError
    expected: bool = True  # whether it was a SrjtError
    exitcode: int | None = None  # of a worker that died, or was stopped, during the task
    warned: tuple[
        str, ...
    ] = ()  # for the process that may show a progress bar on the same terminal

    @property
    def death(self) -> str:
        """How the worker died: killed, out of memory, or by a crash in native code; empty if it did
        not."""
        if self.exitcode is None:
            return ""
        number = -self.exitcode if self.exitcode < 0 else self.exitcode - 128
        if number not in set(signal.Signals):
            return f"with status {self.exitcode}"
        name = signal.Signals(number).name
        hint = "; the machine may be out of memory" if name == "SIGKILL" else ""
        return f"by {name}{hint}"


def _prepare_worker(threads: int | None, folder: str) -> None:
    """The first thing that a worker does. folder: where it works; "" for where it is.

    SIGINT is for the parent. SIGTERM ends the worker at once, except while a training saves its
    state: the training handles the first one itself, and the pool repeats its request.
    """
    if folder:
        os.chdir(folder)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_unless_saving)
    if has_forkserver():  # the server has blocked them
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    # deterministic trainings need it, and cuBLAS reads it at its first use
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    # what the imports made lives for ever; else every collection would search it for garbage
    gc.freeze()
    if threads is not None:
        torch.set_num_threads(threads)


def _exit_unless_saving(number: int, frame: FrameType | None) -> None:
    if not StopRequest.stopping:
        os._exit(128 + number)


def _stop_with_parent() -> None:
    """Stop this process if its parent was killed: a killed process cannot stop its workers."""
    if (parent := multiprocessing.parent_process()) is None:
        return
    parent.join()
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)


def _execute(file: str, device: str | None) -> Ended:
    """The task in a file. Nothing passes from one to the next: a training restores torch's flags
    and generators."""
    StopRequest.mark = Path(f"{file}{SAVING}")
    function, arguments = pickle.loads(Path(file).read_bytes())
    warned: list[str] = []
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *where, **more: warned.append(text_of(message))
        try:
            ended = Ended(result=function(*arguments, device=device))
        except Interrupted as stopped:
            os._exit(stopped.status)
        except SrjtError as problem:
            ended = Ended(error=problem.message, code=problem.code)
        except Exception as problem:
            ended = Ended(error="".join(traceback.format_exception(problem)), expected=False)
    StopRequest.stopping = False
    release_memory()
    return replace(ended, warned=tuple(warned))


def release_memory() -> None:
    """Free what a training held and nobody refers to any more."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        with contextlib.suppress(
            RuntimeError
        ):  # the training may have crashed the GPU, and says so itself
            torch.cuda.empty_cache()


# The pool. Each worker is an executor of its own, because one that dies breaks the executor for all
# of its tasks.
#
# A task that raises a ``SrjtError`` leaves its worker as it was. After any other exception the
# worker ends, because its process, or its GPU, may no longer work. A worker that ends or dies is
# replaced when the next task needs one.

POLL_SECONDS = 0.2
SAVING = ".saving"  # what is appended to the name of a task's file when the worker saves its state
END_SECONDS = (
    30.0  # for an idle worker to end; a thread of somebody's code may keep its process alive
)
_NUMBERS = itertools.count()  # of tasks
NOT_STARTED = (
    "A worker process failed while it started, see the error above. In a script, put the calls of"
    ' srjt.audit and srjt.study under if __name__ == "__main__":, because worker processes import'
    " the script."
)


@dataclass(kw_only=True)
class _Worker:
    device: str | None
    executor: ProcessPoolExecutor | None = None
    process: BaseProcess | None = None
    name: str = ""
    future: Future[Ended] | None = None  # of the task in progress
    file: Path = field(default_factory=Path)  # with the task


@dataclass(kw_only=True)
class WorkerPool:
    """One worker per entry of ``devices``, started when it is first needed.

    threads: of torch in each worker. networks: names of the networks that the tasks will build,
    whose library is then imported only once.
    """

    devices: Sequence[str | None]
    threads: int | None = None
    networks: Sequence[str] = ()
    _workers: list[_Worker] = field(init=False)
    _context: ForkServerContext | SpawnContext = field(init=False)
    _folder: Path = field(init=False)  # for the tasks
    _stopped_at: float | None = field(
        init=False, default=None
    )  # when the tasks were first asked to end

    @property
    def running(self) -> list[str]:
        """The names of the tasks in progress."""
        return [worker.name for worker in self._workers if worker.future is not None]

    @property
    def has_idle(self) -> bool:
        return any(worker.future is None for worker in self._workers)

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Let an idle worker call ``function(*arguments, device=…)``; function: at the top of a
        module, because the worker imports it."""
        idle = [worker for worker in self._workers if worker.future is None]
        alive = [
            worker for worker in idle if worker.process is not None and worker.process.is_alive()
        ]
        worker = (alive or idle)[0]
        if not alive:
            _end(worker)
            folder = "" if has_forkserver() else os.getcwd()  # it starts elsewhere, see below
            worker.executor = ProcessPoolExecutor(
                1,
                mp_context=self._context,
                initializer=_prepare_worker,
                initargs=(self.threads, folder),
            )
        assert worker.executor is not None
        before = multiprocessing.active_children()
        worker.name = name
        # Only the name of a file is sent. A long message waits in a pipe until the worker reads it;
        # if the worker dies before, Python older than 3.11.5 waits for ever (CPython issue 94777),
        # and so does its exit.
        worker.file = self._folder / f"task{next(_NUMBERS)}"
        worker.file.write_bytes(pickle.dumps((function, arguments)))
        with contextlib.nullcontext() if has_forkserver() else _without_current_folder():
            worker.future = worker.executor.submit(_execute, str(worker.file), worker.device)
        if not alive:  # the call has started the process
            (worker.process,) = set(multiprocessing.active_children()) - set(before)

    def wait(self, timeout: float = POLL_SECONDS) -> list[Ended]:
        """The tasks that have ended; an empty list after ``timeout`` seconds."""
        busy = {worker.future: worker for worker in self._workers if worker.future is not None}
        if not busy:
            time.sleep(timeout)
        finished = wait(busy, timeout=timeout, return_when=FIRST_COMPLETED).done
        return [_result(worker) for future, worker in busy.items() if future in finished]

    def terminate(self) -> None:
        """Ask the running tasks to save their state and end. Repeat it: one that is starting may
        miss a signal.

        A worker that does not begin to save soon is killed: it may be stopped, or in a step that
        takes minutes.
        """
        self._stopped_at = self._stopped_at or time.monotonic()
        waited = time.monotonic() - self._stopped_at
        for worker in self._workers:
            if worker.future is None or worker.process is None:
                continue
            saving = Path(f"{worker.file}{SAVING}").exists()
            if waited > (END_SECONDS if saving else STOP_SECONDS):
                worker.process.kill()
            else:
                worker.process.terminate()

    def __enter__(self) -> WorkerPool:
        self._workers = [_Worker(device=device) for device in self.devices]
        self._folder = Path(tempfile.mkdtemp(prefix="srjt-tasks-"))  # readable by this user only
        self._context = start_forkserver(_imports(self.networks))
        return self

    def __exit__(self, *exception: object) -> None:
        """End idle workers; stop those that are still busy because the body raised an exception."""
        while self.running:
            self.terminate()
            self.wait()
        for worker in self._workers:
            _end(worker)
        shutil.rmtree(self._folder, ignore_errors=True)


def _result(worker: _Worker) -> Ended:
    """How the worker's task has ended."""
    assert worker.future is not None
    assert worker.process is not None
    try:
        ended = worker.future.result()
    except BrokenProcessPool:
        process = worker.process
        _end(worker, wait=True)  # then its exit code is known
        exitcode = process.exitcode
        ended = Ended(exitcode=exitcode, error=NOT_STARTED if exitcode == 1 else "")
    worker.future = None
    worker.file.unlink(missing_ok=True)
    for sentence in ended.warned:
        warn(sentence)
    if not ended.expected:
        _end(worker)
    return replace(ended, name=worker.name, warned=())


def _end(worker: _Worker, *, wait: bool = False) -> None:
    """End an idle worker; it is replaced if there are more tasks."""
    if worker.executor is None or worker.process is None:
        return
    worker.executor.shutdown(wait=wait)
    worker.process.join(END_SECONDS)
    if worker.process.is_alive():
        worker.process.kill()
    worker.executor.shutdown()
    worker.executor = worker.process = None


def _imports(networks: Sequence[str]) -> list[str]:
    """The modules that training these networks needs."""
    # torch._dynamo is imported by every optimizer, which takes two seconds
    modules = ["srjt.training.train", "srjt.training.devices", "torch._dynamo"]
    rows = [registry.known(network) for network in networks]
    packages = {row.package for row in rows if row is not None and row.package}
    return [*modules, *sorted(packages)]
