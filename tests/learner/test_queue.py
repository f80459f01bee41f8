"""The queue of a host: entries that only their owners can make count, and one order that each reader computes."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from runners.interface import HostTurn
from tests.learner.lease_holders import ANNA, BERT, a_learner_whose_taker_is_gone, a_process
from tests.support.another_user import as_another
from tests.support.waiting import until
from workbench.learner.platform import leases
from workbench.learner.platform.inotify import IN_CLOSE_WRITE, IN_DELETE, IN_MOVED_TO, open_inotify
from workbench.learner.platform.owned_files import is_held_by_owner
from workbench.learner.platform.system import now_us
from workbench.learner.queue import entries
from workbench.learner.queue import line as host_line
from workbench.learner.queue.entries import (
    HeldEntries,
    QueueEntry,
    entry_of,
    file_name,
    group_mark,
    marks_text,
    read_entries,
)
from workbench.learner.queue.limits import Group, Held, person_group, sweep_group
from workbench.learner.queue.line import HostQueue, LeaseReading
from workbench.learner.queue.order import FreeGpus, by_weight, in_order, turns
from workbench.learner.queue.policy import BadPolicy, parse_policy, read_policy

HOME = "00000000-0000-0000-0000-00000000000a"
OTHER = "00000000-0000-0000-0000-00000000000b"
OFD_SETLK = 37


@pytest.fixture
def folder() -> Iterator[str]:
    root = Path(tempfile.mkdtemp(prefix="fab-"))
    root.chmod(0o755)
    (root / "leases").mkdir()
    (root / "leases").chmod(0o1777)
    yield str(root / "leases")
    shutil.rmtree(root)


@pytest.fixture
def held() -> Iterator[HeldEntries]:
    mine = HeldEntries()
    yield mine
    mine.close()


def entry(job: str, gpus: int = 1, **more: Any) -> QueueEntry:
    more.setdefault("person", 1000)
    more.setdefault("home", f"home-of-{more['person']}")
    return QueueEntry(job=job, gpus=gpus, **more)


def jobs_of(folder: str) -> list[str]:
    return [one.job for one in in_order(read_entries(folder))]


# Entries


def test_an_entry_counts_while_its_owner_holds_it(folder: str, held: HeldEntries) -> None:
    assert held.hold(folder, HOME, "job-1", {"gpus": 2, "each": 2, "priority": 70})

    (found,) = read_entries(folder)
    assert (found.person, found.home, found.job) == (os.geteuid(), HOME, "job-1")
    assert (found.gpus, found.each, found.priority, found.format) == (2, 2, 70, 1)

    held.close()
    assert read_entries(folder) == []


def test_an_entry_keeps_its_time_when_the_laptop_comes_back(folder: str, held: HeldEntries) -> None:
    held.hold(folder, HOME, "job-1", {"gpus": 2})
    (before,) = read_entries(folder)
    held.close()

    HeldEntries().hold(folder, HOME, "job-1", {"gpus": 2, "priority": 60})
    again = HeldEntries()
    again.hold(folder, HOME, "job-1", {"gpus": 2, "priority": 60})

    (after,) = read_entries(folder)
    assert (after.since_us, after.priority) == (before.since_us, 60)
    again.close()


def test_an_entry_keeps_its_time_when_somebody_empties_its_folder(folder: str, held: HeldEntries) -> None:
    long_ago_us = now_us() - 3_600_000_000
    held.hold(folder, HOME, "job-1", {"gpus": 2, "since_us": long_ago_us})
    Path(folder, file_name(HOME, "job-1")).unlink()

    assert held.hold(folder, HOME, "job-1", {"gpus": 2})

    assert [one.since_us for one in read_entries(folder)] == [long_ago_us]


def test_an_entry_that_waited_for_days_is_not_old_when_its_holder_is_gone(
    folder: str, held: HeldEntries
) -> None:
    path = Path(folder, file_name(HOME, "job-1"))
    held.hold(folder, HOME, "job-1", {"gpus": 2})
    os.utime(path, (1, 1))  # since when it has been the same
    opened = until(open_inotify, "a watch: other tests have many")
    assert opened is not None
    with closing(opened) as watch:  # others who wait have nothing to look at
        watch.add(folder, IN_CLOSE_WRITE | IN_MOVED_TO)
        held.hold(folder, HOME, "job-1", {"gpus": 2})
        assert not list(watch.read())
    held.close()

    read_entries(folder)

    assert path.exists()


def test_an_entry_that_nobody_holds_is_removed_after_a_day(folder: str, held: HeldEntries) -> None:
    held.hold(folder, HOME, "job-1", {"gpus": 2})
    held.let_go(folder, HOME, "job-1")
    path = Path(folder, file_name(HOME, "job-1"))

    read_entries(folder)
    assert path.exists()
    os.utime(path, (1, 1))
    opened = until(open_inotify, "a watch: other tests have many")
    assert opened is not None
    with path.open("rb") as stream, closing(opened) as watch:  # somebody reads it with a lock
        fcntl.fcntl(stream, OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
        watch.add(folder, IN_CLOSE_WRITE | IN_MOVED_TO)
        read_entries(folder)
        assert not list(watch.read())
    assert not path.exists()


def test_an_entry_is_not_removed_that_is_renewed_while_its_old_file_is_read(
    folder: str, held: HeldEntries, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.hold(folder, HOME, "job-1", {"gpus": 2})
    os.utime(Path(folder, file_name(HOME, "job-1")), (1, 1))  # it waits for more than a day

    def renewed_meanwhile(descriptor: int) -> bool:
        held.hold(folder, HOME, "job-1", {"gpus": 2, "priority": 60})
        return is_held_by_owner(descriptor)

    monkeypatch.setattr(entries, "is_held_by_owner", renewed_meanwhile)
    read_entries(folder)
    monkeypatch.undo()

    assert [one.priority for one in read_entries(folder)] == [60]


def test_two_processes_of_one_person_do_not_hold_the_same_entry(folder: str, held: HeldEntries) -> None:
    second = HeldEntries()

    assert held.hold(folder, HOME, "job-1", {"gpus": 2})
    assert not second.hold(folder, HOME, "job-1", {"gpus": 8})

    assert [one.gpus for one in read_entries(folder)] == [2]


def test_an_entry_that_another_process_holds_is_tried_without_a_word_to_those_who_watch_its_folder(
    folder: str, held: HeldEntries
) -> None:
    held.hold(folder, HOME, "job-1", {"gpus": 2})
    opened = until(open_inotify, "a watch: other tests have many")
    assert opened is not None
    with closing(opened) as watch:
        watch.add(folder, IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE)
        is_held = HeldEntries().hold(folder, HOME, "job-1", {"gpus": 2})
        heard = list(watch.read())

    assert not is_held
    assert heard == []


def test_who_gave_an_entry_away_does_not_remove_that_of_who_took_it(folder: str, held: HeldEntries) -> None:
    """It may not know that it was taken: the answer got lost."""
    held.hold(folder, HOME, "a", {"gpus": 1})
    descriptor = held.descriptor(folder, HOME, "a")
    assert descriptor is not None
    taker = HeldEntries()
    taker.adopt(folder, HOME, "a", os.dup(descriptor))
    taker.hold(folder, HOME, "a", {"gpus": 2})

    held.keep_only(folder, HOME, set())

    assert [(one.job, one.gpus) for one in read_entries(folder)] == [("a", 2)]
    taker.close()


def test_an_entry_that_is_renewed_is_never_missed(folder: str, held: HeldEntries) -> None:
    held.hold(folder, HOME, "job-1", {"gpus": 2})
    (before,) = read_entries(folder)
    done = threading.Event()

    def renew() -> None:
        for tries in range(500):
            held.hold(folder, HOME, "job-1", {"gpus": 2, "tries": tries})
        done.set()

    thread = threading.Thread(target=renew)
    thread.start()
    while not done.is_set():
        assert [one.since_us for one in read_entries(folder)] == [before.since_us]
    thread.join()


def test_a_text_says_neither_the_command_nor_the_name_of_a_job(folder: str, held: HeldEntries) -> None:
    HostQueue().line_up(folder, [], HOME, [{"job": "training-x", "gpus": 1}], [])
    held.hold(folder, HOME, "training-x", {"gpus": 1})

    text = (Path(folder) / file_name(HOME, "training-x")).read_text()
    assert set(json.loads(text)) <= {
        *("format", "home", "job", "gpus", "each", "priority", "position", "since_us", "weight"),
        *("max_runtime_seconds", "tries"),
    }


def test_an_entry_whose_owner_is_gone_does_not_count_whoever_locks_it(folder: str) -> None:
    held = HeldEntries()
    held.hold(folder, HOME, "job-1", {"gpus": 8, "priority": 100})
    path = Path(folder) / file_name(HOME, "job-1")
    held.close()

    def hostile() -> None:
        with path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            fcntl.fcntl(stream, OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
            assert read_entries(folder) == []
            with pytest.raises(OSError, match="Bad file descriptor"):
                fcntl.fcntl(stream, OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))

    as_another(hostile)


def test_who_locks_an_old_entry_for_reading_keeps_its_owner_from_nothing(
    folder: str, held: HeldEntries
) -> None:
    gone = HeldEntries()
    gone.hold(folder, HOME, "job-1", {"gpus": 8})
    (before,) = read_entries(folder)
    gone.close()
    with (Path(folder) / file_name(HOME, "job-1")).open("rb") as stream:
        fcntl.fcntl(stream, OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))

        assert held.hold(folder, HOME, "job-1", {"gpus": 8})

    assert [one.since_us for one in read_entries(folder)] == [before.since_us]


def test_the_person_is_the_files_owner_whatever_its_text_says(folder: str) -> None:
    def hostile() -> None:
        held = HeldEntries()
        facts = {"gpus": 1, "priority": 9999, "person": 0, "owner": "root", "since_us": -5}
        assert held.hold(folder, HOME, "job-1", facts)
        (found,) = read_entries(folder)
        assert (found.person, found.priority) == (12346, 100)

    as_another(hostile)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"[1]",
        b"\xff\xfe",
        b"[" * 4000,
        b'{"gpus": -1}',
        b'{"gpus": 1e400}',
        b'{"gpus": true}',
    ],
)
def test_garbage_blocks_nobody(folder: str, held: HeldEntries, text: bytes) -> None:
    held.hold(folder, HOME, "job-1", {"gpus": 1})
    held.hold(folder, HOME, "job-2", {"gpus": 1})
    (Path(folder) / file_name(HOME, "job-1")).write_bytes(text)

    assert jobs_of(folder) == ["job-2"]


def test_links_pipes_and_files_that_others_may_write_do_not_count(
    folder: str, held: HeldEntries, tmp_path: Path
) -> None:
    for job in ("linked", "open", "twice", "good"):
        held.hold(folder, HOME, job, {"gpus": 1})
    path = Path(folder) / file_name(HOME, "linked")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    (Path(folder) / file_name(HOME, "open")).chmod(0o666)
    (tmp_path / "second").hardlink_to(Path(folder) / file_name(HOME, "twice"))
    os.mkfifo(Path(folder) / "queue-pipe")

    assert jobs_of(folder) == ["good"]


def test_what_was_in_an_entrys_file_does_not_count_where_the_disk_takes_no_other(
    folder: str, held: HeldEntries, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Path(folder, file_name(HOME, "job-1"))
    there.write_text(json.dumps({"home": "another", "job": "job-2", "gpus": 2}))
    monkeypatch.setattr(entries, "replace_own", lambda *_: None)  # the disk is full

    assert not held.hold(folder, HOME, "job-1", {"gpus": 2})

    assert read_entries(folder) == []
    monkeypatch.undo()
    assert held.hold(folder, HOME, "job-1", {"gpus": 2})
    assert [one.job for one in read_entries(folder)] == ["job-1"]


def test_a_file_that_somebody_else_put_in_the_way_is_not_written_to(folder: str, held: HeldEntries) -> None:
    path = Path(folder) / file_name(HOME, "job-1")
    path.write_text("precious")
    path.chmod(0o644)
    if os.getuid() == 0:
        os.chown(path, 12346, 12346)
    else:
        path.unlink()
        path.symlink_to("/etc/hostname")

    assert not held.hold(folder, HOME, "job-1", {"gpus": 1})
    assert jobs_of(folder) == []
    assert os.getuid() or path.read_text() == "precious"


def test_a_newer_entry_is_shown_and_respected() -> None:
    found = entry_of(1000, {"format": 7, "gpus": 4, "job": "a", "shape": "new", "each": 2}, 10)

    assert found == QueueEntry(1000, "", "a", 4, 2, since_us=10, format=7)


def test_a_time_that_is_to_come_is_now() -> None:
    found = entry_of(1000, {"gpus": 4, "since_us": 99}, 10)

    assert found is not None and found.since_us == 10


def test_nobody_makes_others_read_without_end(
    folder: str, held: HeldEntries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.learner.queue.entries.ENTRIES_OF_A_PERSON", 3)
    for number in range(5):
        held.hold(folder, HOME, f"job-{number}", {"gpus": 1})

    assert len(read_entries(folder)) == 3


# The order


def test_priority_goes_first_then_time() -> None:
    entries = [entry("late", since_us=9), entry("high", priority=70, since_us=5), entry("early", since_us=1)]

    assert [one.job for one in in_order(entries)] == ["high", "early", "late"]


def test_positions_exchange_a_homes_own_turns_and_pass_nobody() -> None:
    entries = [
        entry("a1", person=1, since_us=1),
        entry("b1", person=2, since_us=2, position=-1e9),
        entry("a2", person=1, since_us=3, position=-5),
        entry("b2", person=2, since_us=4),
    ]

    assert [one.job for one in in_order(entries)] == ["a2", "b1", "a1", "b2"]


def test_one_that_waits_for_four_is_not_starved_by_those_that_need_two() -> None:
    found = turns([entry("big", 4, since_us=1), entry("small", 2, since_us=2)], FreeGpus(4, whole_free=2))

    assert {key[2]: turn.start for key, turn in found.items()} == {"big": False, "small": False}
    small = found[1000, "home-of-1000", "small"]
    assert (small.place, small.of, small.free, small.ahead[2]) == (2, 2, 2, "big")


def test_those_who_fit_start_together() -> None:
    entries = [entry(name, 1, since_us=at) for at, name in enumerate("abc", start=1)]

    found = turns(entries, FreeGpus(4, whole_free=2))

    assert [turn.start for turn in found.values()] == [True, True, False]


def test_one_that_asks_for_more_than_there_are_holds_nobody_up() -> None:
    found = turns([entry("five", 5, since_us=1), entry("one", 1, since_us=2)], FreeGpus(4, whole_free=4))

    assert [turn.start for turn in found.values()] == [False, True]


def test_two_that_need_all_do_not_wait_for_each_other() -> None:
    found = turns([entry("a", 2, since_us=1), entry("b", 2, since_us=2)], FreeGpus(2, whole_free=2))

    assert [turn.start for turn in found.values()] == [True, False]


def test_a_slice_is_for_learners_with_one_gpu_each() -> None:
    gpus = FreeGpus(whole=1, slices=2, whole_free=1, slices_free=2)

    found = turns([entry("pair", 2, each=2, since_us=1), entry("two", 2, each=1, since_us=2)], gpus)

    assert [turn.start for turn in found.values()] == [False, True]


def test_who_does_not_take_the_gpus_for_a_minute_is_passed(
    folder: str, held: HeldEntries, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.hold(folder, OTHER, "never", {"gpus": 2, "priority": 100})
    slots = [{"uuid": f"GPU-{number}", "memory_bytes": 1} for number in range(2)]
    queue = HostQueue()
    wanted = {"job": "mine", "gpus": 2, "each": 2}
    before = queue.turn(folder, slots, HOME, wanted)

    monkeypatch.setattr(host_line, "OFFER_SECONDS", 0.0)
    queue.turn(folder, slots, HOME, wanted)
    after = queue.turn(folder, slots, HOME, wanted)

    assert (before["start"], before["ahead"], before["place"], before["of"]) == (False, "never", 2, 2)
    assert after["start"]
    held.hold(folder, OTHER, "never", {"gpus": 2, "priority": 100, "tries": 1})
    assert not queue.turn(folder, slots, HOME, wanted)["start"], "it writes that it is there again"
    queue.close()


def test_a_home_lines_up_and_leaves(folder: str) -> None:
    queue = HostQueue()
    waiting = [{"job": "a", "gpus": 2, "each": 2}, {"job": "b", "gpus": 1, "each": 1}]
    busy = [{"uuid": "GPU-1", "memory_bytes": 1, "holder": "x"}, {"uuid": "GPU-2", "memory_bytes": 1}]

    found = queue.line_up(folder, busy, HOME, waiting, [])
    assert {job: (turn["place"], turn["start"]) for job, turn in found.items()} == {
        "a": (1, False),
        "b": (2, False),
    }
    assert jobs_of(folder) == ["a", "b"]

    queue.line_up(folder, busy, HOME, [], ["a"])
    assert jobs_of(folder) == ["a"], "its launch is under way"
    queue.leave(folder, HOME, "a")
    assert jobs_of(folder) == []
    queue.close()


# Policies


def started(
    entries: list[QueueEntry], gpus: int, policy: str, held: dict[Group, Held] | None = None
) -> list[str]:
    """Return the jobs that start, by a policy of people who are named by their numbers."""
    found = turns(entries, FreeGpus(gpus, whole_free=gpus), policy=parse_policy(policy), held=held or {})
    return [key[2] for key, turn in found.items() if turn.start]


@pytest.mark.parametrize(
    ("is_before", "is_claimed", "named"),
    [
        (False, False, f"{ANNA}@box's job training-x has 2 GPUs"),
        (True, False, ""),
        (False, True, ""),
    ],
    ids=["an older fabric since then", "an older fabric before", "one in its turn"],
)
def test_who_takes_gpus_out_of_turn_is_named_to_the_first_that_waits(
    folder: str, monkeypatch: pytest.MonkeyPatch, is_before: bool, is_claimed: bool, named: str
) -> None:
    queue = HostQueue()
    slots = [{"uuid": f"GPU-{number}", "memory_bytes": 1, "holder": "x"} for number in range(3)]
    waiting = [{"job": job, "gpus": 3, "each": 1} for job in ("first", "second")]
    text = json.dumps({"owner": f"{ANNA}@box", "job": "training-x"})

    def look() -> dict[str, dict[str, Any]]:
        return queue.line_up(folder, slots, HOME, waiting, [])

    def take() -> None:
        for number in range(2):
            if is_claimed:
                assert leases.take([f"GPU-{number}"], folder, text) is not None
                continue
            descriptor = os.open(f"{folder}/GPU-{number}", os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, text.encode())

    if not is_before:
        look()
    with a_process(take, ANNA):
        just_taken = look()
        monkeypatch.setattr(host_line, "STEADY_SECONDS", 0.0)
        turns = look()
    queue.close()

    assert just_taken["first"]["out_of_turn"] == "", "it may be a lease that is let go at this moment"
    assert [turns[job]["out_of_turn"] for job in ("first", "second")] == [named, ""]
    reason = HostTurn.from_host(turns["first"], 0).reason(3, now_us=0)
    assert (f"; {named} out of turn: an older fabric" in reason) == bool(named)


def test_a_person_with_a_limit_of_one_gpu_leaves_the_rest_to_others() -> None:
    """``MaxSlots`` of Determined's tests: tasks 1-4 of a group with at most one slot, 5-8 of another."""
    entries = [entry(str(one), person=1 if one < 5 else 2, since_us=one) for one in range(1, 9)]

    assert sorted(started(entries, 4, "[people.1]\nmax_gpus = 1")) == ["1", "5", "6", "7"]


