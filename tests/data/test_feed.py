"""Resident or streamed, the training gets the same batches in the same order."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from srjt.data.images import feed as feeds
from srjt.data.images.feed import Feed, ResidentFeed, StreamedFeed, open_feed
from srjt.errors import SrjtError

CPU = torch.device("cpu")


@pytest.fixture
def pixels(tmp_path: Path) -> np.ndarray:
    """(20, 6, 5, 3) uint8, memory-mapped and read-only as the store's."""
    np.save(tmp_path / "a.npy", np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), dtype=np.uint8))
    return np.load(tmp_path / "a.npy", mmap_mode="r")


def random_rows(steps: int, batch: int) -> Tensor:
    return torch.randint(0, 20, (steps, batch), generator=torch.Generator().manual_seed(0))


def feed_threads() -> int:
    return sum(thread.name.startswith("feed") for thread in threading.enumerate())


@pytest.mark.parametrize("kind", ["resident", "streamed", "streamed in pieces"])
@pytest.mark.parametrize("steps", [0, 1, 3, 4, 5, 23])
def test_batches_are_the_rows(
    pixels: np.ndarray, kind: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "streamed in pieces":
        monkeypatch.setattr(feeds, "PIECE", 3)  # of batches of 7: two whole ones and a smaller one
    feed: Feed = open_feed(pixels, device="cpu") if kind == "resident" else StreamedFeed(pixels, device=CPU)
    assert feed.resident == (kind == "resident") == (feed.pixels is not None)
    rows = random_rows(steps, 7)
    batches = list(feed.batches(rows))  # kept: a batch must not be overwritten by a later one
    assert len(batches) == steps
    for batch, step in zip(batches, rows, strict=True):
        assert batch.dtype == torch.uint8
        assert np.array_equal(batch.numpy(), pixels[step.numpy()])
    assert feed_threads() == 0


@pytest.mark.filterwarnings("error")
def test_on_a_cpu_the_memory_map_itself_is_resident(pixels: np.ndarray) -> None:
    feed = open_feed(pixels, device="cpu")
    assert isinstance(feed, ResidentFeed)
    assert feed.pixels.data_ptr() == pixels.ctypes.data


def test_a_feed_serves_one_epoch_after_another(pixels: np.ndarray) -> None:
    feed = StreamedFeed(pixels, device=CPU)
    for _ in range(3):
        assert len(list(feed.batches(random_rows(6, 2)))) == 6


def test_leaving_early_stops_the_threads(pixels: np.ndarray) -> None:
    batches = StreamedFeed(pixels, device=CPU).batches(random_rows(1000, 4))
    next(batches)
    assert feed_threads() > 0
    batches.close()  # type: ignore[attr-defined]
    assert feed_threads() == 0


def test_the_work_runs_ahead_but_only_so_far(pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    take = np.take
    monkeypatch.setattr(np, "take", lambda *args, **kw: (taken.append(1), take(*args, **kw))[1])
    batches = StreamedFeed(pixels, device=CPU).batches(random_rows(50, 2))
    next(batches)
    for _ in range(500):
        if len(taken) == feeds.AHEAD + 1:
            break
        time.sleep(0.01)
    time.sleep(0.05)  # time enough to go too far
    assert len(taken) == feeds.AHEAD + 1  # the one handed over, and four more
    batches.close()  # type: ignore[attr-defined]


def test_slow_gathers_keep_their_order(pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    take = np.take
    pauses = iter([0.03, 0.0, 0.02, 0.0] * 10)

    def uneven(*args: object, **options: object) -> np.ndarray:
        time.sleep(next(pauses))
        return take(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "take", uneven)
    rows = random_rows(12, 3)
    for batch, step in zip(StreamedFeed(pixels, device=CPU).batches(rows), rows, strict=True):
        assert np.array_equal(batch.numpy(), pixels[step.numpy()])


def test_a_failure_in_a_thread_reaches_the_consumer(
    pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = np.take
    calls = iter(range(100))

    def failing(*args: object, **options: object) -> np.ndarray:
        if next(calls) == 5:
            raise OSError("the network drive is gone")
        return take(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "take", failing)
    with pytest.raises(OSError, match="network drive"):
        list(StreamedFeed(pixels, device=CPU).batches(random_rows(30, 3)))
    assert feed_threads() == 0


@pytest.mark.parametrize("kind", ["resident", "streamed"])
def test_rows_are_checked(pixels: np.ndarray, kind: str) -> None:
    feed: Feed = open_feed(pixels, device="cpu") if kind == "resident" else StreamedFeed(pixels, device=CPU)
    for rows in (torch.tensor([[0, 20]]), torch.tensor([[-1, 3]])):
        with pytest.raises(IndexError, match="0 … 19"):
            next(feed.batches(rows))
    with pytest.raises(ValueError, match="int64"):
        next(feed.batches(torch.zeros(2, 2)))


def test_share_must_be_a_share(pixels: np.ndarray) -> None:
    with pytest.raises(SrjtError, match="between 0 and 1"):
        open_feed(pixels, device="cpu", share=50)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_cuda(pixels: np.ndarray, share: float) -> None:
    feed = open_feed(pixels, device="cuda", share=share)
    assert feed.resident == (share > 0)
    rows = random_rows(40, 7)
    for batch, step in zip(list(feed.batches(rows)), rows, strict=True):
        assert batch.device.type == "cuda"
        assert np.array_equal(batch.cpu().numpy(), pixels[step.numpy()])
