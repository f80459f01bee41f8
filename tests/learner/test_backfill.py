"""By ``max_runtime`` a small job passes a large one that waits, where it puts off nobody before it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.learner.platform import leases
from workbench.learner.platform.lease_holders import holdings
from workbench.learner.platform.system import now_us
from workbench.learner.queue.entries import QueueEntry, entry_of
from workbench.learner.queue.line import HostQueue, endings_of
from workbench.learner.queue.order import (
    AROUND_SECONDS,
    PASSING_AT_MOST,
    Ending,
    FreeGpus,
    turns,
    with_times,
)
from workbench.learner.queue.policy import Policy, parse_policy
from workbench.spec import DataStore, Framework, JobSpec

PRIORITY = Policy()


def entry(job: str, gpus: int, minutes: float | None = None, **more: Any) -> QueueEntry:
    """Return an entry of a job; its name says when it came, by the alphabet."""
    more.setdefault("person", 1000)
    seconds = None if minutes is None else 60 * minutes
    return QueueEntry(home="h", job=job, gpus=gpus, since_us=ord(job[0]), max_runtime_seconds=seconds, **more)


def minutes_from_now(minutes: float, whole: int) -> Ending:
    return Ending(60 * minutes + AROUND_SECONDS, whole)


def starting(
    entries: Sequence[QueueEntry], gpus: FreeGpus, endings: Sequence[Ending], policy: Policy = PRIORITY
) -> str:
    """Return the names of the jobs that may start now."""
    found = turns(entries, gpus, policy=policy, endings=endings)
    return "".join(sorted(key[2] for key, turn in found.items() if turn.start))


FOUR = FreeGpus(4, whole_free=2)
"""Two of four GPUs are free."""
IN_AN_HOUR = (minutes_from_now(60, 2),)
"""The others are, in an hour at the latest."""


@pytest.mark.parametrize(
    ("waiting", "endings", "expected"),
    [
        pytest.param([entry("a", 4), entry("b", 2, 30)], IN_AN_HOUR, "b", id="it is over before"),
        pytest.param([entry("a", 4), entry("b", 2, 90)], IN_AN_HOUR, "", id="it is not"),
        pytest.param([entry("a", 4), entry("b", 2)], IN_AN_HOUR, "", id="nobody knows when it is"),
        pytest.param([entry("a", 4), entry("b", 2, 30)], (), "", id="nor when the one before it starts"),
        pytest.param([entry("a", 3), entry("b", 1, 90)], IN_AN_HOUR, "b", id="one GPU more is never needed"),
        pytest.param([entry("a", 3), entry("b", 1)], IN_AN_HOUR, "", id="not even then without a limit"),
        pytest.param(
            [entry("a", 4), entry("b", 1, 30), entry("c", 1, 30), entry("d", 1, 30)], IN_AN_HOUR, "bc",
            id="as many as fit",
        ),
        pytest.param(
            [entry("a", 4, 10), entry("b", 2, 90), entry("c", 2, 30)], IN_AN_HOUR, "c",
            id="the second one is put off by nobody either",
        ),
        pytest.param(
            [entry("a", 4), entry("b", 4, 10), entry("c", 2, 30)], IN_AN_HOUR, "c",
            id="one behind a job without a limit starts after it",
        ),
        pytest.param(
            [entry("a", 3), entry("b", 2), entry("c", 1, 90), entry("d", 1, 30)], IN_AN_HOUR, "d",
            id="when after it nobody knows",
        ),
        pytest.param(
            [entry("a", 2, 120), entry("b", 4), entry("c", 1, 30)], IN_AN_HOUR, "a",
            id="what starts before it has an end, too, and takes all",
        ),
        pytest.param(
            [entry("a", 1, 120), entry("b", 4), entry("c", 1, 90)], IN_AN_HOUR, "ac",
            id="what starts before it ends later",
        ),
        pytest.param(
            [entry("a", 1), entry("b", 4), entry("c", 1, 30)], IN_AN_HOUR, "a",
            id="what starts before it has no end",
        ),
        pytest.param(
            [entry("a", 4), entry("b", 2, 30)], (minutes_from_now(60, 1),), "", id="an end is not known"
        ),
        pytest.param(
            [entry("a", 4), entry("b", 2, 30)], (minutes_from_now(-90, 2),), "", id="it should be over"
        ),
        pytest.param([entry("a", 5), entry("b", 2)], (), "b", id="more than there are holds up nobody"),
    ],
)  # fmt: skip
def test_who_passes_puts_off_nobody(
    waiting: list[QueueEntry], endings: Sequence[Ending], expected: str
) -> None:
    assert starting(waiting, FOUR, endings) == expected


def test_a_larger_priority_comes_first_and_is_passed_by_the_same_rule() -> None:
    waiting = [entry("a", 2, 30, priority=10), entry("b", 4, priority=90)]

    assert starting(waiting, FOUR, IN_AN_HOUR) == "a"
    assert starting([waiting[0]._replace(max_runtime_seconds=None), waiting[1]], FOUR, IN_AN_HOUR) == ""


def test_slices_are_passed_to_those_who_can_use_them_where_there_are_no_others() -> None:
    waiting = [entry("a", 3), entry("b", 1, 30), entry("c", 2, 30, each=2)]
    endings = [Ending(60 * 60, 0, 1)]

    assert starting(waiting, FreeGpus(0, 3, slices_free=2), endings) == "b"
    both = FreeGpus(1, 3, whole_free=0, slices_free=2)
    assert starting(waiting, both, endings) == "", "nobody knows which of them one gets"


@pytest.mark.parametrize("policy", ['policy = "first_come"', 'policy = "fair_share"', "max_gpus = 4"])
def test_nobody_passes_by_another_policy_nor_within_a_limit(policy: str) -> None:
    """A person who is at the limit when the turn comes would be put off by the own job that passed."""
    waiting = [entry("a", 4), entry("b", 2, 30)]

    assert starting(waiting, FOUR, IN_AN_HOUR, parse_policy(policy)) == ""


def test_a_person_with_a_limit_is_not_put_off_by_those_behind() -> None:
    policy = parse_policy('[people."1001"]\nmax_gpus = 5')
    waiting = [entry("a", 4), entry("l", 1, 30, person=1001), entry("v", 1, 600), entry("w", 1, 30)]
    gpus, endings = FreeGpus(5, whole_free=3), [minutes_from_now(60, 2)]

    assert starting(waiting, gpus, endings, policy) == "w"
    assert starting([entry("a", 1, 30, person=1001), entry("b", 4)], gpus, endings, policy) == "a", (
        "the first"
    )


def test_who_did_not_take_a_turn_by_passing_passes_nobody_by_that() -> None:
    waiting = [entry("a", 4), entry("v", 2, 600)]

    found = turns(waiting, FOUR, passed={waiting[1].key}, endings=IN_AN_HOUR)

    assert not found[waiting[1].key].start


def test_only_the_first_hundred_are_looked_at() -> None:
    waiting = [entry("a", 4, 10), *(entry(f"b{number:03}", 2, 90) for number in range(PASSING_AT_MOST))]

    assert starting([*waiting, entry("c", 2, 30)], FOUR, IN_AN_HOUR) == ""
    assert starting([*waiting[:-2], entry("c", 2, 30)], FOUR, IN_AN_HOUR) == "c"


# Whole lives: every job takes as long as it may, which is what the guarantee speaks of.


class Life(NamedTuple):
    """A host with jobs that run and jobs that wait."""

    gpus: int
    running: list[tuple[int, float | None]]
    """GPUs and minutes left."""
    waiting: list[QueueEntry]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """Return one of up to six GPUs, three that run and seven that wait."""
    gpus = draw(st.integers(1, 6))
    minutes = st.one_of(st.none(), st.integers(1, 9).map(float))
    running: list[tuple[int, float | None]] = []
    for _ in range(draw(st.integers(0, 3))):
        left = gpus - sum(count for count, _ in running)
        if left:
            running.append((draw(st.integers(1, left)), draw(minutes)))
    names = "abcdefg"[: draw(st.integers(2, 7))]
    return Life(gpus, running, [entry(name, draw(st.integers(1, gpus)), draw(minutes)) for name in names])


def begins(life: Life, *, passes: bool) -> dict[str, float]:
    """Return when each job starts, in seconds; those that never do are not in it."""
    now = 0.0
    holding = [(count, None if left is None else 60 * left + AROUND_SECONDS) for count, left in life.running]
    waiting, found = list(life.waiting), dict[str, float]()
    while True:
        free = life.gpus - sum(count for count, _ in holding)
        endings = [Ending(end - now, count) for count, end in holding if end is not None]
        known = turns(waiting, FreeGpus(life.gpus, whole_free=free), endings=endings if passes else ())
        for one in [one for one in waiting if known[one.key].start]:
            waiting.remove(one)
            found[one.job] = now
            runtime = one.max_runtime_seconds
            holding.append((one.gpus, None if runtime is None else now + runtime + AROUND_SECONDS))
        assert sum(count for count, _ in holding) <= life.gpus
        ends = [end for _, end in holding if end is not None]
        if not waiting or not ends:
            return found
        now = min(ends)
        holding = [(count, end) for count, end in holding if end != now]


@given(lives())
def test_no_job_starts_later_than_without_those_that_pass(life: Life) -> None:
    strictly, now = begins(life, passes=False), begins(life, passes=True)

    assert strictly.keys() <= now.keys()
    assert all(now[job] <= at for job, at in strictly.items())


# At a host


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="fab-") as made:
        Path(made).chmod(0o700)
        yield made


def slot(uuid: str, holder: str = "") -> dict[str, object]:
    return {"uuid": uuid, "memory_bytes": 1 << 30, "holder": {"job": holder} if holder else None}


@pytest.mark.parametrize(
    ("says", "starts"),
    [({"max_runtime_seconds": 7200.0}, True), ({}, False), ({"max_runtime_seconds": "long"}, False)],
    ids=["a limit", "none", "garbage"],
)
def test_a_lease_says_by_when_its_gpus_are_free(folder: str, says: dict[str, object], starts: bool) -> None:
    text = json.dumps({"owner": "me", "job": "runs", **says})
    lease = leases.take(["GPU-1"], folder, text)
    assert lease is not None
    queue = HostQueue()
    slots = [slot("GPU-1", "runs"), slot("GPU-2")]
    large = {"job": "large", "gpus": 2, "each": 2, "position": 1.0}
    small = {"job": "small", "gpus": 1, "each": 1, "position": 2.0, "max_runtime_seconds": 60.0}
    try:
        found = queue.line_up(folder, slots, "home", [large, small], [])
        assert (found["large"]["start"], found["small"]["start"]) == (False, starts)
        ends = endings_of(holdings(folder, ["GPU-1", "GPU-2"]))
        assert len(ends) == starts
        if starts:
            assert 7200 < ends[0].seconds <= 7200 + AROUND_SECONDS and ends[0][1:3] == (1, 0)
    finally:
        queue.close()
        lease.release()


@pytest.mark.parametrize(
    ("waiting", "endings", "expected"),
    [
        pytest.param([entry("a", 4)], {10: 1, 20: 1}, {"a": (20, True)}, id="both that it lacks"),
        pytest.param([entry("a", 3)], {10: 1, 20: 1}, {"a": (10, True)}, id="the one that it lacks"),
        pytest.param([entry("a", 4)], {10: 1}, {"a": (10, False)}, id="of one nobody knows"),
        pytest.param([entry("a", 4)], {}, {"a": (None, False)}, id="nobody knows of any"),
        pytest.param([entry("a", 4)], {-1: 2}, {"a": (None, False)}, id="should be over"),
        pytest.param([entry("a", 4)], {10**9: 2}, {"a": (None, False)}, id="after a year"),
        pytest.param(
            [entry("a", 4), entry("b", 3), entry("c", 1)],
            {10: 1, 20: 1},
            {"a": (20, True), "b": (10, False), "c": (None, False)},
            id="those behind it learn of the next one, unless enough are free",
        ),
        pytest.param([entry("a", 2)], {10: 1}, {"a": (None, False)}, id="it starts"),
    ],
)
def test_who_waits_for_gpus_learns_by_when_there_are_more(
    waiting: list[QueueEntry], endings: dict[int, int], expected: dict[str, tuple[int | None, bool]]
) -> None:
    coming = [Ending(float(seconds), gpus, at_us=seconds) for seconds, gpus in endings.items()]

    found = with_times(turns(waiting, FOUR, policy=PRIORITY, endings=coming), waiting, coming)

    assert {key[2]: (turn.free_at_us, turn.is_enough_then) for key, turn in found.items()} == expected


def test_a_slice_that_comes_free_is_for_learners_with_one_gpu_each() -> None:
    divided, waiting = FreeGpus(2, 2), [entry("a", 2), entry("b", 1, each=2)]
    coming = [Ending(10.0, 0, 1, at_us=10), Ending(20.0, 1, at_us=20)]

    found = with_times(turns(waiting, divided), waiting, coming)

    assert [turn.free_at_us for turn in found.values()] == [20, 20]
    assert (
        with_times(turns([entry("a", 3)], divided), [entry("a", 3)], coming)[1000, "h", "a"].free_at_us == 10
    )


def test_a_limit_of_the_policy_is_not_waited_for_as_gpus_are() -> None:
    policy, waiting = parse_policy("[people.1000]\nmax_gpus = 1"), [entry("a", 3)]

    found = with_times(turns(waiting, FOUR, policy=policy), waiting, [Ending(10.0, 2, at_us=10)])

    assert found[1000, "h", "a"].free_at_us is None


def test_what_should_be_over_lets_nobody_pass(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = leases.take(["GPU-1"], folder, json.dumps({"owner": "me", "max_runtime_seconds": 60.0}))
    assert lease is not None
    queue = HostQueue()
    later = now_us() + 3_600_000_000
    monkeypatch.setattr("workbench.learner.queue.line.now_us", lambda: later)
    slots = [slot("GPU-1", "runs"), slot("GPU-2")]
    small = {"job": "small", "gpus": 1, "position": 2.0, "max_runtime_seconds": 60.0}
    try:
        found = queue.line_up(
            folder, slots, "home", [{"job": "large", "gpus": 2, "position": 1.0}, small], []
        )
        assert not found["small"]["start"]
        assert endings_of(holdings(folder, ["GPU-1", "GPU-2"]))[0].seconds < 0
    finally:
        queue.close()
        lease.release()


def test_a_negative_time_in_an_entry_lets_nobody_pass() -> None:
    found = entry_of(1, {"job": "j", "gpus": 1, "max_runtime_seconds": -1e9}, now_us())

    assert found is not None and found.max_runtime_seconds is None


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param({"max_runtime_seconds": 60.0, "grace_seconds": 30.0}, 90.0, id="with its grace period"),
        pytest.param({}, None, id="without a limit"),
        pytest.param(
            {"max_runtime_seconds": 60.0, "data_stores": (DataStore("s", "s3", training_data="d"),)}, None,
            id="with data that is brought before",
        ),
    ],
)  # fmt: skip
def test_how_long_a_job_holds_its_gpus_at_most(keys: dict[str, Any], expected: float | None) -> None:
    spec = JobSpec(name="j", framework=Framework(version="", command="true"), **keys)

    assert spec.longest_seconds == expected
