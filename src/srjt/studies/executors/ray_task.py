"""One run of a study on some node of a Ray cluster: in the study's folder if the node sees it, else beside it.

Without a shared file system the run works in a scratch folder of the same layout, and its files travel back.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from srjt._version import __version__
from srjt.errors import Interrupted, SrjtError
from srjt.files import is_locked

__all__ = ["ALSO", "FILES", "Order", "Report", "execute", "place_token"]

FILES = (
    "run.json",
    "metrics.csv",
    "history.csv",
    "weights.safetensors",
    "summary.json",
)  # the last says: done
ALSO = ("noise.json",)  # where the run was told an estimate
PATIENCE = 120.0  # seconds that a process whose node was given up may take to notice it


@dataclass(frozen=True, kw_only=True)
class Order:
    """Everything that a node must know to run one cell."""

    folder: str  # of the study, as the driver knows it
    token: str  # a file in it, by which a node knows that it sees the same folder
    may_share: bool  # False: work in scratch folders even where the folder is seen
    study: dict[str, Any]
    cell: dict[str, Any]
    cwd: str  # of the driver: relative paths mean the same on the nodes
    cache: str | None = None
    gpu: bool = False
    threads: int | None = None
    version: str = __version__


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a node says of a run: once when it begins (``status`` running), once at the end."""

    status: str  # running, done or failed
    shared: bool  # whether it works in the study's own folder
    host: str
    process: str  # another one at the end than at the beginning: the run was taken up again
    error: str = ""
    files: dict[str, bytes] | None = None  # of a done run in a scratch folder


@contextlib.contextmanager
def place_token(folder: Path) -> Iterator[str]:
    """A file of random name in the study's folder while the study runs."""
    handle, path = tempfile.mkstemp(prefix=".srjt-token-", dir=folder)
    os.close(handle)
    try:
        yield Path(path).name
    finally:
        Path(path).unlink(missing_ok=True)


def execute(order: Order, splits: bytes | None, *, process: str) -> Iterator[Report]:
    """Run the cell: first say where it works, then how it ended. An exception is a result, not a reason to retry.

    splits: contents of the study's ``splits.csv`` if its folds came from a file.
    """
    from srjt.studies.executors.worker import write_error_report
    from srjt.studies.folder import error_file, run_folder

    key = order.cell["key"]
    shared = order.may_share and (Path(order.folder) / order.token).exists()
    # the same on every try, so that a process that takes over on this node finds the checkpoints
    scratch = Path(tempfile.gettempdir()) / order.token.lstrip(".") / key
    folder = Path(order.folder) if shared else scratch
    begun = Report(status="running", shared=shared, host=platform.node(), process=process)
    try:
        yield begun
        try:
            # beside the runs, so that those on the same node share an estimate
            _run(order, splits, folder, estimates=None if shared else scratch.parent / "estimates")
            files = None if shared else _collected(run_folder(folder, key))
            ended = replace(begun, status="done", files=files)
        except Interrupted as stopped:
            if stopped.status == 128 + signal.SIGTERM:
                os._exit(
                    stopped.status
                )  # the node is being drained: to Ray a dead process, to be run elsewhere
            raise KeyboardInterrupt from None  # cancelled by the driver
        except Exception as problem:
            write_error_report(folder, key, problem)
            word = error_file(folder, key)
            ended = replace(
                begun, status="failed", error=word.read_text() if word.exists() else repr(problem)
            )
        yield ended
    finally:
        if not shared:
            shutil.rmtree(scratch, ignore_errors=True)
            with contextlib.suppress(OSError):
                if {path.name for path in scratch.parent.iterdir()} <= {"estimates"}:
                    shutil.rmtree(scratch.parent)  # the last run of the study on this node


def _run(order: Order, splits: bytes | None, folder: Path, *, estimates: Path | None) -> None:
    import torch

    from srjt.methods.plugins import import_modules
    from srjt.studies.config import StudyConfig
    from srjt.studies.executors.worker import run_cell
    from srjt.studies.folder import run_folder
    from srjt.studies.open_data import open_data

    if order.version != __version__:
        raise SrjtError(
            f"{platform.node()} has srjt {__version__}, but the study was started with {order.version}: install the "
            "same version on all nodes."
        )
    if order.gpu and not torch.cuda.is_available():  # a CPU instead would take days and hold the GPU
        raise SrjtError(
            f"Ray gave this run a GPU of {platform.node()}, but torch {torch.__version__} sees none there: install a "
            "CUDA build of torch on the node, or give --gpus-per-run 0."
        )
    if order.threads is not None:
        torch.set_num_threads(order.threads)
    with contextlib.suppress(OSError):
        os.chdir(order.cwd)
    study = dict(order.study)
    import_modules(study["train"].get("imports", ()))
    folder.mkdir(parents=True, exist_ok=True)
    if splits is not None:
        file = folder / "splits.csv"
        if not file.exists():  # a shared folder holds it already
            file.write_bytes(splits)
        study["splits"] = str(file)
    data = open_data(StudyConfig.from_dict(study))
    cell = data.find(order.cell)
    if cell.key != order.cell["key"]:
        raise SrjtError(
            f"The data on {platform.node()} are not those that the study was planned with: copy them there again, "
            "or give the same command again if they were changed."
        )
    _wait_until_free(run_folder(folder, cell.key))
    run_cell(
        folder,
        data,
        cell,
        device="cuda" if order.gpu else "cpu",
        cache=None if order.cache is None else Path(order.cache),
        estimates=estimates,
    )


def _wait_until_free(run: Path) -> None:
    """A process may outlive its node's death by some seconds; two must not write to one folder."""
    until = time.monotonic() + PATIENCE
    while is_locked(run) and time.monotonic() < until:
        time.sleep(0.2)


def _collected(run: Path) -> dict[str, bytes]:
    also = [name for name in ALSO if (run / name).exists()]
    return {name: (run / name).read_bytes() for name in (*also, *FILES)}