def test_weights_of_10_and_30_share_8_gpus_as_2_and_6() -> None:
    entries = [entry(f"{one}", person=1 + one // 20, since_us=one + 1) for one in range(40)]
    text = 'policy = "fair_share"\n[people.1]\nweight = 10\n[people."2"] # the others\nweight = 30'

    found = started(entries, 8, text)

    assert (sum(int(job) < 20 for job in found), sum(int(job) >= 20 for job in found)) == (2, 6)


def test_of_two_jobs_that_need_both_gpus_the_first_gets_them() -> None:
    """``MultiSlotDeadlock`` of Determined's tests."""
    entries = [entry("a", 2, person=1, since_us=1), entry("b", 2, person=2, since_us=2)]

    assert started(entries, 2, 'policy = "fair_share"') == ["a"]


def test_a_job_that_fits_never_blocks_nobody_under_fair_share() -> None:
    """``BigTask`` of Determined's tests."""
    entries = [entry("big", 5, person=1, since_us=1), entry("a", person=2, since_us=2)]

    assert started(entries, 4, 'policy = "fair_share"') == ["a"]


def test_what_a_person_holds_counts_for_the_share() -> None:
    entries = [entry("a", person=1, since_us=1), entry("b", person=2, since_us=2)]

    assert started(entries, 1, 'policy = "fair_share"', {person_group(1): Held(3, 1)}) == ["b"]


def test_a_limit_of_jobs_counts_those_that_run() -> None:
    entries = [entry("a", person=1, since_us=1), entry("b", person=2, since_us=2)]

    assert started(entries, 4, "max_jobs = 1", {person_group(1): Held(1, 1)}) == ["b"]
    found = turns(
        entries,
        FreeGpus(4, whole_free=4),
        policy=parse_policy("max_jobs = 1"),
        held={person_group(1): Held(1, 1)},
    )
    assert found[1, "home-of-1", "a"].limit == "the host gives a person 1 job at once"


def test_first_come_knows_no_priority_and_a_cap_makes_large_ones_equal() -> None:
    entries = [entry("a", person=1, since_us=1), entry("b", person=2, since_us=2, priority=90)]

    assert started(entries, 1, 'policy = "priority"') == ["b"]
    assert started(entries, 1, 'policy = "first_come"') == ["a"]
    assert started(entries, 1, "max_priority = 50") == ["a"]
    assert started(entries, 1, "max_priority = 50\n[people.2]\nmax_priority = 80") == ["b"], (
        "who may have more"
    )
    assert started(entries, 1, "[people.2]\nmax_priority = 50") == ["a"], "who may have less"


# Weights within a person's share

SHARED = 'policy = "fair_share"'
A, B = group_mark("a"), group_mark("b")


def sweep(name: str, count: int, weight: float = 1.0, **more: Any) -> list[QueueEntry]:
    """Return the jobs of a sweep, the first of which came at ``since_us``."""
    first = more.pop("since_us", 1)
    return [
        entry(f"{name}{number}", group=group_mark(name), weight=weight, since_us=first + number, **more)
        for number in range(count)
    ]


def alone(job: str, weight: float = 1.0, **more: Any) -> QueueEntry:
    return entry(job, weight=weight, **more)


@pytest.mark.parametrize(
    ("entries", "held", "expected"),
    [
        pytest.param(
            [*sweep("a", 6, 2.0), *sweep("b", 6)], {}, "a0 b0 a1 b1 a2 a3", id="2:1 of 6 GPUs are 4 and 2"
        ),
        pytest.param(
            [*sweep("a", 6), *sweep("b", 6, 2.0)], {}, "a0 b0 b1 a1 b2 b3", id="whichever came first"
        ),
        pytest.param(
            [*sweep("a", 6, 2.0), *sweep("b", 6, 2.0)], {}, "a0 b0 a1 b1 a2 b2", id="equal ones go by time"
        ),
        pytest.param(
            [*sweep("a", 3), *sweep("b", 3, since_us=9)], {B: 0, A: 6}, "a0 a1 a2 b0 b1 b2",
            id="where all are equal nothing that is held counts",
        ),
        pytest.param(
            [*sweep("a", 6, 2.0), *sweep("b", 6)], {A: 4}, "b0 b1 a0 b2 a1 a2", id="what a group holds counts"
        ),
        pytest.param(
            [*sweep("a", 6, 2.0), *sweep("b", 6, priority=60)], {}, "b0 b1 b2 b3 b4 b5",
            id="priority comes before weight",
        ),
        pytest.param(
            [*sweep("a", 3, 2.0), *sweep("b", 3), *sweep("c", 9, 5.0, priority=49)], {}, "a0 b0 a1 b1 a2 b2",
            id="a lower priority waits for all of a higher one",
        ),
        pytest.param(
            [*sweep("a", 3, position=2), alone("x", 1.0, position=1, since_us=9)], {}, "x a0 a1 a2",
            id="positions order what has one weight",
        ),
        pytest.param(
            [*sweep("a", 4), alone("x", 3.0, since_us=9), alone("y", 2.0, since_us=10)], {}, "a0 x y a1 a2 a3",
            id="a job alone is a group by itself",
        ),
        pytest.param(
            [alone("x", since_us=1), alone("y", 2.0, since_us=2), alone("z", since_us=3)], {}, "x y z",
            id="old entries have no group: each is one by itself",
        ),
        pytest.param(
            [*sweep("a", 4), entry("a9", group=A, weight=8.0, since_us=99), *sweep("b", 2, 2.0)], {},
            "a0 b0 b1 a1 a2 a3", id="within a group the order stays",
        ),
        pytest.param(
            [*sweep("a", 4), alone("x", 3.0, since_us=9), alone("y", since_us=10)], {}, "a0 x a1 a2 a3 y",
            id="once those that are left have one weight they go by time",
        ),
    ],
)  # fmt: skip
def test_a_persons_groups_share_by_their_weights(
    entries: list[QueueEntry], held: dict[str, int], expected: str
) -> None:
    groups = {sweep_group(1000, mark): Held(gpus, gpus) for mark, gpus in held.items()}

    assert started(entries, 6, SHARED, groups) == expected.split()


def test_a_large_job_that_does_not_fit_blocks_whatever_the_weights() -> None:
    entries = [alone("big", 9.0, gpus=6, since_us=1), *sweep("a", 4, since_us=2)]

    found = turns(entries, FreeGpus(8, whole_free=4), policy=parse_policy(SHARED))

    assert [(key[2], turn.start) for key, turn in found.items()][:2] == [("big", False), ("a0", False)]
    assert found[1000, "home-of-1000", "a0"].ahead[2] == "big"


@pytest.mark.parametrize("policy", ['policy = "priority"', 'policy = "first_come"', ""])
def test_other_policies_know_no_weights(policy: str) -> None:
    entries = [*sweep("a", 6), *sweep("b", 6, 9.0, since_us=9)]

    assert started(entries, 6, policy) == ["a0", "a1", "a2", "a3", "a4", "a5"]


def test_people_come_first_and_each_divides_the_own_share() -> None:
    one = [*sweep("a", 12, 3.0, person=1), *sweep("b", 12, person=1)]
    two = [*sweep("c", 12, person=2), *sweep("d", 12, 2.0, person=2)]

    found = started([*one, *two], 18, f"{SHARED}\n[people.1]\nweight = 2")

    assert {name: sum(job[0] == name for job in found) for name in "abcd"} == {"a": 9, "b": 3, "c": 2, "d": 4}


def test_sweeps_of_one_name_are_those_of_each_person() -> None:
    entries = [*sweep("a", 2, 2.0, person=1), alone("x", person=1, since_us=9), *sweep("a", 2, person=2)]

    assert started(entries, 2, SHARED, {sweep_group(2, A): Held(5, 5)}) == ["a0", "a0"]


def test_all_homes_of_a_person_share_by_their_weights() -> None:
    entries = [*sweep("a", 4, home="one"), *sweep("b", 4, 3.0, home="two")]

    assert started(entries, 4, SHARED) == ["a0", "b0", "b1", "b2"]


def test_who_waits_for_a_limit_takes_nothing_of_its_groups_share() -> None:
    mark = marks_text({"team": "vision"})
    limited = [one._replace(labels=(mark,)) for one in sweep("a", 4, 2.0)]

    found = started([*limited, *sweep("b", 4)], 3, f'{SHARED}\n[labels."team=vision"]\nmax_gpus = 1')

    assert found == ["a0", "b0", "b1"]


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        (None, 1.0), ("2", 1.0), (float("nan"), 1.0), (1e300, 1.0), (True, 1.0), ([3], 1.0),
        (-4, 0.01), (0, 0.01), (5000, 1000.0), (2, 2.0),
    ],
)  # fmt: skip
def test_a_weight_that_is_none_is_one_and_one_out_of_range_the_nearest(text: object, weight: float) -> None:
    found = entry_of(1, {"gpus": 1, "weight": text}, 9)

    assert found is not None
    assert found.weight == weight


