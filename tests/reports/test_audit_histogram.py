"""The histogram of label quality."""

from __future__ import annotations

import numpy as np

from srjt.reports.pages.audit import _histogram


def test_nothing_of_the_histogram_is_cut_off() -> None:
    figure = _histogram(np.linspace(0.0, 1.0, 20_000) ** 0.1)  # thousands of labels in a bar: wide numbers
    box = figure.get_tightbbox()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= figure.get_figwidth()
    assert box.y1 <= figure.get_figheight()
