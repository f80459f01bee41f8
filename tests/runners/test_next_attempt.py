"""What a host prepares for the next attempt by itself is what a launch of that attempt would have brought."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt
from runners.container.permissions import relabelled
from runners.container.plan import labels, network_name
from runners.container.runner import ContainerRunner
from runners.interface import HostRestarts, LaunchRequest
from runners.shared.environment import secrets_stem
from tests.runners.jobs import Jobs
from tests.support.engine import engine_that_answers
from workbench.learner.guard.container_command import command_of
from workbench.learner.guard.next_attempt import (
    FollowingAttempt,
    await_network_removal,
    following_attempt,
    prepare_container,
)
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.journal.state import end_of_attempt, read_stop
from workbench.learner.platform.errors import Failure
from workbench.learner.queue.entries import group_mark
from workbench.paths import Home
from workbench.spec import BindMount, Checkpoints, DataStore, EvaluationMetrics

RESTARTS = HostRestarts(
    done=0,
    allowed=2,
    delay_seconds=1.0,
    platform_done=1,
    platform_allowed=3,
    platform_delay_seconds=2.0,
)
S3 = DataStore(
    "s", "s3_datastore", training_data="d", training_results="r", connection={"auth_url": "http://x"}
)
TRIAL: dict[str, Any] = {
    "env": {"DET_EXPERIMENT_CONFIG": json.dumps({"searcher": {"metric": "loss"}})},
    "labels": {"sweep": "qhcu3xn5e"},
    "params": {"lr": 0.1},
    "seed": 7,
}
FAILED = {"exit_code": 3, "signal": None, "stopped": ""}
WHY = {"text": "the command failed with exit code 3", "code": "C201"}


def documents(
    jobs: Jobs, number: int, learner: int = 1, **options: Any
) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Return the folder of an attempt's learner, its launch document, and that of the next attempt by its plan."""
    request = jobs.plan("python train.py --out $PWD", **options).request
    at = [replace(request, attempt=replace(request.attempt, attempt=one)) for one in (number, number + 1)]
    plans = [LaunchedAttempt.planned(jobs.runner(), one).plan.learners[learner - 1].native for one in at]
    folders = [str(one["folder"]) for one in plans]
    first, second = (
        {**json.loads(json.dumps(one["launch"])), "guard": ["python3", "agent", "guard", folder]}
        for one, folder in zip(plans, folders, strict=True)
    )
    return Path(folders[0]), first, second


@pytest.mark.parametrize(
    ("number", "options"),
    [
        pytest.param(1, {}, id="plain"),
        pytest.param(9, {"params": {"lr": 0.1}, "seed": 7}, id="from attempt 9 to 10"),
        pytest.param(
            10, {"env": {"PYTHONPATH": "/own:/other", "MINE": "attempt-10"}}, id="its own variables"
        ),
        pytest.param(1, {"setup": "pip list", "memory_bytes": 1 << 20, "cpus": 1.0}, id="limits"),
        pytest.param(1, {"data_stores": (S3,)}, id="a store"),
        pytest.param(1, TRIAL, id="a trial"),
        pytest.param(1, {"env": {"DET_TRIAL_RUN_ID": "1"}}, id="no trial"),
        pytest.param(1, {"data_stores": (replace(S3, mount=True),)}, id="a mounted store"),
        pytest.param(1, {"checkpoints": Checkpoints(keep_last=2)}, id="retention"),
        pytest.param(1, {"bind_mounts": (BindMount("/tmp", "in"),)}, id="bind mounts"),
        pytest.param(1, {"evaluation_metrics": EvaluationMetrics(type="auto")}, id="metrics"),
        pytest.param(1, {"recorded": {"umask": "0022", "environment": {"LANG": "C"}}}, id="recorded"),
        pytest.param(9, {"learners": 2, "learner": 2, "gpus": 1}, id="the second of two learners"),
    ],
)
def test_the_next_launch_document_is_the_planned_one(
    jobs: Jobs, number: int, options: dict[str, Any]
) -> None:
    folder, first, second = documents(jobs, number, **options)
    # As it is once it was launched.
    first |= {"slots": ["GPU-1"], "secrets_file": "/dev/shm/x", "cpus": [0] if first["cpus"] else None}
    first["env"] |= {"MASTER_PORT": "29500"}
    restarts: dict[str, Any] = {"done": 0, "allowed": 2, "delay_seconds": 40.0}

    made = FollowingAttempt(str(folder), LaunchDocument({**first, "restarts": restarts}), {}).document()

    after = {"done": 1, "allowed": 2, "delay_seconds": 60.0}
    second |= {"slots": [], "secrets_file": None, "cpus": first["cpus"], "restarts": after}
    second["env"] |= {"MASTER_PORT": "29500"}
    assert made == second


