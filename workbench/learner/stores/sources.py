"""What of a learner goes to the result store: results, checkpoints, logs, output and records; and what is new of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time

from workbench.learner.journal import output
from workbench.learner.platform import beneath

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, ContextManager, Iterator, Sequence

    from workbench.learner.stores.config import Stores

STORED_FILE = "stored.json"
"""What has been stored already, in the job's folder on the host."""

JOURNAL = ("output.log", "output.idx", "setup.log", "setup.idx", "records.jsonl", "data.json", "attempt.json")
MARKERS = (
    "metadata.json",
    "fabric-metadata.json",
    "checkpoint",
    "latest",
    "latest_checkpointed_iteration.txt",
)
"""Files that say of others that they are there: they go last."""

SETTLED_SECONDS = 2.0
"""A file that was written to more recently is left for later, unless it is the end."""

_GROWN = 1.25
_GROWS_FROM_BYTES = 64 << 20
_WAITS_SECONDS = 300.0
_QUOTE = "\u201b"
_SIGNS = re.compile("[\u2400-\u2421]")
_NO_TEXT = re.compile("[\udc80-\udcff]")
LINK_SUFFIX = ".rclonelink"


class UploadItem:
    """One file that is to be stored."""

    __slots__ = ("name", "path", "signature", "size")

    def __init__(self, path: str, size: int, signature: int, suffix: str = "") -> None:
        self.path = path
        """As it lies in its folder."""
        self.name = canonical(path + suffix)
        """As rclone writes it."""
        self.size = size
        self.signature = signature
        """What changes with the file: its time of change in nanoseconds."""

    @property
    def is_link(self) -> bool:
        """Whether it is a link, which is stored as what it says."""
        return self.name != canonical(self.path)

    @property
    def is_marker(self) -> bool:
        """Whether it says of others that they are there."""
        base = self.name.rpartition("/")[2]
        return base in MARKERS or base.endswith((".metadata.json", LINK_SUFFIX))


class UploadSource:
    """A folder on the host, and where its content goes in the store."""

    def __init__(
        self, root: str, target: str, names: tuple[str, ...] = (), writable: Sequence[str] = ()
    ) -> None:
        self.root = root
        self.target = target
        self.names = names
        """The only files that are meant; empty for all."""
        self._writable = writable

    @property
    def is_trusted(self) -> bool:
        """Whether nobody but its owner can put links into the way to its files."""
        return not beneath.root_of(self.root, self._writable)

    def opened(self) -> ContextManager[tuple[beneath.Root, str]]:
        """Open the root that it is in, with its path in there."""
        return beneath.opened(self.root, self._writable)

    def items(self) -> Iterator[UploadItem]:
        """Give what is there now. Links go as links, so that nothing outside is read through one."""
        if self.names:
            for name in self.names:
                yield from _item(os.path.join(self.root, name), name)
            return
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self.opened() as (root, below):
            for path, folder, _, names in root.walk(below):
                for name in names:
                    yield from _item(name, os.path.join(path, name), folder)


def sources_of(folder: str, stores: Stores) -> list[UploadSource]:
    """Return what is stored of a learner, without its journal."""
    results = stores.results
    if results is None:
        return []
    path = str(results["path"])
    found = []
    if stores.result_dir and not results.get("bound"):
        found.append(UploadSource(stores.result_dir, path, writable=stores.launch.writable))
    if stores.checkpoint_dir and stores.checkpoints and not results.get("bound"):
        found.append(UploadSource(stores.checkpoint_dir, stores.checkpoints, writable=stores.launch.writable))
    launch = stores.launch
    if launch.log_dir and (launch.learner == 1 or not launch.log_dir_shared):
        target = "%s/%s/logs" % (path, stores.learner_path)
        found.append(UploadSource(launch.log_dir, target, writable=launch.writable))
    return found


def journal_source(folder: str, stores: Stores) -> UploadSource:
    """Return where a learner's output and records go."""
    assert stores.results is not None
    return UploadSource(folder, "%s/%s" % (stores.results["path"], stores.learner_path), JOURNAL)


