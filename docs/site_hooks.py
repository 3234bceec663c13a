"""What the site shows differently from the files in the repository."""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[^)]+\)")


def on_page_markdown(markdown: str, **page: Any) -> str:
    """Links that leave docs/ lead to files of the repository, which the site does not have: their text stays."""
    return OUTSIDE.sub(r"\1", markdown)
