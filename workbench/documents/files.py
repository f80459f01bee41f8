"""Documents of files, checkpoints, stores and what takes up space."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from workbench.documents.jobs import JobDocument, Spec
from workbench.documents.values import Id, StateName, Time


class FileRecord(TypedDict):
    """A file, folder or link of a learner."""

    path: str
    kind: Literal["file", "folder", "link"]
    size_bytes: int
    modified: Time
    target: str
    """Where a link points; empty for others."""


class FilesDocument(TypedDict):
    """The files of a learner: `fabric files --json`."""

    schema: Literal["fabric.files/1"]
    id: Id
    attempt: int
    learner: int
    files: list[FileRecord]


CopyDocument = TypedDict(
    "CopyDocument",
    {
        "schema": Literal["fabric.copy/1"],
        "id": Id,
        "from": str,
        "to": str,
        "files": int,
        "size_bytes": int,
    },
)
CopyDocument.__doc__ = "What `fabric cp` copied."


class DownloadDocument(TypedDict):
    """What `fabric download` and `fabric checkpoint download` wrote: folders, or the zips of FfDL's options."""

    schema: Literal["fabric.download/1"]
    id: Id
    folders: NotRequired[dict[str, str]]
    """The folder of each part."""
    files: NotRequired[dict[str, str]]
    """The zip of each part."""


class CheckpointDocument(TypedDict):
    """A checkpoint: `fabric checkpoint list --json`."""

    schema: Literal["fabric.checkpoint/1"]
    name: str
    step: int | None
    attempt: int
    time: Time
    size_bytes: int | None
    sha256: str
    metrics: dict[str, Any]
    where: list[str]
    """`here`, `store`, or the name of its backend; empty where it is gone."""
    job: NotRequired[Id]
    """Whose it is."""
    value: NotRequired[float]
    """With `--best` the value by which it was chosen."""
    removed: NotRequired[bool]
    """Of `fabric checkpoint delete`."""


class DataPutDocument(TypedDict):
    """What `fabric data put` wrote into a store."""

    schema: Literal["fabric.data-put/1"]
    store: str
    path: str
    files: int
    size_bytes: int


class ContainerDocument(TypedDict):
    """A container of a store: `fabric data mkbucket --json`."""

    schema: Literal["fabric.container/1"]
    store: str
    container: str
    made: bool
    """Whether it is new."""


class DataDocument(TypedDict):
    """A copy of a store's data: `fabric data list --json`."""

    schema: Literal["fabric.data/1"]
    backend: str
    container: str
    store: str
    """The store's address; empty where no known job reads it."""
    files: int
    size_bytes: int
    fingerprint: str
    used: Time
    """When a job last used it."""
    used_us: int
    in_use: bool
    whole: bool
    """Whether all of the container is there."""
    folder: str
    removed: NotRequired[bool]
    """Of `fabric data prune`."""


class StoredDocument(TypedDict):
    """Results that were stored again: `fabric store retry --json`."""

    schema: Literal["fabric.stored/1"]
    id: Id
    where: str
    files: int
    size_bytes: int
    missing_files: int
    state: StateName
    reasons: list[str]
    """Why files are missing."""


class SpaceOfJobEntry(TypedDict):
    """What a job takes up."""

    id: Id
    name: str
    state: StateName
    logs_bytes: int
    results_bytes: int
    checkpoints_bytes: int
    other_bytes: int
    total_bytes: int


class SharedSpaceEntry(TypedDict):
    """Something that jobs share."""

    name: str
    path: str
    size_bytes: int


class SpaceDocument(TypedDict):
    """What takes up space: `fabric du --json`."""

    schema: Literal["fabric.space/1"]
    jobs: list[SpaceOfJobEntry]
    shared: list[SharedSpaceEntry]
    total_bytes: int


class PrunedJobEntry(JobDocument):
    """A job that is removed, or its logs."""

    freed_bytes: int


class PrunedCacheEntry(TypedDict):
    """A part of a cache that no job uses."""

    kind: str
    name: str
    freed_bytes: int


class PruningDocument(TypedDict):
    """What `fabric prune` removed, or would remove."""

    schema: Literal["fabric.pruning/1"]
    removed: bool
    logs_only: bool
    jobs: list[PrunedJobEntry]
    """Each with its `freed_bytes`."""
    caches: list[PrunedCacheEntry]
    freed_bytes: int


class LeftoverDocument(TypedDict):
    """Something that belongs to no job: `fabric gc --json`."""

    schema: Literal["fabric.leftover/1"]
    kind: str
    backend: str
    name: str
    size_bytes: int | None
    why: str
    ours: bool
    """Whether this home left it; what others left is never removed."""
    removed: bool


class JobTarget(TypedDict):
    """Where a job goes, frozen when it was submitted."""

    backend: str
    type: str
    runner: str
    address: str
    options: dict[str, Any]


class JobFile(TypedDict):
    """What was submitted: the file `job.json` in a job's folder."""

    format: Literal[1]
    id: Id
    name: str
    owner: str
    submitted_us: int
    """Microseconds since 1970."""
    place: JobTarget
    spec: Spec
    """The manifest as it was read, sizes in bytes and times in seconds."""
    manifest_text: str
    """As it was written, without secrets."""
    origins: dict[str, str]
    code_hash: str
    recorded: dict[str, Any]
    parent: str | None
    trial: int | None
    labels: dict[str, str]
    tags: list[str]
