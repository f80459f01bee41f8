"""The container of the next attempt of a job that its host goes on with: what it is made from, and what it needs there.

Who launched the attempt has left it in the launch document, under ``restarts`` as ``container``:

* ``config``: what becomes ``container.json``, with ``create``, so that the agent creates it (``container_creation``);
* ``folders`` and ``pipes``: made beforehand;
* ``files``: texts by path, which are written in the container, too;
* ``open``: the folders that the image's user may change.
"""

from __future__ import annotations

import json
import os

from workbench.learner.guard.container_command import DOCUMENT
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import make_folders, make_pipes, open_to_all, write_files
from workbench.learner.queue.allocation import CHOSEN

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Mapping

LABEL_ATTEMPT = "fabric.attempt"
"""The label of containers and networks that says which attempt of its job they belong to."""


def of_next_attempt(
    container: Mapping[str, Any], number: int, move: Callable[[Any], Any], rename: Callable[[str, str], str]
) -> Dict[str, Any]:
    """Return what one attempt's launch has left of its container, for the next one.

    Args:
        container: what was left.
        number: the next attempt's.
        move: returns a value with the paths of the next attempt's folders.
        rename: takes the name of a variable and its value; returns the value with the next attempt's names.
    """
    found: Dict[str, Any] = move(container)
    found["files"] = {move(path): text for path, text in container["files"].items()}
    config, before = found["config"], container["config"]["create"]["document"]
    document = config["create"]["document"]
    name = rename("", config["name"])
    document["Env"] = [_renamed(entry, rename) for entry in document["Env"]]
    document["Hostname"] = name
    document["Labels"] = {**before["Labels"], LABEL_ATTEMPT: str(number)}
    hosts = [rename("", entry) for entry in before["HostConfig"].get("ExtraHosts") or ()]
    document["HostConfig"]["ExtraHosts"] = hosts
    # What it was prepared for has run: the image is the one that was meant.
    config["create"]["is_after"] = False
    config["name"] = name
    return found


def _renamed(entry: str, rename: Callable[[str, str], str]) -> str:
    name, equals, value = entry.partition("=")
    return name + equals + rename(name, value)


def prepare(container: Mapping[str, Any], folder: str) -> None:
    """Make in a learner's folder, and beside it, what its container needs.

    Raises:
        Failure: a folder or a file is gone that it would mount.
        OSError: something cannot be made.
    """
    make_folders(container["folders"])
    make_pipes(container["pipes"])
    write_files(container["files"], mode=0o666)
    open_to_all(container["open"], ())
    host = container["config"]["create"]["document"]["HostConfig"]
    bound = [entry.partition(":")[0] for entry in host.get("Binds") or ()]
    mounted = [mount["Source"] for mount in host.get("Mounts") or () if mount["Type"] == "bind"]
    for source in bound + mounted:
        if source != CHOSEN and not os.path.exists(source):
            raise Failure("missing", "%s is not there any more" % source)
    path = os.path.join(folder, DOCUMENT)
    write_files({path: json.dumps(container["config"]) + "\n"})
