"""The pod runner keeps the promises of all runners, on a real cluster."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from backends.interface import BackendOptions, Cluster, Host
from backends.kubernetes import KubernetesBackend
from runners.conformance import RunnerContract
from runners.pod import PodRunner
from tests.kubernetes.images import DEBIAN


@pytest.fixture(scope="session")
def namespace() -> Iterator[str]:
    name = f"k2-{uuid.uuid4().hex[:8]}"
    env = {**os.environ, "KUBECONFIG": os.environ["FABRIC_TEST_KUBECONFIG"]}
    subprocess.run(["kubectl", "create", "ns", name], env=env, check=True)
    yield name
    subprocess.run(["kubectl", "delete", "ns", name, "--wait=false"], env=env, check=True)


class TestPods(RunnerContract):
    runner_class = PodRunner
    image = DEBIAN
    left_out: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture
    def place(self, namespace: str) -> Iterator[Host | Cluster]:
        told = {"kubeconfig": os.environ["FABRIC_TEST_KUBECONFIG"], "namespace": namespace, "default_memory": "300Mi",
                "journal_hold_seconds": "3", "results_hold_seconds": "3", "gang_seconds": "30"}
        place = KubernetesBackend(BackendOptions("test", "kubernetes", "", told)).open()
        yield place
        place.close()
