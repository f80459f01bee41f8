"""A job in containers of two SSH hosts: its learners meet, its files are the person's, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ssh.company import second_host
from tests.ssh.seen import reason, row
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.engine import containers_of
from tests.support.group_jobs import MEET
from tests.support.images import USER
from tests.support.sshd import Daemon
from tests.support.waiting import until
from workbench.errors import NotRunning
from workbench.job import State
from workbench.paths import Home

PROGRAM = f"id -u > $RESULT_DIR/by-$RANK; python3 -c '{MEET}'; while [ ! -e /job/end ]; do sleep 0.05; done"


@pytest.fixture
def second(engine_box: Box, fabric: Fabric, clean_environment: Path) -> Iterator[Daemon]:
    """The second host, with the same engine; both are in the configuration."""
    leases = clean_environment / "second-leases"
    leases.mkdir()
    leases.chmod(0o1777)
    with second_host(engine_box, leases) as (daemon, _):
        there = f"ssh://{engine_box.user.name}@{daemon.address}:{daemon.port}"
        fabric("backend", "add", "box1", engine_box.address, "--untested")
        fabric("backend", "add", "box2", there, "--untested")
        yield daemon


def test_containers_of_two_hosts_meet_and_are_reached_and_all_they_wrote_comes_home(
    engine_box: Box, second: Daemon, fabric: Fabric, home: Home
) -> None:
    words = ("--backend", "box1+box2", "--set", "learners=2", "--set", "ends_when=all", "--image", USER)
    job = fabric("run", "-d", "-q", *words, "--", "sh", "-c", PROGRAM).stdout.strip()
    output = home.job(job).attempt(1).learner(1).output
    until(lambda: output.exists() and "['1']" in output.read_text(), lambda: reason(home, job))

    assert row(home, job).target.runner == "multinode-container"
    assert fabric("exec", job, "--learner", "2", "--", "sh", "-c", "echo $LEARNER_ID").stdout == "2\n"
    listed = fabric("files", job, "--learner", "2").stdout
    assert "by-1" in listed
    for learner in ("1", "2"):
        # The container may be gone before the engine is asked how the command ended.
        ended = fabric("exec", job, "--learner", learner, "--", "touch", "/job/end", expect=None)
        assert ended.returncode in (0, NotRunning.exit_code), ended.stderr
    fabric("wait", job)

    assert row(home, job).state is State.COMPLETED
    results = home.job(job).results
    assert {path.name: path.read_text() for path in results.iterdir()} == {"by-0": "1234\n", "by-1": "1234\n"}
    fabric("delete", "--yes", job)
    until(lambda: containers_of(job) == [], "the containers to be gone")
