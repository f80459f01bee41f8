"""Who else is there: a second laptop that gives jobs to the same host, and a second host that has the same home."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.ssh.harms import Harm, Scene
from tests.support.box import Box
from tests.support.real_jobs import Ground
from tests.support.sshd import Daemon
from tests.support.waiting import until
from workbench.job import TERMINAL, State
from workbench.paths import Home
from workbench.store.db.rows import TargetRef

COUNT: Final = (
    "i=0; while [ $i -lt 20 ]; do i=$((i+1)); seq $((i*3000-2000)) $((i*3000+999)); sleep 0.15; done"
)
COUNTED: Final = "".join(f"{number}\n" for number in range(1000, 61_000))
SECONDS: Final = 90.0


@contextmanager
def second_host(box: Box, leases: Path, environment: Sequence[str] = ()) -> Iterator[tuple[Daemon, str]]:
    """Start another machine with the same home (its id is another); give it, and its id.

    Sessions there have these variables, ``NAME=VALUE``.
    """
    machine_id = "0123456789abcdef0123456789abcdef"
    file = box.folder / "machine-id"
    file.write_text(f"{machine_id}\n")
    program = f'mount --bind {file} /etc/machine-id; exec "$@"'
    within = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", program, "sh"]
    variables = " ".join([f"FABRIC_LEASES={leases}", *environment])
    daemon = Daemon(box.folder / "second-sshd", settings=[f"SetEnv {variables}"], within=within)
    daemon.authorize(box.user, Path(f"{box.key}.pub"))
    daemon.start()
    box.known_hosts.write_text(box.known_hosts.read_text() + daemon.known_line())
    try:
        yield daemon, machine_id
    finally:
        daemon.stop()


def target_of(box: Box, daemon: Daemon) -> TargetRef:
    """Return a host that is not the box itself, as jobs name it."""
    return TargetRef(
        "other", "ssh", "process", address=f"ssh://{box.user.name}@{daemon.address}:{daemon.port}"
    )


def counts(ground: Ground, job_id: str) -> None:
    """Wait for the end of a job that counts, and see that it printed all of it."""
    row = ground.reaches(job_id, *TERMINAL, seconds=SECONDS)
    assert (row.state, ground.output(job_id)) == (State.COMPLETED, COUNTED), row.reason


def is_deleted(ground: Ground, job_id: str) -> None:
    """Delete a job."""
    ground.ask(job_id, "delete")
    until(lambda: ground.row(job_id).deleted_us is not None, lambda: str(ground.row(job_id)), seconds=SECONDS)


def another_laptop(scene: Scene) -> None:
    """Another laptop of the same person gives the host a job, and both lose their sessions."""
    ground = Ground(Home(scene.box.folder / "second-home"), scene.ground.target)
    try:
        job_id = ground.submit(COUNT)
        until(lambda: len(ground.output(job_id)) > scene.draw.uniform(0, 0.7) * len(COUNTED))
        scene.box.daemon.kill_sessions()
        counts(ground, job_id)
        is_deleted(ground, job_id)
    finally:
        ground.clean_up()


def another_host(scene: Scene) -> None:
    """Another machine has the same home, as on a cluster's login nodes, and runs a job of ours beside the first."""
    ground = scene.ground
    with second_host(scene.box, scene.box.folder / "leases") as (daemon, _):
        job_id = ground.submit(COUNT, target=target_of(scene.box, daemon))
        until(lambda: len(ground.output(job_id)) > scene.draw.uniform(0, 0.7) * len(COUNTED))
        scene.box.daemon.kill_sessions()
        counts(ground, job_id)
        is_deleted(ground, job_id)


COMPANY: Final[dict[str, Harm]] = {"laptop": another_laptop, "other host": another_host}
