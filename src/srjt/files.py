"""Files and folders: atomic writes, JSON, checksums, locks and the cache folder.

Everything that srjt writes goes through ``write_atomically``: a file is either as before or
complete.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import itertools
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import platformdirs
from filelock import FileLock, Timeout

from srjt.errors import Option, SrjtError
from srjt.json_values import json_values
from srjt.validation import MismatchError, check_json

if TYPE_CHECKING:
    import pandas as pd

UNFINISHED = ".*.tmp"  # drafts; a process that is killed while writing leaves one behind
LOCK = ".lock"
_GRACE = 0.3  # seconds to wait for a lock, because is_locked takes it for an instant
_POLL = 0.1  # seconds between two attempts to take a lock
CHUNK = 1 << 20  # bytes that are read at a time
LARGEST_JSON = 2**28  # bytes; an audit with a million patients has less

Model = TypeVar("Model")
REPLACE_TRIES = 20
REPLACE_SECONDS = 0.05


def path_from(path: Path, folder: Path) -> str:
    """The path relative to the folder, or itself if it is elsewhere; never with "..", which is
    wrong below a linked folder."""
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return path.as_posix()


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
        _replace(draft, path)
        sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def _replace(draft: Path, path: Path) -> None:
    """Rename a file over another one. On Windows that fails while somebody reads the other one,
    such as a browser: a second is enough for most."""
    for _ in range(REPLACE_TRIES - 1 if os.name == "nt" else 0):
        try:
            os.replace(draft, path)
        except PermissionError:
            time.sleep(REPLACE_SECONDS)
        else:
            return
    os.replace(draft, path)


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as JSON to a file inside a folder of ours, atomically."""
    write_atomically(path, as_json(content))


def as_json(content: Any) -> bytes:
    """Indented JSON, with one line break at the end."""
    return (
        json.dumps(json_values(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
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
        raise SrjtError(f"{what}: {reason}. {advice}".rstrip(), code="unwritable_file") from problem


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
        raise SrjtError(
            f"{path} cannot be read: {describe_os_error(problem)}.", code="unreadable_file"
        ) from None
    if len(content) > limit:
        raise SrjtError(
            f"{path} cannot be read: it has more than {limit:,} bytes.", code="wrong_file"
        )
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
    digests = {}
    for name in names:
        if (folder / name).is_file():
            digests[name] = sha256_of(folder / name)
    for name, content in (coming or {}).items():
        digests[name] = hashlib.sha256(content).hexdigest()
    write_json(folder / CHECKSUMS, {"sha256": digests})


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
            raise SrjtError(
                f"{file} is not the file that srjt has written: {advice}", code="damaged_file"
            )


def write_sealed_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with its own SHA-256 inside, for a file that is written again and again."""
    unsealed = {name: value for name, value in content.items() if name != "sha256"}
    write_json(path, {**unsealed, "sha256": hashlib.sha256(as_json(unsealed)).hexdigest()})


def read_sealed_json(path: Path, model: type[Model], *, advice: str) -> Model:
    """The content of a file of ``write_sealed_json``, checked as by ``read_json`` and by its seal.

    A file without a seal is not checked by it. advice: what to do with another file, a sentence.
    """
    read = read_json(path, model)
    content = json.loads(read_limited(path, limit=LARGEST_JSON))
    if not isinstance(content, dict) or "sha256" not in content:
        return read
    unsealed = {name: value for name, value in content.items() if name != "sha256"}
    try:
        seal = hashlib.sha256(as_json(unsealed)).hexdigest()
    except (ValueError, UnicodeEncodeError):
        seal = ""
    if seal != content["sha256"]:
        raise SrjtError(
            f"{path} is not the file that srjt has written: {advice}", code="damaged_file"
        )
    return read


def read_json(path: Path, model: type[Model], *, advice: str = "") -> Model:
    """The content of a JSON file of srjt, checked: one sentence for whatever does not fit.

    Every such file is read here, because a folder may come from somebody else or from a full disk.
    No code is executed.

    model: a pydantic model, or any type that pydantic can check, such as a dataclass. A field
    ``format`` is a literal: a file with another number was written by another version. advice: what
    to do with a damaged file.
    """
    try:
        return check_json(read_limited(path, limit=LARGEST_JSON), model)
    except MismatchError as raised:
        mismatch = raised
    if mismatch.expected is not None:
        raise SrjtError(
            f"{path} has format {mismatch.given}, but this version of srjt reads format"
            f" {mismatch.expected}: read it with the version that wrote it, or write it again.",
            code="other_version",
        )
    ending = f": {advice}" if advice else ""
    raise SrjtError(
        f"{path} is damaged or not from srjt ({mismatch}){ending}.", code="damaged_file"
    )


def unused_name(name: str) -> str:
    """A name for a new file or folder here: this one, or with the first number that is free."""
    numbered = (name if number == 1 else f"{name}{number}" for number in itertools.count(1))
    return next(free for free in numbered if not os.path.lexists(free))


def visible_names(folder: Path) -> set[str]:
    """The names in a folder that do not begin with a dot."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def is_inside(path: Path, folder: Path) -> bool:
    """Whether ``path`` is in ``folder``, also after following ".." and symbolic links."""
    return path.resolve().is_relative_to(folder.resolve())


def as_path(value: object, what: str) -> Path:
    """A path; anything else is an error that says what is wanted."""
    if isinstance(value, (str, os.PathLike)):
        return Path(os.fsdecode(value))
    raise SrjtError(f"{what}; got {type(value).__name__}.", code="wrong_type")


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
                raise SrjtError(
                    f"{path} is a pipe, and no process reads from it.", code="unwritable_file"
                ) from None
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
        code = "missing_file" if reason == NO_SUCH_FILE else "unreadable_file"
        raise SrjtError(f"{path} cannot be read: {reason}.", code=code)


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
        f"{path} already exists: choose another file, or pass ",
        Option("overwrite", True),
        " to overwrite it.",
        code="file_exists",
    )
