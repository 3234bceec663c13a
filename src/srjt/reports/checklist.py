"""``srjt report RUN --checklist``: every item of TRIPOD+AI, CLAIM or STARD-AI with what the run, its audit, its
readers and its evaluations know, or that the authors must write it. Nothing is guessed: each sentence has its file.

``checklists.csv`` has the items, in our words, and the names of the facts that answer each; ``FACTS`` has the facts.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, NonNegativeInt

from srjt import methods
from srjt.auditing import folder as audit_folder
from srjt.data.sources.readers_folder import read_reader_facts
from srjt.errors import SrjtError, count_of, unknown_name
from srjt.files import explain_write_errors, read_json, write_output
from srjt.inference.evaluate import evaluate_sides
from srjt.ordinal.metrics import MAIN, METRICS
from srjt.reports.page import KeyNumber, Page, Section, markdown, templates
from srjt.reports.sections import WITHOUT_PUBLISHED_WEIGHTS, source_name
from srjt.reports.table import Table, data_table
from srjt.studies.results import display_name
from srjt.training.config import TrainConfig
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

# the file, or the name of its name, that facts come from: the facts
FILES = {
    "run.json": "source sha256 flow left_out sizes splits disjoint grades input preprocessing model weights training "
    "imbalance ensemble output software command",
    "run.json, summary.json": "selection",
    "run.json, held_out.csv": "counts",
    "summary.json": "availability",
    "{noise_file}": "noise",
    "held_out.csv": "judged stored metrics uncertainty performance crosstab calibration recalibration failures",
    "{audit_file}": "audit_noise verified",
    "{readers_file}": "readers agreement",
}
OF_EVALUATIONS = "external decision ranges unsure subgroups centres sites true_scores"
FACTS = {fact: file for file, facts in FILES.items() for fact in facts.split()}
FACTS |= {fact: f"{{{fact}_file}}" for fact in OF_EVALUATIONS.split()}
# the sentences of a fact, if it is not one itself; a sentence is used if all that it names is known
SENTENCES: dict[str, tuple[str, ...]] = {
    "source": ("The data were read from {source}.",),
    "sha256": ("Its SHA-256 is {sha256}.",),
    "flow": ("{used} were used: {sides}.",),
    "sizes": ("Number of {what}: {sides}.",),
    "splits": ("The {what} were divided once: {sides}.", "{disjoint}"),
    "counts": ("{counts}", "{side_counts}"),
    "grades": ("The outcome is an ordinal grade, mildest first: {grades}.",),
    "input": ("The only input is {input}.",),
    "model": ("{model}", "All networks have {parameters:,} parameters together."),
    "weights": ("{weights}", "Seed: {seed}."),
    "output": ("The output is a probability of each grade; a predicted grade is {grade_rule}.",),
    "software": ("Software: {software}.",),
    "command": ("Command: {command}",),
    "availability": ("The networks are weights.safetensors, SHA-256 {weights_sha256}.",),
    "judged": ("The {side} side is judged by {judged_by}.",),
    "stored": ("The probabilities of every sample of the {side} side are stored.",),
    "metrics": ("Metrics: {metrics}.",),
    "uncertainty": ("95 % confidence intervals (CI) are percentiles of 1,000 bootstrap samples of {unit}; the "
                    "variation between trainings is not in them.",),
    "performance": ("{performance}", "One grade for all has {naive}."),
    "crosstab": ("See the table of predicted grades of the {side} side below.",),
    "audit_noise": ("An audit puts the share of wrong labels at {audit_rate}.", "{audit_reason}"),
    "readers": ("{readers}", "{consensus}"),
    "agreement": ("Agreement of the readers: {agreement}.",),
}  # fmt: skip
# the facts of the two paragraphs, in their order
METHODS = """
    source flow left_out disjoint grades readers agreement verified noise preprocessing model weights training
    selection imbalance ensemble output recalibration uncertainty software
