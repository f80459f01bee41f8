"""What runners write into ``launch.json`` is what the agent reads from it."""

from __future__ import annotations

import json

from runners.shared.launch_document import USAGE_SECONDS
from tests.runners.conftest import Jobs
from workbench.learner.journal.launch_document import LaunchDocument

ONLY_READ_BY_CLIENTS = {"format", "owner", "secrets"}


def test_every_key_that_the_agent_reads_is_written(jobs: Jobs) -> None:
    planned = jobs.plan("true").plan.learners[0].native["launch"]

    assert set(planned) - ONLY_READ_BY_CLIENTS == set(LaunchDocument.__slots__) - {"document", "writable"}


def test_the_agent_reads_what_was_written(jobs: Jobs) -> None:
    job = jobs.plan("train.py", learners=2, settle_seconds=7.0, ends_when="all", max_runtime_seconds=90.0)
    attempt = job.request.attempt
    planned = json.loads(json.dumps(job.plan.learners[1].native["launch"]))

    read = LaunchDocument(planned)

    assert read.marker == f"{attempt.home}/{attempt.job_id}/1/2"
    assert (read.command, read.shell, read.learners) == ("train.py", "bash", 2)
    assert (read.settle_seconds, read.ends_when, read.max_runtime_seconds) == (7.0, "all", 90.0)
    assert (read.usage_seconds, read.log_dir_shared, read.writable) == (USAGE_SECONDS, True, [])
