"""Names: two tables are joined by the names of images in one way, and a patient has one spelling.

Two names belong to one image if they are equal, or if one of them ends with the whole other one:
``north/000.png`` is ``imgs/north/000.png``, but neither is ``west/000.png``, nor is ``000.png`` one
of two files with that name. What could be meant in two ways is an error and never a guess: a wrong
partner changes results without a trace.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Sequence

import numpy as np

from srjt.data.manifest import Ints, LeakageWarning
from srjt.errors import SrjtError, few, printable, warn

NO_ROW = -1


def plain_path(name: str) -> str:
    """One spelling per file name: forward slashes, no "./", composed characters (NFC)."""
    if not name:
        return ""
    return posixpath.normpath(unicodedata.normalize("NFC", name).replace("\\", "/"))


def join_names(
    wanted: Sequence[str], known: Sequence[str], *, wanted_in: str, known_in: str
) -> Ints:
    """(N,) the row of ``known`` for each name of ``wanted``, −1 if there is none.

    An error if a name fits several rows, or if several names fit one row. An empty name fits
    nothing.

    Parameters
    ----------
    wanted, known : sequence of str
        Names of images, or other ids.
    wanted_in, known_in : str
        Where the names stand, for the error: "the readings", "predictions.csv".

    Examples
    --------
    >>> known = ["x/b/1.png", "x/a/1.png"]
    >>> join_names(["a/1.png", "b/1.png"], known, wanted_in="one", known_in="other")
    array([1, 0])
    """
    names = list(map(plain_path, wanted))
    rows_of = _rows_by_name(known)
    tails: dict[str, list[int]] | None = None
    joined = np.full(len(names), NO_ROW, dtype=np.int64)
    for place, name in enumerate(names):
        if not name:
            continue
        candidates = rows_of.get(name, [])
        if not candidates:
            if tails is None:  # most tables name their images alike, and need none
                tails = _rows_by_tail(rows_of)
            # a longer name that ends with this one, else the longest name that this one ends with
            candidates = tails.get(name, [])
            for tail in _tails(name):
                candidates = candidates or rows_of.get(tail, [])
        if len(candidates) > 1:
            fitting = few(repr(known[row]) for row in candidates)
            raise SrjtError(
                f"{wanted[place]!r} of {wanted_in} fits {len(candidates):,} names of {known_in}"
                f" ({fitting}): write the names with their folders in both, so that each fits one.",
                code="ambiguous",
            )
        if candidates:
            joined[place] = candidates[0]
    _refuse_shared_rows(joined, wanted, known, wanted_in=wanted_in, known_in=known_in)
    return joined


def join_all_names(
    wanted: Sequence[str], known: Sequence[str], *, wanted_in: str, known_in: str
) -> Ints:
    """``join_names``; a name without a partner is an error that shows what the two sides look
    like."""
    joined = join_names(wanted, known, wanted_in=wanted_in, known_in=known_in)
    if len(missing := np.flatnonzero(joined == NO_ROW)):
        whole = "none" if len(missing) == len(joined) else f"{len(joined) - len(missing):,}"
        raise SrjtError(
            f"{known_in} names {whole} of the {len(joined):,} images of {wanted_in}. Missing:"
            f" {few(repr(wanted[row]) for row in missing.tolist())}; its own names:"
            f" {few(map(repr, known))}. The names must be equal, or one the end of the"
            " other after a slash.",
            code="no_match",
        )
    return joined


def _rows_by_name(names: Sequence[str]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        if name:
            rows.setdefault(plain_path(name), []).append(row)
    return rows


def _rows_by_tail(rows_of: dict[str, list[int]]) -> dict[str, list[int]]:
    """Every end of a name that begins after a slash, and the rows whose names end so."""
    tails: dict[str, list[int]] = {}
    for name, rows in rows_of.items():
        for tail in _tails(name):
            # three are enough to say that it is ambiguous: all images may be called image.dcm
            shown = tails.setdefault(tail, [])
            shown.extend(rows[: max(0, 3 - len(shown))])
    return tails


def _tails(name: str) -> list[str]:
    """The ends of a name after each slash, the longest first: of a/b/c, b/c and c."""
    parts = name.split("/")
    return ["/".join(parts[start:]) for start in range(1, len(parts))]


def _refuse_shared_rows(
    joined: Ints, wanted: Sequence[str], known: Sequence[str], *, wanted_in: str, known_in: str
) -> None:
    """Two different names that fit one row: the row is the partner of at most one of them."""
    first: dict[int, int] = {}
    for place, row in enumerate(joined.tolist()):
        if row == NO_ROW:
            continue
        other = first.setdefault(row, place)
        if plain_path(wanted[other]) != plain_path(wanted[place]):
            raise SrjtError(
                f"{known[row]!r} of {known_in} fits two names of {wanted_in} ({wanted[other]!r},"
                f" {wanted[place]!r}): write the names with their folders in both, so that each"
                " fits one.",
                code="ambiguous",
            )


# Patients: one spelling each, or else one person is on two sides of a split.


def plain_name(text: str) -> str:
    """A name as people see it: composed characters (NFC), no invisible ones, no spaces around
    it."""
    if text.isascii():
        return text.strip()
    visible = (letter for letter in text if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFC", "".join(visible)).strip()


def one_spelling(patients: Sequence[str]) -> list[str]:
    """The patients, each written in one way; a warning names those that differ in case or width
    only.

    Two names that look the same are one patient. Case and width (full-width letters and digits) may
    have a meaning: such pairs are left as they are.
    """
    plain_of = {name: plain_name(name) for name in set(patients)}
    alike: dict[str, set[str]] = {}
    for name in set(plain_of.values()):
        alike.setdefault(unicodedata.normalize("NFKC", name).casefold(), set()).add(name)
    pairs = sorted(sorted(names)[:2] for names in alike.values() if len(names) > 1)
    if pairs:
        shown = few(f"{printable(one)!r} and {printable(other)!r}" for one, other in pairs)
        warn(
            f"{len(pairs):,} patients are written in two ways that differ in case or width only"
            f" ({shown}): they count as different people. If they are not, write them alike; else"
            " one person may be on two sides of a split.",
            LeakageWarning,
        )
    return [plain_of[patient] for patient in patients]
