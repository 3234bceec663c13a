"""``srjt report RUN --checklist``: every item of TRIPOD+AI, CLAIM or STARD-AI with what the run, its audit, its
readers and its evaluations know, or that the authors must write it. Nothing is guessed: each sentence has its file.

``checklists.csv`` has the items, in our words, and the names of the facts that answer each.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import BaseModel, NonNegativeInt

from srjt import methods
from srjt.auditing import folder as audit_folder
from srjt.data.sources.readers_folder import read_readers_file
from srjt.errors import SrjtError, count_of, unknown_name
from srjt.files import explain_write_errors, read_json, write_output
from srjt.inference.decide import refer_if
from srjt.inference.evaluate import evaluate_sides
from srjt.ordinal.metrics import MAIN, METRICS
from srjt.reports.page import KeyNumber, Page, Section, markdown, templates
from srjt.reports.pages.evaluation import answered
from srjt.reports.sections import WITHOUT_PUBLISHED_WEIGHTS, source_name
from srjt.reports.table import Table, data_table
from srjt.studies.results import display_name
from srjt.training.folder import RunFacts, read_facts, read_noise_estimate, read_summary
from srjt.training.trained import load_run

CHECKLISTS = {
    "tripod-ai": "TRIPOD+AI (Collins et al., BMJ 2024, 385:e078378)",
    "claim": "CLAIM, 2024 update (Tejani et al., Radiology: Artificial Intelligence 2024, 6(4):e240300)",
    "stard-ai": "STARD-AI (Sounderajah et al., Nature Medicine 2025, 31:3283)",
}
AUTHORS = "To be written by the authors"
BINARY = {"sensitivity": "sensitivity", "specificity": "specificity", "roc_area": "area under the ROC curve"}
AGREEMENT = {
    "alpha": "Krippendorff's α",
    "quadratic": "quadratic κ of pairs",
    "exact": "share of equal pairs",
}
SITES = ("site", "centre", "center", "hospital", "clinic", "institution")  # columns that name them

# the facts of the two paragraphs, in their order
METHODS = """
    source flow left_out disjoint grades readers agreement verified noise preprocessing model weights training
    selection imbalance ensemble output recalibration uncertainty software
"""
RESULTS = "performance true_scores calibration decision ranges subgroups sites failures external audit_noise"

# facts of several files, or of another file than those around them
OTHER_FILES = {
    "model": "run.json",
    "output": "run.json",
    "selection": "run.json, summary.json",
    "availability": "summary.json",
}


# What is known: fact → its sentences, and the files that say so.


class Answer(NamedTuple):
    text: str
    files: str  # separated by commas


class EvaluationFile(BaseModel, extra="allow"):
    """What ``srjt evaluate --out`` writes; the rest is read as it is needed."""

    run: str
    grades: list[str]
    samples: NonNegativeInt
    own_samples: NonNegativeInt | None = None  # that the run knows; None: not recorded


def known_facts(folder: Path, also: Sequence[Path] = ()) -> tuple[dict[str, Answer], list[Table]]:
    """What a run and the files beside it know, and the tables that belong to it.

    also: folders of an audit or of readers, and files of ``srjt evaluate --out``. Default: those beside the run that
    are about the same table or run.
    """
    facts, known = read_facts(folder), dict[str, Answer]()

    def add(texts: Iterable[tuple[str, str]], file: str) -> None:
        for fact, text in texts:
            if text:
                before = known.get(fact, Answer("", ""))
                files = ", ".join(filter(None, (before.files, OTHER_FILES.get(fact, file))))
                known[fact] = Answer(f"{before.text} {text}".strip(), files)

    side, tables = _side_facts(folder, facts)
    add(run_facts(folder, facts).items(), "run.json")
    add(side.items(), "held_out.csv")
    if "noise" in known and (folder / "noise.json").exists():
        known["noise"] = known["noise"]._replace(files="run.json, noise.json")
    for path in also or _beside(folder, facts):
        kind, about = _read(path)
        if list(about["grades"]) != list(facts.grades):
            raise SrjtError(f"{path} is about other grades, {', '.join(about['grades'])}, than {folder}.")
        try:
            if kind == "evaluation":
                add(_evaluation_facts(about), path.name)
            elif kind == "audit":
                add(_audit_facts(path), f"{path.name}/summary.json")
            else:
                add(_reader_facts(about, path, facts), f"{path.name}/readers.json")
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            reason = f"{type(problem).__name__}: {problem}"
            raise SrjtError(f"{path} is damaged or not from srjt ({reason}).") from None
    return known, tables


def _read(path: Path) -> tuple[str, Mapping[str, Any]]:
    """What a folder or file is about, and its content."""
    if (path / "audit.json").is_file():
        return "audit", audit_folder.read_facts(path)
    if (path / "readers.json").is_file():
        return "readers", read_readers_file(path).model_dump()
    if path.is_file() and path.suffix == ".json":
        return "evaluation", read_json(path, EvaluationFile).model_dump()
    raise SrjtError(f"{path} is not the folder of an audit or of readers, nor a JSON file of srjt evaluate --out.")


def _beside(folder: Path, facts: RunFacts) -> Iterator[Path]:
    """The audit, the readers and the evaluations in the run's folder and in the two around it."""
    here = folder.resolve()
    tables = {path.name for path in _files(facts)}
    for path in sorted(path for place in (here, *here.parents[:2]) for path in place.iterdir()):
        try:
            kind, about = _read(path)
            same_table = Path(str(about.get("source"))).name in tables
        except (SrjtError, OSError, ValueError, AttributeError):  # of something else
            continue
        if about["run"] == here.name if kind == "evaluation" else same_table or _is_consensus(path, facts):
            yield path


