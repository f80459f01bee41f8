"""Names the collector of a job's metrics for its agent, which knows nothing of installed packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from runners.interface import LaunchPlan, LaunchRequest, LearnerRef
from runners.shared.host_facts import HostFacts
from workbench.errors import LaunchRefused
from workbench.plugins import plugins
from workbench.spec import JobSpec, spec_to_json

GROUP: Final = "fabric.collectors"
_OURS: Final = "workbench.learner."


def metrics_document(spec: JobSpec) -> dict[str, Any] | None:
    """Return ``evaluation_metrics`` as the agent reads it; a foreign collector with where to import it from.

    Raises:
        LaunchRefused: no collector of that name is installed.
    """
    if spec.evaluation_metrics is None:
        return None
    document: dict[str, Any] = spec_to_json(spec)["evaluation_metrics"]
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
    """Return what must be on the agent's path so that it finds a foreign collector."""
    package = module.partition(".")[0]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    return [str(origin.parents[1] if spec.submodule_search_locations else origin.parent)]


USAGE_SECONDS = 2.0
"""How often a learner's usage is sampled."""


def ref_of(plan: LaunchPlan, learner: int) -> LearnerRef:
    """Name one learner of a plan."""
    attempt = plan.request.attempt
    return LearnerRef(attempt.home, attempt.job_id, attempt.attempt, learner)


def check_memory(request: LaunchRequest, site: HostFacts) -> None:
    """Refuse more memory than the place has."""
    spec = request.spec
    wanted = (spec.memory_bytes or 0) * spec.learners
    if wanted <= site.memory_bytes:
        return
    each = (
        f" ({spec.learners} learners with {_size(spec.memory_bytes or 0)} each)" if spec.learners > 1 else ""
    )
    raise LaunchRefused(
        f"The job asks for {_size(wanted)} of memory{each}; {site.name} has {_size(site.memory_bytes)}.",
        hint="Ask for less with 'memory:' or --set memory=, or run it on another backend.",
        code="C104",
    )


def _size(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"
