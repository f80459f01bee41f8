"""Schedules: which times come again, and what the controller does with each, at times that a test chooses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.support.waiting import until
from workbench.controller.loop.schedules import COUNTED, Look, Missed, Schedules, look
from workbench.controller.runtime.lock import ControllerLock
from workbench.controller.runtime.server import ControllerServer, socket_path
from workbench.errors import UsageError
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.recurrence import Recurrence, local_zone, recurrence
from workbench.services.submit.options import RunOptions
from workbench.services.submit.schedules import schedule_document
from workbench.store.db.database import Store
from workbench.store.db.identity import home_uuid
from workbench.store.queries.jobs import list_jobs
from workbench.store.queries.schedules import ScheduleRow, read_schedule, runs_of, schedules
from workbench.store.updates.jobs import step
from workbench.store.updates.schedules import new_schedule_id, record_run, set_paused, write_schedule
from workbench.version import VERSION

BERLIN = "Europe/Berlin"
MINUTE = 60_000_000
DAY = 24 * 60 * MINUTE


def us(text: str, zone: str = "UTC") -> int:
    """Return microseconds since 1970 of a local time."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000_000


def texts(every: str, begin: str, many: int, zone: str = BERLIN) -> list[str]:
    found = Recurrence(every, zone).times(us(begin, zone), many)
    return [
        datetime.fromtimestamp(at / 1e6, ZoneInfo(zone)).isoformat(timespec="minutes")[5:] for at in found
    ]


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        ("30 2 * * *", ["03-28T02:30+01:00", "03-29T03:00+02:00", "03-30T02:30+02:00"]),
        ("30 1 * * *", ["03-28T01:30+01:00", "03-29T01:30+01:00", "03-30T01:30+02:00"]),
        ("*/30 2 * * *", ["03-28T02:00+01:00", "03-28T02:30+01:00", "03-29T03:00+02:00"]),
        ("30 */12 * * *", ["03-28T00:30+01:00", "03-28T12:30+01:00", "03-29T00:30+01:00"]),
    ],
)
def test_a_time_that_clocks_skip_in_spring_comes_once_right_after(every: str, expected: list[str]) -> None:
    assert texts(every, "2026-03-27T23:00", 3) == expected


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        ("30 2 * * *", ["10-25T02:30+02:00", "10-26T02:30+01:00"]),
        ("*/30 2 * * *", ["10-25T02:00+02:00", "10-25T02:30+02:00", "10-26T02:00+01:00"]),
        ("0 * * * *", ["10-25T00:00+02:00", "10-25T01:00+02:00", "10-25T02:00+02:00", "10-25T02:00+01:00"]),
    ],
)
def test_a_time_that_clocks_show_twice_in_autumn_comes_once_unless_every_hour_counts(
    every: str, expected: list[str]
) -> None:
    assert texts(every, "2026-10-24T23:00", len(expected)) == expected


def test_no_time_comes_again_within_the_hour_that_clocks_show_twice() -> None:
    first = us("2026-10-25T00:30")  # 02:30 in Berlin, for the first time
    for minutes in range(0, 120, 7):
        following = Recurrence("30 2 * * *", BERLIN).next_after(first + minutes * MINUTE)
        assert following == us("2026-10-26T01:30"), minutes


def test_the_words_of_cron_are_known() -> None:
    assert texts("@daily", "2026-05-01T10:00", 2) == ["05-02T00:00+02:00", "05-03T00:00+02:00"]
    assert texts("@hourly", "2026-05-01T10:00", 1) == ["05-01T11:00+02:00"]
    assert texts("0 22 * * MON-FRI", "2026-05-01T23:00", 1) == ["05-04T22:00+02:00"]


@pytest.mark.parametrize(
    ("every", "what"),
    [
        ("0 22 * *", "'0 22 * *' has 4 fields, and a cron expression has five"),
        ("0 0 22 * * *", "has 6 fields"),
        ("61 * * * *", "see its minute"),
        ("0 0 * * FOO", "see its day-of-week"),
        ("0 0 30 2 *", "see its day-of-month"),
        ("@often", "'@often' is not a recurring time"),
        ("@reboot", "'@reboot' is not a recurring time"),
        ("", "'' has 0 fields"),
    ],
)
def test_what_is_no_expression_is_refused_in_one_sentence(every: str, what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)) as raised:
        recurrence(every, "UTC", 0)
    assert "@daily" in raised.value.hint


def test_the_zone_is_this_machines_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", BERLIN)
    assert local_zone() == BERLIN
    monkeypatch.setenv("TZ", "Atlantis/Deep")
    with pytest.raises(UsageError, match="no time zone 'Atlantis/Deep'"):
        local_zone()


