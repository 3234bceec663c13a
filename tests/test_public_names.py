"""The top level is small and lazy."""

import importlib
import subprocess
import sys

import pytest

import srjt


def test_every_public_name_exists_and_is_listed() -> None:
    assert {"soft_labels", "keep_rate", "noise", "methods"} <= set(srjt.__all__)
    assert srjt.soft_labels is importlib.import_module("srjt.ordinal.losses").soft_labels
    assert srjt.methods is importlib.import_module("srjt.methods")
    for name in srjt.__all__:
        assert getattr(srjt, name) is not None
    assert set(dir(srjt)) == set(srjt.__all__)
    with pytest.raises(AttributeError, match="module 'srjt' has no attribute 'sofd_labels'"):
        srjt.sofd_labels  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("import srjt", {"torch", "numpy", "pandas", "sklearn"}),
        (
            "import srjt; srjt.noise.transition_matrix('quasi', num_classes=4, rho=.1)",
            {"torch", "pandas"},
        ),
        pytest.param(
            "from srjt import soft_labels, methods",
            {"pandas", "monai", "sklearn", "matplotlib"},
            marks=pytest.mark.slow,  # imports torch
        ),
    ],
)
def test_heavy_libraries_are_imported_on_first_use(statement: str, not_loaded: set[str]) -> None:
    command = [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not not_loaded & set(loaded)
