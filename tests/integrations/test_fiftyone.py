"""FiftyOne: the samples of a dataset, with the real package where it is installed and a stand-in
elsewhere."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from refusals import refuses
from srjt.integrations import fiftyone as browser


class Thing(dict[str, Any]):
    """Keeps what it was made of."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)


@pytest.fixture(params=["stand-in", "real"])
def fiftyone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "real":
        return pytest.importorskip("fiftyone")
    stand_in = SimpleNamespace(Sample=Thing, Classification=Thing)
    monkeypatch.setitem(sys.modules, "fiftyone", stand_in)
    return stand_in


@pytest.mark.usefixtures("fiftyone")
def test_grades_are_classes_and_other_columns_fields() -> None:
    table = pd.DataFrame(
        {
            "id": ["a", "b"],
            "grade": ["0", "1"],
            "suggested": ["1", ""],
            "quality": [0.25, np.nan],
            "fold": [3, 4],
        }
    )
    first, second = browser.samples(table, ["a.png", "b.png"], embeddings=np.eye(2))
    assert first["grade"]["label"] == "0"
    assert first["suggested"]["label"] == "1"
    assert (first["quality"], first["fold"], first["srjt_id"]) == (0.25, 3, "a")
    np.testing.assert_array_equal(second["embedding"], [0, 1])
    assert first["filepath"].endswith("a.png")
    for missing in ("suggested", "quality"):
        with pytest.raises(KeyError):
            second[missing]


@pytest.mark.usefixtures("fiftyone")
def test_rows_and_images_must_be_as_many() -> None:
    with refuses("wrong_shape"):
        browser.samples(SimpleNamespace(table=pd.DataFrame({"id": ["a"]})), ["a.png", "b.png"])


def test_the_extra_is_named_where_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fiftyone", None)
    with refuses("missing_extra", says="fiftyone"):
        browser.show(pd.DataFrame({"id": []}), [])
