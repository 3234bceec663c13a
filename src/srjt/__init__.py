"""Learn severity from ordinal labels that are partly wrong.

Public names are imported on first use, so that ``import srjt`` and ``srjt --help`` answer at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from srjt._version import __version__
from srjt.errors import lazy_names
from srjt.reported import pages_come_from

if TYPE_CHECKING:
    from srjt import data, methods, noise, ordinal, readers
    from srjt.auditing.audit import audit
    from srjt.estimator import OrdinalNoiseClassifier
    from srjt.inference.compare import compare
    from srjt.inference.evaluate import evaluate
    from srjt.inference.explain import explain
    from srjt.inference.export import export
    from srjt.inference.predict import predict
    from srjt.inference.sample_size import plan
    from srjt.ordinal.losses import keep_rate, soft_labels
    from srjt.reports.model_card import export_folder
    from srjt.reports.report import report
    from srjt.run import load_run, train
    from srjt.studies.study import study

__all__ = [
    "OrdinalNoiseClassifier",
    "__version__",
    "audit",
    "compare",
    "data",
    "evaluate",
    "explain",
    "export",
    "export_folder",
    "keep_rate",
    "load_run",
    "methods",
    "noise",
    "ordinal",
    "plan",
    "predict",
    "readers",
    "report",
    "soft_labels",
    "study",
    "train",
]

__getattr__ = lazy_names(
    __name__,
    {
        "OrdinalNoiseClassifier": "srjt.estimator",
        "audit": "srjt.auditing.audit",
        "compare": "srjt.inference.compare",
        "data": "srjt.data",
        "evaluate": "srjt.inference.evaluate",
        "explain": "srjt.inference.explain",
        "export": "srjt.inference.export",
        "export_folder": "srjt.reports.model_card",
        "keep_rate": "srjt.ordinal.losses",
        "load_run": "srjt.run",
        "methods": "srjt.methods",
        "noise": "srjt.noise",
        "ordinal": "srjt.ordinal",
        "plan": "srjt.inference.sample_size",
        "predict": "srjt.inference.predict",
        "readers": "srjt.readers",
        "report": "srjt.reports.report",
        "soft_labels": "srjt.ordinal.losses",
        "study": "srjt.studies.study",
        "train": "srjt.run",
    },
)


def _page(result: Any) -> Any:
    from srjt.reports.report import page_of  # figures take a while to import

    return page_of(result)


pages_come_from(_page)


def __dir__() -> list[str]:
    return sorted(__all__)
