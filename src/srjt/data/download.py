"""Fetch a large archive over a line that breaks, and unpack it without trusting it."""

from __future__ import annotations

import http.client
import os
import shutil
import stat
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from srjt.errors import SrjtError

__all__ = ["download", "extract"]

CHUNK = 1 << 20
Progress = Callable[[int, int | None], None]  # bytes done, bytes in all where they are known


def download(
    url: str,
    target: Path,
    *,
    progress: Progress | None = None,
    attempts: int = 5,
    pause: float = 1.0,
    timeout: float = 60.0,
) -> None:
    """Fetch ``url`` into ``target``, going on where an earlier attempt (now or another day) stopped.

    What has arrived lies in ``target`` + ".part". After ``attempts`` in a row that brought nothing new, with
    growing pauses from ``pause`` seconds, it gives up with an error and leaves that file for the next time.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise SrjtError(f"Only http and https addresses can be downloaded, not {url!r}.")
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    failures, farthest = 0, _size(part)
    while True:
        try:
            _fetch(url, part, progress=progress, timeout=timeout)
            break
        except _BrokenError as broken:
            # A server that restarts from the beginning each time does not count as getting on.
            failures = 0 if _size(part) > farthest else failures + 1
            farthest = max(farthest, _size(part))
            if failures >= attempts:
                raise SrjtError(
                    f"The download broke off after {_size(part):,} bytes ({broken}). What has arrived is kept in "
                    f"{part}: run the same command again to go on from there."
                ) from None
            if failures:
                time.sleep(pause * 2 ** (failures - 1))
    part.replace(target)


def extract(archive: Path, folder: Path, *, progress: Callable[[int, int], None] | None = None) -> None:
    """Unpack a zip file into ``folder``; refuse it as a whole if a member would land outside or is a link.

    Every member's checksum is verified. A file appears only when it is complete, and is not unpacked twice,
    so an interrupted run can simply be repeated.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            for member in members:
                _refuse_unsafe(member, archive)
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_full_disk(folder, sum(m.file_size for m in members if not _there(folder, m)))
            for done, member in enumerate(members, start=1):
                _unpack(opened, member, folder)
                if progress is not None:
                    progress(done, len(members))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as problem:
        raise SrjtError(
            f"The archive {archive} is damaged ({problem}): delete it and run the same command again."
        ) from None


class _BrokenError(Exception):
    """The connection failed in a way that trying again may heal."""


def _fetch(url: str, part: Path, *, progress: Progress | None, timeout: float) -> None:
    """One attempt. Appends to ``part`` if the server agrees, else begins anew."""
    start = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "srjt"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as refused:
        with refused:
            if refused.code == 416 and start:  # nothing after what we have: it is complete, or not this file
                if refused.headers.get("Content-Range") == f"bytes */{start}":
                    return
                part.unlink()
                raise _BrokenError("the partial file did not fit the server's and was dropped") from None
            if refused.code in (408, 429) or refused.code >= 500:
                raise _BrokenError(f"the server answered {refused.code}") from None
            raise SrjtError(f"{url} cannot be downloaded: the server answered {refused.code}.") from None
    except (OSError, http.client.HTTPException) as problem:
        raise _BrokenError(str(getattr(problem, "reason", problem)) or type(problem).__name__) from None
    with response:
        resumed = response.status == 206 and _range_start(response) == start
        done = start if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        if total is not None:
            _refuse_full_disk(part.parent, total - done)
        try:
            file = part.open("ab" if resumed else "wb")
        except OSError as problem:
            raise SrjtError(f"{part} cannot be written: {problem.strerror}.") from None
        with file:
            while chunk := _receive(response):
                _store(file.write, chunk, part)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    if total is not None and done < total:
        raise _BrokenError(f"{done:,} of {total:,} bytes")


def _receive(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(CHUNK)
    except (OSError, http.client.HTTPException) as problem:
        raise _BrokenError(str(problem) or type(problem).__name__) from None


def _store(write: Callable[[bytes], int], chunk: bytes, part: Path) -> None:
    try:
        write(chunk)
    except OSError as problem:
        raise SrjtError(f"{part} cannot be written: {problem.strerror}. What has arrived is kept.") from None


def _range_start(response: http.client.HTTPResponse) -> int | None:
    unit, _, rest = (response.headers.get("Content-Range") or "").partition(" ")
    first = rest.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdecimal() else None


def _refuse_unsafe(member: zipfile.ZipInfo, archive: Path) -> None:
    # The name as it stands in the archive: ZipInfo.filename has been altered where it was odd.
    name = member.orig_filename.replace("\\", "/")
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name
    if outside or stat.S_ISLNK(member.external_attr >> 16):
        what = "would be written outside of the folder" if outside else "is a link"
        raise SrjtError(f"The archive {archive} was refused and nothing unpacked: {name!r} {what}.")


def _refuse_full_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise SrjtError(f"{folder} has {free / 1e9:.1f} GB free; {needed / 1e9:.1f} GB are needed.")


def _there(folder: Path, member: zipfile.ZipInfo) -> bool:
    target = folder / member.filename
    return target.is_file() and target.stat().st_size == member.file_size


def _unpack(opened: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    target = folder / member.filename
    # A link that was in the folder before could lead elsewhere.
    if not target.resolve().is_relative_to(folder.resolve()):
        raise SrjtError(f"{target} leads out of {folder}: nothing is written there.")
    if member.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    if _there(folder, member):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(target.name + ".part")
    try:
        with opened.open(member) as source, unfinished.open("wb") as file:
            shutil.copyfileobj(source, file, CHUNK)  # reading to the end verifies the checksum
        os.replace(unfinished, target)
    except OSError as problem:
        raise SrjtError(f"{target} cannot be written: {problem.strerror or problem}.") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
