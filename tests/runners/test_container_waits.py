"""What is prepared of a container ahead of its turn, and what is not; the engine is one in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchLines, request_of
from runners.container.engine import Engine
from runners.container.image import is_settled
from runners.container.launch import ContainerLaunch
from runners.container.runner import ContainerRunner
from runners.interface import AttemptRef, HostGates, HostWait, Predecessor
from runners.shared.container_defaults import BUILT
from tests.runners.jobs import HOME
from workbench.errors import SlotsBusy
from workbench.learner.platform.engine_client import EngineRefused
from workbench.spec import ImageBuild

BEFORE = Predecessor(
    AttemptRef(HOME, "training-a", 1, 1), may_fail=False, restarts_left=0, platform_restarts_left=0
)
REASON = "waits for a to complete"
DIGEST = "image@sha256:" + "0" * 64


class ImagesEngine(Engine):
    """An engine that has some images, and is asked for nothing else."""

    def __init__(self, host: LocalHost, *names: str) -> None:
        super().__init__(host, "/nowhere")
        self._names = names

    def ask(self, method: str, target: str, body: Any = None, *, seconds: float | None = None) -> Any:
        """Return an image."""
        assert (method, target.partition("/")[0]) == ("GET", "images"), target
        if not target.removeprefix("images/").startswith(self._names or ("-",)):
            raise EngineRefused(404, "No such image")
        return {"Id": "sha256:1"}


@pytest.mark.parametrize(
    ("keys", "there", "expected"),
    [
        pytest.param({}, "image", True, id="there"),
        pytest.param({}, "", False, id="to be pulled"),
        pytest.param({"image_pull": "never"}, "image", True, id="there, and never pulled"),
        pytest.param({"image_pull": "never"}, "", False, id="not there, and never pulled"),
        pytest.param({"image_pull": "always"}, "image", False, id="pulled anew"),
        pytest.param({"image": DIGEST}, "", True, id="pulled by its digest"),
        pytest.param({"build": ImageBuild()}, BUILT, True, id="built before"),
        pytest.param({"build": ImageBuild()}, "image", False, id="to be built"),
        pytest.param({"build": ImageBuild(), "image_pull": "always"}, BUILT, False, id="built anew"),
    ],
)
def test_an_image_is_settled_once_a_launch_would_take_what_is_there(
    host: LocalHost, keys: dict[str, Any], there: str, expected: bool
) -> None:
    request = request_of("true", home=HOME, **{"image": "image", **keys})

    assert is_settled(ImagesEngine(host, *filter(None, [there])), request) is expected


@pytest.mark.parametrize(
    ("lacks_python", "gates", "expected"),
    [
        pytest.param(True, HostGates(begin_us=1), REASON, id="nobody could start it"),
        pytest.param(
            False,
            HostGates(after=(BEFORE,)),
            f"{REASON}; it waits here, not there: the image image is pulled after the jobs before it",
            id="the job before it may make its image",
        ),
    ],
)
def test_what_its_host_cannot_have_yet_is_left_to_the_controller_before_anything_is_prepared(
    host: LocalHost, runner: ContainerRunner, lacks_python: bool, gates: HostGates, expected: str
) -> None:
    request = replace(request_of("true", home=HOME, image="image"), wait=HostWait(REASON, gates))
    lines, site = LaunchLines(), runner._site()
    site = replace(site, python="") if lacks_python else site
    launch = ContainerLaunch(runner.plan(request), host, site, ImagesEngine(host), lines, "test")

    with pytest.raises(SlotsBusy) as raised:
        launch.launch()

    assert raised.value.message == expected
    assert lines.lines == []
    assert not launch._job.results.exists()