@pytest.mark.parametrize(
    ("ran_seconds", "waits", "after"),
    [
        pytest.param(600, 0.0, 40.0, id="at once"),
        pytest.param(3, 40.0, 60.0, id="after its back-off where it hardly ran"),
    ],
)
def test_the_attempt_after_one_that_was_preempted_is_not_counted(
    jobs: Jobs, ran_seconds: int, waits: float, after: float
) -> None:
    folder, first, _ = documents(jobs, 1, gpus=1, preemptible=True, priority=30)
    folder.mkdir(parents=True)
    times = {"started_us": 1_000_000, "ended_us": 1_000_000 + ran_seconds * 1_000_000}
    (folder / "state.json").write_text(json.dumps({**times, "stopped": "preempt"}))
    restarts: dict[str, Any] = {"done": 1, "allowed": 1, "delay_seconds": 40.0}
    launch = LaunchDocument({**first, "restarts": restarts})

    following = FollowingAttempt(str(folder), launch, {}, is_preempted=True)

    made = following.document()
    assert following.followed_by["delay_seconds"] == waits
    assert made["restarts"] == {**restarts, "delay_seconds": after}
    assert made["preemption"] == first["preemption"]
    assert made["preemption"]["priority"] == 30


@pytest.mark.parametrize(
    ("output", "is_preempted", "expected"),
    [
        ("CUDA out of memory", False, True),
        ("another fault", False, False),
        ("CUDA out of memory", True, False),
    ],
    ids=["a line bars it", "no line does", "who was preempted has not failed"],
)
def test_the_output_may_bar_the_attempt_after_one_that_failed(
    jobs: Jobs, output: str, is_preempted: bool, expected: bool
) -> None:
    barred_by = ("out of memory",)
    job = jobs.plan("true")
    job = LaunchedAttempt.planned(
        jobs.runner(), replace(job.request, restarts=replace(RESTARTS, barred_by=barred_by))
    ).launch()
    job.until_over()
    folder = Path(job.plan.learners[0].native["folder"])
    (folder / "output.log").write_text(f"{output}\n")
    launch = LaunchDocument(json.loads((folder / "launch.json").read_text()))

    following = FollowingAttempt(str(folder), launch, {}, is_preempted=is_preempted)

    assert following.is_barred is expected
    assert following.document()["restarts"]["barred_by"] == list(barred_by)


def two_learners_over(jobs: Jobs) -> tuple[LaunchedAttempt, list[Path], list[LaunchDocument]]:
    """Run an attempt of two learners to its end; return it with their folders and launch documents."""
    job = jobs.plan("true", learners=2)
    job = LaunchedAttempt.planned(jobs.runner(), replace(job.request, restarts=RESTARTS)).launch()
    job.until_over()
    folders = [Path(one.native["folder"]) for one in job.plan.learners]
    return job, folders, [LaunchDocument(json.loads((one / "launch.json").read_text())) for one in folders]


