from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator

import pytest

from tests.support.stored_jobs import SUBMITTED_US, add_job, make_detail
from workbench.errors import CannotWrite, FabricError, InputMissing, UnknownName
from workbench.job import Intent, LearnerPhase, Reason, State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.jobs import (
    attempts,
    changed_jobs,
    count_jobs,
    deleted_jobs,
    detail,
    find_jobs,
    job,
    list_jobs,
    open_jobs,
    revision,
    transitions,
)
from workbench.store.queries.learners import learners
from workbench.store.queries.requests import add_request
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import (
    NextAttempt,
    add_note,
    annotate,
    insert_job,
    mark_seen,
    new_attempt,
    set_intent,
    set_reason,
    step,
)

WELL = Reason("all is well")


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def run_to(store: Store, job_id: str, *states: State, attempt: int = 1) -> None:
    for state in states:
        step(store, job_id, attempt, state, WELL)


def test_a_job_comes_back_as_it_was_submitted(store: Store) -> None:
    wanted = make_detail(labels={"team": "a"}, tags=("x", "y"), parent="experiment-abcdefghj", trial=3)
    row = insert_job(store, wanted)

    assert row == dataclasses.replace(wanted.row, seq=1, revision=row.revision)
    assert detail(store, row.id) == dataclasses.replace(wanted, row=row)
    assert job(store, row.id) == row


def test_a_job_that_is_inserted_twice_is_there_once(store: Store) -> None:
    wanted = make_detail()
    row = insert_job(store, wanted)
    history = store.home.job(row.id).events.read_bytes()

    assert insert_job(store, wanted) == row
    assert store.home.job(row.id).events.read_bytes() == history
    assert len(list_jobs(store)) == 1


def test_a_row_cannot_be_changed(store: Store) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        add_job(store).name = "other"  # type: ignore[misc] # that is the point


def test_a_job_that_is_not_there_is_none_and_has_no_detail(store: Store) -> None:
    assert job(store, "training-222222222") is None
    with pytest.raises(UnknownName):
        detail(store, "training-222222222")


def test_a_lost_job_file_is_reported_in_a_sentence(store: Store) -> None:
    row = add_job(store)
    store.home.job(row.id).job_file.write_text("{")

    with pytest.raises(InputMissing, match=r"job\.json cannot be read"):
        detail(store, row.id)


def test_steps_leave_their_times_in_the_attempt_and_their_words_in_the_history(store: Store) -> None:
    row = add_job(store)
    step(store, row.id, 1, State.PENDING, Reason("starting"), time_us=11)
    step(store, row.id, 1, State.PROCESSING, Reason("runs"), time_us=12, started_us=10, node="box")
    step(store, row.id, 1, State.STORING, Reason("stores"), time_us=13)
    last = Reason("exited with 3", "C201", "see the log")
    step(store, row.id, 1, State.FAILED, last, exit_code=3, exit_by="job", time_us=15, ended_us=14)

    found = job(store, row.id)
    assert found is not None
    assert (found.state, found.reason, found.exit_code, found.exit_by) == (State.FAILED, last, 3, "job")
    assert (found.started_us, found.ended_us, found.changed_us) == (10, 14, 15)
    (attempt,) = attempts(store, row.id)
    assert attempt.queued_us == SUBMITTED_US
    assert (attempt.pending_us, attempt.processing_us, attempt.storing_us, attempt.ended_us) == (
        11,
        10,
        13,
        14,
    )
    assert (attempt.node, attempt.reason) == ("box", last)
    history = transitions(store, row.id)
    assert [entry.state for entry in history] == ["QUEUED", "PENDING", "PROCESSING", "STORING", "FAILED"]
    assert (history[-1].text, history[-1].code, history[-1].who) == ("exited with 3", "C201", "controller")
    assert transitions(store, row.id, after=history[2].id) == history[3:]


