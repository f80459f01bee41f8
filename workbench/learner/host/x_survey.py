"""What a runner must know of a place before it plans, in one answer: each question costs a round trip."""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict

from workbench.learner.host import machine
from workbench.learner.host.remote_loader import CHANGED

LEASES = "/tmp/fabric-leases"
"""Where GPUs are leased unless ``FABRIC_LEASES`` says otherwise."""

INSTALLERS = ("PIP_", "UV_")
"""How the variables begin that say where packages come from."""

_KEPT = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"),
        *("LD_LIBRARY_PATH", "XDG_RUNTIME_DIR"),
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    )
)
_OF_A_JOB = (
    "FABRIC_LEARNER",
    "FABRIC_GUARD",
    "FABRIC_PARAM",
    "FABRIC_REPORT",
    "FABRIC_STOP",
    "FABRIC_SEED",
    "FABRIC_ENVIRONMENT",
)


def leases_folder() -> str:
    """Return where GPUs are leased here."""
    return os.environ.get("FABRIC_LEASES") or LEASES


def survey() -> Dict[str, Any]:
    """Return what :func:`host_machine.identity` says, and what there is for learners."""
    return {
        **machine.identity(),
        "environment": {name: value for name, value in os.environ.items() if passes(name)},
        "processors": machine.processors(),
        "memory_bytes": machine.memory()["total"],
        "leases": leases_folder(),
        "bash": shutil.which("bash") or "",
        "uv": shutil.which("uv") or "",
        "changed": os.environ.get(CHANGED, "").split(),
    }


def passes(name: str) -> bool:
    """Say whether an agent that is started here keeps an environment variable."""
    if name in os.environ.get(CHANGED, "").split():
        return True
    own = name.startswith("FABRIC_") and not name.startswith(_OF_A_JOB)
    return own or name in _KEPT or name.startswith(("LC_", *INSTALLERS))
