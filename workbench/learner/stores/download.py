"""Downloads data and checkpoints before the command starts, once it is known that results can be written.

The learner's guard runs it before anything else. It checks all the time whether the learner has to stop, and
retries transient errors.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from functools import partial

from workbench.learner.journal import output, reasons, state
from workbench.learner.journal.output import records_header
from workbench.learner.platform import system
from workbench.learner.platform.files import put_folder
from workbench.learner.stores.cache import CacheEntry
from workbench.learner.stores.config import Stores, remotes_of
from workbench.learner.stores.errors import TransferError, explain, is_missing, of_system
from workbench.learner.stores.inventory import StoreListing, list_store, missing, shown
from workbench.learner.stores.progress import ProgressReporter
from workbench.learner.stores.rclone import TRIES, RcloneClient
from workbench.learner.stores.restore import begin_with, restore

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    from workbench.learner.journal.launch_document import LaunchDocument
    from workbench.learner.stores.mount import Mount

DATA_FILE = "data.json"
"""The file next to the learner's journal that names the data: fingerprints by store."""

TRANSFERS = 16
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
_POLL_SECONDS = 0.2


class DownloadStopped(Exception):
    """The learner is to stop before its command has started."""

    def __init__(self, kind: str, why: dict[str, Any]) -> None:
        super().__init__(kind)
        self.kind = kind
        self.why = why


