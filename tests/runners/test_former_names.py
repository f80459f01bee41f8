"""Runners, backends and suites of others that define methods by their former names work as before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from backends.contract.host import Cluster, Host
from backends.interface import Backend, BackendOptions
from backends.local.backend import LocalBackend
from backends.local.host import LocalHost
from runners.conformance.base import ContractBase
from runners.interface import AttemptRef, LaunchRequest, Runner
from runners.process.runner import ProcessRunner
from workbench.errors import BackendUnreachable, PlaceUnreachable
from workbench.paths import Home, JobFolder
from workbench.spec import Framework, JobSpec

HOME = "0b5e8f0e-0000-4000-8000-000000000000"
SPEC = JobSpec(name="j", framework=Framework(command="true"))
ATTEMPT = AttemptRef(HOME, "t" * 16, 1, 1)


class RunnerByFormerNames(ProcessRunner):
    """A runner that was written before the methods were renamed."""

    def __init__(self, place: Host | Cluster, *, home_uuid: str) -> None:
        super().__init__(place, home_uuid=home_uuid)
        self.calls: list[str] = []

    def bring_home(self, attempt: AttemptRef, job: JobFolder) -> None:
        self.calls.append("bring_home")

    def bring_folder(self, folder: str, target: Path) -> None:
        self.calls.append("bring_folder")

    def store_again(self, request: LaunchRequest) -> Sequence[Mapping[str, Any]]:
        self.calls.append("store_again")
        return ()


class Derived(RunnerByFormerNames):
    """A subclass of it that defines nothing."""


class BackendByFormerNames(LocalBackend):
    """A backend that was written before the methods were renamed."""

    def kept_open(self) -> BackendOptions | None:
        return self.options

    def get_to_know(self, opened: Host | Cluster) -> None:
        raise LookupError


@pytest.mark.parametrize("kind", [RunnerByFormerNames, Derived])
def test_a_runner_that_defines_the_former_names_is_called_by_the_current_ones(
    kind: type[RunnerByFormerNames], home: Home, tmp_path: Path
) -> None:
    runner = kind(LocalHost(home), home_uuid=HOME)
    called: Runner = runner

    called.download(ATTEMPT, home.job(ATTEMPT.job_id))
    called.download_folder("/data", tmp_path)
    called.retry_upload(LaunchRequest(ATTEMPT, SPEC, "me@here", "", ""))

    assert runner.calls == ["bring_home", "bring_folder", "store_again"]
    assert runner.place is runner.connection


@pytest.mark.parametrize(
    ("former", "current"),
    [("bring_home", "download"), ("bring_folder", "download_folder"), ("store_again", "retry_upload")],
)
def test_a_runner_of_ours_is_called_by_either_name(former: str, current: str) -> None:
    for kind in (Runner, ProcessRunner):
        assert getattr(kind, former) is getattr(kind, current)
    assert getattr(ProcessRunner, former) is not getattr(Runner, former)


def test_a_backend_that_defines_the_former_names_is_called_by_the_current_ones(home: Home) -> None:
    options = BackendOptions("mine", "mine")
    backend: Backend = BackendByFormerNames(options)

    assert backend.session_options() is options
    with pytest.raises(LookupError):
        backend.discover(LocalHost(home))


def test_the_error_has_its_former_name() -> None:
    assert PlaceUnreachable is BackendUnreachable


class TestSuiteByFormerNames(ContractBase):
    """A suite that overrides the fixture by its former name."""

    runner_class = ProcessRunner

    @pytest.fixture
    def place(self, home: Home) -> Iterator[Host]:
        host = LocalHost(home)
        yield host
        host.close()

    def test_the_runner_gets_what_the_fixture_place_yields(self, runner: Runner, place: Host) -> None:
        assert runner.connection is place
