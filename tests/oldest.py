"""Print the oldest version of every requirement as constraints for pip: ``name>=x`` becomes
``name==x``.

Used by ``make test-oldest``. srjt must be installed (``--no-deps`` is enough): its metadata list
the requirements.
"""

import importlib.metadata
import re
from collections.abc import Iterable, Iterator

TOOLS = ("dev", "docs", "benchmarks")  # extras of developers: any version that pip finds will do
AS_INSTALLED = {"torch"}  # its oldest builds are gigabytes for a GPU, and few exist for a CPU
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,-]+\])?(?P<bounds>[^;]*)(?:;(?P<marker>.*))?")


def constraints(requirements: Iterable[str]) -> Iterator[str]:
    for line in requirements:
        match = REQUIREMENT.fullmatch(line.strip())
        assert match is not None, line
        marker = match["marker"] or ""
        if match["name"] in AS_INSTALLED or any(
            f"'{tool}'" in marker.replace('"', "'") for tool in TOOLS
        ):
            continue
        oldest = re.search(r">=\s*([\w.]+)", match["bounds"])
        assert oldest is not None, f"{line} has no lower bound"
        yield f"{match['name']}=={oldest[1]}"


if __name__ == "__main__":
    print(*constraints(importlib.metadata.requires("srjt") or []), sep="\n")