def row_of(home: Home, every: str = "@daily", **keys: object) -> ScheduleRow:
    """Write a schedule of a command, made on 1 May 2026 at noon."""
    folder = home.path.parent / "work"
    folder.mkdir(exist_ok=True)
    row = ScheduleRow(
        id=new_schedule_id(),
        name="nightly",
        every=every,
        zone="UTC",
        folder=str(folder),
        options=asdict(RunOptions(command=("true",), argv=("fabric", "run", "--", "true"))),
        environment=dict(os.environ),
        who="test",
        created_us=us("2026-05-01T12:00"),
    )
    row = replace(row, **keys)  # type: ignore[arg-type]
    write_schedule(home, row)
    return row


@pytest.fixture
def home(home: Home) -> Iterator[Home]:
    """A home whose controller answers and does nothing else.

    A run's process wakes the controller and starts one where none answers. That one would look at the schedule too,
    today, and start the jobs.
    """
    with Store.open(home):
        pass
    lock = ControllerLock.take(home)
    assert lock is not None
    answer = {"ok": True, "version": VERSION}
    server = ControllerServer(socket_path(home_uuid(home)), lambda _: answer)
    lock.write_address(str(server.path))
    server.start()
    yield home
    server.close()
    lock.release()


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


class Controller:
    """What looks after schedules, at times that a test names."""

    def __init__(self, home: Home) -> None:
        self.log: list[str] = []
        self._begun = 0
        self._ended: list[bool] = []
        self._schedules = Schedules(home, self.log.append, lambda: self._ended.append(True))
        self._home = home

    def step(self, now_us: int) -> int | None:
        """Do what is due, and wait until the jobs of a run that is begun are made."""
        before = self._due()
        found = self._schedules.step(now_us)
        self._begun += self._due() - before
        until(lambda: len(self._ended) >= self._begun, lambda: f"{self.log}")
        return found

    @property
    def is_active(self) -> bool:
        return self._schedules.is_active

    def _due(self) -> int:
        return sum(len(events(self._home, row, "due")) for row in schedules(self._home)[0])


def events(home: Home, row: ScheduleRow, *kinds: str) -> list[dict[str, object]]:
    return [event for event in runs_of(home, row.id) if event["do"] in kinds]


def test_what_just_came_is_due_and_what_came_before_was_missed() -> None:
    row = row_of_nothing()
    created, night = row.created_us, us("2026-05-02T00:00")

    assert look(row, created, night - 1) == Look(None, None, night)
    assert look(row, created, night) == Look(None, night, night + DAY)
    assert look(row, created, night + MINUTE) == Look(None, night, night + DAY)
    assert look(row, created, night + 2 * MINUTE) == Look(Missed(1, night, night), None, night + DAY)
    assert look(row, created, night + 2 * DAY) == Look(
        Missed(2, night, night + DAY), night + 2 * DAY, night + 3 * DAY
    )


def test_a_year_of_minutes_is_not_counted_to_its_end() -> None:
    row = replace(row_of_nothing(), every="* * * * *")
    now = row.created_us + 365 * DAY

    found = look(row, row.created_us, now)

    assert found.missed == Missed(COUNTED, row.created_us + MINUTE, now)
    assert found.due_us is None


def row_of_nothing() -> ScheduleRow:
    return ScheduleRow("schedule-a", "a", "@daily", "UTC", "/", {}, {}, "test", us("2026-05-01T12:00"))


def test_a_time_that_comes_starts_a_job_with_the_schedules_label_once(home: Home, store: Store) -> None:
    row, night = row_of(home), us("2026-05-02T00:00")
    controller = Controller(home)

    assert controller.step(night - MINUTE) == night
    assert not events(home, row, "due")
    assert controller.step(night) == night + DAY
    (started,) = events(home, row, "started")
    controller.step(night + 1)
    Controller(home).step(night + 2)  # the one after it, when this one was killed

    (job,) = list_jobs(store)
    assert started["jobs"] == [job.id] and started["due_us"] == night
    assert job.labels == {"schedule": row.nine}
    assert len(events(home, row, "due")) == 1
    assert not events(home, row, "missed")


def test_a_time_is_skipped_while_the_run_before_goes_on(home: Home, store: Store) -> None:
    row, night = row_of(home), us("2026-05-02T00:00")
    controller = Controller(home)
    controller.step(night)
    (job,) = list_jobs(store)

    controller.step(night + DAY)
    (skipped,) = events(home, row, "skipped")
    assert skipped["job"] == job.id and "of the run before still goes on" in str(skipped["why"])
    assert len(list_jobs(store)) == 1

    step(store, job.id, 1, State.HALTED, Reason("was halted"), who="test", origin="test")
    controller.step(night + 2 * DAY)
    assert len(list_jobs(store)) == 2


