"""Which limits an engine raises is found out rightly whoever is killed meanwhile, and what an image sets is kept.

The engine is one in memory.
"""

from __future__ import annotations

from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchLines, request_of
from runners.container.engine import Engine
from runners.container.fill_plan import PlanValues
from runners.container.launch import ContainerLaunch
from runners.container.limits import Limits
from runners.container.requirements import ImageEnvironment
from runners.container.runner import ContainerRunner
from runners.interface import LaunchPlan
from runners.shared.agents import PythonAgent
from tests.runners.jobs import HOME
from workbench.learner.platform.engine_client import EngineRefused

REFUSAL = "runc create failed: error setting rlimit type 8: operation not permitted"
MOST_CHANGES = 9
"""More requests than a launch makes."""


class Killed(BaseException):
    """Who launches is killed."""


class MemoryEngine(Engine):
    """An engine that may raise the stack but not the locked memory."""

    def __init__(self, host: LocalHost) -> None:
        super().__init__(host, "/nowhere")
        self.containers_here: dict[str, dict[str, Any]] = {}
        self.requests_left = MOST_CHANGES
        """After so many changes the one who asks is killed; the change is made."""

    def ask(self, method: str, target: str, body: Any = None, *, seconds: float | None = None) -> Any:
        """Do as an engine does."""
        if method == "GET":
            return {"ID": "engine"} if target == "info" else self._container(target)
        try:
            return self._change(method, target, body)
        finally:
            self.requests_left -= 1
            if not self.requests_left:
                raise Killed

    def _container(self, target: str) -> dict[str, Any]:
        try:
            return self.containers_here[target.split("/")[1].partition("?")[0]]
        except KeyError:
            raise EngineRefused(404, "No such container") from None

    def _change(self, method: str, target: str, body: Any) -> None:
        if target.startswith("containers/create?name="):
            name = target.partition("=")[2]
            if name in self.containers_here:
                raise EngineRefused(409, "Conflict")
            self.containers_here[name] = {"Config": body, "State": {"Status": "created"}}
        elif method == "DELETE":
            self._container(target)
            del self.containers_here[target.split("/")[1].partition("?")[0]]
        else:
            assert target.endswith("/start"), target
            found = self._container(target)
            if "memlock" in limits_of(found):
                raise EngineRefused(500, REFUSAL)
            found["State"]["Status"] = "running"


def limits_of(container: dict[str, Any]) -> list[str]:
    return [limit["Name"] for limit in container["Config"]["HostConfig"]["Ulimits"]]


def create(host: LocalHost, runner: ContainerRunner, engine: MemoryEngine, plan: LaunchPlan) -> None:
    """Create the container of a plan, as a launch does between the code and the agent."""
    launch = ContainerLaunch(plan, host, runner._site(), engine, LaunchLines(), "test")
    values = PlanValues(engine, PythonAgent("/nowhere/agent.pyz", "/nowhere/agent", "python3"), {}, None)
    launch._create(1, values, (), "")


@pytest.mark.parametrize("survived", range(1, MOST_CHANGES))
def test_a_trial_that_is_cut_off_leaves_no_wrong_finding(
    host: LocalHost, runner: ContainerRunner, survived: int
) -> None:
    engine = MemoryEngine(host)
    first, second = (runner.plan(request_of("true", home=HOME, image="image")) for _ in range(2))
    engine.requests_left = survived
    try:
        create(host, runner, engine, first)
    except Killed:
        engine.requests_left = -1
        create(host, runner, engine, first)

    create(host, runner, engine, second)

    assert Limits(host, runner._site(), engine).known() == ("stack",)
    assert [limits_of(container) for container in engine.containers_here.values()] == [["stack"]] * 2


@pytest.mark.parametrize("survived", range(1, MOST_CHANGES))
def test_a_container_of_a_trial_that_was_cut_off_has_the_limits_that_another_launch_found_out(
    host: LocalHost, runner: ContainerRunner, survived: int
) -> None:
    engine = MemoryEngine(host)
    first, second = (runner.plan(request_of("true", home=HOME, image="image")) for _ in range(2))
    engine.requests_left = survived
    try:
        create(host, runner, engine, first)
    except Killed:
        engine.requests_left = -1

    for plan in (second, first):
        create(host, runner, engine, plan)

    assert [limits_of(container) for container in engine.containers_here.values()] == [["stack"]] * 2


def test_before_a_job_is_given_to_its_host_the_limits_are_found_by_a_container_without_it(
    host: LocalHost, runner: ContainerRunner
) -> None:
    engine = MemoryEngine(host)
    limits = Limits(host, runner._site(), engine)

    assert limits.find("image") == ("stack",)

    (tried,) = engine.containers_here.values()
    assert tried["Config"]["Entrypoint"] == ["sh", "-c", "exit 0"]
    assert "Mounts" not in tried["Config"]["HostConfig"]
    assert limits.known() == ("stack",)
    assert limits.find("image") == ("stack",)
    assert len(engine.containers_here) == 1


def test_a_container_that_a_trial_left_which_was_cut_off_is_replaced(
    host: LocalHost, runner: ContainerRunner
) -> None:
    engine = MemoryEngine(host)
    limits = Limits(host, runner._site(), engine)
    engine.requests_left = 1
    with pytest.raises(Killed):
        limits.find("image")

    engine.requests_left = -1
    assert limits.find("image") == ("stack",)

    assert len(engine.containers_here) == 1


def test_limits_stay_unknown_where_no_container_of_the_image_starts(
    host: LocalHost, runner: ContainerRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = MemoryEngine(host)
    change = engine._change

    def refuse(method: str, target: str, body: Any) -> None:
        if target.endswith("/start"):
            raise EngineRefused(400, 'exec: "sh": executable file not found in $PATH')
        change(method, target, body)

    monkeypatch.setattr(engine, "_change", refuse)
    engine.requests_left = -1
    limits = Limits(host, runner._site(), engine)

    assert limits.find("image") is None

    assert limits.known() is None
    assert engine.containers_here == {}


@pytest.mark.parametrize(("environment", "behind"), [(None, ":/app"), (ImageEnvironment("key", "/env"), "")])
def test_the_paths_of_an_image_do_not_come_before_an_environment_of_requirements(
    host: LocalHost, runner: ContainerRunner, environment: ImageEnvironment | None, behind: str
) -> None:
    planned = runner.plan(request_of("true", home=HOME, image="image")).learners[0].native["container"]
    agent = PythonAgent("/nowhere/agent.pyz", "/nowhere/agent", "python3")
    image = {"Config": {"Env": ["PYTHONPATH=/app"]}}

    document = PlanValues(MemoryEngine(host), agent, image, environment).prepared(planned, ())

    assert f"PYTHONPATH=/job/model-code:/.fabric/agent.pyz{behind}" in document["Env"]
