"""Options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srjt.cli.import_option import Import
from srjt.cli.option_groups import READING, as_words, reads_a_source, takes_settings

__all__ = [
    "READING",
    "Abstain",
    "CalibrateOn",
    "CalibrateSet",
    "Config",
    "Coverage",
    "CoverageBy",
    "Decode",
    "Device",
    "Fold",
    "Folds",
    "Force",
    "GradeNames",
    "GroupNearDuplicates",
    "Html",
    "HtmlOut",
    "Import",
    "LabelNoise",
    "Network",
    "OnBadImage",
    "Optimise",
    "Per",
    "Pool",
    "Quiet",
    "Recalibrate",
    "ReferFrom",
    "Run",
    "Sensitivity",
    "Set",
    "Skipped",
    "SourceArgument",
    "SplitSeed",
    "Splits",
    "Threshold",
    "Views",
    "as_words",
    "html_file",
    "reads_a_source",
    "takes_settings",
]

EVALUATION, COMPUTING, DECISIONS = "Evaluation", "How it is computed", "Decisions"

SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="A CSV, TSV, Excel or Parquet file; a folder (one per grade, LIMUC, Kaggle DR); a MedMNIST .npz file; "
        "features (.npz, .npy).",
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
OnBadImage = Annotated[
    str,
    typer.Option(
        metavar="error|skip", help="Stop at unusable samples, or leave them out and list them in a CSV file."
    ),
]
Skipped = Annotated[Path, typer.Option(metavar="FILE", help="CSV list of the unusable samples.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print problems only.")]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="YAML file of settings; options override it.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, e.g. weight_decay=0. Repeatable."),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="cpu, cuda, cuda:1. [dim]default: a GPU if there is one[/]",
        show_default=False,
        rich_help_panel=COMPUTING,
    ),
]
Network = Annotated[
    str, typer.Option(metavar="ensemble|1|2", help="Average the networks, or use one of them.")
]
Optimise = Annotated[
    str | None,
    typer.Option(
        metavar="mae|accuracy|qwk|macro_f1",
        help="Metric that the grades are for: it decides how they follow from the probabilities. "
        "[dim]default: the run's; mae if it was trained with none[/]",
        show_default=False,
    ),
]
Decode = Annotated[
    str | None,
    typer.Option(
        metavar="argmax|median|expected",
        help="Most likely grade, median or rounded mean, whatever --optimise says.",
        show_default=False,
    ),
]
Views = Annotated[
    int,
    typer.Option(
        metavar="1|2|10",
        help="Views of each image to average: 1 is the centre crop, 2 adds its mirror image, 10 adds the four "
        "corners and their mirror images. For a run with flip=false there are no mirror images: 10 means 5.",
    ),
]
CALIBRATION = "Ranges of grades and recalibration"
Coverage = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Give each sample a range of grades that contains the true grade with at least this probability: 0.9.",
        show_default=False,
        rich_help_panel=CALIBRATION,
    ),
]
CoverageBy = Annotated[
    str | None,
    typer.Option(
        metavar="grade|COLUMN",
        help="The promise holds for each true grade, or for each value of a column.",
        show_default=False,
        rich_help_panel=CALIBRATION,
    ),
]
CalibrateOn = Annotated[
    Path | None,
    typer.Option(
        metavar="SOURCE",
        help="Labelled samples that the run was not trained on. [dim]default: its validation side[/]",
        show_default=False,
        rich_help_panel=CALIBRATION,
    ),
]
CalibrateSet = Annotated[
    list[str] | None,
    typer.Option(
        "--calibrate-set",
        metavar="NAME=VALUE",
        help="How --calibrate-on is read where it differs from the source: grade_column=severity. Repeatable.",
        show_default=False,
        rich_help_panel=CALIBRATION,
    ),
]
LabelNoise = Annotated[
    str,
    typer.Option(
        metavar="unknown|class-conditional|none",
        help="What wrong labels among them depend on: not known; on the true grade alone, not on the image; none is "
        "wrong.",
        rich_help_panel=CALIBRATION,
    ),
]
Recalibrate = Annotated[
    bool,
    typer.Option(
        "--recalibrate/--no-recalibrate",
        help="Recalibrate the probabilities on at least 100 of these samples, if it is worth it.",
        rich_help_panel=CALIBRATION,
    ),
]
Fold = Annotated[
    int | None,
    typer.Option(
        metavar="K", help="Fold to use, 0 to FOLDS − 1.", show_default=False, rich_help_panel=EVALUATION
    ),
]
Folds = Annotated[int, typer.Option(help="Number of folds.", rich_help_panel=EVALUATION)]
SplitSeed = Annotated[int, typer.Option(help="Seed of the folds.", rich_help_panel=EVALUATION)]
Splits = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE|RUN",
        help="Folds from a file of srjt data split, or the sides of a run.",
        show_default=False,
        rich_help_panel=EVALUATION,
    ),
]
GroupNearDuplicates = Annotated[
    bool,
    typer.Option(
        "--group-near-duplicates",
        help="Keep nearly identical images on one side of a split, as identical ones always are.",
        rich_help_panel=EVALUATION,
    ),
]
ReferFrom = Annotated[
    str | None,
    typer.Option(
        metavar="GRADE", help="Decide whether to refer: from this grade on.", rich_help_panel=DECISIONS
    ),
]
Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="P|grade",
        help="Refer if the probability of --refer-from or more is at least P, or by the predicted grade. "
        "[dim]default: 0.5[/]",
        show_default=False,
        rich_help_panel=DECISIONS,
    ),
]
Sensitivity = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        help="Find the threshold for this sensitivity on the run's validation side.",
        rich_help_panel=DECISIONS,
    ),
]
Abstain = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Leave about this share of the answers, the least confident, to a person.",
        rich_help_panel=DECISIONS,
    ),
]
Per = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="One answer per value of this column: patient. Repeat it for a key: --per patient --per eye.",
        rich_help_panel=DECISIONS,
    ),
]
Pool = Annotated[
    str,
    typer.Option(
        metavar="highest|mean|learned",
        help="How the answers of several images become one: the highest grade, the mean, or fitted on the "
        "validation side.",
        rich_help_panel=DECISIONS,
    ),
]


def html_file(path: Path | None) -> Path | None:
    """A page whose name has no suffix gets one, so that a browser opens it."""
    from srjt.files import is_stream

    return path if path is None or path.suffix or is_stream(path) else path.with_suffix(".html")


Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write a page to read and send too.",
        show_default=False,
        callback=html_file,
    ),
]
HtmlOut = Annotated[Path, typer.Option(metavar="FILE", help="HTML file to write.", callback=html_file)]
GradeNames = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help='Names of all grades to show: "0=none,1=mild".',
        show_default=False,
    ),
]
