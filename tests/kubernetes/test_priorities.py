"""The PriorityClasses of priorities, without a cluster: what a submit, a probe and ``queue set`` make of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.kubernetes.probe import named_objects
from tests.kubernetes.server import VERSION, Answer, serve, status
from tests.services.stored import now, submitted
from tests.support.command import Fabric
from workbench.controller.runtime.lock import ControllerLock
from workbench.errors import UsageError
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.services.control.requests import QueueChange, change
from workbench.store.db.database import Store
from workbench.store.db.rows import TargetRef
from workbench.store.queries.home_queue import waiting_jobs
from workbench.store.updates.jobs import step

MANIFEST = """\
name: x
backend: lab
runner: pod
priority: 70
framework: {name: custom, version: "python:3.12", command: "true"}
"""
WAITING = "name: x\nframework: {name: custom, command: 'true'}\n"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The way to a cluster that is not there: what needs no answer of it is done, the rest says so."""
    with serve(tmp_path) as server:
        path = server.kubeconfig()
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def configured(settings: str) -> None:
    Path(os.environ["FABRIC_CONFIG"]).write_text(f'[backends.lab]\naddress = "k8s://stub/team"\n{settings}\n')


def test_a_job_with_a_priority_is_valid_where_the_backend_has_classes_for_it(
    fabric: Fabric, kubeconfig: Path
) -> None:
    (fabric.folder / "manifest.yml").write_text(MANIFEST)
    configured("")
    for words in (("validate", "manifest.yml"), ("run", "-d", "manifest.yml")):
        refused = fabric(*words, expect=65)
        assert "its setting priority_classes" in refused.stdout + refused.stderr

    configured('priority_classes = {70 = "high", 90 = "urgent"}')

    assert fabric("validate", "manifest.yml").stderr == ""


def test_a_plan_shows_the_class_of_the_priority(fabric: Fabric, kubeconfig: Path) -> None:
    (fabric.folder / "manifest.yml").write_text(MANIFEST)
    configured('priority_classes = {70 = "high", 90 = "urgent"}')

    planned = fabric("plan", "manifest.yml", "--json").stdout

    assert '"priorityClassName": "high"' in planned
    assert "PriorityClasses, and the backend" not in planned


def test_a_probe_looks_for_the_classes_of_priorities(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        server.says("/version", VERSION)
        server.says(f"{CLASSES}/high", Answer({"kind": "PriorityClass", "metadata": {"name": "high"}}))
        server.says(f"{CLASSES}/urgent", status(404, "NotFound", "none"))
        settings = {"priority_classes": {70: "high", 80: "high", 90: "urgent"}, "priority_class": "high"}

        found = list(named_objects(server.cluster(settings=settings)))

    assert [(each.subject, each.found, each.level) for each in found] == [
        ("priority class", "high", "ok"),
        ("priority class", "there is no PriorityClass urgent", "wrong"),
    ]


@pytest.fixture
def unattended(home: Home) -> Iterator[Home]:
    """A home whose requests nobody answers: a controller would not get its lock."""
    home.path.mkdir(parents=True, exist_ok=True)
    lock = ControllerLock.take(home)
    assert lock is not None
    yield home
    lock.release()


def of_cluster(**options: Any) -> TargetRef:
    return TargetRef("lab", "kubernetes", "pod", "k8s://stub/team", options)


@pytest.mark.parametrize(
    ("options", "priority"), [({}, 50), ({"priority_classes": {"70": "high"}}, 70), ({}, None)]
)
def test_the_priority_of_a_job_that_waits_for_its_pods_is_changed(
    unattended: Home, options: Mapping[str, Any], priority: int | None
) -> None:
    with Store.open(unattended) as store:
        row = submitted(store, WAITING + "begin: '2199-01-01'\n", target=of_cluster(**options))

        assert row.state is State.QUEUED
        change(store, [row], QueueChange(priority, begin=""), origin="test")

        assert [one.stands.priority for one in waiting_jobs(store, asked=True)] == [priority or 50]


def test_a_weight_means_nothing_in_a_cluster_and_is_not_set_there(
    fabric: Fabric, kubeconfig: Path, home: Home
) -> None:
    (fabric.folder / "manifest.yml").write_text(MANIFEST.replace("priority: 70", "weight: 2"))
    configured("")

    assert "weight: a cluster knows none" in fabric("plan", "manifest.yml").stdout
    with Store.open(home) as store:
        row = submitted(store, WAITING + "weight: 2\n", target=of_cluster())
        with pytest.raises(UsageError, match="which knows no weights") as refused:
            change(store, [row], QueueChange(weight=3.0), origin="test")

    assert refused.value.exit_code == 64


def test_a_priority_that_the_launch_would_refuse_cannot_be_set(home: Home) -> None:
    with Store.open(home) as store:
        row = submitted(store, WAITING, target=of_cluster())

        with pytest.raises(UsageError) as refused:
            change(store, [row], QueueChange(70), origin="test")

        assert "does not say which of them priority 70 stands for" in refused.value.message
        assert "priority_classes" in refused.value.hint
        assert [one.stands.priority for one in waiting_jobs(store, asked=True)] == [50]


def test_a_job_whose_pods_are_there_keeps_its_class(home: Home) -> None:
    with Store.open(home) as store:
        target = of_cluster(priority_classes={"70": "high"})
        row = submitted(store, WAITING, target=target)
        step(store, row.id, 1, State.PENDING, Reason("creates its objects in the cluster"))

        with pytest.raises(UsageError, match="does not wait for its turn: it is PENDING") as refused:
            change(store, [now(store, row)], QueueChange(70), origin="test")

        assert "PriorityClass that they were created with" in refused.value.hint