@pytest.mark.parametrize("text", [None, 7, "", "../../etc", "x" * 99, ["a"], "ä" * 16 + "!"])
def test_a_group_that_is_no_mark_is_none(text: object) -> None:
    found = entry_of(1, {"gpus": 1, "group": text}, 9)

    assert found is not None
    assert found.group == ""


def test_others_learn_of_a_group_neither_its_name_nor_its_mark(folder: str, held: HeldEntries) -> None:
    held.hold(folder, HOME, "mine", {"gpus": 1, "group": group_mark("secret"), "weight": 2.0})
    queue = HostQueue()

    (shown,) = queue.waiting(folder, [{"uuid": "GPU-1", "memory_bytes": 1}])

    assert "group" not in shown
    assert "secret" not in (Path(folder) / file_name(HOME, "mine")).read_text()
    assert read_entries(folder)[0].group == group_mark("secret")
    queue.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ""), (7, ""), (["a"], ""), ("digits  v2\n", "digits v2"), ("x" * 999, "x" * 64),
        ("\x1b[31mred\x07", "[31mred"), ("a\u202etxt.exe", "a txt.exe"), ("\x9b2J", "2J"),
    ],
)  # fmt: skip
def test_a_name_of_another_person_is_one_short_line_that_drives_no_terminal(
    text: object, expected: str
) -> None:
    found = entry_of(1, {"gpus": 1, "name": text}, 9)

    assert found is not None
    assert found.name == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(SHARED, {"a": 25, "b": 75}), ('policy = "priority"', {"a": 100}), ('policy = "mine"', {"a": 100})],
)
def test_the_hundred_that_wait_at_once_are_those_that_weights_say(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, expected: dict[str, int]
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can write a policy")
    path = tmp_path / "policy.toml"
    path.write_text(policy)
    monkeypatch.setattr("workbench.learner.queue.policy.POLICY_FILE", str(path))
    waiting = [
        {"job": f"{name}{number}", "gpus": 1, "weight": weight, "group": group_mark(name)}
        for name, weight in (("a", 1.0), ("b", 3.0))
        for number in range(120)
    ]
    queue = HostQueue()

    found = queue.first(LeaseReading(folder, []), waiting)

    assert {name: sum(job[0] == name for job in found) for name in expected} == expected
    assert len(found) == 100
    queue.close()


def test_of_many_the_first_by_their_weights_are_found() -> None:
    entries = [*sweep("a", 300), *sweep("b", 300, 3.0)]

    found = by_weight(entries, {sweep_group(1000, A): Held(2)}, 8)

    assert [one.job for one in found] == ["b0", "b1", "b2", "b3", "b4", "b5", "a0", "b6"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('policy = "mine"', "policy is one of priority, first_come, fair_share"),
        ("max_gpus = 1.5", "max_gpus is a whole number"),
        ('max_gpus = "all"', "max_gpus is a whole number"),
        ("weight = 0", "weight is a number above 0"),
        ("max_gpu = 1", "max_gpu is not a key of it"),
        ("max_priority = 101", "max_priority is a whole number up to 100"),
        ("[people.anna]\nmax_priority = 50.5", "max_priority is a whole number up to 100"),
        ("[homes]\nmax_priority = 50", r"max_priority is not a key of \[homes\]"),
        ('min_run_minutes = "long"', "min_run_minutes is a number"),
        ("[people.anna]\nmin_run_minutes = 1", "min_run_minutes is not a key of it"),
        ("a = 1\n[nonsense]", "line 2, is not understood"),
    ],
)
def test_a_policy_that_is_not_understood_says_where(text: str, problem: str) -> None:
    with pytest.raises(BadPolicy, match=problem):
        parse_policy(text)


