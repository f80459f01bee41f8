"""What became of learners whose agents were killed, or whose machine was restarted, is found out and reported."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt
from runners.interface import AttemptRef, Followed, LearnerRef, LearnerStatus
from runners.process import observe
from runners.process.observe import lost
from runners.shared.learner_status import followed_by, status_of
from tests.runners.jobs import HOME, Jobs
from tests.support.waiting import until
from workbench.controller.decide.observations import harmless
from workbench.errors import RunnerError
from workbench.job import LearnerPhase
from workbench.learner.host import learners
from workbench.learner.host.learners import is_begun, is_dead, is_over
from workbench.learner.platform import leases

FOREVER = "echo ready; while :; do sleep 1; done"
REF = LearnerRef(HOME, "training-abcdefghj", 1, 1)


def agents(job_id: str) -> list[int]:
    return learners.markers("FABRIC_GUARD").get(f"{HOME}/{job_id}/1/1", [])


def kill_all(pids: list[int]) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, number)


def folder_let_go(job: LaunchedAttempt) -> Path:
    """Return a learner's folder once its agent is gone, a moment after it has recorded the end."""
    folder = Path(job.plan.learners[0].native["folder"])
    until(lambda: not leases.is_held(str(folder / "agent.lock")), f"the agent of {folder} to let go")
    return folder


def test_what_was_printed_before_the_agent_was_killed_is_not_lost(jobs: Jobs) -> None:
    job = jobs.run("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; echo done; exec sleep 300")
    job.until_printed(b"line 10\n")
    kill_all(agents(job.request.attempt.job_id))

    seen = job.until_over()[1]
    output = job.output()

    assert (seen.phase, seen.reason.code if seen.reason else "") == (LearnerPhase.EXITED, "S202")
    assert output == b"".join(b"line %d\n" % number for number in range(output.count(b"line"))) + (
        b"done\n" if b"done" in output else b""
    )


def record_agent(job: LaunchedAttempt, argv: list[str]) -> None:
    """Have another command stand in the launch document, as if the agent's home or interpreter had been removed."""
    folder = Path(job.plan.learners[0].native["folder"])
    document = json.loads((folder / "launch.json").read_text())
    document["guard"] = argv
    (folder / "launch.json").write_text(json.dumps(document))


GONE = ["/gone/python", "-I", "-S", "/gone/__main__.py", "guard", "/gone"]
EMPTY = ["/bin/sh", "-c", "exit 2", "the agent's file is gone"]


@pytest.mark.parametrize("recorded", [GONE, EMPTY], ids=["no interpreter", "no agent"])
def test_a_learner_whose_agent_was_removed_is_taken_over_by_the_present_one(
    jobs: Jobs, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "TAKEOVER_SECONDS", 1.0)
    job = jobs.run(f"echo printed; {FOREVER}")
    job.until_printed(b"printed\n")
    record_agent(job, recorded)
    kill_all(agents(job.request.attempt.job_id))

    seen = job.until_over()[1]

    assert (seen.phase, seen.reason.code if seen.reason else "") == (LearnerPhase.EXITED, "S202")
    assert job.ref() not in set(job.runner.leftovers())


def test_a_learner_whose_home_was_moved_from_under_it_is_taken_over_where_it_is_now(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "TAKEOVER_SECONDS", 1.0)
    job = jobs.run(FOREVER)
    job.until_running()
    launch = Path(job.plan.learners[0].native["folder"]) / "launch.json"
    here = str(launch.parents[1])
    launch.write_text(launch.read_text().replace(here, "/gone/attempt-1"))
    kill_all(agents(job.request.attempt.job_id))

    seen = job.until_over()[1]

    assert (seen.phase, seen.reason.code if seen.reason else "") == (LearnerPhase.EXITED, "S202")
    assert (launch.parents[1] / "decision.json").exists()


