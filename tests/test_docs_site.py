"""The documentation becomes a site without a warning, and the site asks nothing of other
machines."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from browser import Browser, needs_browser

ROOT = Path(__file__).parents[1]
POINTER = re.compile(r"""rel=["']?(?:canonical|next|prev)""")  # links that no browser fetches


def listed(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in listed(part)]  # type: ignore[attr-defined]


def test_every_page_is_in_the_menu() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert sorted(listed(config["nav"])) == sorted(
        page.name for page in (ROOT / "docs").glob("*.md")
    )


def test_the_citation_names_the_paper_as_the_readme_does() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(
        citation
    )  # what the format asks for
    paper = citation["preferred-citation"]
    readme = " ".join((ROOT / "README.md").read_text().replace("> ", "").split())
    assert paper["title"] in readme
    assert (
        ", ".join(f"{a['given-names'][0]}. {a['family-names']}" for a in paper["authors"]) in readme
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # ruff, which lies beside Python, lays out signatures
    beside_python = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PATH": beside_python}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


@pytest.mark.slow
def test_the_site_asks_nothing_of_other_machines(site: Path) -> None:
    pages = sorted(site.glob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").glob("*.md")))  # 404.html too
    for page in pages:
        text = page.read_text()
        tags = re.findall(r"<(?:script|img|link|iframe|source)\b[^>]*>", text)
        loaded = [tag for tag in tags if not POINTER.search(tag)]
        urls = re.findall(r"""(?:src|href)=["']?([^"'\s>]+)""", " ".join(loaded))
        assert urls
        assert [url for url in urls if re.match(r"(https?:)?//", url)] == []
        assert "../benchmarks" not in text  # links into the repository became text


@needs_browser
@pytest.mark.slow
def test_a_site_that_is_opened_from_a_disk_can_be_searched(site: Path, browser: Browser) -> None:
    tab = browser.tab()
    tab.open(site / "index.html")
    tab.js("document.querySelector('#__search').click()")
    field = "document.querySelector('input.md-search__input')"
    tab.js(
        f"{field}.value = 'verified labels', {field}.dispatchEvent(new Event('keyup', {{bubbles: true}}))"
    )
    tab.wait("document.querySelector('.md-search-result__item a') !== null")
    assert tab.js("document.querySelector('.md-search-result__item a').href").endswith(
        "/audit.html"
    )
    assert tab.complaints() == []
