"""Plans which jobs and caches may be removed, and removes them: only what a rule allows, and what nothing needs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import BackendError, CannotWrite, FabricError, TryAgain
from workbench.formats import MICROSECONDS
from workbench.job import State
from workbench.services.transfer.events import Report, ignore
from workbench.services.upkeep.disk_usage import DiskUse, disk_bytes, log_files, use_of
from workbench.services.upkeep.orphans import code_at, expire_code_at, remove_unused_code, unused_code
from workbench.store.db.rows import is_over
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

ENGINE_SECONDS = 5.0
RELEASE_SECONDS = 5.0
"""How long an image's removal waits for that of its ended containers, which takes longer the busier the engine is."""
RELEASE_POLL_SECONDS = 0.05
KEEP_TAG = "keep"
"""A job with this tag is never pruned."""


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """Which jobs may be removed."""

    older_than_seconds: float | None = None
    keep_last: int = 0
    keep_failed: bool = False
    logs_only: bool = False
    where: tuple[str, ...] = ()

    @property
    def chooses(self) -> bool:
        """Whether it chooses among the jobs at all; a rule that does not removes none."""
        return self.older_than_seconds is not None or bool(self.keep_last) or bool(self.where)


@dataclass(frozen=True, slots=True)
class UnusedCache:
    """A part of a cache that no job uses."""

    kind: str
    name: str
    size_bytes: int
    remove: Callable[[], None]


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What would be removed."""

    jobs: tuple[DiskUse, ...]
    """The oldest first."""
    caches: tuple[UnusedCache, ...]
    logs_only: bool
    """Whether only the jobs' logs are removed."""

    def __bool__(self) -> bool:
        return bool(self.jobs or self.caches)

    def without(self, names: Collection[str]) -> RemovalPlan:
        """Return the plan without the jobs of these ids and the parts of caches of these names."""
        return replace(
            self,
            jobs=tuple(use for use in self.jobs if use.row.id not in names),
            caches=tuple(each for each in self.caches if each.name not in names),
        )

    def freed_of(self, use: DiskUse) -> int:
        """Return how many bytes the removal of one job frees."""
        return use.logs if self.logs_only else use.total

    @property
    def freed_bytes(self) -> int:
        """How many bytes the removal frees."""
        return sum(map(self.freed_of, self.jobs)) + sum(each.size_bytes for each in self.caches)


@dataclass(frozen=True, slots=True)
class Removed:
    """One thing that was removed, or was not."""

    name: str
    """A job's id, or the name of a part of a cache."""
    error: FabricError | None = None
    """Why it stays."""


def plan_removal(
    store: Store,
    rule: RetentionRule,
    *,
    caches_only: bool = False,
    backend: str = "",
    report: Report = ignore,
) -> RemovalPlan:
    """Return what a rule, and the state of the caches, allow to be removed. Nothing is changed.

    Args:
        store: The store.
        rule: Which jobs.
        caches_only: Whether jobs stay, whatever the rule.
        backend: Only the copies of data that this backend has, of all caches.
        report: Takes a notice for each backend that cannot be asked.

    Raises:
        UsageError: the rule's filter cannot be read.
    """
    rows = [] if caches_only else removable_jobs(store, rule)
    uses = [use_of(store.home, row) for row in rows]
    if rule.logs_only:
        return RemovalPlan(tuple(use for use in uses if use.logs), (), logs_only=True)
    if backend:
        found = [*unused_data(backend, report), *unused_code_at(store, backend)]
        return RemovalPlan(tuple(uses), tuple(found), logs_only=False)
    caches = unused_caches(store, {use.row.id for use in uses}, report)
    return RemovalPlan(tuple(uses), tuple(caches), logs_only=False)


def remove(store: Store, plan: RemovalPlan, *, origin: str) -> Iterator[Removed]:
    """Remove what a plan names, and yield each thing when it is done; what cannot be removed stays, with its error."""
    if plan.logs_only:
        for use in plan.jobs:
            yield _attempted(use.row.id, partial(_remove_logs, store, use.row, origin))
        return
    _delete(store, [use.row for use in plan.jobs], origin)
    yield from (Removed(use.row.id) for use in plan.jobs)
    yield from (_attempted(each.name, each.remove) for each in plan.caches)


def _attempted(name: str, remove_it: Callable[[], None]) -> Removed:
    try:
        remove_it()
    except FabricError as error:
        return Removed(name, error)
    except OSError as error:
        return Removed(name, CannotWrite(f"{name} stays: {error}"))
    return Removed(name)


def _delete(store: Store, rows: Sequence[JobRow], origin: str) -> None:
    from workbench.services.control.requests import request, wait_until_forgotten

    if rows:
        request(store, rows, "delete", origin=origin)
        wait_until_forgotten(store, rows)


def _remove_logs(store: Store, row: JobRow, origin: str) -> None:
    from workbench.store.updates.jobs import add_note, who_am_i

    for file in list(log_files(store.home.job(row.id))):
        file.unlink(missing_ok=True)
    add_note(store, row.id, "its logs were removed", who=who_am_i(), origin=origin)


def rule_of(
    options: Mapping[str, Any], retention: Mapping[str, Any], where: Sequence[str] = ()
) -> RetentionRule:
    """Make a rule of options, which go before the configuration's table ``[retention]``.

    Both have the keys ``older_than``, ``keep_last``, ``keep_failed`` and ``logs_only``; None and False say nothing.

    Raises:
        UsageError: a length of time cannot be read.
    """
    from workbench.services.durations import seconds_of

    chosen = {key: value for key, value in options.items() if value is not None and value is not False}
    given = {**retention, **chosen}
    older = given.get("older_than")
    return RetentionRule(
        None if older is None else seconds_of(str(older), "--older-than"),
        int(given.get("keep_last") or 0),
        bool(given.get("keep_failed")),
        bool(given.get("logs_only")),
        tuple(where),
    )


