"""Features with grades, from ``srjt features`` or other programs: .npz, .npy with a table of labels, tables with
one column per feature.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.grades import as_text
from srjt.data.manifest import Features, Manifest, as_features, match_names
from srjt.data.options import ReadOptions
from srjt.data.sources.assemble import GRADED, LoadedData, assemble
from srjt.data.sources.columns import (
    NUMBERED,
    SYNONYMS,
    TABLE_SUFFIXES,
    TextTable,
    check_wanted,
    choose_columns,
    load_table,
    plain_name,
    read_parquet,
    refuse_repeated,
    rows_from,
)
from srjt.data.sources.readings import READING_SYNONYMS
from srjt.data.sources.table import (
    CANONICAL,
    IN_MEMORY,
    check_split_column,
    combines_readings,
    consensus_rows,
    other_columns,
)
from srjt.errors import SrjtError, count_of
from srjt.files import check_regular_file

# Features in a table: one column per feature.

# Names of an array in a .npz file.
NAMES = ("features", "feature", "embeddings", "embedding")
# Names of columns beside the features: of the roles of a table, and of what is often known of a sample.
BESIDE = {name for names in (*SYNONYMS.values(), *READING_SYNONYMS.values()) for name in names} | {
    *("eye", "laterality", "side", "age", "sex", "gender", "site", "hospital", "centre", "center", "scanner"),
    *("series", "seriesid", "study", "studyid", "visit", "fold"),
}
FEW = 4  # so many numbered columns may also be a bounding box: x1, y1, x2, y2


def read_feature_table(
    table: Path | pd.DataFrame, patterns: str | Sequence[str] | None, *, wanted: Sequence[str] = ()
) -> FeatureFile:
    """A table of features, in a file or in memory, from the columns that match, else those ``wanted`` by a run, else by
    usual names."""
    if isinstance(table, pd.DataFrame):
        frame, lines, source = table, rows_from(0, len(table)), IN_MEMORY
        refuse_repeated(list(map(str, frame.columns)), "The table")
    elif table.suffix.lower() == ".parquet":
        frame, source = read_parquet(table), table.name
        lines = rows_from(1, len(frame))
    else:
        loaded, source = load_table(table), table.name
        frame, lines = loaded.frame, list(loaded.lines)
        if loaded.problems:
            raise SrjtError(f"{table}, {loaded.problems[0].where}: {loaded.problems[0].detail}.")
    frame = frame.set_axis(list(map(str, frame.columns)), axis=1)
    taken = _matching(list(frame.columns), patterns, source=source, wanted=wanted)
    numbers = _numbers(frame[taken], source=IN_MEMORY if source == IN_MEMORY else str(table), lines=lines)
    features = as_features(numbers, what=f"The features in {source}")
    rest = frame.drop(columns=taken)
    texts = pd.DataFrame({column: rest[column].map(as_text).astype(str) for column in rest})
    where = f"{_size(features)} in memory"
    if source != IN_MEMORY:
        texts = texts.rename(columns=SINGULAR)
        where = f"table {source}: {_size(features)}, columns {taken[0]} … {taken[-1]}"
    return FeatureFile(
        features=features,
        frame=texts.reset_index(drop=True),
        feature_names=tuple(taken),
        lines=lines,
        notes=[where],
    )


def column_names(path: Path) -> list[str]:
    """The names of the columns of a CSV, TSV or Parquet file; [] if they cannot be read."""
    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            return [str(name) for name in parquet.read_schema(path).names]
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [name.strip(' "') for name in re.split(r"[,;\t]", file.readline().strip())]
    except Exception:  # also ImportError
        return []  # the reader of the file reports the error


def has_features(names: Sequence[str]) -> bool:
    """Whether the columns are features by their names (f0, f1, …), and none of them names images.

    Beside columns of unknown names, which may be the images, the features must be many.
    """
    numbered = sum(NUMBERED.match(name) is not None for name in names)
    others = [plain_name(name) for name in names if not NUMBERED.match(name)]
    if numbered < 2 or any(
        name in SYNONYMS["image"] and name != "id" for name in others
    ):  # features have ids, too
        return False
    unknown = [name for name in others if name not in BESIDE]
    return not unknown or numbered > max(FEW, len(unknown))


def _matching(
    columns: Sequence[str], patterns: str | Sequence[str] | None, *, source: str, wanted: Sequence[str]
) -> list[str]:
    """The feature columns: those ``wanted`` by a run in its order, others in the order of the table."""
    if patterns is None and wanted:
        match_names(columns, wanted, source=source)
        return list(wanted)
    if patterns is None:
        taken = [column for column in columns if NUMBERED.match(column)]
        if len(taken) < 2:
            raise SrjtError(
                f"The names of the columns of {source} do not show which are features: give a pattern with "
                "`feature_columns='f*'`."
            )
        return taken
    listed = [part.strip() for part in patterns.split(",")] if isinstance(patterns, str) else list(patterns)
    names, chosen = set(columns), set[str]()
    for pattern in listed:
        matching = [pattern] if pattern in names else [name for name in columns if fnmatchcase(name, pattern)]
        if not matching:
            shown = ", ".join(columns[:8]) + (", …" if len(columns) > 8 else "")
            raise SrjtError(f"No column of {source} matches `feature_columns={pattern!r}`; it has {shown}.")
        chosen.update(matching)
    return [column for column in columns if column in chosen]


def _numbers(frame: pd.DataFrame, *, source: str, lines: Sequence[str]) -> npt.NDArray[np.generic]:
    """(N, F); the error for a cell that is not a number names it."""
    try:
        return frame.to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        for column in frame.columns:
            missing = pd.to_numeric(frame[column], errors="coerce").isna() & (
                frame[column].map(as_text) != "nan"
            )
            if missing.any():
                row = int(missing.to_numpy().argmax())
                raise SrjtError(
                    f"{source}, {lines[row]}: {str(frame[column].iloc[row])!r} in the feature column {column!r} is not "
                    "a number."
                ) from None
        raise


# Open a file of features: an array of numbers, and a table of text with one row per sample.

FEATURE_SUFFIXES = (".npz", ".npy")
# One column name for each array name; columns.py knows the synonyms of the column names.
SINGULAR = {
    "grades": "grade", "labels": "label", "y": "label", "true_grades": "true_grade", "true_labels": "true_label",
    "verified_grades": "verified_grade", "verified_labels": "verified_label",
    "patients": "patient", "groups": "patient", "splits": "split", "images": "image", "ids": "id", "readers": "reader",
    "file_": "file", "allow_pickle_": "allow_pickle",  # parameters of np.savez, which no array can be named after
}  # fmt: skip
PLURAL = {column: array for array, column in reversed(SINGULAR.items()) if column not in ("label", "split")}
# not per sample: the order of the grades, how the features were computed, and their names
ABOUT = ("grade_names", "made", "feature_names")


@dataclass(frozen=True, kw_only=True)
class FeatureFile:
    """N rows of features, and the other columns of the same file."""

    features: Features
    frame: pd.DataFrame  # N rows of text; no columns if the file has only features
    feature_names: tuple[str, ...] = ()  # (F,) the columns of a table; empty: an array without names
    lines: Sequence[str]  # (N,) the position of each row in the file
    notes: list[str]
    names: tuple[str, ...] | None = None  # the grades, mildest first
    made: str = ""


def open_features(
    path: Path, feature_columns: str | Sequence[str] | None, *, wanted: Sequence[str] = ()
) -> FeatureFile:
    """Read a file of features; ``feature_columns`` are patterns for the feature columns of a table.

    wanted: the names of the columns that a run was trained on, which need no pattern.
    """
    check_regular_file(path)
    suffix = path.suffix.lower()
    if suffix in FEATURE_SUFFIXES:
        if feature_columns is not None:
            raise SrjtError(f"`feature_columns` applies to tables, but {path} is an array file.")
        return _from_npz(path) if suffix == ".npz" else _from_npy(path)
    if suffix in TABLE_SUFFIXES:
        return read_feature_table(path, feature_columns, wanted=wanted)
    known = ", ".join((*FEATURE_SUFFIXES, *TABLE_SUFFIXES))
    raise SrjtError(f"{path} is not a file of features: those end in {known}.")


def is_features(path: Path) -> bool:
    """Whether a file has features, by its suffix and the names in it; the numbers are not read."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return True
    if suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                return any(f"{name}.npy" in archive.namelist() for name in NAMES)
        except Exception:  # damaged archives make zipfile raise almost any exception
            return False  # the reader of the file reports the error
    if suffix not in TABLE_SUFFIXES:
        return False
    names = column_names(path)
    named = any(name.casefold() == "id" for name in names)  # ids may be the names of image files
    return has_features(names) and not named


