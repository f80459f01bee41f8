"""Names the collector of a job's metrics for its agent, which knows nothing of installed packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

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
