"""Which jobs and caches ``fabric prune`` would remove, and why the others stay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import FabricError, UsageError
from workbench.formats import MICROSECONDS
from workbench.job import State
from workbench.services.follow.job_text import is_over
from workbench.services.upkeep.disk_usage import disk_bytes
from workbench.services.upkeep.orphans import remove_path, unused_code

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

ENGINE_SECONDS = 5.0
KEEP_TAG = "keep"
"""A job with this tag is never pruned."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What may go."""

    older_than_seconds: float | None = None
    keep_last: int = 0
    keep_failed: bool = False
    logs_only: bool = False
    where: tuple[str, ...] = ()

    @property
    def says_which(self) -> bool:
        """Whether it chooses among the jobs at all."""
        return self.older_than_seconds is not None or bool(self.keep_last) or bool(self.where)


@dataclass(frozen=True, slots=True)
class Thing:
    """A part of a cache that nobody uses."""

    kind: str
    name: str
    size_bytes: int
    remove: Callable[[], None]


def rule_of(words: dict[str, Any], retention: Any, where: list[str] | None) -> Rule:
    """Lay what the words say over the configuration's retention.

    Raises:
        UsageError: a length of time cannot be read.
    """
    from workbench.services.durations import seconds_of

    told = {**retention, **{key: value for key, value in words.items() if value not in (None, False)}}
    older = told.get("older_than")
    return Rule(
        None if older is None else seconds_of(str(older), "--older-than"),
        int(told.get("keep_last") or 0),
        bool(told.get("keep_failed")),
        bool(told.get("logs_only")),
        tuple(where or ()),
    )


def chosen(store: Store, rule: Rule) -> list[JobRow]:
    """Return the jobs that may go, oldest first.

    Never one that is not over, one that others still wait for, or one with the tag ``keep``.

    Raises:
        UsageError: the filter cannot be read.
    """
    from workbench.clock import now_us
    from workbench.services.filters import read_where
    from workbench.store.queries.job_list import listed

    now = now_us()
    fitting = {
        row.id
        for row in listed(
            store,
            ["deleted_us IS NULL"],
            {},
            where=read_where(store, list(rule.where)),
            now_us=now,
        )
    }
    every = listed(store, ["deleted_us IS NULL"], {}, where=read_where(store, None), now_us=now)
    kept = {row.id for row in [row for row in every if is_over(row)][: rule.keep_last]}
    needed = _needed(store, every)
    found = []
    for row in reversed(every):
        if row.id not in fitting or row.id in kept or row.id in needed or not is_over(row):
            continue
        if KEEP_TAG in row.tags or (rule.keep_failed and row.state is State.FAILED):
            continue
        age = (now - (row.ended_us or row.changed_us)) / MICROSECONDS
        if rule.older_than_seconds is None or age >= rule.older_than_seconds:
            found.append(row)
    return found


def _needed(store: Store, rows: list[JobRow]) -> set[str]:
    """Return the jobs that open ones come after or read."""
    from workbench.store.jobs import detail

    needed: set[str] = set()
    for row in rows:
        if not is_over(row):
            try:
                needed |= {each.partition(":")[0] for each in detail(store, row.id).spec.after}
            except FabricError:
                continue
    return needed


def unused(store: Store, gone: set[str]) -> Iterator[Thing]:
    """Yield what no job would use any more when those of ``gone`` were deleted: code, environments, data, images."""
    from workbench.services.backends.placement import DEFAULT
    from workbench.store.jobs import list_jobs

    home, kept = store.home, [row for row in list_jobs(store) if row.id not in gone]
    for path in unused_code(store, gone):
        yield Thing("code", path.name[:12], disk_bytes(path), partial(remove_path, path))
    used = {key for row in kept for key in _environments_of(home, row)}
    for path in _folders(home.environments):
        if path.name not in used and not path.name.startswith("."):
            yield Thing(
                "environment", path.name[:12], disk_bytes(path), partial(_remove_environment, home, path)
            )
    yield from copies_at(DEFAULT)
    if all(is_over(row) for row in kept):
        yield from _images()


def copies_at(backend: str) -> list[Thing]:
    """Return the copies of data at a place that no job uses, as one thing: they go together."""
    from workbench.services.transfer.data_cache import look_at_places

    found = []
    for place in look_at_places(backend):
        free = [int(each["size_bytes"]) for each in place.documents if not each["in_use"]]
        if free:
            found.append(
                Thing("data", f"{len(free)} at {place.backend}", sum(free), partial(_drop_all, place.drop))
            )
    return found


def _drop_all(drop: Callable[[int], Sequence[str]]) -> None:
    drop(-1)


def _environments_of(home: Home, row: JobRow) -> Iterator[str]:
    for attempt in range(1, row.attempt + 1):
        try:
            found = json.loads(home.job(row.id).attempt(attempt).environment.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and found.get("key"):
            yield str(found["key"])


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _remove_environment(home: Home, path: Path) -> None:
    from contextlib import closing

    from backends.local.host import LocalHost
    from runners.shared.host_facts import look_at
    from runners.shared.virtualenvs import remove_environment
    from workbench.store.db.database import home_uuid

    with closing(LocalHost(home)) as host:
        remove_environment(path.name, look_at(host, home_uuid(home)), host)


def _images() -> Iterator[Thing]:
    """Images that fabric built of jobs' code; they are built again when they are needed."""
    from backends.contract.container_engines import find_engine
    from workbench.learner.platform.engine_client import EngineRefused, ask

    filters = '{"label":["fabric.build"]}'
    try:
        path = find_engine().path
        listed = ask(path, "GET", f"images/json?filters={_quoted(filters)}", timeout_seconds=ENGINE_SECONDS)
    except (FabricError, OSError, EngineRefused):
        return  # no engine, no images of ours
    for image in listed or ():
        names = [name for name in image.get("RepoTags") or () if name != "<none>:<none>"]
        for name in names:
            remove = partial(_remove_image, path, name)
            yield Thing("image", name, int(image.get("Size") or 0), remove)


def _remove_image(path: str, name: str) -> None:
    from workbench.learner.platform.engine_client import EngineRefused, ask

    try:
        ask(path, "DELETE", f"images/{_quoted(name)}", timeout_seconds=60.0)
    except (OSError, EngineRefused) as error:
        raise UsageError(f"the image {name} stays: {error}") from None


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")
