"""Brings what earlier attempts made elsewhere to a host that a job goes on at: results and checkpoints that came home.

A job that stays where it is finds its files there, and one with a result store gets them from the store.
"""

from __future__ import annotations

import gzip
import hashlib
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from io import BufferedReader
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
from workbench.paths import Home, JobFolder, default_home
from workbench.values import dataclass

LARGE_BYTES: Final = 4 << 20
"""Files from this size on are sent one by one, so that a broken transfer goes on; smaller ones as an archive."""

DONE: Final = "earlier.json"
"""In an attempt's folder: what earlier attempts made is there."""

SENDING: Final = "uploading results and checkpoints"

_PACKING: Final = 1
"""gzip's level: checkpoints hardly shrink."""


def bring_earlier_files(
    host: Host, site: HostFacts, request: LaunchRequest, progress: LaunchProgress
) -> None:
    """Bring results and checkpoints that came home, unless the job has begun at this host since it went there.

    What is newer at the host stays. It can be cut off at any instant and repeated.

    Raises:
        CannotWrite: the host takes no more.
        BackendUnreachable: the connection broke; the next try goes on.
    """
    moved = moved_at(request)
    if not moved or site.here or results_store(request) is not None:
        return
    there, attempt = job_folders(request, site)
    done = attempt.path / DONE
    begun = [there.attempt(number).learner(1).launch for number in range(moved, request.attempt.attempt + 1)]
    if host.call("existing", paths=[str(path) for path in (done, *begun)]):
        return
    with translated():
        here = Home(default_home()).job(request.attempt.job_id)
        _send(host, here, there, str(attempt.path / "earlier"), progress)
    host.call("write_files", files={str(done): "{}\n"})


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


def _send(host: Host, here: JobFolder, there: JobFolder, sent: str, progress: LaunchProgress) -> None:
    into = {"results": there.results, "checkpoints": there.checkpoints}
    with ExitStack() as opened:
        entries: list[_Entry] = []
        for name, folder in (("results", here.results), ("checkpoints", here.checkpoints)):
            if folder.is_dir():
                root = opened.enter_context(Root(str(folder)))
                known = host.call("list_tree", folder=str(into[name]))
                entries += _missing(list(_entries(root, name)), known)
        if not entries:
            return
        progress(SENDING, stage="preparing")
        large = [entry for entry in entries if entry.size_bytes >= LARGE_BYTES]
        for entry in large:
            with entry.open() as stream:
                path = f"{sent}/{LARGE}/{entry.name}"
                _put(host, stream, entry.size_bytes, path, entry.mode, progress)
        small = [entry for entry in entries if entry.size_bytes < LARGE_BYTES]
        if small:
            with tempfile.TemporaryFile() as stream:
                _pack(small, cast(BinaryIO, stream))
                size_bytes = stream.tell()
                _put(host, cast(BinaryIO, stream), size_bytes, f"{sent}/{SMALL}", 0o600, progress)
        host.call(
            "merge_sent",
            sent=sent,
            into={name: str(folder) for name, folder in into.items()},
            modified_ns={entry.name: entry.modified_ns for entry in entries if not entry.target},
        )


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
        if (entry.path in links if entry.target else True) and _is_newer(entry, known.get(entry.path))
    ]


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


def _put(
    host: Host, stream: BinaryIO, size_bytes: int, path: str, mode: int, progress: LaunchProgress
) -> None:
    stream.seek(0)
    sha256 = hashlib.file_digest(cast(BufferedReader, stream), "sha256").hexdigest()
    stream.seek(0)
    reader = cast(BinaryIO, ProgressReader(stream, size_bytes, progress, SENDING))
    host.put(reader, path, sha256=sha256, mode=mode)
