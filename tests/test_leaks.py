"""Nothing leaks: no command that splits puts a patient or an image on two sides."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from PIL import Image

import srjt
from srjt.data.splits import assign_folds
from srjt.errors import SrjtError
from srjt.studies.config import StudyConfig
from srjt.studies.plan import open_data

Rows = list[tuple[int, int | None]]  # image number, and patient or none

# of each sample: images repeat within and between patients
samples = st.lists(
    st.tuples(st.integers(0, 40), st.none() | st.integers(0, 15)), min_size=20, max_size=60
)
IMAGES = np.random.default_rng(0).integers(0, 256, size=(41, 32, 32, 3), dtype=np.uint8)
TRAIN = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1}
TOO_FEW = "folds need at least"

pytestmark = pytest.mark.filterwarnings("ignore::srjt.data.LeakageWarning")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SRJT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


class Seen(Exception):  # noqa: N818
    """Stops a command once its split is known."""


def table_of(rows: Rows, *, patients: bool) -> pd.DataFrame:
    names = [f"{row}.png" for row in range(len(rows))]
    grades = [(image + row) % 3 for row, (image, _) in enumerate(rows)]
    table = pd.DataFrame({"image": names, "grade": grades})
    if patients:
        table["patient"] = ["" if patient is None else f"p{patient}" for _, patient in rows]
    return table


def assert_apart(rows: Rows, sides: Iterable[npt.ArrayLike], *, patients: bool) -> None:
    """No image and no patient is on two sides."""
    side_of: dict[object, int] = {}
    for side, members in enumerate(sides):
        for row in np.asarray(members).tolist():
            image, patient = rows[row]
            assert side_of.setdefault(("image", image), side) == side
            if patients and patient is not None:
                assert side_of.setdefault(("patient", patient), side) == side


def enough_groups(split: Callable[[], Any]) -> Any:
    """The result; None if there are fewer groups than folds, which is an error."""
    try:
        return split()
    except SrjtError as problem:
        if TOO_FEW not in str(problem):
            raise
        return None


@settings(deadline=None, max_examples=30)
@given(samples, st.booleans(), st.integers(0, 3), st.sampled_from(["stratified", "random"]))
def test_folds_and_cross_fitting(rows: Rows, patients: bool, seed: int, by: str) -> None:
    table = table_of(rows, patients=patients)
    images, owners = (
        IMAGES[[image for image, _ in rows]],
        table["patient"].tolist() if patients else None,
    )
    manifest = srjt.data.from_arrays(images, table["grade"], patients=owners)
    splits = enough_groups(lambda: srjt.data.folds(manifest, folds=3, seed=seed, by=by))
    for split in splits or ():
        assert_apart(rows, split.sides().values(), patients=patients)
        assert sum(len(side) for side in split.sides().values()) == len(rows)
    parts = enough_groups(lambda: assign_folds(manifest, folds=2, seed=seed, by=by))
    if parts is not None:
        assert_apart(rows, [np.flatnonzero(parts == k) for k in range(2)], patients=patients)


def write_set(folder: Path, rows: Rows, *, patients: bool) -> Path:
    folder.mkdir()
    for row, (image, _) in enumerate(rows):
        # another size of the file, the same pixels
        Image.fromarray(IMAGES[image]).save(folder / f"{row}.png", compress_level=row % 10)
    table_of(rows, patients=patients).to_csv(folder / "labels.csv", index=False)
    return folder / "labels.csv"


@pytest.mark.slow
@settings(
    deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=samples, patients=st.booleans(), number=st.uuids())
def test_every_command_that_splits(
    tmp_path: Path, rows: Rows, patients: bool, number: object
) -> None:
    labels = write_set(tmp_path / str(number), rows, patients=patients)

    study = StudyConfig(source=str(labels), methods=("standard",), folds=3, train=TRAIN)
    planned = enough_groups(lambda: open_data(study))
    for split in () if planned is None else planned.splits:
        assert_apart(rows, split.sides().values(), patients=patients)

    words = ["train", str(labels), "--fold", "1", "--folds", "3", "--noise-rate", "0.2"]
    split = recorded(words, "single_run._check_samples", lambda manifest, parts: parts)
    if split is not None:
        assert_apart(rows, split.sides().values(), patients=patients)

    parts = recorded(["audit", str(labels), "--folds", "2"], "crossfit.assign_folds", assign_folds)
    if parts is not None:
        assert_apart(rows, [np.flatnonzero(parts == k) for k in range(2)], patients=patients)

    out = labels.parent / "splits.csv"
    if run_command(["data", "split", str(labels), "--folds", "3", "--out", str(out)]):
        written = pd.read_csv(out)
        for _, fold in written.groupby("fold"):
            sides = [
                side.str.removesuffix(".png").astype(int) for _, side in fold.groupby("split")["id"]
            ]
            assert_apart(rows, sides, patients=patients)


def run_command(words: list[str]) -> bool:
    """Run a command in this process; False if there are fewer groups than folds."""
    from typer.testing import CliRunner

    from srjt.cli import app

    result = CliRunner().invoke(app, words)
    if isinstance(result.exception, Seen):
        raise result.exception
    if result.exit_code:
        assert TOO_FEW in f"{result.output} {result.exception}"
    return result.exit_code == 0


def recorded(words: list[str], name: str, record: Callable[..., Any]) -> Any:
    """What ``record`` returns in place of the function ``name``; the command is stopped there,
    before it trains."""
    found: list[Any] = []

    def stop(*arguments: Any, **options: Any) -> None:
        found.append(record(*arguments, **options))
        raise Seen

    out = Path(words[1]).parent / words[0]
    settings = [
        "--device",
        "cpu",
        "--network",
        "tiny",
        "--image-size",
        "32",
        "--crop",
        "28",
        "--epochs",
        "1",
    ]
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Seen):
        patch.setattr(f"srjt.training.{name}", stop)
        run_command([*words, "--out", str(out), *settings])
    return found[0] if found else None
