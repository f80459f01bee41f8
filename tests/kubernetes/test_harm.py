"""Whatever is killed, stopped, cut or deleted: no pod twice, none left, every byte once, and the right end.

Each round runs six jobs as an ordinary user, does every harm to the whole cluster at random instants and one to each
of five jobs, and compares what came home with what was printed. ``--chaos-rounds 200`` does as many rounds.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.kubernetes import harms
from tests.kubernetes.harms import CLUSTER, HOLD_SECONDS, JOB, LONGEST, World
from tests.kubernetes.relay import Relay
from tests.support.cluster import Space, cluster_held
from tests.support.cluster_health import SCRIPT
from tests.support.pod_images import DEBIAN
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.errors import FabricError
from workbench.job import TERMINAL, State
from workbench.paths import Home
from workbench.store.db.rows import TargetRef
from workbench.store.queries.jobs import attempts

PARTS, PART_BYTES = 100, 20_000
STREAM = f"""
import random, sys, time, os
open(os.environ["RESULT_DIR"] + "/starts", "a").write("x")
draw = random.Random(11)
for part in range({PARTS}):
    sys.stdout.buffer.write(draw.randbytes({PART_BYTES}).replace(bytes([13]), b"."))
    sys.stdout.flush()
    time.sleep(0.3)
"""
"""Prints 2 MB in half a minute or so, without carriage returns: the cluster's log keeps none before a newline."""

OPTIONS = {"default_memory": "200Mi", "journal_hold_seconds": HOLD_SECONDS, "results_hold_seconds": 90}
FIRST = int(os.environ.get("FABRIC_TEST_SEED", "0"))
"""The seed of the first round, to do one again that failed."""

PATIENCE_SECONDS = 360
"""A kubelet whose runtime dies while it ends a pod waits for the pod's whole grace, two and a half minutes here, and
tries again."""

NEVER_STARTED = "S101"
AT_ONCE = len(JOB) + 1
ROUNDS = 2


def printed() -> bytes:
    draw = random.Random(11)
    return b"".join(draw.randbytes(PART_BYTES).replace(b"\r", b".") for _ in range(PARTS))


@pytest.fixture
def world(unheld_space: Space, home: Home) -> Iterator[World]:
    if not SCRIPT:
        pytest.skip("no Kubernetes that may be harmed: FABRIC_TEST_CLUSTER names no program")
    relay = Relay("127.0.0.1", 6443)
    config = unheld_space.kubeconfig
    config.write_text(config.read_text().replace("127.0.0.1:6443", f"127.0.0.1:{relay.port}"))
    options = {**OPTIONS, "kubeconfig": str(config)}
    ground = Ground(home, TargetRef("harmed", "kubernetes", "pod", unheld_space.address, options))
    try:
        yield World(ground, unheld_space, relay, random.Random(0))
        ground.clean_up()
    finally:
        relay.end()


def harms_to_all(dice: random.Random) -> list[str]:
    """Return all that is done to the cluster, in an order by chance; last what lasts beyond the jobs' end."""
    names = sorted(CLUSTER, key=lambda name: dice.random())
    names.remove(LONGEST)
    return [*names, LONGEST]


@pytest.mark.soak(
    "random harm to a cluster; the gate has deletions, lost nodes and outages of the API server in tests of their own"
)
@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_nothing_is_lost_doubled_or_left_whatever_is_done_to_a_cluster(
    world: World, chaos_rounds: int | None, note_harm: Callable[[str], None]
) -> None:
    for seed in range(FIRST, FIRST + (chaos_rounds or ROUNDS)):
        world.dice = random.Random(seed)
        to_all, to_one = harms_to_all(world.dice), list(JOB)
        for kind in (*to_all, *to_one):
            note_harm(kind)
        here = f"round {seed}: {', '.join(to_all)}; {', '.join(to_one)}"
        print(here, flush=True)
        # Others wait for a round at most: their patience is less than ours.
        with cluster_held(alone=True):
            do_round(world, to_all, to_one, here)
        assert left(world.space) == [], here


