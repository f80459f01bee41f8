"""A cache of the Jobs and pods of one home, kept current by watches (an informer); runners of a process share it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from backends.contract.cluster import Cluster, Denied, Expired, Watch
from runners.interface import AttemptRef, LearnerRef
from runners.pod.names import HOME, attempt_of, ref_of
from runners.pod.status import is_over
from runners.shared.launch_line import LaunchLine
from workbench.errors import BackendUnreachable, FabricError

Document = Mapping[str, Any]
Key = tuple[str, str, int]

WATCH_SECONDS: Final = 290.0
READY_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.5
_PAUSE_LONGEST_SECONDS: Final = 4.0


class StopTries:
    """Stops that have not worked yet, by the pods' uids. All runners share it: a stop is repeated by any of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kills: dict[str, int] = {}
        self._unreached_since: dict[str, float] = {}
        self._requests: dict[tuple[str, str], Future[bool]] = {}

    def request_of(self, uid: str, kind: str) -> tuple[Future[bool], bool]:
        """Return the request of a kind to a pod that is under way, or a new one, and whether it is new."""
        with self._lock:
            self._requests = {key: one for key, one in self._requests.items() if not one.done()}
            found = self._requests.get((uid, kind))
            if found is not None:
                return found, False
            made = self._requests[uid, kind] = Future[bool]()
            return made, True

    def note_kill(self, uid: str) -> int:
        """Note one more request to kill; return how many there were."""
        with self._lock:
            self._kills[uid] = self._kills.get(uid, 0) + 1
            return self._kills[uid]

    def note_unreached(self, uid: str, now: float) -> float:
        """Note that a halt did not get through to a pod's agent; return since when that is so."""
        with self._lock:
            return self._unreached_since.setdefault(uid, now)

    def note_reached(self, uid: str) -> None:
        """Note that a request got through."""
        with self._lock:
            self._unreached_since.pop(uid, None)


