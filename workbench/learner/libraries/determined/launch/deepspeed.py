"""One process for each slot, by DeepSpeed's own launcher: ``python3 -m determined.launch.deepspeed SCRIPT``.

Where the job is asked to stop, DeepSpeed gives its processes half a minute.
"""

from __future__ import annotations

import os
import sys

from . import _launcher

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Sequence

USAGE = "usage: python3 -m determined.launch.deepspeed [[DEEPSPEED_OVERRIDES...] --] SCRIPT..."
GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"


def launch_command(
    program: str, overrides: Sequence[str], script: Sequence[str], processes: int
) -> list[str]:
    """Return the command that starts the processes of this machine; of an option given twice the last one counts."""
    options = ["--num_gpus", str(processes), "--master_addr", _launcher.CHIEF]
    options += ["--master_port", _launcher.port(), "--no_python", "--no_local_rank"]
    # DeepSpeed counts from the machine's first GPU, whichever the job has.
    gpus = "%s=%s" % (GPUS_VARIABLE, os.environ.get(GPUS_VARIABLE, ""))
    return [
        program,
        *options,
        *overrides,
        "--",
        "env",
        gpus,
        sys.executable,
        *_launcher.wrapped("RANK", script),
    ]


def main(words: Sequence[str]) -> int:
    """Become ``deepspeed``; return an exit code where that cannot be."""

    def command_of(overrides: list[str], script: list[str]) -> list[str]:
        _launcher.refuse_several(
            "DeepSpeed",
            "determined.launch.torch_distributed starts them, for deepspeed.init_distributed() as well",
        )
        program = _launcher.tool("deepspeed", "DeepSpeed")
        return launch_command(program, overrides, script, _launcher.slots())

    return _launcher.run("deepspeed", words, USAGE, command_of, {"USE_DEEPSPEED": "1"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
