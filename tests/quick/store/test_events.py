from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.stored_jobs import add_job, make_detail
from tests.support.waiting import ended
from workbench.errors import CannotWrite, NoSpaceLeft
from workbench.job import Intent, Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import TargetRef
from workbench.store.history.journal import append_event, read_events, targets_of
from workbench.store.queries.jobs import job, list_jobs, transitions
from workbench.store.queries.requests import add_request, pending_requests, settle_request
from workbench.store.updates.jobs import add_note, insert_job, new_attempt, set_intent, step
from workbench.store.updates.rebuild import reconcile


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def test_every_change_is_a_whole_line_of_the_jobs_history(store: Store) -> None:
    row = add_job(store)
    step(store, row.id, 1, State.PENDING, Reason("starts", "", "soon"))
    add_note(store, row.id, "three\nlines\n\u2028here")

    file = store.home.job(row.id).events
    events = [event for event, _ in read_events(file)]
    assert [event["do"] for event in events] == ["submit", "step", "note"]
    assert len(file.read_bytes().splitlines(keepends=True)) == 3
    assert all(event["time"] for event in events)
    assert events[1]["reason"] == {"text": "starts", "hint": "soon"}


def test_a_torn_line_is_cut_off_by_the_next_event(store: Store) -> None:
    row = add_job(store)
    file = store.home.job(row.id).events
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"do": "step", "st')

    step(store, row.id, 1, State.PENDING, Reason(""))

    assert file.read_bytes().startswith(whole + b'{"do":"step"')
    assert file.read_bytes().count(b"\n") == 2


def test_a_history_that_is_one_long_torn_line_begins_anew(store: Store) -> None:
    row = add_job(store)
    file = store.home.job(row.id).events
    file.write_bytes(b"x" * 200_000)

    add_note(store, row.id, "still here")

    assert [event["text"] for event, _ in read_events(file)] == ["still here"]


