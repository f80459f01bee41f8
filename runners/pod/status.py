"""Derives a learner's status from its pod and Job: phase, exit, reason with FfDL's code and a hint. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from runners.interface import LearnerRef, LearnerStatus
from runners.pod.names import AWAITS, LEARNER, LOGIN_SUFFIX, PREPARE, QUEUE, SIDE_CAR, VERDICT
from runners.shared.registry_login import LOGIN_HINT
from workbench.job import LearnerPhase, Reason
from workbench.learner.pod.config import BY_CLUSTER, EXIT_GANG

Pod = Mapping[str, Any]

IMAGE_REASONS: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
)
_NO_IMAGE: Final = (
    "not found",
    "denied",
    "unauthorized",
    "401 Unauthorized",
    "403 Forbidden",
    "manifest unknown",
    "authorization failed",
    "authentication required",
    "forbidden",
    "InvalidImageName",
    "ErrImageNeverPull",
    "couldn't parse image",
    "invalid reference format",
)
"""Parts of messages of permanent failures to pull an image."""

_QUIET: Final = ("", "ContainerCreating", "PodInitializing")
_KILLED: Final = (137, 143)

_DISRUPTED: Final[Mapping[str, tuple[str, str, str]]] = {
    "PreemptionByScheduler": (
        "preempted by a pod of a higher priority",
        "S106",
        "a priority class protects it",
    ),
    "DeletionByTaintManager": ("its node was lost or drained", "S200", ""),
    "EvictionByEvictionAPI": ("evicted, as when a node is drained", "S200", ""),
    "DeletionByPodGC": ("its node is gone", "S200", ""),
    "TerminationByKubelet": (
        "ended by its node, which shuts down or lacks resources",
        "S100",
        "",
    ),
}


def status_of(ref: LearnerRef, pod: Pod) -> LearnerStatus:
    """Return the status of a learner from its pod."""
    status = pod.get("status") or {}
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    learner = _container(status.get("containerStatuses"), LEARNER)
    state = learner.get("state") or {}
    if ended := state.get("terminated"):
        return _ended(ref, pod, ended, node)
    if status.get("phase") in ("Failed", "Succeeded"):
        return _not_prepared(ref, _why_failed(pod), node)
    if running := state.get("running"):
        phase = LearnerPhase.STOPPING if _is_deleted(pod) else LearnerPhase.RUNNING
        return LearnerStatus(ref, phase, started_us=time_us(running.get("startedAt")), node=node)
    if _is_deleted(pod):
        return LearnerStatus(ref, LearnerPhase.STARTING, reason=Reason("its pod is being deleted"), node=node)
    text = waits(pod)
    reason = Reason(text) if text else None
    return LearnerStatus(ref, LearnerPhase.STARTING, reason=reason, node=node, cut_off=_awaits(pod))


def status_without_pod(ref: LearnerRef, job: Pod, why: str) -> LearnerStatus | None:
    """Return the status of a learner without a pod from its Job; None if its launch was cut off.

    Args:
        ref: the learner.
        job: its Job.
        why: why the cluster creates no pod, if that is known.
    """
    if verdict := verdict_of(job):
        # C1...: the job's own fault; otherwise the cluster's.
        phase = LearnerPhase.EXITED if verdict[0].code.startswith("C1") else LearnerPhase.LOST
        return LearnerStatus(ref, phase, reason=verdict[0], final=verdict[1])
    status, index = job.get("status") or {}, ref.learner - 1
    if index in indexes(status.get("completedIndexes")):
        return LearnerStatus(ref, LearnerPhase.EXITED, exit_code=0)
    if index in indexes(status.get("failedIndexes")) or is_finished(job) or _is_deleted(job):
        text = (
            "its pod was deleted from outside" if not _is_deleted(job) else "its Job was deleted from outside"
        )
        return LearnerStatus(ref, LearnerPhase.LOST, reason=Reason(text, "S104"))
    if job["spec"].get("suspend"):
        queue = (job["metadata"].get("labels") or {}).get(QUEUE)
        if not queue:
            return None  # its launch was cut off
        return LearnerStatus(
            ref, LearnerPhase.STARTING, reason=Reason(f"waits in the queue {queue} of the cluster")
        )
    return LearnerStatus(ref, LearnerPhase.STARTING, reason=Reason(why) if why else None)


def begun(job: Pod) -> bool:
    """Return whether a Job was started or has ended: it is not launched again."""
    return not job["spec"].get("suspend") or bool(verdict_of(job)) or is_finished(job)


def verdict_of(job: Pod) -> tuple[Reason, bool] | None:
    """Return why a Job was ended before its learners could begin, and whether a retry cannot help; else None."""
    text = (job["metadata"].get("annotations") or {}).get(VERDICT)
    if not text:
        return None
    document = json.loads(text)
    return Reason(str(document["text"]), str(document["code"]), str(document.get("hint") or "")), bool(
        document.get("final")
    )


def unrecoverable(pod: Pod) -> Reason | None:
    """Return why a waiting pod can never run, None if it can."""
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
        if reason in IMAGE_REASONS and any(word in f"{reason} {message}" for word in _NO_IMAGE):
            image = str(container.get("image") or _image_of(pod))
            hint = "check its name, and what may pull it: image_pull_secrets of the backend"
            if _has_login(pod):
                hint = LOGIN_HINT[0].lower() + LOGIN_HINT[1:].rstrip(".")
            if reason == "ErrImageNeverPull":
                hint = "load it onto the nodes, or let it be pulled: --set image_pull=missing"
            return Reason(f"the image {image} cannot be pulled: {_short(message or reason)}", "S103", hint)
        if reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
            if "runAsNonRoot" in message or "non-numeric user" in message:
                hint = "try the other value of the backend's option run_as: restricted or image"
                return Reason(f"the container cannot be started: {_short(message)}", "C104", hint)
            if 'exec: "sh"' in message or "sh: no such file" in message:
                return Reason(
                    f"the image {_image_of(pod)} has no sh, and without one nothing can be run in it",
                    "C202",
                    "take an image that has a shell",
                )
    return None


def _has_login(pod: Pod) -> bool:
    """Say whether a pod's job has a login of its own to the registry of its image."""
    named = (str(one.get("name")) for one in pod["spec"].get("imagePullSecrets") or ())
    return any(name == f"{pod['spec'].get('subdomain')}{LOGIN_SUFFIX}" for name in named)


