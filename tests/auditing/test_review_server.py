"""The server over a real socket: who has access, what is served, what is refused."""

import contextlib
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from refusals import refuses
from srjt.auditing import review_app
from srjt.auditing.folder import AuditFolder, read_audit
from srjt.auditing.review_app import (
    MAX_BODY,
    MOST_CONNECTIONS,
    LimitedProtocol,
    ReviewSession,
    Server,
    create_web_server,
    grade_keys,
    listen,
)
from srjt.auditing.review_log import Decisions


@dataclass
class Client:
    """Sends what a browser sends; ``headers`` replace its own, None omits one."""

    server: Server
    session: Any
    cookie: str = field(init=False)

    def __post_init__(self) -> None:
        self.cookie = f"{self.server.cookie}={self.server.token}"

    def ask(
        self, path: str, *, method: str = "GET", body: Any = None, **headers: str | None
    ) -> Any:
        """Status, headers and content of the answer."""
        host = f"127.0.0.1:{self.server.port}"
        sent = {"host": host, "cookie": self.cookie}
        if method == "POST":
            sent |= {"origin": f"http://{host}", "content-type": "application/json"}
        sent |= {k.replace("_", "-"): v for k, v in headers.items()}  # type: ignore[misc]
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        content = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        if method == "POST":
            sent.setdefault("content-length", str(len(content)))
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(content)
        answer = connection.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def get(self, path: str) -> Any:
        status, _, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    def post(self, path: str, body: Any, **headers: str | None) -> tuple[int, Any]:
        status, _, answer = self.ask(path, method="POST", body=body, **headers)
        try:
            return status, json.loads(answer)
        except ValueError:
            return status, answer.decode()

    def decision(self, line: int = 0) -> dict[str, Any]:
        """As the page sends it."""
        return {
            "line": line,
            "id": self.session.audit.ids[line],
            "action": "keep",
            "seen": 0,
            "since": 0,
        }

    def decide(self, line: int, action: str = "keep", **more: Any) -> tuple[int, Any]:
        return self.post("/api/decide", {**self.decision(line), "action": action, **more})


@contextmanager
def running(audit: AuditFolder, path: Path, reviewer: str = "anna") -> Iterator[Client]:
    decisions = Decisions(path)
    who: dict[str, Any] = {"reviewer": reviewer, "queue": audit.expected_wrong}
    with serving(ReviewSession(audit=audit, decisions=decisions, **who)) as client:
        yield client
    decisions.close()


@contextmanager
def serving(session: Any) -> Iterator[Client]:
    server = listen()
    running_server = create_web_server(session, server)
    thread = threading.Thread(
        target=running_server.run, kwargs={"sockets": [server.socket]}, daemon=True
    )
    thread.start()
    try:
        yield Client(server, session)
    finally:
        running_server.should_exit = True
        thread.join()
        server.socket.close()


@pytest.fixture
def client(audit_folder: Path) -> Iterator[Client]:
    with running(read_audit(audit_folder), audit_folder / "decisions.sqlite") as made:
        yield made


@pytest.fixture(scope="module")
def read_only(
    shared_audit_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """For tests that decide nothing."""
    with running(
        read_audit(shared_audit_folder), tmp_path_factory.mktemp("log") / "d.sqlite"
    ) as made:
        yield made


EVERYTHING = ["/", "/page/review.js", "/image/0", "/thumb/0", "/api/samples", "/api/updates", "/api/neighbours/0",
              "/map/0", "/pixels/0", "/nothing"]  # fmt: skip


@pytest.mark.parametrize("path", EVERYTHING)
def test_nothing_without_the_token(read_only: Client, path: str) -> None:
    for cookie in (None, "", "x=y", f"{read_only.server.cookie}=wrong", f"{read_only.server.cookie}=é",
                   f"other={read_only.server.token}"):  # fmt: skip
        status, _, body = read_only.ask(path, cookie=cookie)
        assert status == 403
        assert b"srjt review printed" in body
    assert read_only.ask(f"{path}?token=wrong", cookie=None)[0] == 403


@pytest.mark.parametrize("path", EVERYTHING)
def test_every_response_has_the_security_headers(read_only: Client, path: str) -> None:
    for cookie in (read_only.cookie, None):
        _, headers, _ = read_only.ask(path, cookie=cookie)
        policy = headers["content-security-policy"]
        assert policy.startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        )
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers


