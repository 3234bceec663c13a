"""Processes that decode: the same store as with threads, also where they fail or are interrupted."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from data.stores import count_reads, expected_pixels, opened
from srjt.data.images import decode
from srjt.data.images import store as build
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a few files on two cores are decoded in processes."""
    monkeypatch.setattr(build, "CORES_FOR_PROCESSES", 1)
    monkeypatch.setattr(build, "FILES_FOR_PROCESSES", 1)


def test_processes_make_the_same_store(
    broken: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    threads = opened(broken, tmp_path / "threads", on_bad_image="skip", resize="crop")
    request.getfixturevalue("processes")
    here = count_reads(monkeypatch)
    calls: list[int] = []
    result = opened(
        broken, tmp_path / "processes", on_bad_image="skip", resize="crop", workers=2,
        progress=lambda done, total: calls.append(done),
    )  # fmt: skip
    assert sorted(here) == ["03.png", "11.png", "39.png"]  # what seems bad there is judged here
    assert np.array_equal(result.pixels, threads.pixels)
    assert result.skipped == threads.skipped
    assert calls == list(range(1, 41))


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("fault", ["killed", "cannot start", "no interpreter", "silent", "talkative"])
def test_without_working_processes_the_files_are_decoded_here(
    images: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    start = subprocess.Popen

    def killed(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments, **options)
        process.kill()
        return process

    def cannot_start(*arguments: Any, **options: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    if fault == "no interpreter":
        monkeypatch.setattr(sys, "executable", "")
    elif fault in ("silent", "talkative"):  # an application that contains Python
        program = tmp_path / "application"
        program.write_text(
            "#!/bin/sh\n" + ("exec sleep 600" if fault == "silent" else "echo Hello; exec cat")
        )
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setattr(decode, "START_SECONDS", 0.1)
    else:
        monkeypatch.setattr(subprocess, "Popen", killed if fault == "killed" else cannot_start)
    here = count_reads(monkeypatch)
    result = opened(images, tmp_path, workers=2)
    assert len(here) == 40
    assert np.array_equal(result.pixels, expected_pixels(images))


@pytest.mark.usefixtures("processes")
def test_settings_of_pillow_hold_in_processes(
    broken: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    result = opened(broken, tmp_path / "truncated", on_bad_image="skip", workers=2)
    assert [name for name, _ in result.skipped] == ["id-11.png", "id-39.png"]
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    with pytest.raises(SrjtError, match="larger than 2 pixels"):
        opened(broken, tmp_path / "largest", workers=2)


@pytest.mark.parametrize("processes", [False, True])
def test_an_interrupted_end_leaves_the_files_of_others_alone(
    images: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: bool
) -> None:
    """Ctrl-C, and again while the threads end: a thread that still decodes must not write into another file."""
    if processes:
        monkeypatch.setattr(build, "CORES_FOR_PROCESSES", 1)
        monkeypatch.setattr(build, "FILES_FOR_PROCESSES", 1)
    pools: list[ThreadPoolExecutor] = []
    shutdown = ThreadPoolExecutor.shutdown

    def interrupted(pool: ThreadPoolExecutor, **options: object) -> None:
        pools.append(pool)
        raise KeyboardInterrupt

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", interrupted)
    with pytest.raises(KeyboardInterrupt):
        opened(images, tmp_path, workers=2, progress=interrupt)
    shutdown(pools[0])
    links = {
        int(link.name): os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()
    }
    files = {file: os.path.basename(name) for file, name in links.items() if name.startswith(str(tmp_path))}
    assert {"pixels.npy", "done"} <= set(files.values())
    for file, name in files.items():
        if name in ("pixels.npy", "done"):
            os.close(file)


@pytest.mark.slow
def test_a_process_ends_with_the_one_that_started_it(images: Manifest, tmp_path: Path) -> None:
    (tmp_path / "pixels").touch()
    program = (
        "import sys, time; from pathlib import Path; from srjt.data.images.decode import DecodeProcesses\n"
        "p = DecodeProcesses(pixels=Path(sys.argv[1]), offset=0, size=8, resize='crop')\n"
        "rows = p.decode([0] * 100_000, [Path(sys.argv[2])] * 100_000)\n"
        "next(rows); print(p._started[0].pid, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "pixels", images.paths[0]], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert is_running(pid)
    process.kill()
    process.communicate()
    for _ in range(3000):
        if not is_running(pid):
            return
        time.sleep(0.01)
    raise AssertionError("a process is left behind")


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]
    except OSError:
        return False
