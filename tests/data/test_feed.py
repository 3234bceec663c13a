"""Batches on the device: fed, cropped, flipped, normalised."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare
from torch import Tensor

from refusals import refuses
from srjt.data.images import feed as feeds
from srjt.networks import IMAGENET_MEAN, IMAGENET_STD

CPU = torch.device("cpu")


@pytest.fixture
def pixels(tmp_path: Path) -> np.ndarray:
    """(20, 6, 5, 3) uint8, memory-mapped and read-only as the store's."""
    np.save(
        tmp_path / "a.npy", np.random.default_rng(0).integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
    )
    return np.load(tmp_path / "a.npy", mmap_mode="r")


def feed_of(pixels: np.ndarray, kind: str) -> feeds.Feed:
    make = feeds.open_feed if kind == "resident" else feeds.StreamedFeed
    return make(pixels, device=CPU)


def random_rows(steps: int, batch: int) -> Tensor:
    return torch.randint(0, 20, (steps, batch), generator=torch.Generator().manual_seed(0))


def feed_threads() -> int:
    return sum(thread.name.startswith("feed") for thread in threading.enumerate())


@pytest.mark.parametrize("kind", ["resident", "streamed", "streamed in pieces"])
@pytest.mark.parametrize("steps", [0, 23])
def test_batches_are_the_rows(pixels: np.ndarray, kind: str, steps: int, monkeypatch: Any) -> None:
    if kind == "streamed in pieces":
        monkeypatch.setattr(feeds, "PIECE", 3)  # of batches of 7: two whole ones and a smaller one
    feed = feed_of(pixels, kind)
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
    feed = feeds.open_feed(pixels, device="cpu")
    assert isinstance(feed, feeds.ResidentFeed)
    assert feed.pixels.data_ptr() == pixels.ctypes.data


def test_leaving_early_stops_the_threads(pixels: np.ndarray) -> None:
    batches = feeds.StreamedFeed(pixels, device=CPU).batches(random_rows(1000, 4))
    next(batches)
    assert feed_threads() > 0
    batches.close()  # type: ignore[attr-defined]
    assert feed_threads() == 0


