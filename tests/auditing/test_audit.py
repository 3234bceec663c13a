"""Audits: the whole command, and where the networks look."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import srjt
from auditing.test_review_server import running
from fixtures.noisy_features import counted
from processes import Limit
from refusals import refuses
from srjt import audit, report
from srjt.auditing.audit import Audit, LabelFile, look_maps
from srjt.auditing.folder import read_audit
from srjt.data import Manifest, from_arrays
from srjt.data.synthetic import generate, write
from srjt.noise import NoiseEstimate
from srjt.noise.basis import Undetermined
from srjt.training.folder import read_facts, read_noise_estimate

HERE: dict[str, Any] = {
    "device": "cpu",
    "network": "linear",
    "batch_size": 32,
    "learning_rate": 0.02,
}


@pytest.fixture(scope="module")
def made(noisy: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Audit:
    out = tmp_path_factory.mktemp("made") / "audit"
    return audit(
        noisy,
        out=out,
        folds=3,
        reader="reader",
        labels=LabelFile(source="data/set.npz"),
        epochs=12,
        **HERE,
    )


def test_it_finds_the_corrupted_labels(noisy: Manifest, made: Audit) -> None:
    truth = noisy.true_labels
    wrong = (noisy.labels != truth).mean()
    known = made.summary["known"]
    assert known["rate"] == pytest.approx(wrong, abs=1e-4)
    assert known["average_precision"] > wrong + 0.3
    assert known["precision_at_wrong"] > wrong + 0.3
    low, high = made.estimate.rate_interval
    assert low - 0.1 < wrong < high + 0.1
    assert made.summary["rate"] == made.estimate.rate


def test_the_folder_is_what_the_review_reads(noisy: Manifest, made: Audit) -> None:
    facts = json.loads((made.folder / "audit.json").read_text())
    assert facts["format"] == 2
    assert facts["grades"] == list(noisy.grades)
    assert (facts["samples"], facts["folds"], facts["method"], facts["network"]) == (
        240,
        3,
        "sord",
        "linear",
    )
    assert (facts["source"], facts["label_column"], facts["table"]) == (
        "data/set.npz",
        "grade",
        None,
    )
    assert NoiseEstimate.from_dict(facts["estimate"]).to_dict() == made.estimate.to_dict()
    found = read_audit(made.folder)
    assert found.ids == made.scores["id"].tolist()
    np.testing.assert_array_equal(found.quality, made.scores["quality"])
    assert found.readers is not None
    assert len(found.network_grades) == 1
    place = {name: row for row, name in enumerate(noisy.ids)}
    for line in (0, 7, 239):  # the lines of the file, not the rows of the manifest
        own = made.fitted.neighbours[place[found.ids[line]]]
        theirs = [[noisy.ids[row] for row in close] for close in own]
        assert [[found.ids[n] for n in close] for close in found.neighbours[line]] == theirs
    assert json.loads((made.folder / "summary.json").read_text()) == json.loads(
        json.dumps(made.summary)
    )
    assert not (made.folder / "images").exists()  # features have no pictures


def test_networks_that_have_learnt_nothing_suggest_nothing_in_a_notebook(made: Audit) -> None:
    unknown = replace(
        made.estimate, identifiable=False, undetermined=Undetermined(kind="uninformed")
    )
    guessed = replace(made, estimate=unknown, summary=made.summary | {"identifiable": False})
    ignorant = replace(
        guessed, summary=guessed.summary | {"learnt": False, "caveat": "They know nothing."}
    )
    assert "They know nothing." in repr(ignorant.worst(5))
    for shown in (srjt.report(ignorant)._repr_html_(), repr(ignorant.worst(5))):
        assert "suggested" not in shown
        assert "p(label" not in shown
    assert f"{made.estimate.rate:.1%}" not in repr(guessed)
    assert "quality" not in repr(guessed.worst(5))  # a probability would rest on a guess


def with_verified(noisy: Manifest, count: int) -> Manifest:
    """The true grades of so many samples, drawn at random."""
    truth = noisy.true_labels
    rows = np.random.default_rng(0).permutation(len(noisy))[:count]
    verified = np.full(len(noisy), -1)
    verified[rows] = truth[rows]
    return replace(noisy, table=noisy.table.assign(verified_grade=verified))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "method", ["sord", pytest.param("co-teaching+ours", marks=pytest.mark.slow)]
)
def test_a_second_run_and_verified_grades_train_nothing(
    noisy: Manifest, tmp_path: Path, method: str
) -> None:
    """The same command again, as it was and after 80 labels were verified: an unbiased rate, and
    known qualities."""
    given: dict[str, Any] = {
        "out": tmp_path / "audit",
        "folds": 2,
        "epochs": 4,
        "method": method,
        **HERE,
    }
    written = tmp_path / "audit" / "audit.csv"
    with pytest.MonkeyPatch.context() as patch:  # the estimate takes longer than the fits
        patch.setattr("srjt.auditing.audit.estimate_noise", counted)
        first = audit(noisy, **given)
        runs = {
            p: p.stat().st_mtime_ns for p in (tmp_path / "audit" / "fits").rglob("*") if p.is_file()
        }
        before = written.read_bytes()
        written.unlink()
        audit(noisy, **given)
    assert written.read_bytes() == before
    np.testing.assert_array_equal(first.scores["quality"], pd.read_csv(written)["quality"])
    with refuses("settings_changed", "out"):
        audit(noisy, **{**given, "folds": 3})
    done = audit(with_verified(noisy, 80), **given)
    assert {p: p.stat().st_mtime_ns for p in runs} == runs
    verified = done.summary["verified"]
    sample = done.scores[done.scores["verified_grade"] != ""]
    wrong = int((sample["grade"] != sample["verified_grade"]).sum())
    assert (verified["labels"], verified["wrong"]) == (80, wrong)
    assert (
        sample["quality"].tolist()
        == (sample["grade"] == sample["verified_grade"]).astype(float).tolist()
    )
    low, high = done.summary["rate_interval"]
    assert done.estimate.verified == 80
    assert done.estimate.identifiable
    alone = verified["interval_without_model"]
    assert high - low < alone[1] - alone[0]
    # what is said of single labels does not contradict what is said of their grade
    assert len(verified["grades"]) > 1
    for row in verified["grades"]:
        doubt = 1 - done.scores["quality"][done.scores["grade"] == row["grade"]].mean()
        assert doubt == pytest.approx(row["rate"], abs=0.01)
        assert row["interval"][0] - 0.01 <= doubt <= row["interval"][1] + 0.01
    assert low < (noisy.labels != noisy.true_labels).mean() < high
    report(tmp_path / "audit")
    page = (tmp_path / "audit" / "report.html").read_text()
    assert f"wrong: {wrong}<" in page
    assert f"let an expert grade {done.summary['verify_more']} more labels" in page


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_method_that_needs_the_noise_rate_gets_an_estimate(
    noisy: Manifest, tmp_path: Path
) -> None:
    done = audit(
        noisy, out=tmp_path / "audit", method="co-teaching+ours", folds=2, epochs=2, **HERE
    )
    assert {"network_1", "network_2"} <= set(done.scores.columns)
    assert done.scores["selected"].dropna().between(0, 1).all()  # none: it was in no full batch
    assert [p.name for p in (tmp_path / "audit" / "warmup").glob("[!.]*")] == ["noise.json"]
    used = read_facts(tmp_path / "audit" / "fits" / "fold0").config.noise_rate
    assert used == read_noise_estimate(tmp_path / "audit" / "warmup").rate


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_images_in_memory_are_written_for_the_review(tmp_path: Path) -> None:
    clean = generate(images=24, patients=8, size=32)
    done = audit(
        clean, out=tmp_path / "audit", folds=2, epochs=1, network="tiny", image_size=32, crop=28, batch_size=8,
        device="cpu",
    )  # fmt: skip
    for row, name in enumerate(clean.ids):
        image = done.scores.set_index("id").loc[name, "image"]
        np.testing.assert_array_equal(
            np.asarray(Image.open(tmp_path / "audit" / image)), clean.arrays[row]
        )
    [page] = report(tmp_path / "audit")
    assert page.read_text().count("data:image/jpeg;base64,") == 24


@pytest.mark.usefixtures("quick")
def test_bad_input_is_one_sentence(noisy: Manifest, tmp_path: Path) -> None:
    with refuses("unknown_name", says="'reader'"):
        audit(noisy, out=tmp_path / "audit", reader="raeder", **HERE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with refuses("folder_in_use", "out"):
        audit(noisy, out=tmp_path / "mine", **HERE)
    (tmp_path / "file").write_text("")
    with refuses("unwritable_file"):
        audit(noisy, out=tmp_path / "file" / "audit", **HERE)
    same = from_arrays(np.eye(8), np.zeros(8, int), names=["0", "1"], patients=range(8))
    with refuses("too_few"):
        audit(same, folds=2, epochs=1, device="cpu")
    assert not (tmp_path / "audit").exists()


QUICK = """
import functools, srjt.auditing.audit as a
a.estimate_noise = functools.partial(a.estimate_noise, bootstrap=3)
"""


@pytest.mark.slow
def test_a_killed_audit_resumes_to_identical_files(launcher: Any, tmp_path: Path) -> None:
    labels = write(generate(images=60, patients=12, size=32), tmp_path / "set")

    def command(out: Path) -> list[object]:
        return [
            "audit", labels, "--out", out, "--folds", 2, "--epochs", 4, "--network", "tiny", "--image-size", 32,
            "--crop", 28, "--batch-size", 8, "--learning-rate", 1e-3, "--device", "cpu",
            "--set", "checkpoint_seconds=0",
        ]  # fmt: skip

    whole, out = tmp_path / "whole", tmp_path / "out"
    pid = launcher.start(*command(whole), says=tmp_path / "says", setup=[QUICK])
    assert launcher.wait(pid) == 0, (tmp_path / "says").read_text()
    for fold in ("fold0", "fold1"):
        paused = Limit(tmp_path / "limit", epoch=2, within=fold)
        pid = launcher.start(*command(out), says=tmp_path / "says", setup=[QUICK, paused.code])
        code = launcher.wait_until(pid, (out / "fits" / fold / "metrics.csv").exists)
        assert code is None, (tmp_path / "says").read_text()
        os.kill(pid, signal.SIGKILL)
        assert launcher.wait(pid) == -signal.SIGKILL
    assert not (out / "audit.json").exists()
    pid = launcher.start(*command(out), says=tmp_path / "says", setup=[QUICK])
    assert launcher.wait(pid) == 0, (tmp_path / "says").read_text()
    for name in ("audit.csv", "summary.json", "neighbours.npz"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    assert list(out.rglob("*.tmp")) == []
    assert f"Next: srjt review {out}" in (tmp_path / "says").read_text()


# Where the networks of an audit look, on demand.
@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = srjt.data.synthetic.generate(images=40, patients=10, size=32)
    out = tmp_path_factory.mktemp("maps") / "audit"
    small = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    with pytest.MonkeyPatch.context() as patch:  # the estimate takes longer than the fits
        patch.setattr("srjt.auditing.audit.estimate_noise", counted)
        srjt.audit(data, out=out, folds=2, **small)
    return out


def test_every_line_has_a_map_per_network_of_its_own_fold(folder: Path) -> None:
    audit = read_audit(folder)
    assert set(audit.folds.tolist()) == {0, 1}
    plain, pictures = look_maps(audit, 0)
    assert plain.size == (320, 320)
    assert len(pictures) == len(audit.network_grades)
    assert all(picture.size == (320, 320) for picture in pictures)
    held_out_by = int(audit.folds[0])
    run = srjt.load_run(folder / "fits" / f"fold{held_out_by}")
    assert audit.ids[0] not in run.training_ids
    _, other = look_maps(audit, int(np.flatnonzero(audit.folds != audit.folds[0])[0]))
    assert np.asarray(other[0]).tobytes() != np.asarray(pictures[0]).tobytes()


def test_maps_are_of_the_networks_that_are_there_now(folder: Path, tmp_path: Path) -> None:
    audit = read_audit(shutil.copytree(folder, tmp_path / "audit"))
    line = int(np.flatnonzero(audit.folds == 0)[0])
    _, before = look_maps(audit, line)
    shutil.rmtree(audit.folder / "fits" / "fold0")
    shutil.copytree(folder / "fits" / "fold1", audit.folder / "fits" / "fold0")
    _, after = look_maps(audit, line)
    assert np.asarray(after[0]).tobytes() != np.asarray(before[0]).tobytes()


def test_the_review_serves_them(folder: Path, tmp_path: Path) -> None:
    with running(read_audit(folder), tmp_path / "d.sqlite") as client:
        status, headers, content = client.ask("/map/3")
    assert (status, headers["content-type"]) == (200, "image/jpeg")
    assert content.startswith(b"\xff\xd8\xff")


def test_without_the_networks_one_sentence_says_why(folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("fits"))
    with refuses("missing_file"):
        look_maps(read_audit(bare), 0)
    with running(read_audit(bare), tmp_path / "d.sqlite") as client:
        status, _, content = client.ask("/map/0")
    assert status == 404
    assert b"no longer in its folder" in content
