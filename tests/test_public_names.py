"""The top level is small and lazy."""

import ast
import compileall
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import srjt


def test_every_public_name_exists_and_is_listed() -> None:
    assert {"train", "export", "noise", "methods"} <= set(srjt.__all__)
    assert srjt.ordinal.soft_labels is importlib.import_module("srjt.ordinal.losses").soft_labels
    assert srjt.methods is importlib.import_module("srjt.methods")
    for name in srjt.__all__:
        assert getattr(srjt, name) is not None
    # "from srjt import *" does not hide PyTorch
    assert set(dir(srjt)) - set(srjt.__all__) == {"networks", "torch"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("tain", "srjt.train"),
        ("estimate_noise", "srjt.noise.estimate_noise"),
        ("consensus", "srjt.readers.consensus"),
        ("register_method", "srjt.methods.register_method"),
        ("register_backbone", "srjt.networks.register_backbone"),
        ("patient_folds", "srjt.data.folds"),
        ("JointLoss", "srjt.torch.JointLoss"),
        ("SRJTClassifier", "srjt.OrdinalNoiseClassifier"),
    ],
)
def test_a_name_that_the_front_door_does_not_have_is_found_elsewhere(
    asked: str, found: str
) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(srjt, asked)
    assert str(refused.value).endswith(f": did you mean {found}?")
    place, _, name = found.rpartition(".")
    assert getattr(importlib.import_module(place), name) is not None


@pytest.mark.parametrize("asked", ["_repr_html_", "pandas"])
def test_a_name_like_no_other_is_only_unknown(asked: str) -> None:
    with pytest.raises(AttributeError, match=f"^module 'srjt' has no attribute '{asked}'$"):
        getattr(srjt, asked)


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("import srjt", {"torch", "numpy", "pandas", "sklearn"}),
        (
            "import srjt; srjt.noise.transition_matrix('quasi', num_classes=4, rho=.1)",
            {"torch", "pandas"},
        ),
        pytest.param(
            "from srjt import methods; from srjt.ordinal import soft_labels",
            {"pandas", "monai", "sklearn", "matplotlib"},
            marks=pytest.mark.slow,  # imports torch
        ),
    ],
)
def test_heavy_libraries_are_imported_on_first_use(statement: str, not_loaded: set[str]) -> None:
    command = [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not not_loaded & set(loaded)


LAZY = ("srjt", "srjt.data", "srjt.methods", "srjt.networks", "srjt.noise", "srjt.ordinal")


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_and_python_see_the_same_names(package: str) -> None:
    """Names are imported twice: for type checkers, and by the table of what is imported on first
    use."""
    module = importlib.import_module(package)
    typed = {}
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            again = [alias.name for alias in node.names if alias.asname == alias.name]
            typed |= dict.fromkeys(again, node.module)
    typed.pop("__version__", None)
    if package == "srjt.methods":  # and the classes of its table of methods
        classes = [row.location.partition(":")[::2] for row in module.METHODS]
        typed |= {name: origin for origin, name in classes}
    for name, origin in typed.items():
        value = getattr(module, name)
        beside = importlib.import_module(origin)
        assert value is getattr(beside, name), f"{package}.{name}"
    assert typed.keys() <= set(module.__dir__())
    for name in set(module.__dir__()) - typed.keys():
        value = getattr(module, name)
        origin = value.__name__ if inspect.ismodule(value) else value.__module__
        assert origin.startswith(package)


@pytest.mark.slow  # compiles the package and imports torch
def test_byte_code_alone_is_enough(tmp_path: Path) -> None:
    """Frozen programs have no source: nothing that is imported may read its own."""
    copy = tmp_path / "srjt"
    shutil.copytree(Path(srjt.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert compileall.compile_dir(copy, quiet=1, legacy=True)
    for source in copy.rglob("*.py"):
        source.unlink()
    program = (
        "import importlib\n"
        f"for package in {LAZY}:\n"
        "    module = importlib.import_module(package)\n"
        "    assert module.__file__.endswith('.pyc'), module.__file__\n"
        "    for name in module.__dir__():\n"
        "        getattr(module, name)\n"
        "from srjt.cli import main\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd="/"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("srjt.ordinal.metrics.bootstrap_metrics", "srjt.ordinal.intervals.bootstrap_metrics"),
        ("srjt.inference.options.Planning", "srjt.inference.planning.Planning"),
        ("srjt.keep_rate", "srjt.ordinal.keep_rate"),
        ("srjt.soft_labels", "srjt.ordinal.soft_labels"),
        ("srjt.export_folder", "srjt.reports.model_card.export_folder"),
    ],
)
def test_former_names_work_with_a_warning(former: str, now: str) -> None:
    module, _, name = former.rpartition(".")
    place, _, current = now.rpartition(".")
    instead = "srjt.export" if name == "export_folder" else now
    said = f"{former} will be removed in the next release: use {instead} instead"
    with pytest.warns(FutureWarning, match=re.escape(said)):
        value = getattr(importlib.import_module(module), name)
    assert value is getattr(importlib.import_module(place), current)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}s'"):
        getattr(importlib.import_module(module), f"{name}s")
