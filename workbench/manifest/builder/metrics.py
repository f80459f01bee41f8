"""Reads ``evaluation_metrics``, and warns of keys that the chosen collector does not use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from workbench.manifest.keys.metric_keys import COLLECTORS, EVENT_TYPES, LINE_LOOKAHEAD, PRESET_NAMES
from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import MapNode, location_of
from workbench.spec import EvaluationMetrics, MetricGroup, TypedValue

MACROS: Final = ("GLOG_STAMP", "TIMESTAMP", "FLOAT", "INT", "INT_ANY", "HEX")
"""FfDL's macro library by name; the patterns are the collector's, which nothing here has to load."""

_MACRO: Final = re.compile(r"%\{(\w+)(?::(\w+))?\}")
_USED_BY: Final = {
    "groups": "regex_extractor",
    "line_lookahead": "regex_extractor",
    "event_types": "tensorboard",
}
_PATH: Final = "evaluation_metrics"


def metrics_of(values: Mapping[str, Any] | None, root: MapNode, findings: Findings) -> EvaluationMetrics:
    """Return how metrics are found: of themselves where the manifest does not say."""
    if values is None:
        return EvaluationMetrics(type="auto")
    groups = {name: _group(group) for name, group in (values.get("groups") or {}).items()}
    kind, lookahead = values.get("type") or "plain", LINE_LOOKAHEAD
    own = dict(groups)
    if kind in PRESET_NAMES:
        # The expressions are needed only by who names a preset.
        from workbench.manifest.keys.metric_presets import PRESETS

        kind, lookahead = "regex_extractor", PRESETS[kind].line_lookahead
        groups |= {name: group for name, group in PRESETS[values["type"]].groups.items() if name not in own}
    metrics = EvaluationMetrics(
        type=kind,
        source=values.get("in", ""),
        line_lookahead=values.get("line_lookahead") or lookahead,
        event_types=tuple(values.get("event_types") or ()),
        groups=groups,
    )
    _warn_of_unused(metrics, values, root, findings)
    for name, group in own.items():
        _check_group(f"{_PATH}.groups.{name}", group, root, findings)
    return metrics


def _group(values: Mapping[str, Any]) -> MetricGroup:
    meta = values.get("meta") or {}
    return MetricGroup(
        regex=values.get("regex", ""),
        time=meta.get("time", ""),
        subid=meta.get("subid", ""),
        scalars=_typed(values.get("scalars")),
        etimes=_typed(values.get("etimes")),
    )


def _typed(values: Mapping[str, Mapping[str, Any]] | None) -> dict[str, TypedValue]:
    pairs = ((name, value) for name, value in (values or {}).items())
    return {name: TypedValue(value.get("type", "STRING"), value.get("value", "")) for name, value in pairs}


def _warn_of_unused(
    metrics: EvaluationMetrics, values: Mapping[str, Any], root: MapNode, findings: Findings
) -> None:
    for key, user in _USED_BY.items():
        if values.get(key) and metrics.type in COLLECTORS and metrics.type != user:
            location = location_of(root, f"{_PATH}.{key}")
            findings.warn(
                location, f"{_PATH}.{key}", f"has no effect with type {metrics.type}; only {user} uses it"
            )
    if "image_tag" in values:
        location = location_of(root, f"{_PATH}.image_tag")
        findings.warn(
            location, f"{_PATH}.image_tag", "has no effect: collectors are part of fabric, not images"
        )
    if metrics.type == "regex_extractor" and not metrics.groups:
        findings.warn(location_of(root, _PATH), f"{_PATH}.groups", "is missing, so no metric will be found")
    for index, name in enumerate(metrics.event_types):
        path = f"{_PATH}.event_types.{index}"
        if name not in EVENT_TYPES:
            close = nearest(name, EVENT_TYPES)
            hint = f"did you mean {close}?" if close else f"one of {', '.join(EVENT_TYPES)}"
            findings.warn(location_of(root, path), path, f"{name!r} is not an event type", hint)
        elif name != "scalars":
            findings.warn(
                location_of(root, path), path, f"{name} are counted and named, not shown; only scalars are"
            )


def _check_group(path: str, group: MetricGroup, root: MapNode, findings: Findings) -> None:
    bound = _bound_names(f"{path}.regex", group.regex, root, findings)
    if bound is None:
        return
    for key, text in _references(group):
        if text.startswith("$") and text[1:] not in bound:
            where = f"{path}.{key}"
            problem = f"{text} is bound nowhere in the expression, so it never has a value"
            known = f"it binds {', '.join(sorted(bound))}" if bound else "bind a part with %{FLOAT:name}"
            findings.warn(location_of(root, where), where, problem, known)


def _references(group: MetricGroup) -> Iterator[tuple[str, str]]:
    yield "meta.time", group.time
    yield "meta.subid", group.subid
    for key, typed in (("scalars", group.scalars), ("etimes", group.etimes)):
        for name, value in typed.items():
            yield f"{key}.{name}.value", value.value


def _bound_names(path: str, regex: str, root: MapNode, findings: Findings) -> set[str] | None:
    """Return the names that an expression binds; None when it is none, which is noted."""
    location = location_of(root, path)
    unknown = [found[1] for found in _MACRO.finditer(regex) if found[1] not in MACROS]
    for name in unknown:
        close = nearest(name, MACROS)
        hint = f"did you mean {close}?" if close else f"one of {', '.join(MACROS)}"
        findings.fault(location, path, f"%{{{name}}} is not a macro", hint)
    if unknown:
        return None
    try:
        return set(re.compile(_MACRO.sub(_stand_in, regex), re.MULTILINE | re.DOTALL).groupindex)
    except (re.error, OverflowError, RecursionError) as error:
        findings.fault(
            location, path, f"is not a regular expression: {str(error) or 'it is nested too deep'}"
        )
        return None


def _stand_in(found: re.Match[str]) -> str:
    """Replace a macro by a group that matches anything, since only the rest of the expression is checked."""
    return f"(?P<{found[2]}>.*)" if found[2] else "(?:.*)"
