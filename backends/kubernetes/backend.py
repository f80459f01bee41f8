"""The backend ``kubernetes``: a namespace of a cluster, by a kubeconfig's context; nothing is installed there."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar, Final, Literal

from backends.contract.cluster import Cluster
from backends.contract.host import Backend, BackendOptions, Finding, Host, HostGroup, Inventory
from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.inventory import gpu_count, gpus_of_nodes, inventory
from backends.kubernetes.kubeconfig import Access, plugin_environment, resolve
from backends.kubernetes.options import checked_options
from backends.kubernetes.probe import findings, too_old
from workbench.errors import FabricError

ALIASES: Final = ("k8s", "kubernetes")


class KubernetesBackend(Backend):
    """A namespace of a cluster, accessed as a user of the kubeconfig."""

    type: ClassVar[str] = "kubernetes"
    opens: ClassVar[Literal["host", "cluster"]] = "cluster"

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        self._settings: Mapping[str, Any] = checked_options(options.name, options.options)

    def access(self) -> Access:
        """Resolve kubeconfig, context and namespace in the current environment.

        Raises:
            ConfigError: there is no kubeconfig, or it cannot be used.
            UnknownName: the kubeconfig has no such context.
        """
        return resolve(
            self.options.address,
            kubeconfig=self._settings["kubeconfig"],
            context=self._settings["context"],
            namespace=self._settings["namespace"],
            environ=os.environ,
        )

    def frozen(self, runner: str) -> BackendOptions:
        """Return the options with the kubeconfig files, context and namespace of this environment filled in."""
        access = self.access()
        settings = {
            **self.options.options,
            "kubeconfig": os.pathsep.join(access.files),
            "context": access.context,
            "namespace": access.namespace,
        }
        name = self.options.name
        if "://" in name or name in ALIASES:  # such a name would mean another cluster in another shell
            name = access.address
        if needed := plugin_environment(access, os.environ):
            settings["environment"] = {**needed, **self._settings["environment"]}
        return dataclasses.replace(self.options, name=name, address=access.address, options=settings)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The checked options of the cluster."""
        return self._settings

    def reach(self) -> KubernetesCluster:
        """Return the cluster without a request, for a probe."""
        return KubernetesCluster(self.access(), self._settings, self._settings["environment"])

    def open(self) -> Cluster:
        """Connect to the cluster and check its version.

        Raises:
            BackendUnreachable: it does not answer.
            BackendError: its version is too old.
        """
        cluster = self.reach()
        try:
            if problem := too_old(cluster.version):
                raise problem
        except BaseException:
            cluster.close()
            raise
        return cluster

    def probe(self) -> Iterator[Finding]:
        """Check access, version, rights, quotas and storage; each problem has a consequence and a remedy."""
        with closing(self.reach()) as cluster:
            yield from findings(cluster)

    def inventory(self) -> Inventory:
        """Return nodes and GPUs of the cluster, as far as the user may list them."""
        with closing(self.open()) as cluster:
            return self.inventory_of(cluster)

    def inventory_of(self, opened: Host | Cluster | HostGroup) -> Inventory:
        """Return the inventory over a connection that is open already."""
        assert isinstance(opened, KubernetesCluster)
        return inventory(opened)

    def gpu_count(self) -> int | None:
        """Return how many GPUs the nodes have that there are now, None if they cannot be listed."""
        try:
            with closing(self.reach()) as cluster:
                return gpu_count(cluster)
        except FabricError:
            return None

    def gpus_of_largest_machine(self) -> int | None:
        """Return how many GPUs the node with the most has, None if nodes cannot be listed."""
        try:
            with closing(self.reach()) as cluster:
                return max(gpus_of_nodes(cluster) or (), default=None)
        except FabricError:
            return None

    def runners(self) -> Sequence[str]:
        """Return our runner for clusters: ``pod``."""
        return ("pod",)