@pytest.mark.parametrize("failures", [2, 99])
def test_a_file_that_a_mount_does_not_open_at_once_is_opened_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    row = add_job(store)
    file = store.home.job(row.id).events
    left = {os.O_RDWR: failures, os.O_RDONLY: failures}

    def open_later(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if str(path) == str(file) and left[flags & os.O_ACCMODE]:
            left[flags & os.O_ACCMODE] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return opened(path, flags, mode)

    opened = os.open
    monkeypatch.setattr(os, "open", open_later)

    if failures == 99:
        with pytest.raises(CannotWrite, match="the disk reports an error"):
            add_note(store, row.id, "kept")
    else:
        add_note(store, row.id, "kept")
        assert [event["do"] for event, _ in read_events(file)] == ["submit", "note"]


def test_an_event_makes_no_home_that_was_removed(store: Store) -> None:
    row = add_job(store)
    shutil.rmtree(store.home.job(row.id).path)
    add_note(store, row.id, "the job's folder comes back")
    shutil.rmtree(store.home.path)

    with pytest.raises(CannotWrite, match="cannot write"):
        add_note(store, row.id, "nothing does")

    assert not store.home.path.exists()


def test_an_event_that_a_crash_kept_from_the_rows_is_applied_before_the_next_one(store: Store) -> None:
    row = add_job(store)
    event = {
        "do": "step",
        "time": 5,
        "attempt": 1,
        "state": "PENDING",
        "reason": {"text": "written, then killed"},
    }
    append_event(store.home, row.id, event)

    step(store, row.id, 1, State.PROCESSING, Reason("runs"), time_us=6)

    assert [entry.text for entry in transitions(store, row.id)][1:] == ["written, then killed", "runs"]


def test_a_step_that_was_written_before_a_crash_is_not_written_again(store: Store) -> None:
    row = add_job(store)
    event = {"do": "step", "time": 5, "attempt": 1, "state": "PENDING", "reason": {"text": "starts"}}
    append_event(store.home, row.id, event)

    step(store, row.id, 1, State.PENDING, Reason("starts"))

    found = job(store, row.id)
    assert found is not None
    assert (found.state, found.changed_us) == (State.PENDING, 5)
    assert len(list(read_events(store.home.job(row.id).events))) == 2


def test_garbage_and_later_kinds_of_events_do_no_harm(store: Store) -> None:
    row = add_job(store)
    with store.home.job(row.id).events.open("ab") as stream:
        stream.write(b'\xff\xfe\n[]\n{"no": "kind"}\nnull\n')
        stream.write(json.dumps({"do": "teleport", "time": 1}).encode() + b"\n")

    step(store, row.id, 1, State.PENDING, Reason("goes on"))

    found = job(store, row.id)
    assert found is not None
    assert found.state is State.PENDING


FAR = TargetRef("far", "ssh", "process", "ssh://far")


def test_a_history_names_the_targets_that_a_job_went_to_the_last_one_first(store: Store) -> None:
    row = add_job(store)
    for target in (FAR, row.target, FAR):
        new_attempt(store, row.id, Reason("resumed"), target=target)
    new_attempt(store, row.id, Reason("restarted"))

    assert targets_of(store.home, row.id) == [FAR, row.target]


@pytest.mark.parametrize(
    "place", [None, [], {"address": "of a later version"}, {**asdict(FAR), "options": []}]
)
def test_targets_that_cannot_be_read_are_left_out(store: Store, place: object) -> None:
    row = add_job(store)
    append_event(store.home, row.id, {"do": "attempt", "attempt": 2, "place": place})

    assert targets_of(store.home, row.id) == [row.target]
    store.home.job(row.id).job_file.write_text('{"format": 99}')
    assert targets_of(store.home, row.id) == []
    store.home.job(row.id).events.unlink()
    assert targets_of(store.home, row.id) == []


def test_rows_that_a_power_failure_undid_come_back(store: Store) -> None:
    home = store.home
    row = add_job(store, "before")
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(home.database, home.path / "earlier.db")
    step(store, row.id, 1, State.PENDING, Reason("starts"))
    later = add_job(store, "after")
    request = add_request(store, "halt", later.id, {}, "me@box", "cli")
    set_intent(store, later.id, Intent.HALT)
    wanted = list_jobs(store)
    store.close()
    for suffix in ("-wal", "-shm"):
        (home.path / f"fabric.db{suffix}").unlink(missing_ok=True)
    (home.path / "earlier.db").rename(home.database)

    with Store.open(home) as again:
        assert [found.name for found in list_jobs(again)] == ["before"]
        report = reconcile(again)
        assert (report.jobs, report.events, report.problems) == (2, 4, [])
        assert [(found.id, found.state, found.intent, found.seq) for found in list_jobs(again)] == [
            (found.id, found.state, found.intent, found.seq) for found in wanted
        ]
        assert [found.id for found in pending_requests(again)] == [request]
        assert reconcile(again).events == 0


def test_a_number_that_was_given_again_after_a_power_failure_costs_no_job(store: Store) -> None:
    home = store.home
    Store.open(home).close()
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(home.database, home.path / "earlier.db")
    lost = add_job(store, "lost")
    lost_request = add_request(store, "halt", lost.id, {}, "me@box", "cli")
    store.close()
    for suffix in ("-wal", "-shm"):
        (home.path / f"fabric.db{suffix}").unlink(missing_ok=True)
    (home.path / "earlier.db").rename(home.database)

    with Store.open(home) as again:
        newer = add_job(again, "newer")
        request = add_request(again, "kill", newer.id, {}, "me@box", "cli")
        assert (newer.seq, request) == (lost.seq, lost_request)
        reconcile(again)
        assert {row.name for row in list_jobs(again)} == {"lost", "newer"}
        assert {row.kind for row in pending_requests(again)} == {"halt", "kill"}


def test_a_folder_that_was_cut_off_before_its_submission_is_no_job(store: Store) -> None:
    wanted = make_detail()
    folder = store.home.job(wanted.row.id)
    folder.path.mkdir(parents=True)
    folder.job_file.write_text("{}")

    report = reconcile(store)

    assert report.never_submitted == [wanted.row.id]
    assert list_jobs(store) == []


def test_a_job_whose_file_is_damaged_is_reported_and_the_others_recovered(home: Home) -> None:
    with Store.open(home) as store:
        broken, fine = add_job(store, "broken"), add_job(store, "fine")
        home.job(broken.id).job_file.write_text('{"format": 1}')
        store.execute("DELETE FROM jobs")

        report = reconcile(store)

        assert [row.id for row in list_jobs(store)] == [fine.id]
        assert len(report.problems) == 1
        assert broken.id in report.problems[0]


def test_a_request_is_kept_with_who_and_what_became_of_it(store: Store) -> None:
    row = add_job(store)
    first = add_request(store, "halt", row.id, {"grace_seconds": 5}, "me@box", "tui")
    second = add_request(store, "restart_controller", "", {}, "me@box", "cli")
    assert [(found.id, found.kind, found.payload) for found in pending_requests(store)] == [
        (first, "halt", {"grace_seconds": 5}),
        (second, "restart_controller", {}),
    ]

    settle_request(store, first, "done")
    settle_request(store, first, "too late")
    settle_request(store, second, "done")
    settle_request(store, 999, "nobody asked")

    assert pending_requests(store) == []
    from workbench.store.queries.requests import request, requests

    (found,) = requests(store, row.id)
    assert (found.who, found.origin, found.outcome) == ("me@box", "tui", "done")
    assert request(store, second) is not None
    assert transitions(store, row.id)[-1].kind == "request"


def test_two_processes_write_one_jobs_history_line_by_line(store: Store) -> None:
    row = insert_job(store, make_detail())
    code = (
        "import sys; from pathlib import Path; from workbench.paths import Home;"
        "from workbench.store.db.database import Store; from workbench.store.updates.jobs import add_note;"
        "store = Store.open(Home(Path(sys.argv[1])))\n"
        "for number in range(40): add_note(store, sys.argv[2], sys.argv[3] + str(number))"
    )
    several = [
        subprocess.Popen([sys.executable, "-c", code, str(store.home.path), row.id, letter])
        for letter in "ab"
    ]
    assert [ended(process) for process in several] == [0, 0]

    texts = [entry.text for entry in transitions(store, row.id)[1:]]
    written = [
        event["text"] for event, _ in read_events(store.home.job(row.id).events) if event["do"] == "note"
    ]
    assert texts == written
    for letter in "ab":
        assert [text for text in texts if text[0] == letter] == [f"{letter}{number}" for number in range(40)]


def test_an_event_that_the_disk_takes_only_until_it_is_to_be_safe_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = add_job(store)
    before = store.home.job(row.id).events.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoSpaceLeft):
        step(store, row.id, 1, State.PENDING, Reason("starting"))

    assert store.home.job(row.id).events.read_bytes() == before
    found = job(store, row.id)
    assert found is not None
    assert found.state is State.QUEUED
