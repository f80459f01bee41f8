"""Writes the launch document of a learner (``launch.json``); the agent reads it as ``LaunchDocument``.

What the job decides is the same for every runner and is taken from the request. What a runner decides is a
field of :class:`LearnerLaunch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from runners.interface import AttemptRef, LaunchPlan, LaunchRequest, LearnerRef
from runners.shared.host_facts import HostFacts
from workbench.errors import LaunchRefused
from workbench.formats import size
from workbench.learner.journal.launch_document import ASKED, AUTO, BY_POLICY, NEVER
from workbench.learner.journal.stop_rules import is_for_agent
from workbench.learner.queue.allocation import PREEMPTION, PREEMPTION_SECONDS, PRIORITY, SWEEP
from workbench.manifest.builder.scripts_run import may_be_preempted
from workbench.metric_names import goal_of
from workbench.plugins import plugins
from workbench.spec import SWEEP_LABEL, JobSpec, spec_to_json
from workbench.values import dataclass

GROUP: Final = "fabric.collectors"
_OURS: Final = "workbench.learner."

USAGE_SECONDS: Final = 2.0
"""How often a learner's usage is sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerLaunch:
    """One learner's launch document before it is written; paths are the agent's."""

    request: LaunchRequest
    learner: int
    """Its number from 1; 0 where each pod writes its own."""
    command: str
    setup: str
    shell: str
    cwd: str
    env: Mapping[str, str]
    secrets_file: str | None
    attempt_dir: str
    log_dir: str
    log_dir_shared: bool = True
    """Whether all learners of the attempt write their logs into the same folder."""
    memory_bytes: int | None = None
    """What the agent enforces; None where the container engine or the cluster does."""
    umask: int | None = None
    """The command's; None leaves it the agent's."""
    cpus: str | None = None
    """``CHOSEN`` where the agent binds the learner to some CPUs; they are chosen at launch."""
    slots: Sequence[str] = ()
    metrics: Mapping[str, Any] | None
    stores: Mapping[str, Any] | None
    retention: Mapping[str, Any] | None = None
    """Which checkpoints are kept, where no result store takes them."""
    preemption: Mapping[str, Any] | None = None
    """How the learner sees that it is preempted; None where it never is."""
    writable: Sequence[str] | None = None
    """The folders that the command's container writes in; None without a container."""

    def to_json(self) -> dict[str, Any]:
        """Return the document as it is written; its keys are read by agents of every age."""
        spec, attempt = self.request.spec, self.request.attempt
        document: dict[str, Any] = {
            "format": 1,
            "home": attempt.home,
            "owner": self.request.owner,
            "job": attempt.job_id,
            "attempt": attempt.attempt,
            "learner": self.learner,
            "learners": attempt.learners,
            "command": self.command,
            "setup": self.setup,
            "shell": self.shell,
            "cwd": self.cwd,
            "env": dict(self.env),
            "secrets_file": self.secrets_file,
            "secrets": list(spec.secrets),
            "grace_seconds": spec.grace_seconds,
            "settle_seconds": spec.settle_seconds,
            "ends_when": spec.ends_when,
            "max_runtime_seconds": spec.max_runtime_seconds,
            "memory_bytes": self.memory_bytes,
            "cpus": self.cpus,
            "slots": list(self.slots),
            "usage_seconds": USAGE_SECONDS,
            "attempt_dir": self.attempt_dir,
            "log_dir": self.log_dir,
            "log_dir_shared": self.log_dir_shared,
            "metrics": self.metrics,
            "stores": self.stores,
        }
        if spec.cpus:
            document["reserved_cpus"] = spec.cpus
        if spec.at_most is not None and SWEEP_LABEL in spec.labels:
            document[SWEEP] = spec.labels[SWEEP_LABEL]
        if self.retention is not None:
            document["retention"] = self.retention
        if self.preemption is not None:
            document["preemption"] = self.preemption
        # An agent would stop the learners of its own host alone: the controller follows the rules.
        is_judged = (attempt.learners == 1 or self.learner == 1) and not attempt.part
        if is_judged and (rules := rules_for_agent(spec)):
            document["stop_when"] = rules
        if self.umask is not None:
            document["umask"] = self.umask
        if self.writable is not None:
            document["writable"] = list(self.writable)
        return document


def is_log_dir_shared(attempt: AttemptRef, learner: int) -> bool:
    """Say whether a learner leaves its folder for logs to learner 1, which stores what lies there.

    Each host of several has such a folder of its own: where learner 1 is not, the first learner of the host stores it.
    """
    return (
        len(attempt.numbers) > 1 and (learner == 1 or learner != attempt.numbers[0]) if attempt.part else True
    )


