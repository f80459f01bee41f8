"""What a job still does as a user who lacks one of the rights that jobs can do without."""

from __future__ import annotations

import pytest

from backends.kubernetes.probe import missing_rights
from backends.kubernetes.rbac import all_rights
from tests.cli.conftest import Fabric, wait_until
from tests.kubernetes.images import DEBIAN
from tests.kubernetes.space import Space

OPTIONAL = tuple(right.resource for right in all_rights() if not right.needed and right.resource != "pods")


@pytest.mark.parametrize("rights", [("pods/exec",), OPTIONAL], ids=["pods/exec", "all of them"])
def test_a_job_runs_and_leaves_nothing_without_rights_that_it_can_do_without(
    fabric: Fabric, space: Space, monkeypatch: pytest.MonkeyPatch, rights: tuple[str, ...]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(space.kubeconfig))
    space.take_rights(*rights)
    wait_until(
        lambda: {each.resource for each in missing_rights(space.cluster())} >= set(rights), "them to be gone"
    )

    ran = fabric("run", "-b", "k8s", "--image", DEBIAN, "--", "sh", "-c", "echo here; exit 3", expect=3)

    assert ran.stdout == "here\n"
    fabric("delete", "--yes", "@last")
    wait_until(lambda: not left(space), "all objects to be gone", seconds=60)


def left(space: Space) -> list[str]:
    return [
        f"{kind} {each['metadata']['name']}"
        for kind in ("Job", "Pod", "Service", "Secret", "PersistentVolumeClaim")
        for each in space.admin.list(kind).items
    ]


@pytest.mark.parametrize("right", ["jobs", "secrets"])
def test_a_job_that_lacks_a_right_is_refused_with_the_role_and_leaves_nothing(
    fabric: Fabric, space: Space, monkeypatch: pytest.MonkeyPatch, right: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(space.kubeconfig))
    space.take_rights(right, verbs=("create",))
    wait_until(lambda: missing_rights(space.cluster()), "the right to be gone")

    ran = fabric("run", "-b", "k8s", "--image", DEBIAN, "--", "true", expect=None)

    assert ran.returncode != 0
    assert f"may not create {right} in the namespace {space.namespace}" in ran.stderr
    assert f"fabric backend role {space.address}" in ran.stderr
    wait_until(lambda: not left(space), "all objects to be gone", seconds=60)
