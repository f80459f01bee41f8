"""The draft of a search around a job: its manifest with ranges in place of the values that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UsageError

if TYPE_CHECKING:
    import yaml

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
        UsageError: the job has no ``params``, or its manifest has another form.
    """
    import yaml

    try:
        document = yaml.safe_load(manifest_text)
        root = yaml.compose(manifest_text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"the manifest of {found.row.name} cannot be read again: {error}") from None
    if not isinstance(document, dict) or ("searcher" in document and "framework" not in document):
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
    kept = {key: value for key, value in document.items() if key not in ("params", "search")}
    block = "\n".join(["search:", *_goal_lines(store, found), "  params:", *_range_lines(params, "    ")])
    written = f"{_without(manifest_text, root, ('params', 'search')).rstrip()}\n\n{block}\n".lstrip()
    try:
        again = yaml.safe_load(written)
    except yaml.YAMLError:
        again = None
    if isinstance(again, dict) and {key: value for key, value in again.items() if key != "search"} == kept:
        return written
    # It is no block of lines, as JSON, or an alias below params is used elsewhere.
    plain = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True) if kept else ""
    return f"{plain}\n{block}\n".lstrip()


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


def _without(text: str, root: yaml.Node | None, names: Sequence[str]) -> str:
    """Return a manifest without the lines of some of its keys."""
    import yaml

    lines = text.splitlines(keepends=True)
    for key, value in reversed(root.value if isinstance(root, yaml.MappingNode) else ()):
        if getattr(key, "value", None) in names:
            end = value.end_mark
            del lines[key.start_mark.line : end.line + (end.column > 0)]
    return "".join(lines)


def _goal_lines(store: Store, found: JobDetail) -> list[str]:
    """Return how the search goes on: by the metric that the job reports, stopping bad trials early where it can."""
    from workbench.metrics.direction import goal_metric, smaller_is_better
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
    smaller = smaller_is_better(metric)
    goal = "maximize" if smaller is False else "minimize"
    unsure = "  # check this: the name does not say it" if smaller is None else ""
    by = [f"  metric: {_text(metric)}", f"  goal: {goal}{unsure}"]
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
    from workbench.metrics.queries import points

    def last_points(row: SeriesRow) -> dict[tuple[Any, ...], float | None]:
        found = points(store, row.id, since_seq=max(0, row.points - _POINTS_LOOKED_AT))
        return {(each.attempt, each.step, each.time_us): each.value for each in found}

    wanted = last_points(metric)
    for time_name in TIME_NAMES:
        for name, row in reported.items():
            if name.rpartition("/")[2] != time_name or row.maximum is None or row.maximum < DRAFT_DIVISOR:
                continue
            times = last_points(row)
            if all(times.get(each) is not None for each in wanted):
                return name, int(row.maximum)
    if all(step is not None for _, step, _ in wanted) and (metric.last_step or 0) >= DRAFT_DIVISOR:
        return "step", int(metric.last_step or 0)
    return None


def _range_lines(params: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for name, value in params.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{name}:", *_range_lines(value, indent + "  ")]
        else:
            tried, comment = _range_around(value)
            lines.append(f"{indent}{name}: {tried}  # {comment}")
    return lines


def _range_around(value: Any) -> tuple[str, str]:
    """Return a distribution around a value, and what to know of it."""
    import math

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
    import json
    import math

    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.dumps(value, ensure_ascii=False)


def _short(number: float) -> str:
    shown = f"{number:.6g}"
    return shown if "." in shown or "e" in shown else f"{shown}.0"
