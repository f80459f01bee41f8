"""Prepares a learner's pod: unpacks agent and code, waits for the other learners' names.

An init container does it where there may be something to wait for, else the side-car, while the learner's is started.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import threading
import time

from workbench.learner.host.unpack import unpack
from workbench.learner.journal import reasons
from workbench.learner.platform.errors import Failure
from workbench.learner.pod import config, requirements

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any

    from workbench.learner.pod.config import PodConfig

ARRIVED = config.JOURNAL + "/" + config.CODE
"""Where code lies that was too large to come with the job."""

MADE = config.JOURNAL + "/made.tar.gz"
"""What earlier attempts have made, where nothing in the cluster has kept it."""

_POLL_SECONDS = 0.1
_POLL_MAX_SECONDS = 1.0


def prepare() -> int:
    """Make ready all that the learner needs; return the exit code of the container."""
    failure = prepare_pod(config.read())
    if not failure:
        return 0
    config.write_termination(failure)
    return config.EXIT_GANG if "gang" in failure else 1


def prepare_in_sidecar(pod: PodConfig) -> None:
    """Make it ready in the side-car, once: an init container would delay the learner's by a second or two."""
    if os.path.exists(config.PREPARED):
        return  # this container was started again
    failure = prepare_pod(pod)
    new = config.PREPARED + ".new"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(failure, file)
    os.rename(new, config.PREPARED)


def prepare_pod(pod: PodConfig) -> dict[str, Any]:
    """Make ready all that the learner needs; return the termination document if that fails, else nothing."""
    try:
        _make_folders(pod)
        unpack_agent()
        unpack_code(pod)
        if pod.document.get("rclone"):
            from workbench.learner.pod.stores import install_rclone

            install_rclone(pod)
        requirements.build(pod)
        restore(pod)
        missing = await_peers(pod)
    except requirements.NotBuilt as error:
        text, printed = error.args
        sys.stderr.write("%s\n%s\n" % (printed, text))
        return {"reason": reasons.reason(text, "C205", printed)}
    except (OSError, Failure) as error:
        text = "the learner could not be prepared: %s" % error
        sys.stderr.write(text + "\n")
        return {"reason": reasons.reason(text, "S301")}
    if not missing:
        return {}
    seconds = pod.number("gang_seconds")
    who = ", ".join(str(learner) for learner in missing[:8])
    text = "the other learners did not come within %g s: %s missing" % (seconds, who)
    sys.stderr.write(text + "\n")
    return {"gang": missing, "reason": reasons.reason(text, "S100")}


def unpack_agent() -> None:
    """Unpack the agent, so that what follows starts faster."""
    if not os.path.isdir(config.AGENT):
        import zipfile

        new = config.AGENT + ".new"
        with zipfile.ZipFile(config.GIVEN + "/agent.pyz") as source:
            source.extractall(new)
        os.rename(new, config.AGENT)


def unpack_code(pod: PodConfig) -> None:
    """Put the code where the command works, once it is there.

    Raises:
        Failure: it did not come in time, or is not an archive.
    """
    where = pod.document["code"]
    archive = {"": "", "given": config.GIVEN + "/" + config.CODE, "streamed": ARRIVED}[where]
    if where == "streamed":
        config.await_file(pod, ARRIVED, "the code")
    if not os.path.isdir(config.MODEL):
        unpack(archive, config.MODEL)
        return
    # A volume of its own, where the folder around it is shared.

    unpacked = config.JOURNAL + "/unpacked"
    unpack(archive, unpacked)
    for name in os.listdir(unpacked):
        shutil.move(os.path.join(unpacked, name), os.path.join(config.MODEL, name))


def restore(pod: PodConfig) -> None:
    """Put what earlier attempts have made where this one looks for it.

    Raises:
        Failure: it did not come in time, or is not an archive.
    """
    if not pod.document.get("restores"):
        return
    from workbench.learner.host.merge import merge_tree

    config.await_file(pod, MADE, "what earlier attempts made")
    unpacked = config.JOURNAL + "/made"
    unpack(MADE, unpacked)
    for name, target in (("results", config.RESULTS), ("checkpoints", config.CHECKPOINTS)):
        merge_tree(os.path.join(unpacked, name), target)
    os.unlink(MADE)


def await_peers(pod: PodConfig) -> list[int]:
    """Wait until all other learners' names resolve; return those that did not in time.

    In a thread of its own: where no name server answers one look may take longer than there is time for.
    """
    missing = [learner for learner in range(1, pod.learners + 1) if learner != pod.learner]

    def resolve() -> None:
        pause = _POLL_SECONDS
        while missing:
            for learner in list(missing):
                if _resolves(pod.name_of(learner)):
                    missing.remove(learner)
            if missing:
                time.sleep(pause)
                pause = min(pause * 1.3, _POLL_MAX_SECONDS)

    resolver = threading.Thread(target=resolve, daemon=True)
    resolver.start()
    resolver.join(pod.number("gang_seconds"))
    return list(missing)


def _make_folders(pod: PodConfig) -> None:
    for folder in (pod.folder, config.HOME, config.LOGS):
        os.makedirs(folder, exist_ok=True)
    # FfDL's scripts meet at this file.
    with open("%s/%s" % (config.STATE_DIR, pod.launch.job), "ab"):
        pass


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return False
