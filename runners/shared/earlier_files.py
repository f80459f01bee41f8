"""Brings what earlier attempts made elsewhere to a host that a job goes on at: results and checkpoints that came home.

A job that stays where it is finds its files there, and one with a result store gets them from the store. Where several
hosts have a job each attempt but the first begins with those of all of them. What the job deletes at one of them it
does not get again: it is noted here, stays here as of a job at one host, and goes from the others.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, cast

from backends.contract.errors import translated
from backends.contract.host import Host
from runners.interface import LaunchProgress, LaunchRequest
from runners.shared.code import ProgressReader
from runners.shared.data_stores import moved_at, results_store
from runners.shared.environment import job_folders
from runners.shared.host_facts import HostFacts
from workbench.learner.host.merge import LARGE, SMALL
from workbench.learner.platform.beneath import Root
from workbench.learner.platform.chains import safe_links
from workbench.learner.platform.files import write_files
from workbench.paths import Home, JobFolder, default_home
from workbench.values import dataclass

LARGE_BYTES: Final = 4 << 20
"""Files from this size on are sent one by one, so that a broken transfer goes on; smaller ones as an archive."""

DONE: Final = "earlier.json"
"""In an attempt's folder: what earlier attempts made is there; of several hosts what this one began with."""

SENDING: Final = "uploading results and checkpoints"

_PACKING: Final = 1
"""gzip's level: checkpoints hardly shrink."""


def bring_earlier_files(
    host: Host, site: HostFacts, request: LaunchRequest, progress: LaunchProgress
) -> None:
    """Bring results and checkpoints that came home, unless the job has begun at this host since it went there.

    Where others have learners of the attempt, too, unless this attempt has begun here.

    What is newer at the host stays. It can be cut off at any instant and repeated.

    Raises:
        CannotWrite: the host takes no more.
        BackendUnreachable: the connection broke; the next try goes on.
    """
    since, is_part = _since(request), bool(request.attempt.part)
    if not since or (site.here and not is_part) or results_store(request) is not None:
        return
    there, attempt = job_folders(request, site)
    done, first = attempt.path / DONE, request.attempt.numbers[0]
    begun = [
        there.attempt(number).learner(first).launch for number in range(since, request.attempt.attempt + 1)
    ]
    if host.call("existing", paths=[str(path) for path in (done, *begun)]):
        return
    with translated():
        here = Home(default_home()).job(request.attempt.job_id)
        # Hosts may have one folder: each has a name of its own.
        sending = _Sending(
            host, there, f"{attempt.path}/earlier-{first}", progress, _read(here.deleted_files)
        )
        sending.run(None if site.here else here, removes=is_part)
    begun_with = {"had": _had(host, there)} if is_part else {}
    host.call("write_files", files={str(done): json.dumps(begun_with) + "\n"})


def _since(request: LaunchRequest) -> int:
    """Return the first attempt that finds there what it left; 0 where all of them do."""
    if request.attempt.part and request.attempt.attempt > 1:
        return request.attempt.attempt
    return moved_at(request)


def are_brought(host: Host, site: HostFacts, request: LaunchRequest) -> bool:
    """Say whether an attempt has what earlier ones have made at other hosts, or needs none of it."""
    if not _since(request) or results_store(request) is not None:
        return True
    return bool(host.call("existing", paths=[str(job_folders(request, site)[1].path / DONE)]))


def _folders_of(there: JobFolder) -> dict[str, str]:
    return {"results": str(there.results), "checkpoints": str(there.checkpoints)}


def _had(host: Host, there: JobFolder) -> dict[str, dict[str, list[Any]]]:
    """Return when each file was changed, and what each link says, by folder and path."""
    return {
        name: {
            path: [modified_ns, target]
            for path, (kind, _, modified_ns, _, target) in host.call("list_tree", folder=folder).items()
            if kind != "folder"
        }
        for name, folder in _folders_of(there).items()
    }


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What an attempt has deleted and made at one of several hosts, by names like ``checkpoints/a``."""

    deleted: Mapping[str, list[Any]]
    """When such a file was changed last, and what such a link said."""
    made: frozenset[str]


def changes_of(host: Host, there: JobFolder, attempt: int) -> FileChanges:
    """Compare what an attempt began with at a host, where that is known, with what is there."""
    document = host.call("read_object", path=str(there.attempt(attempt).path / DONE)) or {}
    began: Mapping[str, Mapping[str, list[Any]]] = document.get("had") or {}
    deleted: dict[str, list[Any]] = {}
    made: set[str] = set()
    if began:
        folders = _folders_of(there)
        # A folder that is gone as a whole was not deleted by the job: a disk may be away.
        existing = set(host.call("existing", paths=list(folders.values())))
        for name, now in _had(host, there).items():
            if folders[name] in existing:
                had = began.get(name, {})
                deleted |= {f"{name}/{path}": had[path] for path in had if path not in now}
                made |= {f"{name}/{path}" for path in now if path not in had}
    return FileChanges(deleted, frozenset(made))


def note_changes(here: JobFolder, changes: Iterable[FileChanges]) -> None:
    """Note here what the job has deleted at its hosts; what it has made again is none of that any more."""
    known = _read(here.deleted_files)
    noted, deleted = dict(known), dict[str, list[Any]]()
    for each in changes:
        deleted |= each.deleted
        for name in noted.keys() & each.made:
            del noted[name]
    noted |= deleted
    if noted != known:
        with translated():
            write_files({str(here.deleted_files): json.dumps(noted)})


def _read(path: Path) -> dict[str, list[Any]]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file or a link of this machine that the host lacks."""

    root: Root
    folder: str
    """``results`` or ``checkpoints``."""
    path: str
    size_bytes: int
    modified_ns: int
    mode: int
    target: str
    """What a link says; empty for a file."""

    @property
    def name(self) -> str:
        """Its path, with its folder."""
        return f"{self.folder}/{self.path}"

    def open(self) -> BinaryIO:
        """Open it, and nothing that was put in its place."""
        return open(self.root.open_file(self.path, follow=False), "rb")  # noqa: PTH123  # a descriptor