@pytest.mark.parametrize("recorded", [GONE, EMPTY], ids=["no interpreter", "no agent"])
def test_a_learner_that_no_agent_can_take_over_is_ended_and_lost_whoever_looks(
    jobs: Jobs, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RunnerError("no agent can be brought")

    monkeypatch.setattr(observe, "TAKEOVER_SECONDS", 1.0)
    monkeypatch.setattr(observe, "upload_agent", refuse)
    job = jobs.run(FOREVER)
    job.until_running()
    record_agent(job, recorded)
    kill_all(agents(job.request.attempt.job_id))

    def look() -> LearnerStatus:
        # The controller looks with another runner each time.
        job.runner = jobs.runner()
        (seen,) = job.observe(0).seen
        return seen

    until(lambda: look().phase is LearnerPhase.LOST, lambda: f"the learner to be lost: {look()}")
    seen = look()
    assert seen.phase is LearnerPhase.LOST
    assert seen.reason is not None
    assert seen.reason.code == "S202"
    assert job.ref() not in set(job.runner.leftovers())


def test_a_restarted_machine_is_noticed_and_reported(jobs: Jobs) -> None:
    job = jobs.run(FOREVER)
    job.until_running()
    folder = Path(job.plan.learners[0].native["folder"])
    kill_all(agents(job.request.attempt.job_id))
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "boot_id": "another boot"}))

    job.runner = jobs.runner()
    seen = job.until_over()[1]

    assert (seen.phase, seen.reason.code if seen.reason else "") == (LearnerPhase.LOST, "S203")
    assert job.ref() not in set(job.runner.leftovers())


def test_a_learner_without_agent_that_did_not_begin_is_lost_and_can_be_launched(jobs: Jobs) -> None:
    job = jobs.run("true")
    job.until_over()
    folder = folder_let_go(job)
    boot_id = json.loads((folder / "state.json").read_text())["boot_id"]
    (folder / "state.json").write_text(
        json.dumps({"phase": "starting", "boot_id": boot_id, "started_us": None})
    )

    job.runner = jobs.runner()
    (seen,) = job.observe(0).seen
    job.statuses.clear()
    job.launch().until(lambda all: 1 in all and all[1].phase is LearnerPhase.EXITED, "it was launched again")

    assert (seen.phase, seen.started_us) == (LearnerPhase.LOST, None)
    assert job.statuses[1].exit_code == 0


def test_many_runners_observe_one_host_without_waiting_for_each_other(jobs: Jobs) -> None:
    job = jobs.run(FOREVER)
    job.until_running()
    first, second = jobs.runner(), jobs.runner()
    first.observe([job.request.attempt], timeout_seconds=0)

    waiting = [
        runner.observe([job.request.attempt], timeout_seconds=seconds)
        for runner, seconds in ((first, 0.2), (second, 3600.0))
    ]

    assert [observation.whole for observation in waiting] == [False, True]
    first.close()
    second.close()


def test_a_host_is_looked_at_without_disturbing_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "agent.lock"
    assert not leases.is_held(str(path))
    path.touch()
    assert not leases.is_held(str(path))
    lease = leases.take(["agent.lock"], str(tmp_path), "{}")
    assert lease is not None

    assert leases.is_held(str(path))
    assert leases.is_held(str(path), set())
    lease.release()
    assert not leases.is_held(str(path), set())


def test_an_agent_that_begins_while_it_is_looked_at_is_not_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[leases.Lease] = []
    is_held = leases.is_held

    def held_until_it_begins(path: str, listed: set[str] | None = None) -> bool:
        held = is_held(path, listed)
        if not begun:
            taken = leases.take(["agent.lock"], str(tmp_path), "{}")
            assert taken is not None
            begun.append(taken)
            (tmp_path / "state.json").write_text('{"phase": "running"}')
        return held

    monkeypatch.setattr(leases, "is_held", held_until_it_begins)
    document = learners.learner(str(tmp_path))
    begun[0].release()

    assert document["alive"]
    assert not is_dead(document)


def facts(phase: str | None, *, alive: bool, **more: object) -> dict[str, object]:
    state = None if phase is None else {"phase": phase, "boot_id": "b", **more}
    return {"alive": alive, "state": state, "slots": [], "launched": True, "secrets_file": None}


@pytest.mark.parametrize(
    ("phase", "alive", "begun", "dead", "over"),
    [
        (None, False, False, False, False),
        (None, True, True, False, False),
        ("starting", False, False, True, False),
        ("starting", True, True, False, False),
        ("running", True, True, False, False),
        ("running", False, True, True, False),
        ("stopping", False, True, True, False),
        ("exited", True, True, False, True),
        ("exited", False, True, False, True),
    ],
)
def test_what_facts_mean(phase: str | None, alive: bool, begun: bool, dead: bool, over: bool) -> None:
    document = facts(phase, alive=alive)

    assert (is_begun(document), is_dead(document), is_over(document)) == (begun, dead, over)


def test_why_output_waits_is_the_reason_of_a_learner_that_runs() -> None:
    seen = status_of(REF, facts("running", alive=True, stall="the disk is full"), "box")

    assert seen is not None
    assert seen.reason is not None
    assert (seen.reason.text, seen.reason.code) == ("the disk is full", "S204")


