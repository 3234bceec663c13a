"""The loss of every method on fixed logits is written down, and may only change on purpose."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from srjt import methods

HERE = Path(__file__).parent
STORED = json.loads((HERE / "golden.json").read_text())


@pytest.fixture(scope="module")
def measured() -> dict:
    return runpy.run_path(str(HERE / "make_golden.py"))["measure"](STORED["inputs"])


def test_every_method_and_convention_is_stored() -> None:
    for name in methods.plain_names():  # the recipe's loss is among the variants
        for convention in ("paper", "published-code"):
            assert f"{name} ({convention})" in STORED["methods"]


@pytest.mark.parametrize("key", STORED["methods"])
def test_golden(key: str, measured: dict) -> None:
    stored, now = STORED["methods"][key], measured[key]
    for exact in ("keep", "selected", "grades"):
        assert now[exact] == stored[exact]
    for close in ("total", "per_network", "gradient_norm"):
        assert now[close] == pytest.approx(stored[close], rel=1e-6), "changed on purpose? run make_golden.py"


def test_the_golden_cases_tell_the_conventions_and_the_methods_apart() -> None:
    joint = {
        k: v
        for k, v in STORED["methods"].items()
        if len(v["selected"]) == 2 and not k.startswith("srjt")  # to which the convention makes no difference
    }
    seen = [(v["keep"], v["total"]) for v in joint.values()]
    assert len(set(seen)) == len(seen)
