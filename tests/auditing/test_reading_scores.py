"""The audit of several readers: readers and networks together, and which reading is doubtful."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import srjt
from srjt.auditing.scores import combined_readings, score_readings
from srjt.data import read
from srjt.data.sources.readings import combine, select_readings
from srjt.readers import Readings

READERS = ("anna", "bo", "carl")  # carl errs most


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features from which the true grade follows, and three readings of each sample."""
    folder = tmp_path_factory.mktemp("readings")
    draw = np.random.default_rng(0)
    truth = draw.integers(3, size=90)
    features = truth[:, None] + 0.3 * draw.normal(size=(90, 4))
    ids = [f"s{k:02d}" for k in range(90)]
    np.savez(folder / "f.npz", features=features.astype(np.float32), ids=np.array(ids), truth=truth)
    rows = [
        {
            "id": name,
            "reader": reader,
            "grade": int(np.clip(grade + step, 0, 2)),
            "patient": f"p{k // 3}",
        }
        for k, (name, grade) in enumerate(zip(ids, truth, strict=True))
        for reader, error in zip(READERS, (0.1, 0.1, 0.5), strict=True)
        for step in [draw.choice([-1, 1]) if draw.random() < error else 0]
    ]
    pd.DataFrame(rows).to_csv(folder / "readings.csv", index=False)
    return folder


def test_readings_follow_the_samples() -> None:
    given = Readings(
        items=["a", "b", "c"], readers=["x", "y"], grades=("0", "1"), item=np.array([0, 1, 2, 2]),
        reader=np.array([0, 0, 0, 1]), grade=np.array([0, 1, 0, 1]), groups=["p", "q", "q"],
        reference=np.array([-1, 1, 0]),
    )  # fmt: skip
    found = select_readings(
        given, ["c", "a"]
    )  # b was left out, for example because its image is damaged
    assert found.items == ["c", "a"]
    assert found.item.tolist() == [1, 0, 0]
    assert found.grade.tolist() == [0, 0, 1]
    assert found.groups == ["q", "p"]
    assert found.reference.tolist() == [0, -1]


def test_the_most_doubtful_reading_is_first() -> None:
    given = Readings(
        items=["a", "b"], readers=["=x", "y"], grades=("0", "1"), item=np.array([0, 0, 1]),
        reader=np.array([0, 1, 1]), grade=np.array([0, 1, 1]),
    )  # fmt: skip
    ranked = score_readings(given, np.array([[0.9, 0.1], [0.4, 0.6]]))
    assert ranked["id"].tolist() == ["a", "b", "a"]
    assert ranked["quality"].tolist() == pytest.approx([0.1, 0.6, 0.9])
    assert ranked["suggested"].tolist() == ["0", "1", "0"]
    assert ranked["reader"].tolist() == ["y", "y", "'=x"]


@pytest.mark.slow
def test_an_audit_names_the_reader_and_the_readings_that_are_wrong(
    table: Path, tmp_path: Path
) -> None:
    reading = read(table / "f.npz", labels=table / "readings.csv", several_readings="consensus")
    found = srjt.audit(
        reading, readings=reading.report.readings, out=tmp_path / "audit", folds=2, epochs=15, device="cpu",
        learning_rate=1e-2,
    )  # fmt: skip
    assert len(found.readings) == 270
    assert found.summary["readers"][0]["reader"] == "carl"  # the highest rate
    truth = dict(zip(reading.ids, np.load(table / "f.npz")["truth"].astype(str), strict=True))
    wrong = (found.readings["grade"] != found.readings["id"].map(truth)).to_numpy()
    assert wrong[: int(wrong.sum())].mean() > 0.8  # by chance about 0.23
    written = pd.read_csv(tmp_path / "audit" / "readings.csv", dtype=str)
    assert written["id"].tolist() == found.readings["id"].tolist()
    srjt.write_report(tmp_path / "audit")
    page = (tmp_path / "audit" / "report.html").read_text()
    assert "The 60 most doubtful readings" in page
    own = select_readings(reading.report.readings, found.fitted.manifest.ids)
    agreed = combine(
        own, probabilities=found.fitted.probabilities
    )  # what srjt readers says of the same
    wrong_grades, wrong_readings = agreed.error, agreed.overall_noise_rate
    assert found.summary["rate_interval"] == list(agreed.error_interval)
    carl = agreed.readers.index("carl")
    assert found.summary["readers"][0]["interval"] == pytest.approx(
        agreed.noise_rate_interval[:, carl], abs=1e-4
    )
    assert f"About {wrong_grades:.0%} of the consensus grades are wrong" in page
    assert f"About {wrong_readings:.0%} of the 270 readings are wrong." in page
    assert " labels are wrong" not in page  # they are consensus grades
    assert "wrong consensus grades" in page
    assert repr(found).startswith(f"<Audit: 90 consensus grades, wrong: {wrong_grades:.1%} (")


@pytest.mark.slow
@pytest.mark.parametrize("verified", [0, 5, 60])
def test_verified_grades_say_how_many_consensus_grades_are_wrong(
    table: Path, verified: int
) -> None:
    """The consensus takes them as known: what is left of its own error is not the share of wrong
    grades, which the verified ones show."""
    reading = read(table / "f.npz", labels=table / "readings.csv", several_readings="consensus")
    truth = np.load(table / "f.npz")["truth"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(reading))[:verified]
    known = np.full(len(reading), -1)
    known[order] = truth[order]
    proved = order[::2]  # of these, the consensus grade proves wrong
    known[proved] = (reading.labels[proved] + 1) % 3
    samples = reading
    if verified:
        samples = replace(reading, table=reading.table.assign(verified_grade=known))
    found = srjt.audit(
        samples, readings=reading.report.readings, folds=2, epochs=2, device="cpu", progress=False
    )
    summary = found.summary
    low, high = summary["rate_interval"]
    assert low <= summary["rate"] <= high
    own = select_readings(reading.report.readings, found.fitted.manifest.ids)
    agreed = combined_readings(own, found.fitted)
    wrong = (known[order] != reading.labels[order]).sum()
    if found.estimate.identifiable and verified:
        assert (summary["rate"], low, high) == (
            found.estimate.rate, *found.estimate.rate_interval
        )  # fmt: skip
        assert abs(summary["rate"] - wrong / verified) < 0.15
    else:
        shift = wrong / len(reading)
        assert summary["rate"] == pytest.approx(agreed.error + shift)
        ends = [end + shift for end in agreed.error_interval]
        assert summary["rate_interval"] == pytest.approx(ends)
    assert found.estimate.identifiable == (verified == 60)  # 5 are too few
