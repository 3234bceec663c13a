"""Clients that mean harm: long bodies, numbers and paths that no page sends. Over real sockets."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from auditing.test_review_server import Client, running, with_images
from srjt.auditing.folder import read_audit
from srjt.auditing.review_app import MAX_BODY

pytestmark = pytest.mark.slow


@pytest.fixture
def client(audit_folder: Path) -> Iterator[Client]:
    with running(read_audit(audit_folder), audit_folder / "decisions.sqlite") as made:
        yield made


def chunked(client: Client, chunks: int, chunk: bytes, **headers: str) -> tuple[int, int]:
    """Send a decision in chunks; return the status and how many chunks were taken."""
    host = f"127.0.0.1:{client.server.port}"
    sent = {
        "Host": host,
        "Cookie": client.cookie,
        "Origin": f"http://{host}",
        "Transfer-Encoding": "chunked",
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    with socket.create_connection(("127.0.0.1", client.server.port), timeout=5) as connection:
        connection.sendall(f"POST /api/decide HTTP/1.1\r\n{lines}\r\n".encode())
        taken = 0
        with contextlib.suppress(ConnectionError):
            for _ in range(chunks):
                connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                taken += 1
            connection.sendall(b"0\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            return int(connection.recv(100).split()[1]), taken
    return 0, taken


def test_the_bytes_received_count_not_the_content_length(client: Client) -> None:
    # the buffers of both sides hold a few megabytes; 300 were taken before
    status, taken = chunked(client, 2000, b" " * 16384, **{"Content-Length": "5"})
    assert status in (413, 0)  # 0: closed before the answer was read
    assert taken < 1500
    status, _ = chunked(client, 2, b" " * (MAX_BODY // 2 + 1), **{"Content-Length": "5"})
    assert status == 413
    assert chunked(client, 2, b" ", **{"Content-Length": "5"})[0] == 400  # short, but no JSON
    assert client.session.decisions.log() == []
    assert client.decide(0)[0] == 200


def test_a_strange_number_is_refused(client: Client) -> None:
    for path in ("/image/", "/thumb/", "/api/neighbours/", "/api/updates?since="):
        for number in ("9" * 4301, "0" * 30_000, "%C2%B2", "-1", "1e3", "9" * 21):
            assert client.ask(path + number)[0] == 404


def test_a_strange_body_or_length_is_refused(client: Client) -> None:
    for body in (b'{"line": %s}' % (b"9" * 5000), b'{"line": -1e999, "seen": NaN}', b"\xff\xfe", b"\0"):
        assert client.post("/api/decide", body)[0] == 400
    for length in ("9" * 19, "9" * 5000, "-1", "1,2"):
        assert client.ask("/api/decide", method="POST", body=b"{}", content_length=length)[0] in (400, 413)
        assert client.ask("/api/samples")[0] == 200


def test_a_strange_path_is_refused(client: Client) -> None:
    for path in ("/%00", "/page/%00", "/image/%00", "/page/" + "a" * 60_000, "/image/%ff%fe"):
        assert client.ask(path)[0] in (400, 404)


def test_images_with_impossible_names_or_headers_are_not_found(audit_folder: Path, tmp_path: Path) -> None:
    huge = tmp_path / "huge.npy"
    np.lib.format.write_array_header_1_0(
        huge.open("wb"), {"descr": "|u1", "fortran_order": False, "shape": (2**62, 3)}
    )
    deep = tmp_path / "deep.npy"
    deep.write_bytes(b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000)
    names = ["a\0b.png", "a" * 5000, "/".join(["a"] * 3000), str(huge), str(deep), "loop.png"]
    (audit_folder / "loop.png").symlink_to("loop.png")
    with running(with_images(audit_folder, names), tmp_path / "d.sqlite") as client:
        for line in range(len(names)):
            assert client.ask(f"/thumb/{line}")[0] == 404
            status, _, reason = client.ask(f"/image/{line}")
            assert (status, len(reason) > 30) == (404, True)


def test_a_log_that_becomes_unreadable_is_a_sentence(client: Client) -> None:
    client.session.decisions._connection.execute("DROP TABLE log")
    status, _, said = client.ask("/api/updates?since=0")
    assert (status, b"cannot be read" in said) == (503, True)
