"""The examples in the docstrings of srjt.data run, and print what they say."""

import doctest
from pathlib import Path

import pytest

from srjt import data
from srjt.data.images.store import ImageStore, open_store

WITHOUT_EXAMPLE = ("DuplicateImagesWarning", "LeakageWarning", "synthetic")
PUBLIC = [
    *(getattr(data, name) for name in data.__all__ if name not in WITHOUT_EXAMPLE),
    *(data.synthetic.generate, data.synthetic.write, ImageStore, open_store),
]


@pytest.mark.slow
@pytest.mark.parametrize("documented", PUBLIC, ids=lambda documented: documented.__name__)
def test_example(documented: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    (example,) = doctest.DocTestFinder(recurse=False).find(documented)
    assert len(example.examples) > 1
    failed, _ = doctest.DocTestRunner().run(example)
    assert not failed
