"""The cases of the benchmark: features, readings, reference grades and fixed splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.readers import Readings

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FOLDS = 5
COMPONENTS = 128  # principal components of the features
READINGS = {"acne": 2, "appareal": 3}  # of an image, drawn by the seed


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a method gets: features of all images; readings of those to learn from."""

    features: Floats  # (N, 128) standardised on the training side
    train: Ints  # rows to fit
    validation: Ints  # rows to choose settings by their readings
    test: Ints  # rows to predict; their readings are not given
    item: Ints  # (M,) rows of the readings of train and validation
    reader: Ints  # (M,)
    grade: Ints  # (M,)
    readers: int
    classes: int
    anonymous: bool  # whether readers are not known: votes of a crowd, reader is 0
    seed: int

    def readings(self) -> Readings:
        """For ``srjt.readers``; its item i is row ``sorted(train + validation)[i]``."""
        rows = np.sort(np.r_[self.train, self.validation])
        return Readings(
            items=[str(row) for row in rows],
            readers=[str(reader) for reader in range(self.readers)],
            grades=tuple(str(grade) for grade in range(self.classes)),
            item=np.searchsorted(rows, self.item),
            reader=self.reader,
            grade=self.grade,
        )

    def on_rows(self, values: Floats) -> Floats:
        """(N, C) of values (n, C) of the items of ``readings``; 0 elsewhere."""
        spread = np.zeros((len(self.features), values.shape[1]))
        spread[np.sort(np.r_[self.train, self.validation])] = values
        return spread


def cases(name: str, features: Path, folder: Path, *, seed: int) -> Iterator[tuple[Case, Ints]]:
    """The five folds of a set with one seed, each with the reference grades (N,)."""
    with np.load(features) as stored:
        images = stored["images"].tolist()
        values = stored["features"].astype(np.float64)
        folds = stored["folds"]
    labels = pd.read_csv(folder / "labels.csv").set_index("image").reindex(images)
    place = {image: row for row, image in enumerate(images)}
    if name == "acne":
        true = labels["published_grade"].to_numpy(np.int64)
        table = drawn(pd.read_csv(folder / "readings.csv"), READINGS[name], seed=seed)
        reader, names = pd.factorize(table["reader"], sort=True)
    else:
        true = labels["true_grade"].to_numpy(np.int64)
        table = drawn(pd.read_csv(folder / "votes.csv"), READINGS[name], seed=seed)
        reader, names = np.zeros(len(table), dtype=np.int64), ["anybody"]
    item = table["image"].map(place).to_numpy(np.int64)
    grade = table["grade"].to_numpy(np.int64)
    for fold in range(FOLDS):
        test = np.flatnonzero(folds == fold)
        validation = np.flatnonzero(folds == (fold + 1) % FOLDS)
        train = np.flatnonzero((folds != fold) & (folds != (fold + 1) % FOLDS))
        given = folds[item] != fold
        case = Case(
            features=_components(values, train),
            train=train,
            validation=validation,
            test=test,
            item=item[given],
            reader=reader[given].astype(np.int64),
            grade=grade[given],
            readers=len(names),
            classes=int(max(true.max(), grade.max())) + 1,
            anonymous=name != "acne",
            seed=seed,
        )
        yield case, true


def drawn(table: pd.DataFrame, count: int, *, seed: int) -> pd.DataFrame:
    """So many readings of each image, drawn by the seed."""
    mixed = table.dropna(subset=["grade"]).sample(frac=1.0, random_state=seed)
    return mixed.groupby("image", sort=False).head(count)


def _components(features: Floats, train: Ints) -> Floats:
    """(N, 128) principal components, from the training side alone, with variance 1."""
    centred = features - features[train].mean(axis=0)
    variances, axes = np.linalg.eigh(centred[train].T @ centred[train] / len(train))
    return np.asarray(centred @ (axes[:, -COMPONENTS:] / np.sqrt(variances[-COMPONENTS:])))
