"""The fewest jobs that may be preempted end for one of a higher priority that waits, and then wait for their turn."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.learner.agent import JOB, Learner
from tests.learner.lease_holders import ANNA, a_learner_whose_taker_is_gone
from tests.learner.test_stopping import FOREVER, STUBBORN, WATCHFUL, Make, started
from tests.support.naps import NAP
from tests.support.waiting import until
from workbench.learner.guard.requests import LearnerLimits
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.platform import lease_holders, leases, system
from workbench.learner.queue.entries import HeldEntries, QueueEntry, attempt_name, entry_of, read_entries
from workbench.learner.queue.line import FREED_SECONDS, HostQueue, LeaseReading
from workbench.learner.queue.policy import BadPolicy, parse_policy
from workbench.learner.queue.preemption import (
    LONGEST_SECONDS,
    PATIENCE_SECONDS,
    PreemptibleJob,
    PreemptionWatch,
    is_preemptible,
    jobs_to_preempt,
)

HOME = "00000000-0000-0000-0000-00000000000a"
RUNNING = f"{JOB}/1"
"""The attempt that runs."""


def running(name: str, gpus: int, *, since: int = 0, priority: int = 50) -> PreemptibleJob:
    """Return a job that holds GPUs."""
    return PreemptibleJob((1000, name), gpus, priority, since, 300.0)


def preempted(jobs: list[PreemptibleJob], lacking: int, ending: frozenset[str] = frozenset()) -> str:
    """Return the names of the jobs that end."""
    return "".join(sorted(job.key[1] for job in jobs_to_preempt(jobs, lacking, ending)))


# Who ends


@pytest.mark.parametrize(
    ("jobs", "lacking", "expected"),
    [
        pytest.param([running("a", 1), running("b", 4), running("c", 2)], 4, "b", id="the fewest jobs"),
        pytest.param([running("a", 4), running("b", 2), running("c", 8)], 2, "b", id="then the fewest GPUs"),
        pytest.param(
            [running("a", 1, since=1), running("b", 1, since=3), running("c", 1, since=2)], 2, "bc",
            id="then those that have run for the least time",
        ),
        pytest.param(
            [running("a", 1, since=9, priority=40), running("b", 1, since=1, priority=10)], 1, "b",
            id="lower priorities before that",
        ),
        pytest.param([running("a", 3), running("b", 3), running("c", 2)], 5, "ac", id="two that fit best"),
        pytest.param([running("a", 1), running("b", 2)], 4, "", id="nobody where all would not do"),
        pytest.param([], 1, "", id="nobody is there"),
        pytest.param([running("a", 1)], 0, "", id="nothing is lacking"),
    ],
)  # fmt: skip
def test_the_smallest_set_of_jobs_ends(jobs: list[PreemptibleJob], lacking: int, expected: str) -> None:
    assert preempted(jobs, lacking) == expected


def test_who_was_asked_to_end_counts_first() -> None:
    jobs = [running("a", 4), running("b", 2), running("c", 2)]

    assert preempted(jobs, 2, frozenset("a")) == "a", "it ends anyway"
    assert preempted(jobs, 6, frozenset("a")) == "ab"
    assert preempted(jobs, 20, frozenset("a")) == "a"


def test_no_smaller_set_would_do() -> None:
    draw = random.Random(7)
    for _ in range(400):
        jobs = [
            running(name, draw.choice((1, 1, 2, 4)), since=draw.randrange(9), priority=draw.randrange(3))
            for name in "abcdefg"[: draw.randint(1, 7)]
        ]
        lacking = draw.randint(1, 8)

        def cost(chosen: tuple[PreemptibleJob, ...], lacking: int = lacking) -> tuple[int, int, int, int]:
            gpus = sum(job.gpus for job in chosen)
            latest = -sum(job.since_us for job in chosen)
            return (len(chosen), gpus - lacking, sum(job.priority for job in chosen), latest)

        sets = [
            chosen
            for count in range(1, len(jobs) + 1)
            for chosen in itertools.combinations(jobs, count)
            if sum(job.gpus for job in chosen) >= lacking
        ]
        found = tuple(jobs_to_preempt(jobs, lacking))
        if sets:
            assert cost(found) == min(map(cost, sets))
        else:
            assert found == ()


def test_many_small_jobs_are_chosen_at_once() -> None:
    jobs = [running(f"j{number}", 1, since=number) for number in range(128)]
    begun = system.elapsed_seconds()

    found = jobs_to_preempt(jobs, 64)

    assert {job.since_us for job in found} == set(range(64, 128))
    assert system.elapsed_seconds() - begun < 3.0


@pytest.mark.parametrize(
    ("policy", "asked", "others"),
    [
        ("", True, False),
        ('preemption = "all"', True, True),
        ('preemption = "none"', False, False),
        ('policy = "first_come"', True, False),
    ],
)
def test_a_hosts_policy_says_who_is_preempted(policy: str, asked: bool, others: bool) -> None:
    found = parse_policy(policy)
    assert (is_preemptible("asked", found), is_preemptible("by_policy", found)) == (asked, others)
    assert not is_preemptible(None, found)


def test_a_policy_names_what_it_may_say_of_preemption() -> None:
    with pytest.raises(BadPolicy, match="preemption is one of asked, all, none"):
        parse_policy('preemption = "some"')


# Who waits asks for it


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="fab-") as made:
        Path(made).chmod(0o1777)
        yield made


@pytest.fixture
def entries() -> Iterator[HeldEntries]:
    made = HeldEntries()
    yield made
    made.close()


@pytest.fixture
def queue() -> Iterator[HostQueue]:
    made = HostQueue()
    yield made
    made.close()


def lease_of(job: str, priority: int = 50, preemption: str = "asked") -> str:
    """Return the text of a lease."""
    document = {"owner": "me", "job": job, "attempt": 1, "priority": priority}
    return json.dumps({**document, "preemption": preemption, "preemption_seconds": 300.0})


@contextlib.contextmanager
def holding(folder: str, text: str, *uuids: str) -> Iterator[leases.Lease]:
    lease = leases.take(uuids, folder, text)
    assert lease is not None
    yield lease
    lease.release()


def slots(*held: str, free: int = 0) -> list[dict[str, Any]]:
    found = [{"uuid": uuid, "memory_bytes": 1, "holder": "x"} for uuid in held]
    return [*found, *({"uuid": f"GPU-free-{number}", "memory_bytes": 1} for number in range(free))]


def urgent(gpus: int = 1, priority: int = 70, **more: Any) -> dict[str, Any]:
    return {"job": "urgent", "gpus": gpus, "each": gpus, "priority": priority, **more}


def asked_to_end(folder: str) -> dict[str, tuple[str, ...]]:
    return {entry.job: entry.preempts for entry in read_entries(folder) if entry.preempts}


def test_the_first_that_waits_names_each_attempt_that_is_to_end(folder: str, queue: HostQueue) -> None:
    with holding(folder, lease_of("a"), "GPU-1", "GPU-2"), holding(folder, lease_of("b"), "GPU-3"):
        found = queue.line_up(folder, slots("GPU-1", "GPU-2", "GPU-3", free=1), HOME, [urgent(3)], [])

    assert asked_to_end(folder) == {"urgent": ("a/1",)}
    assert (found["urgent"]["start"], found["urgent"]["preempts"]) == (False, 1)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"job": "a"}', id="an older version's"),
        pytest.param(lease_of("a", preemption="by_policy"), id="that is preempted by policy"),
        pytest.param(lease_of("a", priority=70), id="of the same priority"),
        pytest.param(lease_of("a", preemption="nonsense"), id="that says nonsense"),
        pytest.param("not JSON", id="garbage"),
        pytest.param(lease_of("a").replace("300.0", '"long"'), id="with a time that is none"),
        pytest.param(lease_of("a").replace("300.0", "9" * 400), id="with a time beyond all measure"),
        pytest.param(lease_of("a").replace("300.0", "NaN"), id="with a time that is no number"),
        pytest.param(lease_of("a").replace("300.0", "-1"), id="with a time that is over"),
    ],
)
def test_a_job_is_not_asked_to_end(folder: str, queue: HostQueue, text: str) -> None:
    with holding(folder, text, "GPU-1"):
        queue.line_up(folder, slots("GPU-1"), HOME, [urgent()], [])
    assert asked_to_end(folder) == {}


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the host's policy; it is not there."""
    if os.getuid() != 0:
        pytest.skip("only root can write a policy")
    path = tmp_path / "policy.toml"
    for module in ("queue.policy", "queue.preemption", "guard.requests"):
        monkeypatch.setattr(f"workbench.learner.{module}.POLICY_FILE", str(path))
    return path


