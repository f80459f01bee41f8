"""Puts results, checkpoints, logs and records into the result store: new files while the learner runs, all at its end.

What was stored is written down, so nothing goes up twice; what is interrupted is compared first. One process
of a job stores at a time. What could not be stored stays where it is and is named in ``storing.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time

from workbench.learner.platform import beneath, open_files, system
from workbench.learner.stores import sources
from workbench.learner.stores.checkpoints import MARK, CheckpointStore
from workbench.learner.stores.errors import TransferError, explain, is_missing
from workbench.learner.stores.inventory import list_store
from workbench.learner.stores.job_lock import job_lock
from workbench.learner.stores.rclone import TRIES, RcloneClient
from workbench.learner.stores.sources import (
    UploadItem,
    UploadLedger,
    UploadSource,
    journal_source,
    sources_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    from workbench.learner.stores.config import Stores
    from workbench.learner.stores.progress import ProgressReporter
    from workbench.learner.stores.rclone import StopCheck

NAME = "storing.doubts"
"""Lies in the learner's folder: another process resumes an interrupted upload."""


class UnverifiedUploads:
    """The targets in the store that may hold files of an interrupted upload: they are compared before the next one.

    Args:
        folder: the learner's folder.
        everywhere: whether every target counts as unverified, as in a later attempt.
    """

    def __init__(self, folder: str, *, everywhere: bool) -> None:
        self._path = os.path.join(folder, NAME)
        self._everywhere = everywhere
        self._sure: set[str] = set()
        self._targets: set[str] = set()
        with contextlib.suppress(OSError, ValueError), open(self._path, "rb") as file:
            self._targets = set(json.loads(file.read()))

    def about(self, target: str) -> bool:
        """Say whether a target may hold files that the ledger does not list."""
        return target in self._targets or (self._everywhere and target not in self._sure)

    def begin(self, target: str) -> None:
        """Count an upload to a target as interrupted until :meth:`end` is called."""
        if target not in self._targets:
            self._targets.add(target)
            self._write()

    def end(self, target: str) -> None:
        """Note that an upload to a target is complete."""
        self._sure.add(target)
        self._targets.discard(target)
        self._write()

    def forget(self) -> None:
        """Clear all: the store was listed, so the ledger is right."""
        self._everywhere = False
        self._targets.clear()
        self._write()

    def _write(self) -> None:
        # A disk that takes no more is not a reason to store nothing.
        with contextlib.suppress(OSError):
            if not self._targets:
                os.unlink(self._path)
                return
            with open(self._path + ".new", "w", encoding="utf-8", errors="surrogateescape") as file:
                json.dump(sorted(self._targets), file)
            os.rename(self._path + ".new", self._path)


STORING_FILE = "storing.json"
"""How the storing of a learner ended: how much is stored, what is missing, and why."""

TRANSFERS = 8
CHECKS = 3
"""How often what is missing in the store at the end is sent again."""

_NAMED = 100
_POLL_SECONDS = 0.2
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
_SNAPSHOT_BYTES = 64 << 20


