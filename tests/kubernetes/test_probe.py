"""What a probe finds out about a cluster: rights, quota, limits, storage, nodes and GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.contract.host import Finding
from backends.kubernetes.rbac import all_rights, missing_rights
from tests.kubernetes.pods import start_pod
from tests.support.cluster import Space, write_kubeconfig
from tests.support.cluster_health import KUBECONFIG, administrator
from tests.support.command import Fabric
from tests.support.pod_images import BUSYBOX
from tests.support.waiting import until


def found(space: Space, subject: str, **options: Any) -> list[Finding]:
    return [each for each in space.backend(**options).probe() if each.subject == subject]


def test_a_user_with_the_documented_role_lacks_nothing_that_jobs_need(space: Space) -> None:
    findings = list(space.backend().probe())

    assert [each.found for each in findings if each.subject == "rights"] == ["all that jobs need"]
    assert not [each for each in findings if each.level == "wrong"]
    assert f"as {space.user}" in findings[0].found


def test_the_printed_role_is_what_an_administrator_applies(fabric: Fabric, space: Space) -> None:
    printed = fabric("backend", "role", space.address, KUBECONFIG=str(space.kubeconfig)).stdout

    role, binding = yaml.safe_load_all(printed)
    assert binding["subjects"][0]["name"] in (space.user, space.user.rpartition(":")[2])
    assert role["rules"] == (space.admin.read("Role", "fabric") or {})["rules"]


@pytest.mark.parametrize("right", [right.resource for right in all_rights()[:-2]])
def test_each_missing_right_is_found_with_what_follows_and_what_to_ask_for(space: Space, right: str) -> None:
    space.take_rights(right)
    until(lambda: missing_rights(space.cluster()), "the right to be gone")

    lacks = found(space, "rights")

    assert {each.found.rpartition(" ")[2] for each in lacks} == {right}
    assert all(each.consequence for each in lacks)
    assert f"resources: [{right}]" in lacks[0].remedy
    assert f"fabric backend role {space.address}" in lacks[0].remedy


def test_a_cluster_whose_rights_are_missing_is_unusable(fabric: Fabric, space: Space) -> None:
    space.take_rights("jobs", verbs=("create",))
    until(lambda: missing_rights(space.cluster()), "the right to be gone")
    config = str(space.kubeconfig)

    tried = fabric("backend", "test", space.address, KUBECONFIG=config, expect=77)

    assert "cannot be used" in tried.stdout and "you may not create jobs" in tried.stdout


def test_a_quota_and_limits_are_reported(space: Space) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    space.admin.create({**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "0", "pods": "9"}}})
    limit = {"type": "Container", "max": {"cpu": "2"}, "default": {"memory": "1Gi"}}
    document = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}}
    space.admin.create({**document, "spec": {"limits": [limit]}})
    until(lambda: found(space, "quota"), "the quota to be counted")

    (finding,) = found(space, "quota")
    assert finding.level == "lack" and "0 of 9 pods" in finding.found
    assert "wait until there is room again for requests.nvidia.com/gpu" in finding.consequence
    (limits,) = found(space, "limits")
    assert "at most 2 cpu" in limits.found and "else" in limits.found


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("claim", "PersistentVolumeClaim"),
        ("queue", "LocalQueue"),
        ("image_pull_secrets", "Secret"),
        ("volumes", "PersistentVolumeClaim"),
    ],
)
def test_an_object_that_is_named_and_not_there_is_found(space: Space, option: str, kind: str) -> None:
    value = "nix:/data" if option == "volumes" else "nix"

    findings = [each for each in space.backend(**{option: value}).probe() if "nix" in each.found]

    assert len(findings) == 1
    if kind == "LocalQueue":  # the test cluster has no Kueue, and a user no right to see that
        assert findings[0].level in ("lack", "wrong")
    elif kind == "Secret":
        assert (findings[0].level, "may not get secrets" in findings[0].found) == ("ok", True)
    else:
        assert findings[0].level == "wrong"
        assert f"there is no {kind} nix in {space.namespace}" in findings[0].found


def test_a_claim_for_one_node_is_reported(space: Space) -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    space.admin.create({**claim, "spec": spec})

    (finding,) = found(space, "claim", claim="mine")

    assert (
        finding.level == "lack" and "ReadWriteOnce" in finding.found and "cannot share" in finding.consequence
    )


def test_a_user_who_may_not_list_nodes_is_warned(fabric: Fabric, space: Space) -> None:
    (finding,) = found(space, "nodes")
    assert "may not list the nodes" in finding.found

    ran = fabric("gpus", "-b", space.address, KUBECONFIG=str(space.kubeconfig))
    assert ran.stdout == "" and "may not list the nodes" in ran.stderr


def test_nodes_and_who_holds_their_gpus_are_shown_to_who_may_list_them(fabric: Fabric, space: Space) -> None:
    admin = administrator(space.namespace)
    if not any(
        "nvidia.com/gpu" in (node["status"].get("allocatable") or {}) for node in admin.list("Node").items
    ):
        pytest.skip("no node of the cluster has GPUs, pretended or real")
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "600"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    for name, labels in (("ours", {"fabric.job": "training-abcdefghj"}), ("theirs", {})):
        admin.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            }
        )

    def gpus() -> dict[str, dict[str, Any]]:
        document = fabric.json("gpus", "-b", "k8s", "--json", KUBECONFIG=KUBECONFIG)[0]
        slots = [slot for node in document["nodes"] for slot in node["slots"]]
        return {slot["holder"] or slot["foreign"]: slot for slot in slots}

    ours, theirs = f"{space.namespace}/ours", f"pod {space.namespace}/theirs"
    until(lambda: {ours, theirs} <= set(gpus()), "both pods to hold a GPU")
    taken = gpus()
    assert taken[ours]["holder_job"] == "training-abcdefghj" and not taken[ours]["free"]
    assert taken[theirs]["foreign"] and not taken[theirs]["free"]
    findings = [each for each in space_probe(KUBECONFIG) if each.subject == "gpu"]
    assert "nvidia.com/gpu" in findings[0].found and "free" in findings[0].found
    admin.close()


def space_probe(kubeconfig: str) -> list[Finding]:
    from backends.contract.host import BackendOptions
    from backends.kubernetes.backend import KubernetesBackend

    return list(KubernetesBackend(BackendOptions("x", "kubernetes", "", {"kubeconfig": kubeconfig})).probe())


def test_a_cluster_is_added_with_what_was_found_there(
    fabric: Fabric, space: Space, clean_environment: Path
) -> None:
    config = str(space.kubeconfig)

    added = fabric("backend", "add", "lab", space.address, "-o", "gang_seconds=30", KUBECONFIG=config)

    assert "all that jobs need" in added.stdout
    assert 'gang_seconds = "30"' in (clean_environment / "config.toml").read_text()
    assert fabric("backend", "test", "lab", KUBECONFIG=config).stdout.startswith("lab: usable")


@pytest.mark.parametrize(
    ("user", "code", "words"),
    [({"token": "no-such-token"}, 77, "does not accept your credentials"), ({}, 77, "cannot be used")],
)
def test_credentials_that_are_wrong_or_missing_are_reported(
    fabric: Fabric, space: Space, tmp_path: Path, user: dict[str, Any], code: int, words: str
) -> None:
    config = write_kubeconfig(tmp_path / "wrong", space.namespace, user)

    ran = fabric("backend", "test", "k8s", KUBECONFIG=str(config), expect=code)

    assert words in ran.stdout


def test_a_certificate_that_nobody_vouches_for_is_reported(
    fabric: Fabric, space: Space, tmp_path: Path
) -> None:
    config = write_kubeconfig(
        tmp_path / "untrusted", space.namespace, {"token": "x"}, certificate_authority_data=None
    )

    ran = fabric("gpus", "-b", "k8s", KUBECONFIG=str(config), expect=77)

    assert "is not trusted" in ran.stderr and "certificate-authority" in ran.stderr


def test_a_certificate_that_is_not_checked_is_reported(space: Space) -> None:
    config = yaml.safe_load(space.kubeconfig.read_text())
    entry = config["clusters"][0]["cluster"]
    entry["insecure-skip-tls-verify"] = True
    entry.pop("certificate-authority", None)
    entry.pop("certificate-authority-data", None)
    space.kubeconfig.write_text(yaml.safe_dump(config))

    (finding,) = found(space, "certificate")

    assert finding.level == "lack" and "not checked" in finding.found
    start_pod(space.admin, "waits", "sleep 600")
    assert space.cluster().exec("waits", "main", ["sh", "-c", "exit 5"]).wait() == 5


def test_a_namespace_that_is_not_there_is_found_where_namespaces_may_be_seen(
    fabric: Fabric, space: Space
) -> None:
    ran = fabric("backend", "test", "k8s", "--namespace", "nowhere-at-all", KUBECONFIG=KUBECONFIG, expect=69)

    assert "there is no namespace nowhere-at-all" in ran.stdout


def test_the_doctor_says_whether_configured_clusters_answer(
    fabric: Fabric, space: Space, clean_environment: Path
) -> None:
    (clean_environment / "config.toml").write_text(
        f'[backends.lab]\naddress = "{space.address}"\n[backends.gone]\naddress = "k8s://gone/x"\n'
    )

    output = fabric("doctor", KUBECONFIG=str(space.kubeconfig), expect=None).stdout

    assert f"{space.address} at https://" in output
    assert "There is no context 'gone'" in output