def test_a_capped_priority_preempts_nobody_of_the_cap(folder: str, queue: HostQueue, policy: Path) -> None:
    with holding(folder, lease_of("a", preemption="by_policy"), "GPU-1"):
        for text, expected in (
            ('preemption = "all"\nmax_priority = 50', {}),
            ('preemption = "all"\nmax_priority = 60', {"urgent": ("a/1",)}),
            ('preemption = "none"', {}),
            ('preemption = "all"\npolicy = "fair_share"', {}),
            ('preemption = "all"\npolicy = "first_come"', {}),
        ):
            policy.write_text(text)
            queue.line_up(folder, slots("GPU-1"), HOME, [urgent()], [])
            assert asked_to_end(folder) == expected


@pytest.mark.parametrize(
    ("text", "waiting", "asked"),
    [
        ('preemption = "all"\nmax_gpus = 8', [urgent()], {"urgent": ("a/1",)}),
        (
            'policy = "fair_share"\nmax_gpus = 8',
            [{"job": f"a{number}", "gpus": 1, "weight": 1.0 + number % 2} for number in range(101)],
            {},
        ),
    ],
    ids=["one is preempted", "many wait by weight"],
)
def test_one_reading_of_the_leases_serves_a_decision(
    folder: str,
    queue: HostQueue,
    policy: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    waiting: list[dict[str, Any]],
    asked: dict[str, tuple[str, ...]],
) -> None:
    policy.write_text(text)
    reads: list[str] = []
    holdings = lease_holders.holdings

    def read(folder: str, names: Iterable[str]) -> dict[str, lease_holders.Holding]:
        reads.append(folder)
        return holdings(folder, names)

    monkeypatch.setattr(lease_holders, "holdings", read)
    with holding(folder, lease_of("a"), "GPU-1"):
        reading = LeaseReading(folder, slots("GPU-1"))
        first = set(queue.first(reading, waiting))
        at_once = [one for one in waiting if one["job"] in first]
        queue.line_up(folder, reading.slots, HOME, at_once, [], reading=reading)

    assert asked_to_end(folder) == asked
    assert reads == [folder]


