"""``fabric prune`` and the images that were built of jobs' code, on an engine of the test's own."""

from __future__ import annotations

import pytest

from tests.containers.own_engine import own_engine, why_not
from tests.support.command import Fabric
from tests.support.images import BUSYBOX
from tests.support.waiting import until
from workbench.paths import Home

MANIFEST = """\
name: built
build: Dockerfile
framework: {name: custom, command: "cat /answer; while [ ! -e end ]; do sleep 0.05; done"}
"""


def test_built_images_are_pruned_once_no_job_may_need_them(
    fabric: Fabric, home: Home, engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    (fabric.folder / "Dockerfile").write_text(f"FROM {BUSYBOX}\nRUN echo 42 > /answer\n")
    (fabric.folder / "manifest.yml").write_text(MANIFEST)
    with own_engine(9) as engine_here:
        monkeypatch.setenv("DOCKER_HOST", engine_here.address)
        engine_here.docker("tag", BUSYBOX, "somebody/else:1")
        (job,) = fabric("run", "manifest.yml", "-d", "-q", "--runner", "container").stdout.split()
        until(lambda: "42" in printed(home, job), "the job to run in its image")
        while_it_runs = fabric.json("prune", "--caches", "--dry-run", "--json")
        (home.job(job).attempt(1).model(1) / "end").touch()
        fabric("wait", job)
        shown = fabric.json("prune", "--caches", "--dry-run", "--json")
        before = images(engine_here.docker("images", "--format", "{{.Repository}}:{{.Tag}}"))
        removed = fabric.json("prune", "--caches", "--yes", "--json")
        after = images(engine_here.docker("images", "--format", "{{.Repository}}:{{.Tag}}"))
        (again,) = fabric("run", "manifest.yml", "-d", "-q", "--runner", "container").stdout.split()
        until(lambda: "42" in printed(home, again), "the image to be built again")
        (home.job(again).attempt(1).model(1) / "end").touch()
        ended = fabric("wait", again).returncode

    built = {name for name in before if name.startswith("fabric-build:")}
    assert len(built) == 1
    assert kinds(while_it_runs) == set()
    assert kinds(shown) == kinds(removed) == {("image", name) for name in built}
    assert after == before - built
    assert "somebody/else:1" in after
    assert ended == 0


def printed(home: Home, job: str) -> str:
    output = home.job(job).attempt(1).learner(1).output
    return output.read_text() if output.exists() else ""


def images(listed: str) -> set[str]:
    return {line for line in listed.split() if "<none>" not in line}


def kinds(document: dict[str, list[dict[str, str]]]) -> set[tuple[str, str]]:
    return {(each["kind"], each["name"]) for each in document["caches"] if each["kind"] == "image"}
