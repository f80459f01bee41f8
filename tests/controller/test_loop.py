"""The loop over a backend in memory: jobs from submit to end, requests, restarts, queue, trouble."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, replace
from typing import Any

import pytest

from runners.interface import AttemptRef, LaunchPlan, LaunchProgress, LaunchRequest, LearnerRef, StopRequest
from tests.controller.bench import FAR, MEMORY, Bench
from tests.controller.memory_backend import MemoryBackend
from tests.support.waiting import patience, until
from workbench.controller.client.requests import ask
from workbench.controller.targets.on_demand import note_machine
from workbench.errors import (
    BackendUnreachable,
    CannotWrite,
    LaunchRefused,
    NoSpaceLeft,
    RunnerError,
    SlotsBusy,
    TryAgain,
)
from workbench.job import Intent, LearnerPhase, Reason, State
from workbench.metrics.ingestion import ingest
from workbench.store.db.database import Store, home_uuid
from workbench.store.queries.jobs import attempts, transitions
from workbench.store.queries.learners import learners
from workbench.store.queries.requests import request, requests
from workbench.store.updates.jobs import add_note


def states(bench: Bench, job_id: str) -> list[str]:
    return [one.state for one in transitions(bench.store, job_id) if one.kind == "state"]


def test_a_job_goes_from_submit_to_its_end_with_every_step_on_record(bench: Bench) -> None:
    job_id = bench.submit()
    bench.runs(job_id)
    bench.backend.exit(job_id)
    row = bench.ends(job_id)

    assert (row.state, row.exit_code, row.exit_by) == (State.COMPLETED, 0, "job")
    assert states(bench, job_id) == ["QUEUED", "PENDING", "PROCESSING", "STORING", "COMPLETED"]
    assert [(one.phase, one.exit_code) for one in learners(bench.store, job_id)] == [(LearnerPhase.EXITED, 0)]
    assert row.started_us is not None and row.ended_us is not None
    assert [one.outcome for one in requests(bench.store, job_id)] == ["done"]


def test_a_failing_command_gives_its_exit_code_and_a_reason(bench: Bench) -> None:
    job_id = bench.submit()
    bench.runs(job_id)
    bench.backend.exit(job_id, code=3)
    row = bench.ends(job_id)

    assert (row.state, row.exit_code, row.reason.code) == (State.FAILED, 3, "C201")


@pytest.mark.parametrize(("kind", "code", "by"), [("halt", 143, "halt"), ("kill", 137, "kill")])
def test_stopping_a_running_job_and_asking_twice(bench: Bench, kind: str, code: int, by: str) -> None:
    job_id = bench.submit()
    bench.runs(job_id)
    asked = [bench.ask(job_id, kind) for _ in range(2)]
    row = bench.ends(job_id)

    assert (row.state, row.exit_code, row.exit_by, row.intent) == (State.HALTED, code, by, Intent.NONE)
    assert row.reason.text.startswith(("halted by ", "killed by "))
    for one in asked:
        until(lambda one=one: request(bench.store, one).outcome == "done")  # type: ignore[misc,union-attr] # of a test
    assert bench.backend.stops[0][1].kind == kind


@pytest.mark.parametrize("kind", ["halt", "kill", "delete"])
def test_a_stop_ends_a_job_whose_records_never_get_into_the_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TryAgain("the store is locked by another process")

    monkeypatch.setattr("workbench.metrics.ingestion.read_records", fail)
    monkeypatch.setattr("workbench.controller.decide.reconcile.RECORDS_PATIENCE_SECONDS", 0.3)
    job_id = bench.submit()
    bench.runs(job_id)
    bench.backend.exit(job_id)
    bench.reaches(job_id, State.STORING)
    until(lambda: "are not taken in for now" in bench.log())
    assert bench.row(job_id).state is State.STORING
    asked = bench.ask(job_id, kind)

    if kind == "delete":
        until(lambda: bench.row(job_id).deleted_us is not None, bench.log)
        return
    bench.ends(job_id)
    until(lambda: request(bench.store, asked).outcome not in ("", None))  # type: ignore[union-attr] # it is there
    assert any("before all that it recorded" in one.text for one in transitions(bench.store, job_id))


def test_a_rule_whose_note_the_disk_refuses_delays_no_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[str] = []

    def refuse_once(store: Store, job_id: str, text: str) -> None:
        if not refusals:
            refusals.append(text)
            raise NoSpaceLeft("the disk is full")
        add_note(store, job_id, text)

    monkeypatch.setattr("workbench.controller.loop.stop_rules.add_note", refuse_once)
    job_id = bench.submit(stop_when=({"metric": "loss", "below": 0.5},))
    bench.runs(job_id)
    bench.stop()
    records = bench.home.job(job_id).attempt(1).learner(1).records
    records.parent.mkdir(parents=True, exist_ok=True)
    values = {"times": [1], "steps": [1], "values": {"loss": [0.25]}}
    records.write_text(json.dumps({"seq": 1, "kind": "metrics", **values}) + "\n")
    ingest(bench.store, job_id, 1, 1, records)
    bench.backend.exit(job_id, code=3)
    bench.start()

    row = bench.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 3)
    (refused,) = refusals
    until(lambda: refused in [one.text for one in transitions(bench.store, job_id)], bench.log)


def test_a_controller_without_its_lock_file_writes_nothing_of_what_came_meanwhile(bench: Bench) -> None:
    there = [True]
    bench.stop()
    bench.start(is_ours=lambda: there[0])
    job_id = bench.submit()
    bench.runs(job_id)

    there[0] = False
    bench.backend.exit(job_id)
    until(lambda: bench.ended.startswith("its lock file was removed"))

    assert bench.row(job_id).state is State.PROCESSING


def test_what_a_learner_says_of_itself_cannot_hold_its_job(bench: Bench) -> None:
    job_id = bench.submit()
    bench.runs(job_id)
    odd = Reason("bad \udce9 \ud800 \0" + "x" * 10_000, "C201", "\ud800")
    number: Any = 10**400
    bench.backend.change(
        job_id, 1, 1, reason=odd, node="n\udce9", slots=("s\ud800",), started_us=number, signal="9"
    )
    bench.backend.exit(job_id, code=3)
    row = bench.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 3)
    assert r"bad \xe9 \ud800 \x00" in row.reason.text
    (learner,) = learners(bench.store, job_id)
    assert (learner.node, learner.slots) == (r"n\xe9", (r"s\ud800",))


def test_a_queued_job_is_halted_at_once_and_nothing_is_asked_of_the_backend(bench: Bench) -> None:
    holder = bench.submit(cpus=2.0)
    bench.runs(holder)
    waiting = bench.submit(cpus=1.0)
    bench.says(waiting, f"waits for 1 CPU: {holder} holds 2 of 2 CPUs")
    bench.ask(waiting, "halt")

    assert bench.ends(waiting).exit_code == 143
    assert [plan.request.attempt.job_id for plan in bench.backend.launches] == [holder]
    assert bench.backend.stops == []


def test_resume_begins_the_next_attempt_with_the_same_job(bench: Bench) -> None:
    job_id = bench.submit()
    bench.runs(job_id)
    bench.ask(job_id, "halt")
    bench.ask(job_id, "resume")
    bench.runs(job_id, attempt=2)
    bench.backend.exit(job_id, attempt=2)
    row = bench.ends(job_id, attempt=2)

    assert row.state is State.COMPLETED
    assert [one.state for one in attempts(bench.store, job_id)] == [State.HALTED, State.COMPLETED]
    until(
        lambda: [one.outcome for one in requests(bench.store, job_id)] == ["done"] * 3,
        lambda: str(requests(bench.store, job_id)),
    )


@pytest.mark.usefixtures("hasty")
def test_the_next_attempt_does_not_start_while_anything_of_the_last_one_is_there(bench: Bench) -> None:
    job_id = bench.submit()
    bench.runs(job_id)
    bench.backend.exit(job_id, code=1)
    bench.ends(job_id)
    # A learner that turns up again after it was seen to be over.
    bench.backend.change(job_id, 1, 1, phase=LearnerPhase.RUNNING, exit_code=None)
    bench.backend.on_stop = lambda attempt, request: None
    bench.ask(job_id, "resume")
    until(lambda: bool(bench.backend.stops))

    assert bench.backend.stops[0][1].kind == "kill"
    assert len(bench.backend.starts) == 1
    bench.backend.exit(job_id, code=137)
    bench.runs(job_id, attempt=2)


def test_a_completed_job_is_not_resumed_and_the_request_says_why(bench: Bench) -> None:
    job_id = bench.submit()
    bench.runs(job_id)
    bench.backend.exit(job_id)
    bench.ends(job_id)
    asked = bench.ask(job_id, "resume")

    until(lambda: "rerun" in request(bench.store, asked).outcome)  # type: ignore[union-attr] # it was made above
    assert bench.row(job_id).attempt == 1


def test_deleting_a_running_job_stops_removes_and_leaves_a_tombstone_alone(bench: Bench) -> None:
    job_id = bench.submit(secret_values={"TOKEN": "hunter2"})
    bench.runs(job_id)
    bench.ask(job_id, "delete")
    until(lambda: not bench.home.job(job_id).path.exists(), bench.log)

    row = bench.row(job_id)
    assert row.deleted_us is not None and row.state is State.HALTED
    assert bench.backend.removed == [AttemptRef(home_uuid(bench.home), job_id, 1, 1)]
    assert bench.backend.learners == {}
    assert list(bench.home.secrets.iterdir()) == []


@pytest.fixture
def moved(bench: Bench) -> tuple[str, MemoryBackend]:
    """A job that has ended here, and was at another backend before, which is returned, too."""
    far = MemoryBackend()
    bench.stop()
    bench.start(open_target=lambda ref, uuid: (far if ref == FAR else bench.backend).open(ref, uuid))
    job_id = bench.submit(target=FAR)
    bench.runs(job_id)
    far.exit(job_id, code=1)
    bench.ends(job_id)
    ask(bench.store, job_id, "resume", origin="test", payload={"place": asdict(MEMORY)})
    bench.wake()
    bench.runs(job_id, attempt=2)
    bench.backend.exit(job_id, attempt=2)
    bench.ends(job_id, attempt=2)
    return job_id, far


def test_a_job_that_was_moved_is_removed_from_all_backends_that_it_was_at(
    bench: Bench, moved: tuple[str, MemoryBackend]
) -> None:
    job_id, far = moved
    bench.ask(job_id, "delete")
    until(lambda: not bench.home.job(job_id).path.exists(), bench.log)

    attempts_of_it = [AttemptRef(home_uuid(bench.home), job_id, number, 1) for number in (1, 2)]
    assert bench.backend.removed == far.removed == attempts_of_it
    assert far.learners == {}


def test_a_backend_that_a_deleted_job_was_moved_from_and_that_is_gone_does_not_keep_it(
    bench: Bench, moved: tuple[str, MemoryBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, far = moved

    def is_gone(attempt: AttemptRef) -> None:
        raise BackendUnreachable("the host is down")

    far.on_remove = is_gone
    monkeypatch.setattr("workbench.controller.loop.job_state.LEAVING_SECONDS", 0.5)
    monkeypatch.setattr("workbench.controller.loop.job_state.LEAVING_TRIES", 1)
    bench.ask(job_id, "delete")
    bench.says(job_id, "is being deleted; far cannot be reached: the host is down")
    until(lambda: not bench.home.job(job_id).path.exists(), bench.log)

    assert f"{job_id}: what it left at far stays there, and fabric gc lists it: " in bench.log()


def test_a_job_is_deleted_though_its_machine_is_off_which_starts_for_jobs_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    demand = {"start": "false", "stop": "true", "idle_minutes": 1}
    cloud = replace(FAR, backend="cloud", options={"on_demand": demand})
    job_id = bench.submit(target=cloud)
    bench.runs(job_id)
    bench.backend.exit(job_id, code=1)
    bench.ends(job_id)
    bench.stop()
    note_machine(bench.home, cloud, is_up=False)
    bench.backend.open_failure = BackendUnreachable("the host is down")
    monkeypatch.setattr("workbench.controller.loop.job_state.LEAVING_SECONDS", 0.5)
    monkeypatch.setattr("workbench.controller.loop.job_state.LEAVING_TRIES", 1)
    bench.start()

    bench.ask(job_id, "delete")
    until(lambda: not bench.home.job(job_id).path.exists(), bench.log)

    assert f"{job_id}: what it left at cloud stays there, and fabric gc lists it: " in bench.log()
    assert bench.backend.removed == []


def test_a_failure_is_restarted_as_often_as_asked_for_with_a_pause_that_grows(bench: Bench) -> None:
    job_id = bench.submit(max_restarts=1)
    bench.runs(job_id)
    bench.backend.exit(job_id, code=9)
    waiting = bench.says(job_id, "restart 1 of 1 in 1 s, since the command ended with exit code 9")
    assert (waiting.state, waiting.attempt, waiting.restarts) == (State.QUEUED, 2, 1)
    assert waiting.next_try_us is not None

    bench.runs(job_id, attempt=2)
    bench.backend.exit(job_id, attempt=2, code=9)
    row = bench.ends(job_id, attempt=2)

    assert (row.state, row.exit_code, row.attempt) == (State.FAILED, 9, 2)


def test_a_lost_learner_is_the_platforms_fault_and_ends_the_others(bench: Bench) -> None:
    job_id = bench.submit(learners=2, max_platform_restarts=0)
    until(lambda: len(bench.backend.starts) == 2)
    bench.runs(job_id)
    bench.backend.lose(job_id, learner=1)
    row = bench.ends(job_id)

    assert (row.state, row.exit_code, row.exit_by, row.reason.code) == (State.FAILED, 75, "lost", "S104")
    assert bench.backend.learners[job_id, 1, 2].stopped == "halt"


def test_a_runner_that_raises_anything_fails_the_job_with_the_sentence_and_nothing_else(bench: Bench) -> None:
    def fail(plan: LaunchPlan, progress: LaunchProgress) -> None:
        raise KeyError("no such thing: hunter2")

    bench.backend.on_launch = fail
    job_id = bench.submit(max_platform_restarts=0, secret_values={"TOKEN": "hunter2"})
    row = bench.ends(job_id)

    assert (row.state, row.exit_code, row.reason.code) == (State.FAILED, 75, "S101")
    assert row.reason.text == "KeyError: 'no such thing: *******'"
    assert "hunter2" not in bench.log()
    bench.backend.on_launch = lambda plan, progress: None
    bench.runs(bench.submit())


def test_what_the_secrets_of_an_experiments_data_hold_is_in_no_reason_and_no_log(bench: Bench) -> None:
    def fail(plan: LaunchPlan, progress: LaunchProgress) -> None:
        progress("reads hunter2-hunter2 of abc", stage="preparing")
        raise KeyError("no such thing: hunter2-hunter2 of abc")

    bench.backend.on_launch = fail
    secrets = {"DET_DATA_SECRETS": '{"key": "hunter2-hunter2", "short": "abc"}'}
    row = bench.ends(bench.submit(max_platform_restarts=0, secret_values=secrets))

    assert row.reason.text == "KeyError: 'no such thing: *************** of abc'"
    assert "hunter2" not in bench.log()


def test_a_refusal_is_final_and_nothing_of_it_was_started(bench: Bench) -> None:
    def refuse(request: LaunchRequest) -> None:
        raise LaunchRefused("asks for 64 GiB of memory; this machine has 24 GiB", hint="ask for less")

    bench.backend.on_plan = refuse
    row = bench.ends(bench.submit(max_restarts=5))

    assert (row.state, row.exit_code, row.reason.code, row.attempt) == (State.FAILED, 69, "C104", 1)
    assert row.reason.hint == "ask for less"
    assert bench.backend.stops == []


def test_a_job_whose_backend_cannot_be_reached_waits_as_one_that_was_never_launched(bench: Bench) -> None:
    bench.backend.open_failure = BackendUnreachable("gpubox does not answer")
    job_id = bench.submit()
    waiting = bench.says(job_id, "local cannot be reached: gpubox does not answer; next try within 4 s")
    assert waiting.state is State.QUEUED

    bench.backend.open_failure = None
    bench.runs(job_id)


@pytest.mark.usefixtures("hasty")
def test_a_running_job_keeps_its_state_while_its_backend_is_away(bench: Bench) -> None:
    job_id = bench.submit()
    bench.runs(job_id)

    def away() -> None:
        raise BackendUnreachable("the link is down")

    bench.backend.on_observe = away
    bench.backend.shake()
    bench.backend.exit(job_id)
    row = bench.says(job_id, "the link is down")
    assert (row.state, row.seen_us is not None) == (State.PROCESSING, True)

    bench.backend.on_observe = lambda: None
    assert bench.ends(job_id).state is State.COMPLETED


def test_a_hanging_launch_holds_up_no_other_job(bench: Bench) -> None:
    hanging, release = threading.Event(), threading.Event()

    def hang(plan: LaunchPlan, progress: LaunchProgress) -> None:
        if plan.request.spec.gpus == 0 and plan.request.attempt.job_id == slow:
            hanging.set()
            release.wait(patience())

    slow = ""
    bench.backend.on_launch = hang
    bench.stop()
    slow = bench.submit()
    bench.start()
    assert hanging.wait(patience())
    quick = bench.submit()
    bench.runs(quick)

    assert bench.row(slow).state is State.PENDING
    release.set()
    bench.runs(slow)


def test_a_halt_calls_off_a_long_launch(bench: Bench) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    def build(plan: LaunchPlan, progress: LaunchProgress) -> None:
        begun.set()
        while not cancelled.wait(0.01):
            progress("builds the environment", stage="preparing")

    bench.backend.on_launch = build
    job_id = bench.submit()
    assert begun.wait(patience())
    bench.reaches(job_id, State.DOWNLOADING)
    bench.says(job_id, "builds the environment")
    bench.ask(job_id, "halt")
    row = bench.ends(job_id)
    cancelled.set()

    assert (row.state, row.exit_code) == (State.HALTED, 143)
    assert bench.backend.starts == []


@pytest.mark.usefixtures("hasty")
def test_slots_that_others_hold_send_the_job_back_to_the_queue_until_they_are_free(bench: Bench) -> None:
    freed = threading.Event()

    def take(plan: LaunchPlan, progress: LaunchProgress) -> None:
        if not freed.is_set():
            bench.backend.free_slots = 0
            raise SlotsBusy("GPU 0 is held by anna (training-x)")

    # Somebody takes it between the measurement and the launch.
    bench.backend.slots, bench.backend.free_slots = 1, 1
    bench.backend.on_launch = take
    job_id = bench.submit(gpus=1)
    # The next measurement replaces the reason of the launch after a moment.
    bench.says(job_id, "waits for 1 GPU: GPU 0 by somebody else")
    refused = [one for one in transitions(bench.store, job_id) if "GPU 0 is held by anna" in one.text]
    assert {one.state for one in refused} == {State.QUEUED}

    freed.set()
    bench.backend.free_slots = 1
    bench.runs(job_id)


def test_jobs_that_ask_for_cpus_run_in_turn_and_the_rest_beside_them(bench: Bench) -> None:
    first = bench.submit(cpus=64.0)
    assert "asks for 64 CPUs and gets the 2 that there are" in bench.runs(first).reason.text
    second, third = bench.submit(cpus=1.0), bench.submit(cpus=1.0)
    bench.says(second, "waits for 1 CPU")
    bench.says(third, f"waits behind {second}")
    bench.runs(bench.submit())

    bench.backend.exit(first)
    bench.runs(second)
    bench.runs(third)


def test_ends_when_all_waits_for_all(bench: Bench) -> None:
    job_id = bench.submit(learners=2, ends_when="all")
    bench.runs(job_id)
    bench.backend.exit(job_id, learner=2)
    until(lambda: [one.phase for one in learners(bench.store, job_id)][1:] == [LearnerPhase.EXITED])
    assert bench.row(job_id).state is State.PROCESSING

    bench.backend.exit(job_id, learner=1)
    assert bench.ends(job_id).state is State.COMPLETED


@pytest.mark.usefixtures("hasty")
def test_a_stop_that_the_backend_does_not_obey_is_asked_for_again(bench: Bench) -> None:
    bench.backend.on_stop = lambda attempt, request: None
    job_id = bench.submit(grace_seconds=0.0)
    bench.runs(job_id)
    bench.ask(job_id, "kill")
    until(lambda: len(bench.backend.stops) == 2)
    bench.backend.exit(job_id, code=137, stopped="kill")

    assert bench.ends(job_id).exit_code == 137


@pytest.mark.usefixtures("hasty")
def test_a_stop_that_raises_is_tried_again(bench: Bench) -> None:
    failures = iter([RunnerError("the engine is busy")])

    def stop(attempt: AttemptRef, request: StopRequest) -> None:
        for failure in failures:
            raise failure
        bench.backend.obey(attempt, request)

    bench.backend.on_stop = stop
    job_id = bench.submit()
    bench.runs(job_id)
    bench.ask(job_id, "kill")

    assert bench.ends(job_id).exit_code == 137


@pytest.mark.usefixtures("hasty")
def test_a_full_disk_at_the_backend_is_waited_for_and_the_reason_says_so(bench: Bench) -> None:
    full = [CannotWrite("cannot write /home/x: the disk is full", hint="make room, then try again")]

    def launch(plan: LaunchPlan, progress: LaunchProgress) -> None:
        if full:
            raise full[0]

    bench.backend.on_launch = launch
    job_id = bench.submit()
    row = bench.says(job_id, "the disk is full")
    assert (row.state, row.reason.code) == (State.PENDING, "S204")
    full.clear()
    bench.runs(job_id)


@pytest.mark.usefixtures("hasty")
def test_a_job_folder_deleted_under_it_ends_the_job_and_nothing_else(bench: Bench) -> None:
    import shutil

    job_id = bench.submit()
    bench.runs(job_id)
    shutil.rmtree(bench.home.job(job_id).path)
    bench.backend.lose(job_id)
    row = bench.ends(job_id)

    assert row.state in (State.FAILED, State.QUEUED)
    bench.ask(job_id, "delete")
    until(lambda: bench.row(job_id).deleted_us is not None, bench.log)


def test_a_new_controller_goes_on_where_the_last_one_was(bench: Bench) -> None:
    running, ended = bench.submit(), bench.submit()
    bench.runs(running)
    bench.runs(ended)
    bench.stop()
    bench.backend.exit(ended, code=4)
    halted = bench.ask(running, "halt")
    bench.start()

    assert bench.ends(ended).exit_code == 4
    assert bench.ends(running).exit_code == 143
    until(lambda: request(bench.store, halted).outcome == "done")  # type: ignore[union-attr] # it was made above
    assert len(bench.backend.starts) == 2


@pytest.mark.usefixtures("hasty")
def test_learners_of_this_home_that_should_not_be_there_are_ended_and_no_others(bench: Bench) -> None:
    mine = home_uuid(bench.home)
    over = bench.submit()
    bench.runs(over)
    bench.backend.exit(over)
    bench.ends(over)
    deleted = bench.submit()
    bench.runs(deleted)
    bench.ask(deleted, "delete")
    until(lambda: bench.row(deleted).deleted_us is not None)
    bench.stop()
    bench.backend.stops.clear()
    bench.backend.removed.clear()
    bench.backend.leftovers = [
        LearnerRef(mine, over, 1, 1),
        LearnerRef(mine, deleted, 1, 1),
        LearnerRef(mine, "training-unknown22", 1, 1),
        LearnerRef("another-home", over, 1, 1),
    ]
    bench.start()
    bench.runs(bench.submit())
    until(lambda: len(bench.backend.removed) == 1 and len(bench.backend.stops) >= 2)

    assert {(one.home, one.job_id) for one, _ in bench.backend.stops} == {(mine, over), (mine, deleted)}
    assert [one.job_id for one in bench.backend.removed] == [deleted]


def test_it_lingers_and_then_ends_by_itself(bench: Bench) -> None:
    bench.stop()
    before = bench.ended
    bench.start(linger=lambda: 0.0)
    until(lambda: bench.ended != before)

    assert bench.ended == "nothing was left to do"


def test_a_stop_is_carried_out_though_the_answer_to_another_request_cannot_be_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, running = bench.submit(), bench.submit()
    bench.runs(over)
    bench.runs(running)
    bench.backend.exit(over)
    bench.ends(over)

    def refuse(store: Store, request_id: int, outcome: str) -> None:
        raise CannotWrite("the disk takes nothing")

    monkeypatch.setattr("workbench.controller.loop.request_handler.settle_request", refuse)
    ask(bench.store, running, "halt", origin="test")
    bench.ask(over, "kill")

    assert bench.ends(running).state is State.HALTED


def test_what_keeps_the_end_of_a_job_from_being_written_down_is_shown_until_it_is_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def refuse(*arguments: object, **named: object) -> None:
        assert bench.loop is not None
        tries.append(bench.loop.trouble())
        raise CannotWrite("the disk takes nothing")

    job_id = bench.submit()
    bench.runs(job_id)
    with monkeypatch.context() as full:
        full.setattr("workbench.controller.loop.actions.step", refuse)
        bench.backend.exit(job_id)
        until(lambda: len(tries) >= 3, bench.log)

    assert tries[1:3] == ["the disk takes nothing"] * 2
    assert bench.ends(job_id).state is State.COMPLETED
