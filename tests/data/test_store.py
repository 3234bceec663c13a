"""The store survives what happens to it: kills, second processes, full disks, changed and broken
files."""

import csv
import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from PIL import Image

from data.stores import SIZE, expected_pixels, manifest_of, opened, the_folder
from refusals import refuses
from srjt.data.images import decode, store, store as build
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.images.store import open_store
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError


@pytest.mark.parametrize("workers", [1, 3])
def test_pixels_are_the_decoded_files(images: Manifest, tmp_path: Path, workers: int) -> None:
    calls: list[tuple[int, int]] = []
    result = opened(images, tmp_path, workers=workers, progress=lambda *step: calls.append(step))
    assert np.array_equal(result.pixels, expected_pixels(images))
    assert result.pixels.dtype == np.uint8
    assert isinstance(result.pixels, np.memmap)
    assert not result.pixels.flags.writeable
    assert result.manifest is images
    assert result.skipped == []
    assert calls == [(i, 40) for i in range(1, 41)]


@pytest.mark.parametrize("program", ["", "import sys; sys.exit(1)", "print('n\\n7')"])
def test_processes_decode_the_same(
    images: Manifest, tmp_path: Path, decoded: list[str], monkeypatch: Any, program: str
) -> None:
    for name in ("PROCESSES", "MANY"):
        monkeypatch.setattr(store, name, 2)
    if program:  # one that fails, or says what nobody can read: the rest is decoded all the same
        monkeypatch.setattr(decode, "PROGRAM", program)
    decoded.clear()
    calls: list[tuple[int, int]] = []
    result = opened(images, tmp_path, workers=2, progress=lambda *step: calls.append(step))
    assert np.array_equal(result.pixels, expected_pixels(images))
    assert calls == [(i, 40) for i in range(1, 41)]
    assert len(decoded) == (40 if program else 0)  # decoded by this process


@pytest.mark.slow
def test_processes_leave_bad_files_to_us(
    broken: Manifest, tmp_path: Path, monkeypatch: Any
) -> None:
    alone = opened(broken, tmp_path / "alone", workers=1, on_bad_image="skip")
    for name in ("PROCESSES", "MANY"):
        monkeypatch.setattr(store, name, 2)
    several = opened(broken, tmp_path / "several", workers=2, on_bad_image="skip")
    assert several.skipped == alone.skipped != []
    assert np.array_equal(several.pixels, alone.pixels)


def test_it_is_opened_the_second_time(images: Manifest, tmp_path: Path, decoded: list[str]) -> None:
    first = opened(images, tmp_path)
    decoded.clear()
    second = opened(
        images.with_noisy_labels(images.labels[::-1]), tmp_path
    )  # labels are not in the key
    assert decoded == []
    assert second.path == first.path
    assert np.array_equal(second.pixels, first.pixels)


def test_a_changed_file_a_size_and_a_rule_each_make_another_store(
    images: Manifest, tmp_path: Path
) -> None:
    before = opened(images, tmp_path)
    path = images.paths[7]
    inverted = 255 - np.asarray(Image.open(path))
    Image.fromarray(inverted).save(path)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))
    after = opened(images, tmp_path)
    assert after.path != before.path
    assert np.array_equal(after.pixels[7], read_image(path, size=SIZE))
    assert np.array_equal(np.delete(after.pixels, 7, 0), np.delete(before.pixels, 7, 0))
    assert len({before.path, after.path, opened(images, tmp_path, resize="crop").path}) == 3
    assert open_store(images, size=8, cache=tmp_path).pixels.shape == (40, 8, 8, 3)


