"""``srjt weights``: what can be fetched, from a server, and what a machine without a connection is
told."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from srjt.networks import registry, weights
from test_files import BODY, Server, server  # noqa: F401

from .conftest import Srjt

SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Srjt:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("SRJT_OFFLINE")
    return Srjt(capsys)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Publish the weights of resnet18 at an address."""

    def publish(address: str) -> None:
        row = registry.find("resnet18")
        assert row.weights is not None
        weights = replace(row.weights, address=address, sha256=SHA256)
        monkeypatch.setitem(registry._ROWS, "resnet18", replace(row, weights=weights))

    return publish


@pytest.mark.parametrize("name", ["efficientnet-lite0", "efficientnet-lite0-stages"])
def test_the_command_for_another_machine_takes_the_best_features_of_the_file(
    command: Srjt, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(weights, "fetch_published", lambda *_, **how: Path("net.pth"))
    assert "labels.csv --preset cpu --weights net.pth --out run" in (
        command.prints("weights", "fetch", name)
    )


def test_they_are_fetched_listed_and_copied(
    command: Srjt,
    published: Callable[[str], None],
    server: Server,  # noqa: F811
    tmp_path: Path,
) -> None:
    published(f"{server.url}/net.pth")
    assert "BSD-3-Clause" in next(
        line for line in command.prints("weights", "list").splitlines() if "resnet18" in line
    )
    out = command.prints("weights", "fetch", "resnet18", "--out", "copy.pth")
    kept = tmp_path / "torch" / "hub" / "checkpoints" / "net.pth"
    assert f"The weights of resnet18 are in {kept}." in out
    assert SHA256 in out
    assert "--backbone resnet18 --weights copy.pth" in out
    assert kept.read_bytes() == Path("copy.pth").read_bytes() == BODY
    assert str(kept) in command.prints("weights", "list")
    assert "copy.pth already exists" in command.refuses(
        "weights", "fetch", "resnet18", "--out", "copy.pth"
    )


def test_without_a_connection_the_options_are_those_of_the_command(
    command: Srjt, published: Callable[[str], None], labelled: Path
) -> None:
    published("http://127.0.0.1:9/net.pth")
    how = ["--network", "resnet18", "--noise-rate", "0.4", "--device", "cpu", "--out", "run"]
    said = command.refuses("train", labelled, *how)
    assert "pass a local file with --weights" in said
    assert "--no-pretrained" in said
    assert "`" not in said


def test_what_cannot_be_fetched_is_one_sentence(
    command: Srjt, published: Callable[[str], None]
) -> None:
    published("http://127.0.0.1:9/net.pth")
    said = command.refuses("weights", "fetch", "resnet18")
    assert "cannot be downloaded" in said
    assert said.rstrip().endswith("net.pth.")  # where to put it
    command.fails("unsupported", "densenet121", "weights", "fetch", "densenet121")
    command.fails("unknown_name", "'resnet18'", "weights", "fetch", "resnet19")
