"""How long somebody waits for what a full disk keeps out of the store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from workbench.errors import CannotWrite, NoSpaceLeft
from workbench.job import Intent, Reason, State, short_id
from workbench.paths import Home
from workbench.services.follow import full_disk, wait
from workbench.services.follow.full_disk import LONG_SECONDS, SHORT_SECONDS, UnrecordedEnd, with_stall
from workbench.services.follow.wait import TROUBLE_SECONDS, UnconfirmedRequest
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow

FULL = "cannot write the store: the disk is full"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(full_disk, "elapsed_seconds", clock)
    return clock


@pytest.fixture
def row(home: Home) -> JobRow:
    with Store.open(home) as store:
        return add_job(store, "job", State.PROCESSING)


def is_in_state(home: Home, row: JobRow, **state: object) -> None:
    folder: Path = home.job(row.id).attempt(1).learner(1).path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(json.dumps(state))


def test_a_job_that_has_stopped_is_waited_for_for_a_moment(home: Home, row: JobRow, clock: Clock) -> None:
    is_in_state(home, row, phase="exited", exit_code=0)
    end = UnrecordedEnd(home)

    end.check([row], FULL)
    clock.now += SHORT_SECONDS - 1
    end.check([row], "")
    end.check([row], FULL)
    clock.now += SHORT_SECONDS - 1
    end.check([row], FULL)
    clock.now += 1

    with pytest.raises(NoSpaceLeft, match=r"cannot be recorded: .*the disk is full"):
        end.check([row], FULL)


def test_a_job_that_runs_is_waited_for_longer(home: Home, row: JobRow, clock: Clock) -> None:
    is_in_state(home, row, phase="running", exit_code=None, signal=None)
    reports: list[str] = []
    end = UnrecordedEnd(home, reports.append)

    end.check([row], FULL)
    clock.now += LONG_SECONDS - 1
    end.check([row], FULL)
    clock.now += 1

    with pytest.raises(NoSpaceLeft):
        end.check([row], FULL)
    assert reports == [FULL]


def test_without_trouble_nobody_stops_waiting(home: Home, row: JobRow, clock: Clock) -> None:
    is_in_state(home, row, phase="exited", exit_code=0, stall="")
    end = UnrecordedEnd(home)

    for _ in range(3):
        end.check([row], "")
        clock.now += 2 * LONG_SECONDS


def test_a_stall_is_the_reason_of_a_job_that_runs_and_of_no_other(home: Home, row: JobRow) -> None:
    is_in_state(home, row, phase="running", stall="the disk is full")

    assert with_stall(home, row).reason.text == "the disk is full"
    is_in_state(home, row, phase="exited", stall="the disk is full")
    assert with_stall(home, row) == row
    is_in_state(home, row, phase="running", stall="")
    assert with_stall(home, row) == row


def test_a_first_state_that_finds_no_room_is_the_reason_of_a_job_that_starts(home: Home, row: JobRow) -> None:
    folder: Path = home.job(row.id).attempt(1).learner(1).path
    folder.mkdir(parents=True)
    (folder / "state.json.stall").symlink_to("the disk is full: \x1b[31mit waits")

    assert with_stall(home, row).reason.text == "the disk is full: \\x1b[31mit waits"
    is_in_state(home, row, phase="running", stall="")
    assert with_stall(home, row) == row


@pytest.mark.parametrize("target", ["local", "ssh"])
def test_a_stop_that_its_backend_has_no_room_for_is_reported_and_not_waited_for(
    row: JobRow, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    clock, reports = Clock(), list[str]()
    monkeypatch.setattr(wait, "elapsed_seconds", clock)
    reason = Reason("is being killed by me; /x/stop.json: No space left on device.", "S204")
    asked = replace(row, intent=Intent.KILL, reason=reason, target=replace(row.target, type=target))
    request = UnconfirmedRequest("kill", reports.append)

    request.check([asked])
    clock.now += TROUBLE_SECONDS - 1
    request.check([asked])
    clock.now += 1

    with pytest.raises(CannotWrite, match=r"the kill of \w+ is recorded, .*No space left"):
        request.check([asked])
    assert reports == [f"{short_id(row.id)} {reason.text}"]


def test_a_search_without_open_jobs_is_waited_for_longer_and_named(home: Home, clock: Clock) -> None:
    end = UnrecordedEnd(home, name="digits")

    end.check([], FULL)
    clock.now += LONG_SECONDS - 1
    end.check([], FULL)
    clock.now += 1

    with pytest.raises(NoSpaceLeft, match="what happens to digits cannot be recorded"):
        end.check([], FULL)
