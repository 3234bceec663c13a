"""Execute the notebooks of this folder, each in an empty folder of its own, and keep their outputs.

    python examples/execute.py            all of them
    python examples/execute.py 3-audit    those whose names begin so
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
SOURCE = re.compile(r"\S*/(?=srjt/\S+\.py)")  # where srjt is installed is nobody's business


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times, which differ every time
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = SOURCE.sub("", output["text"])
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},  # not the version of whoever executed it
    }
    return notebook


def main(names: list[str]) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.name.startswith(tuple(names)):
            nbformat.write(execute(path), path)
            print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