class DataDownload:
    """Downloads one learner's data. The caller holds the lock; cache entries stay locked until this process ends."""

    def __init__(self, folder: state.HeldFolder, launch: LaunchDocument, secrets: Mapping[str, str]) -> None:
        self._folder = folder
        self._launch = launch
        self._stores = Stores(launch)
        self._rclone = RcloneClient(self._stores.rclone, remotes_of(secrets))
        self._file = state.StateFile.begin(folder, launch)
        self._records: output.Records | None = None
        self._progress = ProgressReporter(self._write, self._show)
        self._entries: list[CacheEntry] = []
        self._incomplete: set[str] = set()
        """Fingerprints of listings that were downloaded incompletely once."""
        self.mounts: list[Mount] = []
        """What is mounted for the learner; its guard takes it away at the end."""

    def run(self) -> dict[str, str] | None:
        """Download all; return environment variables with the folders of the data, or None if the learner ended."""
        self._file.update(phase="downloading")
        try:
            variables = self._fetch()
        except DownloadStopped as stopped:
            self._end(stopped.kind, stopped.why)
        except TransferError as error:
            self._end("", error.reason())
        except OSError as error:
            if error.filename:
                error.filename = str(error.filename).replace(self._folder.held_path, self._folder.path)
            self._end("", of_system(error).reason())
        else:
            return variables
        finally:
            if self._records is not None:
                with contextlib.suppress(OSError):  # its mount may have ended
                    self._records.close()
        return None

    def check_stop(self) -> None:
        """Look whether to go on.

        Raises:
            Stopped: not.
        """
        self._keep_lock()
        if self._folder.is_removed():
            raise DownloadStopped("kill", reasons.reason("its folder was removed"))
        request = state.read_stop(self._folder.path)
        if request:
            kind = "kill" if request.get("kind") == "kill" else "halt"
            raise DownloadStopped(kind, reasons.of_stop(kind, str(request.get("by") or "")))
        if self._launch.learners > 1:
            decision = state.read_decision(self._launch.attempt_dir)
            if decision and decision.get("learner") != self._launch.learner and decision.get("failed"):
                raise DownloadStopped("settle", reasons.of_settling(decision))

    def _fetch(self) -> dict[str, str]:
        stores = self._stores
        if stores.results is not None:
            self._retry(self._try_writing)
        variables: dict[str, str] = {}
        data: list[dict[str, Any]] = []
        for store in stores.fetch:
            where = self._retry(partial(self._download_store, store, data))
            if store.get("link"):
                _link_folder(store["link"], where)
            if store.get("into"):
                _move(where, store["into"])
            elif not store.get("others"):
                variables.update(dict.fromkeys(store["variables"], where))
        if stores.results is not None:
            self._retry(lambda: restore(stores, self._rclone, self._progress, self.check_stop))
        # A first attempt may have ended before it was brought; what the job has saved itself is never replaced.
        if stores.origin and (self._launch.attempt == 1 or _is_empty(stores.checkpoint_dir)):
            self._retry(lambda: begin_with(stores, self._rclone, self._progress, self.check_stop))
        self._record_data(data)
        self._progress.end()
        return variables

    def _try_writing(self) -> None:
        """Write a small file where results go: what is not allowed is found before the training, not after."""
        results = self._stores.results
        assert results is not None
        self._progress.begin("checks that results can be written")
        launch = self._launch
        document = {
            "job": launch.job,
            "attempt": launch.attempt,
            "learner": launch.learner,
            "learners": launch.learners,
            "owner": launch.document.get("owner"),
            "started_us": system.now_us(),
        }
        target = "%s:%s/%s/attempt.json" % (results["remote"], results["path"], self._stores.learner_path)
        arguments = ["rcat", target, *TRIES]
        done = self._rclone.run(
            arguments, stdin=json.dumps(document).encode() + b"\n", check_stop=self.check_stop
        )
        if done.code:
            if is_missing(done.messages):
                raise missing(self._rclone, results, self.check_stop)
            raise explain(done.messages, store=results["id"], address=results["address"], writing=True)

    def _download_store(self, store: dict[str, Any], data: list[dict[str, Any]]) -> str:
        """Download or mount one store's data; return the folder that it is in."""
        self._progress.begin("lists the data in %s" % store["path"])
        listing = list_store(self._rclone, store, self.check_stop)
        data[:] = [known for known in data if known["store"] != store["id"]]
        data.append(
            {
                "store": store["id"],
                "address": store["address"],
                "path": store["path"],
                "fingerprint": listing.fingerprint,
                "files": len(listing.files),
                "bytes": listing.bytes,
            }
        )
        if not listing.files and store.get("etags") and "/" in str(store["path"]):
            raise missing(self._rclone, store, self.check_stop)  # where there are no folders but in names
        if store.get("before") and store["before"] != listing.fingerprint:
            text = "the data in %s of the data store %s is not what it was when this job ran first"
            self._progress.note(text % (store["path"], store["id"]))
        if not listing.files:
            self._progress.note("%s of the data store %s holds no files" % (store["path"], store["id"]))
        if store.get("mode") == "mount" and (point := self._mount(store)):
            return point
        if names := listing.invalid_names():
            raise TransferError(
                "the data store %s has objects in %s that cannot be files: %s"
                % (store["id"], store["path"], shown(names)),
                "C101",
                "rename them, or name a folder without them: path:",
            )
        entry = CacheEntry(self._stores.cache, store["key"], listing, store["container"])
        self._entries.append(entry)
        if entry.take(self.check_stop):
            return entry.data
        try:
            entry.fill(lambda target: self._copy(store, listing, target), self._stores.cache_bytes)
        except TransferError as error:
            entry.release()
            if error.incomplete and listing.fingerprint in self._incomplete:
                error.transient = False  # nothing has changed since, and nothing will
            self._incomplete.add(listing.fingerprint)
            raise
        except BaseException:
            entry.release()
            raise
        return entry.data

    def _mount(self, store: dict[str, Any]) -> str:
        """Mount a store's data, where that can be done here; return where, or an empty text: it is to be copied."""
        from workbench.learner.stores import mount

        if problem := mount.missing_support():
            self._progress.note("%s is copied, not mounted: %s" % (store["path"], problem))
            return ""
        self._progress.begin("mounts %s" % store["path"])
        point = os.path.join(self._folder.path, "mounts", "%d" % len(self.mounts), store["container"])
        self.mounts.append(mount.mount(point, store, self._rclone, self.check_stop))
        return point

    def _copy(self, store: dict[str, Any], listing: StoreListing, target: str) -> None:
        self._progress.begin("downloads %s" % store["path"], listing.bytes)
        arguments = ["copy", "%s:%s" % (store["remote"], store["path"]), target]
        arguments += ["--transfers", str(TRANSFERS), "--checkers", str(TRANSFERS), "--fast-list"]
        # What a try before this one brought is kept; it has the size and time of what is there.
        arguments += ["--use-server-modtime", *TRIES]
        done = self._rclone.run(arguments, check_stop=self.check_stop, on_statistics=self._progress.take)
        if done.code:
            raise explain(done.messages, store=store["id"], address=store["address"])

    def _retry(self, act: Callable[[], Any]) -> Any:
        """Call ``act``; retry transient errors with growing pauses for ``patience_seconds``."""
        give_up = system.elapsed_seconds() + self._stores.patience_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return act()
            except TransferError as error:
                if not error.transient or system.elapsed_seconds() + pause > give_up:
                    raise
                self._progress.record(None, "%s; retrying" % error.text)
                self._show("%s; retrying" % error.text)
            until = system.elapsed_seconds() + pause
            while system.elapsed_seconds() < until:
                self.check_stop()
                time.sleep(_POLL_SECONDS)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _keep_lock(self) -> None:
        """Go on in the folder that the path leads to, where its mount has ended and is there again."""
        if self._folder.keep_lock() and self._records is not None:
            with contextlib.suppress(OSError):  # it is closed, though its mount has ended
                self._records.close()
            self._records = None

    def _record_data(self, data: list[dict[str, Any]]) -> None:
        self._keep_lock()
        path = os.path.join(self._folder.held_path, DATA_FILE)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({"format": 1, "stores": data}, file)
        os.rename(path + ".new", path)
        for one in data:
            self._write({"time": system.now_us(), "kind": "data", **one})

    def _write(self, record: dict[str, Any]) -> None:
        self._keep_lock()
        if self._records is None:
            path = os.path.join(self._folder.held_path, "records.jsonl")
            self._records = output.Records(path, records_header(self._launch))
        self._records.append([record])

    def _show(self, text: str) -> None:
        self._file.update(doing=text)

    def release(self) -> None:
        """Give up the copies that were brought: nobody reads them any more."""
        while self._entries:
            self._entries.pop().release()

    def _end(self, kind: str, why: dict[str, Any]) -> None:
        """Record that the learner has ended before its command was started."""
        self.release()
        for mounted in self.mounts:
            mounted.end()
        self._folder.keep_lock()
        decided = False
        if not kind:
            decided = state.decide(self._launch, None, None, failed=True, folder=self._folder.held_path)
        self._file.document.update(
            phase="exited", stopped=kind, reason=why, decided=decided, ended_us=system.now_us(), doing=""
        )
        while not self._file.write(durable=True) and not self._folder.is_removed():
            time.sleep(_POLL_SECONDS)
            self._folder.keep_lock()
        self._file.clear()


def _move(folder: str, target: str) -> None:
    """Move complete data to the path where the job reads it."""
    os.chmod(folder, 0o755)  # a folder that may not be written to cannot be moved
    put_folder(folder, target)
    os.chmod(target, 0o555)


def _link_folder(link: str, target: str) -> None:
    """Replace the empty folder that a runner has made by a link to the data."""
    if os.path.islink(link):
        os.unlink(link)
    elif os.path.isdir(link):
        os.rmdir(link)
    os.symlink(target, link)


def _is_empty(folder: str) -> bool:
    """Say whether nothing is in a folder, or it is not there."""
    try:
        return not os.listdir(folder)
    except OSError as error:
        return error.errno == errno.ENOENT
