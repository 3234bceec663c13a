"""What srjt has and other tools have not, and the reverse: each fact is checked in the installed
package.

    python benchmarks/compared.py              # checks the tools that are installed here, and prints the table
    python benchmarks/compared.py --store      # also updates results/compared.csv and the tables of docs/compared.md

A "yes" names a module, class, function or command of the tool, which must exist: it is imported or,
if the import needs something that is not installed or not configured, found in the source. A "no"
says that no module, class, function, field, parameter or command of the tool has a name that
matches a pattern; the pattern must match in the tools that say yes, so that it can. A fact that is
not so is an error. Tools that are not installed here keep their stored rows, so that each may have
an environment of its own; this file needs no other package.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import functools
import importlib
import importlib.metadata
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

ROOT = Path(__file__).parents[1]
STORED = ROOT / "benchmarks/evidence/results/compared.csv"
PAGE = ROOT / "docs/compared.md"
PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
SKIPPED = {
    "tests",
    "migrations",
    "__pycache__",
    "static",
}  # folders that are not what a tool offers

# The tools: their name, their distribution and their package.
TOOLS = {
    "srjt": ("srjt", "srjt"),
    "cleanlab": ("cleanlab", "cleanlab"),
    "dlordinal": ("dlordinal", "dlordinal"),
    "coral-pytorch": ("coral-pytorch", "coral_pytorch"),
    "crowd-kit": ("crowd-kit", "crowdkit"),
    "MAPIE": ("mapie", "mapie"),
    "Label Studio": ("label-studio", "label_studio"),
    "nnU-Net": ("nnunetv2", "nnunetv2"),
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question, where the tools that answer yes have it, and what no name in the others may
    match.

    ``has``: ``module:name`` or, for a command, ``command:name``. ``pattern``: a regular expression
    for names in lower case. ``apart``: names that match the pattern and mean something else, by
    tool, so that a reader can judge it.
    """

    table: str
    text: str
    pattern: str
    has: dict[str, str]
    apart: dict[str, tuple[str, ...]] = field(default_factory=dict)


