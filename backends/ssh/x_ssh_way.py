"""What was found on the way to the agent at a host: with it, one program starts there where else three do."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from workbench.learner.host.remote_loader import GREETING
from workbench.paths import Home

HERE: Final = b"here"
"""What is said in the place of JSON where the agent begins at once."""

SAFE: Final = re.compile(r"[A-Za-z0-9_./~+@%-]+")
"""What needs no quoting in any shell."""


@dataclass(frozen=True, slots=True)
class Way:
    """How the agent was started at a host the last time."""

    machine: str
    """Which machine that was: one name may lead to several."""
    python: str
    folder: str
    """Where agents are."""
    home_uuid: str

    def shortcut(self, agent: str, home_uuid: str, *, python_first: bool) -> str:
        """Return the start of a script for ``sh``: it becomes the agent, or goes on where anything is not as it was.

        Args:
            agent: the name of the agent's archive, without its suffix.
            home_uuid: whose agents.
            python_first: whether jobs find that Python before all others.
        """
        program = f"{self.folder}/{agent}/__main__.py"
        bin_folder = f"{self.folder.rpartition('/')[0]}/bin"
        told = (self.machine, self.python, program, bin_folder)
        if home_uuid != self.home_uuid or not all(SAFE.fullmatch(text) for text in told):
            return ""
        greeting = "; ".join(f"echo {line}" for line in (GREETING + HERE).decode().split("\n"))
        path = f"PATH={self.python.rpartition('/')[0]}:$PATH; " if python_first else ""
        return (
            f'm=; {{ read -r m </etc/machine-id; }} 2>/dev/null; if [ "$m" = {self.machine} ] && '
            f"[ -x {self.python} ] && [ -f {program} ]; then {path}"
            f"command -v python >/dev/null || PATH=$PATH:{bin_folder}; export PATH; cd /; {greeting}; "
            f"exec {self.python} -I -S {program} host; fi; "
        )


def remembered_way(home: Home, key: str) -> Way | None:
    """Return what is known of the way to a host, None for one that was never reached."""
    try:
        return Way(**json.loads(home.place(f"{key}.way").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def remember_way(home: Home, key: str, found: Mapping[str, Any], home_uuid: str) -> None:
    """Keep what an arrival has found; a disk that takes nothing makes the next one slower."""
    way = Way(str(found["machine"]), str(found["python"]), str(found["folder"]), home_uuid)
    path = home.place(f"{key}.way")
    beside = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside.write_text(json.dumps(asdict(way)))
        beside.replace(path)


def forget_way(home: Home, key: str) -> None:
    """Look for the agent anew the next time."""
    with contextlib.suppress(OSError):
        home.place(f"{key}.way").unlink(missing_ok=True)
