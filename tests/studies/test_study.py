"""A study on this machine."""

import json
import multiprocessing
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import srjt
from processes import Limit
from refusals import refuses
from srjt.errors import Interrupted, warn
from srjt.files import lock_folder
from srjt.studies import folder as worker
from srjt.studies.folder import error_file, run_folder, run_status, write_plan
from srjt.studies.plan import PlannedRun, StudyWatcher, open_data
from srjt.studies.results import collect_results
from srjt.studies.study import choose_devices, resolve_config

from .conftest import Witness, run, small

SMALL: dict[str, Any] = {
    "reading": {"images": 60, "patients": 12, "size": 32}, "noise": "quasi:0.4", "folds": 3, "only_folds": 0,
    "network": "tiny", "pretrained": False, "image_size": 32, "crop": 28, "epochs": 1, "batch_size": 16,
    "device": "cpu", "jobs": 2,
}  # fmt: skip


class Recorder(StudyWatcher):
    def begin(self, planned_runs: Sequence[PlannedRun], *, done: int) -> None:
        self.events = [f"{done} of {len(planned_runs)} done"]

    def ended(self, planned: PlannedRun, status: str) -> None:
        self.events.append(f"{planned.method.name} {status}")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_study_returns_its_results_and_repeats_nothing(tmp_path: Path) -> None:
    methods = ["standard", "co-teaching+ours"]
    first, again = Recorder(), Recorder()
    results = srjt.study(
        "synthetic", methods=methods, out=tmp_path / "study", watcher=first, **SMALL
    )
    assert first.events[0] == "0 of 2 done"
    assert sorted(first.events[1:]) == ["co-teaching+ours done", "standard done"]
    assert results.runs["status"].tolist() == ["done", "done"]
    test = results.scores[(results.scores["split"] == "test") & (results.scores["metric"] == "mae")]
    assert sorted(test["method"]) == sorted(methods)
    assert test["value"].between(0, 3).all()
    said = "srjt.study(source='synthetic', methods=['standard', 'co-teaching+ours']"
    assert results.facts["command"].startswith(said)
    srjt.study("synthetic", methods=methods, out=tmp_path / "study", watcher=again, **SMALL)
    assert again.events == ["2 of 2 done"]
    page, *_ = srjt.write_report(tmp_path / "study")
    assert page == tmp_path / "study" / "report.html"


def test_a_failed_run_is_a_warning_and_its_error_is_in_the_results(tmp_path: Path) -> None:
    singular = [[0.25] * 4] * 4
    wrong = {**SMALL, "noise": "none", "transition": singular}
    with pytest.warns(UserWarning, match="1 of 1 runs failed"):
        results = srjt.study("synthetic", methods="garg", out=tmp_path / "study", **wrong)
    assert "singular" in results.runs["error"].item()