LABELS, MODELS, OTHER = "compared-labels", "compared-models", "compared-other"
QUESTIONS = (
    Question(
        table=LABELS,
        text="finds labels that are probably wrong",
        pattern=r"label_(issue|quality|error)",
        has={"srjt": "srjt.noise:label_quality", "cleanlab": "cleanlab.filter:find_label_issues"},
    ),
    Question(
        table=LABELS,
        text="… of images in a table, training the networks itself",
        pattern=r"audit",
        has={"srjt": "srjt:audit"},
    ),
    Question(
        table=LABELS,
        text="estimates how many labels are wrong",
        pattern=r"noise_(rate|matrix|estimate)|num_label_issues",
        has={"srjt": "srjt.noise:estimate_noise", "cleanlab": "cleanlab.count:num_label_issues"},
    ),
    Question(
        table=LABELS,
        text="… with an interval, which says if the labels do not determine it",
        pattern=r"rate_interval|identifiable",
        has={"srjt": "srjt.noise.estimate:rate_text"},
    ),
    Question(
        table=LABELS,
        text="finds wrong labels of segmentations, boxes, words and numbers",
        pattern=r"object_?detection|token_?classification",
        has={"cleanlab": "cleanlab.object_detection.filter:find_label_issues"},
    ),
    Question(
        table=LABELS,
        text="finds outliers",
        pattern=r"outlier|out_of_distribution",
        has={"cleanlab": "cleanlab.outlier:OutOfDistribution"},
    ),
    Question(
        table=LABELS,
        text="a consensus of several readers",
        pattern=r"consensus|majority|dawid|multiannotator",
        has={
            "srjt": "srjt.readers:consensus",
            "cleanlab": "cleanlab.multiannotator:get_label_quality_multiannotator",
            "crowd-kit": "crowdkit.aggregation:DawidSkene",
        },
    ),
    Question(
        table=LABELS,
        text="… that knows that neighbouring grades are confused",
        pattern=r"ordinal|neighbour",
        has={"srjt": "srjt.readers:consensus"},
        apart={
            "dlordinal": (
                "ordinal_ecoc_distance_loss",
                "ordinal_fully_connected",
                "ordinalecocdistanceloss",
                "resnetordinalfullyconnected",
                "vggordinalfullyconnected",
            )
        },
    ),
    Question(
        table=LABELS,
        text="a consensus of texts, pairs or segmentations",
        pattern=r"bradley|rover|text_?(hr)?rasa|segmentation_?em",
        has={"crowd-kit": "crowdkit.aggregation:BradleyTerry"},
    ),
    Question(
        table=LABELS,
        text="agreement beyond chance (κ, Krippendorff's α)",
        pattern=r"kappa|krippendorff",
        has={
            "srjt": "srjt.readers:agreement",
            "crowd-kit": "crowdkit.metrics.data:alpha_krippendorff",
        },
    ),
    Question(
        table=LABELS,
        text="which items to read next",
        pattern=r"active_learning|worklist",
        has={
            "srjt": "command:srjt",
            "cleanlab": "cleanlab.multiannotator:get_active_learning_scores",
        },
    ),
    Question(
        table=LABELS,
        text="finds images that are nearly the same",
        pattern=r"(near_?|group_)duplicate",
        has={
            "srjt": "srjt.data:group_duplicates",
            "cleanlab": "cleanlab.datalab.internal.issue_manager.duplicate:NearDuplicateIssueManager",
        },
    ),
    Question(
        table=LABELS,
        text="a page on which people label or review images",
        pattern=r"review|annotation_?(page|interface)|label_config",
        has={"srjt": "srjt.auditing.review_app:serve", "Label Studio": "command:label-studio"},
    ),
    Question(
        table=LABELS,
        text="… of any kind of data, for a team with accounts",
        pattern=r"organization|membership",
        has={"Label Studio": "label_studio.organizations.models:Organization"},
    ),
    Question(
        table=MODELS,
        text="losses or targets that know the order of grades",
        pattern=r"ordinal|soft_label|corn_|coral",
        has={
            "srjt": "srjt.ordinal:soft_labels",
            "dlordinal": "dlordinal.soft_labelling:get_triangular_soft_labels",
            "coral-pytorch": "coral_pytorch.losses:coral_loss",
        },
    ),
    Question(
        table=MODELS,
        text="output layers for ordered grades: cumulative link, binomial, stick breaking",
        pattern=r"\bclm\b|cumulative_?link|stick_?breaking|binomial_?layer",
        has={"dlordinal": "dlordinal.output_layers:CLM"},
    ),
    Question(
        table=MODELS,
        text="training that withstands wrong labels",
        pattern=r"co_?teaching|jocor|clean_?learning|noise_robust|label_noise",
        has={
            "srjt": "srjt.methods:CoTeaching",
            "cleanlab": "cleanlab.classification:CleanLearning",
        },
    ),
    Question(
        table=MODELS,
        text="… and knows the order of grades",
        pattern=r"(ordinal|relaxed).*(noise|noisy)|(noise|noisy).*ordinal",
        has={"srjt": "srjt:OrdinalNoiseClassifier"},
    ),
    Question(
        table=MODELS,
        text="a command that trains",
        pattern=r"^command:",
        has={"srjt": "command:srjt", "nnU-Net": "command:nnUNetv2_train"},
        apart={"Label Studio": ("command:label-studio",)},
    ),
    Question(
        table=MODELS,
        text="a study of methods over noises and folds",
        pattern=r"paired_?test|corrected_t_test",
        has={"srjt": "srjt:study"},
    ),
    Question(
        table=MODELS,
        text="trains segmentation networks, of 3-D volumes too, and plans them by the data",
        pattern=r"experiment_?plann|deep_supervision|unet",
        has={
            "nnU-Net": "nnunetv2.experiment_planning.experiment_planners.default_experiment_planner:ExperimentPlanner"
        },
    ),
    Question(
        table=MODELS,
        text="folds that keep groups, such as the images of a patient, together",
        pattern=r"^groups$|folds_by",
        has={"srjt": "srjt.data:folds", "MAPIE": "mapie.classification:CrossConformalClassifier"},
    ),
    Question(
        table=MODELS,
        text="an export to ONNX",
        pattern=r"onnx",
        has={"srjt": "srjt:export"},
    ),
    Question(
        table=OTHER,
        text="prediction sets or ranges with a promised coverage",
        pattern=r"conformal|coverage",
        has={"srjt": "srjt:predict", "MAPIE": "mapie.classification:SplitConformalClassifier"},
        apart={"nnU-Net": ("min_percent_coverage",)},
    ),
    Question(
        table=OTHER,
        text="… that hold although calibration labels are wrong",
        pattern=r"label_noise|noisy_label",
        has={"srjt": "srjt.inference.options:Answering"},
        apart={"cleanlab": ("generate_noisy_labels",)},
    ),
    Question(
        table=OTHER,
        text="… for any scikit-learn model, by cross-validation or jackknife",
        pattern=r"jackknife|cross_?conformal",
        has={"MAPIE": "mapie.regression:JackknifeAfterBootstrapRegressor"},
    ),
    Question(
        table=OTHER,
        text="intervals for regression and time series",
        pattern=r"time_?series|quantile_?regress",
        has={"MAPIE": "mapie.regression:TimeSeriesRegressor"},
        apart={"Label Studio": ("generate_time_series_json", "samples_time_series")},
    ),
    Question(
        table=OTHER,
        text="control of other risks, such as precision or recall",
        pattern=r"risk_?control",
        has={"MAPIE": "mapie.risk_control:BinaryClassificationController"},
    ),
    Question(
        table=OTHER,
        text="refers patients with a promised sensitivity",
        pattern=r"refer_from|referral",
        has={"srjt": "srjt.inference.options:Answering"},
    ),
    Question(
        table=OTHER,
        text="says how many patients or readings a study needs",
        pattern=r"sample_size|plan_page",
        has={"srjt": "srjt:plan"},
        apart={
            "MAPIE": (
                "get_risk_values_and_eff_sample_sizes",
                "get_value_and_effective_sample_size",
            ),
            "Label Studio": ("sample_size",),
        },
    ),
    Question(
        table=OTHER,
        text="a filled-in reporting checklist (TRIPOD+AI, CLAIM, STARD-AI)",
        pattern=r"checklist|tripod",
        has={"srjt": "srjt.reports.checklist:checklist_items"},
    ),
)


