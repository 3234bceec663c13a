"""Images that are the same, and the groups that are never split."""

import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from PIL import Image

import srjt.data.duplicates as hashing
from srjt.data import (
    DuplicateImagesWarning,
    LeakageWarning,
    Manifest,
    check,
    folds,
    group_duplicates,
)
from srjt.data.duplicates import UNKNOWN, identical, near_pairs, pixel_hash, thumbnails
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.images.store import open_store
from srjt.data.manifest import connected
from srjt.data.splits import Split, official_split, read_splits, write_splits
from srjt.data.synthetic import generate
from srjt.training.config import TrainConfig
from srjt.training.trained import Setup


def test_a_hash_depends_on_every_pixel_on_the_shape_and_on_the_type() -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    one_pixel = image.copy()
    one_pixel[3, 5, 2] = 1
    others = (one_pixel, image.reshape(6, 4, 3), image.view(np.int8))
    assert len({pixel_hash(a).tobytes() for a in (image, *others)}) == 4
    assert (pixel_hash(image) == pixel_hash(np.asfortranarray(image))).all()


def test_images_that_cannot_be_read_are_like_no_other() -> None:
    code = identical(np.array([[1, 2], UNKNOWN, [1, 2], UNKNOWN, [1, 3]], dtype=np.uint64))
    assert code[0] == code[2]
    assert len(set(code.tolist())) == 4


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(*[st.lists(st.integers(0, n), min_size=n, max_size=n)] * 2)
    )
)
def test_connected_joins_whatever_a_chain_connects(codes: tuple[list[int], list[int]]) -> None:
    joined, arrays = connected(*map(np.array, codes)), [np.array(code) for code in codes]
    share_a_number = sum(np.equal.outer(code, code) for code in arrays) > 0
    by_a_chain = np.linalg.matrix_power(share_a_number.astype(bool), len(joined))
    np.testing.assert_array_equal(np.equal.outer(joined, joined), by_a_chain)


IMAGES = generate(images=40, patients=10, size=128).arrays


def thumbnails_of(image: Image.Image) -> np.ndarray:
    return thumbnails(np.array(image.convert("RGB").resize((256, 256), Image.Resampling.BILINEAR)))


def recompressed(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=60)
    return Image.open(io.BytesIO(buffer.getvalue()))


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image.resize((80, 80)),
        recompressed,
        lambda image: recompressed(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
        lambda image: image.crop((2, 2, 126, 126)),
        lambda image: image.point(lambda v: int(v * 0.8)),
    ],
    ids=["rescaled", "recompressed", "mirrored", "cropped", "darker"],
)
def test_changed_copies_are_found_and_nothing_else(change: object) -> None:
    originals = [Image.fromarray(image) for image in IMAGES]
    copies = [change(image) for image in originals[:10]]  # type: ignore[operator]
    thumbs = np.stack([thumbnails_of(image) for image in [*originals, *copies]])
    assert near_pairs(thumbs).tolist() == [[row, len(originals) + row] for row in range(10)]


def test_flat_images_are_not_compared() -> None:
    flat = np.stack([thumbnails(np.full((32, 32, 3), level, np.uint8)) for level in (0, 0, 255)])
    assert len(near_pairs(flat)) == 0


# Identical images are one group, joined with their patients.
def in_memory(contents: list[int], patients: list[str] | None = None) -> Manifest:
    """Sample k shows image number contents[k]."""
    rng = np.random.default_rng(0)
    different = rng.integers(0, 256, size=(max(contents) + 1, 8, 8, 3), dtype=np.uint8)
    names = [f"s{row}" for row in range(len(contents))]
    table = pd.DataFrame(
        {"id": names, "image": names, "grade": [row % 3 for row in range(len(contents))]}
    )
    if patients is not None:
        table["patient"] = patients
    return Manifest(table=table, grades=("0", "1", "2"), arrays=different[contents])


