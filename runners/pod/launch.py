"""Launches a pod job: creates the suspended Job and its objects, then starts the pods. A cut-off launch is continued.

Pods of several learners wait for each other. If not all of them run in time, the attempt is removed, so that the
job holds no GPU while it waits.
"""

from __future__ import annotations

import base64
import contextlib
import json
import platform
import secrets as random_secrets
import time
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import workbench.learner
from backends.contract.cluster import Absent, AlreadyThere, Cluster, Denied, Invalid, OverQuota
from backends.contract.errors import translated
from backends.kubernetes.rbac import may_exec, require_rights
from runners.interface import LaunchPlan, LaunchProgress, LaunchRequest
from runners.pod.admission import UnschedulablePods, check
from runners.pod.names import as_owner, is_same, stem_of
from runners.pod.options import options_for
from runners.pod.plan import AGENT, DOCKER_CONFIG, PROGRAM, refusals, streamed_parts
from runners.pod.sh_agent import keep_pod_config, scripts
from runners.pod.status import begun, failed_gang, is_finished, is_preparing, verdict_of, waits
from runners.pod.stop import remove_attempt
from runners.pod.stores import secret_values
from runners.pod.upload import (
    SENDING,
    earlier_results,
    packed_rclone,
    send_code,
    send_earlier_results,
    send_rclone,
)
from runners.pod.watch import ClusterCache
from runners.shared.environment import CHOSEN
from runners.shared.launch_document import check_secrets, check_supported
from runners.shared.launch_line import LinePosition
from runners.shared.registry_login import learner_secrets, login_of
from workbench.errors import InputMissing, LaunchRefused, RightsMissing, RunnerError, SlotsBusy, TryAgain
from workbench.learner.boot.sh_launch import render_secrets
from workbench.learner.pod import config
from workbench.paths import Home, default_home

BEAT_SECONDS: Final = 2.0
"""The interval of progress reports while a launch waits; the callback may raise to cancel it."""

IN_ORDER_SECONDS: Final = 20.0
"""How long a job that waits for a GPU keeps later ones back. Then the cluster has them all, should the laptop go."""

SENDS: Final = 4
"""How many pods files are sent to at once."""

REPLACE_TRIES: Final = 5
"""How often an object is made again: another launch of the attempt may do the same at the same time."""

_SUM_UP_SECONDS: Final = 0.05
"""How long the next look at the pods waits for further changes: they come in groups."""

_REFUSED: Final = {
    "code": (
        "The code is too large for a Secret",
        "put large files into a data store or a volume",
    ),
    "rclone": (
        "What moves the data of stores is sent to the pods",
        "a data store of type volume needs nothing sent",
    ),
}
"""For files that are sent to running pods: why, and the hint for users who may not run commands in pods."""


