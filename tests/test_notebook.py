"""Notebooks show results by their pages."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import srjt
from refusals import refuses
from srjt.inference.sample_size import plan
from srjt.notebook import HasPage
from srjt.reports.page import page_of
from srjt.reports.report import PAGES as PAGES  # all results and pages are loaded


def test_a_notebook_shows_a_result_by_its_page() -> None:
    formatters: Any = pytest.importorskip("IPython.core.formatters")

    class Shell:
        display_formatter = formatters.DisplayFormatter()

    srjt.load_ipython_extension(Shell)
    planned = plan(metric="sensitivity", value=0.9, half_width=0.05)
    shown, _ = Shell.display_formatter.format(planned)
    assert shown["text/html"] == srjt.report(planned)._repr_html_()
    assert shown["text/plain"] == repr(planned)
    assert "text/html" not in Shell.display_formatter.format(object())[0]


def test_all_results_with_the_mark_have_a_page() -> None:
    ours = [module for name, module in sys.modules.items() if name.startswith("srjt.")]
    named = [value for module in ours for value in vars(module).values()]
    marked = {value for value in named if isinstance(value, type) and issubclass(value, HasPage)}
    marked.remove(HasPage)
    assert len(marked) > 10
    for kind in marked:
        assert page_of.dispatch(kind) is not page_of.dispatch(object), kind


def test_what_has_no_page_is_refused() -> None:
    with refuses("wrong_type", says="report takes a result of srjt"):
        srjt.report(3)  # type: ignore[call-overload]


def test_a_folder_is_written_by_the_former_name_with_a_warning(tmp_path: Path) -> None:
    with (
        pytest.warns(FutureWarning, match=r"use srjt.write_report\(folder\) instead"),
        refuses("wrong_file"),
    ):
        srjt.report(tmp_path)


@pytest.mark.slow
def test_importing_srjt_in_a_running_ipython_is_enough() -> None:
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "import sys, srjt\n"
        "assert 'srjt.reports' not in sys.modules\n"
        "planned = srjt.plan(metric='sensitivity', value=0.9, half_width=0.05)\n"
        "print(shell.display_formatter.format(planned)[0]['text/html'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'class="srjt"' in done.stdout
