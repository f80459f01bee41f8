"""The backend ``kubernetes``: a namespace of a cluster, by a kubeconfig's context; nothing is installed there."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar, Final

from backends.contract.cluster import Cluster
from backends.contract.host import Backend, BackendOptions, Finding, Host, Inventory
from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.kubeconfig import Access, plugin_environment, resolve
from backends.kubernetes.options import checked_options
from backends.kubernetes.probe import too_old

ALIASES: Final = ("k8s", "kubernetes")


class KubernetesBackend(Backend):
    """A namespace of a cluster, as one of the users that the kubeconfig knows."""

    type: ClassVar[str] = "kubernetes"

    def __init__(self, options: BackendOptions) -> None:
        super().__init__(options)
        self._settings: Mapping[str, Any] = checked_options(options.name, options.options)

    def access(self) -> Access:
        """Find which cluster, as whom and in which namespace this is, by what the environment says now.

        Raises:
            ConfigError: there is no kubeconfig, or it cannot be used.
            UnknownName: it has no such context.
        """
        return resolve(
            self.options.address,
            kubeconfig=self._settings["kubeconfig"],
            context=self._settings["context"],
            namespace=self._settings["namespace"],
            environ=os.environ,
        )

    def frozen(self, runner: str) -> BackendOptions:
        """Return the options with the kubeconfig, context and namespace that they mean in this shell."""
        access = self.access()
        settings = {
            **self.options.options,
            "kubeconfig": os.pathsep.join(access.files),
            "context": access.context,
            "namespace": access.namespace,
        }
        name = self.options.name
        if "://" in name or name in ALIASES:  # which would mean another place in another shell
            name = access.address
        if needed := plugin_environment(access, os.environ):
            settings["environment"] = {**needed, **self._settings["environment"]}
        return dataclasses.replace(self.options, name=name, address=access.address, options=settings)

    def reach(self) -> KubernetesCluster:
        """Return the cluster without asking whether it is there, for a probe."""
        return KubernetesCluster(self.access(), self._settings, self._settings["environment"])

    def open(self) -> Cluster:
        """Reach the cluster, and find out that it is new enough.

        Raises:
            BackendUnreachable: it does not answer.
            BackendError: it is too old.
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
        """Say what is there, each lack with its consequence and remedy."""
        from backends.kubernetes.probe import findings

        with closing(self.reach()) as cluster:
            yield from findings(cluster)

    def inventory(self) -> Inventory:
        """Say what the cluster has, as far as the user may see it."""
        with closing(self.open()) as cluster:
            return self.inventory_of(cluster)

    def inventory_of(self, opened: Host | Cluster) -> Inventory:
        """Say what the open cluster has, as far as the user may see it."""
        from backends.kubernetes.inventory import inventory

        assert isinstance(opened, KubernetesCluster)
        return inventory(opened)

    def runners(self) -> Sequence[str]:
        """Name the runners that can work there."""
        return ("pod",)
