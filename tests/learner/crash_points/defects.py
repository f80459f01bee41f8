"""Defects that are put into an agent, each with a point at which it breaks a promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Defect:
    """Lines of Python that an agent executes at its start, and the case that finds what they do."""

    name: str
    lines: str
    case: str

    def __str__(self) -> str:
        return self.name


DEFECTS: Final = (
    Defect(
        "a state is written in place",
        """
from workbench.learner.journal import state
flags = state.os.O_CREAT | state.os.O_TRUNC
state.StateFile._replace = lambda self, _, data, durable: state._write_file(self._path, data, durable, flags)
""",
        "plain: guard1 write state.json 2 torn",
    ),
    Defect(
        "the command is let go before its start is recorded",
        """
from workbench.learner.guard import spawn
hold = spawn.hold
def held(*args):
    child = hold(*args)
    spawn.os.write(child.go, b"g")
    return child
spawn.hold = held
""",
        "plain: guard1 open state.json.new 2 before both",
    ),
    Defect(
        "output is published before its secrets are overwritten",
        """
from workbench.learner.scribe.publisher import Publisher
publish, overwrite, later = Publisher.publish, Publisher._overwrite, []
def published(self, **more):
    done = publish(self, **more)
    while later:
        overwrite(*later.pop())
    return done
Publisher.publish, Publisher._overwrite = published, lambda *args: later.append(args)
""",
        "plain: scribe1.1 pwrite output.log 1 before both",
    ),
    Defect(
        "a torn line of the records is left",
        """
from workbench.learner.journal import output
output._whole_lines = lambda descriptor, size: size
""",
        "plain: scribe1.1 pwrite records.jsonl 2 torn",
    ),
    Defect(
        "output is read before it is written",
        """
from workbench.learner.scribe import pump
pump.Pump._move = pump.Pump._copy
""",
        "plain: scribe1.1 write output.log 4 before",
    ),
    Defect(
        "what waits in the pipe of a learner without agents is left there",
        """
from workbench.learner.scribe import orphan
orphan.rescued_pipes = lambda *_: {"output": None}
""",
        "plain: scribe1.1 splice output.log 2 before both",
    ),
    Defect(
        "the scribe does not hold the lock",
        """
from workbench.learner.scribe.scribe import Scribe
import os
run = Scribe.run
def without_lock(self):
    for name in os.listdir("/proc/self/fd"):
        path = "/proc/self/fd/" + name
        if os.path.lexists(path) and os.readlink(path).endswith("/agent.lock"):
            os.close(int(name))
    run(self)
Scribe.run = without_lock
""",
        "plain: guard1 write pipe:g 1 after",
    ),
    Defect(
        "a decision is named before it is written",
        """
from workbench.learner.journal import state
write = state._write_file
def named(path, data, durable, flags):
    if ".learner-" in path:
        write(path, b"", durable, flags)
        state.os.link(path, path.partition(".learner-")[0])
    write(path, data, durable, flags)
state._write_file = named
""",
        "plain: guard1 link decision.json 1 after both",
    ),
)
