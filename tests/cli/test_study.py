"""``srjt study`` and ``srjt demo``."""

from __future__ import annotations

import html
import os
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from processes import Limit
from srjt.reports.demo import PAGES
from srjt.studies.folder import read_study, run_status
from srjt.studies.results import collect_results

from .conftest import Srjt

# ``srjt study`` as a person runs it, and as machines treat it.


FILE = """\
source: synthetic
reading: {images: 120, patients: 24, size: 32}
folds: 3
methods: [standard, co-teaching+ours]
noises: [quasi:0.4]
train: {network: tiny, pretrained: false, image_size: 32, crop: 28, epochs: 1, batch_size: 16}
"""


@pytest.fixture
def study(command: Srjt) -> Srjt:
    """Runs ``srjt study --config study.yaml …`` on the CPU."""
    Path("study.yaml").write_text(FILE)

    return Srjt(command.capsys, "study", "--config", "study.yaml", "--device", "cpu", "--jobs", 2)


def test_a_study_has_the_settings_of_a_training(command: Srjt) -> None:
    """Those that the help does not list, too; but --methods instead of --method."""
    for option, value in (("--image-size", 0), ("--weight-decay", -1)):
        code, _, err = command("study", "labels.csv", option, value)
        assert (code, err.startswith(f"srjt: {option} ")) == (2, True)
    code, _, err = command("study", "labels.csv", "--method", "srjt")
    assert (code, "--methods" in err) == (2, True)


@pytest.mark.parametrize(("verb", "option"), [("study", "--methods"), ("review", "--port")])
def test_a_verb_that_was_not_typed_is_not_named(command: Srjt, verb: str, option: str) -> None:
    assert option in command(verb, "-h")[1]
    code, _, err = command(verb, "x", "--misspelt")
    assert code == 2
    assert f"srjt {verb} [OPTIONS]" in err
    assert "run" not in err.split()


def planned(out: str = "study") -> list[str]:
    return [cell.key for cell in read_study(Path(out)).cells]


@pytest.mark.slow
def test_what_is_done_is_counted_with_a_backbone_that_auto_chooses(study: Srjt) -> None:
    auto = ("--fold", 0, "--methods", "standard", "--backbone", "auto")
    study.prints(*auto)
    assert study.prints(*auto).startswith("1 run: 1 done, 0 to do.")
    assert study.prints(*auto, "--dry-run").startswith("1 run: 1 done, 0 to do.")


@pytest.mark.slow
def test_a_study_from_plan_to_table(study: Srjt, command: Srjt) -> None:
    out = study.prints("--fold", 0, "--dry-run")
    assert out.splitlines()[0] == "2 runs: 0 done, 2 to do. 120 images, 1 fold."
    assert [line.split()[::2] for line in out.splitlines()[-2:]] == [
        ["standard", "1"],
        ["co-teaching+ours", "1"],
    ]
    assert not Path("study").exists()

    out = study.prints("--fold", 0)
    first = out.splitlines()
    assert [line[:12] for line in first[1:3]] == ["[1/2] done: ", "[2/2] done: "]
    assert first[-1] == "Next: srjt report study"
    assert {line.split()[-1] for line in first[1:3]} == set(planned())

    code, out, err = study("--fold", 0)
    assert (code, err) == (0, "")
    done, verdict, *table, following = out.splitlines()
    assert (done, following) == (
        "2 runs: 2 done, 0 to do. 120 images, 1 fold.",
        "Next: srjt report study",
    )
    assert "one grade for all" in verdict
    assert [
        name for name in ("Standard", "Co-teaching+Ours") if any(name in line for line in table)
    ]

    assert command("study", "status", "study") == (
        0,
        "2 runs: 2 done, 0 running, 0 failed, 0 left.\n",
        "",
    )

    assert study("--fold", 0, "--quiet") == (0, "", "")

    results = collect_results(Path("study"))
    for name, more, table in (
        ("scores.csv", ["--scores"], results.scores),
        ("deep/all.parquet", [], results.metrics),
    ):
        out = command.prints("study", "export", "study", "--out", name, *more)
        assert out == f"{name} has {len(table):,} rows from 2 of 2 runs.\n"
        read = pd.read_parquet(name) if name.endswith("parquet") else pd.read_csv(
            name, dtype={"network": str, "variant": str}, keep_default_na=False, na_values={"value": [""]}
        )  # fmt: skip
        pd.testing.assert_frame_equal(read, table, check_dtype=False)
        assert f"{name} already exists" in command.refuses(
            "study", "export", "study", "--out", name
        )


