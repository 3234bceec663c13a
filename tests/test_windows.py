"""The package runs where what differs on Windows differs, as far as Linux can imitate it.

Every process of the test, workers included, imports ``sitecustomize`` first, which takes away what Windows has not and
refuses what Windows refuses.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="imitates Windows on Linux")

IMITATION = '''
"""Windows, as far as a program can tell."""
import errno, multiprocessing, os, signal, sys, warnings

for name in ("fcntl", "grp", "pwd", "resource", "syslog", "termios"):
    sys.modules[name] = None  # importing it raises ImportError
for name in ("fork", "getuid", "geteuid", "mkfifo", "sched_getaffinity", "O_NONBLOCK"):
    delattr(os, name)
for name in ("SIGHUP", "pthread_sigmask"):
    delattr(signal, name)
multiprocessing.get_all_start_methods = lambda: ["spawn"]
warnings.filterwarnings("error", category=EncodingWarning, module=r"srjt\\.")  # cp1252 is the default there


def in_use():
    """The files that this process has open or mapped: Windows neither replaces nor deletes them."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            pass
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return found | {line.split(maxsplit=5)[5].strip() for line in maps if len(line.split()) > 5}


def refuse(event, arguments):
    if event in ("os.rename", "os.remove", "os.link"):
        paths = [os.path.abspath(os.fsdecode(path)) for path in arguments[:2] if isinstance(path, (str, bytes))]
        if HERE and any(path.startswith(HERE) for path in paths):
            for path in in_use().intersection(paths):
                raise PermissionError(errno.EACCES, "the file is in use", path)
    elif event in ("open", "os.mkdir") and isinstance(arguments[0], str):
        creates = event == "os.mkdir" or "r" not in (arguments[1] or "r")
        name = arguments[0].removeprefix(HERE or "")
        if creates and not name.startswith("/dev/") and any(sign in name for sign in '<>:"|?*'):
            raise OSError(errno.EINVAL, "the name is not allowed", arguments[0])


HERE = os.environ.get("IMITATED_IN")
sys.addaudithook(refuse)
'''

WORK = """
import importlib, pkgutil
import srjt

if __name__ == "__main__":
    for module in pkgutil.walk_packages(srjt.__path__, "srjt."):
        if module.name != "srjt.__main__":  # it runs the command line
            importlib.import_module(module.name)

    srjt.data.synthetic.write(srjt.data.synthetic.generate(images=60, patients=12, size=32), "set")
    data = srjt.data.read("set").manifest
    settings = dict(network="tiny", image_size=32, crop=28, epochs=1, batch_size=16, device="cpu")
    srjt.train(data, out="run", noise_rate=0.2, **settings)
    assert len(srjt.predict("run", data)) == 60
    srjt.report("run")
    srjt.audit(data, out="audit", folds=2, **settings)
    srjt.study(
        "set", out="study", methods=["standard", "srjt"], noise="quasi:0.2", folds=3, only_folds=0, jobs=2, **settings
    )
"""


def imitated(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "imitation").mkdir()
    (folder / "imitation" / "sitecustomize.py").write_text(IMITATION, encoding="utf-8")
    script = folder / "script.py"
    script.write_text(program, encoding="utf-8")
    path = os.pathsep.join([str(folder / "imitation"), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONWARNDEFAULTENCODING": "1",
        "IMITATED_IN": str(folder),
        "SRJT_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(script)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_import_train_predict_audit_and_study(tmp_path: Path) -> None:
    done = imitated(WORK, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "study" / "runs").glob("*/summary.json"))) == 2


REFUSED = {
    "open('a:b', 'w')": "the name is not allowed",
    "os.mkdir('a?')": "the name is not allowed",
    "file = open('a', 'w', encoding='utf-8'); os.replace('a', 'b')": "the file is in use",
    "file = open('a', 'w', encoding='utf-8'); os.unlink('a')": "the file is in use",
    "os.fork()": "has no attribute 'fork'",
    "import fcntl": "ModuleNotFoundError",
}


@pytest.mark.parametrize("line", REFUSED)
def test_the_imitation_refuses_what_windows_refuses(line: str, tmp_path: Path) -> None:
    done = imitated(f"import os\n{line}\n", tmp_path)
    assert done.returncode == 1
    assert REFUSED[line] in done.stderr
