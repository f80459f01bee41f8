"""Makes whole what training code reports as checkpoints: checksums, ``metadata.json`` as the mark, and which are kept.

A checkpoint without its mark does not exist: the mark is written once all of it is there, and goes to the store last.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat

from workbench.learner.journal.output import REPORT_FILE
from workbench.learner.platform import beneath, system
from workbench.learner.texts import clean_json

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, ContextManager

    from workbench.learner.stores.config import Stores
    from workbench.learner.stores.rclone import StopCheck

MARK = "metadata.json"
OTHER_MARK = "fabric-metadata.json"
"""The mark of a folder whose ``metadata.json`` is the training code's own."""

LEDGER = "checkpoints.json"
"""What is known of a job's checkpoints, in its folder on the host."""

_CHUNK_BYTES = 1 << 20


class CheckpointStore:
    """The checkpoints of one learner."""

    def __init__(self, folder: str, stores: Stores, check_stop: StopCheck) -> None:
        self._report = os.path.join(folder, REPORT_FILE)
        self._stores = stores
        self._check_stop = check_stop
        self._offset = 0
        self._ledger = os.path.join(stores.job_folder, LEDGER)

    def mark(self) -> list[dict[str, Any]]:
        """Mark the checkpoints that were reported since the last call; return records of them, with what is in them."""
        marked = []
        for record in self._reported():
            name = self._name(str(record.get("path") or ""))
            document = self._marked(name, record) if name else None
            if document is None:
                continue
            marked.append(
                {
                    **record,
                    "time": system.now_us(),
                    "metadata": {
                        **(record.get("metadata") or {}),
                        "size_bytes": document["size_bytes"],
                        "sha256": document["sha256"],
                    },
                }
            )
            self._enter(name, document)
        return marked

    def _marked(self, name: str, record: dict[str, Any]) -> dict[str, Any] | None:
        """Mark a checkpoint; return what its mark says, None where it is there already or there is nothing."""
        with self._opened() as (root, below):
            path = os.path.join(below, name)
            try:
                root.stat(path)
            except OSError:
                return None
            document = self._document(root, path, record)
            if _is_marked(root, path, document):
                return None
            root.write(_mark_of(root, path), _encoded(document), 0o644)
            return document

    def _opened(self) -> ContextManager[tuple[beneath.Root, str]]:
        return beneath.opened(self._stores.checkpoint_dir, self._stores.launch.writable)

    def drop(self, forget: Callable[[str], None]) -> list[str]:
        """Remove the checkpoints that the policy does not keep, here and by ``forget`` in the store; return them."""
        keep = self._stores.keep
        if not int(keep.get("last") or 0) and not int(keep.get("best") or 0):
            return []
        if self.metric_note():
            return []  # the best would be removed with the others
        entries = self._judged()
        retained = _retained(entries, keep)
        dropped = [entry for entry in entries if entry["path"] not in retained]
        for entry in dropped:
            forget(str(entry["path"]))
            with self._opened() as (root, below):
                path = os.path.join(below, entry["path"])
                # The mark goes first: what is half removed does not exist.
                for part in (_mark_of(root, path), path + "." + MARK, path):
                    root.remove(part)
        if dropped:
            _write(
                self._ledger,
                {"format": 1, "checkpoints": [one for one in entries if one["path"] in retained]},
            )
        return [str(entry["path"]) for entry in dropped]

    def _judged(self) -> list[dict[str, Any]]:
        """Return the checkpoints that the policy is about, and those that it keeps whatever it says.

        Libraries remove some of their own: without a store, such a one is no longer the newest or the best.
        """
        entries = self._entries()
        results = self._stores.results
        if entries and (not results or results.get("bound")):
            try:
                with self._opened() as (root, below):
                    entries = [
                        one for one in entries if _is_there(root, os.path.join(below, str(one["path"])))
                    ]
            except OSError:
                return []
        if all(entry.get("found") for entry in entries):
            return entries
        # Code that reports its checkpoints has said which they are: what else lies there is not for us to remove.
        return [{**entry, "is_kept": True} if entry.get("found") else entry for entry in entries]

    def metric_note(self) -> str:
        """Return what to say when no checkpoint has the metric that the best are kept by; else nothing."""
        keep, entries = self._stores.keep, [one for one in self._judged() if not one.get("is_kept")]
        if not int(keep.get("best") or 0) or not entries or _rated(entries, keep):
            return ""
        known = (
            ", ".join(sorted({name for entry in entries for name in entry.get("metrics") or {}})) or "none"
        )
        text = "no checkpoint has the metric %s, by which keep_best keeps them, so none was removed (they have: %s)"
        return text % (keep.get("metric"), known)

    def _reported(self) -> list[dict[str, Any]]:
        try:
            with open(self._report, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        found: dict[str, dict[str, Any]] = {}
        for line in data[:whole].splitlines():
            if b'"checkpoint"' not in line:
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(record, dict) or record.get("kind") != "checkpoint":
                continue
            for key in ("metrics", "metadata"):
                given = record.get(key)
                record[key] = clean_json(given) if isinstance(given, dict) else {}
            if "sha256" not in record["metadata"]:
                found[str(record.get("path"))] = record
        return list(found.values())

    def _name(self, path: str) -> str:
        """Return a checkpoint's path below the folder for them; empty for one that lies elsewhere."""
        for there, here in self._stores.inside.items():
            if path == there or path.startswith(there + "/"):
                path = here + path[len(there) :]
                break
        try:
            folder, real = os.path.realpath(self._stores.checkpoint_dir), os.path.realpath(path)
        except ValueError:  # a NUL, or half of a surrogate pair: no file has such a name
            return ""
        # It says only what the checkpoint is called: it is walked to from the folder.
        return os.path.relpath(real, folder) if folder and real.startswith(folder + "/") else ""

    def _document(self, root: beneath.Root, path: str, record: dict[str, Any]) -> dict[str, Any]:
        files, total, digest = {}, 0, hashlib.sha256()
        for name, full in sorted(_files(root, path)):
            checksum, size = self._checksum(root, full)
            files[name] = {"size_bytes": size, "sha256": checksum}
            digest.update(("%s\0%s\n" % (name, checksum)).encode("utf-8", "surrogateescape"))
            total += size
        launch = self._stores.launch
        return {
            "format": 1,
            "job": launch.job,
            "attempt": launch.attempt,
            "learner": launch.learner,
            "step": record.get("step"),
            "metrics": record.get("metrics") or {},
            "metadata": record.get("metadata") or {},
            "size_bytes": total,
            "sha256": digest.hexdigest(),
            "files": files,
            "time_us": system.now_us(),
            **self._stores.about,
        }

    def _checksum(self, root: beneath.Root, path: str) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        with open(root.open_file(path), "rb") as file:
            while True:
                data = file.read(_CHUNK_BYTES)
                if not data:
                    return digest.hexdigest(), size
                digest.update(data)
                size += len(data)
                self._check_stop()

    def _enter(self, path: str, document: dict[str, Any]) -> None:
        entry = {name: document[name] for name in ("step", "metrics", "size_bytes", "sha256", "time_us")}
        # One that is written again and again under one name is the code's own: no policy removes it.
        found = document["metadata"].get("found")
        entry["is_kept"] = found == "unnumbered"
        entry["found"] = bool(found)
        others = [known for known in self._entries() if known["path"] != path]
        _write(self._ledger, {"format": 1, "checkpoints": [*others, {"path": path, **entry}]})

    def _entries(self) -> list[dict[str, Any]]:
        try:
            with open(self._ledger, "rb") as file:
                found = json.loads(file.read())["checkpoints"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return [entry for entry in found if isinstance(entry, dict) and entry.get("path")]


def _retained(entries: list[dict[str, Any]], keep: dict[str, Any]) -> set[str]:
    """Return the paths that a policy keeps: the newest, and the best by a metric."""
    kept = {str(entry["path"]) for entry in entries if entry.get("is_kept")}
    entries = [entry for entry in entries if not entry.get("is_kept")]
    newest = sorted(entries, key=lambda entry: int(entry["time_us"]), reverse=True)
    retained = kept | {str(entry["path"]) for entry in newest[: int(keep.get("last") or 0)]}
    rated, metric = _rated(newest, keep), str(keep.get("metric") or "")
    rated.sort(key=lambda entry: float(entry["metrics"][metric]), reverse=not keep.get("smaller", True))
    retained |= {str(entry["path"]) for entry in rated[: int(keep.get("best") or 0)]}
    # The newest is where the next attempt resumes, so it stays whatever the policy says.
    return retained | {str(entry["path"]) for entry in newest[:1]}


def _rated(entries: list[dict[str, Any]], keep: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the checkpoints that have a value of the policy's metric."""
    metric = str(keep.get("metric") or "")
    return [entry for entry in entries if isinstance((entry.get("metrics") or {}).get(metric), (int, float))]


def _files(root: beneath.Root, path: str) -> list[tuple[str, str]]:
    """Return names and paths of a checkpoint's files; without our mark, and what is not a regular file."""
    if stat.S_ISREG(root.stat(path).st_mode):
        return [(os.path.basename(path), path)]
    found = []
    for below, folder, _, names in root.walk(path):
        for name in names:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(about.st_mode) and name != OTHER_MARK:
                inside = os.path.join(below, name)
                found.append((inside, os.path.join(path, inside)))
    return [one for one in found if one[0] != MARK or not _is_ours(root, one[1])]


def _mark_of(root: beneath.Root, path: str) -> str:
    try:
        is_folder = stat.S_ISDIR(root.stat(path).st_mode)
    except OSError:
        is_folder = False
    if not is_folder:
        return path + "." + MARK
    mark = os.path.join(path, MARK)
    return os.path.join(path, OTHER_MARK) if _is_there(root, mark) and not _is_ours(root, mark) else mark


def _is_there(root: beneath.Root, path: str) -> bool:
    try:
        root.stat(path, follow=False)
    except OSError:
        return False
    return True


def _is_ours(root: beneath.Root, mark: str) -> bool:
    return {"format", "job", "sha256", "files"} <= set(_read(root, mark))


def _is_marked(root: beneath.Root, path: str, document: dict[str, Any]) -> bool:
    return bool(_read(root, _mark_of(root, path)).get("sha256") == document["sha256"])


def _read(root: beneath.Root, path: str) -> dict[str, Any]:
    try:
        document = json.loads(root.read(path))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _write(path: str, document: dict[str, Any]) -> None:
    new = "%s.new-%d" % (path, os.getpid())
    with open(new, "wb") as file:
        file.write(_encoded(document))
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)


def _encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogateescape")
