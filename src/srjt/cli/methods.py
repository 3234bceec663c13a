"""``srjt methods``: what there is to choose from. Does not load torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from srjt.cli.import_option import Import

if TYPE_CHECKING:
    from srjt.methods import RegisteredMethod

NEEDS = {"noise_rate": "ε", "transition": "P"}
LEGEND = """
needs ε  the share of wrong labels: --noise-rate 0.2, or auto
needs P  the matrix Pr(label | true grade): --transition FILE, or
         --noise-rate auto
scores   joint methods keep the samples of smallest score as clean.
         ℓ_h: loss of the label as given; ℓ_h1, ℓ_h2: of each network;
         τ: a temperature below 1, which sharpens it; D: how much the two
         networks disagree; λ: the weight of D
+ours    the paper's method, added to a joint method, which is called its
         host: jocor is the host of jocor+ours
"""


def methods(
    plain: Annotated[
        bool, typer.Option("--plain", help="Print names only, one per line, for scripts.")
    ] = False,
    import_: Import = None,
) -> None:
    """List the methods: how each judges samples, what it learns from, and what it needs to know."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from srjt.methods import lookup, names

    if plain:
        typer.echo("\n".join(names()))
        return
    families: dict[str, list[RegisteredMethod]] = {}
    papers: dict[str, list[str]] = {}
    for row in map(lookup, names()):
        families.setdefault(_family(row), []).append(row)
        papers.setdefault(row.paper, []).append(row.name)
    console = Console(highlight=False, markup=False)
    table = Table(box=SIMPLE_HEAD, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("needs", no_wrap=True)
    table.add_column("learns from")
    for family, rows in families.items():
        table.add_section()
        table.add_row(family, style="bold")
        for row in rows:
            needs = () if row.recipe.noise_rate == "auto" else row.needs
            table.add_row(f" {row.name}", ", ".join(NEEDS[n] for n in needs) or "–", row.updates)
            if row.scores != "–":
                table.add_row("", "", f"  scores: {row.scores}", style="dim")
    console.print(table)
    notes = [LEGEND, *(f"{', '.join(theirs)}: {paper}" for paper, theirs in papers.items())]
    console.print("\n".join(notes), style="dim")


def _family(row: RegisteredMethod) -> str:
    """A heading no longer than the longest name."""
    if row.networks == 1:
        return "One network"
    return "Two, self-relaxed" if row.defaults.get("update") == "soft" else "Two networks"
