"""Runs a learner whose agents are killed at chosen points, and starts new agents as a host does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.learner.agent import Learner
from tests.support.waiting import ended, until
from workbench.learner.host.learners import is_begun, is_dead, is_over
from workbench.learner.host.learners import learner as status_of
from workbench.learner.platform import system
from workbench.learner.platform.run import kill_agents

SECRET: Final = "correct-horse-battery"
BLOCKS: Final = 3
FILLER: Final = 4096 - 60 - 16 - 24
"""What is printed before the second secret, so that it lies on two pages of the file."""
EXIT_CODE: Final = 3
AGENTS: Final = 6
"""As many agents as a learner needs at most here: each but the last one is killed."""

METRICS: Final = {
    "type": "regex_extractor",
    "groups": {
        "train": {
            "regex": "loss=%{FLOAT:loss} step=%{INT:step}",
            "scalars": {"loss": {"type": "FLOAT", "value": "$loss"}},
            "etimes": {"step": {"type": "INT", "value": "$step"}},
        }
    },
}

COMMAND: Final = f"""
import json, os, signal, sys, time
work, folder = os.environ["WORK"], os.path.dirname(os.environ["FABRIC_REPORT"])
def note(name, data):
    file = os.open(work + "/" + name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, data)
    os.close(file)
def is_recorded(step):
    try:
        with open(folder + "/records.jsonl", "rb") as file:
            return b'"loss":[%d.5]' % step in file.read()
    except OSError:
        return False
def filler(step):
    return b"." * {FILLER} if step == 2 else b""
note("runs", b"ran\\n")
def ended(*_):
    os.write(1, b"stopping\\n")
    note("printed", b"9\\n")
    os._exit({EXIT_CODE})
if sys.argv[1] == "halt":
    signal.signal(signal.SIGTERM, ended)
while sys.argv[1] == "usage" and not os.path.exists(folder + "/processes.json"):
    time.sleep(0.0005)
for step in range(1, {BLOCKS} + 1):
    data = b"loss=%d.5 step=%d\\n%sthe secret is {SECRET}, said %d\\n" % (step, step, filler(step), step)
    os.write(1, data)
    note("printed", b"%d\\n" % len(data))
    while not is_recorded(step):
        time.sleep(0.0005)
note("../learner-1/report.jsonl", json.dumps(
    {{"kind": "metrics", "step": 1, "group": "", "values": {{"accuracy": 0.5}}, "time": 1800000000000000}}
).encode() + b"\\n")
if sys.argv[1] == "halt":
    with open(folder + "/stop.new", "w") as file:
        file.write('{{"kind": "halt", "by": "me@box"}}')
    os.rename(folder + "/stop.new", folder + "/stop.json")
    while True:
        signal.pause()
for data in (b"last\\n", b"words"):
    os.write(1, data)
    note("printed", b"%d\\n" % len(data))
os._exit({EXIT_CODE})
"""
"""Prints lines, each once the one before is a record, and notes elsewhere what the pipe has taken."""

SCENARIOS: Final = ("plain", "setup", "halt", "tail", "usage")
"""What the learner does.

