"""One process for each slot, by horovodrun: ``python3 -m determined.launch.horovod SCRIPT``.

Where the job is asked to stop, Horovod ends its processes by itself.
"""

from __future__ import annotations

import sys

# Relative: this package is imported by its last name.
from .._info import get_cluster_info  # noqa: TID252
from . import _launcher

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

USAGE = "usage: python3 -m determined.launch.horovod [[HVD_OVERRIDES...] --] SCRIPT..."
RANK_VARIABLES = "HOROVOD_RANK,OMPI_COMM_WORLD_RANK,PMI_RANK"
START_SECONDS = 1200
GLOO_SECONDS = 240


def launch_command(
    program: str,
    overrides: Sequence[str],
    script: Sequence[str],
    processes: int,
    config: Mapping[str, Any],
) -> list[str]:
    """Return the command that starts the processes of this machine; of an option given twice the last one counts."""
    options = ["-np", str(processes), "-H", "%s:%d" % (_launcher.CHIEF, processes)]
    options += ["--start-timeout", str(START_SECONDS), "--gloo-timeout-seconds", str(GLOO_SECONDS)]
    tuned = config.get("optimizations") or {}
    if tuned.get("auto_tune_tensor_fusion"):
        options += ["--autotune", "--autotune-log-file", "/tmp/autotune_log.csv"]
    else:
        options += ["--fusion-threshold-mb", str(tuned.get("tensor_fusion_threshold", 64))]
        options += ["--cycle-time-ms", str(tuned.get("tensor_fusion_cycle_time", 1))]
    options += ["--cache-capacity", "1024", "--no-hierarchical-allreduce", "--no-hierarchical-allgather"]
    if config.get("debug"):
        options.append("--verbose")
    return [program, *options, *overrides, "--", sys.executable, *_launcher.wrapped(RANK_VARIABLES, script)]


def main(words: Sequence[str]) -> int:
    """Become ``horovodrun``; return an exit code where that cannot be."""

    def command_of(overrides: list[str], script: list[str]) -> list[str]:
        _launcher.refuse_several(
            "Horovod", "determined.launch.torch_distributed starts them, for code that uses torch.distributed"
        )
        info = get_cluster_info()
        config = info.trial._config if info else {}
        program = _launcher.tool("horovodrun", "Horovod")
        return launch_command(program, overrides, script, _launcher.slots(), config)

    return _launcher.run("horovod", words, USAGE, command_of, {"USE_HOROVOD": "1"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
