"""The documentation becomes a site without a warning, and the site asks nothing of other machines."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


def listed(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in listed(part)]  # type: ignore[attr-defined]


def test_every_page_is_in_the_menu() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert sorted(listed(config["nav"])) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_citation_names_the_paper_as_the_readme_does() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # what the format asks for
    paper = citation["preferred-citation"]
    readme = " ".join((ROOT / "README.md").read_text().replace("> ", "").split())
    assert paper["title"] in readme
    assert ", ".join(f"{a['given-names'][0]}. {a['family-names']}" for a in paper["authors"]) in readme


class Loaded(HTMLParser):
    """What a browser would fetch for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if told.get("rel") not in ("canonical", "next", "prev"):
            self.found += [value for name, value in attrs if (tag, name) in LOADED and value]


@pytest.mark.slow
def test_the_site_builds_strictly_and_works_offline(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "PATH": os.pathsep.join(
            (str(Path(sys.executable).parent), os.environ["PATH"])
        ),  # where ruff is: it lays out signatures
    }
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    pages = sorted((tmp_path / "site").glob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").glob("*.md")))  # 404.html too
    for page in pages:
        text = page.read_text()
        parser = Loaded()
        parser.feed(text)
        assert parser.found
        assert [url for url in parser.found if re.match(r"(https?:)?//", url)] == []
        assert "../benchmarks" not in text  # links into the repository became text
    api = (tmp_path / "site" / "api.html").read_text()
    anchors = set(re.findall(r'id="(srjt[\w.]*)"', api))
    for namespace in ("srjt", "srjt.data", "srjt.methods", "srjt.networks", "srjt.noise", "srjt.readers"):
        module = importlib.import_module(namespace)
        public = {name: getattr(module, name) for name in module.__all__}
        shown = {
            name: thing
            for name, thing in public.items()
            if inspect.isclass(thing) or inspect.isfunction(thing)
        }
        where = {name: {f"{namespace}.{name}", f"{of.__module__}.{name}"} for name, of in shown.items()}
        assert [name for name, paths in where.items() if not paths & anchors] == []
    index = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text())
    assert {"audit.html", "api.html"} <= {entry["location"].partition("#")[0] for entry in index["docs"]}
