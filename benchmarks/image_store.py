"""How fast the image store is built and read, and that its memory does not grow with the number of
images.

    python benchmarks/image_store.py --images 3000
    python benchmarks/image_store.py --decoders --width 4000 --height 3000
    python benchmarks/image_store.py --threads 2 4 8 16 --images 10000

With ``--decoders`` only: CPU time per image of a plain Pillow loop, of ``read_image`` and, where it
is installed, of simplejpeg, and how far their pixels differ from those of ``read_image``. With
``--threads`` only: a plain Pillow loop in so many threads, and the store in as many, which are
processes from six on.

Expected: building is at least as fast per core as a plain Pillow loop (faster on large JPEGs, by
draft decoding), and peak memory is the same for 1,000 and for 4,000 images. With a GPU also the
rates of the resident and of the streamed feed, and the time of one batch of crops.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 256

BUILD_AND_TELL_PEAK = """
import resource, sys
from pathlib import Path
import pandas as pd
from srjt.data.manifest import Manifest
from srjt.data.images.store import open_store
root, cache, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
names = sorted(p.name for p in root.iterdir())
names = [names[i % len(names)] for i in range(count)]
manifest = Manifest(table=pd.DataFrame({"id": [str(i) for i in range(count)], "image": names, "grade": 0}),
                    grades=("a",), root=root)
open_store(manifest.select(range(min(64, count - 1))), cache=cache)  # the threads' own working memory
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
open_store(manifest, cache=cache)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def write_jpegs(folder: Path, *, count: int, width: int, height: int) -> list[Path]:
    """Smooth pictures with some grain, so that they compress about as endoscopic images do."""
    rng = np.random.default_rng(0)
    bodies = []
    for _ in range(min(count, 20)):
        smooth = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(
            (width, height)
        )
        grain = rng.integers(-6, 7, (height, width, 3))
        body = BytesIO()
        Image.fromarray(np.clip(np.asarray(smooth) + grain, 0, 255).astype(np.uint8)).save(
            body, "JPEG", quality=90
        )
        bodies.append(body.getvalue())
    paths = [folder / f"{i:06d}.jpg" for i in range(count)]
    for i, path in enumerate(paths):
        path.write_bytes(bodies[i % len(bodies)])
    return paths


def peak_memory_growth(folder: Path, cache: Path, count: int) -> float:
    """MiB by which a process grows while it builds a store of ``count`` images."""
    arguments = [sys.executable, "-c", BUILD_AND_TELL_PEAK, str(folder), str(cache), str(count)]
    return float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)


