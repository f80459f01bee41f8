"""Kills a launch at every instant in turn, launches again, and says what became of the learners: a program of its own.

The killed launch is a process that ends without any clean-up, so nothing of it is put right by a ``finally``.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.process.runner import ProcessRunner

HOME = "00000000-0000-0000-0000-00000000000c"
DONE = 77
COMMAND = (
    "echo s >> $JOB_STATE_DIR/starts-$LEARNER_ID; echo $CUDA_VISIBLE_DEVICES; "
    "while [ $(ls $JOB_STATE_DIR | grep -c starts-) -lt $NUM_LEARNERS ]; do sleep 0.02; done"
)


class CutHost(LocalHost):
    """This machine, whose user dies at his n-th operation: just before it, or just after."""

    def __init__(self, at: int, after: bool) -> None:
        super().__init__()
        self._left = at
        self._after = after

    def call(self, operation: str, **arguments: Any) -> Any:
        return self._cut(super().call, operation, **arguments)

    def spawn(self, *arguments: Any, **named: Any) -> int:
        pid: int = self._cut(super().spawn, *arguments, **named)
        return pid

    def put(self, *arguments: Any, **named: Any) -> None:
        self._cut(super().put, *arguments, **named)

    def lock(self, *arguments: Any, **named: Any) -> Any:
        return self._cut(super().lock, *arguments, **named)

    def _cut(self, function: Any, *arguments: Any, **named: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._after:
            os._exit(0)
        answer = function(*arguments, **named)
        if self._left == 0:
            os._exit(0)
        return answer


def cut(request: Any, at: int, after: bool) -> bool:
    """Launch in a process that dies at its n-th operation; return whether it was cut at all."""
    pid = os.fork()
    if pid == 0:
        runner = ProcessRunner(CutHost(at, after), home_uuid=HOME)
        job = LaunchedAttempt.planned(runner, request)
        job.launch()
        os._exit(DONE)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != DONE


def main(learners: int, gpus: int, *instants: str) -> None:
    """Cut at every operation, before or after it, until a launch gets through."""
    for after in (instant == "after" for instant in instants):
        for at in itertools.count(1):
            request = request_of(COMMAND, home=HOME, learners=learners, gpus=gpus, ends_when="all")
            was_cut = cut(request, at, after)
            host = LocalHost()
            runner = ProcessRunner(host, home_uuid=HOME)
            job = LaunchedAttempt.planned(runner, request).launch()
            seen = job.until_over()
            state = Path(job.plan.learners[0].native["launch"]["env"]["JOB_STATE_DIR"])
            starts = [len((state / f"starts-{one}").read_text()) // 2 for one in range(1, learners + 1)]
            codes = [seen[one].exit_code for one in range(1, learners + 1)]
            devices = [job.output(one).decode().strip() for one in range(1, learners + 1)]
            slots = [",".join(seen[one].slots) for one in range(1, learners + 1)]
            document = {"at": at, "starts": starts, "codes": codes, "devices": devices, "slots": slots}
            print(json.dumps(document), flush=True)
            runner.remove(request.attempt)
            runner.close()
            host.close()
            if not was_cut:
                break


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