def test_the_token_is_exchanged_for_a_strict_cookie(read_only: Client) -> None:
    token = read_only.server.token
    status, headers, body = read_only.ask(f"/?token={token}", cookie=None)
    assert status == 200
    cookie = headers["set-cookie"]
    assert cookie.startswith(f"srjt-review-{read_only.server.port}={token};")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert token not in body.decode()
    assert read_only.ask(f"/image/0?token={token}", cookie=None)[0] == 403  # only the page takes it


def test_a_one_time_token_works_once(read_only: Client) -> None:
    token = "once"
    read_only.server.one_time_tokens.add(token)
    status, headers, _ = read_only.ask(f"/?token={token}", cookie=None)
    assert (status, token in headers["set-cookie"]) == (200, False)
    assert read_only.ask(f"/?token={token}", cookie=None)[0] == 403
    assert read_only.ask("/", cookie=f"{read_only.server.cookie}={token}")[0] == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "192.168.0.9"]
)
def test_other_host_names_are_refused(read_only: Client, host: str) -> None:
    assert read_only.ask("/", host=host)[0] in (400, 421)
    assert read_only.ask(f"/?token={read_only.server.token}", host=host)[0] in (400, 421)


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:9", "LOCALHOST"])
def test_names_of_this_machine_are_accepted(read_only: Client, host: str) -> None:
    assert read_only.ask("/", host=host)[0] == 200  # through a tunnel the port is another


def test_remote_access_accepts_ip_addresses() -> None:
    server = replace(listen(), host_names=frozenset({"lab"}), any_address=True)
    server.socket.close()
    accepted = [
        server.accepts_host(name) for name in ("lab:80", "10.0.0.7", "[fe80::1]:9", "evil.example")
    ]
    assert accepted == [True, True, True, False]


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1:1", "http://localhost"]
)
def test_only_the_page_itself_may_decide(read_only: Client, origin: str | None) -> None:
    assert read_only.post("/api/decide", read_only.decision(), origin=origin)[0] == 403
    assert read_only.post("/api/undo", {"revision": 1, "since": 0}, origin=origin)[0] == 403
    assert read_only.session.decisions.log() == []


@pytest.mark.parametrize(
    "path",
    ["/image/../audit.json", "/image/..%2f..%2fetc%2fpasswd", "/image//etc/passwd", "/image/%2Fetc%2Fpasswd",
     "/image/-1", "/image/16", "/image/1e1", "/image/0/../../audit.csv", "/thumb/99999999999999999999",
     "/page/../server.py", "/page/..%2fserver.py", "/page/%2e%2e/server.py", "/audit.csv",
     "/decisions.sqlite", "/api/neighbours/16", "/%00", "/page/%00", "/image/%ff%fe"],
)  # fmt: skip
def test_other_files_are_not_served(read_only: Client, path: str) -> None:
    status, _, body = read_only.ask(path)
    assert status in (400, 404)
    assert b"root:" not in body


def with_images(folder: Path, images: list[str]) -> AuditFolder:
    audit = read_audit(folder)
    return replace(audit, images=images + audit.images[len(images) :])


def test_an_audit_folder_cannot_expose_files_outside_it(audit_folder: Path, tmp_path: Path) -> None:
    """Relative names stay inside, links are resolved first, and only images are sent."""
    Image.new("RGB", (8, 8), "red").save(tmp_path / "outside.png")
    (audit_folder / "images").mkdir()
    (audit_folder / "images" / "link.png").symlink_to(tmp_path / "outside.png")
    (audit_folder / "images" / "folder").symlink_to(tmp_path)
    os.mkfifo(audit_folder / "images" / "pipe.png")
    Image.new("RGB", (8, 8), "blue").save(audit_folder / "images" / "inside.png")
    audit = with_images(
        audit_folder,
        ["images/inside.png", "../outside.png", "images/link.png", "images/folder/outside.png", "images/pipe.png",
         "/etc/passwd", "audit.json", ""],
    )  # fmt: skip
    with running(audit, tmp_path / "d.sqlite") as client:
        answers = [client.ask(f"/image/{line}") for line in range(8)]
        assert [status for status, _, _ in answers] == [200] + [404] * 7
        said = [*[b"outside the audit folder"] * 3, b"regular file", b"known format", b"known format",
                b"no image of this sample"]  # fmt: skip
        assert [word in reason for word, (_, _, reason) in zip(said, answers[1:], strict=True)] == [
            True
        ] * 7
        assert client.ask("/thumb/1")[0] == 404


