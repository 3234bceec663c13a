"""Execute the notebooks of this folder, each in an empty folder of its own, and keep their outputs.

python examples/execute.py            all of them
python examples/execute.py 3-audit    those whose names begin so
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
SOURCE = re.compile(r"/[^\s\"]*/(?=srjt/\S+\.py)")  # where srjt is installed
CELL = re.compile(r"/[^\s\"]*ipykernel_\d+/\d+\.py")  # the file of a cell, in a warning
PACE = re.compile(
    r" \d+:\d\d(?=\s+(?:epoch|fold|\d+/))|\s+samples/s \d+"
)  # of a bar, on that machine


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SRJT_CACHE": f"{folder}/cache"}
        client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}})
        client.execute(env=environment)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times, which differ every time
        if cell.cell_type == "code":
            cell.outputs = [_without_paths(output, folder) for output in cell.outputs]
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},  # not the version of whoever executed it
    }
    return notebook


def _without_paths(output: nbformat.NotebookNode, folder: str) -> nbformat.NotebookNode:
    """An output without the folders of whoever executed it."""
    if "image/jpeg" in output.get("data", {}):
        output["data"].pop("image/png", None)  # Pillow gives both, and the other is smaller
    text = json.dumps(output).replace(f"{folder}/", "")
    return nbformat.from_dict(json.loads(PACE.sub("", CELL.sub("cell", SOURCE.sub("", text)))))


def main(names: list[str]) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.name.startswith(tuple(names)):
            nbformat.write(execute(path), path)
            print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
