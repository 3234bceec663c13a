"""This process: how it is ended, which CPU cores it may use, and packages that must send nothing
from it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from typing import Any

STOPPED = "Stopped. Run the same command again."  # by Ctrl-C, where there is no state to save
STOP_SECONDS = 1.5  # after Ctrl-C; what has not ended by then, or begun to save its state, is ended


def exit_after(seconds: float, sentence: str, *, status: int) -> threading.Timer:
    """End this process after so many seconds, whatever it is doing, unless the timer is
    cancelled."""

    def leave() -> None:
        with contextlib.suppress(OSError):
            os.write(2, f"srjt: {sentence}\n".encode())
        os._exit(status)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
    return timer


# Packages that tell their makers about this machine unless they are told not to.

NO_TELEMETRY = {
    # onnxruntime writes an id of the machine and sends the path of Python
    "ORT_DISABLE_TELEMETRY": "1",
    "ORT_TELEMETRY_DISABLED": "1",  # the same, in some versions
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
    "DO_NOT_TRACK": "true",
}


def import_quietly(package: str) -> Any:
    """Import a package that may send something, after it is told to send nothing by itself."""
    os.environ.update(NO_TELEMETRY)  # read when such a package starts
    module = importlib.import_module(package)
    if package == "onnxruntime" and hasattr(module, "disable_telemetry_events"):
        module.disable_telemetry_events()  # it may have been imported before
    return module


# The CPU cores that this process may use.


def cores() -> int:
    """The CPU cores that this process may use; a scheduler may allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
