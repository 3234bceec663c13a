"""The results of a study, and its state."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from refusals import refuses
from srjt import noise
from srjt.errors import Option, SrjtError
from srjt.reports.flags import as_typed
from srjt.studies.folder import (
    error_file,
    forget_error,
    run_folder,
    run_status,
    write_error_report,
    write_plan,
)
from srjt.studies.plan import open_data
from srjt.studies.results import (
    RUN_COLUMNS,
    StudyResults,
    collect_results,
    remaining_seconds,
    status_lines,
)

from .conftest import small


def test_scores_are_means_over_the_last_ten_epochs_and_the_networks(finished: Path) -> None:
    results = collect_results(finished)
    assert list(results.scores.columns) == [*RUN_COLUMNS, "split", "metric", "value"]
    scores = results.scores.set_index(["key", "split", "metric"])["value"]
    assert len(results.runs) == 3
    for key in results.runs["key"]:
        table = pd.read_csv(run_folder(finished, key) / "metrics.csv", keep_default_na=False)
        table = table[(table["epoch"] > 2) & table["network"].isin(["1", "2"])]  # of 12 epochs
        for split in ("validation", "test"):
            for metric in ("accuracy", "mae", "macro_f1", "qwk"):
                values = table[(table["split"] == split) & (table["metric"] == metric)][
                    "value"
                ].astype(float)
                assert len(values) == (20 if key.startswith("co-teaching") else 10)
                assert scores[key, split, metric] == pytest.approx(values.mean(), abs=1e-12)


def test_metrics_are_tidy_and_whole(finished: Path) -> None:
    results = collect_results(finished)
    assert list(results.metrics.columns) == [
        *RUN_COLUMNS,
        "epoch",
        "split",
        "network",
        "metric",
        "value",
    ]
    files = [run_folder(finished, key) / "metrics.csv" for key in results.runs["key"]]
    assert len(results.metrics) == sum(len(file.read_text().splitlines()) - 1 for file in files)
    assert not results.metrics.duplicated(
        [*RUN_COLUMNS, "epoch", "split", "network", "metric"]
    ).any()
    assert set(results.metrics["network"]) <= {"1", "2", "ensemble", "pooled", ""}
    seconds = results.metrics[results.metrics["metric"] == "seconds"].groupby("key")["value"].sum()
    for run in results.runs.itertuples():
        assert run.seconds == pytest.approx(seconds[run.key])
        assert run.seconds > 0


def test_confusions_agree_with_the_last_epoch(finished: Path) -> None:
    results = collect_results(finished)
    splits = pd.read_csv(finished / "splits.csv")
    tested = len(splits[(splits["fold"] == 0) & (splits["split"] == "test")])
    for run in results.runs.itertuples():
        counts = results.confusions[run.key]
        assert counts.shape == (4, 4)
        assert counts.sum() == tested  # each sample once, however many networks there are
        last = "key == @run.key and epoch == 12 and split == 'test' and metric == 'accuracy'"
        own = results.metrics.query(last)
        network = "ensemble" if run.method == "co-teaching+ours" else "1"
        accuracy = own[own["network"] == network]["value"].mean()
        assert np.trace(counts) / counts.sum() == pytest.approx(accuracy)


def test_the_noise_that_was_injected(finished: Path) -> None:
    data = open_data(small(only_folds=(0,)))
    row = collect_results(finished).noise.iloc[0]
    assert (row["noise"], row["kind"], row["fold"], row["seed"]) == ("quasi:0.4", "quasi", 0, 0)
    counts = data.manifest.class_counts
    assert row["rho"] == pytest.approx(noise.rho_for_rate("quasi", rate=0.4, class_counts=counts))
    assert noise.expected_rate(row["matrix"], class_counts=counts) == pytest.approx(0.4)
    labelled, _ = data.labelled(data.noises[0], 0, 0)
    train = data.splits[0].train
    assert row["realised_rate"] == pytest.approx(
        (labelled.labels != data.manifest.labels)[train].mean()
    )


def test_nothing_has_run_yet(tmp_path: Path) -> None:
    write_plan(tmp_path, open_data(small(noises=("none",), noise_rate=0.3)), command="srjt study")
    results = collect_results(tmp_path)
    assert results.runs["status"].tolist() == ["left"] * 9
    assert results.runs["seconds"].isna().all()
    assert list(results.scores.columns) == [*RUN_COLUMNS, "split", "metric", "value"]
    assert len(results.metrics) == len(results.scores) == len(results.confusions) == 0
    assert results.noise["realised_rate"].isna().all()
    assert len(results.noise) == 3


def test_runs_under_way_have_metrics_but_no_scores(copied: Path) -> None:
    first, second, third = collect_results(copied).runs["key"]
    (run_folder(copied, first) / "summary.json").unlink()
    metrics = run_folder(copied, first) / "metrics.csv"
    text = metrics.read_text()
    metrics.write_text(text[: text.index("\n7,") + 10])  # in the middle of a line
    shutil.rmtree(run_folder(copied, second))
    error_file(copied, second).parent.mkdir()
    error_file(copied, second).write_text("Something\nhappened.\n")
    results = collect_results(copied)
    assert results.runs["key"].tolist() == [first, second, third]
    assert results.runs["status"].tolist() == ["left", "failed", "done"]
    assert results.runs["error"].tolist() == ["", "Something\nhappened.\n", ""]
    assert results.metrics[results.metrics["key"] == first]["epoch"].max() == 6
    assert set(results.metrics["key"]) == {first, third}
    assert set(results.scores["key"]) == set(results.confusions) == {third}


@pytest.mark.slow
def test_an_error_keeps_the_options_that_it_names(copied: Path) -> None:
    key = collect_results(copied).runs["key"][0]
    shutil.rmtree(run_folder(copied, key))
    problem = SrjtError("Lower ", Option("batch_size"), ", or use ", Option("jobs", 1), ".")
    write_error_report(copied, key, problem)
    results = collect_results(copied)
    assert results.runs["error"][0] == "Lower `batch_size`, or use `jobs=1`."
    line = list(status_lines(results))[-1]
    assert line == f"failed: {key}: Lower `batch_size`, or use `jobs=1`."
    assert as_typed(line) == f"failed: {key}: Lower --batch-size, or use --jobs 1."
    # a folder of an earlier version has only the text, and a changed text is what counts
    parts = error_file(copied, key).with_suffix(".json")
    for text in ("Lower `jobs`.\n", f"{problem}\n"):
        error_file(copied, key).write_text(text)
        assert as_typed(list(status_lines(collect_results(copied)))[-1]).endswith(text.strip())
        parts.unlink(missing_ok=True)
    write_error_report(copied, key, problem)
    write_error_report(copied, key, RuntimeError("out of luck"))
    assert not parts.exists()
    assert list(status_lines(collect_results(copied)))[-1].endswith("RuntimeError: out of luck")
    forget_error(copied, key)
    assert run_status(copied, key) == "left"


def test_pooled_as_in_the_published_code(copied: Path) -> None:
    facts = json.loads((copied / "study.json").read_text())
    facts["study"]["train"]["convention"] = "published-code"
    del facts["sha256"]  # else: not what srjt has written
    (copied / "study.json").write_text(json.dumps(facts))
    results = collect_results(copied)
    wanted = "method == 'co-teaching+ours' and split == 'test' and metric == 'macro_f1'"
    pooled = results.metrics.query(f"{wanted} and network == 'pooled' and epoch > 2")[
        "value"
    ].mean()
    assert results.scores.query(wanted)["value"].item() == pytest.approx(pooled)


def test_folders_that_are_no_study(tmp_path: Path) -> None:
    with refuses("wrong_file", says="study.json"):
        collect_results(tmp_path)
    (tmp_path / "study.json").write_text('{"a": 1}')
    with refuses("damaged_file", says="study.json"):
        collect_results(tmp_path)


# How far a study is, and how long the rest will take.
def results(*runs: tuple[str, str, float]) -> StudyResults:
    """From (method, status, seconds)."""
    rows = [
        {
            "key": f"{method}_{number}", "method": method, "variant": "", "noise": "none", "fold": number, "seed": 0,
            "status": status, "seconds": seconds, "error": "Traceback …\nOSError: [Errno 28] [/red] full\n\n",
        }
        for number, (method, status, seconds) in enumerate(runs)
    ]  # fmt: skip
    empty = pd.DataFrame()
    return StudyResults(
        folder=Path(), facts={"study": {"train": {}}}, metrics=empty, scores=empty, confusions={}, noise=empty,
        runs=pd.DataFrame(rows, columns=[*RUN_COLUMNS, "status", "seconds", "error"]),
    )  # fmt: skip


NAN = float("nan")


def test_each_network_that_is_left_takes_as_long_as_the_median_of_those_done() -> None:
    found = results(
        ("standard", "done", 10.0), ("garg", "done", 12.0), ("sord", "done", 50.0), ("jocor", "done", 30.0),
        ("standard", "left", NAN), ("codis", "running", 5.0), ("jocor+ours", "failed", 2.0), ("mixup", "left", NAN),
    )  # fmt: skip
    assert remaining_seconds(found) == pytest.approx((12 + 15) / 2 * (1 + 2 + 2 + 1))


def test_before_anything_is_done_nothing_is_promised() -> None:
    found = results(("standard", "running", 3.0), ("jocor", "left", NAN))
    assert remaining_seconds(found) is None
    assert list(status_lines(found)) == [
        "2 runs: 0 done, 1 running, 0 failed, 1 left.",
        "No run has finished yet: the remaining time is unknown.",
    ]


def test_counts_estimate_and_failures() -> None:
    found = results(
        ("standard", "done", 3600.0), ("garg", "running", 1.0), ("sord", "running", 1.0), ("mixup", "left", NAN),
        ("cdr", "failed", NAN),
    )  # fmt: skip
    lines = list(status_lines(found))
    assert lines[0] == "5 runs: 1 done, 2 running, 1 failed, 1 left."
    assert lines[1].startswith("About 4.0 h of training remain (2.0 h with 2 runs at a time)")
    assert lines[2:] == ["failed: cdr_4: OSError: [Errno 28] [/red] full"]


def test_a_finished_study_has_nothing_left() -> None:
    found = results(("standard", "done", 5.0))
    assert list(status_lines(found)) == ["1 run: 1 done, 0 running, 0 failed, 0 left."]
