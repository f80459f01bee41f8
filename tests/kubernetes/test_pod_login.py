"""A pod's image is pulled with the job's own login to its registry, by a Secret that goes with the attempt."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.jobs import IN_CLUSTER_SECONDS, Pods, configure
from tests.support.cluster import Space
from tests.support.cluster_health import SCRIPT
from tests.support.command import Fabric
from tests.support.pod_images import BUSYBOX, archive
from tests.support.registry import PASSWORD, USER, Registry, registry_of_archive
from tests.support.waiting import until

WHY_NOT = "the cluster's node is another machine, and reaches no registry here"

pytestmark = pytest.mark.skipif(not SCRIPT, reason=WHY_NOT)


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry with an image that the node does not have; it has the layers."""
    with registry_of_archive(archive(), BUSYBOX) as served:
        yield served


@pytest.fixture
def pods(fabric: Fabric, space: Space) -> Pods:
    configure(space)
    return Pods(fabric, space)


def write(pods: Pods, registry: Registry, command: str, password: str = PASSWORD) -> Path:
    """Write the manifest of a job with a login of its own."""
    location = {"username": USER, "password": password}
    framework = {"name": "custom", "version": registry.image, "command": command, "image_location": location}
    manifest = pods.fabric.folder / "manifest.yml"
    manifest.write_text(json.dumps({"name": "x", "framework": framework, "image_pull": "always"}))
    return manifest


def logins(pods: Pods) -> list[dict[str, Any]]:
    """Return the Secrets that nodes pull with."""
    found = pods.space.admin.list("Secret", "app.kubernetes.io/managed-by=fabric").items
    return [dict(one) for one in found if one.get("type") == "kubernetes.io/dockerconfigjson"]


def test_an_image_is_pulled_with_the_login_of_the_job_which_is_gone_after_its_end(
    pods: Pods, registry: Registry
) -> None:
    manifest = write(pods, registry, "echo ready; until [ -e $RESULT_DIR/end ]; do sleep 0.1; done; env")
    job = str(
        pods.fabric("run", "-d", "--accept-loss", "--backend", "cluster", str(manifest)).stdout
    ).split()[-1]
    pods.until_printed(job, "ready")

    (secret,) = logins(pods)
    (pod,) = pods.pods()
    (owner,) = secret["metadata"]["ownerReferences"]
    assert secret["metadata"]["labels"]["fabric.job"] == job
    assert (owner["kind"], owner["name"]) == ("Job", pod["metadata"]["ownerReferences"][0]["name"])
    assert pod["spec"]["imagePullSecrets"] == [{"name": secret["metadata"]["name"]}]
    content = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))
    assert content == {"auths": {registry.address: {"username": USER, "password": PASSWORD}}}
    others = [
        one for one in pods.space.admin.list("Secret", f"fabric.job={job}").items if one["type"] == "Opaque"
    ]
    assert PASSWORD not in json.dumps(pod)
    for one in others:
        assert not any(PASSWORD.encode() in base64.b64decode(text) for text in one["data"].values())

    pods.fabric("exec", job, "--", "sh", "-c", "touch $RESULT_DIR/end")
    assert pods.wait(job)["state"] == "COMPLETED"
    assert PASSWORD not in pods.printed(job)
    until(lambda: logins(pods) == [], "its login to be gone", every=IN_CLUSTER_SECONDS)
    pods.fabric("delete", job, "--yes")
    until(lambda: pods.objects() == [], "all of it to be gone", every=IN_CLUSTER_SECONDS)


def test_a_job_that_is_killed_leaves_no_login(pods: Pods, registry: Registry) -> None:
    manifest = write(pods, registry, "echo ready; sleep 600")
    job = str(
        pods.fabric("run", "-d", "--accept-loss", "--backend", "cluster", str(manifest)).stdout
    ).split()[-1]
    pods.until_printed(job, "ready")
    assert logins(pods)

    pods.fabric("kill", job)

    pods.until_state(job, "HALTED")
    until(lambda: logins(pods) == [], "its login to be gone", every=IN_CLUSTER_SECONDS)


def test_a_wrong_password_ends_the_job_with_a_hint_at_its_key_and_leaves_nothing(
    pods: Pods, registry: Registry
) -> None:
    manifest = write(pods, registry, "true", "another password")

    ran = pods.fabric("run", "--accept-loss", "--backend", "cluster", str(manifest), expect=75)

    shown = pods.show()
    assert (shown["state"], shown["reason_code"]) == ("FAILED", "S103")
    assert "framework.image_location" in ran.stderr
    assert "another password" not in f"{ran.stderr}{json.dumps(shown)}"
    until(lambda: logins(pods) == [] and not pods.pods(), "all of it to be gone", every=IN_CLUSTER_SECONDS)