def test_all_learners_of_the_next_attempt_are_prepared_and_given_to_the_waiter_at_once(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, folders, (_, launch) = two_learners_over(jobs)
    given: list[Any] = []
    monkeypatch.setattr("workbench.learner.queue.home_waiter.HomeWaiter.reach", lambda _: None)
    monkeypatch.setattr(
        "workbench.learner.queue.home_waiter.HomeWaiter.give", lambda _, *what: given.append(what)
    )

    following = following_attempt(str(folders[1]), launch, {"TOKEN": "t"}, is_preempted=False)
    assert following.give_to_waiter()

    ((ticket, secrets),) = given
    after = [Path(str(folder).replace("attempt-1", "attempt-2")) for folder in folders]
    assert (ticket["attempt"], secrets) == (2, {"TOKEN": "t"})
    assert [one["folder"] for one in ticket["learners"]] == [str(folder) for folder in after]
    attempt = replace(job.request.attempt, attempt=2)
    assert [one["secrets_stem_name"] for one in ticket["learners"]] == [
        secrets_stem("", attempt, learner).lstrip("/") for learner in (1, 2)
    ]
    written = [json.loads((folder / "launch.json").read_text()) for folder in after]
    assert [(one["learner"], one["attempt"], one["restarts"]["done"]) for one in written] == [
        (1, 2, 1),
        (2, 2, 1),
    ]
    assert all(Path(one["env"]["MODEL_DIR"]).is_dir() for one in written)


@pytest.mark.parametrize(
    ("request_to_stop", "passed_on"),
    [
        pytest.param(
            {"kind": "kill", "by": "ada@laptop"}, {"kind": "kill", "by": "ada@laptop"}, id="a person's"
        ),
        pytest.param({"kind": "halt", "by": "the controller"}, {}, id="the controller's, of what is left"),
    ],
)
def test_what_is_asked_of_one_learner_meanwhile_is_asked_of_the_next_attempt_where_a_person_asks(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, request_to_stop: dict[str, Any], passed_on: dict[str, Any]
) -> None:
    _, folders, (_, launch) = two_learners_over(jobs)

    def ask(*_: object) -> None:
        (folders[0] / "stop.json").write_text(json.dumps(request_to_stop))

    monkeypatch.setattr("workbench.learner.queue.home_waiter.HomeWaiter.reach", lambda _: None)
    monkeypatch.setattr("workbench.learner.queue.home_waiter.HomeWaiter.give", ask)

    following = following_attempt(str(folders[1]), launch, {}, is_preempted=False)

    assert following.give_to_waiter()
    after = [str(folder).replace("attempt-1", "attempt-2") for folder in folders]
    assert [read_stop(folder) for folder in after] == [passed_on, passed_on]
    assert not following_attempt(str(folders[1]), launch, {}, is_preempted=False).give_to_waiter()


def test_only_one_of_several_learners_begins_the_next_attempt(jobs: Jobs) -> None:
    _, folders, documents = two_learners_over(jobs)

    claimed = [
        following_attempt(str(folder), launch, {}, is_preempted=False).is_claimed()
        for folder, launch in zip(folders, documents, strict=True)
    ]

    assert claimed == [True, False]


FAILS = {"exit_code": 3, "signal": None, "stopped": "", "decided": True, "reason": WHY}
SETTLES = {"exit_code": None, "signal": 15, "stopped": "settle", "decided": False, "reason": {"code": ""}}
PREEMPTED = {**SETTLES, "stopped": "preempt", "reason": {"code": "S106"}}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(FAILS, SETTLES, 1, id="one failed, the other was stopped for it"),
        pytest.param(FAILS, {**SETTLES, "phase": "stopping"}, None, id="the other one is not over"),
        pytest.param(
            FAILS, {**SETTLES, "phase": "exited", "complete": None}, 1, id="the other one has exited"
        ),
        pytest.param(FAILS, {**SETTLES, "stopped": "halt"}, None, id="a person stopped the other one"),
        pytest.param({**FAILS, "decided": False}, SETTLES, None, id="nobody has decided"),
        pytest.param(FAILS, PREEMPTED, 2, id="it failed beside one that was preempted"),
        pytest.param({**FAILS, "exit_code": 0, "reason": None}, PREEMPTED, 1, id="it completed before that"),
        pytest.param(
            {**FAILS, "exit_code": 0, "stopped": "max_runtime"},
            PREEMPTED,
            1,
            id="its time was over before that",
        ),
        pytest.param(FAILS, {**SETTLES, "agent_killed": True}, None, id="the other one's agent was killed"),
    ],
)
def test_the_end_of_an_attempt_is_that_of_the_learner_which_decided_it(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], expected: int | None
) -> None:
    launch = LaunchDocument({"attempt_dir": str(tmp_path), "learners": 2})
    for number, found in enumerate((first, second), start=1):
        is_over = {"complete": "phase" not in found, "phase": "stopping", "learner": number}
        (tmp_path / f"learner-{number}").mkdir()
        (tmp_path / f"learner-{number}" / "state.json").write_text(json.dumps({**is_over, **found}))
    decision = {"learner": 1, "failed": first["exit_code"] != 0}
    (tmp_path / "decision.json").write_text(json.dumps(decision))

    assert end_of_attempt(launch).get("learner") == expected


def network_of(request: LaunchRequest, names: list[str]) -> dict[str, Any] | None:
    """Return the network of an attempt as its last learner's agent sees to it; None for one learner."""
    if not (name := network_name(request.attempt)):
        return None
    marks = labels(request.attempt, 0, request.owner)
    return {"name": name, "labels": marks, "make": False, "peers": names[:-1]}


