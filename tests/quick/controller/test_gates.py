"""Which jobs that a gate holds back are given to their host, and what it is to watch for them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runners.interface import AttemptRef, HostGates, HostWait, LearnerRef, Predecessor, SweepLimit
from tests.quick.controller.values import HOME, learner, lost, row, spec
from workbench.clock import now_us
from workbench.controller.decide.messages import CapacityMeasured, Observed
from workbench.controller.decide.model import BackendTrouble, Operation
from workbench.controller.decide.scheduler import Capacity, LinedUpJob, QueueVerdict
from workbench.controller.loop.context import AwaitedProbe, ControllerContext, target_key
from workbench.controller.loop.event_handler import EventHandler
from workbench.controller.loop.job_state import TrackedJob
from workbench.controller.loop.queue import HANDED_OVER_AT_ONCE, HOST_PATH, Gates, HostLine, JobQueue
from workbench.controller.targets.opener import LineUp, SentEntries, host_entry
from workbench.errors import TryAgain
from workbench.job import Intent, JobId, LearnerPhase, Reason, State
from workbench.paths import Home
from workbench.spec import DataStore, Framework, ImageBuild, JobSpec
from workbench.store.db.rows import WATCHED, TargetRef
from workbench.store.queries.home_queue import QueuePosition
from workbench.time_expressions import local_iso

BOX = TargetRef("gpubox", "ssh", "process", "gpubox")
BY_ANOTHER = replace(BOX, backend="again", options={"share_names": True})
"""The same machine by another connection."""
LATER_US = 4_000_000_000_000_000
LATER = local_iso(LATER_US)


def job(
    name: str, state: State = State.QUEUED, *, waits: bool = False, of: JobSpec | None = None, **fields: Any
) -> TrackedJob:
    """A job at the box; ``waits`` at its host."""
    fields = {"target": BOX, "learners": 1, **fields}
    tracked = TrackedJob(row(state, id=JobId(name), name=name, **fields), of or spec(), HOME)
    tracked.is_handed_over = waits
    tracked.stands_at(QueuePosition(tracked.spec.priority, 1.0))
    return tracked


def container(*after: str, name: str = "b", **keys: Any) -> TrackedJob:
    """A container job at the box."""
    return job(name, of=spec(after=after, **keys), target=replace(BOX, runner="container"))


def hold(*jobs: TrackedJob) -> list[TrackedJob]:
    """Set the verdicts of those that wait; return the free ones."""
    context = SimpleNamespace(jobs={one.row.id: one for one in jobs}, uuid=HOME, now=lambda: 0.0, store=None)
    gates = Gates(cast(ControllerContext, context))
    free, _ = gates.hold([one for one in jobs if one.row.state is State.QUEUED])
    return free


def is_given(tracked: TrackedJob) -> bool:
    return tracked.verdict is not None and tracked.verdict.hand_over


AFTER_A = spec(after=("a:completed",))
RUNS = job("a", State.PROCESSING)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param(RUNS, True, id="it runs there"),
        pytest.param(job("a", State.STORING), True, id="it stores its results there"),
        pytest.param(job("a", waits=True), True, id="it waits there itself"),
        pytest.param(
            job("a", State.PROCESSING, target=replace(BOX, runner="container")), True, id="a container"
        ),
        pytest.param(job("a"), False, id="it waits here"),
        pytest.param(job("a", State.PROCESSING, intent=Intent.HALT), False, id="it is being halted"),
        pytest.param(job("a", State.PROCESSING, target=replace(BOX, address="other")), False, id="elsewhere"),
        pytest.param(
            job("a", State.PROCESSING, target=TargetRef("k8s", "kubernetes", "pod", "gpubox")),
            False,
            id="a pod",
        ),
        pytest.param(
            job("a", State.PROCESSING, target=replace(BOX, options={"of_home": "another"})),
            False,
            id="another home",
        ),
    ],
)
def test_a_job_is_given_to_its_host_where_that_sees_the_end_of_the_one_before_it(
    before: TrackedJob, expected: bool
) -> None:
    b = job("b", of=AFTER_A)

    hold(before, b)

    assert b.verdict is not None
    assert b.verdict.reason == "waits for a a to complete"
    assert is_given(b) is expected


@pytest.mark.parametrize(("options", "expected"), [({}, ""), ({"share_names": "true"}, "digits v2")])
def test_its_host_learns_its_name_where_it_is_shared(options: dict[str, str], expected: str) -> None:
    one = job("a", of=replace(spec(), name="digits  v2"), target=replace(BOX, options=options))

    assert host_entry(one.line_entry())["name"] == expected


def test_its_host_learns_whose_end_it_waits_for_and_which_attempts_may_follow() -> None:
    before = job("a", State.PROCESSING, of=spec(max_restarts=3), attempt=2, restarts=1, learners=2)
    b = job("b", of=spec(after=("a:ended",), begin=LATER))

    hold(before, b)

    predecessor = Predecessor(AttemptRef(HOME, "a", 2, 2), True, 2, 3)
    assert b.verdict is not None
    assert b.verdict.wait == HostWait("waits for a a to end", HostGates(LATER_US, (predecessor,)))


@pytest.mark.parametrize(
    ("tracked", "expected"),
    [
        pytest.param(job("b", of=spec(begin=LATER)), True, id="a time"),
        pytest.param(job("b", of=spec(begin=LATER), target=replace(BOX, runner="pod")), False, id="a pod"),
        pytest.param(container(begin=LATER), True, id="a container"),
        pytest.param(container(begin=LATER, image_pull="always"), False, id="an image pulled at each start"),
        pytest.param(container("a:completed"), True, id="an image that its host may have"),
        pytest.param(container("a:completed", build=ImageBuild()), True, id="an image that may be built"),
        pytest.param(
            container("a:completed", image_pull="always"),
            False,
            id="an image that the job before it may push",
        ),
        pytest.param(
            job("b", of=spec(begin=LATER), target=replace(BOX, options={"on_demand": {"start": "up"}})),
            False,
            id="a machine that it would start",
        ),
        pytest.param(
            job("b", of=spec(begin=LATER), target=replace(BOX, options={WATCHED: True})),
            False,
            id="another laptop's",
        ),
        pytest.param(
            job("b", of=spec(begin=LATER, at_most=1), labels={"sweep": "s"}), True, id="a sweep with a limit"
        ),
        pytest.param(
            job("b", of=replace(AFTER_A, python="requirements", requirements=("./lib",))),
            False,
            id="packages that the job before it may make",
        ),
        pytest.param(
            job("b", of=replace(AFTER_A, python="requirements", requirements=("numpy",))), True, id="packages"
        ),
    ],
)
def test_what_could_be_prepared_wrongly_or_at_a_cost_waits_here(tracked: TrackedJob, expected: bool) -> None:
    hold(job("a", State.PROCESSING), tracked)

    assert is_given(tracked) is expected


def reads(job_id: str, image: str, **fields: Any) -> JobSpec:
    """The specification of a job that reads the results of another one."""
    store = DataStore("data", HOST_PATH, "results", connection={"path": f"/home/jobs/{job_id}"})
    return in_image(image, data_stores=(store,), **fields)


def in_image(image: str, **fields: Any) -> JobSpec:
    return replace(spec(**fields), framework=Framework(version=image, command="true"))


@pytest.mark.parametrize(
    ("runner", "of", "expected"),
    [
        pytest.param("container", reads("a", "one", after=("a:completed",)), True, id="the same image"),
        pytest.param("container", reads("a", "two", after=("a:completed",)), False, id="another image"),
        pytest.param("process", reads("a", "one", after=("a:completed",)), False, id="a process"),
        pytest.param("process", reads("b", "one", after=("a:completed",)), True, id="another job's files"),
        pytest.param("container", in_image("two", after=("a:completed",)), True, id="it reads nothing of it"),
        pytest.param(
            "container",
            reads("a", "one", after=("a:completed",), build=ImageBuild()),
            False,
            id="an image that is built",
        ),
    ],
)
def test_who_reads_what_a_container_before_it_writes_goes_ahead_as_the_same_user_alone(
    runner: str, of: JobSpec, expected: bool
) -> None:
    before = job("a", State.PROCESSING, of=in_image("one"), target=replace(BOX, runner="container"))
    tracked = job("c", of=of, target=replace(BOX, runner=runner))

    hold(before, tracked)

    assert is_given(tracked) is expected


def swept(
    name: str, state: State = State.QUEUED, *, at_most: int | None = 2, waits: bool = False, **fields: Any
) -> TrackedJob:
    """A job of the sweep ``s``."""
    return job(name, state, waits=waits, of=spec(at_most=at_most), labels={"sweep": "s"}, **fields)


def replace_row(tracked: TrackedJob, **fields: Any) -> TrackedJob:
    tracked.row = replace(tracked.row, **fields)
    return tracked


def limit_of(tracked: TrackedJob) -> SweepLimit | None:
    wait = None if tracked.verdict is None else tracked.verdict.wait
    return None if wait is None else wait.gates.limit


def attempt_of(name: str) -> AttemptRef:
    return AttemptRef(HOME, name, 1, 1)


WAITS_FOR_ITS_SWEEP = "waits: 2 of its sweep may run at once"


def test_those_of_a_sweep_that_may_not_run_yet_are_given_to_their_host_with_its_limit() -> None:
    runs, starts, b, c = swept("a", State.PROCESSING), swept("b"), swept("c"), swept("d")

    assert hold(runs, starts, b, c) == [starts]

    limit = SweepLimit("s", 2, (attempt_of("a"), attempt_of("b")))
    for one in (b, c):
        assert is_given(one)
        assert one.verdict is not None
        assert one.verdict.reason == WAITS_FOR_ITS_SWEEP
        assert limit_of(one) == limit


def test_a_trial_waits_for_others_of_its_search() -> None:
    waiting = swept("a", parent="experiment-abcdefghj"), swept("b"), swept("c")
    hold(swept("r", State.PROCESSING), swept("s", State.PROCESSING), *waiting)

    assert [one.verdict.reason for one in waiting if one.verdict is not None] == [
        "waits: 2 of its search may run at once", WAITS_FOR_ITS_SWEEP, WAITS_FOR_ITS_SWEEP
    ]  # fmt: skip


def test_once_a_host_has_some_of_a_sweep_it_starts_all_others() -> None:
    there, b = swept("a", waits=True), swept("b")

    assert hold(there, b) == [there]

    assert is_given(b)
    assert limit_of(b) == SweepLimit("s", 2)


def test_what_is_prepared_for_its_host_is_not_under_way() -> None:
    runs, ahead, b, c = swept("a", State.PROCESSING), swept("b"), swept("c"), swept("d")
    hold(runs, swept("e", State.PROCESSING), ahead)
    ahead.row = replace(ahead.row, state=State.PENDING)

    assert hold(runs, ahead, b, c) == []

    assert limit_of(b) == SweepLimit("s", 2, (attempt_of("a"),))


def test_one_that_its_host_did_not_take_waits_until_those_there_are_through() -> None:
    there, b = swept("a", waits=True), swept("b")
    hold(there, b)
    b.stays_here = True

    assert hold(there, b) == [there]
    assert not is_given(b)
    assert b.verdict is not None
    assert b.verdict.reason == WAITS_FOR_ITS_SWEEP

    assert hold(swept("a", State.PROCESSING), b) == [b]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(swept("x", State.PROCESSING, target=replace(BOX, address="other")), id="another host"),
        pytest.param(swept("x", target=TargetRef("k8s", "kubernetes", "pod", "gpubox")), id="a cluster"),
        pytest.param(swept("x", target=replace(BOX, options={"of_home": "another"})), id="another home"),
    ],
)
def test_a_sweep_over_several_hosts_is_counted_here(other: TrackedJob) -> None:
    runs, b = swept("a", State.PROCESSING), swept("b")
    third = swept("c")

    hold(runs, other, b, third)

    assert not is_given(b)
    assert not is_given(third)
    assert third.verdict is not None
    assert third.verdict.reason == WAITS_FOR_ITS_SWEEP


def test_what_has_a_limit_at_its_host_keeps_it_when_others_of_the_sweep_go_elsewhere() -> None:
    runs, c = swept("a", State.PROCESSING), swept("c", at_most=1)
    hold(runs, c)
    c.is_handed_over = True
    elsewhere = swept("x", State.PROCESSING, target=replace(BOX, address="other"))

    hold(runs, elsewhere, c)

    gates = c.line_entry().gates
    assert gates is not None
    assert gates.limit == SweepLimit("s", 1, (attempt_of("a"), attempt_of("x")))
    # What has ended elsewhere its host cannot see.
    hold(runs, replace_row(elsewhere, state=State.COMPLETED), c)
    gates = c.line_entry().gates
    assert gates is not None
    assert gates.limit == SweepLimit("s", 1, (attempt_of("a"),))


def test_the_next_controller_lifts_no_limit_of_a_sweep_that_goes_elsewhere_too() -> None:
    there = swept("a", waits=True)
    elsewhere = swept("x", State.PROCESSING, target=replace(BOX, address="other"))

    hold(there, elsewhere)

    gates = there.line_entry().gates
    assert gates is not None
    assert gates.limit == SweepLimit("s", 2, (attempt_of("x"),))


def test_of_a_sweep_over_several_hosts_those_at_a_host_count_and_the_others_go_on() -> None:
    there = swept("a", waits=True)
    elsewhere = [swept(name, target=replace(BOX, address="other")) for name in ("x", "y")]

    assert hold(there, *elsewhere) == [there, elsewhere[0]]

    assert elsewhere[1].verdict is not None
    assert elsewhere[1].verdict.reason == WAITS_FOR_ITS_SWEEP


def test_a_new_waiter_is_given_who_is_under_way() -> None:
    runs, c, d = swept("a", State.PROCESSING), swept("c", at_most=1), swept("d", at_most=1)
    hold(runs, c, d)
    for one in (c, d):
        one.is_handed_over = True
    c.transitioned(replace(c.row, state=State.PROCESSING))
    completed = swept("a", State.COMPLETED)
    hold(completed, c, d)
    assert c.is_from_waiter

    d.statuses = {1: learner(1, LearnerPhase.STARTING, cut_off=True)}
    hold(completed, c, d)

    wait = d.wait_at_host()
    assert wait is not None
    assert wait.gates.limit == SweepLimit("s", 1, (attempt_of("c"),))


def test_what_a_controller_before_was_launching_counts_for_those_that_wait() -> None:
    launched, ahead = swept("a", State.PENDING, at_most=1), swept("b", State.PENDING, at_most=1)
    context = SimpleNamespace(jobs={"a": launched, "b": ahead}, uuid=HOME, now=lambda: 0.0)

    Gates(cast(ControllerContext, context)).judge_anew([launched, ahead])

    wait = ahead.wait_at_host()
    assert wait is not None
    assert wait.gates.limit == SweepLimit("s", 1, (attempt_of("a"),))


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_job_that_is_given_again_before_it_is_judged_keeps_its_limit(gpus: int) -> None:
    c = swept("c", waits=True)
    c.spec = replace(c.spec, gpus=gpus)
    hold(swept("a", State.PROCESSING), swept("b", State.PROCESSING), c)
    c.verdict = None

    wait = c.wait_at_host()

    assert wait is not None
    assert wait.gates == HostGates(limit=SweepLimit("s", 2, (attempt_of("a"), attempt_of("b"))))


def test_a_job_without_the_limit_that_its_host_has_started_counts() -> None:
    runs, c = swept("a", State.PROCESSING), swept("c")
    unlimited = swept("x", at_most=None, waits=True)
    hold(runs, unlimited, c)
    c.is_handed_over = True

    unlimited.transitioned(replace(unlimited.row, state=State.PROCESSING))
    hold(runs, unlimited, c)

    gates = c.line_entry().gates
    assert gates is not None
    assert gates.limit == SweepLimit("s", 2, (attempt_of("a"), attempt_of("x")))


def test_one_of_a_sweep_that_waits_for_a_time_leaves_the_others_to_the_controller() -> None:
    later = swept("a", waits=True)
    later.spec = replace(later.spec, begin=LATER)
    b = swept("b")
    hold(later, b)

    assert hold(later, b) == [b]


def test_a_sweep_of_which_a_host_has_refused_some_is_counted_here() -> None:
    refused = [swept(name) for name in "abc"]
    for one in refused:
        one.stays_here = True

    assert hold(swept("x", State.PROCESSING), *refused) == refused[:1]
    assert not any(map(is_given, refused))


def test_a_sweep_whose_image_is_pulled_at_each_start_is_counted_here() -> None:
    jobs = [swept(name, target=replace(BOX, runner="container")) for name in "abc"]
    for one in jobs:
        one.spec = replace(one.spec, image_pull="always")

    assert hold(*jobs) == jobs[:2]
    assert not is_given(jobs[2])


def test_a_large_sweep_leaves_room_for_those_behind_gates() -> None:
    there = [swept(f"b{number}", waits=True) for number in range(HANDED_OVER_AT_ONCE)]
    hold(*there)
    more, later = swept("c"), job("d", of=spec(begin=LATER))

    hold(*there, more, later)

    assert [is_given(more), is_given(later)] == [False, True]


def test_a_job_that_is_to_be_tried_again_later_is_not_prepared_before() -> None:
    b = job("b", of=spec(begin=LATER))
    b.not_before = 5.0

    hold(b)

    assert not is_given(b)


def test_what_a_host_sees_by_itself_is_not_sent_to_it() -> None:
    runs, c, d = swept("a", State.PROCESSING), swept("c"), swept("d")
    begun = swept("b", State.PROCESSING)
    hold(runs, begun, c, d)
    for one in (c, d):
        one.is_handed_over = True
    given = d.line_entry().gates

    hold(swept("a", State.COMPLETED), begun, c, d)
    assert d.line_entry().gates == given

    # Its host starts the next one, which is under way then.
    c.transitioned(replace(c.row, state=State.PENDING))
    hold(swept("a", State.COMPLETED), begun, c, d)
    assert c.is_from_waiter
    assert d.line_entry().gates == given


@pytest.mark.parametrize(
    "over",
    [
        pytest.param(
            swept("a", State.FAILED), id="its agent may be lost, and nobody has written that it ended"
        ),
        pytest.param(swept("a", State.COMPLETED, deleted_us=1), id="its folder is removed"),
    ],
)
def test_what_a_host_may_not_see_is_sent_to_it(over: TrackedJob) -> None:
    runs, begun, c = swept("a", State.PROCESSING), swept("b", State.PROCESSING), swept("c")
    hold(runs, begun, c)
    c.is_handed_over = True

    hold(over, begun, c)

    gates = c.line_entry().gates
    assert gates is not None
    assert gates.limit == SweepLimit("s", 2, (attempt_of("b"),))


def test_a_member_that_is_started_from_here_is_sent_to_those_that_wait_there() -> None:
    runs, begun, c = swept("a", State.PROCESSING), swept("b", State.PROCESSING), swept("c")
    hold(runs, begun, c)
    c.is_handed_over = True
    unlimited = swept("x", State.PROCESSING, at_most=None)

    hold(runs, begun, unlimited, c)

    gates = c.line_entry().gates
    assert gates is not None
    assert gates.limit is not None
    assert attempt_of("x") in gates.limit.others


def test_no_more_are_given_to_a_host_than_it_goes_on_with() -> None:
    there = [job(f"b{number}", waits=True, of=spec(begin=LATER)) for number in range(HANDED_OVER_AT_ONCE - 1)]
    more = [job(f"c{number}", of=spec(begin=LATER)) for number in range(2)]
    hold(*there)

    hold(*there, *more)

    assert [is_given(one) for one in more] == [True, False]


def test_only_few_are_prepared_at_once_ahead_of_their_turn() -> None:
    jobs = [job(f"b{number}", of=spec(begin=LATER)) for number in range(4)]
    hold(*jobs)
    assert [is_given(one) for one in jobs] == [True, True, False, False]

    for one in jobs[:2]:
        one.row = replace(one.row, state=State.PENDING)
    hold(*jobs)
    assert not any(is_given(one) for one in jobs[2:])

    jobs[0].row, jobs[0].is_handed_over = replace(jobs[0].row, state=State.QUEUED), True
    hold(*jobs)
    assert [is_given(one) for one in jobs[2:]] == [True, False]


def test_a_job_that_its_host_has_let_go_outlives_the_deletion_of_the_one_before_it() -> None:
    b = job("b", waits=True, of=AFTER_A)

    assert hold(job("a", State.COMPLETED, deleted_us=1), b) == [b]


@pytest.mark.parametrize("waits", [True, False])
def test_a_deletion_of_the_one_before_it_ends_a_job_that_waits_for_it(waits: bool) -> None:
    b = job("b", waits=waits, of=AFTER_A)

    assert hold(job("a", State.FAILED, deleted_us=1), b) == []

    assert b.verdict == QueueVerdict(False, never="it comes after a, which was deleted")


def test_one_that_its_host_did_not_take_is_given_to_it_once_its_gates_are_open() -> None:
    b = job("b", of=spec(begin=LATER))
    hold(b)
    b.stays_here = True
    b.spec = replace(b.spec, begin="")

    hold(b)

    assert not b.stays_here


def test_who_asks_for_cpus_is_given_to_a_host_once_that_knows_all_who_have_some() -> None:
    starts = job("a", State.PENDING, of=spec(cpus=2.0))
    starts.call(Operation.LAUNCH)
    b = job("b", of=spec(begin=LATER, cpus=2.0))
    hold(starts, b)
    assert not is_given(b)

    starts.launched(0.0)
    hold(starts, b)

    assert is_given(b)


def test_processes_and_containers_are_given_past_no_launch_of_each_other_that_takes_cpus() -> None:
    for starts, waits in (
        (job("a", of=spec(cpus=2.0)), container(begin=LATER, cpus=2.0)),
        (container(name="a", cpus=2.0), job("b", of=spec(begin=LATER, cpus=2.0))),
    ):
        starts.row = replace(starts.row, state=State.PENDING)
        starts.call(Operation.LAUNCH)
        hold(starts, waits)
        assert not is_given(waits)

        starts.launched(0.0)
        hold(starts, waits)
        assert is_given(waits)


def test_one_that_its_host_did_not_take_is_not_tried_again() -> None:
    b = job("b", of=spec(begin=LATER))
    hold(b)
    b.launching_wait = b.wait_at_host()
    b.call(Operation.LAUNCH)

    b.call_failed(BackendTrouble("refused", Reason("there is no such folder", "C104"), started=True), 0.0)
    hold(b)

    assert b.fault is None
    assert not is_given(b)


def test_a_host_that_does_not_answer_is_waited_for() -> None:
    b = job("b", of=spec(begin=LATER))
    b.launch_unreachable = True
    b.is_away("gpubox cannot be reached", 0.0)

    hold(b)

    assert not is_given(b)
    b.reachable_again()
    hold(b)
    assert is_given(b)


def test_gates_that_are_open_here_are_open_there() -> None:
    b = job("b", waits=True, of=spec(after=("a:ended",), begin=local_iso(now_us() - 1_000_000)))
    over = job("a", State.FAILED)

    assert hold(over, b) == [b]

    assert b.line_entry().gates == HostGates()


def test_the_gates_of_a_job_that_waits_there_name_the_attempt_that_is_to_come() -> None:
    again = job("a", attempt=2, restarts=1, next_try_us=1, of=spec(max_restarts=1))
    b = job("b", waits=True, of=spec(after=("a:ended",)))

    hold(again, b)

    gates = b.line_entry().gates
    assert gates is not None
    assert gates.after == (Predecessor(AttemptRef(HOME, "a", 2, 1), True, 0, 3),)


def test_one_whose_predecessor_cannot_complete_stays_behind_its_gate_until_it_is_ended() -> None:
    failed = job("a", State.FAILED)
    b = job("b", waits=True, of=AFTER_A)

    assert hold(failed, b) == []

    assert b.verdict == QueueVerdict(False, never="it comes after a a, which failed")
    assert b.line_entry().gates != HostGates()


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(learner(1, LearnerPhase.STARTING, cut_off=True), True, id="its waiter died"),
        pytest.param(lost(1, started_us=None), True, id="it never began"),
        pytest.param(learner(1), False, id="one of its learners runs"),
    ],
)
def test_a_launch_that_is_repeated_starts_nothing_that_is_held_back(seen: Any, expected: bool) -> None:
    b = job("b", waits=True, of=spec(begin=LATER))
    hold(b)
    b.statuses = {1: seen}

    assert (b.wait_at_host() is not None) is expected


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        pytest.param(spec(begin=LATER), HostGates(LATER_US), id="a time"),
        pytest.param(
            AFTER_A,
            HostGates(after=(Predecessor(AttemptRef(HOME, "a", 1, 1), False, 0, 3),)),
            id="a job before it",
        ),
        pytest.param(spec(cpus=2.0), HostGates(), id="CPUs, which its host sees"),
        pytest.param(spec(), None, id="nothing"),
    ],
)
def test_one_that_a_controller_before_was_preparing_is_judged_anew(
    of: JobSpec, expected: HostGates | None
) -> None:
    b = job("b", State.PENDING, of=of)
    context = SimpleNamespace(jobs={"a": RUNS, "b": b}, uuid=HOME)

    Gates(cast(ControllerContext, context)).judge_anew([b])

    wait = b.wait_at_host()
    assert (None if wait is None else wait.gates) == expected


@pytest.mark.parametrize("refused", [1, 3])
def test_one_that_its_host_did_not_take_does_not_wait_for_those_there_that_come_after_it(
    refused: int,
) -> None:
    """With three refusals the sweep is counted here."""
    here = [swept(name) for name in "bcd"[:refused]]
    for one in here:
        one.stays_here = True
    after, later = swept("x", waits=True), swept("y", waits=True)
    after.spec = replace(after.spec, after=("b:completed",))
    later.spec = replace(later.spec, after=("x:completed",))

    assert hold(after, later, *here) == here[:2]


def test_a_host_is_asked_about_the_next_attempt_though_it_waits_as_the_one_before_did() -> None:
    """Each was resumed at once, so that nothing but its number tells what the host was asked last."""
    tracked = TrackedJob(row(State.QUEUED, attempt=5), spec(), HOME)
    tracked.is_handed_over = tracked.has_gates = True
    tracked.gates = HostGates()
    line, asked = HostLine(cast(Any, None)), LineUp((), handed_over=(tracked.line_entry(),))
    line.answered(CapacityMeasured("box", None, 0, "", lined_up=frozenset(asked.handed_over)), 0.0, 0.0)
    assert line.due(asked, 0.0) is None

    tracked.row = replace(tracked.row, attempt=6)

    asked_next = tracked.line_entry()
    assert line.due(LineUp((), handed_over=(asked_next,)), 0.0) == 0.0
    assert host_entry(asked_next, Home(Path("/home")))["attempt"] == 6


class HostAsked:
    """The queue of jobs at one host, which answers at once what it is asked; by one connection, of several perhaps."""

    def __init__(self, *jobs: TrackedJob) -> None:
        self.jobs = {one.row.id: one for one in jobs}
        self.asked: list[LineUp] = []
        self.free = 2
        self._worker = SimpleNamespace(key=target_key(BOX), measure=self.asked.append)
        context = SimpleNamespace(
            jobs=self.jobs,
            uuid=HOME,
            store=None,
            now=lambda: 0.0,
            worker=lambda _: self._worker,
            jobs_at=lambda key: [one for one in self.jobs.values() if target_key(one.row.target) == key],
        )
        self._queue = JobQueue(cast(ControllerContext, context))

    def evaluate(self) -> LineUp | None:
        """Evaluate the queue; return what the host was asked, which has answered."""
        before = len(self.asked)
        self._queue.evaluate()
        if len(self.asked) == before:
            return None
        asked = self.asked[-1]
        lined_up = frozenset((*asked.waiting, *asked.handed_over)) | asked.kept
        self._queue.measured(
            CapacityMeasured(self._worker.key, Capacity(8, 2), self.free, "", lined_up=lined_up)
        )
        return asked


def test_the_entry_of_a_job_goes_once_it_has_begun_whichever_connection_made_it() -> None:
    """The connection that launches a job removes those entries alone that it holds itself."""
    launched, halted = (job(name, of=spec(gpus=1)) for name in ("launched", "halted"))
    host = HostAsked(launched, halted)

    first = host.evaluate()
    assert first is not None and {one.job for one in first.waiting} == {"launched", "halted"}
    launched.row, launched.operation = replace(launched.row, state=State.PENDING), Operation.LAUNCH
    del host.jobs[halted.row.id]
    assert (then := host.evaluate()) is not None and (then.waiting, then.keep) == ((), ("launched",))
    assert host.evaluate() is None, "it has its entry until it has its GPUs"

    launched.operation, launched.statuses = Operation.NOTHING, {1: learner(1, LearnerPhase.SETUP)}

    assert (last := host.evaluate()) is not None and (last.waiting, last.keep) == ((), ())
    assert host.evaluate() is None


@pytest.mark.parametrize(("others", "expected"), [([BY_ANOTHER], True), ([], False)], ids=["two", "one"])
@pytest.mark.parametrize("is_probed", [False, True], ids=["observed", "probed"])
def test_the_queue_is_judged_again_once_a_job_has_begun_whose_entry_another_connection_may_have(
    others: list[TargetRef], expected: bool, is_probed: bool
) -> None:
    launched = job("launched", State.DOWNLOADING, of=spec(gpus=1))
    workers = {target_key(ref): SimpleNamespace(ref=ref, home_uuid=HOME) for ref in (BOX, *others)}
    probe = AwaitedProbe(serial=1, attempt=launched.row.attempt)
    context = SimpleNamespace(
        jobs={"launched": launched},
        workers=workers,
        jobs_at=lambda _: [launched],
        probes={"launched": probe} if is_probed else {},
        queue_stale=False,
        watch=lambda _: None,
    )
    context.leaves_entry = partial(ControllerContext.leaves_entry, cast(ControllerContext, context))
    handler = EventHandler(cast(ControllerContext, context), cast(Any, None))

    status = replace(learner(1, LearnerPhase.SETUP), ref=LearnerRef(HOME, "launched", 1, 1))
    handler.take(Observed(target_key(BOX), (launched.attempt,), (status,), whole=True, serial=1))
    assert context.queue_stale is expected

    context.queue_stale = False
    later = replace(status, phase=LearnerPhase.RUNNING)
    handler.take(Observed(target_key(BOX), (launched.attempt,), (later,), whole=True, serial=2))
    assert not context.queue_stale, "its entry is gone"


def test_a_host_is_asked_once_it_starts_a_job_whose_entry_another_connection_has() -> None:
    """So the entry goes to its waiter, which cannot change it before."""
    given, other = (job(name, of=spec(gpus=1)) for name in ("given", "other"))
    host = HostAsked(given, other)
    host.evaluate()
    given.row, given.operation = replace(given.row, state=State.PENDING), Operation.LAUNCH
    del host.jobs[other.row.id]
    host.evaluate()

    given.row, given.operation = replace(given.row, state=State.QUEUED), Operation.NOTHING
    given.is_handed_over = True

    asked = host.evaluate()
    assert asked is not None and [one.job for one in asked.handed_over] == ["given"]
    assert host.evaluate() is None


def test_an_answer_by_one_connection_is_heeded_by_jobs_of_another_one_to_the_same_host() -> None:
    mine, second = (job(name, of=spec(gpus=2)) for name in ("mine", "second"))
    second.row = replace(second.row, target=BY_ANOTHER)
    assert target_key(BY_ANOTHER) != target_key(BOX) and BY_ANOTHER.machine == BOX.machine
    second.busy, second.busy_until = "waits for 2 GPUs", 0.0

    HostAsked(mine, second).evaluate()

    assert second.busy == ""


def test_who_waits_at_a_host_does_so_on_when_its_capacity_alone_was_asked_for() -> None:
    line = HostLine(cast(Any, None))
    entry = LinedUpJob("a", gpus=1, each=1, priority=50)
    line.answered(CapacityMeasured("box", None, 0, "", lined_up=frozenset([entry])), 0.0, 0.0)

    line.answered(CapacityMeasured("box", None, 0, ""), 0.0, 0.0)

    assert line.lined_up == {entry}


def test_a_job_is_sent_again_once_its_host_was_given_it() -> None:
    """Its gates are those of the moment in which the launch was prepared: newer ones may have been sent meanwhile."""
    line = HostLine(cast(Any, None))
    given = LinedUpJob("a", gpus=1, each=1, priority=50, is_handed_over=True)
    waits = LinedUpJob("b", gpus=1, each=1, priority=50)
    answer = CapacityMeasured("box", None, 0, "", lined_up=frozenset([given, waits]))
    line.answered(answer, 1.0, 0.0)

    assert line.launched("a", 3.0)
    assert not line.launched("b", 3.0)
    assert line.lined_up == {waits}
    line.answered(answer, 4.0, 2.0)  # it was asked before
    assert line.lined_up == {waits}
    line.answered(answer, 6.0, 5.0)
    assert line.lined_up == {given, waits}


def test_a_host_is_sent_only_what_is_new_of_those_that_it_starts() -> None:
    a, b = (LinedUpJob(name, gpus=1, each=1, priority=50) for name in "ab")
    later = replace(b, priority=70)
    sent = SentEntries()

    def send(
        *entries: LinedUpJob, known: tuple[LinedUpJob, ...] = (), fails: bool = False
    ) -> tuple[str, str]:
        line = LineUp((), handed_over=entries, known=frozenset(known))
        with suppress(TryAgain), sent.what_is_new(line, entries) as (changed, unchanged):
            if fails:
                raise TryAgain("its link is cut")
        return "".join(one.job for one in changed), "".join(unchanged)

    assert send(a, b) == ("ab", "")
    assert send(a, b, known=(a, b)) == ("", "ab")
    assert send(a, b, known=(a,)) == ("b", "a"), "it missed that"
    assert send(a, later, known=(a, b), fails=True) == ("b", "a")
    assert send(a, b, known=(a, b)) == ("ab", ""), "it may have taken the other one"


def test_a_host_whose_clock_was_set_is_sent_times_once_more() -> None:
    job = LinedUpJob("a", gpus=0, each=0, priority=50, gates=HostGates(begin_us=9))
    line, sent = LineUp((), handed_over=(job,), known=frozenset({job})), SentEntries()
    found = []
    for begin_us in (9, 9, 5):
        with sent.what_is_new(line, [replace(job, gates=HostGates(begin_us=begin_us))]) as (changed, _):
            found.append(len(changed))

    assert found == [1, 0, 1]