def run_facts(folder: Path, facts: RunFacts) -> dict[str, str]:
    """Fact → what ``run.json``, ``summary.json`` and ``noise.json`` say of it; "": nothing."""
    summary, data, made = read_summary(folder), facts.data, facts.provenance
    features = data["in_shape"][0] if len(data["in_shape"]) == 1 else 0
    config = facts.config.for_data(features=bool(features))
    what = "rows of features" if features else "images"
    patients, by_side = data.get("patients"), data.get("side_patients") or {}
    sizes = {name: n for name, n in data.get("samples", {}).items() if n}
    sides = ", ".join(
        f"{n:,} for {'training' if name == 'train' else name}"
        + (f" ({count_of(by_side[name], 'patient')})" if name in by_side else "")
        for name, n in sizes.items()
    )
    shared = sum(by_side.values()) - (patients or 0)
    several = f"{count_of(shared, 'patient is', 'patients are')} on more than one side."
    disjoint = (several if shared else "No patient is on two sides.") if by_side else ""
    left_out, paper = data.get("left_out"), paper_of(config.method)
    reasons = ", ".join(f"{kind.replace('-', ' ')}: {n:,}" for kind, n in (left_out or {}).items())
    method = methods.lookup(config.method) if config.method in methods.names() else None
    networks = count_of(method.networks, "network") if method else "networks"
    network = "of the authors' own" if facts.own_network else str(config.network)
    versions = {"srjt": facts.version, "Python": made.get("python"), **made.get("packages", {})}
    software = [f"{name} {version}" for name, version in versions.items() if version]
    kept = f"epoch {summary.get('kept_epoch', '?')} were kept, the best on the validation side"
    sha256 = (data.get("source") or {}).get("sha256")
    digest = (summary.get("files") or {}).get("weights.safetensors")
    size, crop = config.image_size, config.crop
    given = f"a row of {features:,} features" if features else f"the image, {crop} × {crop} pixels"
    resized = "resized to" if config.resize == "squash" else "scaled by their short side and cut to"
    mirrored = "; training images were mirrored at random" if config.flip else ""
    return {
        "source": f"The data were read from {source_name(facts)}." if source_name(facts) else "",
        "sha256": f"Its SHA-256 is {sha256}." if sha256 else "",
        "flow": f"{sum(sizes.values()):,} {what}{_patients(patients)} were used: {sides}.",
        "sizes": f"Number of {what}: {sides}.",
        "splits": f"The {what} were divided once: {sides}. {disjoint}",
        "disjoint": disjoint,
        "left_out": ""
        if left_out is None
        else f"Left out, by reason: {reasons}."
        if reasons
        else "No row of the table was left out.",
        "counts": " ".join(
            f"Labels of the {side} side: {_counted(facts.grades.shown, data[name])}."
            for side, name in (("training", "class_counts"), ("validation", "validation_counts"))
            if any(data.get(name) or [])
        ),
        "grades": f"The outcome is an ordinal grade, mildest first: {', '.join(facts.grades.shown)}.",
        "input": f"The only input is {given}.",
        "preprocessing": "Each feature was scaled to mean 0 and variance 1 on the training side."
        if features
        else f"Images were {resized} {size} × {size} pixels, of which {crop} × {crop} were used, in training at random "
        f"places, otherwise in the centre{mirrored}.",
        "model": f"The model consists of {networks} ({network}), trained with the method "
        f"{display_name(config.method)}{f' ({paper})' if paper else ''}.",
        "weights": f"{_weights(facts)} Seed: {config.seed}.",
        "training": f"Training took {count_of(config.epochs, 'epoch')} in batches of {config.batch_size:,} with "
        f"{config.optimizer}, learning rate {config.learning_rate:g}, weight decay {config.weight_decay:g} and the "
        f"schedule {config.schedule}.",
        "selection": f"The networks of {'the last epoch were kept' if config.keep == 'last' else kept}.",
        "imbalance": f"Rare grades were drawn more often (balance {config.balance:g})."
        if config.balance
        else "All samples were drawn equally often, whatever their grade.",
        "noise": _noise(folder, facts),
        "ensemble": "The mean of the networks' probabilities is the answer.",
        "software": f"Software: {', '.join([*software, *filter(None, [made.get('device')])])}.",
        "command": f"Command: {made['command']}" if made.get("command") else "",
        "availability": f"The networks are weights.safetensors, SHA-256 {digest}." if digest else "",
    }


