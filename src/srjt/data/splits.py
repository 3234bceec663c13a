"""Folds with train, validation and test sides that share no patient and no image, the CSV files
that store them, and noise that is injected into some of the sides.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt import noise as noises
from srjt.data.duplicates import group_duplicates, image_hashes, with_hashes
from srjt.data.grades import MISSING, as_text, positions
from srjt.data.manifest import Ints, LeakageWarning, Manifest, warn_about_formulas
from srjt.data.names import join_names
from srjt.errors import Option, SrjtError, count_of, reason_of, unknown_name, warn
from srjt.files import as_csv, check_regular_file, write_output

Mask = npt.NDArray[np.bool_]
BY = ("random", "stratified")
SIDES = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Split:
    """Which rows of a manifest are for training, validation and test.

    Parameters
    ----------
    train, validation, test : (n,) int64
        Row positions, ascending. A row is on at most one side.
    held_out : str
        The value of a column, such as the site, that is the whole test side; empty if there is
        none.
    checked : bool
        Whether patients and images on two sides have been reported; if not, ``srjt.train`` does it.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32)
    >>> split = srjt.data.folds(data)[0]
    >>> len(split.train) + len(split.validation) + len(split.test)
    100
    """

    train: Ints
    validation: Ints
    test: Ints
    held_out: str = ""
    checked: bool = field(default=False, compare=False)

    def __repr__(self) -> str:
        return (
            f"<Split: {', '.join(f'{len(rows):,} {side}' for side, rows in self.sides().items())}>"
        )

    def sides(self) -> dict[str, Ints]:
        """The rows by the name of their side."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


def folds(
    manifest: Manifest,
    *,
    folds: int = 5,
    seed: int = 0,
    by: str = "random",
    hold_out: str | None = None,
) -> list[Split]:
    """Split the samples into folds whose sides share no patient and no image.

    The patients are divided into ``folds`` parts. In fold k, part k is for test, part k+1 for
    validation and the rest for training. The same patients and seed give the same folds on every
    machine, in any order of the rows, and whatever their labels are: correcting some moves nobody
    to another side.

    Patients who share an identical image are kept together. To find these, every image is decoded
    once and its hash is kept in the cache folder; ``srjt.data.group_duplicates`` finds nearly
    identical images too.

    Parameters
    ----------
    manifest : Manifest
        The samples. Without patients they are split one by one, and a ``LeakageWarning`` is issued.
    folds : int
        Number of folds, at least 3. Five give 60 % training, 20 % validation and 20 % test.
    seed : int
        Seed of the random order of the patients.
    by : {"random", "stratified"}
        ``"random"`` balances only the numbers of patients and samples, as the paper says.
        ``"stratified"`` balances the patients' highest grades too, as the authors' published code
        does, by true grades where they are known: then a corrected label moves others, so keep such
        folds in a file (``write_splits``).
    hold_out : str, optional
        A column, such as ``"site"``: each of its values is the test side of one fold
        (leave-one-site-out). Of the other patients one of ``folds`` − 1 parts is for validation. A
        patient at two sites is an error.

    Returns
    -------
    list of Split
        One split per fold; with ``hold_out``, one per value of the column, in alphabetical order.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32)
    >>> splits = srjt.data.folds(data, folds=5, seed=0)
    >>> len(splits)
    5
    """
    if by not in BY:
        raise unknown_name("split rule", by, BY)
    if folds < 3:
        raise SrjtError(
            f"At least 3 folds are needed for train, validation and test, not {folds}.",
            code="out_of_bounds",
            option="folds",
        )
    if hold_out is not None:
        return _hold_out(manifest, hold_out, parts=folds - 1, seed=seed, by=by)
    part = assign_folds(manifest, folds=folds, seed=seed, by=by)
    return [_split(part == k, part == (k + 1) % folds) for k in range(folds)]


