"""One job over two hosts that are reached over SSH, each with a user, a home and GPUs of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from backends.contract.host import Host
from tests.stubs import Gpus
from tests.support.box import a_box
from tests.support.group_jobs import MEET, group_jobs
from tests.support.kept_ground import a_folder
from tests.support.sshd import why_not
from workbench.paths import Home

GPU = "GPU-{0}{0}{0}{0}{0}{0}{0}{0}-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def boxes() -> Iterator[dict[str, Host]]:
    """Two of them, with one GPU each."""
    if reason := why_not():
        pytest.skip(reason)
    with ExitStack() as opened:
        hosts: dict[str, Host] = {}
        for number, name in enumerate(("box1", "box2"), 1):
            folder = opened.enter_context(a_folder())
            gpus = Gpus(folder / "gpus").add(GPU.format(number))
            box = opened.enter_context(a_box(folder, folder / "leases", environment=gpus.session_variables()))
            hosts[name] = opened.enter_context(closing(box.apart().open()))
        yield hosts


def test_learners_meet_across_hosts_and_the_next_attempt_has_the_checkpoints_of_both(
    boxes: dict[str, Host], home: Home
) -> None:
    keep = (
        "ls $CHECKPOINT_DIR | tr '\\n' ' '; echo $CUDA_VISIBLE_DEVICES; touch $CHECKPOINT_DIR/of-$LEARNER_ID"
    )
    with group_jobs(boxes) as jobs:
        job = jobs.plan(f"{keep}; python3 - <<'END'\n{MEET}\nEND", gpus=1).launch()
        ends = job.until_over()

        assert [ends[number].exit_code for number in (1, 2)] == [0, 0]
        assert job.output(1).decode() == f"{GPU.format(1)}\n['1']\n"
        assert job.output(2).decode() == f"{GPU.format(2)}\n"

        attempt = job.request.attempt
        home.job(attempt.job_id).path.mkdir(parents=True)
        job.runner.download(attempt, home.job(attempt.job_id))
        again = jobs.plan_request(replace(job.request, attempt=replace(attempt, attempt=2))).launch()
        again.until_over()

        for number in (1, 2):
            assert again.output(number).startswith(b"of-1 of-2 GPU")
