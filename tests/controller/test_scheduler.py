"""Who starts and who waits at a place, and why."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.controller.decide.scheduler import Capacity, SlotRequest, schedule

TWO_CPUS = Capacity(cpus=2, slots=0)
FOUR_GPUS = Capacity(cpus=8, slots=4)


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


def test_first_come_first_served_even_where_a_later_one_would_fit() -> None:
    verdicts = schedule(
        TWO_CPUS,
        [SlotRequest("a", 1, cpus=1)],
        [SlotRequest("big", 2, cpus=2), SlotRequest("small", 3, cpus=1)],
    )

    assert not verdicts["small"].start
    assert verdicts["small"].reason == "waits behind big, which came first"


def test_waiting_for_gpus_holds_up_nobody_who_wants_only_cpus() -> None:
    verdicts = schedule(
        FOUR_GPUS, [SlotRequest("a", 1, slots=4)], [SlotRequest("b", 2, slots=1), SlotRequest("c", 3, cpus=1)]
    )

    assert (verdicts["b"].start, verdicts["c"].start) == (False, True)
    assert verdicts["b"].reason == "waits for 1 GPU: a holds 4 of 4 GPUs"


def test_slots_that_others_hold_are_told_in_the_runners_words() -> None:
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


wishes = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1, 2, 9]), st.integers(0, 5)), max_size=8)


@given(wishes, st.integers(0, 8))
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
