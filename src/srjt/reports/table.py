"""A table, and its text as Markdown, CSV or LaTeX, and for a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from srjt.errors import printable
from srjt.ordinal.metrics import METRICS

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from srjt.inference.labelled import JudgedBy

MISSING = "–"
_CSV_PARTS = {  # kind of a column → what follows its name → field of a cell
    "text": {"": "text"},
    "number": {"": "value"},
    "mean": {" mean": "value", " std": "std", " runs": "runs"},
    "quoted": {" mean": "value", " std": "std"},
}
_SHRINK = (  # shrink to the line width, never enlarge
    r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
)

# The grade of one sample that answers are compared with, in the words of a table's heading.
ONE_LABEL: dict[JudgedBy, str] = {
    "true grades": "true grade",
    "given grades": "given grade",
    "consensus grades": "consensus grade",
}


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str  # for CSV: "quasi:0.2 accuracy"
    label: str  # for readers: "Acc."
    group: str = ""  # the heading above neighbouring columns of the same group
    better: Literal["", "higher", "lower"] = ""
    kind: Literal["text", "number", "mean", "quoted"] = "text"  # quoted: a number of the paper
    extra: bool = False  # a page shows it when the reader asks for more columns

    @property
    def heading(self) -> str:
        return self.label + {"": "", "higher": " ↑", "lower": " ↓"}[self.better]

    def full_heading(self, separator: str) -> str:
        """With that of its group, where there is one row of headings."""
        return separator.join(filter(None, [self.group, self.heading]))

    @property
    def align(self) -> Literal["left", "right"]:
        """Where its cells stand in a terminal."""
        if self.kind == "text":
            return "left"
        return "right"


@dataclass(frozen=True, kw_only=True)
class TableCell:
    """The text of a cell, and its number."""

    text: str = ""
    value: float | None = None
    std: float | None = None
    runs: int | None = None
    mark: Literal["", "best", "second"] = ""
    bold: bool = False
    partial: bool = False  # fewer runs than planned
    picture: str = ""  # a data URI, which a page shows before the text


@dataclass(frozen=True, kw_only=True)
class Row:
    cells: tuple[TableCell, ...]
    rule: bool = False  # a line above
    ours: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    slug: str  # for \\label
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The upper row of the heading: label (may be empty) and the number of columns it spans."""
        groups = []
        for group, columns in groupby(self.columns, attrgetter("group")):
            groups.append((group, len(list(columns))))
        return groups

    @property
    def wide(self) -> bool:
        """Whether it needs more than half of a page of 1,280 pixels; a letter takes about 8, a
        margin 20, names 187."""
        widths = []
        for place, column in enumerate(self.columns):
            texts = [column.heading, *(row.cells[place].text for row in self.rows)]
            widths.append(20 + 8 * max(map(len, texts)))
        first, *others = widths
        return max(187, first) + sum(others) > 580

    @property
    def legend(self) -> dict[str, str]:
        """The marks that occur in this table (best, second, bold, partial, missing) → their
        meaning."""
        meanings = {
            "best": "best",
            "second": "second best",
            "bold": "a better mean than its host",
            "partial": "mean over n runs, fewer than planned",
            "missing": "no finished run",
        }
        occurring: set[str] = set()
        for row in self.rows:
            for column, cell in zip(self.columns, row.cells, strict=True):
                occurring.add(cell.mark)
                if cell.bold:
                    occurring.add("bold")
                if cell.partial:
                    occurring.add("partial")
                if column.kind == "mean" and cell.text == MISSING:
                    occurring.add("missing")
        return {kind: sentence for kind, sentence in meanings.items() if kind in occurring}

    def markdown(self) -> str:
        """A pipe table with its title above and its caption below. ¹: best, ²: second best."""
        signs = {
            "best": "¹",
            "second": "²",
            "bold": "**bold**",
            "partial": "†n",
            "missing": MISSING,
        }
        heads = [escape_markdown(column.full_heading(": ")) for column in self.columns]
        sides = {"left": ":--", "right": ":-:"}
        align = [sides[column.align] for column in self.columns]
        lines = [f"### {escape_markdown(self.title)}", "", pipe_row(heads), pipe_row(align)]
        for row in self.rows:
            lines.append(pipe_row(map(_markdown_cell, row.cells)))
        lines += ["", self._explained(escape_markdown(self.caption), signs)]
        return "\n".join(lines) + "\n"

    def _explained(self, caption: str, signs: Mapping[str, str]) -> str:
        """The caption, and what the signs mean that occur."""
        legend = [f"{signs[kind]}: {sentence}" for kind, sentence in self.legend.items()]
        if not legend:
            return caption
        return f"{caption} {'; '.join(legend)}."

    def by_group(self) -> list[Table]:
        """A table for each group of columns, for a terminal that has no room for them side by
        side."""
        groups = [group for group, _ in self.groups if group]
        if len(groups) < 2:
            return [self]
        tables = []
        for group in groups:
            places = [n for n, column in enumerate(self.columns) if column.group in ("", group)]
            title = self.title
            if group.casefold() not in title.casefold():
                title = f"{title}: {group}"
            rows = []
            for row in self.rows:
                rows.append(replace(row, cells=tuple(row.cells[place] for place in places)))
            columns = [replace(self.columns[place], group="") for place in places]
            tables.append(replace(self, title=title, columns=tuple(columns), rows=tuple(rows)))
        return tables

    def rich(self) -> RichTable:
        """For a terminal. A long heading or text is broken into lines, a number is not."""
        from rich.table import Table as RichTable

        title = printable(self.title) or None
        table = RichTable(title=title, title_justify="left", title_style="bold", show_edge=False)
        for column in self.columns:
            table.add_column(
                printable(column.full_heading(" ")),
                justify=column.align,
                overflow="fold",
            )
        for row in self.rows:
            if row.rule:
                table.add_section()
            table.add_row(*(printable(cell.text) for cell in row.cells))
        return table

    def csv(self) -> str:
        """One header row; numbers with six digits, a mean with its std and number of runs. No
        marks."""
        content = {}
        for place, column in enumerate(self.columns):
            for heading, field in _CSV_PARTS[column.kind].items():
                values = [getattr(row.cells[place], field) for row in self.rows]
                content[column.name + heading] = values
        return pd.DataFrame(content).to_csv(index=False, lineterminator="\n", float_format="%.6g")

    def latex(self) -> str:
        """A booktabs table. Marks are commands, which a paper can redefine before its first table.

        Names with letters other than Latin and Greek need XeLaTeX or LuaLaTeX.
        """
        signs = {
            "best": r"\srjtbest{red}",
            "second": r"\srjtsecond{blue}",
            "bold": r"\srjtbetter{bold}",
            "partial": r"$^{\dagger n}$",
            "missing": "--",
        }
        sides = {"left": "l", "right": "c"}
        align = "".join(sides[column.align] for column in self.columns)
        lines = [
            r"% needs \usepackage{booktabs,graphicx,xcolor}",
            r"\providecommand{\srjtbest}[1]{\textcolor{red}{#1}}",
            r"\providecommand{\srjtsecond}[1]{\textcolor{blue}{#1}}",
            r"\providecommand{\srjtbetter}[1]{\textbf{#1}}",
            r"\begin{table*}[t]",
            r"\centering\small",
            rf"\caption{{{self._explained(_latex(f'{self.title}. {self.caption}'), signs)}}}",
            rf"\label{{tab:{re.sub(r'[^A-Za-z0-9-]+', '-', self.slug)}}}",
            _SHRINK,
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            *self._latex_groups(),
            _latex_row(_latex(column.heading) for column in self.columns),
        ]
        for number, row in enumerate(self.rows):
            if row.rule or number == 0:
                lines.append(r"\midrule")
            lines.append(_latex_row(map(_latex_cell, row.cells)))
        lines += [r"\bottomrule", r"\end{tabular}}", r"\end{table*}"]
        return "\n".join(lines) + "\n"

    def _latex_groups(self) -> list[str]:
        heads = []
        rules = []
        start = 1
        for label, span in self.groups:
            heads.append(rf"\multicolumn{{{span}}}{{c}}{{{_latex(label)}}}")
            end = start + span - 1
            if label:
                rules.append(rf"\cmidrule(lr){{{start}-{end}}}")
            start = end + 1
        if not rules:
            return []
        return [_latex_row(heads), " ".join(rules)]