def assign_folds(manifest: Manifest, *, folds: int, seed: int = 0, by: str) -> Ints:
    """(N,) the part, 0 … folds − 1, of each sample; all samples of a group are in the same part.

    The result depends only on the seed, the groups and, if stratified, the grades; not on the order
    of the rows, the platform or the version of a random generator.
    """
    if manifest.duplicates is None:
        manifest = group_duplicates(manifest)
    owners = manifest.groups or manifest.ids
    if manifest.patients is None:
        sentence = (
            "There are no patient ids: samples are split one by one, and leakage cannot be"
            " excluded."
        )
        warn(sentence, LeakageWarning)
    grades = manifest.labels if manifest.true_labels is None else manifest.true_labels
    others, their_grades = _left_out_owners(manifest)
    part_of = _assign_patients(
        [*owners, *others],
        np.concatenate([grades, their_grades]),
        parts=folds,
        seed=seed,
        stratified=by == "stratified",
    )
    return np.array([part_of[owner] for owner in owners], dtype=np.int64)


def _left_out_owners(manifest: Manifest) -> tuple[list[str], Ints]:
    """The group and the grade (−1: not known) of each image that was left out.

    They count as if they were there: a file that is missing on one machine, or is repaired later,
    moves nobody.
    """
    rows = manifest.left_out_rows
    if rows is None:
        return [], np.empty(0, dtype=np.int64)
    # the same image counts once; many rows of features may come from one image
    rows = rows[(rows["problem"] != "duplicate-row") & (rows["image"] != "")]
    rows = rows.drop_duplicates("id" if manifest.are_features else "image")
    by_patient = manifest.patients is not None and "patient" in rows
    owners = list(map(str, rows["patient" if by_patient else "id"]))
    known = manifest.patients or manifest.ids
    group_of = dict(zip(known, manifest.groups or known, strict=True))
    place = positions(manifest.grades)
    graded = "grade"
    if manifest.true_labels is not None and "true_grade" in rows:
        graded = "true_grade"
    grades = [place.get(str(name), -1) for name in rows[graded]]
    return [group_of.get(owner, owner) for owner in owners], np.array(grades, dtype=np.int64)


def official_split(manifest: Manifest) -> Split:
    """Return the split that was published with the data.

    Parameters
    ----------
    manifest : Manifest
        Samples with a ``split`` column. Samples with an empty entry are on no side.

    Returns
    -------
    Split
        The published split. A ``LeakageWarning`` is issued if a patient or an identical image is on
        two sides.

    Examples
    --------
    >>> import srjt
    >>> sides = ["train", "train", "test"]
    >>> data = srjt.data.from_arrays([[0.1], [0.2], [0.3]], [0, 1, 1], split=sides)
    >>> srjt.data.official_split(data).test
    array([2])
    """
    if "split" not in manifest.table:
        raise SrjtError(
            "The data have no published split: name its column with ",
            Option("split_column"),
            ".",
            code="no_split",
        )
    split = _of_sides(manifest.table["split"].to_numpy(dtype=object), checked=True)
    if not len(split.train):
        raise SrjtError("The published split has no training samples.", code="no_split")
    warn_of_leaks(manifest, split, name="The published split")
    return split


def patients_on_two_sides(manifest: Manifest) -> dict[str, list[str]]:
    """The patients who are on two sides of the published split, or more, and these sides."""
    if "split" not in manifest.table:
        return {}
    split = _of_sides(manifest.table["split"].to_numpy(dtype=object))
    shared = _on_two_sides(manifest.patients, split)
    found = {}
    for patient, rows in shared.groupby("owner", sort=False):
        found[str(patient)] = [side for side in SIDES if side in set(rows["side"])]
    return found


def warn_of_leaks(manifest: Manifest, split: Split, *, name: str) -> None:
    """Warn of patients and of identical images on two sides."""
    if len(shared := _on_two_sides(manifest.patients, split)):
        sentence = f"{name} has patients on two sides ({shared['owner'].iloc[0]} is one)"
        warn(f"{sentence}: its results will be too optimistic.", LeakageWarning)
    _warn_of_shared_images(manifest, {name: split})


