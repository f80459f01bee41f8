"""Tests of the start and the end of learners: started once, independent of the runner, exit status, stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import pytest

from backends.contract.host import Cluster, Host, HostGroup
from runners.conformance.base import FOREVER, ContractBase, MakeJob
from runners.conformance.harness import PATIENCE_SECONDS
from runners.interface import Runner
from workbench.job import LearnerPhase

GRACE_SECONDS: Final = PATIENCE_SECONDS * 5


class LaunchContract(ContractBase):
    """Promises 1 to 5 of ``runners.interface``."""

    # 1. Launching twice starts nothing twice

    def test_a_second_launch_starts_nothing(
        self, make_job: MakeJob, make_runner: Callable[[], Runner]
    ) -> None:
        job = make_job("echo s >> $JOB_STATE_DIR/starts; " + FOREVER).launch()
        job.until_printed(b"ready")

        job.launch()
        make_runner().launch(job.plan, job.progress)
        job.stop().until_over()
        job.launch()

        assert job.output().count(b"ready") == 1

    def test_two_launches_at_once_start_one_learner(
        self, make_job: MakeJob, make_runner: Callable[[], Runner]
    ) -> None:
        job = make_job("echo s >> $JOB_STATE_DIR/starts; wc -l < $JOB_STATE_DIR/starts")
        others = [make_runner() for _ in range(3)]
        threads = [threading.Thread(target=one.launch, args=(job.plan, job.progress)) for one in others]
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

    # 3. Learners continue without the runner

    def test_a_learner_goes_on_without_its_runner_and_the_next_one_adopts_it(
        self, make_job: MakeJob, make_runner: Callable[[], Runner]
    ) -> None:
        job = make_job("trap 'echo told; exit 7' TERM; " + FOREVER).launch()
        job.until_printed(b"ready")
        job.runner.close()

        job.runner = make_runner()
        job.statuses.clear()
        job.until_running()
        status = job.stop("halt", 20.0).until_over()[1]

        assert status.exit_code == 7
        assert job.output().startswith(b"ready\n")
        assert job.output().endswith(b"told\n")

    # 4. Every end is observed

    @pytest.mark.parametrize("code", [0, 1, 3, 255])
    def test_an_exit_code_is_seen(self, make_job: MakeJob, code: int) -> None:
        job = make_job(f"exit {code}").launch()
        before = time.time_ns() // 1000

        status = job.until_over()[1]

        assert (status.phase, status.exit_code, status.signal) == (LearnerPhase.EXITED, code, None)
        assert status.stopped == ""
        assert status.started_us is not None
        assert status.ended_us is not None
        assert (
            before - 60_000_000 < status.started_us <= status.ended_us <= time.time_ns() // 1000 + 60_000_000
        )

    @pytest.mark.parametrize("number", [9, 11, 15])
    def test_a_signal_is_seen(self, make_job: MakeJob, number: int) -> None:
        status = make_job(f"kill -{number} $$").launch().until_over()[1]

        assert (status.signal or (status.exit_code or 0) - 128) == number
        assert status.stopped == ""

    def test_a_command_that_is_not_found_ends_with_127_and_says_so(self, make_job: MakeJob) -> None:
        status = make_job("no-such-command-anywhere").launch().until_over()[1]

        assert status.exit_code == 127
        assert status.reason is not None
        assert status.reason.code == "C202"

    def test_a_command_that_cannot_be_executed_ends_with_126_and_says_so(self, make_job: MakeJob) -> None:
        status = make_job("$MODEL_DIR").launch().until_over()[1]

        assert status.exit_code == 126
        assert status.reason is not None
        assert status.reason.code == "C202"

    def test_a_setup_that_fails_is_seen_and_the_command_is_not_run(self, make_job: MakeJob) -> None:
        job = make_job("echo never", setup="echo broken; exit 4").launch()

        status = job.until_over()[1]

        assert status.reason is not None
        assert status.reason.code == "C206"
        assert b"never" not in job.output()

    def test_a_setup_runs_first_in_the_same_folder(self, make_job: MakeJob) -> None:
        job = make_job("cat made", setup="echo by setup > made").launch()
        job.until_over()

        assert job.output() == b"by setup\n"

    def test_a_time_limit_ends_the_learner(self, make_job: MakeJob) -> None:
        status = make_job(FOREVER, max_runtime_seconds=0.5, grace_seconds=1.0).launch().until_over()[1]

        assert status.stopped == "max_runtime"
        assert status.reason is not None
        assert status.reason.code == "C204"

    def test_a_learner_whose_agent_was_killed_ends_with_a_reason(
        self, make_job: MakeJob, connection: Host | Cluster | HostGroup
    ) -> None:
        job = make_job("echo $$; exec sleep 300").launch()
        job.until_running()
        job.until_printed(b"\n")
        self.kill_agent(connection, job.ref())

        status = job.until_over()[1]

        assert status.reason is not None
        assert status.reason.code in ("S104", "S200", "S202", "S203")
        assert job.ref() not in set(job.runner.leftovers())

    # 5. A stop ends everything

    def test_a_halt_lets_the_command_end_by_itself(self, make_job: MakeJob) -> None:
        job = make_job("trap 'echo saved; exit 0' TERM; " + FOREVER).launch()
        job.until_printed(b"ready")

        status = job.stop("halt", 20.0).until_over()[1]

        assert status.stopped == "halt"
        assert job.output().startswith(b"ready\n")
        assert job.output().endswith(b"saved\n")

    def test_a_command_that_ignores_the_stop_is_killed_after_its_grace_period(
        self, make_job: MakeJob
    ) -> None:
        job = make_job("trap '' TERM; " + FOREVER).launch()
        job.until_printed(b"ready")

        status = job.stop("halt", 0.5).until_over()[1]

        assert (status.stopped, status.signal or (status.exit_code or 0) - 128) == ("halt", 9)

    def test_a_kill_does_not_wait_and_may_follow_a_halt(self, make_job: MakeJob) -> None:
        job = make_job("trap '' TERM; " + FOREVER).launch()
        job.until_printed(b"ready")

        # The grace period is longer than the test waits for the end.
        status = job.stop("halt", GRACE_SECONDS).stop("kill").stop("halt", GRACE_SECONDS).until_over()[1]

        assert status.stopped == "kill"

    def test_a_stop_ends_what_has_forked_twice_and_ignores_it(self, make_job: MakeJob) -> None:
        hidden = "(trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' &) )"
        job = make_job(f"{hidden} >/dev/null 2>&1; {FOREVER}").launch()
        job.until_printed(b"ready")

        job.stop("halt", 0.5).until_over()

        assert job.ref() not in set(job.runner.leftovers())

    def test_what_the_command_leaves_behind_is_ended(self, make_job: MakeJob) -> None:
        job = make_job("setsid sleep 300 >/dev/null 2>&1 & exit 0").launch()

        status = job.until_over()[1]

        assert status.exit_code == 0
        assert job.ref() not in set(job.runner.leftovers())

    def test_stopping_what_is_over_or_was_never_there_does_nothing(self, make_job: MakeJob) -> None:
        job = make_job("exit 3")
        job.stop("halt", 1.0)
        status = job.launch().until_over()[1]
        job.stop("kill")

        assert (status.exit_code, status.stopped) == (3, "")
        assert job.runner.observe([job.request.attempt], timeout_seconds=0.1).seen == ()
