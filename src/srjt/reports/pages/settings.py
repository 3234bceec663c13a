"""The settings of a run or a study as a section of a page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from srjt.reports.pages.html import Section

__all__ = ["settings_section"]

WITHOUT_PUBLISHED_WEIGHTS = ("tiny", "tiny-gn", "linear", "mlp")  # "pretrained" has no effect on these


def settings_section(
    config: Mapping[str, Any], *, own_network: bool = False, unused: Collection[str] = ()
) -> list[Section]:
    """The settings that were given and have an effect; no section if there are none. unused: others without one."""
    shown = {
        name: value
        for name, value in config.items()
        if value not in (None, {}, [], ()) and name not in unused
    }
    small = shown.get("network") in WITHOUT_PUBLISHED_WEIGHTS
    if own_network or small or "weights" in shown:
        shown.pop("pretrained", None)
    if own_network:
        shown["network"] = "your own"
    facts = [(name.replace("_", " "), _text(value)) for name, value in shown.items()]
    return [Section(slug="settings", heading="Settings", facts=facts)] if facts else []


def _text(value: Any) -> str:
    """A value as a reader writes it: yes or no, numbers, lists; the rows of a matrix are separated by semicolons."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')}: {_text(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, (list, tuple)) for item in value)
        return ("; " if nested else ", ").join(_text(item) for item in value)
    return str(value)
