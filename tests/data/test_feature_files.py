"""Features of other programs: every accepted form gives the same manifest, every mistake one
sentence."""

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from refusals import refuses
from srjt.data import from_arrays, read
from srjt.data.sources.features import pack_features
from srjt.data.sources.samples import read_ungraded_features

COUNT = 8
X = np.random.default_rng(0).normal(size=(COUNT, 5)).astype(np.float32)
GRADES = ["mild", "none", "severe", "mild", "none", "severe", "none", "mild"]
NAMES = ["none", "mild", "severe"]
IDS = [f"s{i:03d}" for i in range(COUNT)]
PATIENTS = [f"00{i // 2}" for i in range(COUNT)]
COLUMNS = [f"f{i}" for i in range(5)]


def table(**more: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": IDS, "grade": GRADES, "patient": PATIENTS, **more})


def save_npz(folder: Path) -> tuple[Path, dict[str, Any]]:
    np.savez(folder / "a.npz", features=X, labels=GRADES, ids=IDS, patients=PATIENTS)
    return folder / "a.npz", {}


def save_npy(folder: Path) -> tuple[Path, dict[str, Any]]:
    np.save(folder / "a.npy", X.astype(np.float64))
    table().to_csv(folder / "a.csv", index=False)
    return folder / "a.npy", {}


def save_npz_labels_by_id(folder: Path) -> tuple[Path, dict[str, Any]]:
    np.savez(folder / "a.npz", embeddings=X, ids=np.array(IDS))
    table().sample(frac=1, random_state=0).to_csv(folder / "shuffled.csv", index=False)
    return folder / "a.npz", {"labels": folder / "shuffled.csv"}


def save_csv_columns(folder: Path) -> tuple[Path, dict[str, Any]]:
    pd.concat([table(), pd.DataFrame(X, columns=COLUMNS)], axis=1).to_csv(
        folder / "a.csv", index=False
    )
    return folder / "a.csv", {"feature_columns": "f*"}


def save_parquet_columns(folder: Path) -> tuple[Path, dict[str, Any]]:
    whole = pd.concat([table(), pd.DataFrame(X, columns=COLUMNS)], axis=1)
    whole.to_parquet(folder / "a.parquet")
    return folder / "a.parquet", {"feature_columns": ["f0", "f[1-9]"]}


FORMS = [value for name, value in sorted(globals().items()) if name.startswith("save_")]


@pytest.mark.parametrize("save", FORMS, ids=lambda save: save.__name__[5:])
def test_every_form_gives_the_same_samples(save: Any, tmp_path: Path) -> None:
    path, options = save(tmp_path)
    reading = read(path, grades=NAMES, **options)
    manifest = reading
    assert reading.report.kind == "features"
    assert reading.report.problems == ()
    assert manifest.are_features
    assert manifest.arrays.dtype == np.float32
    np.testing.assert_allclose(manifest.arrays, X, rtol=1e-6)
    assert manifest.ids == IDS
    assert manifest.patients == PATIENTS
    assert [manifest.grades[g] for g in manifest.labels] == GRADES
    assert manifest.grades == ("none", "mild", "severe")


def test_everything_else_in_an_npz_is_kept(tmp_path: Path) -> None:
    extra = {
        "reader": np.array(list("ABABABAB")),
        "age": np.arange(COUNT) + 40,
        "split": np.array(["train"] * 6 + ["test"] * 2),
        "true_grades": np.array(GRADES[::-1]),
        "images": np.array([f"p/{i}.png" for i in range(COUNT)]),
        "attention": np.zeros((COUNT, 3)),
    }
    np.savez(tmp_path / "a.npz", features=X, grades=np.array(GRADES), **extra)
    reading = read(tmp_path / "a.npz", grades=NAMES)
    manifest = reading
    assert manifest.table["reader"].tolist() == list("ABABABAB")
    assert manifest.table["age"].tolist() == [str(age) for age in range(40, 48)]
    assert manifest.table["split"].tolist() == ["train"] * 6 + ["test"] * 2
    assert [manifest.grades[g] for g in manifest.true_labels] == GRADES[::-1]
    assert manifest.paths[3] == tmp_path / "p/3.png"
    assert "not used, because not one entry per row: attention" in reading.report.notes


def test_whole_numbers_need_no_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.zeros(3), features=X, y=np.arange(COUNT)[:, None] % 3 + 1)
    manifest = read(tmp_path / "a.npz")
    assert manifest.grades == ("1", "2", "3")
    assert manifest.labels.tolist() == [i % 3 for i in range(COUNT)]
    assert manifest.ids == [str(i) for i in range(COUNT)]
    # many rows of one image stay
    np.savez(
        tmp_path / "a.npz", features=X, grades=np.arange(COUNT) % 2, images=["slide.png"] * COUNT
    )
    assert len(read(tmp_path / "a.npz")) == COUNT


