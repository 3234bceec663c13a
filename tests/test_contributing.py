"""The guide's examples of methods are complete and do what the guide says."""

import os
import re
import subprocess
import sys
import types
from math import log
from pathlib import Path

import pytest
import torch

from srjt import methods
from srjt.data.synthetic import generate, write

ROOT = Path(__file__).parents[1]
PRINTED = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs/add-a-method.md").read_text(), flags=re.DOTALL
)
ASPECT = (ROOT / "docs/add-an-aspect.md").read_text().split("```python\n")[1].split("```")[0]
BLOCKS = [
    block for block in PRINTED if "@register" in block
]  # the others use them: test_docs_code.py


@pytest.fixture
def examples(monkeypatch):
    """Run the printed blocks as if each were a module, in a registry of their own."""
    monkeypatch.setattr(methods, "_REGISTRY", dict(methods._REGISTRY))
    for number, block in enumerate(BLOCKS):
        name = f"contributed_{number}"
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(block, f"add-a-method.md, block {number}", "exec"), module.__dict__)


@pytest.mark.usefixtures("examples")
def test_the_single_network_of_the_guide() -> None:
    hosts = ("consensus", "consensus+ours", "threshold", "threshold+ours", "remembered")
    assert methods.names()[-6:] == ("focal", *hosts)
    assert all(len([line for line in block.splitlines() if line.strip()]) <= 20 for block in BLOCKS)
    logits = torch.tensor([[[0.25, 0.75]]], dtype=torch.float64).log()
    loss = methods.create("focal", num_classes=2, gamma=2.0).loss(logits, torch.tensor([0]))
    assert float(loss.total) == pytest.approx(0.75**2 * log(4))
    plain = methods.create("focal", num_classes=2, gamma=0.0).loss(logits, torch.tensor([0]))
    assert float(plain.total) == pytest.approx(log(4), rel=1e-5)
    with pytest.raises(ValueError, match="option of focal 'gama'"):
        methods.create("focal", num_classes=2, gama=0.5)


@pytest.mark.usefixtures("examples")
def test_the_host_of_the_guide() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(2, 8, 4, generator=generator), torch.arange(8) % 4
    for name, tau in (("consensus", 1.0), ("consensus+ours", 0.1)):
        loss = methods.create(name, num_classes=4, noise_rate=0.4).loss(logits, labels, keep=5)
        each = [
            torch.nn.functional.cross_entropy(z / tau, labels, reduction="none") for z in logits
        ]
        expected = sum(each).argsort()[:5]
        assert loss.selected.tolist() == [[i in expected for i in range(8)]] * 2


@pytest.mark.usefixtures("examples")
def test_the_hosts_of_the_guide_that_select_no_fixed_number() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(2, 8, 4, generator=generator), torch.arange(8) % 4
    p = logits.softmax(dim=-1).gather(-1, labels.expand(2, -1)[..., None]).squeeze(-1)
    found = methods.create("threshold", num_classes=4, limit=1.2).loss(logits, labels)
    assert torch.equal(found.selected, -p.log() < 1.2)
    remembered = methods.create("remembered", num_classes=4, momentum=0.5)
    memory = remembered.memory(8)
    for step in range(1, 4):
        mean = (1 - 0.5**step) * logits.softmax(dim=-1).amax(dim=-1)
        found = remembered.loss(logits, labels, memory=memory, rows=torch.arange(8))
        assert torch.equal(found.selected, p > mean)


SMALL = [
    "--device", "cpu", "--network", "tiny", "--epochs", "1", "--set", "image_size=32", "--set", "crop=28",
    "--set", "batch_size=16",
]  # fmt: skip


def srjt(*words: object, folder: Path, path: Path | None = None) -> tuple[int, str, str]:
    """The real command line in a process of its own; ``path`` is put on sys.path."""
    here = [str(ROOT / "src"), *([str(path)] if path else [])]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(here), "SRJT_CACHE": str(folder / "cache"), "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", "from srjt.cli import main; main()", *map(str, words)],
        capture_output=True, text=True, check=False, timeout=300, cwd=folder, env=environment,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_a_method_in_a_file_of_this_folder_trains_predicts_and_is_compared(tmp_path: Path) -> None:
    labels = write(generate(images=60, patients=12, size=32), tmp_path / "data")
    (tmp_path / "my_methods.py").write_text(BLOCKS[0])
    given = ["--import", "my_methods"]
    train = ["train", labels, *given, "--method", "focal", "--out", "run", *SMALL]
    code, out, err = srjt(*train, folder=tmp_path)
    assert (code, err) == (0, "")
    assert "focal: epoch 1/1" in out

    code, _, err = srjt("predict", "run", labels.parent, folder=tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert (
        "'focal' is registered by my_methods, which is not imported: add --import my_methods" in err
    )
    code, out, err = srjt("predict", "run", labels, *given, folder=tmp_path)
    assert (code, err) == (0, "")
    assert "60 images" in out

    study = [
        "study", labels, *given, "--methods", "focal:gamma=1 standard", "--noise", "quasi:0.2", "--folds", "3",
        "--fold", "0", "--jobs", "2", *SMALL,
    ]  # fmt: skip
    code, out, err = srjt(*study, folder=tmp_path)
    assert (code, err) == (0, ""), out
    assert out.count("] done: ") == 2
    code, _, err = srjt("study", "status", "study", folder=tmp_path)
    assert (code, "add --import my_methods" in err) == (2, True)
    code, out, err = srjt("report", "study", *given, folder=tmp_path)
    assert (code, err) == (0, "")


@pytest.mark.slow
def test_a_module_that_cannot_be_imported_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    for name, missing in (("broken", "no_such_module"), ("nothing", "nothing")):
        code, _, err = srjt("methods", "--import", name, folder=tmp_path)
        assert (code, err.count("\n")) == (2, 1)
        assert (
            f"--import {name}: the module cannot be imported (ModuleNotFoundError: No module named"
            in err
        )
        assert f"'{missing}'" in err


@pytest.mark.slow
def test_installed_packages_add_methods_by_an_entry_point(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for package, content in (("good", BLOCKS[0]), ("bad", "raise RuntimeError('out of order')\n")):
        (site / f"{package}_methods.py").parent.mkdir(exist_ok=True)
        (site / f"{package}_methods.py").write_text(content)
        information = site / f"{package}_plugin-1.0.dist-info"
        information.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {package}-plugin\nVersion: 1.0\n"
        (information / "METADATA").write_text(metadata)
        (information / "entry_points.txt").write_text(
            f"[srjt.methods]\n{package} = {package}_methods\n"
        )
    code, out, err = srjt("methods", folder=tmp_path, path=site)
    assert code == 0
    assert "\n focal " in out
    (site / "aspect_of_mine.py").write_text(ASPECT)
    with (site / "good_plugin-1.0.dist-info" / "entry_points.txt").open("a") as announced:
        announced.write("[srjt.aspects]\nmine = aspect_of_mine\n")
    for verb in ("predict", "evaluate"):
        code, page, _ = srjt(verb, "--help", folder=tmp_path, path=site)
        assert (code, "--skip " in page) == (0, True)
    assert err == (
        "Warning: The plug-in 'bad' of the package bad-plugin cannot be loaded, so its methods are missing "
        "(RuntimeError: out of order).\n"
    )
