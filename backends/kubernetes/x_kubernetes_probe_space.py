"""What a namespace allows: its Pod Security level, its quota, its limit ranges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from backends.contract.host import Finding
from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.x_kubernetes_quantity import quantity
from workbench.errors import FabricError

POLICY_LABEL: Final = "pod-security.kubernetes.io/enforce"


def policy(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Say which Pod Security level is enforced, where the namespace may be read."""
    try:
        namespace = cluster.read("Namespace", cluster.namespace) or {}
    except FabricError:
        return  # few may read it; a refusal at launch names the policy
    level = (namespace.get("metadata", {}).get("labels") or {}).get(POLICY_LABEL)
    if not level:
        return
    run_as = cluster.options["run_as"]
    if level == "restricted" and run_as == "image":
        yield Finding(
            "pod security",
            f"{level}, and run_as is image",
            "lack",
            "images that run as root are refused there",
            "fabric backend add ... -o run_as=restricted",
        )
    else:
        yield Finding("pod security", f"{level}; pods run as run_as = {run_as}")


def quotas(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Say what the namespace may use and does use."""
    if not cluster.may("list", "resourcequotas"):
        return
    for quota in cluster.list("ResourceQuota").items:
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        if not hard:
            continue
        name = quota["metadata"]["name"]
        full = [key for key, most in hard.items() if quantity(used.get(key, 0)) >= quantity(most)]
        text = ", ".join(f"{used.get(key, '0')} of {most} {key}" for key, most in sorted(hard.items()))
        if full:
            yield Finding(
                "quota",
                f"{name}: {text}",
                "lack",
                f"jobs wait until there is room again for {', '.join(sorted(full))}",
                "ask for a larger ResourceQuota, or end what is not needed",
            )
        else:
            yield Finding("quota", f"{name}: {text}")


def limits(cluster: KubernetesCluster) -> Iterator[Finding]:
    """Say what one pod or container may have there, and what it gets that asks for nothing."""
    if not cluster.may("list", "limitranges"):
        return
    for limit_range in cluster.list("LimitRange").items:
        for limit in (limit_range.get("spec") or {}).get("limits") or ():
            words = [
                f"{word} {', '.join(f'{value} {key}' for key, value in sorted(limit[field].items()))}"
                for field, word in (("max", "at most"), ("min", "at least"), ("default", "else"))
                if limit.get(field)
            ]
            if words:
                yield Finding("limits", f"a {limit.get('type')} has {'; '.join(words)}")