"""
RESULTS = "performance true_scores calibration decision ranges subgroups sites failures external audit_noise"


# What is known: the names in the sentences, with their values; what is not known is not there.


class EvaluationFile(BaseModel, extra="allow"):
    """What ``srjt evaluate --out`` writes; the rest is read as it is needed."""

    run: str
    grades: list[str]
    samples: NonNegativeInt
    own_samples: NonNegativeInt | None = None  # that the run knows; None: not recorded


def known_facts(folder: Path, also: Sequence[Path] = ()) -> tuple[dict[str, Any], list[Table]]:
    """What a run and the files beside it know, and the tables that belong to it.

    also: folders of an audit or of readers, and files of ``srjt evaluate --out``. Default: those beside the run that
    are about the same table or run.
    """
    facts = read_facts(folder)
    side, tables = _side_facts(folder, facts)
    known: dict[str, Any] = {**run_facts(folder, facts), **side}
    for path in also or _beside(folder, facts):
        kind, about = _read(path)
        if list(about["grades"]) != list(facts.grades):
            raise SrjtError(f"{path} is about other grades, {', '.join(about['grades'])}, than {folder}.")
        try:
            if kind == "evaluation":
                for name, text in _evaluation_facts(about):
                    known[name] = f"{known.get(name, '')} {text}".strip()
                    known[f"{name}_file"] = ", ".join(filter(None, (known.get(f"{name}_file"), path.name)))
            else:
                known |= _audit_facts(path) if kind == "audit" else _reader_facts(about, path, facts)
        except SrjtError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            reason = f"{type(problem).__name__}: {problem}"
            raise SrjtError(f"{path} is damaged or not from srjt ({reason}).") from None
    return {name: value for name, value in known.items() if value not in (None, "")}, tables


def _read(path: Path) -> tuple[str, Mapping[str, Any]]:
    """What a folder or file is about, and its content."""
    if (path / "audit.json").is_file():
        return "audit", audit_folder.read_facts(path)
    if (path / "readers.json").is_file():
        return "readers", read_reader_facts(path)
    if path.is_file() and path.suffix == ".json":
        return "evaluation", read_json(path, EvaluationFile).model_dump()
    raise SrjtError(
        f"{path} is not the folder of an audit or of readers, nor a JSON file of srjt evaluate --out."
    )


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


def run_facts(folder: Path, facts: RunFacts) -> dict[str, Any]:
    """What ``run.json``, ``summary.json`` and ``noise.json`` say, for the sentences of ``FACTS``."""
    summary, data, made = read_summary(folder), facts.data, facts.provenance
    features = data["in_shape"][0] if len(data["in_shape"]) == 1 else 0
    config = facts.config.for_data(features=bool(features))
    what = "rows of features" if features else "images"
    patients, by_side = data.get("patients"), data.get("side_patients") or {}
    sides = {name: n for name, n in data.get("samples", {}).items() if n}
    method = methods.lookup(config.method) if config.method in methods.names() else None
    network = "a network of the authors' own" if facts.own_network else str(config.network)
    number = {0: "The networks", 1: "One network", 2: "Two networks"}[method.networks if method else 0]
    cited = method is not None and method.paper not in ("", "baseline", "this project")
    answering = {1: "One network answers.", 2: "The mean of both networks' probabilities is the answer."}
    left_out, shared = data.get("left_out"), sum(by_side.values()) - (patients or 0)
    reasons = ", ".join(f"{kind.replace('-', ' ')}: {n:,}" for kind, n in (left_out or {}).items())
    software = [f"srjt {facts.version}", *(f"Python {made[name]}" for name in ("python",) if name in made)]
    software += [f"{name} {version}" for name, version in made.get("packages", {}).items()]
    kept = f"epoch {summary.get('kept_epoch', '?')} were kept, the best on the validation side"
    known = {
        "what": what,
        "source": source_name(facts),
        "sha256": (data.get("source") or {}).get("sha256"),
        "used": f"{sum(sides.values()):,} {what}" + _patients(patients),
        "sides": _listed(
            f"{n:,} for {'training' if name == 'train' else name}"
            + (f" ({count_of(by_side[name], 'patient')})" if name in by_side else "")
            for name, n in sides.items()
        ),
        "counts": " ".join(
            f"Labels of the {side} side: {_counted(facts.grades.shown, data[name])}."
            for side, name in (("training", "class_counts"), ("validation", "validation_counts"))
            if any(data.get(name) or [])
        ),
        "grades": ", ".join(facts.grades.shown),
        "input": f"the image, {config.crop} × {config.crop} pixels",
        "preprocessing": _preprocessing(config, features=bool(features)),
        "model": f"{number} ({network}) learnt with the method {display_name(config.method)}"
        + (f" ({method.paper})." if method and cited else "."),
        "weights": _weights(facts),
        "seed": config.seed,
        "training": f"Training took {count_of(config.epochs, 'epoch')} in batches of {config.batch_size:,} with "
        f"{config.optimizer}, learning rate {config.learning_rate:g}, weight decay {config.weight_decay:g} and the "
        f"schedule {config.schedule}.",
        "selection": f"The networks of {'the last epoch were kept' if config.keep == 'last' else kept}.",
        "imbalance": "All samples were drawn equally often, whatever their grade.",
        "noise": _noise(folder, facts),
        "noise_file": "run.json, noise.json" if (folder / "noise.json").exists() else "run.json",
        "ensemble": answering[method.networks] if method else "",
        "software": ", ".join([*software, *([str(made["device"])] if "device" in made else [])]),
        "command": made.get("command"),
        "weights_sha256": (summary.get("files") or {}).get("weights.safetensors"),
    }
    if features:
        known["input"] = f"a row of {features:,} features"
    if config.balance:
        known["imbalance"] = f"Rare grades were drawn more often (balance {config.balance:g})."
    if left_out is not None:
        known["left_out"] = (
            f"Left out, by reason: {reasons}." if left_out else "No row of the table was left out."
        )
    if by_side:
        several = f"{count_of(shared, 'patient is', 'patients are')} on more than one side."
        known["disjoint"] = several if shared else "No patient is on two sides."
    return known


def _patients(number: int | None) -> str:
    return f" of {count_of(number, 'patient')}" if number else ""


def _preprocessing(config: TrainConfig, *, features: bool) -> str:
    if features:
        return "Each feature was scaled to mean 0 and variance 1 on the training side."
    size, crop = config.image_size, config.crop
    how = "resized to" if config.resize == "squash" else "scaled by their short side and cut to"
    mirrored = "; training images were mirrored at random" if config.flip else ""
    return (
        f"Images were {how} {size} × {size} pixels, of which {crop} × {crop} were used, in training at random places, "
        f"otherwise in the centre{mirrored}."
    )


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


def _side_facts(folder: Path, facts: RunFacts) -> tuple[dict[str, Any], list[Table]]:
    """The answers for the test side, else the validation side, and the table of grades."""
    try:
        run = load_run(folder, device="cpu")
        sides = evaluate_sides(run)
    except SrjtError:  # a network of your own, or a method that is not installed
        return {}, []
    parameters = {"parameters": sum(weight.numel() for weight in run.networks.parameters())}
    side = sides.get("test") or sides.get("validation")
    if side is None:
        return parameters, []
    grades, table = facts.grades.shown, pd.DataFrame(side.confusion, columns=facts.grades.shown)
    counts = np.asarray(side.confusion)
    far = [int(counts.sum() - sum(np.trace(counts, k) for k in near)) for near in ((0,), (-1, 0, 1))]
    table.insert(0, side.judged_by.removesuffix("s"), list(grades))
    title = f"Predicted grades (columns) of the {side.side} side by {side.judged_by}"
    scores = ", ".join(_score(name, side.intervals[name]._asdict()) for name in MAIN)
    return {
        **parameters,
        "side": side.side,
        "judged_by": side.judged_by,
        "side_counts": f"{side.judged_by.capitalize()} of the {side.side} side: "
        f"{_counted(grades, [sum(row) for row in side.confusion])}.",
        "metrics": ", ".join([*(METRICS[name].long_name for name in side.intervals), "calibration error"]),
        "unit": "patients" if side.by_patient else "samples",
        "grade_rule": side.grade_rule,
        "performance": f"{side.side.capitalize()} side, {side.samples:,} answers judged by {side.judged_by}: {scores}.",
        "naive": None if side.naive is None else f"{METRICS['mae'].long_name} {side.naive.mae:.3f}",
        "calibration": f"Expected calibration error {side.calibration_error:.3f}, ranked probability score "
        f"{side.ranked_probability_score:.3f}.",
        "recalibration": f"Probabilities were recalibrated: {side.recalibration}."
        if side.recalibration
        else "Probabilities were not recalibrated.",
        "failures": f"Of {side.samples:,} predicted grades {far[0]:,} are wrong, {far[1]:,} by more than one grade.",
    }, [data_table(table, title=title, caption="From held_out.csv.")]


def _audit_facts(path: Path) -> dict[str, Any]:
    summary = audit_folder.read_summary(path)
    verified, (low, high) = summary.get("verified"), summary["rate_interval"]
    return {
        "audit_file": f"{path.name}/summary.json",
        "audit_rate": f"{summary['rate']:.0%} (95 % CI {low:.0%} to {high:.0%})",
        "audit_reason": summary["reason"],
        "verified": verified
        and f"{verified['labels']:,} labels of a random sample were verified: {verified['wrong']:,} were wrong.",
    }


def _reader_facts(about: Mapping[str, Any], path: Path, facts: RunFacts) -> dict[str, Any]:
    overall = about.get("agreement") or {}
    read = f" gave {about['number_of_readings']:,} grades to {about['items']:,} {about['noun']}s"
    return {
        "readers_file": f"{path.name}/readers.json",
        "readers": f"{count_of(len(about['readers']), 'reader')}{read}.",
        "consensus": "The labels of the run are their consensus." if _is_consensus(path, facts) else "",
        "agreement": ", ".join(
            f"{words} {_interval(overall[name])}" for name, words in AGREEMENT.items() if overall.get(name)
        ),
    }


def _is_consensus(readers: Path, facts: RunFacts) -> bool:
    """Whether the run was trained on the consensus of these readers."""
    return (readers / "consensus.csv").resolve() in _files(facts)


def _files(facts: RunFacts) -> list[Path]:
    """The file of the data, and that of the labels if it is another one."""
    described = [facts.data.get(name) or {} for name in ("source", "labels")]
    return [Path(one["path"]).resolve() for one in described if "path" in one]


def _evaluation_facts(file: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """fact, sentence: what one evaluation says."""
    if file["own_samples"] == 0:
        scores = ", ".join(_score(name, file["intervals"][name]) for name in MAIN)
        samples = (
            f"{file['samples']:,} other samples{_patients(file['patients'])}, judged by {file['judged_by']}"
        )
        yield "external", f"{samples}: {scores}, calibration error {file['calibration_error']:.3f}."
    if decision := file.get("decision"):
        point = {**decision["operating_point"], **decision["areas"]}
        values = [f"{words} {_interval(point[name])}" for name, words in BINARY.items() if name in point]
        yield "decision", f"Referral from grade {decision['refer_from']}: {', '.join(values)}."
    if ranges := file.get("ranges"):
        covered, width = _interval(ranges["coverage"], ".0%"), _interval(ranges["width"], ".1f")
        promise = f"Ranges that promise {ranges['promised']:.0%}"
        yield "ranges", f"{promise} hold the grade for {covered}; grades in one: {width}."
    if (abstention := file.get("abstention")) and abstention["wanted"] is not None:
        yield "unsure", f"{abstention['share']:.0%} of the samples, the least sure, were left to a person."
    if truth := file.get("true_scores"):
        scores = ", ".join(_score(name, truth["scores"][name]) for name in MAIN if name in truth["scores"])
        yield "true_scores", f"Against the true grades, by {truth['basis']}: {scores}."
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
        words = f"{METRICS['mae'].long_name.capitalize()} by {column}: {', '.join(errors)}."
        yield "sites" if is_site else "subgroups", words


def _score(name: str, values: Mapping[str, float | None]) -> str:
    return f"{METRICS[name].long_name} {_interval(values)}"


def _interval(values: Mapping[str, float | None], pattern: str = ".3f") -> str:
    """ "0.310 (95 % CI 0.280 to 0.350)"."""
    value, low, high = (
        math.nan if (end := values.get(name)) is None else end for name in ("value", "low", "high")
    )
    ends = "" if math.isnan(low) else f" (95 % CI {low:{pattern}} to {high:{pattern}})"
    return "not defined" if math.isnan(value) else f"{value:{pattern}}{ends}"


def _counted(grades: Sequence[str], counts: Sequence[int]) -> str:
    return ", ".join(f"{grade}: {n:,}" for grade, n in zip(grades, counts, strict=True))


def _listed(parts: Iterable[str]) -> str:
    *first, last = [*parts] or [""]
    return f"{', '.join(first)} and {last}" if first else last


# The page, and its two files.


def checklist_items(name: str, known: Mapping[str, Any]) -> pd.DataFrame:
    """The items of a checklist, in its order: item, section, asks (in our words), known, files (where that is from),
    and what the authors add."""
    if name not in CHECKLISTS:
        raise unknown_name("checklist", name, CHECKLISTS)
    text = (resources.files("srjt.reports") / "checklists.csv").read_text(encoding="utf-8")
    items = [row for row in csv.DictReader(text.splitlines()) if row["checklist"] == name]
    for row in items:
        answers = {fact: found for fact in row["facts"].split() if (found := answer(fact, known))}
        files = dict.fromkeys(file for fact in answers for file in FACTS[fact].format(**known).split(", "))
        row |= {"known": " ".join(answers.values()), "files": ", ".join(files)}
        if not answers or row["authors"]:
            row["authors"] = f"{AUTHORS}: {row['authors']}." if answers else f"{AUTHORS}."
    return pd.DataFrame(items)


def answer(fact: str, known: Mapping[str, Any]) -> str:
    """The sentences of a fact of which everything is known; "" if there is none."""
    some = {name: value for name, value in known.items() if value not in (None, "")}
    filled = []
    for sentence in SENTENCES.get(fact, (f"{{{fact}}}",)):
        with contextlib.suppress(KeyError):
            filled.append(sentence.format(**some))
    return " ".join(filled)


def paragraph(facts: str, known: Mapping[str, Any]) -> str:
    """The sentences of several facts, whose names are separated by spaces."""
    return " ".join(filter(None, (answer(fact, known) for fact in facts.split())))


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
        if (text := paragraph(facts, known))
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


def write_checklist(
    page: Page, path: Path, *, write: Callable[[Path, bytes], None] = write_output
) -> list[Path]:
    """The page as HTML that word processors open, and as Markdown beside it. write: as of ``write_page``."""
    plain = templates().get_template("plain.html").render(page=page)
    files = {path: plain, path.with_suffix(".md"): markdown(page)}
    with explain_write_errors(f"The checklist cannot be written to {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            write(file, text.encode("utf-8", "replace"))
    return list(files)