def paper_of(method: str) -> str:
    """The paper of a method; "" if it has none, or is a plug-in that is not installed."""
    paper = methods.lookup(method).paper if method in methods.names() else ""
    return "" if paper in ("baseline", "this project") else paper


def _patients(number: int | None) -> str:
    return f" of {count_of(number, 'patient')}" if number else ""


def _weights(facts: RunFacts) -> str:
    config = facts.config
    if facts.own_network:
        return ""
    if config.weights is not None:
        return f"The networks start from the weights in {Path(config.weights).name}."
    published = config.network not in WITHOUT_PUBLISHED_WEIGHTS and len(facts.data["in_shape"]) > 1
    kind = "published ImageNet" if config.pretrained and published else "random"
    return f"The networks start from {kind} weights."


def _noise(folder: Path, facts: RunFacts) -> str:
    """What the training took the share of wrong labels to be."""
    estimate, rate = read_noise_estimate(folder), (facts.noise or {}).get("used")
    if not isinstance(rate, float):
        return ""
    if estimate is None:
        return f"The share of wrong labels was given as {rate:.0%}."
    low, high = estimate.rate_interval
    return (
        f"Training took the share of wrong labels to be {rate:.0%}; by the training labels it lies between {low:.0%} "
        f"and {high:.0%} (95 % CI)."
    )


def _side_facts(folder: Path, facts: RunFacts) -> tuple[dict[str, str], list[Table]]:
    """The answers for the test side, else the validation side, and the table of grades."""
    try:
        run = load_run(folder, device="cpu")
        sides = evaluate_sides(run)
    except SrjtError:  # a network of your own, or a method that is not installed
        return {}, []
    weights = sum(weight.numel() for weight in run.networks.parameters())
    parameters = {"model": f"All networks have {weights:,} parameters together."}
    side = sides.get("test") or sides.get("validation")
    if side is None:
        return parameters, []
    grades, table = facts.grades.shown, pd.DataFrame(side.confusion, columns=facts.grades.shown)
    counts = np.asarray(side.confusion)
    far = [int(counts.sum() - sum(np.trace(counts, k) for k in near)) for near in ((0,), (-1, 0, 1))]
    table.insert(0, side.judged_by.removesuffix("s"), list(grades))
    title = f"Predicted grades (columns) of the {side.side} side by {side.judged_by}"
    scores = ", ".join(_score(name, side.intervals[name]._asdict()) for name in MAIN)
    metrics = ", ".join([*(METRICS[name].long_name for name in side.intervals), "calibration error"])
    naive = ""
    if side.naive is not None:
        naive = f" One grade for all has {METRICS['mae'].long_name} {side.naive.mae:.3f}."
    unit, clustered = ("patients", ", corrected for patients") if side.by_patient else ("samples", "")
    return {
        **parameters,
        "counts": f"{side.judged_by.capitalize()} of the {side.side} side: "
        f"{_counted(grades, [sum(row) for row in side.confusion])}.",
        "output": f"The output is a probability of each grade; a predicted grade is {side.grade_rule}.",
        "judged": f"The {side.side} side is judged by {side.judged_by}.",
        "stored": f"The probabilities of every sample of the {side.side} side are stored.",
        "metrics": f"Metrics: {metrics}.",
        "uncertainty": f"95 % confidence intervals (CI) of metrics are percentiles of 1,000 bootstrap samples of "
        f"{unit}; those of sensitivity, specificity and coverage are Wilson's{clustered}. The variation between "
        "trainings is not in them.",
        "performance": f"{side.side.capitalize()} side, {side.samples:,} answers judged by {side.judged_by}: {scores}."
        + naive,
        "crosstab": f"See the table of predicted grades of the {side.side} side below.",
        "calibration": f"Expected calibration error {side.calibration_error:.3f}, ranked probability score "
        f"{side.ranked_probability_score:.3f}.",
        "recalibration": f"Probabilities were recalibrated: {side.recalibration}."
        if side.recalibration
        else "Probabilities were not recalibrated.",
        "failures": f"Of {side.samples:,} predicted grades {far[0]:,} are wrong, {far[1]:,} by more than one grade.",
    }, [data_table(table, title=title, caption="From held_out.csv.")]


