"""Agents that are forked from one process, which has imported what they need."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.learner.agent import Learner
from tests.support.waiting import until
from workbench.learner.host.fork_server import ForkServer

NOTING = """\
import os, sys
sys.path.insert(0, {folder!r})
def note(event, arguments, file=os.open({file!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)):
    if event == "import":
        os.write(file, b"%d %s\\n" % (os.getpid(), str(arguments[0]).encode()))
sys.addaudithook(note)
from workbench.learner.main import main
sys.exit(main(sys.argv[1:]))
"""
"""An agent that notes which process imports what."""


def test_a_forked_agent_of_a_job_that_prints_imports_nothing(
    learner: Callable[..., Learner], tmp_path: Path
) -> None:
    one = learner("for i in 1 2 3; do echo step $i loss 0.$i; done; exit 3", metrics={"type": "auto"})
    folder = one.argv()[-3].rpartition("/")[0]
    noted = tmp_path / "imports"
    program = [sys.executable, "-I", "-S", "-c", NOTING.format(folder=folder, file=str(noted))]
    with closing(ForkServer(os.devnull, program)) as server:
        server.warm({"PATH": os.environ["PATH"]})
        environment = {"PATH": os.environ["PATH"], "FABRIC_GUARD": one.marker}
        argv = [*program, "guard", str(one.folder)]

        agent = server.start(argv, environment, str(one.folder / "agent.log"), [])
        until(lambda: one.state().get("phase") == "exited", one.log)

    assert agent == one.state()["pid"]
    assert one.state()["exit_code"] == 3
    assert one.records("metrics")
    imported = [line.split() for line in noted.read_text().splitlines()]
    processes = {process for process, _ in imported}
    assert len(processes) == 1, [
        line for line in imported if int(line[0]) in (agent, one.state()["scribe_pid"])
    ]