def test_images_are_shown_as_the_networks_saw_them(audit_folder: Path, tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "deep.png")
    Image.fromarray((ramp >> 8).astype(np.uint8)).save(tmp_path / "scan.tif")
    Image.new("RGB", (9, 5), "green").save(tmp_path / "photo.jpg")
    (tmp_path / "cut.png").write_bytes((tmp_path / "deep.png").read_bytes()[:100])
    names = ["deep.png", "scan.tif", "photo.jpg", "cut.png", "gone.png"]
    audit = with_images(audit_folder, [str(tmp_path / name) for name in names])
    with running(audit, tmp_path / "d.sqlite") as client:
        answers = [client.ask(f"/image/{line}") for line in range(5)]
        assert [status for status, _, _ in answers] == [200, 200, 200, 404, 404]
        kinds = [headers["content-type"] for _, headers, _ in answers[:3]]
        assert kinds == ["image/png", "image/png", "image/jpeg"]
        assert answers[2][2] == (tmp_path / "photo.jpg").read_bytes()  # untouched
        for number in (0, 1):
            (tmp_path / "got.png").write_bytes(answers[number][2])
            with Image.open(tmp_path / "got.png") as shown:
                assert (shown.mode, shown.size) == ("RGB", (64, 64))
                assert shown.getpixel((63, 63)) == (255, 255, 255)
        assert b"no such file" in answers[4][2]


def test_a_thumbnail_keeps_the_shape(audit_folder: Path, tmp_path: Path) -> None:
    Image.new("RGB", (1200, 600), "red").save(tmp_path / "wide.png")
    audit = with_images(audit_folder, [str(tmp_path / "wide.png")])
    with running(audit, tmp_path / "d.sqlite") as client:
        _, headers, body = client.ask("/thumb/0")
        (tmp_path / "got.jpg").write_bytes(body)
        with Image.open(tmp_path / "got.jpg") as small:
            assert (headers["content-type"], small.size) == ("image/jpeg", (320, 160))
        Image.new("RGB", (600, 600), "red").save(
            tmp_path / "wide.png"
        )  # another image of the same name
        assert client.ask("/thumb/0")[2] != body


def test_what_the_page_receives(read_only: Client) -> None:
    audit, received = read_only.session.audit, read_only.get("/api/samples")
    assert received["ids"] == audit.ids
    assert received["keys"] == ["0", "1", "2", "3"]
    assert received["queue"] == audit.expected_wrong
    probabilities = np.reshape(received["probabilities"], (16, 4)) / 10_000
    assert np.abs(probabilities - audit.probabilities).max() <= 0.00005
    # the page shows both: the probability that the label is right, and that of each grade
    assert probabilities[range(16), received["labels"]].tolist() == received["quality"]
    assert [
        received["patients"]["names"][k] for k in received["patients"]["codes"]
    ] == audit.patients
    close = [[n for n in row if n >= 0] for row in audit.neighbours[3].tolist()]
    assert read_only.get("/api/neighbours/3") == close


def test_an_empty_reader_is_named_not_given(audit_folder: Path, tmp_path: Path) -> None:
    audit = replace(read_audit(audit_folder), readers=["Ann", "", " "] * 5 + ["Ann"])
    with running(audit, tmp_path / "d.sqlite") as client:
        found = client.get("/api/samples")["readers"]
        assert found == {"names": ["Ann", "(not given)"], "codes": [0, 1, 1] * 5 + [0]}


def test_decide_and_undo(client: Client) -> None:
    audit = client.session.audit
    other = (int(audit.labels[0]) + 1) % 4
    status, answer = client.decide(0, "set", grade=other)
    assert status == 200
    assert answer["changes"][0]["decision"]["grade"] == other
    assert answer["progress"]["changed"] == 1
    (entry,) = Decisions(client.session.decisions.path).log()  # on disk, seen by another connection
    assert (entry.id, entry.action, entry.to_grade) == (audit.ids[0], "set", audit.grades[other])
    assert client.decide(1, "accept")[1]["changes"][0]["decision"]["grade"] in range(4)
    object.__setattr__(audit, "suggested", np.full(len(audit), -1))  # none is suggested
    assert client.decide(2, "accept")[0] == 400
    updates = client.get("/api/updates?since=0")
    assert updates["undoable"] == [[1, 0], [2, 1]]
    assert client.get("/api/updates?since=2")["changes"] == []
    status, answer = client.post("/api/undo", {"revision": 2, "since": 2})
    assert (status, answer["line"]) == (200, 1)
    assert answer["changes"] == [{"line": 1, "seen": 3, "decision": None}]
    assert client.post("/api/undo", {"revision": 2, "since": 3})[0] == 409  # once