@pytest.mark.parametrize(
    ("wrong", "refused"),
    [
        ({"source": None}, ("missing_option", "data")),
        ({"source": object()}, ("wrong_type", "data", "'synthetic'")),
        ({"methods": "standart"}, ("unknown_name", "method", "'standard'")),
        ({"epoch": 3}, ("unknown_name", "", "'epoch'")),
        ({"seed": 3}, ("conflict", "train")),
        ({"jobs": 10**15}, ("out_of_bounds", "jobs", "1000")),
        ({"executor": "rya"}, ("unknown_name", "executor", "'rya'")),
        ({"executor": "ray"}, ("option_without_effect", "jobs", ("'local'", "'ray'"))),
        ({"gpus_per_run": 0.5}, ("option_without_effect", "gpus_per_run", "'ray'")),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, wrong: dict[str, Any], refused: tuple[str, ...]
) -> None:
    arguments = {"source": "synthetic", "methods": "standard", **SMALL, **wrong}
    with refuses(*refused):
        srjt.study(out=tmp_path / "study", **arguments)


def test_arguments_override_the_file_which_overrides_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("methods: [sord]\nfolds: 4\ntrain: {epochs: 7}\n")
    config = resolve_config(
        {"folds": 3, "methods": None}, train={"crop": 40}, preset="demo", file=file
    )
    assert (config.methods, config.folds, config.source) == (("sord",), 3, "synthetic")
    assert (config.train["epochs"], config.train["crop"], config.train["network"]) == (
        7,
        40,
        "tiny",
    )
    other = resolve_config({"source": "labels.csv"}, train={}, preset="demo")
    assert other.reading == {}  # the preset's were for the synthetic dataset


# Runs in processes of their own: never twice, never lost, and one that fails stops no other.
def weights(folder: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in folder.glob("runs/*/weights.safetensors")}


@pytest.mark.slow
def test_done_runs_are_never_repeated_and_what_is_added_runs_alone(
    finished: Path, witness: Any
) -> None:
    before = weights(finished)
    assert len(before) == 3
    same = {"only_folds": (0,), "train": {"epochs": 12}}
    _, _, outcome = run(finished, small(**same), witness)
    assert set(outcome.values()) == {"done"}
    assert witness.begun == []
    planned = worker.read_study(finished)
    more = small(methods=("standard", "garg", "co-teaching+ours", "sord"), **same)
    _, planned_runs, outcome = run(finished, more, witness)
    assert witness.begun == [planned_runs[-1].key]
    assert witness.over == [(planned_runs[-1].key, "done")]
    assert before.items() <= weights(finished).items()
    assert len(collect_results(finished).runs) == 4
    run(finished, small(**same))  # the former plan again: the fourth run stays where it is
    assert len(collect_results(finished).runs) == 3
    assert len(weights(finished)) == 4
    assert worker.read_study(finished) == planned


def test_a_study_folder_says_what_was_asked(finished: Path) -> None:
    study = worker.read_study(finished)
    data = open_data(small(only_folds=(0,), train={"epochs": 12}))
    assert study.study.config() == data.config
    assert study.class_counts == data.manifest.class_counts.tolist()
    assert (study.patients, study.folds) == (24, 3)
    assert [cell.key for cell in study.cells] == [planned.key for planned in data.planned_runs()]
    splits = pd.read_csv(finished / "splits.csv")
    for fold, split in enumerate(data.splits):
        ids = splits[(splits["fold"] == fold) & (splits["split"] == "test")]["id"]
        assert sorted(ids) == sorted(data.manifest.ids[row] for row in split.test)
    # every method learnt from the same labels, those of the plan
    labelled, _ = data.labelled(data.noises[0], 0, 0)
    for planned in data.planned_runs():
        history = pd.read_csv(run_folder(finished, planned.key) / "history.csv")
        np.testing.assert_array_equal(history["grade"], labelled.labels[data.splits[0].train])
        np.testing.assert_array_equal(
            history["true_grade"], data.manifest.labels[data.splits[0].train]
        )


def test_a_run_knows_its_grade_names_and_a_warning_its_fold(
    tmp_path: Path, monkeypatch: Any
) -> None:
    names = {str(grade): name for grade, name in enumerate(("none", "mild", "moderate", "severe"))}
    data = open_data(
        small(only_folds=(0, 1), methods=("standard",), noises=("none",), grade_names=names)
    )
    monkeypatch.setattr(
        worker,
        "train_from_config",
        lambda manifest, config, **options: warn(str(options["grade_names"])),
    )
    for planned in data.planned_runs():
        said = f"Noise none, fold {planned.fold}, seed 0: {names}"
        with pytest.warns(UserWarning, match=f"^{re.escape(said)}$"):
            worker.run_planned(tmp_path, data, planned, device="cpu")


@pytest.mark.slow
def test_an_unexpected_error_leaves_its_traceback_and_mending_the_cause_its_result(
    tmp_path: Path,
) -> None:
    config = small(methods=("standard",), only_folds=(0, 1))
    planned_runs = write_plan(tmp_path, open_data(config), command="srjt study")
    blocked = run_folder(tmp_path, planned_runs[0].key) / "metrics.csv"
    blocked.mkdir(parents=True)
    blocked.with_name("run.json").write_text("{}")
    _, _, outcome = run(tmp_path, config)
    assert outcome == {planned_runs[0].key: "failed", planned_runs[1].key: "done"}
    assert "run.json is damaged" in error_file(tmp_path, planned_runs[0].key).read_text()
    blocked.with_name("run.json").unlink()
    blocked.rmdir()
    _, _, outcome = run(tmp_path, config)
    assert set(outcome.values()) == {"done"}
    assert not error_file(tmp_path, planned_runs[0].key).exists()


def same_scores(folder: Path, undisturbed: Path) -> None:
    both = (collect_results(where).scores for where in (folder, undisturbed))
    found, expected = (scores.set_index(["key", "split", "metric"])["value"] for scores in both)
    assert len(found) == 2 * 18
    pd.testing.assert_series_equal(found, expected[found.index], check_exact=True)


@pytest.fixture
def limit(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Runs that import ``pause`` wait after their third epoch until the limit is lifted."""
    folder = tmp_path_factory.mktemp("pause")
    limit = Limit(folder / "limit", epoch=3)
    (folder / "pause.py").write_text(limit.code)  # for the workers: this process does not import it
    monkeypatch.chdir(folder)
    return limit


class Murderer(StudyWatcher):
    """Kills the process of the first run when it has done two epochs."""

    def __init__(self, folder: Path, number: int, limit: Limit) -> None:
        super().__init__()
        self.folder, self.number, self.limit = folder, number, limit
        self.victim: str | None = None

    def updated(self, running: Sequence[PlannedRun]) -> None:
        if self.victim is None:
            for planned in running:
                path = run_folder(self.folder, planned.key) / "metrics.csv"
                if path.exists() and "\n3,test" in path.read_text():
                    self.victim = planned.key
                    (process,) = multiprocessing.active_children()
                    os.kill(process.pid, self.number)
                    self.limit.lift()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "method"), [(signal.SIGKILL, "co-teaching+ours"), (signal.SIGTERM, "standard")]
)
def test_a_killed_run_fails_is_said_and_resumes_as_if_nothing_had_happened(
    finished: Path, tmp_path: Path, limit: Limit, number: signal.Signals, method: str
) -> None:
    train = {"epochs": 12, "checkpoint_seconds": 0.0, "imports": ("pause",)}
    config = small(methods=(method, "garg"), only_folds=(0,), train=train)
    murderer = Murderer(tmp_path, number, limit)
    _, planned_runs, outcome = run(tmp_path, config, murderer, jobs=1)
    assert murderer.victim == planned_runs[0].key
    assert outcome == {planned_runs[0].key: "failed", planned_runs[1].key: "done"}
    said = error_file(tmp_path, planned_runs[0].key).read_text()
    assert f"was ended by {number.name}" in said
    assert ("memory" in said) == (number == signal.SIGKILL)
    before = weights(tmp_path)
    partial = (run_folder(tmp_path, planned_runs[0].key) / "metrics.csv").read_text()
    _, _, outcome = run(tmp_path, config, jobs=1)
    assert set(outcome.values()) == {"done"}
    assert before.items() <= weights(tmp_path).items()
    # times included, the first epochs are those of the first attempt: it was resumed
    assert partial[:1000] in (run_folder(tmp_path, planned_runs[0].key) / "metrics.csv").read_text()
    same_scores(tmp_path, finished)


@pytest.mark.slow
def test_a_run_has_the_same_bits_in_a_used_worker_and_in_a_fresh_one(
    finished: Path, tmp_path: Path
) -> None:
    """The first two runs of ``finished`` had fresh workers; here one worker trains all, in another
    order."""
    workers = set()

    class Counts(StudyWatcher):
        def ended(self, planned: PlannedRun, status: str) -> None:
            workers.update(process.pid for process in multiprocessing.active_children())

    methods = ("co-teaching+ours", "garg", "standard")
    config = small(methods=methods, only_folds=(0,), train={"epochs": 12})
    _, planned_runs, _ = run(tmp_path, config, Counts(), jobs=1)
    assert len(workers) == 1
    for planned in planned_runs:
        weights = (
            run_folder(where, planned.key) / "weights.safetensors" for where in (tmp_path, finished)
        )
        assert len({path.read_bytes() for path in weights}) == 1, planned.key


@pytest.mark.slow
def test_asked_to_stop_in_the_middle(finished: Path, tmp_path: Path, limit: Limit) -> None:
    """As Ctrl-C does it: the runs save their state, and that is not a failure."""
    train = {"epochs": 12, "checkpoint_seconds": 3600.0, "imports": ("pause",)}
    config = small(methods=("standard", "garg"), only_folds=(0,), train=train)
    planned_runs = write_plan(tmp_path, open_data(config), command="srjt study")

    class Stops(Witness):
        asked = False

        def updated(self, running: Sequence[PlannedRun]) -> None:
            path = run_folder(tmp_path, planned_runs[0].key) / "metrics.csv"
            if not self.asked and path.exists() and "\n3,test" in path.read_text():
                self.asked = True
                os.kill(os.getpid(), signal.SIGINT)

    stops = Stops()
    with pytest.raises(Interrupted, match="The study stopped with 0 of 2 runs done") as stopped:
        run(tmp_path, config, stops, jobs=1)
    assert stopped.value.status == 130
    assert stops.over == [(planned_runs[0].key, "left")]
    assert len(list(run_folder(tmp_path, planned_runs[0].key).glob("checkpoints/step-*"))) == 1
    assert not list(tmp_path.glob("errors/*"))
    limit.lift()
    run(tmp_path, config)
    same_scores(tmp_path, finished)


@pytest.mark.slow
def test_stopped_before_a_run_has_begun_is_not_a_failure(tmp_path: Path, witness: Any) -> None:
    endless = small(train={"epochs": 1000})
    planned_runs = write_plan(tmp_path, open_data(endless), command="srjt study")
    witness.started = lambda planned: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Interrupted, match="The study stopped with 0 of 9 runs done") as stopped:
        run(tmp_path, endless, witness)
    assert stopped.value.status == 143
    assert [status for _, status in witness.over] == ["left"]
    assert {run_status(tmp_path, planned.key) for planned in planned_runs} == {"left"}
    assert not list(tmp_path.glob("errors/*"))


@pytest.mark.slow
def test_a_run_that_somebody_works_on_has_its_turn_later(tmp_path: Path) -> None:
    config = small(methods=("standard",), only_folds=(0, 1))
    planned_runs = write_plan(tmp_path, open_data(config), command="srjt study")
    busy = run_folder(tmp_path, planned_runs[0].key)
    busy.mkdir(parents=True)
    claim = lock_folder(busy)
    claim.__enter__()
    assert run_status(tmp_path, planned_runs[0].key) == "running"

    class Releases(Witness):
        def ended(self, planned: PlannedRun, status: str) -> None:
            if planned == planned_runs[1]:
                claim.__exit__(None, None, None)

    watcher = Releases()
    _, _, outcome = run(tmp_path, config, watcher)
    assert watcher.begun == [planned_runs[1].key, planned_runs[0].key]
    assert set(outcome.values()) == {"done"}


def test_one_study_at_a_time_in_a_folder(tmp_path: Path) -> None:
    study = tmp_path / "study"
    second = worker.lock_study(study)
    with worker.lock_study(study), refuses("folder_busy", "out"):
        second.__enter__()
    with worker.lock_study(study):
        assert study.is_dir()
    (tmp_path / "file").write_text("")
    with (
        refuses("unwritable_file", says="file"),
        worker.lock_study(tmp_path / "file"),
    ):
        pass


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    data = open_data(small())
    (tmp_path / "thesis.tex").write_text("years of work")
    with refuses("folder_in_use", "out"):
        write_plan(tmp_path, data, command="srjt study")
    (tmp_path / "study.json").write_text(json.dumps({"mine": True}))
    with refuses("damaged_file"):
        write_plan(tmp_path, data, command="srjt study")
    assert sorted(p.name for p in tmp_path.glob("[!.]*")) == ["study.json", "thesis.tex"]


@pytest.mark.slow
def test_killed_while_planning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was written by then, the same command goes on."""
    data = open_data(small())

    class Killed(BaseException): ...

    def kill(*_: object, **__: object) -> None:
        raise Killed

    for owner, name in (("srjt.studies.folder", "write_sealed_json"), ("pathlib.Path", "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(f"{owner}.{name}", kill)
            with pytest.raises(Killed):
                write_plan(tmp_path, data, command="srjt study")
    assert len(write_plan(tmp_path, data, command="srjt study")) == 9
    with worker.lock_study(tmp_path):  # sweeps what was left
        assert sorted(p.name for p in tmp_path.glob("[!.]*")) == ["splits.csv", "study.json"]


def test_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert choose_devices() == (("cpu",) * 8, 1)
    assert choose_devices(jobs=3, device="cpu") == (("cpu",) * 3, 2)
    assert choose_devices(jobs=20) == (("cpu",) * 20, 1)
    with refuses("no_gpu", "device", says="torch"):
        choose_devices(device="cuda")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert choose_devices(jobs=2)[0] == ("cuda:0", "cuda:1", "cuda:0", "cuda:1")
    assert choose_devices(device="cuda:1")[0] == ("cuda:1",)
    assert choose_devices(device="cuda:1, cuda:0", jobs=2)[0] == (
        "cuda:1",
        "cuda:0",
        "cuda:1",
        "cuda:0",
    )
    with refuses("no_gpu", "device", says="GPU number 2"):
        choose_devices(device="cuda:0,cuda:2")
    with refuses("conflict", "device"):
        choose_devices(device="cuda:0,cpu")
