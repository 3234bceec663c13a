"""Files and folders: atomic writes, JSON, locks, the cache folder.

Everything that srjt writes goes through ``write_atomically``: a file is either as before or complete.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import stat
import time
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import platformdirs
from filelock import FileLock, Timeout

from srjt.errors import SrjtError, printable

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "LOCK",
    "NOT_A_FILE",
    "UNFINISHED",
    "cache_folder",
    "check_regular_file",
    "check_regular_files",
    "describe_os_error",
    "exists_already",
    "is_foreign",
    "is_inside",
    "is_locked",
    "is_stream",
    "lock_folder",
    "made_by",
    "read_json",
    "read_limited",
    "remove_unfinished",
    "sync_folder",
    "text_output",
    "wait_for_lock",
    "why_not_a_file",
    "write_atomically",
    "write_json",
    "write_output",
]

UNFINISHED = ".*.tmp"  # drafts; a process that is killed while writing leaves one behind
LOCK = ".lock"
_GRACE = 0.3  # seconds to wait for a lock, because is_locked takes it for an instant
_POLL = 0.1  # seconds between two attempts to take a lock
LARGEST_JSON = 2**28  # bytes; an audit with a million patients has less

Model = TypeVar("Model")


def write_atomically(path: Path, content: bytes, *, follow_links: bool = True) -> None:
    """Write ``content`` to ``path``: after a power cut or on a full disk the file is as before or complete.

    A symbolic link stays one: the file that it points to is replaced. That is right for a path that the user chose.
    Files with names of ours inside a folder need ``follow_links=False``, which replaces the link itself: the folder
    may come from somebody else, and a link in it may point to any file of the user.
    """
    path = path.resolve() if follow_links else path.absolute()
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


def write_json(path: Path, content: Any, *, follow_links: bool = False) -> None:
    """Write ``content`` as indented JSON, atomically. Most JSON files are inside a folder: links are replaced."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode(), follow_links=follow_links)