def write_splits(path: Path, manifest: Manifest, splits: Sequence[Split]) -> None:
    """Write folds as a CSV file with the columns id, fold and split and, of sites that are held
    out, held_out.

    Parameters
    ----------
    path : Path
        The file to write.
    manifest : Manifest
        The samples that the splits refer to.
    splits : sequence of Split
        One split per fold, as ``folds`` returns them.

    Examples
    --------
    >>> import srjt
    >>> from pathlib import Path
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32)
    >>> srjt.data.write_splits(Path("folds.csv"), data, srjt.data.folds(data))
    """
    warn_about_formulas(manifest.table[["id"]], Path(path))
    parts = []
    for fold, split in enumerate(splits):
        for side, rows in split.sides().items():
            ids = manifest.table[["id"]].iloc[rows]
            parts.append(ids.assign(fold=fold, split=side, held_out=split.held_out))
    table = pd.concat(parts).rename_axis("row").sort_values(["fold", "row"])
    if not table["held_out"].any():
        table = table.drop(columns="held_out")
    write_output(Path(path), as_csv(table))


def read_splits(path: Path, manifest: Manifest, *, allow_missing: bool = False) -> list[Split]:
    """Read the folds that ``write_splits`` wrote.

    Parameters
    ----------
    path : Path
        A CSV file with the columns id, fold and split, or the folder of a run: the sides that it
        was trained with. Every sample must be in every fold; a patient on two sides of a fold is an
        error, an identical image on two sides a ``LeakageWarning``.
    manifest : Manifest
        The samples, in any order.
    allow_missing : bool
        Accept ids in the file that the manifest does not have. Rows of the source that were left
        out are accepted anyway; and what a run has left out is on no side.

    Returns
    -------
    list of Split
        One split per fold, as row positions of ``manifest``.

    Examples
    --------
    >>> import srjt
    >>> from pathlib import Path
    >>> data = srjt.data.synthetic.generate(images=100, patients=20, size=32)
    >>> srjt.data.write_splits(Path("folds.csv"), data, srjt.data.folds(data))
    >>> len(srjt.data.read_splits(Path("folds.csv"), data))
    5
    """
    path = Path(path)
    rows = _read_sides(path)
    skipped = _skipped_by_run(path)
    not_read = set()
    if manifest.left_out_rows is not None:
        not_read = set(manifest.left_out_rows["id"])
    splits = []
    for fold, sides in rows.groupby("fold"):
        once = sides.drop_duplicates("id")
        names = manifest.ids
        order = join_names(names, once["id"].tolist(), wanted_in="the data", known_in=str(path))
        unknown = once["id"].drop(once.index[order[order >= 0]])
        unknown = unknown[~unknown.isin(not_read)]
        unplaced = [names[row] for row in np.flatnonzero(order < 0)]
        left_out = [name for name in unplaced if name not in skipped]
        if len(unknown) and not allow_missing:
            raise SrjtError(
                f"{path} is not a split of these data: {unknown.iloc[0]!r} is unknown"
                f" ({len(unknown):,} in all).",
                code="no_match",
                option="splits",
            )
        if left_out:
            raise SrjtError(
                f"{path} is not a split of these data: fold {fold} lacks {left_out[0]!r}"
                f" ({len(left_out):,} in all).",
                code="no_match",
                option="splits",
            )
        side_of = once["split"].to_numpy(dtype=object)[order]
        side_of[order < 0] = ""
        held_out = str(sides["held_out"].iloc[0])
        split = _of_sides(side_of, held_out=held_out, checked=True)
        if len(shared := _on_two_sides(manifest.patients, split)):
            raise SrjtError(
                f"{path}, fold {fold}: the patient {shared['owner'].iloc[0]!r} is on two sides.",
                code="conflict",
                option="splits",
            )
        splits.append(split)
    _warn_of_shared_images(
        manifest, {f"Fold {fold} of {path}": split for fold, split in enumerate(splits)}
    )
    return splits


