"""Reads the journals of learners in pods: from side-cars while they run, afterwards from the containers' logs."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, Final

from backends.contract.cluster import Absent, Cluster, Denied, Invalid, NodeUnreachable
from backends.contract.host import Chunk
from runners.interface import EarlyBytes, LearnerRef, LearnerStatus
from runners.pod.container_host import CONNECT_SECONDS, PodHost, open_host
from runners.pod.log_recovery import JournalRemains, read_remains
from runners.pod.names import LEARNER, ref_of
from runners.pod.sh_agent import ClusterLog, prepare_transcript
from runners.pod.status import has_side_car_ended, is_over, is_side_car_running
from runners.pod.stores import ANNOTATION
from runners.pod.watch import ClusterCache
from runners.shared.learner_status import status_of
from workbench.errors import BackendUnreachable, FabricError
from workbench.job import LearnerPhase
from workbench.learner.host.journals import EARLY, FILES
from workbench.learner.pod import config
from workbench.learner.pod.config import NO_PYTHON
from workbench.paths import Home, default_home

Pod = Mapping[str, Any]

SILENT_SECONDS: Final = 20.0
"""How long a running learner with data stores counts as starting while its agent's state is not known. Without the
right to run commands in pods the state is never known."""

_OURS: Final = frozenset({LearnerPhase.DOWNLOADING, LearnerPhase.SETUP, LearnerPhase.STORING})


class AgentPhases:
    """Refines statuses by what agents report: the cluster does not know downloads, setup and uploads."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._silent: dict[str, float] = {}
        """When a pod was first observed running without a state from its agent, by uid."""

    @property
    def waiting(self) -> bool:
        """Whether the state of an agent is awaited."""
        now = time.monotonic()
        return any(now < at + SILENT_SECONDS for at in self._silent.values())

    def refined(self, status: LearnerStatus, pod: Pod) -> LearnerStatus:
        """Return a status with the phase that the agent reports, if the cluster does not know it."""
        uid = str(pod["metadata"]["uid"])
        if status.phase is not LearnerPhase.RUNNING or not reports_phases(pod):
            self._silent.pop(uid, None)
            return status
        state = self._cache.agent_state_of(status.ref) or _mirrored(status.ref)
        if state is None:
            since = self._silent.setdefault(uid, time.monotonic())
            if time.monotonic() < since + SILENT_SECONDS:
                return replace(status, phase=LearnerPhase.STARTING)
            return status
        self._silent.pop(uid, None)
        facts = {"state": state, "alive": True, "slots": ()}
        refined_status = status_of(status.ref, facts, status.node)
        if refined_status is not None and refined_status.phase is LearnerPhase.STARTING:
            return replace(status, phase=LearnerPhase.STARTING)
        return refined_status if refined_status is not None and refined_status.phase in _OURS else status


def reports_phases(pod: Pod) -> bool:
    """Return whether a learner's agent reports phases that the cluster does not know: jobs with data stores."""
    annotations = pod["metadata"].get("annotations") or {}
    return ANNOTATION in annotations


def _mirrored(ref: LearnerRef) -> Mapping[str, Any] | None:
    """Return the state that an earlier controller has mirrored."""
    file = Home(default_home()).job(ref.job_id).attempt(ref.attempt).learner(ref.learner).state
    try:
        state = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and state.get("phase") else None


STREAMS: Final = 64
"""How many pods are read at once; more pods are read in turns."""

LONG_SECONDS: Final = 60.0
TURN_SECONDS: Final = 5.0
"""How long a pod is asked for news where more than STREAMS are read in turns."""

FETCHERS: Final = 8
"""How many ended pods are read at once."""

END_SECONDS: Final = 20.0
"""How long the side-car of an ended learner may not answer before its journal is given up."""

UNREACHABLE_SECONDS: Final = 3.0
"""The same where the cluster cannot reach its node: the caller reports that, and tries again."""

