"""What clients learn of a home's controller, and that what they ask of it wakes it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.controllers import alive, answers, controller, end_all
from tests.support.stored_jobs import add_job
from tests.support.waiting import until
from workbench.controller.client import connect, hang
from workbench.errors import InputMissing
from workbench.paths import Home
from workbench.services.control.requests import QueueChange, change, move
from workbench.services.controller import (
    ControllerReport,
    count_open_jobs,
    describe_hang,
    end_controller,
    inspect_controller,
    restart_controller,
)
from workbench.services.submit.schedules import delete_schedule, pause_schedule
from workbench.store.db.database import Store
from workbench.store.queries.schedules import ScheduleRow, schedules
from workbench.store.updates.schedules import write_schedule
from workbench.version import VERSION


@pytest.fixture
def made(home: Home) -> Iterator[Home]:
    """A home with a store; whatever controller it has at the end is ended."""
    Store.open(home).close()
    yield home
    end_all(home)


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[Home]:
    """The homes whose controller was woken; none is started."""
    homes: list[Home] = []

    def wake(home: Home) -> str:
        homes.append(home)
        return ""

    monkeypatch.setattr("workbench.controller.client.connect.ensure_controller", wake)
    return homes


def a_schedule(home: Home) -> ScheduleRow:
    row = ScheduleRow("schedule-abcdefghj", "nightly", "@daily", "UTC", "/", {}, {}, "me@here", 1)
    write_schedule(home, row)
    return row


def test_a_home_without_a_controller_has_none_and_its_open_jobs_are_counted(made: Home) -> None:
    with Store.open(made) as store:
        add_job(store)

    assert inspect_controller(made) == ControllerReport(None, "", False, "")
    assert count_open_jobs(made) == 1


def test_a_store_that_cannot_be_read_does_not_hide_the_controller(made: Home) -> None:
    running = controller(made)
    answers(made)
    made.database.rename(made.path / "aside")
    made.database.write_bytes(b"not a database" * 1000)
    try:
        assert inspect_controller(made).pid == running.pid
    finally:
        (made.path / "aside").rename(made.database)


def test_one_that_answers_is_restarted_and_ended(made: Home) -> None:
    first = controller(made)
    answers(made)

    assert inspect_controller(made) == ControllerReport(first.pid, VERSION, True, "")
    messages: list[str] = []
    second = restart_controller(made, messages.append)
    assert (second.answers, messages, alive(first.pid)) == (True, [], False)
    assert end_controller(made, messages.append)
    assert inspect_controller(made).pid is None
    assert not end_controller(made, messages.append)


def test_one_that_does_not_answer_is_named_with_what_helps(
    made: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(hang, "HANGS_SECONDS", 0.2)
    hanging = controller(made)
    answers(made)
    hanging.send_signal(signal.SIGSTOP)
    try:
        until(lambda: not inspect_controller(made).answers and describe_hang(made))

        found = inspect_controller(made)
        assert (found.pid, found.version, found.hint) == (hanging.pid, VERSION, "fabric controller restart")
        assert found.trouble == f"controller {hanging.pid} does not answer (stopped)"
        assert (
            describe_hang(made) == f"{found.trouble}; `fabric controller restart` ends it and starts another"
        )
    finally:
        os.kill(hanging.pid, signal.SIGCONT)


def test_a_home_without_jobs_has_no_controller_to_restart(home: Home) -> None:
    with pytest.raises(InputMissing, match="has no jobs"):
        restart_controller(home, print)


def test_whoever_changes_the_queue_wakes_the_controller(home: Home, woken: list[Home]) -> None:
    with Store.open(home) as store:
        first, second = add_job(store), add_job(store)

        assert list(change(store, [first], QueueChange(priority=70), origin="test").values()) == [first]
        assert move(store, second, "top", None, origin="test")
        assert woken == [home, home]
        # It stands there already: nothing is asked, and nobody is woken.
        assert change(store, [first], QueueChange(priority=70), origin="test") == {}
        assert woken == [home, home]


def test_whoever_changes_a_schedule_wakes_the_controller(home: Home, woken: list[Home]) -> None:
    Store.open(home).close()
    row = a_schedule(home)

    paused = pause_schedule(home, row, paused=True)
    assert paused.paused_us is not None
    assert pause_schedule(home, paused, paused=True) is paused
    assert woken == [home]
    delete_schedule(home, paused)
    assert schedules(home) == ([], [])
    assert woken == [home, home]
