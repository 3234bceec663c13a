"""Stop on request: the first signal is handled by the training, and those that follow do not disturb it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

from srjt.errors import Interrupted
from srjt.training.workers import SIGNALS, StopRequest, handle_signals, start_forkserver, stop_unless_locked


@pytest.fixture(autouse=True)
def worker_handlers() -> Iterator[None]:
    """The handlers of a worker whose task has not locked its folder: a noise estimate is in another one."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handle_signals(stop_unless_locked([Path("task")]))
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    StopRequest.stopping = False


def test_signals_that_follow_do_not_disturb_a_worker_that_saves_its_state() -> None:
    def train() -> None:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)  # the pool repeats its request
            assert stop.number is not None
            raise Interrupted(stop.number, "The state is saved.")

    with pytest.raises(Interrupted, match="saved") as stopped:
        train()
    assert stopped.value.status == 128 + signal.SIGTERM
    signal.raise_signal(signal.SIGTERM)  # while the locks are released


def test_a_training_that_finished_instead_of_stopping_is_not_stopping_any_more() -> None:
    with StopRequest():
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="before training"):
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_while_the_fork_server_starts_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = set[int]()

    def interrupted_start() -> None:
        blocked.update(signal.pthread_sigmask(signal.SIG_BLOCK, ()))  # what the server inherits
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(forkserver, "ensure_running", interrupted_start)
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        start_forkserver(["srjt.errors"])
        assert stop.number == signal.SIGTERM
    assert blocked >= set(SIGNALS)
    assert signal.getsignal(signal.SIGTERM) is before
