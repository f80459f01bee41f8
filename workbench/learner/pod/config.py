"""The configuration of a learner's pod (``pod.json``, the same for all its containers) and the paths in it."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time

from workbench.learner.determined_jobs import CONFIG_VARIABLE, PEER_KEY_VARIABLE
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.platform.errors import Failure

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any

OURS = "/.fabric"
GIVEN = OURS + "/given"
"""What came with the job, read-only: this document, the agent, the code if it is small."""
SECRETS = OURS + "/secrets"
JOURNAL = OURS + "/journal"
"""The pod's own volume, shared by its containers."""
AGENT = JOURNAL + "/agent"
ATTEMPT = JOURNAL + "/attempt"
HOME = JOURNAL + "/home"
ENVIRONMENT = JOURNAL + "/env"
"""The environment of ``requirements:``; a virtual environment does not move."""
CODE = "code.tar.gz"
DOCUMENT = GIVEN + "/pod.json"
READ = JOURNAL + "/read.json"
"""The offsets up to which the client has read the journal."""
FETCHED = JOURNAL + "/fetched"
"""Created by the client that has fetched all results."""
RCLONE = JOURNAL + "/rclone"
"""What moves the data of stores."""
RCLONE_PACKED = JOURNAL + "/rclone.gz"
"""As it arrives."""
PREPARED = JOURNAL + "/prepared"
"""Created by the side-car that has prepared the pod: an empty document, or why that failed."""
TERMINATION = "/dev/termination-log"
TERMINATION_BYTES = 4096
PORT = 29499
"""The port on which side-cars exchange how their learners ended."""

NO_PYTHON = "there is no Python 3.8 in this image"
"""What a container prints when it has no Python to run the agent with."""

STATE_DIR = "/job"
MODEL = "/job/model-code"
LOGS = "/job/logs"
DATA = "/mnt/data"
CACHE = "/mnt/cache"
"""The copies of data that jobs share, on a claim of the cluster."""
ARRIVING = DATA + "/.arriving"
"""Where data is copied to before it appears."""
RESULTS = "/mnt/results"
CHECKPOINTS = "/mnt/checkpoints"

BY_CLUSTER = "the cluster, which ended its pod"
"""Who asks a learner to stop whose pod is deleted, evicted, or ended with its node."""
_ENDING = ("phase", "exit_code", "signal", "decided", "stopped", "reason", "started_us", "ended_us")

_POLL_SECONDS = 0.1
_PREPARED_POLL_SECONDS = 0.02

EXIT_GANG = 75
"""The init container's code when the other learners did not come in time."""


class PodConfig:
    """The pod's document, as one learner reads it."""

    def __init__(self, document: dict[str, Any], index: int) -> None:
        self.document = document
        self.launch = LaunchDocument(document["launch"])
        """As it is for all learners: number, environment and slots are this pod's own."""
        self.learner = index + 1
        self.learners = self.launch.learners
        self.stem = str(document["stem"])
        self.folder = "%s/learner-%d" % (ATTEMPT, self.learner)
        self.prepared_by_sidecar = document.get("prepared_by") == "journal"
        """Whether the side-car prepares the pod while the learner's container is started."""

    def number(self, name: str) -> float:
        """Return a number from the document by its key."""
        return float(self.document[name])

    def name_of(self, learner: int) -> str:
        """Return the name by which a learner's pod is found."""
        return "%s.%s" % (self.host_of(learner), self.stem)

    def host_of(self, learner: int) -> str:
        """Return the host name of a learner's pod, as the cluster sets it in an indexed job."""
        return "%s-%d" % (self.stem, learner - 1)


def read() -> PodConfig:
    """Read the document; the cluster gives the learner's index in ``JOB_COMPLETION_INDEX``."""
    with open(DOCUMENT, "rb") as file:
        document = json.loads(file.read())
    return PodConfig(document, int(os.environ.get("JOB_COMPLETION_INDEX") or 0))


def own_variables(pod: PodConfig) -> dict[str, str]:
    """Return what differs from learner to learner in a command's environment."""
    launch = pod.launch
    rank = str(pod.learner - 1)
    marker = "%s/%s/%d/%d" % (launch.home, launch.job, launch.attempt, pod.learner)
    own = {"LEARNER_ID": str(pod.learner), "NODE_RANK": rank, "RANK": rank, "FABRIC_LEARNER": marker}
    if launch.learners > 1 and os.environ.get(CONFIG_VARIABLE):
        token = str(pod.document["token"]).encode()
        # Not the token itself: with that code could tell side-cars how other learners ended.
        own[PEER_KEY_VARIABLE] = hmac.new(token, b"processes of the trial", hashlib.sha256).hexdigest()
    if pod.document.get("requirements"):
        path = os.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
        own.update(PATH="%s/bin:%s" % (ENVIRONMENT, path), VIRTUAL_ENV=ENVIRONMENT)
    return own


def termination_document(found: dict[str, Any], stop: dict[str, Any]) -> dict[str, Any]:
    """Return the document for the container's termination message, from a learner's state and its request to stop."""
    last: dict[str, Any] = {key: found.get(key) for key in _ENDING}
    if last["stopped"] and stop.get("by") == BY_CLUSTER:
        last["ended_by"] = "cluster"  # nobody asked the job to stop: it is to run again
    return last


def write_termination(document: dict[str, Any]) -> None:
    """Write the container's termination message, which the cluster keeps with its status."""
    data = json.dumps(document, separators=(",", ":")).encode()
    reason = document.get("reason")
    if len(data) > TERMINATION_BYTES and isinstance(reason, dict):
        cut = {**reason, "text": str(reason.get("text"))[:500], "hint": str(reason.get("hint") or "")[:500]}
        data = json.dumps({**document, "reason": cut}, separators=(",", ":")).encode()
    try:
        with open(TERMINATION, "wb") as file:
            file.write(data[:TERMINATION_BYTES])
    except OSError:
        return  # what the exit code says is known all the same


def await_prepared(pod: PodConfig) -> dict[str, Any]:
    """Wait until the side-car has prepared the pod; return the termination document if that failed, else nothing.

    Raises:
        Failure: it was not prepared in time.
    """
    await_file(pod, PREPARED, "what the side-car prepares", poll_seconds=_PREPARED_POLL_SECONDS)
    with open(PREPARED, "rb") as file:
        document: dict[str, Any] = json.loads(file.read())
    return document


def await_file(pod: PodConfig, path: str, what: str, *, poll_seconds: float = _POLL_SECONDS) -> None:
    """Wait until a file has been sent to the pod.

    Raises:
        Failure: it did not come in time.
    """
    timeout_seconds = pod.number("code_seconds")
    until = time.monotonic() + timeout_seconds
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise Failure("failed", "%s did not arrive within %g s" % (what, timeout_seconds))
        time.sleep(poll_seconds)
