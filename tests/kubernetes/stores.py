"""Data stores for pods in tests: a server that pods reach, claims on folders of the node, manifests that name them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import yaml

from tests.kubernetes.jobs import Pods
from tests.support.cluster import Space
from tests.support.store_servers import Server
from tests.support.waiting import until
from workbench.spec import DataStore

HOST: Final = os.environ.get("FABRIC_TEST_STORE_HOST", "")
"""An address of this machine that pods reach; found where the node is this machine."""

NO_HARDWARE: Final = "00:00:00:00:00:00"
"""What a bridge has that no pod is at."""
HARDWARE: Final = "02:fa:b0:00:00:01"


def host_for(space: Space) -> str:
    """Return an address of this machine that pods reach."""
    nodes = space.admin.list("Node").items
    addresses = [str(one["address"]) for node in nodes for one in node["status"].get("addresses", ())]
    for address in (HOST, *addresses):
        with socket.socket() as one:
            try:
                one.bind((address, 0))
            except OSError:
                continue
            if address:
                _keep_bridge(address)
                return address
    pytest.skip("no address of this machine is known that pods reach: set FABRIC_TEST_STORE_HOST")


def _keep_bridge(address: str) -> None:
    """Let a bridge keep its hardware address, which else follows its pods': those that stay lose this machine then."""
    for name, found in psutil.net_if_addrs().items():
        addresses = {one.address for one in found}
        if address in addresses and (Path("/sys/class/net") / name / "bridge").exists():
            link = next((one.address for one in found if one.family == psutil.AF_LINK), NO_HARDWARE)
            hardware = link if link != NO_HARDWARE else HARDWARE
            subprocess.run(["ip", "link", "set", "dev", name, "address", hardware], capture_output=True)


@contextmanager
def claim_of(space: Space, name: str) -> Iterator[Path]:
    """Make a claim that is bound to a folder of the node, which tests run on; give that folder."""
    folder = Path(tempfile.mkdtemp(prefix="fabric-claim-", dir="/var/tmp"))
    folder.chmod(0o777)
    volume = f"fabric-{space.namespace}-{name}"
    common: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    bound = {"claimRef": {"namespace": space.namespace, "name": name}}
    there = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}, **bound, **common}
    asked = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume, **common}
    try:
        make_volume(space, volume, there)
        metadata = {"name": name}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": asked}
        space.admin.create(claim)
        until_bound(space, name)
        yield folder
    finally:
        space.admin.delete("PersistentVolume", volume)
        shutil.rmtree(folder, ignore_errors=True)


def until_bound(space: Space, name: str) -> None:
    """Wait until a claim is bound.

    A controller that knew an old version of the volume tries again after 15 s, or when the claim changes.
    """
    looks = itertools.count()

    def is_bound() -> bool:
        found = space.admin.read("PersistentVolumeClaim", name) or {}
        if found["status"].get("phase") == "Bound":
            return True
        annotations = {"fabric-test/look": str(next(looks))}
        space.admin.patch("PersistentVolumeClaim", name, {"metadata": {"annotations": annotations}})
        return False

    until(is_bound, "the claim to be bound", every=0.3)


def make_volume(space: Space, name: str, spec: Mapping[str, Any]) -> None:
    """Make a volume, and wait until claims can have it.

    Of one that the cluster's controller has not seen yet a claim gets an event only at its next round, 15 s later.
    """
    document = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    space.admin.create(document)
    until(
        lambda: (
            (space.admin.read("PersistentVolume", name) or {}).get("status", {}).get("phase") == "Available"
        ),
        f"volume {name} to be available",
    )


def manifest(pods: Pods, store: Server | DataStore, command: str, **keys: Any) -> str:
    """Write a manifest with one data store, and return its path."""
    described = store.store() if isinstance(store, Server) else store
    document: Mapping[str, Any] = {
        "name": "stores",
        "data_stores": [
            {
                "id": described.id,
                "type": described.type,
                **(
                    {"training_data": {"container": described.training_data}}
                    if described.training_data
                    else {}
                ),
                **(
                    {"training_results": {"container": described.training_results}}
                    if described.training_results
                    else {}
                ),
                "connection": dict(described.connection),
                "read_only": described.read_only,
            }
        ],
        "framework": {"name": "custom", "version": "x", "command": command},
        **keys,
    }
    path = pods.fabric.folder / "manifest.yml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def states(pods: Pods, job: str) -> list[str]:
    """Return the states that a job went through."""
    events = pods.fabric.json("events", job, "--json")
    return [str(event["state"]) for event in events if event.get("state")]


def texts_of_cluster(pods: Pods) -> list[str]:
    """Return all that the cluster says of a namespace's jobs, but the Secrets: objects, events, logs."""
    texts = [
        json.dumps(dict(one))
        for kind in ("Job", "Pod", "Service", "Event", "PersistentVolumeClaim")
        for one in pods.space.admin.list(kind).items
    ]
    for pod in pods.pods():
        name, status = pod["metadata"]["name"], pod["status"]
        begun = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        texts += [pods.log(name, one["name"]).decode() for one in begun if one["restartCount"] or one["started"]
                 or "terminated" in one["state"]]  # fmt: skip
    return texts