def test_labels_of_some_rows(tmp_path: Path) -> None:
    """By id: what has no label is a problem like any other; labels without features are
    mentioned."""
    np.savez(tmp_path / "a.npz", features=X, ids=np.array(IDS))
    some = pd.concat(
        [table().iloc[2:], pd.DataFrame({"id": ["t"], "grade": ["none"], "patient": ["9"]})]
    )
    some.to_csv(tmp_path / "some.csv", index=False)
    reading = read(tmp_path / "a.npz", labels=tmp_path / "some.csv", grades=NAMES)
    assert [(p.kind, p.where) for p in reading.report.problems] == [
        ("missing-grade", name) for name in IDS[:2]
    ]
    np.testing.assert_array_equal(reading.arrays, X[2:])
    assert any("1 row of it without features" in note for note in reading.report.notes)


def test_a_table_of_labels_overrules_the_file_s_own(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=X, grades=GRADES, ids=IDS, reader=["A"] * COUNT)
    other = pd.DataFrame({"id": IDS[::-1], "mayo": ["none"] * 4 + ["severe"] * 4})
    other.to_csv(tmp_path / "b.csv", index=False)
    manifest = read(tmp_path / "a.npz", labels=tmp_path / "b.csv", grades=NAMES)
    assert manifest.labels.tolist() == [2] * 4 + [0] * 4
    assert manifest.table["reader"].tolist() == ["A"] * COUNT


# two are parameters of np.savez
@pytest.mark.parametrize("column", ["file", "allow_pickle", "reader", "made_by"])
def test_what_is_packed_is_read_back(tmp_path: Path, column: str) -> None:
    texts = ["", "é", "a, b", "'", "0", "-1", "[1]", "NaN"]
    grades = ["low", "high"] * 4
    known = {"true_grades": ["low"] * COUNT, "verified_grades": ["high", *[None] * (COUNT - 1)]}
    whole = from_arrays(X, grades, names=["low", "high"], **known)  # type: ignore[arg-type]
    names = tuple(f"dim{i}" for i in range(5))
    table = whole.table.assign(**{column: texts})
    manifest = replace(whole, table=table, feature_names=names, made='{"backbone": "x"}')
    (tmp_path / "a.npz").write_bytes(pack_features(manifest))
    again = read(tmp_path / "a.npz")
    np.testing.assert_array_equal(again.arrays, manifest.arrays)
    assert (again.grades, again.made, again.feature_names) == (
        manifest.grades,
        manifest.made,
        names,
    )
    columns = ["id", "grade", "true_grade", "verified_grade", column]
    pd.testing.assert_frame_equal(again.table[columns], manifest.table[columns])
    assert pack_features(manifest) == pack_features(manifest)


