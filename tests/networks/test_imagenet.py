import hashlib
import socket
from pathlib import Path

import pytest

from srjt.errors import SrjtError
from srjt.networks.backbone import PublishedWeights
from srjt.networks.weights import ALTERNATIVES, fetch_published
from test_files import BODY as CONTENT, Server, server  # noqa: F401

SHA256 = hashlib.sha256(CONTENT).hexdigest()
HASH = SHA256[:8]
ADVICE = f"or {ALTERNATIVES}."


def published(url: str, sha256: str = SHA256, member: str = "") -> PublishedWeights:
    return PublishedWeights(address=url, sha256=sha256, licence="CC0", megabytes=1, member=member)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("SRJT_OFFLINE")
    return tmp_path / "hub" / "checkpoints"


def refused(url: str, sha256: str = SHA256) -> str:
    with pytest.raises(SrjtError) as caught:
        fetch_published(published(url, sha256), timeout=5)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_fetches_once_into_torchs_cache(server: Server, cache: Path):  # noqa: F811
    for _ in range(2):
        path = fetch_published(published(f"{server.url}/net-{HASH}.pth"))
        assert path == cache / f"net-{HASH}.pth"
        assert path.read_bytes() == CONTENT
    assert len(server.asked) == 1
    assert list(cache.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "sha256", "reason"),
    [
        ("net", SHA256[:8] + 56 * "0", "invalid hash value"),  # the eight digits in the name agree
        ("broken", SHA256, "invalid hash value"),  # the connection ends midway
        ("absent", SHA256, "404"),
    ],
)
def test_another_content_is_not_kept(
    server: Server,  # noqa: F811
    cache: Path,
    name: str,
    sha256: str,
    reason: str,
):
    server.answers = [404] if name == "absent" else []
    server.limit = len(CONTENT) // 2 if name == "broken" else len(CONTENT)
    sentence = refused(f"{server.url}/{name}-{HASH}.pth", sha256)
    assert sentence.startswith(f"{server.url}/{name}-{HASH}.pth cannot be downloaded (")
    assert reason in sentence
    assert sentence.endswith(ADVICE)
    assert list(cache.iterdir()) == []


def test_offline_says_exactly_what_to_do(cache: Path):
    with socket.socket() as unused:  # bound but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/net-{HASH}.pth"
        said = refused(url)
    assert said.startswith(f"{url} cannot be downloaded (")
    assert "urlopen" not in said
    assert said.endswith(f"): put that file at {cache / f'net-{HASH}.pth'}, {ADVICE}")


def test_a_file_put_there_by_hand_is_used_without_network(cache: Path):
    cache.mkdir(parents=True)
    (cache / f"net-{HASH}.pth").write_bytes(CONTENT)
    path = fetch_published(published(f"http://127.0.0.1:9/net-{HASH}.pth"))
    assert path.read_bytes() == CONTENT


def test_a_damaged_cached_file_is_reported_and_not_deleted(cache: Path):
    cache.mkdir(parents=True)
    (cache / f"net-{HASH}.pth").write_bytes(CONTENT[:-1])
    said = refused(f"http://127.0.0.1:9/net-{HASH}.pth")
    assert said.startswith(f"{cache / f'net-{HASH}.pth'} is not the published file")
    assert "delete it and try again" in said
    assert (cache / f"net-{HASH}.pth").read_bytes() == CONTENT[:-1]


def test_nothing_is_downloaded_if_that_is_forbidden(
    server: Server,  # noqa: F811
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("SRJT_OFFLINE", "1")
    assert "cannot be downloaded (SRJT_OFFLINE is set)" in refused(f"{server.url}/net-{HASH}.pth")
    assert server.asked == []
