"""The command ``srjt``, also as ``python -m srjt``, which torchrun needs."""

from __future__ import annotations

import os
import signal
from types import FrameType

from srjt.process import STOP_SECONDS, STOPPED, exit_after


def main() -> None:
    """Run the command line; Ctrl-C ends it with status 130 and a sentence, also while modules are
    imported."""
    signal.signal(signal.SIGINT, _interrupt)
    from srjt.cli import main as run

    run()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """As Python's own handler, except during an import: there a KeyboardInterrupt can surface as
    any other error."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, f"srjt: {STOPPED}\n".encode())
            os._exit(128 + number)  # nothing has been written yet
        frame = frame.f_back
    # what cleans up may wait for a process, a thread or a file system that does not answer
    exit_after(STOP_SECONDS, STOPPED, status=128 + number)
    raise KeyboardInterrupt


if __name__ == "__main__":  # worker processes import this module again under another name
    main()
