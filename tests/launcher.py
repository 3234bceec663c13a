"""A process that has imported everything and forks a real ``srjt`` for each order it reads.

Importing torch takes seconds; with this, a test can start and kill many processes. Orders and
answers are JSON lines: {"argv": […], "cwd": …, "says": FILE, "env": {…}} → pid; {"wait": pid} →
exit code; {"poll": pid} → exit code, or null while it runs.
"""

import json
import os
import sys
from typing import Any, NoReturn

import torch._dynamo  # the first optimiser imports it

import srjt.auditing.audit
import srjt.auditing.review_app
import srjt.cli.data
import srjt.cli.options
import srjt.cli.predict
import srjt.cli.train
import srjt.inference.sample_size
import srjt.reports.report
import srjt.run
import srjt.studies.study


def child(order: dict[str, Any]) -> NoReturn:
    says = os.open(order["says"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(says, 1)
    os.dup2(says, 2)
    os.chdir(order["cwd"])
    os.environ.update(order["env"])
    for setup in order.get("setup", []):
        exec(setup, {})
    torch.set_num_threads(1)
    sys.argv = ["srjt", *order["argv"]]
    status = 70
    try:
        srjt.cli.main()
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 0
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        if "argv" in order:
            pid = os.fork()
            if pid == 0:
                child(order)
            answer: int | None = pid
        else:
            options = 0 if "wait" in order else os.WNOHANG
            pid, status = os.waitpid(order.get("wait", order.get("poll")), options)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
