"""Pipes and devices are refused before they are opened: reading them may never end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srjt.auditing.folder import read_audit, read_scores, read_summary
from srjt.errors import SrjtError
from srjt.files import check_regular_file, check_regular_files
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
        (read_scores, "audit.csv"),
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