def test_the_cache_folder_of_the_environment(
    images: Manifest, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "here"))
    result = open_store(images, size=SIZE)
    assert result.path.parent == tmp_path / "here" / "images"
    monkeypatch.delenv("SRJT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform != "darwin":
        assert store.files.cache_folder() == tmp_path / "xdg" / "srjt"


def test_an_empty_manifest(tmp_path: Path) -> None:
    result = opened(manifest_of(tmp_path, []), tmp_path)
    assert result.pixels.shape == (0, SIZE, SIZE, 3)


def test_a_cache_that_cannot_be_made_and_a_misspelt_choice(
    images: Manifest, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with refuses("unwritable_file", says="SRJT_CACHE"):
        opened(images, tmp_path / "file")
    with refuses("unknown_name", says="'skip'"):
        opened(images, tmp_path, on_bad_image="skipp")


# Bad images
def test_all_bad_images_are_told_in_one_error(broken: Manifest, tmp_path: Path) -> None:
    with pytest.raises(SrjtError) as caught:
        opened(broken, tmp_path)
    message = str(caught.value)
    assert "3 of 40 images" in message
    for name in ("03.png", "11.png", "39.png"):
        assert name in message
    with (the_folder(tmp_path) / "bad_images.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["id-03.png", "id-11.png", "id-39.png"]
    assert "0 bytes" in rows[1]["reason"]
    assert str(broken.paths[3]) in message
    assert "bad_images.csv" not in message  # all of them are named


def test_only_the_first_few_are_named(images: Manifest, tmp_path: Path) -> None:
    for path in images.paths[:20]:
        path.write_bytes(b"")
    with refuses("unusable_samples", "on_bad_image", says=("15 more", "bad_images.csv")):
        opened(images, tmp_path)


def test_after_an_error_only_bad_ones_are_tried(
    broken: Manifest, tmp_path: Path, decoded: list[str]
) -> None:
    with pytest.raises(SrjtError):
        opened(broken, tmp_path)
    decoded.clear()
    opened(broken, tmp_path, on_bad_image="skip")
    assert sorted(decoded) == ["03.png", "11.png", "39.png"]


def test_skipping_keeps_all_aligned(
    broken: Manifest, tmp_path: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "CHUNK", 8)
    result = opened(broken, tmp_path, on_bad_image="skip")
    good = broken.select([i for i in range(40) if i not in (3, 11, 39)])
    assert np.array_equal(result.pixels, expected_pixels(good))
    assert result.manifest.ids == good.ids
    assert result.manifest.labels.tolist() == good.labels.tolist()
    assert [name for name, _ in result.skipped] == ["id-03.png", "id-11.png", "id-39.png"]
    assert not (the_folder(tmp_path) / "pixels").exists()  # the disk does not hold it twice

    decoded.clear()
    again = opened(broken, tmp_path, on_bad_image="skip")
    assert np.array_equal(again.pixels, result.pixels)
    assert again.skipped == result.skipped
    with refuses(
        "unusable_samples", "on_bad_image", says="3 of 40"
    ):  # a store with gaps is not what "error" asks for
        opened(broken, tmp_path, on_bad_image="error")
    assert set(decoded) == {
        "03.png",
        "11.png",
        "39.png",
    }  # only what could not be read is tried again


@pytest.mark.parametrize("on_bad_image", ["skip", "error"])
def test_a_skipped_image_that_can_be_read_now_is_taken(
    images: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_bad_image: str
) -> None:
    def lacks_a_decoder(path: Path, **how: Any) -> np.ndarray:
        if path.name == "11.png":
            raise BadImageError(path, "its decoder is missing")
        return read_image(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(build, "read_image", lacks_a_decoder)
        first = opened(images, tmp_path, on_bad_image="skip")
    assert [name for name, _ in first.skipped] == ["id-11.png"]
    again = opened(images, tmp_path, on_bad_image=on_bad_image)
    assert again.skipped == []
    assert np.array_equal(again.pixels, expected_pixels(images))
    assert np.array_equal(first.pixels, expected_pixels(first.manifest))  # it is still open


def test_no_image_at_all_is_an_error_even_when_skipping(images: Manifest, tmp_path: Path) -> None:
    (tmp_path / "nowhere" / "beside").mkdir(parents=True)
    impossible = "a" * 300 + ".png"  # a name that no file can have
    elsewhere = manifest_of(tmp_path / "nowhere", [impossible, "b.png"])
    with refuses("missing_file", "images", says="None of the 2"):
        opened(elsewhere, tmp_path, on_bad_image="skip")


# Kills, damage, company and a full disk
SLOW_BUILD = """
import sys, time
import pandas as pd, numpy as np
from pathlib import Path
from srjt.data.images import store, store as build
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.manifest import Manifest

root, cache, delay = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
names = sorted(p.name for p in root.iterdir())
table = pd.DataFrame({"id": names, "image": names, "grade": [0] * len(names)})
build.CHUNK = 4

def slowly(path, **options):
    time.sleep(delay)
    return read_image(path, **options)

store.read_image = slowly
result = store.open_store(Manifest(table=table, grades=("a",), root=root), size=16, cache=cache, workers=2)
print(result.path)
"""


def start_build(manifest: Manifest, cache: Path, *, delay: float) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", SLOW_BUILD, str(manifest.root), str(cache), str(delay)]
    return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_marks(cache: Path, at_least: int) -> None:
    """Wait until a running build has marked so many images (half a minute at most)."""
    for _ in range(3000):
        files = list(cache.glob("images/*/done"))
        if files and files[0].read_bytes().count(1) >= at_least:
            return
        time.sleep(0.01)
    raise AssertionError("the build did not start")


@pytest.mark.slow
def test_kill_and_resume(images: Manifest, tmp_path: Path, decoded: list[str]) -> None:
    process = start_build(images, tmp_path / "cache", delay=0.2)
    wait_for_marks(tmp_path / "cache", 8)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    folder = the_folder(tmp_path / "cache")
    marked = (folder / "done").read_bytes()
    assert 8 <= marked.count(1) < 40
    assert not (folder / "store.json").exists()

    decoded.clear()
    calls: list[int] = []
    result = opened(images, tmp_path / "cache", progress=lambda done, total: calls.append(done))
    assert result.path == folder
    assert np.array_equal(result.pixels, expected_pixels(images))
    assert len(decoded) == 40 - marked.count(1)
    assert calls[0] == marked.count(1) + 1
    assert opened(images, tmp_path / "fresh").path != folder
    assert (the_folder(tmp_path / "fresh") / "pixels").read_bytes() == (
        folder / "pixels"
    ).read_bytes()


def test_a_mark_never_precedes_its_pixels(
    images: Manifest, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(build, "CHUNK", 4)
    truth = expected_pixels(images)
    seen = []

    def check_marks(done: int, total: int) -> None:
        folder = the_folder(tmp_path)
        marked = np.flatnonzero(np.frombuffer((folder / "done").read_bytes(), np.uint8))
        seen.append(len(marked))
        pixels = np.fromfile(folder / "pixels", np.uint8).reshape(truth.shape)
        assert np.array_equal(pixels[marked], truth[marked])

    opened(images, tmp_path, progress=check_marks)
    assert seen == [i // 4 * 4 for i in range(40)]


@pytest.mark.slow
def test_two_processes_make_one_store(images: Manifest, tmp_path: Path) -> None:
    processes = [start_build(images, tmp_path, delay=0.02) for _ in range(2)]
    wait_for_marks(tmp_path, 1)
    result = opened(images, tmp_path)  # the third
    assert [process.wait() for process in processes] == [0, 0]
    assert np.array_equal(result.pixels, expected_pixels(images))
    assert the_folder(tmp_path) == result.path


@pytest.mark.slow
def test_the_second_takes_over_from_a_dead_first(
    images: Manifest, tmp_path: Path, decoded: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    process = start_build(images, tmp_path, delay=0.2)
    wait_for_marks(tmp_path, 8)
    decoded.clear()
    progress_seen: list[int] = []

    def kill_the_first(done: int, total: int) -> None:
        if not progress_seen:
            assert decoded == []  # we are waiting, not building
            process.kill()
        progress_seen.append(done)

    result = opened(images, tmp_path, progress=kill_the_first)
    process.wait()
    assert "waiting" in caplog.text
    assert 0 < len(decoded) < 40
    assert progress_seen[-1] == 40
    assert np.array_equal(result.pixels, expected_pixels(images))


@pytest.mark.parametrize(
    "damage",
    ["truncated pixels", "no pixels", "other pixels", "garbled json", "no json, all marked"],
)
def test_a_damaged_store_is_rebuilt(images: Manifest, tmp_path: Path, damage: str) -> None:
    folder = opened(images, tmp_path).path
    if damage == "truncated pixels":
        os.truncate(folder / "pixels", 5000)
    elif damage == "other pixels":
        content = (folder / "pixels").read_bytes()
        (folder / "pixels").write_bytes(content[:-100] + bytes(100))
    elif damage == "no pixels":
        (folder / "pixels").unlink()
    elif damage == "garbled json":
        (folder / "store.json").write_text("{")
    else:
        (folder / "store.json").unlink()
        (folder / "done").write_bytes(b"\1" * 40)
        os.truncate(folder / "pixels", 5000)  # the marks must not be believed
    assert np.array_equal(opened(images, tmp_path).pixels, expected_pixels(images))


def test_disk_full_midway(
    images: Manifest, tmp_path: Path, decoded: list[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(build, "CHUNK", 4)
    row, room, write_at = 3 * SIZE * SIZE, [15], build._write_at

    def small_disk(file: BinaryIO, content: bytes | memoryview, offset: int) -> None:
        if memoryview(content).nbytes == row:
            room[0] -= 1
            if room[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_at(file, content, offset)

    monkeypatch.setattr(build, "_write_at", small_disk)
    with pytest.raises(SrjtError) as caught:
        opened(images, tmp_path, workers=1)
    folder = the_folder(tmp_path)
    assert f"{40 * row:,} bytes in {folder}: No space left" in str(caught.value)
    assert not (folder / "store.json").exists()

    room[0] = 40
    decoded.clear()
    assert np.array_equal(opened(images, tmp_path).pixels, expected_pixels(images))
    assert len(decoded) < 40  # what was done before was kept


def test_a_small_disk_is_noticed_first(
    images: Manifest, tmp_path: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = build.shutil.disk_usage(tmp_path)._replace(free=1234)
    monkeypatch.setattr(build.shutil, "disk_usage", lambda folder: usage)
    decoded.clear()
    with refuses("unwritable_file", says="1,234 bytes"):
        opened(images, tmp_path)
    assert decoded == []


def test_an_interrupted_build_stops_and_resumes(images: Manifest, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened(images, tmp_path, progress=interrupt)
    assert np.array_equal(opened(images, tmp_path).pixels, expected_pixels(images))


# Images that are in memory already
def in_memory(arrays: np.ndarray) -> Manifest:
    return replace(manifest_of(Path(), [f"{i}" for i in range(len(arrays))]), arrays=arrays)


def test_arrays_of_the_right_size_are_used_as_they_are(tmp_path: Path) -> None:
    arrays = np.random.default_rng(0).integers(0, 256, (5, SIZE, SIZE, 3), dtype=np.uint8)
    result = opened(in_memory(arrays), tmp_path)
    assert np.shares_memory(result.pixels, arrays)
    assert result.path is None
    assert not result.pixels.flags.writeable
    assert arrays.flags.writeable  # the caller's array stays the caller's
    assert list(tmp_path.iterdir()) == []


def test_arrays_are_resized_as_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = np.random.default_rng(0).integers(0, 256, (5, 20, 30, 3), dtype=np.uint8)
    for i, array in enumerate(arrays):
        Image.fromarray(array).save(tmp_path / f"{i}.png")
    expected = np.stack(
        [read_image(tmp_path / f"{i}.png", size=SIZE, resize="crop") for i in range(5)]
    )
    small = opened(in_memory(arrays), tmp_path / "cache", resize="crop")
    assert np.array_equal(small.pixels, expected)
    assert small.path is None
    monkeypatch.setattr(store, "IN_MEMORY", 100)
    large = opened(in_memory(arrays), tmp_path / "cache", resize="crop")
    assert np.array_equal(large.pixels, expected)
    assert large.path is not None
    arrays[0, 0, 0, 0] ^= 1
    assert opened(in_memory(arrays), tmp_path / "cache", resize="crop").path != large.path


def test_arrays_of_another_kind_are_refused(tmp_path: Path) -> None:
    with refuses("wrong_type", "images", says="float64"):
        opened(in_memory(np.zeros((5, 20, 30))), tmp_path)
