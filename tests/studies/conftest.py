"""A small study on the embedded images: its settings, its plan, and one that has run."""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from srjt.studies.config import StudyConfig
from srjt.studies.folder import run_planned, write_plan
from srjt.studies.plan import PlannedRun, StudyPlan, StudyWatcher, open_data
from srjt.studies.study import run_locally, train_runs

TRAIN = {
    "network": "tiny", "pretrained": False, "image_size": 32, "crop": 28, "epochs": 2, "batch_size": 16,
    "learning_rate": 1e-3,
}  # fmt: skip


class Witness(StudyWatcher):
    """Records what happens to a study."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.over: list[tuple[str, str]] = []
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def started(self, planned: PlannedRun) -> None:
        self.begun.append(planned.key)

    def ended(self, planned: PlannedRun, status: str) -> None:
        self.over.append((planned.key, status))


def small(**changes: Any) -> StudyConfig:
    train = {**TRAIN, **changes.pop("train", {})}
    settings = {
        "source": "synthetic",
        "reading": {"images": 120, "patients": 24, "size": 32},
        "folds": 3,
    }
    settings |= {"methods": ("standard", "garg", "co-teaching+ours"), "noises": ("quasi:0.4",)}
    return StudyConfig(**{**settings, **changes}, train=train)


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SRJT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def witness() -> Witness:
    return Witness()


def run(
    folder: Path, config: StudyConfig, watcher: Any = None, jobs: int = 2
) -> tuple[StudyPlan, list[PlannedRun], dict[str, str]]:
    """As ``srjt study`` does it."""
    data = open_data(config)
    planned_runs = write_plan(folder, data, command="srjt study …")
    execute = partial(run_locally, devices=("cpu",) * jobs, threads=1)
    return (
        data,
        planned_runs,
        train_runs(folder, planned_runs, execute, watcher=watcher or Witness()),
    )


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods on one fold, 12 epochs each: the last ten are not all."""
    folder = tmp_path_factory.mktemp("finished") / "study"
    data = open_data(small(only_folds=(0,), train={"epochs": 12}))
    for planned in write_plan(folder, data, command="srjt study …"):
        run_planned(
            folder, data, planned, device="cpu"
        )  # here: worker processes take longer to start
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "study"))
