"""What people type who come from other tools, and the command that does it here: docs/coming-from.md as a table.

Read only when a command is not known. Tests compare it with that page.
"""

from __future__ import annotations

from typing import Final

PEER_VERBS: Final = {
    # docker, and what is common
    "rm": "delete",
    "remove": "delete",
    "destroy": "delete",
    "stop": "halt",
    "pause": "halt",
    "suspend": "halt",
    "terminate": "kill",
    "unpause": "resume",
    "start": "resume",
    "restart": "resume",
    "continue": "resume",
    "inspect": "show",
    "info": "show",
    "top": "gpus",
    "stats": "gpus",
    "log": "logs",
    "tail": "logs",
    "load": "image load",
    "system": "du",
    # kubectl
    "apply": "run",
    "create": "run",
    "get": "list",
    "annotate": "note",
    "label": "tag",
    "auth": "backend test",
    # Slurm
    "sbatch": "run -d",
    "srun": "run",
    "squeue": "queue",
    "sacct": "list",
    "scancel": "cancel",
    "scontrol": "show",
    "sattach": "attach",
    "sinfo": "backend list",
    "sstat": "show",
    "scrontab": "schedule",
    # Determined, dstack, Ray, SkyPilot, TorchX
    "activate": "resume",
    "agent": "backend list",
    "check": "doctor",
    "cmd": "run",
    "down": "backend remove",
    "event": "events",
    "fleet": "backend list",
    "job": "list",
    "jobs": "list",
    "launch": "run",
    "preview-search": "preview",
    "show-gpus": "gpus",
    "slot": "gpus",
    "submit": "run -d",
    "trial": "logs",
    "up": "run",
}
"""By the verb; of several that fit, the one that a newcomer means most likely."""
