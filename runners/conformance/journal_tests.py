"""Tests of journals, removal, several learners, observing, and what a runner's capabilities claim."""

from __future__ import annotations

import io
import json
import tarfile
import threading
import uuid
from collections.abc import Callable
from typing import BinaryIO

import pytest

from runners.conformance.base import FOREVER, ContractBase, MakeJob
from runners.conformance.harness import LaunchedAttempt
from runners.interface import Runner
from workbench.job import LearnerPhase


class JournalContract(ContractBase):
    """Promises 6 to 8 of ``runners.interface``, several learners, and the capabilities."""

    # 6. The journal is exact

    def test_output_is_exactly_what_was_printed(self, make_job: MakeJob) -> None:
        command = r"printf 'a\0b\r50%%\rc\377\n'; printf err >&2; printf '\033[31mred'; printf end"
        job = make_job(command).launch()
        job.until_over()

        assert job.output() == b"a\0b\r50%\rc\xff\nerr\x1b[31mredend"

    def test_output_is_read_from_any_offset_as_often_as_asked(self, make_job: MakeJob) -> None:
        job = make_job("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done").launch()
        job.until_over()
        whole = b"".join(b"line %d\n" % number for number in range(20000))

        assert job.output() == whole
        for offset in (0, 1, 9999, len(whole) - 1, len(whole)):
            chunk = job.runner.journal(job.ref(), {"output": offset})["output"]
            assert chunk.offset == offset
            assert chunk.end == len(whole)
            assert chunk.data == whole[offset : offset + len(chunk.data)]
            assert chunk.data or offset == len(whole)

    def test_output_is_there_while_the_command_runs(self, make_job: MakeJob) -> None:
        job = make_job(FOREVER).launch()

        assert job.until_printed(b"ready\n") == b"ready\n"
        job.stop()

    def test_the_index_ends_where_the_output_does(self, make_job: MakeJob) -> None:
        job = make_job("echo one; echo two").launch()
        job.until_over()
        job.transcribe(job.ref())

        index = job.runner.journal(job.ref(), {"index": 0})["index"].data

        assert index[:8] == b"FABRIDX1"
        assert int.from_bytes(index[-24:-16], "little") == len(b"one\ntwo\n")
        assert int.from_bytes(index[-8:], "little") == 2

    def test_a_journal_that_is_not_there_is_left_out(self, make_job: MakeJob) -> None:
        job = make_job("true")

        assert job.runner.journal(job.ref(), {"output": 0, "records": 0}) == {}

    # Capabilities

    def test_usage_is_sampled(self, make_job: MakeJob) -> None:
        if not self.runner_class.capabilities.usage:
            pytest.skip("capabilities.usage is false")
        job = make_job(FOREVER).launch()

        records = job.until_recorded("usage")

        assert records[0]["memory_bytes"] > 0
        assert records[0]["processes"] >= 1
        chunk = job.runner.journal(job.ref(), {"processes": 0}).get("processes")
        if chunk is not None:  # a runner may have no list of them
            assert json.loads(chunk.data.split(b"\n")[0])["processes"][0]["pid"] > 0
        job.stop()

    def test_files_come_out_of_a_learner_and_go_into_it(self, make_job: MakeJob) -> None:
        if not self.runner_class.capabilities.copy:
            pytest.skip("capabilities.copy is false")
        command = "echo kept > $RESULT_DIR/file; mkdir deep; echo own > deep/file; " + FOREVER
        job = make_job(command).launch()
        job.until_printed(b"ready")
        job.runner.put(job.ref(), "results/given/tool", io.BytesIO(b"given"), mode=0o755)

        listed = {entry.path: entry for entry in job.runner.files(job.ref(), "results")}

        assert (listed["file"].kind, listed["file"].size_bytes) == ("file", 5)
        assert listed["given/tool"].mode & 0o111
        assert job.runner.files(job.ref(), "results/nothing") == ()
        assert _names_in(job, "results") >= {"file", "given/tool"}
        assert _names_in(job, "deep/file") == {"file"}
        job.stop().until_over()
        assert "file" in _names_in(job, "code/deep")

    def test_a_learner_over_its_memory_limit_ends_with_a_reason(self, make_job: MakeJob) -> None:
        if not self.runner_class.capabilities.memory_limit:
            pytest.skip("capabilities.memory_limit is false")
        eat = "a=$(head -c 8000000 /dev/zero | tr '\\0' x); " + "a=$a$a; " * 4 + FOREVER
        status = make_job(eat, memory_bytes=64 << 20, grace_seconds=1.0).launch().until_over()[1]

        assert status.reason is not None
        assert status.reason.code == "C203"
        assert status.stopped == "memory"

    def test_what_the_command_reports_is_recorded(self, make_job: MakeJob) -> None:
        if "python3" not in self.has:
            pytest.skip("commands find no python3 on this backend")
        script = "from workbench.learner import report; report(loss=0.5, step=3)"
        job = make_job(f'python3 -c "{script}"').launch()
        job.until_over()

        (record,) = job.until_recorded("metrics")

        assert (record["steps"], record["values"]) == ([3], {"loss": [0.5]})

    def test_a_rule_stops_the_job_for_what_it_reports(self, make_job: MakeJob) -> None:
        if "python3" not in self.has:
            pytest.skip("commands find no python3 on this backend")
        lines = (
            "import time",
            "from workbench.learner import report",
            "report(loss=9.5, step=3)",
            "time.sleep(3600)",
        )
        rule = {"metric": "loss", "above": 5.0}
        status = make_job(f'exec python3 -c "{"; ".join(lines)}"', stop_when=(rule,)).launch().until_over()[1]

        assert status.stopped == "halt"
        assert status.reason is not None
        assert status.reason.text == "halted by stop_when: loss is 9.5, above 5 at step 3"

    # 7. and 8. What is removed, and what is not

    def test_remove_ends_and_forgets_the_attempt_and_may_be_repeated(self, make_job: MakeJob) -> None:
        job = make_job("trap '' TERM; " + FOREVER).launch()
        job.until_printed(b"ready")

        job.runner.remove(job.request.attempt)
        job.runner.remove(job.request.attempt)

        assert job.ref() not in set(job.runner.leftovers())

    def test_another_home_is_never_touched(
        self, make_job: MakeJob, make_runner: Callable[..., Runner]
    ) -> None:
        elsewhere = str(uuid.uuid4())
        theirs = make_job(FOREVER, runner=make_runner(elsewhere), home=elsewhere).launch()
        theirs.until_printed(b"ready")
        ours = make_job(FOREVER).launch()
        ours.until_printed(b"ready")

        ours.stop().until_over()
        ours.runner.remove(ours.request.attempt)

        assert all(status.phase is LearnerPhase.RUNNING for status in theirs.until_running().values())
        assert theirs.ref() in set(ours.runner.leftovers())
        theirs.stop().until_over()

    # Several learners

    def test_learners_know_who_they_are_and_share_a_folder(self, make_job: MakeJob) -> None:
        command = (
            "echo $LEARNER_ID > $JOB_STATE_DIR/learner-$LEARNER_ID; "
            "while [ $(ls $JOB_STATE_DIR | grep -c learner-) -lt $NUM_LEARNERS ]; do sleep 0.05; done; "
            "echo $LEARNER_ID of $NUM_LEARNERS, rank $RANK of $WORLD_SIZE; "
            "echo $LEARNER_ID > mine; cat mine; test -e $JOB_STATE_DIR/$TRAINING_ID && echo $GPU_COUNT"
        )
        job = make_job(command, learners=3, ends_when="all").launch()
        job.until_over()

        for number in (1, 2, 3):
            expected = f"{number} of 3, rank {number - 1} of 3\n{number}\n0.000000\n"
            assert job.output(number).decode() == expected

    def test_the_first_exit_decides_and_the_others_are_stopped_without_blame(self, make_job: MakeJob) -> None:
        command = f"[ $LEARNER_ID = 2 ] && exit 0; {FOREVER}"
        statuses = make_job(command, learners=3, settle_seconds=0.2, grace_seconds=5.0).launch().until_over()

        assert (statuses[2].exit_code, statuses[2].decided, statuses[2].stopped) == (0, True, "")
        assert [statuses[number].stopped for number in (1, 3)] == ["settle", "settle"]

    def test_the_first_failure_stops_the_others_at_once(self, make_job: MakeJob) -> None:
        command = f"[ $LEARNER_ID = 2 ] && exit 5; {FOREVER}"
        job = make_job(command, learners=2, settle_seconds=300.0, ends_when="all").launch()

        statuses = job.until_over()

        assert (statuses[2].exit_code, statuses[2].decided) == (5, True)
        assert (statuses[1].stopped, statuses[1].decided) == ("settle", False)

    def test_all_learners_must_end_when_all_are_asked_for(self, make_job: MakeJob) -> None:
        wait = "while [ $LEARNER_ID = 1 ] && [ ! -e $JOB_STATE_DIR/done ]; do sleep 0.05; done"
        command = f"{wait}; touch $JOB_STATE_DIR/done"
        statuses = make_job(command, learners=2, settle_seconds=0.1, ends_when="all").launch().until_over()

        assert [(statuses[number].exit_code, statuses[number].stopped) for number in (1, 2)] == [
            (0, ""),
            (0, ""),
        ]

    # Observing

    def test_observe_gives_everything_first_and_then_only_what_changed(self, make_job: MakeJob) -> None:
        job = make_job(FOREVER).launch()
        job.until_running()
        attempts = [job.request.attempt]

        nothing = job.runner.observe(attempts, timeout_seconds=0.1)
        job.stop()
        job.until_over()
        job.runner.observe([], timeout_seconds=0.1)
        repeated = job.runner.observe(attempts, timeout_seconds=30.0)

        assert (nothing.whole, nothing.seen) == (False, ())
        assert repeated.whole
        assert [status.phase for status in repeated.seen] == [LearnerPhase.EXITED]

    def test_observe_waits_and_wakes_when_something_changes(self, make_job: MakeJob) -> None:
        job = make_job(FOREVER).launch()
        job.until_running()
        attempts = [job.request.attempt]
        while job.runner.observe(attempts, timeout_seconds=0.2).seen:
            pass
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            job.stop()

        stopper = threading.Timer(0.3, stop)
        stopper.start()

        turns = 0
        statuses: object = None
        while not (statuses and stopped.is_set()):  # a late change of its start may come first
            statuses = job.runner.observe(attempts, timeout_seconds=600.0).seen
            turns += 1
        stopper.join()

        assert turns <= 5, "observe returns without a change instead of waiting"

    def test_observe_can_be_interrupted(self, make_job: MakeJob) -> None:
        job = make_job(FOREVER).launch()
        job.until_running()
        if type(job.runner).interrupt is Runner.interrupt:
            pytest.skip("the runner does not implement interrupt")
        while job.runner.observe([job.request.attempt], timeout_seconds=0.2).seen:
            pass
        waker = threading.Timer(0.3, job.runner.interrupt)
        waker.start()

        job.runner.observe([job.request.attempt], timeout_seconds=600.0)  # without the waker it would not end
        waker.join()

    def test_secrets_reach_the_command_and_are_struck_out_of_its_output(self, make_job: MakeJob) -> None:
        job = make_job(
            'echo "<$TOKEN>"; [ "$TOKEN" = "$(printf %s-%s hush-hush 42)" ] && echo right',
            secrets={"TOKEN": "hush-hush-42"},
        )
        job.launch().until_over()

        assert job.output() == b"<************>\nright\n"
        assert "hush-hush-42" not in repr(job.plan)


def _names_in(job: LaunchedAttempt, path: str) -> set[str]:
    """Fetch a path of a learner and return the names that came."""
    names: set[str] = set()

    def receive(stream: BinaryIO) -> None:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            names.update(member.name for member in tar)

    job.runner.fetch(job.ref(), path, receive)
    return names