Format = str | Callable[[Any], str]  # ".3f", ",", "+.2f", ".1%", or a function


def data_table(
    frame: pd.DataFrame,
    *,
    title: str,
    formats: Mapping[str, Format] | None = None,
    caption: str = "",
    slug: str = "",
    groups: Mapping[str, str] | None = None,
    rule_before: Sequence[int] = (),
    extra: Sequence[str] = (),
) -> Table:
    """A table from a DataFrame, column by column.

    A column of numbers is right-aligned and sorted by value, an ordered categorical by its order; a
    missing value is a dash. formats: column → how its values are written (numbers: ".3f" unless
    they are integers). groups: column → the heading above it. rule_before: rows with a line above.
    extra: columns that a page shows when somebody asks for them.
    """
    columns = []
    cells = []
    for heading, values in frame.items():
        name = str(heading)
        kind, pattern, order = _written(values)
        group = (groups or {}).get(name, "")
        columns.append(Column(name=name, label=name, group=group, kind=kind, extra=name in extra))
        pattern = (formats or {}).get(name, pattern)
        cells.append([_cell(value, pattern, at) for value, at in zip(values, order, strict=True)])
    rows = []
    for place, row in enumerate(zip(*cells, strict=True)):
        rows.append(Row(cells=row, rule=place in rule_before))
    return Table(
        slug=slug or re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"),
        title=title,
        caption=caption,
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _written(values: pd.Series[Any]) -> tuple[Literal["number", "text"], Format, Sequence[Any]]:
    """The kind of a column, how its values are usually written, and by what it is sorted."""
    if pd.api.types.is_numeric_dtype(values) and values.dtype != bool:
        if pd.api.types.is_integer_dtype(values):
            return "number", ",", values.tolist()
        return "number", ".3f", values.tolist()
    if isinstance(values.dtype, pd.CategoricalDtype) and values.cat.ordered:
        return "text", "", values.cat.codes.tolist()
    return "text", "", [None] * len(values)


def _cell(value: Any, pattern: Format, order: Any) -> TableCell:
    """order: the number that the column is sorted by; None: it is not."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or value is pd.NA:
        return TableCell(text=MISSING)
    if callable(pattern):
        text = pattern(value)
    elif pattern:
        text = format(value, pattern).replace("-", "−")
    else:
        text = str(value)
    return TableCell(text=text, value=None if order is None else float(order))


def between(low: float, high: float, pattern: str = ".3f") -> str:
    """ "0.31 – 0.53"; a dash where there is no interval."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return MISSING
    return f"{_signed(low, pattern)} – {_signed(high, pattern)}"


def p_value(p: float) -> str:
    """A p-value in a table: none is shown as 0.

    Examples
    --------
    >>> p_value(0.0421), p_value(0.0002)
    ('0.042', '< 0.001')
    """
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}"


