"""What pages say of the network beside the readers."""

from __future__ import annotations

from srjt.inference.aspects.readers import NotCompared
from srjt.inference.evaluate import Evaluation
from srjt.readers.network import NetworkComparison
from srjt.reports.aspects import sections_of, warnings_of
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
        Section("readers", "Beside the readers", text=[judged.sentence], tables=[table], brief=True)
    ]


@warnings_of.register
def _warnings(judged: NotCompared, evaluation: Evaluation) -> list[str]:
    return [judged.reason]