def test_a_stale_page_gets_the_current_decision(client: Client) -> None:
    elsewhere = Decisions(client.session.decisions.path)  # another server on the same folder
    audit = client.session.audit
    label = audit.grades[audit.labels[0]]
    elsewhere.decide(audit.ids[0], reviewer="ben", action="skip", grade=label, label=label, seen=0)
    status, answer = client.decide(0, "keep")
    assert status == 409
    assert (answer["current"]["reviewer"], answer["current"]["action"]) == ("ben", "skip")
    assert len(client.session.decisions.log()) == 1
    assert client.decide(0, "keep", seen=answer["changes"][0]["seen"])[0] == 200  # knowingly
    elsewhere.close()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"line": -1}, 400), ({"line": 16}, 410), ({"line": "0"}, 400), ({"line": True}, 400), ({"id": "x"}, 410),
        ({"action": "undo"}, 400), ({"action": None}, 400), ({"action": "set"}, 400),
        ({"action": "set", "grade": 4}, 400),
        ({"action": "set", "grade": -1}, 400), ({"seen": None}, 400), ({"since": 1e400}, 400), ({"seen": 7}, 409),
    ],
)  # fmt: skip
def test_an_invalid_request_decides_nothing(
    read_only: Client, change: dict[str, Any], status: int
) -> None:
    assert read_only.post("/api/decide", {**read_only.decision(), **change})[0] == status
    assert read_only.session.decisions.log() == []


def test_invalid_bodies_and_methods(read_only: Client) -> None:
    strange = (b"{", b"[]", b"[" * 10_000, b"\xff\xfe", b"\0", b'{"line": %s}' % (b"9" * 5000))
    for body in (*strange, b'{"line": -1e999, "seen": NaN}'):  # also deeper than Python follows
        assert read_only.post("/api/decide", body)[0] == 400
    assert read_only.post("/api/decide", b"x" * 20_000)[0] == 413
    assert read_only.ask("/api/decide")[0] == 405
    assert read_only.ask("/image/0", method="DELETE")[0] == 403
    assert read_only.ask("/api/updates?since=x")[0] == 404


def test_a_log_that_cannot_be_written_is_reported(client: Client) -> None:
    client.session.decisions._connection.execute("PRAGMA query_only = ON")
    status, said = client.decide(0)
    assert (status, "The decision was not saved" in said) == (503, True)
    assert client.get("/api/updates?since=0")["changes"] == []
    client.session.decisions._connection.execute("PRAGMA query_only = OFF")
    assert client.decide(0)[0] == 200


def test_concurrent_decisions_are_recorded_once(client: Client) -> None:
    """Four threads on the same sixteen images: one decides each, the others get a conflict."""
    answers: list[int] = []

    def review() -> None:
        for line in range(16):
            answers.append(client.decide(line)[0])

    threads = [threading.Thread(target=review) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] * 16 + [409] * 48
    assert len(client.session.decisions.log()) == 16


def test_remote_access_needs_allow_remote() -> None:
    with refuses("missing_option", "host", says="--allow-remote"):
        listen(host="0.0.0.0")
    server = listen(host="0.0.0.0", allow_remote=True)
    assert server.any_address
    server.socket.close()
    assert not listen().any_address


def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with refuses("unreachable", "port", says=f"Port {port} of 127.0.0.1"):
            listen(port=port)
    with refuses("unreachable", "port"):
        listen(host="no.such.host.invalid", allow_remote=True)


@pytest.mark.parametrize(
    ("grades", "keys"),
    [
        (["none", "mild", "severe"], ["0", "1", "2"]),
        (["Mayo 0", "Mayo 1"], ["0", "1"]),
        (["1", "2", "3"], ["1", "2", "3"]),  # who types 1 means 1
        (["G1 of 3", "G2 of 3"], ["0", "1"]),
        (["1", "1b"], ["0", "1"]),
        ([f"{n}" for n in range(1, 13)], [*map(str, range(10)), "", ""]),
    ],
)
def test_grade_keys(grades: list[str], keys: list[str]) -> None:
    assert grade_keys(grades) == keys


