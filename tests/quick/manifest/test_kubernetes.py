"""``kubernetes:`` of a manifest: what pods are like, read and checked where it is written."""

from __future__ import annotations

import json

import pytest

from tests.quick.manifest.support import fault_of, spec_of, warnings_of
from workbench.manifest.publish.json_schema import schema
from workbench.spec import spec_from_json, spec_to_json

ALL = """kubernetes:
  tolerations: [dedicated=training:NoSchedule, spot, {key: gpu, operator: Exists, tolerationSeconds: 60}]
  node_selector: {disk: fast, example.com/zone: "1"}
  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: host}]}}
  priority_class: urgent
  queue: team-a
  queue_priority_class: high
  service_account: trainer
  annotations: {sidecar.istio.io/inject: "false"}
  pod_patch: {spec: {runtimeClassName: nvidia, hostNetwork: false}}
"""


def test_all_of_it_is_read_and_kept_with_the_job() -> None:
    spec = spec_of(ALL)

    assert spec.kubernetes == {
        "tolerations": (
            {"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Exists"},
            {"key": "gpu", "operator": "Exists", "tolerationSeconds": 60},
        ),
        "node_selector": {"disk": "fast", "example.com/zone": "1"},
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]}
        },
        "priority_class": "urgent",
        "queue": "team-a",
        "queue_priority_class": "high",
        "service_account": "trainer",
        "annotations": {"sidecar.istio.io/inject": "false"},
        "pod_patch": {"spec": {"runtimeClassName": "nvidia", "hostNetwork": False}},
    }
    kept = spec_from_json(json.loads(json.dumps(spec_to_json(spec))))
    assert {**kept.kubernetes, "tolerations": tuple(kept.kubernetes["tolerations"])} == spec.kubernetes


def test_one_key_of_it_is_set_by_the_command_line() -> None:
    spec = spec_of("kubernetes: {queue: team-a, priority_class: low}\n", "kubernetes.queue=team-b")

    assert spec.kubernetes == {"queue": "team-b", "priority_class": "low"}


@pytest.mark.parametrize(
    ("written", "where", "message"),
    [
        ("{tolerations: [gpu:Never]}", "kubernetes.tolerations.0", "key=value:Effect"),
        ("{tolerations: [{kei: gpu}]}", "kubernetes.tolerations.0.kei", "did you mean key?"),
        ("{queue: Team A}", "kubernetes.queue", "the name of a LocalQueue"),
        ("{node_selector: {disk: a b}}", "kubernetes.node_selector.disk", "a label's value"),
        ("{affinity: {podAfinity: {}}}", "kubernetes.affinity.podAfinity", "did you mean podAffinity?"),
        ("{pod_patch: {containers: []}}", "kubernetes.pod_patch.containers", "metadata and spec of a pod"),
        ("{annotations: [a]}", "kubernetes.annotations", "a map of annotations"),
        ("team-a", "kubernetes", "a map"),
    ],
)
def test_what_is_wrong_in_it_is_named_with_what_would_be_right(
    written: str, where: str, message: str
) -> None:
    fault = fault_of(f"kubernetes: {written}\n")

    assert where in fault
    assert message in fault


def test_an_unknown_key_of_it_is_a_warning_that_names_the_nearest() -> None:
    (warning,) = warnings_of("kubernetes: {toleration: [gpu]}\n")

    assert "kubernetes.toleration" in warning and "did you mean tolerations?" in warning


def test_editors_know_its_keys() -> None:
    known = schema()["properties"]["kubernetes"]

    assert set(known["properties"]) == set(spec_of(ALL).kubernetes)
    assert known["additionalProperties"] is False