def rules_for_agent(spec: JobSpec) -> list[dict[str, Any]]:
    """Return the rules of ``stop_when`` by which a learner's agent stops the job, each with its ``goal``.

    Those that compare with other jobs, or stop nothing, are left to the controller.
    """
    return [{"goal": goal_of(rule["metric"]), **rule} for rule in spec.stop_when if is_for_agent(rule)]


def metrics_document(spec: JobSpec) -> dict[str, Any] | None:
    """Return ``evaluation_metrics`` as the agent reads it; a third-party collector with its import path.

    Raises:
        LaunchRefused: no collector of that name is installed.
    """
    if spec.evaluation_metrics is None:
        return None
    document: dict[str, Any] = spec_to_json(spec)["evaluation_metrics"]
    if spec.evaluation_metrics.type == AUTO:
        watched = [str(rule["metric"]) for rule in spec.stop_when]
        watched += [spec.checkpoints.metric] if spec.checkpoints.metric else []
        document["names"] = list(dict.fromkeys((*spec.evaluation_metrics.names, *watched)))
        return document  # nearly every job's: installed packages need not be searched
    found = plugins(GROUP)
    value = found.get(spec.evaluation_metrics.type)
    if value is None:
        raise LaunchRefused(
            f"There is no collector {spec.evaluation_metrics.type!r}.",
            hint=f"Installed are: {', '.join(sorted(found))}.",
            code="C101",
        )
    if not value.startswith(_OURS):
        module, _, name = value.partition(":")
        document["collector"] = {"module": module, "class": name, "path": _path_of(module)}
    return document


def _path_of(module: str) -> list[str]:
    """Return the entry for the agent's sys.path from which it imports a third-party collector."""
    package = module.partition(".")[0]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    return [str(origin.parents[1] if spec.submodule_search_locations else origin.parent)]


def preemption_document(request: LaunchRequest, site: HostFacts) -> dict[str, Any] | None:
    """Return what a learner's agent needs to see that others want it to end; None where it does not look.

    A job that is never preempted looks for the operators of its host alone.
    """
    spec = request.spec
    if not (spec.gpus and site.python):
        return None
    never = {PREEMPTION: NEVER, PRIORITY: spec.priority, PREEMPTION_SECONDS: spec.preemption_seconds}
    return {**(preemption_facts(request, site) or never), "leases_folder": site.leases}


def preemption_facts(request: LaunchRequest, site: HostFacts) -> dict[str, Any]:
    """Return whether and how a job may be preempted, as its leases have it.

    Nothing where it is not: without Python no agent looks who waits.
    """
    spec = request.spec
    if not (site.python and may_be_preempted(spec)):
        return {}
    return {
        PREEMPTION: ASKED if spec.preemptible else BY_POLICY,
        PRIORITY: spec.priority,
        PREEMPTION_SECONDS: spec.preemption_seconds,
    }


def ref_of(plan: LaunchPlan, learner: int) -> LearnerRef:
    """Return the reference of a learner of a plan."""
    attempt = plan.request.attempt
    return LearnerRef(attempt.home, attempt.job_id, attempt.attempt, learner)


def check_supported(reasons: Sequence[str]) -> None:
    """Refuse a job for the first of the reasons why a runner cannot run it; nothing happens without one."""
    if reasons:
        raise LaunchRefused(f"{reasons[0][0].upper()}{reasons[0][1:]}.", code="C104")


def check_secrets(request: LaunchRequest) -> None:
    """Refuse a job if a secret that it names has no value."""
    if missing := [name for name in request.spec.secrets if name not in request.secrets]:
        raise LaunchRefused(
            f"There is no value for the secret {missing[0]}.",
            hint=f"Set it when you submit the job: fabric run -e {missing[0]}",
            code="C103",
        )


def check_memory(request: LaunchRequest, site: HostFacts) -> None:
    """Refuse a job that asks for more memory than the host has."""
    spec = request.spec
    count = len(request.attempt.numbers)
    needed_bytes = (spec.memory_bytes or 0) * count
    if needed_bytes <= site.memory_bytes:
        return
    each = f" ({count} learners with {size(spec.memory_bytes or 0)} each)" if count > 1 else ""
    raise LaunchRefused(
        f"The job asks for {size(needed_bytes)} of memory{each}; {site.name} has {size(site.memory_bytes)}.",
        hint="Ask for less with 'memory:' or --set memory=, or run it on another backend.",
        code="C104",
    )
