"""Through a jump host in network namespaces: links that are cut and throttled; two laptops, two hosts, one home."""

from __future__ import annotations

import hashlib
import io
import random
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.backends.counting import Counting
from tests.ssh.company import COUNT, COUNTED, counts, second_host, target_of
from tests.ssh.lab import Lab, lab
from tests.support.box import Box
from tests.support.kept_agents import lend_agents_to
from tests.support.real_jobs import Ground
from tests.support.waiting import patience, until
from workbench.errors import BackendUnreachable
from workbench.job import TERMINAL, State
from workbench.paths import Home
from workbench.store.db.rows import TargetRef


@pytest.fixture
def behind(box: Box, clean_environment: Path) -> Iterator[Lab]:
    """A host behind a jump host, both in networks of their own."""
    with lab(
        clean_environment / "lab", box.user, Path(f"{box.key}.pub"), clean_environment / "leases"
    ) as found:
        with box.config.open("a") as stream:
            stream.write(found.config(box.user, box.key, box.known_hosts))
        box.known_hosts.write_text(box.known_hosts.read_text() + found.known_lines())
        yield found


def test_a_link_that_is_cut_between_us_and_a_jump_host_costs_no_byte(
    home: Home, box: Box, behind: Lab
) -> None:
    target = TargetRef("target", "ssh", "process", address="ssh://target", options={"silent_seconds": "2"})
    ground = Ground(home, target)
    try:
        job_id = ground.submit(COUNT)
        for share in (0.1, 0.5):
            until(partial(_has_come, ground, job_id, int(share * len(COUNTED))))
            behind.link("down")
            time.sleep(random.Random(share).uniform(0.5, 3.0))
            behind.link("up")
        row = ground.reaches(job_id, *TERMINAL, seconds=90)
        assert (row.state, row.attempt) == (State.COMPLETED, 1), row.reason
        assert ground.output(job_id) == COUNTED
    finally:
        behind.link("up")
        ground.clean_up()


def test_an_upload_over_a_throttled_link_that_is_cut_goes_on_where_it_stopped(box: Box, behind: Lab) -> None:
    content = random.Random(3).randbytes(4_000_000)
    sha256 = hashlib.sha256(content).hexdigest()
    target = box.user.home / sha256
    with closing(box.backend("ssh://target", silent_seconds="1").open()):
        pass  # the agent is there
    behind.throttle("16mbit")

    def arrived() -> int:
        return max((part.stat().st_size for part in box.user.home.glob(f".{sha256}*.part")), default=0)

    class Cutting(io.BytesIO):
        """Has the link cut when a part has arrived, and gives the rest only then."""

        is_cut = False

        def read(self, size: int | None = -1) -> bytes:
            if self.tell() >= 1_000_000 and not self.is_cut:
                until(lambda: arrived() > 200_000)
                behind.link("down")
                self.is_cut = True
            return super().read(size)

    with (
        closing(box.backend("ssh://target", silent_seconds=str(patience(1))).open()) as host,
        pytest.raises(BackendUnreachable),
    ):
        host.put(Cutting(content), str(target), sha256=sha256)
    behind.link("up")
    before = arrived()
    assert 0 < before < len(content)

    again = Counting(content)
    with closing(box.backend("ssh://target", silent_seconds="5").open()) as host:
        host.put(again, str(target), sha256=sha256)
    assert target.read_bytes() == content
    assert again.count <= len(content) - before


@pytest.mark.soak(
    "two laptops of one person; the gate has two people in test_shared_harm.py, a second laptop in test_adopting.py"
)
def test_two_laptops_give_jobs_to_one_host_at_once(home: Home, box: Box, tmp_path: Path) -> None:
    target = TargetRef("box", "ssh", "process", address=box.address)
    grounds = [Ground(home, target), Ground(Home(tmp_path / "second"), target)]
    lend_agents_to(box.user, grounds[1].home)
    try:
        jobs = [[ground.submit(COUNT)] for ground in grounds]
        for ground, mine in zip(grounds, jobs, strict=True):
            for job_id in mine:
                counts(ground, job_id)
    finally:
        for ground in grounds:
            ground.clean_up()


def test_two_hosts_with_one_home_keep_their_jobs_apart(home: Home, box: Box, clean_environment: Path) -> None:
    ground = Ground(home, TargetRef("box", "ssh", "process", address=box.address))
    with second_host(box, clean_environment / "leases") as (second, machine_id):
        try:
            here = ground.submit(COUNT)
            there = ground.submit(COUNT, target=target_of(box, second))
            until(lambda: len(ground.output(there)) > 1000)
            box.daemon.kill_sessions()
            for job_id in (here, there):
                counts(ground, job_id)
            machines = {path.name for path in (box.user.home / ".fabric").iterdir()}
            assert len(machines) == 2
            assert machine_id in machines
        finally:
            ground.clean_up()


def _has_come(ground: Ground, job_id: str, count: int) -> bool:
    return len(ground.output(job_id)) > count
