"""What ``srjt audit`` has written, as the review reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError

__all__ = ["FORMAT", "AuditFolder", "grade_keys", "read_audit"]

FORMAT = 1

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class AuditFolder:
    """N samples, the most doubtful label first. A sample's *line* is its place here, from 0."""

    folder: Path
    grades: tuple[str, ...]  # names, mildest first
    ids: list[str]
    images: list[str]  # (N,) absolute, or relative to the folder; "" where there is none
    labels: Ints  # (N,) the given grades
    suggested: Ints  # (N,)
    quality: Floats  # (N,) p(label correct | image, label)
    probabilities: Floats  # (N, C) p(true grade | image, label)
    votes: tuple[Ints, ...]  # one or two of (N,): each network's own grade
    selected: Floats  # (N,) share of the times that training selected it; NaN: unknown
    patients: list[str] | None
    readers: list[str] | None
    neighbours: npt.NDArray[np.int32] | None  # (N, C, 4) lines of similar samples of each grade, -1: none
    table: Path | None  # the labels as they were given
    label_column: str
    source: str = ""  # what was audited, and the options that say how to read it
    read_with: tuple[str, ...] = ()
    features: bool = False  # rows of features were audited, not images
    line_of: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "line_of", {name: line for line, name in enumerate(self.ids)})

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def expected_wrong(self) -> int:
        """How many labels are expected to be wrong: Σ (1 − quality), at least one."""
        return min(len(self), max(1, round(float((1 - self.quality).sum()))))


def read_audit(folder: Path) -> AuditFolder:
    """Read the folder that ``srjt audit … --out folder`` has written, or say what is wrong with it."""
    facts = _facts(folder)
    frame = _frame(folder / "audit.csv", expected=facts.get("samples"))
    grades = tuple(str(name) for name in facts["grades"])
    probabilities = [f"p_{k}" for k in range(len(grades))]
    _require(frame, ["id", "image", "grade", "suggested", "quality", *probabilities], folder / "audit.csv")
    if not frame["id"].is_unique:
        twice = frame.loc[frame["id"].duplicated(), "id"].iloc[0]
        raise SrjtError(f"{folder / 'audit.csv'} has the id {twice!r} twice: run srjt audit again.")

    def codes(column: str) -> Ints:
        return _codes(frame[column], grades, where=f"{folder / 'audit.csv'}, column {column}")

    def numbers(columns: str | list[str]) -> Floats:
        try:
            return frame[columns].replace("", "nan").to_numpy(dtype=np.float64)
        except ValueError as problem:
            raise SrjtError(
                f"{folder / 'audit.csv'} holds something other than a number: {problem}."
            ) from None

    quality = numbers("quality")
    if not ((quality >= 0) & (quality <= 1)).all():
        raise SrjtError(f"The column quality of {folder / 'audit.csv'} must lie between 0 and 1.")
    table = facts.get("table")
    return AuditFolder(
        folder=folder,
        grades=grades,
        ids=frame["id"].tolist(),
        images=frame["image"].tolist(),
        labels=codes("grade"),
        suggested=codes("suggested"),
        quality=quality,
        probabilities=numbers(probabilities),
        votes=tuple(codes(name) for name in ("network_1", "network_2") if name in frame),
        selected=numbers("selected") if "selected" in frame else np.full(len(frame), np.nan),
        patients=frame["patient"].tolist() if "patient" in frame else None,
        readers=frame["reader"].tolist() if "reader" in frame else None,
        neighbours=_neighbours(folder / "neighbours.npz", (len(frame), len(grades))),
        table=None if table is None else Path(table),
        label_column=str(facts.get("label_column") or "grade"),
        source=str(facts.get("source") or ""),
        features=bool(facts.get("features")),
        read_with=tuple(str(option) for option in facts.get("read_with") or ()),
    )


def grade_keys(grades: Sequence[str]) -> list[str]:
    """The digit that sets each grade; "" for those beyond ten.

    0 is the mildest, except where the names carry digits of their own: who types 1 means "Mayo 1", even
    on a scale that begins there.
    """
    own = [re.findall(r"\d+", name) for name in grades]
    digits = [found[0] for found in own if len(found) == 1 and len(found[0]) == 1]
    if len(digits) == len(grades) == len(set(digits)):
        return digits
    return [str(k) if k < 10 else "" for k in range(len(grades))]


def _facts(folder: Path) -> dict[str, Any]:
    path = folder / "audit.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise SrjtError(
            f"{folder} is not the folder of an audit (there is no audit.json): "
            "make one with srjt audit labels.csv --out audit."
        ) from None
    except (OSError, ValueError) as problem:
        raise SrjtError(f"{path} cannot be read: {problem}.") from None
    if not isinstance(facts, dict) or not isinstance(facts.get("grades"), list) or len(facts["grades"]) < 2:
        raise SrjtError(f"{path} does not list the grades of an audit: run srjt audit again.")
    if facts.get("format") != FORMAT:
        raise SrjtError(
            f"{path} has format {facts.get('format')!r} where this srjt knows {FORMAT}: run srjt audit again."
        )
    return facts


def _frame(path: Path, *, expected: int | None) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except (OSError, ValueError) as problem:
        raise SrjtError(f"{path} cannot be read: {problem}.") from None
    if not len(frame) or (expected is not None and len(frame) != expected):
        raise SrjtError(
            f"{path} has {len(frame):,} lines where the audit was of {expected or 'some':,} samples: "
            "it is not whole; run srjt audit again."
        )
    return frame


def _require(frame: pd.DataFrame, columns: Sequence[str], path: Path) -> None:
    missing = [column for column in columns if column not in frame]
    if missing:
        raise SrjtError(f"{path} has no column {missing[0]!r}: run srjt audit again.")


def _codes(names: pd.Series[str], grades: tuple[str, ...], *, where: str) -> Ints:
    codes = names.map({name: code for code, name in enumerate(grades)})
    if codes.isna().any():
        strange = names[codes.isna()].iloc[0]
        raise SrjtError(f"{where}: {strange!r} is not one of the grades {', '.join(grades)}.")
    return np.asarray(codes, dtype=np.int64)


def _neighbours(path: Path, shape: tuple[int, int]) -> npt.NDArray[np.int32] | None:
    """Without them the review only lacks the comparison, so a missing file is no error; a wrong one is."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            rows = np.asarray(file["rows"])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        raise SrjtError(
            f"{path} is damaged: run srjt audit again, or delete it and do without similar images."
        ) from None
    if rows.shape[:2] != shape or rows.ndim != 3 or rows.dtype.kind != "i":
        raise SrjtError(f"{path} does not belong to audit.csv: run srjt audit again.")
    if rows.size and not (rows.min() >= -1 and rows.max() < shape[0]):
        raise SrjtError(f"{path} points to lines that audit.csv does not have: run srjt audit again.")
    return rows.astype(np.int32)
