"""Files, locks, downloads and archives."""

import io
import json
import os
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel

from refusals import refuses
from srjt import download as downloads, files, networks as weights
from srjt.auditing.folder import read_audit, read_scores, read_summary
from srjt.studies.folder import read_study
from srjt.training.trained import load_run
from srjt.validation import made_by


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("missing", ("missing_file",)),
        ("folder", ("unreadable_file", "", "a folder")),
        ("pipe", ("unreadable_file", "", "a pipe")),
        ("x" * 300, ("unreadable_file", "", "too long")),
        ("a\0b", ("unreadable_file", "", "NUL")),
        ("\ud800", ("unreadable_file", "", "cannot be read")),
    ],
)
def test_what_is_not_a_file_gets_a_sentence(
    tmp_path: Path, name: str, refused: tuple[str, ...]
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with refuses(*refused):
        files.check_regular_file(tmp_path / name)


def test_links_to_files_are_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    files.check_regular_file(tmp_path / "link")
    files.check_regular_files(tmp_path)
    (tmp_path / "zero").symlink_to("/dev/zero")
    with refuses("unreadable_file", says=("zero", "a pipe")):
        files.check_regular_files(tmp_path)


@pytest.mark.parametrize(
    ("open_folder", "name"),
    [
        (load_run, "run.json"),
        (load_run, "weights.safetensors"),
        (load_run, "sub/summary.json"),
        (read_audit, "audit.json"),
        (read_summary, "summary.json"),
        (lambda folder: read_scores(folder, samples=1), "audit.csv"),
        (read_study, "study.json"),
    ],
)
def test_a_pipe_in_a_folder_does_not_hang(
    tmp_path: Path, open_folder: Callable[..., Any], name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    with refuses("unreadable_file", says="a pipe"):
        open_folder(tmp_path)


def test_a_pipe_as_weights_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.safetensors")
    with refuses("missing_file", "weights"):
        weights.read_weights(tmp_path / "w.safetensors")


class _Part(BaseModel, extra="forbid"):
    number: int


class _File(BaseModel, extra="forbid"):
    format: Literal[2]
    parts: list[_Part]
    made: Annotated[str, made_by(lambda value: value["name"])]


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        (b'{"format": 1, "parts": 3}', ("other_version",)),
        (b'{"parts": 3}', ("damaged_file", "", "(format: ")),
        (
            b'{"format": 2, "parts": [{"number": true}], "made": {"name": "a"}}',
            ("damaged_file", "", "parts.0.number: Input"),
        ),
        (b'{"format": 2, "parts": [], "made": {}}', ("damaged_file", "", "'name'")),
        (
            b'{"format": 2, "parts": [], "made": {"name": "a"}, "x\\u001b": 1}',
            ("damaged_file", "", "(x\\x1b: "),
        ),
        (b"[" * 100_000, ("damaged_file",)),
        (b'{"format": ' + b"9" * 5000 + b"}", ("damaged_file", "", "number out of range")),
        (b"\xff\xfe", ("damaged_file",)),
        (b"", ("damaged_file",)),
    ],
)
def test_a_damaged_json_file_is_one_sentence(
    tmp_path: Path, content: bytes, refused: tuple[str, ...]
) -> None:
    (tmp_path / "x").write_bytes(content)
    with refuses(*refused) as caught:
        files.read_json(tmp_path / "x", _File, advice="make it anew")
    assert len(str(caught.value)) < 400
    assert "\x1b" not in str(caught.value)


def test_json_has_no_numbers_that_are_none(tmp_path: Path) -> None:
    content = {
        "a": [float("nan"), 1.5, (np.float64("inf"),)],
        2: np.array([[np.nan, 2.0]]),
        "n": np.int64(3),
    }
    files.write_json(tmp_path / "x.json", content)
    read = json.loads((tmp_path / "x.json").read_text(), parse_constant=pytest.fail)
    assert read == {"a": [None, 1.5, [None]], "2": [[None, 2.0]], "n": 3}


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert files.read_limited(tmp_path / "x", limit=5) == b"12345"
    with refuses("wrong_file", says="4 bytes"):
        files.read_limited(tmp_path / "x", limit=4)


