"""The API paths of the kinds that fabric uses: group, version, plural, and whether a kind is namespaced."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from workbench.errors import BackendError
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One kind of object."""

    name: str
    group: str
    """Empty for the core group."""
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As in documents: ``v1``, ``batch/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Return the path of one object, or of all in a namespace."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)

    @property
    def path_everywhere(self) -> str:
        """The path of all objects of all namespaces."""
        return dataclasses.replace(self, namespaced=False).path("")


_KINDS: Final = (
    ResourceKind("Pod", "", "v1", "pods"),
    ResourceKind("Service", "", "v1", "services"),
    ResourceKind("Secret", "", "v1", "secrets"),
    ResourceKind("ConfigMap", "", "v1", "configmaps"),
    ResourceKind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
    ResourceKind("PersistentVolume", "", "v1", "persistentvolumes", namespaced=False),
    ResourceKind("Event", "", "v1", "events"),
    ResourceKind("ResourceQuota", "", "v1", "resourcequotas"),
    ResourceKind("LimitRange", "", "v1", "limitranges"),
    ResourceKind("ServiceAccount", "", "v1", "serviceaccounts"),
    ResourceKind("Node", "", "v1", "nodes", namespaced=False),
    ResourceKind("Namespace", "", "v1", "namespaces", namespaced=False),
    ResourceKind("Job", "batch", "v1", "jobs"),
    ResourceKind("StorageClass", "storage.k8s.io", "v1", "storageclasses", namespaced=False),
    ResourceKind("PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses", namespaced=False),
    ResourceKind("Role", "rbac.authorization.k8s.io", "v1", "roles"),
    ResourceKind("RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings"),
    ResourceKind("LocalQueue", "kueue.x-k8s.io", "v1beta2", "localqueues"),
    ResourceKind("Workload", "kueue.x-k8s.io", "v1beta2", "workloads"),
    ResourceKind("SelfSubjectReview", "authentication.k8s.io", "v1", "selfsubjectreviews", namespaced=False),
    ResourceKind(
        "SelfSubjectAccessReview", "authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False
    ),
    ResourceKind(
        "SelfSubjectRulesReview", "authorization.k8s.io", "v1", "selfsubjectrulesreviews", namespaced=False
    ),
)
KINDS: Final[Mapping[str, ResourceKind]] = {kind.name: kind for kind in _KINDS}
SERVED: Final[Mapping[str, tuple[str, ...]]] = {"kueue.x-k8s.io": ("v1beta2", "v1beta1")}
"""Groups that a cluster may lack or serve in another version: the versions that are understood, best first."""

NAMES: Final[Mapping[str, str]] = {"kueue.x-k8s.io": "Kueue"}
"""What serves these groups, for messages."""

GROUPS: Final[Mapping[str, str]] = {kind.plural: kind.group for kind in _KINDS}


def kind_of(name: str) -> ResourceKind:
    """Return a kind by its name.

    Raises:
        BackendError: fabric does not know it.
    """
    try:
        return KINDS[name]
    except KeyError:
        raise BackendError(f"Objects of kind {name!r} are not known here.") from None


def kind_of_document(document: Mapping[str, Any]) -> ResourceKind:
    """Return the kind of a document, in the document's API version.

    Raises:
        BackendError: fabric does not know it.
    """
    kind = kind_of(str(document.get("kind", "")))
    api_version = str(document.get("apiVersion") or kind.api_version)
    if api_version != kind.api_version:
        group, _, version = api_version.rpartition("/")
        return ResourceKind(kind.name, group, version, kind.plural, kind.namespaced)
    return kind


_UNITS: Final = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    **{f"{unit}i": float(1 << (10 * (power + 1))) for power, unit in enumerate("KMGTPE")},
}
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+)|([a-zA-Z]{0,2}))")


def quantity(value: Any) -> float:
    """Return a quantity as a number; 0 if it is not a quantity."""
    found = _QUANTITY.fullmatch(str(value).strip())
    if found is None:
        return 0.0
    try:
        number = float(found[1])
    except ValueError:
        return 0.0
    return number * 10 ** int(found[2]) if found[2] else number * _UNITS.get(found[3], 0.0)