class ClusterCache:
    """The Jobs and pods of one home in one namespace. Thread-safe."""

    def __init__(self, cluster: Cluster, home: str) -> None:
        self._cluster = cluster
        self._selector = f"{HOME}={home}"
        self._changed = threading.Condition()
        self._jobs: dict[Key, Document] = {}
        self._pods: dict[Key, dict[int, Document]] = {}
        self._ended_pods: dict[Key, dict[int, Document]] = {}
        """Pods that ended and were deleted while their Job exists: their end is still needed."""
        self._agent_states: dict[LearnerRef, Document] = {}
        """The states that agents report, for learners whose journals are read."""
        self._ready = {"Job": False, "Pod": False}
        self._errors: dict[str, FabricError] = {}
        self._asked_again: set[str] = set()
        """Kinds to be listed at once after a refusal."""
        self._doubted: set[str] = set()
        """Kinds that were refused: they are ready once they are watched, not yet when they are listed."""
        self._watches: dict[str, Watch] = {}
        self._users = 0
        self._ended = False
        self.turn = 0
        """The number of the last change."""
        self.line = LaunchLine()
        """The line of launches that look for nodes."""
        self.stop_tries = StopTries()

    # Reading

    def job_of(self, attempt: AttemptRef) -> Document | None:
        """Return an attempt's Job, None if it does not exist."""
        with self._changed:
            return self._jobs.get(_key(attempt))

    def pods_of(self, attempt: AttemptRef) -> dict[int, Document]:
        """Return an attempt's pods by learner number."""
        with self._changed:
            return dict(self._pods.get(_key(attempt), {}))

    def ended_of(self, attempt: AttemptRef) -> dict[int, Document]:
        """Return the last version of an attempt's pods that ended and were deleted."""
        with self._changed:
            return dict(self._ended_pods.get(_key(attempt), {}))

    def pod_of(self, home: str, job_id: str, attempt: int, learner: int) -> Document | None:
        """Return a learner's pod, None if it does not exist."""
        with self._changed:
            return self._pods.get((home, job_id, attempt), {}).get(learner)

    def agent_state_of(self, ref: LearnerRef) -> Document | None:
        """Return the last state from a learner's agent, None if it was not read."""
        with self._changed:
            return self._agent_states.get(ref)

    def put_agent_state(self, ref: LearnerRef, state: Document) -> None:
        """Store the state from a learner's agent."""
        with self._changed:
            self._agent_states[ref] = state
            self.turn += 1
            self._changed.notify_all()

    def wait(self, timeout_seconds: float, *, turn: int | None = None) -> int:
        """Wait for a change after ``turn`` (default: the current one); return the new turn.

        Raises:
            BackendUnreachable: the cluster does not answer.
        """
        with self._changed:
            before = self.turn if turn is None else turn
            self._changed.wait_for(
                lambda: self.turn != before or bool(self._errors) or self._ended, timeout_seconds
            )
            if self._is_denied():
                return self._settled(READY_SECONDS)
            self._raise_error()
            return self.turn

    def wake(self) -> None:
        """Wake all waiting threads."""
        with self._changed:
            self.turn += 1
            self._changed.notify_all()

    def ready(self, timeout_seconds: float = READY_SECONDS) -> int:
        """Wait until Jobs and pods are listed; return the turn.

        Raises:
            FabricError: the cluster refuses, or does not answer.
        """
        with self._changed:
            return self._settled(timeout_seconds)

    def _is_denied(self) -> bool:
        return any(isinstance(error, Denied) for error in self._errors.values())

    def _settled(self, timeout_seconds: float) -> int:
        """Wait until Jobs and pods are listed. The right to list them may have been granted since it was missing."""
        for kind in [kind for kind, error in self._errors.items() if isinstance(error, Denied)]:
            del self._errors[kind]
            self._ready[kind] = False
            self._asked_again.add(kind)
            self._doubted.add(kind)
            self._changed.notify_all()
        if not self._changed.wait_for(
            lambda: all(self._ready.values()) or bool(self._errors), timeout_seconds
        ):
            raise BackendUnreachable("The cluster does not answer.")
        self._raise_error()
        return self.turn

    def _raise_error(self) -> None:
        for error in self._errors.values():
            raise error

    # Users

    def enter(self) -> None:
        """Register a user; the first one starts the watching threads."""
        with self._changed:
            self._users += 1
            if self._users > 1:
                return
            self._ended = False
        for kind in self._ready:
            threading.Thread(target=self._watch, args=(kind,), name=f"watch {kind}", daemon=True).start()

    def leave(self) -> bool:
        """Unregister a user; the last one ends the watches. Return whether it was the last one."""
        with self._changed:
            self._users -= 1
            if self._users:
                return False
            self._ended = True
            watches = list(self._watches.values())
            self._changed.notify_all()
        for watch in watches:
            with contextlib.suppress(FabricError, OSError):
                watch.close()
        return True

    # The watch

    def _watch(self, kind: str) -> None:
        version = ""
        pause = _PAUSE_SECONDS
        while not self._ended:
            try:
                if not version:
                    listing = self._cluster.list(kind, self._selector)
                    self._take_all(kind, listing.items)
                    version = listing.version
                else:
                    with self._changed:
                        self._errors.pop(kind, None)
                version = self._follow(kind, version)
                pause = _PAUSE_SECONDS
            except Expired:
                version = ""
            except FabricError as error:
                version = ""
                with self._changed:
                    self._errors[kind] = error
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: kind in self._asked_again or self._ended, pause)
                    self._asked_again.discard(kind)
                pause = min(pause * 2, _PAUSE_LONGEST_SECONDS)
        with self._changed:
            self._ready[kind] = False

    def _follow(self, kind: str, version: str) -> str:
        watch = self._cluster.watch(kind, self._selector, version, timeout_seconds=WATCH_SECONDS)
        with self._changed:
            self._watches[kind] = watch
            self._doubted.discard(kind)
            self._ready[kind] = True
            self._changed.notify_all()
            ended = self._ended
        try:
            if not ended:
                for change in watch:
                    self._take(kind, change.type, change.object)
            return watch.version
        finally:
            watch.close()
            with self._changed:
                self._watches.pop(kind, None)

    def _take_all(self, kind: str, items: tuple[Document, ...]) -> None:
        with self._changed:
            if kind == "Job":
                self._jobs.clear()
            else:
                self._pods.clear()
            for item in items:
                self._put(kind, item)
            self._ready[kind] = kind not in self._doubted
            self._errors.pop(kind, None)
            self.turn += 1
            self._changed.notify_all()

    def _take(self, kind: str, type: str, item: Document) -> None:
        with self._changed:
            if type == "DELETED":
                self._drop(kind, item)
            else:
                self._put(kind, item)
            self.turn += 1
            self._changed.notify_all()

    def _put(self, kind: str, item: Document) -> None:
        if kind == "Job":
            if (key := attempt_of(item)) is not None:
                self._jobs[key] = item
            return
        if (ref := ref_of(item)) is not None:
            pods = self._pods.setdefault((ref.home, ref.job_id, ref.attempt), {})
            known = pods.get(ref.learner)
            if known is None or known["metadata"]["uid"] == item["metadata"]["uid"] or _is_newer(item, known):
                pods[ref.learner] = item

    def _drop(self, kind: str, item: Document) -> None:
        key = attempt_of(item)
        if key is None:
            return
        if kind == "Job":
            self._jobs.pop(key, None)
            self._ended_pods.pop(key, None)
            self._agent_states = {
                ref: state
                for ref, state in self._agent_states.items()
                if (ref.home, ref.job_id, ref.attempt) != key
            }
            return
        ref = ref_of(item)
        pods = self._pods.get(key, {})
        if ref is not None and ref.learner in pods:
            if pods[ref.learner]["metadata"]["uid"] == item["metadata"]["uid"]:
                del pods[ref.learner]
            if not pods:
                self._pods.pop(key, None)
            if key in self._jobs and is_over(item):
                self._ended_pods.setdefault(key, {})[ref.learner] = item


_shared: dict[tuple[int, str], ClusterCache] = {}
_sharing = threading.Lock()


def enter(cluster: Cluster, home: str) -> ClusterCache:
    """Return the shared cache of a home's jobs in a cluster and register as its user; see :func:`leave`."""
    with _sharing:
        found = _shared.get((id(cluster), home))
        if found is None:
            found = _shared[(id(cluster), home)] = ClusterCache(cluster, home)
        found.enter()
        return found


def leave(cache: ClusterCache) -> None:
    """Unregister as a user of the cache; the last one ends its watches."""
    with _sharing:
        if cache.leave():
            for key in [key for key, one in _shared.items() if one is cache]:
                del _shared[key]


def _key(attempt: AttemptRef) -> Key:
    return attempt.home, attempt.job_id, attempt.attempt


def _is_newer(item: Document, known: Document) -> bool:
    return str(item["metadata"].get("creationTimestamp")) > str(known["metadata"].get("creationTimestamp"))