@pytest.mark.slow
def test_the_plan_with_its_time(study: Srjt) -> None:
    assert "\n2 trainings: about " in study.prints("--fold", 0, "--time")
    assert not Path("study").exists()


@pytest.mark.slow
def test_the_plan_of_the_papers_tables_says_how_many_runs_and_how_long(command: Srjt) -> None:
    command.prints("data", "synthetic", "data", "--images", 60, "--patients", 20, "--size", 32)
    out = command.prints("study", "data/labels.csv", "--preset", "limuc", "--dry-run")
    text = " ".join(out.split())
    assert text.startswith("300 runs: 0 done, 300 to do.")
    assert (
        "The preset limuc without other settings: 15 methods × 4 noises × 5 folds = 300 runs take about 12.5 hours"
        in text
    )
    assert "co-teaching:select=soft,update=soft │ 20" in text


@pytest.mark.slow
def test_file_options_and_preset_say_the_same(
    study: Srjt, command: Srjt, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []  # of the runs; equal keys are equal settings
    monkeypatch.setattr(
        "srjt.studies.folder.run_status", lambda folder, key: keys.append(key) or "left"
    )

    def keys_of(run: Srjt, *words: Any) -> list[str]:
        keys.clear()
        assert run(*words, "--dry-run")[0] == 0
        return list(keys)

    options = [
        "study", "synthetic", "--folds", 3, "--methods", "standard co-teaching+ours", "--noise", "quasi:0.4",
        "--epochs", 1, "--network", "tiny", "--device", "cpu",
    ]  # fmt: skip
    settings = ["pretrained=false", "image_size=32", "crop=28", "batch_size=16"]
    sets = [word for setting in settings for word in ("--set", setting)]
    Path("reading.yaml").write_text("reading: {images: 120, patients: 24, size: 32}\n")
    planned = keys_of(study)
    assert len(planned) == 6
    assert keys_of(command, *options, *sets, "--config", "reading.yaml") == planned
    # a preset, then the file, then the options
    more = ("--set", "learning_rate=1e-4", "--set", "track_wrong_labels=false")
    assert keys_of(study, "--preset", "demo", *more) == planned
    assert keys_of(study, "--preset", "demo") != planned
    assert (
        len(keys_of(study, "--noise", "quasi:0.2", "--noise", "none", "--methods", "standard")) == 6
    )
    many = study("--noise", "quasi:0.2", "--methods", "all", "--dry-run")[1]  # a line per method
    assert len(many.splitlines()) <= 24


@pytest.mark.slow
def test_failing_runs_are_said_and_the_exit_status_is_honest(study: Srjt, command: Srjt) -> None:
    Path("singular.csv").write_text("\n".join([",".join(["0.25"] * 4)] * 4))
    bad = [
        "--fold",
        0,
        "--noise",
        "none",
        "--methods",
        "garg standard",
        "--transition",
        "singular.csv",
    ]
    code, out, err = study(*bad)
    assert code == 2
    assert err == (
        "srjt: 1 of 2 runs failed, and the others are finished. Fix the cause, and run the same command again.\n"
    )
    garg, standard = planned()
    assert f"The run {garg} failed: see study/errors/{garg}.txt." in out
    assert f"done: {standard}" in out
    assert "singular" in Path(f"study/errors/{garg}.txt").read_text()
    out = command.prints("study", "status", "study")
    assert out.splitlines()[0] == "2 runs: 1 done, 0 running, 1 failed, 0 left."
    assert out.splitlines()[-1].startswith(f"failed: {garg}: garg inverts the transition matrix")
    assert study(*bad)[0] == 2  # again, and honestly again
    code, out, err = command("study", "export", "study", "--out", "results.csv")
    assert (code, "from 1 of 2 runs." in out) == (0, True)


def test_noisy_already(study: Srjt) -> None:
    assert study("--noise", "none", "--noise-rate", 0.3, "--methods", "garg", "--dry-run")[0] == 0
    twice = study(
        "--noise",
        "none",
        "--methods",
        "sord",
        "--methods",
        "standard,cdr",
        "--noise-rate",
        0.3,
        "--dry-run",
    )
    assert all(
        name in twice[1] for name in ("sord", "standard", "cdr")
    )  # none is dropped in silence
    code, _, err = study("--noise", "none", "--methods", "garg", "--dry-run")
    assert (code, "--noise-rate" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "about", "says"),
    [
        (["--preset", "limcu"], "unknown_name", "'limuc'"),
        (["none.csv"], "missing_file", "none.csv"),
        (["labels.csv", "--preset", "demo"], "missing_file", "labels.csv"),
        (["--fold", "7"], "out_of_bounds only_folds", ""),
        (["--noise", "quasi:0.9"], "out_of_bounds", "A noise rate of 0.9"),
        (["--methods", "garg standart"], "unknown_name method", "'standard'"),
        (["--set", "epoch=3"], "unknown_name", "'epoch'"),
        (["--config", "none.yaml"], "missing_file", "none.yaml"),
        (["--config", "kind.yaml"], "wrong_type folds", ""),
        (["--transition", "none.csv"], "missing_file", "none.csv"),
        (["--splits", "none.csv"], "missing_file", "none.csv"),
        (["--jobs", "0"], "out_of_bounds jobs", ""),
        (["--device", "cuda"], "no_gpu device", ""),
        (["--out", "study.yaml"], "file_exists", "study.yaml"),
        (["--out", "taken"], "folder_in_use out", ""),
    ],
)
def test_mistakes_are_one_sentence(
    study: Srjt, arguments: list[str], about: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    Path("kind.yaml").write_text("folds: many\n")
    Path("taken").mkdir()
    Path("taken/thesis.tex").write_text("years of work")
    study.fails(about, says, *arguments)
    assert not list(Path("study").glob("runs/*"))


@pytest.mark.parametrize("verb", ["status", "export"])
def test_folders_that_are_no_study(command: Srjt, verb: str) -> None:
    assert command("study", verb, "nowhere") == (
        2, "", "srjt: nowhere is not the folder of a study: there is no study.json in it.\n"
    )  # fmt: skip


# Real processes, really killed
# ---------------------------------------------------------------------------------------

LONG = FILE.replace("epochs: 1", "epochs: 12")


def in_session(session: int) -> list[int]:
    """The processes of a session, by Linux's books."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, owner = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(owner) == session and state != "Z":
                found.append(int(entry.name))
    return found


def until(true: Callable[[], Any], *, seconds: float = 60.0) -> Any:
    """What ``true`` says as soon as it says something."""
    end = time.monotonic() + seconds
    while not (answer := true()):
        assert time.monotonic() < end, "this should have happened by now"
        time.sleep(0.1)
    return answer


class Study:
    """``python -m srjt study`` in a session of its own, again and again."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.out = folder / "study"
        self.environment = {**os.environ, "SRJT_CACHE": str(cache), "COLUMNS": "80"}
        self.limit = Limit(folder / "limit", epoch=1)
        (folder / "pause.py").write_text(self.limit.code)
        (folder / "study.yaml").write_text(LONG)
        self.process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Started, and in the middle of all runs that are left."""
        before = self.epochs() if self.out.exists() else {}
        self.limit.raise_to(max(before.values(), default=0) + 2)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "srjt", "study", "--config", "study.yaml", "--device", "cpu", "--jobs", "2",
             "--fold", "0", "--import", "pause", *more],
            cwd=self.folder, env=self.environment, start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        until(lambda: self._advanced(before))
        return self.process

    def _advanced(self, before: dict[str, int]) -> bool:
        assert self.process.poll() is None, self.process.communicate()
        left, now = self.left(), self.epochs()
        return bool(left) and all(
            run_status(self.out, key) == "running" and now.get(key, 0) > before.get(key, 0)
            for key in left
        )

    def left(self) -> list[str]:
        if not (self.out / "study.json").exists():
            return []
        return [key for key in planned(str(self.out)) if run_status(self.out, key) != "done"]

    def epochs(self) -> dict[str, int]:
        """How many epochs each run has done, by its metrics."""
        found = {}
        for path in self.out.glob("runs/*/metrics.csv"):
            last = [line for line in path.read_text().splitlines()[1:] if line[:1].isdigit()][-1:]
            found[path.parent.name] = int(last[0].split(",")[0]) if last else 0
        return found

    def saved(self) -> dict[str, str]:
        """The last checkpoint of each run that is left."""
        return {
            key: max(
                (p.name for p in (self.out / "runs" / key).glob("checkpoints/step-*")), default=""
            )
            for key in self.left()
        }

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def nobody_is_left(self) -> None:
        session = self.process.pid
        until(lambda: not in_session(session), seconds=20)


@pytest.fixture
def disturbed(tmp_path: Path, cache: Path) -> Iterator[Study]:
    study = Study(tmp_path, cache)
    yield study
    if study.process is not None:
        for pid in in_session(study.process.pid):
            os.kill(pid, signal.SIGKILL)
        study.process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_study_survives_everything(disturbed: Study, command: Srjt) -> None:
    """Killed, killed with all its runs, disturbed by a second study, stopped by a scheduler:
    nothing is lost."""
    often, never = ("--set", "checkpoint_seconds=0"), ("--set", "checkpoint_seconds=3600")

    # Killed alone: its runs notice, save their state and end.
    process = disturbed.start(*never)
    assert set(disturbed.saved().values()) == {""}
    process.kill()
    assert disturbed.ended()[0] == -signal.SIGKILL
    disturbed.nobody_is_left()
    assert disturbed.left()
    assert all(disturbed.saved().values())

    # A second study in the same folder is refused. Then all processes are killed at once.
    process = disturbed.start(*often)
    Path("study.yaml").write_text(LONG)
    code, _, err = command(
        "study", "--config", "study.yaml", "--device", "cpu", "--out", disturbed.out
    )
    assert (code, "Another process is working on" in err) == (2, True)
    os.killpg(process.pid, signal.SIGKILL)
    disturbed.ended()
    disturbed.nobody_is_left()

    # A scheduler signals every process of a job, so that the runs are asked twice: they save their
    # state and end.
    before = disturbed.saved()
    process = disturbed.start(*never)
    os.killpg(process.pid, signal.SIGTERM)
    code, out, err = disturbed.ended()
    assert (code, "Traceback" in out + err) == (143, False), out + err
    assert "runs done. Run the same command again to resume." in err
    assert {run_status(disturbed.out, key) for key in before} <= {
        "left",
        "done",
    }  # it waited for them
    assert all(name > before[key] for key, name in disturbed.saved().items())
    disturbed.nobody_is_left()
    assert not list(disturbed.out.glob("errors/*"))

    # And now in peace: the result is that of a study which nobody disturbed.
    for out in (disturbed.out, "peace"):
        same = ["--config", "study.yaml", "--device", "cpu", "--jobs", 2, "--fold", 0, "--out", out]
        assert command("study", *same)[::2] == (0, "")
    results, undisturbed = collect_results(disturbed.out), collect_results(Path("peace"))
    assert results.runs["status"].tolist() == ["done", "done"]
    pd.testing.assert_frame_equal(results.scores, undisturbed.scores, check_exact=True)
    for key in results.runs["key"]:
        ours, theirs = (
            out / "runs" / key / "weights.safetensors" for out in (disturbed.out, Path("peace"))
        )
        assert ours.read_bytes() == theirs.read_bytes()


# ``srjt demo`` in small: what it tells agrees with its files, and what happens the second time.

SMALL = ("--images", 200, "--epochs", 3, "--out", "shown")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was asked for."""
    found: list[str] = []
    monkeypatch.setattr(webbrowser, "open", found.append)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_the_demo_tells_what_its_files_hold(command: Srjt, opened: list[str]) -> None:
    code, out, err = command("demo", *SMALL)
    assert (code, err) == (0, "")
    assert opened == []  # unless it is asked for
    assert all(len(line) <= 80 for line in out.splitlines())
    told = " ".join(out.split())
    labels = pd.read_csv("shown/images/noisy.csv")
    wrong = labels["grade"] != labels["true_grade"]
    assert f"{wrong.sum()} of the labels ({wrong.mean():.0%}) are wrong, by one grade." in told
    assert set((labels["grade"] - labels["true_grade"])[wrong].abs()) == {1}

    for folder, said in (("plain", "plain training repeats {}"), ("model", "and srjt {}.")):
        metrics = pd.read_csv(f"shown/analysis/{folder}/metrics.csv")
        rows = metrics.query("split == 'wrong_labels' and metric == 'accuracy' and epoch == 3")
        single = pd.to_numeric(rows["network"], errors="coerce").isin([1, 2])
        share = rows[single]["value"].mean()
        assert said.format(f"{share:.0%}") in told
        held_out = pd.read_csv(f"shown/analysis/{folder}/held_out.csv").query("side == 'test'")
        networks = [held_out.filter(regex=f"^p{number}_").to_numpy() for number in (1, 2)]
        cumulated = np.mean([p for p in networks if p.size], axis=0).cumsum(axis=1)
        medians = (cumulated < 0.5).sum(axis=1)
        assert f"{np.abs(medians - held_out['true_grade']).mean():.3f}" in told

    audited = pd.read_csv("shown/verified/audit.csv")
    assert len(audited) == len(labels)
    verified = int((audited["verified_grade"] >= 0).sum())
    assert 0 < verified <= 100
    assert f"A doctor checks {verified} labels" in told
    assert f"The truth is {wrong.mean():.0%}." in told

    for page in PAGES:
        assert f"  shown/{page}\n" in out
        assert "</html>" in Path("shown", page).read_text(encoding="utf-8")
    assert out.splitlines()[-1].split()[1:] == ["analyse", "labels.csv"]
    index = Path("shown/index.html").read_text(encoding="utf-8")
    paragraphs = out.split("\n\n")
    for number in (0, 3, 4):  # the others have their numbers in the title and in cards
        _, _, sentences = " ".join(paragraphs[number].split()).partition(". ")
        assert html.escape(sentences) in index

    # the second time nothing is trained
    trained = {file: file.stat().st_mtime_ns for file in Path("shown").rglob("metrics.csv")}
    code, again, _ = command("demo", *SMALL, "--open")
    assert (code, again) == (0, out)
    assert {file: file.stat().st_mtime_ns for file in Path("shown").rglob("metrics.csv")} == trained
    assert opened == [Path("shown", PAGES[0]).absolute().as_uri()]
    code, _, err = command("demo", *SMALL[:-2], "--images", 210, "--out", "shown")
    assert (code, "choose another folder" in " ".join(err.split())) == (2, True)