def test_the_work_runs_ahead_but_only_so_far(
    pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    take = np.take
    monkeypatch.setattr(np, "take", lambda *args, **kw: (taken.append(1), take(*args, **kw))[1])
    batches = feeds.StreamedFeed(pixels, device=CPU).batches(random_rows(50, 2))
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
    for batch, step in zip(feeds.StreamedFeed(pixels, device=CPU).batches(rows), rows, strict=True):
        assert np.array_equal(batch.numpy(), pixels[step.numpy()])


def test_a_failure_in_a_thread_reaches_the_consumer(pixels: np.ndarray, monkeypatch: Any) -> None:
    take = np.take
    calls = iter(range(100))

    def failing(*args: object, **options: object) -> np.ndarray:
        if next(calls) == 5:
            raise OSError("the network drive is gone")
        return take(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(np, "take", failing)
    with pytest.raises(OSError, match="network drive"):
        list(feeds.StreamedFeed(pixels, device=CPU).batches(random_rows(30, 3)))
    assert feed_threads() == 0


@pytest.mark.parametrize("kind", ["resident", "streamed"])
def test_rows_are_checked(pixels: np.ndarray, kind: str) -> None:
    feed = feed_of(pixels, kind)
    for rows in (torch.tensor([[0, 20]]), torch.tensor([[-1, 3]])):
        with pytest.raises(IndexError, match="0 … 19"):
            next(feed.batches(rows))
    with pytest.raises(ValueError, match="int64"):
        next(feed.batches(torch.zeros(2, 2)))


def test_share_must_be_a_share(pixels: np.ndarray) -> None:
    with refuses("out_of_bounds", "memory_share"):
        feeds.open_feed(pixels, device="cpu", share=50)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_cuda(pixels: np.ndarray, share: float) -> None:
    feed = feeds.open_feed(pixels, device="cuda", share=share)
    assert feed.resident == (share > 0)
    rows = random_rows(40, 7)
    for batch, step in zip(list(feed.batches(rows)), rows, strict=True):
        assert batch.device.type == "cuda"
        assert np.array_equal(batch.cpu().numpy(), pixels[step.numpy()])


# The batched crops are the per-sample ones, in every case and in their frequencies.
def by_definition(image_HWC: Tensor, y: int, x: int, flip: bool, size: int) -> Tensor:
    crop = image_HWC[y : y + size, x : x + size]
    return (crop.flip(1) if flip else crop).permute(2, 0, 1)


def random_pixels(*shape: int) -> Tensor:
    return torch.randint(
        0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def test_every_offset_and_flip_is_the_slice() -> None:
    size, margin = 5, 3
    cases = [(y, x, f) for y in range(margin + 1) for x in range(margin + 1) for f in (False, True)]
    pixels = random_pixels(len(cases), size + margin, size + margin, 3)
    offsets = torch.tensor([case[:2] for case in cases])
    flips = torch.tensor([case[2] for case in cases])
    crops = feeds.crop_and_flip(pixels, offsets, flips, size=size)
    assert crops.dtype == torch.uint8
    for image, crop, (y, x, flip) in zip(pixels, crops, cases, strict=True):
        assert torch.equal(crop, by_definition(image, y, x, flip, size))


@settings(max_examples=40, deadline=None)
@given(*(st.integers(low, high) for low, high in ((1, 6), (0, 5), (1, 6), (0, 4), (0, 99))))
def test_gathering_from_the_store(n: int, batch: int, size: int, margin: int, seed: int) -> None:
    store, generator = (
        random_pixels(n, size + margin, size + margin, 3),
        torch.Generator().manual_seed(seed),
    )
    rows = torch.randint(0, n, (batch,), generator=generator)
    crops = feeds.draw_crops((batch,), margin=margin, generator=generator)
    gathered = feeds.gather_crops(store, rows, crops.offsets, crops.flips, size=size)
    assert gathered.shape == (batch, 3, size, size)
    assert torch.equal(
        gathered, feeds.crop_and_flip(store[rows], crops.offsets, crops.flips, size=size)
    )
    for crop, row, (y, x), flip in zip(gathered, rows, crops.offsets, crops.flips, strict=True):
        assert torch.equal(crop, by_definition(store[row], y, x, flip, size))


def test_oblong_images() -> None:
    pixels = random_pixels(2, 6, 9, 3)
    crops = feeds.crop_and_flip(
        pixels, torch.tensor([[2, 5], [0, 1]]), torch.tensor([False, True]), size=4
    )
    assert torch.equal(crops[0], by_definition(pixels[0], 2, 5, False, 4))
    assert torch.equal(crops[1], by_definition(pixels[1], 0, 1, True, 4))


def test_offsets_and_flips_are_uniform_and_independent() -> None:
    margin, draws = 3, 16_000
    crops = feeds.draw_crops((draws,), margin=margin, generator=torch.Generator().manual_seed(1))
    cell = (crops.offsets[:, 0] * (margin + 1) + crops.offsets[:, 1]) * 2 + crops.flips
    counts = np.bincount(cell.numpy(), minlength=2 * (margin + 1) ** 2)
    assert len(counts) == 32  # nothing beyond the margin
    assert chisquare(counts).pvalue > 0.01
    # and from one image of an epoch to the next
    follows = np.bincount((cell[:-1] * 32 + cell[1:]).numpy(), minlength=32 * 32)
    assert chisquare(follows).pvalue > 0.01


def test_draws_depend_on_the_seed_alone() -> None:
    generators = (torch.Generator().manual_seed(seed) for seed in (5, 5, 6))
    first, again, other = (feeds.draw_crops((4, 8), margin=32, generator=one) for one in generators)
    assert first.offsets.shape == (4, 8, 2)
    assert first.flips.shape == (4, 8)
    assert torch.equal(first.offsets, again.offsets)
    assert torch.equal(first.flips, again.flips)
    assert not torch.equal(first.offsets, other.offsets)


def test_views_are_the_centre_and_the_corners_each_plain_and_mirrored() -> None:
    size, margin = 4, 3  # odd: the centre lies nearer to the upper left
    image = random_pixels(1, size + margin, size + margin, 3)
    views = feeds.view_crops(10, margin=margin)
    seen = [feeds.crop_and_flip(image, v.offsets, v.flips, size=size)[0] for v in views]
    for view, cut in zip(views, seen, strict=True):
        assert torch.equal(feeds.crop_alike(image, view, size=size)[0], cut)
    places = [(1, 1), (0, 0), (0, 3), (3, 0), (3, 3)]
    expected = [by_definition(image[0], y, x, f, size) for y, x in places for f in (False, True)]
    assert all(torch.equal(a, b) for a, b in zip(seen, expected, strict=True))


@pytest.mark.parametrize(
    ("views", "mirror", "count"), [(1, True, 1), (1, False, 1), (2, True, 2), (10, False, 5)]
)
def test_fewer_views_are_among_the_ten(views: int, mirror: bool, count: int) -> None:
    def plain(crops: list[feeds.Crops]) -> list[tuple[list[int], bool]]:
        return [(crop.offsets[0].tolist(), bool(crop.flips)) for crop in crops]

    ten = plain(feeds.view_crops(10, margin=32))
    fewer = plain(feeds.view_crops(views, margin=32, mirror=mirror))
    assert fewer == [view for view in ten if mirror or not view[1]][:count]


def test_memory_is_channels_last_from_crop_to_network() -> None:
    pixels = random_pixels(3, 8, 8, 3)
    crops = feeds.centre_crops(3, margin=2)
    cut = feeds.crop_and_flip(pixels, crops.offsets, crops.flips, size=6)
    assert cut.is_contiguous(memory_format=torch.channels_last)
    assert feeds.normalise(cut).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_normalise(dtype: torch.dtype, tolerance: float) -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(2, 3, 16, 16)
    mean = torch.tensor(IMAGENET_MEAN, dtype=torch.float64).view(3, 1, 1)
    std = torch.tensor(IMAGENET_STD, dtype=torch.float64).view(3, 1, 1)
    result = feeds.normalise(images, dtype=dtype)
    assert result.dtype == dtype
    assert torch.equal(result, feeds.normalise(images).to(dtype))  # rounded once, at the end
    torch.testing.assert_close(
        result.double(), (images / 255.0 - mean) / std, atol=tolerance, rtol=0
    )
    plain = feeds.normalise(images, mean=(0, 0, 0), std=(1, 1, 1))
    torch.testing.assert_close(plain, images / 255)


def test_an_offset_beyond_the_store_is_an_error_on_the_cpu() -> None:
    with pytest.raises(IndexError):
        feeds.crop_and_flip(
            random_pixels(1, 4, 4, 3), torch.tensor([[3, 3]]), torch.tensor([False]), size=4
        )
    for margin in (6, -2):  # the centre of a larger or smaller image
        with pytest.raises(IndexError, match="outside"):
            feeds.crop_alike(
                random_pixels(1, 4, 4, 3), feeds.centre_crops(1, margin=margin), size=4
            )