# Clients that mean harm: long bodies, numbers and paths that no page sends.
def chunked(client: Client, chunks: int, chunk: bytes) -> tuple[int, int]:
    """Send a decision in chunks, as of five bytes; return the status and how many chunks were
    taken."""
    host = f"127.0.0.1:{client.server.port}"
    sent = {
        "Host": host,
        "Cookie": client.cookie,
        "Origin": f"http://{host}",
        "Content-Length": "5",
    }
    sent["Transfer-Encoding"] = "chunked"
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


@pytest.mark.slow
def test_the_bytes_received_count_not_the_content_length(client: Client) -> None:
    # the buffers of both sides hold a few megabytes; 300 were taken before
    status, taken = chunked(client, 2000, b" " * 16384)
    assert status in (413, 0)  # 0: closed before the answer was read
    assert taken < 1500
    status, _ = chunked(client, 2, b" " * (MAX_BODY // 2 + 1))
    assert status == 413
    assert chunked(client, 2, b" ")[0] == 400  # short, but no JSON
    assert client.session.decisions.log() == []
    assert client.decide(0)[0] == 200


@pytest.mark.slow
def test_a_strange_number_is_refused(client: Client) -> None:
    for path in ("/image/", "/thumb/", "/api/neighbours/", "/api/updates?since="):
        for number in ("9" * 4301, "0" * 30_000, "%C2%B2", "-1", "1e3", "9" * 21):
            assert client.ask(path + number)[0] == 404


@pytest.mark.slow
def test_a_strange_length_is_refused(client: Client) -> None:
    for length in ("9" * 19, "9" * 5000, "-1", "1,2"):
        with contextlib.suppress(ConnectionError):  # closed before its answer was read
            status = client.ask("/api/decide", method="POST", body=b"{}", content_length=length)[0]
            assert status in (400, 413)
        assert client.ask("/api/samples")[0] == 200


@pytest.mark.slow
def test_images_with_impossible_names_or_headers_are_not_found(
    audit_folder: Path, tmp_path: Path
) -> None:
    huge, deep = tmp_path / "huge.npy", tmp_path / "deep.npy"
    header = {"descr": "|u1", "fortran_order": False, "shape": (2**62, 3)}
    np.lib.format.write_array_header_1_0(huge.open("wb"), header)
    deep.write_bytes(b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000)
    names = ["a\0b.png", "a" * 5000, "/".join(["a"] * 3000), str(huge), str(deep), "loop.png"]
    (audit_folder / "loop.png").symlink_to("loop.png")
    with running(with_images(audit_folder, names), tmp_path / "d.sqlite") as client:
        for line in range(len(names)):
            assert client.ask(f"/thumb/{line}")[0] == 404
            status, _, reason = client.ask(f"/image/{line}")
            assert (status, len(reason) > 30) == (404, True)


@pytest.mark.slow
def test_a_log_that_becomes_unreadable_is_a_sentence(client: Client) -> None:
    client.session.decisions._connection.execute("DROP TABLE log")
    status, _, said = client.ask("/api/updates?since=0")
    assert (status, b"cannot be read" in said) == (503, True)


# A program of this machine that wants to stop the review: half-sent requests, many connections,
# strange values.


def test_half_sent_requests_do_not_keep_the_page_from_others(read_only: Client) -> None:
    """They used up the open files of the process: 1,100 of them where 1,024 are allowed."""
    half = []
    try:
        for _ in range(3 * MOST_CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", read_only.server.port), timeout=5)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.")
            half.append(connection)
        assert read_only.ask("/api/samples")[0] == 200
        own = [one for others in LimitedProtocol.of_address.values() for one in others]
        assert len(own) <= MOST_CONNECTIONS + 1
    finally:
        for connection in half:
            connection.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost:", b"POST /api/decide HTTP/1.1\r\nHost: x\r\nContent-L"]
)
def test_a_request_that_never_ends_is_ended(
    read_only: Client, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(review_app, "REQUEST_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", read_only.server.port), timeout=10) as connection:
        connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""


@pytest.mark.parametrize("action", [[], {}, ["keep"], {"keep": 1}, None, 1, "other"])
def test_an_action_of_another_type_is_refused(read_only: Client, action: Any) -> None:
    status, said = read_only.post("/api/decide", {**read_only.decision(0), "action": action})
    assert (status, said) == (400, "The action must be set, accept, keep or skip.")


def test_only_this_user_reads_the_decisions(client: Client) -> None:
    client.decide(0)
    for file in client.session.decisions.path.parent.glob("decisions.sqlite*"):
        assert file.stat().st_mode & 0o077 == 0, file