def _audit_facts(path: Path) -> Iterator[tuple[str, str]]:
    summary = audit_folder.read_summary(path)
    low, high = summary["rate_interval"]
    rate = f"{summary['rate']:.0%} (95 % CI {low:.0%} to {high:.0%})"
    doubt = f", but does not determine it: {summary['reason'].rstrip('.')}" if summary["reason"] else ""
    yield "audit_noise", f"An audit puts the share of wrong labels at {rate}{doubt}."
    if seen := summary.get("verified"):
        wrong = f"{seen['wrong']:,} were wrong"
        yield "verified", f"{seen['labels']:,} labels of a random sample were verified: {wrong}."


def _reader_facts(about: Mapping[str, Any], path: Path, facts: RunFacts) -> Iterator[tuple[str, str]]:
    overall = about["agreement"]
    shown = [f"{words} {_interval(overall[name])}" for name, words in AGREEMENT.items() if name in overall]
    read = f" gave {about['readings']:,} grades to {about['items']:,} {about['noun']}s."
    consensus = " The labels of the run are their consensus." if _is_consensus(path, facts) else ""
    yield "readers", count_of(len(about["readers"]), "reader") + read + consensus
    if shown:
        yield "agreement", f"Agreement of the readers: {', '.join(shown)}."


def _is_consensus(readers: Path, facts: RunFacts) -> bool:
    """Whether the run was trained on the consensus of these readers."""
    return (readers / "consensus.csv").resolve() in _files(facts)


def _files(facts: RunFacts) -> list[Path]:
    """The file of the data, and that of the labels if it is another one."""
    described = [facts.data.get(name) or {} for name in ("source", "labels")]
    return [Path(one["path"]).resolve() for one in described if "path" in one]


