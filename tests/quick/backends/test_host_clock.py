"""A host's clock is compared with ours, and a time of day that is handed over is the host's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.interface import HostGates
from workbench.clock import replace_clock
from workbench.paths import Home

HOUR_US = 3_600_000_000
BEGIN_US = 4_000_000_000_000_000


class OurClock:
    """Shows what a test sets."""

    def __init__(self) -> None:
        self.us = 1_000_000_000_000_000

    def now_us(self) -> int:
        """Return the time of day."""
        return self.us

    def elapsed_seconds(self) -> float:
        """Return the same, as seconds."""
        return self.us / 1e6


class WrongHost(LocalHost):
    """A host elsewhere, whose clock is ahead of ours."""

    here = False

    def __init__(self, ours: OurClock, ahead_us: int) -> None:
        super().__init__(Home(Path("/nowhere")))
        self.ours, self.ahead_us = ours, ahead_us
        self.asked = 0

    def call(self, operation: str, **arguments: Any) -> Any:
        """Answer what time it is."""
        assert operation == "identity"
        self.asked += 1
        return {"now_us": self.ours.us + self.ahead_us}


@pytest.fixture
def ours() -> Iterator[OurClock]:
    clock = OurClock()
    with replace_clock(clock):
        yield clock


def gates_at(host: LocalHost, **gates: Any) -> HostGates:
    return HostGates(begin_us=BEGIN_US, **gates).at(host)


@pytest.mark.parametrize("ahead_us", [HOUR_US, -HOUR_US, 6_000_000])
def test_a_time_of_day_is_given_to_a_host_by_its_own_clock(ours: OurClock, ahead_us: int) -> None:
    assert gates_at(WrongHost(ours, ahead_us)).begin_us == BEGIN_US + ahead_us


@pytest.mark.parametrize("ahead_us", [0, 4_000_000, -4_000_000])
def test_a_clock_that_is_nearly_right_changes_nothing(ours: OurClock, ahead_us: int) -> None:
    assert gates_at(WrongHost(ours, ahead_us)).begin_us == BEGIN_US


def test_the_end_of_a_back_off_is_by_the_hosts_clock_already(ours: OurClock) -> None:
    host = WrongHost(ours, HOUR_US)

    assert gates_at(host, is_by_host_clock=True).begin_us == BEGIN_US
    assert HostGates().at(host) == HostGates()
    assert host.asked == 0


def test_a_host_is_asked_for_its_clock_once_and_not_after_an_answer_that_had_it(ours: OurClock) -> None:
    host, other = WrongHost(ours, HOUR_US), WrongHost(ours, HOUR_US)
    other.compare_clock(ours.us + HOUR_US, ours.us)

    assert [gates_at(one).begin_us for one in (host, host, other)] == [BEGIN_US + HOUR_US] * 3
    assert (host.asked, other.asked) == (1, 0)


def test_a_slow_answer_is_no_wrong_clock(ours: OurClock) -> None:
    host = WrongHost(ours, 0)
    asked_us = ours.us
    ours.us += 60_000_000

    host.compare_clock(ours.us, asked_us)

    assert host.clock_ahead_us() == 0


def test_what_is_known_of_a_clock_stays_until_that_is_set(ours: OurClock) -> None:
    host = WrongHost(ours, 0)
    found = []
    for ahead_us in (HOUR_US, HOUR_US + 1_000_000, HOUR_US - 2_000_000, 0, 2_000_000):
        host.compare_clock(ours.us + ahead_us, ours.us)
        found.append(host.clock_ahead_us())

    assert found == [HOUR_US, HOUR_US, HOUR_US, 0, 0]