def test_a_shared_image_joins_its_patients() -> None:
    with pytest.warns(
        DuplicateImagesWarning, match="4 images are identical to another: they make 2 groups"
    ):
        grouped = group_duplicates(in_memory([0, 1, 0, 2, 1, 3], ["a", "b", "c", "c", "d", "e"]))
    assert grouped.groups == ["a", "b", "a", "a", "b", "e"]
    assert grouped.patients == ["a", "b", "c", "c", "d", "e"]  # what the table says is not changed
    assert grouped.select([0, 5, 2]).groups == ["a", "e", "a"]


def test_without_patients_only_identical_images_make_groups() -> None:
    with pytest.warns(DuplicateImagesWarning):
        assert group_duplicates(in_memory([0, 1, 0])).groups == ["s0", "s1", "s0"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert group_duplicates(in_memory([0, 1, 2])).groups is None


def test_rows_of_few_features_coincide_by_chance_and_are_not_grouped() -> None:
    few = replace(in_memory([0, 1, 0]), arrays=np.ones((3, 2), np.float32))
    assert group_duplicates(few).groups is None
    many = replace(few, arrays=np.ones((3, 64), np.float32))
    with pytest.warns(DuplicateImagesWarning, match="rows of features"):
        assert group_duplicates(many).groups == ["s0", "s0", "s0"]


@pytest.fixture
def files(tmp_path: Path) -> Manifest:
    data = in_memory(list(range(30)))
    names = [f"{row}.png" for row in range(30)]
    for name, pixels in zip(names, data.arrays, strict=True):
        Image.fromarray(pixels).resize((64, 64)).save(tmp_path / name)
    Image.open(tmp_path / "0.png").save(
        tmp_path / "29.png", compress_level=0
    )  # other bytes, the same pixels
    return replace(data, table=data.table.assign(image=names), arrays=None, root=tmp_path)


def mirrored(path: Path) -> Image.Image:
    return Image.open(path).transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def test_files_are_hashed_once(
    files: Manifest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.warns(DuplicateImagesWarning):
        first = group_duplicates(files, cache=tmp_path / "cache")
    assert first.groups[29] == first.groups[0] == "s0"
    monkeypatch.setattr(hashing, "read_image", None)
    with pytest.warns(DuplicateImagesWarning):
        again = group_duplicates(files, cache=tmp_path / "cache")
    np.testing.assert_array_equal(again.hashes, first.hashes)


@pytest.mark.parametrize(("size", "decodes_again"), [(256, False), (48, True)])
def test_the_store_and_the_hashes_share_one_decoding(
    files: Manifest, monkeypatch: Any, tmp_path: Path, size: int, decodes_again: bool
) -> None:
    with pytest.warns(DuplicateImagesWarning):
        expected = group_duplicates(files, cache=tmp_path / "other")
    if not decodes_again:
        monkeypatch.setattr(hashing, "read_image", None)
    store = open_store(files, size=size, cache=tmp_path / "cache", find_duplicates=True)
    np.testing.assert_array_equal(store.manifest.hashes, expected.hashes)


def test_unreadable_images_have_no_twin(files: Manifest, tmp_path: Path) -> None:
    for name in ("3.png", "4.png"):
        (tmp_path / name).write_bytes(b"no image")
    with pytest.warns(DuplicateImagesWarning, match="2 images"):  # a training may divide them
        store = Setup(cache=tmp_path / "cache", on_bad_image="skip").open_store(
            files, TrainConfig()
        )
    assert len(store.manifest) == 28
    assert store.manifest.groups[-1] == "s0"


def test_an_image_that_can_be_read_now_is_hashed(
    files: Manifest, monkeypatch: Any, tmp_path: Path
) -> None:
    def lacks_a_decoder(path: Path, **how: Any) -> np.ndarray:
        if path.name == "29.png":
            raise BadImageError(path, "its decoder is missing")
        return read_image(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(hashing, "read_image", lacks_a_decoder)
        assert group_duplicates(files, cache=tmp_path / "cache").groups is None
    for _ in range(2):
        with pytest.warns(DuplicateImagesWarning, match="2 images"):
            assert group_duplicates(files, cache=tmp_path / "cache").groups[29] == "s0"
        monkeypatch.setattr(hashing, "read_image", None)


def test_nearly_identical_images_are_grouped_on_request(files: Manifest, tmp_path: Path) -> None:
    mirrored(tmp_path / "7.png").save(tmp_path / "8.jpg", quality=90)
    files.table.loc[8, "image"] = "8.jpg"
    with pytest.warns(DuplicateImagesWarning, match="identical or nearly identical"):
        near = group_duplicates(files, near=True, cache=tmp_path / "cache").groups
    with pytest.warns(DuplicateImagesWarning):
        exact = group_duplicates(files, cache=tmp_path / "cache").groups
    assert near[7] == near[8] == "s7"
    assert exact[8] == "s8"


@pytest.mark.slow
def test_images_of_one_patient_may_be_alike(files: Manifest, tmp_path: Path) -> None:
    """Both are on one side of every split anyway: nothing is reported."""
    mirrored(tmp_path / "7.png").save(tmp_path / "8.png")
    for patients, reported in (([7, 7], False), ([7, 8], True)):
        owners = [f"p{i}" for i in range(len(files))]
        owners[7:9] = [f"p{i}" for i in patients]
        owned = replace(files, table=files.table.assign(patient=owners))
        found = [problem.kind for problem in check(owned)]
        assert ("near-duplicates" in found) == reported
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            groups = group_duplicates(owned, near=True, cache=tmp_path / "cache").groups
        counted = [str(warning.message).split()[0] for warning in caught]
        assert (groups[7] == groups[8], counted) == (True, ["4" if reported else "2"])


def test_published_splits_that_share_an_image_are_warned_of(tmp_path: Path) -> None:
    data = in_memory([0, 1, 2, 3, 4, 0])
    data = replace(data, table=data.table.assign(split=["train"] * 4 + ["test"] * 2))
    with pytest.warns(
        LeakageWarning, match=r"identical images on two sides \(1 group, .* s0 and s5\)"
    ):
        split = official_split(data)
    write_splits(tmp_path / "splits.csv", data, [split])
    with pytest.warns(
        LeakageWarning, match=r"Fold 0 of .*splits.csv has identical images on two sides"
    ):
        read_splits(tmp_path / "splits.csv", data)
    honest = Split(train=np.array([0, 5, 1]), validation=np.array([2]), test=np.array([3, 4]))
    write_splits(tmp_path / "honest.csv", data, [honest])
    with warnings.catch_warnings():  # an evaluation reads splits and images, and divides nothing
        warnings.simplefilter("error", LeakageWarning)
        read_splits(tmp_path / "honest.csv", data)
        assert open_store(data, find_duplicates=True).manifest.groups[5] == "s0"


def test_folds_do_not_depend_on_the_order_of_the_rows() -> None:
    data = in_memory([*range(20), 3, 3, 7], [f"p{row % 11}" for row in range(23)])
    with pytest.warns(DuplicateImagesWarning):
        plain, turned = folds(data), folds(data.select(np.arange(23)[::-1]))
    for one, other in zip(plain, turned, strict=True):
        np.testing.assert_array_equal(one.test, np.sort(22 - other.test))


def test_a_second_check_decodes_only_bad_files(
    files: Manifest, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "3.png").write_bytes(b"no image")
    (tmp_path / "4.png").unlink()
    first = check(files)
    assert {"unreadable-image", "missing-image"} <= {problem.kind for problem in first}
    decoded: list[str] = []
    counted = lambda path, **how: decoded.append(path.name) or read_image(path, **how)  # noqa: E731
    monkeypatch.setattr(hashing, "read_image", counted)
    assert check(files) == first
    assert set(decoded) <= {"3.png", "4.png"}
    (tmp_path / "5.png").write_bytes((tmp_path / "6.png").read_bytes() + b" ")
    check(files)
    assert "0.png" in decoded  # other files have other hashes
