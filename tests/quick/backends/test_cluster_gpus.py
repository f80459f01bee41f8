"""How many GPUs a cluster has, as far as its nodes may be listed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from backends.kubernetes.cluster import KubernetesCluster
from backends.kubernetes.inventory import gpu_count


class Nodes:
    """The part of a cluster that lists its nodes."""

    def __init__(self, *gpus: str | None, may_list: bool = True, takes_pods: bool = True) -> None:
        self.options = {"gpu_resource": "nvidia.com/gpu"}
        self._may_list = may_list
        self._nodes = [
            {
                "status": {
                    "allocatable": {"cpu": "4", **({"nvidia.com/gpu": each} if each else {})},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
                "spec": {"unschedulable": not takes_pods},
            }
            for each in gpus
        ]

    def may_anywhere(self, verb: str, resource: str) -> bool:
        return self._may_list

    def list(self, kind: str) -> Any:
        return SimpleNamespace(items=self._nodes)


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        (Nodes("8", None, "4"), 12),
        (Nodes(None), 0),
        (Nodes(), 0),
        (Nodes("8", may_list=False), None),
        (Nodes("8", takes_pods=False), 0),
    ],
)
def test_gpus_of_all_nodes_that_take_pods_are_counted_where_nodes_may_be_listed(
    nodes: Nodes, count: int | None
) -> None:
    assert gpu_count(cast("KubernetesCluster", nodes)) == count
