"""Makes whole what training code reports as checkpoints: checksums, ``metadata.json`` as the mark, and which are kept.

A checkpoint without its mark does not exist: the mark is written once all of it is there, and goes to the store last.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil

from workbench.learner.platform import system

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable

    from workbench.learner.stores.config import Stores
    from workbench.learner.stores.rclone import Look

MARK = "metadata.json"
OTHER_MARK = "fabric-metadata.json"
"""The mark of a folder whose ``metadata.json`` is the training code's own."""

LEDGER = "checkpoints.json"
"""What is known of a job's checkpoints, in its folder at the place."""

_CHUNK_BYTES = 1 << 20


class Keeping:
    """The checkpoints of one learner."""

    def __init__(self, folder: str, stores: Stores, look: Look) -> None:
        self._report = os.path.join(folder, "report.jsonl")
        self._stores = stores
        self._look = look
        self._offset = 0
        self._ledger = os.path.join(stores.job_folder, LEDGER)

    def mark(self) -> list[dict[str, Any]]:
        """Mark the checkpoints that were reported since the last call; return records of them, with what is in them."""
        marked = []
        for said in self._reported():
            path = self._outside(str(said.get("path") or ""))
            if not path or not os.path.exists(path):
                continue
            document = self._document(path, said)
            if _is_marked(path, document):
                continue
            _write(_mark_of(path), document)
            marked.append(
                {
                    **said,
                    "time": system.now_us(),
                    "metadata": {
                        **(said.get("metadata") or {}),
                        "size_bytes": document["size_bytes"],
                        "sha256": document["sha256"],
                    },
                }
            )
            self._enter(path, document)
        return marked

    def drop(self, forget: Callable[[str], None]) -> list[str]:
        """Remove the checkpoints that the policy does not keep, here and by ``forget`` in the store; return them."""
        keep = self._stores.keep
        if not int(keep.get("last") or 0) and not int(keep.get("best") or 0):
            return []
        entries = self._entries()
        kept = _kept(entries, keep)
        dropped = [entry for entry in entries if entry["path"] not in kept]
        for entry in dropped:
            path = os.path.join(self._stores.checkpoint_dir, entry["path"])
            forget(str(entry["path"]))
            # The mark goes first: what is half removed does not exist.
            for part in (_mark_of(path), path + "." + MARK, path):
                if os.path.isdir(part) and not os.path.islink(part):
                    shutil.rmtree(part, ignore_errors=True)
                elif os.path.lexists(part):
                    os.unlink(part)
        if dropped:
            _write(
                self._ledger, {"format": 1, "checkpoints": [one for one in entries if one["path"] in kept]}
            )
        return [str(entry["path"]) for entry in dropped]

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
                said = json.loads(line)
            except ValueError:
                continue
            ours = isinstance(said, dict) and "sha256" in (said.get("metadata") or {})
            if isinstance(said, dict) and said.get("kind") == "checkpoint" and not ours:
                found[str(said.get("path"))] = said
        return list(found.values())

    def _outside(self, path: str) -> str:
        """Return a path as this side of a container has it; empty for one that lies elsewhere."""
        for there, here in self._stores.inside.items():
            if path == there or path.startswith(there + "/"):
                path = here + path[len(there) :]
                break
        folder = os.path.realpath(self._stores.checkpoint_dir)
        # A link must not make us read or remove what is not the job's.
        return path if folder and os.path.realpath(path).startswith(folder + "/") else ""

    def _document(self, path: str, said: dict[str, Any]) -> dict[str, Any]:
        files, total, digest = {}, 0, hashlib.sha256()
        for name, full in sorted(_files(path)):
            checksum, size = self._checksum(full)
            files[name] = {"size_bytes": size, "sha256": checksum}
            digest.update(("%s\0%s\n" % (name, checksum)).encode("utf-8", "surrogateescape"))
            total += size
        launch = self._stores.launch
        return {
            "format": 1,
            "job": launch.job,
            "attempt": launch.attempt,
            "learner": launch.learner,
            "step": said.get("step"),
            "metrics": said.get("metrics") or {},
            "metadata": said.get("metadata") or {},
            "size_bytes": total,
            "sha256": digest.hexdigest(),
            "files": files,
            "time_us": system.now_us(),
            **self._stores.about,
        }

    def _checksum(self, path: str) -> tuple[str, int]:
        digest, size = hashlib.sha256(), 0
        with open(path, "rb") as file:
            while True:
                data = file.read(_CHUNK_BYTES)
                if not data:
                    return digest.hexdigest(), size
                digest.update(data)
                size += len(data)
                self._look()

    def _enter(self, path: str, document: dict[str, Any]) -> None:
        name = os.path.relpath(os.path.realpath(path), os.path.realpath(self._stores.checkpoint_dir))
        entry = {name: document[name] for name in ("step", "metrics", "size_bytes", "sha256", "time_us")}
        others = [known for known in self._entries() if known["path"] != name]
        _write(self._ledger, {"format": 1, "checkpoints": [*others, {"path": name, **entry}]})

    def _entries(self) -> list[dict[str, Any]]:
        try:
            with open(self._ledger, "rb") as file:
                found = json.loads(file.read())["checkpoints"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return [entry for entry in found if isinstance(entry, dict) and entry.get("path")]


def _kept(entries: list[dict[str, Any]], keep: dict[str, Any]) -> set[str]:
    """Return the paths that a policy keeps: the newest, and the best by a metric."""
    newest = sorted(entries, key=lambda entry: int(entry["time_us"]), reverse=True)
    kept = {str(entry["path"]) for entry in newest[: int(keep.get("last") or 0)]}
    metric = str(keep.get("metric") or "")
    rated = [entry for entry in newest if isinstance((entry.get("metrics") or {}).get(metric), (int, float))]
    rated.sort(key=lambda entry: float(entry["metrics"][metric]), reverse=not keep.get("smaller", True))
    kept |= {str(entry["path"]) for entry in rated[: int(keep.get("best") or 0)]}
    # What was saved last is gone on from, whatever else is kept.
    return kept | {str(entry["path"]) for entry in newest[:1]}


def _files(path: str) -> list[tuple[str, str]]:
    if os.path.isfile(path):
        return [(os.path.basename(path), path)]
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            if os.path.isfile(full) and not os.path.islink(full) and name not in (OTHER_MARK,):
                found.append((os.path.relpath(full, path), full))
    return [one for one in found if one[0] != MARK or not _is_ours(one[1])]


def _mark_of(path: str) -> str:
    if not os.path.isdir(path):
        return path + "." + MARK
    mark = os.path.join(path, MARK)
    return os.path.join(path, OTHER_MARK) if os.path.exists(mark) and not _is_ours(mark) else mark


def _is_ours(mark: str) -> bool:
    try:
        with open(mark, "rb") as file:
            document = json.loads(file.read())
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and {"format", "job", "sha256", "files"} <= set(document)


def _is_marked(path: str, document: dict[str, Any]) -> bool:
    try:
        with open(_mark_of(path), "rb") as file:
            return bool(json.loads(file.read()).get("sha256") == document["sha256"])
    except (OSError, ValueError, AttributeError):
        return False


def _write(path: str, document: dict[str, Any]) -> None:
    new = "%s.new-%d" % (path, os.getpid())
    with open(new, "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)
