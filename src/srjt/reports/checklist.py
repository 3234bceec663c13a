"""``srjt report RUN --checklist``: every item of TRIPOD+AI, CLAIM or STARD-AI with what the run, an
audit, readers and evaluations know, or that the authors must write it. Nothing is guessed: each
sentence has its file.

``checklists.csv`` has the items, in our words, and the names of the facts that answer each.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import BaseModel, NonNegativeInt

from srjt import methods
from srjt.auditing import folder as audit_folder
from srjt.data.sources.readers_folder import ReadersFile, read_readers_file
from srjt.errors import SrjtError, count_of, unknown_name
from srjt.files import explain_write_errors, read_json, write_output
from srjt.inference.evaluate import Evaluation
from srjt.networks import registry
from srjt.noise.estimate import rate_text
from srjt.ordinal.metrics import MAIN, METRICS
from srjt.reports.aspects import facts_of_file, facts_of_item
from srjt.reports.aspects.grading import grade_in_words, recalibration_in_words
from srjt.reports.page import Page, Section, markdown, templates
from srjt.reports.pages.evaluation import answered, confusion_table
from srjt.reports.pages.run import stored_sides
from srjt.reports.sections import interval_text, source_name, versions
from srjt.reports.table import Table, data_table
from srjt.studies.results import display_name
from srjt.training.choose_head import head_sentence
from srjt.training.config import ODDS
from srjt.training.folder import DataFacts, RunFacts, read_facts, read_noise_estimate, read_summary

CHECKLISTS = {
    "tripod-ai": "TRIPOD+AI (Collins et al., BMJ 2024, 385:e078378)",
    "claim": (
        "CLAIM, 2024 update (Tejani et al., Radiology: Artificial Intelligence 2024, 6(4):e240300)"
    ),
    "stard-ai": "STARD-AI (Sounderajah et al., Nature Medicine 2025, 31:3283)",
}
AUTHORS = "To be written by the authors"
UNPROVEN = {"not better": "no better", "unclear": "not shown to be better"}
AGREEMENT = {
    "alpha": "Krippendorff's α",
    "quadratic": "quadratic κ of pairs",
    "exact": "share of equal pairs",
}

# the facts of the two paragraphs, in their order
METHODS = """
    source flow disjoint left_out grades readers agreement verified noise input model training
    selection imbalance output recalibration uncertainty software
