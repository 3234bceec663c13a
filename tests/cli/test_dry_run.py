"""``srjt train --dry-run``: the plan, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import srjt
from srjt.cli import app
from srjt.cli.dry_run import duration, size
from srjt.training.config import TrainConfig
from srjt.training.cost import training_cost


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    return Path(srjt.data.synthetic.write(data, tmp_path / "set"))


def test_it_prints_the_plan_and_writes_nothing(labels: Path, tmp_path: Path) -> None:
    small = ["--network", "tiny", "--image-size", "32", "--crop", "28", "--epochs", "3", "--batch-size", "16"]
    command = [
        "train",
        str(labels),
        "--out",
        str(tmp_path / "run"),
        "--fold",
        "0",
        "--noise-rate",
        "0.2",
        *small,
    ]
    result = CliRunner().invoke(
        app, [*command, "--method", "co-teaching+ours", "--dry-run"], env={"COLUMNS": "80"}
    )
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "co-teaching+ours: 2 × tiny, 3 epochs in batches of 16." in text
    assert "Nothing was trained" in text
    assert "validation" in text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "more", [(), ("--noise-rate", "0.2"), ("--method", "sord"), ("--method", "garg", "--noise-rate", "auto")]
)
def test_every_method_has_a_plan(labels: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    small = ["--network", "tiny", "--image-size", "32", "--crop", "28", "--epochs", "3"]
    result = CliRunner().invoke(
        app,
        ["train", str(labels), "--out", str(tmp_path / "run"), "--dry-run", *small, *more],
        env={"COLUMNS": "80"},
    )
    assert result.exit_code == 0, (result.output, result.exception)
    estimated = "is estimated first" in " ".join(result.stdout.split())
    assert estimated == (more == () or "garg" in more)


def test_the_cost_counts_steps_weights_and_images() -> None:
    data = srjt.data.synthetic.generate(images=50, patients=10, size=32)
    config = TrainConfig(
        method="standard", network="tiny", image_size=32, crop=28, epochs=3, batch_size=16, pretrained=False
    )
    cost = training_cost(data, config, training=40, device=torch.device("cpu"))
    assert cost.steps == 40 // 16 * 3
    assert cost.image_bytes == 50 * 3 * 32 * 32
    assert cost.seconds > 0
    two = training_cost(
        data, config.replace(method="co-teaching", noise_rate="auto"), training=40, device=torch.device("cpu")
    )
    assert two.network_bytes == 2 * cost.network_bytes


def test_times_and_sizes_read_as_people_write_them() -> None:
    assert [duration(s) for s in (0.2, 40, 720, 3.5 * 3600)] == [
        "1 second",
        "40 seconds",
        "12 minutes",
        "3.5 hours",
    ]
    assert duration(4 * 3600) == "4.0 hours"
    assert duration(15 * 86400) == "15 days"
    assert [size(n) for n in (2048, 3 * 2**20, 5 * 2**30)] == ["2 KiB", "3.0 MiB", "5.0 GiB"]