def _assign_patients(
    owners: Sequence[str], grades: Ints, *, parts: int, seed: int, stratified: bool
) -> dict[str, int]:
    """The part of each patient: equal numbers of patients of each stratum, about equal numbers of
    images."""
    images = Counter(owners)
    highest = pd.Series(grades).groupby(np.array(owners, dtype=object)).max().to_dict()
    if len(images) < parts:
        raise SrjtError(
            f"{parts} folds need at least {parts} patients; there are {len(images)}.",
            code="too_few",
            option="folds",
        )
    strata: dict[int, list[str]] = {}
    for owner in sorted(images, key=lambda owner: _random_key(owner, seed)):
        strata.setdefault(highest[owner] if stratified else 0, []).append(owner)
    part_of: dict[str, int] = {}
    load = [0] * parts
    # The smallest stratum first: the many mild patients balance what the few severe ones leave
    # unbalanced.
    for _, members in sorted(strata.items(), key=lambda stratum: (len(stratum[1]), stratum[0])):
        for start in range(0, len(members), parts):
            # One patient for each part: the patient with most images goes to the part with fewest.
            group = sorted(members[start : start + parts], key=lambda owner: -images[owner])
            for owner, part in zip(
                group, sorted(range(parts), key=lambda part: load[part]), strict=False
            ):
                part_of[owner] = part
                load[part] += images[owner]
    return part_of


def share_of_patients(manifest: Manifest, share: float, *, seed: int = 0) -> Mask:
    """(N,) whether a sample belongs to a random part of the patients with about this share of the
    samples.

    An error if all or none of them would.
    """
    owners = manifest.groups or manifest.ids
    order = sorted(set(owners), key=lambda owner: _random_key(owner, seed))
    samples = Counter(owners)
    before = np.cumsum([0, *(samples[owner] for owner in order)])[:-1]
    chosen = {order[place] for place in np.flatnonzero(before < share * len(owners))}
    if not 0 < len(chosen) < len(order):
        raise SrjtError(
            f"A share of {share:g} of {count_of(len(order), 'patient')} leaves none on one side.",
            code="too_few",
        )
    return np.array([owner in chosen for owner in owners])


def _random_key(owner: str, seed: int) -> bytes:
    """A random sort key that depends only on the patient and the seed, so it is the same
    everywhere."""
    return hashlib.blake2b(f"{seed}/{owner}".encode("utf-8", "surrogateescape")).digest()


def _of_sides(
    column: npt.NDArray[np.object_], *, held_out: str = "", checked: bool = False
) -> Split:
    """column: (N,) the side of each sample by its name."""
    train, validation, test = (np.flatnonzero(column == side).astype(np.int64) for side in SIDES)
    return Split(train=train, validation=validation, test=test, held_out=held_out, checked=checked)


def _split(test: Mask, validation: Mask, *, held_out: str = "") -> Split:
    column = np.where(test, "test", np.where(validation, "validation", "train")).astype(object)
    return _of_sides(column, held_out=held_out)


def _hold_out(manifest: Manifest, column: str, *, parts: int, seed: int, by: str) -> list[Split]:
    """Each value of a column is the test side once; part k of the patients is for validation where
    it is not test."""
    if column not in manifest.table:
        raise unknown_name(
            "column", column, list(map(str, manifest.table.columns)), option="hold_out"
        )
    if manifest.duplicates is None:
        manifest = group_duplicates(manifest)
    sites = np.array([as_text(cell).strip() for cell in manifest.table[column]], dtype=object)
    if unknown := sum(site.casefold() in MISSING for site in sites):
        raise SrjtError(
            f"{count_of(unknown, 'sample')} without a {column}: fill it in, or leave them out.",
            code="wrong_values",
            option="hold_out",
        )
    first: dict[str, str] = {}
    for owner, site in zip(manifest.groups or manifest.ids, sites, strict=True):
        if first.setdefault(owner, site) != site:
            raise SrjtError(
                f"The patient {owner!r}, or one with the same image, has two values of {column},"
                f" {first[owner]!r} and {site!r}: give every patient one.",
                code="conflict",
                option="hold_out",
            )
    names = sorted(set(sites))
    if len(names) < 2:
        raise SrjtError(
            f"To hold out each {column}, there must be two or more, not only {names}.",
            code="too_few",
            option="hold_out",
        )
    part = assign_folds(manifest, folds=parts, seed=seed, by=by)
    return [_split(sites == name, part == k % parts, held_out=name) for k, name in enumerate(names)]