As it is; with a setup; asked to stop; on a file system that may lose what it was given; with samples of what it uses.
"""

_HURRY: Final = (
    "from workbench.learner.platform import processes",
    "processes._POLL_SECONDS = 0.005",
    "from workbench.learner.scribe import publisher, scribe",
    "scribe.SAMPLE_FROM_SECONDS = 0.0",
    "publisher.PUBLISH_SECONDS = scribe.PUBLISH_SECONDS = 0.001",
    "from workbench.learner.guard import guard",
    "guard._SCRIBE_END_SECONDS = 60.0",
    "from workbench.learner.collectors import batches",
    "batches.FLUSH_US = 0",
    # Its command waits for the first sample: on a busy machine that may be taken before there is a command.
    "from workbench.learner.scribe import usage",
    "sample = usage.Sampler._sample",
    "def sample_of_some(self):",
    "    while (found := sample(self)) is None and not self._closed.wait(0.001):",
    "        pass",
    "    return found",
    "usage.Sampler._sample = sample_of_some",
)
"""Pauses that a case has no time for, and one that may not be over on a busy machine."""

_NO_POINT: Final = "nothing is killed"
_TAIL: Final = ("from workbench.learner.platform import system", "system.may_lose_writes = lambda path: True")


@dataclass(frozen=True, slots=True)
class Point:
    """Where a process of an agent is killed, alone or both with the other one.

    It is written as ``scribe1.1 pwrite output.idx 2 torn both``.
    """

    role: str
    operation: str
    target: str
    number: int
    mode: str
    both: bool = False

    def __str__(self) -> str:
        text = f"{self.role} {self.operation} {self.target} {self.number} {self.mode}"
        return f"{text} both" if self.both else text

    @classmethod
    def parse(cls, text: str) -> Point:
        role, operation, target, number, mode, *both = text.split()
        return cls(role, operation, target, int(number), mode, bool(both))


def agent_of(role: str) -> int:
    """Return which agent of the learner a role belongs to."""
    return int(role.removeprefix("guard").removeprefix("scribe").partition(".")[0])


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario and where agents are killed in it, one after another."""

    scenario: str
    points: tuple[Point, ...] = ()

    def __str__(self) -> str:
        return f"{self.scenario}: {'; '.join(map(str, self.points)) or _NO_POINT}"

    @classmethod
    def parse(cls, text: str) -> Case:
        scenario, _, points = text.partition(":")
        parts = [] if points.strip() in ("", _NO_POINT) else points.split(";")
        return cls(scenario.strip(), tuple(map(Point.parse, parts)))


class Run:
    """One learner from its start to its recorded end, by as many agents as it needs."""

    def __init__(self, folder: Path, case: Case, defect: str = "", watched_by: Sequence[str] = ()) -> None:
        self.case = case
        self.defect = defect
        """Lines of Python that put a defect into the agents."""
        self.watched_by = watched_by
        """The command line of a program that starts the agents."""
        more: dict[str, Any] = (
            {"setup": 'echo prepared; echo ran >> "$WORK/setups"'} if case.scenario == "setup" else {}
        )
        (folder / "secrets.json").write_text(json.dumps({"TOKEN": SECRET}))
        self.learner = Learner(
            folder / "attempt-1",
            "",
            metrics=METRICS,
            secrets_file=str(folder / "secrets.json"),
            shell="sh",
            usage_seconds=3600.0 if case.scenario == "usage" else 0,
            **more,
        )
        self.work = self.learner.work
        (self.work / "program.py").write_text(COMMAND)
        self.learner.rewrite(command=f'exec "$PYTHON" -I -S "$WORK/program.py" {case.scenario}')
        self.log = folder / "operations"
        self.states = folder / "states"
        self.agents = 0
        self.at_death: list[bytes] = []
        """What was published whenever a new agent was started."""
        self.rescuable_bytes = 0
        """How much had been printed when a new agent was started, and the command waited for it to be recorded."""

    def operations(self) -> list[dict[str, Any]]:
        """Return what the agents have done, in order, and where they were killed."""
        return [json.loads(line) for line in self.log.read_bytes().splitlines()] if self.log.exists() else []

    def hit(self) -> list[Point]:
        """Return the points at which a process was killed."""
        return [Point(**each["killed"]) for each in self.operations() if "killed" in each]

    def finish(self) -> None:
        """Start agents, as a launch that is repeated and who observes the learner do, until its end is recorded."""
        folder = str(self.learner.folder)
        while True:
            status = status_of(folder)
            if is_over(status) and not status["alive"]:
                return
            assert is_dead(status) or not is_begun(status), status
            assert self.agents < AGENTS, self.operations()[-5:]
            self._note_death(status["state"] or {})
            self._start()
            until(lambda: not status_of(folder)["alive"], self._unfinished, seconds=20, every=0.002)

    def clear(self) -> None:
        """End what is left of it where it did not come to its end."""
        kill_agents(self.learner.marker)
        self.learner.clear()

    def _note_death(self, state: dict[str, Any]) -> None:
        self.at_death.append(self.learner.output())
        command = state.get("command_pid") or 0
        path, records = self.work / "printed", self.learner.folder / "records.jsonl"
        blocks = [int(line) for line in path.read_text().splitlines()] if path.exists() else []
        recorded = len(self.learner.records("metrics")) if records.exists() and records.stat().st_size else 0
        if recorded < len(blocks) <= BLOCKS and system.start_ticks(command) == state.get("command_ticks"):
            self.rescuable_bytes = sum(blocks)

    def _unfinished(self) -> str:
        return f"{self.case}: {self.learner.state()} {self.learner.log()} {self.operations()[-5:]}"

    def _start(self) -> None:
        """Start the next agent, and wait until it has ended; its scribe may live."""
        self.agents += 1
        with self.log.open("a") as log:
            log.write(json.dumps({"started": self.agents}) + "\n")
        config = {
            "folder": str(self.learner.folder.parent),
            "learner": str(self.learner.folder),
            "log": str(self.log),
            "states": str(self.states),
            "agent": self.agents,
            "kills": [asdict(point) for point in self.case.points],
        }
        preparation = (
            *_HURRY,
            *(_TAIL if self.case.scenario == "tail" else ()),
            f"sys.path.append({str(Path(__file__).parent)!r})",
            "import operations",
            f"operations.Operations(**{config!r}).count()",
            self.defect,
        )
        package = self.learner.argv()[-3].rpartition("/")[0]
        lines = ["import sys", f"sys.path.insert(0, {package!r})", *preparation]
        lines += ["from workbench.learner.main import main", "sys.exit(main(sys.argv[1:]))"]
        argv = [
            *self.watched_by,
            sys.executable,
            "-I",
            "-S",
            "-c",
            "\n".join(lines),
            "guard",
            str(self.learner.folder),
        ]
        environment = {**os.environ, "FABRIC_GUARD": self.learner.marker}
        with (self.learner.folder / "agent.log").open("ab") as log:
            self.learner.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )
        ended(self.learner.process, self._unfinished, seconds=20)


