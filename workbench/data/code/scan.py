"""Looks through a folder of code: what belongs to its snapshot, with each file's content hash.

A file that has the size, times and inode of the last look is not read again. What was changed within the
clock's grain of that look is not trusted, as git does it: a change right after a look can leave all of them
the same.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from workbench.data.code.ignore import Rules, rules_of
from workbench.data.code.scan_cache import FileFacts, Remembered
from workbench.errors import InputMissing

_CHUNK_BYTES: Final = 1 << 20
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Found:
    """One file, folder or link of a snapshot."""

    path: str
    """Relative, with slashes; names that are not UTF-8 keep their bytes as surrogates."""
    kind: str
    """``file``, ``folder`` or ``link``."""
    executable: bool = False
    size: int = 0
    digest: str = ""
    """Of a file's content."""
    target: str = ""
    """What a link points at."""


@dataclass(slots=True)
class Scan:
    """What was found."""

    entries: list[Found] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    """Paths that were left out, folders with a slash at their end."""
    skipped: list[str] = field(default_factory=list)
    """Sockets, pipes and devices."""
    outward: list[str] = field(default_factory=list)
    """Links that lead out, as ``path -> target``."""
    remembered: Remembered = field(default_factory=Remembered)
    """What the next look can trust."""

    def code_hash(self) -> str:
        """Return the hash over names, kinds, modes and contents, and nothing else."""
        whole = hashlib.sha256(b"fabric code 1\n")
        for entry in sorted(self.entries, key=lambda found: os.fsencode(found.path)):
            mode = "x" if entry.executable else "-"
            content = entry.digest or entry.target
            for part in (entry.kind, mode, entry.path, content):
                whole.update(os.fsencode(part) + b"\0")
        return whole.hexdigest()


def scan_folder(
    folder: Path, before: Remembered, *, never: tuple[Path, ...] = (), ignores: bool = True
) -> Scan:
    """Look through a folder.

    Args:
        folder: absolute.
        before: what the last look remembered.
        never: folders and files that are left out wherever they lie (fabric's own home, a manifest with passwords).
        ignores: whether ``.gitignore`` and ``.fabricignore`` count.

    Raises:
        InputMissing: something in it cannot be read, or a link leads out of it.
    """
    scanner = _Scanner(folder, before, never, ignores)
    try:
        scanner.walk(str(folder), "", rules_of(folder) if ignores else Rules("", b"", None, ""))
    except FileNotFoundError as error:
        raise InputMissing(f"the code folder {folder} is not there any more") from error
    if scanner.scan.outward:
        raise _leads_out(folder, scanner.scan.outward)
    return scanner.scan


def _leads_out(folder: Path, outward: list[str]) -> InputMissing:
    shown = ", ".join(outward[:_NAMED_MAX]) + (
        f" and {len(outward) - _NAMED_MAX} more" if len(outward) > _NAMED_MAX else ""
    )
    what = "a link leads" if len(outward) == 1 else f"{len(outward)} links lead"
    return InputMissing(
        f"{what} out of the code folder {folder}, where a learner cannot follow: {shown}",
        hint="name it in .fabricignore, or put what it points at into the folder",
    )


