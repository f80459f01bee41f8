"""The pages of a comparison: values of metrics, the settings in which jobs differ, the code. No widget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from textual.content import Content

from screens.charts.axis import Axis, around
from screens.charts.plot import Row, ScatterPoint, scatter, sign_of
from screens.style import status, text
from screens.style.glyphs import glyphs
from screens.style.notices import NOTHING, EmptyNotice
from screens.widgets.markup import heading, page, plain, table
from workbench import formats
from workbench.errors import FabricError
from workbench.job import short_id
from workbench.metric_names import main_metrics
from workbench.metrics.short_names import shared_folder
from workbench.paths import Home
from workbench.services.inspect.comparison import (
    ComparedMetric,
    ComparedValue,
    Comparison,
    FileDifference,
    JobRecord,
    code_differences,
    compare,
)
from workbench.services.inspect.job_times import run_seconds
from workbench.store.db.database import Store
from workbench.store.queries.jobs import job as stored_job
from workbench.values import dataclass

DIFF_LINES: Final = 600
EQUAL_LINES: Final = 400
TITLE_CELLS: Final = 28
CATEGORY_CELLS: Final = 16
LABELLED_JOBS: Final = 16
VALUE_CELLS: Final = 40
"""A longer value is cut."""
LEAST_CELLS: Final = 8
"""Narrower pieces of values say nothing: then the rest is whole."""


def compare_query(job_ids: Sequence[str]) -> Callable[[Store], Comparison]:
    """Return the query that compares several jobs; those that were deleted are left out."""

    def read(store: Store) -> Comparison:
        rows = [row for job_id in job_ids if (row := stored_job(store, job_id)) is not None]
        return compare(store, [row for row in rows if row.deleted_us is None])

    return read


def titles(comparison: Comparison) -> list[str]:
    """Name each job by what tells it apart, in few cells."""
    labels = [formats.printable(label) for label in comparison.labels()]
    cut = cut_apart(labels, TITLE_CELLS)
    return [cut[label] for label in labels]


def values_page(
    comparison: Comparison, now_us: int, *, which: str = "last", metric: str = "", width: int = 120
) -> Content:
    """Return a line for each job with its metrics, the best marked, and its state and times.

    Args:
        comparison: The jobs.
        now_us: The time.
        which: ``last``, ``min`` or ``max`` values.
        metric: By which jobs are sorted, the best first; empty: as they are.
        width: Columns to write in.
    """
    heads = titles(comparison)
    chosen = metric_of(comparison, metric)
    places = list(range(len(heads)))
    if chosen is not None and metric:
        places = chosen.order(chosen.values(which))
    shared = shared_folder(each.name for each in comparison.metrics)
    columns = [
        _metric_column(each, which, shared, is_sorted=metric == each.name) for each in metrics_of(comparison)
    ]
    columns = [(title, [cells[place] for place in places]) for title, cells in columns]
    names = [heads[place] for place in places]
    blocks = _blocks("job", names, columns, width)
    jobs = [comparison.jobs[place] for place in places]
    general: list[tuple[str, list[str | Content]]] = [
        ("name", [text.shorten(formats.printable(job.row.name), TITLE_CELLS) for job in jobs]),
        ("id", [short_id(job.row.id) for job in jobs]),
        ("state", [plain(str(status.look(job.row.state)), job.row.state.lower()) for job in jobs]),
        ("ran", [_ran(job, now_us) for job in jobs]),
        ("exit code", ["" if job.row.exit_code is None else str(job.row.exit_code) for job in jobs]),
    ]
    job_blocks = _blocks("job", names, general[1:] if general[0][1] == names else general, width)
    metrics = [
        [heading("Metrics"), plain(f"  {_sorted_how(chosen, which, metric)}", "dim"), *next(iter(blocks), [])]
    ]
    return page(
        *([*metrics, *blocks[1:]] if columns else [[plain(f"{NO_METRICS.what}; {NO_METRICS.hint}", "dim")]]),
        [heading("Jobs"), *job_blocks[0]],
        *job_blocks[1:],
    )


NO_METRICS: Final = EmptyNotice(
    "no metrics in any of these jobs", "numbers that a job prints or reports are compared as soon as it does"
)


def metrics_of(comparison: Comparison) -> list[ComparedMetric]:
    """Return the metrics in the order in which a person looks at them."""
    by_name = {metric.name: metric for metric in comparison.metrics}
    return [by_name[name] for name in main_metrics(by_name, len(by_name))]


def metric_of(comparison: Comparison, name: str) -> ComparedMetric | None:
    """Return the metric of that name, else the one that a person looks at first."""
    metrics = metrics_of(comparison)
    return next((metric for metric in metrics if metric.name == name), metrics[0] if metrics else None)


def _sorted_how(chosen: ComparedMetric | None, which: str, metric: str) -> str:
    dot = f" {glyphs().dot} "
    shown = f"{which} values (v: last, min, max){dot}the best is marked {glyphs().best}"
    if chosen is None or not metric:
        return shown + f"{dot}s sorts"
    better = {True: ", smaller is better", False: ", larger is better", None: ""}[chosen.smaller_is_better]
    return shown + f"{dot}sorted by {formats.printable(chosen.name)}{better} (s: the next)"


def _metric_column(
    metric: ComparedMetric, which: str, shared: str, *, is_sorted: bool
) -> tuple[str, list[str | Content]]:
    """Return a metric's title and its cells: numbers to the right, the best with a sign."""
    values = metric.values(which)
    shown = [
        formats.compact_number(value) if value is not None else ("nan" if series else glyphs().dash)
        for value, series in zip(values, metric.series, strict=True)
    ]
    title = formats.printable(metric.name.removeprefix(shared))
    width = max(text.cells(title), *map(len, shown))
    cells: list[str | Content] = [
        plain(f"{each:>{width}} {glyphs().best}", "completed")
        if is_best
        else plain(f"{each:>{width}}  ", "" if value is not None else "dim")
        for each, value, is_best in zip(shown, values, metric.best_of(values), strict=True)
    ]
    return " " * (width - text.cells(title)) + title + f" {glyphs().down if is_sorted else ' '}", cells


