"""A language model as one more reader: its file of answers, and scores that its errors do not
spoil."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from srjt.data import read_readings
from srjt.data.sources.answers_file import with_answers
from srjt.errors import SrjtError
from srjt.inference.answers import Answers
from srjt.inference.aspects.referral import ReferralRule
from srjt.inference.true_scores import true_scores

PEOPLE = pd.DataFrame(
    {
        "image": ["x/a.png", "x/a.png", "x/b.png", "x/c.png"],
        "reader": ["kim", "lee", "kim", "lee"],
        "grade": ["0", "1", "2", "1"],
        "patient": ["p", "p", "q", "r"],
    }
)


def save(folder: Path, **columns: list[object]) -> Path:
    path = folder / "model.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_answers_are_readings_of_one_more_reader(tmp_path: Path) -> None:
    """Also of items that nobody has read; an answer that is no grade is a problem of the table."""
    file = save(tmp_path, image=["a.png", "b.png", "new.png", "c.png"], answer=[0, 2, 1, "unsure"])
    found = with_answers(read_readings(PEOPLE), file)
    readings = found.readings
    assert readings.readers == ["kim", "lee", "model"]
    own = readings.reader == readings.readers.index("model")
    said = dict(zip(np.array(readings.items)[readings.item[own]], readings.grade[own], strict=True))
    assert said == {"x/a.png": 0, "x/b.png": 2, "new.png": 1}
    assert len(readings) == 7
    assert len(found.problems) == 1
    patients = dict(zip(readings.items, readings.groups or (), strict=True))
    assert (patients["x/a.png"], patients["x/b.png"]) == ("p", "q")


def test_a_wide_table_and_a_program_that_answered_twice(tmp_path: Path) -> None:
    wide = pd.DataFrame({"image": ["a", "b"], "grade_kim": [0, 2], "grade_lee": [1, None]})
    people = read_readings(wide, grade_column="grade_*", grades=["0", "1", "2"])
    found = with_answers(people, save(tmp_path, id=["a", "a", "b"], label=[1, 1, 0]))
    assert found.readings.readers == ["kim", "lee", "model"]
    own = found.readings.reader == 2
    assert found.readings.item[own].tolist() == [0, 0, 1]  # as a person who reads an image again
    assert found.readings.grade[own].tolist() == [1, 1, 0]


def test_what_the_program_claims_to_be_sure_of_is_a_reader_of_its_own(tmp_path: Path) -> None:
    people = read_readings(PEOPLE)
    names = ["a.png", "b.png", "c.png"]
    sure = save(tmp_path, image=names, answer=[0, 2, 1], probability=[0.9, 0.6, 0.8])
    readings = with_answers(people, sure).readings
    assert readings.readers == ["kim", "lee", "model (certain)", "model (less certain)"]
    less = readings.reader == 3
    assert [readings.items[row] for row in readings.item[less]] == ["x/b.png"]
    always = save(tmp_path, image=names, answer=[0, 2, 1], confidence=[0.9, 0.9, 0.9])
    assert with_answers(people, always).readings.readers == ["kim", "lee", "model"]


def test_a_file_that_holds_no_answers_is_one_sentence(tmp_path: Path) -> None:
    people = read_readings(PEOPLE)
    with pytest.raises(SrjtError, match="no column answer, grade or label"):
        with_answers(people, save(tmp_path, image=["a.png"], text=["mild"]))
    with pytest.raises(SrjtError, match="no answer that is one of the readers' grades"):
        with_answers(people, save(tmp_path, image=["a.png"], answer=["mild"]))
    with pytest.raises(SrjtError, match="has no image that people have read"):
        with_answers(people, save(tmp_path, image=["z.png"], answer=[1]))
    crowd = read_readings(PEOPLE.drop(columns="reader"))
    with pytest.raises(SrjtError, match="do not say whose they are"):
        with_answers(crowd, save(tmp_path, image=["a.png"], answer=[1]))


@pytest.mark.slow
def test_a_perfect_classifier_is_recognised_although_the_labels_are_a_model_s(
    tmp_path: Path,
) -> None:
    """Of the model's positives about half are right, so a perfect classifier seems to find half.
    Its matrix comes from 400 images that two people have read, and so does the score."""
    rng = np.random.default_rng(0)
    true = (np.arange(2000) < 200).astype(np.int64)  # prevalence 10 %
    order = rng.permutation(2000)[:400]

    def read(sensitivity: float, specificity: float) -> np.ndarray:
        return np.where(rng.random(2000) < np.where(true, sensitivity, specificity), true, 1 - true)

    model = read(0.9, 0.911)
    seeming = model[true == 1].sum() / model.sum()
    assert seeming == pytest.approx(0.53, abs=0.04)
    names = np.array([f"{row}.png" for row in range(2000)])
    parts = []
    for reader in ("kim", "lee"):
        grade = read(0.95, 0.98)[order]
        parts.append(pd.DataFrame({"image": names[order], "reader": reader, "grade": grade}))
    file = save(tmp_path, image=names.tolist(), answer=model.tolist())
    readings = with_answers(read_readings(pd.concat(parts)), file).readings
    place = {name: row for row, name in enumerate(readings.items)}
    rows = np.argsort([place[name] for name in names])
    answers = Answers(
        probabilities=np.eye(2)[true][rows], grades=true[rows], labels=model[rows], groups=None
    )
    refer = ReferralRule(position=1, threshold=None, origin="")
    found = true_scores(answers, refer=refer, readings=readings, resamples=20)
    assert found is not None
    assert found.apart["sensitivity"].value > 0.9
    assert found.scores["sensitivity"].high > 0.99
    # two people's grades of a random part, taken for true
    verified = np.full(2000, -1)
    verified[order] = true[order]
    known = true_scores(answers, refer=refer, verified=verified[rows])
    assert known is not None
    assert known.scores["sensitivity"].value > 0.97
    assert known.scores["sensitivity"].low > 0.85