def _evaluation_facts(file: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """fact, sentence: what one evaluation says, and of how many answers."""
    per, features = file.get("per", ()), file.get("features", False)
    answers = answered(file["samples"], file.get("images") or file["samples"], per, features=features)
    if file["own_samples"] == 0:
        scores = ", ".join(_score(name, file["intervals"][name]) for name in MAIN)
        samples = f"Other samples, {answers}{'' if per else _patients(file['patients'])}"
        scores += f", calibration error {file['calibration_error']:.3f}"
        yield "external", f"{samples}, judged by {file['judged_by']}: {scores}."
    if decision := file.get("decision"):
        point = {**decision["operating_point"], **decision["areas"]}
        values = [f"{words} {_interval(point[name])}" for name, words in BINARY.items() if name in point]
        rule = refer_if(decision["refer_from"], decision["threshold"])
        yield "decision", f"Referral of {answers} {rule}: {', '.join(values)}. {decision['found']}"
    if ranges := file.get("ranges"):
        covered, width = _interval(ranges["coverage"], ".0%"), _interval(ranges["width"], ".1f")
        promise = f"Ranges that promise {ranges['promised']:.0%}, of {answers},"
        yield "ranges", f"{promise} hold the grade for {covered}; grades in one: {width}."
    if (abstention := file.get("abstention")) and abstention["wanted"] is not None:
        yield "unsure", f"{abstention['share']:.0%} of {answers}, the least sure, were left to a person."
    if truth := file.get("true_scores"):
        known = {name: truth["scores"][name] for name in MAIN if name in truth["scores"]}
        by, true = "Scores, CI by the delta method,", [_score(*score) for score in known.items()]
        if truth["basis"] != "verified grades":  # no value is an estimate
            by = "Bounds of the scores"
            true = [
                f"{METRICS[name].long_name} {score['low']:.3f} to {score['high']:.3f}"
                for name, score in known.items()
                if score["low"] is not None
            ]
        against = f"{by} of {answers} against the true grades, by {truth['basis']}"
        yield "true_scores", f"{against}: {', '.join(true)}."
    groups = (file.get("subgroups") or {}).get("groups", [])
    for column, own in itertools.groupby(groups, key=lambda group: group["column"]):
        errors, sizes = [], []
        for group in own:
            score = _interval(group["scores"]["mae"]) if group["scores"] else "has too few"
            patients = f"({count_of(group['patients'], 'patient')})"
            errors.append(f"{group['name']} {score} {patients}")
            sizes.append(f"{group['name']} {patients}")
        is_site = column.casefold() in SITES
        if is_site:
            yield "centres", f"Evaluated by {column}: {', '.join(sizes)}."
        words = f"{METRICS['mae'].long_name.capitalize()} of {answers} by {column}: {', '.join(errors)}."
        yield "sites" if is_site else "subgroups", words


def _score(name: str, values: Mapping[str, float | None]) -> str:
    return f"{METRICS[name].long_name} {_interval(values)}"


def _interval(values: Mapping[str, float | None], pattern: str = ".3f") -> str:
    """ "0.310 (95 % CI 0.280 to 0.350)"."""
    value, low, high = np.array([values.get(name) for name in ("value", "low", "high")], dtype=float)  # None: nan
    ends = "" if not high - low >= 1e-9 else f" (95 % CI {low:{pattern}} to {high:{pattern}})"
    return "not defined" if math.isnan(value) else f"{value:{pattern}}{ends}"


def _counted(grades: Sequence[str], counts: Sequence[int]) -> str:
    return ", ".join(f"{grade}: {n:,}" for grade, n in zip(grades, counts, strict=True))


# The page, and its two files.


def checklist_items(name: str, known: Mapping[str, Answer]) -> pd.DataFrame:
    """The items of a checklist, in its order: item, section, asks (in our words), known, files (where that is from),
    and what the authors add."""
    if name not in CHECKLISTS:
        raise unknown_name("checklist", name, CHECKLISTS)
    text = (resources.files("srjt.reports") / "checklists.csv").read_text(encoding="utf-8")
    items = [row for row in csv.DictReader(text.splitlines()) if row["checklist"] == name]
    for row in items:
        answers = [known[fact] for fact in row["facts"].split() if fact in known]
        files = dict.fromkeys(file for answer in answers for file in answer.files.split(", "))
        row |= {"known": " ".join(answer.text for answer in answers), "files": ", ".join(files)}
        if not answers or row["authors"]:
            row["authors"] = f"{AUTHORS}: {row['authors']}." if answers else f"{AUTHORS}."
    return pd.DataFrame(items)


def checklist_page(folder: Path, name: str, *, also: Sequence[Path] = ()) -> Page:
    """The checklist of a run as a page: paragraphs for the article, then every item."""
    checklist_items(name, {})  # an error before anything is computed
    known, tables = known_facts(folder, also)
    items = checklist_items(name, known)
    whole = int((items["authors"] == "").sum())
    partly = int(((items["known"] != "") & (items["authors"] != "")).sum())
    frame = pd.DataFrame({
        "item": items["item"] + " " + items["section"],
        "what it asks": items["asks"],
        "answer": (items["known"] + " " + items["authors"]).str.strip(),
        "from": items["files"],
    })  # fmt: skip
    sections = [
        Section(heading.lower(), f"{heading}, as a paragraph", text=[text])
        for heading, facts in {"Methods": METHODS, "Results": RESULTS}.items()
        if (text := " ".join(known[fact].text for fact in facts.split() if fact in known))
    ]
    sections.append(Section("items", "Items", tables=[data_table(frame, title="All items"), *tables]))
    return Page(
        kind="Checklist",
        title=f"{CHECKLISTS[name].partition(' (')[0].partition(',')[0]}: {folder.resolve().name}",
        lead=f"{CHECKLISTS[name]}, each item in our words.",
        key_numbers=[
            KeyNumber("answered from files", str(whole)),
            KeyNumber("in part", str(partly)),
            KeyNumber("for the authors", str(len(items) - whole - partly)),
        ],
        sections=sections,
    )


def write_checklist(page: Page, path: Path, *, write: Callable[[Path, bytes], None] = write_output) -> list[Path]:
    """The page as HTML that word processors open, and as Markdown beside it. write: as of ``write_page``."""
    plain = templates().get_template("plain.html").render(page=page)
    files = {path: plain, path.with_suffix(".md"): markdown(page)}
    with explain_write_errors(f"{path} cannot be written"):
        for file, text in files.items():
            write(file, text.encode("utf-8", "replace"))
    return list(files)
