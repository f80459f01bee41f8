"""Downloads results, checkpoints and logs of a job from its host; unchanged files are skipped."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from backends.contract.host import Host
from workbench.errors import BackendError, CannotWrite
from workbench.learner.platform.chains import safe_links
from workbench.paths import JobFolder
from workbench.values import dataclass

ROUNDS: Final = 3
"""How often files that changed during the transfer are fetched again."""

COPY_BYTES: Final = 1 << 20
SMALL_FILES: Final = ("environment.json", "decision.json")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file, folder or link on the host."""

    kind: str
    size: int
    modified_ns: int
    mode: int
    target: str


def download_attempt(
    host: Host,
    there: JobFolder,
    here: JobFolder,
    attempt: int,
    *,
    contained: bool = False,
    goes_on: bool = False,
    keep_newer: bool = False,
) -> None:
    """Download the folders of an attempt; each file is written atomically.

    With ``contained`` the host follows links only within the folders that the job's container had mounted. Where it
    ``goes_on``, results and checkpoints are left to the next attempt, which writes to them. With ``keep_newer`` files
    that are newer here stay.

    Raises:
        BackendError: files keep changing, or the host sends files that were not requested.
        CannotWrite: the files cannot be written here.
    """
    ran = there.attempt(attempt)
    triples = [
        (there.results, there.results, here.results),
        (there.checkpoints, there.checkpoints, here.checkpoints),
        (ran.logs, ran.job_state, here.attempt(attempt).logs),
    ]
    if goes_on:
        del triples[:2]
    try:
        for source, within, target in triples:
            inside_of = str(within) if contained else ""
            download_folder(host, str(source), target, within=inside_of, keep_newer=keep_newer)
        _download_small_files(host, there.attempt(attempt).path, here.attempt(attempt).path)
    except OSError as error:
        raise CannotWrite(f"the job's files cannot be copied back: {error.strerror or error}") from error


def download_folder(
    host: Host, source: str, target: Path, *, within: str = "", keep_newer: bool = False
) -> None:
    """Copy a folder of the host into a folder here; other local files are kept.

    ``within`` names the folder on the host that a container can change: links must not lead out of it. With
    ``keep_newer`` files and links stay that are newer here: several hosts may have one of that name. So do folders
    where the host has a file, and a file that is newer than a folder of the host, which then stays there.
    """
    # An agent that began with an older version does not know the argument.
    bounds = {"within": within} if within else {}
    for _ in range(ROUNDS):
        listed = host.call("list_tree", folder=source, **bounds)
        entries = {path: _Entry(*fields) for path, fields in listed.items()}
        if keep_newer:
            entries = _without_older(target, entries)
        _make_folders(target, entries)
        missing = [path for path, entry in entries.items() if not _is_here(target, path, entry)]
        if missing:
            missing_entries = {path: entries[path] for path in missing}
            host.fetch(source, missing, _Receiver(target, missing_entries).receive, within=within)
        _make_links(target, entries)
        if not missing:
            return
    raise BackendError(f"files in {source} keep changing, or cannot be copied back: {missing[0]}")


def _download_small_files(host: Host, source: Path, target: Path) -> None:
    present = set(host.call("children", folder=str(source)))
    for name in SMALL_FILES:
        if name in present:
            entry = _Entry("file", -1, 0, 0o600, "")
            host.fetch(str(source), [name], _Receiver(target, {name: entry}).receive)


