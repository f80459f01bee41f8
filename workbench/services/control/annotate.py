"""Gives jobs tags and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import UnknownName, UsageError
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


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

    tags = _changed_tags(row, changes)
    if changes.tags is not None or tags != row.tags:
        write(store, row.id, tags=tags, origin=origin)
    if changes.note is not None:
        is_further = changes.append and row.note and changes.note
        note = f"{row.note}\n{changes.note}" if is_further else changes.note
        write(store, row.id, note=note, origin=origin)
    return job(store, row.id) or row


def _changed_tags(row: JobRow, changes: Annotations) -> tuple[str, ...]:
    for name in changes.add_tags:
        if not name or name != "".join(name.split()):
            raise UsageError(f"'{name}' is not a valid tag: a tag is one word")
    for name in changes.remove_tags:
        if name not in row.tags:
            raise _no_such_tag(row, name)
    before = row.tags if changes.tags is None else changes.tags
    return tuple(
        name for name in dict.fromkeys((*before, *changes.add_tags)) if name not in changes.remove_tags
    )


def _no_such_tag(row: JobRow, name: str) -> UnknownName:
    from workbench.manifest.yaml.faults import nearest

    close = nearest(name, row.tags)
    present = f"its tags are {' '.join(row.tags)}" if row.tags else "it has no tags"
    return UnknownName(f"{row.name} has no tag '{name}'", hint=f"did you mean {close}?" if close else present)
