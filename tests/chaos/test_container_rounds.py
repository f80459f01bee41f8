"""The rounds of ``test_rounds`` for jobs in containers: nothing lost, doubled or left over, whoever is killed."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable

import pytest

from tests.chaos.harms import IN_CONTAINERS
from tests.chaos.test_rounds import COUNTER, MANIFEST, check, do_harm, rounds
from tests.support.command import Fabric
from tests.support.images import DEBIAN, ensure_images, why_not
from tests.support.waiting import until
from workbench.paths import Home

IN_THE_GATE = ("guard and scribe", "controller and container")
"""The kinds of harm that the gate does, once each: everybody who is killed alone dies in one of them."""


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_nothing_is_lost_doubled_or_orphaned_in_containers_whoever_is_killed(
    fabric: Fabric,
    home: Home,
    chaos_rounds: int | None,
    note_harm: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    if reason := why_not():
        pytest.skip(reason)
    ensure_images()
    (fabric.folder / "counter.py").write_text(COUNTER)
    (fabric.folder / "manifest.yml").write_text(
        MANIFEST.replace(
            "name: custom, command: python", f"name: custom, version: {DEBIAN}, command: python3"
        )
    )
    done: set[str] = set()
    for seed, name in rounds(chaos_rounds, IN_THE_GATE, tuple(IN_CONTAINERS)):
        note_harm(f"{name} killed, of a job in a container")
        here, harm = f"round {seed}, {name}", IN_CONTAINERS[name]
        identity = do_harm(
            fabric, home, harm, random.Random(seed), "--runner", "container", longest_seconds=3.0
        )
        done.add(name)
        check(home, identity, harm, here)
        until(lambda: not containers_of(identity), f"the containers to go: {here}")  # noqa: B023 - called now
        fabric("delete", identity, "--yes")
        until(lambda: not home.job(identity).path.exists(), f"the folder to go: {here}")  # noqa: B023 - called now

    assert done == set(list(IN_CONTAINERS)[:chaos_rounds] if chaos_rounds else IN_THE_GATE)


def containers_of(job: str) -> str:
    """Return the names of a job's containers, running or not."""
    argv = ["docker", "ps", "-aq", "--filter", f"label=fabric.job={job}"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
