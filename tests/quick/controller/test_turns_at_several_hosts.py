"""A job over several hosts waits at each for its part, and starts once its turn has come at all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from backends.contract.host import Host
from backends.contract.host_group import learners_by_host
from runners.interface import HostTurn
from workbench.controller.decide.messages import CapacityMeasured
from workbench.controller.decide.scheduler import Capacity, LinedUpJob, SlotRequest, schedule
from workbench.controller.runtime.connections import SharedLine
from workbench.controller.targets.opener import combined, gpus_at

FIVE = LinedUpJob("five", gpus=10, each=2, priority=50)


def _host(start: bool, *, free: int, of: int = 1, slots: int = 8) -> CapacityMeasured:
    turn = HostTurn(start=start, place=of, of=of, free=free)
    return CapacityMeasured(
        "t", Capacity(16.0, slots), free, "" if start else "GPU 0 by ana (other)", turns={"five": turn}
    )


def test_learners_are_divided_into_blocks_of_which_the_first_are_longer() -> None:
    assert [list(one) for one in learners_by_host(5, 2)] == [[1, 2, 3], [4, 5]]
    assert [list(one) for one in learners_by_host(7, 3)] == [[1, 2, 3], [4, 5], [6, 7]]
    assert [gpus_at(FIVE, number, 2) for number in (0, 1)] == [6, 4]


def test_a_job_starts_when_its_turn_has_come_at_all_hosts() -> None:
    found = combined("t", {"box1": _host(True, free=6), "box2": _host(True, free=4)}, [FIVE])

    assert found.turns["five"].start
    assert found.capacity == Capacity(32.0, 16)
    asking = SlotRequest("five", 1, slots=10, learners=5, turn=found.turns["five"])
    assert schedule(Capacity(32.0, 16), [], [asking])["five"].start


def test_a_host_with_more_cpus_has_none_for_the_others() -> None:
    small, large = _host(True, free=6), _host(True, free=4)
    large = replace(large, capacity=Capacity(64.0, 8))

    found = combined("t", {"box1": small, "box2": large}, [])
    assert found.capacity == Capacity(32.0, 16)
    pair = [SlotRequest(name, number, cpus=32.0, learners=2) for number, name in enumerate(("one", "two"))]
    verdicts = schedule(found.capacity, [], pair)
    assert [verdict.start for verdict in verdicts.values()] == [True, False]


def test_the_first_host_where_it_waits_says_why() -> None:
    found = combined("t", {"box1": _host(True, free=6), "box2": _host(False, free=3)}, [FIVE])

    asking = SlotRequest("five", 1, slots=10, learners=5, turn=found.turns["five"])
    verdict = schedule(Capacity(32.0, 16), [], [asking])["five"]
    assert (verdict.start, verdict.reason) == (
        False,
        "box2: waits for 4 of 10 GPUs: GPU 0 by ana (other)",
    )
    # What is free in all is not what each can give.
    assert found.free_slots < 10


def test_one_who_is_behind_others_at_a_host_reads_its_place_there() -> None:
    found = combined("t", {"box1": _host(False, free=6, of=3), "box2": _host(True, free=4)}, [FIVE])

    assert found.turns["five"].text.startswith("box1: waits: needs 6 GPUs, 6 free; 3rd of 3")


def test_a_host_with_too_few_gpus_leaves_it_to_the_launch_to_say_so() -> None:
    found = combined("t", {"box1": _host(True, free=6), "box2": _host(False, free=2, slots=2)}, [FIVE])

    assert "five" not in found.turns
    assert found.lacking == {"five": "waits for 4 of 10 GPUs: box2 has 2 now"}


class _Queue:
    """A host that only notes what it was asked, and has all entries that it was to keep."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def call(self, operation: str, **asked: Any) -> dict[str, Any]:
        self.asked = asked
        names = [one["job"] for one in asked["waiting"]] + asked["keep"]
        return {"turns": {name: {} for name in names}, "missed": []}


def test_targets_that_share_a_connection_keep_the_entries_of_one_another() -> None:
    line, queue = SharedLine(), _Queue()
    host = cast(Host, queue)

    line.ask(host, "box1", home="h", waiting=[{"job": "alone"}], handed_over=[{"job": "given"}])
    found = line.ask(host, "box1+box2", home="h", waiting=[{"job": "together"}])
    assert queue.asked["keep"] == ["alone"]
    assert queue.asked["unchanged"] == ["given"]
    assert list(found["turns"]) == ["together"]

    line.ask(host, "box1", home="h", waiting=[], unchanged=["given"])
    assert (queue.asked["keep"], queue.asked["unchanged"]) == (["together"], ["given"])
    line.ask(host, "box1+box2", home="h", waiting=[])
    line.ask(host, "box1", home="h", waiting=[{"job": "next"}])
    assert queue.asked["keep"] == []


def test_homes_are_none_of_one_anothers_business() -> None:
    line, queue = SharedLine(), _Queue()

    line.ask(cast(Host, queue), "box1", home="one", waiting=[{"job": "theirs"}])
    line.ask(cast(Host, queue), "box1+box2", home="two", waiting=[{"job": "ours"}])
    assert queue.asked["keep"] == []
