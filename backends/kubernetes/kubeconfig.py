"""Resolves context and namespace from an address, options, KUBECONFIG, or the service account of a pod.

Reads the kubeconfig files as plain YAML: a submit needs only names, and importing the ``kubernetes`` package
takes half a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from workbench.errors import ConfigError, UnknownName
from workbench.values import dataclass

IN_CLUSTER: Final = "in-cluster"
"""The name for the cluster of a pod's own service account."""

PLUGIN_VARIABLES: Final = (
    "PATH",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ROLE_ARN",
    "AZURE_CONFIG_DIR",
    "AAD_LOGIN_METHOD",
    "CLOUDSDK_CONFIG",
    "CLOUDSDK_ACTIVE_CONFIG_NAME",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECACHEDIR",
    "USE_GKE_GCLOUD_AUTH_PLUGIN",
)
"""Variables that credential plugins read: names and paths, no secrets."""

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SCHEME: Final = re.compile(r"(?:k8s|kubernetes)(?:://|$)")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Access:
    """Kubeconfig files, context and namespace of a backend; stored with each job."""

    files: tuple[str, ...]
    """Absolute paths of kubeconfig files; none when it is the pod's own service account."""
    context: str
    namespace: str

    @property
    def address(self) -> str:
        """The address as a user writes it: ``k8s://context/namespace``."""
        return f"k8s://{quote(self.context, safe=':@/+~')}/{self.namespace}"


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of several kubeconfig files; of two entries with one name the first counts, as in kubectl."""

    files: tuple[str, ...]
    current: str
    named: Mapping[str, Mapping[str, Any]]


def resolve(
    address: str, *, kubeconfig: str = "", context: str = "", namespace: str = "", environ: Mapping[str, str]
) -> Access:
    """Return what an address means in the current environment.

    Args:
        address: ``k8s://context/namespace``, ``k8s://context``, ``k8s://`` or empty.
        kubeconfig: file names separated by colons, used instead of ``$KUBECONFIG``.
        context: used instead of the address's.
        namespace: used instead of the address's.
        environ: the environment.

    Raises:
        ConfigError: there is no kubeconfig, it cannot be used, or the namespace is not a valid name.
        UnknownName: the kubeconfig has no such context.
    """
    files = _files(kubeconfig, environ)
    address_path = _SCHEME.sub("", address.strip(), count=1)
    if not files:
        if _in_pod(environ):
            return _own_access(address_path, context, namespace)
        raise _no_kubeconfig(kubeconfig, environ)
    known = read_contexts(files)
    if (
        _in_pod(environ)
        and IN_CLUSTER not in known.named
        and (context or address_path).split("/")[0] == IN_CLUSTER
    ):
        return _own_access(address_path, context, namespace)
    from_address, address_namespace = _split(address_path, known)
    chosen = context or from_address or known.current
    if not chosen:
        raise ConfigError(
            f"{' and '.join(files)} names no current context.",
            hint=f"Name one: k8s://CONTEXT/NAMESPACE or --context; there are {_names(known)}.",
        )
    entry = known.named.get(chosen)
    if entry is None:
        raise UnknownName(
            f"There is no context {chosen!r} in {' or '.join(files)}.", hint=f"There are {_names(known)}."
        )
    space = namespace or address_namespace or str(entry.get("namespace") or "default")
    return Access(files, chosen, _checked(space))


def read_contexts(files: Sequence[str]) -> Contexts:
    """Read the contexts of kubeconfig files.

    Raises:
        ConfigError: a file cannot be read, or is not a kubeconfig.
    """
    current = ""
    named: dict[str, Mapping[str, Any]] = {}
    for file in files:
        document = _read(file)
        current = current or str(document.get("current-context") or "")
        for entry in document.get("contexts") or ():
            if isinstance(entry, dict) and isinstance(entry.get("context"), dict):
                named.setdefault(str(entry.get("name")), entry["context"])
    return Contexts(tuple(files), current, named)


def plugin_environment(access: Access, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the credential plugin of a context reads; empty without a plugin."""
    for file in access.files:
        document = _read(file)
        users = {
            entry["context"].get("user")
            for entry in document.get("contexts") or ()
            if isinstance(entry, dict) and entry.get("name") == access.context and entry.get("context")
        }
        for entry in document.get("users") or ():
            if entry.get("name") in users and "exec" in (entry.get("user") or {}):
                return {name: environ[name] for name in PLUGIN_VARIABLES if name in environ}
    return {}


def _read(file: str) -> Mapping[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.load(Path(file).read_bytes(), loader)
    except OSError as error:
        raise ConfigError(f"The kubeconfig {file} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, ValueError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = "" if line is None else f" (line {line + 1})"
        raise ConfigError(f"The kubeconfig {file} is not YAML{where}.") from error
    if document is None:
        return {}
    if not isinstance(document, dict) or not isinstance(document.get("contexts") or [], list):
        raise ConfigError(f"{file} is not a kubeconfig.")
    return document


def _files(kubeconfig: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    listed = (
        kubeconfig
        or environ.get("KUBECONFIG", "")
        or str(Path(environ.get("HOME", "/")) / ".kube" / "config")
    )
    paths = [Path(name).expanduser().absolute() for name in listed.split(os.pathsep) if name]
    return tuple(dict.fromkeys(str(path) for path in paths if path.exists()))


def _split(address_path: str, known: Contexts) -> tuple[str, str]:
    """Split ``context/namespace``; contexts of OpenShift and EKS contain slashes themselves."""
    whole = unquote(address_path.rstrip("/"))
    if not whole or whole in known.named:
        return whole, ""
    context, slash, namespace = whole.rpartition("/")
    return (context, namespace) if slash else (whole, "")


def _own_access(address_path: str, context: str, namespace: str) -> Access:
    named, _, space = address_path.strip("/").partition("/")
    if (context or named) not in ("", IN_CLUSTER):
        raise UnknownName(
            f"There is no context {context or named!r}: there is no kubeconfig here, only the pod's own account.",
            hint=f"k8s://{IN_CLUSTER}/NAMESPACE is this pod's cluster.",
        )
    try:
        own = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        own = "default"
    return Access((), IN_CLUSTER, _checked(namespace or space or own))


def _in_pod(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT / "token").exists()


def _no_kubeconfig(kubeconfig: str, environ: Mapping[str, str]) -> ConfigError:
    listed = kubeconfig or environ.get("KUBECONFIG", "")
    source = "" if kubeconfig else " (KUBECONFIG)"
    text = (
        f"{listed}{source} is not there" if listed else "no KUBECONFIG is set and ~/.kube/config is not there"
    )
    return ConfigError(
        f"There is no kubeconfig: {text}.",
        hint="Get one from your cluster's administrator or its command line tool, and set KUBECONFIG to it.",
    )


def _checked(namespace: str) -> str:
    if not _LABEL.fullmatch(namespace):
        raise ConfigError(
            f"{namespace!r} is not a valid name of a namespace.",
            hint="Use at most 63 letters a-z, digits and '-'.",
        )
    return namespace


def _names(known: Contexts) -> str:
    return ", ".join(sorted(known.named)) or "none"
