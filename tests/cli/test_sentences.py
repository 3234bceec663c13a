"""Sentences that people meet at the command line: a command, and the exact error that it ends with.

Other tests tell errors apart by code and option (refusals.py); those of the library are in
tests/test_sentences.py.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from fixtures.audit_folders import make_audit

from .conftest import Srjt

# RUN, LABELS, AUDIT and EMPTY are folders and a table; _ stands for a space.
SENTENCES: list[tuple[str, str]] = [
    ("train LABELS --out run --fold 5", "There is no fold 5: the folds have the numbers 0 to 4."),
    (
        "train LABELS --out run --folds 0",
        "--folds is the number of folds and must be at least 3; got 0. To choose one of five"
        " folds, use --fold 0.",
    ),
    (
        "train LABELS --out run --hold-out patient=p001 --fold 0",
        "--hold-out cannot be combined with --fold or --splits.",
    ),
    (
        "train LABELS --out run --official-split --fold 0",
        "--official-split cannot be combined with --fold, --splits or --hold-out.",
    ),
    (
        "train LABELS --out run --log htm",
        "Unknown tracker 'htm': did you mean 'html'? Known: html, mlflow, tensorboard, wandb.",
    ),
    (
        "features LABELS --out features.csv",
        "Features are written as an .npz file, and features.csv has another suffix. Use --out"
        " features.npz.",
    ),
    (
        "data split LABELS --out there.csv",
        "there.csv already exists: choose another file, or pass --force to overwrite it.",
    ),
    ("data corrupt LABELS", "Give the amount of noise: either --rate or --rho."),
    (
        "data synthetic new --images 100000000000000000000",
        "--images is too large: it must be smaller than 2**63.",
    ),
    ("predict nowhere LABELS", "nowhere is not the folder of a run: it contains no run.json."),
    ("predict RUN nowhere.png", "nowhere.png does not exist."),
    ("predict RUN EMPTY", "There are no images in EMPTY."),
    (
        "predict RUN LABELS --out there.csv",
        "there.csv already exists: choose another file, or pass --force to overwrite it.",
    ),
    (
        "predict RUN LABELS --out page.html",
        "--out writes the numbers. To write a page, use --html page.html.",
    ),
    ("predict RUN LABELS --html EMPTY", "EMPTY is a folder. --html needs the name of a file."),
    (
        "predict RUN LABELS --html same.csv --out same.csv",
        "--html and --out name the same file, same.csv. Give two names.",
    ),
    (
        "predict RUN table.csv --out table.csv --force",
        "table.csv would be overwritten, but this command reads it. Choose another name.",
    ),
    (
        "predict RUN LABELS --format dicom-sr --out reports --per patient",
        "--format dicom-sr cannot be combined with --per.",
    ),
    (
        "predict RUN LABELS --format dicom-sr --out reports.csv",
        "DICOM reports are written to a folder, and reports.csv is not one. Use --out reports.",
    ),
    (
        "predict RUN LABELS --network 3",
        "Unknown --network '3': there is no similar name. Known: 1, 2, ensemble.",
    ),
    (
        "predict RUN LABELS --views 3",
        "views is 1 (the centre), 2 (and its mirror) or 10 (and the corners); got 3.",
    ),
    ("predict RUN LABELS --coverage 2", "--coverage lies in (0, 1); got 2.0."),
    ("predict RUN LABELS --coverage-by grade", "--coverage-by needs --coverage, such as 0.9."),
    (
        "predict RUN LABELS --coverage 0.8 --views 2",
        "The validation side was predicted with one view. Use one view, or --calibrate-on, with"
        " labelled samples that it was not trained on.",
    ),
    (
        "predict RUN LABELS --calibrate-on 0.3",
        "--calibrate-on can be a share of the source only in an evaluation. Give labelled samples.",
    ),
    (
        "predict RUN LABELS --refer-from 7",
        "Unknown grade '7': there is no similar name. Known: 0, 1, 2, 3.",
    ),
    (
        "predict RUN LABELS --refer-from 0",
        "Every sample has at least the grade '0': refer from a higher grade (1, 2, 3).",
    ),
    (
        "predict RUN LABELS --sensitivity 0.9",
        "--sensitivity needs --refer-from, the lowest grade to refer.",
    ),
    (
        "predict RUN LABELS --refer-from 1 --threshold high",
        "--threshold takes a probability from 0 to 1, or 'grade'; got 'high'.",
    ),
    (
        "predict RUN LABELS --refer-from 1 --threshold 0.5 --sensitivity 0.9",
        "--threshold and --sensitivity cannot be combined.",
    ),
    ("predict RUN LABELS --abstain 2", "--abstain lies in (0, 1); got 2.0."),
    (
        "predict RUN LABELS --per patient --keep split",
        "--keep and --per cannot be combined: columns are kept for single images only.",
    ),
    (
        "predict RUN LABELS --per eye",
        "Unknown column (of the data to predict) 'eye': there is no similar name. Known: grade,"
        " image, patient, split, true_grade.",
    ),
    (
        "predict RUN LABELS --feature-columns f*",
        "--feature-columns is about features, and this run takes images: leave it out.",
    ),
    (
        "evaluate RUN LABELS",
        "The run was trained on 75 of the 120 images, and scores on them say nothing about new"
        " images: add --splits RUN to use its test side, or give images that the run has not"
        " seen.",
    ),
    (
        "evaluate RUN LABELS --out scores.csv",
        "A CSV file of scores needs --by, the groups. Without groups, --out needs a JSON file.",
    ),
    (
        "evaluate RUN LABELS --side tset",
        "Unknown side 'tset': did you mean 'test'? Known: test, train, validation.",
    ),
    (
        "evaluate RUN LABELS --side test --by sight",
        "Unknown column (for --by) 'sight': did you mean 'split'? Known: grade, id, image,"
        " patient, split, true_grade.",
    ),
    (
        "evaluate RUN LABELS --side test --by true_grade:ten",
        "true_grade:ten: the width of the groups must be a positive number, as in true_grade:10.",
    ),
    ("compare RUN", "A comparison needs at least two runs."),
    ("compare RUN RUN --images EMPTY", "--images needs --test, the images that it is about."),
    (
        "compare RUN RUN --test LABELS",
        "The run was trained on 75 of the 120 images, and scores on them say nothing about new"
        " images: leave out --test to use the runs' common test side, or give images that the"
        " run has not seen.",
    ),
    (
        "export RUN --out model.bin",
        "The format of model.bin is not clear from its name: use the suffix .onnx or .pt2.",
    ),
    (
        "export RUN --out model.onnx --folder new",
        "--folder and --out cannot be combined: a folder has its model as model.onnx.",
    ),
    (
        "export RUN --folder full",
        "full is not empty: choose another folder, or pass --force to write there.",
    ),
    (
        "plan",
        "Without a pilot, --value is required: the expected value of the metric, such as 0.9.",
    ),
    (
        "plan --metric mae --value 1.2",
        "An MAE of 1 or more includes errors of several grades, so --spread is required.",
    ),
    ("plan --metric qwk --value 1", "The qwk to plan for must lie between 0 and 1; got 1."),
    (
        "plan --metric qwk --value 0.8 --grade-shares 0.6,0.1",
        "--grade-shares are positive numbers with sum 1, such as 0.6,0.25,0.1,0.05; got '0.6,0.1'.",
    ),
    (
        "plan RUN --metric sensitivity",
        "The sensitivity of a pilot needs --refer-from, the lowest grade to refer.",
    ),
    ("audit LABELS --out new --jobs many", "--jobs must be a whole number or auto; got 'many'."),
    ("audit LABELS --out full", "full contains other files: choose another --out."),
    (
        "readers LABELS --per-reader 3",
        "--per-reader needs --next, the number of readings, as in --next 50.",
    ),
    (
        "review EMPTY",
        "EMPTY is not the folder of an audit (it contains no audit.json): create one with srjt"
        " audit labels.csv --out audit.",
    ),
    (
        "review AUDIT --reviewer _",
        "The reviewer's name is empty or contains characters that cannot be printed. Give"
        " another name with --reviewer.",
    ),
    (
        "review AUDIT --sample 5 --within 0.05",
        "--within and --sample cannot be combined: give one of them.",
    ),
    (
        "review AUDIT --at-random",
        "--at-random needs --sample or --within, which say how many labels to verify.",
    ),
    (
        "review AUDIT --sample 5 --limit 5",
        "--sample and --within cannot be combined with --limit or --alone: they choose the"
        " labels at random and hide them.",
    ),
    (
        "review AUDIT --worklist list.csv --alone",
        "--worklist cannot be combined with --sample, --within, --limit or --alone.",
    ),
    (
        "review AUDIT --within 0.9 --no-open",
        "--within is the half-width of an interval, between 0 and 0.5, such as 0.05; got 0.9.",
    ),
    (
        "review AUDIT --host 0.0.0.0 --no-open",
        "--host 0.0.0.0 would allow other machines to open the page. If this is intended, add"
        " --allow-remote.",
    ),
    (
        "review export AUDIT --blind",
        "--limit and --blind need --to, which writes tasks for another tool.",
    ),
    (
        "review export AUDIT --to label-studio --verified",
        "--to cannot be combined with --readings, --verified or --conflicts.",
    ),
    (
        "review export AUDIT --to label-studio --out tasks.csv",
        "Tasks are written as JSON, and tasks.csv has another suffix. Use --out tasks.json.",
    ),
    (
        "review export AUDIT --readings --verified",
        "--readings cannot be combined with --verified or --conflicts.",
    ),
    (
        "review export AUDIT --conflicts new.csv --out new.csv",
        "--conflicts and --out name the same file, new.csv. Give two names.",
    ),
    (
        "report EMPTY",
        "EMPTY is the folder of neither a study, a run nor an audit: it contains no study.json,"
        " run.json or audit.json.",
    ),
    ("report RUN --also AUDIT", "--also needs --checklist."),
    (
        "report RUN --checklist clam",
        "Unknown checklist 'clam': did you mean 'claim'? Known: claim, stard-ai, tripod-ai.",
    ),
    (
        "report RUN --checklist claim --figures new",
        "--checklist cannot be combined with --figures or --tables.",
    ),
    ("study status EMPTY", "EMPTY is not the folder of a study: there is no study.json in it."),
]


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_audit(tmp_path_factory.mktemp("sentences") / "audit", images=4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("words", "sentence"), SENTENCES)
def test_the_sentence(
    words: str,
    sentence: str,
    command: Srjt,
    finished: Path,
    labelled: Path,
    audit: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name, folder in (("RUN", finished), ("LABELS", labelled.parent), ("AUDIT", audit)):
        Path(name).symlink_to(folder)
    for name in ("EMPTY", "full"):
        Path(name).mkdir()
    for name in ("there.csv", "full/thesis.tex"):
        Path(name).write_text("mine")
    shutil.copy(labelled, "table.csv")
    words = re.sub(r"\bLABELS\b", "LABELS/labels.csv", words)
    arguments = [" " if word == "_" else word for word in words.split()]
    assert command.refuses(*arguments) == f"srjt: {sentence}\n"
