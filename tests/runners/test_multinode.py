"""Jobs whose learners are at several hosts: all start or none, they meet, and end together; hosts are pipes here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.contract.host import Host, HostGroup
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.interface import AttemptRef, LaunchRequest, LearnerRef
from runners.multinode.runner import MultiNodeProcessRunner
from runners.process import launch as process_launch
from runners.process.launch import ProcessLaunch
from runners.process.runner import ProcessRunner
from runners.shared.staged_launch import Rendezvous
from tests.stubs import Gpus
from tests.support.group_jobs import MEET, NAMES, GroupJobs, group_jobs, pipe_hosts
from tests.support.waiting import until
from workbench.errors import BackendUnreachable, LaunchRefused, RunnerError, SlotsBusy
from workbench.job import LearnerPhase, Reason
from workbench.paths import Home
from workbench.spec import DataStore

S3 = DataStore(
    "s", "s3_datastore", training_data="d", training_results="r", connection={"auth_url": "http://x"}
)
FOREVER = "echo ready; while :; do sleep 0.2; done"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[dict[str, Host]]:
    with pipe_hosts(tmp_path) as made:
        yield made


@pytest.fixture
def jobs(pair: dict[str, Host]) -> Iterator[GroupJobs]:
    with group_jobs(pair) as made:
        yield made


def test_all_learners_start_and_meet_at_an_address_of_the_first_host(jobs: GroupJobs, tmp_path: Path) -> None:
    program = tmp_path / "meet.py"
    program.write_text(MEET)
    job = jobs.plan(f"{sys.executable} {program}", learners=3, gpus=0).launch()

    ends = job.until_over()

    assert [ends[number].exit_code for number in (1, 2, 3)] == [0, 0, 0]
    assert job.output(1) == b"['1', '2']\n"
    first, second = (jobs.folder(name, job) for name in NAMES)
    assert sorted(path.name for path in first.glob("attempt-1/learner-*")) == ["learner-1", "learner-2"]
    assert sorted(path.name for path in second.glob("attempt-1/learner-*")) == ["learner-3"]
    variables = [jobs.launched(job, "box1", 1)["env"], jobs.launched(job, "box2", 3)["env"]]
    assert variables[0]["MASTER_ADDR"] == variables[1]["MASTER_ADDR"]
    assert (variables[1]["RANK"], variables[1]["NUM_LEARNERS"]) == ("2", "3")


def test_each_host_says_that_it_has_a_part_only(jobs: GroupJobs) -> None:
    job = jobs.plan("true", learners=3).launch()

    for name, part in (("box1", [1, 2]), ("box2", [3])):
        folder = jobs.folder(name, job)
        submitted = json.loads((folder / "submitted.json").read_text())
        assert (submitted["runner"], submitted["hosts"]) == (
            "multinode-process",
            {"names": ["box1", "box2"], "part": part},
        )
    job.until_over()


def test_a_host_whose_gpus_are_busy_keeps_those_of_the_others_free(jobs: GroupJobs) -> None:
    holder = ProcessRunner(jobs.hosts["box2"], home_uuid=jobs.home)
    other = LaunchedAttempt.planned(holder, request_of(FOREVER, home=jobs.home, gpus=1)).launch()
    job = jobs.plan(FOREVER, gpus=1)

    with pytest.raises(SlotsBusy, match=r"^box2: waits for 1 of 1 GPU: GPU 0 is held by"):
        job.launch()

    assert job.observe(0.0).seen == ()
    at_first = ProcessRunner(jobs.hosts["box1"], home_uuid=jobs.home)
    beside = LaunchedAttempt.planned(at_first, request_of("true", home=jobs.home, gpus=1)).launch()
    beside.until_over()
    other.stop().until_over()
    until(lambda: started(job), despite=(SlotsBusy,))
    job.until_running()
    for runner, one in ((holder, other), (at_first, beside)):
        runner.remove(one.request.attempt)
        runner.close()


def test_a_job_does_not_wait_for_one_host_where_another_could_never_run_it(
    jobs: GroupJobs, tmp_path: Path
) -> None:
    Gpus(tmp_path / "box1" / "gpus").add("GPU-1").add("GPU-3")
    holder = ProcessRunner(jobs.hosts["box1"], home_uuid=jobs.home)
    other = LaunchedAttempt.planned(holder, request_of(FOREVER, home=jobs.home, gpus=1)).launch()

    with pytest.raises(LaunchRefused, match=r"^box2: The job asks for 2 GPUs .* has 1 GPU\."):
        jobs.plan(FOREVER, gpus=1, learners=4).launch()

    other.stop().until_over()
    holder.remove(other.request.attempt)
    holder.close()


def started(job: LaunchedAttempt) -> bool:
    """Launch a job; an agent before it lets go of its GPU a moment after the end."""
    job.launch()
    return True


OTHER = pytest.mark.soak("the gate has it at the other host, and in the other stage")


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("box1", "starting"),
        ("box2", "preparing"),
        pytest.param("box1", "preparing", marks=OTHER),
        pytest.param("box2", "starting", marks=OTHER),
    ],
)
def test_a_launch_that_is_cut_off_at_one_host_is_made_good_by_the_next(
    jobs: GroupJobs, name: str, stage: str
) -> None:
    job = jobs.plan("echo s >> $JOB_STATE_DIR/starts; " + FOREVER)

    def cut(text: str, *, stage: str, at: str = stage) -> None:
        if stage == at and text.startswith(name):
            raise InterruptedError(text)

    with pytest.raises(InterruptedError):
        job.runner.launch(job.plan, cut)
    with held_by_the_first(jobs, job):
        job.launch().until_running()
    job.launch()

    for host, number in (("box1", 1), ("box2", 2)):
        job.until_printed(b"ready", number)
        starts = jobs.folder(host, job) / "attempt-1/job/starts"
        assert starts.read_text() == "s\n"
    first, second = (
        jobs.launched(job, host, number)["env"]["MASTER_PORT"] for host, number in (("box1", 1), ("box2", 2))
    )
    assert first == second


@contextmanager
def held_by_the_first(jobs: GroupJobs, job: LaunchedAttempt) -> Iterator[None]:
    """Have the first learner listen where all are to meet, if it has begun: no other port may be chosen then."""
    with ExitStack() as held:
        if (jobs.folder("box1", job) / "attempt-1/learner-1/state.json").exists():
            port = int(jobs.launched(job, "box1", 1)["env"]["MASTER_PORT"])
            held.enter_context(socket.create_server(("", port)))
        yield


def test_learners_that_wait_at_a_port_that_others_took_meanwhile_are_ended(
    jobs: GroupJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.plan(FOREVER)
    start = ProcessLaunch.start

    def cut(launch: ProcessLaunch, waiting: Sequence[int], rendezvous: Rendezvous | None) -> None:
        if 1 in waiting:
            until(lambda: (jobs.folder("box2", job) / "attempt-1/learner-2/state.json").exists())
            raise InterruptedError
        start(launch, waiting, rendezvous)

    with monkeypatch.context() as broken, pytest.raises(InterruptedError):
        broken.setattr(ProcessLaunch, "start", cut)
        job.launch()
    port = int(jobs.launched(job, "box2", 2)["env"]["MASTER_PORT"])

    with (
        socket.create_server(("", port)),
        pytest.raises(RunnerError, match=rf"^The launch was interrupted, .*: box1: The port {port}"),
    ):
        job.launch()

    ended = job.until(lambda found: 2 in found and found[2].phase is LearnerPhase.EXITED, "it was ended")
    assert ended[2].stopped == "kill"


def test_agents_are_brought_to_all_hosts_before_any_gpu_is_held(
    jobs: GroupJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def noted(name: str) -> None:
        call = getattr(process_launch, name)

        def note(*given: Any) -> Any:
            order.append(name)
            return call(*given)

        monkeypatch.setattr(process_launch, name, note)

    noted("upload_agent")
    noted("lease")
    jobs.plan("true", gpus=1).launch().until_over()

    assert order == ["upload_agent", "upload_agent", "lease", "lease"]


def asked_of(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the operations that a host is asked for from now on."""
    names: list[str] = []
    call = host.call

    def noted(operation: str, **given: Any) -> Any:
        names.append(operation)
        return call(operation, **given)

    monkeypatch.setattr(host, "call", noted)
    return names


