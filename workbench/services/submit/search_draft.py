"""The draft of a search around a job: its manifest with ranges in place of the values that it has."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UsageError

if TYPE_CHECKING:
    import yaml

    from workbench.manifest.yaml.nodes import Node
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, SeriesRow

DRAFT_TRIALS: Final = 16
DRAFT_CONCURRENT: Final = 4
DRAFT_FACTOR: Final = 10.0
"""By so much the bounds of a positive number are below and above it."""
DRAFT_DIVISOR: Final = 4
"""A job that came less far has no rungs to be compared at."""
TIME_NAMES: Final = ("epoch", "epochs", "step", "steps", "iteration", "batch", "batches")
"""How metrics are called that say how long a job has been trained, the best first."""
_POINTS_LOOKED_AT: Final = 200
_WIDTH_MAX: Final = 1 << 16
"""A command of a manifest stays in its line."""
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
"""What JSON leaves in a text, and YAML takes for the end of a line or refuses."""


def search_manifest(store: Store, found: JobDetail, manifest_text: str) -> str:
    """Return a job's manifest with a search around its ``params`` in place of these, as something to begin with.

    A positive number may be ten times smaller or larger, but one below 1 stays below it: most of those are shares or
    rates. A positive whole number may be half or twice as large. Anything else is a choice of the one value that the
    job has, to which others are added by hand. The rest of the manifest stays as it is written, with its comments.

    Args:
        store: where its metrics are.
        found: the job.
        manifest_text: what was submitted, with what the command line had laid over it.

    Raises:
        UsageError: the job has no ``params``, its manifest has another form, or a nested hyper-parameter has the name
            of a distribution.
    """
    import yaml

    try:
        root = yaml.compose(manifest_text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"the manifest of {found.row.name} cannot be read again: {error}") from None
    document = _content(manifest_text)
    if document is None or not isinstance(root, yaml.MappingNode):
        raise UsageError(
            f"the manifest of {found.row.name} cannot be read again: it is not a map of keys",
            hint="write a manifest with a search: by hand",
        )
    if "searcher" in document and "framework" not in document:
        raise UsageError(
            f"the manifest of {found.row.name} is an experiment of Determined",
            hint="it has a search of its own: change its searcher: and hyperparameters:",
        )
    params = _nested(found.spec.params)
    if not params:
        raise UsageError(
            f"the manifest of {found.row.name} has no params: there is nothing to search",
            hint="write params: {lr: 0.1} into it, and ${params.lr} where its command takes the value",
        )
    replaced = ("params", "search")
    block = "\n".join(["search:", *_goal_lines(store, found), "  params:", *_range_lines(params, "    ")])
    written = _followed_by(block, _without(manifest_text, root, replaced))
    kept = {name: value for name, value in document.items() if name not in replaced}
    again = _content(written)
    if again is not None and {name: value for name, value in again.items() if name != "search"} == kept:
        return written
    # It is no block of lines, as JSON, or an alias below params is used elsewhere.
    return _followed_by(block, _serialized_without(root, replaced))


def _content(text: str) -> dict[str, Node] | None:
    """Return what is at the keys of a manifest as fabric reads it, wherever it is written; None where it cannot."""
    from workbench.manifest.yaml.compose import compose
    from workbench.manifest.yaml.faults import Findings
    from workbench.manifest.yaml.nodes import MapNode

    # Without lines all nodes have the same location; it is the span alone that differs.
    findings = Findings()
    root = compose(text, "manifest", findings, lines=False)
    if not isinstance(root, MapNode) or findings.faults:
        return None
    return {name: _without_span(entry.node) for name, entry in root.entries.items()}


def _without_span(node: Node) -> Node:
    from workbench.manifest.yaml.nodes import ListNode, MapNode

    if isinstance(node, MapNode):
        entries = node.entries.items()
        return replace(
            node, entries={name: replace(each, node=_without_span(each.node)) for name, each in entries}
        )
    if isinstance(node, ListNode):
        return replace(node, nodes=tuple(map(_without_span, node.nodes)))
    return replace(node, span=(0, 0))


def _followed_by(block: str, text: str) -> str:
    """Return a manifest with a block behind it; the mark of the document's end would hide the block."""
    kept = text.rstrip()
    if kept.splitlines()[-1:] == ["..."]:
        kept = kept.removesuffix("...").rstrip()
    return f"{kept}\n\n{block}\n".lstrip()


def _serialized_without(root: yaml.MappingNode, names: Sequence[str]) -> str:
    """Return a manifest without some of its keys, written anew.

    The nodes are written and not their values: PyYAML knows YAML 1.1, by which ``yes`` and ``012`` are other values.
    """
    import yaml

    yaml.SafeLoader("").flatten_mapping(root)  # a merged map may have the keys as well
    entries = {key.value: (key, value) for key, value in root.value if key.value not in names}
    if not entries:
        return ""
    kept = yaml.MappingNode(root.tag, list(entries.values()))
    _write_as_block(kept)
    return str(yaml.serialize(kept, Dumper=yaml.SafeDumper, allow_unicode=True, width=_WIDTH_MAX))


