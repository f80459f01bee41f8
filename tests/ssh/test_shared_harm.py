"""Two people share a host's GPUs, each from a laptop of their own, while everything that serves them is killed.

Whatever happens no GPU has two jobs, no learner runs twice, nobody takes the GPUs of a job that comes first, and every
job that was submitted comes to its end. Who is killed is drawn from a seed; ``--chaos-rounds N`` harms N times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.ssh.harms import pause
from tests.stubs import Gpus
from tests.support.box import Box
from tests.support.controllers import answers, kill
from tests.support.kept_agents import lend_agents_to
from tests.support.real_jobs import Ground
from tests.support.sshd import User, a_user, kill_all, processes_of
from tests.support.waiting import PATIENCE, patience, until
from workbench.controller.client.connect import ensure_controller
from workbench.job import TERMINAL, State
from workbench.learner.platform.lease_holders import holdings
from workbench.learner.platform.system import now_us, read_bytes
from workbench.learner.queue.entries import QueueEntry, read_entries
from workbench.learner.queue.line import OFFER_SECONDS
from workbench.learner.queue.order import in_order
from workbench.paths import Home, leases_folder
from workbench.store.db.rows import TargetRef

GPUS: Final = tuple(f"GPU-11111111-0000-0000-0000-00000000000{number}" for number in (1, 2, 3))
JOBS_EACH_HARM: Final = 2
STEADY_US: Final = round(patience(2) * 1e6)
"""A job that has waited for so long is known to whoever takes GPUs."""
SECONDS: Final = 600.0
SEED: Final = 23
LOOK_SECONDS: Final = 0.02


@pytest.fixture
def box_environment(clean_environment: Path) -> list[str]:
    """Three pretended GPUs."""
    gpus = Gpus(clean_environment / "gpus")
    for uuid in GPUS:
        gpus.add(uuid)
    return gpus.session_variables()


@dataclass(frozen=True, slots=True)
class Submitted:
    """What a job is to be."""

    succeeds: bool
    priority: int
    is_short: bool
    """Whether it is known how long it runs at most, so that it may pass others."""


@dataclass(slots=True)
class Person:
    """One who has an account at the host, and a laptop."""

    user: User
    ground: Ground
    jobs: dict[str, Submitted] = field(default_factory=dict)

    def pids(self, word: bytes) -> list[int]:
        """List the processes at the host that have a word on their command line."""
        return [pid for pid in processes_of(self.user) if word in _words(pid)]

    def agents(self) -> list[int]:
        """List the agents of learners at the host, those that were forked among them."""
        return [pid for pid in processes_of(self.user) if _environment(pid).get(b"FABRIC_GUARD")]

    def recorded_agents(self) -> list[int]:
        """List the agents that a learner's state names: until it runs its own program a command looks like one."""
        files = self.user.home.glob(".fabric/*/*/jobs/*/attempt-*/learner-*/state.json")
        states = [json.loads(file.read_text()) for file in files]
        named = {one.get(key) for one in states for key in ("pid", "scribe_pid")}
        return [pid for pid in self.agents() if pid in named]


@pytest.fixture
def people(home: Home, box: Box, tmp_path: Path) -> Iterator[tuple[Person, Person]]:
    with a_user() as other, ExitStack() as after:
        box.daemon.authorize(other, Path(f"{box.key}.pub"))
        found = []
        for user, made in ((box.user, home), (other, Home(tmp_path / "theirs"))):
            address = box.address.replace(box.user.name, user.name)
            ground = Ground(made, TargetRef("box", "ssh", "process", address=address))
            lend_agents_to(user, made)
            after.callback(ground.clean_up)
            found.append(Person(user, ground))
        yield found[0], found[1]


# What is done


def _kill(pids: Callable[[], list[int]], draw: random.Random) -> None:
    """Kill one of these processes, of which there is one soon."""
    with suppress(ProcessLookupError):
        os.kill(draw.choice(until(pids, "somebody to be killed")), signal.SIGKILL)


def kill_controller(_: Box, person: Person, __: random.Random) -> None:
    """A laptop's controller crashes, and some command starts the next one."""
    kill(answers(person.ground.home).pid)
    ensure_controller(person.ground.home)


def _has_job(person: Person) -> None:
    """Have a person have a job for a while: of those before none may be left."""
    job_id = person.ground.submit("sleep 2", gpus=1, max_platform_restarts=50)
    person.jobs[job_id] = Submitted(succeeds=True, priority=50, is_short=False)


