"""Download files over an unreliable connection, and extract archives without trusting them."""

from __future__ import annotations

import contextlib
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

__all__ = ["DownloadError", "Progress", "download", "download_once", "extract"]

CHUNK = 1 << 20
Progress = Callable[[int, int | None], None]  # bytes done, bytes in total where known


def download(
    url: str,
    target: Path,
    *,
    progress: Progress | None = None,
    attempts: int = 5,
    pause: float = 1.0,
    timeout: float = 60.0,
) -> None:
    """Download ``url`` to ``target``; an earlier, interrupted download is resumed.

    The received bytes are in ``target`` + ".part". After ``attempts`` in a row without progress, with growing pauses
    from ``pause`` seconds, an error is raised, and that file is kept for the next call.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise SrjtError(f"Only http and https addresses can be downloaded, not {url!r}.")
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    failures, farthest = 0, _size(part)
    while True:
        try:
            download_once(url, part, progress=progress, timeout=timeout)
            break
        except DownloadError as problem:
            if not problem.temporary:
                raise SrjtError(f"{url} cannot be downloaded: {problem}.") from None
            # A server that restarts from the beginning each time makes no progress.
            failures = 0 if _size(part) > farthest else failures + 1
            farthest = max(farthest, _size(part))
            if failures >= attempts:
                raise SrjtError(
                    f"The download stopped after {_size(part):,} bytes ({problem}). They are kept in {part}: run the "
                    "same command again to resume."
                ) from None
            if failures:
                time.sleep(pause * 2 ** (failures - 1))
    part.replace(target)


def extract(archive: Path, folder: Path, *, progress: Callable[[int, int], None] | None = None) -> None:
    """Extract a zip file into ``folder``; an archive with a member that leads outside or is a link is refused.

    Every member's checksum is verified. A file appears only when it is complete and is not extracted twice, so that an
    interrupted call can be repeated.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            for member in members:
                _refuse_unsafe(member, archive)
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_full_disk(folder, sum(m.file_size for m in members if not _is_extracted(folder, m)))
            for done, member in enumerate(members, start=1):
                _extract_member(opened, member, folder)
                if progress is not None:
                    progress(done, len(members))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as problem:
        raise SrjtError(
            f"The archive {archive} is damaged ({problem}): delete it and run the same command again."
        ) from None


class DownloadError(Exception):
    """An attempt failed. ``temporary``: another attempt may succeed."""

    def __init__(self, reason: str, *, temporary: bool = True) -> None:
        super().__init__(reason)
        self.temporary = temporary


def download_once(url: str, part: Path, *, progress: Progress | None = None, timeout: float = 60.0) -> None:
    """One attempt. Appends to ``part`` if the server can resume, else starts from the beginning.

    ``timeout`` (seconds) limits each wait for the server, not the whole download.
    """
    if part.is_symlink():  # what it points to is not ours
        part.unlink()
    start = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "srjt"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as refused:
        with refused:
            if refused.code == 416 and start:  # no bytes after these: the file is complete, or another one
                if refused.headers.get("Content-Range") == f"bytes */{start}":
                    return
                part.unlink()
                raise DownloadError("the partial file does not match the server's and was deleted") from None
            temporary = refused.code in (408, 429) or refused.code >= 500
            raise DownloadError(f"the server answered {refused.code}", temporary=temporary) from None
    except (OSError, http.client.HTTPException) as problem:
        raise DownloadError(str(getattr(problem, "reason", problem)) or type(problem).__name__) from None
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
            while chunk := _read_chunk(response):
                _write_chunk(file.write, chunk, part)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    if total is not None and done < total:
        raise DownloadError(f"received {done:,} of {total:,} bytes")


def _read_chunk(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(CHUNK)
    except (OSError, http.client.HTTPException) as problem:
        raise DownloadError(str(problem) or type(problem).__name__) from None


def _write_chunk(write: Callable[[bytes], int], chunk: bytes, part: Path) -> None:
    try:
        write(chunk)
    except OSError as problem:
        raise SrjtError(f"{part} cannot be written: {problem.strerror}.") from None


def _range_start(response: http.client.HTTPResponse) -> int | None:
    unit, _, rest = (response.headers.get("Content-Range") or "").partition(" ")
    first = rest.partition("-")[0]
    return int(first) if unit == "bytes" and first.isdecimal() else None


def _refuse_unsafe(member: zipfile.ZipInfo, archive: Path) -> None:
    # The name in the archive itself: zipfile changes unusual names in ZipInfo.filename.
    name = member.orig_filename.replace("\\", "/")
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name
    if outside or stat.S_ISLNK(member.external_attr >> 16):
        reason = "would be written outside of the folder" if outside else "is a link"
        raise SrjtError(f"The archive {archive} is not safe, and nothing was extracted: {name!r} {reason}.")


def _refuse_full_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise SrjtError(f"{folder} has {free / 1e9:.1f} GB free; {needed / 1e9:.1f} GB are needed.")


def _is_extracted(folder: Path, member: zipfile.ZipInfo) -> bool:
    target = folder / member.filename
    return target.is_file() and target.stat().st_size == member.file_size


def _extract_member(opened: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    target = folder / member.filename
    # A link that is already in the folder could lead elsewhere.
    if not target.resolve().is_relative_to(folder.resolve()):
        raise SrjtError(f"{target} leads out of {folder}: it is not written.")
    if member.is_dir():
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise SrjtError(f"{target} cannot be written: {problem.strerror or problem}.") from None
        return
    if _is_extracted(folder, member):
        return
    unfinished = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished.unlink(missing_ok=True)
        with opened.open(member) as source, unfinished.open("xb") as file:
            shutil.copyfileobj(source, file, CHUNK)  # reading to the end verifies the checksum
        os.replace(unfinished, target)
    except OSError as problem:
        raise SrjtError(f"{target} cannot be written: {problem.strerror or problem}.") from None
    finally:
        with contextlib.suppress(OSError):  # a member of the archive may be a folder of this name
            unfinished.unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