PAUSE_LONGEST_SECONDS: Final = 5.0
"""The longest pause before a pod that did not answer is asked again."""

LOOK_LONGEST_SECONDS: Final = 1.0
"""The longest pause before a pod that is read to its end, and did not answer, is asked again without news of it."""

_GATHER_SECONDS: Final = 0.002
LOOK_SECONDS: Final = 0.1
"""How often is looked whether one of several streams has news; the first pause of a pod that did not answer."""

Known = Mapping[str, int]
Parts = Mapping[str, Chunk]


class ExecBackoff:
    """Spares the API commands that cannot be run: on nodes that it cannot reach, or for want of the right.

    Of all pods of a node one is tried, ever later, until it works. Thread-safe.
    """

    FIRST_SECONDS = 0.5
    LONGEST_SECONDS = 60.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pauses: dict[str, tuple[float, float, FabricError]] = {}
        """By node, empty for all: when the next try is due, the length of the pause, and why."""

    def check(self, node: str) -> None:
        """Raise what the last try on a node has raised, unless another one is due."""
        now = time.monotonic()
        with self._lock:
            for due, _, error in filter(None, map(self._pauses.get, ("", node))):
                if now < due:
                    raise type(error)(error.message, hint=error.hint)

    def failed(self, node: str, error: FabricError) -> None:
        """Note that a try on a node has failed; an empty name stands for all."""
        now = time.monotonic()
        with self._lock:
            due, pause, _ = self._pauses.get(node, (0.0, self.FIRST_SECONDS / 2, error))
            if now >= due:  # else another thread's try began before the pause
                pause = min(2 * pause, self.LONGEST_SECONDS)
                self._pauses[node] = (now + pause, pause, error)

    def worked(self, node: str) -> None:
        """Note that a command was run on a node."""
        with self._lock:
            self._pauses.pop("", None)
            self._pauses.pop(node, None)