def test_why_a_learner_has_no_state_yet_is_its_reason() -> None:
    waits: dict[str, object] = {
        "alive": True,
        "state": None,
        "stall": "the disk is full",
        "slots": [],
        "launched": True,
    }
    seen = status_of(REF, waits, "box")
    assert seen is not None
    assert seen.reason is not None
    assert (seen.phase, seen.reason.text, seen.reason.code) == (
        LearnerPhase.STARTING, "the disk is full", "S204",
    )  # fmt: skip
    begins = status_of(REF, {**waits, "stall": ""}, "box")
    assert begins is not None and begins.reason is None


@pytest.mark.parametrize(
    ("alive", "laptop", "text"),
    [
        (True, "mine", "the disk is full"),
        (False, "mine", "waits until fabric runs on mine again: what starts it at box has ended"),
        (
            False,
            "",
            "waits until fabric runs on the machine that it was submitted from again: "
            "what starts it at box has ended",
        ),
    ],
)
def test_what_a_waiter_has_written_holds_while_it_lives(alive: bool, laptop: str, text: str) -> None:
    state = {"phase": "starting", "waiting": True, "stall": "the disk is full", "laptop": laptop}
    seen = status_of(REF, {"alive": alive, "state": state, "slots": [], "launched": True}, "box")

    assert seen is not None and seen.reason is not None
    assert (seen.waits, seen.cut_off, seen.reason.text) == (alive, not alive, text)


@pytest.mark.parametrize(
    ("state", "code"), [({}, "S104"), ({"boot_id": "b"}, "S202"), ({"boot_id": "a"}, "S203")]
)
def test_the_reason_of_a_lost_learner(state: dict[str, str], code: str) -> None:
    document = {"alive": False, "state": state, "slots": ["GPU-1"], "launched": True, "secrets_file": None}

    seen = lost(REF, document, "b", "box")

    assert seen.reason is not None
    assert (seen.reason.code, seen.slots, seen.node) == (code, ("GPU-1",), "box")


def test_an_unreadable_state_is_no_crash(jobs: Jobs) -> None:
    job = jobs.run("true")
    job.until_over()
    folder = folder_let_go(job)
    (folder / "state.json").write_text("{half")

    observation = jobs.runner().observe([job.request.attempt], timeout_seconds=0)

    assert observation.seen == ()


def test_attempts_of_another_host_are_simply_not_there(jobs: Jobs) -> None:
    attempt = AttemptRef(HOME, "training-zzzzzzzzz", 1, 4)

    assert jobs.runner().observe([attempt], timeout_seconds=0).seen == ()
    assert isinstance(jobs.host, LocalHost)


def test_a_lost_learner_still_names_the_attempt_that_its_host_has_begun() -> None:
    ref = LearnerRef(HOME, "training-abcdefghj", 1, 1)
    state = {"boot_id": "before", "followed_by": {"attempt": 2, "begin_us": 7, "delay_seconds": 1.0}}

    status = lost(ref, {"state": state, "slots": ()}, "now", "node")

    assert status.phase is LearnerPhase.LOST
    assert status.followed_by == Followed(2, 7, 1.0)


@pytest.mark.parametrize(
    "found",
    [
        "2",
        {"attempt": 2},
        {"attempt": "x", "begin_us": 1},
        {"attempt": 2, "begin_us": float("inf"), "delay_seconds": 1},
    ],
)
def test_what_names_no_next_attempt_is_none(found: object) -> None:
    assert followed_by({"followed_by": found}) is None


@pytest.mark.parametrize(
    ("phase", "followed", "expected"),
    [
        pytest.param(LearnerPhase.EXITED, Followed(2, 7, 1.0), Followed(2, 7, 1.0), id="ended"),
        pytest.param(LearnerPhase.RUNNING, Followed(2, 7, 1.0), None, id="it runs"),
        pytest.param(LearnerPhase.EXITED, Followed(2, 10**24, 1.0), None, id="a time that is none"),
        pytest.param(LearnerPhase.EXITED, Followed(1 << 40, 7, 1.0), None, id="a number that is none"),
        pytest.param(LearnerPhase.EXITED, Followed(2, 7, 1e9), Followed(2, 7, 100.0), id="no back-off"),
        pytest.param(
            LearnerPhase.EXITED, Followed(2, 7, float("nan")), Followed(2, 7, 0.0), id="not a number"
        ),
    ],
)
def test_the_next_attempt_that_a_state_names_is_taken_within_bounds(
    phase: LearnerPhase, followed: Followed, expected: Followed | None
) -> None:
    status = LearnerStatus(LearnerRef(HOME, "training-abcdefghj", 1, 1), phase, followed_by=followed)

    assert harmless(status).followed_by == expected