PING = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK"
ATTACHED = (
    b"HTTP/1.0 403 Forbidden\r\nContent-Type: application/json\r\n\r\n"
    b'{"message": "network learner-x-a1 has active endpoints"}'
)
REMOVED = b"HTTP/1.0 204 No Content\r\n\r\n"
NO_SUCH = b'HTTP/1.0 404 Not Found\r\nContent-Type: application/json\r\n\r\n{"message": "no such network"}'


@pytest.mark.parametrize("last", [REMOVED, NO_SUCH], ids=["removed", "was gone"])
def test_the_network_of_an_attempt_is_removed_once_the_engine_knows_that_its_containers_have_ended(
    last: bytes,
) -> None:
    answers = [ATTACHED, ATTACHED, last]
    with engine_that_answers(
        NO_SUCH, {b"/_ping": PING, b"DELETE /v1.40/networks/learner-x-a1": answers}
    ) as path:
        await_network_removal({"engine": path, "create": {"network": {"name": "learner-x-a1"}}})

    assert answers == [last]


def test_an_engine_that_keeps_a_network_holds_up_the_end_of_its_attempt_for_a_time_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workbench.learner.guard.next_attempt._ENGINE_SECONDS", 0.3)
    answers = [ATTACHED] * 50
    with engine_that_answers(NO_SUCH, {b"/_ping": PING, b"DELETE": answers}) as path:
        await_network_removal({"engine": path, "create": {"network": {"name": "learner-x-a1"}}})

    assert 1 < len(answers) < 50, "it was asked, and given up while the engine would keep it for longer"


def container_acts(options: dict[str, Any]) -> list[str]:
    return ["setup", "command"] if "setup" in options else ["command"]


@pytest.mark.parametrize(
    ("number", "options"),
    [
        pytest.param(1, {}, id="plain"),
        pytest.param(9, {"env": {"MINE": "learner-a9", "MASTER_ADDR": "x"}}, id="from attempt 9 to 10"),
        pytest.param(1, {"gpus": 2, "cpus": 1.0, "memory_bytes": 1 << 30, "ports": (8080,)}, id="limits"),
        pytest.param(
            1, {"setup": "pip list", "secrets": {"TOKEN": "t"}, "python": "requirements"}, id="setup"
        ),
        pytest.param(1, {"data_stores": (S3,)}, id="a store"),
        pytest.param(1, TRIAL, id="a trial"),
        pytest.param(1, {"checkpoints": Checkpoints(keep_last=2)}, id="retention"),
        pytest.param(1, {"bind_mounts": (BindMount("/tmp", "in"),)}, id="bind mounts"),
        pytest.param(1, {"evaluation_metrics": EvaluationMetrics(type="auto")}, id="metrics"),
        pytest.param(9, {"learners": 2}, id="two learners"),
    ],
)
@pytest.mark.parametrize("guarded", [False, True], ids=["mounts", "with SELinux"])
def test_the_next_container_is_the_planned_one(
    jobs: Jobs, tmp_path: Path, number: int, options: dict[str, Any], guarded: bool
) -> None:
    runner = ContainerRunner(LocalHost(Home(tmp_path / "o'b" / "my fabric")), home_uuid=jobs.home)
    request = jobs.plan("python train.py --out $PWD", image="an-image", **options).request
    at = [replace(request, attempt=replace(request.attempt, attempt=one)) for one in (number, number + 1)]
    plans = [runner.plan(one).learners for one in at]
    first, second = (json.loads(json.dumps(plan[-1].native)) for plan in plans)
    names = [plan[-1].name for plan in plans]
    networks = [
        network_of(one, [learner.name for learner in plan]) for one, plan in zip(at, plans, strict=True)
    ]
    if guarded:
        for one in (first, second):
            host = one["container"]["HostConfig"]
            host["Binds"] = relabelled(host.pop("Mounts"))
    folder, after = str(first["launch"]["cwd"]), str(second["launch"]["cwd"])
    acts = container_acts(options)
    for one, learner in ((first["launch"], folder), (second["launch"], after)):
        guard = one["guard"] = ["python3", "an agent", "guard", learner]
        one.update({act: command_of(guard, learner, act) for act in acts})
    container = {
        "config": {
            "name": names[0],
            "engine": "/run/docker.sock",
            "acts": acts,
            "create": {"document": first["container"], "is_after": True, "network": networks[0]},
        },
        "folders": [f"{folder}/inside"],
        "pipes": [f"{folder}/inside/exit.command"],
        "files": {f"{folder}/inside/command.sh": f"echo {folder}\n"},
        "stores": {"/store/.": ["results"]},
        "open": [f"{folder}/inside"],
    }
    restarts = {"done": 0, "allowed": 2, "delay_seconds": 40.0, "container": container}

    made = FollowingAttempt(folder, LaunchDocument({**first["launch"], "restarts": restarts}), {}).document()

    found = made.pop("restarts")["container"]
    first_network, second_network = networks
    if first_network and second_network:
        second_network["earlier"] = first_network["name"]
    chosen: dict[str, Any] = {"slots": [], "secrets_file": None}
    assert made == {**second["launch"], **chosen}
    assert found == {
        "config": {
            "name": names[1],
            "engine": "/run/docker.sock",
            "acts": acts,
            "create": {"document": second["container"], "is_after": False, "network": second_network},
        },
        "folders": [f"{after}/inside"],
        "pipes": [f"{after}/inside/exit.command"],
        "files": {f"{after}/inside/command.sh": f"echo {folder}\n"},
        "stores": {"/store/.": ["results"]},
        "open": [f"{after}/inside"],
    }