def p_in_words(p: float) -> str:
    """A p-value in a sentence: "p = 0.042", "p < 0.001"."""
    text = p_value(p)
    if text.startswith("<"):
        return f"p {text}"
    return f"p = {text}"


def _signed(number: float, pattern: str) -> str:
    """A number with a minus sign, and none at zero."""
    text = f"{number:{pattern}}"
    if not text.strip("-0.%"):
        return text.lstrip("-")
    return text.replace("-", "−")


def metric_heading(name: str, *, short: bool = False) -> str:
    """A metric in words, with an arrow in the better direction."""
    metric = METRICS[name]
    words = metric.short_name if short else metric.long_name
    arrow = "↓" if metric.lower_is_better else "↑"
    return f"{words} {arrow}"


def pipe_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Escape characters that Markdown or HTML would interpret, or that would end the cell."""
    one_line = printable(" ".join(text.split()))
    escaped = re.sub(r"([\\`*_\[\]|#~])", r"\\\1", one_line)
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"&(?=#|[A-Za-z])", "&amp;", escaped))


def _markdown_cell(cell: TableCell) -> str:
    text = escape_markdown(cell.text)
    if cell.bold:
        text = f"**{text}**"
    text += {"": "", "best": " ¹", "second": " ²"}[cell.mark]
    if cell.partial:
        text += f" †{cell.runs}"
    return text


_LATEX: dict[str, str] = {
    "\\": r"\textbackslash{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after \\ or \midrule a bare [ would open an optional argument
    "]": "{]}",
    "*": "{*}",  # as would * after \\
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "–": "--",
    "…": r"\dots{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "ε": r"$\epsilon$",
    "ρ": r"$\rho$",
    "“": "``",
    "”": "''",
}


def _latex(text: str) -> str:
    one_line = " ".join(text.split())
    return "".join(_LATEX.get(letter, letter) for letter in one_line if letter.isprintable())


def _latex_cell(cell: TableCell) -> str:
    text = _latex(cell.text).replace(r" $\pm$ ", r"$\pm$")
    if cell.bold:
        text = rf"\srjtbetter{{{text}}}"
    if cell.mark:
        text = rf"\srjt{cell.mark}{{{text}}}"
    if cell.partial:
        text += rf"$^{{\dagger {cell.runs}}}$"
    return text


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