def test_without_grades_for_prediction(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    manifest = read_ungraded_features(tmp_path / "a.npy", grades=("a", "b"))
    assert manifest.labels.tolist() == [0] * COUNT
    np.savez(tmp_path / "a.npz", features=X, images=np.array([f"{i}.png" for i in range(COUNT)]))
    assert read_ungraded_features(tmp_path / "a.npz").ids == [f"{i}.png" for i in range(COUNT)]


def npz(**arrays: Any) -> Any:
    return lambda folder: (np.savez(folder / "a.npz", **arrays), folder / "a.npz")[1]


def npy(array: Any, **columns: Any) -> Any:
    def save(folder: Path) -> Path:
        np.save(folder / "a.npy", array)
        if columns:
            pd.DataFrame(columns).to_csv(folder / "a.csv", index=False)
        return folder / "a.npy"

    return save


def csv(text: str) -> Any:
    return lambda folder: ((folder / "a.csv").write_text(text), folder / "a.csv")[1]


@pytest.mark.parametrize(
    ("save", "options", "refused"),
    [
        (npz(features=X), {}, ("missing_option", "labels", "has no grades:")),
        (npz(features=X, grades=np.zeros(3)), {}, ("wrong_shape", "", "'grades'")),
        (npz(features=X, grades=GRADES, labels=GRADES, y=GRADES), {"grades": NAMES}, ("not_unique", "", "'y'")),
        (npz(features=X, grades=GRADES, grade_names=np.array("mild")), {}, ("wrong_shape", "", "'grade_names'")),
        (npz(features=X, grades=GRADES, ids=np.array([b"\xff%d" % i for i in range(8)])), {}, ("unreadable_file", "", "'ids'")),
        (npz(other=X), {"kind": "features"}, ("missing_column", "", "has no array")),
        (npz(features=X, grades=GRADES), {"feature_columns": "f*"}, ("option_without_effect", "feature_columns", "array file")),
        (Path, {"feature_columns": "f*"}, ("option_without_effect", "feature_columns", "is a folder")),
        (npz(features=X, grades=GRADES), {"grades": NAMES, "images": "."}, ("no_match", "images")),
        (npz(features=X, grades=GRADES), {"labels": "nowhere.csv"}, ("missing_file", "labels", "nowhere.csv")),
        (npz(features=X, grades=GRADES, ids=["a"] * 8), {"grades": NAMES}, ("not_unique", "", "'a'")),
        (npy(X), {}, ("missing_option", "labels", "a.csv")),
        (npy(X, id=IDS[:5], grade=GRADES[:5]), {}, ("wrong_shape", "labels", "a.csv")),
        (npy(X, id=IDS, grade=GRADES), {"grade_column": "level"}, ("unknown_name", "", ("'level'", "a.csv"))),
        (csv("id,grade,a,b\n1,0,1,2\n2,1,3,4\n"), {"kind": "features"}, ("missing_option", "feature_columns", "a.csv")),
        (csv("id,grade,a,b\n1,0,1,2\n2,1,3,4\n"), {"feature_columns": "f*"}, ("missing_column", "", "a.csv")),
        (csv("id,grade,f1,f2\n1,0,1,2\n2,1,x,4\n"), {"feature_columns": "f*"}, ("wrong_values", "", ("'x'", "'f1'", "line 3"))),
        (csv("id,grade,f1,f2\n1,0,1,nan\n2,1,3,4\n"), {"feature_columns": "f*"}, ("wrong_values", "", "finite: row 0,")),
        (csv("id,grade,f1,f2\n1,0,1,2\n2,1\n"), {"feature_columns": "f*"}, ("wrong_file", "", "line 3")),
        (npz(features=X, grades=GRADES, feature_names=["a"]), {}, ("wrong_shape", "", "'feature_names'")),
        (csv("image,grade\n1,0\n2,1\n"), {"kind": "table", "labels": "x"}, ("option_without_effect", "labels")),
    ],
)  # fmt: skip
def test_one_sentence_for_each_mistake(
    save: Any, options: Any, refused: tuple[str, ...], tmp_path: Path
) -> None:
    with refuses(*refused) as caught:
        read(save(tmp_path), **options)
    assert "\n" not in str(caught.value)


def test_labels_that_share_no_id(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=X, ids=np.array(IDS))
    table().assign(id=[f"t{i}" for i in range(COUNT)]).to_csv(tmp_path / "b.csv", index=False)
    with refuses("no_match", "labels", says=("'s000'", "'t0'")):
        read(tmp_path / "a.npz", labels=tmp_path / "b.csv")
    table().assign(id="s001").to_csv(tmp_path / "b.csv", index=False)
    with refuses("not_unique", "labels", says=("'s001'", "b.csv")):
        read(tmp_path / "a.npz", labels=tmp_path / "b.csv")


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "executed",))

    np.save(tmp_path / "a.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", features=X, grades=np.array([Trap()] * COUNT, dtype=object))
    for name in ("a.npy", "a.npz"):
        with refuses("unsafe_file"):
            read(tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_ordinary_tables_are_still_tables(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,grade,features\na.png,0,round [1]\nb.png,1,flat\n")
    reading = read(tmp_path / "labels.csv")
    assert reading.report.kind == "table"
    assert reading.table["features"].tolist() == ["round [1]", "flat"]


def test_bounding_boxes_are_not_features(tmp_path: Path) -> None:
    boxes = tmp_path / "boxes.csv"
    boxes.write_text("scan,x1,y1,x2,y2,grade\na.png,1,2,3,4,0\nb.png,1,2,3,4,1\n")
    with refuses("missing_column", "image_column", says="boxes.csv"):
        read(boxes)
    for source in (boxes, pd.read_csv(boxes)):
        reading = read(source, image_column="scan", images=tmp_path)
        assert (reading.report.kind, reading.ids) == ("table", ["a.png", "b.png"])
    many = pd.DataFrame(X, columns=COLUMNS).assign(
        grade=[0, 1] * 4, batch="A"
    )  # one name that is not known
    many.to_csv(tmp_path / "many.csv", index=False)
    assert read(tmp_path / "many.csv").report.kind == read(many).report.kind == "features"


def test_bytes_are_text(tmp_path: Path) -> None:
    ids = np.array([name.encode() for name in IDS])
    np.savez(
        tmp_path / "a.npz", features=X, grades=np.array(["é"] * 7 + ["f"]).astype("U"), ids=ids
    )
    manifest = read(tmp_path / "a.npz", grades=["é", "f"])
    assert manifest.ids == IDS
    assert manifest.grades == ("é", "f")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.replace(b"(8, 5)", b"(8, 9999999999999)"),  # a huge header
        lambda content: content.replace(b"descr", b"desc\xff"),
        lambda content: content.replace(b"<f4", b"<f9"),
        lambda content: content[: len(content) // 2],
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_damaged_headers_are_one_sentence(tmp_path: Path, damage: Any, suffix: str) -> None:
    np.save(tmp_path / "a.npy", X)
    content = damage((tmp_path / "a.npy").read_bytes())
    (tmp_path / "a.npy").write_bytes(content)
    if suffix == ".npz":
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("features.npy", content)
    with refuses("wrong_file", says="NumPy"):
        read(tmp_path / f"a{suffix}")