def kill_waiter(_: Box, person: Person, draw: random.Random) -> None:
    _has_job(person)
    _kill(lambda: person.pids(b"waiter") or person.recorded_agents(), draw)


def kill_agent(_: Box, person: Person, draw: random.Random) -> None:
    """The guard of a learner, or its scribe."""
    _has_job(person)
    _kill(person.recorded_agents, draw)


def kill_connection(_: Box, person: Person, draw: random.Random) -> None:
    _kill(lambda: person.pids(b"host"), draw)


def kill_sessions(box: Box, _: Person, __: random.Random) -> None:
    box.daemon.kill_sessions()


def stop_sshd(box: Box, _: Person, draw: random.Random) -> None:
    box.daemon.stop()
    pause(draw, 0.2, 1.5)
    box.daemon.start()


def kill_everything_of(_: Box, person: Person, __: random.Random) -> None:
    """As an administrator does, or the kernel when memory is short."""
    kill_all(person.user)


HARMS: Final[dict[str, Callable[[Box, Person, random.Random], None]]] = {
    "shared host: controller killed": kill_controller,
    "shared host: waiter killed": kill_waiter,
    "shared host: agent killed": kill_agent,
    "shared host: connection's agent killed": kill_connection,
    "shared host: sshd's sessions killed": kill_sessions,
    "shared host: sshd away": stop_sshd,
    "shared host: all of a person's processes killed": kill_everything_of,
}


# What is seen


def _words(pid: int) -> list[bytes]:
    return read_bytes(f"/proc/{pid}/cmdline").split(b"\0")


def _environment(pid: int) -> dict[bytes, bytes]:
    pairs = (entry.partition(b"=") for entry in read_bytes(f"/proc/{pid}/environ").split(b"\0"))
    return {name: value for name, _, value in pairs}


Seen = dict[bytes, dict[bytes, int]]
"""Who has something, each with a process that shows it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Who had GPUs at an instant, and who waited for some."""

    at_us: int
    holders: Counter[str]
    """How many GPUs a job has, by its id."""
    waiting: Mapping[str, QueueEntry]
    """Entries of the host's queue, by the ids of their jobs."""

    @classmethod
    def now(cls) -> Moment:
        """Look now."""
        folder = str(leases_folder())
        holders = Counter(str(one.document.get("job")) for one in holdings(folder, GPUS).values())
        return cls(now_us(), holders, {entry.job: entry for entry in read_entries(folder)})


