"""The examples in the docstrings of public functions run, and print what they say."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import srjt
from srjt import methods, networks, noise, ordinal, readers
from srjt.data.images.store import ImageStore, open_store
from srjt.inference.embed import embed
from srjt.run import Run
from srjt.training.crossfit import cross_fit

PURE = [
    module.name
    for package in (ordinal, noise, readers, methods)
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
]
LONG = ["srjt.ordinal.decisions", "srjt.noise.estimate", "srjt.noise.quality"]
LONG += ["srjt.readers.consensus", "srjt.readers.network", "srjt.readers.next_readings"]
WITHOUT_EXAMPLE = ("DuplicateImagesWarning", "LeakageWarning", "synthetic")
PUBLIC = (
    *(getattr(srjt.data, name) for name in srjt.data.__all__ if name not in WITHOUT_EXAMPLE),
    srjt.data.synthetic.generate, srjt.data.synthetic.write, ImageStore, open_store,
    srjt.train, srjt.load_run, srjt.predict, srjt.evaluate, srjt.export, srjt.OrdinalNoiseClassifier,
    Run, cross_fit, embed, networks.build, networks.names,
)  # fmt: skip


def examples_of(modules: list[str]) -> int:
    """The number of examples in these modules, which print what they say."""
    results = {name: doctest.testmod(importlib.import_module(name)) for name in modules}
    assert {name: found.failed for name, found in results.items() if found.failed} == {}
    return sum(found.attempted for found in results.values())


def test_examples_of_the_pure_modules() -> None:
    assert examples_of([name for name in PURE if name not in LONG]) > 60


@pytest.mark.slow
def test_examples_of_the_pure_modules_that_fit_or_draw() -> None:
    assert set(LONG) < set(PURE)
    assert examples_of(LONG) > 50


@pytest.mark.slow
@pytest.mark.parametrize("documented", PUBLIC, ids=lambda documented: documented.__name__)
def test_example(documented: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    (example,) = doctest.DocTestFinder(recurse=False).find(documented)
    assert len(example.examples) > 1
    failed, _ = doctest.DocTestRunner().run(example)
    assert not failed
