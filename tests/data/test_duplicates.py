"""Which images are the same, and which are nearly the same."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from srjt.data.duplicates import (
    UNKNOWN,
    components,
    connected,
    identical,
    near_pairs,
    pixel_hash,
    thumbnails,
)
from srjt.data.synthetic import generate


def test_a_hash_depends_on_every_pixel_on_the_shape_and_on_the_type() -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    one_pixel = image.copy()
    one_pixel[3, 5, 2] = 1
    hashes = {
        pixel_hash(a).tobytes() for a in (image, one_pixel, image.reshape(6, 4, 3), image.view(np.int8))
    }
    assert len(hashes) == 4
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
    joined = connected(*(np.array(code) for code in codes))
    # by brute force: merge until nothing changes
    sets = [{row} for row in range(len(joined))]
    for code in codes:
        for first in range(len(joined)):
            for second in range(first):
                if code[first] == code[second] and sets[first] is not sets[second]:
                    sets[first] |= sets[second]
                    for member in sets[second]:
                        sets[member] = sets[first]
    for first in range(len(joined)):
        for second in range(first):
            assert (joined[first] == joined[second]) == (second in sets[first])


def test_components_of_no_pairs() -> None:
    assert sorted(components(3, np.empty((0, 2), dtype=np.int64)).tolist()) == [0, 1, 2]


IMAGES = generate(images=40, patients=10, size=128).arrays
assert IMAGES is not None


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
