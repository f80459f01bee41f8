"""Agents that are forked from one process, which has imported what they need."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.learner.agent import Learner
from tests.support.waiting import until
from workbench.learner.host.agent_forks import ForkServer

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


CALLED_IN_EACH_FORK = {b"threading", b"random", b"logging", b"concurrent.futures.thread"}
"""Modules of Python that have it call them in each process that is forked."""


@dataclass
class Forked:
    """An agent that was forked, has ended, and what it and others have imported."""

    agent: int
    learner: Learner
    imported: Mapping[bytes, Set[bytes]]
    """By process."""


@pytest.fixture
def forked(learner: Callable[..., Learner], tmp_path: Path) -> Forked:
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
    imported: dict[bytes, set[bytes]] = {}
    for line in noted.read_bytes().splitlines():
        process, name = line.split()
        imported.setdefault(process, set()).add(name)
    return Forked(agent, one, imported)


def test_a_forked_agent_of_a_job_that_prints_imports_nothing(forked: Forked) -> None:
    state = forked.learner.state()
    assert forked.agent == state["pid"]
    assert state["exit_code"] == 3
    assert forked.learner.records("metrics")
    assert len(forked.imported) == 1, [
        names
        for process, names in forked.imported.items()
        if int(process) in (forked.agent, state["scribe_pid"])
    ]


def test_what_forks_agents_has_imported_nothing_that_is_called_in_each_of_them(forked: Forked) -> None:
    (names,) = forked.imported.values()
    assert b"workbench.learner.guard.guard" in names
    assert not names & CALLED_IN_EACH_FORK
