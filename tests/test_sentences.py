"""Sentences that people meet: an input, and the exact error that it gets.

Other tests tell errors apart by code and option (refusals.py), so that a better sentence is changed
in two places: where it is written, and here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srjt
from srjt import methods
from srjt.errors import SrjtError
from srjt.estimator import OrdinalNoiseClassifier
from srjt.networks.weights import read_weights
from srjt.ordinal import selection
from srjt.ordinal.metrics import confusion_matrix
from srjt.ranges import OrdinalRanges
from srjt.settings import load_config, parse_overrides
from srjt.studies.config import Execution, StudyConfig
from srjt.torch import JointLoss, OrdinalLoss
from srjt.training.config import TrainConfig

GRADED = "image,grade\na.png,0\nb.png,1\n"


def written(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def read(table: str, **options: Any) -> srjt.data.Manifest:
    return srjt.data.read(written("labels.csv", table), **options)


def ungraded() -> Path:
    np.savez("features.npz", features=np.zeros((2, 3)))
    return Path("features.npz")


def data() -> srjt.data.Manifest:
    return srjt.data.from_arrays(np.arange(20.0).reshape(10, 2), np.arange(10) % 2)


def config(**settings: Any) -> TrainConfig:
    return TrainConfig(**settings)


def study(**settings: Any) -> StudyConfig:
    return StudyConfig(**settings)


def train(**settings: Any) -> srjt.Run:
    return srjt.train(data(), **{"method": "standard", "epochs": 1, "device": "cpu", **settings})


SENTENCES: list[tuple[Callable[[], object], str]] = [
    # Settings of a training, of a study and of files
    (lambda: config(epochs="many"), "`epochs` takes a whole number; got 'many'."),
    (lambda: config(epochs=0), "`epochs` must be positive; got 0."),
    (lambda: config(noise_rate=1.5), "`noise_rate` lies in [0, 1); got 1.5."),
    (
        lambda: config(precision="tf23"),
        "Unknown `precision` 'tf23': did you mean 'tf32'? Known: auto, bf16, fp32, tf32.",
    ),
    (
        lambda: config(crop=64, image_size=32),
        "`crop` (64) cannot be larger than `image_size` (32).",
    ),
    (lambda: config(patience=3), "`patience` needs `keep='best'`, which looks for the best epoch."),
    (
        lambda: config(milestones=(3,), schedule="cosine"),
        "`milestones` are for `schedule='steps'`, not for 'cosine': leave out one of them.",
    ),
    (lambda: config(seed=-1), "`seed` cannot be negative; got -1."),
    (lambda: config(balance=2), "`balance` lies in [0, 1]; got 2.0."),
    (lambda: load_config(Path("run.yaml")), "There is no configuration file run.yaml."),
    (
        lambda: load_config(written("run.yaml", "- 1")),
        "run.yaml must hold settings as 'name: value' lines.",
    ),
    (
        lambda: load_config(written("run.yaml", "imports: os")),
        "run.yaml has the setting imports, but a file must not run code: name the modules on the command line, with `imports`.",
    ),
    (
        lambda: load_config(written("run.yaml", "a: 1\na: 2")),
        "run.yaml is not valid YAML: 'a' is set twice.",
    ),
    (
        lambda: parse_overrides(["epochs"]),
        "--set takes name=value, for example --set epochs=30; got 'epochs'.",
    ),
    (lambda: parse_overrides(["epochs=[1"]), "--set epochs=…: the value is not valid YAML: '[1'."),
    (
        lambda: parse_overrides(["imports=os"]),
        "--set imports=… would run code: name the modules on the command line, with `imports`.",
    ),
    (
        lambda: study(noises="quasi"),
        "Write noise as quasi:0.2, quasi:rho=0.1 or none; got 'quasi'.",
    ),
    (
        lambda: study(noises="qasi:0.2"),
        "Unknown noise 'qasi': did you mean 'quasi'? Known: none, quasi, truncated, uniform.",
    ),
    (
        lambda: study(methods="sord:alpha"),
        "Options of a method are written name=value; 'alpha' of 'sord:alpha' is not.",
    ),
    (
        lambda: study(train={"seed": 3}),
        "seed is a setting of the study, not of its trainings: give it outside of train.",
    ),
    (
        lambda: study(train={"soft_labels": "estimated"}),
        "A study sets soft labels by method: co-teaching+ours:label_matrix=estimated.",
    ),
    (
        lambda: study(splits="splits.csv", hold_out="site"),
        "`splits` has its folds already: leave out `hold_out`.",
    ),
    (lambda: study(seeds=[-1]), "`seeds` takes whole numbers from 0 up, at least one; got (-1,)."),
    (
        lambda: study(noise_rate="high"),
        "`noise_rate` takes a number such as 0.2, or auto; got 'high'.",
    ),
    (
        lambda: Execution(executor="ray", jobs=2),
        "`jobs` is an option of the executor 'local', not of 'ray'.",
    ),
    (
        lambda: srjt.study(None, out="study"),
        "A study needs data: give a source, or 'synthetic' for the synthetic dataset.",
    ),
    (
        lambda: srjt.study(data(), out="study"),
        "srjt.study takes a path or 'synthetic': each process reads the data itself.",
    ),
    # Methods and losses
    (
        lambda: methods.create("jocor", num_classes=4),
        "jocor needs the share of wrong labels: pass noise_rate=… (0.2 if a fifth of the labels is wrong).",
    ),
    (
        lambda: methods.create("garg", num_classes=4),
        'garg needs the matrix of label errors: pass transition=…, for example srjt.noise.transition_matrix("quasi", num_classes=4, rho=0.1).',
    ),
    (
        lambda: methods.create("sord", num_classes=1),
        "A severity needs at least two grades; num_classes is 1.",
    ),
    (
        lambda: methods.create("sord", num_classes=4, label_matrx=1),
        "Unknown option of sord 'label_matrx': did you mean 'label_matrix'? Known: label_matrix.",
    ),
    (lambda: methods.create("gce", num_classes=4, q=0.0), "q lies in (0, 1]; got 0.0."),
    (
        lambda: methods.create(
            "co-teaching", num_classes=4, noise_rate=0.2, temperature=0.5, select="soft"
        ),
        "temperature sharpens a hard selection only; with select='soft' it does nothing.",
    ),
    (
        lambda: methods.import_modules(["no_such_module"]),
        "`imports=['no_such_module']`: the module cannot be imported (ModuleNotFoundError: No module named 'no_such_module').",
    ),
    (
        lambda: methods.lookup("focal", registered_by=("my_methods",)),
        "The method 'focal' is registered by my_methods, which is not imported: add `imports=['my_methods']`, or import it first in Python.",
    ),
    (
        lambda: JointLoss("sord", num_classes=4),
        "sord trains one network: use srjt.torch.OrdinalLoss.",
    ),
    (
        lambda: OrdinalLoss("jocor", num_classes=4, noise_rate=0.2),
        "jocor trains two networks: use srjt.torch.JointLoss.",
    ),
    (
        lambda: OrdinalLoss("elr", num_classes=4)(torch.zeros(2, 4), torch.tensor([0, 1])),
        "elr remembers each training sample: create it with samples, their number, and pass rows, the positions of the batch among them.",
    ),
    (
        lambda: OrdinalLoss("eae", num_classes=4).set_epoch(1),
        "The loss of eae changes with the progress of the training: pass epochs.",
    ),
    (lambda: selection.keep_rate(0, noise_rate=0.2), "Epochs are counted from 1; got 0."),
    (lambda: selection.keep_rate(1, noise_rate=1.0), "A noise rate lies in [0, 1); got 1."),
    (
        lambda: confusion_matrix([0, 1, 2], [0, 1], num_classes=3),
        "Each sample has a true and a predicted grade; got 3 true and 2 predicted ones.",
    ),
    (
        lambda: OrdinalRanges().fit([[0.5, 0.6]], [0]),
        "Each row of the probabilities must be non-negative and sum to 1.",
    ),
    (
        lambda: OrdinalRanges(coverage=2).fit([[0.5, 0.5]], [0]),
        "`coverage` lies in (0, 1); got 2.0.",
    ),
    # Tables of labels
    (lambda: srjt.data.read("labels.csv"), "labels.csv does not exist."),
    (
        lambda: srjt.data.read(written("labels.doc", "x")),
        "labels.doc is neither a folder nor a file of a known kind (.csv, .tsv, .txt, .parquet, .xlsx, .npz, .npy).",
    ),
    (lambda: srjt.data.read(None), "Labels are read from a path or a DataFrame; got NoneType."),
    (
        lambda: srjt.data.read("."),
        ". has no images in subfolders, one per grade. With a table of images and grades, give the table in place of the folder, with `images='.'`.",
    ),
    (
        lambda: srjt.data.read(ungraded(), kind="folder"),
        "Unknown kind of source 'folder': did you mean 'folders'? Known: dr, features, folders, limuc, medmnist, table.",
    ),
    (lambda: read(""), "labels.csv is empty."),
    (
        lambda: read("image,grade\n"),
        "There are no rows in labels.csv that can be used: it has only a header.",
    ),
    (
        lambda: read("file,note\na.png,x\n"),
        "No column of labels.csv looks like the grade: give its name with `grade_column`. Columns: file, note. If several readers graded each image, add `several_readings='consensus'`.",
    ),
    (
        lambda: read("image,grade,grade\na.png,0,1\n"),
        "There are two columns named 'grade' in labels.csv.",
    ),
    (
        lambda: read("image,grade\na.png,0,1\n"),
        "There are no rows in labels.csv that can be used: line 2: 3 cells where the header has 2.",
    ),
    (
        lambda: read(GRADED, grade_column="grades"),
        "Unknown column (for the grade, in labels.csv) 'grades': did you mean 'grade'? Known: grade, image.",
    ),
    (lambda: read(GRADED, images="nowhere"), "The image folder nowhere does not exist."),
    (
        lambda: read(GRADED, map_grades="R0"),
        "`map_grades` takes the source's grades and the grades that they are, such as R0=0,R1=1; got 'R0'.",
    ),
    (
        lambda: read(GRADED, grades=["mild", "severe", "mild"]),
        "A grade is listed twice: mild, severe, mild.",
    ),
    (
        lambda: read("image,grade\na.png,mild\nb.png,severe\n"),
        "The order of the grades mild, severe is not known: list them from mild to severe with `grades`.",
    ),
    (
        lambda: read("image,grade\na.png,0\nb.png,2\n"),
        "The grades 0, 2 have a gap at 1: list all grades from mild to severe with `grades`.",
    ),
    (
        lambda: read("image,grade\na.png,1\nb.png,1\n"),
        "Only one grade occurs (1): at least two are needed.",
    ),
    (lambda: read("image,grade\na.png,\nb.png,\n"), "No sample has a grade."),
    (
        lambda: read("image,grade\na.png,a\nb.png,b\n", grades=["c", "d"]),
        "None of the grades a, b is among those listed: c, d.",
    ),
    (
        lambda: read("image,grade\na.png,2024-01-03\nb.png,2024-05-01\n"),
        "2024-01-03, 2024-05-01 are dates or times, not grades: choose another column with `grade_column`.",
    ),
    (
        lambda: read("image,grade,set\na.png,0,left\nb.png,1,test\n", split_column="set"),
        "The column 'set' must be train, validation or test, not 'left'.",
    ),
    (
        lambda: read(
            "image,grade,true_grade\na.png,0,0\nb.png,1,\n", true_grade_column="true_grade"
        ),
        "The true grade is known in 1 of 2 rows: fill it in, or leave the column out.",
    ),
    (
        lambda: read("image,reader,grade\na.png,ann,0\na.png,bob,1\n", reader_column="reader"),
        "`reader_column` is for several readings of an image: add `several_readings='consensus'`.",
    ),
    (
        lambda: read("id,grade,a,b\n1,0,1,2\n2,1,3,4\n", feature_columns="f*"),
        "No column of labels.csv matches 'f*' (features). Columns: id, grade, a, b.",
    ),
    (
        lambda: read("id,grade,f1,f2\n1,0,1,2\n2,1,x,4\n", feature_columns="f*"),
        "labels.csv, line 3: 'x' in 'f1' is not a number.",
    ),
    (
        lambda: srjt.data.read(ungraded()),
        "features.npz has no grades: add an array named grades, features.csv beside it, or any table by `labels`.",
    ),
    (
        lambda: srjt.data.read(ungraded(), labels="nowhere.csv"),
        "The table of labels nowhere.csv does not exist.",
    ),
    (
        lambda: srjt.data.read_readings(
            written("labels.csv", "image,reader,grade,date\na.png,ann,0,later\na.png,bob,1,soon\n"),
            date_column="date",
        ),
        "The column 'date' holds no date such as 2024-05-31, but 'later': choose another `date_column`.",
    ),
    # Arrays and splits
    (
        lambda: srjt.data.from_arrays(np.zeros((2, 4, 4)), [0, 1]),
        "Images must be uint8, not float64: for values from 0 to 1, (255 * images).round().astype('uint8').",
    ),
    (
        lambda: srjt.data.from_arrays(np.zeros((2, 3, 4, 4), np.uint8), [0, 1]),
        "Images have the shape (N, H, W), (N, H, W, 1) or (N, H, W, 3), not (2, 3, 4, 4).",
    ),
    (
        lambda: srjt.data.from_arrays(np.zeros((3, 2)), [0, 1]),
        "grade has 2 entries for 3 samples: give one for each.",
    ),
    (
        lambda: srjt.data.from_arrays(np.full((2, 2), np.nan), [0, 1]),
        "The features must be finite: row 0, column 0 (from 0) is nan.",
    ),
    (
        lambda: srjt.data.from_arrays(np.zeros((2, 2)), [0, 1], ids=["a", "a"]),
        "The ids must be unique, but at least one occurs twice.",
    ),
    (
        lambda: srjt.data.from_arrays(np.zeros((2, 2)), [0, 1], split=["left", "test"]),
        "The split must be train, validation or test, not 'left'.",
    ),
    (
        lambda: srjt.data.folds(data(), folds=2),
        "At least 3 folds are needed for train, validation and test, not 2.",
    ),
    (
        lambda: srjt.data.folds(data(), folds=11),
        "11 folds need at least 11 patients; there are 10.",
    ),
    (
        lambda: srjt.data.folds(data(), hold_out="site"),
        "Unknown column (for `hold_out`) 'site': there is no similar name. Known: grade, id, image.",
    ),
    (
        lambda: srjt.data.official_split(data()),
        "The data have no published split: name its column with `split_column`.",
    ),
    (
        lambda: srjt.data.read_splits(written("splits.csv", "id,side\n1,train\n"), data()),
        "splits.csv does not hold a split: it needs the columns id, fold, split.",
    ),
    (
        lambda: srjt.data.read_splits(written("splits.csv", "id,fold,split\n0,0,tset\n"), data()),
        "splits.csv, line 2: the split must be train, validation or test, not 'tset'.",
    ),
    # Training, and the folders of runs
    (
        lambda: train(split=0),
        "split takes a Split, a function that makes one from the data, or 'all', not 0: the first of five folds is split=srjt.data.folds(data)[0].",
    ),
    (
        lambda: train(network="resnet18"),
        "The network 'resnet18' reads images, but these data are rows of features: choose 'odds' or 'mlp', or leave it out.",
    ),
    (lambda: train(device="gpu"), "Unknown device 'gpu': use cpu, cuda or cuda:N."),
    (
        lambda: train(precision="bf16"),
        "`precision='bf16'` is for a GPU: most CPUs are slower with it. Use `precision='fp32'` on a CPU.",
    ),
    (
        lambda: train(method="jocor"),
        "jocor needs the share of wrong labels: `noise_rate=0.2` if a fifth of them is wrong, `noise_rate='auto'` to estimate it, or `method='srjt'`, which needs none.",
    ),
    (
        lambda: train(network="odds", method="gce"),
        "The network 'odds' is fitted at once by the likelihood of the labels, and gce learns in another way: use the method standard, f-correction or srjt, or the network 'mlp'.",
    ),
    (
        lambda: train(keep="best"),
        "`keep='best'` chooses the epoch by the validation side, and this run has none: add `split` or a split column, or use `keep='last'`.",
    ),
    (
        lambda: train(reader_targets="posterior"),
        "reader_targets 'posterior' needs the grades of several readers: read the data with `several_readings='consensus'`.",
    ),
    (
        lambda: train(soft_labels="estimated"),
        "`soft_labels='estimated'` needs `noise_rate='auto'`: they are computed from its estimate.",
    ),
    (
        lambda: train(backbone="resnet18"),
        "These data are features already: the backbone 'resnet18' cannot be applied to them.",
    ),
    (lambda: read_weights(Path("net.pth")), "There is no weights file at net.pth."),
    (
        lambda: read_weights(written("net.pth", "text")),
        "net.pth holds no weights: it is damaged, or another kind of file.",
    ),
    (lambda: srjt.load_run("run"), "run is not the folder of a run: it contains no run.json."),
    (
        lambda: srjt.load_run(written("run", "x")),
        "run is a file: give the folder of a run, which srjt train --out wrote.",
    ),
    (
        lambda: srjt.load_run("hf://me"),
        "hf://me is not the address of a run, hf://owner/name[@revision].",
    ),
    (
        lambda: srjt.load_run(3),
        "A run is what srjt.train returns, or the path of its folder; got int.",
    ),
    (
        lambda: OrdinalNoiseClassifier(grades=["a", "a"]).fit([[0.0], [1.0]], ["a", "b"]),
        "`grades` must list at least two grades, each once; got a, a.",
    ),
    (
        lambda: OrdinalNoiseClassifier(settings={"seed": 1}).fit([[0.0], [1.0]], [0, 1]),
        "seed cannot be among the settings: it is the parameter random_state.",
    ),
    (
        lambda: OrdinalNoiseClassifier().fit([[0.0], [1.0]], [1, 1]),
        "All labels are of one class, 1: there is nothing to learn.",
    ),
    (
        lambda: OrdinalNoiseClassifier().fit([[0.0], [1.0]], [0, 1], sample_weight=[1.0]),
        "sample_weight needs one number per row: shape (2,), not (1,).",
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("wrong", "sentence"), SENTENCES)
def test_the_sentence(
    wrong: Callable[[], object],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SrjtError) as raised:
        wrong()
    assert str(raised.value) == sentence
