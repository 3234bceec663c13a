"""``srjt data`` as a person runs it, in a terminal of 80 columns."""

from __future__ import annotations

import csv
import hashlib
import io
import shlex
import shutil
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from srjt.data.sources import folders as published

from .conftest import Srjt


@pytest.fixture
def srjt(command: Srjt) -> Srjt:
    """Runs ``srjt data …``: exit status, output, messages."""
    return Srjt(command.capsys, "data")


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """40 good images of 20 patients, two per patient, grades 0 … 3."""
    folder = tmp_path / "data"
    folder.mkdir()
    generator = np.random.default_rng(0)
    rows = ["image,grade,patient"]
    for number in range(40):
        pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{number // 2 % 4},p{number // 2}")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder / "labels.csv"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_inspect_shows_what_was_understood(srjt: Srjt, labels: Path) -> None:
    out = srjt.prints("inspect", labels)
    assert "image: column 'image' (by its name)" in out
    assert " all   │     40 │" in out
    assert "Images per patient: 2" in out
    assert "8×8 (40)" in out
    assert "No problems were found." in out
    assert Image.open("contact_sheet.png").width > 500
    assert not Path("problems.csv").exists()
    Path("problems.csv").touch()  # left there by an inspection of another table
    earlier = "problems.csv in this folder: from an earlier inspection."
    assert earlier not in out
    assert earlier in srjt.prints("inspect", labels)


@pytest.mark.slow
def test_inspect_tells_all_problems_and_leaves_with_1(srjt: Srjt, labels: Path) -> None:
    (labels.parent / "3.png").unlink()
    (labels.parent / "4.png").write_bytes(b"")
    with labels.open("a") as file:
        file.write("\n41.png,x,p1\n0.png,0,p0\n")
    code, out, _ = srjt("inspect", labels, "--out", "[a]/new")
    assert code == 1
    assert "from a sample" not in out  # all images that can be read
    assert "error: 1 missing-image" in out
    assert "error: 1 empty-image" in out
    assert "error: 1 invalid-grade" in out
    assert "41.png: line 42: 'x' is not one of 0, 1, 2, 3" in out
    assert "warning: 1 duplicate-row" in out
    assert [row["severity"] for row in rows(Path("[a]/new/problems.csv"))].count("error") == 3
    assert "Examples of each grade: [a]/new/contact_sheet.png" in out


def test_inspect_names_options_as_they_are_typed(srjt: Srjt, labels: Path) -> None:
    """In its lines, on its page and in its list of problems."""
    table = pd.read_csv(labels)
    unclear = table.assign(kind=table["grade"].map({0: "x", 1: "y", 2: "z", 3: "w"}))
    for name, changed, option in (
        ("none", table.drop(columns="grade"), "--grade-column"),
        ("gap", table[table["grade"] != 1], "--grades"),
        ("order", unclear.drop(columns="grade").rename(columns={"kind": "grade"}), "--grades"),
    ):
        path = labels.parent / f"{name}.csv"
        changed.to_csv(path, index=False)
        _, out, err = srjt("inspect", path, "--out", name)
        files = [Path(name, file).read_text() for file in ("problems.csv", "inspection.html")]
        assert not any("`grade" in text for text in (out, err, *files))
        assert all(option in text for text in (out, *files))


def test_inspect_with_warnings_only_is_fine(srjt: Srjt, labels: Path) -> None:
    out = srjt.prints("inspect", labels, "--no-decode", "--folds", 9)
    assert out.splitlines()[-1].startswith(f"Next: srjt train {labels} --fold 0 --out run")
    assert "warning: 4 few-patients" in out
    assert "… and 1 more" in out
    assert not Path("contact_sheet.png").exists()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_next_command_fits_the_machine(
    srjt: Srjt, labels: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """Without a GPU the features of a frozen network."""
    monkeypatch.setattr("srjt.training.devices.choose_device", lambda: torch.device(device))
    words = ["srjt", "train", str(labels), "--fold", "0", "--out", "run"]
    _, out, _ = srjt("inspect", labels, "--no-decode", "--patient-column", "patient")
    assert "patient_column: patient\n" in labels.with_suffix(".srjt.yaml").read_text()
    said, _, command = out.rpartition("Next: ")
    small = ["--preset", "cpu"]
    assert shlex.split(command) == words + small * (device == "cpu")
    assert ("There is no GPU, so the next command uses --preset cpu" in said) == (device == "cpu")

    np.savez("features.npz", features=np.eye(40, dtype=np.float32), grades=np.arange(40) % 4)
    _, out, _ = srjt("inspect", "features.npz")
    assert out.endswith("Next: srjt train features.npz --fold 0 --out run\n")
    assert "GPU" not in out


@pytest.mark.parametrize(
    ("arguments", "about", "says"),
    [
        (["inspect", "LABELS", "--grade-column", "grad"], "unknown_name", "'grade'"),
        (["inspect", "LABELS", "--images", "."], "missing_file images", ""),
        (["inspect", "moved.csv"], "missing_file images", "a.png"),
        (
            ["inspect", "features.csv"],
            "missing_file images",
            "",
        ),
        (
            ["inspect", "values.csv"],
            "missing_column image_column",
            "",
        ),
        (
            ["inspect", "readers.csv"],
            "missing_file images",
            "",
        ),
        (["split", "LABELS", "--out", "."], "unwritable_file", ""),
        (["corrupt", "LABELS"], "missing_option rate", ""),
        (["corrupt", "LABELS", "--rate", "0.1", "--noise", "quasy"], "unknown_name", "'quasi'"),
        (["inspect", "our photos", "--kind", "dr"], "wrong_file", "trainLabels.csv"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(
    srjt: Srjt, labels: Path, arguments: list[str], about: str, says: str
) -> None:
    Path("features.csv").write_text("id,feat_0,feat_1,grade\na,0.5,1,0\nb,0.1,2,1\n")
    Path("values.csv").write_text("case,age,bmi,hb,grade\na,30,20,1,0\nb,40,30,2,1\n")
    Path("readers.csv").write_text("file,smith,jones\na.png,0,1\nb.png,1,0\n")
    Path("moved.csv").write_text("file,grade\na.png,0\nb.png,1\n")
    Path("our photos").mkdir()
    Path("our photos/a.png").touch()
    words = [str(labels) if argument == "LABELS" else argument for argument in arguments]
    srjt.fails(about, says, *words)


def test_split_writes_folds_without_shared_patients(srjt: Srjt, labels: Path) -> None:
    assert "24 (12)" in srjt.prints("split", labels, "--out", "a.csv")
    patient_of = {row["image"]: row["patient"] for row in rows(labels)}
    written = rows(Path("a.csv"))
    assert len(written) == 5 * 40
    sides = {(row["fold"], patient_of[row["id"]], row["split"]) for row in written}
    assert len(sides) == 5 * 20
    srjt("split", labels, "--out", "b.csv")
    srjt("split", labels, "--out", "c.csv", "--seed", 1)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes() != Path("c.csv").read_bytes()


def test_split_without_patients_warns_once(srjt: Srjt, labels: Path) -> None:
    labels.write_text(labels.read_text().replace("patient", "remark"))
    code, _, err = srjt("split", labels)
    assert code == 0
    assert err.count("leakage") == 1
    assert err.startswith("Warning: There are no patient ids")


@pytest.mark.slow
def test_bad_rows_stop_a_split_or_are_skipped_and_listed(srjt: Srjt, labels: Path) -> None:
    with labels.open("a") as file:
        file.write("\n41.png,,p1\n")
    assert "--on-bad-image skip" in srjt.refuses("split", labels)
    code, _, err = srjt("split", labels, "--on-bad-image", "skip")
    assert (code, err) == (
        0, "Warning: Left out: 1 missing-grade (41.png). The full list is in skipped.csv.\n"
    )  # fmt: skip
    assert [row["where"] for row in rows(Path("skipped.csv"))] == ["41.png"]


@pytest.mark.slow
def test_corrupt_writes_both_columns_and_says_the_rates(srjt: Srjt, labels: Path) -> None:
    out = srjt.prints("corrupt", labels, "--noise", "quasi", "--rate", 0.4, "--seed", 3)
    noisy = rows(Path("labels_quasi_0.4_seed3.csv"))
    assert [row["true_grade"] for row in noisy] == [row["grade"] for row in rows(labels)]
    wrong = np.mean([row["grade"] != row["true_grade"] for row in noisy])
    assert 0 < wrong < 1
    assert f"noise rate: nominal 0.4000, realised {wrong:.4f}\n" in out
    assert out.count(" of 10\n") == 4
    assert "true grade: column 'true_grade'" in srjt.prints("inspect", "labels_quasi_0.4_seed3.csv")


def test_noise_is_not_put_on_noise(srjt: Srjt, labels: Path) -> None:
    srjt("corrupt", labels, "--rate", 0.4, "--out", "noisy.csv")
    assert "true grades already" in srjt.refuses("corrupt", "noisy.csv", "--rate", 0.4)
    srjt.prints(
        "corrupt", "noisy.csv", "--rate", 0.4, "--grade-column", "true_grade", "--out", "again.csv"
    )
    assert [r["grade"] for r in rows(Path("again.csv"))] == [
        r["grade"] for r in rows(Path("noisy.csv"))
    ]


def test_test_labels_stay_clean_unless_told(srjt: Srjt, labels: Path) -> None:
    header, *body = labels.read_text().splitlines()
    sided = [f"{row},{'test' if number < 20 else 'train'}" for number, row in enumerate(body)]
    labels.write_text("\n".join([f"{header},split", *sided]))

    def wrong(side: str) -> int:
        return sum(
            r["grade"] != r["true_grade"] for r in rows(Path("noisy.csv")) if r["split"] == side
        )

    out = srjt.prints("corrupt", labels, "--rate", 0.5, "--out", "noisy.csv")
    assert "20 test labels stayed as given." in out
    assert wrong("test") == 0 < wrong("train")
    srjt("corrupt", labels, "--rate", 0.5, "--out", "noisy.csv", "--include-test", "--force")
    assert wrong("test") > 0


def small_limuc() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        for number in range(8):
            pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
            bmp = io.BytesIO()
            Image.fromarray(pixels).save(bmp, "BMP")
            name = f"patient_based_classified_images/{number // 2}/Mayo {number % 4}/{number}.bmp"
            opened.writestr(name, bmp.getvalue())
    return archive.getvalue()


class BreaksOff(BaseHTTPRequestHandler):
    """Sends at most 3,000 bytes, then the line is dead."""

    body = small_limuc()
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(self.body) - start))
        if start:
            self.send_header(
                "Content-Range", f"bytes {start}-{len(self.body) - 1}/{len(self.body)}"
            )
        self.end_headers()
        self.wfile.write(self.body[start : start + 3000])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), BreaksOff) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/x.zip"
        server.shutdown()
        thread.join()


def test_limuc_is_fetched_over_a_breaking_line_and_then_inspected(
    srjt: Srjt, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert srjt.prints("limuc", "uc", "--url", mirror).endswith("Next: srjt data inspect uc\n")
    assert BreaksOff.asked > 1
    name = "patient_based_classified_images"
    assert sorted(item.name for item in Path("uc").iterdir()) == [name, f"{name}.zip.sha256"]
    asked = BreaksOff.asked
    srjt.prints("limuc", "uc", "--url", mirror)
    assert BreaksOff.asked == asked  # nothing to fetch

    code, out, _ = srjt("inspect", "uc", "--no-decode")
    assert code == 0  # own data may have the same layout
    assert "warning: 6 not-as-published: " in out
    assert "images: 8 where 11,276 were published" in out
    assert rows(Path("problems.csv"))[5]["detail"] == "2 where 865 were published"

    monkeypatch.setattr(published, "LIMUC_COUNTS", (2, 2, 2, 2))
    monkeypatch.setattr(published, "LIMUC_PATIENTS", 4)
    assert "All counts are those that were published." in srjt.prints(
        "inspect", "uc", "--no-decode"
    )
    _, out, _ = srjt(
        "inspect", "uc", "--no-decode", "--map-grades", "Mayo 0=0,Mayo 1=0,Mayo 2=1,Mayo 3=1"
    )
    assert "published" not in out


def test_an_archive_that_is_not_the_one_of_the_first_download_is_refused(
    srjt: Srjt, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(BreaksOff.body).hexdigest()
    unpacked = Path("uc/patient_based_classified_images")
    assert f"SHA-256 of the archive: {digest}" in srjt.prints("limuc", "uc", "--url", mirror)
    assert (
        Path("uc/patient_based_classified_images.zip.sha256").read_text()
        == f"{digest}  {unpacked.name}.zip\n"
    )
    shutil.rmtree(unpacked)
    srjt.prints("limuc", "uc", "--url", mirror)  # the same once more
    shutil.rmtree(unpacked)
    monkeypatch.setattr(BreaksOff, "body", BreaksOff.body[:-1] + b"x")
    err = srjt.refuses("limuc", "uc", "--url", mirror)
    assert "is not the file that was downloaded first" in err
    assert not unpacked.exists()


@pytest.mark.slow
def test_kaggles_labels_and_images_are_counted(srjt: Srjt, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dr/train").mkdir(parents=True)
    Path("dr/trainLabels.csv").write_text(
        "image,level\n1_left,0\n1_right,1\n2_left,2\n2_right,3\n3_left,4\n3_right,0\n"
    )
    for name in ("1_left", "1_right", "2_left", "2_right", "3_left"):
        Image.new("RGB", (8, 8)).save(f"dr/train/{name}.jpeg")
    code, out, _ = srjt("inspect", "dr")
    assert code == 1
    assert "images: 6 where 35,126 were published" in out
    assert "error: 1 missing-image" in out
    Image.new("RGB", (8, 8)).save("dr/train/3_right.jpeg")
    monkeypatch.setattr(published, "DR_COUNTS", (2, 1, 1, 1, 1))
    assert "All counts are those that were published." in srjt.prints("inspect", "dr")


@pytest.mark.slow
def test_files_of_an_earlier_inspection_are_not_replaced_in_silence(
    srjt: Srjt, labels: Path
) -> None:
    assert "replaced" not in srjt("inspect", labels)[1]
    assert "contact_sheet.png (the previous file was replaced)" in srjt("inspect", labels)[1]
