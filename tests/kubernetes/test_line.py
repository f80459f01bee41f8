"""The line of launches: who was submitted first looks for nodes first, one after another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from runners.shared.launch_line import LaunchLine
from tests.support.waiting import patience


def test_launches_have_their_turns_in_the_order_of_submission_however_they_arrive() -> None:
    line, order = LaunchLine(), []
    begun = threading.Barrier(6)

    def launch(seq: int) -> None:
        position = line.enter(seq, f"training-{seq}")
        begun.wait(patience(30))
        while line.take_turn(position, 30):
            pass
        order.append(seq)
        line.leave(position)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(launch, [4, 2, 6, 1, 5, 3]))

    assert order == [1, 2, 3, 4, 5, 6]


def test_one_that_comes_back_waits_for_who_has_its_turn_and_goes_before_the_others() -> None:
    line = LaunchLine()
    second, third = line.enter(2, "second"), line.enter(3, "third")
    assert line.take_turn(second, 0) == ""
    first = line.enter(1, "first")

    assert line.take_turn(first, 0) == "second"
    assert line.take_turn(third, 0) == "second"
    line.leave(second)
    assert line.take_turn(third, 0) == "first"
    assert line.take_turn(first, 0) == ""


def test_a_position_that_is_left_delays_nobody() -> None:
    line = LaunchLine()
    first, second = line.enter(1, "first"), line.enter(2, "second")

    line.leave(first)

    assert line.take_turn(second, 0) == ""