def waits_for_image(pod: Pod) -> Reason | None:
    """Return why pulling a pod's image fails, None if the pod does not wait for its image."""
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in IMAGE_REASONS:
            message = _short(str(waiting.get("message") or waiting["reason"]))
            hint = "check its name, and whether the nodes reach its registry"
            return Reason(f"the image {_image_of(pod)} cannot be pulled: {message}", "S103", hint)
    return None


def waits(pod: Pod) -> str:
    """Return for people why a pod does not run yet; empty if nothing is known."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message = str(condition.get("message") or condition.get("reason") or "")
            return f"waits for a node: {_short(message)}"
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        if reason in IMAGE_REASONS:
            return f"waits for its image: {_short(str(waiting.get('message') or reason))}"
        if reason not in _QUIET:
            return f"waits: {_short(str(waiting.get('message') or reason))}"
    return "its pod is being prepared" if is_preparing(pod) else ""


def is_preparing(pod: Pod) -> bool:
    """Return whether a pod's init container runs."""
    prepare = _container((pod.get("status") or {}).get("initContainerStatuses"), PREPARE)
    return "running" in (prepare.get("state") or {})


def _awaits(pod: Pod) -> bool:
    return is_preparing(pod) and AWAITS in (pod["metadata"].get("annotations") or {})


def failed_gang(pods: Iterable[Pod]) -> bool:
    """Return whether a pod ended because the other learners' pods did not start in time."""
    return any(_prepare_ended(pod).get("exitCode") == EXIT_GANG for pod in pods)


def is_over(pod: Pod) -> bool:
    """Return whether a pod's learner has ended; other containers of the pod may have ended before, or go on."""
    return (pod.get("status") or {}).get("phase") in (
        "Succeeded",
        "Failed",
    ) or "terminated" in _learner_state(pod)


def outlives_learner(pod: Pod) -> bool:
    """Return whether a container of the user's, not a side-car, runs on though the learner has ended."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return is_over(pod) and any(
        "running" in (one.get("state") or {}) for one in statuses if one["name"] != LEARNER
    )


def is_side_car_running(pod: Pod) -> bool:
    """Return whether a pod's side-car runs: in a pod that has ended nothing does, whatever its last state says."""
    status = pod.get("status") or {}
    if status.get("phase") in ("Failed", "Succeeded"):
        return False
    state = _container(status.get("initContainerStatuses"), SIDE_CAR).get("state") or {}
    return "running" in state


