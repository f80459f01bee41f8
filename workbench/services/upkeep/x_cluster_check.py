"""One line on a configured cluster, for ``fabric doctor``."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from backends.contract.host import Finding
from workbench.errors import FabricError

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions


def cluster_finding(options: BackendOptions) -> Finding:
    """Say whether a cluster answers and is new enough."""
    from backends.kubernetes.backend import KubernetesBackend
    from backends.kubernetes.cluster import KubernetesCluster

    subject = f"place {options.name}"
    try:
        backend = KubernetesBackend(options)
        with closing(backend.open()) as cluster:
            assert isinstance(cluster, KubernetesCluster)
            major, minor = cluster.version
            where = f"{cluster.access.address} at {cluster.server}"
        return Finding(subject, f"{where}, Kubernetes {major}.{minor}")
    except FabricError as error:
        return Finding(subject, error.message, "lack", "no job can run there now", error.hint)
