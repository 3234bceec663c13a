"""The page that shows a training while it runs: curves, the time that is left, messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from srjt.data.grade_names import display_grade
from srjt.errors import SrjtError, count_of
from srjt.methods import lookup
from srjt.ordinal.baselines import NaiveBaseline, naive_baseline
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.curves import Curve, chart, mean_over_networks
from srjt.reports.figures.method_curves import describe_ends
from srjt.reports.figures.run_figures import combined_networks
from srjt.reports.judged_sides import judged_run
from srjt.reports.pages.html import Note, Page, Section
from srjt.reports.pages.provenance_section import duration
from srjt.reports.pages.run_page import noise_section, starvation_note
from srjt.studies.paper import display_name
from srjt.training.record.baselines import compare_with_naive
from srjt.training.record.metrics_log import HEADER, read_metrics
from srjt.training.record.run_folder import RunFacts, read_facts

__all__ = ["REFRESH", "State", "live_page"]

REFRESH = 5  # seconds after which a browser loads the page again
RECENT = 5  # epochs whose mean time predicts the others'
MESSAGES = 30

State = Literal["training", "finished", "stopped"]


def live_page(
    folder: Path,
    *,
    state: State,
    messages: Sequence[str] = (),
    problem: str = "",
    show_test: bool = False,
    link: str = "",
) -> Page:
    """The page of a run in ``folder`` as it is now. Without ``show_test`` it has nothing of the test side.

    messages: what the training has said. problem: why it has stopped. link: the file of the report, beside the page.
    """
    facts = read_facts(folder)
    file = folder / "metrics.csv"
    metrics = read_metrics(file) if file.exists() else pd.DataFrame(columns=list(HEADER))
    grades = [display_grade(grade, facts.grade_names) for grade in facts.grades]
    epoch = 0 if metrics.empty else int(metrics["epoch"].max())
    starved = starvation_note(metrics, grades, when=f"In epoch {epoch}")
    stopped = Note(text=f"The training has stopped. {problem} Run the same command again to resume it.")
    figures = _figures(metrics, facts, show_test=show_test)
    sections = [
        _progress(metrics, facts, state=state),
        Section(slug="curves", heading="Curves", figures=figures) if figures else None,
        noise_section(facts),
        Section(slug="messages", heading="Messages", text=list(messages[-MESSAGES:])) if messages else None,
    ]
    return Page(
        kind={"training": "Training", "finished": "Training, finished", "stopped": "Training, stopped"}[
            state
        ],
        title=folder.resolve().name,
        lead=_lead(facts, epoch, state=state),
        links=[("The report of the run", link)] if link else [],
        notes=[
            *([stopped] if state == "stopped" else []),
            *([starved] if starved else []),
            *(
                _naive_notes(folder, show_test=show_test)
                if state == "finished"
                else _naive_note_so_far(metrics, facts)
            ),
        ],
        sections=[section for section in sections if section is not None],
        refresh=REFRESH if state == "training" else 0,
    )


def _naive_notes(folder: Path, *, show_test: bool) -> list[Note]:
    """One for each side that is shown, if one grade for all samples scores as well as the answers of srjt predict."""
    try:
        found = judged_run(folder)
    except SrjtError:  # weights of your own network, or a method that is not installed
        return []
    sides = {} if found is None else found[1]
    shown = [judged for name, judged in sides.items() if show_test or name != "test"]
    return [Note(text=judged.naive_warning) for judged in shown if judged.naive_warning]


def _naive_note_so_far(metrics: pd.DataFrame, facts: RunFacts) -> list[Note]:
    """A note if one grade for all validation samples scores as well as the networks did in the last epoch."""
    if not (facts.data.get("samples") or {}).get("validation"):
        text = "There is no validation side: whether the run beats a naive prediction cannot be seen while it trains."
        return [Note(text=text)]
    pooled, naive = facts.config.convention == "published-code", _naive(facts)
    purpose = facts.config.optimise
    scores = mean_over_networks(metrics, split="validation", metric=purpose, pooled=pooled).dropna()
    if naive is None or scores.empty:
        return []
    own = "network's" if lookup(facts.config.method).networks == 1 else "networks'"
    who = f"After epoch {int(scores.index[-1])} the {own} own grades do"
    worse = compare_with_naive(
        "the validation side",
        who,
        score=float(scores.iloc[-1]),
        naive=getattr(naive, purpose),
        purpose=purpose,
    )
    return [Note(text=worse)] if worse else []


def _lead(facts: RunFacts, epoch: int, *, state: State) -> str:
    network = "your own network" if facts.own_network else str(facts.config.network)
    done = f"epoch {epoch} of {facts.config.epochs} is done" if epoch else "the first epoch has begun"
    if state == "finished":
        done = f"{count_of(epoch, 'epoch')} {'was' if epoch == 1 else 'were'} trained"
    return f"{display_name(facts.config.method)} on {network}: {done}."


def _progress(metrics: pd.DataFrame, facts: RunFacts, *, state: State) -> Section:
    known: list[tuple[str, str]] = []
    recorded = metrics[(metrics["split"] == "train") & (metrics["metric"] == "seconds")]
    seconds = recorded.sort_values("epoch")["value"].to_numpy(np.float64)
    text = []
    if len(seconds):
        each = float(seconds[-RECENT:].mean())
        known += [("an epoch takes", _brief(each)), ("time of all epochs", _brief(float(seconds.sum())))]
        left = facts.config.epochs - int(metrics["epoch"].max())
        if state == "training" and left > 0:
            known.append(("still to go", f"{_brief(left * each)}, if all epochs are trained"))
    if state == "training":
        text = [
            "The page is written again after an epoch, at most every few seconds, and a browser loads it by itself. If "
            "it is much older than an epoch takes, the training has stopped."
        ]
    speed = metrics[(metrics["split"] == "train") & (metrics["metric"] == "images_per_second")]
    if len(speed):
        known.append(("samples per second", f"{speed.sort_values('epoch')['value'].iloc[-1]:,.0f}"))
    for side, samples in (facts.data.get("samples") or {}).items():
        if samples:
            known.append((f"{side} samples", f"{samples:,}"))
    known.append(("written", datetime.now(timezone.utc).isoformat(" ", "seconds").replace("+00:00", " UTC")))
    return Section(slug="progress", heading="Progress", text=text, facts=known)


def _brief(seconds: float) -> str:
    return "less than 1 s" if seconds < 1 else f"about {duration(seconds)}"


def _figures(metrics: pd.DataFrame, facts: RunFacts, *, show_test: bool) -> list[CaptionedFigure]:
    pooled = facts.config.convention == "published-code"
    over = {"mean": ", mean over the networks", "pooled": ", networks pooled"}.get(
        combined_networks(metrics, pooled), ""
    )
    naive = _naive(facts)
    figures = []

    def curves(metric: str, splits: Sequence[str]) -> list[Curve]:
        found = []
        for split in splits:
            values = mean_over_networks(metrics, split=split, metric=metric, pooled=pooled).dropna()
            if len(values):
                x, y = values.index.to_numpy(np.float64), values.to_numpy(np.float64)
                found.append(Curve(name=split, x=x, y=y))
        return found

    def add(name: str, title: str, caption: str, shown: list[Curve], level: float | None, text: str) -> None:
        if shown:
            reference = None if level is None else (level, text)
            figures.append(
                CaptionedFigure(
                    name=name,
                    figure=chart(shown, xlabel="epoch", title=title, reference=reference),
                    caption=caption,
                    alt=f"{title} over epochs. {describe_ends(shown)}",
                )
            )

    sides = ["validation", *(["test"] if show_test else [])]
    line = "" if naive is None else " The line: {} for every validation sample."
    add(
        "mae",
        "Mean absolute error",
        f"MAE after each epoch{over}. Lower is better.{line.format('the median training label')}",
        curves("mae", sides),
        None if naive is None else naive.mae,
        "median label",
    )
    add(
        "accuracy",
        "Accuracy",
        f"Accuracy after each epoch{over}.{line.format('the most frequent training label')}",
        curves("accuracy", sides),
        None if naive is None else naive.accuracy,
        "most frequent label",
    )
    several = metrics.loc[metrics["metric"] == "loss", "network"].nunique() > 1
    caption = f"Mean loss of each epoch{', mean over the networks' if several else ''}."
    add("loss", "Training loss", caption, curves("loss", ["train"]), None, "")
    return figures


def _naive(facts: RunFacts) -> NaiveBaseline | None:
    """The naive baseline on the validation side; None where its labels are not recorded."""
    training, validation = (facts.data.get(name) for name in ("class_counts", "validation_counts"))
    if not training or not validation or not sum(training) or not sum(validation):
        return None
    return naive_baseline(training, validation)
