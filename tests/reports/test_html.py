from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from srjt.cli.report import report
from srjt.errors import SrjtError
from srjt.noise.estimate import NoiseEstimate
from srjt.reports.pages.html import Note, Page, Section, page_figures, render, write_page
from srjt.reports.pages.run_page import _noise_used, run_page
from srjt.reports.pages.settings import settings_section
from srjt.reports.pages.study_page import study_notes, study_page
from srjt.training.config import TrainConfig
from srjt.training.record.run_folder import RunFacts, read_facts, write_facts

FEW = {
    "methods": ("standard", "co-teaching", "co-teaching+ours"),
    "folds": 2,
    "epochs": 3,
    "noises": ("quasi:0.2",),
}
HOSTILE = "<img src=x onerror=alert(1)>.png"
VOID = {"meta", "br", "img"}


class Tree(HTMLParser):
    """Elements with their attributes, the text, and whether every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(study) -> str:
    return render(study_page(study(**FEW, source=HOSTILE, statuses={"standard quasi:0.2 1": "failed"})))


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(page: str) -> None:
    tree = Tree(page)
    assert tree.wrong == []
    assert tree.open == []
    for _, attributes in tree.elements:
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert not tree.all("link") + tree.all("iframe") + tree.all("form")


def test_only_the_page_s_own_script_may_run(page: str) -> None:
    tree = Tree(page)
    policy = next(m["content"] for m in tree.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not [name for _, attributes in tree.elements for name in attributes if name.startswith("on")]


def test_names_from_files_stay_text(page: str) -> None:
    tree = Tree(page)
    assert HOSTILE in "".join(tree.text)
    assert tree.all("img") == []
    assert "<b>boom</b>" in "".join(tree.text)  # from the traceback


def test_hostile_text_stays_text_wherever_it_comes_from(study) -> None:
    evil = "</style></script><script>alert(1)</script>\"'"
    made = study(
        **{**FEW, "methods": ("standard", evil)}, grades=(evil, "b", "c"), name=evil, source=evil, command=evil,
        versions={evil: evil}, splits_hash=evil, config={evil: evil},
    )  # fmt: skip
    tree = Tree(render(study_page(made)))
    assert tree.wrong == []
    assert len(tree.all("script")) == 1
    assert len(tree.all("style")) == 1


def test_the_page_can_be_read_without_seeing_it(page: str) -> None:
    tree = Tree(page)
    assert tree.all("html")[0]["lang"] == "en"
    levels = [int(tag[1]) for tag, _ in tree.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert max(np.diff(levels)) == 1  # no level is skipped
    assert all(th.get("scope") in {"col", "row", "colgroup"} for th in tree.all("th"))
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in tree.all("svg"))
    assert len(tree.all("svg")) >= 5
    ids = [attributes["id"] for _, attributes in tree.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for a in tree.all("a")}
    assert targets <= set(ids)
    regions = [div for div in tree.all("div") if div.get("role") == "region"]
    assert all(
        region["tabindex"] == "0" and region["aria-label"] for region in regions
    )  # scrolled by keyboard


def said(made) -> str:
    return " ".join(note.text for note in study_notes(made))


def test_a_complete_study_of_known_patients_has_nothing_to_warn_of(study) -> None:
    assert study_notes(study(**FEW)) == []


def test_failures_come_first_with_their_tracebacks(study) -> None:
    notes = study_notes(study(**FEW, patients=None, statuses={"co-teaching quasi:0.2 1": "failed"}))
    assert notes[0].text.startswith("1 run failed and is missing")
    ((who, traceback),) = notes[0].details
    assert who == "Co-teaching, quasi:0.2, fold 1, seed 0"
    assert traceback.endswith("<b>boom</b>")
    assert "Patients are unknown" in notes[1].text


def test_many_and_long_tracebacks_are_cut(study) -> None:
    methods = [f"m{n}" for n in range(25)]
    made = study(**{**FEW, "methods": methods, "folds": 1},
                 statuses={f"{method} quasi:0.2 0": "failed" for method in methods})  # fmt: skip
    made.runs["error"] = "x" * 10_000 + "the end"
    note = study_notes(made)[0]
    assert "The first 20 are shown" in note.text
    assert len(note.details) == 20
    assert len(note.details[0][1]) < 7_000
    assert note.details[0][1].endswith("the end")


def test_an_incomplete_study_says_so(study) -> None:
    statuses = {"standard quasi:0.2 0": "left", "standard quasi:0.2 1": "running"}
    assert "2 runs to finish, 1 of them running" in said(study(**FEW, statuses=statuses))


def test_garg_is_warned_of_where_its_matrix_is_nearly_singular(study) -> None:
    singular = {**FEW, "noises": ("quasi:0.2", "truncated:0.4")}
    assert "singular" not in said(study(**singular))  # nobody inverts it
    told = said(study(**{**singular, "methods": ("standard", "garg")}))
    assert "Truncated-Gaussian noise, rate 0.4: condition number 2" in told
    assert "Quasi" not in told


def test_a_study_that_has_not_begun_is_a_page_too(study) -> None:
    small = {**FEW, "methods": ("standard",), "folds": 1}
    text = render(study_page(study(**small, statuses={"standard quasi:0.2 0": "left"})))
    assert "No run has finished yet." in text
    assert "0 of 1 run finished" in text


def test_the_noise_section_says_that_the_estimate_was_used(study) -> None:
    made = study(**{**FEW, "methods": ("standard", "srjt")})
    made = replace(made, noise=made.noise.assign(estimated_rate=0.03))
    text = " ".join(next(s for s in study_page(made).sections if s.slug == "noise").text)
    assert "used an estimate from the training labels" in text
    assert "at least" not in text


def test_noise_that_was_not_injected_is_not_claimed_to_be(study) -> None:
    section = next(s for s in study_page(study(**{**FEW, "noises": ("none",)})).sections if s.slug == "noise")
    assert "nothing was injected" in section.text[0]
    assert "was injected into" not in section.text[0]


def test_nominal_and_realised_rates_stand_side_by_side(study) -> None:
    made = study(**FEW)
    made.noise["realised_rate"] = [0.19, 0.23]
    section = next(s for s in study_page(made).sections if s.slug == "noise")
    cells = {
        c.label: cell.text
        for c, cell in zip(section.tables[0].columns, section.tables[0].rows[0].cells, strict=True)
    }
    assert cells["nominal"] == "0.200"
    assert cells["realised"] == "0.210 (0.190 … 0.230)"


def test_every_run_is_listed_with_its_status_and_scores(study) -> None:
    made = study(**FEW, statuses={"standard quasi:0.2 1": "failed"})
    section = next(s for s in study_page(made).sections if s.slug == "runs")
    rows = [[cell.text for cell in row.cells] for row in section.tables[0].rows]
    assert len(rows) == 6
    assert rows[0][:6] == ["Standard", "quasi:0.2", "0", "0", "done", "1.0"]
    failed = next(row for row in rows if row[4] == "failed")
    assert failed[5:] == ["–"] * 4


def test_the_paired_test_knows_the_true_sizes_of_the_sides(study, tmp_path: Path) -> None:
    sides = ["train"] * 8 + ["validation"] + ["test"] * 2
    lines = [f"{n},{fold},{side}" for fold in (0, 1) for n, side in enumerate(sides)]
    (tmp_path / "splits.csv").write_text("\n".join(["id,fold,split", *lines]) + "\n")
    made = replace(study(**FEW), folder=tmp_path)
    assert "test/train = 0.25" in "".join(Tree(render(study_page(made))).text)
    (tmp_path / "splits.csv").write_bytes(b"\x00\xff")
    with pytest.raises(SrjtError, match=r"splits\.csv is damaged"):
        study_page(made)


def test_how_to_reproduce_names_everything(page: str) -> None:
    words = "".join(Tree(page).text)
    for what in ("srjt study labels.csv --methods all", "torch 2.13.0", "5f2c9e0a11d4", "564", "batch size"):
        assert what in words


def test_a_name_that_is_no_valid_text_can_be_written(tmp_path: Path) -> None:
    page = Page(kind="Study", title="bad\udce9name", lead="", notes=[Note(text="\udcff")])
    write_page(page, tmp_path / "a" / "report.html")
    assert b"bad?name" in (tmp_path / "a" / "report.html").read_bytes()


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match="The report cannot be written"):
        write_page(Page(kind="Run", title="", lead=""), tmp_path)


def test_figures_of_parts_are_found(study) -> None:
    made = study_page(study(**FEW))
    inner = [d for section in made.sections for part in section.parts for d in part.figures]
    assert inner
    assert {id(d) for d in inner} <= {id(d) for d in page_figures(made)}
    assert page_figures(Page(kind="", title="", lead="", sections=[Section(slug="a", heading="A")])) == []


# ── a single run, and the command ──────────────────────────────────────────────────────────────────────────


def write_run(
    folder: Path, *, finished: bool = True, truth: bool = True, own_network: bool = False, **settings: Any
) -> Path:
    given = {"method": "co-teaching+ours", "noise_rate": 0.25, "network": "tiny", "epochs": 2, **settings}
    facts = RunFacts(
        config=TrainConfig(**given),
        own_network=own_network,
        grades=("low", HOSTILE),
        data={"samples": {"train": 4, "validation": 2, "test": 2}, "class_counts": [2, 2], "in_shape": [3, 8, 8],
              "fingerprint": "abc123"},
    )  # fmt: skip
    write_facts(folder, facts)
    lines = ["epoch,split,network,metric,value"]
    for epoch in (1, 2):
        for network in ("1", "2"):
            for split in ("test", "validation"):
                lines += [
                    f"{epoch},{split},{network},accuracy,0.{epoch}5",
                    f"{epoch},{split},{network},mae,0.5",
                ]
            if truth:
                lines += [
                    f"{epoch},train,{network},label_precision,0.8",
                    f"{epoch},train,{network},label_recall,0.9",
                ]
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    if finished:
        (folder / "weights.safetensors").write_bytes(b"")
        (folder / "summary.json").write_text(json.dumps({"confusion": {"test": [[[1, 0], [0, 1]]] * 3}}))
        columns = "id,grade,true_grade" if truth else "id,grade"
        rows = ["a,0,0", "b,0,1", "c,1,1", "d,1,1"] if truth else ["a,0", "b,0", "c,1", "d,1"]
        (folder / "history.csv").write_text("\n".join([columns, *rows]) + "\n")
    return folder


def test_a_run_shows_its_scores_curves_confusion_and_noise(tmp_path: Path) -> None:
    page = run_page(write_run(tmp_path / "mine"))
    assert page.title == "mine"
    assert [note.text for note in page.notes] == [
        "This run does not beat a naive prediction on the test side: accuracy 0.200, and 0.500 by always predicting "
        "the most frequent training label; MAE 0.500, and 0.500 by always predicting the median training label."
    ]
    assert {d.name for d in page_figures(page)} == {
        "accuracy",
        "mae",
        "label-precision",
        "confusion",
        "noise",
    }
    tree = Tree(render(page))
    words = "".join(tree.text)
    assert "0.200 ± 0.050" in words  # accuracy, mean and std of 0.15 and 0.25
    assert "25.0% of the training side" in words
    assert "… of the most frequent training label" in words
    assert "2\n2" not in words
    assert tree.all("img") == []


def test_a_run_without_known_truth_or_unfinished_is_shown_as_it_is(tmp_path: Path) -> None:
    assert "noise" not in {d.name for d in page_figures(run_page(write_run(tmp_path / "a", truth=False)))}
    page = run_page(write_run(tmp_path / "b", finished=False))
    assert "has not finished" in page.notes[0].text
    assert "2 of 2 epochs so far" in page.lead
    assert "confusion" not in {d.name for d in page_figures(page)}


def estimate(rate: float) -> NoiseEstimate:
    fields = {f.name: None for f in dataclasses.fields(NoiseEstimate)}
    return NoiseEstimate(**{**fields, "rate": rate})


MATRIX = ((0.9, 0.1), (0.2, 0.8))


@pytest.mark.parametrize(
    ("settings", "estimated", "sentence"),
    [
        ({"method": "co-teaching", "noise_rate": 0.25}, None, "given noise rate 0.25"),
        (
            {"method": "co-teaching", "noise_rate": 0.25},
            0.25,
            "noise rate 0.25, estimated from the training labels",
        ),
        (
            {"method": "jocor+ours", "noise_rate": 0.3},
            0.02,
            "noise rate 0.30 used, 0.02 estimated from the training labels",
        ),
        ({"method": "garg", "transition": MATRIX}, None, "given transition matrix"),
        ({"method": "standard", "noise_rate": 0.25}, None, ""),  # it does not use the rate
        ({"method": "standard"}, None, ""),
        ({"method": "of a plug-in", "noise_rate": 0.25}, None, "given noise rate 0.25"),
    ],
)
def test_a_run_says_where_its_noise_rate_came_from(
    settings: dict[str, Any], estimated: float | None, sentence: str
) -> None:
    name = settings.pop("method")
    config = TrainConfig(method="standard", **settings)
    object.__setattr__(config, "method", name)
    assert _noise_used(config, None if estimated is None else estimate(estimated)) == sentence


@pytest.mark.parametrize(
    ("method", "record", "sentence"),
    [
        ("co-teaching", {"requested": 0.2, "used": 0.2}, "given noise rate 0.2"),
        ("co-teaching", {"requested": "auto", "used": 0.2}, "noise rate 0.20 from the readers"),
        ("srjt", {"requested": "auto", "used": 0.2}, "transition matrix from the readers"),
        ("srjt", {"requested": 0.2, "used": 0.2}, "given noise rate 0.2, errors by one grade assumed"),
        ("srjt", {"requested": None, "used": None}, "given transition matrix"),
    ],
)
def test_without_an_estimate_the_record_tells_where_the_noise_came_from(
    method: str, record: dict[str, Any], sentence: str
) -> None:
    config = TrainConfig(method=method, noise_rate=0.2, transition=((0.9, 0.1), (0.1, 0.9)))
    assert _noise_used(config, None, record=record) == sentence


def test_a_run_says_what_was_estimated_what_was_used_and_why(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    assert "noise" not in [section.slug for section in run_page(folder).sections]  # of an earlier version
    noise = {
        "requested": "auto",
        "estimated": 0.21,
        "used": 0.21,
        "why": "Estimated noise rate 0.21 (95 %: …).",
    }
    write_facts(folder, dataclasses.replace(read_facts(folder), noise=noise))
    section = next(section for section in run_page(folder).sections if section.slug == "noise")
    assert section.facts == [("estimated", "0.210"), ("used", "0.210")]
    assert section.text == [noise["why"]]


@pytest.mark.parametrize(
    ("truth", "finished", "sentence"),
    [
        (True, True, "validation scores with the given labels; 25.0% of the training labels are wrong."),
        (
            True,
            False,
            "Test scores compare predictions with the true grades, validation scores with the given labels.",
        ),
        (False, True, "with the given labels; how many of them are wrong is not known."),
        (False, False, "with the given labels; how many of them are wrong is not known."),
    ],
)
def test_a_run_says_which_labels_its_scores_refer_to(
    tmp_path: Path, truth: bool, finished: bool, sentence: str
) -> None:
    page = run_page(write_run(tmp_path, truth=truth, finished=finished))
    scores = next(section for section in page.sections if section.slug == "results").tables[0]
    assert scores.caption.endswith(sentence)
    assert page_figures(page)[0].caption.endswith(sentence)


@pytest.mark.parametrize(
    ("settings", "own_network", "pretrained"),
    [
        ({"network": "resnet18"}, False, "yes"),
        ({"network": "resnet18", "pretrained": False}, False, "no"),
        ({"network": "resnet18", "weights": "mine.pth"}, False, None),  # instead of the published ones
        ({"network": "timm:convnext_tiny"}, False, "yes"),
        *(({"network": name}, False, None) for name in ("tiny", "tiny-gn", "linear", "mlp")),
        ({"network": "resnet18"}, True, None),
    ],
)
def test_pretrained_is_shown_only_if_the_network_has_published_weights(
    tmp_path: Path, settings: dict[str, Any], own_network: bool, pretrained: str | None
) -> None:
    page = run_page(write_run(tmp_path, own_network=own_network, **settings))
    facts = dict(page.sections[-1].parts[0].facts)
    assert facts.get("pretrained") == pretrained
    assert facts["network"] == ("your own" if own_network else settings["network"])
    assert ("your own network" in page.lead) == own_network


def test_settings_are_readable_text() -> None:
    (section,) = settings_section(
        {"method_options": {"per_class": True, "temperature": 0.1}, "milestones": (90, 120), "transition": MATRIX,
         "learning_rate": 1e-4, "flip": False, "weights": None}
    )  # fmt: skip
    assert dict(section.facts) == {
        "method options": "per class: yes, temperature: 0.1",
        "milestones": "90, 120",
        "transition": "0.9, 0.1; 0.2, 0.8",
        "learning rate": "0.0001",
        "flip": "no",
    }
    assert settings_section({}) == []


@pytest.mark.parametrize(
    ("noises", "given", "estimated", "sentences"),
    [
        (("quasi:0.2",), 0.2, None, []),
        (
            ("quasi:0.2",),
            0.2,
            0.25,
            ["Methods without a given rate used an estimate from the training labels."],
        ),
        (
            ("quasi:0.2",),
            None,
            0.25,
            ["Methods that need the noise rate used an estimate from the training labels."],
        ),
        (("none",), 0.3, None, ["Methods that need the noise got the rate and the matrix below."]),
        (
            ("none",),
            None,
            0.3,
            ["Methods that need the noise rate used an estimate from the training labels."],
        ),
        (("none",), None, None, []),
    ],
)
def test_the_noise_section_says_where_rates_came_from(
    study, noises: tuple[str, ...], given: float | None, estimated: float | None, sentences: list[str]
) -> None:
    made = study(**{**FEW, "noises": noises})
    made = replace(made, noise=made.noise.assign(given_rate=given, estimated_rate=estimated))
    (text,) = next(s for s in study_page(made).sections if s.slug == "noise").text
    possible = [
        "Methods without a given rate used an estimate from the training labels.",
        "Methods that need the noise rate used an estimate from the training labels.",
        "Methods that need the noise got the rate and the matrix below.",
    ]
    assert [sentence for sentence in possible if sentence in text] == sentences
    assert ("Noise was injected" in text) == (noises != ("none",))
    assert ("nothing was injected" in text) == (noises == ("none",))


@pytest.mark.parametrize("name", ["summary.json", "history.csv", "metrics.csv", "run.json"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path)
    (folder / name).write_bytes(b"\xff\x00{[")
    with pytest.raises(SrjtError, match=name):
        run_page(folder)


def command() -> object:
    import typer

    app = typer.Typer()
    app.command()(report)
    return app


def test_the_command_writes_page_and_figures(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    done = CliRunner().invoke(command(), [str(folder), "--figures", str(tmp_path / "figures")])
    assert done.exit_code == 0, done.output
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert {p.suffix for p in (tmp_path / "figures").iterdir()} == {".svg", ".png"}
    assert "10 figure files" in done.output


def test_the_command_says_where_it_wrote(tmp_path: Path) -> None:
    out = tmp_path / "elsewhere" / "r.html"
    done = CliRunner().invoke(command(), [str(write_run(tmp_path / "run")), "--out", str(out)])
    assert out.exists()
    assert str(out) in done.output.replace("\n", "")


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match=r"neither a study, a run nor an audit"):
        report(tmp_path)
