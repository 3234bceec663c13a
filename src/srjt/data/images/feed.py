"""Batches of pixels, or features, on the device: from a resident copy of the store, or streamed;
cropped, flipped and normalised there.
"""

from __future__ import annotations

import mmap
import os
import warnings
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from srjt.data.manifest import Features
from srjt.errors import SrjtError
from srjt.networks import IMAGENET_MEAN, IMAGENET_STD

# Random crop, horizontal flip and normalisation of batches, on the device of the pixels.
#
# Random numbers and pixels are separate: a CPU generator draws the crops of an epoch at once, so
# that they are the same on every device, and cropping is plain indexing that a CUDA graph can
# capture.


@dataclass(frozen=True, kw_only=True)
class Crops:
    """The crop of each image: ``offsets`` (…, 2) int64, down and right; ``flips`` (…) bool,
    left–right."""

    offsets: Tensor
    flips: Tensor


def draw_crops(shape: tuple[int, ...], *, margin: int, generator: torch.Generator) -> Crops:
    """Draw one crop for each image of ``shape``, e.g. (steps, B): uniform offsets in 0 … margin,
    half of them flipped.

    ``margin`` is the stored side minus the cropped side: 32 for 224 out of 256.
    """
    offsets = torch.randint(0, margin + 1, (*shape, 2), generator=generator)
    return Crops(offsets=offsets, flips=torch.randint(0, 2, shape, generator=generator).bool())