class _Scanner:
    """One look."""

    def __init__(self, folder: Path, before: Remembered, never: tuple[Path, ...], ignores: bool) -> None:
        self.scan = Scan()
        self._root = str(folder)
        self._real_root = os.path.realpath(folder)
        self._before = before
        self._never = {os.path.realpath(path) for path in never}
        self._never_named = {Path(path).name for path in self._never}
        self._ignores = ignores
        self._started_ns = time.time_ns()

    def walk(self, folder: str, prefix: str, rules: Rules) -> None:
        """Take in a folder and everything below it."""
        decided = self._before.decisions(prefix, rules.fingerprint)
        excluded: list[str] = []
        included: list[str] = []
        for entry in self._listing(folder):
            is_folder = entry.is_dir(follow_symlinks=False)
            shown = entry.name + "/" if is_folder else entry.name
            out = decided.get(shown)
            if out is None:
                out = rules.excludes(entry.name, is_folder=is_folder)
            (excluded if out else included).append(shown)
            if out or (self._is_foreign(entry.path) if is_folder else self._is_never(entry)):
                self.scan.excluded.append(prefix + shown)
            elif is_folder:
                self._take_folder(entry, prefix + entry.name, rules)
            else:
                self._take(entry, prefix + entry.name)
        self.scan.remembered.note_folder(prefix, rules.fingerprint, excluded, included)

    def _is_foreign(self, path: str) -> bool:
        """Say whether a folder is fabric's own home, or a virtual environment, which cannot be moved."""
        if self._never and os.path.realpath(path) in self._never:
            return True
        return self._ignores and os.path.exists(f"{path}/pyvenv.cfg")  # noqa: PTH110 - once a folder

    def _is_never(self, entry: os.DirEntry[str]) -> bool:
        return entry.name in self._never_named and os.path.realpath(entry.path) in self._never

    def _take_folder(self, entry: os.DirEntry[str], path: str, rules: Rules) -> None:
        taken = len(self.scan.entries)
        self.scan.entries.append(Found(path, "folder"))
        below = rules.below(entry.name, entry.path) if self._ignores else rules
        try:
            self.walk(entry.path, path + "/", below)
        except FileNotFoundError:
            # Gone since the folder above was listed: as if it had never been there.
            del self.scan.entries[taken:]

    def _listing(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            raise  # whoever listed the folder above knows what that means
        except OSError as error:
            raise InputMissing(
                f"the folder {folder} cannot be read: {error.strerror}",
                hint="name it in .fabricignore to leave it out",
            ) from error

    def _take(self, entry: os.DirEntry[str], path: str) -> None:
        try:
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(facts.st_mode):
                self._take_link(entry, path)
            elif stat.S_ISREG(facts.st_mode):
                self._take_file(entry.path, path, facts)
            else:
                self.scan.skipped.append(path)
        except FileNotFoundError:
            # Gone since the folder was listed: as if it had never been there.
            return
        except OSError as error:
            raise InputMissing(
                f"{entry.path} cannot be read: {error.strerror}",
                hint="name it in .fabricignore to leave it out",
            ) from error

    def _take_link(self, entry: os.DirEntry[str], path: str) -> None:
        written = os.readlink(entry.path)  # noqa: PTH115 - its bytes as they are
        target = _link_target(self._root, self._real_root, path, written)
        if target is None:
            self.scan.outward.append(f"{path} -> {written}")
        else:
            self.scan.entries.append(Found(path, "link", target=target))

    def _take_file(self, file: str, path: str, facts: os.stat_result) -> None:
        now = FileFacts.of(facts)
        digest = self._before.digest(path, now)
        size = facts.st_size
        if digest is None:
            digest, size = file_digest(file)
        if now.settled(self._started_ns) and size == now.size:
            self.scan.remembered.note_file(path, now, digest)
        executable = bool(facts.st_mode & 0o100)
        self.scan.entries.append(Found(path, "file", executable, size, digest))


def file_digest(path: str) -> tuple[str, int]:
    """Return a file's content hash and how many bytes it covers."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - once a file
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def _link_target(root: str, real_root: str, path: str, written: str) -> str | None:
    """Return what a link is to say in a snapshot; None when it leads out of the tree.

    Args:
        root: the tree's folder.
        real_root: the same without symbolic links.
        path: the link, relative to the tree.
        written: what it says.
    """
    resolved = os.path.realpath(f"{root}/{path}")
    if resolved != real_root and not resolved.startswith(real_root.rstrip("/") + "/"):
        return None
    if _stays_inside(path, written):
        return written
    # Absolute, or out and in again by the folder's own name, which is another one at the place.
    here = os.path.realpath(f"{root}/{os.path.dirname(path)}")  # noqa: PTH120 - text, as bytes may be no UTF-8
    return os.path.relpath(resolved, here)


def _stays_inside(path: str, target: str) -> bool:
    """Say whether a link at a path of a tree stays in it, by its own names alone: others may be on its way."""
    if not target or target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/")
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return False
    return True