def _from_npz(path: Path) -> FeatureFile:
    arrays = load_numpy(path)
    name = next((name for name in NAMES if name in arrays), None)
    if name is None:
        raise SrjtError(f"{path} has no array named features; it has {', '.join(arrays) or 'none'}.")
    features = as_features(arrays.pop(name), what=f"The array {name!r} of {path.name}")
    count = len(features)
    notes = [f"file {path.name}: {_size(features)}"]
    about = {key: arrays.pop(key) for key in ABOUT if key in arrays}
    made = str(about["made"]) if "made" in about else ""
    if made:
        notes.append(f"made by {_describe(made)}")
    frame: dict[str, list[str]] = {}
    ignored = []
    for key, array in arrays.items():
        column = SINGULAR.get(key, key)
        flat = array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array
        if flat.ndim != 1 or len(flat) != count:
            if key in SINGULAR or key in CANONICAL:
                raise SrjtError(
                    f"{path.name} has {count_of(count, 'row')} of features, but its array {key!r} has the shape "
                    f"{array.shape}: it must have one entry per row."
                )
            ignored.append(key)
        elif column in frame:
            raise SrjtError(f"{path.name} has the {column} twice, the second time as {key!r}: remove one.")
        else:
            frame[column] = [as_text(_decoded(value, key, path)) for value in flat.tolist()]
    if ignored:
        notes.append(f"not used, because not one entry per row: {', '.join(ignored)}")

    def names(key: str) -> tuple[str, ...]:
        return tuple(as_text(_decoded(name, key, path)) for name in about[key].tolist())

    if "grade_names" in about and about["grade_names"].ndim != 1:
        raise SrjtError(f"The array 'grade_names' of {path.name} must list the grades, mildest first.")
    if "feature_names" in about and about["feature_names"].shape != features.shape[1:]:
        raise SrjtError(
            f"The array 'feature_names' of {path.name} must name its {count_of(features.shape[1], 'feature')}."
        )
    return FeatureFile(
        features=features,
        frame=pd.DataFrame(frame, index=range(count), dtype=str),
        lines=rows_from(0, count),
        notes=notes,
        feature_names=names("feature_names") if "feature_names" in about else (),
        names=names("grade_names") if "grade_names" in about else None,
        made=made,
    )