SERIES: Final = (
    *map(Case, SCENARIOS),
    # A second scribe goes on, which writes again what may be lost.
    Case.parse("plain: scribe1.1 splice output.log 2 after"),
    Case.parse("tail: scribe1.1 splice output.log 2 torn"),
    # The scribe ends the learner, and records an end of which the exit code is known.
    Case.parse("halt: guard1 write pipe:reports 1 after"),
    Case.parse("plain: guard1 rename state.json 4 after"),
    # Another agent begins: nothing is started yet, the command is held, it runs, it has ended.
    Case.parse("plain: guard1 rename state.json 2 after both"),
    Case.parse("plain: guard1 rename state.json 3 after both"),
    Case.parse("plain: scribe1.1 splice output.log 2 after both"),
    Case.parse("usage: guard1 link decision.json 1 after both"),
)
"""Cases whose operations behind the last point are points, too: what recovers from a cut is cut itself."""


def points_behind(run: Run) -> list[Point]:
    """Return the points of a run that lie behind the last one at which a process was killed in it."""
    operations = run.operations()
    killed = [number for number, each in enumerate(operations) if "killed" in each]
    return list(_points_of(operations[killed[-1] if killed else 0 :]))


def _points_of(operations: Sequence[dict[str, Any]]) -> Iterator[Point]:
    """Yield the points that operations have, each with the other process of its agent alive and killed too."""
    for each in operations:
        if "number" not in each:
            continue
        torn = ("torn",) if each["is_torn"] else ()
        modes = (each["only"],) if each["only"] else ("before", *torn, "after")
        for mode in modes:
            for both in (False,) if each["is_alone"] else (False, True):
                yield Point(each["role"], each["operation"], each["target"], each["number"], mode, both)