def _blocks(
    corner: str, names: Sequence[str], columns: Sequence[tuple[str, Sequence[str | Content]]], width: int
) -> list[list[Content]]:
    """Return a table of these columns, and where it is too wide several under each other, each with the names."""
    first = max(text.cells(corner), *map(text.cells, names), 0) + 4
    blocks: list[list[tuple[str, Sequence[str | Content]]]] = []
    room = 0
    for title, cells in columns:
        needed = (
            max(
                text.cells(title),
                *(cell.cell_length if isinstance(cell, Content) else text.cells(cell) for cell in cells),
                0,
            )
            + 2
        )
        if not blocks or needed > room:
            blocks.append([])
            room = width - first
        blocks[-1].append((title, cells))
        room -= needed
    return [
        table(
            (corner, *(title for title, _ in block)),
            list(zip(names, *(cells for _, cells in block), strict=True)),
        )
        for block in blocks
    ]


def _ran(job: JobRecord, now_us: int) -> str:
    seconds = run_seconds(job.row, now_us)
    return "" if seconds is None else formats.duration(seconds)


@dataclass(frozen=True, slots=True)
class ParameterValues:
    """A metric of each job over a parameter of it."""

    parameter: str
    title: str
    facts: str
    points: tuple[ScatterPoint, ...]
    ticks: tuple[tuple[float, str], ...]
    x: Axis
    y: Axis
    notice: EmptyNotice = NOTHING
    """Why there are no points."""

    def draw(self, width: int, height: int, *, marked: bool) -> list[Row]:
        """Draw them into so many cells; ``marked`` where there are no colours."""
        points = self.points if marked else [replace(point, sign=sign_of(1)) for point in self.points]
        return scatter(points, self.x, self.ticks, self.y, (width, height))


def parameter_values(
    comparison: Comparison,
    *,
    colours: Sequence[int],
    metric: str = "",
    parameter: str = "",
    which: str = "last",
    logarithmic: bool = False,
) -> ParameterValues:
    """Return what is drawn of a metric over a parameter; jobs without one of them are left out, and counted."""
    chosen = metric_of(comparison, metric)
    varied = {value.key: value for value in comparison.varied}
    value = varied.get(parameter) or next(iter(varied.values()), None)
    if chosen is None or value is None:
        notice = (
            EmptyNotice("these jobs do not differ in a parameter", "a sweep does: --set params.NAME=1,2,3")
            if chosen
            else NO_METRICS
        )
        return ParameterValues("", "", "", (), (), Axis(0, 1), Axis(0, 1), notice)
    values = chosen.values(which)
    rest = [each for each in comparison.telling_keys() if each.key != value.key]
    return metric_over(
        value,
        chosen.name,
        values,
        colours=colours,
        labels=_rest_labels(rest, len(values)),
        facts=[f"{which} values"],
        noun="job",
        logarithmic=logarithmic,
    )


