"""Experiments as older releases of Determined took them: their keys by the names that they have in 0.38.

Before 0.13 lengths were counted in steps of ``batches_per_step`` batches. Its YAML reader takes digits in groups,
such as ``10_000``, in every release.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import (
    ListNode,
    MapEntry,
    MapNode,
    Node,
    ScalarNode,
    from_value,
    node_at,
)

BATCHES_PER_STEP: Final = 100
"""How many batches a step had in a file that did not say it."""
_STEPS: Final = "batches_per_step"
_MAX_STEPS: Final = "max_steps"
_PERIODS: Final = ("min_validation_period", "min_checkpoint_period")
_OF_TEXTS: Final = frozenset(
    {
        *("name", "description", "labels", "workspace", "project", "entrypoint", "environment"),
        *("bind_mounts", "checkpoint_storage", "log_policies", "integrations"),
    }
)
"""Keys whose values are texts, such as a name made of a date: ``2024_01_15`` stays one."""
_GROUPED: Final = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?")

FORMER_SEARCHER_KEYS: Final = {
    _MAX_STEPS: "write max_length: {batches: N}; a step had 100 batches, or batches_per_step: of them",
    "target_trial_steps": "write max_length: {batches: N}, which is how long a trial may train",
    "step_budget": "write max_trials:, which is how much is tried",
    "budget": "write max_trials:, which is how much is tried",
    "train_stragglers": "leave it out: asha never waits for slow trials",
    "unit": "leave it out: custom searchers were removed in 0.38",
    **dict.fromkeys(
        ("population_size", "num_rounds", "length_per_round", "replace_function", "explore_function"),
        "search: {method: pbt} of a manifest has population:, rounds:, round_time:, truncate:, resample: and perturb:",
    ),
}
"""Keys of searchers that are no longer there, and what does the same."""


def renewed(root: MapNode, findings: Findings) -> MapNode:
    """Return an experiment with the keys of 0.38; each key that counted steps is named by a warning."""
    entries = {
        name: entry if name in _OF_TEXTS else replace(entry, node=_without_groups(entry.node))
        for name, entry in root.entries.items()
    }
    return _without_steps(replace(root, entries=entries), findings)


def _without_groups(node: Node) -> Node:
    """Return the same with ``10_000`` as ``10000``; what is quoted stays a text."""
    if isinstance(node, ScalarNode):
        is_grouped = node.style == "plain" and "_" in node.text and _GROUPED.fullmatch(node.text)
        return replace(node, text=node.text.replace("_", "")) if is_grouped else node
    if isinstance(node, ListNode):
        return replace(node, nodes=tuple(map(_without_groups, node.nodes)))
    entries = {name: replace(entry, node=_without_groups(entry.node)) for name, entry in node.entries.items()}
    return replace(node, entries=entries)


def _without_steps(root: MapNode, findings: Findings) -> MapNode:
    """Return the same with lengths in batches; a number that is none is left for the keys' own check."""
    searcher = node_at(root, "searcher")
    unit = node_at(root, _STEPS)
    steps = node_at(root, f"searcher.{_MAX_STEPS}")
    batches = BATCHES_PER_STEP if unit is None else _number(unit)
    if batches == 0 and unit is not None:
        findings.fault(unit.location, _STEPS, "found the number 0", "a step has 1 batch or more")
        return root.without(_STEPS)
    if batches is None or (unit is None and steps is None):
        return root
    found = root
    if unit is not None:
        findings.warn(
            unit.location, _STEPS, f"is of releases before 0.13: read as scheduling_unit: {batches}"
        )
        found = _with_value(found.without(_STEPS), "scheduling_unit", batches, unit)
    count = None if steps is None else _number(steps)
    if (
        steps is None
        or count is None
        or not isinstance(searcher, MapNode)
        or "max_length" in searcher.entries
    ):
        return found
    length = {"batches": count * batches}
    problem = f"is of releases before 0.13: read as max_length: {{batches: {count * batches}}}"
    findings.warn(steps.location, f"searcher.{_MAX_STEPS}", f"{problem}, {batches} of them a step")
    kept = _with_value(searcher.without(_MAX_STEPS), "max_length", length, steps)
    found = found.with_entry("searcher", replace(root.entries["searcher"], node=kept))
    for name in _PERIODS:
        written = node_at(root, name)
        period = None if written is None else _number(written)
        if written is not None and period is not None:
            problem = f"{period} steps are read as {{batches: {period * batches}}}"
            findings.warn(written.location, name, problem)
            found = _with_value(found, name, {"batches": period * batches}, written)
    return found


def _with_value(root: MapNode, name: str, value: object, written: Node) -> MapNode:
    """Return the map with a value in the place of a node, unless the file has that key itself."""
    if name in root.entries and root.entries[name].node is not written:
        return root
    return root.with_entry(name, MapEntry(name, written.location, from_value(value, written.location)))


def _number(node: Node) -> int | None:
    """Return a whole number above -1; None where a node is something else."""
    value = node.value if isinstance(node, ScalarNode) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
