"""Learn severity from ordinal labels that are partly wrong.

Public names are imported on first use, so that ``import srjt`` and ``srjt --help`` answer at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from srjt._version import __version__ as __version__
from srjt.lazy import former_names, lazy_names

if TYPE_CHECKING:
    from srjt import (
        data as data,
        methods as methods,
        noise as noise,
        ordinal as ordinal,
        readers as readers,
    )
    from srjt.auditing.audit import audit as audit
    from srjt.estimator import OrdinalNoiseClassifier as OrdinalNoiseClassifier
    from srjt.inference.compare import compare as compare
    from srjt.inference.evaluate import evaluate as evaluate
    from srjt.inference.explain import explain as explain
    from srjt.inference.predict import predict as predict
    from srjt.inference.sample_size import plan as plan
    from srjt.notebook import HasPage
    from srjt.ranges import OrdinalRanges as OrdinalRanges
    from srjt.reports.report import report as report, write_report as write_report
    from srjt.run import export as export, load_run as load_run, train as train
    from srjt.studies.study import study as study

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "srjt": ("data", "methods", "noise", "ordinal", "readers"),
        "srjt.auditing.audit": ("audit",),
        "srjt.estimator": ("OrdinalNoiseClassifier",),
        "srjt.inference.compare": ("compare",),
        "srjt.inference.evaluate": ("evaluate",),
        "srjt.inference.explain": ("explain",),
        "srjt.inference.predict": ("predict",),
        "srjt.inference.sample_size": ("plan",),
        "srjt.ranges": ("OrdinalRanges",),
        "srjt.reports.report": ("report", "write_report"),
        "srjt.run": ("export", "load_run", "train"),
        "srjt.studies.study": ("study",),
    },
    former=former_names(
        __name__,
        {
            "export_folder": "srjt.reports.model_card.export_folder",
            "keep_rate": "srjt.ordinal.keep_rate",
            "soft_labels": "srjt.ordinal.soft_labels",
        },
        instead={"export_folder": "srjt.export"},
    ),
    rooms=("data", "methods", "networks", "noise", "ordinal", "readers", "torch"),
)


def load_ipython_extension(shell: Any) -> None:
    """Let IPython show each result by its page. ``import srjt`` in a notebook does this itself."""

    def show(result: HasPage) -> str:
        from srjt.reports.report import report  # figures take a while to import

        return report(result)._repr_html_()

    html = shell.display_formatter.formatters["text/html"]
    html.for_type_by_name("srjt.notebook", "HasPage", show)


def _running_shell() -> Any:
    """The IPython that runs this program; None in any other program."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get_ipython is None else get_ipython()


if (_shell := _running_shell()) is not None:
    load_ipython_extension(_shell)
