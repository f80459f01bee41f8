"""The rights that jobs in pods need in their namespace, for checks and the printed Role; and those that a user has."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from backends.contract.cluster import Cluster
from backends.kubernetes.api import Api, Request
from backends.kubernetes.resources import kind_of
from workbench.clock import elapsed_seconds
from workbench.errors import BackendUnreachable, FabricError, RightsMissing
from workbench.values import dataclass

NAME: Final = "fabric"
EXEC: Final = "pods/exec"
ASKED_AT_ONCE: Final = 8


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
    Right("batch", "jobs", ("create", "list", "watch", "patch", "delete"), "no job can run there"),
    Right("", "pods", ("list", "watch", "delete"), "no job can run there"),
    Right("", "services", ("create", "delete"), "no job can run there"),
    Right("", "secrets", ("create", "delete"), "no job can run there"),
    Right("", "pods/log", ("get",), "the output of jobs cannot be read"),
    Right(
        "",
        EXEC,
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
        ("create", "delete"),
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

READ_CLAIMS: Final = Right(
    "",
    "persistentvolumeclaims",
    ("get",),
    "a claim that the settings or a data store name is not checked, and claim= of the backend is refused",
    needed=False,
)

EXEC_CREATES_SINCE: Final = (1, 35)
"""The version from which a command over a websocket needs ``create`` besides ``get``."""


def all_rights() -> tuple[Right, ...]:
    """Return all rights, one entry for each resource and consequence."""
    return (*RIGHTS, CLAIM_PODS, READ_CLAIMS)


def missing_rights(cluster: Cluster, rights: Sequence[Right] | None = None) -> tuple[Right, ...]:
    """Return those of these rights (default: all) that the user lacks, each with the missing verbs."""
    asked = tuple(all_rights() if rights is None else rights)
    checks = [(right, verb) for right in asked for verb in _verbs_used(cluster, right)]

    def may(check: tuple[Right, str]) -> bool:
        right, verb = check
        return cluster.may(verb, right.name, right.subresource, group=right.group)

    with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="rights") as pool:
        denied = {check for check, allowed in zip(checks, pool.map(may, checks), strict=True) if not allowed}
    missing = ((right, tuple(verb for verb in right.verbs if (right, verb) in denied)) for right in asked)
    return tuple(replace(right, verbs=verbs) for right, verbs in missing if verbs)


def require_rights(cluster: Cluster) -> None:
    """Refuse a launch that lacks a right without which no job can run.

    Raises:
        RightsMissing: naming all verbs that are missing.
    """
    if missing := missing_rights(cluster, [right for right in RIGHTS if right.needed]):
        raise RightsMissing(
            f"You may not {rights_text(missing)} in the namespace {cluster.namespace}.",
            hint=f"fabric backend role {cluster.address or 'BACKEND'} prints the Role to ask for.",
        )


def may_exec(cluster: Cluster) -> bool:
    """Return whether the user may run commands in pods."""
    return not missing_rights(cluster, [right for right in RIGHTS if right.resource == EXEC])


def rights_text(rights: Sequence[Right]) -> str:
    """Name the verbs and resources: ``create or get jobs, nor list pods``."""
    return ", nor ".join(f"{listed(right.verbs)} {right.resource}" for right in rights)


def listed(items: Sequence[str]) -> str:
    """Return items as a list with ``or``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"


def _verbs_used(cluster: Cluster, right: Right) -> tuple[str, ...]:
    if right.resource == EXEC and cluster.version < EXEC_CREATES_SINCE:
        return tuple(verb for verb in right.verbs if verb != "create")
    return right.verbs


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


KNOWN_SECONDS: Final = 60.0
"""How long a right that was granted is not asked for again. A right that is missing is asked for each time."""

READY_SECONDS: Final = 2.0
"""How long an API server counts as ready after it said so."""


@dataclass(frozen=True, slots=True)
class ResourceAccess:
    """One verb on one resource."""

    verb: str
    resource: str
    """The plural: ``pods``."""
    subresource: str = ""
    group: str = ""
    namespace: str = ""
    """Empty for the whole cluster."""

    @property
    def path(self) -> str:
        """The resource as in a Role: ``pods/log``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class AccessReview:
    """The rights of one user. Thread-safe."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._lock = threading.Lock()
        self._granted: dict[ResourceAccess, float] = {}
        self._rules: Sequence[Mapping[str, Any]] = ()
        self._rules_until = 0.0
        self._ready_until = 0.0

    def may(self, access: ResourceAccess) -> bool:
        """Return whether the user may do this."""
        now = elapsed_seconds()
        with self._lock:
            if now < self._granted.get(access, 0.0):
                return True
        allowed = access.namespace == self._namespace and any(
            _allows(rule, access) for rule in self._current_rules()
        )
        # The rules are incomplete where a webhook decides.
        allowed = allowed or self._ask(access) or (not self._was_ready() and self._ask(access))
        if allowed:
            with self._lock:
                self._granted[access] = now + KNOWN_SECONDS
        return allowed

    def _was_ready(self) -> bool:
        """Return whether the API server was ready when it denied an access; False: it is ready only now, ask again.

        Raises:
            BackendUnreachable: the API server is starting and does not know all roles yet.
        """
        if elapsed_seconds() < self._ready_until:
            return True
        if self._api.is_ready() is False:
            raise BackendUnreachable("The cluster is starting: it does not know yet what you may do.")
        self._ready_until = elapsed_seconds() + READY_SECONDS
        return False

    def _current_rules(self) -> Sequence[Mapping[str, Any]]:
        """Return the rules of the namespace; read again after KNOWN_SECONDS."""
        with self._lock:
            if elapsed_seconds() >= self._rules_until:
                self._rules = self._read_rules()
                self._rules_until = elapsed_seconds() + KNOWN_SECONDS
            return self._rules

    def _read_rules(self) -> Sequence[Mapping[str, Any]]:
        document = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": self._namespace},
        }
        path = kind_of("SelfSubjectRulesReview").path("")
        try:
            review = self._api.call(Request("POST", path, "list what you may do", body=document))
        except BackendUnreachable:
            raise
        except FabricError:  # each right is asked for
            return ()
        return tuple((review.get("status") or {}).get("resourceRules") or ())

    def _ask(self, access: ResourceAccess) -> bool:
        attributes = {
            "verb": access.verb,
            "resource": access.resource,
            "group": access.group,
            "namespace": access.namespace,
            **({"subresource": access.subresource} if access.subresource else {}),
        }
        document = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = kind_of("SelfSubjectAccessReview").path("")
        review = self._api.call(Request("POST", path, "say what you may do", body=document))
        return bool((review.get("status") or {}).get("allowed"))


def _allows(rule: Mapping[str, Any], access: ResourceAccess) -> bool:
    """Return whether a rule of a Role grants an access to all objects."""
    if rule.get("resourceNames"):
        return False
    resources = {access.path, "*"} | ({f"*/{access.subresource}"} if access.subresource else set())
    return (
        bool({access.verb, "*"} & set(rule.get("verbs") or ()))
        and bool({access.group, "*"} & set(rule.get("apiGroups") or ()))
        and bool(resources & set(rule.get("resources") or ()))
    )
