"""Prints the Role that jobs in a cluster's namespace need, and what binds it to a user."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final

from workbench.errors import PlaceUnreachable, UsageError
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions
    from backends.kubernetes.backend import KubernetesBackend

UNKNOWN: Final = "YOU"


def print_role(options: BackendOptions, user: str, *, json: bool) -> None:
    """Print Role and RoleBinding as YAML that ``kubectl apply -f -`` takes, or as one document.

    Raises:
        UsageError: the place is no cluster.
        ConfigError: there is no kubeconfig.
    """
    from backends.kubernetes.backend import KubernetesBackend
    from backends.kubernetes.rbac import binding_document, role_document, role_yaml
    from workbench.services.backends.placement import open_backend

    backend = open_backend(options)
    if not isinstance(backend, KubernetesBackend):
        raise UsageError(
            f"'{options.name}' is no cluster and needs no role", hint="such as k8s://context/namespace"
        )
    namespace = backend.access().namespace
    named = user or _asked(backend) or UNKNOWN
    if json:
        from workbench.terminal.json_output import print_document

        objects = [role_document(namespace), binding_document(namespace, named)]
        print_document({"schema": "fabric.role/1", "objects": objects})
    else:
        sys.stdout.write(role_yaml(namespace, named))
    if named == UNKNOWN:
        narrate("the cluster does not say who you are: put your name in the place of YOU, or give --user")


def _asked(backend: KubernetesBackend) -> str:
    from backends.kubernetes.probe import whoami

    with closing(backend.reach()) as cluster:
        try:
            return whoami(cluster)
        except PlaceUnreachable as error:
            narrate(f"{error}")
            return ""
