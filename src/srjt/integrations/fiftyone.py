"""FiftyOne: open an audit or predictions as a dataset, to look at images by grade, doubt, range and
similarity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError, count_of, missing_extra

# Columns of ``audit.csv`` and of predictions that are classes; the other columns stay numbers or
# text.
GRADES = (
    "grade",
    "suggested",
    "verified_grade",
    "true_grade",
    "grade_low",
    "grade_high",
    "network_1",
    "network_2",
)
NOT_FIELDS = ("image", "id")  # FiftyOne has an id of its own


def show(
    table: Any,
    images: Sequence[str | Path],
    *,
    embeddings: npt.ArrayLike | None = None,
    name: str | None = None,
    launch: bool = True,
) -> Any:
    """Open an audit or predictions in FiftyOne.

    Parameters
    ----------
    table : DataFrame, or an object with a ``table``
        What ``srjt.audit`` or ``srjt.predict`` returns: one row per image.
    images : sequence of path, (N,)
        The image file of each row, as in ``manifest.paths``.
    embeddings : array_like, (N, F), optional
        Features of the images, for FiftyOne's similarity search: ``srjt.embed(run, images)``.
    name : str, optional
        Name of the dataset. Default: FiftyOne chooses one.
    launch : bool
        Whether to open the app in the browser.

    Returns
    -------
    fiftyone.Dataset
        One sample per image. Grades are classifications, other columns plain fields.

    Examples
    --------
    >>> import srjt.integrations.fiftyone as browser  # doctest: +SKIP
    >>> audit = srjt.audit("labels.csv", out="audit")  # doctest: +SKIP
    >>> browser.show(audit, audit.table["image"])  # doctest: +SKIP
    """
    fiftyone = _fiftyone()
    dataset = fiftyone.Dataset(name)
    dataset.add_samples(samples(table, images, embeddings=embeddings))
    if launch:
        fiftyone.launch_app(dataset)
    return dataset


def samples(
    table: Any, images: Sequence[str | Path], *, embeddings: npt.ArrayLike | None = None
) -> list[Any]:
    """The samples of such a dataset, in the order of the table. Parameters as those of ``show``."""
    fiftyone = _fiftyone()
    frame: pd.DataFrame = table if isinstance(table, pd.DataFrame) else table.table
    vectors = None if embeddings is None else np.asarray(embeddings, dtype=np.float32)
    if len(frame) != len(images) or (vectors is not None and len(vectors) != len(frame)):
        raise SrjtError(
            f"The table has {count_of(len(frame), 'row')}; give as many images and embeddings, in"
            " the same order.",
            code="wrong_shape",
        )
    made = []
    for place, row in enumerate(frame.to_dict("records")):
        fields: dict[str, Any] = {"srjt_id": str(row.get("id", images[place]))}
        for column, value in row.items():
            if column in NOT_FIELDS or pd.isna(value) or value == "":
                continue
            if column in GRADES:
                fields[str(column)] = fiftyone.Classification(label=str(value))
            else:
                fields[str(column)] = value.item() if isinstance(value, np.generic) else value
        if vectors is not None:
            fields["embedding"] = vectors[place]
        made.append(fiftyone.Sample(filepath=str(Path(images[place]).absolute()), **fields))
    return made


def _fiftyone() -> Any:
    try:
        import fiftyone
    except ImportError:
        raise missing_extra("fiftyone", "fiftyone", "Opening results in FiftyOne") from None
    return fiftyone
