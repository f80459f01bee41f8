"""Which jobs start and which wait at a backend, and why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.interface import HostTurn
from workbench.controller.decide.scheduler import LINE_LENGTH, Capacity, LineAdmission, SlotRequest, schedule

TWO_CPUS = Capacity(cpus=2, slots=0)
FOUR_GPUS = Capacity(cpus=8, slots=4)


@pytest.fixture
def utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_what_asks_for_nothing_starts_beside_all_others() -> None:
    verdicts = schedule(
        TWO_CPUS, [SlotRequest("a", 1, cpus=2)], [SlotRequest("b", 2, cpus=1), SlotRequest("c", 3)]
    )

    assert (verdicts["b"].start, verdicts["c"].start) == (False, True)


def test_a_job_waits_while_others_hold_the_cpus_that_it_asked_for_and_says_who() -> None:
    verdict = schedule(TWO_CPUS, [SlotRequest("training-a", 1, cpus=2)], [SlotRequest("b", 2, cpus=1)])["b"]

    assert not verdict.start
    assert verdict.reason == "waits for 1 CPU: training-a holds 2 of 2 CPUs"


def test_jobs_share_the_cpus_that_there_are() -> None:
    verdicts = schedule(
        TWO_CPUS,
        [],
        [SlotRequest("a", 1, cpus=1), SlotRequest("b", 2, cpus=1), SlotRequest("c", 3, cpus=0.5)],
    )

    assert [verdicts[name].start for name in "abc"] == [True, True, False]


def test_one_that_asks_for_more_cpus_than_there_are_gets_what_there_is_and_says_so() -> None:
    alone = schedule(TWO_CPUS, [], [SlotRequest("a", 1, cpus=64)])["a"]
    beside = schedule(TWO_CPUS, [SlotRequest("b", 0, cpus=0.5)], [SlotRequest("a", 1, cpus=64)])["a"]

    assert alone.start and alone.note == "asks for 64 CPUs and gets the 2 that there are"
    assert not beside.start


def test_a_job_that_its_host_keeps_within_a_limit_holds_none_of_its_home_up() -> None:
    limited = HostTurn(
        start=False, place=1, of=3, free=2, limit="the host gives a home of fabric 1 GPU at once"
    )
    may_start = HostTurn(start=True, place=2, of=3, free=2)
    waiting = [
        SlotRequest("a", 1, slots=1, cpus=8, turn=limited),
        SlotRequest("b", 2, slots=2, cpus=1, turn=may_start),
        SlotRequest("c", 3, cpus=1),
    ]

    verdicts = schedule(FOUR_GPUS, [SlotRequest("r", 0, slots=2)], waiting)

    assert verdicts["a"].reason.endswith("1st of 3; the host gives a home of fabric 1 GPU at once")
    assert [verdicts[name].start for name in "abc"] == [False, True, True]


def test_who_waits_behind_many_is_known() -> None:
    running = [SlotRequest("r", 0, slots=4)]
    waiting = [SlotRequest(f"{number:02}", number, slots=1) for number in range(1, 15)]
    turns = {one.job_id: HostTurn(False, place=one.seq, of=14, free=0, others_ahead=True) for one in waiting}

    own = schedule(FOUR_GPUS, running, waiting)
    at_host = schedule(FOUR_GPUS, running, [replace(one, turn=turns[one.job_id]) for one in waiting])

    assert [name for name, one in own.items() if one.is_far] == ["11", "12", "13", "14"]
    assert {name: one.is_far for name, one in at_host.items()} == {
        name: one.is_far for name, one in own.items()
    }


NOW_US = 1_000_000_000_000_000
FROM_HOST = {"start": False, "place": 2, "of": 5, "free": 3, "ahead": "", "ahead_owner": ""} | {
    "others_ahead": True, "limit": "", "preempts": 0, "free_at_us": NOW_US + 90_000_000, "is_enough_then": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "hours_ahead", "until"),
    [
        ({}, 0, "; the next is free by about 01:49"),
        ({"is_enough_then": True}, 0, "; enough is free by about 01:49"),
        ({}, -1, "; the next is free by about 02:49"),
        ({}, 1, ""),
        ({"free_at_us": NOW_US}, 0, ""),
        ({"free_at_us": None}, 1, ""),
    ],
    ids=["next", "enough", "its clock is an hour behind", "and ahead", "it should be", "unknown"],
)
def test_a_reason_names_when_the_host_foresees_more_gpus(
    changed: dict[str, object], hours_ahead: int, until: str, utc: None
) -> None:
    turn = HostTurn.from_host({**FROM_HOST, **changed}, hours_ahead * 3_600_000_000)

    verdict = schedule(FOUR_GPUS, [], [SlotRequest("a", 1, slots=4, turn=turn)], NOW_US)["a"]

    assert verdict.reason == f"waits: needs 4 GPUs, 3 free{until}; 2nd of 5"


def test_a_reason_names_no_time_where_jobs_end_for_it_now() -> None:
    turn = HostTurn.from_host({**FROM_HOST, "preempts": 1}, 0)

    assert turn.reason(4, now_us=NOW_US, busy="GPU 0 by anna") == (
        "waits: needs 4 GPUs, 3 free; 2nd of 5; 1 job of a lower priority ends for it: GPU 0 by anna"
    )


def test_a_reason_names_who_drains_the_host_and_since_when_by_the_clock_here(utc: None) -> None:
    drained = {"limit": "the host is to be empty, by ada", "limit_since_us": NOW_US, "free_at_us": None}
    turn = HostTurn.from_host({**FROM_HOST, **drained}, 600_000_000)

    assert turn.reason(4, now_us=NOW_US) == (
        "waits: the host is to be empty, by ada, since 01:36:40; needs 4 GPUs, 3 free; 2nd of 5"
    )


def test_a_job_whose_turn_its_host_does_not_say_passes_none_that_it_keeps_within_a_limit() -> None:
    """Only the first hundred of a home wait at a host; those after them would be launched, and sent back."""
    limited = HostTurn(start=False, place=1, of=1, free=4, limit="the host gives a person 1 job at once")

    verdicts = schedule(
        FOUR_GPUS, [], [SlotRequest("a", 1, slots=1, turn=limited), SlotRequest("b", 2, slots=1)]
    )

    assert verdicts["b"].reason == "waits behind a, which goes first"


def test_first_come_first_served_even_where_a_later_one_would_fit() -> None:
    verdicts = schedule(
        TWO_CPUS,
        [SlotRequest("a", 1, cpus=1)],
        [SlotRequest("big", 2, cpus=2), SlotRequest("small", 3, cpus=1)],
    )

    assert not verdicts["small"].start
    assert verdicts["small"].reason == "waits behind big, which goes first"


def test_waiting_for_gpus_holds_up_nobody_who_wants_only_cpus() -> None:
    verdicts = schedule(
        FOUR_GPUS, [SlotRequest("a", 1, slots=4)], [SlotRequest("b", 2, slots=1), SlotRequest("c", 3, cpus=1)]
    )

    assert (verdicts["b"].start, verdicts["c"].start) == (False, True)
    assert verdicts["b"].reason == "waits for 1 GPU: a holds 4 of 4 GPUs"


def test_slots_that_others_hold_are_reported_in_the_runners_words() -> None:
    verdict = schedule(
        FOUR_GPUS, [], [SlotRequest("a", 1, slots=1, busy="GPU 0 is used by blender (4 GiB)")]
    )["a"]

    assert (verdict.start, verdict.reason) == (False, "GPU 0 is used by blender (4 GiB)")


def test_more_gpus_than_there_are_is_left_to_the_runner_to_refuse_at_once() -> None:
    assert schedule(FOUR_GPUS, [SlotRequest("a", 1, slots=4)], [SlotRequest("b", 2, slots=5)])["b"].start


def test_many_holders_are_named_briefly() -> None:
    holders = [SlotRequest(f"j{n}", n, cpus=0.4) for n in range(5)]

    assert schedule(TWO_CPUS, holders, [SlotRequest("z", 9, cpus=1)])["z"].reason == (
        "waits for 1 CPU: j0, j1, j2 and 2 more hold 2 of 2 CPUs"
    )


requests = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1, 2, 9]), st.integers(0, 5)), max_size=8)


@given(requests, st.integers(0, 8))
def test_nothing_is_promised_twice_nobody_overtakes_and_somebody_always_moves(
    asked: list[tuple[float, int]], ran: int
) -> None:
    capacity = Capacity(cpus=4, slots=4)
    everyone = [SlotRequest(str(seq), seq, cpus, slots) for seq, (cpus, slots) in enumerate(asked)]
    first = schedule(capacity, [], everyone)
    running = [wish for wish in everyone if first[wish.job_id].start]

    held = sum(min(wish.cpus, capacity.cpus) for wish in running)
    assert held <= capacity.cpus
    assert sum(wish.slots for wish in running if wish.slots <= capacity.slots) <= capacity.slots
    assert all(verdict.start or verdict.reason for verdict in first.values())
    if everyone:
        assert running
    for kind in ("cpus", "slots"):
        blocked = [w.seq for w in everyone if getattr(w, kind) and not first[w.job_id].start]
        assert not [w for w in running if getattr(w, kind) and blocked and w.seq > blocked[0]]


def test_where_the_backend_queues_only_so_many_look_for_slots_at_once_and_the_rest_wait_here() -> None:
    line = LineAdmission([SlotRequest("under way", 0, slots=1), SlotRequest("small", 0, cpus=1)])

    verdicts = [line.verdict(SlotRequest(f"training-{seq}", seq, slots=1)) for seq in range(1, 10)]

    assert [one.start for one in verdicts] == [True] * (LINE_LENGTH - 1) + [False, False]
    assert verdicts[-1].reason == f"waits behind training-{LINE_LENGTH - 1}, which goes first"


def test_what_needs_no_slot_and_has_one_learner_waits_behind_nobody_in_that_line() -> None:
    line = LineAdmission([SlotRequest(f"training-{seq}", seq, slots=1) for seq in range(LINE_LENGTH)])

    assert line.verdict(SlotRequest("alone", 99, cpus=1)).start
    assert not line.verdict(SlotRequest("several", 99, cpus=1, learners=2)).start


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        # a, b and c hold one, two and one of four GPUs; three are asked for. Times are minutes from now on.
        ({"a": 30, "b": 80, "c": 20.5}, "; enough is free by about 01:20"),
        ({"b": 20.5, "c": 10}, "; enough is free by about 00:21"),
        ({"b": 20}, ""),  # the third GPU may take any time
        ({"a": 5, "b": 24 * 60 + 5}, "; enough is free by about 1970-01-02 00:05"),
        ({"a": 5, "b": -1}, ""),  # it is over, and has not let go
        ({}, ""),
    ],
)
def test_a_reason_names_when_enough_is_free_where_max_runtime_lets_one_know_it(
    utc: None, ends: dict[str, float], reason: str
) -> None:
    minute_us, now_us = 60_000_000, 1  # to the microsecond after 1970-01-01 00:00, rounded up
    held = {"a": 1, "b": 2, "c": 1}
    running = [
        SlotRequest(
            name, seq, slots=held[name], ends_us=round(ends[name] * minute_us) if name in ends else None
        )
        for seq, name in enumerate(held)
    ]

    verdict = schedule(FOUR_GPUS, running, [SlotRequest("d", 9, slots=3)], now_us)["d"]

    assert verdict.reason == f"waits for 3 GPUs: a, b and c hold 4 of 4 GPUs{reason}"


def test_cpus_that_are_freed_in_time_are_named_too(utc: None) -> None:
    running = [SlotRequest("a", 1, cpus=64, ends_us=90_000_000)]

    verdict = schedule(TWO_CPUS, running, [SlotRequest("b", 2, cpus=1)])["b"]

    assert verdict.reason == "waits for 1 CPU: a holds 2 of 2 CPUs; enough is free by about 00:02"