def do_round(world: World, to_all: list[str], to_one: list[str], here: str) -> None:
    """Run jobs, do harm, and see that all is well afterwards."""
    with Watcher(world.space) as watcher:
        jobs = [
            world.ground.submit(f"exec python3 -c '{STREAM}'", image=DEBIAN, max_platform_restarts=20)
            for _ in range(AT_ONCE)
        ]
        do_harm(world, jobs, to_all, to_one)
        for number, job_id in enumerate(jobs):
            own = JOB[to_one[number]] if number < len(to_one) else None
            check(world, job_id, own, f"{here}; job {number} {job_id}")
        assert not watcher.doubled, here
    for job_id in jobs:
        world.ground.ask(job_id, "delete")
    until_gone(world.space, here)


def do_harm(world: World, jobs: list[str], to_all: list[str], to_one: list[str]) -> None:
    """Do all of it, each at an instant of its own, from the jobs' launch on."""
    instants = [(world.dice.uniform(0.0, 30.0), name) for name in to_one]
    started = time.monotonic()
    troubles: list[BaseException] = []

    def harm_jobs() -> None:
        try:
            for number, (instant, name) in sorted(enumerate(instants), key=lambda each: each[1]):
                time.sleep(max(0.0, started + instant - time.monotonic()))
                world.say(f"{jobs[number]}: {name}")
                harms.do_to(world.space, JOB[name], jobs[number])
        except BaseException as error:
            troubles.append(error)

    thread = threading.Thread(target=harm_jobs)
    thread.start()
    for name in to_all:
        world.pause(0.0, 3.0)
        world.say(name)
        CLUSTER[name](world)
    world.say("no more harm")
    thread.join()
    assert not troubles, troubles


def check(world: World, job_id: str, own: harms.Harm | None, here: str) -> None:
    """Compare a job's end and output with what they must be."""
    ground = world.ground
    try:
        row = ground.reaches(job_id, *TERMINAL, seconds=PATIENCE_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{here}: {error}\n{harms.describe_pods(world.space, job_id)}") from None
    world.say(f"{job_id}: {row.state} after {row.attempt} attempts")
    assert (row.state, row.exit_code) == (State.COMPLETED, 0), f"{here}: {row.state} {row.reason}"
    ends = [one.reason for one in attempts(ground.store, job_id)][:-1]
    if own is None or not own.another_attempt:
        # A containerd that is killed while it makes the container never starts it: that takes another attempt.
        assert all(reason.code == NEVER_STARTED for reason in ends), f"{here}: {ends}"
    got = ground.learner(job_id, row.attempt).output.read_bytes()
    whole = printed()
    assert len(got) == len(whole), here
    at = next((at for at, (one, other) in enumerate(zip(got, whole, strict=True)) if one != other), None)
    assert at is None, f"{here}: from byte {at} on it is {got[at : at + 200]!r}"
    starts = ground.home.job(job_id).results / "starts"
    assert starts.exists(), f"{here}: no results: {[one.reason for one in attempts(ground.store, job_id)]}"
    # What earlier attempts made goes on with the next.
    most = row.attempt - sum(reason.code == NEVER_STARTED for reason in ends)
    assert 1 <= len(starts.read_text()) <= most, f"{here}: started {len(starts.read_text())} times"
    for attempt in range(1, row.attempt):
        early = ground.learner(job_id, attempt).output
        assert not early.exists() or whole.startswith(early.read_bytes()), f"{here}: attempt {attempt}"


def until_gone(space: Space, here: str) -> None:
    until(lambda: not left(space), lambda: f"{here}: all to be gone, there is {left(space)}", seconds=90)


def left(space: Space) -> list[str]:
    return [
        f"{kind} {each['metadata']['name']}"
        for kind in ("Job", "Pod", "Service", "Secret", "PersistentVolumeClaim")
        for each in space.admin.list(kind, "fabric.job").items
    ]


class Watcher:
    """Sees whether two pods of one learner run at once, by looking all the time."""

    def __init__(self, space: Space) -> None:
        self.doubled: list[str] = []
        self._space = space
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.2):
            try:
                pods = self._space.admin.list("Pod", "fabric.job").items
            except FabricError:
                continue
            running: dict[str, str] = {}
            for pod in pods:
                if pod["status"].get("phase") != "Running":
                    continue
                labels = pod["metadata"]["labels"]
                learner = f"{labels['fabric.job']} {labels.get('batch.kubernetes.io/job-completion-index')}"
                if other := running.get(learner):
                    self.doubled.append(f"{learner}: {other} and {pod['metadata']['name']}")
                running[learner] = pod["metadata"]["name"]
