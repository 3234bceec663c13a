"""A run in one figure: learning curves beside the confusion matrix."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from srjt.errors import SrjtError
from srjt.reports.figures.canvas import house_style
from srjt.reports.figures.curves import Curve, mean_over_networks, panel
from srjt.reports.figures.matrices import confusion_panel
from srjt.reports.judged_sides import JudgedSide

__all__ = ["ShownFigure", "run_overview"]

HEIGHT, CURVES, MATRIX = 2.9, 4.1, 3.2  # inches
# not those of predict, which recalibrates and may decode otherwise: the last value differs from the score of the run
SHOWN = {"accuracy": "Accuracy of the networks' own grades", "mae": "MAE of the networks' own grades"}


class ShownFigure(Figure):
    """A figure that a notebook shows although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png", dpi=110)
        return png.getvalue()


@house_style
def run_overview(
    metrics: pd.DataFrame, judged: JudgedSide | None, *, grades: Sequence[str], pooled: bool = False
) -> ShownFigure:
    """Accuracy and MAE per epoch, and the confusion matrix of one side, as far as the run has them.

    metrics: the table of the run, may be empty. grades: names for display. pooled: as for ``last_epochs``.
    """
    curves = {title: _curves(metrics, name, pooled=pooled) for name, title in SHOWN.items()}
    drawn = {title: found for title, found in curves.items() if found}
    width = CURVES * len(drawn) + (0.0 if judged is None else MATRIX)
    if not width:
        raise SrjtError("There is nothing to plot: the run has neither scores per epoch nor a held-out side.")
    figure = ShownFigure(figsize=(width, HEIGHT))
    FigureCanvasAgg(figure)
    for place, (title, found) in enumerate(drawn.items()):
        part = (place * CURVES / width, (place + 1) * CURVES / width)
        panel(figure, found, xlabel="epoch", title=title, part=part)
    if judged is not None:
        confusion_panel(
            figure,
            judged.confusion,
            grades=grades,
            title=f"Confusion matrix, {judged.name} side",
            rows="true grade" if judged.true else "label",
            left=CURVES * len(drawn),
        )
    return figure


def _curves(metrics: pd.DataFrame, metric: str, *, pooled: bool) -> list[Curve]:
    found = []
    for side in ("test", "validation") if len(metrics) else ():
        values = mean_over_networks(metrics, split=side, metric=metric, pooled=pooled).dropna()
        if len(values):
            x, y = values.index.to_numpy(np.float64), values.to_numpy(np.float64)
            found.append(Curve(name=side, x=x, y=y))
    return found