@dataclass(frozen=True, slots=True)
class _Receiver:
    """Writes the files of a tar stream; refuses files that were not requested."""

    target: Path
    entries: Mapping[str, _Entry]

    def receive(self, stream: BinaryIO) -> None:
        """Read the stream to its end."""
        try:
            with tarfile.open(fileobj=stream, mode="r|", bufsize=COPY_BYTES) as tar:
                for member in tar:
                    entry = self.entries.get(member.name)
                    content = tar.extractfile(member) if member.isreg() and entry else None
                    if entry is None or content is None:
                        raise BackendError(f"the backend sent {member.name!r}, which was not requested")
                    self._write(member.name, entry, content)
        except (tarfile.TarError, EOFError) as error:
            raise BackendError(f"the backend did not send a valid archive: {error}") from error

    def _write(self, name: str, entry: _Entry, content: Any) -> None:
        path = inside(self.target, name)
        _clear_way(self.target, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                shutil.copyfileobj(content, file, COPY_BYTES)
            Path(temporary).chmod(entry.mode | 0o600)
            if entry.size >= 0:
                os.utime(temporary, ns=(entry.modified_ns, entry.modified_ns))
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            Path(temporary).rename(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def inside(folder: Path, name: str) -> Path:
    """Return the path of a relative name within a folder: a host must not write elsewhere.

    Raises:
        BackendError: the name leads out of the folder.
    """
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute():
        raise BackendError(f"the backend lists {name!r}, which is not in the job's folder")
    return folder.joinpath(*parts)


def _without_older(target: Path, entries: Mapping[str, _Entry]) -> dict[str, _Entry]:
    """Leave out what is older than that which is here by its name, and what is in such a folder."""
    older = {path for path, entry in entries.items() if _is_older(target, path, entry)}
    return {
        path: entry
        for path, entry in entries.items()
        if path not in older and not any(str(above) in older for above in PurePosixPath(path).parents)
    }


def _is_older(target: Path, name: str, entry: _Entry) -> bool:
    try:
        about = os.lstat(inside(target, name))
    except OSError:
        return False
    if stat.S_ISDIR(about.st_mode):
        return entry.kind != "folder"  # the times of folders here say nothing
    return about.st_mtime_ns > entry.modified_ns


def _is_here(target: Path, name: str, entry: _Entry) -> bool:
    if entry.kind != "file":
        return True
    try:
        about = os.lstat(inside(target, name))
    except OSError:
        return False
    return (about.st_size, about.st_mtime_ns) == (entry.size, entry.modified_ns)


def _make_folders(target: Path, entries: Mapping[str, _Entry]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in _of_kind(entries, "folder"):
        path = inside(target, name)
        _clear_way(target, path)
        if path.is_symlink() or path.is_file():
            path.unlink()
        path.mkdir(parents=True, exist_ok=True)


def _make_links(target: Path, entries: Mapping[str, _Entry]) -> None:
    """Create the links whose targets are within the folder; others would point to files of this machine."""
    links = {name: entries[name].target for name in _of_kind(entries, "link")}
    existing = _links_here(target) if links else {}
    for name in sorted(
        safe_links(links, {path: link_target for path, link_target in existing.items() if path not in links})
    ):
        path, leads_to = inside(target, name), links[name]
        _clear_way(target, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() and str(path.readlink()) == leads_to:
            continue
        if os.path.lexists(path):
            if path.is_dir() and not path.is_symlink():
                continue
            path.unlink()
        path.symlink_to(leads_to)
        with contextlib.suppress(
            OSError, NotImplementedError
        ):  # there are file systems whose links have no time
            modified_ns = entries[name].modified_ns
            os.utime(path, ns=(modified_ns, modified_ns), follow_symlinks=False)


def _links_here(target: Path) -> dict[str, str]:
    """Return the targets of the links that exist in a folder, by relative path."""
    found = {}
    for parent, folders, names in os.walk(target):
        for path in (Path(parent, name) for name in (*folders, *names)):
            if path.is_symlink():
                found[path.relative_to(target).as_posix()] = str(path.readlink())
    return found


def _clear_way(target: Path, path: Path) -> None:
    """Remove links among a path's parent folders: nothing is written through a link."""
    for parent in reversed(path.relative_to(target).parents):
        if (target / parent).is_symlink() and parent != Path():
            (target / parent).unlink()


def _of_kind(entries: Mapping[str, _Entry], kind: str) -> Iterator[str]:
    return (name for name in sorted(entries) if entries[name].kind == kind)