def test_times_without_a_controller_are_reported_and_not_made_up_for(home: Home, store: Store) -> None:
    row, night = row_of(home), us("2026-05-02T00:00")

    assert Controller(home).step(night + 2 * DAY + 5 * MINUTE) == night + 3 * DAY

    (missed,) = events(home, row, "missed")
    assert (missed["count"], missed["first_us"], missed["last_us"]) == (3, night, night + 2 * DAY)
    assert missed["why"] == "no controller ran"
    Controller(home).step(night + 2 * DAY + 6 * MINUTE)
    assert len(events(home, row, "missed")) == 1
    assert not list_jobs(store) and not events(home, row, "due")


def test_a_run_that_was_cut_off_while_its_jobs_were_made_is_missed_not_repeated(home: Home) -> None:
    row, night = row_of(home), us("2026-05-02T00:00")
    record_run(home, row.id, {"do": "due", "due_us": night})

    Controller(home).step(night + 1)

    (missed,) = events(home, row, "missed")
    assert missed["first_us"] == night and "cut off" in str(missed["why"])
    assert len(events(home, row, "due")) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda row: replace(row, folder="/nowhere/at/all"), "/nowhere/at/all: no such file"),
        (
            lambda row: replace(row, options={**row.options, "command": [], "manifest": "gone.yml"}),
            "gone.yml",
        ),
    ],
    ids=["folder", "manifest"],
)
def test_a_run_that_cannot_be_made_is_refused_with_the_reason(
    home: Home, store: Store, change: Callable[[ScheduleRow], ScheduleRow], why: str
) -> None:
    row, night = change(row_of(home)), us("2026-05-02T00:00")
    write_schedule(home, row)

    Controller(home).step(night)

    (refused,) = events(home, row, "refused")
    assert why in str(refused["why"])
    assert not list_jobs(store)


def test_why_some_jobs_of_a_run_could_not_be_made_stays_to_read_until_the_next_one(home: Home) -> None:
    row = replace(row_of(home), paused_us=1)
    begun = {"do": "started", "due_us": us("2026-05-02T00:00"), "jobs": ["training-abcdefghj"]}

    record_run(home, row.id, {**begun, "why": "not all of its jobs: the disk is full"})
    assert schedule_document(home, row)["trouble"] == "not all of its jobs: the disk is full"
    record_run(home, row.id, {**begun, "why": ""})
    assert schedule_document(home, row)["trouble"] == ""


def test_a_paused_schedule_starts_and_misses_nothing(home: Home) -> None:
    row, night = row_of(home), us("2026-05-02T00:00")
    paused = set_paused(home, row, paused=True, who="test")
    controller = Controller(home)

    assert controller.step(night + DAY) is None
    assert not controller.is_active
    resumed = set_paused(home, paused, paused=False, who="test")
    # It counts from now on, which is after what this test calls night.
    assert look(resumed, events(home, row, "resumed")[0]["time"], night).missed is None  # type: ignore[arg-type]
    assert controller.step(night + DAY) is not None
    assert controller.is_active
    assert not events(home, row, "due", "missed")


def test_a_file_that_cannot_be_read_holds_up_no_other_schedule(home: Home) -> None:
    row, night = row_of(home), us("2026-05-02T00:00")
    broken, newer = row_of(home), row_of(home)
    home.schedule(broken.id).schedule_file.write_text("{")
    file = home.schedule(newer.id).schedule_file
    file.write_text(file.read_text().replace('"format": 1', '"format": 2'))
    controller = Controller(home)

    assert controller.step(night) == night + DAY

    assert [one.id for one in schedules(home)[0]] == [row.id]
    assert any("cannot be read" in line for line in controller.log) and any(
        "newer version" in line for line in controller.log
    )
    assert events(home, row, "started")


def test_its_files_are_private_and_read_back_as_they_were(home: Home) -> None:
    row = row_of(home)
    record_run(home, row.id, {"do": "created", "who": "test"})

    found = read_schedule(home, row.id)

    assert (found.id, found.every, found.options["command"]) == (row.id, "@daily", ["true"])
    folder = home.schedule(row.id)
    assert oct(folder.path.stat().st_mode & 0o777) == "0o700"
    assert {oct(file.stat().st_mode & 0o777) for file in folder.path.iterdir()} == {"0o600"}
    with folder.events.open("a") as stream:
        stream.write('{"do": "torn')
    record_run(home, row.id, {"do": "started", "due_us": None, "jobs": []})
    assert [event["do"] for event in runs_of(home, row.id)] == ["created", "started"]


def test_nothing_is_read_or_made_where_there_are_no_schedules(home: Home, tmp_path: Path) -> None:
    assert schedules(home) == ([], [])
    assert not home.schedules.exists()