def read_limited(path: Path, *, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes: a file that one was sent may be a device."""
    check_regular_file(path)
    try:
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except OSError as problem:
        raise SrjtError(f"{path} cannot be read: {describe_os_error(problem)}.") from None
    if len(content) > limit:
        raise SrjtError(f"{path} cannot be read: it has more than {limit:,} bytes.")
    return content


def read_json(path: Path, model: type[Model], *, advice: str = "") -> Model:
    """The content of a JSON file of srjt, checked: one sentence for whatever does not fit.

    Every such file is read here, because a folder may come from somebody else or from a full disk. No code is executed.

    model: a pydantic model, or any type that pydantic can check, such as a dataclass. A field ``format`` is a literal:
    a file with another number was written by another version. advice: what to do with a damaged file.
    """
    from pydantic import ValidationError  # slow to import

    content = read_limited(path, limit=LARGEST_JSON)
    try:
        found: Model = _adapter(cast("Hashable", model)).validate_json(content, strict=True)
        return found
    except ValidationError as problem:
        errors = problem.errors(include_url=False)
    first = next((error for error in errors if error["loc"] == ("format",)), errors[0])
    if first["type"] == "literal_error" and first["loc"] == ("format",):
        raise SrjtError(
            f"{path} has format {printable(first['input'])[:60]}, but this version of srjt reads format "
            f"{first['ctx']['expected']}: read it with the version that wrote it, or write it again."
        )
    where = ".".join(str(part) for part in first["loc"])
    reason = printable(first["msg"]).removeprefix("Value error, ").rstrip(".")
    what = f"{printable(where)[:80]}: {reason}" if where else reason
    raise SrjtError(f"{path} is damaged or not from srjt ({what}){f': {advice}' if advice else ''}.")


def made_by(function: Callable[[Any], Any]) -> Any:
    """For ``Annotated``: a field of ``read_json`` that ``function`` makes; any error of it means a damaged file."""
    from pydantic import PlainValidator

    def make(value: Any) -> Any:
        try:
            return function(value)
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
            raise ValueError(f"{type(problem).__name__}: {problem}") from None

    return PlainValidator(make)


@cache
def _adapter(model: Hashable) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    checked: Any = model
    return TypeAdapter(checked)


def is_inside(path: Path, folder: Path) -> bool:
    """Whether ``path`` is in ``folder``, also after following ".." and symbolic links."""
    return path.resolve().is_relative_to(folder.resolve())


def as_path(value: object, what: str) -> Path:
    """A path; anything else is an error that says what is wanted."""
    if isinstance(value, (str, os.PathLike)):
        return Path(os.fsdecode(value))
    raise SrjtError(f"{what}; got {type(value).__name__}.")


def is_stream(path: Path) -> bool:
    """A pipe or a device, such as /dev/stdout (even if that is redirected to a file): written to, never replaced."""
    return path.is_relative_to("/dev") or (path.exists() and not path.is_file())


def write_output(path: Path, content: bytes) -> None:
    """Write to a path that the user chose: atomically to a file, directly to a pipe or a device."""
    if is_stream(path):
        opened: Path | int = path
        if path.is_fifo():
            try:  # an ordinary open would wait for a reader; opened once, because closing it ends the reader
                opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                raise SrjtError(f"{path} is a pipe, and no process reads from it.") from None
            os.set_blocking(opened, True)
        with open(opened, "wb" if isinstance(opened, int) else "ab") as stream:
            stream.write(content)
    else:
        write_atomically(path, content)


@contextlib.contextmanager
def text_output(path: Path) -> Iterator[io.StringIO]:
    """Text for a path that the user chose; it is written as UTF-8 when the block ends without an error."""
    text = io.StringIO(newline="")
    yield text
    write_output(path, text.getvalue().encode("utf-8", "surrogateescape"))  # file names may be any bytes


def remove_unfinished(folder: Path) -> None:
    """Remove the drafts of a process that was killed while writing."""
    for draft in folder.glob(UNFINISHED):
        if draft.is_symlink() or not draft.is_dir():  # a folder of this name is not ours
            draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a rename survives a power cut. Windows has no such call."""
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
    lock = FileLock(folder / LOCK)
    with contextlib.suppress(NotImplementedError):
        try:
            lock.acquire(timeout=_GRACE, poll_interval=_POLL)
        except Timeout:
            raise SrjtError(
                f"Another process is working on {folder}: wait for it, or choose another `out`."
            ) from None
        except OSError as problem:
            raise SrjtError(f"{folder} cannot be written: {problem.strerror or problem}.") from None
    try:
        remove_unfinished(folder)
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def wait_for_lock(folder: Path, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Lock ``folder`` after waiting for the process that has it; ``waiting`` is called while we wait."""
    lock = FileLock(folder / LOCK)
    with contextlib.suppress(NotImplementedError):
        while True:
            try:
                lock.acquire(timeout=0)
                break
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
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # a read-only folder, or a file system without locks
        return False
    lock.release()
    return False


def cache_folder() -> Path:
    """``$SRJT_CACHE``, or ``srjt`` in the user's cache folder."""
    if given := os.environ.get("SRJT_CACHE"):
        return Path(given)
    return Path(platformdirs.user_cache_dir("srjt", appauthor=False))


def check_regular_file(path: Path) -> None:
    """Raise an error unless ``path`` is an ordinary file: reading a pipe or a device may never end."""
    if (reason := why_not_a_file(path)) is not None:
        raise SrjtError(f"{path} cannot be read: {reason}.")


def check_regular_files(folder: Path) -> None:
    """Raise an error if there is a pipe or a device anywhere in a folder, which may come from somebody else."""
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


def why_not_a_file(path: Path) -> str | None:
    """Why ``path`` is not an ordinary file, in a few words; None if it is one."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as problem:
        return describe_os_error(problem)
    if stat.S_ISDIR(mode):
        return A_FOLDER
    if not stat.S_ISREG(mode):
        return NO_REGULAR_FILE
    return None


def describe_os_error(problem: OSError | ValueError) -> str:
    """Why a file cannot be opened, in a few words."""
    if isinstance(problem, FileNotFoundError):
        return NO_SUCH_FILE
    if isinstance(problem, IsADirectoryError):
        return A_FOLDER
    if isinstance(problem, PermissionError):
        return "there is no permission to read it"
    if isinstance(problem, OSError) and problem.errno == errno.ENAMETOOLONG:
        return TOO_LONG
    if isinstance(problem, ValueError) and "null" in str(problem):
        return NUL
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)


def exists_already(path: Path) -> SrjtError:
    """The error for a file that would be overwritten."""
    return SrjtError(f"{path} already exists: choose another file, or pass --force to overwrite it.")
