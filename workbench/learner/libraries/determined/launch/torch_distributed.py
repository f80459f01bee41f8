"""One process for each slot, by torch.distributed.run: ``python3 -m determined.launch.torch_distributed SCRIPT``."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys

# Relative: this package is imported by its last name.
from .._info import get_cluster_info  # noqa: TID252

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Sequence

USAGE = (
    "usage: python3 -m determined.launch.torch_distributed [OPTIONS OF torch.distributed.run --] SCRIPT..."
)
SIGNALS_VARIABLE = "PET_SIGNALS_TO_HANDLE"
"""The default of the option ``--signals-to-handle``, which older versions do not have."""


def launch_command(words: Sequence[str], processes: int) -> list[str]:
    """Return the command that starts the processes of this machine; what stands before ``--`` overrides options.

    Raises:
        ValueError: there is no script, or it is a Trial class.
    """
    before: list[str] = []
    script = list(words)
    if "--" in script:
        at = script.index("--")
        before, script = script[:at], script[at + 1 :]
    if "--trial" in (*before[:1], *script[:1]):
        raise ValueError("--trial: the Trial classes do not run here; write the loop with det.core")
    if not script:
        raise ValueError(USAGE)
    options = ["--nnodes", "1", "--nproc_per_node", str(processes), "--max_restarts", "0"]
    options += ["--master_addr", os.environ.get("MASTER_ADDR", "127.0.0.1")]
    options += ["--master_port", os.environ.get("MASTER_PORT", "29400")]
    wrapped = ["--module", "determined.launch.wrap_rank", "RANK", "--", *script]
    return [sys.executable, "-m", "torch.distributed.run", *options, *before, *wrapped]


def main(words: Sequence[str]) -> int:
    """Become torch.distributed.run; return an exit code where that cannot be."""
    info = get_cluster_info()
    try:
        command = launch_command(words, len(info.slot_ids) or 1 if info else 1)
    except ValueError as error:
        print("determined.launch.torch_distributed: %s" % error, file=sys.stderr)
        return 2
    if importlib.util.find_spec("torch") is None:
        print(
            "determined.launch.torch_distributed: torch is not installed in %s; name it in requirements:, or"
            " an image that has it" % sys.executable,
            file=sys.stderr,
        )
        return 1
    if info is not None:
        # A stop is for the training code to see: torch.distributed.run would end the processes at once.
        os.environ.setdefault(SIGNALS_VARIABLE, "SIGINT,SIGHUP,SIGQUIT")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.flush()
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
