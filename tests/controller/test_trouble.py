"""Harm to the loop: backends that hang, clocks that jump, disks that are full, many jobs at once."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from runners.interface import AttemptRef, LaunchPlan, LaunchProgress, LearnerRef, LearnerStatus, StopRequest
from tests.controller.bench import FAR, MEMORY, Bench
from tests.learner.agent import remove_folder
from tests.support.controllers import alive, log_of
from tests.support.disks import fill
from tests.support.naps import NAP
from tests.support.real_jobs import Ground
from tests.support.waiting import patience, until
from workbench.clock import now_us
from workbench.controller.decide.messages import JournalsDrained, Unreachable
from workbench.controller.loop.context import target_key
from workbench.controller.loop.event_handler import CAME, EventHandler
from workbench.controller.loop.removal import tidy_up
from workbench.controller.runtime.log import ControllerLog
from workbench.controller.targets.backend_worker import COLLECT_TRIES, LAUNCHES_AT_ONCE
from workbench.errors import BackendUnreachable, NoSpaceLeft, NotAllowed
from workbench.job import TERMINAL, Intent, LearnerPhase, Reason, State
from workbench.learner.journal.state import read
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.jobs import job, list_jobs, transitions
from workbench.store.updates.jobs import set_reason
from workbench.store.updates.rebuild import reconcile


class Hanging:
    """A call that hangs the first time, until it is let go."""

    def __init__(self) -> None:
        self.hangs = threading.Event()
        self.release = threading.Event()

    def once(self) -> None:
        if not self.hangs.is_set():
            self.hangs.set()
            self.release.wait(patience())


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.release.set()


@pytest.mark.usefixtures("hasty")
def test_a_stop_that_hangs_is_left_behind_and_asked_for_again(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.targets.backend_worker.STOP_SECONDS", 0.2)

    is_read = threading.Event()

    def stop(attempt: AttemptRef, request: StopRequest) -> None:
        # The reason holds until the next answer only.
        if not is_read.is_set():
            hanging.release.wait(patience())
        bench.backend.obey(attempt, request)

    bench.backend.on_stop = stop
    job_id = bench.submit()
    bench.runs(job_id)
    bench.ask(job_id, "kill")
    bench.says(job_id, "has not answered for")
    is_read.set()

    assert bench.ends(job_id).exit_code == 137


HANGING_JOBS = 5


def run_and_kill_beside_what_hangs(
    bench: Bench, begin: Callable[[], None], held: threading.Semaphore
) -> None:
    """Start a job, let something of other jobs hang, then kill the job: it has to end meanwhile."""
    job_id = bench.submit()
    bench.runs(job_id)
    begin()
    until(lambda: held.acquire(blocking=False), "something of another job hangs")
    bench.ask(job_id, "kill")
    assert bench.ends(job_id).exit_code == 137


@pytest.mark.parametrize("kind", ["halt", "kill"])
def test_a_kill_does_not_wait_for_stops_of_other_jobs_that_hang(
    bench: Bench, hanging: Hanging, kind: str
) -> None:
    hangs = threading.Semaphore(0)
    others = [bench.submit() for _ in range(HANGING_JOBS)]

    def stop(attempt: AttemptRef, request: StopRequest) -> None:
        if attempt.job_id in others and not hanging.release.is_set():
            hangs.release()
            hanging.release.wait()
        bench.backend.obey(attempt, request)

    def begin() -> None:
        for other in others:
            bench.runs(other)
            bench.ask(other, kind)
        for _ in others[1:]:
            until(lambda: hangs.acquire(blocking=False), "the stop of each other job hangs")

    bench.backend.on_stop = stop
    run_and_kill_beside_what_hangs(bench, begin, hangs)

    assert {bench.row(other).state for other in others} == {State.PROCESSING}
    hanging.release.set()
    assert all(bench.ends(other) for other in others)


def test_a_kill_does_not_wait_for_a_removal_that_hangs(bench: Bench, hanging: Hanging) -> None:
    hangs = threading.Semaphore(0)
    deleted = bench.submit()

    def remove(_: AttemptRef) -> None:
        hangs.release()
        hanging.release.wait()

    def begin() -> None:
        bench.backend.exit(deleted)
        bench.ends(deleted)
        bench.ask(deleted, "delete")

    bench.backend.on_remove = remove
    bench.runs(deleted)
    run_and_kill_beside_what_hangs(bench, begin, hangs)

    assert bench.row(deleted).deleted_us is None
    hanging.release.set()
    until(lambda: bench.row(deleted).deleted_us is not None)


def submit_for_gpu(bench: Bench) -> None:
    bench.submit(gpus=1)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("look", ["on_measure", "on_leftovers"])
def test_neither_a_kill_nor_a_removal_waits_for_a_look_that_hangs(
    bench: Bench, hanging: Hanging, look: str
) -> None:
    hangs = threading.Semaphore(0)

    def look_around() -> None:
        hangs.release()
        hanging.release.wait()

    setattr(bench.backend, look, look_around)
    if look == "on_measure":
        bench.backend.slots = 1
    run_and_kill_beside_what_hangs(bench, lambda: submit_for_gpu(bench), hangs)

    deleted = bench.submit()
    bench.runs(deleted)
    bench.ask(deleted, "delete")
    until(lambda: bench.row(deleted).deleted_us is not None)


@pytest.mark.parametrize("kind", ["halt", "kill", "delete"])
def test_a_launch_that_waits_behind_those_of_others_is_called_off_at_once(
    bench: Bench, hanging: Hanging, kind: str
) -> None:
    def launch(plan: LaunchPlan, progress: LaunchProgress) -> None:
        hanging.release.wait()

    bench.backend.on_launch = launch
    others = [bench.submit() for _ in range(LAUNCHES_AT_ONCE)]
    until(lambda: len(bench.backend.launches) == len(others))
    waiting = bench.submit()
    bench.reaches(waiting, State.PENDING)
    bench.ask(waiting, kind)

    if kind == "delete":
        until(lambda: bench.row(waiting).deleted_us is not None)
    else:
        bench.ends(waiting)
    assert {bench.row(other).state for other in others} == {State.PENDING}
    hanging.release.set()
    for other in others:
        bench.runs(other)
    assert waiting not in {plan.request.attempt.job_id for plan in bench.backend.launches}


@dataclass(frozen=True, slots=True)
class LostFiles:
    """A job that has ended where its last files cannot be fetched, until ``is_silent`` is cleared."""

    job_id: str
    is_silent: threading.Event


def end_job(bench: Bench, follow: Callable[[], object]) -> str:
    """Have a job end whose journal is asked for by ``follow`` from then on; return its id."""
    ended = threading.Event()

    def follow_once_ended() -> None:
        if ended.is_set():
            follow()

    bench.backend.on_follow = follow_once_ended
    job_id = bench.submit(target=FAR)
    bench.runs(job_id)
    ended.set()
    bench.backend.exit(job_id, code=3)
    return job_id


@pytest.fixture
def collects_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of an attempt are asked for again soon."""
    monkeypatch.setattr("workbench.controller.targets.backend_worker.COLLECT_AGAIN_SECONDS", 0.01)