def _on_two_sides(owners: Sequence[Hashable] | None, split: Split) -> pd.DataFrame:
    """The rows of patients, or images, that are on two sides: their owner and their side."""
    known = pd.DataFrame({"owner": pd.Series(list(owners or []), dtype=object), "side": None})
    if owners:
        for side, rows in split.sides().items():
            known.loc[rows, "side"] = side
    return known[known.groupby("owner")["side"].transform("nunique") > 1].dropna()


def _warn_of_shared_images(manifest: Manifest, splits: dict[str, Split]) -> None:
    """Warn of identical images on two sides; only of the first split that has some."""
    if manifest.duplicates is None:
        manifest = with_hashes(manifest, image_hashes(manifest))
    assert manifest.duplicates is not None
    for name, split in splits.items():
        if len(shared := _on_two_sides(manifest.duplicates.tolist(), split)):
            first = shared[shared["owner"] == shared["owner"].iloc[0]].drop_duplicates("side")
            one, other = [manifest.ids[row] for row in first.index[:2]]
            groups = (
                f"{count_of(shared['owner'].nunique(), 'group')}, for example {one} and {other}"
            )
            sentence = f"{name} has identical images on two sides ({groups})"
            warn(f"{sentence}: its results will be too optimistic.", LeakageWarning)
            return


def _skipped_by_run(path: Path) -> set[str]:
    """The ids that a run has left out because their images could not be read; of a file of splits,
    none."""
    file = path / "skipped.csv"
    if not os.path.isdir(path) or not file.exists():
        return set()
    return set(_read_columns(file, ["id"])["id"])


def _read_sides(path: Path) -> pd.DataFrame:
    """The columns id, fold (int), split and held_out of a file.

    The folder of a run has one fold: the sides that it was trained with.
    """
    if os.path.isdir(path):
        rows = _read_columns(path / "history.csv", ["id"]).assign(split="train")
        if (path / "held_out.csv").exists():
            others = _read_columns(path / "held_out.csv", ["id", "side"])
            rows = pd.concat([rows, others.rename(columns={"side": "split"})], ignore_index=True)
        rows["fold"] = "0"
    else:
        rows = _read_columns(path, ["id", "fold", "split"])
    wrong_side = ~rows["split"].isin(SIDES)
    wrong_fold = ~rows["fold"].str.fullmatch("[0-9]{1,6}")
    twice = rows.drop_duplicates(["id", "fold", "split"]).duplicated(["id", "fold"])
    for wrong, sentence in (
        (wrong_side, "the split must be train, validation or test, not {split!r}"),
        (wrong_fold, "the fold must be a whole number (0, 1, 2, …), not {fold!r}"),
        (twice.reindex(rows.index, fill_value=False), "{id!r} is on two sides of fold {fold}"),
    ):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise SrjtError(
                f"{path}, line {row + 2}: {sentence.format(**rows.iloc[row])}.",
                code="wrong_values",
                option="splits",
            )
    rows["fold"] = rows["fold"].astype(int)
    numbers = sorted(set(rows["fold"]))
    if numbers != list(range(len(numbers))) or not numbers:
        raise SrjtError(
            f"{path}: the folds must be numbered 0, 1, 2, …; found {numbers or 'none'}.",
            code="wrong_values",
            option="splits",
        )
    if "held_out" in rows:
        return rows
    return rows.assign(held_out="")


