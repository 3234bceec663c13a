"""Known holes of the packages that srjt needs, in the versions that are installed here: the newest
that are allowed."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest


@pytest.mark.slow
def test_no_package_has_a_known_hole() -> None:
    if find_spec("pip_audit") is None:
        pytest.skip("pip-audit is not installed: pip install pip-audit")
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--format",
        "json",
        "--progress-spinner",
        "off",
        "--skip-editable",
    ]
    try:
        done = subprocess.run(
            [*command, "--timeout", "10"], capture_output=True, text=True, timeout=240, check=False
        )
        packages = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:  # a network that does not answer
        pytest.skip("pip-audit did not get its data in four minutes")
    except (ValueError, KeyError):  # the data base of holes is on the network
        pytest.skip(f"pip-audit has no data here: {done.stderr.strip().splitlines()[-1:]}")
    holes = {
        f"{package['name']} {package['version']}": [hole["id"] for hole in package["vulns"]]
        for package in packages
        if package.get("vulns")
    }
    assert holes == {}