def _from_npy(path: Path) -> FeatureFile:
    arrays = load_numpy(path)
    if "" not in arrays:
        raise SrjtError(f"{path} is an archive of arrays, not one array: rename it to {path.stem}.npz.")
    features = as_features(arrays[""], what=f"The array in {path.name}")
    return FeatureFile(
        features=features,
        frame=pd.DataFrame(index=range(len(features))),
        lines=rows_from(0, len(features)),
        notes=[f"file {path.name}: {_size(features)}"],
    )


def load_numpy(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of a .npz file by their names, or that of a .npy file, named "". Nothing in them is executed."""
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    name = ""
    try:
        opened = np.load(path, mmap_mode="r", allow_pickle=False)
        with opened if isinstance(opened, np.lib.npyio.NpzFile) else nullcontext({"": opened}) as archive:
            for name in archive:
                arrays[name] = archive[name]
                if not isinstance(arrays[name], np.ndarray):  # a member of the archive that is not an array
                    raise ValueError(f"{name!r} is not an array")
                _check_text(arrays[name], name)
    except Exception as problem:  # damaged files make NumPy raise almost anything
        which = f"The array {name!r} of {path}" if name else str(path)
        reason = " ".join(str(problem).split()).rstrip(".") or type(problem).__name__
        if "pickle" in reason or "Python objects" in reason:  # NumPy recommends to load the file unsafely
            raise SrjtError(
                f"{which} contains Python objects, or is not from NumPy: save numbers or text "
                "(np.array(values, dtype=str))."
            ) from None
        raise SrjtError(f"{path} cannot be read as a NumPy file: {reason[:200]}.") from None
    return arrays


def _check_text(array: npt.NDArray[np.generic], name: str) -> None:
    """Raise a ValueError if an array of text contains numbers that are no characters, which Python cannot handle."""
    if array.dtype.kind == "U" and array.size:
        native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        codes = native.reshape(-1).view(np.uint32)
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes <= 0xDFFF))).any():
            raise ValueError(f"the array {name!r} contains damaged text")


def _decoded(value: object, array: str, path: Path) -> object:
    """Bytes as text, because NumPy stores text as bytes too; other values are unchanged."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as problem:
        raise SrjtError(
            f"The array {array!r} of {path.name} contains bytes that are not UTF-8, such as {problem.object[:20]!r}: "
            "save it as text (np.array(values, dtype=str))."
        ) from None


def _describe(made: str) -> str:
    """The JSON that ``srjt features`` wrote, as text; the text of another program is unchanged."""
    try:
        facts = json.loads(made)
        return ", ".join(f"{name} {value}" for name, value in facts.items() if value not in (None, False))
    except (ValueError, AttributeError):
        return made


def _size(features: Features) -> str:
    return f"{count_of(len(features), 'row')} of {count_of(features.shape[1], 'feature')}"


# Features with grades, from ``srjt features`` or other programs: .npz, .npy with a table of labels, tables.


def read_features(path: Path, options: ReadOptions) -> LoadedData:
    """Read features (N, F) with their grades.

    ``labels`` is a table of grades, matched by id if both have ids, else row by row; for a .npy file it defaults
    to the CSV file of the same name. ``feature_columns`` are patterns for the feature columns of a table.
    """
    loaded, labels = open_features(path, options.feature_columns), options.labels
    beside = path.with_suffix(".csv")
    if labels is None and path.suffix.lower() == ".npy" and beside.is_file():
        labels = beside
    readings, given, grades = None, options.roles, options.grades
    if labels is not None and not os.path.isfile(labels):
        raise SrjtError(f"The table of labels {labels} does not exist.")
    table = None if labels is None else load_table(labels)
    if combines_readings(options):
        if table is None or labels is None:
            raise SrjtError(
                "`several_readings='consensus'` combines the readings of a table: give it with `labels`."
            )
        combined = consensus_rows(table, options, source=labels.name)
        table, readings = combined.table, combined.readings
        given["grade"], grades = combined.grade_column, combined.readings.grades
    if labels is not None and table is not None:
        loaded = _joined(loaded, table, labels=labels, path=path)
    if not len(loaded.frame.columns):
        raise SrjtError(
            f"{path} has features but no grades: give them as an array named grades (.npz), in {beside.name} in the "
            "same folder, or in any table with `labels`."
        )
    root = (options.images or path.parent).absolute()
    reading = _graded(loaded, given, source=(labels or path).name, root=root, grades=grades)
    if options.images is not None and not any(os.path.isfile(image) for image in reading.manifest.paths):
        raise SrjtError(
            f"{path.name} has features, and no row of it names an image in {options.images}: leave out `images`, or "
            "name the column with `image_column`."
        )
    if readings is not None and not set(reading.manifest.ids) <= set(readings.items):
        readings = None  # matched row by row
    return replace(reading, readings=readings)


def read_feature_frame(frame: pd.DataFrame, options: ReadOptions) -> LoadedData:
    """Features (N, F) in a table in memory, with their grades and all other columns, as from a file of it."""
    loaded = read_feature_table(frame, options.feature_columns)
    given = {role: column for role, column in options.roles.items() if role != "image"}
    return _graded(loaded, given, source=IN_MEMORY, root=Path(), grades=options.grades)


def _graded(
    loaded: FeatureFile,
    given: Mapping[str, str | None],
    *,
    source: str,
    root: Path,
    grades: Sequence[str] | None,
) -> LoadedData:
    """The samples of a file, or of a table in memory. given: the column of each role, as in ``choose_columns``."""
    chosen, notes = choose_columns(
        list(loaded.frame.columns), given, source=source, required=("grade",), frame=loaded.frame
    )
    notes = check_split_column(loaded.frame, chosen, notes, given=given["split"] is not None)
    reading = assemble(
        _rows(loaded, chosen),
        kind="features",
        root=root,
        grades=grades if grades is not None else loaded.names,
        lines=loaded.lines,
        notes=[*loaded.notes, *notes],
        arrays=loaded.features,
    )
    manifest = replace(reading.manifest, feature_names=loaded.feature_names, made=loaded.made)
    return replace(reading, manifest=manifest)


def read_ungraded_features(
    source: Path | pd.DataFrame,
    *,
    feature_columns: str | Sequence[str] | None = None,
    patient_column: str | None = None,
    wanted: Sequence[str] = (),
    columns: Sequence[str] = (),
    grades: tuple[str, ...] = ("0", "1"),
) -> Manifest:
    """Read features for prediction, from a file or a table. Every sample gets the mildest grade as a placeholder.

    wanted: the names of the features of the run. columns: further columns to keep, where the source has them.
    """
    if isinstance(source, pd.DataFrame):
        loaded, name, root = read_feature_table(source, feature_columns, wanted=wanted), IN_MEMORY, Path()
    else:
        loaded, name = open_features(source, feature_columns, wanted=wanted), source.name
        root = source.parent.absolute()
    given = {"patient": patient_column}
    chosen, _ = choose_columns(list(loaded.frame.columns), given, source=name, required=())
    rows = _rows(loaded, {role: column for role, column in chosen.items() if role == "image"})
    table = rows[["id", "image"]].assign(grade=0)
    if "patient" in chosen:
        table["patient"] = loaded.frame[chosen["patient"]].to_numpy()
    for column in columns:
        if column in loaded.frame:  # the source's own id, image and grade get another name
            table[f"{column}_source" if column in table else column] = loaded.frame[column].to_numpy()
    check_wanted(columns, table, known=list(map(str, loaded.frame.columns)))
    return Manifest(
        table=table,
        grades=grades,
        root=root,
        arrays=loaded.features,
        feature_names=loaded.feature_names,
        made=loaded.made,
    )


def pack_features(manifest: Manifest, *, graded: bool = True) -> bytes:
    """The content of a .npz file that ``read_features`` reads. Grades are stored by name, image paths as absolute.

    graded: False if the grades are placeholders, which are left out.
    """
    assert manifest.arrays is not None
    assert manifest.are_features
    table = manifest.table
    contents: dict[str, npt.NDArray[np.generic]] = {"features": as_features(manifest.arrays)}
    for column in table.columns if graded else table.columns.drop("grade"):
        texts = [as_text(value) for value in table[column]]
        if column in GRADED:
            texts = [manifest.grades[grade] if grade >= 0 else "" for grade in table[column]]
        elif column == "image":
            paths = [(name, (manifest.root / name).absolute()) for name in texts]
            texts = [str(path) if os.path.isfile(path) else name for name, path in paths]
        contents[PLURAL.get(str(column), str(column))] = np.array(texts, dtype=str)
    if graded:
        contents["grade_names"] = np.array(manifest.grades, dtype=str)
    if manifest.feature_names:
        contents["feature_names"] = np.array(manifest.feature_names, dtype=str)
    contents["made"] = np.array(manifest.made, dtype=str)
    buffer = io.BytesIO()
    np.savez(buffer, **contents)  # type: ignore[arg-type]
    return buffer.getvalue()


def _joined(loaded: FeatureFile, table: TextTable, *, labels: Path, path: Path) -> FeatureFile:
    """Add the columns of ``table``, read from ``labels``, to ``found``. If both have a column, the table's is used."""
    frame = table.frame.rename(columns=SINGULAR)
    count = len(loaded.features)
    matched = _by_id(loaded.frame, frame, path=path, labels=labels)
    if matched is None:
        if table.problems:
            raise SrjtError(f"{labels}, {table.problems[0].where}: {table.problems[0].detail}.")
        if len(frame) != count:
            raise SrjtError(
                f"{path.name} has {count_of(count, 'row')} of features and {labels.name} "
                f"{count_of(len(frame), 'row')} of labels: give equal numbers in the same order, or ids in both."
            )
        lines: Sequence[str] = table.lines
        note, joined = "row by row", frame
    else:
        column, order = matched
        # A row of features without a label becomes a row without a grade, which is reported as usual.
        joined = frame.drop(columns=column).reindex([-1 if at is None else at for at in order])
        joined = joined.fillna("").reset_index(drop=True)
        lines = [table.lines[at] if at is not None else loaded.lines[row] for row, at in enumerate(order)]
        unused = len(frame) - len({at for at in order if at is not None})
        note = "by id" + (f"; {count_of(unused, 'row')} of it without features" if unused else "")
    kept = loaded.frame.drop(columns=[c for c in loaded.frame.columns if c in joined.columns])
    if "grade" in kept and "grade" not in joined:
        kept = kept.drop(columns="grade")  # the table has the grade under another name, such as label
    return replace(
        loaded,
        frame=pd.concat([joined, kept.reset_index(drop=True)], axis=1),
        lines=lines,
        notes=[*loaded.notes, f"labels from {labels.name}, {note}", *table.notes],
    )


def _by_id(
    ours: pd.DataFrame, theirs: pd.DataFrame, *, path: Path, labels: Path
) -> tuple[str, list[int | None]] | None:
    """The id column of the table, and its row for each row of features; None without ids."""
    keys = [
        (a, b) for a in ("id", "image") for b in ("id", "sample_id", "image") if a in ours and b in theirs
    ]
    if not keys:
        return None
    for mine, its in keys:
        place: dict[str, int] = {}
        for row, name in enumerate(theirs[its]):
            if place.setdefault(name, row) != row and name:
                raise SrjtError(f"{labels} has two rows for the id {name!r}.")
        order = [place.get(name) for name in ours[mine]]
        if any(at is not None for at in order):
            return its, order
    mine, its = keys[0]
    raise SrjtError(
        f"No {mine} of {path.name} (the first is {ours[mine].iloc[0]!r}) is among the {its}s of {labels.name} (the "
        f"first is {theirs[its].iloc[0]!r})."
    )


def _rows(loaded: FeatureFile, chosen: Mapping[str, str]) -> pd.DataFrame:
    """The columns of the manifest, as text; missing ids and images are filled in."""
    frame, count = loaded.frame, len(loaded.features)
    own = next((c for c in frame.columns if c.casefold() in ("id", "sample_id")), None)
    ids = [str(row) for row in range(count)] if own is None else frame[own].tolist()
    if own is None and "image" in chosen and frame[chosen["image"]].is_unique:
        ids = frame[chosen["image"]].tolist()
    images = frame[chosen["image"]].tolist() if "image" in chosen else ids
    cells = {role: frame[column] for role, column in chosen.items()} | {
        "image": [image or name for image, name in zip(images, ids, strict=True)]
    }
    return pd.DataFrame({"id": ids, **cells, **other_columns(frame, chosen, own)})
