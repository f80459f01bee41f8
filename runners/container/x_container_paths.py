"""Where things lie in a learner's container: at FfDL's paths, and what is ours out of the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runners.container.stores import CHECKPOINTS_INSIDE as CHECKPOINTS
from runners.container.stores import DATA, RESULTS, results_inside, store_folders
from runners.interface import LaunchRequest
from runners.shared.environment import job_folders
from runners.shared.host_facts import Site

STATE: Final = "/job"
MODEL: Final = "/job/model-code"
LOGS: Final = "/job/logs"
OURS: Final = "/.fabric"
LEARNER: Final = f"{OURS}/learner"
PROGRAM: Final = f"{OURS}/inside.sh"
AGENT: Final = f"{OURS}/agent.pyz"
SECRETS: Final = f"{OURS}/secrets.sh"
ENVIRONMENT: Final = f"{OURS}/env"
"""The cached environment of ``requirements:``; a virtual environment does not move."""
REPORT: Final = f"{OURS}/report.jsonl"

PROMISED: Final[Mapping[str, str]] = {
    "MODEL_DIR": MODEL,
    "DATA_DIR": DATA,
    "RESULT_DIR": RESULTS,
    "RESULT_BUCKET_DIR": RESULTS,
    "CHECKPOINT_DIR": CHECKPOINTS,
    "LOG_DIR": LOGS,
    "JOB_STATE_DIR": STATE,
}


def inside_folder(request: LaunchRequest, learner: int, site: Site) -> Path:
    """Return the folder whose pipes join a learner's agent to its container."""
    return job_folders(request, site)[1].learner(learner).path / "inside"


def folders(request: LaunchRequest, learner: int, site: Site) -> dict[str, str]:
    """Return the folders of the job that a container sees, each with its path in there."""
    job, attempt = job_folders(request, site)
    return {
        STATE: str(attempt.job_state),
        MODEL: str(attempt.model(learner)),
        DATA: str(job.data),
        CHECKPOINTS: str(job.checkpoints),
        **({results: str(job.results)} if (results := results_inside(request)) else {}),
    }


def outside(text: str, request: LaunchRequest, learner: int, site: Site) -> str:
    """Return a path of a container as the place has it; what the job does not share stays as it is."""
    seen = {**folders(request, learner, site), **store_folders(request, site)}
    for there, here in sorted(seen.items(), reverse=True):
        if text == there or text.startswith(f"{there}/"):
            return here + text[len(there) :]
    return text