class Journals:
    """The journals that one runner reads. One thread follows; :meth:`interrupt` may be called by any."""

    def __init__(self, cluster: Cluster, cache: ClusterCache, subscriber: str) -> None:
        self._cluster = cluster
        self._cache = cache
        self._subscriber = subscriber
        self._lock = threading.Lock()
        self._hosts: dict[LearnerRef, PodHost] = {}
        self._remains: dict[str, JournalRemains] = {}
        self._read_out: set[str] = set()
        """The uids of ended pods whose logs have nothing more to give: they are not read again."""
        self._pending: dict[LearnerRef, tuple[dict[str, int], Future[Parts]]] = {}
        self._pauses: dict[LearnerRef, tuple[float, float]] = {}
        """For pods that did not answer: when to ask again, and the length of the pause."""
        self._backoff = ExecBackoff()
        self._pool: ThreadPoolExecutor | None = None
        self._fetchers: ThreadPoolExecutor | None = None
        self._interrupted = threading.Event()
        self._turn = 0
        self._early: EarlyBytes | None = None
        self._logs: dict[str, ClusterLog] = {}
        """The cluster's logs by pod, for images without Python."""

    def follow(
        self, known: Mapping[LearnerRef, Known], timeout_seconds: float, early: EarlyBytes | None = None
    ) -> dict[LearnerRef, Parts]:
        """Wait until there is new content and return it; with a timeout of 0 return everything that there is now."""
        self._early = early
        self._cache.ready()
        if timeout_seconds <= 0:
            return self._read_all(known)
        until = time.monotonic() + timeout_seconds
        for ref in set(self._pending) - set(known):
            del self._pending[ref]
        for ref in set(self._pauses) - set(known):
            del self._pauses[ref]
        while True:
            news = self._read_ended(known) or self._read_running(known, until)
            if news or self._interrupted.is_set() or time.monotonic() >= until:
                self._interrupted.clear()
                return news

    def read(self, ref: LearnerRef, offsets: Known, limit_bytes: int) -> dict[str, Chunk]:
        """Read files of a learner from these offsets on: ``output``, ``index`` and ``records``."""
        folder = folder_of(ref)
        paths = {name: f"{folder}/{FILES[name]}" for name in offsets}
        path_offsets = {path: offsets[name] for name, path in paths.items()}
        until = time.monotonic() + END_SECONDS
        pause = LOOK_SECONDS
        while (pod := self._pod(ref)) is not None:
            if has_side_car_ended(pod):
                return self._remains_of(pod).read(offsets)
            if not is_side_car_running(pod):
                return {}
            try:
                if pod["metadata"]["uid"] in self._logs:
                    found = b"".join(self._cluster.logs(pod["metadata"]["name"], LEARNER))
                    return JournalRemains({"output": [(0, len(found), found)]}).read(offsets)
                chunks = self.host(ref, pod).read(path_offsets, limit_bytes=limit_bytes)
                return {name: chunks[path] for name, path in paths.items() if path in chunks}
            except (BackendUnreachable, Absent, Invalid, Denied) as error:
                if NO_PYTHON in error.message:
                    self._request(ref, {}, 0.0)
                    continue
                if time.monotonic() > until:
                    raise
                pause = self._pause(ref, pod, pause)  # its side-car is ending or starting
        return {}

    def host(
        self, ref: LearnerRef, pod: Mapping[str, Any], *, connect_seconds: float = CONNECT_SECONDS
    ) -> PodHost:
        """Return the connection to a learner's side-car; connect if there is none."""
        with self._lock:
            host = self._hosts.get(ref)
            if host is not None and not host.lost:
                return host
            if host is not None:
                host.close()
                del self._hosts[ref]
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        self._backoff.check(node)
        try:
            host = open_host(self._cluster, pod["metadata"]["name"], connect_seconds=connect_seconds)
        except (Denied, NodeUnreachable) as error:
            self._backoff.failed("" if isinstance(error, Denied) else node, error)
            raise
        self._backoff.worked(node)
        with self._lock:
            self._hosts[ref] = host
        return host

    def interrupt(self) -> None:
        """Make a blocked call, or the next one, return early."""
        self._interrupted.set()

    def close(self) -> None:
        """Close all connections and logs."""
        self.interrupt()
        with self._lock:
            hosts, self._hosts = list(self._hosts.values()), {}
        for host in hosts:
            host.close()
        for log in self._logs.values():
            log.close()
        for pool in (self._pool, self._fetchers):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)

    # Ended pods

    def _read_ended(self, known: Mapping[LearnerRef, Known]) -> dict[LearnerRef, Parts]:
        news: dict[LearnerRef, Parts] = {}
        for ref, offsets in known.items():
            pod = self._pod(ref)
            if pod is None or not has_side_car_ended(pod):
                continue
            if parts := self._remaining(pod, offsets):
                news[ref] = parts
                if sum(len(part.data) for part in parts.values()) > 1 << 20:
                    return news
        return news

    def _remaining(self, pod: Mapping[str, Any], offsets: Known) -> dict[str, Chunk]:
        """Return what the logs of an ended pod have beyond these offsets; each log is read once."""
        uid = pod["metadata"]["uid"]
        if uid in self._read_out:
            return {}
        parts = self._remains_of(pod).after(offsets)
        if not parts:
            self._remains.pop(uid, None)
            self._read_out.add(uid)
        return parts

    def _remains_of(self, pod: Mapping[str, Any]) -> JournalRemains:
        uid = pod["metadata"]["uid"]
        if uid not in self._remains:
            if len(self._remains) > STREAMS:
                self._remains.pop(next(iter(self._remains)), None)
            if (log := self._logs.pop(uid, None)) is not None:
                log.close()
            self._remains[uid] = remains = read_remains(self._cluster, pod)
            ref = ref_of(pod)
            if remains.plain and ref is not None:
                prepare_transcript(self._cluster, ref)
        return self._remains[uid]

    # Everything that there is now

    def _read_all(self, known: Mapping[LearnerRef, Known]) -> dict[LearnerRef, Parts]:
        """Read everything that each learner has now, also if its pod is just ending."""
        self._pending.clear()
        if self._fetchers is None:
            self._fetchers = ThreadPoolExecutor(FETCHERS, thread_name_prefix="fetch")
        futures = {ref: self._fetchers.submit(self._read_now, ref, dict(known[ref])) for ref in known}
        found = {ref: future.result() for ref, future in futures.items()}
        return {ref: parts for ref, parts in found.items() if parts}

    def _read_now(self, ref: LearnerRef, offsets: dict[str, int]) -> Parts:
        began = time.monotonic()
        pause = LOOK_SECONDS
        while True:
            pod = self._pod(ref)
            if pod is None:
                return {}
            if has_side_car_ended(pod):
                return self._remaining(pod, offsets)
            if not is_side_car_running(pod):
                return {}
            try:
                if is_over(pod) and pod["metadata"]["uid"] in self._logs:
                    self._cache.wait(LOOK_SECONDS)
                    continue
                return self._request(ref, offsets, 0.0)
            except (BackendUnreachable, Absent, Invalid, Denied) as error:
                patience = UNREACHABLE_SECONDS if isinstance(error, BackendUnreachable) else END_SECONDS
                if time.monotonic() > began + patience:
                    raise
                pause = self._pause(ref, pod, pause)

    def _pause(self, ref: LearnerRef, pod: Pod, seconds: float) -> float:
        """Wait for news of a pod whose side-car did not answer, at most this long; return how long to wait next time.

        A side-car that has ended is reported up to a second later. Each try before that is a command that the cluster
        starts for nothing.
        """
        until = time.monotonic() + seconds
        while True:
            turn = self._cache.turn
            left = until - time.monotonic()
            if left <= 0 or self._pod(ref) != pod:
                return min(2 * seconds, LOOK_LONGEST_SECONDS)
            self._cache.wait(left, turn=turn)

    # Running pods

    def _read_running(self, known: Mapping[LearnerRef, Known], until: float) -> dict[LearnerRef, Parts]:
        """Request new content from side-cars, each in its own thread, and return what arrives first."""
        now = time.monotonic()
        served = [
            ref
            for ref in known
            if self._pauses.get(ref, (0.0, 0.0))[0] <= now
            and (pod := self._pod(ref)) is not None
            and is_side_car_running(pod)
        ]
        self._turn += 1
        begin = self._turn % len(served) if served else 0
        crowded = len(served) > STREAMS
        for ref in served[begin:] + served[:begin]:
            if len(self._pending) >= STREAMS:
                break
            pending = self._pending.get(ref)
            if pending is None or (not _is_same(pending[0], known[ref]) and pending[1].done()):
                seconds = TURN_SECONDS if crowded else LONG_SECONDS
                offsets = dict(known[ref])
                self._pending[ref] = (offsets, self._threads().submit(self._request, ref, offsets, seconds))
        if crowded:
            self._close_idle()
        if not self._wait([future for _, future in self._pending.values()], until):
            return {}
        return self._collect(known)

    def _wait(self, futures: list[Future[Parts]], until: float) -> bool:
        """Wait until one of these is done; False after the timeout, an interrupt, or a change in the cluster."""
        turn = self._cache.turn
        while not any(future.done() for future in futures):
            left = until - time.monotonic()
            if left <= 0 or self._interrupted.is_set() or self._cache.turn != turn:
                return False
            if futures:
                wait(futures, timeout=min(left, LOOK_SECONDS), return_when="FIRST_COMPLETED")
            else:
                self._cache.wait(min(left, LOOK_SECONDS), turn=turn)
        time.sleep(_GATHER_SECONDS)
        return True

    def _collect(self, known: Mapping[LearnerRef, Known]) -> dict[LearnerRef, Parts]:
        news: dict[LearnerRef, Parts] = {}
        for ref, (offsets, future) in list(self._pending.items()):
            if not future.done():
                continue
            del self._pending[ref]
            try:
                parts = future.result()
            except FabricError:  # its pod is ending and its log is read then, or its node does not answer
                last = self._pauses.get(ref, (0.0, LOOK_SECONDS / 2))[1]
                pause = min(2 * last, PAUSE_LONGEST_SECONDS)
                self._pauses[ref] = (time.monotonic() + pause, pause)
                continue
            self._pauses.pop(ref, None)
            if parts and _is_same(known.get(ref, {}), offsets):
                news[ref] = parts
        return news

    def _request(self, ref: LearnerRef, offsets: dict[str, int], seconds: float) -> Parts:
        pod = self._pod(ref)
        if pod is None:
            return {}
        try:
            if pod["metadata"]["uid"] in self._logs:
                return self._read_log(pod, offsets, seconds)
            folder = folder_of(ref)
            early = self._early
            take = None if early is None else lambda _, *some: early(ref, *some)
            known = {folder: offsets}
            news = self.host(ref, pod).follow(self._subscriber, known, timeout_seconds=seconds, early=take)
            self._put_state(ref, pod, news.get(folder, {}))
            return news.get(folder, {})
        except (BackendUnreachable, Absent, Invalid, Denied) as error:
            if NO_PYTHON not in error.message:
                raise  # the side-car is ending, starting, or cannot be reached: its log has the journal later
            # No Python in the image: the output is read from the cluster's log.
            prepare_transcript(self._cluster, ref)
            self._logs[pod["metadata"]["uid"]] = ClusterLog(
                self._cluster, pod["metadata"]["name"], self._cache.wake
            )
            return {}

    def _close_idle(self) -> None:
        """Close connections beyond STREAMS to pods that wait for their turn: each has a socket and a thread."""
        with self._lock:
            idle = [ref for ref in self._hosts if ref not in self._pending]
            closing = [self._hosts.pop(ref) for ref in idle[: max(0, len(self._hosts) - STREAMS)]]
        for host in closing:
            host.close()

    def _put_state(self, ref: LearnerRef, pod: Mapping[str, Any], parts: Parts) -> None:
        """Store the state that a learner's agent reports, if the cluster does not know it."""
        if "state" in parts and reports_phases(pod):
            with contextlib.suppress(ValueError):
                self._cache.put_agent_state(ref, json.loads(parts["state"].data))

    def _read_log(self, pod: Mapping[str, Any], offsets: Known, seconds: float) -> Parts:
        log = self._logs[pod["metadata"]["uid"]]
        until = time.monotonic() + min(seconds, TURN_SECONDS)
        while True:
            turn = self._cache.turn
            chunk = log.take(offsets.get("output", 0))
            if chunk is not None:
                return {"output": chunk}
            left = until - time.monotonic()
            if left <= 0:
                return {}
            if log.ended:
                raise BackendUnreachable(
                    "The cluster's log has ended."
                )  # requested again later, or the pod has ended
            self._cache.wait(left, turn=turn)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(STREAMS, thread_name_prefix="journal")
        return self._pool

    def _pod(self, ref: LearnerRef) -> Mapping[str, Any] | None:
        return self._cache.pod_of(ref.home, ref.job_id, ref.attempt, ref.learner)


def _is_same(one: Known, other: Known) -> bool:
    """Return whether a reply to a request with some offsets is valid for others: logs may have been read further."""
    return {**one, **dict.fromkeys(EARLY, 0)} == {**other, **dict.fromkeys(EARLY, 0)}


def folder_of(ref: LearnerRef) -> str:
    """Return the folder of a learner's journal in its pod."""
    return f"{config.ATTEMPT}/learner-{ref.learner}"
