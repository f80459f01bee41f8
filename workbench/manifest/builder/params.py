"""Hyper-parameters: ``${params.lr}`` in any value of a manifest, and the variables that a learner sees."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import ListNode, MapEntry, MapNode, Node, ScalarNode, SourceLocation

_REFERENCE: Final = re.compile(r"\$\{params\.([^{}]*)\}")
_GROWTH_MAX: Final = 1 << 20
"""How many characters expansion may add in all: a text that names another one many times is a bomb."""


def param_variable(name: str) -> str:
    """Return the variable of a hyper-parameter: ``FABRIC_PARAM_LR`` of ``lr``."""
    return "FABRIC_PARAM_" + name.upper().replace("-", "_")


def param_text(value: bool | int | float | str) -> str:
    """Return the text of a hyper-parameter's variable."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def expanded(root: MapNode, findings: Findings) -> MapNode:
    """Return a manifest in which every ``${params.name}`` outside ``params`` is what it stands for.

    A value that is written bare is read again afterwards, so ``gpus: ${params.gpus}`` is a number.
    """
    entry = root.entries.get("params")
    params = entry.node.entries if entry and isinstance(entry.node, MapNode) else {}
    texts = {
        name: item.node.text
        for name, item in params.items()
        if isinstance(item.node, ScalarNode) and not item.node.is_null
    }
    expander = _Expander(texts, findings)
    entries = {
        name: item
        if name == "params"
        else MapEntry(item.written, item.location, expander.node(item.node, name))
        for name, item in root.entries.items()
    }
    return MapNode(root.location, entries)


class _Expander:
    """All references of one manifest."""

    def __init__(self, texts: Mapping[str, str], findings: Findings) -> None:
        self._texts = texts
        self._findings = findings
        self._grown = 0

    def node(self, node: Node, path: str) -> Node:
        """Expand in a node and everything below it."""
        if isinstance(node, ScalarNode):
            return self._scalar(node, path) if "${params." in node.text else node
        if isinstance(node, ListNode):
            items = (self.node(item, f"{path}.{index}") for index, item in enumerate(node.nodes))
            return ListNode(node.location, tuple(items))
        entries = {
            name: MapEntry(entry.written, entry.location, self.node(entry.node, f"{path}.{name}"))
            for name, entry in node.entries.items()
        }
        return MapNode(node.location, entries)

    def _scalar(self, node: ScalarNode, path: str) -> ScalarNode:
        def value_of(found: re.Match[str]) -> str:
            return self._value(found[1], node.location, path)

        return replace(node, text=_REFERENCE.sub(value_of, node.text))

    def _value(self, name: str, location: SourceLocation, path: str) -> str:
        text = self._texts.get(name)
        if text is None:
            close = nearest(name, self._texts)
            hint = f"did you mean ${{params.{close}}}?" if close else "name it below params:"
            self._findings.fault(
                location, path, f"${{params.{name}}} stands for nothing: there is no such parameter", hint
            )
            return ""
        self._grown += len(text)
        if self._grown > _GROWTH_MAX:
            self._findings.fault(location, path, "with its parameters written out the manifest is too large")
            return ""
        return text


def check_param_variables(names: Mapping[str, object], location: SourceLocation, findings: Findings) -> None:
    """Note parameters that a learner could not tell apart by their variables."""
    taken: dict[str, str] = {}
    for name in names:
        variable = param_variable(name)
        if variable in taken:
            findings.fault(
                location,
                f"params.{name}",
                f"has the same variable {variable} as {taken[variable]!r}; rename one",
            )
        taken[variable] = name