def _read_columns(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A CSV file that has these columns, all cells as text."""
    check_regular_file(path)
    try:
        rows = pd.read_csv(
            path, dtype=object, na_filter=False, encoding="utf-8-sig", index_col=False
        )
    except (
        ValueError
    ) as problem:  # also of text that is not UTF-8 and of quotes that are not closed
        raise SrjtError(
            f"{path} cannot be read as UTF-8 text with columns: {reason_of(problem)}.",
            code="unreadable_file",
            option="splits",
        ) from None
    if not set(columns) <= set(rows.columns):
        raise SrjtError(
            f"{path} does not hold a split: it needs the columns {', '.join(columns)}.",
            code="missing_column",
            option="splits",
        )
    return rows.fillna("")


# Inject noise as the paper does: into training and validation labels, never into test labels.


def corrupt_sides(
    manifest: Manifest, split: Split, matrix: npt.ArrayLike, *, seed: int
) -> tuple[Manifest, noises.NoiseReport]:
    """Inject noise into the training and validation labels; also returns a report on the training
    side.

    The noisy label of a sample depends only on the seed, its id and its label, not on the other
    samples.
    """
    labels = manifest.labels
    noisy = manifest.labels
    changed = np.concatenate([split.train, split.validation])
    names = manifest.ids
    ids = [names[row] for row in changed]
    noisy[changed] = noises.corrupt(labels[changed], matrix, seed=seed, ids=ids)
    return manifest.with_noisy_labels(noisy), noises.report(
        labels[split.train], noisy[split.train], matrix
    )


def corrupt(
    manifest: Manifest,
    *,
    noise: str = "quasi",
    rate: float | None = None,
    rho: float | None = None,
    seed: int = 0,
    include_test: bool = False,
) -> tuple[Manifest, noises.NoiseReport, float]:
    """Inject noise into clean labels. Samples marked test in the split column stay clean, as in the
    paper.

    Parameters
    ----------
    manifest : Manifest
        Samples with clean labels.
    noise : {"quasi", "truncated", "uniform"}
        Errors towards all other grades, fewer the farther; towards neighbours only; towards all
        alike.
    rate, rho : float
        The target share of wrong labels, or the paper's ρ: one of them.
    seed : int
        A noisy label depends on the seed, the sample's id and its grade, not on the other samples.
    include_test : bool
        Corrupt the samples marked test, too.

    Returns
    -------
    manifest : Manifest
        The samples with noisy labels; ``true_labels`` are the clean ones.
    report : NoiseReport
        What the noise was meant to be, and what it came to, on the labels that it applies to.
    rho : float
        The paper's ρ.

    Examples
    --------
    >>> import srjt
    >>> clean = srjt.data.synthetic.generate(images=100, patients=20, size=32)
    >>> noisy, report, rho = srjt.data.corrupt(clean, noise="quasi", rate=0.4, seed=3)
    >>> bool(report.realised_rate == (noisy.labels != clean.labels).mean())
    True
    """
    if (rate is None) == (rho is None):
        raise SrjtError(
            "Give the amount of noise: either ",
            Option("rate"),
            " or ",
            Option("rho"),
            ".",
            code="missing_option",
        )
    if manifest.true_labels is not None:
        raise SrjtError(
            "The data have true grades already, so their labels are noisy: give the clean table,"
            " or ",
            Option("grade_column"),
            " with the name of the column of true grades to start from them.",
            code="conflict",
        )
    rows = np.arange(len(manifest))
    if "split" in manifest.table and not include_test:
        rows = np.flatnonzero(manifest.table["split"] != "test")
    if not len(rows):
        raise SrjtError(
            "All samples are marked test, and test labels stay clean: ",
            Option("include_test", True),
            " corrupts them.",
            code="unsupported",
        )
    if rho is None:
        assert rate is not None
        rho = noises.rho_for_rate(noise, rate=rate, class_counts=manifest.select(rows).class_counts)
    matrix = noises.transition_matrix(noise, num_classes=manifest.num_classes, rho=rho)
    nobody = rows[:0]
    noisy, report = corrupt_sides(
        manifest, Split(train=rows, validation=nobody, test=nobody), matrix, seed=seed
    )
    return noisy, report, rho