@pytest.fixture
def lost_files(bench: Bench, collects_often: None) -> LostFiles:
    is_silent = threading.Event()
    is_silent.set()

    def follow() -> None:
        if is_silent.is_set():
            raise BackendUnreachable("node-1 does not answer")

    job_id = end_job(bench, follow)
    bench.says(job_id, "its last output and files are waited for: node-1 does not answer")
    return LostFiles(job_id, is_silent)


@pytest.mark.parametrize("kind", ["kill", "halt", "delete"])
def test_a_stop_ends_a_job_whose_last_files_cannot_be_fetched(
    bench: Bench, lost_files: LostFiles, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(
        "workbench.controller.decide.reconcile.FILES_PATIENCE_SECONDS",
        {Intent.HALT: 0.1, Intent.KILL: 0.1, Intent.DELETE: 0.1},
    )
    job_id = lost_files.job_id
    bench.ask(job_id, kind)

    if kind == "delete":
        until(lambda: job(bench.store, job_id) is None or bench.row(job_id).deleted_us is not None)
    else:
        assert bench.ends(job_id).reason.text.endswith(
            "its last output and files stay on the backend: node-1 does not answer"
        )


def test_a_kill_ends_a_job_whose_last_files_are_asked_for_and_never_answered(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.targets.backend_worker.COLLECT_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(
        "workbench.controller.decide.reconcile.FILES_PATIENCE_SECONDS", dict.fromkeys(Intent, 0.1)
    )
    job_id = end_job(bench, partial(hanging.release.wait, patience()))
    bench.ask(job_id, "kill")

    assert "has not answered for" in bench.ends(job_id).reason.text


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same controller", "new controller"])
def test_a_halt_ends_a_job_whose_files_are_asked_for_in_vain_and_whose_backend_is_known_to_be_away(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    monkeypatch.setattr(
        "workbench.controller.decide.reconcile.FILES_PATIENCE_SECONDS", dict.fromkeys(Intent, 0.1)
    )
    ended, away = threading.Event(), threading.Event()

    def follow() -> None:
        if ended.is_set():
            hanging.release.wait()

    def observe() -> None:
        if away.is_set():
            raise BackendUnreachable("node-1 does not answer")

    def open_never(*_: object) -> object:
        hanging.release.wait()
        raise BackendUnreachable("node-1 does not answer")

    bench.backend.on_follow = follow
    job_id = bench.submit(target=FAR)
    bench.runs(job_id)
    bench.backend.on_observe = observe
    ended.set()
    bench.backend.exit(job_id, code=3)
    bench.reaches(job_id, State.STORING)
    away.set()
    bench.backend.shake()
    bench.says(job_id, "its last output and files are waited for")
    if is_restarted:
        bench.stop()
        bench.start(open_target=open_never)
    bench.ask(job_id, "halt")

    assert "its last output and files stay on the backend" in bench.ends(job_id).reason.text


def test_a_kill_is_not_held_by_the_files_of_jobs_that_are_fetched_before(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.targets.backend_worker.FETCHES_AT_ONCE", 1)
    monkeypatch.setattr(
        "workbench.controller.decide.reconcile.COMING_PATIENCE_SECONDS", dict.fromkeys(Intent, 0.1)
    )
    ended = threading.Event()

    def follow() -> None:
        if ended.is_set():
            hanging.release.wait(patience())

    bench.backend.on_follow = follow
    jobs = [bench.submit(target=FAR) for _ in range(2)]
    for job_id in jobs:
        bench.runs(job_id)
    ended.set()
    for job_id in jobs:
        bench.backend.exit(job_id, code=3)
    bench.ask(jobs[1], "kill")

    assert bench.ends(jobs[1]).reason.text.endswith("the rest comes later")


@pytest.mark.usefixtures("collects_often")
def test_files_that_a_backend_refuses_for_good_are_named_in_the_reason(bench: Bench) -> None:
    def refuse() -> None:
        raise NotAllowed("you may not read pods/exec")

    job_id = end_job(bench, refuse)

    assert bench.ends(job_id).reason.text.endswith(
        "its last output and files stay on the backend: you may not read pods/exec"
    )


@pytest.mark.usefixtures("collects_often")
def test_files_that_a_backend_refuses_for_some_time_come_all_the_same(bench: Bench) -> None:
    refusals = iter(range(COLLECT_TRIES - 1))

    def refuse() -> None:
        if next(refusals, None) is not None:
            raise NotAllowed("you may not read pods/exec")

    job_id = end_job(bench, refuse)

    assert "stay on the backend" not in bench.ends(job_id).reason.text
    assert next(refusals, None) is None


def test_what_was_left_at_a_backend_comes_when_that_is_used_again(
    bench: Bench, collects_often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.loop.loop.SWEEP_AFTER_SECONDS", 0.05)
    is_refused = threading.Event()
    is_refused.set()

    def refuse() -> None:
        if is_refused.is_set():
            raise NotAllowed("you may not read pods/exec")

    job_id = end_job(bench, refuse)
    before = bench.ends(job_id)
    assert "stay on the backend" in before.reason.text
    bench.stop()
    is_refused.clear()
    bench.start()
    bench.runs(bench.submit(target=FAR))

    until(
        lambda: "stay on" not in bench.row(job_id).reason.text, lambda: f"{transitions(bench.store, job_id)}"
    )
    after = bench.row(job_id)
    assert before.reason.text.startswith(after.reason.text)
    assert (after.state, after.exit_code, after.ended_us) == (before.state, 3, before.ended_us)
    assert transitions(bench.store, job_id)[-1].text == CAME


def test_what_cannot_be_fetched_again_stays_and_the_reason_says_so(
    bench: Bench, collects_often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.loop.loop.SWEEP_AFTER_SECONDS", 0.05)
    asked = []

    def refuse() -> None:
        asked.append(True)
        raise NotAllowed("you may not read pods/exec")

    job_id = end_job(bench, refuse)
    before = bench.ends(job_id)
    bench.stop()
    first = len(asked)
    bench.start()
    bench.backend.on_follow = refuse
    bench.runs(bench.submit(target=FAR))

    until(lambda: len(asked) >= first + COLLECT_TRIES)
    bench.stop()
    assert bench.row(job_id) == before


def test_the_reason_stays_where_nothing_of_the_attempt_is_there_any_more(
    bench: Bench, collects_often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left to fetch then, as where all has come."""
    monkeypatch.setattr("workbench.controller.loop.loop.SWEEP_AFTER_SECONDS", 0.05)
    is_judged = threading.Event()
    correct = EventHandler._correct_reason

    def notes(handler: EventHandler, event: JournalsDrained) -> None:
        correct(handler, event)
        is_judged.set()

    monkeypatch.setattr(EventHandler, "_correct_reason", notes)

    def refuse() -> None:
        raise NotAllowed("you may not read pods/exec")

    job_id = end_job(bench, refuse)
    before = bench.ends(job_id)
    bench.stop()
    bench.backend.on_follow = lambda: None
    bench.backend.learners.clear()
    bench.start()
    bench.runs(bench.submit(target=FAR))

    until(is_judged.is_set)
    assert bench.row(job_id) == before


def test_what_a_halted_job_had_left_comes_and_its_reason_says_so_no_more(
    bench: Bench, lost_files: LostFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "workbench.controller.decide.reconcile.FILES_PATIENCE_SECONDS", dict.fromkeys(Intent, 0.1)
    )
    job_id = lost_files.job_id
    bench.ask(job_id, "halt")
    assert "stay on the backend" in bench.ends(job_id).reason.text

    lost_files.is_silent.clear()

    until(lambda: "stay on" not in bench.row(job_id).reason.text, lambda: f"{bench.row(job_id)}")


def test_files_of_an_ended_job_come_when_its_backend_answers_again(
    bench: Bench, lost_files: LostFiles
) -> None:
    lost_files.is_silent.clear()

    ended = bench.ends(lost_files.job_id)

    assert (ended.exit_code, "stay on the backend" in ended.reason.text) == (3, False)


def test_a_watch_that_hangs_is_begun_anew(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.targets.observer.LONG_SECONDS", 0.1)
    monkeypatch.setattr("workbench.controller.targets.observer.DEADLINE_SECONDS", 0.2)
    job_id = bench.submit()
    bench.runs(job_id)
    bench.backend.on_observe = hanging.once
    assert hanging.hangs.wait(patience())
    bench.backend.exit(job_id, code=6)

    assert bench.ends(job_id).exit_code == 6


@pytest.mark.usefixtures("hasty")
def test_a_launch_that_hangs_is_made_again_and_starts_nothing_twice(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.targets.backend_worker.LAUNCH_SILENCE_SECONDS", 0.2)
    is_read = threading.Event()

    def launch(plan: LaunchPlan, progress: LaunchProgress) -> None:
        # The reason holds until the next answer only.
        if not is_read.is_set():
            hanging.release.wait(patience())

    bench.backend.on_launch = launch
    job_id = bench.submit()
    bench.says(job_id, "has not answered for")
    is_read.set()
    bench.runs(job_id)
    hanging.release.set()
    until(lambda: len(bench.backend.launches) >= 2)
    bench.backend.exit(job_id)

    assert bench.ends(job_id).state is State.COMPLETED
    assert bench.backend.starts == [(job_id, 1, 1)]


def test_a_learner_that_fell_before_it_began_and_stays_so_is_lost_as_soon_as_its_next_launch_is_over(
    bench: Bench, hanging: Hanging
) -> None:
    def fall(plan: LaunchPlan, progress: LaunchProgress) -> None:
        ref = LearnerRef(plan.request.attempt.home, plan.request.attempt.job_id, 1, 1)
        seen = LearnerStatus(ref, LearnerPhase.LOST, reason=Reason("the node is gone", "S203"))
        bench.backend.learners[ref.job_id, 1, 1] = seen
        hanging.once()

    bench.backend.on_launch = fall
    job_id = bench.submit(max_platform_restarts=0)
    assert hanging.hangs.wait(patience())
    bench.stop()
    hanging.release.set()
    bench.start()
    row = bench.ends(job_id)

    assert (row.state, row.reason.code) == (State.FAILED, "S203")
    assert len(bench.backend.launches) == 2


def test_a_launch_that_was_given_up_does_not_go_on_when_it_comes_back(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.targets.backend_worker.LAUNCH_SILENCE_SECONDS", 0.2)

    def launch(plan: LaunchPlan, progress: LaunchProgress) -> None:
        hanging.once()
        progress("starts", stage="starting")

    bench.backend.on_launch = launch
    job_id = bench.submit()
    assert hanging.hangs.wait(patience())
    bench.ask(job_id, "kill")
    assert bench.ends(job_id).exit_code == 137
    hanging.release.set()
    bench.runs(bench.submit())

    assert [key for key in bench.backend.starts if key[0] == job_id] == []


def test_a_backend_whose_opening_hangs_is_given_up_and_opened_again(
    bench: Bench, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.targets.backend_worker.LAUNCH_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr("workbench.controller.targets.observer.LONG_SECONDS", 0.1)
    monkeypatch.setattr("workbench.controller.targets.observer.DEADLINE_SECONDS", 0.2)
    opened = bench.backend.open

    def open_slowly(*arguments: object) -> object:
        hanging.once()
        return opened(*arguments)  # type: ignore[arg-type] # as they came

    bench.stop()
    bench.start(open_target=open_slowly)
    job_id = bench.submit()
    assert hanging.hangs.wait(patience())

    bench.runs(job_id)


def test_a_learner_of_which_all_trace_is_lost_is_ended_before_its_attempt_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.targets.observer.WHOLE_SECONDS", 0.1)
    job_id = bench.submit(max_platform_restarts=0)
    bench.runs(job_id)
    with bench.backend.changed:
        del bench.backend.learners[job_id, 1, 1]
    row = bench.ends(job_id)

    assert (row.state, row.exit_by, row.reason.code) == (State.FAILED, "lost", "S104")
    assert [(one.job_id, one.attempt) for one in bench.backend.removed] == [(job_id, 1)]


def test_a_real_job_whose_folder_is_removed_leaves_no_process(
    real_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.controller.targets.observer.WHOLE_SECONDS", 0.2)
    bench = real_bench
    ground = Ground(bench.home)
    job_id = ground.write("echo ready; sleep 600")
    bench.wake()
    ground.prints(job_id, "ready")
    bench.runs(job_id)
    remove_folder(bench.home.job(job_id).path)
    row = bench.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 75)
    until(lambda: ground.processes() == [])
    ground.store.close()


def test_a_plug_in_whose_watch_raises_all_the_time_takes_nothing_else_down(bench: Bench) -> None:
    def broken() -> None:
        raise ZeroDivisionError("division by zero")

    job_id = bench.submit()
    bench.runs(job_id)
    bench.backend.on_observe = broken
    bench.backend.shake()
    row = bench.says(job_id, "ZeroDivisionError: division by zero")
    assert row.state is State.PROCESSING

    bench.backend.on_observe = lambda: None
    bench.backend.exit(job_id)
    assert bench.ends(job_id).state is State.COMPLETED


def test_a_clock_that_jumped_back_makes_no_restart_wait_for_ever(bench: Bench) -> None:
    job_id = bench.submit(max_restarts=1)
    bench.runs(job_id)
    bench.backend.exit(job_id, code=1)
    row = bench.says(job_id, "restart 1 of 1")
    bench.stop()
    assert row.next_try_us is not None
    set_reason(bench.store, job_id, row.reason, row.next_try_us + 365 * 86_400 * 1_000_000)
    bench.start()

    bench.runs(job_id, attempt=2)


def test_hundreds_of_jobs_at_once_all_come_to_their_end(bench: Bench) -> None:
    bench.stop()
    ids = [bench.submit() for _ in range(150)]
    bench.start()
    for job_id in ids:
        bench.runs(job_id)
    for job_id in ids:
        bench.backend.exit(job_id)
    for job_id in ids:
        assert bench.ends(job_id).state is State.COMPLETED

    assert len(bench.backend.starts) == 150


def test_a_backend_that_cannot_be_reached_says_when_it_was_last_seen(bench: Bench) -> None:
    job_id = bench.submit()
    bench.runs(job_id)

    def away() -> None:
        raise BackendUnreachable("no route to host")

    bench.backend.on_observe = away
    bench.backend.shake()
    first = bench.says(job_id, "local cannot be reached: no route to host").seen_us

    assert first is not None
    bench.backend.on_observe = lambda: None


def test_a_backend_that_answers_again_is_in_sight_though_its_jobs_say_nothing_new(bench: Bench) -> None:
    job_id = bench.submit()
    bench.runs(job_id)

    def away() -> None:
        raise BackendUnreachable("no route to host")

    bench.backend.on_observe = away
    bench.backend.shake()
    bench.says(job_id, "local cannot be reached: no route to host")
    bench.backend.on_observe = lambda: None

    until(lambda: bench.row(job_id).seen_us is None)


def test_jobs_that_no_controller_looked_after_are_out_of_sight_until_their_backend_answers(
    bench: Bench,
) -> None:
    job_id = bench.submit()
    bench.runs(job_id)
    bench.stop()
    before = now_us() - 60_000_000
    held = threading.Event()

    def answer_late() -> None:
        held.wait(patience())

    bench.backend.on_observe = answer_late
    bench.start(looked_us=before)
    until(lambda: bench.row(job_id).seen_us == before)

    held.set()
    until(lambda: bench.row(job_id).seen_us is None)
    assert bench.row(job_id).state is State.PROCESSING


def test_the_loop_says_again_and_again_that_it_looks_after_a_silent_job(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = bench.submit()
    bench.runs(job_id)
    bench.stop()
    monkeypatch.setattr("workbench.controller.loop.loop.BEAT_SECONDS", 0.02)
    beats: list[int] = []
    bench.start(beat=lambda: beats.append(now_us()))

    until(lambda: len(beats) > 20)


LINES: Final = 500_000
"""Of ``seq``: some 3 MB."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small tmpfs cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_loses_nothing_and_all_goes_on_when_there_is_room(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABRIC_HOME", str(small_disk / "fabric"))
    ground = Ground(Home(small_disk / "fabric"), own_agents=True)
    go = small_disk.parent / "go"
    # More than a pipe holds: the command cannot end before there is room.
    job_id = ground.submit(
        f"{NAP}echo ready; while [ ! -e {go} ]; do nap 0.02; done; seq {LINES}; echo done; exit 3"
    )
    ground.prints(job_id, "ready")
    ground.reaches(job_id, State.PROCESSING)
    fill(small_disk)
    go.touch()
    until(lambda: read(str(ground.learner(job_id).path))["stall"], "the output to wait for room")
    assert alive(_command(ground, job_id))
    assert ground.row(job_id).state is State.PROCESSING
    (small_disk / "filling").unlink()
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 3), log_of(ground.home)
    assert ground.output(job_id) == "\n".join(["ready", *map(str, range(1, LINES + 1)), "done", ""])
    ground.clean_up()


def _command(ground: Ground, job_id: str) -> int:
    import json

    return int(json.loads(ground.learner(job_id).state.read_text())["command_pid"] or 0)


def test_a_job_that_only_its_history_knew_has_its_turn_once_it_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.stop()
    monkeypatch.setattr(
        "workbench.controller.loop.loop.SWEEP_AFTER_SECONDS", 1e9
    )  # a sweep stirs the queue, too
    lost = bench.submit()
    with bench.store.atomic():
        for table in ("requests", "transitions", "attempts"):
            bench.store.execute(f"DELETE FROM {table} WHERE job_id = ?", (lost,))
        bench.store.execute("DELETE FROM jobs WHERE id = ?", (lost,))
    history = bench.home.job(lost).events
    history.write_bytes(history.read_bytes().splitlines(keepends=True)[0])
    bench.start()
    other = bench.submit()
    bench.runs(other)
    bench.backend.exit(other)
    bench.ends(other)

    loop = bench.loop
    assert loop is not None
    until(lambda: loop.open_jobs() == 0)
    log = ControllerLog(bench.home.controller_log)
    tidy_up(bench.home, log, loop.post)
    log.close()

    bench.runs(lost)


def test_whatever_line_of_its_history_a_crash_comes_behind_a_failed_attempt_is_tried_again(
    bench: Bench, tmp_path: Path
) -> None:
    job_id = bench.submit(max_restarts=1)
    bench.runs(job_id)
    bench.backend.exit(job_id, code=1)
    again = bench.reaches(job_id, State.QUEUED, attempt=2)
    lines = bench.home.job(job_id).events.read_bytes().splitlines(keepends=True)

    found = again
    for count in range(1, len(lines) + 1):
        crashed = Home(tmp_path / f"after-{count}")
        Store.open(crashed).close()
        shutil.copytree(bench.home.job(job_id).path, crashed.job(job_id).path)
        crashed.job(job_id).events.write_bytes(b"".join(lines[:count]))
        with Store.open(crashed) as store:
            reconcile(store)
            (found,) = list_jobs(store)
        assert found.state not in TERMINAL, lines[count - 1]

    assert found.next_try_us is not None
    assert (found.attempt, found.next_try_us, found.restarts) == (2, again.next_try_us, 1)


def test_an_answer_that_a_full_disk_does_not_take_is_not_asked_for_each_time_it_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = asked = 0

    def refuse(*_: object) -> None:
        nonlocal refused
        refused += 1
        raise NoSpaceLeft("the disk is full")

    def away() -> None:
        raise BackendUnreachable("the link is down")

    def measure() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            away()

    monkeypatch.setattr("workbench.controller.loop.event_handler.mark_in_sight", refuse)
    bench.backend.slots = 1
    running = bench.submit(gpus=1)
    bench.runs(running)
    bench.backend.on_observe = away
    bench.backend.shake()
    bench.says(running, "the link is down")
    # Only now: the host may still be told that the first job waits no more.
    bench.backend.on_measure = measure
    bench.submit(gpus=1)
    until(lambda: asked > 0, bench.log)
    assert bench.loop is not None
    bench.loop.post(Unreachable(target_key(MEMORY), "the link is down"))

    first = refused
    until(lambda: refused >= first + 6, bench.log)

    assert asked <= 3