"""
RESULTS = "performance true_scores decision ranges subgroups sites failures external audit_noise"


# What is known: fact → its sentences, and the files that say so.


class Answer(NamedTuple):
    text: str
    files: str  # separated by commas


class Known(dict[str, Answer]):
    """Fact → what files say of it."""

    def add(self, file: str, facts: Iterable[tuple[str, str]]) -> None:
        """Add the sentences of a file, as (fact, sentence); "": it says nothing."""
        for fact, text in facts:
            if text:
                before = self.get(fact, Answer("", ""))
                files = ", ".join(filter(None, (before.files, file)))
                self[fact] = Answer(f"{before.text} {text}".strip(), files)

    def paragraph(self, facts: str) -> str:
        """The sentences of these facts, in their order."""
        return " ".join(self[fact].text for fact in facts.split() if fact in self)


class EvaluationFile(BaseModel, extra="allow"):
    """What ``srjt evaluate --out`` writes; the rest is read as it is needed."""

    grades: list[str]
    samples: NonNegativeInt
    own_samples: NonNegativeInt | None = None  # that the run knows; None: not recorded


def known_facts(folder: Path, also: Sequence[Path] = ()) -> tuple[Known, list[Table]]:
    """What a run and other files know, and the tables that belong to it.

    also: folders of an audit or of readers, and files of ``srjt evaluate --out``.
    """
    facts = read_facts(folder)
    known = run_facts(folder, facts)
    tables = []
    sides = stored_sides(folder, facts.grades)
    if side := sides.get("test") or sides.get("validation"):
        output = (
            "The output is a probability of each grade, the mean over the networks; a predicted"
            f" grade is {grade_in_words(side.grade_rule)}."
        )
        known.add("run.json, held_out.csv", [("output", output)])
        known.add("held_out.csv", _side_facts(side))
        title = f"Predicted grades (columns) of the {side.side} side"
        tables = [replace(confusion_table(side), title=title, caption="From held_out.csv.")]
    for path in also:
        grades, file, said = _read(path)
        if list(grades) != list(facts.grades):
            raise SrjtError(
                f"{path} is about other grades, {', '.join(grades)}, than {folder}.",
                code="no_match",
                option="also",
            )
        try:
            known.add(file, said)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            reason = f"{type(problem).__name__}: {problem}"
            raise SrjtError(
                f"{path} is damaged or not from srjt ({reason}).",
                code="damaged_file",
                option="also",
            ) from None
    return known, tables


def _read(path: Path) -> tuple[Sequence[str], str, Iterator[tuple[str, str]]]:
    """The grades that a folder or file is about, the name of the file, and what it says."""
    if (path / "audit.json").is_file():
        return (
            audit_folder.read_facts(path)["grades"],
            f"{path.name}/summary.json",
            _audit_facts(path),
        )
    if (path / "readers.json").is_file():
        about = read_readers_file(path)
        return about.grades, f"{path.name}/readers.json", _reader_facts(about)
    if path.is_file() and path.suffix == ".json":
        content = read_json(path, EvaluationFile).model_dump()
        return content["grades"], path.name, _evaluation_facts(content)
    raise SrjtError(
        f"{path} is not the folder of an audit or of readers, nor a JSON file of srjt evaluate"
        " --out.",
        code="wrong_file",
        option="also",
    )


def run_facts(folder: Path, facts: RunFacts) -> Known:
    """What ``run.json``, ``noise.json`` and ``summary.json`` say."""
    known = Known()
    known.add("run.json", _settings_facts(facts))
    if (estimate := read_noise_estimate(folder)) is not None:
        low, high = estimate.rate_interval
        share = (
            f"By the training labels the share of wrong ones lies between {low:.0%} and {high:.0%}"
            " (95 % CI)."
        )
        known.add("noise.json", [("noise", share)])
    if digest := read_summary(folder).get("files", {}).get("weights.safetensors"):
        known.add(
            "summary.json",
            [("availability", f"The networks are weights.safetensors, SHA-256 {digest}.")],
        )
    return known


RESIZED = {
    "squash": "resized to",
    "crop": "scaled by its short side and cut to",
    "pad": "scaled by its long side and padded to",
}


def _settings_facts(facts: RunFacts) -> Iterator[tuple[str, str]]:
    made = facts.provenance
    yield from _data_sentences(facts)
    yield "input", _input_sentence(facts)
    yield from _model_sentences(facts)
    yield from _training_sentences(facts)
    software = versions(made, facts.version)
    if made.get("device"):
        software += f"; on {made['device']}"
    yield "software", f"Software: {software}."
    if made.get("command"):
        yield "command", f"Command: “{made['command']}”."


def _data_sentences(facts: RunFacts) -> Iterator[tuple[str, str]]:
    data = facts.data
    source = source_name(facts)
    if data.source is not None and source:
        yield "source", f"The data were read from {source}."
        if data.source.sha256:
            yield "sha256", f"Its SHA-256 is {data.source.sha256}."
    yield from _flow(data, "rows of features" if data.are_features else "images")
    if data.left_out is not None:
        reasons = ", ".join(f"{kind.replace('-', ' ')}: {n:,}" for kind, n in data.left_out.items())
        if reasons:
            yield "left_out", f"Left out, by reason: {reasons}."
        else:
            yield "left_out", "No row of the table was left out."
    for side, counts in (("training", data.class_counts), ("validation", data.validation_counts)):
        if any(counts):
            yield "counts", f"Labels of the {side} side: {_counted(facts.grades.shown, counts)}."
    yield (
        "grades",
        f"The outcome is an ordinal grade, mildest first: {', '.join(facts.grades.shown)}.",
    )


def _input_sentence(facts: RunFacts) -> str:
    config = facts.config
    if facts.data.are_features:
        scaled = "scaled to mean 0 and variance 1 on the training side"
        return f"The only input is a row of {facts.data.in_shape[0]:,} features, each {scaled}."
    size = config.image_size
    crop = config.crop
    resized = RESIZED[config.resize]
    used = f"{crop} × {crop} are used, in training at random places, otherwise in the centre"
    if config.backbone is not None:
        used = f"the {crop} × {crop} in the centre are used"
    if config.flip:
        used += "; training images are mirrored at random"
    if config.augment != "paper":
        used += f", and rotated, zoomed and recoloured (augment: {config.augment})"
    return f"The only input is the image, {resized} {size} × {size} pixels, of which {used}."


def _model_sentences(facts: RunFacts) -> Iterator[tuple[str, str]]:
    config = facts.config
    networks = "networks"
    if config.network == ODDS:
        networks = count_of(1, "network")
    elif config.method in methods.names():
        networks = count_of(methods.lookup(config.method).networks, "network")
    network = "of the authors' own" if facts.own_network else config.network_name
    method = display_name(config.method)
    if paper := paper_of(config.method):
        method += f" ({paper})"
    if config.backbone is not None:
        yield (
            "model",
            f"The features are those of {config.backbone}, whose weights were not changed.",
        )
    yield (
        "model",
        f"The model consists of {networks} ({network}), trained with the method {method}.",
    )


def _training_sentences(facts: RunFacts) -> Iterator[tuple[str, str]]:
    config = facts.config
    if config.network == ODDS:
        folds = "the strength of the penalty is the one that makes held-out labels likeliest"
        yield (
            "training",
            f"It is a proportional-odds model with a ridge penalty, fitted by L-BFGS; {folds}.",
        )
    else:
        yield from _epoch_sentences(facts)
    if facts.head is not None:
        yield "selection", head_sentence(facts.head)
    drawn = "All samples were drawn equally often, whatever their grade."
    if config.balance:
        drawn = f"Rare grades were drawn more often (balance {config.balance:g})."
    yield "imbalance", drawn
    noise = facts.noise or {}
    if isinstance(noise.get("used"), float):
        yield "noise", f"Training took the share of wrong labels to be {noise['used']:.0%}."


def _epoch_sentences(facts: RunFacts) -> Iterator[tuple[str, str]]:
    config = facts.config
    length = f"{count_of(config.known_epochs, 'epoch')} in batches of {config.known_batch_size:,}"
    yield "training", f"Training took {length}."
    rates = f"learning rate {config.learning_rate:g}, weight decay {config.weight_decay:g}"
    yield (
        "training",
        (
            f"It used {config.optimizer}, {rates}, the schedule {config.schedule} and seed"
            f" {config.seed}."
        ),
    )
    yield "training", _beginning(facts)
    kept = "the epoch that was best on the validation side"
    if config.keep == "last":
        kept = "the last epoch"
    yield "selection", f"The networks of {kept} were kept."


def _flow(data: DataFacts, what: str) -> Iterator[tuple[str, str]]:
    """How many samples and patients each side has, and whether a patient is on two."""
    patients = data.patients
    by_side = data.side_patients or {}
    sizes = data.samples
    sides = []
    for name, number in sizes.items():
        if not number:
            continue
        side = f"{number:,} for {'training' if name == 'train' else name}"
        if name in by_side:
            side += f" ({count_of(by_side[name], 'patient')})"
        sides.append(side)
    used = f"{sum(sizes.values()):,} {what}{_patients(patients)}"
    yield "flow", f"{used} were used: {', '.join(sides)}."
    if by_side:
        shared = data.shared_patients
        disjoint = "No patient is on two sides."
        if shared:
            disjoint = f"{count_of(shared, 'patient is', 'patients are')} on more than one side."
        yield "disjoint", disjoint


def _patients(number: int | None) -> str:
    if not number:
        return ""
    return f" of {count_of(number, 'patient')}"


def _beginning(facts: RunFacts) -> str:
    config = facts.config
    if facts.own_network:
        return ""
    if config.weights is not None:
        return f"It started from the weights in {Path(config.weights).name}."
    row = registry.known(config.backbone or config.network)
    published = row is not None and row.may_be_pretrained and not facts.data.are_features
    if config.pretrained and published:
        return "It started from published ImageNet weights."
    return "It started from random weights."


def paper_of(method: str) -> str:
    """The paper of a method; "" if it has none, or is a plug-in that is not installed."""
    if method not in methods.names():
        return ""
    paper = methods.lookup(method).paper
    if paper in ("baseline", "this project"):
        return ""
    return paper


def _side_facts(side: Evaluation) -> Iterator[tuple[str, str]]:
    """What the answers for the test side, else the validation side, say."""
    grades = side.grades.shown
    counts = np.asarray(side.confusion)
    off = np.abs(np.subtract.outer(range(len(grades)), range(len(grades))))  # by how many grades
    wrong = f"{counts[off > 0].sum():,} are wrong, {counts[off > 1].sum():,} by more than one grade"
    unit = "samples"
    clustered = ""
    if side.by_patient:
        unit = "patients"
        clustered = ", corrected for patients"
    scores = {name: interval._asdict() for name, interval in side.intervals.items()}
    answers = f"{side.side.capitalize()} side, {count_of(side.samples, 'answer')}"
    recalibrated = "Probabilities were not recalibrated."
    if side.recalibration is not None:
        by = recalibration_in_words(side.recalibration)
        recalibrated = f"Probabilities were recalibrated: {by}."
    yield (
        "counts",
        (
            f"{side.judged_by.capitalize()} of the {side.side} side:"
            f" {_counted(grades, counts.sum(axis=1))}."
        ),
    )
    bootstrap = f"expanded percentiles (Hesterberg 2015) of 1,000 bootstrap draws of {unit}"
    yield "uncertainty", f"95 % confidence intervals (CI) of metrics are {bootstrap}."
    yield "uncertainty", f"Those of sensitivity, specificity and coverage are Wilson's{clustered}."
    yield "uncertainty", "The variation between trainings is not in them."
    yield "performance", _performance(answers, side.judged_by, scores, side.calibration_error)
    if side.naive is not None:
        yield (
            "performance",
            f"One grade for all has {METRICS['mae'].long_name} {side.naive.mae:.3f}.",
        )
    if side.gain is not None and side.gain.verdict in UNPROVEN:
        metric = METRICS[side.gain.metric].long_name
        yield (
            "performance",
            f"By {metric} the answers are {UNPROVEN[side.gain.verdict]} than one grade for all.",
        )
    yield "recalibration", recalibrated
    yield "failures", f"Of {side.samples:,} predicted grades {wrong}: see the table."


def _audit_facts(path: Path) -> Iterator[tuple[str, str]]:
    summary = audit_folder.read_summary(path)
    known = summary["rate"] if summary["identifiable"] else None
    rate = rate_text(known, summary["rate_interval"], name="95 % CI")
    if summary["reason"]:
        rate += f", but does not determine it: {summary['reason'].rstrip('.')}"
    yield "audit_noise", f"An audit puts the share of wrong labels at {rate}."
    if seen := summary.get("verified"):
        drawn = "of a random sample"
        if seen.get("by_doubt"):
            drawn = "drawn by doubt, with known probabilities,"
        yield (
            "verified",
            f"{seen['labels']:,} labels {drawn} were verified: {seen['wrong']:,} were wrong.",
        )


def _reader_facts(about: ReadersFile) -> Iterator[tuple[str, str]]:
    defined = []
    for name, words in AGREEMENT.items():
        if name in about.agreement:
            defined.append(f"{words} {interval_text(about.agreement[name])}")
    read = f" gave {about.readings:,} grades to {about.items:,} {about.noun}s."
    yield "readers", count_of(len(about.readers), "reader") + read
    if defined:
        yield "agreement", f"Agreement of the readers: {', '.join(defined)}."


def _evaluation_facts(file: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """fact, sentence: what one evaluation says, and of how many answers."""
    per = file.get("per", ())
    features = file.get("features", False)
    answers = answered(
        file["samples"], file.get("images") or file["samples"], per, features=features
    )
    if file["own_samples"] == 0:
        samples = f"Other samples, {answers}"
        if not per:
            samples += _patients(file["patients"])
        yield (
            "external",
            _performance(samples, file["judged_by"], file["intervals"], file["calibration_error"]),
        )
    yield from facts_of_file(file, answers)


def _performance(
    answers: str, judged_by: str, scores: Mapping[str, Any], calibration_error: float
) -> str:
    values = ", ".join(_score(name, scores[name]) for name in MAIN)
    return f"{answers}, judged by {judged_by}: {values}, calibration error {calibration_error:.3f}."


def _score(name: str, values: Mapping[str, float | None]) -> str:
    return f"{METRICS[name].long_name} {interval_text(values)}"


def _counted(grades: Sequence[str], counts: Sequence[int]) -> str:
    return ", ".join(f"{grade}: {n:,}" for grade, n in zip(grades, counts, strict=True))


# The page, and its two files.


def checklist_items(name: str, known: Known) -> pd.DataFrame:
    """The items of a checklist, in its order: item, section, asks (in our words), known, files
    (where that is from), and what the authors add."""
    if name not in CHECKLISTS:
        raise unknown_name("checklist", name, CHECKLISTS)
    text = (resources.files("srjt.reports") / "checklists.csv").read_text(encoding="utf-8")
    items = [row for row in csv.DictReader(text.splitlines()) if row["checklist"] == name]
    for row in items:
        facts = [*row["facts"].split(), *facts_of_item(name, row["item"])]
        files: dict[str, None] = {}
        for fact in facts:
            if fact in known:
                files |= dict.fromkeys(known[fact].files.split(", "))
        row |= {"known": known.paragraph(" ".join(facts)), "files": ", ".join(files)}
        if not files:
            row["authors"] = f"{AUTHORS}."
        elif row["authors"]:
            row["authors"] = f"{AUTHORS}: {row['authors']}."
    return pd.DataFrame(items)


def checklist_page(folder: Path, name: str, *, also: Sequence[Path] = ()) -> Page:
    """The checklist of a run as a page: paragraphs for the article, then every item."""
    checklist_items(name, Known())  # an error before anything is computed
    known, tables = known_facts(folder, also)
    items = checklist_items(name, known)
    filled = items["known"] != ""
    left = items["authors"] != ""
    frame = pd.DataFrame(
        {
            "item": items["item"] + " " + items["section"],
            "what it asks": items["asks"],
            "answer": (items["known"] + " " + items["authors"]).str.strip(),
            "from": items["files"],
        }
    )
    sections = []
    for heading, facts in {"Methods": METHODS, "Results": RESULTS}.items():
        if text := known.paragraph(facts):
            sections.append(Section(heading.lower(), f"{heading}, as a paragraph", text=[text]))
    sections.append(
        Section("items", "Items", tables=[data_table(frame, title="All items"), *tables])
    )
    return Page(
        kind="Checklist",
        title=f"{CHECKLISTS[name].partition(' (')[0].partition(',')[0]}: {folder.resolve().name}",
        lead=(
            f"{CHECKLISTS[name]}, each item in our words. Of {len(items)} items {(~left).sum()} are"
            f" answered from files and {(filled & left).sum()} in part; the others are for the"
            " authors."
        ),
        sections=sections,
    )


def write_checklist(
    page: Page, path: Path, *, write: Callable[[Path, bytes], None] = write_output
) -> list[Path]:
    """The page as HTML that word processors open, and as Markdown beside it. write: as of
    ``write_page``."""
    plain = templates().get_template("plain.html").render(page=page)
    files = {path: plain, path.with_suffix(".md"): markdown(page)}
    with explain_write_errors(f"{path} cannot be written"):
        for file, text in files.items():
            write(file, text.encode("utf-8", "replace"))
    return list(files)
