"""The simulated target does what the real process runner does: one script, lived by both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from backends.contract.host import Host
from backends.local.host import LocalHost
from runners.conformance.base import FOREVER
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.interface import LearnerRef, LearnerStatus, Runner
from runners.process.runner import ProcessRunner
from tests.runners.local_hosts import AgentsHere
from tests.simulation.chance import Chance
from tests.simulation.runner import Connection, SimulatedRunner
from tests.simulation.targets import FOR_EVER, Behaviour, SimulatedTarget
from tests.simulation.tasks import Process
from tests.simulation.world import World
from tests.stubs import pretend
from tests.support.kept_agents import lend_agents
from tests.support.waiting import until
from workbench.job import LearnerPhase, exit_code_of
from workbench.paths import Home
from workbench.spec import JobSpec
from workbench.store.db.database import Store

STUBBORN: Final = f"trap '' TERM; echo ready; {FOREVER}"

DOES: Final[dict[str, Callable[[], Behaviour]]] = {
    "exit 0": lambda: Behaviour(0.1, 0.1),
    "exit 3": lambda: Behaviour(0.1, 0.1, exit_code=3),
    FOREVER: lambda: Behaviour(0.1, FOR_EVER),
    STUBBORN: lambda: Behaviour(0.1, FOR_EVER, ignores_term=True),
    f"[ $LEARNER_ID = 1 ] && exit 3; {FOREVER}": lambda: Behaviour(0.1, FOR_EVER),
}
"""What the simulated learner does for each command of the script."""

FIRST_FAILS: Final = list(DOES)[-1]


class Side:
    """One of the two: makes jobs, and kills agents."""

    def __init__(
        self, runner: Runner, home_uuid: str, kill_agent: Callable[[LearnerRef], None], *, has_shell: bool
    ) -> None:
        self.runner = runner
        self.kill_agent = kill_agent
        self._has_shell = has_shell
        self._home_uuid = home_uuid
        self._made: list[LaunchedAttempt] = []

    def job(self, command: str, **spec: Any) -> LaunchedAttempt:
        """Plan a job."""
        made = LaunchedAttempt.planned(self.runner, request_of(command, home=self._home_uuid, **spec))
        self._made.append(made)
        return made

    def stubborn_job(self) -> LaunchedAttempt:
        """Launch a job that ignores SIGTERM, and wait until it does."""
        job = self.job(STUBBORN).launch()
        job.until_running()
        if self._has_shell:  # it runs a moment before it has come to its first line
            job.until_printed(b"ready")
        return job

    def close(self) -> None:
        """Remove all jobs."""
        for made in self._made:
            self.runner.remove(made.request.attempt)
        self.runner.close()


@pytest.fixture
def real(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Side]:
    """This machine, with two pretended GPUs."""
    pretend(tmp_path / "gpus", monkeypatch).add("GPU-1").add("GPU-2")
    host: Host = LocalHost(lend_agents(home))
    own = str(uuid4())  # a waiter sees the GPUs of the test that its home was made for
    side = Side(
        ProcessRunner(host, home_uuid=own),
        own,
        lambda ref: AgentsHere().kill_agent(host, ref),
        has_shell=True,
    )
    yield side
    side.close()
    host.close()


class _InTasks:
    """Calls a simulated runner as a thread of a simulated process does; the time passes until the call returns."""

    def __init__(self, world: World, runner: Runner) -> None:
        self._world = world
        self._runner = runner
        self._process = Process("test")

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._runner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            found: list[Any] = []
            scheduler = self._world.scheduler
            task = scheduler.start(self._process, lambda: found.append(method(*arguments, **named)), name)
            assert scheduler.run(scheduler.now + 3600.0, lambda: task.is_over)
            return found[0]

        return call


class _Scripted(World):
    """A world whose learners do what their command says."""

    def behaviour(self, ref: LearnerRef, spec: JobSpec) -> Behaviour:
        does = DOES[spec.framework.command]()
        if spec.framework.command == FIRST_FAILS and ref.learner == 1:
            does.run_seconds, does.exit_code = 0.5, 3
        return does


@pytest.fixture
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """A simulated host."""
    home = Home(tmp_path_factory.mktemp("simulated") / "home")
    with Store.open(home):
        pass
    world = _Scripted(Chance(1, ()), home, jobs=0, keeps_story=False)
    target = SimulatedTarget(world, "here", "local", slots=2, cpus=2.0)
    world.targets = [target]

    def kill_agent(ref: LearnerRef) -> None:
        target.kill_agent(target.learners[ref])

    runner = SimulatedRunner(Connection(target, None), home_uuid="a-home")
    calls: Any = _InTasks(world, runner)
    side = Side(calls, "a-home", kill_agent, has_shell=False)
    yield side
    side.close()
    world.checks.close()
    world.scheduler.end()


Seen = dict[int, tuple[str, int | None, str]]


def seen(statuses: dict[int, LearnerStatus] | Any) -> Seen:
    """Return what a controller decides by: the phase, the exit code, and what stopped a learner."""
    return {
        number: (str(one.phase), exit_code_of(one.exit_code, one.signal), one.stopped)
        for number, one in sorted(statuses.items())
    }


def an_attempt_that_was_not_launched_is_not_seen(side: Side) -> object:
    found = side.job(FOREVER).observe(0.0)
    return found.whole, found.seen


def a_command_ends_by_itself(side: Side) -> object:
    return [seen(side.job(command).launch().until_over()) for command in ("exit 0", "exit 3")]


def a_second_launch_starts_nothing(side: Side) -> object:
    job = side.job(FOREVER).launch()
    first = job.until_running()[1].started_us
    job.launch()
    again = side.job("exit 0").launch()
    again.until_over()
    return job.until_running()[1].started_us == first, seen(job.statuses), seen(again.launch().until_over())


def a_halted_command_ends_by_sigterm(side: Side) -> object:
    job = side.job(FOREVER).launch()
    job.until_running()
    return seen(job.stop("halt", 5.0).until_over())


def a_command_that_ignores_sigterm_is_killed_after_its_grace_period(side: Side) -> object:
    job = side.stubborn_job()
    return seen(job.stop("halt", 0.3).until_over())


def a_kill_goes_before_a_halt(side: Side) -> object:
    job = side.stubborn_job()
    return seen(job.stop("halt", 60.0).stop("kill").until_over())


def a_stop_of_what_is_over_changes_nothing(side: Side) -> object:
    job = side.job("exit 3").launch()
    job.until_over()
    return seen(job.stop("kill").until_over())


def a_stop_of_what_was_never_launched_does_nothing(side: Side) -> object:
    job = side.job("exit 3")
    job.stop("kill")
    return seen(job.launch().until_over())


def a_learner_whose_agent_is_killed_is_ended(side: Side) -> object:
    job = side.job(FOREVER).launch()
    job.until_running()
    side.kill_agent(job.ref())
    statuses = job.until_over()
    return seen(statuses), statuses[1].decided, statuses[1].reason


def the_others_are_stopped_when_one_fails(side: Side) -> object:
    job = side.job(FIRST_FAILS, learners=2).launch()
    statuses = job.until_over()
    return seen(statuses)[1], statuses[2].phase, statuses[2].stopped, statuses[1].decided


def removal_ends_what_runs(side: Side) -> object:
    job = side.job(FOREVER).launch()
    job.until_running()
    side.runner.remove(job.request.attempt)
    there = [ref for ref in side.runner.leftovers() if ref.job_id == job.request.attempt.job_id]
    return there, job.until_over()[1].phase is LearnerPhase.RUNNING


def what_runs_is_found_again(side: Side) -> object:
    job = side.job(FOREVER).launch()
    job.until_running()
    found: list[int] = []

    def is_found() -> bool:
        # A process that has only just been forked does not carry the learner's name yet.
        found[:] = [
            ref.learner for ref in side.runner.leftovers() if ref.job_id == job.request.attempt.job_id
        ]
        return bool(found)

    until(is_found, lambda: "a learner that runs is not found")
    return found


def _waits(job: LaunchedAttempt) -> list[bool]:
    job.until(lambda found: bool(found), "it is there")
    return [one.waits for _, one in sorted(job.statuses.items())]


def what_finds_no_gpus_waits_at_the_host_and_starts_when_they_are_free(side: Side) -> object:
    holder = side.job(FOREVER, gpus=2).launch()
    holder.until_running()
    job = side.job("exit 0", gpus=1, learners=2, ends_when="all").launch()
    before = _waits(job), _waits(job.launch())
    holder.stop("kill").until_over()
    ended = job.until_over()
    return before, seen(ended), [one.started_us is not None for one in ended.values()]


def what_waits_at_the_host_is_stopped_without_a_start(side: Side) -> object:
    holder = side.job(FOREVER, gpus=2).launch()
    holder.until_running()
    job = side.job("exit 0", gpus=1).launch()
    before = _waits(job)
    ended = job.stop("halt", 5.0).until_over()
    return before, seen(ended), ended[1].started_us


def what_waits_at_the_host_is_removed(side: Side) -> object:
    holder = side.job(FOREVER, gpus=2).launch()
    holder.until_running()
    job = side.job("exit 0", gpus=1).launch()
    before = _waits(job)
    side.runner.remove(job.request.attempt)
    holder.stop("kill").until_over()
    again = side.job("exit 0", gpus=2).launch().until_over()
    return before, seen(again)


SCRIPT: Final = (
    an_attempt_that_was_not_launched_is_not_seen,
    a_command_ends_by_itself,
    a_second_launch_starts_nothing,
    a_halted_command_ends_by_sigterm,
    a_command_that_ignores_sigterm_is_killed_after_its_grace_period,
    a_kill_goes_before_a_halt,
    a_stop_of_what_is_over_changes_nothing,
    a_stop_of_what_was_never_launched_does_nothing,
    a_learner_whose_agent_is_killed_is_ended,
    the_others_are_stopped_when_one_fails,
    removal_ends_what_runs,
    what_runs_is_found_again,
    what_finds_no_gpus_waits_at_the_host_and_starts_when_they_are_free,
    what_waits_at_the_host_is_stopped_without_a_start,
    what_waits_at_the_host_is_removed,
)


@pytest.mark.parametrize("part", SCRIPT, ids=lambda part: part.__name__)
def test_the_simulated_target_does_what_the_process_runner_does(
    part: Callable[[Side], object], real: Side, simulated: Side
) -> None:
    assert part(simulated) == part(real)
