"""Features in memory: what is accepted, what is refused, and that nothing changes them on their
way."""

from pathlib import Path

import numpy as np
import pytest
import torch

from refusals import refuses
from srjt.data import Manifest, from_arrays
from srjt.data.images.feed import StreamedFeed, open_feed
from srjt.data.images.store import open_store
from srjt.data.manifest import as_features
from srjt.training.batches import Preprocess

X = np.random.default_rng(0).normal(size=(6, 4))
GRADES = [0, 1, 2, 0, 1, 2]


def test_rows_of_floats_become_float32_features() -> None:
    reading = from_arrays(X, GRADES, patients=list("aabbcc"), ids=[f"s{i}" for i in range(6)])
    manifest = reading
    assert manifest.are_features
    assert manifest.arrays.dtype == np.float32
    np.testing.assert_allclose(manifest.arrays, X, rtol=1e-6)
    assert "6 rows of 4 features in memory" in reading.report.notes
    chosen = manifest.select([4, 0])
    assert chosen.are_features
    np.testing.assert_array_equal(chosen.arrays, manifest.arrays[[4, 0]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_what_is_not_finite_is_named(value: float) -> None:
    broken = X.copy()
    broken[4, 2] = value
    with refuses("wrong_values", says="row 4, column 2"):
        from_arrays(broken, GRADES)


def test_large_finite_numbers_do_not_look_infinite() -> None:
    large = np.full((3, 2), 3e38)
    assert as_features(large).max() == np.float32(3e38)


@pytest.mark.parametrize(
    ("rows", "refused"),
    [
        (np.array([["a", "b"]] * 6), ("wrong_type", "", "must be numbers;")),
        (np.array([[None, 1.0]] * 6), ("wrong_type", "", "must be numbers;")),
        (np.zeros((6, 0)), ("wrong_shape",)),
        (X[:5], ("wrong_shape", "grade")),
    ],
)
def test_what_cannot_be_features(rows: np.ndarray, refused: tuple[str, ...]) -> None:
    with refuses(*refused):
        from_arrays(rows, GRADES)


def test_the_store_passes_them_through(tmp_path: Path) -> None:
    manifest = from_arrays(X, GRADES)
    store = open_store(manifest, cache=tmp_path)
    assert store.pixels is manifest.arrays
    assert store.pixels.flags.c_contiguous
    assert list(tmp_path.iterdir()) == []
    turned = Manifest(table=manifest.table, grades=manifest.grades, arrays=np.asfortranarray(X))
    assert open_store(turned).pixels.flags.c_contiguous
    np.testing.assert_array_equal(open_store(turned).pixels, store.pixels)


@pytest.mark.parametrize("streamed", [False, True])
def test_feeds_carry_them(streamed: bool) -> None:
    features = as_features(X)
    cpu = torch.device("cpu")
    feed = StreamedFeed(features, device=cpu) if streamed else open_feed(features, device=cpu)
    rows = torch.tensor([[0, 5], [3, 3], [1, 2]])
    batches = [batch.clone() for batch in feed.batches(rows)]
    assert [batch.dtype for batch in batches] == [torch.float32] * 3
    for batch, chosen in zip(batches, rows, strict=True):
        np.testing.assert_array_equal(batch.numpy(), features[chosen.numpy()])


def test_they_stay_float32_beside_bf16() -> None:
    """1000 and 1001 are the same number in bf16: rounded before standardising, the column would say
    nothing."""
    x = torch.tensor([[1000.0], [1001.0]])
    preprocess = Preprocess(crop=8, dtype=torch.bfloat16)
    assert torch.equal(preprocess.evaluate(x), x)
    assert torch.equal(preprocess.train(x, torch.zeros(2, 2), torch.zeros(2), torch.zeros(2, 0)), x)
