"""Several learners: a network of their own, names that resolve, a shared folder, and nothing left of it."""

from __future__ import annotations

import subprocess

import pytest

from runners.container.plan import labels, network_name
from tests.support.engine import MakeJob, containers_of
from workbench.job import attempt_stem

SERVE = (
    "import socket, os; s = socket.create_server(('', 2222)); open('/job/up', 'w').close(); "
    "c, _ = s.accept(); print(c.recv(100).decode())"
)
CALL = (
    "import os, socket, time\n"
    "while not os.path.exists('/job/up'): time.sleep(0.05)\n"
    "p = os.environ['LEARNER_NAME_PREFIX']\n"
    "s = socket.create_connection((f'{p}-0.{p}', 2222)); s.sendall(b'hello from 1'); s.close()"
)


def test_learners_reach_each_other_by_name_and_the_network_goes_with_them(make_job: MakeJob) -> None:
    command = f'if [ $LEARNER_ID = 1 ]; then python3 -c "{SERVE}"; else python3 -c "{CALL}"; fi; hostname'
    job = make_job(command, learners=2, ends_when="all").launch()
    job.until_over()
    stem = attempt_stem(job.request.attempt.job_id, 1)

    assert job.output(1).decode() == f"hello from 1\n{stem}-0\n"
    assert job.output(2).decode() == f"{stem}-1\n"
    assert network_of(stem) == ""


def test_one_learner_has_no_network_of_its_own_and_still_its_name(make_job: MakeJob) -> None:
    job = make_job('getent hosts "$LEARNER_NAME_PREFIX-0.$LEARNER_NAME_PREFIX"; hostname').launch()
    job.until_over()
    stem = attempt_stem(job.request.attempt.job_id, 1)

    assert network_of(stem) == ""
    assert job.output().decode().split() == ["127.0.0.1", f"{stem}-0.{stem}", f"{stem}-0"]


def test_four_learners_are_exactly_four_containers(make_job: MakeJob) -> None:
    job = make_job("echo ready; while :; do sleep 1; done", learners=4).launch()
    job.until_running()
    names = containers_of(job.ref().job_id)
    job.stop().until_over()

    assert sorted(names) == [f"{attempt_stem(job.ref().job_id, 1)}-{number}" for number in range(4)]


def test_a_network_that_an_engine_kept_is_found_and_goes(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job("true", learners=2, ends_when="all").launch()
    job.until_over()
    attempt = job.request.attempt
    kept = network_name(attempt)
    wanted = labels(attempt, 0, "somebody")
    args = [word for name, value in wanted.items() for word in ("--label", f"{name}={value}")]
    subprocess.run(["docker", "network", "create", *args, kept], check=True, capture_output=True)
    with monkeypatch.context() as patched:
        patched.setattr(job.runner, "home_uuid", "00000000-0000-4000-8000-000000000000")
        seen_by_others = list(job.runner.leftovers())
    there = network_of(kept)
    seen_by_us = [one for one in job.runner.leftovers() if one.job_id == attempt.job_id]

    assert [one for one in seen_by_others if one.job_id == attempt.job_id] == [job.ref(2)]
    assert there
    assert seen_by_us == []
    assert network_of(kept) == ""


def network_of(name: str) -> str:
    """Return the id of a network, or nothing."""
    argv = ["docker", "network", "ls", "-q", "--filter", f"name=^{name}$"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
