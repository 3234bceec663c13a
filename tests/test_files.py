"""Pipes and devices are refused before they are opened: reading them may never end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from srjt.auditing.folder import read_audit, read_scores, read_summary
from srjt.errors import SrjtError
from srjt.files import check_regular_file, check_regular_files, made_by, read_json, read_limited
from srjt.networks import weights
from srjt.studies.folder import read_study
from srjt.training.trained import load_run


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing", "there is no such file"),
        ("folder", "it is a folder"),
        ("pipe", "it is a pipe, a socket or a device, not a regular file"),
        ("x" * 300, "its name is too long for this file system"),
        ("a\0b", "its name contains a NUL character"),
        ("\ud800", "cannot be read"),
    ],
)
def test_what_is_not_a_file_gets_a_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SrjtError, match=sentence):
        check_regular_file(tmp_path / name)


def test_links_to_files_are_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    check_regular_file(tmp_path / "link")
    check_regular_files(tmp_path)
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(SrjtError, match="zero cannot be read: it is a pipe, a socket or a device"):
        check_regular_files(tmp_path)


@pytest.mark.parametrize(
    ("open_folder", "name"),
    [
        (load_run, "run.json"),
        (load_run, "weights.safetensors"),
        (load_run, "sub/summary.json"),
        (read_audit, "audit.json"),
        (read_summary, "summary.json"),
        (lambda folder: read_scores(folder, {"samples": 1, "grades": ["a", "b"]}), "audit.csv"),
        (read_study, "study.json"),
    ],
)
def test_a_pipe_in_a_folder_does_not_hang(tmp_path: Path, open_folder: Callable[..., Any], name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(SrjtError, match="not a regular file"):
        open_folder(tmp_path)


def test_a_pipe_as_weights_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.safetensors")
    with pytest.raises(SrjtError, match="no weights file"):
        weights.read(tmp_path / "w.safetensors")


class _Part(BaseModel, extra="forbid"):
    number: int


class _File(BaseModel, extra="forbid"):
    format: Literal[2]
    parts: list[_Part]
    made: Annotated[str, made_by(lambda value: value["name"])]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"format": 1, "parts": 3}', "has format 1, but this version of srjt reads format 2"),
        (b'{"parts": 3}', r"x is damaged or not from srjt \(format: Field required\): make it anew\.$"),
        (
            b'{"format": 2, "parts": [{"number": "1"}], "made": {"name": "a"}}',
            r"parts\.0\.number: Input should be",
        ),
        (
            b'{"format": 2, "parts": [{"number": true}], "made": {"name": "a"}}',
            r"parts\.0\.number: Input should be",
        ),
        (b'{"format": 2, "parts": [], "made": {}}', r"\(made: KeyError: 'name'\)"),
        (b'{"format": 2, "parts": [], "made": 3}', r"\(made: TypeError: "),
        (
            b'{"format": 2, "parts": [], "made": {"name": "a"}, "x\\u001b": 1}',
            r"\(x\\x1b: Extra inputs are not",
        ),
        (b"[" * 100_000, "damaged or not from srjt"),
        (b'{"format": ' + b"9" * 5000 + b"}", "has format 9999|damaged or not from srjt"),
        (b"\xff\xfe", "damaged or not from srjt"),
        (b"", "damaged or not from srjt"),
    ],
)
def test_a_damaged_json_file_is_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(SrjtError, match=sentence) as caught:
        read_json(tmp_path / "x", _File, advice="make it anew")
    assert len(str(caught.value)) < 400
    assert "\x1b" not in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_limited(tmp_path / "x", limit=5) == b"12345"
    with pytest.raises(SrjtError, match="x cannot be read: it has more than 4 bytes"):
        read_limited(tmp_path / "x", limit=4)
