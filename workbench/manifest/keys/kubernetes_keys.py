"""The keys of ``kubernetes``: what a job's pods are like in a cluster, in addition to the settings of the backend."""

from __future__ import annotations

import re
from typing import Any, Final

from workbench.manifest.keys.containers import Key, KeyTable, ListOf, MapOf
from workbench.manifest.keys.kinds import MultilineText, Text, ValueKind
from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import ListNode, MapNode, Node

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OBJECT_NAME: Final = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
LABEL_KEY: Final = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_VALUE: Final = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_TOLERATION_KEYS: Final = ("key", "operator", "value", "effect", "tolerationSeconds")


class FreeMap(ValueKind):
    """A map as the cluster's API has it; only its first keys are checked here, the cluster checks the rest."""

    def __init__(self, expected: str, known: tuple[str, ...]) -> None:
        self.expected = expected
        self._known = known

    def below(self, part: str) -> tuple[str, ValueKind] | None:
        """Return any key."""
        return part, self

    def read(self, node: Node, path: str, findings: Findings) -> dict[str, Any] | None:
        """Return the map in plain values."""
        if not isinstance(node, MapNode):
            self.wrong(node, path, findings)
            return None
        for name, entry in node.entries.items():
            if name not in self._known:
                close = nearest(name, self._known)
                hint = f"did you mean {close}?" if close else f"there are {', '.join(self._known)}"
                findings.fault(entry.location, f"{path}.{name}", f"is not there; write {self.expected}", hint)
        return {name: _plain(entry.node) for name, entry in node.entries.items()}

    def schema(self) -> dict[str, Any]:
        """An object with these keys."""
        return {"type": "object", "properties": _any_of(self._known), "additionalProperties": False}


class Toleration(ValueKind):
    """A taint that pods tolerate: ``key=value:Effect`` with value and effect left out at will, or as the API has it."""

    expected = (
        f"key=value:Effect (the effect {', '.join(EFFECTS)}), or a map of {', '.join(_TOLERATION_KEYS)}"
    )

    def read(self, node: Node, path: str, findings: Findings) -> dict[str, Any] | None:
        """Return the toleration as the API has it."""
        if isinstance(node, MapNode):
            return FreeMap(self.expected, _TOLERATION_KEYS).read(node, path, findings)
        text = Text(self.expected).read(node, path, findings)
        if text is None:
            return None
        left, _, effect = text.partition(":")
        key, equals, value = left.partition("=")
        if (effect and effect not in EFFECTS) or not re.fullmatch(LABEL_KEY, key):
            self.wrong(node, path, findings)
            return None
        toleration = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
        return {"key": key, **toleration, **({"effect": effect} if effect else {})}

    def schema(self) -> dict[str, Any]:
        """A text or an object."""
        keys = _any_of(_TOLERATION_KEYS)
        return {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "properties": keys, "additionalProperties": False},
            ]
        }


def _any_of(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: {} for name in names}


def _plain(node: Node) -> Any:
    if isinstance(node, MapNode):
        return {name: _plain(entry.node) for name, entry in node.entries.items()}
    if isinstance(node, ListNode):
        return [_plain(one) for one in node.nodes]
    return node.value


def _name(of: str) -> Text:
    return Text(f"the name of {of}: small letters, digits, '-' and '.'", pattern=OBJECT_NAME)


KUBERNETES: Final = KeyTable(
    Key(
        "tolerations",
        ListOf(Toleration(), "a list of tolerations", one_is_enough=True),
        "Taints that the job's pods tolerate, in addition to those of the backend.",
        default="the backend's",
        example="[dedicated=training:NoSchedule]",
    ),
    Key(
        "node_selector",
        MapOf(
            Text("a label's value", pattern=LABEL_VALUE),
            "a map of labels, such as {disk: fast}",
            key_pattern=LABEL_KEY,
            key_expected="the key of a label",
        ),
        "Labels that a node must have, in addition to those of the backend; the job's value overrides.",
        default="the backend's",
        example="{disk: fast}",
    ),
    Key(
        "affinity",
        FreeMap(
            "nodeAffinity, podAffinity and podAntiAffinity as a pod's spec has them",
            ("nodeAffinity", "podAffinity", "podAntiAffinity"),
        ),
        "The pods' affinity, as in a pod's spec.",
        default="none",
    ),
    Key(
        "priority_class",
        _name("a PriorityClass"),
        "The PriorityClass of the pods, instead of the backend's.",
        default="the backend's",
        example="urgent",
    ),
    Key(
        "queue",
        _name("a LocalQueue"),
        "The Kueue LocalQueue that the job waits in, instead of the backend's.",
        default="the backend's",
        example="team-a",
    ),
    Key(
        "queue_priority_class",
        _name("a WorkloadPriorityClass"),
        "Kueue's WorkloadPriorityClass: the job's order in its queue, which its pods' PriorityClass need not have.",
        default="the backend's",
        example="urgent",
    ),
    Key(
        "service_account",
        _name("a ServiceAccount"),
        "The service account that the pods run as, without its token, instead of the backend's.",
        default="the backend's",
        example="trainer",
    ),
    Key(
        "annotations",
        MapOf(
            MultilineText(),
            "a map of annotations",
            key_pattern=LABEL_KEY,
            key_expected="the key of an annotation",
        ),
        "Annotations of the pods.",
        default="none",
        example='{sidecar.istio.io/inject: "false"}',
    ),
    Key(
        "pod_patch",
        FreeMap("metadata and spec of a pod", ("metadata", "spec")),
        "A strategic merge patch on the pods' template, after the backend's.",
        default="none",
        example="{spec: {runtimeClassName: nvidia}}",
    ),
    what="kubernetes",
)
