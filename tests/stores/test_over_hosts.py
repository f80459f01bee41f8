"""A result store of a job whose learners are at several hosts: each attempt begins with what all have stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.group_jobs import group_jobs, pipe_hosts
from tests.support.store_servers import Server


def test_the_next_attempt_gets_what_all_hosts_have_stored(tmp_path: Path, s3: Server) -> None:
    keep = "ls $CHECKPOINT_DIR $RESULT_DIR | tr '\\n' ' '; echo $LEARNER_ID >$CHECKPOINT_DIR/of-$LEARNER_ID"
    with pipe_hosts(tmp_path) as pair, group_jobs(pair) as jobs:
        job = jobs.plan(
            f"{keep}; echo $LEARNER_ID >$RESULT_DIR/by-$LEARNER_ID", data_stores=(s3.store(),), gpus=0
        )
        first = job.launch().until_over()
        assert [one.reason for one in first.values() if one.exit_code != 0] == []
        stored = s3.results(job.request.attempt.job_id)
        assert sorted(path.name for path in stored.glob("by-*")) == ["by-1", "by-2"]

        attempt = replace(job.request.attempt, attempt=2)
        again = jobs.plan_request(replace(job.request, attempt=attempt)).launch()
        again.until_over()

        for number in (1, 2):
            found = again.output(number).decode().split()
            assert {"of-1", "of-2", "by-1", "by-2"} <= set(found), found


def test_what_one_host_changes_another_that_was_given_it_does_not_store_again(
    tmp_path: Path, s3: Server
) -> None:
    with pipe_hosts(tmp_path) as pair, group_jobs(pair) as jobs:
        job = jobs.plan(
            "[ $LEARNER_ID = 2 ] || for one in latest same; do echo 1 >$CHECKPOINT_DIR/$one; done",
            data_stores=(s3.store(),),
            gpus=0,
        )
        job.launch().until_over()
        stored = s3.results(job.request.attempt.job_id) / "_checkpoints"
        assert (stored / "latest").read_text() == "1\n"

        change = (
            f"if [ $LEARNER_ID = 1 ]; then until [ -e {tmp_path}/given ]; do sleep 0.1; done;"
            f" echo longer >$CHECKPOINT_DIR/latest; echo 2 >$CHECKPOINT_DIR/same;"
            f" else cat $CHECKPOINT_DIR/latest >{tmp_path}/given;"
            f" until grep -q longer {stored}/latest && grep -q 2 {stored}/same; do sleep 0.1; done;"
            " echo by 2 >$CHECKPOINT_DIR/second; fi"
        )
        spec = replace(job.request.spec, framework=replace(job.request.spec.framework, command=change))
        request = replace(job.request, spec=spec, attempt=replace(job.request.attempt, attempt=2))
        ended = jobs.plan_request(request).launch().until_over()

        assert [one.reason for one in ended.values() if one.exit_code != 0] == []
        texts = {path.name: path.read_text() for path in stored.iterdir() if path.is_file()}
        assert texts == {"latest": "longer\n", "same": "2\n", "second": "by 2\n"}