def _write_as_block(node: yaml.Node) -> None:
    """Have all maps in it written line by line."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        node.flow_style = False
        for _, value in node.value:
            _write_as_block(value)


def _nested(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyper-parameters with dots in their names as maps."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        *above, last = name.split(".")
        below = found
        for part in above:
            below = below.setdefault(part, {})
        below[last] = value
    return found


def _without(text: str, root: yaml.MappingNode, names: Sequence[str]) -> str:
    """Return a manifest without the lines of some of its keys."""
    lines = text.splitlines(keepends=True)
    for key, value in reversed(root.value):
        if getattr(key, "value", None) in names:
            begin, column = key.start_mark.line, key.start_mark.column
            end = value.end_mark.line + (value.end_mark.column > 0)
            # A block ends where the next key begins: the comments between them are of that key.
            while end > begin + 1 and _is_outside(lines[end - 1], column):
                end -= 1
            del lines[begin:end]
    return "".join(lines)


def _is_outside(line: str, column: int) -> bool:
    """Return whether a line is blank, or a comment no further to the right than a key."""
    content = line.lstrip()
    return not content or (content.startswith("#") and len(line) - len(content) <= column)


def _goal_lines(store: Store, found: JobDetail) -> list[str]:
    """Return how the search goes on: by the metric that the job reports, stopping bad trials early where it can."""
    from workbench.metric_names import goal_metric, goal_of, smaller_is_better
    from workbench.metrics.queries import series

    rows = series(store, found.row.id, kinds=("value", "etime"))
    reported = {row.name: row for row in reversed(rows) if row.points}
    # What says how long a job was trained is of the kind etime where fabric knows it as such.
    names = [
        name
        for name, row in reported.items()
        if row.kind == "value" and name.rpartition("/")[2] not in TIME_NAMES
    ]
    limits = [f"  max_trials: {DRAFT_TRIALS}", f"  max_concurrent: {DRAFT_CONCURRENT}"]
    metric = goal_metric(names)
    if metric is None:
        lines = ["  method: random  # the job has reported no metric: nothing says which trial is the best"]
        return [*lines, *limits, "  # metric: val_loss", "  # goal: minimize"]
    unsure = "  # check this: the name does not say it" if smaller_is_better(metric) is None else ""
    by = [f"  metric: {_text(metric)}", f"  goal: {goal_of(metric)}{unsure}"]
    time = _time_metric(store, reported[metric], reported)
    if time is None:
        return ["  method: random", *by, *limits]
    name, longest = time
    return [
        f"  method: asha  # stops the worse trials early, by {name}; random trains all to their end",
        *by,
        f"  time_metric: {_text(name)}",
        f"  max_time: {longest}  # so far the job came",
        *limits,
    ]


def _time_metric(
    store: Store, metric: SeriesRow, reported: Mapping[str, SeriesRow]
) -> tuple[str, int] | None:
    """Return what a job reports with each value of a metric of how long it was trained, and how far it came."""
    from workbench.manifest.keys.search_keys import TIME_MAX
    from workbench.metrics.queries import points

    def last_points(row: SeriesRow) -> dict[tuple[Any, ...], float | None]:
        found = points(store, row.id, since_seq=max(0, row.points - _POINTS_LOOKED_AT))
        return {(each.attempt, each.step, each.time_us): each.value for each in found}

    wanted = last_points(metric)
    for time_name in TIME_NAMES:
        for name, row in reported.items():
            longest = row.maximum or 0.0
            if name.rpartition("/")[2] != time_name or not DRAFT_DIVISOR <= longest <= TIME_MAX:
                continue
            times = last_points(row)
            if all(times.get(each) is not None for each in wanted):
                return name, int(longest)
    if all(step is not None for _, step, _ in wanted) and (metric.last_step or 0) >= DRAFT_DIVISOR:
        return "step", int(metric.last_step or 0)
    return None


def _range_lines(params: Mapping[str, Any], indent: str) -> list[str]:
    from workbench.distributions import DISTRIBUTIONS

    lines = []
    for name, value in params.items():
        if isinstance(value, Mapping) and value:
            if taken := [below for below in value if below in DISTRIBUTIONS]:
                raise UsageError(
                    f"the hyper-parameter {taken[0]} below {name} has the name of a distribution",
                    hint="a search would take it for one: give it another name in params: and in the command",
                )
            lines += [f"{indent}{name}:", *_range_lines(value, indent + "  ")]
        else:
            tried, comment = _range_around(value)
            lines.append(f"{indent}{name}: {tried}  # {comment}")
    return lines


def _range_around(value: Any) -> tuple[str, str]:
    """Return a distribution around a value, and what to know of it."""
    shown = _text(value)
    if isinstance(value, float) and math.isfinite(value) and 1e-300 < value < 1e300:
        low, high = value / DRAFT_FACTOR, value * DRAFT_FACTOR
        high = min(high, 1.0) if value < 1 else high
        return f"{{loguniform: [{_short(low)}, {_short(high)}]}}", f"the job has {shown}"
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 60:
        return f"{{int: [{max(1, value // 2)}, {value * 2}]}}", f"the job has {shown}"
    return f"{{choice: [{shown}]}}", "add what else to try"


def _text(value: Any) -> str:
    """Return a value as YAML in one line; texts are quoted, so that none is taken for a number."""
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(str(name))}: {_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    shown = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


def _short(number: float) -> str:
    shown = f"{number:.6g}"
    return shown if "." in shown or "e" in shown else f"{shown}.0"
