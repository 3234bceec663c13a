"""What pages say of the network beside the readers."""

from __future__ import annotations

import numpy as np

from srjt.errors import count_of
from srjt.inference.aspects.readers import NotCompared
from srjt.inference.evaluate import Evaluation
from srjt.ordinal.intervals import TOO_FEW
from srjt.readers.network import NetworkComparison
from srjt.reports.aspects import sections_of, warnings_of
from srjt.reports.flags import as_typed
from srjt.reports.page import Section
from srjt.reports.table import data_table

COLUMNS = {
    "items": "samples",
    "reader_to_consensus": "κ of the reader",
    "network_to_consensus": "κ of the network",
}


@sections_of.register
def _sections(judged: NetworkComparison, evaluation: Evaluation) -> list[Section]:
    table = data_table(
        judged.by_reader[["reader", *COLUMNS]].rename(columns=COLUMNS),
        title="The network as one more reader",
        caption=(
            "Quadratic κ with the consensus of all other readers, on the samples of the reader."
        ),
        formats={"κ of the reader": ".2f", "κ of the network": ".2f"},
        slug="readers",
    )
    return [
        Section(
            "readers", "Beside the readers", text=[sentence(judged)], tables=[table], brief=True
        )
    ]


@warnings_of.register
def _warnings(judged: NotCompared, evaluation: Evaluation) -> list[str]:
    return [as_typed(judged.reason)]


def sentence(judged: NetworkComparison) -> str:
    """Whether the network is shown to be as good as the readers, and the difference."""
    readers = len(judged.by_reader)
    who = f"{readers} readers" if readers > 1 else "the one reader"
    value, low, high = judged.difference
    if not np.isfinite(value):
        return f"The network cannot be compared with {who}: all grades are the same."
    shown = "shown" if judged.not_inferior else "not shown"
    if judged.compared < TOO_FEW:
        shown += f" with {count_of(judged.compared, 'patient' if judged.by_patient else 'item')}"
    if not np.isfinite(low):
        span = f"κ differs by {value:+.2f}"
    elif high < 0:
        span = f"κ is {-value:.2f} lower ({-high:.2f}–{-low:.2f})"
    elif low > 0:
        span = f"κ is {value:.2f} higher ({low:.2f}–{high:.2f})"
    else:
        span = f"κ differs by {value:+.2f} ({low:+.2f} to {high:+.2f})"
    return f"Non-inferiority to {who} (margin {judged.margin:g} κ) {shown}: {span}."