class ResultUpload:
    """Uploads the results, checkpoints, logs and journal of one learner."""

    def __init__(
        self,
        folder: str,
        stores: Stores,
        rclone: RcloneClient,
        progress: ProgressReporter,
        check_stop: StopCheck,
        on_record: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        assert stores.results is not None
        self._folder = folder
        self._stores = stores
        self._results: dict[str, Any] = stores.results
        self._rclone = rclone
        self._progress = progress
        self._check_stop = check_stop
        self._ledger = UploadLedger(stores.job_folder, stores.launch.attempt)
        self.checkpoints = CheckpointStore(folder, stores, check_stop)
        self._on_record = on_record
        # What is there of attempts before, and was brought back, is not sent again.
        self._unverified = UnverifiedUploads(folder, everywhere=stores.launch.attempt > 1)

    def round(self, *, final: bool) -> int:
        """Upload what is new now; return the number of files.

        Raises:
            StoreTrouble: the store does not take it.
        """
        with job_lock(self._stores.job_folder, self._check_stop):
            self._ledger.read()
            try:
                self._note_checkpoints()
                count = self._send(journal_source(self._folder, self._stores), final=final) if final else 0
                for source in sources_of(self._folder, self._stores):
                    count += self._send(source, final=final)
                if not final:
                    count += self._send_journal()
                self.checkpoints.drop(self._drop)
                return count
            finally:
                self._ledger.write()

    def last(self) -> TransferError | None:
        """Upload all that is left and verify it, with retries; return the error if something is still missing."""
        give_up = system.elapsed_seconds() + self._stores.patience_seconds
        pause, checks = _FIRST_PAUSE_SECONDS, 0
        while True:
            try:
                sent = self.round(final=True)
                missing = self._check()
                if not missing:
                    return None
                checks += 1
                failure = TransferError(
                    "%d files are not in the store" % len(missing), "S303", transient=True
                )
                if checks > CHECKS:
                    return failure
                continue
            except TransferError as error:
                failure = error
                sent = 0
            if sent:
                give_up = system.elapsed_seconds() + self._stores.patience_seconds
            if not failure.transient or system.elapsed_seconds() + pause > give_up:
                return failure
            self._progress.begin("%s; retrying" % failure.text)
            self._rest(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def summary(self, error: TransferError | None) -> dict[str, Any]:
        """Say how the storing went, as ``storing.json`` has it."""
        self._ledger.read()
        missing: list[str] = []
        for source in [journal_source(self._folder, self._stores), *sources_of(self._folder, self._stores)]:
            missing += [
                os.path.join(source.root, item.name)
                for item in source.items()
                if self._ledger.is_new(source, item, final=True)
                and not (
                    source.names and self._ledger.has(source, item)
                )  # its last words, of the storing itself
            ]
        there = self._ledger.below(self._results["path"])
        return {
            "format": 1,
            "store": self._results["id"],
            "where": "%s %s" % (self._results["address"], self._results["path"]),
            "files": len(there),
            "bytes": sum(there.values()),
            "missing": missing[:_NAMED] if error is not None else [],
            "missing_files": len(missing) if error is not None else 0,
            "reason": error.reason() if error is not None else None,
            "time_us": system.now_us(),
        }

    # Checkpoints

    def _note_checkpoints(self) -> None:
        for record in self.checkpoints.mark():
            self._on_record(record)

    def _drop(self, name: str) -> None:
        """Remove a checkpoint from the store, its mark first."""
        base = "%s/%s" % (self._stores.checkpoints, name)
        target = "%s:%s" % (self._results["remote"], base)
        if self._results.get("bound"):
            return  # the store's folder is the job's own
        for mark in ("%s.%s" % (target, MARK), "%s/%s" % (target, MARK), target):
            self._rclone.run(["deletefile", mark, *TRIES], check_stop=self._check_stop)
        self._rclone.run(["purge", target, *TRIES], check_stop=self._check_stop)
        self._ledger.drop(base)
        self._ledger.drop("%s.%s" % (base, MARK))

    def _rest(self, seconds: float) -> None:
        until = system.elapsed_seconds() + seconds
        while system.elapsed_seconds() < until:
            self._check_stop()
            time.sleep(min(seconds, _POLL_SECONDS))

    # Uploading

    def _send(self, source: UploadSource, *, final: bool) -> int:
        new = [item for item in source.items() if self._ledger.is_new(source, item, final=final)]
        # What says of others that they are there goes last.
        for items in ([item for item in new if not item.is_marker], [item for item in new if item.is_marker]):
            if items:
                self._upload(source, items)
        return len(new)

    def _upload(self, source: UploadSource, items: list[UploadItem]) -> None:
        self._progress.begin("stores results", sum(item.size for item in items))
        options = [*TRIES, "--no-traverse"]
        options += ["--transfers", str(TRANSFERS), "--checkers", str(TRANSFERS)]
        if source.names:
            options.append("--local-no-check-updated")  # output that is still printed only grows
        if not self._unverified.about(source.target) and not self._stores.compares:
            options.append("--no-check-dest")  # what is known to be there is not sent at all
        if self._stores.restores and not source.names:
            options.append("--update")  # another host may have stored a newer one
        self._unverified.begin(source.target)
        if source.is_trusted:
            self._copy(source.root, source.target, items, ["--links", *options])
        else:
            self._copy_held(source, items, options)
        self._unverified.end(source.target)
        for item in items:
            self._ledger.note(source, item)

    def _copy(self, root: str, below: str, items: list[UploadItem], options: list[str]) -> None:
        target = "%s:%s" % (self._results["remote"], below)
        names = "\n".join(item.name for item in items).encode("utf-8", "surrogateescape")
        self._run(["copy", root, target, "--files-from-raw", "-", *options], names)

    def _copy_held(self, source: UploadSource, items: list[UploadItem], options: list[str]) -> None:
        """Store files of a folder that a container may change: rclone is given what was opened, and no way to it."""
        held = os.path.join(self._folder, "uploading")
        for kind, follows in (("--copy-links", False), ("--links", True)):
            some = [item for item in items if item.is_link == follows]
            for begin in range(0, len(some), HELD):
                with HeldFiles(held, source, some[begin : begin + HELD]) as there:
                    self._copy(held, source.target, there, [kind, *options])

    def _run(self, arguments: list[str], stdin: bytes = b"") -> None:
        done = self._rclone.run(
            arguments, stdin=stdin, check_stop=self._check_stop, on_statistics=self._progress.take
        )
        if done.code == 0:
            return
        results = self._results
        if is_missing(done.messages):
            container = str(results["path"]).partition("/")[0]
            raise TransferError(
                "the data store %s has no container %s any more" % (results["id"], container),
                "S303",
                transient=True,
            )
        messages = done.messages
        if "is a file not a directory" in " ".join(messages):
            # rclone gives this error also for a store that refuses access: a listing tells them apart.
            container = str(results["path"]).partition("/")[0]
            listing = self._rclone.run(
                ["lsf", "--max-depth", "1", *TRIES, "%s:%s" % (results["remote"], container)]
            )
            messages = listing.messages if listing.code else messages
        error = explain(messages, store=results["id"], address=results["address"], writing=True)
        if error.code == "C103":
            error.transient = True  # it could be written when the learner began: a key may be put right
        raise error

    def _send_journal(self) -> int:
        """Store output as far as it is published, from a copy: secrets behind that are not overwritten yet."""
        source = journal_source(self._folder, self._stores)
        copies = UploadSource(os.path.join(self._folder, "uploading"), source.target, source.names)
        sizes = sources.published_sizes(self._folder)
        new = []
        for item in source.items():
            item.size = min(item.size, sizes.get(item.name, item.size))
            if item.size <= _SNAPSHOT_BYTES and self._ledger.is_new(source, item, final=False):
                new.append(item)
        if not new:
            return 0
        os.makedirs(copies.root, exist_ok=True)
        try:
            for item in new:
                _copy_start(
                    os.path.join(source.root, item.name), os.path.join(copies.root, item.name), item.size
                )
            self._upload(copies, new)
        finally:
            shutil.rmtree(copies.root, ignore_errors=True)
        return len(new)

    # Verifying

    def _check(self) -> list[str]:
        """List what is in the store; return what should be there and is not, which is then sent again."""
        self._progress.begin("checks what is stored")
        expected: dict[str, int] = {}
        for target in {source.target for source in self._all_sources()}:
            expected.update(self._ledger.written_below(target))
        prefixes = {str(self._results["path"])}
        if self._stores.checkpoints and not self._stores.checkpoints.startswith(
            str(self._results["path"]) + "/"
        ):
            prefixes.add(self._stores.checkpoints)
        there: dict[str, int] = {}
        for prefix in prefixes:
            location = {**self._results, "path": prefix, "etags": False}
            listed = list_store(self._rclone, location, self._check_stop).files
            there.update({"%s/%s" % (prefix, path): size for path, (size, _) in listed.items()})
        growing = journal_source(self._folder, self._stores).target + "/"
        missing = [path for path, size in expected.items() if not _is_there(path, size, there, growing)]
        if self._stores.restores:
            missing = [
                path for path in missing if path.startswith(growing) or not self._is_of_others(path, there)
            ]
        if missing:
            self._ledger.read()
            for path in missing:
                self._ledger.forget(path)
            self._ledger.write()
            self._unverified.forget()
        return missing

    def _is_of_others(self, path: str, there: Mapping[str, int]) -> bool:
        """Say whether another host may have changed a file in the store, or dropped it with its checkpoint."""
        if sources.listed(path) in there:
            return True  # it is stored whole or not at all
        keep, checkpoints = self._stores.keep, self._stores.checkpoints
        return bool(keep.get("last") or keep.get("best")) and path.startswith(checkpoints + "/")

    def _all_sources(self) -> list[UploadSource]:
        return [journal_source(self._folder, self._stores), *sources_of(self._folder, self._stores)]


def write_summary(folder: str, summary: dict[str, Any]) -> None:
    """Write the summary of the upload next to the journal."""
    path = os.path.join(folder, STORING_FILE)
    try:
        with open(path + ".new", "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(summary, file)
        os.rename(path + ".new", path)
    except OSError:
        return  # the reason in the state says it too


def _is_there(path: str, size: int, there: Mapping[str, int], growing: str) -> bool:
    found = there.get(sources.listed(path), -1)
    return found >= size if path.startswith(growing) else found == size


def _copy_start(path: str, copy: str, count: int) -> None:
    with open(path, "rb") as source, open(copy, "wb") as target:
        left = count
        while left:
            data = source.read(min(left, 1 << 20))
            if not data:
                break
            target.write(data)
            left -= len(data)


HELD = 256
"""How many files are held at once: each takes a descriptor, and many systems give a process no more than 1024."""


class HeldFiles:
    """A folder of ours that looks like another one, with some of its files; as a context it gives those.

    Each file is a link to the descriptor that it was opened by, so whatever becomes of the way to it, no other file
    is read. A file that is gone, or leads out of its folder, is left out.
    """

    def __init__(self, folder: str, source: UploadSource, items: list[UploadItem]) -> None:
        self._folder = folder
        self._source = source
        self._items = items
        self._descriptors: list[int] = []

    def __enter__(self) -> list[UploadItem]:
        shutil.rmtree(self._folder, ignore_errors=True)
        os.mkdir(self._folder, 0o700)
        try:
            with self._source.opened() as (root, below), beneath.Root(self._folder) as ours:
                return [item for item in self._items if self._hold(root, below, ours, item)]
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

    def _hold(self, root: beneath.Root, below: str, ours: beneath.Root, item: UploadItem) -> bool:
        path = os.path.join(below, item.path)
        folder, name = os.path.split(item.path)
        above = ours.make_folder(folder)
        try:
            if item.is_link:
                about = root.stat(path, follow=False)
                os.symlink(root.read_link(path), name, dir_fd=above)
                times = (about.st_atime_ns, about.st_mtime_ns)
                os.utime(name, ns=times, dir_fd=above, follow_symlinks=False)
                return True
            descriptor = root.open_file(path, follow=False)
            self._descriptors.append(descriptor)
            if system.LINUX:
                os.symlink("/proc/%d/fd/%d" % (os.getpid(), descriptor), name, dir_fd=above)
            else:
                open_files.copy_open(descriptor, above, name)
            return True
        except PermissionError:
            # rclone is to meet what we met, and to say so.
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o000, dir_fd=above))
            return True
        except OSError:
            return False
        finally:
            os.close(above)