def is_learner_running(pod: Pod) -> bool:
    """Return whether a pod's learner runs."""
    return "running" in _learner_state(pod)


def has_learner_begun(pod: Pod) -> bool:
    """Return whether a pod's learner runs or has ended."""
    return not _learner_state(pod).keys().isdisjoint(("running", "terminated"))


def has_side_car_ended(pod: Pod) -> bool:
    """Return whether a pod's side-car has ended for good: only its log is left.

    One that was killed while the learner runs is started again by the kubelet. Until then the journal is in the pod,
    and the learner's log is not a substitute: the runtime drops carriage returns, and one that died has lost bytes.
    """
    status = pod.get("status") or {}
    if status.get("phase") in ("Failed", "Succeeded"):
        return True
    state = _container(status.get("initContainerStatuses"), SIDE_CAR).get("state") or {}
    return "terminated" in state and not is_learner_running(pod)


def indexes(text: Any) -> set[int]:
    """Parse a Job's list of indexes: ``1,3-5``."""
    found: set[int] = set()
    for part in str(text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return found


def time_us(text: Any) -> int | None:
    """Convert a time of the API to microseconds since 1970."""
    if not text:
        return None
    return int(datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() * 1e6)


def _ended(ref: LearnerRef, pod: Pod, ended: Mapping[str, Any], node: str) -> LearnerStatus:
    """Return the status of an ended learner: from the agent's termination message, else from the container's status."""
    ending = _json(ended.get("message"))
    code = int(ended.get("exitCode") or 0)
    started, over = time_us(ended.get("startedAt")), time_us(ended.get("finishedAt"))
    if ended.get("reason") == "OOMKilled" and (not ending or ending.get("signal") == 9 or code == 137):
        return LearnerStatus(
            ref,
            LearnerPhase.EXITED,
            signal=9,
            reason=_out_of_memory(pod),
            started_us=ending.get("started_us") or started,
            ended_us=ending.get("ended_us") or over,
            stopped="memory",
            node=node,
        )
    if ending.get("ended_by") == "cluster" or BY_CLUSTER in str((ending.get("reason") or {}).get("text")):
        # fabric did not request this stop: it counts as the cluster's fault and starts another attempt.
        reason = _why_disrupted(pod) or Reason("its pod was deleted from outside", "S104")
        return LearnerStatus(
            ref, LearnerPhase.LOST, reason=reason, started_us=ending.get("started_us"), node=node
        )
    if ending.get("phase") == "exited":
        return LearnerStatus(
            ref,
            LearnerPhase.EXITED,
            exit_code=ending.get("exit_code"),
            signal=ending.get("signal"),
            reason=_reason(ending.get("reason")),
            started_us=ending.get("started_us"),
            ended_us=ending.get("ended_us") or over,
            decided=bool(ending.get("decided")),
            stopped=str(ending.get("stopped") or ""),
            node=node,
        )
    if not ending.get("phase") and (why := _reason(ending.get("reason"))) is not None:
        return _not_prepared(ref, why, node)
    if disrupted := _why_disrupted(pod):
        return LearnerStatus(ref, LearnerPhase.LOST, reason=disrupted, started_us=started, node=node)
    if code in _KILLED:
        reason = Reason("its container was killed from outside, its agent with it", "S202")
        return LearnerStatus(ref, LearnerPhase.LOST, reason=reason, started_us=started, node=node)
    if "StartError" in str(ended.get("reason")):
        reason = Reason(f"the container could not be started: {_short(str(ended.get('message')))}", "S101")
        return LearnerStatus(ref, LearnerPhase.LOST, reason=reason, node=node)
    return LearnerStatus(
        ref, LearnerPhase.EXITED, exit_code=code, started_us=started, ended_us=over, node=node
    )


def _not_prepared(ref: LearnerRef, why: Reason, node: str) -> LearnerStatus:
    """Return the status of a learner whose command was never started."""
    refused = why.code.startswith(("C1", "C205"))  # the job's own fault
    phase = LearnerPhase.EXITED if refused else LearnerPhase.LOST
    return LearnerStatus(ref, phase, reason=why, node=node, final=refused)


def _why_failed(pod: Pod) -> Reason:
    """Return why a pod failed whose learner was never started or left no state."""
    status = pod.get("status") or {}
    ended = _prepare_ended(pod)
    if ended and (ended.get("exitCode") or 0) != 0:
        reason = _reason(_json(ended.get("message")).get("reason"))
        if reason is not None:
            return reason
        if ended.get("reason") == "OOMKilled":
            return Reason("the pod ran out of memory while the code was unpacked", "S101")
    if status.get("reason") == "Evicted":
        text = f"evicted by its node: {_short(str(status.get('message') or ''))}"
        return Reason(text, "S100", "ask for what the job needs with memory: and storage:")
    if status.get("reason") == "DeadlineExceeded":
        return Reason("ran longer than the cluster permits", "C204", "raise the deadline, or resume the job")
    if disrupted := _why_disrupted(pod):
        return disrupted
    if ended and (ended.get("exitCode") or 0) != 0:
        return Reason(f"its pod could not be prepared: exit code {ended['exitCode']}", "S101")
    if why := _why_own_container_failed(pod):
        return why
    message = str(status.get("message") or status.get("reason") or "the cluster gives no reason")
    code = (
        "S100" if status.get("reason") in ("UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory") else "S200"
    )
    return Reason(f"its pod failed: {_short(message)}", code)


def _why_own_container_failed(pod: Pod) -> Reason | None:
    """Return why a container that the job itself adds, to run before its learner, failed; None where none did."""
    for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
        ended = (status.get("state") or {}).get("terminated") or {}
        if status["name"] in (PREPARE, SIDE_CAR) or not ended.get("exitCode"):
            continue
        name, code = status["name"], ended["exitCode"]
        text = f"the container {name}, which runs before the learner, ended with exit code {code}"
        lines = (
            str(ended.get("message") or "").strip().splitlines()[-3:]
        )  # errors may come before what was printed
        return Reason(f"{text}: {_short(' | '.join(lines))}" if lines else text, "C205")
    return None


def _why_disrupted(pod: Pod) -> Reason | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            text, code, hint = _DISRUPTED.get(
                str(condition.get("reason")),
                (_short(str(condition.get("message") or "disrupted")), "S200", ""),
            )
            return Reason(text, code, hint)
    return None


def _out_of_memory(pod: Pod) -> Reason:
    limit = ""
    for container in (pod.get("spec") or {}).get("containers") or ():
        if container["name"] == LEARNER:
            limit = str(((container.get("resources") or {}).get("limits") or {}).get("memory") or "")
    size = f" of {int(limit) / (1 << 30):.2f} GiB" if limit.isdigit() else (f" of {limit}" if limit else "")
    return Reason(
        f"ran out of memory: over its container's limit{size}",
        "C203",
        "raise memory, or let the job use less",
    )


def _prepare_ended(pod: Pod) -> Mapping[str, Any]:
    prepare = _container((pod.get("status") or {}).get("initContainerStatuses"), PREPARE)
    ended: Mapping[str, Any] = (prepare.get("state") or {}).get("terminated") or {}
    return ended


def _containers(pod: Pod) -> list[Mapping[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _container(statuses: Any, name: str) -> Mapping[str, Any]:
    return next((one for one in statuses or () if one["name"] == name), {})


def _learner_state(pod: Pod) -> Mapping[str, Any]:
    state: Mapping[str, Any] = (
        _container((pod.get("status") or {}).get("containerStatuses"), LEARNER).get("state") or {}
    )
    return state


def _image_of(pod: Pod) -> str:
    containers = (pod.get("spec") or {}).get("containers") or ()
    return next((str(one["image"]) for one in containers if one["name"] == LEARNER), "")


def _is_deleted(document: Pod) -> bool:
    return bool(document["metadata"].get("deletionTimestamp"))


def is_finished(job: Pod) -> bool:
    """Return whether a Job has ended."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def _json(text: Any) -> dict[str, Any]:
    try:
        document = json.loads(text or "")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _reason(document: Any) -> Reason | None:
    if not isinstance(document, Mapping) or not document.get("text"):
        return None
    return Reason(str(document["text"]), str(document.get("code") or ""), str(document.get("hint") or ""))


def _short(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= 400 else line[:397] + "..."
