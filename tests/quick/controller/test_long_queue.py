"""What it takes to decide which of many jobs may start, and that most of them need not be looked at for it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

import pytest

from runners.interface import AttemptRef, HostGates, HostWait, SweepLimit
from tests.quick.controller.long_queue import BY_WEIGHT, KINDS, RUNNING, LongQueue
from workbench.controller.decide.scheduler import QueueVerdict
from workbench.job import State


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the calls of functions, and how often generators go on."""
    count = [0]

    def note(frame: FrameType, event: str, _: object) -> None:
        count[0] += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("kind", KINDS)
def test_twice_as_many_jobs_take_twice_as_long(kind: str) -> None:
    counts = []
    for number in (500, 1000):
        queue = LongQueue(number, kind)
        with counted() as count:
            queue.evaluate()
        counts.append(count[0])

    assert counts[1] < 2.2 * counts[0]


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_them_wait_with_a_reason(kind: str) -> None:
    queue = LongQueue(100, kind)

    waiting = queue.jobs[RUNNING:]
    assert {one.row.state for one in waiting} == {State.QUEUED}
    assert all(one.verdict is not None and not one.verdict.start and one.verdict.reason for one in waiting)


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_sorted_as_their_requests_are(kind: str) -> None:
    queue = LongQueue(RUNNING + 2, kind)

    assert [one.order for one in queue.jobs] == [one.slot_request().order for one in queue.jobs]


@pytest.mark.parametrize(("kind", "expected"), [(BY_WEIGHT, {"a": 19, "b": 81}), ("for GPUs", {"": 100})])
def test_a_host_is_given_the_first_by_their_weights_where_these_count(
    kind: str, expected: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a long sweep would keep a later one from its share: a host chooses among the jobs that it has."""
    monkeypatch.setattr("workbench.controller.loop.queue.HANDED_OVER_AT_ONCE", 100)
    queue = LongQueue(500, kind, first=350)

    given = [one for one in queue.jobs if one.verdict is not None and one.verdict.hand_over]
    assert Counter(one.row.labels.get("sweep", "") for one in given) == expected
    assert given == sorted(given, key=lambda one: one.order), "each sweep in its order"
    first = {one.verdict.reason for one in queue.jobs[RUNNING:] if one.verdict is not None}
    assert len(first) == 2, "all but the first wait behind that"


def test_what_a_host_would_be_given_with_a_job_decides_nothing() -> None:
    started = tuple(AttemptRef("home", f"training-{number}", 1, 1) for number in (1, 2))
    before = QueueVerdict(
        False, "waits", wait=HostWait("waits", HostGates(limit=SweepLimit("s", 2, started[:1])))
    )
    after = replace(before, wait=HostWait("waits", HostGates(limit=SweepLimit("s", 2, started))))

    assert after != before
    assert after.decisive == before.decisive
    assert replace(after, wait=None).decisive != before.decisive
    assert replace(after, hand_over=True).decisive != before.decisive
