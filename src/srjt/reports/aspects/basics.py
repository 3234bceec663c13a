"""What pages say of every answer: by which networks it was given, and what was fitted to which
labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srjt.errors import count_of
from srjt.inference.labels import ValidationLabels
from srjt.noise.estimate import rate_text
from srjt.reports.aspects import how_words

POOLING = {
    "highest": "the highest grade of the images",
    "mean": "the mean of the images' probabilities",
    "learned": "a pooling that is fitted on the validation side",
}


@how_words("networks")
def _networks(values: Mapping[str, Any]) -> str:
    if values["number"] == 1:
        return "one"
    if values["used"] != "ensemble":
        return f"network {values['used']} of two"
    return "the mean of two networks' probabilities"


@how_words("views")
def _views(views: int) -> str:
    return f"the mean of {views} views of each image" if views > 1 else ""


@how_words("calibrated on")
def _calibrated_on(values: Mapping[str, Any]) -> str:
    where = "the validation side of the run" if values["validation"] else "other labelled samples"
    text = f"{where}: {count_of(values['samples'], 'sample')}"
    if values["patients"] is not None:
        text += f" of {count_of(values['patients'], 'patient')}"
    return text


@how_words("one answer per")
def _pooling(values: Mapping[str, Any]) -> str:
    text = f"{' and '.join(values['columns'])}: {POOLING[values['pool']]}"
    if values["learned"] is not None:
        text += ", exponent {exponent:.2g}, weight {weight:.2g}".format(**values["learned"])
    return text


def labels_in_words(labels: ValidationLabels) -> str:
    """A sentence about the labels of the validation side, to which something was fitted."""
    if labels.basis == "true grades":
        return "Its true grades are known and were used."
    if labels.basis == "inferred":
        return (
            "The highest grades of its patients are inferred from their labels and the estimated"
            f" noise ({labels.noise_rate:.0%} wrong)."
        )
    wrong = ""
    if labels.noise_interval is not None:
        share = rate_text(None, labels.noise_interval)
        if labels.noise_rate is not None:
            share = f"an estimated {labels.noise_rate:.0%}"
        wrong = f", and {share} of such labels are wrong"
    if not labels.verified:
        return f"Its labels are as given{wrong}: wrong labels shift what is fitted to them."
    others = ""
    if labels.verified < labels.samples:
        others = f"; the others are as given{wrong}"
    return f"{labels.verified:,} of its {labels.samples:,} labels are verified{others}."
