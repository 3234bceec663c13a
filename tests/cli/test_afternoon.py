"""A stranger's afternoon: from a table of two readers and features to a filled checklist whose
files all exist."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from srjt.reports.checklist import checklist_items, known_facts

from .conftest import Srjt


@pytest.mark.slow
def test_from_two_readers_and_features_to_a_checklist(command: Srjt) -> None:
    rng = np.random.default_rng(1)
    patients = np.repeat(np.arange(90), 2)
    true = np.repeat(rng.integers(0, 3, 90), 2)
    features = rng.normal(size=(180, 6)) + true[:, None]
    names = [f"im{row:03d}" for row in range(180)]
    readers = {
        f"reader_{k}": np.clip(np.rint(true + 0.4 * rng.normal(size=180)), 0, 2).astype(int)
        for k in (1, 2)
    }
    about = {"site": np.where(patients % 2, "north", "south"), "age": 20 + patients % 60}
    table = pd.DataFrame({"image": names, "patient": patients, **about, **readers})
    table.to_csv("labels.csv", index=False)
    np.savez("features.npz", features=features.astype(np.float32), ids=np.array(names))
    data = ("features.npz", "--labels", "labels.csv")

    code, _, problem = command("train", *data, "--out", "runs/a")
    assert code == 2
    assert "--several-readings consensus" in " ".join(problem.split())  # what to do is said
    data += ("--several-readings", "consensus")
    for arguments in (
        ("readers", "labels.csv", "--out", "readers"),
        ("train", *data, "--fold", "0", "--set", "epochs=3", "--out", "runs/a"),
        ("audit", *data, "--set", "epochs=3", "--out", "audit"),
        ("evaluate", "runs/a", *data, "--fold", "0", "--by", "site", "--by", "age:20", "--out", "by.json"),
        ("report", "runs/a", "--checklist", "tripod-ai", "--also", "audit", "--also", "readers", "--also", "by.json"),
    ):  # fmt: skip
        code, _, problem = command(*arguments)
        assert code == 0, problem
    run = Path("runs/a")
    assert (run / "tripod-ai.html").exists()
    also = [Path("audit"), Path("readers"), Path("by.json")]
    items = checklist_items("tripod-ai", known_facts(run, also)[0])
    filled = items[items["known"] != ""]
    assert len(filled) > 25
    for name in sorted(set(", ".join(filled["files"]).split(", "))):
        assert (run / name).exists() or Path(name).exists(), name
    assert "north" in " ".join(items["known"])