def removable_jobs(store: Store, rule: RetentionRule) -> list[JobRow]:
    """Return the jobs that a rule allows to be removed, oldest first.

    Never one that is not over, one that open jobs come after or begin with, one of an open search, or one with the
    tag ``keep``.

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
    """Return the jobs that open ones come after, read or begin with, and those of open searches.

    A search goes on with trials that it has halted, and begins others with the checkpoints of those that have ended.
    """
    from workbench.store.queries.experiments import experiments
    from workbench.store.queries.jobs import detail

    searches = {each.id for each in experiments(store, only_open=True)}
    needed: set[str] = {row.id for row in rows if row.parent in searches}
    for row in rows:
        if not is_over(row):
            try:
                whole = detail(store, row.id)
            except FabricError:
                continue
            needed |= {each.partition(":")[0] for each in whole.spec.after}
            if first := whole.recorded.get("from"):
                needed.add(str(first["job"]))
    return needed


def unused_caches(store: Store, removed: set[str], report: Report = ignore) -> Iterator[UnusedCache]:
    """Yield what no job would use any more without the ``removed`` ones: code, environments, data, images."""
    from workbench.services.backends.placement import DEFAULT
    from workbench.store.queries.jobs import list_jobs

    home, kept = store.home, [row for row in list_jobs(store) if row.id not in removed]
    for path in unused_code(store, removed):
        yield UnusedCache("code", path.name[:12], disk_bytes(path), partial(remove_unused_code, path))
    used = {key for row in kept for key in _environments_of(home, row)}
    for path in _folders(home.environments):
        if path.name not in used and not path.name.startswith("."):
            yield UnusedCache(
                "environment", path.name[:12], disk_bytes(path), partial(_remove_environment, home, path)
            )
    yield from unused_data(DEFAULT, report)
    if all(is_over(row) for row in kept):
        yield from _images()


def unused_data(backend: str, report: Report = ignore) -> list[UnusedCache]:
    """Return the copies of data at a backend that no job uses, as one part of a cache: they go together."""
    from workbench.services.transfer.data_cache import data_caches

    found = []
    for cache in data_caches(backend, report):
        if unused := cache.unused:
            size_bytes = sum(each.size_bytes for each in unused)
            name = f"{len(unused)} at {cache.backend}"
            found.append(UnusedCache("data", name, size_bytes, partial(_drop_all, cache.drop)))
    return found


def unused_code_at(store: Store, backend: str) -> Iterator[UnusedCache]:
    """Yield the code that a host keeps, as one part of a cache: all but what runs; it is sent again when needed."""
    from backends.contract.host import Host
    from backends.contract.host_group import member_options
    from workbench.controller.client.sessions import load_client_backend
    from workbench.services.backends.placement import backend_options
    from workbench.store.db.database import home_uuid

    ours = home_uuid(store.home)
    for options in member_options(backend_options(backend)):
        with closing(load_client_backend(options).open()) as target:
            if isinstance(target, Host) and (unused := code_at(target, ours, 0.0)).count:
                remove = partial(expire_code_at, options, ours, 0.0)
                name = f"{unused.count} parts at {options.name}"
                yield UnusedCache("code", name, unused.size_bytes, remove)


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
    from backends.local.host import LocalHost
    from runners.shared.host_facts import read_host_facts
    from runners.shared.virtualenvs import remove_environment
    from workbench.store.db.database import home_uuid

    with closing(LocalHost(home)) as host:
        remove_environment(path.name, read_host_facts(host, home_uuid(home)), host)


def _images() -> Iterator[UnusedCache]:
    """Yield images that fabric built of jobs' code; they are built again when they are needed."""
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
            yield UnusedCache("image", name, int(image.get("Size") or 0), remove)


def _remove_image(path: str, name: str) -> None:
    """Remove an image; one whose last container the engine is still removing goes once that is done.

    Raises:
        TryAgain: a container uses it.
        BackendError: the engine does not answer, or refuses it for another reason.
    """
    from workbench.learner.guard.container_creation import CONFLICT
    from workbench.learner.platform.engine_client import EngineRefused, ask

    deadline = time.monotonic() + RELEASE_SECONDS
    while True:
        try:
            ask(path, "DELETE", f"images/{_quoted(name)}", timeout_seconds=60.0)
            return
        except OSError as error:
            raise BackendError(f"the image {name} stays: {error}") from None
        except EngineRefused as error:
            if error.status != CONFLICT:
                raise BackendError(f"the image {name} stays: {error}") from None
            if time.monotonic() >= deadline or not _is_being_released(path, name):
                raise TryAgain(f"the image {name} stays: {error}") from None
        time.sleep(RELEASE_POLL_SECONDS)


def _is_being_released(path: str, name: str) -> bool:
    """Return whether all containers that use an image are of jobs that have ended; the engine removes those."""
    from workbench.learner.guard.container_creation import LABEL_HOME
    from workbench.learner.platform.engine_client import EngineRefused, ask

    filters = _quoted(json.dumps({"ancestor": [name]}))
    try:
        using = ask(path, "GET", f"containers/json?all=1&filters={filters}", timeout_seconds=ENGINE_SECONDS)
    except (OSError, EngineRefused):
        return False
    return all(
        LABEL_HOME in (one.get("Labels") or {}) and one.get("State") in ("exited", "removing", "dead")
        for one in using or ()
    )


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")
