"""The rights that jobs in pods need in their namespace: the list for the probe, the printed Role and the tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

NAME: Final = "fabric"


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on one resource, and what does not work without them."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    without: str
    """What does not work if one is missing."""
    needed: bool = True
    """Whether no job can run without it."""

    @property
    def name(self) -> str:
        """The resource without its subresource."""
        return self.resource.partition("/")[0]

    @property
    def subresource(self) -> str:
        """The part after the slash: ``log`` of ``pods/log``."""
        return self.resource.partition("/")[2]


RIGHTS: Final = (
    Right("batch", "jobs", ("create", "get", "list", "watch", "patch", "delete"), "no job can run there"),
    Right("", "pods", ("get", "list", "watch", "delete"), "no job can run there"),
    Right("", "services", ("create", "get", "list", "delete"), "no job can run there"),
    Right("", "secrets", ("create", "get", "list", "delete"), "no job can run there"),
    Right("", "pods/log", ("get",), "the output of jobs cannot be read"),
    Right(
        "",
        "pods/exec",
        ("create", "get"),
        "output comes when a learner has ended (kubectl logs has it before), larger code and files cannot be "
        "brought in or home, and there "
        "is no fabric exec",
        needed=False,
    ),
    Right(
        "",
        "events",
        ("list",),
        "a wait is not explained by the scheduler's message",
        needed=False,
    ),
    Right(
        "",
        "persistentvolumeclaims",
        ("create", "get", "list", "delete"),
        "results without a data store are kept by holding the pod only",
        needed=False,
    ),
    Right(
        "",
        "resourcequotas",
        ("list",),
        "the probe does not report the quota, and a job above it waits",
        needed=False,
    ),
    Right(
        "",
        "limitranges",
        ("list",),
        "the probe does not report the limits",
        needed=False,
    ),
)
CLAIM_PODS: Final = Right(
    "",
    "pods",
    ("create",),
    "results on a claim cannot be downloaded, and refusals of the cluster are reported only when it creates the pods",
    needed=False,
)
"""A small pod reads a claim once its job is over; before a launch one is asked for that is not made."""


def all_rights() -> tuple[Right, ...]:
    """Return all rights, one entry for each resource and consequence."""
    return (*RIGHTS, CLAIM_PODS)


def role_document(namespace: str) -> dict[str, Any]:
    """Return the Role with all rights."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": NAME, "namespace": namespace},
        "rules": list(_rules(all_rights())),
    }


def binding_document(namespace: str, user: str) -> dict[str, Any]:
    """Return the RoleBinding of the Role to a user; ``system:serviceaccount:NAMESPACE:NAME`` is a service account."""
    subject: dict[str, str] = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    if user.startswith("system:serviceaccount:"):
        _, _, space, name = user.split(":", 3)
        subject = {"kind": "ServiceAccount", "name": name, "namespace": space}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": NAME, "namespace": namespace},
        "subjects": [subject],
        "roleRef": {"kind": "Role", "name": NAME, "apiGroup": "rbac.authorization.k8s.io"},
    }


def role_yaml(namespace: str, user: str) -> str:
    """Return Role and RoleBinding as YAML for ``kubectl apply -f -``."""
    return yaml_of(role_document(namespace)) + "---\n" + yaml_of(binding_document(namespace, user))


def rules_yaml(rights: Sequence[Right]) -> str:
    """Return the rules for some rights as YAML, one line each, for a hint."""
    return ", ".join(
        f"{{apiGroups: [{rule['apiGroups'][0] or repr('')}], resources: [{', '.join(rule['resources'])}], "
        f"verbs: [{', '.join(rule['verbs'])}]}}"
        for rule in _rules(rights)
    )


def yaml_of(document: Mapping[str, Any]) -> str:
    """Return a document as YAML in block style."""
    import yaml

    return yaml.safe_dump(dict(document), sort_keys=False, default_flow_style=None, width=110)


def _rules(rights: Sequence[Right]) -> Iterator[dict[str, Any]]:
    merged: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        verbs = merged.setdefault((right.group, right.resource), [])
        verbs += [verb for verb in right.verbs if verb not in verbs]
    for (group, resource), verbs in merged.items():
        yield {"apiGroups": [group], "resources": [resource], "verbs": verbs}