def test_an_illegal_step_is_refused_and_changes_nothing(store: Store) -> None:
    row = add_job(store)
    run_to(store, row.id, State.PENDING, State.PROCESSING)
    before, history = job(store, row.id), store.home.job(row.id).events.read_bytes()

    with pytest.raises(FabricError, match="cannot go from PROCESSING to PENDING"):
        step(store, row.id, 1, State.PENDING, WELL)
    assert job(store, row.id) == before
    assert store.home.job(row.id).events.read_bytes() == history


def test_a_step_taken_twice_counts_once(store: Store) -> None:
    row = add_job(store)
    step(store, row.id, 1, State.PENDING, WELL)
    history = store.home.job(row.id).events.read_bytes()

    step(store, row.id, 1, State.PENDING, WELL)

    assert store.home.job(row.id).events.read_bytes() == history


def test_a_step_of_an_older_attempt_leaves_the_job_alone(store: Store) -> None:
    row = add_job(store)
    run_to(store, row.id, State.PENDING, State.FAILED)
    new_attempt(store, row.id, Reason("again"))

    step(store, row.id, 1, State.FAILED, Reason("other words"))

    found = job(store, row.id)
    assert found is not None
    assert (found.state, found.attempt, found.reason.text) == (State.QUEUED, 2, "again")


def test_a_new_attempt_begins_with_nothing_of_the_last_one(store: Store) -> None:
    row = add_job(store)
    run_to(store, row.id, State.PENDING, State.PROCESSING, State.FAILED)
    set_reason(store, row.id, Reason("tried again soon"), next_try_us=99)

    assert new_attempt(store, row.id, Reason("second try"), restarts=1) == 2

    found = job(store, row.id)
    assert found is not None
    assert (found.state, found.attempt, found.restarts, found.next_try_us) == (State.QUEUED, 2, 1, None)
    assert (found.exit_code, found.started_us, found.ended_us) == (None, None, None)
    assert [row.state for row in attempts(store, row.id)] == [State.FAILED, State.QUEUED]


def test_a_terminal_step_fulfils_a_halt_but_not_a_delete(store: Store) -> None:
    halted, deleted = add_job(store), add_job(store)
    set_intent(store, halted.id, Intent.HALT)
    set_intent(store, deleted.id, Intent.DELETE)
    for row in (halted, deleted):
        step(store, row.id, 1, State.HALTED, WELL, exit_code=143, exit_by="halt")

    assert [row.id for row in open_jobs(store)] == [deleted.id]


def test_open_jobs_are_those_that_need_looking_after_oldest_first(store: Store) -> None:
    _, restarting, ended, intended = (add_job(store, name) for name in "wrei")
    for row in (restarting, ended, intended):
        run_to(store, row.id, State.PENDING, State.FAILED)
    set_reason(store, restarting.id, Reason("tried again in 10 s"), next_try_us=5)
    set_intent(store, intended.id, Intent.DELETE)

    assert [row.name for row in open_jobs(store)] == ["w", "r", "i"]
    assert ended.name == "e"


def test_the_open_jobs_of_many_are_found_by_their_index(store: Store) -> None:
    add_job(store)
    plan = store.rows(
        "EXPLAIN QUERY PLAN SELECT id FROM jobs WHERE deleted_us IS NULL AND "
        "(state NOT IN ('COMPLETED', 'FAILED', 'HALTED') OR intent <> '' OR next_try_us IS NOT NULL) "
        "ORDER BY seq"
    )

    assert "jobs_open" in plan[0][3]


def test_a_list_is_newest_first_and_paged_by_key(store: Store) -> None:
    for number in range(7):
        add_job(store, f"job-{number}")

    first = list_jobs(store, limit=3)
    second = list_jobs(store, limit=3, before_seq=first[-1].seq)
    assert [row.name for row in (*first, *second)] == [f"job-{number}" for number in (6, 5, 4, 3, 2, 1)]
    add_job(store, "newer")
    assert list_jobs(store, limit=3, before_seq=first[-1].seq) == second


