"""A run goes to the Hugging Face Hub and comes back: a stand-in of huggingface_hub keeps
repositories in a folder."""

import fnmatch
import inspect
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import srjt
from fixtures.small_images import Data
from refusals import refuses
from srjt.hub import HUB_MODEL, HUB_SAMPLES, fetch_run
from srjt.run import Run


class StandIn(ModuleType):
    """The three functions, with the names of their arguments, as in huggingface_hub 0.26 to 2.4."""

    def __init__(self, folder: Path) -> None:
        super().__init__("huggingface_hub")
        self.folder = folder
        self.private: dict[str, bool] = {}

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        self.private.setdefault(repo_id, private)
        (self.folder / repo_id).mkdir(parents=True, exist_ok=True)

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)

    def snapshot_download(
        self, repo_id: str, *, revision: str | None, local_dir: Path, allow_patterns: Sequence[str]
    ) -> str:
        if revision not in (None, "main"):
            raise RuntimeError(f"Revision {revision} not found.\nA long explanation.")
        if not (self.folder / repo_id).is_dir():
            raise RuntimeError("404 Client Error. Repository Not Found")
        for file in (self.folder / repo_id).iterdir():
            if any(fnmatch.fnmatch(file.name, pattern) for pattern in allow_patterns):
                local_dir.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, local_dir / file.name)
        return str(local_dir)


@pytest.fixture
def repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", StandIn(tmp_path / "hub"))
    return sys.modules["huggingface_hub"]  # type: ignore[return-value]


@pytest.fixture(scope="module")
def run(train: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run") / "run"
    with pytest.warns(FutureWarning, match=r"argument command of srjt\.train will be removed"):
        return train(out=folder, command="srjt train /home/jane/x.csv")


def test_a_run_comes_back_with_the_same_predictions(
    run: Run, data: Data, repositories: StandIn
) -> None:
    assert run.push_to_hub("me/mayo") == "hf://me/mayo"
    assert repositories.private == {"me/mayo": True}
    sent = {file.name for file in (repositories.folder / "me/mayo").iterdir()}
    assert sent == {
        "README.md",
        "checksums.json",
        "run.json",
        "summary.json",
        "weights.safetensors",
    }
    text = "".join(
        (repositories.folder / "me/mayo" / name).read_text() for name in ("run.json", "README.md")
    )
    assert "jane" not in text
    assert "srjt predict hf://me/mayo" in text
    back = srjt.load_run("hf://me/mayo", device="cpu")
    some = data.manifest.select(data.split.test)
    columns = [f"p_{grade}" for grade in run.grades]
    assert (back.predict(some)[columns] == run.predict(some, recalibrate=False)[columns]).all(
        axis=None
    )
    assert not back.held_out


def test_the_files_about_samples_are_sent_if_that_is_asked_for(
    run: Run, repositories: StandIn
) -> None:
    run.push_to_hub("me/all", private=False, samples=True)
    assert repositories.private["me/all"] is False
    back = srjt.load_run(
        Path("hf://me/all@main"), device="cpu"
    )  # the path of a command has one slash
    assert back.scores.equals(run.scores)


def test_only_files_of_a_run_are_downloaded_and_they_are_checked(
    run: Run, repositories: StandIn
) -> None:
    run.push_to_hub("me/sent")
    theirs = repositories.folder / "me/sent"
    (theirs / "setup.py").write_text("raise SystemExit")
    (theirs / "weights.pt").write_bytes(b"a pickle")
    folder = fetch_run("hf://me/sent")
    assert {file.name for file in folder.iterdir()} <= {*HUB_MODEL, *HUB_SAMPLES}
    weights = theirs / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8] + b"\0" * 8)
    with refuses("damaged_file", says="checksum"):
        srjt.load_run("hf://me/sent")
    facts = json.loads((theirs / "run.json").read_text())
    (theirs / "run.json").write_text(json.dumps({**facts, "grades": "x"}))
    with refuses("damaged_file", says="not from srjt"):
        srjt.load_run("hf://me/sent")


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("hf://me/none", ("unreachable", "", "404")),
        ("hf://me/empty", ("wrong_file",)),
        ("hf://me/empty@v2", ("unreachable", "", "Revision v2 not")),
        ("hf://me", ("wrong_syntax", "", "hf://me is not")),
        ("hf://me/../../etc", ("wrong_syntax", "", "is not the")),
    ],
)
def test_an_address_without_a_run_is_one_sentence(
    repositories: StandIn, address: str, refused: tuple[str, ...]
) -> None:
    (repositories.folder / "me/empty").mkdir(parents=True)
    with refuses(*refused) as raised:
        srjt.load_run(address)
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("repositories")
def test_what_cannot_be_sent_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with refuses("wrong_syntax", says="owner/name"):
        run.push_to_hub("mayo")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with refuses("missing_extra", says="huggingface_hub"):
        run.push_to_hub("me/mayo")


def test_the_stand_in_has_the_arguments_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    package: Any = pytest.importorskip("huggingface_hub")
    for name in ("create_repo", "upload_folder", "snapshot_download"):
        theirs = set(inspect.signature(getattr(package, name)).parameters)
        assert set(inspect.signature(getattr(StandIn, name)).parameters) - {"self"} <= theirs