def test_what_is_launched_says_how_its_host_begins_the_next_attempt(jobs: Jobs) -> None:
    options: dict[str, Any] = {"priority": 70, "cpus": 1.0, "weight": 2.0, "labels": {"sweep": "s"}}
    job = jobs.plan("true", **options)
    job = LaunchedAttempt.planned(jobs.runner(), replace(job.request, restarts=RESTARTS, seq=5)).launch()
    attempt = job.request.attempt
    sent = json.loads((Path(job.plan.learners[0].native["folder"]) / "launch.json").read_text())

    restarts = sent["restarts"]
    assert (restarts["done"], restarts["allowed"], restarts["delay_seconds"]) == (0, 2, 1.0)
    assert restarts["platform"] == {"done": 1, "allowed": 3, "delay_seconds": 2.0}
    ticket = restarts["ticket"]
    assert (ticket["job"], ticket["attempt"], ticket["priority"]) == (attempt.job_id, 1, 70)
    assert (ticket["position"], ticket["cpus"], ticket["each"], ticket["weight"]) == (5.0, 1.0, 0, 2.0)
    assert ticket["lease"]["group"] == group_mark("s")


def test_a_job_that_its_host_does_not_restart_says_nothing_of_it(jobs: Jobs) -> None:
    job = jobs.run("true")
    sent = json.loads((Path(job.plan.learners[0].native["folder"]) / "launch.json").read_text())

    assert "restarts" not in sent


@pytest.mark.parametrize(
    ("found", "why", "expected"),
    [
        pytest.param(FAILED, WHY, True, id="its command failed"),
        pytest.param({**FAILED, "exit_code": None, "signal": 9}, WHY, True, id="by a signal"),
        pytest.param({**FAILED, "stopped": "memory"}, {**WHY, "code": "C203"}, True, id="over its memory"),
        pytest.param({**FAILED, "exit_code": 0}, None, False, id="it succeeded"),
        pytest.param({**FAILED, "exit_code": 0}, {**WHY, "code": "S303"}, False, id="results not stored"),
        pytest.param(
            {**FAILED, "stopped": "max_runtime"}, {**WHY, "code": "C204"}, False, id="over its time"
        ),
        pytest.param({**FAILED, "stopped": "halt"}, {"text": "halted"}, False, id="halted"),
        pytest.param(
            {**FAILED, "exit_code": 143}, {**WHY, "code": "S202"}, False, id="the machine shuts down"
        ),
        pytest.param(FAILED, {**WHY, "code": "S105"}, False, id="its GPUs were lost"),
        pytest.param({**FAILED, "exit_code": None}, {**WHY, "code": "S101"}, False, id="it never started"),
    ],
)
def test_a_command_that_failed_by_itself_is_followed_at_its_host(
    found: dict[str, Any], why: dict[str, Any] | None, expected: bool
) -> None:
    launch = LaunchDocument({"restarts": {"done": 1, "allowed": 2}})

    assert launch.is_followed(found, why) is expected
    assert not LaunchDocument({"restarts": {"done": 2, "allowed": 2}}).is_followed(found, why)
    assert not LaunchDocument({}).is_followed(found, why)