def test_a_list_is_filtered(store: Store) -> None:
    a = add_job(store, "mnist", labels={"team": "a", "x": "1"}, tags=("fast",))
    b = add_job(store, "cifar_10", backend="gpubox", owner="you@box", labels={"team": "b"})
    c = add_job(store, "cifar-10", parent="experiment-abcdefghj")
    run_to(store, b.id, State.PENDING)
    annotate(store, c.id, note="100% Sure")

    def names(**filters: object) -> list[str]:
        return [row.name for row in list_jobs(store, **filters)]  # type: ignore[arg-type] # tried one by one

    assert names(states=[State.PENDING]) == ["cifar_10"]
    assert names(states=[State.QUEUED, State.PENDING]) == ["cifar-10", "cifar_10", "mnist"]
    assert names(states=[]) == []
    assert names(backend="gpubox") == ["cifar_10"]
    assert names(owner="you@box") == ["cifar_10"]
    assert names(parent="experiment-abcdefghj") == ["cifar-10"]
    assert names(label="team") == ["cifar_10", "mnist"]
    assert names(label="team=a") == ["mnist"]
    assert names(label="team=") == []
    assert names(text="CIFAR") == ["cifar-10", "cifar_10"]
    assert names(text="r_1") == ["cifar_10"]  # not a wildcard
    assert names(text="100%") == ["cifar-10"]
    assert names(text="fast") == ["mnist"]
    assert names(text=a.id[-5:]) == ["mnist"]
    assert names(text="gpubox", states=[State.QUEUED]) == []
    assert count_jobs(store) == {State.QUEUED: 2, State.PENDING: 1}


def test_every_change_of_a_job_moves_the_revision_and_names_the_job(store: Store) -> None:
    first, second = add_job(store), add_job(store)
    for change in (
        lambda: step(store, first.id, 1, State.PENDING, WELL),
        lambda: set_reason(store, first.id, Reason("other")),
        lambda: set_intent(store, first.id, Intent.HALT),
        lambda: annotate(store, first.id, tags=["a"]),
        lambda: mark_seen(store, [first.id], 77),
        lambda: step(store, first.id, 1, State.FAILED, WELL),
        lambda: new_attempt(store, first.id, WELL),
        lambda: mark_deleted(store, first.id),
    ):
        before = revision(store)
        change()
        assert revision(store) > before
        assert [row.id for row in changed_jobs(store, before)] == [first.id]
    assert job(store, second.id) == second


def test_saying_the_same_again_writes_nothing(store: Store) -> None:
    row = add_job(store)
    set_reason(store, row.id, WELL, 5)
    set_intent(store, row.id, Intent.HALT)
    annotate(store, row.id)
    before, history = revision(store), store.home.job(row.id).events.read_bytes()

    set_reason(store, row.id, WELL, 5)
    set_intent(store, row.id, Intent.HALT)

    assert (revision(store), store.home.job(row.id).events.read_bytes()) == (before, history)


def test_annotations_change_only_what_is_given(store: Store) -> None:
    row = add_job(store, tags=("old",), labels={"a": "1"})
    annotate(store, row.id, note="look at this", tags=["new", "old"])
    annotate(store, row.id, name="better")

    found = job(store, row.id)
    assert found is not None
    assert (found.name, found.note, found.tags, found.labels) == (
        "better",
        "look at this",
        ("new", "old"),
        {"a": "1"},
    )


def test_seen_is_the_backends_last_answer(store: Store) -> None:
    rows = [add_job(store) for _ in range(3)]
    mark_seen(store, [row.id for row in rows[:2]], 77)
    mark_seen(store, rows[0].id, 78)

    assert [row.seen_us for row in list_jobs(store)] == [None, 77, 78]


