"""metrics.csv: tidy, readable while it grows, cut back on resuming; and the paper's averages."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from refusals import refuses
from srjt.ordinal.metrics import METRICS
from srjt.training.checkpoint import (
    MetricRow,
    MetricsLog,
    last_epochs,
    metric_rows,
    parse_rows,
    read_metrics,
)


def row(epoch: int, value: float, *, network="1", split="test", metric="accuracy") -> MetricRow:
    return MetricRow(epoch, split, network, metric, value)


@pytest.mark.slow
def test_one_number_a_line_that_any_program_reads(train: Any, tmp_path: Path) -> None:
    run = train(out=tmp_path / "run")
    table = pd.read_csv(
        tmp_path / "run" / "metrics.csv", dtype={"network": str}, keep_default_na=False
    )
    assert list(table.columns) == ["epoch", "split", "network", "metric", "value"]
    assert not table.duplicated(["epoch", "split", "network", "metric"]).any()
    assert sorted(set(table["epoch"])) == [1, 2, 3]
    per_epoch = table.groupby("epoch").size()
    assert per_epoch.nunique() == 1
    scores = table[table["split"] != "train"]
    assert set(scores["network"]) == {"1", "2", "ensemble", "pooled"}
    assert set(scores["metric"]) == set(METRICS)
    train = set(table.loc[table["split"] == "train", "metric"])
    assert {
        "loss",
        "label_precision",
        "label_recall",
        "label_precision[3]",
        "kept[0]",
        "kept",
    } <= train
    assert {"learning_rate", "images_per_second", "seconds", "peak_memory_mb"} <= train
    assert read_metrics(tmp_path / "run" / "metrics.csv").equals(run.metrics)


def test_without_true_grades_there_is_no_label_precision(data: Any, train: Any) -> None:
    unknown = replace(data.manifest, table=data.manifest.table.drop(columns="true_grade"))
    run = train(unknown, epochs=1)
    assert not run.metrics["metric"].str.startswith("label_").any()
    assert run.metrics["metric"].str.startswith("kept[").any()
    assert "true_grade" not in run.history


def test_readable_while_a_line_is_being_written(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.csv")
    log.resume([])
    log.add(
        [row(1, 0.1), row(1, 0.30000000000000004, metric="mae"), row(1, float("nan"), metric="qwk")]
    )
    whole = (tmp_path / "metrics.csv").read_text()
    assert whole.splitlines()[0] == "epoch,split,network,metric,value"
    for size in range(whole.index("\n") + 1, len(whole)):
        (tmp_path / "metrics.csv").write_text(whole[:size])
        found = read_metrics(tmp_path / "metrics.csv")
        assert len(found) == whole[:size].count("\n") - 1
    (tmp_path / "metrics.csv").write_text(whole)
    assert read_metrics(tmp_path / "metrics.csv")["value"].tolist()[:2] == [
        0.1,
        0.30000000000000004,
    ]


def test_resuming_cuts_what_came_after_and_half_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    log = MetricsLog(path)
    log.resume([])
    log.add([row(1, 0.1)])
    saved = log.content()  # in the checkpoint
    after_one = path.read_bytes()
    log.add([row(2, 0.2), row(2, 0.3, network="2")])
    with path.open("a") as file:
        file.write("3,test,1,accu")
    again = MetricsLog(path)
    again.resume(parse_rows(saved))
    assert path.read_bytes() == after_one
    assert again.table()["epoch"].tolist() == [1]
    again.add([row(2, 0.25)])
    assert read_metrics(path)["value"].tolist() == [0.1, 0.25]


def test_no_file_and_another_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    with refuses("missing_file"):
        read_metrics(path)
    header = b"epoch,split,network,metric,value\n"
    for content in (
        b"epoch,split\n1,train\n",
        header + b"1,train,1,loss,much\n",
        b"\xff\xfe\n\xff\n",
    ):
        path.write_bytes(content)
        with refuses("damaged_file", says="metrics.csv"):
            read_metrics(path)


def test_the_papers_average_over_ten_epochs_and_both_networks() -> None:
    rows = [
        row(epoch, value, network=network)
        for epoch in range(1, 16)
        for network, value in (
            ("1", epoch),
            ("2", epoch + 100),
            ("ensemble", 1e6),
            ("pooled", 10 * epoch),
        )
    ]
    table = pd.DataFrame(rows, columns=list(MetricRow._fields))
    (found,) = last_epochs(table).to_dict("records")
    per_epoch = np.arange(6, 16) + 50.0
    numbers = {"value": pytest.approx(per_epoch.mean()), "std": pytest.approx(per_epoch.std())}
    assert found == {"split": "test", "metric": "accuracy", **numbers}
    (pooled,) = last_epochs(table, pooled=True).to_dict("records")
    assert pooled["value"] == pytest.approx(10 * np.arange(6, 16).mean())


def test_one_network_has_no_pool_and_few_epochs_are_all_averaged() -> None:
    table = pd.DataFrame([row(1, 0.2), row(2, 0.4)], columns=list(MetricRow._fields))
    for pooled in (False, True):
        (found,) = last_epochs(table, pooled=pooled).to_dict("records")
        assert found["value"] == pytest.approx(0.3)
    empty = last_epochs(pd.DataFrame([row(1, 0.2, split="train")], columns=list(MetricRow._fields)))
    assert list(empty.columns) == ["split", "metric", "value", "std"]
    assert len(empty) == 0


def test_pooled_predictions_are_counted_together() -> None:
    one, two, ensemble = np.diag([3, 1]), np.array([[1, 2], [0, 1]]), np.array([[2, 1], [0, 1]])
    rows = metric_rows(4, "test", np.stack([one, two, ensemble]))
    found = {(r.network, r.metric): r.value for r in rows if r.epoch == 4}
    assert found["1", "accuracy"] == 1.0
    assert found["2", "accuracy"] == 0.5
    assert found["ensemble", "accuracy"] == 0.75
    assert found["pooled", "accuracy"] == 0.75
    assert found["pooled", "macro_f1"] != pytest.approx(
        (found["1", "macro_f1"] + found["2", "macro_f1"]) / 2
    )
    assert {r.network for r in metric_rows(1, "test", np.stack([one, one]))} == {"1"}


@pytest.mark.slow
def test_the_summary_is_the_average(train: Any, tmp_path: Path) -> None:
    for convention in ("paper", "published-code"):
        out = tmp_path / convention
        run = train(out=out, convention=convention)
        summary = json.loads((out / "summary.json").read_text())["last_epochs"]
        networks = ["pooled"] if convention == "published-code" else ["1", "2"]
        chosen = run.metrics.query("split == 'test' and metric == 'mae'")
        wanted = chosen[chosen["network"].isin(networks)]["value"].mean()
        (found,) = (r["value"] for r in summary if (r["split"], r["metric"]) == ("test", "mae"))
        assert found == pytest.approx(wanted)
