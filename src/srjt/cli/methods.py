"""``srjt methods``: what there is to choose from."""

from __future__ import annotations

import typer


def methods(
    plain: bool = typer.Option(False, "--plain", help="Names only, one a line, for scripts."),
) -> None:
    """List the methods: how each judges and learns, and what it must be told."""
    from rich.console import Console
    from rich.table import Table

    from srjt.methods import entry, names

    if plain:
        typer.echo("\n".join(names()))
        return
    table = Table(
        title="Methods",
        caption="ℓ_h hard loss, τ temperature, D the networks' divergence, ε noise rate, P matrix",
    )
    for column in ("name", "nets", "scores by", "updates from", "needs", "paper"):
        table.add_column(column, no_wrap=column == "name", overflow="fold")
    what = {"noise_rate": "ε", "transition": "P"}
    for name in names():
        row = entry(name)
        told = () if row.recipe.noise_rate == "auto" else row.method.needs
        needs = ", ".join(what[n] for n in told) or "–"
        table.add_row(name, str(row.method.networks), row.scores, row.updates, needs, row.paper)
    Console().print(table)
