"""Every sentence and every fact on the page of an audit is true, with and without patients, images and true grades."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reports.page_text import Rule, all_sections, check, facts_of
from reports.test_audit_page import write_folder
from srjt.auditing.folder import read_audit
from srjt.reports.pages import audit as audit_noise_section
from srjt.reports.pages import audit as audit_page

pytestmark = pytest.mark.slow

RULES: dict[str, Rule] = {
    r"About \d+% of (?P<n>\d+) labels are wrong \(95 % interval: \d+% to \d+%\)\.": (
        lambda f, m: f["identifiable"] and int(m["n"]) == f["samples"]
    ),
    r"The data do not determine how many of (?P<n>\d+) labels are wrong: (?P<low>\d+)% to (?P<high>\d+)%; a guess is "
    r"(?P<rate>\d+)%\.": (
        lambda f, m: not f["identifiable"] and int(m["n"]) == f["samples"]
        and int(m["low"]) <= int(m["rate"]) <= int(m["high"])
    ),
    r"The data do not determine how many of (?P<n>\d+) labels are wrong: \d+% to \d+%\.": (
        lambda f, m: not f["identifiable"] and not f["learnt"] and int(m["n"]) == f["samples"]
    ),
    r"The networks do not beat a naive prediction: .+": lambda f, m: f["naive"],
    r"The networks have not learnt to tell the grades apart: .+": lambda f, m: not f["learnt"],
    r"Longer trainings or more samples may help the networks to learn the grades\.": lambda f, m: not f["learnt"],
    r"All labels, in the order of the list, which may be chance\.": lambda f, m: not f["learnt"],
    r"In the order of the list": lambda f, m: not f["images"] and not f["learnt"],
    r"To review and correct the labels:": lambda f, m: not f["learnt"],
    r"For (?P<n>\d+) labels? another grade is more probable than the given one\.": (
        lambda f, m: f["learnt"] and int(m["n"]) == f["another"] and ("labels" in m[0]) == (f["another"] != 1)
    ),
    r"The data do not determine how many labels are wrong \(.+\): use the rate and the matrix as a guess only\.": (
        lambda f, m: not f["identifiable"]
    ),
    r"The ranking of the labels can be useful all the same\.": lambda f, m: not f["identifiable"] and f["learnt"],
    r"Verify (?P<n>\d+) labels, drawn at random, to know the rate within ±5%\.": (
        lambda f, m: 0 < int(m["n"]) <= f["samples"]
    ),
    r"Estimated from all (?P<n>\d+) labels and 5 trainings of \d+ epochs; srjt train .+ its rate may differ\.": (
        lambda f, m: int(m["n"]) == f["samples"]
    ),
    r"There are no patient ids\.": lambda f, m: not f["patients"],
    r"If several samples belong to one patient, a label may have been judged by networks that were trained .+": (
        lambda f, m: not f["patients"]
    ),
    r"The probability of each label \(column\) for each true grade \(row\)\.": (
        lambda f, m: f["learnt"] or f["identifiable"] or f["truth"]
    ),
    r"The diagonal is correct labels\.": lambda f, m: f["learnt"] or f["identifiable"] or f["truth"],
    r"The probability that each label is right\.": lambda f, m: f["learnt"],
    r"Review those on the left\.": lambda f, m: f["learnt"],
    r"All labels, the most doubtful first, with the probability that each one is right\.": (
        lambda f, m: f["samples"] <= 60 and f["learnt"]
    ),
    r"The 60 most doubtful labels, the most doubtful first, .+": lambda f, m: f["samples"] > 60,
    r"“A → B” is a label A for which grade B is suggested\.": lambda f, m: f["images"] and f["learnt"],
    r"The networks, held out, give (?P<accuracy>\d+)% of the labels \(always the most frequent: (?P<naive>\d+)%\) "
    r"and are \d\.\d+ grades away on average \(always the median: \d\.\d+\)\.": (
        lambda f, m: int(m["accuracy"]) == round(100 * f["accuracy"]) and int(m["naive"]) == round(100 * f["frequent"])
    ),
    r"Of the labels of each grade they give .+": lambda f, m: m[0].count("%") == f["grades"],
    r"Held-out grades of the networks, compared with the labels, .+": lambda f, m: True,
    r"Recall of each given grade": lambda f, m: True,
    r"Recognised: the networks give the grade more often to .+": lambda f, m: True,
    r"No grade is suggested from or to one that is not recognised\.": lambda f, m: True,
    r"The first ones are identical images with different labels, side by side: one of these labels is wrong for .+": (
        lambda f, m: f["twins"] and f["images"]
    ),
    r"Most doubtful first": lambda f, m: not f["images"] and f["learnt"],
    r"All labels are in audit\.csv\.": lambda f, m: True,
    r"Expected errors are the sum of 1 − quality, where quality is the probability that a label is right\.": (
        lambda f, m: f["learnt"]
    ),
    r"The intervals are Wilson intervals: .+": lambda f, m: f["learnt"],
    r"By given grade": lambda f, m: f["learnt"],
    r"By reader, most errors first": lambda f, m: f["readers"] and f["learnt"],
    r"By patient, most errors first(: 20 of \d+)?": lambda f, m: f["patients"] and f["learnt"],
    r"All patients are in summary\.json\.": lambda f, m: f["patients"],
    r"Every label was judged by networks that were not trained on its (?P<thing>sample|image)\.": (
        lambda f, m: not f["patients"] and m["thing"] == f["thing"]
    ),
    r"Every label was judged by networks that were trained on neither its (?P<thing>sample|image) nor any other "
    r"(?P=thing) of the same patient\.": lambda f, m: f["patients"] and m["thing"] == f["thing"],
    r"To review and correct the doubtful labels:": lambda f, m: f["learnt"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("patients", "features", "identifiable", "truth", "images", "twins", "learnt"),
    [
        *product([False, True], [False, True], [False, True], [False, True], [12], [False], [True]),
        (True, True, True, False, 64, False, True),
        (True, False, True, False, 12, True, True),
        *((True, *three, 12, False, False) for three in product([False, True], repeat=3)),
        (True, False, False, False, 12, True, False),
    ],
)
def test_the_page_of_an_audit_is_true(
    patients: bool,
    features: bool,
    identifiable: bool,
    truth: bool,
    images: int,
    twins: bool,
    learnt: bool,
    make_audit_folder: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("matrix_figure", "_histogram"):  # captions are checked, not drawings
        monkeypatch.setattr(audit_noise_section, name, lambda *args, **kwargs: None)
    folder = write_folder(
        tmp_path / "audit", make_audit_folder, images=images, patients=patients, features=features, truth=truth,
        identifiable=identifiable, reason="" if identifiable else "there are few labels.", learnt=learnt,
    )  # fmt: skip
    if twins:
        scores = pd.read_csv(folder / "audit.csv")
        scores["twins"] = ["1", "1", *[""] * (images - 2)]
        scores.to_csv(folder / "audit.csv", index=False)
    audit = read_audit(folder)
    page = audit_page.audit_page(folder)
    facts = {
        "samples": images,
        "another": int((audit.suggested != audit.labels).sum()),
        "accuracy": np.mean([grades == audit.labels for grades in audit.network_grades]),
        "frequent": np.bincount(audit.labels).max() / images,
        "grades": len(set(audit.labels.tolist())),
        "identifiable": identifiable,
        "patients": patients,
        "readers": True,
        "twins": twins,
        "truth": truth,
        "learnt": learnt,
        "naive": not learnt,
        "images": not features,
        "thing": "sample" if features else "image",
    }
    check(page, RULES, facts)
    shown = facts_of(page)
    assert shown["samples"] == str(images)
    assert ("known wrong labels" in shown) == truth
    assert shown.get("expected wrong labels", f"not shown of {images}").endswith(f" of {images}")
    assert ("expected wrong labels" in shown) == learnt
    assert ("likeliest form of noise" in shown) == (learnt or identifiable)
    assert ("a guess" in shown["noise rate"]) == (learnt and not identifiable)
    assert ("not determined" in shown["noise rate"]) == (not learnt and not identifiable)
    assert (shown["method"], shown["network"], shown["folds"]) == ("co-teaching+ours", "tiny", "5")
    tables = {table.slug for section in all_sections(page) for table in section.tables}
    assert ("rates-patient" in tables) == (patients and learnt)
    assert ("worst" in tables) == features
    suggestions = [
        tile.title for section in all_sections(page) for tile in section.tiles if "→" in tile.title
    ]
    assert bool(suggestions) == (learnt and not features)
    tiles = [tile.text for section in all_sections(page) for tile in section.tiles]
    assert ["identical images, 1" in text for text in tiles] == [
        twins and line < 2 for line in range(len(tiles))
    ]
