"""Clients that mean harm: half requests, long bodies, numbers and paths that no page sends. Over real sockets."""

from __future__ import annotations

import contextlib
import http.client
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from auditing.test_review_server import Client, running, with_images
from srjt.auditing import review_server
from srjt.auditing.folder import read_audit
from srjt.auditing.review_app import MAX_BODY, parse_number

pytestmark = pytest.mark.slow

HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


@pytest.fixture
def client(audit_folder: Path) -> Iterator[Client]:
    with running(read_audit(audit_folder), audit_folder / "decisions.sqlite") as made:
        yield made


@contextlib.contextmanager
def half_requests(port: int, number: int) -> Iterator[list[socket.socket]]:
    """Connections that have sent the beginning of a request."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(number):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            with contextlib.suppress(ConnectionError):  # it may have been closed for a newer one
                connection.sendall(HALF)
            opened.append(connection)
        yield opened


def is_closed(connection: socket.socket, *, within: float) -> bool:
    connection.settimeout(within)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits another process")
def test_half_requests_do_not_keep_the_reviewer_out(serve: Callable[..., object], audit_folder: Path) -> None:
    """160 of them, at 128 open files, from somebody without a cookie."""
    import resource

    served = serve(audit_folder, "--reviewer", "anna")
    pid, port = served.process.pid, served.port  # type: ignore[attr-defined]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (128, 128))
    with half_requests(port, 160):
        before, since = cpu_seconds(pid), time.monotonic()
        for _ in range(5):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", served.address.partition(str(port))[2])  # type: ignore[attr-defined]
            answer = connection.getresponse()
            assert answer.status == 200
            cookie = answer.getheader("set-cookie").partition(";")[0]  # type: ignore[union-attr]
            connection.close()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/api/samples", headers={"cookie": cookie})
            assert connection.getresponse().status == 200
            connection.close()
            time.sleep(0.2)
        assert cpu_seconds(pid) - before < 0.7 * (time.monotonic() - since) + 1
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 100
    said = served.interrupt()  # type: ignore[attr-defined]
    assert "Traceback" not in said
    assert len(said) < 1000


def cpu_seconds(pid: int) -> float:
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / 100


@pytest.mark.slow
def test_the_number_of_connections_is_bounded(client: Client) -> None:
    with half_requests(client.server.port, 80) as opened:
        assert client.ask("/api/samples")[0] == 200
        still_open = [connection for connection in opened if not is_closed(connection, within=0.01)]
        assert len(still_open) <= review_server.MAX_CONNECTIONS
        assert still_open == opened[-len(still_open) :]  # the oldest make way


def test_an_idle_reviewer_only_has_to_connect_again(client: Client) -> None:
    idle = http.client.HTTPConnection("127.0.0.1", client.server.port, timeout=5)
    idle.request("GET", "/api/samples", headers={"cookie": client.cookie})
    assert idle.getresponse().read()
    with half_requests(client.server.port, 40):
        assert client.ask("/api/samples")[0] == 200
        assert client.decide(0)[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        HALF,
        b"POST /api/decide HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
        b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + HALF,  # the second on a connection
    ],
)
def test_a_half_request_is_closed_after_a_while(
    sent: bytes, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review_server, "REQUEST_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", client.server.port), timeout=5) as connection:
        connection.sendall(sent)
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while connection.recv(65536):  # the 403 of a request that is complete
                pass
        assert 0.2 < time.monotonic() - start < 4


def test_bytes_that_trickle_do_not_prolong_a_request(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review_server, "REQUEST_SECONDS", 0.4)
    with half_requests(client.server.port, 1) as [connection]:
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - start < 5:
                connection.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - start < 3


def test_a_slow_answer_is_not_cut_off(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review_server, "REQUEST_SECONDS", 0.1)
    slow, refresh = client.session.decisions, client.session.decisions.refresh

    def refresh_slowly() -> object:
        time.sleep(0.5)
        return refresh()

    monkeypatch.setattr(slow, "refresh", refresh_slowly)
    assert client.get("/api/updates?since=0")["changes"] == []


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
    assert chunked(client, 2, b" ")[0] == 411
    assert client.session.decisions.log() == []
    assert client.decide(0)[0] == 200


def test_a_long_number_is_a_bad_request(client: Client) -> None:
    for path in ("/image/", "/thumb/", "/api/neighbours/", "/api/problem/", "/api/updates?since="):
        for number in ("9" * 4301, "0" * 30_000):
            assert client.ask(path + number)[0] == 400


def test_a_strange_body_or_length_is_refused(client: Client) -> None:
    for body in (b'{"line": %s}' % (b"9" * 5000), b'{"line": -1e999, "seen": NaN}', b"\xff\xfe", b"\0"):
        assert client.post("/api/decide", body)[0] == 400
    for length in ("9" * 19, "9" * 5000, "-1", "1,2"):
        assert client.ask("/api/decide", method="POST", body=b"{}", content_length=length)[0] in (400, 413)
        assert client.ask("/api/samples")[0] == 200


def test_a_strange_path_is_refused(client: Client) -> None:
    for path in (
        "/%00",
        "/page/%00",
        "/image/%00",
        "/page/" + "a" * 60_000,
        "/image/%ff%fe",
        "/image/%C2%B2",
    ):
        assert client.ask(path)[0] in (400, 404)


def test_images_with_impossible_names_or_headers_are_not_found(audit_folder: Path, tmp_path: Path) -> None:
    huge = tmp_path / "huge.ppm"
    huge.write_bytes(b"P6 999999999 999999999 255\n")
    names = ["a\0b.png", "a" * 5000, "/".join(["a"] * 3000), str(huge), "loop.png"]
    (audit_folder / "loop.png").symlink_to("loop.png")
    with running(with_images(audit_folder, names), tmp_path / "d.sqlite") as client:
        for line in range(len(names)):
            assert client.ask(f"/image/{line}")[0] == 404
            assert client.ask(f"/thumb/{line}")[0] == 404
            assert len(client.get(f"/api/problem/{line}")["problem"]) > 30


def test_a_log_that_becomes_unreadable_is_a_sentence(client: Client) -> None:
    client.session.decisions._connection.execute("DROP TABLE log")
    status, _, said = client.ask("/api/updates?since=0")
    assert (status, b"cannot be read" in said) == (503, True)


def test_numbers_of_requests() -> None:
    assert [parse_number(text) for text in ("0", "007", "²", "-1", "1e3", "", "9" * 21)] == [0, 7] + [
        None
    ] * 5
