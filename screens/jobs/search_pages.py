"""What the page of a search shows: how it stands, its trials, their curves, what they have to do with parameters.

No widget.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from screens.charts.axis import Axis, around
from screens.charts.curve import OTHER, Curve
from screens.charts.data import ChartData
from screens.charts.parallel import AcrossLine, ParallelAxes, UprightAxis
from screens.charts.plot import NUMBER
from screens.core.app_protocol import Part
from screens.jobs.compare_pages import ParameterValues, metric_over
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.notices import NOTHING, EmptyNotice
from workbench import formats
from workbench.services.inspect.comparison import ComparedValue
from workbench.services.inspect.search_importance import (
    LEAST_TRIALS,
    ImportanceRanking,
    finite_number,
    is_number,
    parameter_importance,
)
from workbench.services.inspect.search_standing import SearchStanding, StandingTrial, TrialCurve
from workbench.values import dataclass

_Spread = TypeVar("_Spread")

SORTS: Final = ("best", "trial", "state", "units", "last")
"""By what trials are sorted, in turn."""
ROLES: Final = {
    "RUNNING": "processing",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "KILLED": "failed",
    "INVALID": "warning",
    "STOPPING": "warning",
}
"""The roles in which states are drawn; the others are dim."""
VALUE_CELLS: Final = 14
"""A longer value of a hyper-parameter is cut."""
BEST, CHOSEN = 1, 2
"""The colours of the best trial and of that under the cursor; all others stay behind them."""
CURVES_BEHIND: Final = 150
"""So many curves are drawn behind those that are lit: more would be one area, and take long."""
BEST_SHARE: Final = 0.25
"""Of the trials with a value this share is lit in parallel coordinates."""
LIT_MOST: Final = 50
"""So many of them are drawn at most, evenly by their values: more would be one area."""
IMPORTANCE_BAR: Final = 8
"""Cells of the bar of a hyper-parameter that explains everything."""
IMPORTANCE_NAME: Final = 16
"""A longer name is cut there."""
POINTS_BEHIND: Final = 16
"""Each of them is drawn through so many of its points."""
NO_TRIALS: Final = EmptyNotice(
    "no trial has begun", "the search begins the first one as soon as there is room"
)
NO_DIFFERENCE: Final = EmptyNotice(
    "the trials do not differ in a hyper-parameter", "those below search.params differ in what may be tried"
)
NO_VALUES: Final = EmptyNotice("no trial has reported the metric", "its values are drawn as they come")


def role_of(state: str) -> str:
    """Return the role that a state of a search or a trial is drawn in."""
    return ROLES.get(state, "dim")


def amount(standing: SearchStanding, now_us: int) -> str:
    """Return how many trials have ended of how many, and how long the others take."""
    shown = f"{standing.ended:,} of {formats.count(standing.expected_trials, 'trial')}"
    if standing.ends_us is not None and standing.ends_us > now_us:
        shown += f" {glyphs().dot} about {formats.duration((standing.ends_us - now_us) / 1e6)} left"
    return shown


def facts(standing: SearchStanding) -> list[list[Part]]:
    """Return the lines above the trials: state and method, then the best trial."""
    row, dot = standing.row, f" {glyphs().dot} "
    running = sum(one.row.state == "RUNNING" for one in standing.trials)
    how = [f"{running:,} under way", row.method] if running else [row.method]
    if row.metric:
        how.append(f"{row.goal} {formats.printable(row.metric)}")
    if standing.axis:
        how.append(f"over {formats.printable(standing.axis)}")
    if standing.rungs:
        how.append("rungs " + ", ".join(f"{each:,}" for each in standing.rungs))
    state: list[Part] = [(row.state.lower(), role_of(row.state)), (f"  {dot.join(how)}", "dim")]
    if standing.is_archived:
        state.append((f"{dot}archived", "dim"))
    if row.reason:
        state.append((f"{dot}{formats.printable(row.reason)}", "text"))
    best = standing.best
    if best is None:
        return [state, [("no trial has reported a value yet", "dim")]]
    value = formats.compact_number(best.row.best)
    line: list[Part] = [
        (f"best {value} {glyphs().best}", "completed"),
        (f"  trial {best.row.number}  ", "dim"),
        (sample(best, standing.params), "text"),
    ]
    return [state, line]


def trial_facts(standing: SearchStanding, one: StandingTrial) -> list[Part]:
    """Return what is known of a trial beside its line."""
    row = one.row
    job = f"{row.job_id.rpartition('-')[2]}" + (
        f" at {formats.printable(row.backend)}" if row.backend else ""
    )
    everything = sample(one, list(one.hparams))
    return [
        (f"trial {row.number}", role_of(row.state)),
        (f"  {job}  seed {row.seed}  ", "dim"),
        (everything, "text"),
    ]


def sample(one: StandingTrial, names: Sequence[str]) -> str:
    """Return hyper-parameters of a trial in one line."""
    return " ".join(f"{formats.printable(name)}={value_text(one.hparams.get(name))}" for name in names)


def value_text(value: Any) -> str:  # any value that JSON holds
    """Return a hyper-parameter in few cells."""
    if isinstance(value, float):
        return formats.compact_number(value)
    return formats.printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


# The table of trials


@dataclass(frozen=True, slots=True)
class TrialColumn:
    """A column of the table of trials: one text for each of them."""

    title: str
    texts: tuple[str, ...]
    width: int
    """How many cells it takes."""
    is_number: bool = True
    is_state: bool = False

    def cell(self, shown: str) -> str:
        """Return a text in the width of the column."""
        blank = " " * (self.width - text.cells(shown))
        return blank + shown if self.is_number else shown + blank


@dataclass(frozen=True, slots=True)
class TrialTable:
    """The trials of a search in their order, in columns."""

    trials: tuple[StandingTrial, ...]
    columns: tuple[TrialColumn, ...]


def trial_table(standing: SearchStanding, sort: str, *, is_reversed: bool) -> TrialTable:
    """Lay the trials of a search out; the best come first where they are sorted by values."""
    ordered = _ordered(standing, sort, is_reversed=is_reversed)
    rows = [one.row for one in ordered]
    best = standing.best.row.number if standing.best else None
    sign = glyphs().up if is_reversed else glyphs().down

    def column(key: str, title: str, texts: Sequence[str], *, is_number: bool = True) -> TrialColumn:
        shown = title + (sign if key == sort else "")
        width = max(text.cells(shown), *map(text.cells, texts), 0)
        return TrialColumn(shown, tuple(texts), width, is_number, is_state=key == "state")

    def values(found: Sequence[float | None]) -> list[str]:
        return ["" if each is None else formats.compact_number(each) for each in found]

    bests = [
        f"{shown} {glyphs().best if row.number == best else ' '}" if shown else ""
        for row, shown in zip(rows, values([row.best for row in rows]), strict=True)
    ]
    columns = [
        column("trial", "trial", [str(row.number) for row in rows]),
        column("state", "state", [row.state.lower() for row in rows], is_number=False),
    ]
    if standing.rungs:
        count = len(standing.rungs)
        columns.append(
            column("rung", "rung", [f"{one.rung} of {count}" if one.rung else "" for one in ordered])
        )
    if any(row.units is not None for row in rows):
        columns.append(column("units", "units", values([row.units for row in rows])))
    columns += [column("best", "best", bests), column("last", "last", values([row.last for row in rows]))]
    for name in standing.params:
        texts = [text.shorten(value_text(one.hparams.get(name)), VALUE_CELLS) for one in ordered]
        is_number = all(isinstance(one.hparams.get(name), int | float) for one in ordered)
        columns.append(column(f"params.{name}", formats.printable(name), texts, is_number=is_number))
    return TrialTable(tuple(ordered), tuple(columns))


def _ordered(standing: SearchStanding, sort: str, *, is_reversed: bool) -> list[StandingTrial]:
    sign = 1.0 if standing.row.goal == "minimize" else -1.0

    def key(one: StandingTrial) -> tuple[bool, float | str, int]:
        row = one.row
        match sort:
            case "state":
                return False, row.state, row.number
            case "units":
                return row.units is None, -(row.units or 0.0), row.number
            case "best":
                return row.best is None, sign * (row.best or 0.0), row.number
            case "last":
                return row.last is None, sign * (row.last or 0.0), row.number
        return False, "", row.number

    ordered = sorted(standing.trials, key=key, reverse=is_reversed)
    return sorted(ordered, key=lambda one: key(one)[0])  # those without a value stay behind


# Curves and scatter


def curves_chart(standing: SearchStanding, chosen: int | None) -> ChartData:
    """Return the learning curves of all trials as one chart: the best and that under the cursor are in colours."""
    best = standing.best.row.number if standing.best else None
    by_number = {one.row.number: one for one in standing.trials}
    behind = _spread([number for number in standing.curves if number not in (best, chosen)], CURVES_BEHIND)
    lit = [number for number in dict.fromkeys((best, chosen)) if number in standing.curves]
    curves = tuple(
        _curve(by_number[number], standing.curves[number], standing, _colour(number, best, chosen))
        for number in (*lit, *behind)
        if number is not None
    )
    values = [value for one in curves for value in one.value if math.isfinite(value)]
    metric, count = standing.row.metric, len(standing.curves)
    return ChartData(
        metric if len(curves) == count else f"{metric} of {len(curves):,} of {count:,} trials",
        curves,
        None,
        min(values, default=None),
        max(values, default=None),
        sum(len(one.x) for one in curves),
        standing.axis or NUMBER,
    )


def _colour(number: int | None, best: int | None, chosen: int | None) -> int:
    return BEST if number == best else CHOSEN if number == chosen else OTHER


def _curve(one: StandingTrial, found: TrialCurve, standing: SearchStanding, colour: int) -> Curve:
    if colour == OTHER:
        units, values = _spread(found.units, POINTS_BEHIND), _spread(found.values, POINTS_BEHIND)
        return Curve("", colour, units, values, values, values)
    named = f"trial {one.row.number}: {sample(one, standing.params)}"
    return Curve(named, colour, found.units, found.values, found.values, found.values)


def _spread(found: Sequence[_Spread], most: int) -> Sequence[_Spread]:
    """Return so many of some values at most, evenly apart, with the first and the last."""
    if len(found) <= most:
        return found
    return [found[round(at * (len(found) - 1) / (most - 1))] for at in range(most)]


def scatter_values(
    standing: SearchStanding, chosen: int | None, parameter: str, *, logarithmic: bool
) -> ParameterValues:
    """Return what is drawn of the best values of trials over a hyper-parameter, or why nothing is."""
    names = standing.params
    if standing.best is None or not names:
        notice = NO_DIFFERENCE if standing.best else NO_VALUES if standing.trials else NO_TRIALS
        return ParameterValues("", "", "", (), (), around(()), around(()), notice)
    name = parameter if parameter in names else names[0]
    best = standing.best.row.number

    def place(one: StandingTrial) -> int:
        return (one.row.number == best) * 2 + (one.row.number == chosen)

    drawn = sorted(standing.trials, key=place)  # what is lit is drawn last, so that nothing covers it
    compared = ComparedValue(f"params.{name}", tuple(_shown_value(one.hparams.get(name)) for one in drawn))
    return metric_over(
        compared,
        standing.row.metric,
        [one.row.best for one in drawn],
        colours=[_colour(one.row.number, best, chosen) for one in drawn],
        labels=[f"trial {one.row.number}" if place(one) else "" for one in drawn],
        facts=["best values"],
        noun="trial",
        logarithmic=logarithmic,
    )


def _shown_value(value: Any) -> Any:
    """Return a hyper-parameter, and None for a number that no axis can show."""
    return value if not is_number(value) or finite_number(value) is not None else None


# Which hyper-parameters matter


def ranked(standing: SearchStanding) -> ImportanceRanking:
    """Rank the hyper-parameters in which trials differ by how much of the metric each explains."""
    return parameter_importance(
        [one.hparams for one in standing.trials], [one.row.best for one in standing.trials], standing.params
    )


def in_order(standing: SearchStanding, ranking: ImportanceRanking) -> tuple[str, ...]:
    """Return the names of the hyper-parameters in which trials differ, those that matter most first."""
    return tuple(one.name for one in ranking.parameters) or standing.params


def importance_lines(ranking: ImportanceRanking, drawn: str, width: int) -> list[list[text.Part]]:
    """Return the list of hyper-parameters with bars; the one that is drawn beside it is marked."""
    if not ranking.parameters:
        have = "has" if ranking.trials == 1 else "have"
        lines = [f"needs {LEAST_TRIALS} trials,", f"{ranking.trials:,} {have} a value"]
        return [[(" importance", "text", "bold")], *([(f" {line}", "dim", "")] for line in lines)]
    room = width - IMPORTANCE_BAR - 8
    lines_shown: list[list[text.Part]] = [[(" importance", "text", "bold")]]
    for one in ranking.parameters:
        name = text.shorten(formats.printable(one.name.removeprefix("params.")), room)
        full = round(one.share * IMPORTANCE_BAR)
        is_drawn = one.name == drawn
        lines_shown.append(
            [
                (f"{glyphs().folded if is_drawn else ' '}", "key", ""),
                (name + " " * (room - text.cells(name)) + " ", "key" if is_drawn else "text", ""),
                (glyphs().bar * full, "accent", ""),
                (glyphs().bar_rest * (IMPORTANCE_BAR - full), "dim", ""),
                (f" {one.share:>4.0%}", "text", ""),
            ]
        )
    return lines_shown


def importance_width(ranking: ImportanceRanking) -> int:
    """Return how many cells the list takes."""
    longest = max((text.cells(formats.printable(one.name)) for one in ranking.parameters), default=0)
    return max(8, min(longest, IMPORTANCE_NAME)) + IMPORTANCE_BAR + 8


# Parallel coordinates


@dataclass(frozen=True, slots=True)
class ParallelPage:
    """All trials across an axis for each hyper-parameter and one for the metric."""

    title: str
    facts: str
    plot: ParallelAxes | None
    notice: EmptyNotice = NOTHING
    """Why nothing is drawn."""


def parallel_page(standing: SearchStanding, chosen: int | None, *, logarithmic: bool) -> ParallelPage:
    """Return what is drawn: the best quarter of the trials over the others, and over all that under the cursor.

    Trials without a value are left out and counted; the line of the one under the cursor ends before the metric then.
    """
    if standing.best is None or not standing.params:
        notice = NO_DIFFERENCE if standing.best else NO_VALUES if standing.trials else NO_TRIALS
        return ParallelPage("", "", None, notice)
    sign = 1.0 if standing.row.goal == "minimize" else -1.0
    valued = [
        (at, value)
        for at, one in enumerate(standing.trials)
        if (value := finite_number(one.row.best)) is not None
    ]
    valued.sort(key=lambda each: sign * each[1])
    best_count = math.ceil(len(valued) * BEST_SHARE)
    by_value = [at for at, _ in valued]
    levels = dict.fromkeys(_spread(by_value[best_count:], CURVES_BEHIND), OTHER)
    levels |= dict.fromkeys(_spread(by_value[:best_count], LIT_MOST), BEST)
    values = [value for _, value in valued]
    missing = len(standing.trials) - len(valued)
    shown = [f"{formats.count(len(valued), 'trial')}, the best {best_count:,} lit"]
    shown += [f"{len(levels):,} drawn"] if len(levels) < len(valued) else []
    shown += [f"{missing:,} without a value"] if missing else []
    levels |= {at: CHOSEN for at, one in enumerate(standing.trials) if one.row.number == chosen}
    axes = [_upright(standing, name) for name in standing.params]
    metric = UprightAxis(
        formats.printable(standing.row.metric),
        around(values, logarithmic=logarithmic and min(values, default=0.0) > 0),
    )
    columns = [_values_on(axis, standing, name) for axis, name in zip(axes, standing.params, strict=True)]
    lines = []
    for at in sorted(levels, key=lambda at: (OTHER, BEST, CHOSEN).index(levels[at])):  # from back to front
        one = standing.trials[at]
        crossed = (*(column[at] for column in columns), finite_number(one.row.best))
        texts = _texts(one, standing) if levels[at] == CHOSEN else ()
        lines.append(AcrossLine(crossed, levels[at], texts))
    return ParallelPage(
        metric.title,
        f" {glyphs().dot} ".join(shown),
        ParallelAxes((*axes, metric), tuple(lines)),
    )


def _texts(one: StandingTrial, standing: SearchStanding) -> tuple[str, ...]:
    beside = [value_text(one.hparams[name]) if name in one.hparams else "" for name in standing.params]
    return (*beside, formats.compact_number(one.row.best))


def _upright(standing: SearchStanding, name: str) -> UprightAxis:
    """Return the axis of a hyper-parameter: as its values are drawn, and wide enough for those that were tried."""
    tried = standing.ranges.get(name)
    found = [one.hparams[name] for one in standing.trials if name in one.hparams]
    listed = tried.values if tried is not None and tried.kind == "choice" else ()
    title = formats.printable(name)
    if listed or not all(map(is_number, found)):
        kinds = tuple(dict.fromkeys(value_text(each) for each in (*listed, *found)))
        return UprightAxis(title, Axis(-0.5, len(kinds) - 0.5), kinds)
    ends = tried.values if tried is not None else ()
    numbers = [number for each in (*found, *ends) if (number := finite_number(each)) is not None]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    by_factors = tried.kind == "loguniform" if tried is not None else high >= 10 * low
    return UprightAxis(title, around(numbers, logarithmic=by_factors and low > 0))


def _values_on(axis: UprightAxis, standing: SearchStanding, name: str) -> list[float | None]:
    """Return the value of each trial on the axis of a hyper-parameter; None where it has none."""
    kinds = {kind: float(at) for at, kind in enumerate(axis.categories)}
    found: list[float | None] = []
    for one in standing.trials:
        if name not in one.hparams:
            found.append(None)
        elif kinds:
            found.append(kinds[value_text(one.hparams[name])])
        else:
            found.append(finite_number(one.hparams[name]))
    return found
