"""The container of the next attempt of a job that its host goes on with: what it is made from, and what it needs there.

Who launched an attempt has left in its launch document, under ``restarts`` as ``container``:

* ``config``: what is in ``container.json``, with ``create``, so that an agent creates the container
  (``container_creation``);
* ``folders`` and ``pipes``: made beforehand;
* ``stores``: the job's own folders in stores that are mounted, by the store's folder; made where they are gone;
* ``files``: texts by path, which are written in the container, too;
* ``open``: the folders that the image's user may change, if it has to be let in.
"""

from __future__ import annotations

import json
import os

from workbench.learner.guard.container_command import DOCUMENT, command_of
from workbench.learner.guard.container_creation import LABEL_ATTEMPT
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import make_folders, make_pipes, open_to_all, write_files
from workbench.learner.queue.allocation import CHOSEN

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Sequence


class NextContainer:
    """The container of one learner in its next attempt.

    Args:
        before: what the launch of this attempt has left.
        number: the next attempt's.
        move: returns a value with the paths of the next attempt's folders.
        name: returns a text with the names of the next attempt's learners.
        variable: takes the name of a variable and its value; returns the value that it has in the next attempt.
    """

    def __init__(
        self,
        before: Mapping[str, Any],
        number: int,
        move: Callable[[Any], Any],
        name: Callable[[str], str],
        variable: Callable[[str, str], str],
    ) -> None:
        self._before = before
        self._number = number
        self._move = move
        self._name = name
        self._variable = variable

    def document(self) -> Dict[str, Any]:
        """Return what is left of it for the attempt after it, in the same form."""
        before = self._before
        found: Dict[str, Any] = self._move(before)
        found["files"] = {self._move(path): text for path, text in before["files"].items()}
        config = found["config"]
        config["name"] = self._name(config["name"])
        # What it was prepared for has run: the image is the one that was meant.
        config["create"]["is_after"] = False
        planned, document = before["config"]["create"]["document"], config["create"]["document"]
        document["Hostname"] = config["name"]
        document["Env"] = [self._entry(entry) for entry in document["Env"]]
        document["Labels"] = {**planned["Labels"], LABEL_ATTEMPT: str(self._number)}
        hosts = planned["HostConfig"].get("ExtraHosts") or ()
        document["HostConfig"]["ExtraHosts"] = [self._name(entry) for entry in hosts]
        return found

    def commands(self, guard: Sequence[str], folder: str) -> Dict[str, str]:
        """Return what the agent runs for each act, by the keys of its launch document."""
        return {act: command_of(guard, folder, act) for act in self._before["config"]["acts"]}

    def _entry(self, entry: str) -> str:
        name, equals, value = entry.partition("=")
        return name + equals + self._variable(name, value)


def prepare(container: Mapping[str, Any], folder: str) -> None:
    """Make in a learner's folder, and beside it, what its container needs.

    Raises:
        Failure: a folder or a file is gone that it would mount.
        OSError: something cannot be made.
    """
    missing = {
        root: [name for name in names if not os.path.isdir(os.path.join(root, name))]
        for root, names in container["stores"].items()
    }
    make_folders(container["folders"], missing)
    make_pipes(container["pipes"])
    write_files(container["files"], mode=0o666)
    if container["open"]:
        open_to_all(container["open"], (), missing)
    for source in _sources(container["config"]["create"]["document"]["HostConfig"]):
        if not os.path.exists(source):
            raise Failure("missing", "%s is not there any more" % source)
    path = os.path.join(folder, DOCUMENT)
    write_files({path: json.dumps(container["config"]) + "\n"})


def _sources(host: Mapping[str, Any]) -> List[str]:
    """List the paths that a container mounts, but for those that are chosen when it starts, and volumes."""
    bound = [entry.partition(":")[0] for entry in host.get("Binds") or ()]
    mounted = [mount["Source"] for mount in host.get("Mounts") or ()]
    return [source for source in bound + mounted if source != CHOSEN and os.path.isabs(source)]
