"""What a store holds: names, sizes and etags of a container, and one fingerprint of them all."""

from __future__ import annotations

import hashlib
import json
import unicodedata

from workbench.learner.stores.errors import TransferError, explain, is_missing
from workbench.learner.stores.rclone import TRIES

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping

    from workbench.learner.stores.rclone import RcloneClient, StopCheck

_NAMES_SHOWN = 8
_SEGMENT_BYTES, _PATH_BYTES = 255, 3500
_NO_SEGMENTS = ("", ".", "..", "\uff0e", "\uff0e\uff0e")
"""No name of a file; rclone writes dots that would lead elsewhere with full width."""


class StoreListing:
    """The files of a container at one moment."""

    def __init__(self, files: dict[str, tuple[int, str]]) -> None:
        self.files = files
        """By path: size in bytes, and what changes with the content (an etag, else a time)."""
        self.bytes = sum(max(0, size) for size, _ in files.values())
        digest = hashlib.sha256()
        for path in sorted(files):
            size, tag = files[path]
            digest.update(("%s\0%d\0%s\n" % (path, size, tag)).encode("utf-8", "surrogatepass"))
        self.fingerprint = digest.hexdigest()

    def invalid_names(self) -> list[str]:
        """Return the objects whose names no file can have: absolute, leading elsewhere, too long, a folder's name."""
        folders: set[str] = set()
        for path in self.files:
            head = path.rpartition("/")[0]
            while head and head not in folders:
                folders.add(head)
                head = head.rpartition("/")[0]
        return sorted(path for path in self.files if path in folders or not _is_name(path))

    def collisions(self) -> list[str]:
        """Return objects whose names differ in case or in Unicode form alone: some disks cannot hold both."""
        known: dict[str, str] = {}
        found: set[str] = set()
        for path in self.files:
            other = known.setdefault(folded(path), path)
            if other is not path:
                found.update((other, path))
        return sorted(found, key=lambda path: (folded(path), path))


def folded(path: str) -> str:
    """Return what a path is to a disk that tells neither case nor Unicode forms apart."""
    return unicodedata.normalize("NFC", path).casefold()


def shown(names: list[str]) -> str:
    """Say some names, shortened, each on the same line as the others."""
    # Names that look alike, such as those in two Unicode forms, are written in ASCII.
    alike = len({folded(name) for name in names[:3]}) < len(names[:3])
    write = ascii if alike else repr
    quoted = [write(name if len(name) <= 60 else name[:57] + "...") for name in names[:3]]
    return ", ".join(quoted) + (" and %d more" % (len(names) - 3) if len(names) > 3 else "")


def list_store(
    rclone: RcloneClient, store: Mapping[str, Any], check_stop: StopCheck | None = None
) -> StoreListing:
    """List what a store holds at the path of a launch document's entry.

    Raises:
        StoreTrouble: it is not there (those that are, are named), or cannot be read.
    """
    target = "%s:%s" % (store["remote"], store["path"])
    arguments = [
        "lsjson",
        "--recursive",
        "--files-only",
        "--no-mimetype",
        "--use-server-modtime",
        "--fast-list",
    ]
    if store.get("etags"):
        arguments += ["--hash", "--hash-type", "MD5"]
    done = rclone.run([*arguments, *TRIES, target], check_stop=check_stop)
    if done.code:
        if is_missing(done.messages):
            raise missing(rclone, store, check_stop)
        raise explain(done.messages, store=store["id"], address=store["address"])
    try:
        return StoreListing(
            {item["Path"]: (int(item["Size"]), _tag(item)) for item in json.loads(done.output)}
        )
    except (ValueError, KeyError, TypeError) as error:
        raise TransferError("what rclone lists of the data store %s cannot be read" % store["id"]) from error


def missing(
    rclone: RcloneClient, store: Mapping[str, Any], check_stop: StopCheck | None = None
) -> TransferError:
    """Say that a container is not there, and name those that are, where the store tells."""
    container, _, below = str(store["path"]).partition("/")
    where = "the data store %s" % store["id"] + (" (%s)" % store["address"] if store["address"] else "")
    listed = rclone.run(["lsf", "--dirs-only", *TRIES, "%s:" % store["remote"]], check_stop=check_stop)
    names = sorted(name.rstrip("/") for name in listed.output.decode("utf-8", "replace").splitlines())
    if listed.code == 0 and container in names and below:
        return TransferError("%s has no folder %s in %s" % (where, below, container), "C103", "check path:")
    hint = "create it, or check the container's name"
    if listed.code == 0:
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
        hint = "there are: %s" % shown if names else "it has none at all; create it first"
    return TransferError("%s has no container %s" % (where, container), "C103", hint)


def _tag(item: Mapping[str, Any]) -> str:
    hashes = item.get("Hashes") or {}
    return str(hashes.get("md5") or item.get("ModTime") or "")


def _is_name(path: str) -> bool:
    if "\0" in path or "\u2400" in path or len(path.encode("utf-8", "replace")) > _PATH_BYTES:
        return False
    return all(
        part not in _NO_SEGMENTS and len(part.encode("utf-8", "replace")) <= _SEGMENT_BYTES
        for part in path.split("/")
    )