def test_only_roots_own_file_is_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    assert read_policy(str(path)).kind == "priority"
    path.write_text('policy = "fair_share"')
    path.chmod(0o666)
    with pytest.raises(BadPolicy, match="root alone"):
        read_policy(str(path))
    if os.getuid() == 0:
        path.chmod(0o644)
        assert read_policy(str(path)).kind == "fair_share"
        os.chown(path, 12346, 12346)
        with pytest.raises(BadPolicy, match="root alone"):
            read_policy(str(path))


def test_a_hosts_policy_is_followed_and_one_that_is_not_understood_is_named(
    folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can write a policy")
    path = tmp_path / "policy.toml"
    monkeypatch.setattr("workbench.learner.queue.policy.POLICY_FILE", str(path))
    path.write_text("max_gpus = 1")
    lease = leases.take(["GPU-0"], folder, "{}")
    assert lease is not None
    slots = [{"uuid": f"GPU-{number}", "memory_bytes": 1} for number in range(3)]
    slots[0]["holder"] = "me"
    queue = HostQueue()

    found = queue.turn(folder, slots, HOME, {"job": "mine", "gpus": 1})
    assert (found["start"], found["limit"]) == (False, "the host gives a person 1 GPU at once")

    path.write_text("max_gpus = lots")
    assert queue.turn(folder, slots, HOME, {"job": "mine", "gpus": 1})["start"]
    found = queue.turn(folder, slots, HOME, {"job": "mine", "gpus": 3, "each": 3})
    assert "line 1, is not understood: max_gpus = lots" in found["limit"]
    lease.release()
    queue.close()


def test_what_people_hold_counts_when_the_process_that_took_it_is_gone(folder: str) -> None:
    slots = [{"uuid": f"GPU-{number}", "memory_bytes": 1, "holder": "x"} for number in range(3)]
    slots.append({"uuid": "GPU-3", "memory_bytes": 1})
    held = a_learner_whose_taker_is_gone
    with (
        held(folder, ["GPU-0", "GPU-1"], '{"job": "training-a"}', ANNA),
        held(folder, ["GPU-2"], '{"job": "training-b"}', BERT),
    ):
        found = host_line.held_by_group(LeaseReading(folder, slots).holdings())
        counts = [found[person_group(person)]._replace(gpu_hours=0.0) for person in (ANNA, BERT)]
        assert counts == [Held(2, 1), Held(1, 1)]
    until(lambda: LeaseReading(folder, slots).holdings() == {})


def test_a_persons_limit_holds_when_the_process_that_took_the_gpus_is_gone(
    folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can write a policy")
    path = tmp_path / "policy.toml"
    monkeypatch.setattr("workbench.learner.queue.policy.POLICY_FILE", str(path))
    path.write_text("max_gpus = 1")
    slots = [{"uuid": f"GPU-{number}", "memory_bytes": 1} for number in range(3)]
    slots[0]["holder"] = "me"
    queue, wanted = HostQueue(), {"job": "mine", "gpus": 1}

    with a_learner_whose_taker_is_gone(folder, ["GPU-0"], "{}", os.getuid()):
        assert queue.turn(folder, slots, HOME, wanted)["limit"] == "the host gives a person 1 GPU at once"
    until(lambda: queue.turn(folder, slots, HOME, wanted)["start"])
    queue.close()
