"""Engines that take other versions of their API than the oldest that fabric asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.containers.newer_engine import newer_engine
from tests.support.command import Fabric
from tests.support.images import BUSYBOX
from tests.support.registry import registry_of
from tests.support.waiting import until
from workbench.paths import Home


@pytest.fixture(autouse=True)
def _engine(engine: None) -> None:
    """The machine's engine has the image."""


def test_an_engine_that_takes_new_versions_only_runs_jobs_and_gives_files_and_commands(
    fabric: Fabric, home: Home
) -> None:
    with newer_engine() as engine:
        command = "cat /proc/1/cmdline; echo ready; while [ ! -e go ]; do sleep 0.1; done; echo over > $RESULT_DIR/end"
        asked = ("run", "-d", "--image", BUSYBOX, "--", "sh", "-c", command)
        job = fabric(*asked, DOCKER_HOST=engine.address).stdout.strip()
        output = home.job(job).attempt(1).learner(1).output
        until(lambda: output.exists() and "ready" in output.read_text(), "the command to run")

        assert "inside.sh" in fabric("logs", job).stdout
        assert (
            fabric("exec", job, "--", "echo", "in there", DOCKER_HOST=engine.address).stdout == "in there\n"
        )
        Path(fabric.folder / "go").touch()
        fabric("cp", "go", f"{job}:code/go", DOCKER_HOST=engine.address)
        fabric("wait", job, DOCKER_HOST=engine.address)
        assert fabric("cp", f"{job}:results/end", "-", DOCKER_HOST=engine.address).stdout == "over\n"
        assert engine.address in fabric("backend", "test", "local", DOCKER_HOST=engine.address).stdout


def test_an_engine_that_takes_new_versions_only_is_asked_to_pull(fabric: Fabric) -> None:
    with registry_of(BUSYBOX) as registry, newer_engine() as engine:
        asked = ("run", "--image", registry.image, "--", "true")
        refused = fabric(*asked, expect=None, DOCKER_HOST=engine.address)

    assert refused.returncode != 0
    assert "you have no right to it" in refused.stderr


def test_an_engine_that_is_replaced_by_a_newer_one_is_asked_in_its_version(fabric: Fabric) -> None:
    with newer_engine() as engine:
        engine.is_new = False
        asked = ("run", "--image", BUSYBOX, "--", "cat", "/proc/1/cmdline")
        assert "inside.sh" in fabric(*asked, DOCKER_HOST=engine.address).stdout
        engine.is_new = True

        assert "inside.sh" in fabric(*asked, DOCKER_HOST=engine.address).stdout
        assert engine.refused > 0, "no one remembered a version: the test shows nothing"
