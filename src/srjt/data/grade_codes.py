"""Labels of any type as grades 0 … C − 1: arrays, strings, ordered categoricals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError, warn

__all__ = ["grade_codes", "ordered_categories", "verified_codes"]

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

_NUMBERED = re.compile(r"^(?P<stem>.*?)(?P<number>\d+)$", re.DOTALL)


def grade_codes(y: Array, *, grades: Sequence[Any] | None = None) -> tuple[Array, Ints]:
    """(C,) the grades from mild to severe, and (N,) the position of each label among them."""
    try:
        present = np.unique(y)
    except TypeError:
        raise SrjtError("The labels are of different types, which cannot be sorted: use one type.") from None
    if len(present) < 2:
        raise SrjtError(f"All labels are of one class, {present[0]}: there is nothing to learn.")
    if grades is None:
        classes = _ordered(present)
    else:
        listed = list(grades)
        if len(set(listed)) < max(len(listed), 2):
            raise SrjtError(f"grades must list at least two grades, each once; got {listed}.")
        classes = np.array(listed, dtype=object if y.dtype == object else None)
    code_of = {grade: code for code, grade in enumerate(classes.tolist())}
    unknown = [label for label in present.tolist() if label not in code_of]
    if unknown:
        raise SrjtError(
            f"The label {unknown[0]!r} is not among the grades {classes.tolist()}. (cross_val_predict replaces strings "
            "by numbers in alphabetical order when it computes probabilities: use integer labels there.)"
        )
    return classes, np.array([code_of[label] for label in y.tolist()], dtype=np.int64)


def verified_codes(verified: Any, classes: Array) -> Ints:
    """(N,) the position of each verified grade among the classes; −1 where it is None or nan."""
    code_of = {grade: code for code, grade in enumerate(classes.tolist())}
    known = [None if pd.isna(grade) else grade for grade in np.asarray(verified, dtype=object).tolist()]
    unknown = [grade for grade in known if grade is not None and grade not in code_of]
    if unknown:
        raise SrjtError(
            f"The verified grade {unknown[0]!r} is not among the grades {classes.tolist()}; use None or nan for rows "
            "that were not verified."
        )
    return np.array([-1 if grade is None else code_of[grade] for grade in known], dtype=np.int64)


def _ordered(present: Array) -> Array:
    """Sorted values in the order of severity, as far as their names show it."""
    if not all(isinstance(value, str) for value in present.tolist()):
        return present
    parsed = [_NUMBERED.match(value) for value in present.tolist()]
    matches = [match for match in parsed if match]
    if len(matches) == len(present) and len({match["stem"].strip(" _-") for match in matches}) == 1:
        by_number: Array = present[np.argsort([int(match["number"]) for match in matches], kind="stable")]
        return by_number
    shown = ", ".join(present.tolist()[:8]) + (", …" if len(present) > 8 else "")
    warn(
        f"The names of the grades do not show their order, so they are sorted alphabetically: {shown}. List them from "
        "mild to severe with grades=[…]."
    )
    return present


def ordered_categories(y: Any) -> list[Any] | None:
    """The categories of an ordered categorical."""
    kind = getattr(y, "dtype", None)
    return list(kind.categories) if isinstance(kind, pd.CategoricalDtype) and kind.ordered else None
