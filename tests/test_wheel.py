"""What a user installs: built from the sdist, whole, and at work with nothing but its declared
requirements."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from processes import Launcher

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


def done(*command: object, cwd: Path | None = None) -> str:
    ran = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    done(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


def test_the_wheel_holds_the_data_files(built: Path) -> None:
    (wheel,) = built.glob("srjt-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    files = (
        path for path in (ROOT / "src/srjt").rglob("*") if path.is_file() and path.suffix != ".pyc"
    )
    needed = {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert {
        "srjt/py.typed",
        "srjt/training/presets/demo.yaml",
        "srjt/studies/paper_results.csv",
    } <= needed
    assert needed <= held
    assert not [name for name in held if name.startswith(("tests", "docs"))]


def test_the_sdist_holds_what_is_needed_to_test_and_document_it(built: Path) -> None:
    (sdist,) = built.glob("srjt-*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "Makefile", "mkdocs.yml", "CITATION.cff", "LICENSE"} <= held
    assert {"docs/index.md", "tests/test_wheel.py", "examples/own_loop.py"} <= held
    assert {"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", ".github/workflows/test.yml"} <= held


def test_the_index_would_take_them(built: Path) -> None:
    assert "PASSED" in done(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir())


def requirements(texts: list[str], extras: frozenset[str] = frozenset()) -> set[str]:
    """The distributions that lines such as ``pandas>=2.1; extra == "x"`` ask for, and what these
    ask for in turn."""
    found: set[str] = set()
    waiting = [(text, extras) for text in texts]
    while waiting:
        text, asked = waiting.pop()
        wanted = Requirement(text)
        applies = wanted.marker is None or any(
            wanted.marker.evaluate({"extra": e}) for e in asked | {""}
        )
        if applies and (name := canonicalize_name(wanted.name)) not in found:
            found.add(name)
            further = importlib.metadata.requires(name) or []
            waiting += [(line, frozenset(wanted.extras)) for line in further]
    return found


def installed(clean: Path) -> importlib.metadata.Distribution:
    return importlib.metadata.Distribution.at(
        next(clean.glob("lib/python*/site-packages/srjt-*.dist-info"))
    )


@pytest.fixture(scope="module")
def clean(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the requirements it declares, and nothing else of this one.

    The requirements are linked and not downloaded again, so that it takes no network and no time.
    """
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    (wheel,) = built.glob("srjt-*.whl")
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    done(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in requirements(installed(folder).requires or []):
        for file in importlib.metadata.distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(Path(str(file.locate())).parents[len(file.parts) - 1] / top)
    return folder


def without_python() -> dict[str, str]:
    """The environment variables, without those that tell Python where its modules are."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(clean: Path, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = without_python() | {"SRJT_CACHE": str(cwd / "cache"), "COLUMNS": "100"}
    command = [str(clean / "bin" / "srjt"), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def test_the_demo_works_without_any_extra(clean: Path, tmp_path: Path) -> None:
    where = done(clean / "bin" / "python", "-c", "import srjt; print(srjt.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(clean)
    ran = run(clean, "demo", "--epochs", "2", "--images", "200", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "srjt-demo" / "verified" / "audit.html").exists()


@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_the_demo_runs_by_uvx_and_by_pipx_run(tool: str, built: Path, tmp_path: Path) -> None:
    """In an environment that the tool makes: it downloads the requirements, torch among them,
    unless it has them."""
    program = shutil.which(tool)
    if program is None:
        pytest.skip(f"{tool} is not installed")
    (wheel,) = built.glob("srjt-*.whl")
    start = {"uv": ["tool", "run", "--from", wheel], "pipx": ["run", "--spec", wheel]}[tool]
    environment = without_python()
    environment |= {"SRJT_CACHE": str(tmp_path / "cache"), "PIPX_HOME": str(tmp_path / "pipx")}
    which_python = ["--python", sys.executable]
    command = [program, *start, *which_python, "srjt", "demo", "--epochs", "2", "--images", "200"]
    ran = subprocess.run(
        [str(c) for c in command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    if ran.returncode and "error sending request" in ran.stderr.lower() + ran.stdout.lower():
        pytest.skip(f"{tool} has no network here")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "srjt-demo" / "verified" / "audit.html").exists()


SHOW = """
import pandas
from srjt.integrations import fiftyone

fiftyone.show(pandas.DataFrame({"grade": [0]}), ["a.png"])
"""


def pip_line(clean: Path, extra: str) -> str:
    """The line that installs an extra, as the metadata of the wheel have it."""
    lines = installed(clean).metadata.get_all("Requires-Dist") or []
    of_extra = [line for line in lines if f"extra == '{extra}'" in line.replace('"', "'")]
    assert of_extra
    return "pip install " + " ".join(f'"{line.partition(";")[0].strip()}"' for line in of_extra)


def test_a_missing_extra_names_its_line(clean: Path, tmp_path: Path) -> None:
    """Each of the optional things is asked for where it is not installed: one sentence with the pip
    line."""
    # a command waits for its imports most of the time: one process imports, and forks for each
    launcher = Launcher(tmp_path / "cache", python=clean / "bin" / "python", env=without_python())

    def run_forked(*arguments: object) -> tuple[int, str]:
        says = tmp_path / "says"
        wide = {"COLUMNS": "100"}
        status = launcher.wait(launcher.start(*arguments, says=says, env=wide))
        return status, says.read_text()

    size = ("--images", "40", "--patients", "8", "--size", "32")
    status, said = run_forked("data", "synthetic", "set", *size)
    assert status == 0, said
    small = [
        "--image-size",
        32,
        "--crop",
        28,
        "--epochs",
        1,
        "--noise-rate",
        "0.2",
        "--device",
        "cpu",
    ]
    train = ["train", "set/labels.csv", *small]
    status, said = run_forked(*train, "--network", "tiny", "--out", "run")
    assert status == 0, said
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    (tmp_path / "table.xlsx").write_bytes(b"PK\x03\x04")
    dicom = tmp_path / "dicom"
    dicom.mkdir()
    (dicom / "a.dcm").write_bytes(b"\0" * 128 + b"DICM")
    asked = {
        "onnx": ["export", "run", "--out", "model.onnx"],
        "monai": [*train, "--network", "densenet121", "--out", "m"],
        "timm": [*train, "--network", "timm:resnet18", "--out", "t"],
        "tensorboard": [*train, "--network", "tiny", "--out", "b", "--log", "tensorboard"],
        "mlflow": [*train, "--network", "tiny", "--out", "b", "--log", "mlflow"],
        "wandb": [*train, "--network", "tiny", "--out", "b", "--log", "wandb"],
        "parquet": ["data", "inspect", "table.parquet"],
        "excel": ["data", "inspect", "table.xlsx"],
        "dicom": ["predict", "run", "dicom"],
        "highdicom": ["predict", "run", "set", "--format", "dicom-sr", "--out", "reports"],
        "hub": ["predict", "hf://owner/name", "set"],
        "ray": [
            "study",
            "set/labels.csv",
            "--noise",
            "quasi:0.2",
            "--out",
            "s",
            "--executor",
            "ray",
        ],
    }
    for extra, command in asked.items():
        status, said = run_forked(*command)
        assert status == 2, (extra, said)
        assert pip_line(clean, extra) in said, (extra, said)
        assert "Traceback" not in said
    asked["fiftyone"] = []  # it has no command
    python = subprocess.run(
        [clean / "bin" / "python", "-c", SHOW], cwd=tmp_path, capture_output=True, text=True
    )
    assert pip_line(clean, "fiftyone") in python.stderr
    status, said = run_forked("doctor")
    assert status == 0, said
    launcher.close()
    for extra in asked:
        assert any(
            row.startswith(f"{extra} ") and "pip install" in row for row in said.splitlines()
        )
    optional = set(installed(clean).metadata.get_all("Provides-Extra") or []) - {
        "dev",
        "docs",
        "benchmarks",
    }
    assert optional == set(asked)
