"""The examples in the docstrings of public functions run, and print what they say."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import srjt
from srjt import networks
from srjt.inference.embed import embed
from srjt.training.crossfit import cross_fit

pytestmark = pytest.mark.slow

PUBLIC = (
    srjt.train, srjt.load_run, srjt.predict, srjt.evaluate, srjt.export, srjt.OrdinalNoiseClassifier,
    cross_fit, embed, networks.build, networks.names,
)  # fmt: skip


@pytest.mark.parametrize("documented", PUBLIC, ids=lambda documented: documented.__name__)
def test_example(documented: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    (example,) = doctest.DocTestFinder(recurse=False).find(documented)
    assert len(example.examples) > 1
    failed, _ = doctest.DocTestRunner().run(example)
    assert not failed
