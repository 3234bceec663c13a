"""Download files over an unreliable connection, and extract archives without trusting them."""

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
from srjt.files import CHUNK, explain_write_errors, is_inside, sha256_of, write_output

Progress = Callable[[int, int | None], None]  # bytes done, bytes in total where known
ATTEMPTS = 5  # in a row without progress
PAUSE = 1.0  # seconds after the first of them; twice as many after each further one
TIMEOUT = 60.0  # seconds, of each wait for the server


def record_checksum(file: Path) -> str:
    """The SHA-256 of ``file``, recorded beside it at the first call, and compared with the record
    at later ones.

    The record, ``file`` + ".sha256", has the format of sha256sum and stays if the file itself is
    deleted. A file that is not the recorded one is an error.
    """
    record = file.with_name(file.name + ".sha256")
    digest = sha256_of(file)
    if not record.exists():
        write_output(record, f"{digest}  {file.name}\n".encode())
        return digest
    recorded = record.read_text(encoding="utf-8", errors="replace").partition(" ")[0].strip()
    if recorded != digest:
        raise SrjtError(
            f"{file} is not the file that was downloaded first: its SHA-256 is {digest},"
            f" {record.name} has {recorded}. Delete {file} to download it again; if the publisher"
            f" has changed it, delete {record}.",
            code="damaged_file",
        )
    return digest


def download(url: str, target: Path, *, progress: Progress | None = None) -> None:
    """Download ``url`` to ``target``; an earlier, interrupted download is resumed.

    The received bytes are in ``target`` + ".part". After several attempts in a row without
    progress, with growing pauses, an error is raised, and that file is kept for the next call.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise SrjtError(
            f"Only http and https addresses can be downloaded, not {url!r}.", code="unreachable"
        )
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    if part.is_symlink():  # what it points to is not ours
        part.unlink()
    failures = 0
    farthest = _size(part)
    while problem := _receive(url, part, progress=progress):
        # A server that restarts from the beginning each time makes no progress.
        failures = 0 if _size(part) > farthest else failures + 1
        farthest = max(farthest, _size(part))
        if failures >= ATTEMPTS:
            raise SrjtError(
                f"The download stopped ({problem}); {_size(part):,} bytes are in {part}: run it"
                " again to resume.",
                code="unreachable",
            )
        if failures:
            time.sleep(PAUSE * 2 ** (failures - 1))
    part.replace(target)


def _receive(url: str, part: Path, *, progress: Progress | None) -> str:
    """One attempt, appended to ``part`` if the server can resume; why it failed, or "" if nothing
    is missing."""
    start = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "srjt"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            resumed = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
            done = start if resumed else 0
            length = response.headers.get("Content-Length")
            total = done + int(length) if length else None
            _refuse_full_disk(part.parent, (total or 0) - done)
            with explain_write_errors(f"{part} cannot be written"):
                file = part.open("ab" if resumed else "wb")
            with file:
                while chunk := response.read1(CHUNK):
                    with explain_write_errors(f"{part} cannot be written"):
                        file.write(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(done, total)
    except urllib.error.HTTPError as refused:
        if (
            refused.code == 416 and start
        ):  # no bytes after these: the file is complete, or another one
            if refused.headers.get("Content-Range") == f"bytes */{start}":
                return ""
            part.unlink()
            return "the partial file does not match the server's and was deleted"
        problem = f"the server answered {refused.code}"
        if refused.code not in (408, 429) and refused.code < 500:
            raise SrjtError(f"{url} cannot be downloaded: {problem}.", code="unreachable") from None
        return problem
    except (OSError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__
    if total is None or done >= total:
        return ""
    return f"received {done:,} of {total:,} bytes"


def extract(
    archive: Path, folder: Path, *, progress: Callable[[int, int], None] | None = None
) -> None:
    """Extract a zip file into ``folder``; an archive with a member that leads outside or is a link
    is refused.

    Every member's checksum is verified. A file appears only when it is complete and is not
    extracted twice, so that an interrupted call can be repeated.
    """

    def is_extracted(member: zipfile.ZipInfo) -> bool:
        target = folder / member.filename
        return (
            target.is_file() and target.stat().st_size == member.file_size and not member.is_dir()
        )

    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            for member in members:
                _refuse_unsafe(member, archive)
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_full_disk(
                folder, sum(member.file_size for member in members if not is_extracted(member))
            )
            for done, member in enumerate(members, start=1):
                target = folder / member.filename
                if not is_inside(target, folder):  # by a link that is already in the folder
                    raise SrjtError(
                        f"{target} leads out of {folder}: it is not written.", code="unsafe_file"
                    )
                with explain_write_errors(f"{target} cannot be written"):
                    (target if member.is_dir() else target.parent).mkdir(
                        parents=True, exist_ok=True
                    )
                    if not member.is_dir() and not is_extracted(member):
                        unfinished = target.with_name(target.name + ".part")
                        unfinished.unlink(missing_ok=True)
                        unfinished.write_bytes(opened.read(member))
                        os.replace(unfinished, target)
                if progress is not None:
                    progress(done, len(members))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as problem:
        raise SrjtError(
            f"{archive} is damaged ({problem}): delete it and run the command again.",
            code="damaged_file",
        ) from None


def _refuse_unsafe(member: zipfile.ZipInfo, archive: Path) -> None:
    # The name in the archive itself: zipfile changes unusual names in ZipInfo.filename.
    name = member.orig_filename.replace("\\", "/")
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name
    if outside or stat.S_ISLNK(member.external_attr >> 16):
        reason = "would be written outside of the folder" if outside else "is a link"
        raise SrjtError(
            f"The archive {archive} is not safe, and nothing was extracted: {name!r} {reason}.",
            code="unsafe_file",
        )


def _refuse_full_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise SrjtError(
            f"{folder} has {free / 1e9:.1f} GB free; {needed / 1e9:.1f} GB are needed.",
            code="no_space",
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
