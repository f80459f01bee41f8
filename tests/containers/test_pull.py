"""Images come from registries when they are missing, with the logins of the user's Docker configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runners.conformance.harness import LaunchLines, request_of
from runners.container import pull
from runners.container.pull import Layers
from tests.support.engine import MakeJob, own_home
from tests.support.images import BUSYBOX
from tests.support.ports import free_port
from tests.support.registry import docker_config, registry_of
from workbench.errors import LaunchRefused
from workbench.paths import Home


def test_an_image_is_pulled_with_our_login_counted_in_bytes_and_goes_on_record(
    make_job: MakeJob, home: Home, clean_environment: Path
) -> None:
    subprocess.run(["docker", "tag", BUSYBOX, "fabric-test/pulled"], check=True)
    with registry_of("fabric-test/pulled") as registry:
        job = make_job("echo ran", image=registry.image)
        with pytest.raises(LaunchRefused, match="you have no right to it"):
            job.launch()
        (clean_environment / ".docker").mkdir(exist_ok=True)
        (clean_environment / ".docker" / "config.json").write_text(docker_config(registry))
        job.launch().until_over()
        first = len(registry.asked)
        make_job("true", image=registry.image).launch().until_over()
        again = len(registry.asked)
        make_job("true", image=registry.image, image_pull="always").launch().until_over()
        always = len(registry.asked)
        environment = json.loads(
            (home.job(job.ref().job_id).attempt(1).path / "environment.json").read_text()
        )

    subprocess.run(["docker", "rmi", "fabric-test/pulled"], check=True, capture_output=True)
    assert job.output() == b"ran\n"
    assert any(f"pulls {registry.image}" in text for _, text in job.progress.lines)
    # An image has those of all registries from which it was pulled, at this moment by other tests, too.
    assert any(
        one.startswith(f"{registry.address}/team/image@sha256:") for one in environment["image"]["digests"]
    )
    assert again == first
    assert always > again


def test_a_registry_that_cannot_be_reached_is_tried_again_and_the_job_refused_in_the_end(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "PATIENCE_SECONDS", 3.0)
    monkeypatch.setattr(pull, "FIRST_PAUSE_SECONDS", 0.5)
    job = make_job("true", image=f"127.0.0.1:{free_port()}/team/image")

    with pytest.raises(LaunchRefused, match=r"registry cannot be reached: .*It was tried for") as refused:
        job.launch()

    assert refused.value.code == "S103"
    waits = [text.rpartition("again in ")[2] for _, text in job.progress.lines if "tried again in" in text]
    assert list(dict.fromkeys(waits)) == ["0 s.", "1 s."]


def test_a_registry_that_comes_back_is_pulled_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "FIRST_PAUSE_SECONDS", 0.01)
    request = request_of("true", home=own_home(), image="image")
    answers = iter([pull.not_pulled("image", "dial tcp: connection refused", request), None])

    def try_once() -> None:
        if error := next(answers):
            raise error

    pull.with_patience(try_once, LaunchLines())

    assert next(answers, "both were used") == "both were used"


def test_progress_is_counted_in_bytes_of_all_layers() -> None:
    progress = LaunchLines()
    layers = Layers("image:1", progress)
    layers.update(
        {"id": "a", "status": "Downloading", "progressDetail": {"current": 5_000_000, "total": 10_000_000}}
    )

    assert progress.lines == [("preparing", "pulls image:1: 4.8 MiB of 9.5 MiB")]


def test_the_library_comes_without_its_way_over_ssh_which_takes_half_of_its_time() -> None:
    program = (
        "import sys; from runners.container.pull import docker_library; docker_library();"
        " print('docker' in sys.modules, 'paramiko' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout

    assert output == "True False\n"