def judged_takings(moments: Sequence[Moment], jobs: Mapping[str, Submitted]) -> Iterator[tuple[str, bool]]:
    """Yield what was seen of each job that took GPUs while another one waited on, and whether it was its turn.

    It was not where the other one comes first and has too few now, unless that needs more and is passed by a short job.
    One that could have had its GPUs for a minute is waited for no longer: those that have waited so long are left out.
    """
    for before, moment in pairwise(moments):
        near = [one for one in moments if -STEADY_US <= one.at_us - moment.at_us <= STEADY_US // 4]
        if near[0].at_us > moment.at_us - STEADY_US * 3 // 4 or near[-1] is moment:
            continue
        ranks = {entry.job: rank for rank, entry in enumerate(in_order(before.waiting.values()))}
        left = len(GPUS) - moment.holders.total()
        for job in set(moment.holders) - set(before.holders):
            for other in before.waiting.values():
                if job not in ranks or other.job == job or not all(_waits(other, one) for one in near):
                    continue
                if moment.at_us - other.since_us > OFFER_SECONDS * 1e6:
                    continue
                may_pass = other.gpus > moment.holders[job] and jobs[job].is_short
                is_passed = ranks[other.job] < ranks[job] and left < other.gpus and not may_pass
                yield f"{job} took {moment.holders[job]} GPUs while {other} waited", not is_passed


def _waits(entry: QueueEntry, moment: Moment) -> bool:
    found = moment.waiting.get(entry.job)
    return found is not None and found.since_us == entry.since_us


@dataclass(slots=True)
class Witness:
    """Looks all the time at which commands have which GPU, as the kernel shows their processes."""

    people: tuple[Person, Person]
    found: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    looks: int = 0
    most: int = 0
    """The most commands that were seen at once."""

    def look(self) -> None:
        """Note each GPU that two jobs have, and each job of which two attempts run.

        Processes are read one after the other: those that were seen first have to be there still at the end.
        """
        holders: Seen = {}
        attempts: Seen = {}
        for person in self.people:
            for pid in processes_of(person.user):
                known = _environment(pid)
                # Agents do not have both; what a command starts inherits them.
                learner, gpus = known.get(b"FABRIC_LEARNER", b""), known.get(b"CUDA_VISIBLE_DEVICES", b"")
                if not learner or not gpus:
                    continue
                home, job, attempt, _ = learner.split(b"/")[:4]
                attempts.setdefault(home + job, {})[attempt] = pid
                for uuid in gpus.split(b","):
                    holders.setdefault(uuid, {})[learner] = pid
        self.moments.append(Moment.now())
        self.looks += 1
        self.most = max(self.most, len(attempts))
        for what, who in (*holders.items(), *attempts.items()):
            there = [one.decode() for one, pid in who.items() if _environment(pid).get(b"FABRIC_LEARNER")]
            if len(there) > 1:
                self.found.append(f"{what.decode()}: {sorted(there)}")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look until the block is over."""
        over = threading.Event()

        def watch() -> None:
            try:
                while not over.wait(LOOK_SECONDS):
                    self.look()
            except Exception as error:
                self.found.append(f"the witness: {error!r}")
                raise

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def submit(person: Person, draw: random.Random, noted: Path) -> None:
    """Submit a job that notes its attempt and runs for a moment."""
    job = Submitted(draw.random() < 0.8, draw.choice((40, 50, 60)), draw.random() < 0.5)
    end = "exit 0" if job.succeeds else "exit 3"
    job_id = person.ground.submit(
        f"echo $FABRIC_LEARNER >> {noted}; sleep {draw.uniform(0.0, 0.6):.2f}; {end}",
        gpus=draw.choice((1, 1, 1, 2, 3)),
        priority=job.priority,
        max_runtime_seconds=30.0 if job.is_short else None,
        max_restarts=draw.choice((0, 1)),
        max_platform_restarts=50,
    )
    person.jobs[job_id] = job


def show_two_jobs(people: Sequence[Person], witness: Witness, released: Path) -> None:
    """Have a job of each person run until both are seen: who sees no two at once sees nothing."""
    for person in people:
        job_id = person.ground.submit(f"until [ -e {released} ]; do sleep 0.05; done", gpus=1)
        person.jobs[job_id] = Submitted(succeeds=True, priority=50, is_short=False)
    until(lambda: witness.most > 1, lambda: f"{witness.most} at once in {witness.looks} looks")
    released.touch()


@pytest.mark.soak(
    "random harm; the gate lives simulated histories of a host's queue, and kills one at a time "
    "(tests/ssh/test_handed_over.py)"
)
def test_two_people_share_a_host_whatever_is_killed(
    box: Box,
    people: tuple[Person, Person],
    tmp_path: Path,
    chaos_rounds: int | None,
    note_harm: Callable[[str], None],
) -> None:
    draw = random.Random(SEED)
    noted = tmp_path / "noted"
    noted.touch(mode=0o666)
    noted.chmod(0o666)
    for folder in noted.parents:
        folder.chmod(folder.stat().st_mode | 0o011)
    kinds = list(HARMS)
    harms = len(kinds) if chaos_rounds is None else chaos_rounds
    witness = Witness(people)
    with witness.watching():
        show_two_jobs(people, witness, tmp_path / "released")
        for number in range(harms):
            for _ in range(JOBS_EACH_HARM):
                submit(draw.choice(people), draw, noted)
                pause(draw, 0.0, 0.3)
            kind = kinds[number] if number < len(kinds) else draw.choice(kinds)
            HARMS[kind](box, draw.choice(people), draw)
            note_harm(kind)
        for person in people:
            for job_id, job in person.jobs.items():
                row = person.ground.reaches(job_id, *TERMINAL, seconds=SECONDS)
                assert row.state is (State.COMPLETED if job.succeeds else State.FAILED), row
                assert job.succeeds or row.exit_code == 3, row

    assert witness.found == []
    judged = list(judged_takings(witness.moments, people[0].jobs | people[1].jobs))
    assert [text for text, was_its_turn in judged if not was_its_turn] == []
    is_quick = chaos_rounds is None or PATIENCE > 1
    assert judged or is_quick, "of the few of one round, or that wait for so long, there may be none"
    begun = Counter(noted.read_text().split())
    assert [learner for learner, count in begun.items() if count > 1] == []
    until(lambda: read_entries(str(leases_folder())) == [], lambda: f"{read_entries(str(leases_folder()))}")
    until(
        lambda: not [pid for person in people for pid in person.agents()],
        lambda: f"{[_words(pid) for person in people for pid in processes_of(person.user)]}",
    )
