"""The page of a single run, and the command that writes pages."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import srjt
from reports.html_tree import Tree
from srjt.cli.study import report
from srjt.data.grades import Grades
from srjt.errors import SrjtError
from srjt.reports.page import page_figures, render
from srjt.reports.pages.run import run_page
from srjt.reports.sections import settings_section
from srjt.training.checkpoint import last_epochs, read_metrics
from srjt.training.config import TrainConfig
from srjt.training.folder import DataFacts, RunFacts, read_facts, write_facts

pytestmark = pytest.mark.usefixtures("undrawn")  # the text is tested

HOSTILE = "<img src=x onerror=alert(1)>.png"

SUMMARY = {"epochs": 2, "last_epochs": [], "confusion": {"test": [[[1, 0], [0, 1]]] * 3}}


def write_run(folder: Path, *, finished: bool = True, truth: bool = True, **settings: Any) -> Path:
    given = {
        "method": "co-teaching+ours",
        "noise_rate": 0.25,
        "network": "tiny",
        "epochs": 2,
        **settings,
    }
    facts = RunFacts(
        config=TrainConfig(**given).for_data(features=False, samples=8),
        grades=Grades(("low", HOSTILE)),
        data=DataFacts(
            samples={"train": 4, "validation": 2, "test": 2},
            class_counts=[2, 2],
            in_shape=[3, 8, 8],
            fingerprint="abc123",
        ),
    )
    write_facts(folder, facts)
    lines = ["epoch,split,network,metric,value"]
    for epoch in (1, 2):
        for network in ("1", "2"):
            for split in ("test", "validation"):
                lines += [
                    f"{epoch},{split},{network},{score}"
                    for score in (f"accuracy,0.{epoch}5", "mae,0.5")
                ]
            if truth:
                selected = ("label_precision,0.8", "label_recall,0.9")
                lines += [f"{epoch},train,{network},{score}" for score in selected]
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    if finished:
        (folder / "weights.safetensors").write_bytes(b"")
        averages = last_epochs(read_metrics(folder / "metrics.csv")).to_dict("records")
        (folder / "summary.json").write_text(json.dumps({**SUMMARY, "last_epochs": averages}))
        columns = "id,grade,true_grade" if truth else "id,grade"
        rows = ["a,0,0", "b,0,1", "c,1,1", "d,1,1"] if truth else ["a,0", "b,0", "c,1", "d,1"]
        (folder / "history.csv").write_text("\n".join([columns, *rows]) + "\n")
    return folder


def test_a_run_without_answers_shows_its_scores_curves_and_noise(tmp_path: Path) -> None:
    page = run_page(write_run(tmp_path / "mine"))
    assert page.kind == "Run: mine"
    assert [figure.name for figure in page_figures(page)] == ["mae", "accuracy", "label-precision"]
    numbers = {number.label: number for number in page.key_numbers}
    assert numbers["accuracy ↑, test"].value == "0.200"  # the mean of 0.15 and 0.25
    assert numbers["mean absolute error ↓, test"].compared == "one grade: 0.500"
    tree = Tree(render(page))
    assert "25.0% of the training side" in "".join(tree.text)
    assert tree.all("img") == []


def test_a_run_without_known_truth_or_unfinished_is_shown_as_it_is(tmp_path: Path) -> None:
    assert "of the training side" not in render(run_page(write_run(tmp_path / "a", truth=False)))
    assert run_page(write_run(tmp_path / "b", finished=False)).figure.name == "mae"


MATRIX = ((0.9, 0.1), (0.2, 0.8))


def test_a_run_says_what_was_used_and_why(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    noise = {
        "requested": "auto",
        "estimated": 0.21,
        "used": 0.21,
        "why": "Estimated noise rate 0.21 (95 %: …).",
    }
    write_facts(folder, dataclasses.replace(read_facts(folder), noise=noise))
    section = next(section for section in run_page(folder).sections if section.slug == "data")
    assert ("noise rate used", "0.21") in section.facts
    assert section.text == [noise["why"]]


@pytest.mark.parametrize(
    ("settings", "pretrained"),
    [
        ({"network": "resnet18", "weights": "mine.pth"}, None),  # instead of the published ones
        ({"network": "timm:convnext_tiny", "pretrained": True}, "yes"),
        *(
            ({"network": name, "pretrained": True}, None)
            for name in ("tiny", "tiny-gn", "linear", "mlp")
        ),
    ],
)
def test_pretrained_is_shown_only_if_the_network_has_published_weights(
    settings: dict[str, Any], pretrained: str | None
) -> None:
    [section] = settings_section(settings)
    assert dict(section.facts).get("pretrained") == pretrained


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


@pytest.mark.parametrize("name", ["summary.json", "history.csv", "metrics.csv", "run.json"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path)
    (folder / name).write_bytes(b"\xff\x00{[")
    with pytest.raises(SrjtError, match=name):
        run_page(folder)


@pytest.mark.slow
def test_the_command_writes_page_and_figures(tmp_path: Path) -> None:
    app, folder = typer.Typer(), write_run(tmp_path / "run")
    app.command()(report)
    done = CliRunner().invoke(app, [str(folder), "--figures", str(tmp_path / "figures")])
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert {p.suffix for p in (tmp_path / "figures").iterdir()} == {".svg", ".png"}
    assert "6 new files" in done.output


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SrjtError, match=r"neither a study, a run nor an audit"):
        srjt.write_report(tmp_path)
