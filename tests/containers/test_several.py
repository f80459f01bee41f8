"""Several learners: a network of their own, names that resolve, a shared folder, and nothing left of it."""

from __future__ import annotations

import subprocess

from tests.containers.conftest import MakeJob
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
    argv = [
        "docker",
        "ps",
        "-a",
        "--format",
        "{{.Names}}",
        "--filter",
        f"label=fabric.job={job.ref().job_id}",
    ]
    names = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    job.stop().until_over()

    assert sorted(names) == [f"{attempt_stem(job.ref().job_id, 1)}-{number}" for number in range(4)]


def network_of(name: str) -> str:
    """Return the id of a network, or nothing."""
    argv = ["docker", "network", "ls", "-q", "--filter", f"name=^{name}$"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
