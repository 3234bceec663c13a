"""What the two guides for assistants name exists: paths, commands, files and their keys."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs/assistants.md").read_text(encoding="utf-8")
AGENTS = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`\n]+)`")


def test_every_path_of_agents_md_exists() -> None:
    paths = [code for code in CODE.findall(AGENTS) if "/" in code and " " not in code]
    paths += [code for code in CODE.findall(AGENTS) if re.fullmatch(r"[A-Z]+\.md", code)]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_make_target_of_agents_md_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"make ([a-z-]+)", AGENTS)
    assert "test-all" in targets
    assert [
        target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)
    ] == []


def test_every_file_of_the_guide_is_described_or_written() -> None:
    """By files.md, except problems.csv, which data inspect writes."""
    described = (ROOT / "docs/files.md").read_text(encoding="utf-8")
    named = {
        code
        for code in CODE.findall(GUIDE)
        if re.fullmatch(r"[\w.]+\.(csv|json|html|sqlite)", code)
    }
    assert {"summary.json", "audit.csv", "readers.json", "worklist.csv", "study.json"} <= named
    assert [name for name in sorted(named - {"problems.csv"}) if f"`{name}`" not in described] == []
    assert '"problems.csv"' in (ROOT / "src/srjt/cli/data.py").read_text(encoding="utf-8")


def test_every_key_of_the_guide_is_one_of_an_audit() -> None:
    described = (ROOT / "docs/files.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| audit: `summary.json` \| (.+) \|$", described, re.MULTILINE)
    assert {"identifiable", "rate_interval", "caveat"} <= set(CODE.findall(row)) & set(
        CODE.findall(GUIDE)
    )


def test_the_guide_asks_of_each_command_only_what_it_has() -> None:
    """test_docs.py checks each command and option; here: the options that the guide asks of several
    commands."""
    from test_docs import options_of, whole

    commands = whole().commands
    for name in ("train", "audit"):
        assert {"--quiet", "--out", "--preset"} <= options_of(commands[name])
    assert {"--quiet", "--out", "--preset"} <= options_of(commands["study"].commands["run"])
    for name in ("evaluate", "compare", "predict", "readers"):
        assert "--out" in options_of(commands[name])