def centre_crops(n: int, margin: int) -> Crops:
    """The crops for evaluation: the centre of each of ``n`` images, not flipped."""
    return Crops(offsets=torch.full((n, 2), margin // 2), flips=torch.zeros(n, dtype=torch.bool))


def view_crops(views: int, *, margin: int, mirror: bool = True) -> list[Crops]:
    """The views of an image that a prediction is averaged over, each as the crop of one image:
    offsets (1, 2), flips (1,).

    ``views`` is 1 (the centre crop), 2 (also its mirror image) or 10 (the centre and the four
    corners, each plain and mirrored). A smaller number is a prefix of a larger one.
    ``mirror=False`` is for networks that were trained without mirror images: 2 is then an error,
    and 10 gives the five plain views.
    """
    if views not in (1, 2, 10):
        raise SrjtError(
            f"views is 1 (the centre), 2 (and its mirror) or 10 (and the corners); got {views}.",
            code="out_of_bounds",
            option="views",
        )
    if views == 2 and not mirror:
        raise SrjtError(
            "The networks were trained without mirror images (flip=false): use 1 view or 10.",
            code="unsupported",
            option="views",
        )
    if views == 10 and margin < 1:
        raise SrjtError(
            f"The crop is the whole image: use {'1 view or 2' if mirror else '1 view'}, not 10.",
            code="unsupported",
            option="views",
        )
    centre = centre_crops(1, margin=margin)
    offsets = [centre.offsets]
    if views == 10:
        offsets += [torch.tensor([[down, right]]) for down in (0, margin) for right in (0, margin)]
    flips = [centre.flips, ~centre.flips] if views > 1 and mirror else [centre.flips]
    return [Crops(offsets=offset, flips=flip) for offset in offsets for flip in flips]


def crop_and_flip(pixels_BHWC: Tensor, offsets: Tensor, flips: Tensor, *, size: int) -> Tensor:
    """Crop a batch (B, H, W, 3) to (B, 3, size, size) in channels_last memory; all on one device.

    Offsets (B, 2) must be in 0 … H − size; a GPU does not check them.
    """
    rows = torch.arange(len(pixels_BHWC), device=pixels_BHWC.device)
    return gather_crops(pixels_BHWC, rows, offsets, flips, size=size)


def crop_alike(pixels_BHWC: Tensor, crop: Crops, *, size: int) -> Tensor:
    """Like ``crop_and_flip`` with one crop, offsets (1, 2) and flips (1,) on the CPU, for all
    images; not copied."""
    down, right = crop.offsets[0].tolist()
    if (
        min(down, right) < 0
        or down + size > pixels_BHWC.shape[1]
        or right + size > pixels_BHWC.shape[2]
    ):
        raise IndexError(
            f"a crop of {size} at ({down}, {right}) is outside of {tuple(pixels_BHWC.shape)}"
        )
    cut = pixels_BHWC[:, down : down + size, right : right + size]
    return (cut.flip(2) if crop.flips[0] else cut).permute(0, 3, 1, 2)


def gather_crops(
    store_NHWC: Tensor, rows: Tensor, offsets: Tensor, flips: Tensor, *, size: int
) -> Tensor:
    """Like ``crop_and_flip`` for the images ``rows`` (B,) of a whole store, without copying them
    first."""
    _, height, width, channels = store_NHWC.shape
    along = torch.arange(size, device=store_NHWC.device)
    down = rows[:, None] * height + offsets[:, :1] + along  # (B, size): pixel rows of the store
    right = offsets[:, 1:] + torch.where(flips[:, None], size - 1 - along, along)  # (B, size)
    pixel = (down * width)[:, :, None] + right[:, None, :]  # (B, size, size)
    # index_select over whole pixels: three times as fast on a CPU as indexing by (row, line,
    # column)
    crops = store_NHWC.view(-1, channels).index_select(0, pixel.view(-1))
    return crops.view(len(rows), size, size, channels).permute(0, 3, 1, 2)


def normalise(
    images: Tensor,
    *,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """(B, 3, H, W) uint8 to (x / 255 − mean) / std, computed in float32; keeps the memory
    format."""
    scale = _per_channel([1 / (255 * s) for s in std], images.device)
    shift = _per_channel([-m / s for m, s in zip(mean, std, strict=True)], images.device)
    scaled = images * scale
    out = scaled if dtype == scaled.dtype else torch.empty_like(scaled, dtype=dtype)
    return torch.add(scaled, shift, out=out)


def _per_channel(values: list[float], device: torch.device) -> Tensor:
    """(C, 1, 1), filled on the device: a copy from the host could not be captured in a CUDA
    graph."""
    tensor = torch.empty(len(values), 1, 1, device=device)
    for channel, value in zip(tensor, values, strict=True):
        channel.fill_(value)
    return tensor


# Batches of pixels, or features, on the device: from a resident copy of the store, or streamed.

Samples: TypeAlias = npt.NDArray[np.uint8] | Features

AHEAD = 4  # pieces in flight to the device, each gathered by its own thread
PIECE = 128  # samples of a batch that travel together; with larger pieces the device begins later


def open_feed(pixels: Samples, *, device: torch.device | str, share: float = 0.5) -> Feed:
    """Serve the store ``pixels`` (N, H, W, 3), or features (N, F), as batches on ``device``.

    The whole store is copied to a GPU if it takes at most ``share`` of the memory that is free
    there; otherwise it is streamed. On a CPU the memory map itself is the resident tensor, and
    nothing is copied.
    """
    if not 0 <= share <= 1:
        raise SrjtError(
            f"The share of GPU memory for the images must lie between 0 and 1, not {share}.",
            code="out_of_bounds",
            option="memory_share",
        )
    device = torch.device(device)
    if device.type == "cpu":
        return ResidentFeed(_as_tensor(pixels))
    if device.type == "cuda" and pixels.nbytes <= share * torch.cuda.mem_get_info(device)[0]:
        try:
            return ResidentFeed(_as_tensor(pixels).to(device))
        except (
            torch.cuda.OutOfMemoryError
        ):  # another process took the memory; streaming needs very little
            torch.cuda.empty_cache()
    return StreamedFeed(pixels, device=device)


class ResidentFeed:
    """The whole store as one read-only tensor on the device: ``pixels`` (N, H, W, 3) uint8 or (N,
    F) float32.

    ``gather_crops`` can crop directly from it, also in a CUDA graph.
    """

    resident = True

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    def batches(self, rows: Tensor) -> Iterator[Tensor]:
        """For each row of ``rows`` (steps, B), int64 on the CPU: a batch (B, H, W, 3) or (B, F) on
        the device."""
        _check(rows, len(self.pixels))
        for step in rows.to(self.pixels.device):  # all steps of an epoch at once
            yield self.pixels.index_select(0, step)


class StreamedFeed:
    """Pixels stay on the host. Threads gather the next pieces into pinned memory while the step
    runs.

    The consumer's stream waits for a copy on the device. The consumer itself waits only if the
    device is some batches behind, so that a fast host does not fill the device's memory. Each batch
    has its own memory and may be kept. While batches are in flight, capture a CUDA graph only with
    ``capture_error_mode="thread_local"``, because these threads use the device too.
    """

    resident = False
    pixels = None

    def __init__(self, pixels: Samples, *, device: torch.device) -> None:
        self.host = pixels
        self.device = device
        self.copies = torch.cuda.Stream(device) if device.type == "cuda" else None

    def batches(self, rows: Tensor) -> Iterator[Tensor]:
        """Like ``ResidentFeed.batches``."""
        _check(rows, len(self.host))
        pieces = [piece for step in rows for piece in step.split(PIECE)]
        per_batch = len(pieces) // max(len(rows), 1)
        slots = [_Slot(self, min(PIECE, rows.shape[1])) for _ in range(min(AHEAD, len(pieces)))]
        pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="feed")
        ahead: deque[Future[tuple[Tensor, torch.cuda.Event | None]]] = deque()
        used: torch.cuda.Event | None = None

        def start(number: int) -> None:
            # The slot's previous piece has been handed over; only its copy may still be running.
            if number < len(pieces):
                ahead.append(pool.submit(slots[number % AHEAD].fetch, pieces[number], after=used))

        try:
            for number in range(len(slots)):
                start(number)
            for first in range(0, len(pieces), per_batch or 1):
                arrived = []
                for number in range(first, first + per_batch):
                    arrived.append(ahead.popleft().result())
                    start(number + AHEAD)
                if self.copies is not None:
                    consumer = torch.cuda.current_stream(self.device)
                    used = torch.cuda.Event(blocking=True)
                    used.record(consumer)  # when the device has used all earlier batches
                    for piece, copied in arrived:
                        assert copied is not None
                        consumer.wait_event(copied)
                        piece.record_stream(consumer)  # it was allocated on the copy stream
                yield (
                    arrived[0][0] if per_batch == 1 else torch.cat([piece for piece, _ in arrived])
                )
        finally:  # also if the consumer leaves the loop early
            pool.shutdown(cancel_futures=True)


Feed: TypeAlias = ResidentFeed | StreamedFeed


class FeedCache:
    """Keeps the images of one training on the GPU for the next one with the same images."""

    def __init__(self) -> None:
        self._kept: tuple[Hashable, Samples, Feed] | None = None

    def open(self, pixels: Samples, *, device: torch.device | str, share: float = 0.5) -> Feed:
        """As ``open_feed``."""
        device = torch.device(device)
        if device.type == "cpu":  # nothing is copied there
            return open_feed(pixels, device=device, share=share)
        key = (device, *_identity(pixels))
        if self._kept is None or self._kept[0] != key:
            if self._kept is not None:
                self._kept = (
                    None  # first, because the memory that is free decides where the images go
                )
                if torch.cuda.is_initialized():
                    # else torch keeps it, and neither it nor other processes see it as free
                    torch.cuda.empty_cache()
            feed = open_feed(pixels, device=device, share=share)
            if not feed.resident:
                return feed
            self._kept = (key, pixels, feed)
        return self._kept[2]


def _identity(pixels: Samples) -> tuple[Hashable, ...]:
    """The file of a whole memory map, which is opened anew for every training; else the place in
    memory."""
    file = getattr(pixels, "filename", None)
    base = getattr(pixels, "base", None)
    if file is not None and isinstance(base, mmap.mmap):  # not a part of the memory map
        status = os.stat(file)
        return status.st_dev, status.st_ino, status.st_mtime_ns, pixels.shape
    return pixels.__array_interface__["data"][0], pixels.strides, pixels.shape, pixels.dtype.str


class _Slot:
    """A host buffer that every ``AHEAD``-th piece passes through on its way to the device."""

    def __init__(self, feed: StreamedFeed, size: int) -> None:
        self._host = feed.host
        self._device = feed.device
        self._copies = feed.copies
        kind = torch.uint8 if feed.host.dtype == np.uint8 else torch.float32
        shape = (size, *feed.host.shape[1:])
        self._buffer = torch.empty(shape, dtype=kind, pin_memory=feed.copies is not None)
        self._copied: torch.cuda.Event | None = None

    def fetch(
        self, rows: Tensor, *, after: torch.cuda.Event | None
    ) -> tuple[Tensor, torch.cuda.Event | None]:
        """The rows on the device, copied after an event there; and the event that marks the end of
        the copy."""
        if self._copied is not None:
            self._copied.synchronize()  # only this thread waits until the buffer has been read
        buffer = self._buffer[: len(rows)]
        # "clip" writes directly into the buffer, three times as fast as "raise"; the rows are
        # already checked
        np.take(self._host, rows.numpy(), axis=0, out=buffer.numpy(), mode="clip")
        if self._copies is None:
            return buffer.to(self._device, copy=True), None
        if after is not None:
            after.synchronize()
        with torch.cuda.stream(self._copies):
            piece = buffer.to(self._device, non_blocking=True)
            self._copied = torch.cuda.Event(blocking=True)
            self._copied.record(self._copies)
        return piece, self._copied


def _as_tensor(pixels: Samples) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")  # it is only read
        return torch.from_numpy(pixels)


def _check(rows: Tensor, count: int) -> None:
    if rows.ndim != 2 or rows.dtype != torch.int64 or rows.device.type != "cpu":
        raise ValueError(
            f"rows must be (steps, B) int64 on the CPU, not {tuple(rows.shape)} {rows.dtype}"
        )
    if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < count:
        raise IndexError(f"rows must lie in 0 … {count - 1}: they span {rows.min()} … {rows.max()}")
