"""A namespace for one test, and a user of it who has the documented Role and nothing else."""

from __future__ import annotations

import base64
import fcntl
import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.contract.host import BackendOptions
from backends.kubernetes.api import Api, Request
from backends.kubernetes.auth import Login
from backends.kubernetes.backend import KubernetesBackend
from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.kubeconfig import Access, resolve
from backends.kubernetes.options import checked_options
from backends.kubernetes.rbac import binding_document, role_document
from tests.support.cluster_health import KUBECONFIG, SCRIPT, administrator, control, ensure_cluster
from tests.support.images import CACHE
from tests.support.pod_images import archive
from tests.support.waiting import until

USER = "alice"


@dataclass(frozen=True, slots=True)
class Space:
    """One namespace."""

    namespace: str
    user: str
    kubeconfig: Path
    """The user's, with this namespace."""
    admin: KubernetesCluster
    """The same namespace, for who may do anything."""

    @property
    def address(self) -> str:
        """As the user can name it."""
        return f"k8s://{USER}/{self.namespace}"

    def options(self, **settings: Any) -> BackendOptions:
        """Return a backend's options as the user's configuration has them."""
        return BackendOptions(
            "space", "kubernetes", self.address, {"kubeconfig": str(self.kubeconfig), **settings}
        )

    def backend(self, **settings: Any) -> KubernetesBackend:
        """Make the backend."""
        return KubernetesBackend(self.options(**settings))

    def cluster(self, **settings: Any) -> KubernetesCluster:
        """Reach it as the user."""
        access = resolve(self.address, kubeconfig=str(self.kubeconfig), environ={})
        return KubernetesCluster(access, checked_options("space", settings))

    def give_rights(self) -> None:
        """Give the user the documented Role again."""
        self.admin.replace(role_document(self.namespace))

    def take_rights(self, *resources: str, verbs: Collection[str] = ()) -> None:
        """Take verbs (or all) on resources from the user."""
        role = dict(role_document(self.namespace))
        kept = []
        for rule in role["rules"]:
            if rule["resources"][0] in resources:
                left = [verb for verb in rule["verbs"] if verbs and verb not in verbs]
                if not left:
                    continue
                rule = {**rule, "verbs": left}
            kept.append(rule)
        self.admin.replace({**role, "rules": kept})


def why_not() -> str:
    """Say why there is no cluster for tests, or nothing."""
    if not KUBECONFIG:
        return "no Kubernetes: FABRIC_TEST_KUBECONFIG names no cluster"
    if not Path(KUBECONFIG).exists():
        return f"no Kubernetes: {KUBECONFIG} is not there"
    return ""


@contextmanager
def cluster_held(*, alone: bool) -> Iterator[None]:
    """Share the cluster with other tests, or have it alone to do it harm; whoever gets it finds it whole.

    Raises:
        ClusterBroken: it cannot run pods.
    """
    CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (CACHE / "cluster.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        ensure_cluster()
        try:
            yield
        finally:
            if alone:
                ensure_cluster()


def load_images() -> None:
    """Bring the tests' images into the test cluster, once."""
    if not SCRIPT:
        return
    tar = archive()
    mark = Path(KUBECONFIG).parent / "fabric-test-images"
    with (CACHE / "loading.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = f"{tar.stat().st_mtime_ns}"
        if not mark.exists() or mark.read_text() != stamp:
            control("load", str(tar))
            mark.write_text(stamp)


@contextmanager
def space_of(folder: Path, labels: dict[str, str] | None = None) -> Iterator[Space]:
    """Make a namespace and its user, and take both away again."""
    name = f"fabric-test-{random.SystemRandom().randrange(36**6):08x}"
    admin = administrator(name)
    admin.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}
    )
    try:
        until(lambda: admin.read("ServiceAccount", "default"), "the namespace's service account")
        kubeconfig = folder / f"{name}.kubeconfig"
        user = _user(admin, kubeconfig)
        admin.create(role_document(name))
        admin.create(binding_document(name, user))
        yield Space(name, user, kubeconfig, admin)
    finally:
        admin.delete("Namespace", name)
        admin.close()


def _user(admin: KubernetesCluster, kubeconfig: Path) -> str:
    """Write the kubeconfig of somebody who may do nothing yet; return the name that roles are bound to."""
    if SCRIPT:
        control("user", USER, str(kubeconfig), admin.namespace)
        return USER
    account = "fabric-test-user"
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}})
    write_kubeconfig(kubeconfig, admin.namespace, {"token": _token(admin, account)})
    return f"system:serviceaccount:{admin.namespace}:{account}"


def _token(admin: KubernetesCluster, account: str) -> str:
    access: Access = admin.access
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    path = f"/api/v1/namespaces/{admin.namespace}/serviceaccounts/{account}/token"
    answer = Api(Login(access, {}), access.address).call(Request("POST", path, "make a token", body=body))
    return str(answer["status"]["token"])


def write_kubeconfig(
    path: Path, namespace: str, user: dict[str, Any], *, context: str = USER, **cluster: Any
) -> Path:
    """Write a kubeconfig for the test cluster with these credentials; ``cluster`` changes what it says of that."""
    config = yaml.safe_load(Path(KUBECONFIG).read_text())
    entry = dict(config["clusters"][0]["cluster"])
    if file := entry.pop("certificate-authority", None):
        data = (Path(KUBECONFIG).parent / file).read_bytes()
        entry["certificate-authority-data"] = base64.b64encode(data).decode()
    entry |= {key.replace("_", "-"): value for key, value in cluster.items()}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {key: value for key, value in entry.items() if value is not None}}
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "current-context": context,
    }
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


@pytest.fixture
def space_labels() -> dict[str, str]:
    """Labels of the namespace; overridden by a test that wants some."""
    return {}


@pytest.fixture
def space(tmp_path: Path, space_labels: dict[str, str]) -> Iterator[Space]:
    """A namespace of a real cluster, with the tests' images."""
    if reason := why_not():
        pytest.skip(reason)
    load_images()
    with cluster_held(alone=False), space_of(tmp_path, space_labels) as space:
        yield space


@pytest.fixture
def unheld_space(tmp_path: Path, space_labels: dict[str, str]) -> Iterator[Space]:
    """The same for who holds the cluster himself, alone and for moments: parts of it may be stopped then."""
    if reason := why_not():
        pytest.skip(reason)
    load_images()
    with ExitStack() as held:
        with cluster_held(alone=False):
            space = held.enter_context(space_of(tmp_path, space_labels))
        yield space