class UploadLedger:
    """What has been stored, by its path in the store: size, time of change, when that was, and 1 where others own it.

    Where several hosts store results of a job, those are of others that this host did not write in this attempt.
    """

    def __init__(self, job_folder: str, attempt: int) -> None:
        self._path = os.path.join(job_folder, STORED_FILE)
        self._attempt = attempt
        self.attempt = 0
        """Which attempt stored something from here last."""
        self.restored = 0
        """Which attempt has brought back last what several hosts have stored."""
        self.is_shared = False
        """Whether other hosts stored, too, in that attempt."""
        self._files: dict[str, list[float]] = {}
        self._restoring = 0
        self._own: dict[str, list[int]] = {}
        """What lay here before that attempt brought something back and is not in the store: size and time of change."""
        self._changed = False

    def read(self) -> None:
        """Read what is known, by whichever process stored it."""
        try:
            with open(self._path, "rb") as file:
                document = json.loads(file.read())
            self._files, self.attempt = dict(document["files"]), int(document["attempt"])
            self.restored, self.is_shared = int(document.get("restored") or 0), bool(document.get("shared"))
            self._restoring, self._own = int(document.get("restoring") or 0), dict(document.get("own") or {})
        except (OSError, ValueError, KeyError, TypeError):
            self._files, self._own = {}, {}
            self.attempt = self.restored = self._restoring = 0
            self.is_shared = False
        self._changed = False

    def write(self) -> None:
        """Keep what is known; on a full disk it is found out again."""
        if not self._changed:
            return
        new = "%s.new-%d" % (self._path, os.getpid())
        document: dict[str, Any] = {"format": 1, "attempt": self._attempt, "files": self._files}
        if self._restoring:
            document.update(
                restored=self.restored, shared=self.is_shared, restoring=self._restoring, own=self._own
            )
        try:
            with open(new, "w", encoding="utf-8", errors="surrogateescape") as file:
                json.dump(document, file)
            os.rename(new, self._path)
            self._changed = False
        except OSError:
            _remove(new)

    def note(self, source: UploadSource, item: UploadItem) -> None:
        """Note that a file is in the store as it is."""
        self._files["%s/%s" % (source.target, item.name)] = [item.size, item.signature, time.time()]
        self._changed = True

    def begin_restore(self, sources: Sequence[UploadSource]) -> None:
        """Note which files here the store lacks, before others come: only these are this host's to store.

        A restore that was cut off goes on with what was noted then.
        """
        if self._restoring != self._attempt:
            self._own = {
                "%s/%s" % (source.target, item.name): [item.size, item.signature]
                for source in sources
                for item in source.items()
                if self.is_new(source, item, final=True)
            }
            self._restoring, self._changed = self._attempt, True
            self.write()

    def end_restore(self, sources: Sequence[UploadSource], *, shared: bool) -> None:
        """Note that what came is in the store, and others' until this host changes it; so is what lay here before."""
        for known in self._files.values():
            known[3:] = [1]
        for source in sources:
            for item in source.items():
                path = "%s/%s" % (source.target, item.name)
                if self.is_new(source, item, final=True) and self._own.get(path) != [
                    item.size,
                    item.signature,
                ]:
                    self._files[path] = [item.size, item.signature, time.time(), 1]
        self._own, self.restored, self.is_shared, self._changed = {}, self._attempt, shared, True
        self.write()

    def has(self, source: UploadSource, item: UploadItem) -> bool:
        """Say whether some state of a file was stored."""
        return "%s/%s" % (source.target, item.name) in self._files

    def forget(self, path: str) -> None:
        """Note that it is not there after all."""
        self._changed = self._files.pop(path, None) is not None or self._changed

    def drop(self, prefix: str) -> None:
        """Note that a file, or what is in a folder, was removed from the store."""
        for path in [path for path in self._files if path == prefix or path.startswith(prefix + "/")]:
            self.forget(path)

    def below(self, target: str) -> dict[str, int]:
        """Return size by path of what was stored below a path of the store."""
        return {path: int(known[0]) for path, known in self._files.items() if path.startswith(target + "/")}

    def written_below(self, target: str) -> dict[str, int]:
        """Return as :meth:`below` does what this host has stored itself."""
        return {path: size for path, size in self.below(target).items() if not any(self._files[path][3:])}

    def is_new(self, source: UploadSource, item: UploadItem, *, final: bool) -> bool:
        """Say whether a file is to be stored now: it changed, and has settled or grown enough to be worth it."""
        known = self._files.get("%s/%s" % (source.target, item.name))
        if known is not None and (known[0], known[1]) == (item.size, item.signature):
            return False
        if final:
            return True
        now = time.time()
        if abs(now - item.signature / 1e9) < SETTLED_SECONDS:
            return False
        if known is None or item.size < _GROWS_FROM_BYTES:
            return True
        return item.size >= known[0] * _GROWN or item.size < known[0] or now - known[2] > _WAITS_SECONDS


def canonical(name: str) -> str:
    """Return a file's name as rclone writes it: signs for what cannot be seen; what is not a text stays as it is."""
    if name.isprintable() and not _SIGNS.search(name):
        return name
    found = []
    for letter in name:
        code = ord(letter)
        if code < 0x20:
            found.append(chr(0x2400 + code))
        elif code == 0x7F:
            found.append("\u2421")
        else:
            found.append((_QUOTE if _SIGNS.match(letter) else "") + letter)
    return "".join(found)


def listed(name: str) -> str:
    """Return a canonical name as it is seen in a listing, which is text."""
    return _NO_TEXT.sub("\ufffd", name)


def published_sizes(folder: str) -> dict[str, int]:
    """Return how far output may be read: secrets behind that are not overwritten yet."""
    return {
        name + ".log": output.published_end(os.path.join(folder, name + ".idx"))
        for name in ("output", "setup")
    }


def _item(name: str, path: str, folder: int | None = None) -> Iterator[UploadItem]:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=folder)
            yield UploadItem(path, len(os.fsencode(target)), found.st_mtime_ns, LINK_SUFFIX)
        elif stat.S_ISREG(found.st_mode):
            yield UploadItem(path, found.st_size, found.st_mtime_ns)
    except OSError:
        return  # removed meanwhile


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def document_of(stores: Stores, **more: Any) -> dict[str, Any]:
    """Return what a store says of an attempt's learner."""
    launch = stores.launch
    return {
        "format": 1,
        "job": launch.job,
        "attempt": launch.attempt,
        "learner": launch.learner,
        "learners": launch.learners,
        "owner": launch.document.get("owner"),
        **more,
    }
