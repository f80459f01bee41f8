"""A machine that starts on demand is stopped when it idles, is asked seldom while it is silent, and is noted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import cast

import pytest

from backends.contract.on_demand import OnDemandSettings
from workbench.controller.runtime.concurrency import Concurrency
from workbench.controller.targets import on_demand
from workbench.controller.targets.on_demand import (
    TAKEN_FOR_STOPPED_SECONDS,
    OnDemand,
    is_noted,
    note_machine,
    noted_machines,
)
from workbench.errors import BackendUnreachable
from workbench.paths import Home
from workbench.store.db.rows import TargetRef

DEMAND = OnDemandSettings(start="start", stop="stop", idle_seconds=60.0)
CLOUD = TargetRef("cloud", "ssh", "process", "ssh://cloud", {"on_demand": {"stop": "stop"}})


class _AtOnce:
    """Threads that have ended once they were started."""

    def start_thread(self, work: Callable[[], None], name: str) -> None:
        work()

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()


class _Machine:
    """A machine with its commands, on a clock that is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_up: bool) -> None:
        self.now = 0.0
        self.ran: list[str] = []
        self.lines: list[str] = []
        self.noted: list[bool] = []
        self.failure = ""
        self.asked_at: list[float] = []
        self.use: str | Exception = ""
        monkeypatch.setattr(on_demand, "elapsed_seconds", lambda: self.now)
        monkeypatch.setattr(on_demand, "_failure_of", self._run)
        concurrency = cast(Concurrency, _AtOnce())
        self.tended = OnDemand(
            "cloud", DEMAND, self.lines.append, self.noted.append, concurrency, is_up=is_up
        )

    def _run(self, command: str) -> str:
        self.ran.append(command)
        return self.failure

    def _in_use(self) -> str:
        self.asked_at.append(self.now)
        if isinstance(self.use, Exception):
            raise self.use
        return self.use

    def idles(self, seconds: float) -> None:
        """Pass the time, as the loop does: from one time at which it is due to the next."""
        until = self.now + seconds
        while (due := self.tended.tend(busy=False, in_use=self._in_use)) is not None and due <= until:
            self.now = due
        self.now = until


def test_one_that_an_earlier_controller_has_left_up_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(monkeypatch, is_up=True)

    machine.idles(59.0)
    assert machine.ran == []
    machine.idles(2.0)
    assert (machine.ran, machine.noted) == (["stop"], [False])
    assert machine.tended.tend(busy=False, in_use=str) is None


def test_one_that_is_up_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(monkeypatch, is_up=False)

    machine.tended.answered()
    machine.tended.answered()
    assert machine.noted == [True]


def test_one_that_a_job_claims_while_it_is_asked_what_runs_there_is_not_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = _Machine(monkeypatch, is_up=True)

    def claimed_meanwhile() -> str:
        machine.tended.claim()
        return ""

    machine.tended.tend(busy=False, in_use=str)
    machine.now = 60.0
    machine.tended.tend(busy=False, in_use=claimed_meanwhile)
    assert machine.ran == []


def test_a_job_that_comes_while_it_is_stopped_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(monkeypatch, is_up=True)
    why = []

    def claim_amid(command: str) -> str:
        with pytest.raises(BackendUnreachable) as refused:
            machine.tended.claim()
        why.append(refused.value.message)
        return ""

    monkeypatch.setattr(on_demand, "_failure_of", claim_amid)
    machine.idles(61.0)
    assert why == ["it is being stopped first: stop"]
    machine.tended.claim()


def test_one_whose_stop_command_fails_is_stopped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(monkeypatch, is_up=True)
    machine.failure = "no network"

    machine.idles(61.0)
    assert (machine.ran, machine.noted) == (["stop"], [])
    machine.failure = ""
    machine.idles(60.0)
    assert (machine.ran, machine.noted) == (["stop", "stop"], [False])


def test_one_that_is_silent_is_asked_more_and_more_seldom_and_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = _Machine(monkeypatch, is_up=True)
    machine.use = BackendUnreachable("cloud does not answer")

    machine.idles(3600.0)
    assert 6 <= len(machine.asked_at) <= 12
    assert len(machine.lines) == 1
    machine.idles(TAKEN_FOR_STOPPED_SECONDS)
    assert machine.lines[1:] == [
        "cloud has not answered for 24 h and is taken for stopped: cloud does not answer"
    ]
    assert (machine.ran, machine.noted) == ([], [False])
    assert machine.tended.tend(busy=False, in_use=str) is None


@pytest.mark.parametrize(
    ("idle_seconds", "asleep_seconds"),
    [
        pytest.param(7200.0, 0.0, id="is-asked-again-and-again"),
        pytest.param(61.0, 2 * TAKEN_FOR_STOPPED_SECONDS, id="the-laptop-slept-and-has-no-network-yet"),
    ],
)
def test_one_that_was_silent_and_answers_is_stopped(
    monkeypatch: pytest.MonkeyPatch, idle_seconds: float, asleep_seconds: float
) -> None:
    machine = _Machine(monkeypatch, is_up=True)
    machine.use = BackendUnreachable("cloud does not answer")

    machine.idles(idle_seconds)
    machine.now += asleep_seconds
    machine.idles(1.0)
    machine.use = ""
    machine.idles(900.0)
    assert machine.ran == ["stop"]


def test_one_whose_start_has_failed_is_stopped_should_it_be_up(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(monkeypatch, is_up=False)
    machine.failure = "timed out"

    machine.tended.request_start(BackendUnreachable("cloud does not answer"))
    machine.failure = ""
    machine.idles(61.0)
    assert (machine.ran, machine.noted) == (["start", "stop"], [True, False])


def test_one_that_is_silent_while_a_job_is_open_there_is_started_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = _Machine(monkeypatch, is_up=True)
    why = BackendUnreachable("cloud does not answer")

    assert machine.tended.unanswered(why) is why
    machine.now = 59.0
    assert machine.tended.unanswered(why) is why
    machine.tended.answered()
    machine.now = 100.0
    assert machine.tended.unanswered(why) is why
    assert machine.ran == []
    machine.now = 160.0
    machine.tended.unanswered(why)
    assert machine.ran == ["start"]


def test_one_that_is_used_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _Machine(monkeypatch, is_up=True)
    machine.use = "a learner runs there"

    machine.idles(600.0)
    assert machine.lines == ["cloud is not stopped: a learner runs there"]
    assert len(machine.asked_at) == 10


def test_a_home_has_the_machines_that_are_up(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.path.mkdir()
    assert list(noted_machines(home)) == []

    note_machine(home, CLOUD, is_up=True)
    (home.machines_on_demand / "other.json").write_text('{"target": []}')
    (home.machines_on_demand / "torn.json").write_text("{")
    assert list(noted_machines(home)) == [CLOUD]
    assert is_noted(home, CLOUD)
    assert home.machines_on_demand.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in home.machines_on_demand.glob("????????*.json")} == {0o600}

    note_machine(home, CLOUD, is_up=False)
    assert list(noted_machines(home)) == []


def test_a_home_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")

    note_machine(home, CLOUD, is_up=True)
    assert not home.path.exists()