def test_a_job_stays_in_the_queue_of_each_host_until_all_have_leased(
    jobs: GroupJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = ProcessRunner(jobs.hosts["box2"], home_uuid=jobs.home)
    other = LaunchedAttempt.planned(holder, request_of(FOREVER, home=jobs.home, gpus=1)).launch()
    asked = {name: asked_of(jobs.hosts[name], monkeypatch) for name in NAMES}
    job = jobs.plan(FOREVER, gpus=1)

    with pytest.raises(SlotsBusy):
        job.launch()
    assert "leave_line" not in asked["box1"]

    other.stop().until_over()
    until(lambda: started(job), despite=(SlotsBusy,))
    assert [asked[name].count("leave_line") for name in NAMES] == [1, 1]
    holder.remove(other.request.attempt)
    holder.close()


def test_a_meeting_that_fails_for_a_moment_is_tried_again_and_only_at_first_final(
    jobs: GroupJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.multinode.launch._PAUSE_SECONDS", 0.0)
    call, failing = jobs.hosts["box2"].call, [2]

    def fail(operation: str, **given: Any) -> Any:
        if operation == "join_meeting" and failing[0] > 0:
            failing[0] -= 1
            return []
        return call(operation, **given)

    monkeypatch.setattr(jobs.hosts["box2"], "call", fail)
    job = jobs.plan("true").launch()
    job.until_over()

    failing[0] = 100
    again = replace(job.request, attempt=replace(job.request.attempt, attempt=2))
    with pytest.raises(RunnerError, match=r"box2 cannot reach box1") as passing:
        jobs.plan_request(again).launch()
    assert not isinstance(passing.value, LaunchRefused)
    with pytest.raises(LaunchRefused, match=r"box2 cannot reach box1") as final:
        jobs.plan("true").launch()
    assert "NCCL_SOCKET_IFNAME" in final.value.hint


def test_a_port_that_one_listens_on_by_ipv6_alone_is_not_chosen_and_does_not_keep_hosts_from_meeting(
    pair: dict[str, Host],
) -> None:
    try:
        listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("there is no IPv6 here")
    with listening:
        port = listening.getsockname()[1]

        assert pair["box1"].call("bindable", ports=[port]) == []
        meeting = pair["box1"].call("begin_meeting", port=port, seconds=60.0)
        asked = {"addresses": ["127.0.0.1"], "port": port, "token": meeting["token"]}
        assert pair["box2"].call("join_meeting", seconds=60.0, **asked) == ["127.0.0.1"]
        pair["box1"].call("end_meeting", token=meeting["token"])


def test_a_stop_ends_the_learners_of_all_hosts(jobs: GroupJobs) -> None:
    job = jobs.plan("trap 'echo saved; exit 0' TERM; " + FOREVER).launch()
    for number in (1, 2):
        job.until_printed(b"ready", number)

    ends = job.stop("halt", 20.0).until_over()

    assert [ends[number].stopped for number in (1, 2)] == ["halt", "halt"]
    assert [job.output(number).endswith(b"saved\n") for number in (1, 2)] == [True, True]


def test_a_learner_that_fails_ends_those_at_the_other_host(jobs: GroupJobs) -> None:
    job = jobs.plan("[ $LEARNER_ID = 2 ] && exit 3; " + FOREVER).launch()

    ends = job.until_over()

    assert (ends[2].exit_code, ends[2].decided) == (3, True)
    assert ends[1].stopped == "settle"
    assert ends[1].reason is not None
    assert ends[1].reason.text == "stopped, since learner 2 has failed"


def test_a_stop_that_one_host_has_ordered_by_itself_reaches_the_others(jobs: GroupJobs) -> None:
    job = jobs.plan("trap 'exit 0' TERM; " + FOREVER).launch()
    for number in (1, 2):
        job.until_printed(b"ready", number)
    folder = jobs.folder("box2", job) / "attempt-1" / "learner-2"
    jobs.hosts["box2"].call("ask_to_stop", folder=str(folder), request={"kind": "halt", "by": "an operator"})

    ends = job.until_over()

    assert [ends[number].stopped for number in (1, 2)] == ["halt", "halt"]
    assert [str(ends[number].reason) for number in (1, 2)] == [str(Reason("halted by an operator"))] * 2


def test_observe_returns_what_changes_at_any_host_and_can_be_interrupted(jobs: GroupJobs) -> None:
    job = jobs.plan("trap 'exit 4' TERM; " + FOREVER).launch()
    attempt = job.request.attempt
    for number in (1, 2):
        job.until_printed(b"ready", number)
    whole = jobs.runner()
    first = whole.observe([attempt], timeout_seconds=0.0)
    assert first.whole
    assert sorted((one.ref.learner, one.node) for one in first.seen) == [(1, "box1"), (2, "box2")]
    while whole.observe([attempt], timeout_seconds=0.2).seen:
        pass
    waker = threading.Timer(0.2, whole.interrupt)
    waker.start()
    assert whole.observe([attempt], timeout_seconds=600.0).seen == ()
    waker.join()

    job.stop("halt", 20.0)
    seen: dict[int, LearnerPhase] = {}
    while list(seen.values()).count(LearnerPhase.EXITED) < 2:
        observation = whole.observe([attempt], timeout_seconds=600.0)
        assert not observation.whole
        seen |= {one.ref.learner: one.phase for one in observation.seen}
    whole.close()


def test_journals_of_all_hosts_come_by_one_follow(jobs: GroupJobs) -> None:
    job = jobs.plan("echo from $LEARNER_ID").launch()
    job.until_over()
    known: dict[LearnerRef, dict[str, int]] = {job.ref(1): {}, job.ref(2): {}}

    news = job.runner.follow(known, timeout_seconds=0.0)

    assert {ref.learner: bytes(parts["output"].data) for ref, parts in news.items()} == {
        1: b"from 1\n",
        2: b"from 2\n",
    }
    found: set[int] = set()
    while len(found) < 2:
        found |= {ref.learner for ref in job.runner.follow(known, timeout_seconds=60.0)}


def test_the_next_attempt_finds_what_all_hosts_have_made_and_the_newest_of_one_name(
    jobs: GroupJobs, home: Home
) -> None:
    write = (
        "ls $CHECKPOINT_DIR | tr '\\n' ' '; cat $RESULT_DIR/last 2>/dev/null; mkdir -p $CHECKPOINT_DIR/$LEARNER_ID;"
        " echo $LEARNER_ID >$CHECKPOINT_DIR/$LEARNER_ID/weights; echo $LEARNER_ID >$RESULT_DIR/last;"
        " [ $LEARNER_ID = 2 ] || touch -d 2001-01-01 $RESULT_DIR/last"
    )
    first = jobs.plan(write).launch()
    first.until_over()
    attempt = first.request.attempt
    home.job(attempt.job_id).path.mkdir(parents=True)

    again = replace(first.request, attempt=replace(attempt, attempt=2))
    second = jobs.plan_request(again).launch()
    second.until_over()

    assert [second.output(number) for number in (1, 2)] == [b"1 2 2\n", b"1 2 2\n"]
    assert (home.job(attempt.job_id).checkpoints / "1" / "weights").read_text() == "1\n"


def test_what_the_job_deletes_at_one_host_comes_back_to_none_and_stays_at_home(
    jobs: GroupJobs, home: Home
) -> None:
    listing = "cd $CHECKPOINT_DIR; ls | tr '\\n' ' '; "
    first = jobs.plan(
        listing + "[ $LEARNER_ID = 2 ] || for n in 1 2 3; do mkdir $n; echo $n >$n/weights; done"
    )
    attempt = first.request.attempt
    here = home.job(attempt.job_id)
    here.path.mkdir(parents=True)

    def run(number: int, command: str) -> list[bytes]:
        framework = replace(first.request.spec.framework, command=listing + command)
        spec = replace(first.request.spec, framework=framework)
        request = replace(first.request, spec=spec, attempt=replace(attempt, attempt=number))
        job = jobs.plan_request(request).launch()
        job.until_over()
        return [job.output(learner) for learner in (1, 2)]

    first.launch().until_over()
    # The other host has changed one of those that go: it stays.
    assert run(2, "[ $LEARNER_ID = 1 ] && rm -r 1 2 || echo new >2/weights") == [b"1 2 3 "] * 2
    assert run(3, "true") == [b"2 3 "] * 2
    assert (here.checkpoints / "1" / "weights").read_text() == "1\n"
    assert (here.checkpoints / "2" / "weights").read_text() == "new\n"
    # What it makes again is no longer deleted, though it is as old as before.
    assert (
        run(4, "[ $LEARNER_ID = 2 ] || { mkdir 1; echo 1 >1/weights; touch -d 2001-01-01 1/weights; }")
        == [b"2 3 "] * 2
    )
    assert run(5, "true")[0] == b"1 2 3 "


def test_hosts_with_one_home_send_what_earlier_attempts_made_to_folders_of_their_own(
    jobs: GroupJobs, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = jobs.plan("echo made >$CHECKPOINT_DIR/of-$LEARNER_ID").launch()
    first.until_over()
    home.job(first.request.attempt.job_id).path.mkdir(parents=True)
    sent: set[str] = set()

    def noting(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(operation: str, **arguments: Any) -> Any:
            if operation == "merge_sent":
                sent.add(Path(arguments["sent"]).name)
            return call(operation, **arguments)

        return noted

    for host in jobs.hosts.values():
        monkeypatch.setattr(host, "call", noting(host.call))

    again = replace(first.request, attempt=replace(first.request.attempt, attempt=2))
    jobs.plan_request(again).launch().until_over()

    assert sent == {"earlier-1", "earlier-2"}


def test_what_agents_cannot_know_of_other_hosts_is_left_to_the_controller_and_the_result_store(
    jobs: GroupJobs,
) -> None:
    rules = ({"metric": "loss", "is": "nan", "then": "halt"},)
    launches = [
        one.native["launch"]
        for one in jobs.plan("true", learners=3, stop_when=rules, data_stores=(S3,)).plan.learners
    ]

    assert [launch.get("stop_when") for launch in launches] == [None, None, None]
    assert [launch["stores"]["restores"] for launch in launches] == [True, True, True]
    # The first learner of each host stores and reads what lies in that host's folder for logs.
    assert [launch["log_dir_shared"] for launch in launches] == [True, True, False]


def test_fewer_learners_than_hosts_are_refused(jobs: GroupJobs) -> None:
    with pytest.raises(LaunchRefused, match="1 learner, and it is to run on 2 hosts") as refused:
        jobs.plan("true", learners=1)
    assert "--set learners=2" in refused.value.hint


def test_a_host_without_python_is_refused(jobs: GroupJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRIC_AGENT", "sh")

    with pytest.raises(LaunchRefused, match=r"box1 has no Python 3.8 or newer") as refused:
        jobs.plan("true")
    assert refused.value.hint == "Install python3 on box1."


def test_a_plan_says_once_what_all_hosts_say_and_names_the_host_of_what_one_says(
    jobs: GroupJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = ProcessRunner.plan

    def one_more(runner: ProcessRunner, request: LaunchRequest) -> Any:
        plan = plans(runner, request)
        return replace(plan, notes=(*plan.notes, "is old")) if 2 in request.attempt.part else plan

    monkeypatch.setattr(ProcessRunner, "plan", one_more)
    plan = jobs.plan("true", shm_size_bytes=1 << 20).plan

    assert plan.notes[0] == "shm_size: is ignored: a process uses the machine's own /dev/shm"
    assert [note for note in plan.notes if "is old" in note or "box1" in note] == ["box2: is old"]


def test_a_host_that_does_not_answer_is_named_and_the_others_are_stopped(
    jobs: GroupJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.plan(FOREVER).launch()
    job.until_running()
    with monkeypatch.context() as broken:
        broken.setattr(jobs.hosts["box2"], "call", unreachable)

        with pytest.raises(BackendUnreachable, match=r"^box2: the line is cut"):
            job.stop()

        part = replace(job.request.attempt, part=(1,))
        at_first = ProcessRunner(jobs.hosts["box1"], home_uuid=jobs.home)
        found = at_first.observe([part], timeout_seconds=0.0).seen
        while found[0].phase is not LearnerPhase.EXITED:
            found = at_first.observe([part], timeout_seconds=10.0).seen or found
        at_first.close()
        assert found[0].stopped == "kill"
        # What changed at the others is seen first, that host's learners being as they were; and then what is wrong.
        job.runner.close()
        jobs.made[0].runner = job.runner = jobs.runner()
        seen = job.observe(10.0)
        assert seen.whole
        assert [one.phase for one in seen.seen] == [LearnerPhase.EXITED, LearnerPhase.RUNNING]
        for runner in (job.runner, jobs.runner()):
            with pytest.raises(BackendUnreachable, match=r"^box2: the line is cut"):
                runner.observe([job.request.attempt], timeout_seconds=10.0)
    job.stop()
    assert job.until_over()[2].stopped == "kill"


def test_a_host_that_does_not_answer_keeps_nothing_from_the_others(
    jobs: GroupJobs, monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    job = jobs.plan("touch $RESULT_DIR/of-$LEARNER_ID; " + FOREVER).launch()
    job.until_printed(b"ready", 1)
    attempt, away = job.request.attempt, jobs.hosts["box2"]
    call = away.call

    def half(operation: str, **given: Any) -> Any:
        return unreachable() if operation == "markers" else call(operation, **given)

    with monkeypatch.context() as broken:
        broken.setattr(away, "call", half)
        broken.setattr(away, "follow", unreachable)
        runner = jobs.runner()
        both: dict[LearnerRef, dict[str, int]] = {job.ref(1): {}, job.ref(2): {}}
        for timeout_seconds in (0.0, 600.0):
            news = runner.follow(both, timeout_seconds=timeout_seconds)
            assert bytes(news[job.ref(1)]["output"].data) == b"ready\n"
        broken.setattr("runners.multinode.calls.OTHERS_SECONDS", 0.0)
        for timeout_seconds in (0.0, 600.0):
            with pytest.raises(BackendUnreachable, match=r"^box2: the line is cut"):
                runner.follow({job.ref(2): {}}, timeout_seconds=timeout_seconds)

        found: list[LearnerRef] = []
        with pytest.raises(BackendUnreachable, match=r"^box2: the line is cut"):
            for ref in reversed_hosts(jobs).leftovers():
                found.append(ref)  # noqa: PERF402 - what came before the error counts
        assert job.ref(1) in found
        runner.close()

    download = ProcessRunner.download

    def download_some(runner: ProcessRunner, part: AttemptRef, *given: Any, **named: Any) -> None:
        if 2 in part.part:
            unreachable()
        download(runner, part, *given, **named)

    with monkeypatch.context() as broken:
        broken.setattr(ProcessRunner, "download", download_some)
        home.job(attempt.job_id).path.mkdir(parents=True)
        with pytest.raises(BackendUnreachable, match=r"^box2: the line is cut"):
            job.runner.download(attempt, home.job(attempt.job_id))
    assert (home.job(attempt.job_id).results / "of-1").exists()


def reversed_hosts(jobs: GroupJobs) -> MultiNodeProcessRunner:
    """Return a runner of the same hosts, the second one first."""
    return MultiNodeProcessRunner(HostGroup(dict(reversed([*jobs.hosts.items()]))), home_uuid=jobs.home)


def test_hosts_learn_of_each_other_while_one_does_not_answer(
    jobs: GroupJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.plan("[ $LEARNER_ID = 1 ] && exit 3; " + FOREVER).launch()
    decision = jobs.folder("box2", job) / "attempt-1/decision.json"
    call = jobs.hosts["box2"].call

    def blind(operation: str, **given: Any) -> Any:
        return unreachable() if operation == "observe" else call(operation, **given)

    def knows() -> bool:
        with pytest.raises(BackendUnreachable, match=r"^box2: the line is cut"):
            job.observe(0.0)
        return decision.exists()

    with monkeypatch.context() as broken:
        broken.setattr(jobs.hosts["box2"], "call", blind)
        until(knows)
    assert job.until_over()[2].stopped == "settle"


def test_times_of_learners_are_by_our_clock(jobs: GroupJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    day_us = 86_400 * 10**6
    monkeypatch.setattr(jobs.hosts["box2"], "clock_ahead_us", lambda: -day_us)
    ends = jobs.plan("true").launch().until_over()

    first, second = (ends[number].ended_us or 0 for number in (1, 2))
    assert day_us // 2 < second - first < day_us * 2


def unreachable(*_: object, **__: object) -> None:
    """Answer as a host that cannot be reached."""
    raise BackendUnreachable("the line is cut")


@contextmanager
def apart() -> Iterator[dict[str, str]]:
    """Make two networks that have nothing to do with each other; give their names by host."""
    names = {name: f"fabric-{name}-{os.getpid()}" for name in NAMES}
    for network in names.values():
        subprocess.run(["ip", "netns", "add", network], check=True)
        subprocess.run(["ip", "-n", network, "link", "set", "lo", "up"], check=True)
    try:
        yield names
    finally:
        for network in names.values():
            subprocess.run(["ip", "netns", "del", network], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's")
def test_hosts_that_do_not_reach_each_other_are_refused_with_what_was_tried(tmp_path: Path) -> None:
    with (
        apart() as networks,
        pipe_hosts(tmp_path, within=lambda name: ["ip", "netns", "exec", networks[name]]) as pair,
        group_jobs(pair) as jobs,
    ):
        job = jobs.plan("true")

        with pytest.raises(
            LaunchRefused, match=r"box2 cannot reach box1 at any of its addresses \(.*on port"
        ) as error:
            job.launch()

        assert "the setting internal_address of box1" in error.value.hint
        assert job.observe(0.0).seen == ()


def test_a_runner_of_several_hosts_takes_no_single_one(jobs: GroupJobs) -> None:
    with pytest.raises(RunnerError, match="needs several hosts"):
        MultiNodeProcessRunner(jobs.hosts["box1"], home_uuid=jobs.home)
