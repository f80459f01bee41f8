"""What several jobs laid beside each other say: values, the configuration in which they differ, the code. No widget."""

from __future__ import annotations

import difflib
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from textual.content import Content

from screens.jobs.other_pages import flat
from screens.jobs.queries import JobPage, job_page
from screens.style import status, text
from screens.widgets.markup import heading, page, plain, table
from workbench.job import short_id
from workbench.paths import Home
from workbench.spec import spec_to_json
from workbench.store.db.database import Store

TEXT_BYTES: Final = 200_000
"""Larger files are only said to differ."""
DIFF_LINES: Final = 600
BINARY: Final = b"\0"


def compare_query(job_ids: Sequence[str]) -> Callable[[Store], tuple[JobPage, ...]]:
    """Return the query for several jobs; those that are gone are left out."""
    queries = [job_page(job_id) for job_id in job_ids]

    def read(store: Store) -> tuple[JobPage, ...]:
        return tuple(found for found in (query(store) for query in queries) if found is not None)

    return read


def titles(pages: Sequence[JobPage]) -> list[str]:
    """Name each job, in few cells; with its id where names are the same."""
    names = [text.shorten(text.harmless(one.row.name), 18) for one in pages]
    return [
        name if names.count(name) == 1 else f"{text.shorten(name, 8)} {short_id(one.row.id)}"
        for name, one in zip(names, pages, strict=True)
    ]


def values(pages: Sequence[JobPage], now_us: int) -> Content:
    """Return states, times and the last and best value of every metric."""
    heads = titles(pages)
    general: list[tuple[str | Content, ...]] = [
        ("state", *(plain(str(status.look(one.row.state)), one.row.state.lower()) for one in pages)),
        ("id", *(short_id(one.row.id) for one in pages)),
        ("ran", *(_ran(one, now_us) for one in pages)),
        ("exit code", *("" if one.row.exit_code is None else str(one.row.exit_code) for one in pages)),
    ]
    found = [{series.name: series for series in one.metrics if series.learner == 1} for one in pages]
    names = sorted({name for one in found for name in one})
    rows: list[tuple[str | Content, ...]] = []
    for name in names:
        series = [one.get(name) for one in found]
        best = [
            None if one is None else one.minimum if _less_is_better(name) else one.maximum for one in series
        ]
        rows.append((name, "last", *("" if one is None else text.number(one.last) for one in series)))
        rows.append(
            (
                "",
                "least" if _less_is_better(name) else "most",
                *_best_marked(best, less=_less_is_better(name)),
            )
        )
    return page(
        [heading("Jobs"), *table(("", *heads), general)],
        [heading("Metrics"), *table(("metric", "", *heads), rows)] if rows else [plain("no metrics", "dim")],
    )


def _ran(one: JobPage, now_us: int) -> str:
    seconds = status.run_seconds(one.row, now_us)
    return "" if seconds is None else text.duration(seconds)


def _less_is_better(name: str) -> bool:
    metric = name.rpartition("/")[2].lower()
    return any(word in metric for word in ("loss", "error", "err", "perplexity", "mae", "mse", "time"))


def _best_marked(best: Sequence[float | None], *, less: bool) -> Iterator[Content]:
    known = [value for value in best if value is not None]
    winner = (min(known) if less else max(known)) if known else None
    for value in best:
        shown = "" if value is None else text.number(value)
        yield (
            plain(shown, "completed")
            if value is not None and value == winner and len(known) > 1
            else plain(shown)
        )


def differing(pages: Sequence[JobPage]) -> Content:
    """Return only those values of the configuration that are not the same in all jobs."""
    specs = [dict(flat(spec_to_json(one.detail.spec))) if one.detail else {} for one in pages]
    for one, spec in zip(pages, specs, strict=True):
        spec |= _recorded(one)
    keys = sorted({key for spec in specs for key in spec})
    rows: list[tuple[str | Content, ...]] = [
        (key, *(plain(_shown(spec.get(key))) for spec in specs))
        for key in keys
        if len({_shown(spec.get(key)) for spec in specs}) > 1
    ]
    same = sum(len({_shown(spec.get(key)) for spec in specs}) == 1 for key in keys)
    if not rows:
        return plain(f"nothing differs: all {same} values are the same", "dim")
    return page(
        [heading("What differs"), *table(("key", *titles(pages)), rows)],
        [plain(f"{same} other values are the same", "dim")],
    )


def _recorded(one: JobPage) -> dict[str, Any]:
    if one.detail is None:
        return {}
    git = one.detail.recorded.get("git")
    commit = str(git.get("commit", ""))[:12] if isinstance(git, Mapping) else ""
    return {
        "place": one.row.place.backend,
        "runner": one.row.place.runner,
        "code": one.detail.code_hash[:12],
        "git commit": commit,
        "interpreter": one.detail.recorded.get("python", ""),
    }


def _shown(value: object) -> str:
    return text.shorten("" if value is None else str(value).replace("\n", " "), 40)


@dataclass(frozen=True, slots=True)
class _Member:
    size: int
    data: bytes | None
    """None for a file too large to be shown."""


def code_diff(home: Home, pages: Sequence[JobPage]) -> Content:
    """Return how the later jobs' code differs from that of the first; it takes a while to read their snapshots."""
    hashes = [one.detail.code_hash if one.detail else "" for one in pages]
    heads = titles(pages)
    if len(set(hashes)) == 1:
        return plain("the code is the same" if hashes[0] else "these jobs have no code", "dim")
    first = _members(home, hashes[0])
    parts = []
    for head, code_hash in zip(heads[1:], hashes[1:], strict=True):
        if code_hash == hashes[0]:
            parts.append([heading(f"{heads[0]} and {head}"), plain("  the code is the same", "dim")])
            continue
        lines = list(_differences(first, _members(home, code_hash)))
        cut = [plain(f"  and {len(lines) - DIFF_LINES} more lines", "dim")] if len(lines) > DIFF_LINES else []
        parts.append([heading(f"from {heads[0]} to {head}"), *lines[:DIFF_LINES], *cut])
    return page(*parts)


def _members(home: Home, code_hash: str) -> dict[str, _Member]:
    if not code_hash or not (file := home.snapshot(code_hash)).is_file():
        return {}
    found = {}
    with tarfile.open(file) as archive:
        for member in archive:
            if not member.isfile():
                continue
            stream = archive.extractfile(member) if member.size <= TEXT_BYTES else None
            found[member.name.removeprefix("./")] = _Member(member.size, stream.read() if stream else None)
    return found


def _differences(before: Mapping[str, _Member], after: Mapping[str, _Member]) -> Iterator[Content]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new and not (old and old.data is None):
            continue
        if old is None or new is None:
            yield plain(f"  {'+' if old is None else '-'} {name}", "completed" if old is None else "failed")
        elif old.data is None or new.data is None or BINARY in old.data or BINARY in new.data:
            if old.size != new.size or old.data != new.data:
                yield plain(f"  ~ {name}: {text.size(old.size)}, then {text.size(new.size)}", "warning")
        else:
            yield from _unified(name, old.data, new.data)


def _unified(name: str, old: bytes, new: bytes) -> Iterator[Content]:
    before, after = (data.decode("utf-8", "replace").splitlines() for data in (old, new))
    for line in difflib.unified_diff(before, after, name, name, lineterm=""):
        role = {"+": "completed", "-": "failed", "@": "key"}.get(line[:1], "")
        yield plain(f"  {line}", role)