@dataclass(frozen=True)
class Fact:
    """One cell of the table. ``how``: what was looked for; ``by``: import, source, command or
    names."""

    table: str
    question: str
    tool: str
    version: str
    answer: str
    how: str
    by: str


class FactError(Exception):
    """What this file says of a tool is not so."""


def installed(tool: str) -> str | None:
    """The version of the tool that is installed here."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(TOOLS[tool][0])
    return None


@functools.cache
def package_folder(package: str) -> Path:
    """The folder of an installed package; importing the package is not necessary."""
    found = next(
        (Path(part) / package for part in sys.path if (Path(part) / package).is_dir()), None
    )
    if found is None:
        raise FactError(f"The package {package} is not on the path.")
    return found


def definitions(tree: ast.AST) -> Iterable[str]:
    """The names of the classes, functions, parameters and annotated fields in a module."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


@functools.cache
def names_of(tool: str) -> frozenset[str]:
    """All names that a tool defines, of its modules and commands too, in lower case and without
    outer underscores."""
    folder = package_folder(TOOLS[tool][1])
    found = {f"command:{name}" for name in commands_of(tool)}
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder)
        if SKIPPED.intersection(inside.parts):
            continue
        found.update(part.removesuffix(".py") for part in inside.parts)
        with contextlib.suppress(SyntaxError):
            found.update(definitions(ast.parse(path.read_text(encoding="utf-8", errors="replace"))))
    return frozenset(name.strip("_").lower() for name in found)


def commands_of(tool: str) -> set[str]:
    entries = importlib.metadata.distribution(TOOLS[tool][0]).entry_points
    return {entry.name for entry in entries if entry.group == "console_scripts"}


def has_it(tool: str, where: str) -> str:
    """How ``where`` was found: by import or in the source; an error if it does not exist."""
    module, _, name = where.partition(":")
    if module == "command":
        if name not in commands_of(tool):
            raise FactError(f"{tool} has no command {name}.")
        return "command"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        if hasattr(importlib.import_module(module), name):
            return "import"
    path = package_folder(TOOLS[tool][1]).parent.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.exists() and name in definitions(ast.parse(file.read_text(encoding="utf-8"))):
            return "source"
    raise FactError(f"{tool} has no {where}.")


