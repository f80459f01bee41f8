"""What a store holds: names, sizes and etags of a container, and one fingerprint of them all."""

from __future__ import annotations

import hashlib
import json

from workbench.learner.rclone import TRIES
from workbench.learner.store_trouble import StoreTrouble, explain, is_missing

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping

    from workbench.learner.rclone import Look, Rclone

_NAMES_SHOWN = 8


class Listing:
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


def list_store(rclone: Rclone, told: Mapping[str, Any], look: Look | None = None) -> Listing:
    """List what a store holds at the path of a launch document's entry.

    Raises:
        StoreTrouble: it is not there (those that are, are named), or cannot be read.
    """
    target = "%s:%s" % (told["remote"], told["path"])
    arguments = [
        "lsjson",
        "--recursive",
        "--files-only",
        "--no-mimetype",
        "--use-server-modtime",
        "--fast-list",
    ]
    if told.get("etags"):
        arguments += ["--hash", "--hash-type", "MD5"]
    done = rclone.run([*arguments, *TRIES, target], look=look)
    if done.code:
        if is_missing(done.messages):
            raise missing(rclone, told, look)
        raise explain(done.messages, store=told["id"], address=told["address"])
    try:
        return Listing({item["Path"]: (int(item["Size"]), _tag(item)) for item in json.loads(done.output)})
    except (ValueError, KeyError, TypeError) as error:
        raise StoreTrouble("what rclone lists of the data store %s cannot be read" % told["id"]) from error


def missing(rclone: Rclone, told: Mapping[str, Any], look: Look | None = None) -> StoreTrouble:
    """Say that a container is not there, and name those that are, where the store tells."""
    container, _, below = str(told["path"]).partition("/")
    where = "the data store %s" % told["id"] + (" (%s)" % told["address"] if told["address"] else "")
    listed = rclone.run(["lsf", "--dirs-only", *TRIES, "%s:" % told["remote"]], look=look)
    names = sorted(name.rstrip("/") for name in listed.output.decode("utf-8", "replace").splitlines())
    if listed.code == 0 and container in names and below:
        return StoreTrouble("%s has no folder %s in %s" % (where, below, container), "C103", "check path:")
    hint = "create it, or check the container's name"
    if listed.code == 0:
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
        hint = "there are: %s" % shown if names else "it has none at all; create it first"
    return StoreTrouble("%s has no container %s" % (where, container), "C103", hint)


def _tag(item: Mapping[str, Any]) -> str:
    hashes = item.get("Hashes") or {}
    return str(hashes.get("md5") or item.get("ModTime") or "")
