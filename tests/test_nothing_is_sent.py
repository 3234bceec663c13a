"""No command reaches the network or leaves an id of the machine unless it is asked to: "nothing is
sent"."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import srjt
from processes import Launcher
from srjt.process import NO_TELEMETRY

SOURCE = Path(srjt.__file__).parent
# packages that can send something; they are imported by import_quietly, or only after it
TALKATIVE = {"onnxruntime", "ray", "huggingface_hub", "mlflow", "wandb"}


def environment(home: Path) -> dict[str, str]:
    """As on a person's machine: nothing is switched off beforehand, as it is in tests and on build
    servers."""
    without = {*NO_TELEMETRY, "CI", "GITHUB_ACTIONS", "XDG_CACHE_HOME"}
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return {
        **kept,
        "HOME": str(home),
        "SRJT_CACHE": str(home.parent / "cache"),
        "PYTHONPATH": str(SOURCE.parent),
    }


def test_packages_that_send_something_are_imported_quietly() -> None:
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not re.search(rf"\b(?:import|from)\s+(?:{'|'.join(TALKATIVE)})\b", text):
            continue  # parsing takes a while
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found |= {
                    (path.name, alias.name)
                    for alias in node.names
                    if alias.name.partition(".")[0] in TALKATIVE
                }
            elif (
                isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in TALKATIVE
            ):
                found.add((path.name, str(node.module)))
    # the script that is sent imports nothing of srjt, and the trackers are imported quietly before
    assert found == {
        ("standalone_predict.py", "onnxruntime"),
        ("reporters.py", "mlflow"),
        ("reporters.py", "wandb"),
    }
    script = (SOURCE / "reports" / "standalone_predict.py").read_text(encoding="utf-8")
    assert script.index('os.environ["ORT_DISABLE_TELEMETRY"] = "1"') < script.index(
        "import onnxruntime"
    )


SESSION = """
import time
from srjt.process import import_quietly
import onnx
from onnx import TensorProto, helper

x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
runtime = import_quietly("onnxruntime")
session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
time.sleep(1)
"""


@pytest.mark.slow
def test_a_session_of_onnxruntime_leaves_nothing_in_the_home_folder(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run([sys.executable, "-c", SESSION], env=environment(home), check=True)
    assert [str(path) for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_no_command_reaches_the_network(tmp_path: Path) -> None:
    """Training, prediction, evaluation, audit, export and the exported script, each watched by
    strace."""
    home, trace = tmp_path / "home", tmp_path / "trace"
    home.mkdir()
    x = np.random.default_rng(0).standard_normal((60, 5))
    rows = np.column_stack([x, np.digitize(x[:, 0], [-0.5, 0.5])])
    header = ",".join([*(f"f{column}" for column in range(5)), "grade"])
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header=header, comments="", fmt="%.6g")
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    run, features = str(tmp_path / "run"), ["--feature-columns", "f*"]
    table = str(tmp_path / "a.csv")
    training = ["--fold", "0", "--epochs", "2", "--network", "linear"]
    commands = [
        ["train", table, *features, *training, "--out", run],
        ["predict", run, table, *features, "--out", str(tmp_path / "p.csv")],
        ["evaluate", run, table, *features, "--fold", "0"],
        ["audit", table, *features, "--out", str(tmp_path / "audit"), "--epochs", "2"],
        ["report", run],
        ["export", run, "--folder", str(tmp_path / "sent")],
    ]
    calls = ["-e", "trace=connect,sendto,sendmsg"]
    # --seccomp-bpf: it stops a process at these calls only, and not at every one
    strace = ["strace", "-f", "--seccomp-bpf", "-qq", *calls, "-o", str(trace)]
    launcher = Launcher(tmp_path / "cache", env=environment(home), under=strace)
    for command in commands:
        says = tmp_path / "says"
        status = launcher.run(*command, says=says)
        assert status == 0, (command, says.read_text())
        assert reached(trace) == [], command
    launcher.close()
    assert reached(trace) == []
    script = [*strace, sys.executable, str(tmp_path / "sent/predict.py"), str(tmp_path / "x.npy")]
    subprocess.run(script, env=environment(home), capture_output=True, text=True, check=True)
    assert reached(trace) == []
    assert [
        str(path) for path in home.rglob("*") if path.is_file() and "matplotlib" not in str(path)
    ] == []


def reached(trace: Path) -> list[str]:
    """The calls that reach the network."""
    return [line for line in trace.read_text().splitlines() if "AF_INET" in line]
