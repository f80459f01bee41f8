"""One process for each slot, by torch.distributed.run: ``python3 -m determined.launch.torch_distributed SCRIPT``."""

from __future__ import annotations

import importlib.util
import sys

# Relative: this package is imported by its last name.
from .._info import get_cluster_info  # noqa: TID252
from . import _launcher

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Sequence

USAGE = "usage: python3 -m determined.launch.torch_distributed [[TORCH_OVERRIDES...] --] SCRIPT..."
SIGNALS_VARIABLE = "PET_SIGNALS_TO_HANDLE"
"""The default of the option ``--signals-to-handle``, which older versions do not have."""


def launch_command(overrides: Sequence[str], script: Sequence[str], processes: int) -> list[str]:
    """Return the command that starts the processes of this machine; of an option given twice the last one counts."""
    options = ["--nnodes", str(_launcher.learners()), "--nproc_per_node", str(processes)]
    options += ["--node_rank", str(_launcher.learner()), "--max_restarts", "0"]
    options += ["--master_addr", _launcher.chief(), "--master_port", _launcher.port()]
    module = _launcher.wrapped("RANK", script)[1:]
    return [sys.executable, "-m", "torch.distributed.run", *options, "--module", *overrides, *module]


def main(words: Sequence[str]) -> int:
    """Become torch.distributed.run; return an exit code where that cannot be."""

    def command_of(overrides: list[str], script: list[str]) -> list[str]:
        if importlib.util.find_spec("torch") is None:
            raise _launcher.Refused(
                "torch is not installed in %s; name it in requirements:, or an image that has it"
                % sys.executable,
                1,
            )
        return launch_command(overrides, script, _launcher.slots())

    # torch.distributed.run would end the processes of a job that is stopped at once.
    variables = {"USE_TORCH_DISTRIBUTED": "True"}
    if get_cluster_info() is not None:
        variables[SIGNALS_VARIABLE] = "SIGINT,SIGHUP,SIGQUIT"
    return _launcher.run("torch_distributed", words, USAGE, command_of, variables)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
