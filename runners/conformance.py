"""The promises of ``runners.interface`` as tests: every runner, ours or yours, is held to the same ones.

A runner's tests subclass :class:`RunnerContract` and say what its place is::

    class TestMyRunner(RunnerContract):
        runner_class = MyRunner

        @pytest.fixture
        def place(self) -> Iterator[Host]:
            place = LocalHost()
            yield place
            place.close()

Learners are told what to do in POSIX shell and are seen only through the runner, so the suite fits
containers and pods.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

import pytest

from backends.interface import Cluster, Host
from runners.conformance_tools import Job, request_of
from runners.interface import LearnerRef, Runner
from workbench.job import LearnerPhase

FOREVER: Final = "echo ready; while :; do sleep 1; done"
"""A command that ends only when it is stopped."""

MakeJob = Callable[..., Job]


class RunnerContract:
    """What every runner promises. Override :meth:`place`; name in :attr:`left_out` what cannot be promised."""

    runner_class: ClassVar[type[Runner]]
    left_out: ClassVar[Mapping[str, str]] = {}
    """Names of tests that this runner or agent does not pass by design, each with the reason."""
    has: ClassVar[frozenset[str]] = frozenset({"python3"})
    """What commands find at the place beside a shell and its tools."""

    @pytest.fixture
    def place(self) -> Iterator[Host | Cluster]:
        """Open the place; close it afterwards."""
        raise NotImplementedError("say in your subclass what the place is")

    def kill_agent(self, place: Host | Cluster, learner: LearnerRef) -> None:
        """Kill everything that keeps a learner, at once, as a crash would; override it, or leave it to skip."""
        pytest.skip("this suite was not told how to kill what keeps a learner")

    def transcribe(self, place: Host | Cluster, learner: LearnerRef) -> None:
        """Do what the reader of a journal does where the agent cannot: its index is made by who reads it."""

    @pytest.fixture(autouse=True)
    def _leave_out(self, request: pytest.FixtureRequest) -> None:
        name = request.node.originalname or request.node.name
        if name in self.left_out:
            pytest.skip(f"not promised: {self.left_out[name]}")

    @pytest.fixture
    def home_uuid(self) -> str:
        """The home that jobs are of."""
        return str(uuid.uuid4())

    @pytest.fixture
    def make_runner(self, place: Host | Cluster, home_uuid: str) -> Iterator[Callable[[], Runner]]:
        """Make runners over the same place, as a controller that was started again does."""
        made: list[Runner] = []

        def make(home: str = home_uuid) -> Runner:
            made.append(self.runner_class(place, home_uuid=home))
            return made[-1]

        yield make
        for runner in made:
            runner.close()

    @pytest.fixture
    def runner(self, make_runner: Callable[[], Runner]) -> Runner:
        """The runner that is tested."""
        return make_runner()

    @pytest.fixture
    def make_job(self, place: Host | Cluster, runner: Runner, home_uuid: str) -> Iterator[MakeJob]:
        """Plan jobs, and remove them afterwards whatever became of them."""
        made: list[Job] = []

        def make(command: str, *, runner: Runner = runner, home: str = home_uuid, **spec: Any) -> Job:
            job = Job.planned(runner, request_of(command, home=home, **spec))
            job.transcribe = lambda learner: self.transcribe(place, learner)
            made.append(job)
            return job

        yield make
        for job in made:
            job.runner.remove(job.request.attempt)

    # 1. Launching twice starts nothing twice

    def test_a_second_launch_starts_nothing(
        self, make_job: MakeJob, make_runner: Callable[[], Runner]
    ) -> None:
        job = make_job("echo s >> $JOB_STATE_DIR/starts; " + FOREVER).launch()
        job.until_printed(b"ready")

        job.launch()
        make_runner().launch(job.plan, job.told)
        job.stop().until_over()
        job.launch()

        assert job.output().count(b"ready") == 1

    def test_two_launches_at_once_start_one_learner(
        self, make_job: MakeJob, make_runner: Callable[[], Runner]
    ) -> None:
        job = make_job("echo s >> $JOB_STATE_DIR/starts; wc -l < $JOB_STATE_DIR/starts")
        others = [make_runner() for _ in range(3)]
        threads = [threading.Thread(target=one.launch, args=(job.plan, job.told)) for one in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        job.until_over()

        assert job.output().split() == [b"1"]

    @pytest.mark.parametrize("stage", ["preparing", "starting"])
    def test_a_launch_that_is_cut_off_is_made_good_by_the_next(self, make_job: MakeJob, stage: str) -> None:
        job = make_job("echo s >> $JOB_STATE_DIR/starts; wc -l < $JOB_STATE_DIR/starts")

        def cut(text: str, *, stage: str, at: str = stage) -> None:
            if stage == at:
                raise InterruptedError(text)

        with pytest.raises(InterruptedError):
            job.runner.launch(job.plan, cut)
        job.launch().until_over()

        assert job.output().split() == [b"1"]

    def test_what_was_never_launched_is_not_seen(self, make_job: MakeJob) -> None:
        job = make_job("true")

        observation = job.runner.observe([job.request.attempt], timeout_seconds=0.1)

        assert observation.whole
        assert observation.seen == ()

    # 3. Learners go on without us

    def test_a_learner_goes_on_without_its_runner_and_the_next_one_adopts_it(
        self, make_job: MakeJob, make_runner: Callable[[], Runner]
    ) -> None:
        job = make_job("trap 'echo told; exit 7' TERM; " + FOREVER).launch()
        job.until_printed(b"ready")
        job.runner.close()

        job.runner = make_runner()
        job.seen.clear()
        job.until_running()
        seen = job.stop("halt", 20.0).until_over()[1]

        assert seen.exit_code == 7
        assert job.output().startswith(b"ready\n")
        assert job.output().endswith(b"told\n")

    # 4. Every end is seen

    @pytest.mark.parametrize("code", [0, 1, 3, 255])
    def test_an_exit_code_is_seen(self, make_job: MakeJob, code: int) -> None:
        job = make_job(f"exit {code}").launch()
        before = time.time_ns() // 1000

        seen = job.until_over()[1]

        assert (seen.phase, seen.exit_code, seen.signal) == (LearnerPhase.EXITED, code, None)
        assert seen.stopped == ""
        assert seen.started_us is not None
        assert seen.ended_us is not None
        assert before - 60_000_000 < seen.started_us <= seen.ended_us <= time.time_ns() // 1000 + 60_000_000

    @pytest.mark.parametrize("number", [9, 11, 15])
    def test_a_signal_is_seen(self, make_job: MakeJob, number: int) -> None:
        seen = make_job(f"kill -{number} $$").launch().until_over()[1]

        assert (seen.signal or (seen.exit_code or 0) - 128) == number
        assert seen.stopped == ""

    def test_a_command_that_is_not_found_ends_with_127_and_says_so(self, make_job: MakeJob) -> None:
        seen = make_job("no-such-command-anywhere").launch().until_over()[1]

        assert seen.exit_code == 127
        assert seen.reason is not None
        assert seen.reason.code == "C202"

    def test_a_command_that_cannot_be_executed_ends_with_126_and_says_so(self, make_job: MakeJob) -> None:
        seen = make_job("$MODEL_DIR").launch().until_over()[1]

        assert seen.exit_code == 126
        assert seen.reason is not None
        assert seen.reason.code == "C202"

    def test_a_setup_that_fails_is_seen_and_the_command_is_not_run(self, make_job: MakeJob) -> None:
        job = make_job("echo never", setup="echo broken; exit 4").launch()

        seen = job.until_over()[1]

        assert seen.reason is not None
        assert seen.reason.code == "C206"
        assert b"never" not in job.output()

    def test_a_setup_runs_first_in_the_same_folder(self, make_job: MakeJob) -> None:
        job = make_job("cat made", setup="echo by setup > made").launch()
        job.until_over()

        assert job.output() == b"by setup\n"

    def test_a_time_limit_ends_the_learner(self, make_job: MakeJob) -> None:
        seen = make_job(FOREVER, max_runtime_seconds=0.5, grace_seconds=1.0).launch().until_over()[1]

        assert seen.stopped == "max_runtime"
        assert seen.reason is not None
        assert seen.reason.code == "C204"

    def test_a_learner_whose_agent_was_killed_ends_with_a_reason(
        self, make_job: MakeJob, place: Host | Cluster
    ) -> None:
        job = make_job("echo $$; exec sleep 300").launch()
        job.until_running()
        job.until_printed(b"\n")
        self.kill_agent(place, job.ref())

        seen = job.until_over()[1]

        assert seen.reason is not None
        assert seen.reason.code in ("S104", "S200", "S202", "S203")
        assert job.ref() not in set(job.runner.leftovers())

    # 5. A stop ends everything

    def test_a_halt_lets_the_command_end_by_itself(self, make_job: MakeJob) -> None:
        job = make_job("trap 'echo saved; exit 0' TERM; " + FOREVER).launch()
        job.until_printed(b"ready")

        seen = job.stop("halt", 20.0).until_over()[1]

        assert seen.stopped == "halt"
        assert job.output().startswith(b"ready\n")
        assert job.output().endswith(b"saved\n")

    def test_a_command_that_ignores_the_stop_is_killed_after_its_grace_period(
        self, make_job: MakeJob
    ) -> None:
        job = make_job("trap '' TERM; " + FOREVER).launch()
        job.until_printed(b"ready")

        seen = job.stop("halt", 0.5).until_over()[1]

        assert (seen.stopped, seen.signal or (seen.exit_code or 0) - 128) == ("halt", 9)

    def test_a_kill_does_not_wait_and_may_follow_a_halt(self, make_job: MakeJob) -> None:
        job = make_job("trap '' TERM; " + FOREVER).launch()
        job.until_printed(b"ready")

        begun = time.monotonic()
        seen = job.stop("halt", 300.0).stop("kill").stop("halt", 300.0).until_over()[1]

        assert seen.stopped == "kill"
        assert time.monotonic() - begun < 100

    def test_a_stop_ends_what_has_forked_twice_and_ignores_it(self, make_job: MakeJob) -> None:
        hidden = "(trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' &) )"
        job = make_job(f"{hidden} >/dev/null 2>&1; {FOREVER}").launch()
        job.until_printed(b"ready")

        job.stop("halt", 0.5).until_over()

        assert job.ref() not in set(job.runner.leftovers())

    def test_what_the_command_leaves_behind_is_ended(self, make_job: MakeJob) -> None:
        job = make_job("setsid sleep 300 >/dev/null 2>&1 & exit 0").launch()

        seen = job.until_over()[1]

        assert seen.exit_code == 0
        assert job.ref() not in set(job.runner.leftovers())

    def test_stopping_what_is_over_or_was_never_there_does_nothing(self, make_job: MakeJob) -> None:
        job = make_job("exit 3")
        job.stop("halt", 1.0)
        seen = job.launch().until_over()[1]
        job.stop("kill")

        assert (seen.exit_code, seen.stopped) == (3, "")
        assert job.runner.observe([job.request.attempt], timeout_seconds=0.1).seen == ()

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

    # What capabilities say

    def test_usage_is_sampled(self, make_job: MakeJob) -> None:
        if not self.runner_class.capabilities.usage:
            pytest.skip("this runner says that it samples no usage")
        job = make_job(FOREVER).launch()

        records = job.until_recorded("usage")

        assert records[0]["memory_bytes"] > 0
        assert records[0]["processes"] >= 1
        job.stop()

    def test_a_learner_over_its_memory_limit_ends_with_a_reason(self, make_job: MakeJob) -> None:
        if not self.runner_class.capabilities.memory_limit:
            pytest.skip("this runner says that it limits no memory")
        eat = "a=$(head -c 8000000 /dev/zero | tr '\\0' x); " + "a=$a$a; " * 4 + FOREVER
        seen = make_job(eat, memory_bytes=64 << 20, grace_seconds=1.0).launch().until_over()[1]

        assert seen.reason is not None
        assert seen.reason.code == "C203"
        assert seen.stopped == "memory"

    def test_what_the_command_reports_is_recorded(self, make_job: MakeJob) -> None:
        if "python3" not in self.has:
            pytest.skip("there is no python3 for the command at this place")
        script = "from workbench.learner import report; report(loss=0.5, step=3)"
        job = make_job(f'python3 -c "{script}"').launch()
        job.until_over()

        (record,) = job.until_recorded("metrics")

        assert (record["steps"], record["values"]) == ([3], {"loss": [0.5]})

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

        assert all(seen.phase is LearnerPhase.RUNNING for seen in theirs.until_running().values())
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
        seen = make_job(command, learners=3, settle_seconds=0.2, grace_seconds=5.0).launch().until_over()

        assert (seen[2].exit_code, seen[2].decided, seen[2].stopped) == (0, True, "")
        assert [seen[number].stopped for number in (1, 3)] == ["settle", "settle"]

    def test_the_first_failure_stops_the_others_at_once(self, make_job: MakeJob) -> None:
        command = f"[ $LEARNER_ID = 2 ] && exit 5; {FOREVER}"
        job = make_job(command, learners=2, settle_seconds=300.0, ends_when="all").launch()

        seen = job.until_over()

        assert (seen[2].exit_code, seen[2].decided) == (5, True)
        assert (seen[1].stopped, seen[1].decided) == ("settle", False)

    def test_all_learners_must_end_when_all_are_asked_for(self, make_job: MakeJob) -> None:
        wait = "while [ $LEARNER_ID = 1 ] && [ ! -e $JOB_STATE_DIR/done ]; do sleep 0.05; done"
        command = f"{wait}; touch $JOB_STATE_DIR/done"
        seen = make_job(command, learners=2, settle_seconds=0.1, ends_when="all").launch().until_over()

        assert [(seen[number].exit_code, seen[number].stopped) for number in (1, 2)] == [(0, ""), (0, "")]

    # Observing

    def test_observe_gives_everything_first_and_then_only_what_changed(self, make_job: MakeJob) -> None:
        job = make_job(FOREVER).launch()
        job.until_running()
        attempts = [job.request.attempt]

        nothing = job.runner.observe(attempts, timeout_seconds=0.1)
        job.stop()
        job.until_over()
        job.runner.observe([], timeout_seconds=0.1)
        again = job.runner.observe(attempts, timeout_seconds=30.0)

        assert (nothing.whole, nothing.seen) == (False, ())
        assert again.whole
        assert [seen.phase for seen in again.seen] == [LearnerPhase.EXITED]

    def test_observe_waits_and_wakes_when_something_changes(self, make_job: MakeJob) -> None:
        job = make_job(FOREVER).launch()
        job.until_running()
        attempts = [job.request.attempt]
        while job.runner.observe(attempts, timeout_seconds=0.2).seen:
            pass
        stopper = threading.Timer(0.3, job.stop)
        stopper.start()

        begun = time.monotonic()
        observation = job.runner.observe(attempts, timeout_seconds=30.0)
        stopper.join()

        assert observation.seen
        assert 0.2 < time.monotonic() - begun < 20

    def test_observe_can_be_interrupted(self, make_job: MakeJob) -> None:
        job = make_job(FOREVER).launch()
        job.until_running()
        if type(job.runner).interrupt is Runner.interrupt:
            pytest.skip("this runner is asked in short turns instead")
        while job.runner.observe([job.request.attempt], timeout_seconds=0.2).seen:
            pass
        waker = threading.Timer(0.3, job.runner.interrupt)
        waker.start()

        begun = time.monotonic()
        job.runner.observe([job.request.attempt], timeout_seconds=60.0)
        waker.join()

        assert time.monotonic() - begun < 30

    def test_secrets_reach_the_command_and_are_struck_out_of_its_output(self, make_job: MakeJob) -> None:
        job = make_job(
            'echo "<$TOKEN>"; [ "$TOKEN" = "$(printf %s-%s hush-hush 42)" ] && echo right',
            secrets={"TOKEN": "hush-hush-42"},
        )
        job.launch().until_over()

        assert job.output() == b"<************>\nright\n"
        assert "hush-hush-42" not in repr(job.plan)
