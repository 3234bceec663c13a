"""An audit folder is read completely, or refused with one sentence."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fixtures.audit_folders import make_audit
from fixtures.run_folders import edit_json
from refusals import refuses
from srjt.auditing.audit import image_names, prepare_folder, write_audit
from srjt.auditing.folder import read_audit
from srjt.data import synthetic
from srjt.errors import SrjtError


def test_what_was_written_is_read(audit_folder: Path) -> None:
    audit = read_audit(audit_folder)
    frame = pd.read_csv(audit_folder / "audit.csv")
    assert audit.ids == frame["id"].tolist()
    assert [audit.grades[g] for g in audit.labels] == frame["grade"].tolist()
    assert [audit.grades[g] for g in audit.suggested] == frame["suggested"].tolist()
    np.testing.assert_allclose(audit.probabilities.sum(axis=1), 1)
    assert len(audit.network_grades) == 2
    assert audit.readers == frame["reader"].tolist()
    assert audit.expected_wrong == round((1 - frame["quality"]).sum())
    assert audit.line_of[audit.ids[3]] == 3


def test_optional_columns_and_files(audit_folder: Path) -> None:
    frame = pd.read_csv(audit_folder / "audit.csv")
    frame["selected"] = np.nan
    frame.loc[0, "suggested"] = ""
    frame.drop(columns=["network_2", "patient", "reader"]).to_csv(
        audit_folder / "audit.csv", index=False
    )
    (audit_folder / "neighbours.npz").unlink()
    audit = read_audit(audit_folder)
    assert len(audit.network_grades) == 1
    assert (audit.patients, audit.readers, audit.neighbours) == (None, None, None)
    assert np.isnan(audit.selected).all()
    assert audit.suggested[0] == -1 < audit.suggested[1:].min()  # nothing is suggested


def test_a_grade_named_na_is_not_a_missing_value(tmp_path: Path) -> None:
    audit = read_audit(make_audit(tmp_path / "audit", images=12, grades=("None", "NA", "nan")))
    assert audit.grades == ("None", "NA", "nan")


def edit_table(folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    frame = pd.read_csv(folder / "audit.csv", dtype=str)
    change(frame).to_csv(folder / "audit.csv", index=False)


HUGE = "{'descr': '<i4', 'fortran_order': False, 'shape': (1152921504606846976, 4, 4), }"


def archive(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("rows.npy", content)
    return buffer.getvalue()


def npy_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize("name", ["audit.json", "audit.csv", "neighbours.npz"])
def test_damaged_bytes_are_read_or_refused_in_one_sentence(audit_folder: Path, name: str) -> None:
    path, random = audit_folder / name, np.random.default_rng(0)
    if name == "neighbours.npz":  # compressed, as srjt audit writes it
        np.savez_compressed(path, rows=np.load(path)["rows"])
    whole = path.read_bytes()
    refused = 0
    for trial in range(80):
        content = bytearray(whole)
        for place in random.integers(len(whole), size=int(random.choice([1, 3, 20]))):
            content[place] = random.integers(256)
        path.write_bytes(content[: random.integers(len(whole))] if trial % 4 == 0 else content)
        try:
            read_audit(audit_folder)
        except SrjtError:
            refused += 1
    assert refused > 20


def interrupt(folder: Path) -> None:
    """The audit stopped while it trained."""
    (folder / "audit.json").unlink()
    (folder / "fits").mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("spoil", "code", "says"),
    [
        (lambda f: (f / "audit.json").unlink(), "wrong_file", "audit.json"),
        (interrupt, "not_finished", ""),
        (lambda f: edit_json(f / "audit.json", format=7), "other_version", "format 7"),
        (lambda f: (f / "audit.json").write_text("[" * 20_000), "damaged_file", "audit.json"),
        (lambda f: (f / "audit.json").write_text('{"samples": %s}' % ("9" * 5000)), "damaged_file", "audit.json"),
        (lambda f: edit_json(f / "audit.json", samples=16.0), "damaged_file", "samples"),
        (lambda f: edit_json(f / "audit.json", grades=["Mayo 0", "Mayo 0"]), "damaged_file", "grades"),
        (lambda f: (f / "audit.csv").write_text(""), "unreadable_file", "audit.csv"),
        (lambda f: edit_table(f, lambda t: t.iloc[:-1]), "damaged_file", ("15", "16")),
        (lambda f: edit_table(f, lambda t: t.drop(columns="p_2")), "damaged_file", "p_2"),
        (lambda f: edit_table(f, lambda t: t.assign(suggested="Mayo 9")), "damaged_file", "'Mayo 9'"),
        (lambda f: edit_table(f, lambda t: t.assign(grade="")), "damaged_file", "('')"),
        (lambda f: edit_table(f, lambda t: t.assign(id="same")), "damaged_file", "'same'"),
        (lambda f: edit_table(f, lambda t: t.assign(quality="high")), "damaged_file", "'high'"),
        (lambda f: edit_table(f, lambda t: t.assign(quality="1.2")), "damaged_file", "quality"),
        (lambda f: edit_table(f, lambda t: t.assign(p_1="nan")), "damaged_file", "'p_1', 'p_2', 'p_3'"),
        (lambda f: edit_table(f, lambda t: t.assign(selected="inf")), "damaged_file", "selected"),
        (lambda f: np.savez(f / "neighbours.npz", rows=np.zeros((3, 4, 4), np.int32)), "damaged_file", "neighbours.npz"),
        (lambda f: np.savez(f / "neighbours.npz", rows=np.full((16, 4, 4), 16)), "damaged_file", "neighbours.npz"),
        (lambda f: (f / "neighbours.npz").write_bytes(b"PK\x03\x04"), "damaged_file", "neighbours.npz"),
        (lambda f: (f / "neighbours.npz").write_bytes(archive(npy_header("(" * 9000))), "damaged_file", "neighbours.npz"),
        (lambda f: (f / "neighbours.npz").write_bytes(archive(npy_header(HUGE))), "damaged_file", "neighbours.npz"),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused_in_one_sentence(
    audit_folder: Path, spoil: Any, code: str, says: str | tuple[str, ...]
) -> None:
    spoil(audit_folder)
    with refuses(code, says=says):
        read_audit(audit_folder)


def write_small_audit(folder: Path) -> None:
    prepare_folder(folder)
    samples = synthetic.generate(images=6, patients=3, size=32)
    scores = pd.DataFrame({"id": samples.ids, "image": image_names(samples, folder)})
    fitted = SimpleNamespace(manifest=samples, neighbours=np.full((6, 4, 4), -1, np.int32))
    facts = {"grades": list(samples.grades)}
    found = SimpleNamespace(scores=scores, fitted=fitted, facts=facts, summary={}, readings=None)
    write_audit(folder, found)  # type: ignore[arg-type]


def test_an_audit_is_not_written_through_links(tmp_path: Path) -> None:
    folder, secret = tmp_path / "audit", tmp_path / "secret"
    write_small_audit(folder)
    secret.write_text("mine")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 12
    for path in files:
        path.unlink()
        path.symlink_to(secret)
    (folder / "fits").mkdir()  # an audit that is resumed
    write_small_audit(folder)
    assert secret.read_text() == "mine"
    assert not any(path.is_symlink() for path in files)


def test_images_are_not_written_to_a_linked_folder(tmp_path: Path) -> None:
    folder, private = tmp_path / "audit", tmp_path / "private"
    for path in (private, folder / "fits"):
        path.mkdir(parents=True)
    (folder / "images").symlink_to(private)
    with refuses("unsafe_file", "out", says="images"):
        write_small_audit(folder)
    assert not list(private.iterdir())
