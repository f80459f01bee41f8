"""Gives jobs and searches tags and notes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.errors import UnknownName, UsageError
from workbench.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentAnnotations, ExperimentRow


@dataclass(frozen=True, slots=True)
class Annotations:
    """What is changed about a job's tags and note; an empty value changes nothing."""

    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    tags: tuple[str, ...] | None = None
    """All tags that the job has afterwards, before others are added or removed; None keeps those it has."""
    note: str | None = None
    """The new note; an empty one removes it, None keeps the present one."""
    append: bool = False
    """Whether the note becomes a further line of the present one."""


def annotate(store: Store, row: JobRow, changes: Annotations, *, origin: str) -> JobRow:
    """Change a job's tags and its note; return the job's row as it is then.

    Args:
        store: where the job is.
        row: the job.
        changes: what is different.
        origin: which client asks: ``cli``, ``python``, ``tui``.

    Raises:
        UsageError: a tag is not a single word.
        UnknownName: a tag that should be removed does not exist; the hint names the nearest.
    """
    from workbench.store.queries.jobs import job
    from workbench.store.updates.jobs import annotate as write

    tags = _changed_tags(row.name, row.tags, changes)
    if changes.tags is not None or tags != row.tags:
        write(store, row.id, tags=tags, origin=origin)
    if changes.note is not None:
        write(store, row.id, note=_changed_note(row.note, changes.note, changes.append), origin=origin)
    return job(store, row.id) or row


def annotate_search(
    store: Store, row: ExperimentRow, changes: Annotations, *, origin: str
) -> ExperimentAnnotations:
    """Change the tags and the note of a search itself; return them as they are then.

    Its trials that begin later get its tags; those that have begun keep theirs. The arguments and errors are those of
    :func:`annotate`.
    """
    from workbench.store.db.home_folder import require_home
    from workbench.store.queries.experiments import annotations_of
    from workbench.store.updates.experiments import record_event
    from workbench.store.updates.jobs import who_am_i

    now = annotations_of(store, row.id)
    event: dict[str, object] = {}
    tags = _changed_tags(row.name, now.tags, changes)
    if tags != now.tags:
        event["tags"] = list(tags)
    if changes.note is not None:
        event["note"] = _changed_note(now.note, changes.note, changes.append)
    if event:
        require_home(store.home)
        record_event(store, row.id, {"do": "annotate", "who": who_am_i(), "origin": origin, **event})
    return annotations_of(store, row.id)


def annotate_search_and_trials(
    store: Store, row: ExperimentRow, changes: Annotations, *, origin: str
) -> list[JobRow]:
    """Change the tags of a search, and those of its trials that have begun; return their jobs as they are then.

    Raises:
        UsageError: a tag is not a single word.
        UnknownName: a tag that should be removed has neither the search nor any trial.
    """
    from workbench.store.queries.experiments import annotations_of, trial_jobs

    jobs = trial_jobs(store, row.id)
    own = annotations_of(store, row.id).tags
    known = dict.fromkeys([*own, *(name for each in jobs for name in each.tags)])
    _changed_tags(row.name, tuple(known), changes)

    def of(tags: Sequence[str]) -> Annotations:
        """Return the changes without the removal of tags that are not there."""
        return replace(changes, remove_tags=tuple(name for name in changes.remove_tags if name in tags))

    annotate_search(store, row, of(own), origin=origin)
    # Asked once more: a trial that was made since has the search's tags as they were before.
    return [annotate(store, each, of(each.tags), origin=origin) for each in trial_jobs(store, row.id)]


def _changed_note(before: str, note: str, append: bool) -> str:
    return f"{before}\n{note}" if append and before and note else note


def _changed_tags(owner: str, present: tuple[str, ...], changes: Annotations) -> tuple[str, ...]:
    for name in changes.add_tags:
        if not name or name != "".join(name.split()):
            raise UsageError(f"'{name}' is not a valid tag: a tag is one word")
    for name in changes.remove_tags:
        if name not in present:
            raise _no_such_tag(owner, present, name)
    before = present if changes.tags is None else changes.tags
    return tuple(
        name for name in dict.fromkeys((*before, *changes.add_tags)) if name not in changes.remove_tags
    )


def _no_such_tag(owner: str, present: tuple[str, ...], name: str) -> UnknownName:
    from workbench.manifest.yaml.faults import nearest

    close = nearest(name, present)
    there = f"its tags are {' '.join(present)}" if present else "it has no tags"
    return UnknownName(f"{owner} has no tag '{name}'", hint=f"did you mean {close}?" if close else there)
