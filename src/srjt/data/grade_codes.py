"""Labels of any type as grades 0 … C − 1: arrays, strings, ordered categoricals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import order_names
from srjt.errors import SrjtError

__all__ = ["grade_codes", "ordered_categories", "verified_codes"]

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


def grade_codes(y: Array, *, grades: Sequence[Any] | Literal["sorted"] | None = None) -> tuple[Array, Ints]:
    """(C,) the grades from mild to severe, and (N,) the position of each label among them.

    grades: the grades in their order, or "sorted" for the alphabetical one. Default: known from numbers only.
    """
    try:
        present = np.unique(y)
    except TypeError:
        raise SrjtError("The labels are of different types, which cannot be sorted: use one type.") from None
    if len(present) < 2:
        raise SrjtError(f"All labels are of one class, {present[0]}: there is nothing to learn.")
    if grades is None:
        classes = _ordered(present)
    elif isinstance(grades, str) and grades == "sorted":
        classes = present
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
    """Numbers in their order; names by the numbers at their ends, as in every other source."""
    names = present.tolist()
    if not all(isinstance(name, str) for name in names):
        return present
    return np.array(order_names(names, gaps=True), dtype=present.dtype)


def ordered_categories(y: Any) -> list[Any] | None:
    """The categories of an ordered categorical."""
    kind = getattr(y, "dtype", None)
    return list(kind.categories) if isinstance(kind, pd.CategoricalDtype) and kind.ordered else None