@pytest.mark.parametrize(
    ("found", "code", "is_agent_killed", "expected"),
    [
        pytest.param({**FAILED, "exit_code": None}, "S202", True, True, id="its agent was killed"),
        pytest.param({**FAILED, "exit_code": 143}, "S202", False, False, id="the machine shuts down"),
        pytest.param(
            {**FAILED, "exit_code": None, "stopped": "kill"}, "", True, False, id="somebody killed it"
        ),
        pytest.param(FAILED, "S105", False, True, id="its GPUs were lost"),
        pytest.param(
            {**FAILED, "exit_code": 137, "stopped": "memory"}, "S100", False, True, id="the machine's memory"
        ),
        pytest.param(
            {**FAILED, "exit_code": 137, "stopped": "memory"}, "C206", False, False, id="its own limit"
        ),
        pytest.param({**FAILED, "exit_code": 137}, "S104", False, True, id="a container was removed"),
        pytest.param({**FAILED, "exit_code": 125}, "S101", False, False, id="it never started"),
        pytest.param({**FAILED, "exit_code": 0}, "S303", False, False, id="results not stored"),
        pytest.param(FAILED, "S204", False, False, id="a full disk"),
    ],
)
def test_a_fault_of_the_platform_that_leaves_the_host_as_it_was_is_followed_there(
    found: dict[str, Any], code: str, is_agent_killed: bool, expected: bool
) -> None:
    why = {"text": "it has ended", "code": code}

    def is_followed(done: int) -> bool:
        platform = {"done": done, "allowed": 1}
        launch = LaunchDocument({"restarts": {"done": 2, "allowed": 2, "platform": platform}})
        return launch.is_followed(found, why, is_agent_killed=is_agent_killed)

    assert is_followed(done=0) is expected
    assert not is_followed(done=1)


def test_the_attempt_after_a_fault_of_the_platform_is_counted_apart(jobs: Jobs) -> None:
    folder, first, _ = documents(jobs, 1)
    platform = {"done": 1, "allowed": 3, "delay_seconds": 8.0}
    restarts: dict[str, Any] = {"done": 0, "allowed": 2, "delay_seconds": 1.0, "platform": platform}
    launch = LaunchDocument({**first, "restarts": restarts})

    following = FollowingAttempt(str(folder), launch, {}, is_of_platform=True)

    assert following.followed_by["delay_seconds"] == 8.0
    after = {"done": 2, "allowed": 3, "delay_seconds": 16.0}
    assert following.document()["restarts"] == {**restarts, "platform": after}
    assert platform["done"] == 1


def test_a_home_that_was_moved_meanwhile_begins_nothing(
    jobs: Jobs, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, first, _ = documents(jobs, 1)
    moved = Path(str(folder).replace(str(folder.parents[3]), str(tmp_path / "moved")))
    moved.mkdir(parents=True)
    ticket = {"leases_folder": os.environ["FABRIC_LEASES"], "lease": {}}
    restarts = {"done": 0, "allowed": 2, "delay_seconds": 0.0, "ticket": ticket}
    following = FollowingAttempt(str(moved), LaunchDocument({**first, "restarts": restarts}), {})
    monkeypatch.setattr("workbench.learner.queue.home_waiter.HomeWaiter.reach", lambda _: None)

    assert not following.give_to_waiter()
    assert "the home is somewhere else now" in capfd.readouterr().err
    assert not (moved.parents[1] / "attempt-2").exists()


def test_folders_in_a_mounted_store_that_the_command_removed_are_made_again_and_opened(
    tmp_path: Path,
) -> None:
    (tmp_path / "bucket" / "kept").mkdir(parents=True, mode=0o700)
    (tmp_path / "learner-1").mkdir()
    host: dict[str, Any] = {"Mounts": [{"Type": "volume", "Source": "a-volume"}]}
    container = {
        "config": {"create": {"document": {"HostConfig": host}}},
        "folders": [],
        "stores": {f"{tmp_path}/bucket/.": ["kept", "job/results"]},
        "pipes": [],
        "files": {},
        "open": [f"{tmp_path}/learner-1"],
    }

    prepare_container(container, f"{tmp_path}/learner-1")

    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "bucket").rglob("*")]
    assert sorted(modes) == [0o700, 0o700, 0o777]
    assert (tmp_path / "bucket" / "job" / "results").stat().st_mode & 0o777 == 0o777
    host["Binds"] = [f"{tmp_path}/gone:/in:ro,z"]
    with pytest.raises(Failure, match="gone is not there any more"):
        prepare_container(container, f"{tmp_path}/learner-1")