def check(question: Question, tool: str) -> Fact:
    """One fact, checked in the installed tool."""
    version = installed(tool) or ""
    cell = (question.table, question.text, tool, version)
    if where := question.has.get(tool):
        if not any(re.search(question.pattern, name) for name in names_of(tool)):
            raise FactError(
                f'{tool}, {question.text!r}: the pattern matches nothing, so its "no" means nothing.'
            )
        return Fact(*cell, "yes", where, has_it(tool, where))
    apart = question.apart.get(tool, ())
    matching = sorted(
        name for name in names_of(tool) if re.search(question.pattern, name) and name not in apart
    )
    if matching:
        raise FactError(f"{tool}, {question.text!r}: these names match: {', '.join(matching[:8])}.")
    but = f"; {', '.join(apart)}: something else" if apart else ""
    return Fact(*cell, "no", f"/{question.pattern}/{but}", "names")


def checked(tools: Sequence[str]) -> tuple[list[Fact], list[str]]:
    """The facts about the tools that are installed here, and sentences about what is not so."""
    facts, wrong = [], []
    for tool in tools:
        for question in QUESTIONS:
            try:
                facts.append(check(question, tool))
            except FactError as problem:
                wrong.append(str(problem))
    return facts, wrong


def read_stored(path: Path = STORED) -> list[Fact]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [Fact(**row) for row in csv.DictReader(file)]


def merged(old: Sequence[Fact], new: Sequence[Fact]) -> list[Fact]:
    """The new facts, and the old ones about other tools, in the order of the questions and the
    tools."""
    renewed = {fact.tool for fact in new}
    facts = [*new, *(fact for fact in old if fact.tool not in renewed)]
    texts, tools = [question.text for question in QUESTIONS], list(TOOLS)
    known = [fact for fact in facts if fact.question in texts]
    return sorted(known, key=lambda fact: (texts.index(fact.question), tools.index(fact.tool)))


def as_csv(facts: Sequence[Fact]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [column.name for column in fields(Fact)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(fact) for fact in facts)
    return text.getvalue()


def pipe_table(facts: Sequence[Fact], table: str) -> str:
    """The questions of one table as rows, the tools as columns. A cell is empty where a fact was
    never checked."""
    answers = {(fact.question, fact.tool): fact.answer for fact in facts}
    shown = {"yes": "yes", "no": "–"}
    lines = [f"| | {' | '.join(TOOLS)} |", "| --- |" + " --- |" * len(TOOLS)]
    for question in QUESTIONS:
        if question.table == table:
            cells = [shown.get(answers.get((question.text, tool), ""), "") for tool in TOOLS]
            lines.append(f"| {question.text} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def versions_table(facts: Sequence[Fact]) -> str:
    """The version of each tool, and how its answers were checked."""
    lines = ["| tool | version | yes | no | checked by |", "| --- | --- | --- | --- | --- |"]
    for tool in TOOLS:
        own = [fact for fact in facts if fact.tool == tool]
        if own:
            yes = sum(fact.answer == "yes" for fact in own)
            ways = ", ".join(sorted({fact.by for fact in own}))
            lines.append(f"| {tool} | {own[0].version} | {yes} | {len(own) - yes} | {ways} |")
    return "\n".join(lines) + "\n"


def page_with(text: str, facts: Sequence[Fact]) -> str:
    """The page with its tables written from the facts."""
    tables = {name: pipe_table(facts, name) for name in (LABELS, MODELS, OTHER)}
    tables["compared-versions"] = versions_table(facts)
    return PLACE.sub(lambda match: match[1] + tables[match[2]] + match[3], text)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", action="store_true", help="update the stored facts and the page")
    store = parser.parse_args(words).store
    here = [tool for tool in TOOLS if installed(tool) is not None]
    new, wrong = checked(here)
    facts = merged(read_stored(), new)
    for name in (LABELS, MODELS, OTHER):
        print(pipe_table(facts, name))
    print(versions_table(facts))
    if others := [tool for tool in TOOLS if tool not in here]:
        print(f"Not installed here, so not checked again: {', '.join(others)}.")
    print(*wrong, sep=os.linesep)
    if store and not wrong:
        STORED.write_text(as_csv(facts), encoding="utf-8")
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), facts), encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
