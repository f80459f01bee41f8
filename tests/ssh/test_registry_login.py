"""The engine of a host gets a job's login to the registry of its image, by the connection; nobody else there does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_canary import files_with, looking
from tests.ssh.seen import printed, row
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.engine import containers_of
from tests.support.images import BUSYBOX
from tests.support.registry import USER, Registry, auth_of, registry_of
from tests.support.sshd import processes_of
from tests.support.waiting import until
from workbench.learner.scribe.masking import Mask
from workbench.paths import Home

LOGIN = "canary+login/7f3 hush"
CANARIES = Mask([LOGIN, auth_of(USER, LOGIN)])
EXPERIMENT = """\
name: canary
entrypoint: env; echo ready; until [ -e $RESULT_DIR/end ]; do sleep 0.1; done
searcher: {{name: single, metric: loss}}
resources: {{slots_per_trial: 0}}
max_restarts: 0
environment:
  image: {image}
  registry_auth: {{username: {user}, password: "{login}"}}
"""


@pytest.fixture
def registry(engine_box: Box) -> Iterator[Registry]:
    """A registry with an image that the host's engine does not have yet."""
    with registry_of(BUSYBOX, password=LOGIN) as served:
        yield served


@pytest.fixture
def manifest(fabric: Fabric, registry: Registry, engine_box: Box) -> Path:
    """The file of an experiment with the login, for a backend that is called ``box``."""
    fabric("backend", "add", "box", engine_box.address)
    file = fabric.folder / "experiment.yaml"
    file.write_text(EXPERIMENT.format(image=registry.image, user=USER, login=LOGIN))
    return file


def kept_there(box: Box) -> list[Path]:
    """Return the files of the host's user, on its disk and in its memory, that have the login."""
    shared = [path for path in Path("/dev/shm").glob("fabric-*") if path.owner() == box.user.name]
    return files_with(CANARIES, box.user.home, *shared)


def shown_by_processes(box: Box) -> list[int]:
    """Return the processes there that have the login in their words or variables."""

    def texts(pid: int) -> bytes:
        try:
            return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
        except OSError:  # it has just ended
            return b""

    return [pid for pid in processes_of(box.user) if CANARIES.spans(texts(pid))]


def test_the_engine_of_a_host_pulls_with_the_login_of_the_job_which_stays_nowhere_there(
    fabric: Fabric, home: Home, engine_box: Box, registry: Registry, manifest: Path, clean_environment: Path
) -> None:
    with looking(CANARIES) as shown:
        job = fabric("run", "-d", "-q", "--accept-loss", "--backend", "box", "experiment.yaml").stdout.strip()
        until(lambda: "ready" in printed(home, job), lambda: str(row(home, job)))

        assert any("/manifests/" in one for one in registry.asked)
        assert list(engine_box.user.home.glob(f".fabric/*/*/jobs/{job}/attempt-1"))
        assert kept_there(engine_box) == []
        assert shown_by_processes(engine_box) == []
        (container,) = containers_of(job)
        inspected = subprocess.run(["docker", "inspect", container], check=True, capture_output=True).stdout
        assert CANARIES.spans(inspected) == []
        # It ends its own container: the engine may have forgotten the command before it is asked how that ended.
        fabric("exec", job, "--", "sh", "-c", "touch $RESULT_DIR/end", expect=None)
        fabric("wait", job)

    assert shown == []
    assert CANARIES.spans(fabric("logs", job).stdout.encode()) == []
    assert kept_there(engine_box) == []
    assert set(files_with(CANARIES, clean_environment)) == {manifest, home.secrets / f"{job}.json"}


def test_an_engine_of_a_host_that_is_given_a_wrong_login_ends_the_job_with_a_hint_at_its_key(
    fabric: Fabric, engine_box: Box, registry: Registry, manifest: Path
) -> None:
    manifest.write_text(manifest.read_text().replace(LOGIN, "another password"))

    ran = fabric("run", "--backend", "box", "experiment.yaml", expect=75)

    shown = fabric.json("show", "@last", "--json")
    assert (shown["state"], shown["reason_code"]) == ("FAILED", "S103")
    assert "environment.registry_auth of an experiment" in ran.stderr
    assert "another password" not in ran.stderr
    assert registry.asked == []


@pytest.mark.soak("a build; the gate pulls with a login here, and builds with one on this machine")
def test_a_base_image_is_pulled_by_the_engine_of_a_host_with_the_login_that_the_job_has_for_its_registry(
    fabric: Fabric, engine_box: Box, registry: Registry, manifest: Path
) -> None:
    manifest.unlink()  # the code is sent
    (fabric.folder / "Dockerfile").write_text(f"FROM {registry.image}\nRUN echo built > /made\n")
    location = {"registry": registry.address, "username": USER, "password": LOGIN}
    framework = {"name": "custom", "command": "cat /made", "image_location": location}
    document = {"name": "built", "framework": framework, "build": "Dockerfile"}
    manifest.with_name("manifest.yml").write_text(json.dumps(document))

    with looking(CANARIES) as shown:
        ran = fabric("run", "-q", "--backend", "box", "manifest.yml")

    assert ran.stdout == "built\n"
    assert shown == []
    assert kept_there(engine_box) == []
