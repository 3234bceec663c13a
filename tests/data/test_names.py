"""Two tables are joined by the names of images: whole names or whole ends of them, and never by a
guess."""

from pathlib import Path

import pandas as pd
import pytest

from refusals import refuses
from srjt.data.names import join_all_names, join_names
from srjt.data.sources.readers_folder import read_probabilities
from srjt.data.sources.readings import read_readings


def joined(wanted: list[str], known: list[str]) -> list[int]:
    return join_names(wanted, known, wanted_in="ours", known_in="theirs").tolist()


@pytest.mark.parametrize(
    ("wanted", "known", "rows"),
    [
        (["a", "b"], ["b", "a"], [1, 0]),
        (["north/0.png", "south/0.png"], ["imgs/south/0.png", "imgs/north/0.png"], [1, 0]),
        (["/d/north/0.png"], ["north/0.png"], [0]),  # the other way round
        (["x/north/0.png"], ["0.png", "north/0.png"], [1]),  # the longest end
        (["0.png"], ["0.png", "north/0.png"], [0]),  # the whole name comes first
        ([r"north\0.png"], ["./imgs/north/0.png"], [0]),
        (["e\u0301.png"], ["\u00e9.png"], [0]),  # the same letter, composed or not
        (["0.png", "0.png"], ["a/0.png"], [0, 0]),  # several rows of one image
        (["north/0.png"], ["west/0.png"], [-1]),  # the same file name is not the same image
        (["10.png"], ["0.png"], [-1]),  # the end of a name begins after a slash
        (["", "a"], ["", "a"], [-1, 1]),
    ],
)
def test_a_name_fits_a_whole_end_of_another(
    wanted: list[str], known: list[str], rows: list[int]
) -> None:
    assert joined(wanted, known) == rows


@pytest.mark.parametrize(
    ("wanted", "known", "refused"),
    [
        (["0.png"], ["north/0.png", "south/0.png"], ("ambiguous", "", "'0.png'")),
        (["north/0.png", "south/0.png"], ["0.png"], ("ambiguous", "", "'0.png'")),
        (["a"], ["a", "a"], ("ambiguous", "", "'a'")),
        (["0.png", "x/0.png"], ["y/x/0.png"], ("ambiguous", "", "fits two names")),
    ],
)
def test_what_could_be_meant_in_two_ways_is_an_error(
    wanted: list[str], known: list[str], refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        joined(wanted, known)


def test_a_name_without_a_partner_is_an_error_with_examples_of_both_sides() -> None:
    with refuses("no_match", says=("'b'", "'a'", "1 of the 2")):
        join_all_names(["a", "b"], ["a"], wanted_in="ours", known_in="theirs")


@pytest.mark.slow
def test_many_names_with_the_same_file_name_are_joined_at_once() -> None:
    count = 20_000
    wanted = [f"patient{row}/image.dcm" for row in range(count)]
    assert (
        joined(wanted, [f"/data/{name}" for name in reversed(wanted)]) == list(range(count))[::-1]
    )


def probabilities(tmp_path: Path, names: list[str]) -> list[list[float]]:
    """The probabilities of north/000.png and south/000.png, from predictions for files of these
    names."""
    rows = [
        (image, reader, 0)
        for image in ("north/000.png", "south/000.png")
        for reader in ("anna", "bo")
    ]
    table = pd.DataFrame([*rows, ("other.png", "anna", 1)], columns=["image", "reader", "grade"])
    readings = read_readings(table).readings
    predictions = pd.DataFrame(
        {"image": [*names, "imgs/other.png"], "p_0": [0.9, 0.1, 0.5][-len(names) - 1 :]}
    )
    predictions.assign(p_1=1 - predictions["p_0"]).to_csv(tmp_path / "p.csv", index=False)
    return read_probabilities(tmp_path / "p.csv", readings).round(3).tolist()


def test_predictions_of_two_folders_with_the_same_file_names(tmp_path: Path) -> None:
    found = probabilities(tmp_path, ["imgs/north/000.png", "imgs/south/000.png"])
    assert found[:2] == [[0.9, 0.1], [0.1, 0.9]]


def test_predictions_of_another_folder_are_refused(tmp_path: Path) -> None:
    with refuses("no_match", says=("1 of the 3", "'north/000.png'")):
        probabilities(tmp_path, ["imgs/west/000.png"])