def metric_over(
    value: ComparedValue,
    metric: str,
    values: Sequence[float | None],
    *,
    colours: Sequence[int],
    labels: Sequence[str],
    facts: Sequence[str],
    noun: str,
    logarithmic: bool,
) -> ParameterValues:
    """Return what is drawn of a metric over a parameter, one point for each that has both.

    Args:
        value: The parameter, with the value of each.
        metric: The metric's name.
        values: The value of each.
        colours: The colour of each.
        labels: What is written beside each, where there is room.
        facts: What stands behind the title.
        noun: What each is.
        logarithmic: Whether the metric's axis is, if its values allow it.
    """
    places, ticks, is_categorical = _positions(value)
    least = min((v for v in values if v is not None), default=0.0)
    logarithmic = logarithmic and least > 0
    points = tuple(
        ScatterPoint(x, y, colour, sign_of(colour), label)
        for x, y, colour, label in zip(places, values, colours, labels, strict=True)
        if x is not None and y is not None
    )
    x = around([point.x for point in points], logarithmic=not is_categorical and _spans_decades(places))
    y = around([point.y for point in points], logarithmic=logarithmic)
    left_out = len(values) - len(points)
    shown = [*facts, formats.count(len(points), noun)]
    shown += (
        ["log axes" if x.logarithmic and y.logarithmic else f"log {'x' if x.logarithmic else 'y'} axis"]
        if x.logarithmic or y.logarithmic
        else []
    )
    shown += [f"{left_out} without value left out"] if left_out else []
    name = value.key.removeprefix("params.")
    title = f"{formats.printable(metric)} over {formats.printable(name)}"
    notice = EmptyNotice(f"no {noun} has both {metric} and {name}", "s and a choose others")
    shown_ticks = (
        ticks
        if is_categorical or len(ticks) <= 12
        else [(at, each) for at, each in zip(x.ticks(8), x.labels(x.ticks(8)), strict=True)]
    )
    return ParameterValues(
        name, title, f" {glyphs().dot} ".join(shown), points, tuple(shown_ticks), x, y, notice
    )


def _positions(value: ComparedValue) -> tuple[list[float | None], list[tuple[float, str]], bool]:
    """Return where each job stands along a parameter, the ticks, and whether its values are not numbers."""
    present = [each for each in value.values if each is not None]
    if all(
        isinstance(each, (int, float)) and not isinstance(each, bool) and math.isfinite(each)
        for each in present
    ):
        places = [None if each is None else float(each) for each in value.values]
        return (
            places,
            [(at, formats.compact_number(at)) for at in sorted({float(each) for each in present})],
            False,
        )
    kinds = sorted({str(each) for each in present})
    places = [None if each is None else float(kinds.index(str(each))) for each in value.values]
    cut = cut_apart([formats.printable(kind) for kind in kinds], CATEGORY_CELLS)
    return places, [(float(at), cut[formats.printable(kind)]) for at, kind in enumerate(kinds)], True


def _spans_decades(places: Sequence[float | None]) -> bool:
    known = [place for place in places if place is not None]
    return bool(known) and min(known) > 0 and max(known) >= 10 * min(known)


def _rest_labels(rest: Sequence[ComparedValue], jobs: int) -> list[str]:
    """Return what else tells jobs apart, for a few jobs: many labels would cover the points."""
    if not rest or jobs > LABELLED_JOBS:
        return [""] * jobs
    return [
        " ".join(
            f"{value.key.rpartition('.')[2]}={formats.printable(str(value.values[place]))}" for value in rest
        )
        for place in range(jobs)
    ]


def differences_page(comparison: Comparison, *, width: int = 120, equal: bool = False) -> Content:
    """Return the settings, recorded facts and packages in which the jobs differ; with ``equal`` the others as well."""
    code = ComparedValue("code", tuple(job.code_hash[:12] for job in comparison.jobs))
    parts = (
        ("What differs", (*comparison.settings, code)),
        ("Recorded at the launch", comparison.recorded),
        ("Packages", comparison.packages),
    )
    compared = [value for _, values in parts for value in values]
    same = [value for value in compared if not value.differs]
    heads = titles(comparison)
    tables: list[list[Content]] = []
    for title, values in parts:
        differing = sorted((value for value in values if value.differs), key=lambda value: value.key)
        first, *rest = _matrix(differing, heads, width) or [[]]
        tables += [[heading(title), *first], *rest] if first else []
    if equal and same:
        first, *rest = _matrix(
            sorted(same, key=lambda value: value.key)[:EQUAL_LINES], heads[:1], width, "all jobs"
        )
        tables += [[heading("What is equal"), *first], *rest]
    if len(same) == len(compared):
        ending = f"no differences: all {len(same)} values are the same"
    else:
        ending = f"{len(same)} other values are equal"
    return page(
        *tables, [plain(ending + ("" if equal or not same else f" {glyphs().dot} e shows them"), "dim")]
    )


