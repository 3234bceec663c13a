"""A comparison of runs as a file: a page, a figure, or its numbers."""

from __future__ import annotations

from pathlib import Path

from srjt.errors import SrjtError
from srjt.files import write_json, write_output
from srjt.inference.compare import Comparison
from srjt.reports.figures.canvas import figure_bytes
from srjt.reports.figures.comparison_figures import forest_figure
from srjt.reports.pages.comparison_page import comparison_page
from srjt.reports.pages.html import write_page

__all__ = ["check_suffix", "write_comparison"]

SUFFIXES = (".html", ".svg", ".png", ".json")


def check_suffix(path: Path) -> None:
    """Raise an error for a file of another kind, before anything is computed."""
    if path.suffix.lower() not in SUFFIXES:
        raise SrjtError(f"{path} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write a page, a figure or the numbers, by the end of the file's name."""
    check_suffix(path)
    suffix = path.suffix.lower()
    if suffix == ".html":
        write_page(comparison_page(comparison), path)
    elif suffix == ".json":
        write_json(path, comparison.to_dict(), follow_links=True)
    else:
        write_output(path, figure_bytes(forest_figure(comparison), suffix[1:]))
