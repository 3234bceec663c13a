"""``srjt methods``: what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from srjt.methods import RegisteredMethod


def methods(
    plain: bool = typer.Option(False, "--plain", help="Names only, one a line, for scripts."),
) -> None:
    """List the methods: how each judges and learns, and what it must be told."""
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
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("scores by", max_width=21)  # leaves the next one enough of 80 columns
    table.add_column("updates from")
    table.add_column("needs", no_wrap=True)
    for family, rows in families.items():
        table.add_section()
        table.add_row(family, style="bold")
        for row in rows:
            table.add_row(f" {row.name}", row.scores, row.updates, _needs(row))
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(
        "\nℓ_h hard loss, τ temperature, D the networks' divergence, ε noise rate, P matrix\n", style="dim"
    )
    for paper, theirs in papers.items():
        console.print(f"{', '.join(theirs)}: {paper}", style="dim")


def _family(row: RegisteredMethod) -> str:
    """A heading no longer than the longest name."""
    if row.method.networks == 1:
        return "One network"
    return "Two, self-relaxed" if row.defaults.get("update") == "soft" else "Two networks"


def _needs(row: RegisteredMethod) -> str:
    what = {"noise_rate": "ε", "transition": "P"}
    told = () if row.recipe.noise_rate == "auto" else row.method.needs
    return ", ".join(what[n] for n in told) or "–"