def _matrix(
    values: Sequence[ComparedValue], heads: Sequence[str], width: int, title: str = ""
) -> list[list[Content]]:
    """Return values aligned: a line for each key, or, where jobs are too many for that, a line for each job."""
    if not values:
        return []
    cells = [
        [
            Content.styled(formats.printable(shown), "bold $role-accent") if odd else plain(shown)
            for shown, odd in zip(_shown(value), _odd(value), strict=True)
        ][: len(heads)]
        for value in values
    ]
    columns = [[row[place] for row in cells] for place in range(len(heads))]
    keys = [formats.printable(value.key) for value in values]
    needed = max(map(text.cells, keys)) + 4
    needed += sum(
        max(text.cells(head), *(cell.cell_length for cell in column)) + 2
        for head, column in zip(heads, columns, strict=True)
    )
    if needed <= width or len(heads) <= 2:
        return [
            table(
                ("key", *((title,) if title else heads)),
                [(key, *row) for key, row in zip(keys, cells, strict=True)],
            )
        ]
    return _blocks("job", heads, list(zip(keys, cells, strict=True)), width)


def _odd(value: ComparedValue) -> list[bool]:
    """Say of each value whether it is another than most jobs have."""
    texts = [repr(each) for each in value.values]
    (usual, count), *_ = Counter(texts).most_common(1)
    return [2 * count > len(texts) > 2 and each != usual for each in texts]


def _shown(value: ComparedValue) -> list[str]:
    """Return the values of one key, cut, but never so that different ones look the same."""
    texts = ["" if each is None else str(each).replace("\n", "\\n") for each in value.values]
    if len(set(texts)) < len({repr(each) for each in value.values}):  # 1 and "1"
        texts = ["" if each is None else repr(each) for each in value.values]
    shown = cut_apart(texts, VALUE_CELLS)
    return [shown[each] for each in texts]


def cut_apart(texts: Sequence[str], width: int) -> dict[str, str]:
    """Cut texts to about so many cells, but never so that different ones look the same."""
    for wider in (width, 2 * width, 4 * width):
        cut = _cut(texts, wider)
        if len(set(cut.values())) == len(cut):
            return cut
    return {each: each for each in texts}


def _cut(texts: Sequence[str], width: int) -> dict[str, str]:
    """Cut texts to so many cells; those that begin alike are shown from where they differ."""
    if width < LEAST_CELLS:
        return {each: each for each in texts}
    short: dict[str, list[str]] = {}
    for each in dict.fromkeys(texts):
        short.setdefault(text.shorten(each, width), []).append(each)
    cut: dict[str, str] = {}
    for shown, alike in short.items():
        if len(alike) == 1:
            cut[alike[0]] = shown
            continue
        start = _same_signs(alike)
        rest = _cut([each[start:] for each in alike], width - 1)
        cut |= {each: glyphs().more + rest[each[start:]] for each in alike}
    return cut


def _same_signs(texts: Sequence[str]) -> int:
    """Return how many signs at the start of all texts are the same."""
    return next(
        (i for i, signs in enumerate(zip(*texts, strict=False)) if len(set(signs)) > 1), min(map(len, texts))
    )


def code_page(home: Home, comparison: Comparison) -> Content | EmptyNotice:
    """Return how the later jobs' code differs from that of the first; reading the snapshots takes a while."""
    compared = comparison.jobs
    hashes = [job.code_hash for job in compared]
    heads = titles(comparison)
    if len(set(hashes)) == 1:
        return (
            EmptyNotice("the code is the same", "] shows in which settings these jobs differ")
            if hashes[0]
            else EmptyNotice(
                "these jobs have no code", "a job's code is recorded when it starts from a folder"
            )
        )
    parts = []
    for head, code_hash in zip(heads[1:], hashes[1:], strict=True):
        if code_hash == hashes[0]:
            parts.append([heading(f"{heads[0]} and {head}"), plain("  the code is the same", "dim")])
            continue
        try:
            found = code_differences(home, hashes[0], code_hash, (heads[0], head))
            lines = [line for file in found for line in _file_lines(file)]
        except FabricError as error:
            lines = [plain(f"  {error}", "error")]
        cut = [plain(f"  and {len(lines) - DIFF_LINES} more lines", "dim")] if len(lines) > DIFF_LINES else []
        parts.append([heading(f"from {heads[0]} to {head}"), *lines[:DIFF_LINES], *cut])
    return page(*parts)


def _file_lines(file: FileDifference) -> Iterator[Content]:
    if file.before_bytes is None:
        yield plain(f"  + {file.name}", "completed")
    elif file.after_bytes is None:
        yield plain(f"  - {file.name}", "failed")
    elif file.lines is None:
        sizes = f"{formats.size(file.before_bytes)}, then {formats.size(file.after_bytes)}"
        yield plain(f"  ~ {file.name}: {sizes}", "warning")
    else:
        for line in file.lines:
            yield plain(f"  {line}", {"+": "completed", "-": "failed", "@": "key"}.get(line[:1], ""))
