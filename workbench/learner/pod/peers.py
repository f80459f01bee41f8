"""Side-cars tell each other how their learners ended, so that a deciding end stops the others with nobody watching.

One line of JSON a connection, signed with the attempt's own token; the answer is ``ok``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import threading
import time

from workbench.learner.journal import state
from workbench.learner.pod import config

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any

    from workbench.learner.pod.config import PodConfig

ENDED = ("storing", "exited")
"""Phases of a learner whose command has ended."""

_SECONDS = 2.0
_LIMIT_BYTES = 16384
_RETRY_SECONDS = 0.3
_FIELDS = ("exit_code", "signal", "stopped", "ended_us", "reason")


class PeerListener:
    """Receives how other learners ended, and writes it where this learner's agent reads it."""

    def __init__(self, pod: PodConfig) -> None:
        self._pod = pod
        self._socket = socket.socket(socket.AF_INET6 if _has_ipv6() else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("", config.PORT))
        self._socket.listen(64)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    self._receive(connection)
                except (OSError, ValueError, KeyError, TypeError):
                    continue  # whatever that was, it is none of us

    def _receive(self, connection: socket.socket) -> None:
        connection.settimeout(_SECONDS)
        data = b""
        while not data.endswith(b"\n"):
            more = connection.recv(4096)
            if not more or len(data) > _LIMIT_BYTES:
                return
            data += more
        envelope = json.loads(data)
        if not hmac.compare_digest(_signed(self._pod, envelope["said"]), str(envelope["by"])):
            return
        record_end(self._pod, json.loads(envelope["said"]))
        connection.sendall(b"ok\n")


def record_end(pod: PodConfig, ending: dict[str, Any]) -> None:
    """Record how another learner ended."""
    learner = int(ending["learner"])
    if learner == pod.learner or not 1 <= learner <= pod.learners:
        return
    folder = "%s/learner-%d" % (config.ATTEMPT, learner)
    os.makedirs(folder, exist_ok=True)
    document = {key: ending.get(key) for key in _FIELDS}
    _write(folder + "/state.json", {**document, "phase": "exited", "learner": learner})
    decide_attempt(pod)


def decide_attempt(pod: PodConfig) -> None:
    """Write ``decision.json`` once the learners that have ended decide the attempt."""
    path = config.ATTEMPT + "/decision.json"
    if os.path.exists(path):
        return
    ends = sorted(_ends(pod), key=lambda end: (end[0], end[1]))
    failed = [end for end in ends if end[3]]
    needed = {"first": 1, "all": pod.learners}.get(str(pod.launch.ends_when))
    needed = min(needed or int(pod.launch.ends_when), pod.learners)
    if not failed and len(ends) < needed:
        return
    time_us, learner, found, is_failed = failed[0] if failed else ends[needed - 1]
    document = {
        "learner": learner,
        "exit_code": found.get("exit_code"),
        "signal": found.get("signal"),
        "time_us": time_us,
        "failed": is_failed,
    }
    _write(path, document)


def announce_end(pod: PodConfig, timeout_seconds: float) -> list[int]:
    """Send this learner's end to all other side-cars; return the learners that were not reached in time."""
    ending = json.dumps({**{key: state.read(pod.folder).get(key) for key in _FIELDS}, "learner": pod.learner})
    line = json.dumps({"said": ending, "by": _signed(pod, ending)}).encode() + b"\n"
    until = time.monotonic() + timeout_seconds
    left = [learner for learner in range(1, pod.learners + 1) if learner != pod.learner]
    while left:
        left = [learner for learner in left if not _announce_to(pod.name_of(learner), line)]
        if not left or time.monotonic() > until:
            break
        time.sleep(_RETRY_SECONDS)
    return left


def _announce_to(name: str, line: bytes) -> bool:
    """Send it to one side-car; return whether that is done: it answered, or its pod is gone."""
    try:
        socket.getaddrinfo(name, config.PORT, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        # Names stay as long as their pods run, and all resolved before the learners were started.
        return getattr(error, "errno", None) == socket.EAI_NONAME
    try:
        with socket.create_connection((name, config.PORT), _SECONDS) as connection:
            connection.sendall(line)
            return connection.recv(16) == b"ok\n"
    except (OSError, UnicodeError):
        return False


def _ends(pod: PodConfig) -> list[tuple[int, int, dict[str, Any], bool]]:
    """List the learners that have ended by themselves: when, which, how, and whether badly."""
    ends = []
    for learner in range(1, pod.learners + 1):
        found = state.read("%s/learner-%d" % (config.ATTEMPT, learner))
        if found.get("phase") in ENDED and found.get("stopped") in ("", "max_runtime", "memory"):
            failed = found.get("exit_code") != 0
            ends.append((int(found.get("ended_us") or 0), learner, found, failed))
    return ends


def _signed(pod: PodConfig, text: str) -> str:
    key = str(pod.document["token"]).encode()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _write(path: str, document: dict[str, Any]) -> None:
    new = "%s.new-%d" % (path, threading.get_ident())
    with open(new, "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.rename(new, path)


def _has_ipv6() -> bool:
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        return False
    return os.path.exists("/proc/net/if_inet6")
