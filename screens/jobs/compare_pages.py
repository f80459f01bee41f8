"""The pages of a comparison: values and metrics, the settings in which jobs differ, the code. No widget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from textual.content import Content

from screens.style import status, text
from screens.style.glyphs import glyphs
from screens.widgets.markup import heading, page, plain, table
from workbench import formats
from workbench.errors import FabricError
from workbench.job import short_id
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
from workbench.store import jobs
from workbench.store.db.database import Store

DIFF_LINES: Final = 600
VALUE_CELLS: Final = 40
"""A longer value is cut."""
LEAST_CELLS: Final = 8
"""Narrower pieces of values say nothing: then the rest is whole."""


def compare_query(job_ids: Sequence[str]) -> Callable[[Store], Comparison]:
    """Return the query that compares several jobs; those that were deleted are left out."""

    def read(store: Store) -> Comparison:
        rows = [row for job_id in job_ids if (row := jobs.job(store, job_id)) is not None]
        return compare(store, [row for row in rows if row.deleted_us is None])

    return read


def titles(compared: Sequence[JobRecord]) -> list[str]:
    """Name each job, in few cells; with its id where names are the same."""
    names = [text.shorten(formats.printable(job.row.name), 18) for job in compared]
    return [
        name if names.count(name) == 1 else f"{text.shorten(name, 8)} {short_id(job.row.id)}"
        for name, job in zip(names, compared, strict=True)
    ]


def values_page(comparison: Comparison, now_us: int) -> Content:
    """Return states, times, and the last and the best value of every metric."""
    compared, heads = comparison.jobs, titles(comparison.jobs)
    general: list[tuple[str | Content, ...]] = [
        ("state", *(plain(str(status.look(job.row.state)), job.row.state.lower()) for job in compared)),
        ("id", *(short_id(job.row.id) for job in compared)),
        ("ran", *(_ran(job, now_us) for job in compared)),
        ("exit code", *("" if job.row.exit_code is None else str(job.row.exit_code) for job in compared)),
    ]
    metrics = sorted(comparison.metrics, key=lambda metric: metric.name)
    rows = [row for metric in metrics for row in _metric_rows(metric)]
    return page(
        [heading("Jobs"), *table(("", *heads), general)],
        [heading("Metrics"), *table(("metric", "", *heads), rows)] if rows else [plain("no metrics", "dim")],
    )


def _ran(job: JobRecord, now_us: int) -> str:
    seconds = run_seconds(job.row, now_us)
    return "" if seconds is None else formats.duration(seconds)


def _metric_rows(metric: ComparedMetric) -> Iterator[tuple[str | Content, ...]]:
    """Yield the last values and the best ones; the smallest and the largest where nobody knows which are the best."""
    series = metric.series
    yield metric.name, "last", *("" if one is None else formats.compact_number(one.last) for one in series)
    smallest = [None if one is None else one.minimum for one in series]
    largest = [None if one is None else one.maximum for one in series]
    none_is_best = (False,) * len(series)
    if metric.smaller_is_better is not False:
        yield "", "min", *_values(smallest, metric.is_best() if metric.smaller_is_better else none_is_best)
    if not metric.smaller_is_better:
        largest_is_best = metric.smaller_is_better is False
        yield "", "max", *_values(largest, metric.is_best() if largest_is_best else none_is_best)


def _values(values: Sequence[float | None], best: Sequence[bool]) -> Iterator[Content]:
    for value, is_best in zip(values, best, strict=True):
        shown = "" if value is None else formats.compact_number(value)
        yield plain(shown, "completed") if is_best else plain(shown)


def differences_page(comparison: Comparison) -> Content:
    """Return only those settings, recorded facts and packages in which the jobs differ."""
    code = ComparedValue("code", tuple(job.code_hash[:12] for job in comparison.jobs))
    parts = (
        ("What differs", (*comparison.settings, code)),
        ("Recorded at the launch", comparison.recorded),
        ("Packages", comparison.packages),
    )
    compared = [value for _, values in parts for value in values]
    same = sum(not value.differs for value in compared)
    if same == len(compared):
        return plain(f"no differences: all {same} values are the same", "dim")
    heads = ("key", *titles(comparison.jobs))
    tables = []
    for title, values in parts:
        differing = sorted((value for value in values if value.differs), key=lambda value: value.key)
        rows: list[tuple[str | Content, ...]] = [
            (value.key, *(plain(shown) for shown in _shown(value))) for value in differing
        ]
        tables.append([heading(title), *table(heads, rows)] if rows else [])
    return page(*tables, [plain(f"{same} other values are equal", "dim")])


def _shown(value: ComparedValue) -> list[str]:
    """Return the values of one key, cut, but never so that different ones look the same."""
    texts = ["" if each is None else str(each).replace("\n", "\\n") for each in value.values]
    if len(set(texts)) < len({repr(each) for each in value.values}):  # 1 and "1"
        texts = ["" if each is None else repr(each) for each in value.values]
    shown = cut_apart(texts, VALUE_CELLS)
    return [shown[each] for each in texts]


def cut_apart(texts: Sequence[str], width: int) -> dict[str, str]:
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
        rest = cut_apart([each[start:] for each in alike], width - 1)
        cut |= {each: glyphs().more + rest[each[start:]] for each in alike}
    return cut


def _same_signs(texts: Sequence[str]) -> int:
    """Return how many signs at the start of all texts are the same."""
    return next(
        (i for i, signs in enumerate(zip(*texts, strict=False)) if len(set(signs)) > 1), min(map(len, texts))
    )


def code_page(home: Home, compared: Sequence[JobRecord]) -> Content:
    """Return how the later jobs' code differs from that of the first; reading the snapshots takes a while."""
    hashes = [job.code_hash for job in compared]
    heads = titles(compared)
    if len(set(hashes)) == 1:
        return plain("the code is the same" if hashes[0] else "these jobs have no code", "dim")
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
