"""Files of other systems, recognised by their keys, so that they are named instead of picked to pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import MapNode


@dataclass(frozen=True, slots=True)
class Format:
    """Another system's file: it holds all of ``every`` and one of ``any_of``."""

    name: str
    every: frozenset[str]
    any_of: frozenset[str]
    hint: str


_COMMAND_HINT: Final = "fabric init writes a manifest to start from; its command goes to framework.command"

FORMATS: Final = (
    Format(
        "an experiment of Determined",
        frozenset(),
        frozenset(
            {
                "searcher",
                "entrypoint",
                "hyperparameters",
                "checkpoint_storage",
                "bind_mounts",
                "min_validation_period",
            }
        ),
        "experiments are not built yet; for a single job write its entrypoint to framework.command and its"
        " hyperparameters to params",
    ),
    Format(
        "a training definition of Watson Machine Learning",
        frozenset(),
        frozenset({"model_definition", "training_data_reference", "training_results_reference"}),
        "write its execution.command to framework.command, its framework to framework.name and version,"
        " and its two references to one entry of data_stores",
    ),
    Format("a Kubernetes object", frozenset({"apiVersion", "kind"}), frozenset(), _COMMAND_HINT),
    Format("a Docker Compose file", frozenset({"services"}), frozenset(), _COMMAND_HINT),
    Format(
        "a SkyPilot task",
        frozenset({"run"}),
        frozenset({"resources", "num_nodes", "file_mounts"}),
        _COMMAND_HINT,
    ),
)


def recognised(root: MapNode, findings: Findings) -> bool:
    """Note that a file is another system's; returns whether it is."""
    keys = frozenset(root.entries)
    if "framework" in keys:
        return False
    for known in FORMATS:
        if known.every <= keys and (not known.any_of or known.any_of & keys):
            findings.fault(root.location, "", f"this is {known.name}, not a manifest", known.hint)
            return True
    return False
