"""Hyper-parameters: ``${params.lr}`` in any value of a manifest, and the variables that a learner sees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from workbench.learner.determined_jobs import CONFIG_VARIABLE as CONFIG_VARIABLE
from workbench.learner.determined_jobs import SLOTS_VARIABLE as SLOTS_VARIABLE
from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import (
    ListNode,
    MapEntry,
    MapNode,
    Node,
    ScalarNode,
    SourceLocation,
    node_at,
)
from workbench.spec import JobSpec, spec_from_json, spec_to_json

_REFERENCE: Final = re.compile(r"\$\{params\.([^{}]*)\}")
_VARIABLE: Final = re.compile(r"[A-Z0-9_]+")
_GROWTH_MAX: Final = 1 << 20
"""How many characters expansion may add in all: a text that names another one many times is a bomb."""


def param_variable(name: str) -> str:
    """Return the variable of a hyper-parameter: ``FABRIC_PARAM_LR`` of ``lr``."""
    return "FABRIC_PARAM_" + name.upper().replace("-", "_").replace(".", "_")


def param_text(value: Any) -> str:
    """Return the text of a hyper-parameter's variable; a list is JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (list, tuple, Mapping)) or value is None else str(value)


def flat_params(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values; what is within a map has dots in its name."""
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from flat_params(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def params_by_name(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the names of :func:`flat_params`, as all have them who go by such a name.

    Of two that are called alike, ``a.b`` and ``b`` below ``a``, it is the first, as with their variables.
    """
    found: dict[str, Any] = {}
    for name, value in flat_params(params):
        found.setdefault(name, value)
    return found


def param_variables(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of hyper-parameters, and their texts.

    Names of an experiment of Determined may be no variables, or the same one, which the first of them has then.
    """
    found: dict[str, str] = {}
    for name, value in flat_params(params):
        variable = param_variable(name)
        if _VARIABLE.fullmatch(variable):
            found.setdefault(variable, param_text(value))
    return found


def with_params(document: Any, params: Mapping[str, Any]) -> Any:
    """Return plain values in whose texts every ``${params.name}`` that has a value is replaced by its text."""
    texts = {name: param_text(value) for name, value in params_by_name(params).items()}

    def text_of(found: re.Match[str]) -> str:
        return texts.get(found[1], found[0])

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return _REFERENCE.sub(text_of, value) if "${params." in value else value
        if isinstance(value, Mapping):
            return {name: replaced(item) for name, item in value.items()}
        return [replaced(item) for item in value] if isinstance(value, (list, tuple)) else value

    return replaced(document)


def trial_spec(
    spec: JobSpec, hparams: Mapping[str, Any], *, number: int, seed: int, max_trials: int
) -> JobSpec:
    """Return the job of a trial: that of its search with the hyper-parameters filled in, and a name of its own.

    The number in the name has as many digits as ``max_trials``, which a search that was continued has another one of.
    """
    params = {**spec.params, **hparams}
    plain = spec_to_json(replace(spec, params=params, search=None))
    width = len(str(max(max_trials, 1)))
    trial = spec_from_json(with_params(plain, params))
    if trial.evaluation_metrics is not None:
        search = spec.search or {}
        names = tuple(str(search[key]) for key in ("metric", "time_metric") if search.get(key))
        trial = replace(trial, evaluation_metrics=replace(trial.evaluation_metrics, names=names))
    return replace(trial, name=f"{trial.name[:190]}-{number:0{width}}", seed=seed)


def search_name(name: str) -> str:
    """Return what a search is called in whose trials' names parameters stand: ``run`` of ``run-${params.lr}``.

    A fold of a sweep is called alike: what the names of its jobs begin with.
    """
    own, reference, _ = name.partition("${params.")
    return (own.rstrip("-_./=: ") or name) if reference else name


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
    expander = _Expander(texts, _searched(root), findings)
    entries = {
        name: item
        if name in ("params", "search")
        else MapEntry(item.written, item.location, expander.node(item.node, name))
        for name, item in root.entries.items()
    }
    return MapNode(root.location, entries)


def _searched(root: MapNode) -> frozenset[str]:
    """Return the names of the parameters that a search has the values of; their references wait for a trial."""
    search = node_at(root, "search.params")
    return frozenset(_names(search)) if isinstance(search, MapNode) else frozenset()


def _names(node: MapNode, prefix: str = "") -> Iterator[str]:
    for name, entry in node.entries.items():
        yield f"{prefix}{name}"
        if isinstance(entry.node, MapNode):
            yield from _names(entry.node, f"{prefix}{name}.")


class _Expander:
    """All references of one manifest."""

    def __init__(self, texts: Mapping[str, str], searched: frozenset[str], findings: Findings) -> None:
        self._texts = texts
        self._searched = searched
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
        if name in self._searched:
            return f"${{params.{name}}}"
        text = self._texts.get(name)
        if text is None:
            close = nearest(name, [*self._texts, *self._searched])
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


def check_param_variables(names: Iterable[str], location: SourceLocation, findings: Findings) -> None:
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