# Against a real server on this machine that breaks off midway, ignores ranges, lies or refuses.
BODY = bytes(range(256)) * 1000


class Server(ThreadingHTTPServer):
    """Sends ``body``, at most ``limit`` bytes per answer; ``ranges``: whether it can resume."""

    body = BODY
    limit = len(BODY)
    ranges = True
    announce = True
    answers: list[int]  # statuses to give before anything else
    asked: list[str | None]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/archive.zip"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        if server.answers:
            self.send_error(server.answers.pop(0))
            return
        start = (
            int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
        )
        if start and start >= len(server.body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(server.body)}")
            self.end_headers()
            return
        rest = server.body[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header(
                "Content-Range", f"bytes {start}-{len(server.body) - 1}/{len(server.body)}"
            )
        if server.announce:
            self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(
            rest[: server.limit]
        )  # and the connection ends, however much was announced

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(downloads, "PAUSE", 0)
    monkeypatch.setattr(downloads, "ATTEMPTS", 3)
    with Server(("127.0.0.1", 0), Handler) as running:
        running.answers, running.asked = [], []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_an_interrupted_download_is_resumed(server: Server, tmp_path: Path) -> None:
    server.limit = 100_000
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "new/archive.zip"
    downloads.download(server.url, target, progress=lambda done, total: seen.append((done, total)))
    assert target.read_bytes() == BODY
    assert server.asked == [None, "bytes=100000-", "bytes=200000-"]
    assert seen[-1] == (len(BODY), len(BODY))
    assert [path.name for path in target.parent.iterdir()] == ["archive.zip"]


@pytest.mark.parametrize(
    "part", [BODY[:1234], BODY, BODY + b"more"], ids=["resumed", "whole", "too long"]
)
def test_a_partial_file_of_another_day(server: Server, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "archive.zip.part").write_bytes(part)
    downloads.download(server.url, tmp_path / "archive.zip")
    assert server.asked[0] == f"bytes={len(part)}-"
    assert (tmp_path / "archive.zip").read_bytes() == BODY


def test_a_server_that_ignores_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    server.ranges = server.announce = False  # nor does it say how long the file is
    (tmp_path / "archive.zip.part").write_bytes(b"x" * 5000)
    downloads.download(server.url, tmp_path / "archive.zip")
    assert (tmp_path / "archive.zip").read_bytes() == BODY


def test_it_gives_up_when_nothing_new_arrives_and_keeps_what_has(
    server: Server, tmp_path: Path
) -> None:
    server.limit, server.ranges = 70_000, False
    with refuses("unreachable", says="70,000 bytes"):
        downloads.download(server.url, tmp_path / "archive.zip")
    assert len(server.asked) == 4  # one that got on, three that did not
    assert (tmp_path / "archive.zip.part").read_bytes() == BODY[:70_000]
    assert not (tmp_path / "archive.zip").exists()
    server.limit, server.ranges = len(BODY), True
    downloads.download(server.url, tmp_path / "archive.zip")
    assert (tmp_path / "archive.zip").read_bytes() == BODY


def test_temporary_failures_are_retried_and_others_not(server: Server, tmp_path: Path) -> None:
    server.answers = [503, 429]
    downloads.download(server.url, tmp_path / "archive.zip")
    assert (tmp_path / "archive.zip").read_bytes() == BODY
    server.answers, server.asked = [404], []
    with refuses("unreachable", says="404"):
        downloads.download(server.url, tmp_path / "other.zip")
    assert len(server.asked) == 1


def test_no_server_is_one_sentence(server: Server, tmp_path: Path) -> None:
    url = server.url
    server.server_close()
    with refuses("unreachable", says="0 bytes"):
        downloads.download(url, tmp_path / "archive.zip")
    with refuses("unreachable", says="Only http"):
        downloads.download("file:///etc/passwd", tmp_path / "archive.zip")


def test_a_disk_too_small_is_reported_before(
    server: Server, tmp_path: Path, monkeypatch: Any
) -> None:
    usage = downloads.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda _: usage)
    with refuses("no_space"):
        downloads.download(server.url, tmp_path / "archive.zip")


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return path


