"""How many of the wrong training labels the networks repeat, epoch by epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import srjt
from srjt.errors import SrjtError

SETTINGS: dict[str, Any] = {
    "method": "co-teaching", "noise_rate": 0.4, "network": "tiny", "image_size": 32, "crop": 28, "epochs": 2,
    "batch_size": 16, "learning_rate": 3e-3, "device": "cpu",
}  # fmt: skip


@pytest.mark.slow
def test_the_last_epoch_is_what_the_networks_say(data: Any, tmp_path: Path) -> None:
    common = {"split": data.split, **SETTINGS}
    run = srjt.train(data.manifest, out=tmp_path / "run", track_wrong_labels=True, **common)
    given, true = data.manifest.labels, data.manifest.true_labels
    wrong = data.split.train[given[data.split.train] != true[data.split.train]]
    _, answers = run.probabilities(data.manifest.arrays[wrong])
    tracked = run.metrics[(run.metrics["split"] == "wrong_labels") & (run.metrics["metric"] == "accuracy")]
    assert set(tracked["epoch"]) == {1, 2}
    for network in (1, 2):
        last = tracked[(tracked["epoch"] == 2) & (tracked["network"] == str(network))]["value"].item()
        assert last == pytest.approx(np.mean(answers[network - 1] == given[wrong]))
    # nothing else of the run changes
    plain = srjt.train(data.manifest, **common)
    others = run.metrics[run.metrics["split"] != "wrong_labels"].reset_index(drop=True)
    timed = ["images_per_second", "seconds", "peak_memory_mb"]
    pd.testing.assert_frame_equal(
        others[~others["metric"].isin(timed)], plain.metrics[~plain.metrics["metric"].isin(timed)]
    )
    assert set(run.held_out) == set(plain.held_out) == {"validation", "test"}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert set(summary["confusion"]) == {"validation", "test"}
    # the same folder is not resumed with other rows in its metrics
    with pytest.raises(SrjtError, match="track_wrong_labels"):
        srjt.train(data.manifest, out=tmp_path / "run", **common)
