"""Files and folders: atomic writes, JSON, locks and the cache folder; downloads over an unreliable
connection, archives that are extracted without trusting them, and runs on the Hugging Face Hub.

Everything that srjt writes goes through ``write_atomically``: a file is either as before or
complete.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import io
import json
import os
import re
import shutil
import stat
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import platformdirs
from filelock import FileLock, Timeout

from srjt.errors import Option, SrjtError, import_quietly, missing_extra, printable, reason_of
from srjt.progress import plain

if TYPE_CHECKING:
    import pandas as pd
    from pydantic import TypeAdapter

UNFINISHED = ".*.tmp"  # drafts; a process that is killed while writing leaves one behind
LOCK = ".lock"
_GRACE = 0.3  # seconds to wait for a lock, because is_locked takes it for an instant
_POLL = 0.1  # seconds between two attempts to take a lock
CHUNK = 1 << 20  # bytes that are read at a time
LARGEST_JSON = 2**28  # bytes; an audit with a million patients has less

Model = TypeVar("Model")


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``: after a power cut or on a full disk the file is as before or
    complete.

    This is for files with names of ours inside a folder. A symbolic link is replaced: the folder
    may come from somebody else, and a link in it may point to any file of the user. A path that the
    user chose needs ``write_output``.
    """
    path = path.absolute()
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.unlink(missing_ok=True)  # of a killed process with the same number, or a link
        with open(draft, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as JSON to a file inside a folder of ours, atomically."""
    write_atomically(path, as_json(content))


def as_json(content: Any) -> bytes:
    """Indented JSON, with one line break at the end."""
    return (
        json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    ).encode()


def as_csv(table: pd.DataFrame) -> bytes:
    """A table as CSV, in UTF-8; file names in it may be any bytes."""
    return table.to_csv(index=False).encode("utf-8", "surrogateescape")


@contextlib.contextmanager
def explain_write_errors(what: str, advice: str = "") -> Iterator[None]:
    """A full or read-only disk is one sentence. what: "The run cannot be written to FOLDER";
    advice: a sentence."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise SrjtError(f"{what}: {reason}.{f' {advice}' if advice else ''}") from problem


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to one ``.npz`` file inside a folder of ours, atomically; a link is replaced."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomically(path, buffer.getvalue())


def load_arrays(path: Path) -> dict[str, Any]:
    """The arrays that ``save_arrays`` wrote; none if the file is missing or damaged, so that it is
    made again."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception:  # damaged archives make zipfile and NumPy raise almost any exception
        return {}


def modified(path: Path) -> int:
    """When a file was last changed, in nanoseconds; 0 if there is none."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def read_limited(path: Path, *, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes: a file that one was sent may be a
    device."""
    check_regular_file(path)
    try:
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except OSError as problem:
        raise SrjtError(f"{path} cannot be read: {describe_os_error(problem)}.") from None
    if len(content) > limit:
        raise SrjtError(f"{path} cannot be read: it has more than {limit:,} bytes.")
    return content


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


# Checksums: a folder is read only as it was written. They find a damaged disk, a copy that is not
# complete and an edit by hand; who wants to deceive can write them, too.

CHECKSUMS = "checksums.json"


def write_checksums(
    folder: Path, names: Iterable[str], *, coming: Mapping[str, bytes] | None = None
) -> None:
    """Write the SHA-256 of these files of a folder, as far as they are there.

    coming: the contents of files that are written next. The file whose presence means "finished" is
    one of them: then a finished folder always has its checksums.
    """
    found = {name: sha256_of(folder / name) for name in names if (folder / name).is_file()}
    found |= {name: hashlib.sha256(content).hexdigest() for name, content in (coming or {}).items()}
    write_json(folder / CHECKSUMS, {"sha256": found})


def read_checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file; none if the folder is of an earlier version, or not finished."""
    if not (folder / CHECKSUMS).is_file():
        return {}
    return read_json(folder / CHECKSUMS, dict[Literal["sha256"], dict[str, str]]).get("sha256", {})


def check_checksums(folder: Path, *names: str, advice: str) -> None:
    """Raise an error if one of these files, or any without names, is not the one that the folder
    was finished with.

    A file that is gone is no error here. advice: what to do, a sentence.
    """
    recorded = read_checksums(folder)
    for name in names or recorded:
        file = folder / name
        if name in recorded and file.is_file() and sha256_of(file) != recorded[name]:
            raise SrjtError(f"{file} is not the file that srjt has written: {advice}")


def write_sealed_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with its own SHA-256 inside, for a file that is written again and again."""
    own = {name: value for name, value in content.items() if name != "sha256"}
    write_json(path, {**own, "sha256": hashlib.sha256(as_json(own)).hexdigest()})


def read_sealed_json(path: Path, model: type[Model], *, advice: str) -> Model:
    """The content of a file of ``write_sealed_json``, checked as by ``read_json`` and by its seal.

    A file without a seal is not checked by it. advice: what to do with another file, a sentence.
    """
    read = read_json(path, model)
    content = json.loads(read_limited(path, limit=LARGEST_JSON))
    if not isinstance(content, dict) or "sha256" not in content:
        return read
    own = {name: value for name, value in content.items() if name != "sha256"}
    try:
        found = hashlib.sha256(as_json(own)).hexdigest()
    except (ValueError, UnicodeEncodeError):
        found = ""
    if found != content["sha256"]:
        raise SrjtError(f"{path} is not the file that srjt has written: {advice}")
    return read


def read_json(path: Path, model: type[Model], *, advice: str = "") -> Model:
    """The content of a JSON file of srjt, checked: one sentence for whatever does not fit.

    Every such file is read here, because a folder may come from somebody else or from a full disk.
    No code is executed.

    model: a pydantic model, or any type that pydantic can check, such as a dataclass. A field
    ``format`` is a literal: a file with another number was written by another version. advice: what
    to do with a damaged file.
    """
    from pydantic import ValidationError  # slow to import

    content = read_limited(path, limit=LARGEST_JSON)
    try:
        return cast("Model", _adapter(cast("Hashable", model)).validate_json(content, strict=True))
    except ValidationError as problem:
        errors = problem.errors(include_url=False)
    first = next((error for error in errors if error["loc"] == ("format",)), errors[0])
    if first["type"] == "literal_error" and first["loc"] == ("format",):
        raise SrjtError(
            f"{path} has format {printable(first['input'])[:60]}, but this version of srjt reads"
            f" format {first['ctx']['expected']}: read it with the version that wrote it, or write"
            " it again."
        )
    where = ".".join(str(part) for part in first["loc"])
    reason = printable(first["msg"]).removeprefix("Value error, ").rstrip(".")
    what = f"{printable(where)[:80]}: {reason}" if where else reason
    raise SrjtError(
        f"{path} is damaged or not from srjt ({what}){f': {advice}' if advice else ''}."
    )


def made_by(function: Callable[[Any], Any]) -> Any:
    """For ``Annotated``: a field of ``read_json`` that ``function`` makes; any error of it means a
    damaged file."""
    from pydantic import PlainValidator

    def make(value: Any) -> Any:
        try:
            return function(value)
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
            raise ValueError(f"{type(problem).__name__}: {problem}") from None

    return PlainValidator(make)


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(model)


def is_inside(path: Path, folder: Path) -> bool:
    """Whether ``path`` is in ``folder``, also after following ".." and symbolic links."""
    return path.resolve().is_relative_to(folder.resolve())


def as_path(value: object, what: str) -> Path:
    """A path; anything else is an error that says what is wanted."""
    if isinstance(value, (str, os.PathLike)):
        return Path(os.fsdecode(value))
    raise SrjtError(f"{what}; got {type(value).__name__}.")


def is_stream(path: Path) -> bool:
    """A pipe or a device, such as /dev/stdout (even if that is redirected to a file): written to,
    never replaced."""
    return path.is_relative_to("/dev") or (path.exists() and not path.is_file())


def write_output(path: Path, content: bytes) -> None:
    """Write to a path that the user chose: atomically to a file, also behind a link; directly to a
    pipe or a device.

    Its folder is made; what cannot be written is one sentence.
    """
    with explain_write_errors(f"{path} cannot be written"):
        if not is_stream(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path.resolve(), content)
            return
        opened: Path | int = path
        if path.is_fifo():
            # an ordinary open would wait for a reader; opened once, because closing it ends the
            # reader
            try:
                opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                raise SrjtError(f"{path} is a pipe, and no process reads from it.") from None
            os.set_blocking(opened, True)
        with open(opened, "wb" if isinstance(opened, int) else "ab") as stream:
            stream.write(content)


def remove_unfinished(folder: Path) -> None:
    """Remove the drafts of a process that was killed while writing."""
    for draft in folder.glob(UNFINISHED):
        if draft.is_symlink() or not draft.is_dir():  # a folder of this name is not ours
            draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a rename survives a power cut. Windows has no such
    call."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_foreign(path: Path) -> bool:
    """Whether a file in one of our folders is neither a lock nor a draft."""
    return path.name != LOCK and not path.match(UNFINISHED)


@contextlib.contextmanager
def lock_folder(folder: Path | None) -> Iterator[None]:
    """Allow one process at a time in ``folder``. The lock ends with the process, however it ends.

    None locks nothing. File systems without locks (some network mounts) are used without one.
    """
    if folder is None:
        yield
        return
    until = time.monotonic() + _GRACE

    def refuse() -> None:
        if time.monotonic() > until:
            raise SrjtError(
                f"Another process is working on {folder}: wait for it, or choose another ",
                Option("out"),
                ".",
                code="folder_busy",
            )

    with contextlib.ExitStack() as stack:
        with explain_write_errors(f"{folder} cannot be written"):
            stack.enter_context(wait_for_lock(folder, waiting=refuse))
        remove_unfinished(folder)
        yield


@contextlib.contextmanager
def wait_for_lock(folder: Path, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Lock ``folder`` after waiting for the process that has it; ``waiting`` is called while we
    wait."""
    lock = FileLock(folder / LOCK)
    with contextlib.suppress(NotImplementedError):
        while not lock.is_locked:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                waiting()
                time.sleep(_POLL)
    try:
        yield
    finally:
        lock.release()


def is_locked(folder: Path) -> bool:
    """Whether a process is working on ``folder`` right now."""
    if not (folder / LOCK).exists():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # a read-only folder, or a file system without locks
        return False


def cache_folder() -> Path:
    """``$SRJT_CACHE``, or ``srjt`` in the user's cache folder."""
    return Path(
        os.environ.get("SRJT_CACHE") or platformdirs.user_cache_dir("srjt", appauthor=False)
    )


def private_folder(folder: Path) -> None:
    """Create a folder for what shows patients: only this user may look into what is new of it."""
    missing = [folder, *folder.parents]
    for part in reversed(
        missing[: next((n for n, one in enumerate(missing) if one.exists()), len(missing))]
    ):
        part.mkdir(mode=0o700, exist_ok=True)


def check_regular_file(path: Path) -> None:
    """Raise an error unless ``path`` is an ordinary file: reading a pipe or a device may never
    end."""
    if (reason := why_not_a_file(path)) is not None:
        raise SrjtError(f"{path} cannot be read: {reason}.")


def check_regular_files(folder: Path) -> None:
    """Raise an error if there is a pipe or a device anywhere in a folder, which may come from
    somebody else."""
    for parent, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(parent, name)
            if os.path.exists(file) and not os.path.isfile(file):
                check_regular_file(Path(file))


NO_SUCH_FILE = "there is no such file"
A_FOLDER = "it is a folder"
NO_REGULAR_FILE = "it is a pipe, a socket or a device, not a regular file"
TOO_LONG = "its name is too long for this file system"
NUL = "its name contains a NUL character"
NOT_A_FILE = (NO_SUCH_FILE, A_FOLDER, NO_REGULAR_FILE, TOO_LONG, NUL)  # there is no such image
_FORBIDDEN = dict.fromkeys((errno.EACCES, errno.EPERM), "there is no permission to read it")
_REASONS = {
    errno.ENOENT: NO_SUCH_FILE,
    errno.EISDIR: A_FOLDER,
    errno.ENAMETOOLONG: TOO_LONG,
    **_FORBIDDEN,
}


def why_not_a_file(path: Path) -> str | None:
    """Why ``path`` is not an ordinary file, in a few words; None if it is one."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as problem:
        return describe_os_error(problem)
    if stat.S_ISREG(mode):
        return None
    return A_FOLDER if stat.S_ISDIR(mode) else NO_REGULAR_FILE


def describe_os_error(problem: OSError | ValueError) -> str:
    """Why a file cannot be opened, in a few words."""
    if isinstance(problem, OSError):
        return _REASONS.get(problem.errno or 0) or problem.strerror or str(problem)
    return NUL if "null" in str(problem) else str(problem)


def exists_already(path: Path) -> SrjtError:
    """The error for a file that would be overwritten."""
    return SrjtError(
        f"{path} already exists: choose another file, or pass --force to overwrite it."
    )


# Download files over an unreliable connection, and extract archives without trusting them.

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
            f" has changed it, delete {record}."
        )
    return digest


def download(url: str, target: Path, *, progress: Progress | None = None) -> None:
    """Download ``url`` to ``target``; an earlier, interrupted download is resumed.

    The received bytes are in ``target`` + ".part". After several attempts in a row without
    progress, with growing pauses, an error is raised, and that file is kept for the next call.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise SrjtError(f"Only http and https addresses can be downloaded, not {url!r}.")
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    if part.is_symlink():  # what it points to is not ours
        part.unlink()
    failures, farthest = 0, _size(part)
    while problem := _receive(url, part, progress=progress):
        # A server that restarts from the beginning each time makes no progress.
        failures = 0 if _size(part) > farthest else failures + 1
        farthest = max(farthest, _size(part))
        if failures >= ATTEMPTS:
            raise SrjtError(
                f"The download stopped ({problem}); {_size(part):,} bytes are in {part}: run it"
                " again to resume."
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
            raise SrjtError(f"{url} cannot be downloaded: {problem}.") from None
        return problem
    except (OSError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__
    return "" if total is None or done >= total else f"received {done:,} of {total:,} bytes"


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
                    raise SrjtError(f"{target} leads out of {folder}: it is not written.")
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
            f"{archive} is damaged ({problem}): delete it and run the command again."
        ) from None


def _refuse_unsafe(member: zipfile.ZipInfo, archive: Path) -> None:
    # The name in the archive itself: zipfile changes unusual names in ZipInfo.filename.
    name = member.orig_filename.replace("\\", "/")
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name
    if outside or stat.S_ISLNK(member.external_attr >> 16):
        reason = "would be written outside of the folder" if outside else "is a link"
        raise SrjtError(
            f"The archive {archive} is not safe, and nothing was extracted: {name!r} {reason}."
        )


def _refuse_full_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise SrjtError(f"{folder} has {free / 1e9:.1f} GB free; {needed / 1e9:.1f} GB are needed.")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


# Runs on the Hugging Face Hub: ``hf://owner/name`` as a folder, and a folder as such a repository.
# Only files of a run are downloaded, and nothing in them is executed: they are JSON, CSV and
# safetensors.

HUB_MODEL = (CHECKSUMS, "run.json", "summary.json", "noise.json", "weights.safetensors")
# with ids, paths and patients
HUB_SAMPLES = (
    "held_out.csv",
    "history.csv",
    "skipped.csv",
    "image_hashes.npy",
    "training_traces.npz",
)
HUB_ADDRESS = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


def is_hub_address(folder: str | os.PathLike[str]) -> bool:
    """Whether it names a run on the Hub: ``hf://owner/name`` or ``hf://owner/name@revision``."""
    return os.fspath(folder).startswith("hf:/")


def fetch_run(address: str | os.PathLike[str]) -> Path:
    """The folder of the run at this address, in the cache; files that are there already are not
    downloaded again."""
    text = re.sub("^hf:/+", "hf://", os.fspath(address))  # Path drops a slash
    parts = HUB_ADDRESS.fullmatch(text)
    if parts is None:
        raise SrjtError(
            f"{printable(text)} is not the address of a run, hf://owner/name[@revision]."
        )
    repo, revision = parts["repo"], parts["revision"]
    folder = cache_folder() / "hub" / f"{repo}@{revision or 'main'}".replace("/", "--")
    _ask_hub(
        "snapshot_download", repo, repo_id=repo, revision=revision, local_dir=folder,
        allow_patterns=[*HUB_MODEL, *HUB_SAMPLES],
    )  # fmt: skip
    if not (folder / "run.json").exists():
        raise SrjtError(f"The repository {repo} holds no run: it has no run.json.")
    return folder


def upload_run(folder: Path, repo: str, *, private: bool) -> str:
    """Upload a folder as the repository ``owner/name``, which is made if it does not exist; return
    its address."""
    if not HUB_ADDRESS.fullmatch(f"hf://{repo}"):
        raise SrjtError(f"{printable(repo)} is not the name of a repository: owner/name.")
    _ask_hub("create_repo", repo, repo_id=repo, private=private, exist_ok=True)
    _ask_hub(
        "upload_folder", repo, repo_id=repo, folder_path=folder, commit_message="A run of srjt"
    )
    return f"hf://{repo}"


def _ask_hub(function: str, repo: str, **arguments: Any) -> None:
    try:
        huggingface_hub = import_quietly("huggingface_hub")
    except ImportError:
        raise missing_extra("huggingface_hub", "hub", "A run on the Hugging Face Hub") from None
    try:
        getattr(huggingface_hub, function)(**arguments)
    except (
        Exception
    ) as problem:  # no network, no such repository, no right to it: by version other errors
        raise SrjtError(
            f"The Hub cannot be used for {repo}: {printable(reason_of(problem))}."
        ) from problem