def plain(path: Path) -> np.ndarray:
    """What one would write without thinking about it."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def plain_pillow(paths: list[Path], *, threads: int = 1) -> float:
    """Images per second."""
    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(plain, paths):
            pass
    return len(paths) / (time.perf_counter() - started)


def decoders(paths: list[Path], *, repeats: int = 5) -> None:
    """One thread, CPU seconds: the decoders alternate, image by image."""
    import PIL

    from srjt.data.images.decode import read_image, resized

    programs = {"plain Pillow loop": plain, "read_image": lambda path: read_image(path, size=SIZE)}
    try:
        import simplejpeg
    except ImportError:
        print("simplejpeg is not installed")
    else:

        def with_simplejpeg(path: Path) -> np.ndarray:  # scaled as read_image does
            pixels = simplejpeg.decode_jpeg(
                path.read_bytes(), min_height=2 * SIZE, min_width=2 * SIZE, min_factor=1
            )
            return np.asarray(resized(Image.fromarray(pixels), size=SIZE, resize="squash"))

        programs[f"simplejpeg {simplejpeg.__version__}"] = with_simplejpeg
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    furthest = dict.fromkeys(programs, 0)
    for path in paths * repeats:
        ours = read_image(path, size=SIZE).astype(np.int64)
        for name, decode in programs.items():
            started = time.process_time()
            pixels = decode(path)
            seconds[name].append(time.process_time() - started)
            furthest[name] = max(furthest[name], int(np.abs(pixels - ours).max()))
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    print(
        f"Pillow {PIL.__version__}, {platform.machine()}, medians of {len(paths) * repeats} images:"
    )
    for name, taken in medians.items():
        print(
            f"{name:20}{1000 * taken:8.1f} ms CPU {medians['plain Pillow loop'] / taken:6.2f}   "
            f"pixels differ by at most {furthest[name]}"
        )


def building(paths: list[Path], cache: Path, *, workers: int) -> float:
    import pandas as pd

    from srjt.data.images.store import open_store
    from srjt.data.manifest import Manifest

    names = [path.name for path in paths]
    table = pd.DataFrame({"id": names, "image": names, "grade": 0})
    manifest = Manifest(table=table, grades=("a",), root=paths[0].parent)
    started = time.perf_counter()
    open_store(manifest, size=SIZE, cache=cache, workers=workers)
    return len(paths) / (time.perf_counter() - started)


def building_in_threads(paths: list[Path], root: Path, counts: list[int]) -> None:
    """Medians of three turns, in which the programs alternate."""
    print(f"{len(paths):,} JPEGs, images/s (against the plain loop in as many threads):")
    for workers in counts:
        plain, ours = [], []
        for turn in range(3):
            plain.append(plain_pillow(paths, threads=workers))
            cache = root / f"threads-{workers}-{turn}"
            ours.append(building(paths, cache, workers=workers))
            shutil.rmtree(cache)
        base, store = statistics.median(plain), statistics.median(ours)
        print(
            f"{workers:3d} workers: plain {base:6,.0f}, store {store:6,.0f} ({store / base:.2f})",
            flush=True,
        )


def feeding(count: int, folder: Path) -> None:
    """Rates of the feeds, and one batch's crops, on a GPU if there is one."""
    import torch

    from srjt.data.images.feed import StreamedFeed, draw_crops, gather_crops, open_feed

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    pixels = np.lib.format.open_memmap(folder / "feed.npy", "w+", np.uint8, (count, SIZE, SIZE, 3))
    for row in pixels:
        row[:] = np.random.default_rng(0).integers(0, 256, row.shape, dtype=np.uint8)
    pixels = np.load(folder / "feed.npy", mmap_mode="r")
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, count, (100, 64), generator=generator)
    for name, feed in {
        "resident": open_feed(pixels, device=device),
        "streamed": StreamedFeed(pixels, device=device),
    }.items():
        for _ in range(2):  # the first time warms up
            wait()
            started = time.perf_counter()
            for _batch in feed.batches(rows):
                pass
            wait()
        print(
            f"{name} batches on {device}: {rows.numel() / (time.perf_counter() - started):,.0f} images/s"
        )
    store = open_feed(pixels, device=device).pixels
    assert store is not None
    crops = draw_crops((64,), margin=32, generator=generator)
    chosen, offsets, flips = (tensor.to(device) for tensor in (rows[0], crops.offsets, crops.flips))
    for _ in range(2):
        wait()
        started = time.perf_counter()
        for _ in range(20):
            gather_crops(store, chosen, offsets, flips, size=SIZE - 32)
        wait()
    print(f"64 crops of 224 on {device}: {(time.perf_counter() - started) / 20 * 1e3:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--width", type=int, default=720)
    parser.add_argument("--height", type=int, default=576)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--decoders", action="store_true", help="only compare decoders, on a few images"
    )
    parser.add_argument(
        "--threads", type=int, nargs="+", metavar="N", help="only the store in so many workers"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "jpeg").mkdir()
        if given.decoders:
            few = min(given.images, 4 if given.width * given.height > 1e6 else 20)
            decoders(write_jpegs(root / "jpeg", count=few, width=given.width, height=given.height))
            return
        paths = write_jpegs(
            root / "jpeg", count=given.images, width=given.width, height=given.height
        )
        if given.threads:
            building_in_threads(paths, root, given.threads)
            return
        for count in (given.images // 3, given.images // 3 * 4):
            growth = peak_memory_growth(root / "jpeg", root / f"cache{count}", count)
            print(f"peak memory growth over {count:,} images: {growth:.1f} MiB")
        plain = plain_pillow(paths)
        one = building(paths, root / "one", workers=1)
        all_cores = building(paths, root / "all", workers=given.workers)
        print(
            f"{given.images:,} JPEGs of {given.width} × {given.height}, images/s (against the plain loop):"
        )
        print(f"plain Pillow loop    {plain:8,.0f}")
        print(f"store, 1 thread      {one:8,.0f}  ({one / plain:.2f})")
        print(f"store, {given.workers} workers     {all_cores:8,.0f}  ({all_cores / plain:.2f})")
        feeding(min(given.images, 2000), root)


if __name__ == "__main__":
    main()
