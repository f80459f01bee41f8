"""Scans a folder of code: the entries of its snapshot, with each file's content hash.

A file with the size, times and inode of the last scan is not read again. A file that changed within the clock's
resolution of that scan is read again, as git does: such a change can leave all of them the same.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from workbench.data.code.bounds import UNBOUNDED, Bounds, CodeExcess, excess, too_much
from workbench.data.code.credentials import is_credential, is_key
from workbench.data.code.folder_guard import IDENTITY, is_home
from workbench.data.code.ignore import Rules, rules_of
from workbench.data.code.scan_cache import FileFacts, ScanCache
from workbench.errors import InputMissing
from workbench.learner.platform.beneath import Outside, Root, WrongKind

_CHUNK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 1 << 16
_NAMED_MAX: Final = 5
_REPLACED: Final = (errno.ELOOP, errno.EMLINK, errno.EXDEV, errno.ENXIO, errno.ENOTDIR, errno.EISDIR)
"""What opening a regular file below a folder fails with where a link, a socket or another kind of file is there."""
_ENTRIES_A_REPORT: Final = 1024
"""How many entries are listed between two looks at the clock and two reports of progress."""

TAKEN: Final = "in"
LEFT_OUT: Final = "out"
KEY: Final = "key"
"""What is decided of an entry; before a content hash it marks a private key."""

Progress = Callable[[str, int, int], None]
"""Takes what is done (``look``, ``read``, ``pack``), and how much of how much: files of a look, else bytes; 0 of
what nobody knows yet."""


@dataclass(frozen=True, slots=True)
class CodeEntry:
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

    def values(self) -> tuple[str, str, bool, int, str, str]:
        """Return the fields in order; ``dataclasses.astuple`` copies each, which takes thirty times as long."""
        return (self.path, self.kind, self.executable, self.size, self.digest, self.target)


@dataclass(slots=True)
class Scan:
    """The result of a scan."""

    entries: list[CodeEntry] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    """Paths that were left out, folders with a slash at their end."""
    skipped: list[str] = field(default_factory=list)
    """Sockets, pipes and devices."""
    outward: list[str] = field(default_factory=list)
    """Links that lead out, as ``path -> target``."""
    keys: list[str] = field(default_factory=list)
    """Keys and credentials, which were left out although no pattern says so."""
    homes: list[str] = field(default_factory=list)
    """Homes of fabric, which are always left out."""
    remembered: ScanCache = field(default_factory=ScanCache)
    """The cache for the next scan."""

    def code_hash(self) -> str:
        """Return the hash over names, kinds, modes and contents, and nothing else."""
        whole = hashlib.sha256(b"fabric code 1\n")
        for entry in sorted(self.entries, key=lambda found: os.fsencode(found.path)):
            mode = "x" if entry.executable else "-"
            content = entry.digest or entry.target
            for part in (entry.kind, mode, entry.path, content):
                whole.update(os.fsencode(part) + b"\0")
        return whole.hexdigest()


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """What a scan leaves out, and its limits."""

    never: tuple[Path, ...] = ()
    """Folders and files that are left out wherever they lie: our home, a manifest with passwords."""
    rules: Callable[[Path], Rules] = rules_of
    moves_environments: bool = False
    """Whether virtual environments are taken, which do not work elsewhere."""
    takes_keys: bool = False
    bounds: Bounds = UNBOUNDED
    agree: Callable[[CodeExcess], bool] = lambda _: False
    """Asks a person whether more than the bounds may be taken."""
    progress: Progress = lambda *_: None


def scan_folder(folder: Path, before: ScanCache, options: ScanOptions = ScanOptions()) -> Scan:
    """Scan a folder.

    Args:
        folder: absolute.
        before: the cache of the last scan.
        options: what is left out, and how much may be taken.

    Raises:
        InputMissing: something in it cannot be read, or a link leads out of it.
        UsageError: it is more than is taken without asking.
        ChangedMeanwhile: there is something else where a file was listed.
    """
    scanner = _Scanner(folder, before, options)
    try:
        return scanner.scanned()
    except FileNotFoundError as error:
        raise InputMissing(f"the code folder {folder} is not there any more") from error
    except _OutOfTime:
        scanner.check_bounds(is_whole=False)
        return scan_folder(folder, before, replace(options, bounds=UNBOUNDED))


def _leads_out(folder: Path, outward: list[str]) -> InputMissing:
    shown = ", ".join(outward[:_NAMED_MAX]) + (
        f" and {len(outward) - _NAMED_MAX} more" if len(outward) > _NAMED_MAX else ""
    )
    what = "a link leads" if len(outward) == 1 else f"{len(outward)} links lead"
    return InputMissing(
        f"{what} out of the code folder {folder}, where a learner cannot follow: {shown}",
        hint="name it in .fabricignore, or put what it points at into the folder",
    )


class ChangedMeanwhile(Exception):
    """A file is no longer what was scanned."""


class _OutOfTime(Exception):
    """Listing a folder takes longer than its limit."""


class _Unread(NamedTuple):
    """A file whose content is not known yet."""

    path: str
    file: str
    name: str
    facts: os.stat_result
    rules: Rules


class _Scanner:
    """One scan: names and sizes first, then, if they are within the limits, the content of files that changed."""

    def __init__(self, folder: Path, before: ScanCache, options: ScanOptions) -> None:
        self.scan = Scan()
        self._folder = folder
        self._root = str(folder)
        self._real_root = os.path.realpath(folder)
        self._before = before
        self._options = options
        self._never = {os.path.realpath(path) for path in options.never}
        self._never_named = {Path(path).name for path in self._never}
        self._found: list[CodeEntry | _Unread] = []
        self._listed_count = self._reported_count = 0
        self._started_ns = time.time_ns()
        self._ends = time.monotonic() + options.bounds.seconds

    def scanned(self) -> Scan:
        """Scan the folder, and return the result."""
        if not self._walk(self._root, "", self._options.rules(self._folder)):
            raise InputMissing(f"{self._folder} holds a home of fabric, which is never taken as code")
        if self.scan.outward:
            raise _leads_out(self._folder, self.scan.outward)
        self.check_bounds(is_whole=True)
        self._read_all()
        return self.scan

    def check_bounds(self, *, is_whole: bool) -> None:
        """Check the limits; where they are exceeded, ``agree`` decides."""
        files = ((each.path, each.facts.st_size) for each in self._found if isinstance(each, _Unread))
        found = excess(self._folder, files, self._options.bounds, is_whole=is_whole)
        if found is not None and not self._options.agree(found):
            raise too_much(found)

    def _walk(self, folder: str, prefix: str, rules: Rules) -> bool:
        """Take in a folder and everything below it; False for a home of fabric, of which nothing is taken."""
        listing = self._listing(folder)
        if any(entry.name == IDENTITY for entry in listing) and is_home(folder):
            return False
        decided = self._before.decisions(prefix, rules.fingerprint)
        verdicts: dict[str, list[str]] = {TAKEN: [], LEFT_OUT: [], KEY: []}
        for number, entry in enumerate(listing, 1):
            if number % _ENTRIES_A_REPORT == 0:
                self._count(_ENTRIES_A_REPORT)
            is_folder = entry.is_dir(follow_symlinks=False)
            shown = entry.name + "/" if is_folder else entry.name
            verdict = decided.get(shown) or self._verdict(entry.name, folder, rules, is_folder=is_folder)
            verdicts[verdict].append(shown)
            if verdict == LEFT_OUT:
                self.scan.excluded.append(prefix + shown)
            elif verdict == KEY and not self._options.takes_keys:
                self.scan.keys.append(prefix + shown)
            elif is_folder:
                self._take_folder(entry, prefix + entry.name, rules)
            else:
                self._take(entry, prefix + entry.name, rules)
        self._count(len(listing) % _ENTRIES_A_REPORT)
        self.scan.remembered.note_folder(prefix, rules.fingerprint, verdicts)
        return True

    def _count(self, entries: int) -> None:
        self._listed_count += entries
        if self._listed_count - self._reported_count >= _ENTRIES_A_REPORT:
            self._reported_count = self._listed_count
            self._options.progress("look", self._listed_count, 0)
            if time.monotonic() > self._ends:
                raise _OutOfTime

    def _verdict(self, name: str, folder: str, rules: Rules, *, is_folder: bool) -> str:
        if rules.excludes(name, is_folder=is_folder):
            return LEFT_OUT
        if is_credential(name, folder, is_folder=is_folder) and not rules.brings_back(
            name, is_folder=is_folder
        ):
            return KEY
        return TAKEN

    def _take_folder(self, entry: os.DirEntry[str], path: str, rules: Rules) -> None:
        if self._never and os.path.realpath(entry.path) in self._never:
            self.scan.homes.append(path + "/")
            return
        if not self._options.moves_environments and os.path.exists(f"{entry.path}/pyvenv.cfg"):  # noqa: PTH110 - once a folder
            self.scan.excluded.append(path + "/")
            return
        taken = len(self._found)
        self._found.append(CodeEntry(path, "folder"))
        try:
            if not self._walk(entry.path, path + "/", rules.below(entry.name, entry.path)):
                self.scan.homes.append(path + "/")
                del self._found[taken:]
        except FileNotFoundError:
            # Removed since the folder above was listed: skipped.
            del self._found[taken:]

    def _listing(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            raise  # whoever listed the folder above knows what that means
        except OSError as error:
            raise _unreadable(f"the folder {folder}", error) from error

    def _take(self, entry: os.DirEntry[str], path: str, rules: Rules) -> None:
        if entry.name in self._never_named and os.path.realpath(entry.path) in self._never:
            self.scan.excluded.append(path)
            return
        try:
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(facts.st_mode):
                self._take_link(entry, path)
            elif stat.S_ISREG(facts.st_mode):
                self._found.append(_Unread(path, entry.path, entry.name, facts, rules))
            else:
                self.scan.skipped.append(path)
        except FileNotFoundError:
            # Removed since the folder was listed: skipped.
            return
        except OSError as error:
            raise _unreadable(entry.path, error) from error

    def _take_link(self, entry: os.DirEntry[str], path: str) -> None:
        written = os.readlink(entry.path)  # noqa: PTH115 - its bytes as they are
        target = _link_target(self._root, self._real_root, path, written)
        if target is None:
            self.scan.outward.append(f"{path} -> {written}")
        else:
            self._found.append(CodeEntry(path, "link", target=target))

    def _read_all(self) -> None:
        with Root(self._root, follow=True) as root:
            lost = self._read_below(root)
        if lost:
            self.scan.entries = [each for each in self.scan.entries if self._is_there(each)]

    def _read_below(self, root: Root) -> bool:
        """Take each entry in, with the content hashes of files; say whether a file has been removed meanwhile."""
        total = sum(each.facts.st_size for each in self._found if isinstance(each, _Unread))
        done = 0
        lost = False
        for each in self._found:
            if isinstance(each, CodeEntry):
                self.scan.entries.append(each)
                continue
            done += each.facts.st_size
            facts = FileFacts.of(each.facts)
            digest, size = self._before.digest(each.path, facts), facts.size
            if digest is None:
                try:
                    digest, size = file_digest(root, each.path)
                except FileNotFoundError:
                    lost = True  # removed since its folder was listed: skipped
                    continue
                except OSError as error:
                    if is_replaced(error):
                        raise ChangedMeanwhile(each.path) from error
                    raise _unreadable(each.file, error) from error
                self._options.progress("read", done, total)
            self._add(each, facts, digest, size)
        return lost

    def _add(self, each: _Unread, facts: FileFacts, digest: str, size: int) -> None:
        if facts.settled(self._started_ns) and size == facts.size:
            self.scan.remembered.note_file(each.path, facts, digest)
        if digest.startswith(KEY):
            if not (self._options.takes_keys or each.rules.brings_back(each.name, is_folder=False)):
                self.scan.keys.append(each.path)
                return
            digest = digest.removeprefix(KEY)
        self.scan.entries.append(CodeEntry(each.path, "file", bool(each.facts.st_mode & 0o100), size, digest))

    def _is_there(self, found: CodeEntry) -> bool:
        return found.kind != "folder" or (self._folder / found.path).is_dir()


def _unreadable(what: str, error: OSError) -> InputMissing:
    return InputMissing(
        f"{what} cannot be read: {error.strerror}", hint="name it in .fabricignore to leave it out"
    )


def is_replaced(error: OSError) -> bool:
    """Say whether opening a file failed since there is a link, a pipe or a folder now, or a link leads to it."""
    return isinstance(error, (Outside, WrongKind)) or error.errno in _REPLACED


def file_digest(root: Root, path: str) -> tuple[str, int]:
    """Return a file's content hash, marked where the file is a private key, and how many bytes it covers.

    What was listed as a file may be a link or a pipe by now: nothing outside of the code is read, nor waited for.

    Raises:
        OSError: it cannot be read, or ``is_replaced``.
    """
    digest, size, mark = hashlib.sha256(), 0, ""
    with os.fdopen(root.open_file(path, follow=False), "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            if not size and is_key(os.path.basename(path), chunk[:_HEAD_BYTES]):  # noqa: PTH119 - a text
                mark = KEY
            digest.update(chunk)
            size += len(chunk)
    return mark + digest.hexdigest(), size


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
    # Absolute, or out and in again by the folder's own name, which differs where the job runs.
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