def test_unpacking_can_be_repeated(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.zip", {"p/Mayo 0/a.bmp": b"one", "p/empty/": b"", "p/b.bmp": b"two"}
    )
    seen: list[tuple[int, int]] = []
    downloads.extract(
        path, tmp_path / "out", progress=lambda done, total: seen.append((done, total))
    )
    assert (tmp_path / "out/p/Mayo 0/a.bmp").read_bytes() == b"one"
    assert seen == [(1, 3), (2, 3), (3, 3)]
    (tmp_path / "out/p/b.bmp").write_bytes(b"t")  # as a killed copy would leave it
    stamp = (tmp_path / "out/p/Mayo 0/a.bmp").stat().st_mtime_ns
    downloads.extract(path, tmp_path / "out")
    assert (tmp_path / "out/p/b.bmp").read_bytes() == b"two"
    assert (tmp_path / "out/p/Mayo 0/a.bmp").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("name", ["/evil", "a/../../evil", "..\\evil", "C:/evil", "\\\\host\\evil"])
def test_paths_outside_of_the_folder_are_refused_before_a_file_is_written(
    tmp_path: Path, name: str
) -> None:
    path = archive(tmp_path / "a.zip", {"good": b"1", name: b"2"})
    with refuses("unsafe_file", says="outside"):
        downloads.extract(path, tmp_path / "deep/out")
    assert sorted(item.name for item in tmp_path.rglob("*")) == ["a.zip"]


def test_links_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        opened.writestr(link, "/etc")
    with refuses("unsafe_file", says="'link'"):
        downloads.extract(tmp_path / "a.zip", tmp_path / "out")


def test_a_link_that_lay_there_before_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/p").symlink_to(tmp_path / "elsewhere")
    with refuses("unsafe_file", says="leads out"):
        downloads.extract(archive(tmp_path / "a.zip", {"p/evil": b"1"}), tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_damaged_archive_is_one_sentence_and_leaves_no_damaged_file(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr("a.bmp", b"AAAA" * 100)
        opened.writestr("b.bmp", b"BBBB" * 100)
    content = buffer.getvalue()
    (tmp_path / "a.zip").write_bytes(content.replace(b"BBBB", b"BBXB", 1))
    with refuses("damaged_file", says="b.bmp"):
        downloads.extract(tmp_path / "a.zip", tmp_path / "out")
    assert [item.name for item in (tmp_path / "out").iterdir()] == ["a.bmp"]
    (tmp_path / "a.zip").write_bytes(content[:300])
    with refuses("damaged_file"):
        downloads.extract(tmp_path / "a.zip", tmp_path / "out")


def test_a_linked_partial_file_is_not_written_through(server: Server, tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("mine")
    (tmp_path / "file.part").symlink_to(own)
    downloads.download(server.url, tmp_path / "file")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.bmp.part").symlink_to(own)
    downloads.extract(archive(tmp_path / "a.zip", {"a.bmp": b"one"}), tmp_path / "out")
    assert (tmp_path / "out" / "a.bmp").read_bytes() == b"one"
    assert own.read_text() == "mine"


@pytest.mark.parametrize("names", [("a", "a/b"), ("a", "a/"), ("a.part/", "a"), ("a/b", "a")])
def test_names_that_clash_are_one_sentence(tmp_path: Path, names: tuple[str, str]) -> None:
    path = archive(
        tmp_path / "a.zip", {name: b"" if name.endswith("/") else b"x" for name in names}
    )
    with refuses("unwritable_file"):
        downloads.extract(path, tmp_path / "o")


def test_an_archive_of_an_unknown_compression_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    files.save_arrays(path, {"a": np.arange(5)})
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 10] = 77  # the method, in the list at the end
    content[8] = 77  # and before the file
    path.write_bytes(bytes(content))
    assert files.load_arrays(path) == {}
