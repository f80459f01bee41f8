"""A host whose clock is wrong starts what waits there for a time at the right moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ssh.test_handed_over import close_the_lid, give, open_the_lid, state_of
from tests.ssh.test_rounds import FAKETIME
from tests.support.box import Box
from tests.support.controllers import log_of
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.clock import now_us
from workbench.job import State
from workbench.paths import Home
from workbench.services.control.requests import QueueChange, change
from workbench.store.db.rows import TargetRef
from workbench.time_expressions import iso_us, local_iso

AGENTS = {"LD_PRELOAD": f"{FAKETIME}:", "FAKETIME_DONT_FAKE_MONOTONIC": "true", "FAKETIME_NO_CACHE": "true"}
"""What ``setup`` exports: only what differs from a session's own variables gets to the waiter and to jobs."""
SESSIONS = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}
HALF_AN_HOUR_US = 1_800_000_000
SOON_US = 12_000_000
"""A job is at its host by then."""
CHANGED_US = 4_000_000


@pytest.fixture
def skew(request: pytest.FixtureRequest) -> str:
    """By how much the host's clock is wrong."""
    if not FAKETIME.exists():
        pytest.skip("needs libfaketime (Debian's faketime)")
    return str(getattr(request, "param", "+1h"))


@pytest.fixture
def box_environment(skew: str) -> list[str]:
    """A clock that is wrong."""
    return [f"{name}={value}" for name, value in {**SESSIONS, "FAKETIME": skew}.items()]


@pytest.fixture
def ground(home: Home, box: Box, skew: str) -> Iterator[Ground]:
    """A laptop whose jobs go to that host."""
    minutes = skew.replace("1h", "60m")
    exports = " ".join(f"{name}={value}" for name, value in {**AGENTS, "FAKETIME": minutes}.items())
    options = {"setup": f"export {exports}"}
    made = Ground(home, TargetRef("box", "ssh", "process", address=box.address, options=options))
    yield made
    if not box.daemon.listens():
        box.daemon.start()
    made.clean_up()


def runs(box: Box, ground: Ground, job_id: str) -> int:
    """Wait until a job has run, and return when that was, by the right clock."""
    until(
        lambda: state_of(box.user, ground, job_id).get("phase") == "exited",
        lambda: f"{state_of(box.user, ground, job_id)}\n{log_of(ground.home)}",
    )
    return (box.user.home / "mark").stat().st_mtime_ns // 1000


def moment(begin: str) -> int:
    found = iso_us(begin)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "skew",
    [
        pytest.param("+1h", marks=pytest.mark.soak("a clock ahead; the gate has that below, and one behind")),
        "-1h",
    ],
    indirect=True,
)
def test_a_job_begins_at_its_time_at_a_host_whose_clock_is_an_hour_off_with_the_laptop_off(
    box: Box, ground: Ground, skew: str
) -> None:
    clock = box.user.home / "clock"
    begin = local_iso(now_us() + SOON_US)
    job_id = give(ground, box.user, f"date +%s > {clock}; echo > {box.user.home}/mark", gpus=0, begin=begin)
    close_the_lid(box, ground)

    began_us = runs(box, ground, job_id)

    assert moment(begin) <= began_us
    assert round((int(clock.read_text()) - began_us / 1e6) / 3600) == int(skew.removesuffix("h"))
    open_the_lid(box, ground)
    assert ground.ends(job_id).state is State.COMPLETED


def test_another_time_reaches_such_a_host_by_its_clock(box: Box, ground: Ground) -> None:
    job_id = give(
        ground, box.user, f"echo > {box.user.home}/mark", gpus=0, begin=local_iso(now_us() + HALF_AN_HOUR_US)
    )

    begin = local_iso(now_us() + CHANGED_US)
    change(ground.store, [ground.row(job_id)], QueueChange(begin=begin), origin="test")

    assert moment(begin) <= runs(box, ground, job_id)
    assert ground.ends(job_id).state is State.COMPLETED