class PodLaunch:
    """The launch of one attempt."""

    def __init__(
        self, plan: LaunchPlan, cluster: Cluster, cache: ClusterCache, progress: LaunchProgress
    ) -> None:
        self._plan = plan
        self._request: LaunchRequest = plan.request
        self._cluster = cluster
        self._cache = cache
        self._progress = progress
        self._options = options_for(cluster.options, plan.request.spec)
        self._stem = stem_of(plan.request.attempt)
        self._line = cache.line
        self._has_appeared = False
        """Whether the cache has known the Job: it lags behind what was created."""

    def launch(self) -> None:
        """Create what does not exist, start the pods, and wait for them if there are several."""
        with contextlib.ExitStack() as turn:
            self._launch(turn)

    def _launch(self, turn: contextlib.ExitStack) -> None:
        position = self._enter_line(turn)
        job = self._existing_job()
        if job is None:
            require_rights(self._cluster)
            self._refuse()
        self._progress("downloading code", stage="preparing")
        sends = streamed_parts(self._pod_config())
        if job is None or not begun(job):
            if "rclone" in sends:
                _pack_rclone()
            self._progress("creates its objects in the cluster", stage="waiting")
            job = self._create(job)
            if position is not None:
                self._await_turn(position)
            self._progress("starting", stage="starting")
            if not self._options.queue:
                self._unsuspend(job)
        if self._options.queue and job["spec"].get("suspend"):
            return  # its queue unsuspends it
        if self._request.attempt.learners > 1 or sends:
            self._await_learners(sends, turn)
        elif position is not None:
            self._await_node()

    def _existing_job(self) -> Mapping[str, Any] | None:
        try:
            return self._cluster.read("Job", self._stem)
        except Denied:
            require_rights(self._cluster)  # names all that are missing
            raise

    def _enter_line(self, turn: contextlib.ExitStack) -> LinePosition | None:
        """Take a position in the line of jobs that look for nodes; it is left with the turn. None: it needs none."""
        if self._options.queue or not (self._request.attempt.learners > 1 or self._request.spec.gpus):
            return None
        position = self._line.enter(self._request.seq, self._request.attempt.job_id)
        turn.callback(self._line.leave, position)
        return position

    def _await_turn(self, position: LinePosition) -> None:
        while ahead := self._line.take_turn(position, BEAT_SECONDS):
            self._progress(f"waits behind {ahead}, which came first", stage="waiting")

    def _await_node(self) -> None:
        """Wait for a short time until the only pod has a node: jobs behind this one look for theirs then."""
        until = time.monotonic() + IN_ORDER_SECONDS
        while time.monotonic() < until:
            turn = self._cache.turn
            pods = self._cache.pods_of(self._request.attempt)
            if any(is_placed(pod) for pod in pods.values()) or self._is_over(pods):
                return
            self._progress(self._waiting_text(pods), stage="waiting")
            self._cache.wait(BEAT_SECONDS, turn=turn)

    def _refuse(self) -> None:
        """Refuse the job if a retry cannot help."""
        check_supported(refusals(self._request, self._options))
        check_secrets(self._request)
        secret_values(self._request)
        login_of(self._request)
        if self._request.code_file and not Path(self._request.code_file).is_file():
            raise InputMissing(f"The job's code {self._request.code_file} is gone.")
        sends = streamed_parts(self._pod_config()) & _REFUSED.keys()
        if sends and not may_exec(self._cluster):
            why, hint = _REFUSED[min(sends)]
            raise RightsMissing(
                f"{why}, and you may not run commands in pods (create and get pods/exec).",
                hint=f"{hint}; fabric backend role prints the Role to ask for",
            )
        check(self._cluster, self._plan, self._options)

    # The objects

    def _create(self, job: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Create the missing objects, the Job first: it owns the others, which are deleted with it."""
        for planned in self._plan.objects:
            kind = planned["kind"]
            if kind == "Job" and job is not None:
                self._check(job)
                continue
            document = self._filled(planned)
            if kind == "Secret" and "pod.json" in planned["stringData"]:
                keep_pod_config(self._request.attempt, planned["stringData"]["pod.json"])
            if kind not in ("Job", "PersistentVolumeClaim"):
                assert job is not None
                document["metadata"]["ownerReferences"] = [as_owner(job)]
            try:
                made = self._create_one(document)
            except Denied as error:
                if job is None:  # it was taken away a moment ago, and no pod can run
                    raise RightsMissing(error.message, hint=error.hint) from error
                raise
            if kind == "Job":
                job = made
        assert job is not None
        return job

    def _create_one(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        kind, name = document["kind"], document["metadata"]["name"]
        try:
            return self._cluster.create(document)
        except AlreadyThere:
            if kind in ("Secret", "Service"):
                return self._replaced(document)
            found = self._read_made(kind, name)
            if found is None:
                raise TryAgain(f"The {kind} {name} is being removed.") from None
            self._check(found)
            return found
        except OverQuota as error:
            raise SlotsBusy(f"waits for the namespace's quota: {error.message}", hint=error.hint) from error
        except Invalid as error:
            raise LaunchRefused(
                f"The cluster refuses the {kind}: {error.message}", hint=error.hint, code="C104"
            ) from error

    def _replaced(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create an object again that an earlier try left: its pods do not exist yet, and reading it takes a right."""
        kind, name = document["kind"], document["metadata"]["name"]
        for _ in range(REPLACE_TRIES):
            self._cluster.delete(kind, name)
            with contextlib.suppress(AlreadyThere):
                return self._cluster.create(document)
        raise TryAgain(f"The {kind} {name} is being removed.")

    def _read_made(self, kind: str, name: str) -> Mapping[str, Any] | None:
        try:
            return self._cluster.read(kind, name)
        except Denied:
            if kind != "PersistentVolumeClaim":
                raise
            # Its name is the job's: it is there from an earlier attempt.
            return {"kind": kind, "metadata": {"name": name}}

    def _check(self, found: Mapping[str, Any]) -> None:
        attempt = self._request.attempt
        name = found["metadata"]["name"]
        is_own = found["kind"] == "PersistentVolumeClaim" or is_same(found, attempt)
        if not is_own:
            raise RunnerError(
                f"The {found['kind']} {name} belongs to another home.",
                hint="Remove it by hand if it is not needed.",
            )
        if found["metadata"].get("deletionTimestamp"):
            raise TryAgain(f"The {found['kind']} {name} is still being removed.")

    def _filled(self, planned: Mapping[str, Any]) -> dict[str, Any]:
        """Return a planned object with its placeholders replaced."""
        document: dict[str, Any] = json.loads(json.dumps(planned))
        content = document.pop("stringData", None)
        if content is not None:
            document["data"] = {
                name: base64.b64encode(data).decode() for name, data in self._content(content).items()
            }
        return document

    def _content(self, planned: Mapping[str, str]) -> dict[str, bytes]:
        content: dict[str, bytes] = {}
        plain = scripts()
        for name, text in planned.items():
            if name == "secrets.json":
                content[name] = json.dumps(secret_values(self._request)).encode()
            elif name == "secrets.sh":
                content[name] = self._exports()
            elif name == DOCKER_CONFIG:
                login = login_of(self._request)
                content[name] = json.dumps(login.to_docker_config() if login else {}).encode()
            elif text == AGENT:
                content[name] = agent_archive().read_bytes()
            elif text == PROGRAM:
                content[name] = pod_program()
            elif text in plain:
                content[name] = plain[text]
            elif name == config.CODE:
                with translated():
                    content[name] = Path(self._request.code_file).read_bytes()
            else:
                content[name] = text.replace(CHOSEN, random_secrets.token_hex(16)).encode()
        return content

    def _exports(self) -> bytes:
        try:
            return render_secrets(learner_secrets(self._request)).encode()
        except ValueError as error:
            raise LaunchRefused(f"The secrets cannot be passed to the job: {error}.", code="C103") from error

    def _unsuspend(self, job: Mapping[str, Any]) -> None:
        precondition = {"metadata": {"uid": job["metadata"]["uid"]}, "spec": {"suspend": False}}
        try:
            self._cluster.patch("Job", self._stem, precondition)
        except Absent as error:
            raise TryAgain(f"The Job {self._stem} was removed while it was being launched.") from error

    # After the pods were created

    def _pod_config(self) -> dict[str, Any]:
        """Return ``pod.json``, the configuration of the pods' containers."""
        contents = (one.get("stringData", {}) for one in self._plan.objects)
        found: dict[str, Any] = next(json.loads(one["pod.json"]) for one in contents if "pod.json" in one)
        return found

    def _await_learners(self, sends: Set[str], turn: contextlib.ExitStack) -> None:
        """Send files to waiting pods, and wait until all learners run."""
        attempt = self._request.attempt
        sent: set[str] = set()
        until = time.monotonic() + 2 * self._options.gang_seconds
        turn_until = time.monotonic() + self._options.gang_seconds
        unschedulable = UnschedulablePods(self._cluster, self._options.unfit_seconds)
        while True:
            seen = self._cache.turn
            pods = self._cache.pods_of(attempt)
            self._refuse_unschedulable(unschedulable, pods)
            if self._cache.job_of(attempt) is None and not pods:
                self._progress("starting", stage="starting")
            placed = len(pods) == attempt.learners and all(is_placed(pod) for pod in pods.values())
            if placed or time.monotonic() > turn_until:
                turn.close()  # the next job may look for nodes
            if placed:
                # From now on the pods themselves end if they do not meet; pulling images may take long.
                until = time.monotonic() + 2 * self._options.gang_seconds
            late = attempt.learners > 1 and time.monotonic() > until and not unschedulable.waiting
            if failed_gang(pods.values()) or late:
                why = next((text for pod in pods.values() if (text := waits(pod))), "")
                remove_attempt(self._cluster, attempt)
                raise SlotsBusy(
                    f"waits until {attempt.learners} learners can run at once" + (f": {why}" if why else "")
                )
            if len(pods) == attempt.learners and all(begun_pod(pod) for pod in pods.values()):
                return
            if sends:
                self._send_all([pod for pod in pods.values() if is_preparing(pod)], sends, sent)
            if self._is_over(pods):
                return
            self._progress(self._waiting_text(pods), stage="waiting")
            self._cache.wait(BEAT_SECONDS, turn=seen)
            time.sleep(_SUM_UP_SECONDS)

    def _is_over(self, pods: Mapping[int, Mapping[str, Any]]) -> bool:
        """Return whether nothing will come of the launch any more: the Job has ended, or was there and has gone."""
        job = self._cache.job_of(self._request.attempt)
        if job is None:
            return self._has_appeared and not pods
        self._has_appeared = True
        return is_finished(job) or bool(verdict_of(job))

    def _refuse_unschedulable(
        self, unschedulable: UnschedulablePods, pods: Mapping[int, Mapping[str, Any]]
    ) -> None:
        """Refuse a job whose pods no node can run; an autoscaler has had time to add one."""
        unschedulable.keep({str(pod["metadata"]["uid"]) for pod in pods.values()})
        for pod in pods.values():
            if reason := unschedulable.reason(pod):
                remove_attempt(self._cluster, self._request.attempt)
                text = f"{reason.text[0].upper()}{reason.text[1:]}."
                raise LaunchRefused(text, hint=reason.hint, code=reason.code)

    def _send_all(self, pods: Sequence[Mapping[str, Any]], sends: Set[str], sent: set[str]) -> None:
        """Send files to several pods at once: they hold their GPUs while they wait."""
        waiting = [pod for pod in pods if pod["metadata"]["uid"] not in sent]
        if not waiting:
            return
        self._progress(SENDING, stage="preparing")
        with ThreadPoolExecutor(SENDS, thread_name_prefix="send") as pool:
            for one in [pool.submit(self._send, pod, sends) for pod in waiting]:
                one.result()
        sent.update(str(pod["metadata"]["uid"]) for pod in waiting)

    def _send(self, pod: Mapping[str, Any], sends: Set[str]) -> None:
        if "code" in sends:
            send_code(self._cluster, pod, self._request.code_file, self._progress)
        if "rclone" in sends:
            send_rclone(self._cluster, pod, self._progress)
        made = earlier_results(self._request.attempt.job_id) if "made" in sends else None
        if made is not None:
            send_earlier_results(self._cluster, pod, made, self._progress)

    def _waiting_text(self, pods: Mapping[int, Mapping[str, Any]]) -> str:
        for pod in pods.values():
            if text := waits(pod):
                return text
        return "starting"


def _pack_rclone() -> None:
    """Compress rclone before the pods run: they would hold their GPUs meanwhile."""
    with contextlib.suppress(LaunchRefused):  # the image may contain rclone
        packed_rclone(platform.machine())


def begun_pod(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod's learner has begun or ended."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    states = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
    return any("running" in state or "terminated" in state for state in states)


def is_placed(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is scheduled."""
    return bool((pod.get("spec") or {}).get("nodeName"))


def agent_archive() -> Path:
    """Return the agent's archive; build it if it does not exist."""
    from workbench.learner.boot.archive import build

    with translated():
        return Path(build(str(Home(default_home()).agents)))


def pod_program() -> bytes:
    """Return ``pod.sh``, the entry point of every container of a pod."""
    return (Path(workbench.learner.__file__).parent / "pod" / "pod.sh").read_bytes()