def test_a_deleted_job_leaves_a_tombstone_and_its_number_is_not_given_again(store: Store) -> None:
    kept, gone = add_job(store, "kept"), add_job(store, "gone")
    run_to(store, gone.id, State.PENDING, State.FAILED)
    mark_deleted(store, gone.id)
    mark_deleted(store, gone.id)

    assert [row.name for row in list_jobs(store)] == ["kept"]
    (stone,) = deleted_jobs(store)
    assert (stone.id, stone.seq, stone.state, stone.attempt) == (gone.id, 2, State.FAILED, 1)
    assert stone.deleted_us is not None
    assert attempts(store, gone.id) == []
    assert transitions(store, gone.id) == []
    assert store.home.tombstones.read_text().count("\n") == 1
    assert add_job(store, "next").seq == 3
    assert kept.seq == 1


def test_what_is_recorded_of_a_deleted_job_does_not_make_its_folder_again(store: Store) -> None:
    gone = add_job(store, "gone")
    folder = store.home.job(gone.id).path
    run_to(store, gone.id, State.PENDING, State.FAILED)
    mark_deleted(store, gone.id)
    shutil.rmtree(folder)
    before = deleted_jobs(store)

    set_reason(store, gone.id, Reason("is being deleted; the link is down"))
    add_note(store, gone.id, "what its plan says")
    with pytest.raises(UnknownName, match="there is no job"):
        add_request(store, "halt", gone.id, {}, "me@box", "cli")

    assert not folder.exists()
    assert (deleted_jobs(store), transitions(store, gone.id)) == (before, [])


def test_a_job_that_has_no_place_for_its_folder_is_refused_in_a_sentence(store: Store) -> None:
    shutil.rmtree(store.home.jobs, ignore_errors=True)
    store.home.jobs.write_text("in the way")

    with pytest.raises(CannotWrite, match="jobs"):
        insert_job(store, make_detail(), who="ada", origin="cli")

    assert not any(count_jobs(store).values())


def test_jobs_are_found_by_name_id_label_and_tag(home: Home) -> None:
    with Store.open(home) as store:
        vision = add_job(store, "UNet-cells", labels={"team": "vision", "sweep": "abc"})
        speech = add_job(store, "whisper", tags=("paper", "best"))
        add_job(store, "100%_done")

        def found(*args: str) -> list[str]:
            return [row.name for row in find_jobs(store, args, limit=5)]

        assert found() == ["100%_done", "whisper", "UNet-cells"]
        assert found("unet") == found("team=vision") == found("VISION", "cells") == ["UNet-cells"]
        assert found(str(vision.id)[9:15]) == ["UNet-cells"]
        assert found("paper") == found(str(speech.id)) == ["whisper"]
        assert found("%_") == ["100%_done"]  # these are no wildcards
        assert found("nothing") == []
        assert len(find_jobs(store, (), limit=2)) == 2


@pytest.mark.parametrize("intent", [Intent.NONE, Intent.HALT, Intent.KILL, Intent.DELETE])
def test_an_attempt_that_its_host_has_begun_waits_there_from_the_end_of_the_one_before_it_on(
    store: Store, intent: Intent
) -> None:
    """All of that is one line of the history: who is killed after a line loses none of it."""
    row = add_job(store, "a", learners=2)
    run_to(store, row.id, State.PENDING, State.PROCESSING, State.STORING)
    if intent is not Intent.NONE:
        set_intent(store, row.id, intent)
    lines = store.home.job(row.id).events.read_text().count("\n")

    following = NextAttempt(Reason("again"), 1, 0, 99, is_at_host=True)
    step(store, row.id, 1, State.FAILED, Reason("x"), exit_code=3, then=following)

    assert store.home.job(row.id).events.read_text().count("\n") == lines + 1
    after = job(store, row.id)
    assert after is not None
    assert (after.attempt, after.state, after.intent, after.next_try_us) == (2, State.QUEUED, intent, 99)
    waiting = learners(store, row.id, 2)
    assert [(one.learner, one.phase, one.reason) for one in waiting] == [
        (number, LearnerPhase.STARTING, None) for number in (1, 2)
    ]
