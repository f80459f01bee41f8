"""What there is to know of a job that goes on no more: what its controller does, and what is left of its learners."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from tests.support.controllers import log_of
from tests.support.waiting import until
from workbench.controller.client.connect import status
from workbench.paths import Home

REPORTED_WITHIN_SECONDS = 2.0
"""How long a controller may take to say where its threads are."""


def stuck(home: Home, job_id: str) -> str:
    """Return the log, with the stack of every thread of the controller, the processes and the job's files."""
    controller = status(home)
    if controller is not None:
        before = log_of(home)
        os.kill(controller.pid, signal.SIGUSR1)
        with contextlib.suppress(AssertionError):  # one that cannot even write that is shown as it is
            until(lambda: log_of(home) != before, seconds=REPORTED_WITHIN_SECONDS)
    table = ["ps", "-ww", "-eo", "pid,ppid,stat,wchan:20,etimes,args"]
    processes = subprocess.run(table, capture_output=True, text=True, check=False).stdout
    ours = [line for line in processes.splitlines() if str(home.path) in line]
    files = sorted(f"{file} {file.stat().st_size}" for file in home.job(job_id).path.rglob("*.json*"))
    return "\n".join([f"{controller}", log_of(home), *ours, *files])