def test_a_priority_is_capped_for_a_person(folder: str, queue: HostQueue, policy: Path) -> None:
    with holding(folder, lease_of("a", priority=55), "GPU-1"):
        for text, expected in (
            (f"max_priority = 50\n[people.{system.user_name()}]\nmax_priority = 60", {"urgent": ("a/1",)}),
            (f"[people.{system.user_name()}]\nmax_priority = 50", {}),
        ):
            policy.write_text(text)
            queue.line_up(folder, slots("GPU-1"), HOME, [urgent()], [])
            assert asked_to_end(folder) == expected


def test_a_job_has_its_gpus_for_as_long_as_the_policy_demands(
    folder: str, queue: HostQueue, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy.write_text("min_run_minutes = 30")
    later_us = system.now_us() + 29 * 60_000_000
    monkeypatch.setattr("workbench.learner.queue.line.now_us", lambda: later_us)
    with holding(folder, lease_of("a"), "GPU-1"):
        queue.line_up(folder, slots("GPU-1"), HOME, [urgent()], [])
        assert asked_to_end(folder) == {}

        later_us += 2 * 60_000_000
        queue.line_up(folder, slots("GPU-1"), HOME, [urgent()], [])
        assert asked_to_end(folder) == {"urgent": ("a/1",)}


def test_only_the_first_that_waits_preempts_and_only_while_it_does(folder: str, queue: HostQueue) -> None:
    second = {"job": "second", "gpus": 1, "each": 1, "priority": 60}
    with holding(folder, lease_of("a"), "GPU-1"), holding(folder, lease_of("b"), "GPU-2"):
        queue.line_up(folder, slots("GPU-1", "GPU-2"), HOME, [urgent(), second], [])
        assert list(asked_to_end(folder)) == ["urgent"]

        found = queue.line_up(folder, slots("GPU-2", free=1), HOME, [urgent(), second], [])
        assert found["urgent"]["start"]
        assert asked_to_end(folder) == {"second": ("b/1",)}

        queue.line_up(folder, slots("GPU-2"), HOME, [urgent(priority=40), {**second, "priority": 45}], [])
        assert asked_to_end(folder) == {}


def test_an_entry_is_not_written_twice_where_nothing_changes(folder: str, queue: HostQueue) -> None:
    with holding(folder, lease_of("a"), "GPU-1"):
        for _ in range(2):
            queue.line_up(folder, slots("GPU-1"), HOME, [urgent()], [])
        before = Path(folder).stat().st_mtime_ns
        queue.line_up(folder, slots("GPU-1"), HOME, [urgent()], [])
        # The lease's file goes with it, so the time is read before that.
        assert Path(folder).stat().st_mtime_ns == before


def test_who_waits_with_another_connection_asks_the_same_jobs(folder: str, queue: HostQueue) -> None:
    with holding(folder, lease_of("a"), "GPU-1"), holding(folder, lease_of("b"), "GPU-2"):
        queue.line_up(folder, slots("GPU-1", "GPU-2"), HOME, [urgent()], [])
        before = asked_to_end(folder)
        queue.close()
        again = HostQueue()
        again.line_up(folder, slots("GPU-1", "GPU-2"), HOME, [urgent()], [])
        assert asked_to_end(folder) == before
        again.close()


def test_one_that_does_not_end_is_not_counted_on(
    folder: str, queue: HostQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("workbench.learner.queue.line.time.monotonic", lambda: now)
    with holding(folder, lease_of("a", priority=10), "GPU-1"), holding(folder, lease_of("b"), "GPU-2"):
        for seconds, expected in (
            (0.0, "a/1"),
            (300.0 + PATIENCE_SECONDS, "a/1"),
            (1.0, "b/1"),
            (1.0, "b/1"),
        ):
            now += seconds
            queue.line_up(folder, slots("GPU-1", "GPU-2"), HOME, [urgent()], [])
            assert asked_to_end(folder) == {"urgent": (expected,)}


def test_no_time_is_so_long_that_another_job_is_never_asked(
    folder: str, queue: HostQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("workbench.learner.queue.line.time.monotonic", lambda: now)
    slow = lease_of("a", priority=-1_000_000).replace("300.0", "1e14")
    with holding(folder, slow, "GPU-1"), holding(folder, lease_of("b"), "GPU-2"):
        queue.line_up(folder, slots("GPU-1", "GPU-2"), HOME, [urgent()], [])
        assert asked_to_end(folder) == {"urgent": ("a/1",)}
        now += LONGEST_SECONDS + PATIENCE_SECONDS + 1
        queue.line_up(folder, slots("GPU-1", "GPU-2"), HOME, [urgent()], [])
        assert asked_to_end(folder) == {"urgent": ("b/1",)}


def test_nobody_else_is_asked_while_what_has_ended_becomes_free(
    folder: str, queue: HostQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPUs were looked at before the lease was released, or the driver knows the process for a moment."""
    now = 1000.0
    monkeypatch.setattr("workbench.learner.queue.line.time.monotonic", lambda: now)
    both = slots("GPU-1", "GPU-2")
    with holding(folder, lease_of("b"), "GPU-2"):
        with holding(folder, lease_of("a", priority=10), "GPU-1"):
            queue.line_up(folder, both, HOME, [urgent()], [])
            assert asked_to_end(folder) == {"urgent": ("a/1",)}
        for seconds, expected in ((0.1, {}), (FREED_SECONDS, {"urgent": ("b/1",)})):
            now += seconds
            queue.line_up(folder, both, HOME, [urgent()], [])
            assert asked_to_end(folder) == expected


def test_of_several_learners_that_end_one_after_the_other_the_job_counts_once(
    folder: str, queue: HostQueue
) -> None:
    low = lease_of("a", priority=10)
    with holding(folder, lease_of("b", priority=20), "GPU-3", "GPU-4"), holding(folder, low, "GPU-1"):
        with holding(folder, low, "GPU-2"):
            held = slots("GPU-1", "GPU-2", "GPU-3", "GPU-4")
            queue.line_up(folder, held, HOME, [urgent(2)], [])
            assert asked_to_end(folder) == {"urgent": ("a/1",)}
        queue.line_up(folder, slots("GPU-1", "GPU-3", "GPU-4", free=1), HOME, [urgent(2)], [])
        assert asked_to_end(folder) == {"urgent": ("a/1",)}


def test_one_that_could_not_start_asks_nobody(folder: str, queue: HostQueue) -> None:
    with holding(folder, lease_of("a"), "GPU-1"):
        queue.line_up(folder, slots("GPU-1"), HOME, [urgent()], [], lambda job: job != "urgent")
        assert asked_to_end(folder) == {}


def test_a_job_of_another_person_is_asked_to_end_where_it_says_so(folder: str, queue: HostQueue) -> None:
    with a_learner_whose_taker_is_gone(folder, ["GPU-1"], lease_of("a"), ANNA):
        queue.line_up(folder, slots("GPU-1"), HOME, [urgent()], [])
        assert asked_to_end(folder) == {"urgent": ("a/1",)}


def test_a_job_that_comes_first_meanwhile_counts_on_those_that_end_already(
    folder: str, queue: HostQueue, entries: HeldEntries
) -> None:
    with (
        holding(folder, lease_of("a", priority=10), "GPU-1"),
        holding(folder, lease_of("b", priority=20), "GPU-2"),
    ):
        wants(entries, folder, "b/1", job="before")
        queue.line_up(folder, slots("GPU-1", "GPU-2"), HOME, [urgent(priority=90)], [])
        assert asked_to_end(folder)["urgent"] == ("b/1",)


def test_what_is_asked_of_a_job_in_vain_does_not_make_it_the_one_that_ends(
    folder: str, queue: HostQueue, entries: HeldEntries
) -> None:
    with (
        holding(folder, lease_of("a", priority=10), "GPU-1"),
        holding(folder, lease_of("b", priority=20), "GPU-2"),
    ):
        wants(entries, folder, "b/1", job="low", priority=15)
        queue.line_up(folder, slots("GPU-1", "GPU-2"), HOME, [urgent(priority=90)], [])
        assert asked_to_end(folder)["urgent"] == ("a/1",)


def test_nobody_passes_while_jobs_end_for_one_that_waits(folder: str, queue: HostQueue) -> None:
    small = {"job": "small", "gpus": 1, "each": 1, "priority": 10, "max_runtime_seconds": 60.0}
    with holding(folder, lease_of("a"), "GPU-1"):
        found = queue.line_up(folder, slots("GPU-1", free=1), HOME, [urgent(2), small], [])
        assert not found["urgent"]["start"]
        found = queue.line_up(folder, slots("GPU-1", free=1), HOME, [urgent(2), small], [])
        assert not found["small"]["start"]


@pytest.mark.parametrize("wanted", [None, "a/1", 7, ["x" * 100, 3, None], {"a/1": 1}])
def test_garbage_preempts_nobody(wanted: Any) -> None:
    found = entry_of(1000, {"job": "j", "gpus": 3, "preempts": wanted}, 1)
    assert found is not None and found.preempts == ()


def test_an_entry_names_no_more_jobs_than_it_needs_gpus() -> None:
    found = entry_of(1000, {"job": "j", "gpus": 2, "preempts": ["a/1", "b/1", "c/1"]}, 1)
    assert found is not None and found.preempts == ("a/1", "b/1")


# Who is asked ends


def facts(
    folder: str, priority: int = 50, preemption: str = "asked", seconds: float = 300.0
) -> dict[str, Any]:
    return {
        "leases_folder": folder,
        "priority": priority,
        "preemption": preemption,
        "preemption_seconds": seconds,
    }


def wants(
    entries: HeldEntries, folder: str, name: str = RUNNING, *, priority: int = 70, job: str = "urgent"
) -> None:
    assert entries.hold(folder, HOME, job, {"gpus": 4, "priority": priority, "preempts": [name]})


def test_a_learner_sees_who_wants_its_gpus(folder: str, entries: HeldEntries) -> None:
    watch = PreemptionWatch(facts(folder), RUNNING)
    assert watch.check() == ""

    wants(entries, folder, f"{JOB}/2")
    wants(entries, folder, priority=50, job="no-higher")
    assert watch.check() == ""

    wants(entries, folder)
    assert watch.check().endswith("'s job urgent, of priority 70, needs its GPUs")


def test_a_learner_has_its_gpus_for_as_long_as_the_policy_demands_whoever_asks(
    folder: str, entries: HeldEntries, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy.write_text("min_run_minutes = 30")
    now = 1000.0
    monkeypatch.setattr("workbench.learner.platform.system.elapsed_seconds", lambda: now)
    watch = PreemptionWatch(facts(folder), RUNNING, now)
    wants(entries, folder)
    now += 29 * 60
    assert [watch.check() for _ in range(4)] == [""] * 4

    now += 2 * 60
    assert watch.check()


def test_a_folder_that_does_not_change_is_not_read_again_and_again(
    folder: str, entries: HeldEntries, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = PreemptionWatch(facts(folder), RUNNING)
    reads: list[str] = []

    def read(path: str) -> list[QueueEntry]:
        reads.append(path)
        return read_entries(path)

    monkeypatch.setattr("workbench.learner.queue.preemption.read_entries", read)
    for _ in range(9):
        watch.check()
    assert len(reads) == 2

    wants(entries, folder)
    assert watch.check()


def test_a_request_counts_only_while_it_is_held(folder: str, entries: HeldEntries) -> None:
    wants(entries, folder)
    entries.close()
    assert not PreemptionWatch(facts(folder), RUNNING).check()


def test_what_may_be_preempted_by_policy_alone_is_where_the_policy_says_so_of_all(
    folder: str, entries: HeldEntries, monkeypatch: pytest.MonkeyPatch, policy: Path
) -> None:
    document = {"job": JOB, "attempt": 1, "slots": ["GPU-1"]}
    limits = LearnerLimits(LaunchDocument({**document, "preemption": facts(folder, preemption="by_policy")}))
    wants(entries, folder)
    now = 1000.0
    monkeypatch.setattr("workbench.learner.platform.system.elapsed_seconds", lambda: now)

    assert limits.exceeded() is None
    for text, expected in (("nonsense", False), ("max_gpus = 1", False), ('preemption = "all"', True)):
        policy.write_text(text)
        now += 100.0
        assert (limits.exceeded() is not None) is expected


def test_what_ran_before_the_policy_was_written_counts(
    folder: str, entries: HeldEntries, monkeypatch: pytest.MonkeyPatch, policy: Path
) -> None:
    document = {"job": JOB, "attempt": 1, "slots": ["GPU-1"]}
    now = 1000.0
    monkeypatch.setattr("workbench.learner.platform.system.elapsed_seconds", lambda: now)
    limits = LearnerLimits(LaunchDocument({**document, "preemption": facts(folder, preemption="by_policy")}))
    wants(entries, folder)
    assert limits.exceeded() is None

    now += 31 * 60
    policy.write_text('preemption = "all"\nmin_run_minutes = 30')
    assert limits.exceeded() is not None


@pytest.fixture
def drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file by which root has a host be empty; it is not there."""
    path = tmp_path / "drain"
    monkeypatch.setattr("workbench.learner.queue.policy.DRAIN_FILE", str(path))
    return path


def test_roots_file_has_all_end_that_may_be_preempted_and_lets_nobody_start(
    folder: str, queue: HostQueue, drain: Path
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can want that")
    watch = PreemptionWatch(facts(folder), RUNNING)
    assert not watch.check()
    assert queue.line_up(folder, slots(free=1), HOME, [urgent()], [])["urgent"]["start"]

    drain.touch()
    assert watch.check() == "its host is to be empty, by /etc/fabric/drain"
    found = queue.line_up(folder, slots(free=1), HOME, [urgent()], [])["urgent"]
    assert (found["start"], found["limit"]) == (False, "the host is to be empty, by /etc/fabric/drain")
    assert found["limit_since_us"] == drain.stat().st_mtime_ns // 1000

    os.chown(drain, 12346, 12346)
    assert not watch.check()
    assert queue.line_up(folder, slots(free=1), HOME, [urgent()], [])["urgent"]["start"]


def named(one: Learner) -> str:
    """Return by which name the attempt of a learner is asked to end."""
    return attempt_name(JOB, one.launch["attempt"])


def preemptible(learner: Make, command: str, folder: str, **more: Any) -> Learner:
    return learner(
        command, slots=["GPU-1"], preemption=facts(folder, seconds=more.pop("seconds", 300.0)), **more
    )


def test_code_that_looks_ends_by_itself_for_a_job_of_a_higher_priority(
    learner: Make, folder: str, entries: HeldEntries, python: str
) -> None:
    one = started(preemptible(learner, WATCHFUL, folder, python=python))

    wants(entries, folder, named(one))
    state = one.wait()

    assert one.output() == b"ready\nsaved\n"
    assert (state["exit_code"], state["stopped"], state["reason"]["code"]) == (0, "preempt", "S106")
    person = system.user_name(os.geteuid())
    assert state["reason"]["text"] == f"preempted: {person}'s job urgent, of priority 70, needs its GPUs"


def test_code_that_knows_nothing_of_it_gets_its_signal_at_once(
    learner: Make, folder: str, entries: HeldEntries
) -> None:
    one = started(preemptible(learner, FOREVER, folder, grace_seconds=3600.0))

    wants(entries, folder, named(one))
    state = one.wait()

    assert (state["signal"], state["stopped"]) == (15, "preempt")


def test_code_that_does_not_end_is_killed_when_its_time_is_over(
    learner: Make, folder: str, entries: HeldEntries
) -> None:
    one = started(preemptible(learner, STUBBORN, folder, grace_seconds=3600.0, seconds=0.2))

    wants(entries, folder, named(one))

    assert (state := one.wait())["stopped"] == "preempt"
    assert state["signal"] == 9


def test_a_setup_is_preempted_too(learner: Make, folder: str, entries: HeldEntries) -> None:
    one = preemptible(learner, "echo ran", folder, setup="touch $WORK/begun; sleep 600")
    one.start()
    until((one.work / "begun").exists, "the setup")

    wants(entries, folder, named(one))
    state = one.wait()

    assert (state["stopped"], state["exit_code"]) == ("preempt", None)
    assert one.output() == b""


def test_a_kill_goes_before_it(learner: Make, folder: str, entries: HeldEntries) -> None:
    one = started(preemptible(learner, STUBBORN, folder))
    wants(entries, folder, named(one))
    until((one.folder / "stop.json").exists, "its end to be announced")

    one.stop("kill")

    assert one.wait()["stopped"] == "kill"


def test_a_learner_that_is_not_preemptible_goes_on(learner: Make, folder: str, entries: HeldEntries) -> None:
    one = started(learner(WATCHFUL, slots=["GPU-1"]))
    other = started(preemptible(learner, WATCHFUL, folder))
    wants(entries, folder, named(other))
    other.wait()

    assert one.state()["phase"] == "running"
    one.stop("kill")
    one.wait()


def test_learners_of_one_attempt_are_asked_at_the_same_time(
    learner: Make, folder: str, entries: HeldEntries
) -> None:
    saves = NAP + "trap 'sleep 2; echo saved; exit 0' TERM; echo ready; while :; do nap 0.1; done"
    both = [started(preemptible(learner, saves, folder, learners=2, grace_seconds=0.1)) for _ in range(2)]

    wants(entries, folder, named(both[0]))
    states = [one.wait() for one in both]

    assert all(one.output().endswith(b"saved\n") for one in both)
    assert [(state["stopped"], state["exit_code"]) for state in states] == [("preempt", 0)] * 2


def test_a_learner_that_is_asked_to_settle_at_that_time_has_its_time_too(
    learner: Make, folder: str, entries: HeldEntries
) -> None:
    first = started(preemptible(learner, FOREVER, folder, learners=2))
    second = started(preemptible(learner, STUBBORN, folder, learners=2, grace_seconds=0.1, seconds=1.0))

    wants(entries, folder, named(first))
    states = [first.wait(), second.wait()]

    assert [state["stopped"] for state in states] == ["preempt", "preempt"]
    assert [state["decided"] for state in states] == [True, False]