@dataclass(frozen=True, slots=True)
class _Sending:
    """What a host lacks of what earlier attempts made, and has though the job has deleted it."""

    host: Host
    there: JobFolder
    sent: str
    """The folder at the host that it lands in first."""
    progress: LaunchProgress
    deleted: Mapping[str, list[Any]]

    def run(self, here: JobFolder | None, *, removes: bool) -> None:
        """Send what is here, and remove what was deleted elsewhere, if that is asked for."""
        into = _folders_of(self.there)
        gone: dict[str, list[str]] = {}
        with ExitStack() as opened:
            entries: list[_Entry] = []
            for name, target in into.items():
                known = self.host.call("list_tree", folder=target)
                paths = [
                    path
                    for path, (kind, _, modified_ns, _, says) in known.items()
                    if kind != "folder" and self._is_deleted(f"{name}/{path}", modified_ns, says)
                ]
                if removes and paths:
                    gone[name] = paths
                folder = Path(_folders_of(here)[name]) if here is not None else None
                if folder is not None and folder.is_dir():
                    root = opened.enter_context(Root(str(folder)))
                    kept = [
                        entry
                        for entry in _entries(root, name)
                        if not self._is_deleted(entry.name, entry.modified_ns, entry.target)
                    ]
                    entries += _missing(kept, known)
            if not entries and not gone:
                return
            self._put_all(entries)
            self.host.call(
                "merge_sent",
                sent=self.sent,
                into=into,
                modified_ns={entry.name: entry.modified_ns for entry in entries if not entry.target},
                **({"deleted": gone} if gone else {}),
            )

    def _is_deleted(self, name: str, modified_ns: int, target: str) -> bool:
        """Say whether a file or link is one that the job has deleted, and was not changed since."""
        deleted_ns, said = self.deleted.get(name, (-1, ""))
        return target == said and (bool(target) or modified_ns <= deleted_ns)

    def _put_all(self, entries: list[_Entry]) -> None:
        if not entries:
            return
        self.progress(SENDING, stage="preparing")
        for entry in entries:
            if entry.size_bytes >= LARGE_BYTES:
                with entry.open() as stream:
                    self._put(stream, entry.size_bytes, f"{LARGE}/{entry.name}", entry.mode)
        small = [entry for entry in entries if entry.size_bytes < LARGE_BYTES]
        if small:
            with tempfile.TemporaryFile() as packed:
                _pack(small, cast(BinaryIO, packed))
                self._put(cast(BinaryIO, packed), packed.tell(), SMALL, 0o600)

    def _put(self, stream: BinaryIO, size_bytes: int, path: str, mode: int) -> None:
        stream.seek(0)
        sha256 = hashlib.file_digest(cast(BufferedReader, stream), "sha256").hexdigest()
        stream.seek(0)
        reader = cast(BinaryIO, ProgressReader(stream, size_bytes, self.progress, SENDING))
        self.host.put(reader, f"{self.sent}/{path}", sha256=sha256, mode=mode)


def _entries(root: Root, folder: str) -> Iterator[_Entry]:
    for above, _, _, names in root.walk():
        for name in names:
            path = f"{above}/{name}" if above else name
            about = root.stat(path, follow=False)
            is_link = stat.S_ISLNK(about.st_mode)
            if is_link or stat.S_ISREG(about.st_mode):
                target = root.read_link(path) if is_link else ""
                size_bytes = 0 if is_link else about.st_size
                mode = stat.S_IMODE(about.st_mode) & 0o777 | 0o600
                yield _Entry(root, folder, path, size_bytes, about.st_mtime_ns, mode, target)


def _missing(entries: list[_Entry], known: Mapping[str, list[Any]]) -> list[_Entry]:
    """Return what a host lacks, by what it lists; links that lead out of their folder stay here."""
    links = safe_links({entry.path: entry.target for entry in entries if entry.target}, {})
    return [
        entry
        for entry in entries
        if (entry.path in links if entry.target else True)
        and _is_newer(entry, known.get(entry.path))
        and _has_way(entry.path, known)
    ]


def _has_way(path: str, known: Mapping[str, list[Any]]) -> bool:
    """Say whether no file of the host has the name of a folder that leads to a path: it stays as it is."""
    return all(known.get(str(above), [""])[0] != "file" for above in PurePosixPath(path).parents)


def _is_newer(entry: _Entry, there: list[Any] | None) -> bool:
    if there is None:
        return True
    kind, _, modified_ns, _, target = there
    if entry.target:
        return kind == "link" and bool(target != entry.target)
    return kind != "folder" and int(modified_ns) < entry.modified_ns


def _pack(entries: list[_Entry], stream: BinaryIO) -> None:
    # Without a time of its own it is the same each time, so that a broken transfer goes on.
    with (
        gzip.GzipFile("", "wb", _PACKING, stream, 0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for entry in entries:
            member = tarfile.TarInfo(entry.name)
            member.mode, member.mtime = entry.mode, entry.modified_ns // 10**9
            if entry.target:
                member.type, member.linkname = tarfile.SYMTYPE, entry.target
                tar.addfile(member)
            else:
                with entry.open() as file:
                    member.size = entry.size_bytes
                    tar.addfile(member, file)
