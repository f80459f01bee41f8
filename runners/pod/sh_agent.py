"""Support for images without Python: the agent in shell, and journals from the cluster's log."""

from __future__ import annotations

import base64
import contextlib
import json
import shlex
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import workbench.learner
from backends.contract.cluster import Absent, Cluster, Denied, Log
from backends.contract.errors import translated
from backends.contract.host import Chunk
from runners.interface import AttemptRef, LearnerRef
from runners.pod.names import LEARNER, given_name
from workbench.errors import FabricError
from workbench.learner.host.journals import SHARE_BYTES
from workbench.learner.pod import config
from workbench.paths import Home, default_home

PLACEHOLDER: Final = 987654321
"""The placeholder for a learner's number in files that all learners share."""

AGENT_SCRIPT: Final = "<agent.sh>"
PLAIN: Final = "<pod_plain.sh>"
BUFFER_BYTES: Final = 16 << 20
_PAUSE_SECONDS: Final = 0.1
_PAUSE_LONGEST_SECONDS: Final = 3.0


def sh_agent_texts(pod_config: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of the Secret for images without Python, as text by name."""
    from workbench.learner.boot.sh_launch import render

    launch = {**pod_config["launch"], "learner": PLACEHOLDER}
    secrets = f"{config.SECRETS}/secrets.sh" if launch["secrets_file"] else ""
    folder = f"{config.ATTEMPT}/learner-{PLACEHOLDER}"
    values = {
        "job": launch["job"],
        "stem": pod_config["stem"],
        "learners": launch["learners"],
        "gang_seconds": round(pod_config["gang_seconds"]),
        "prepared_by": pod_config["prepared_by"],
        "code": pod_config["code"],
        "code_seconds": round(pod_config["code_seconds"]),
        "restores": "yes" if pod_config["restores"] else "no",
        "stores": "yes" if launch["stores"] else "no",
        "setup": "yes" if launch["setup"] else "no",
        "requirements": "yes" if pod_config["requirements"] else "no",
        "marker": f"{launch['home']}/{launch['job']}/{launch['attempt']}",
        "placeholder": PLACEHOLDER,
    }
    stop = {"kind": "halt", "grace_seconds": launch["grace_seconds"], "by": config.BY_CLUSTER}
    return {
        "agent.sh": AGENT_SCRIPT,
        "pod_plain.sh": PLAIN,
        "launch.sh": render(launch, learner_dir=folder, secrets_file=secrets),
        "told.sh": "".join(f"told_{name}={shlex.quote(str(value))}\n" for name, value in values.items()),
        "stop.json": json.dumps(stop) + "\n",
    }


def scripts() -> dict[str, bytes]:
    """Return the scripts that plans contain only as placeholders."""
    from workbench.learner.boot.sh_launch import agent_script

    folder = Path(workbench.learner.__file__).parent
    with translated():
        return {AGENT_SCRIPT: agent_script().encode(), PLAIN: (folder / "pod" / "pod_plain.sh").read_bytes()}


class ClusterLog:
    """Follows a running learner's log in the cluster; it is read from its beginning, since the API has no offsets."""

    def __init__(self, cluster: Cluster, pod: str, changed: Any) -> None:
        self._cluster = cluster
        self._pod = pod
        self._changed = changed
        self._room = threading.Condition()
        self._start = 0
        self._data = bytearray()
        self._requested = 0
        self.ended = False
        self._closed = threading.Event()
        self._log: Log | None = None
        threading.Thread(target=self._read, name=f"log {pod}", daemon=True).start()

    def take(self, offset: int) -> Chunk | None:
        """Return the bytes at an offset, None if there are none yet."""
        with self._room:
            self._requested = offset
            if offset > self._start:
                del self._data[: offset - self._start]
                self._start = min(offset, self._start + len(self._data) + offset)
            self._room.notify_all()
            if self._start != offset or not self._data:
                return None
            return Chunk(bytes(self._data[:SHARE_BYTES]), offset, offset + len(self._data))

    def close(self) -> None:
        """Stop reading; the log of an ended pod is read as a whole."""
        self._closed.set()
        with contextlib.suppress(FabricError, OSError):
            if self._log is not None:
                self._log.close()

    def _read(self) -> None:
        """Read the log; one that breaks off or does not exist yet is opened again while its beginning is the same."""
        at, checksum = 0, 0
        pause = _PAUSE_SECONDS
        while not self._closed.wait(pause if pause > _PAUSE_SECONDS or at else 0.0):
            pause = min(pause * 1.5, _PAUSE_LONGEST_SECONDS)
            try:
                position, again = 0, 0
                self._log = self._cluster.logs(self._pod, LEARNER, follow=True)
                for piece in self._log:
                    known, fresh = piece[: at - position], piece[max(0, at - position) :]
                    if position < at:
                        again, position = zlib.crc32(known, again), position + len(known)
                        if position == at and again != checksum:
                            self._closed.set()  # the log was rotated: the rest is read when the pod has ended
                            break
                    if fresh and not self._closed.is_set():
                        self._take_in(at, fresh)
                        at, checksum = at + len(fresh), zlib.crc32(fresh, checksum)
                        position, pause = at, _PAUSE_SECONDS
            except Absent:
                break
            except FabricError:
                continue
        self.ended = True
        self._changed()

    def _take_in(self, at: int, piece: bytes) -> None:
        with self._room:
            end = at + len(piece)
            if end > self._requested:
                fresh = piece[max(0, self._requested - at) :]
                if not self._data:
                    self._start = end - len(fresh)
                self._data += fresh
        self._changed()
        with self._room:
            self._room.wait_for(lambda: len(self._data) < BUFFER_BYTES, 60)


def state_of(pod: Mapping[str, Any]) -> bytes:
    """Return the state in the termination message of a pod's learner; empty without one."""
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated") or {}
        if one["name"] == LEARNER and '"phase"' in str(ended.get("message")):
            return str(ended["message"]).encode()
    return b""


def prepare_transcript(cluster: Cluster, ref: LearnerRef) -> None:
    """Write the launch document here: the controller then makes the journal from the output, as for ``sh`` agents."""
    folder = Home(default_home()).job(ref.job_id).attempt(ref.attempt).learner(ref.learner)
    if folder.launch_sh.exists() or not folder.path.parent.parent.is_dir():
        return
    pod_config = _pod_config(cluster, AttemptRef(ref.home, ref.job_id, ref.attempt, 0))
    if pod_config is None:
        return
    launch = {**pod_config["launch"], "learner": ref.learner, "setup": ""}
    logs = Home(default_home()).job(ref.job_id).attempt(ref.attempt).logs
    launch |= {"attempt_dir": str(folder.path.parent), "log_dir": str(logs)}
    with translated():
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.launch.write_text(json.dumps(launch) + "\n", encoding="utf-8")
        folder.launch_sh.write_text("# kept by agent.sh in a pod\n", encoding="utf-8")


_POD_CONFIG: Final = "pod.json"


def keep_pod_config(attempt: AttemptRef, text: str) -> None:
    """Keep a launch's ``pod.json`` here: to read the Secret that holds it takes a right to all Secrets."""
    folder = Home(default_home()).job(attempt.job_id).attempt(attempt.attempt).path
    with translated():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _POD_CONFIG).write_text(text, encoding="utf-8")


def _pod_config(cluster: Cluster, attempt: AttemptRef) -> dict[str, Any] | None:
    """Return ``pod.json``; of a job of another home it is read from the cluster, if the user may."""
    file = Home(default_home()).job(attempt.job_id).attempt(attempt.attempt).path / _POD_CONFIG
    with contextlib.suppress(OSError, ValueError):
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return kept
    with contextlib.suppress(Denied):
        if (secret := cluster.read("Secret", given_name(attempt))) is not None:
            found: dict[str, Any] = json.loads(base64.b64decode(secret["data"]["pod.json"]))
            return found
    return None
